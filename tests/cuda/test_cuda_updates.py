"""Sums, minima and maxima at indices as CUDA C++ that the emulator runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cuda_emulator import CompilingDriver, emulated, needs_nvrtc

import mixad
from mixad.backends.arrays import layout_of
from mixad.backends.cuda import CudaBackend, compile_text, usage_in
from mixad.backends.cuda.choice import BlockShape
from mixad.constructs import histogram_rules
from mixad.emit.cuda import MAX_ELEMENTS, emit_axis_sum, emit_segments
from mixad.errors import KernelIndexError, TracerError
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType, Program
from mixad.scalar.types import F32, F64, I32, I64

ON_CUDA: dict[str, Any] = {"backend": "emulated"}
SHARED = 48 << 10
"""Bytes that a block has on every device."""

LARGE = MAX_ELEMENTS + 1
"""Elements of an array of which no block has a copy."""

RNG = np.random.default_rng(0)

# -- programs --------------------------------------------------------------------------------------


def updating(update: str = "add", type: Any = F64) -> Program:
    """Return the program that updates an array by x at an index, and sums x·x."""
    b = Builder("updating")
    x, at = b.param("x", type), b.param("at", I64)
    array = b.accumulator("dest", ArrayType(type, 1), update)
    b.update(array, at, value=x)
    return b.finish([array, b.op("mul", x, x)])


def planned(program: Program, arguments: list[Any], backend: CudaBackend, *results: Any) -> Any:
    """Return a launch as it is cut for the backend's device."""
    shape = np.broadcast_shapes(*(a.shape for a in arguments))
    requests = [OutputRequest(0, k, result) for k, result in enumerate(results)]
    layouts, tiling = list(map(layout_of, arguments)), backend.tiling(arguments[0])
    return plan((program,), requests, layouts, shape, 1 << 40, tiling=tiling)


def run(program: Program, arguments: list[Any], backend: CudaBackend, *results: Any) -> Any:
    launch = planned(program, arguments, backend, *results)
    return backend.launch(backend.bind(backend.compile(launch.spec), launch), arguments)


