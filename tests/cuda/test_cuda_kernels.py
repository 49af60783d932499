"""CUDA C++ of planned kernels, run by the emulator: sums of any pattern, packs, hostile source."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from cuda_emulator import UNTESTED, emulated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mixad
from benchmarks.offline import H200
from mixad.backends.arrays import NUMPY, layout_of
from mixad.backends.cuda.choice import BlockShape
from mixad.backends.cuda.device import ATTRIBUTES
from mixad.emit.cuda import Dialect, axis_sum, emit_kernel, for_threads
from mixad.kernel.plan import Layout, plan
from mixad.kernel.spec import OutputRequest
from mixad.kernel.tiling import partial_shape, tile_count
from mixad.scalar.ir import Block, Const, Equation, Line, Param, Program, Var
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.types import BOOL, F32, F64, I8, I64
from mixad.special import fma

EXAMPLES = 40
NO_CACHE_LIMIT = 1 << 40
BACKEND = emulated()


def product(type, line=None):
    """Return the program x · y."""
    x, y, out = Var(0, type), Var(1, type), Var(2, type)
    params = Param("x", x), Param("y", y)
    return Program("product", params, Block((Equation(out, "mul", (x, y), line),), (out,)))


def planned(program, requests, arguments, shape, backend=BACKEND):
    """Return a launch as it is cut for the backend's device."""
    layouts, tiling = list(map(layout_of, arguments)), backend.tiling(arguments[0])
    return plan((program,), requests, layouts, shape, NO_CACHE_LIMIT, tiling=tiling)


def run(program, arguments, shape, *results, backend=BACKEND):
    """Return the outputs of shapes ``results``; None stores one element for each of ``shape``."""
    requests = [OutputRequest(0, 0, result) for result in results]
    launch = planned(program, requests, arguments, shape, backend)
    bound = backend.bind(backend.compile(launch.spec), launch)
    return backend.launch(bound, arguments), bound


extents = st.one_of(st.integers(1, 6), st.sampled_from([16, 33, 64, 257, 2048, 2500]))


@st.composite
def cases(draw):
    """Return a shape of up to 3 axes, those of two arguments, and those of some results."""
    shape = draw(st.lists(extents, min_size=1, max_size=3))
    while math.prod(shape) > 20_000:
        shape[int(np.argmax(shape))] //= 4
    patterns = st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))
    kept = [draw(patterns) for _ in range(4)]
    return tuple(shape), *(
        tuple(n if keep else 1 for n, keep in zip(shape, pattern, strict=True)) for pattern in kept
    )


@pytest.mark.slow  # every example is compiled by g++
@given(cases(), st.sampled_from([F32, F64]), st.integers(0, 2**32))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_sums_of_any_pattern_are_exact_on_whole_numbers(case, type, seed):
    shape, x_shape, y_shape, *results = case
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-8, 9, s).astype(type.dtype) for s in (x_shape, y_shape))
    outputs, _ = run(product(type), [x, y], shape, *results, None)
    whole = np.broadcast_to(x * y, shape)
    for output, result in zip(outputs, [*results, shape], strict=True):
        axes = tuple(a for a, (n, m) in enumerate(zip(shape, result, strict=True)) if n != m)
        np.testing.assert_array_equal(output, whole.sum(axis=axes, keepdims=True).reshape(result))


@pytest.mark.slow
@pytest.mark.parametrize("result", [(1, 1), (1, 500), (700, 1)])
def test_sums_have_the_same_bits_for_any_number_of_blocks_and_order_of_threads(result):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((700, 500), np.float32) for _ in range(2))
    sums = [
        run(product(F32), [x, y], x.shape, result, backend=emulated(blocks=blocks))[0][0]
        for blocks in (1, 2, 7, 7)
    ]
    for other in sums[1:]:
        np.testing.assert_array_equal(sums[0], other)
    exact = (x.astype(np.float64) * y).sum(axis=tuple(a for a in (0, 1) if result[a] == 1))
    scale = np.abs(x.astype(np.float64) * y).sum() / exact.size
    assert np.abs(sums[0].ravel() - exact.ravel()).max() < 2e-7 * scale


