"""The reference backend behind the registry, the executor and the hook."""

import warnings

import array_api_strict as strict
import numpy as np
import pytest

from mixad.backends import reference, registry, slow
from mixad.backends.execute import execute
from mixad.backends.reference.backend import ReferenceBackend
from mixad.backends.slow import LARGE, warn_if_large
from mixad.kernel.plan import Layout, plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import F32, F64, I32


def scaled_difference():
    """Build (x - y)·u and, as a second output, whether x < y."""
    b = Builder("scaled_difference")
    x, y, u = b.param("x", F32), b.param("y", F32), b.param("u", F32, "uniform")
    return b.finish([b.op("mul", b.op("sub", x, y), u), b.op("lt", x, y)])


X = np.arange(6, dtype="f4").reshape(2, 3)
Y = np.array([0.5, 4.0, -1.0], "f4")
BOTH = (OutputRequest(0, 0), OutputRequest(0, 1))


def test_it_is_found_by_name_and_serves_every_library():
    assert isinstance(registry.backend("reference"), ReferenceBackend)
    (spec,) = reference.mixad_backends()
    assert spec.capability.serves("some_library", "some_device", frozenset({"float32"}))
    assert not spec.capability.native


def test_it_computes_what_numpy_does():
    difference, less = execute((scaled_difference(),), BOTH, [X, Y, 2.0], "reference")
    np.testing.assert_array_equal(difference, (X - Y) * np.float32(2))
    np.testing.assert_array_equal(less, X < Y)


def test_results_are_of_the_arguments_library():
    arguments = [strict.asarray(X), strict.asarray(Y), 2.0]
    difference, less = execute((scaled_difference(),), BOTH, arguments, "reference")
    assert type(difference) is type(arguments[0])
    assert difference.dtype == strict.float32
    assert less.dtype == strict.bool


def test_it_agrees_with_the_cpu_backend_for_any_layout():
    views = [X, X.T.copy().T, np.broadcast_to(X[:, :1], (2, 3)), X[::-1, ::-1], X[:0]]
    for view in views:
        arguments = [view, Y, np.float32(0.5)]
        ours, cpus = (
            execute((scaled_difference(),), BOTH, arguments, name) for name in ("reference", "cpu")
        )
        for a, b in zip(ours, cpus, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


def test_several_passes_give_the_outputs_asked_for():
    def negated():
        b = Builder("negated")
        x, y, u = b.param("x", F32), b.param("y", F32), b.param("u", F32, "uniform")
        return b.finish([b.op("neg", y), b.op("add", x, u)])

    requests = (OutputRequest(1, 1), OutputRequest(0, 1), OutputRequest(1, 0))
    arguments = [X, Y, 1.0]
    plus, less, minus = execute((scaled_difference(), negated()), requests, arguments, "reference")
    np.testing.assert_array_equal(plus, X + 1)
    np.testing.assert_array_equal(less, X < Y)
    np.testing.assert_array_equal(minus, np.broadcast_to(-Y, X.shape))


def test_a_program_of_uniforms_gives_a_numpy_scalar_array():
    b = Builder("f")
    u = b.param("u", F64, "uniform")
    (out,) = execute((b.finish([b.op("neg", u)]),), (OutputRequest(0, 0),), [2.5], "reference")
    assert out.shape == ()
    assert out == -2.5


def spec_of(program):
    layouts = [Layout(F32, X.shape, X.strides), Layout(F32, Y.shape, Y.strides), None]
    return plan((program,), BOTH, layouts, X.shape, 1 << 30).spec


def test_source_shows_each_pass():
    assert ReferenceBackend().emit(spec_of(scaled_difference())) == SOURCE


SOURCE = """\
# pass 0; outputs used: 0, 1
def procedure(v0, v1, v2):
    v3 = v0 - v1
    v4 = v3 * v2
    v5 = v0 < v1
    return (v4, v5,)"""


@pytest.mark.parametrize("shape", [(3,), (2, 1), (), (1, 3)], ids=str)
def test_outputs_are_summed_to_a_requested_shape(shape):
    """Small whole numbers: their sums are exact in any order."""
    request = (OutputRequest(0, 0, shape), OutputRequest(0, 0))
    summed, stored = execute((scaled_difference(),), request, [X, Y * 2, 1.0], "reference")
    lead = 2 - len(shape)
    axes = tuple(k for k in range(2) if k < lead or shape[k - lead] == 1)
    np.testing.assert_array_equal(summed, (X - Y * 2).sum(axis=axes).reshape(shape))
    np.testing.assert_array_equal(stored, X - Y * 2)


def test_an_index_outside_is_refused_as_by_the_cpu_backend():
    b = Builder("f")
    a, i = b.array_param("a", ArrayType(F32, 1)), b.param("i", I32)
    program = b.finish([b.load(a, i)])
    for name in ("reference", "cpu"):
        with pytest.raises(IndexError):
            execute((program,), (OutputRequest(0, 0),), [Y, np.array([0, 3], "i4")], name)


def test_large_work_is_warned_about_once_for_each_library(monkeypatch):
    monkeypatch.setattr(slow, "_warned", set())
    with pytest.warns(RuntimeWarning, match="10001 elements of cupy .* install mixad-cupy"):
        warn_if_large(LARGE + 1, "cupy", "cuda:0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_large(LARGE + 1, "cupy", "cuda:0")
        warn_if_large(LARGE, "jax", "cpu")
    with pytest.warns(RuntimeWarning, match="jax .* convert them to NumPy arrays"):
        warn_if_large(LARGE + 1, "jax", "cpu")
    with pytest.warns(RuntimeWarning, match="numpy .* `python -m mixad doctor` says why"):
        warn_if_large(LARGE + 1, "numpy", "cpu")
