"""Several results of an element side by side in one array: the blocks of a Jacobian, vectors."""

from __future__ import annotations

import importlib
import itertools
import math
import re

import numpy as np
import pytest
from cuda_emulator import DryDriver, emulated, needs_nvrtc

import mixad
from benchmarks.gpu.bundle import drawn, residual_kernel
from benchmarks.kernels.bundle import residual_of_arrays
from mixad.backends import registry
from mixad.backends.arrays import layout_of
from mixad.backends.cuda import CudaBackend, compile_text, usage_in
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.types import BOOL, F16, F32, F64, I32, I64, U8

BACKEND = emulated()
RNG = np.random.default_rng(0)

SUM, PRODUCT, FIRST = 0, 1, 2


def three_results(type):
    b = Builder("three_results")
    x, y = b.param("x", type), b.param("y", type)
    both = ("xor", "and") if type.is_bool else ("add", "mul")
    return b.finish([*(b.op(name, x, y) for name in both), x])


def by_hand(x, y):
    is_bool = x.dtype == bool
    x, y = np.broadcast_arrays(x, y)
    return [x ^ y if is_bool else x + y, x & y if is_bool else x * y, x]


def run(passes, requests, arguments):
    """Return the outputs of programs on the emulator."""
    shape = np.broadcast_shapes(*(a.shape for a in arguments))
    launch = plan(tuple(passes), requests, list(map(layout_of, arguments)), shape, 1 << 40)
    return BACKEND.launch(BACKEND.bind(BACKEND.compile(launch.spec), launch), arguments)


def stored(*sources):
    """Return the request for these results side by side."""
    return OutputRequest(*sources[0], beside=tuple(sources[1:]))


def integers(shape, type, order="C"):
    """Return numbers whose sums and products all types hold."""
    if type.is_bool:
        return np.asarray(RNG.integers(0, 2, shape), bool, order=order)
    return np.asarray(RNG.integers(0, 9, shape), type.dtype, order=order)


SHAPES = [(), (1,), (31,), (64,), (2050,), (5, 41), (300, 2), (3, 1), (3, 4, 33), (0, 5)]
COUNTS = [2, 3, 9, 40]  # of a pack, of one run, of an element by itself, of several runs


@pytest.mark.slow
@pytest.mark.rows("type", [F64, F32, F16, I64, I32, U8, BOOL], ids=str)
@pytest.mark.rows("count", COUNTS)
def test_results_of_any_type_and_number_stand_where_they_belong(count, type):
    sources = [(0, k % 3) for k in range(count)]
    for shape, order in itertools.product(SHAPES, "CF"):
        x, y = integers(shape, type, order), integers(shape[-1:], type)
        (got,) = run([three_results(type)], [stored(*sources)], [x, y])
        wanted = np.stack([by_hand(x, y)[at] for _, at in sources], axis=-1)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(got, "f8"), np.asarray(wanted, "f8"))


@pytest.mark.slow
@pytest.mark.rows("shape", [(64,), (67,), (5, 41), (40, 8)])
@pytest.mark.parametrize("type", [F64, F32], ids=str)
def test_other_results_of_the_pass_are_stored_and_summed(type, shape):
    x, y = integers(shape, type), integers(shape, type)
    sums = [(), (1,) * len(shape), (*shape[:-1], 1), shape[-1:]]
    requests = [
        stored((0, PRODUCT), (0, FIRST), (0, PRODUCT)),
        OutputRequest(0, SUM),
        stored((0, FIRST), (0, SUM)),
        *(OutputRequest(0, SUM, sum_) for sum_ in sums),
    ]
    triple, added, pair, *totals = run([three_results(type)], requests, [x, y])
    np.testing.assert_array_equal(triple, np.stack([x * y, x, x * y], axis=-1))
    np.testing.assert_array_equal(added, x + y)
    np.testing.assert_array_equal(pair, np.stack([x, x + y], axis=-1))
    for total, shape_ in zip(totals, sums, strict=True):
        axes = tuple(k for k, n in enumerate((1,) * (len(shape) - len(shape_)) + shape_) if n == 1)
        wanted = (x + y).astype("f8").sum(axis=axes).reshape(shape_)
        np.testing.assert_array_equal(total, wanted)


@pytest.mark.slow
@pytest.mark.rows("shape", [(67,), (5, 64)])
@pytest.mark.parametrize("turns", [1, 9])
def test_several_passes_write_into_one_array(turns, shape):
    x, y = integers(shape, F64), integers(shape, F64)
    sources = [(1, SUM), (0, SUM), (0, PRODUCT), (1, FIRST), (1, FIRST), (0, FIRST)] * turns
    program = three_results(F64)
    (got,) = run([program, program], [stored(*sources)], [x, y])
    np.testing.assert_array_equal(got, np.stack([by_hand(x, y)[k] for _, k in sources], axis=-1))