@pytest.mark.parametrize(
    "shape", [(1, 40_000, 1), (3, 700, 1), (2, 300, 50), (1, 9000, 33), (700, 4, 1), (5, 1, 7)]
)
def test_sums_along_an_axis_are_exact_on_whole_numbers_by_several_levels(shape):
    values = np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32)
    found = BACKEND.sum_along(shape, 1, F32, values, NUMPY, "emulated")
    np.testing.assert_array_equal(found.reshape(shape[0], shape[2]), values.sum(axis=1))


LARGE = [(1024, 1024), (8192, 8192), (1 << 20, 64), (64, 1 << 20), (4096, 100), (40, 50, 3000)]


@pytest.mark.rows("shape", LARGE)
@pytest.mark.rows("kept", range(4))
def test_sums_of_large_arrays_reach_every_multiprocessor(shape, kept):
    result = (*(shape[:-1] if kept & 1 else (1,) * len(shape[:-1])), shape[-1] if kept & 2 else 1)
    x = np.broadcast_to(np.float32(1.0), shape)
    x = np.lib.stride_tricks.as_strided(x, shape, np.cumprod((4, *shape[:0:-1]))[::-1])  # not read
    launch = planned(product(F32), [OutputRequest(0, 0, result)], [x, x], shape)
    processors = H200[ATTRIBUTES["processors"]]
    assert tile_count(launch) >= processors
    left = partial_shape(launch.loops, launch.rows, launch.spec.outputs[0].reduced)
    for axis, is_summed in enumerate(launch.spec.outputs[0].reduced):
        if is_summed and math.prod(left) >= 1 << 20:
            cut = axis_sum(math.prod(left[:axis]), left[axis], math.prod(left[axis + 1 :]))
            assert cut.blocks >= processors
            left = (*left[:axis], 1, *left[axis + 1 :])


@pytest.mark.slow
@pytest.mark.rows("type", [F32, F64])
@pytest.mark.rows("columns", [16, 64, 2052, 4096])
def test_packs_are_used_where_all_rows_are_aligned_and_change_no_bit(type, columns):
    rows = 70
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((2, rows, columns + 4)).astype(type.dtype)
    aligned = [BACKEND.driver.empty((rows, columns), type.dtype, "emulated") for _ in range(2)]
    for a, values in zip(aligned, whole, strict=True):
        a[...] = values[:, :columns]
    sums = [(1, columns), (rows, 1), (1, 1)]
    packed, bound = run(product(type), aligned, (rows, columns), None, *sums)
    assert bound.widest == 16 // type.itemsize
    assert list(bound.launches["emulated"]) == [True]
    strided = [values[:, 1 : columns + 1] for values in whole]
    for a, values in zip(strided, aligned, strict=True):
        a[...] = values
    single, bound = run(product(type), strided, (rows, columns), None, *sums)
    assert list(bound.launches["emulated"]) == [False]
    for a, b in zip(packed, single, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.rows(
    ("type", "columns", "widest"),
    [(F32, 64, 4), (F32, 66, 2), (F32, 67, 1), (F64, 64, 2), (I8, 64, 8), (I8, 20, 4)],
    slow="type0-64-4 type1-66-2",
)
def test_a_thread_has_as_many_neighbours_as_fit_16_bytes_and_divide_a_row(type, columns, widest):
    x = np.arange(5 * columns, dtype=type.dtype).reshape(5, columns)
    (output, total), bound = run(product(type), [x, x], x.shape, None, (1, columns))
    assert bound.widest == widest
    np.testing.assert_array_equal(output, x * x)
    np.testing.assert_array_equal(total, (x * x).sum(axis=0, dtype=type.dtype)[None])


@pytest.mark.slow
def test_without_sums_neighbours_that_are_not_aligned_go_to_neighbouring_threads():
    x = np.ones(65, np.float32)[1:]
    _, bound = run(product(F32), [x, x], (64,), None)
    shape = bound.kernel.shape(
        4, False, bound.elements, "emulated", BACKEND.describe_device("emulated")
    )
    assert shape.vector == 4
    assert bound.dialect(shape, True).vector == 4
    assert bound.dialect(shape, False).vector == 1


HOSTILE = [
    "x = 1  # the next line is code \\",
    "*/ #error */",
    "??/",
    'R"(',
    "a\nb\r#error",
    "é → ∂",
    "//",
]


@pytest.mark.slow
@pytest.mark.rows("text", HOSTILE)
def test_user_text_cannot_leave_its_comment(text):
    line = Line(text, 1, text)
    x = np.arange(4, dtype=np.float32)
    plain = emit(product(F32))
    commented = emit(product(F32, line))
    rows = commented.split("\n")
    without = [row for row in rows if not row.strip().startswith(("// 1:", "#line"))]
    assert "\n".join(without) == plain
    assert (
        len(without) == len(rows) - 3
    )  # a comment and a directive before the statement, one after it
    assert commented.isascii()
    (out,), _ = run(product(F32, line), [x, x], (4,), None)
    np.testing.assert_array_equal(out, x * x)


def test_statements_are_said_to_be_where_the_user_wrote_them(tmp_path):
    line = Line("models/cell.py", 12, "return a * a")
    rows = emit(product(F32, line)).split("\n")
    places, number, name = {}, 0, "mixad.cu"
    for row in rows:  # as a preprocessor counts
        number += 1
        if found := re.match(r'#line (\d+) "(.*)"', row):
            number, name = int(found[1]) - 1, found[2]
        elif not row.strip().startswith("//"):
            places.setdefault(name, []).append((number, row))
    assert {number for number, _ in places["models/cell.py"]} == {12}
    assert any("*" in row for _, row in places["models/cell.py"])
    after = places["mixad.cu"][-1]
    assert rows[after[0] - 1] == after[1]  # and then as the lines of the text are


def emit(program):
    x = np.ones(4, np.float32)
    launch = plan((program,), [OutputRequest(0, 0)], [layout_of(x)] * 2, (4,), NO_CACHE_LIMIT)
    return emit_kernel(for_threads(launch.spec), Dialect())


def test_folded_rows_are_refused():
    x, y = np.ones((5000, 3), np.float32), np.ones(3, np.float32)
    layouts, requests = [layout_of(x), layout_of(y)], [OutputRequest(0, 0)]
    launch = plan((product(F32),), requests, layouts, x.shape, NO_CACHE_LIMIT, folds=True)
    assert launch.fold is not None
    with pytest.raises(ValueError, match="plan the launch with folds=False"):
        emit_kernel(for_threads(launch.spec), Dialect())


def test_names_of_the_user_are_not_in_the_text():
    program = product(F32)
    params = tuple(Param(name, p.var) for name, p in zip("ñ", program.params, strict=False))
    named = Program("__syncthreads", (*params, program.params[1]), program.body)
    assert emit(named) == emit(program)


VALUES = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-45, 3.4e38, math.inf, -math.inf, math.nan]