def on_whole_numbers(count: int, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return whole numbers, indices, and the sums there, which are exact in any order."""
    x = RNG.integers(-8, 9, shape).astype(float)
    at = RNG.integers(0, count, shape)
    expected = np.zeros(count)
    np.add.at(expected, at, x)
    return x, at, expected


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.slow  # every kernel is compiled by g++
@pytest.mark.parametrize("count", [1, 1000, MAX_ELEMENTS, LARGE])
@pytest.mark.parametrize("shape", [(1,), (9000,), (70, 3), (3, 2100)])
def test_sums_of_whole_numbers_are_exact(count: int, shape: tuple[int, ...]) -> None:
    x, at, expected = on_whole_numbers(count, shape)
    sums, squares = run(updating(), [x, at], emulated(), (count,), (1,) * len(shape))
    np.testing.assert_array_equal(sums, expected)
    assert squares.item() == (x * x).sum()


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, LARGE])
def test_bits_are_the_same_for_any_number_of_blocks_and_order_of_threads(count: int) -> None:
    shape = 5, 9000
    x, at = RNG.standard_normal(shape), RNG.integers(0, 3, shape)
    found = []
    for blocks in (1, 2, 7, 7):
        backend = emulated(blocks=blocks)
        assert planned(updating(), [x, at], backend, (3,)).slabs > 7
        found.append(run(updating(), [x, at], backend, (count,))[0])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    exact = [math.fsum(x[at == k]) for k in range(3)]
    np.testing.assert_allclose(found[0][:3], exact, rtol=1e-13)
    assert not found[0][3:].any()


@pytest.mark.slow
@pytest.mark.parametrize("count", [9, LARGE])
def test_bits_do_not_depend_on_where_arrays_begin(count: int) -> None:
    x, at = RNG.standard_normal((6, 400)), RNG.integers(0, 9, (6, 400))
    moved = np.empty(2401)[1:].reshape(6, 400)
    moved[...] = x
    (one,), (other,) = (run(updating(), [a, at], emulated(), (count,)) for a in (x, moved))
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, LARGE])
def test_long_sums_of_single_precision_keep_their_digits(count: int) -> None:
    x, at = np.full(20_000, 0.1, "f4"), np.zeros(20_000, "i8")
    (sums,) = run(updating("add", F32), [x, at], emulated(), (count,))
    assert sums.dtype == np.float32
    np.testing.assert_array_equal(sums[0], np.float32(np.float64(np.float32(0.1)) * 20_000))


@pytest.mark.slow
@pytest.mark.parametrize("count", [500, LARGE])
def test_results_side_by_side_are_stored_beside_sums(count: int) -> None:
    b = Builder("both")
    x, at = b.param("x", F64), b.param("at", I64)
    array = b.accumulator("dest", ArrayType(F64, 2))
    b.update(array, at, b.const(-1, I64), value=x)
    program = b.finish([array, b.op("mul", x, x), b.op("neg", x)])
    values, at, expected = on_whole_numbers(count, (9, 70))
    requests = [OutputRequest(0, 0, (count, 2)), OutputRequest(0, 1, beside=((0, 2),))]
    layouts, backend = list(map(layout_of, [values, at])), emulated()
    launch = plan((program,), requests, layouts, values.shape, 1 << 40)
    bound = backend.bind(backend.compile(launch.spec), launch)
    sums, pairs = backend.launch(bound, [values, at])
    np.testing.assert_array_equal(sums, np.stack([np.zeros(count), expected], 1))
    np.testing.assert_array_equal(pairs, np.stack([values * values, -values], -1))


# -- gradients of arrays that are read by index ----------------------------------------------------


@mixad.broadcast(**ON_CUDA)
def interpolated(table: mixad.Array, x, scale):
    if x < 1.0:
        return table[-1] * x * scale
    k = int(x)
    w = x - k
    return scale * (table[k] * table[k] * (1 - w) + table[k + 1] * w)


@pytest.mark.slow
@pytest.mark.parametrize("count", [9, LARGE])
def test_gradients_of_a_table_where_it_is_read_and_of_a_number(count: int) -> None:
    table, x, scale = RNG.random(count), RNG.random((2, 700)) * (count - 1.1), 1.5
    k = np.maximum(x.astype(int), 1)
    w, low = x - k, x < 1.0
    left, right = table[k], table[k + 1]
    value = np.where(low, table[-1] * x, left * left * (1 - w) + right * w)
    by_table = np.zeros(count)
    np.add.at(by_table, k, np.where(low, 0, 2 * left * (1 - w)))
    np.add.at(by_table, k + 1, np.where(low, 0, w))
    by_table[-1] += x[low].sum()
    got = mixad.grad(lambda t, x, s: interpolated(t, x, s).sum(), (0, 1, 2))(table, x, scale)
    np.testing.assert_allclose(got[0], scale * by_table, rtol=1e-12)
    slope = np.where(low, table[-1], right - left * left)
    np.testing.assert_allclose(got[1], scale * slope, rtol=1e-12)
    np.testing.assert_allclose(got[2], value.sum(), rtol=1e-12)


@mixad.broadcast(**ON_CUDA)
def nested(matrix: mixad.Array, vector: mixad.Array, row, x, count):
    total = 0.0
    for k in range(count):
        if x > 0.0:
            total += matrix[row, k] * vector[k] * x
        for j in range(k):
            total += vector[j] * vector[j]
    return total


def by_numpy(matrix: Any, vector: Any, row: Any, x: Any, count: Any) -> Any:
    """Return the same as an array program."""
    k = np.arange(len(vector))
    taken = k < count[:, None]
    products = np.where(taken, matrix[row] * vector, 0.0).sum(1) * np.maximum(x, 0.0)
    times = np.where(taken, np.minimum(count[:, None], len(vector)) - 1 - k, 0)
    return products + (times * vector * vector).sum(1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [5, 2000])
def test_sums_in_nested_loops_of_as_many_turns_as_threads_need(rows: int) -> None:
    matrix, vector = RNG.random((rows, 4)), RNG.random(4)
    row, count = RNG.integers(0, rows, 600), RNG.integers(0, 5, 600)
    x, weights = RNG.standard_normal(600), RNG.random(600)

    def f(m: Any, v: Any) -> Any:
        return (nested(m, v, row, x, count) * weights).sum()

    np.testing.assert_allclose(
        nested(matrix, vector, row, x, count), by_numpy(matrix, vector, row, x, count), rtol=1e-13
    )
    taken = (np.arange(4) < count[:, None]) * np.maximum(x, 0.0)[:, None] * weights[:, None]
    by_matrix = np.zeros_like(matrix)
    np.add.at(by_matrix, row, taken * vector)
    times = np.where(np.arange(4) < count[:, None], count[:, None] - 1 - np.arange(4), 0)
    by_vector = (taken * matrix[row]).sum(0) + (2 * weights[:, None] * times * vector).sum(0)
    got = mixad.grad(f, (0, 1))(matrix, vector)
    np.testing.assert_allclose(got[0], by_matrix, rtol=1e-12)
    np.testing.assert_allclose(got[1], by_vector, rtol=1e-12)
    # Second derivatives: of φ(v) = Σᵢ (∂f/∂v)ᵢ², whose gradient is 2 H ∂f/∂v.
    second = mixad.grad(lambda v: (mixad.grad(f, 1)(matrix, v) ** 2).sum())(vector)
    hessian = 2 * (weights[:, None] * times).sum(0)
    np.testing.assert_allclose(second, 2 * hessian * by_vector, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [5, 2000])
def test_an_index_outside_in_a_loop_ends_it(rows: int) -> None:
    matrix, vector = RNG.random((rows, 4)), RNG.random(4)
    row, count = RNG.integers(0, 5, 300), np.full(300, 3)
    count[217] = 5

    def f(m: Any, v: Any) -> Any:
        return nested(m, v, row, np.ones(300), count).sum()

    with pytest.raises(KernelIndexError, match="outside"):
        mixad.grad(f, (0, 1))(matrix, vector)


# -- histograms ------------------------------------------------------------------------------------


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels of histograms be launched by the emulator."""

    def launch(program: Any, values: Any, shape: Any = None) -> Any:
        return histogram_rules._call(program, shape).kernel(values, "emulated")[0]

    monkeypatch.setattr(histogram_rules, "_launch", launch)


OPERATORS = {"add": lambda a, b: a + b, "min": min, "max": max}


@pytest.mark.slow
@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("update", OPERATORS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1"])
@pytest.mark.parametrize("bins", [7, LARGE])
def test_histograms(update: str, dtype: str, bins: int) -> None:
    xs, at = RNG.integers(0, 100, 5000).astype(dtype), RNG.integers(-bins, bins, 5000)
    dest = np.full(bins, 50, dtype)
    expected = dest.copy()
    {"add": np.add, "min": np.minimum, "max": np.maximum}[update].at(expected, at, xs)
    found = mixad.reduce_by_index(OPERATORS[update], dest, at, xs)
    assert found.dtype == dest.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("update", ["min", "max"])
@pytest.mark.parametrize("more", [0, LARGE])
def test_nan_and_bins_without_elements(update: str, more: int) -> None:
    xs, at = np.array([3.0, np.nan, -2.0, np.inf, -np.inf] * 100), np.repeat(np.arange(5), 100)
    at = at[RNG.permutation(500)]
    dest = np.array([0.0, 1.0, np.nan, np.inf, -np.inf, 7.0] + [0.5] * more)
    expected = dest.copy()
    with np.errstate(invalid="ignore"):
        {"min": np.minimum, "max": np.maximum}[update].at(expected, at, xs)
    np.testing.assert_array_equal(mixad.reduce_by_index(OPERATORS[update], dest, at, xs), expected)


@pytest.mark.slow
@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("update", ["min", "max"])
@pytest.mark.parametrize("bins", [5, LARGE])
def test_of_equal_numbers_the_first_has_the_derivative(update: str, bins: int) -> None:
    xs, at = RNG.integers(0, 4, 900).astype(float), RNG.integers(0, 5, 900)
    cotangent, dest = RNG.random(bins), np.full(bins, {"min": 9.0, "max": -9.0}[update])
    pick = {"min": np.argmin, "max": np.argmax}[update]
    by_xs = np.zeros(900)
    for bin in range(5):
        (own,) = np.nonzero(at == bin)
        by_xs[own[pick(xs[own])]] = cotangent[bin]
    _, pull = mixad.vjp(lambda xs: mixad.reduce_by_index(OPERATORS[update], dest, at, xs), xs)
    np.testing.assert_array_equal(pull(cotangent)[0], by_xs)


@pytest.mark.slow
@pytest.mark.parametrize(("update", "begins"), [("min", np.inf), ("max", -np.inf), ("add", 0.0)])
@pytest.mark.parametrize("count", [3, LARGE])
def test_no_element_changes_anything(update: str, begins: float, count: int) -> None:
    nothing = [np.zeros(0), np.zeros(0, "i8")]
    found, _ = run(updating(update), nothing, emulated(), (count,), None)
    np.testing.assert_array_equal(found, np.full(count, begins))


# -- what a device has -----------------------------------------------------------------------------


@pytest.mark.slow
def test_changes_of_a_large_array_cannot_be_captured() -> None:
    b = Builder("inside")
    x, at = b.param("x", F64), b.param("at", I64)
    array = b.accumulator("dest", ArrayType(F64, 1))
    b.update(array, at, value=x, is_inside=True)
    x, at, expected = on_whole_numbers(LARGE, (300,))
    backend = emulated()
    launch = planned(b.finish([array]), [x, at], backend, (LARGE,))
    bound = backend.bind(backend.compile(launch.spec), launch)
    np.testing.assert_array_equal(backend.launch(bound, [x, at])[0], expected)
    backend.driver.captures = True
    with pytest.raises(TracerError, match="changes a large array at indices cannot be captured"):
        backend.launch(bound, [x, at])


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("threads", [128, 256])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("update", "type"), [("add", F32), ("min", I64), ("max", F64)])
def test_copies_and_sums_fit_in_shared_memory_and_nothing_spills(
    threads: int, architecture: str, update: str, type: Any
) -> None:
    backend = CudaBackend("compiling", CompilingDriver(architecture))
    arguments = [np.zeros((64, 64), type.dtype), np.zeros((64, 64), "i8")]
    launch = planned(updating(update, type), arguments, backend, (MAX_ELEMENTS,), (1, 1))
    bound = backend.bind(backend.compile(launch.spec), launch)
    assert bound.widest == 1
    dialect = bound.dialect(BlockShape(1, threads), is_aligned=True)
    (used,) = bound.kernel.usages(dialect, "device")
    assert 8 * MAX_ELEMENTS < used.shared <= SHARED
    assert used.local == 0


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("update", "type"), [("add", F64), ("min", I64), ("max", I32)])
def test_kernels_that_leave_pairs_and_combine_them_spill_nothing(
    architecture: str, update: str, type: Any
) -> None:
    backend = CudaBackend("compiling", CompilingDriver(architecture))
    arguments = [np.zeros((64, 64), type.dtype), np.zeros((64, 64), "i8")]
    launch = planned(updating(update, type), arguments, backend, (LARGE,), None)
    bound = backend.bind(backend.compile(launch.spec), launch)
    (used,) = bound.kernel.usages(bound.dialect(BlockShape(1, 256), is_aligned=True), "device")
    assert (used.shared, used.local) == (0, 0)
    for emit in (emit_segments, emit_axis_sum):
        (used,) = usage_in(compile_text(emit(update, type, "entry"), architecture).cubin).values()
        assert used.shared <= 8 * 256
        assert used.local == 0
