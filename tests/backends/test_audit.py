"""MIXAD_AUDIT: what a backend computes wrongly is found, with its line; what is right passes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import mixad
from mixad.backends import registry
from mixad.backends.audit import Audit
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.hookspecs import API_VERSION, BackendSpec, hookimpl
from mixad.config import AUDIT
from mixad.errors import AuditError, BackendError, ConfigurationError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import Equation, Program
from mixad.scalar.types import ALL_TYPES, F64


class BrokenBackend(CpuBackend):
    """The CPU's, that subtracts where it should multiply."""

    name = "wrong"

    def compile(self, spec):
        return super().compile(replace(spec, passes=tuple(map(mistaken, spec.passes))))


def mistaken(program: Program) -> Program:
    """Return the program with `sub` for `mul` in its outermost block."""
    body = program.body
    statements = tuple(
        replace(s, op="sub") if isinstance(s, Equation) and s.op == "mul" else s
        for s in body.statements
    )
    return replace(program, body=replace(body, statements=statements))


class CarelessBackend(CpuBackend):
    """The CPU's, that forgets the last element of what it stores."""

    name = "spoiling"

    def launch(self, bound, arguments):
        results = super().launch(bound, arguments)
        for result in results:
            if result.size > 1:
                result.reshape(-1)[-1] += 1
        return results


class _Plugin:
    @hookimpl
    def mixad_backends(self):
        dtypes = frozenset(t.dtype.name for t in ALL_TYPES)
        capability = replace(registry.capability("cpu"), array_modules=("numpy",), dtypes=dtypes)
        kinds = (BrokenBackend, CarelessBackend)
        return [BackendSpec(k.name, API_VERSION, capability, k, "") for k in kinds]


@pytest.fixture(autouse=True)
def _backends(monkeypatch):
    source = registry.PluginSource("wrong", "tests", _Plugin)
    own = registry.Registry([*registry.installed_plugins(), source])
    monkeypatch.setattr(registry, "default_registry", lambda: own)


@pytest.fixture
def audited(monkeypatch):
    monkeypatch.setenv("MIXAD_AUDIT", "1")


X, Y = np.linspace(0.0, 1.0, 12).reshape(3, 4), np.asarray([1.0, 2.0, 3.0, 4.0])


# Kernels keep the rate that they were prepared with, so every test has kernels of its own.


def test_a_broken_backend_is_found_with_inputs_and_line(audited):
    factor = 2.0

    @mixad.broadcast(backend="wrong")
    def shifted(x, y):
        z = x + factor
        z = z * y  # wrong here
        return z - 1.0

    with pytest.raises(AuditError) as caught:
        shifted(X, Y)
    text = str(caught.value)
    assert "shifted, element (0, 0): the backend 'wrong' computed 0.0 where" in text
    assert "interpreter computes 1.0, as output 0 for x = 0.0, y = 1.0, factor = 2.0" in text
    assert f'File "{__file__}"' in text
    assert "z = z * y  # wrong here" in text
    assert isinstance(caught.value, BackendError)


def test_without_the_variable_nothing_is_found():
    product = mixad.broadcast(backend="wrong")(lambda x, y: x * y)
    np.testing.assert_array_equal(product(X, Y), X - Y)


def test_a_wrong_sum_is_found_by_what_elements_contribute(audited):
    kernel = mixad.broadcast(backend="wrong")(lambda x, y: x * y)
    with pytest.raises(AuditError, match="the backend 'wrong' computed"):
        mixad.value_and_grad(lambda y: kernel(X, y).sum())(Y)


def test_a_result_that_is_spoilt_later_is_found(audited):
    """The program is right where it runs alone, and the line of its output is named."""

    @mixad.broadcast(backend="spoiling")
    def shifted(x, y):
        z = x + y
        return z - 1.0

    with pytest.raises(AuditError, match=r"element \(2, 3\)") as caught:
        shifted(X, Y)
    assert "return z - 1.0" in str(caught.value)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_right_backends_pass(audited, backend):
    @mixad.broadcast
    def several(x, y):
        n = 0
        while x < 3.0:
            x = x + math.exp(0.1 * y)
            n += 1
        return (math.tanh(x), n) if y > 2.0 else (x * y, -n)

    kernel = several.with_options(backend=backend)
    values, gradients = mixad.value_and_vjp(lambda x, y: kernel(x, y)[0], (X, Y), np.ones((3, 4)))
    assert values.shape == (3, 4)
    assert [g.shape for g in gradients] == [(3, 4), (4,)]