@pytest.mark.slow
@pytest.mark.parametrize(("type", "bits"), [(F32, "u4"), (F64, "u8")])
def test_literals_have_their_bits(type, bits):
    x, constants = Var(0, type), [Const(v, type) for v in VALUES]
    program = Program("constants", (Param("x", x),), Block((), tuple(constants)))
    requests = [OutputRequest(0, k) for k in range(len(constants))]
    argument = np.ones(3, type.dtype)
    launch = plan((program,), requests, [layout_of(argument)], (3,), NO_CACHE_LIMIT)
    outputs = BACKEND.launch(BACKEND.bind(BACKEND.compile(launch.spec), launch), [argument])
    for output, value in zip(outputs, VALUES, strict=True):
        np.testing.assert_array_equal(
            output.view(bits), np.full(3, value).astype(type.dtype).view(bits)
        )


@pytest.mark.slow
def test_whole_numbers_wrap_and_divide_as_everywhere():
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    numbers = [low, -7, -1, 0, 2, 5, high]
    pairs = np.asarray(list(itertools.product(numbers, numbers)))
    x, y, out = Var(0, I64), Var(1, I64), [Var(2 + k, I64) for k in range(5)]
    ops = ("add", "sub", "mul", "floordiv", "mod")
    equations = tuple(Equation(o, op, (x, y)) for o, op in zip(out, ops, strict=True))
    program = Program("whole", (Param("x", x), Param("y", y)), Block(equations, tuple(out)))
    arguments = [np.ascontiguousarray(column) for column in pairs.T]
    requests = [OutputRequest(0, k) for k in range(5)]
    layouts = [layout_of(a) for a in arguments]
    launch = plan((program,), requests, layouts, arguments[0].shape, NO_CACHE_LIMIT)
    got = BACKEND.launch(BACKEND.bind(BACKEND.compile(launch.spec), launch), arguments)
    mask = (1 << 64) - 1

    def wrapped(value):
        return ((value + (1 << 63)) & mask) - (1 << 63)

    for k, (a, b) in enumerate(pairs.tolist()):
        quotient, modulo = (a // b, a % b) if b else (0, 0)
        want = [wrapped(v) for v in (a + b, a - b, a * b, quotient, modulo)]
        assert [int(g[k]) for g in got] == want


def test_truth_values_are_stored_as_bytes():
    x, out = Var(0, F32), Var(1, BOOL)
    equation = Equation(out, "gt", (x, Const(0.0, F32)))
    program = Program("positive", (Param("x", x),), Block((equation,), (out,)))
    argument = np.linspace(-1, 1, 64, dtype=np.float32)
    (got,), _ = run(program, [argument], (64,), None)
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, argument > 0)