@pytest.mark.slow
def test_arrays_of_any_layout_and_alignment_are_read():
    whole = RNG.integers(0, 9, (41, 130)).astype("f8")
    sources = [(0, PRODUCT), (0, SUM), (0, FIRST)]
    repeated = np.broadcast_to(whole[0], (5, 130))
    for x in (whole[:, 1:], whole[::2, ::-1], whole.T, whole[3:4], repeated):
        y = np.ones(x.shape[-1])
        (got,) = run([three_results(F64)], [stored(*sources)], [x, y])
        np.testing.assert_array_equal(got, np.stack([x, x + 1, x], axis=-1))


# -- the blocks of a Jacobian ----------------------------------------------------------------------


def blocks_by_complex_steps(inputs):
    """Return (n, 2, 15) partials, exact to rounding: Squire and Trapp, 1998."""
    step, columns = 1e-30, []
    for k in range(len(inputs)):
        moved = [x + (1j * step if j == k else 0) for j, x in enumerate(inputs)]
        columns.append(np.stack([r.imag / step for r in residual_of_arrays(np, *moved)], axis=-1))
    return np.stack(columns, axis=-1)


STRATEGIES = [({}, 1), ({"strategy": "forward"}, 2), ({"chunk": 4}, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "passes"), STRATEGIES, ids=str)
def test_jacobian_is_that_by_complex_steps_in_a_launch_for_each_pass(options, passes, monkeypatch):
    monkeypatch.delattr(importlib.import_module("mixad.broadcast.blocks"), "stack")
    kernel = mixad.broadcast(residual_kernel, backend="emulated", **options)
    driver = registry.default_registry().backend("emulated").driver
    for count in (1, 33, 2100):
        inputs = drawn(count, 0)
        before = len(driver.launches)
        values, blocks = kernel.value_and_jacobian(*inputs)
        assert len(driver.launches) - before == passes
        wanted = blocks_by_complex_steps(inputs)
        assert blocks.shape == wanted.shape == (count, 2, 15)
        assert blocks.flags.c_contiguous
        np.testing.assert_allclose(blocks, wanted, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(values, residual_of_arrays(np, *inputs), rtol=1e-12)


@pytest.mark.slow
def test_jacobian_of_broadcast_views_is_that_of_the_reference():
    kernel = mixad.broadcast(lambda r, a: (r * math.cos(a), r * math.sin(a)))
    rows, whole = RNG.uniform(1, 2, (7, 1)), RNG.uniform(0, 6, (14, 90)).T[::2, ::-1][:13]
    for r, a in ((rows, whole[:7]), (whole, whole[0]), (whole.T, whole[:, 0])):
        got = kernel.with_options(backend="emulated").jacobian(r, a)
        wanted = kernel.with_options(backend="reference").jacobian(r, a)
        np.testing.assert_allclose(got, wanted, rtol=1e-14, atol=1e-15)


@pytest.mark.slow
def test_vectors_and_matrices_of_a_result_are_stored_by_the_kernel(monkeypatch):
    monkeypatch.delattr(importlib.import_module("mixad.call.arguments"), "stack_core_axes")

    @mixad.broadcast(signature="(2),()->(2,2),(3),()", backend="emulated")
    def turned(v, angle):
        c, s = math.cos(angle), math.sin(angle)
        return [[c, -s], [s, c]], [c * v[0] - s * v[1], s * v[0] + c * v[1], angle], angle * 2.0

    v, angle = RNG.uniform(-1, 1, (33, 2)), RNG.uniform(0, 6, 33)
    matrix, vector, twice = turned(v, angle)
    c, s = np.cos(angle), np.sin(angle)
    wanted = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    np.testing.assert_allclose(matrix, wanted, rtol=1e-14)
    moved = np.einsum("nij,nj->ni", wanted, v)
    np.testing.assert_allclose(vector, np.column_stack([moved, angle]), rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(twice, angle * 2)


# -- what is compiled ------------------------------------------------------------------------------


def text_of(type, count):
    """Return the text for aligned arrays and so many results side by side."""
    driver = DryDriver()
    backend = CudaBackend("dry", driver)
    x = driver.empty((64,), type.dtype, "dry")
    request = stored(*((0, k % 3) for k in range(count)))
    launch = plan((three_results(type),), [request], [layout_of(x)] * 2, (64,), 1 << 40)
    backend.launch(backend.bind(backend.compile(launch.spec), launch), [x, x])
    return driver.texts[-1]


@needs_nvrtc
@pytest.mark.rows("type", [F64, F32, F16, U8, BOOL], ids=str)
@pytest.mark.rows("count", [2, 16, 17, 128])
def test_shared_memory_is_bounded_and_stores_are_to_global_memory(count, type):
    code = compile_text(text_of(type, count), "sm_90", ["--ptxas-options=-v"])
    (usage,) = usage_in(code.cubin).values()
    assert usage.local == 0
    assert 0 < usage.shared <= 36 << 10  # of 48 KiB; sums take up to 12
    assert "st.global" in code.ptx
    assert not re.search(r"\b(ld|st)\.(v2|v4|[bfsu]\d)", code.ptx)