def test_indexed_arrays_narrow_floats_numbers_and_parts_pass(audited):
    table = np.linspace(0.0, 1.0, 5)
    looked_up = mixad.broadcast(lambda i, x: table[i] * x)
    np.testing.assert_array_equal(looked_up(np.asarray([0, 4, 2]), 2.0), [0.0, 2.0, 1.0])
    third = mixad.broadcast(lambda x: x * x / 3)
    assert third(np.linspace(0, 1, 9).astype("f2")).dtype == np.float16
    assert third(2.0) == 4 / 3
    large = mixad.broadcast(lambda x: x * 70000.0)
    assert np.isinf(large(np.ones(3, "f2"))).all()
    assert third(np.empty((0, 3))).shape == (0, 3)
    gradient = mixad.grad(lambda x: (third(x[1:3]) * third(x[2:4])).sum())(np.arange(5.0))
    assert gradient.shape == (5,)


def test_gradients_of_indexed_arrays_pass(audited):
    table, k, x = np.linspace(1.0, 2.0, 5), np.array([0, 4, 4, -1]), np.linspace(0.5, 1.5, 4)

    def f(table, x):
        return mixad.broadcast(lambda k, x: table[k] * table[k] * x)(k, x).sum()

    by_table, by_x = mixad.grad(f, argnums=(0, 1))(table, x)
    np.testing.assert_allclose(by_x, table[k] ** 2)
    np.testing.assert_allclose(by_table, np.bincount(k % 5, 2 * table[k] * x, minlength=5))


def test_other_libraries_pass(audited):
    strict = pytest.importorskip("array_api_strict")
    kernel = mixad.broadcast(lambda x, y: x * y - 2.0)
    assert kernel(strict.asarray(X), strict.asarray(Y)).shape == (3, 4)


def audit(rate, shape=(100, 100)):
    b = Builder("plus_one")
    x = b.param("x", F64)
    program = b.finish([b.op("add", x, b.const(1.0, F64))])
    rerun = partial(pytest.fail, "nothing is to be run again")
    return Audit((program,), (OutputRequest(0, 0),), shape, "cpu", rate, rerun)


def test_samples_are_the_same_in_every_process_and_differ_from_launch_to_launch():
    first, second = audit(0.01), audit(0.01)
    for _ in range(3):
        np.testing.assert_array_equal(first._sample(), second._sample())
    samples = [set(first._sample().tolist()) for _ in range(50)]
    assert all(len(sample) in (100, 101) for sample in samples)
    assert len(set().union(*samples)) > 3000


def test_a_small_share_of_a_small_launch_is_taken_now_and_then():
    few = audit(0.01, (10,))
    sizes = [few._sample().size for _ in range(1000)]
    assert set(sizes) == {0, 1}
    assert 60 < sum(sizes) < 140


def test_all_are_compared_at_a_rate_of_one():
    np.testing.assert_array_equal(audit(1.0, (3, 5))._sample(), np.arange(15))
    assert audit(1.0, (0,))._sample().size == 0
    x = np.zeros((3, 5))
    wrong = x + 1.0
    wrong[2, 1] = 7.0
    checked = replace(audit(1.0, (3, 5)), rerun=lambda program, arguments: (arguments[0] + 1.0,))
    with pytest.raises(AuditError, match=r"element \(2, 1\).* computed 7.0 where"):
        checked([x], [wrong])


def test_off_means_that_nothing_is_there():
    kernel = mixad.broadcast(lambda x: x + 17.0)
    kernel(X)
    call, _ = kernel._specialiser.bind_call((X,), {})
    prepared = call.found.call.kernel.prepare_launch((X,), None)
    assert prepared.audit is None


@pytest.mark.parametrize("text", ["-0.1", "1.5", "nan", "often"])
def test_other_values_are_refused(text):
    with pytest.raises(ConfigurationError, match="MIXAD_AUDIT"):
        AUDIT.read({"MIXAD_AUDIT": text})