@pytest.mark.parametrize(
    ("shape", "wide"),
    [((5 * 10**9,), True), ((5 * 10**9, 3), True), ((10**9,), False), ((10**5, 10**4), False)],
)
def test_what_does_not_fit_32_bits_is_counted_in_64(shape, wide):
    steps = [math.prod(shape[axis + 1 :]) * 4 for axis in range(len(shape))]
    layout = Layout(F32, shape, tuple(steps))
    row = Layout(F32, shape[-1:], (4,))  # keeps the axes of two-dimensional shapes apart
    requests = [OutputRequest(0, 0)]
    launch = plan((product(F32),), requests, [layout, row], shape, NO_CACHE_LIMIT)
    bound = BACKEND.bind(BACKEND.compile(launch.spec), launch)
    dialect = bound.dialect(BlockShape(1, 256), True)
    assert dialect.wide == wide
    assert ("typedef unsigned long long index_t;" in bound.kernel.text(dialect)) == wide


@pytest.mark.slow
def test_a_reciprocal_between_1_and_2_is_as_ieee_divides_from_any_within_an_ulp():
    """What a device computes from its approximation, with each number that this may be.

    From 0.5 the last number below 2 would go wrong: CUDA's own division takes the same steps
    there, so that its approximation is another one.
    """
    step = mixad.broadcast(lambda x, near: fma(near, fma(-x, near, 1.0), near))
    x = np.arange(0x3F800000, 0x40000001, dtype=np.uint32).view(np.float32)
    right, exact = 1 / x, 1 / x.astype(np.float64)
    for ulps in (-1, 0, 1):
        near = (right.view(np.int32) + ulps).view(np.float32)
        is_near = (np.abs(near - exact) <= 2.0**-24) & ~((x == x[-2]) & (near == 0.5))
        np.testing.assert_array_equal(step(x, near)[is_near], right[is_near])


EXACT = {"fabs", "sqrt", "fma", "copysign", "floor", "ceil", "trunc", "rint"}
"""Functions of the host's and of CUDA's that have one right result."""


def calls_of_maths(name, type):
    """Return the functions that the text of an op calls, but for what the text itself defines."""
    op = next(op for op in TABLE if op.name == name)
    xs = [Var(k, type) for k in range(op.arity)]
    out = Var(op.arity, BOOL if op.result == "bool" else type)
    params = tuple(Param("xyz"[k], x) for k, x in enumerate(xs))
    program = Program(name, params, Block((Equation(out, name, tuple(xs)),), (out,)))
    arrays = [np.ones(8, type.dtype)] * op.arity
    launch = planned(program, [OutputRequest(0, 0)], arrays, (8,))
    whole, _, body = emit_kernel(for_threads(launch.spec), Dialect()).rpartition("extern")
    called = set(re.findall(r"= (?:[^;]*?[^\w<])?([a-z]\w*)\(", body)) - {"in_memory"}
    called = {c.removesuffix("f") if type == F32 else c for c in called} - EXACT
    own = "bounded_reciprocal" if type == F32 else ""
    return {c for c in called if c == own or f" {c}(" not in whole}


@pytest.mark.slow
def test_the_emulator_tells_which_functions_of_cudas_it_does_not_test():
    ops = [op.name for op in TABLE if op.domain in ("float", "number") and op.name != "bitcast"]
    found = {(c, t) for name in ops for t in (F32, F64) for c in calls_of_maths(name, t)}
    assert found == {(BY_NAME[n].c or n, t) for n, types in UNTESTED.items() for t in types}
