"""The loop nest walks the memory that NumPy's indexing names, in as few axes as can be."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from mixad.kernel.plan import Layout, broadcast_strides, plan
from mixad.kernel.spec import Operand, OutputRequest
from mixad.kernel.tiling import partial_shape, tile_count
from mixad.scalar.build import Builder
from mixad.scalar.types import F32, F64, U8, type_of_dtype

EXAMPLES = 200
MAX_AXES = 4
MAX_EXTENT = 4
MAX_OPERANDS = 3
ENDLESS_CACHE = 1 << 60


def sum_of(count, type=F64):
    """Return the program that adds its arguments up."""
    b = Builder("sum")
    total = b.const(0.0, type)
    for k in range(count):
        total = b.op("add", total, b.param(f"x{k}", type))
    return b.finish([total])


def planned(arrays, shape, *, cache_bytes=ENDLESS_CACHE, results=(None,)):
    type = type_of_dtype(arrays[0].dtype)
    layouts = [Layout(type, a.shape, a.strides) for a in arrays]
    requests = [OutputRequest(0, 0, result) for result in results]
    return plan((sum_of(len(arrays), type),), requests, layouts, shape, cache_bytes)


def walked(launch, operand, array):
    """Return what a nest reads of an operand: an array of the nest's extents."""
    if array.size == 0:
        return np.empty(launch.extents)
    return as_strided(array, launch.extents, launch.strides[operand])


@st.composite
def arrays_over(draw, shape):
    """Draw an array that broadcasts to a shape: any order in memory, steps, signs, missing axes."""
    missing = draw(st.integers(0, len(shape)))
    own = [draw(st.sampled_from((1, n))) for n in shape[missing:]]
    order = draw(st.permutations(range(len(own))))
    steps = [draw(st.sampled_from((1, 1, 1, 2, -1, -3))) for _ in own]
    spread = [n * abs(step) for n, step in zip(own, steps, strict=True)]
    memory = np.arange(math.prod(spread), dtype="f8").reshape([spread[a] for a in order])
    view = memory.transpose(np.argsort(order)) if own else memory
    return view[tuple(slice(None, None, step) for step in steps)]


@st.composite
def broadcasts(draw):
    """Draw a shape and arrays that broadcast to it."""
    shape = tuple(draw(st.lists(st.integers(0, MAX_EXTENT), max_size=MAX_AXES)))
    count = draw(st.integers(1, MAX_OPERANDS))
    return shape, [draw(arrays_over(shape)) for _ in range(count)]


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(broadcasts())
def test_nest_reads_every_element_once_in_the_order_of_the_results(case):
    shape, arrays = case
    launch = planned(arrays, shape)
    assert math.prod(launch.extents) == math.prod(shape)
    assert sorted(launch.order) == list(range(len(shape)))
    for k, array in enumerate(arrays):
        expected = np.broadcast_to(array, shape).transpose(launch.order)
        np.testing.assert_array_equal(walked(launch, k, array).ravel(), expected.ravel())


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(broadcasts(), st.randoms(use_true_random=False))
def test_nest_sums_what_a_result_lacks(case, random):
    shape, arrays = case
    kept = tuple(n if random.random() < 0.5 else 1 for n in shape)
    result = kept[random.randint(0, next((i for i, n in enumerate(kept) if n != 1), len(kept))) :]
    launch = planned(arrays, shape, results=(result, None))
    axes = tuple(a for a, summed in enumerate(launch.spec.outputs[0].reduced) if summed)
    assert not any(launch.spec.outputs[1].reduced)
    expected = np.broadcast_to(arrays[0], shape)
    expected = expected.sum(axis=tuple(i for i, n in enumerate(kept) if n == 1), keepdims=True)
    summed = walked(launch, 0, arrays[0]).sum(axis=axes)
    np.testing.assert_array_equal(summed.ravel(), expected.transpose(launch.order).ravel())


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(broadcasts())
def test_no_two_neighbours_of_a_nest_could_be_one_axis(case):
    shape, arrays = case
    launch = planned(arrays, shape)
    assert len(launch.extents) == launch.spec.rank >= 1
    assert launch.extents == (1,) or 1 not in launch.extents
    for outer, inner in itertools.pairwise(range(launch.spec.rank)):
        steps = [(s[outer], s[inner] * launch.extents[inner]) for s in launch.strides]
        assert any(a != b for a, b in steps)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(broadcasts())
def test_step_says_how_the_innermost_axis_is_walked(case):
    shape, arrays = case
    launch = planned(arrays, shape)
    for operand, strides in zip(launch.spec.operands, launch.strides, strict=True):
        assert isinstance(operand, Operand)
        if launch.extents[-1] > 1:
            named = {0: "zero", F64.itemsize: "unit"}.get(strides[-1], "any")
            assert operand.step == named


@pytest.mark.rows("order", ["C", "F"])
@pytest.mark.rows("shape", [(), (1,), (7,), (2, 3), (2, 3, 4), (2, 1, 3, 1, 2), (5, 1)])
def test_contiguous_arrays_of_any_rank_are_one_axis(shape, order):
    arrays = [np.ones(shape, order=order) for _ in range(MAX_OPERANDS)]
    launch = planned(arrays, shape)
    assert launch.extents == (math.prod(shape),)
    assert {o.step for o in launch.spec.operands} == {"unit" if math.prod(shape) > 1 else "zero"}


@pytest.mark.rows("axes", list(itertools.permutations(range(3))))
def test_arrays_of_one_order_in_memory_are_walked_in_that_order(axes):
    memory = np.arange(24.0).reshape(2, 3, 4)
    array = memory.transpose(axes)
    launch = planned([array, array], array.shape)
    np.testing.assert_array_equal(walked(launch, 0, array), memory.ravel())


def test_scalar_beside_an_array_keeps_one_axis():
    launch = planned([np.ones((3, 4)), np.ones(())], (3, 4))
    assert launch.extents == (12,)
    assert [o.step for o in launch.spec.operands] == ["unit", "zero"]
    assert launch.spec.varying_params == (0,)


def test_row_and_column_take_one_axis_each():
    launch = planned([np.ones((3, 1)), np.ones(4), np.ones((3, 4))], (3, 4))
    assert launch.extents == (3, 4)
    assert [o.step for o in launch.spec.operands] == ["zero", "unit", "unit"]


def test_axes_are_kept_apart_where_one_result_sums_one_of_them():
    array = np.ones((3, 4))
    assert planned([array], (3, 4), results=((4,),)).extents == (3, 4)
    assert planned([array], (3, 4), results=((3, 1),)).extents == (3, 4)
    assert planned([array], (3, 4), results=((),)).extents == (12,)
    assert planned([array], (3, 4), results=((), (4,))).extents == (3, 4)


def test_equal_layouts_give_equal_specs_whatever_the_extents():
    specs = {planned([np.ones(shape)], shape).spec for shape in [(5,), (2, 3), (2, 3, 4)]}
    assert len(specs) == 1


# -- streaming -------------------------------------------------------------------------------------

WIDE_ROWS = (3, 16)  # 16 doubles are two cache lines
RAGGED_ROWS = (3, 15)


def columns(shape):
    """Return arrays whose rows cannot be merged: one moves along columns only."""
    return [np.ones(shape), np.ones(shape[-1])]


@pytest.mark.parametrize(("arrays", "shape"), [
    ([np.ones((64,))], (64,)),
    ([np.ones((5, 7))], (5, 7)),
    (columns(WIDE_ROWS), WIDE_ROWS),
])  # fmt: skip
def test_results_larger_than_the_cache_stream(arrays, shape):
    moved = math.prod(shape) * F64.itemsize * (len(arrays) + 1)
    assert planned(arrays, shape, cache_bytes=moved - 1).spec.streaming
    assert not planned(arrays, shape, cache_bytes=moved).spec.streaming


def test_rows_that_start_between_cache_lines_do_not_stream():
    assert not planned(columns(RAGGED_ROWS), RAGGED_ROWS, cache_bytes=0).spec.streaming


def test_every_result_must_be_aligned_to_stream():
    b = Builder("two types")
    x, y = b.param("x", F32), b.param("y", F32)
    both = b.finish([b.op("add", x, y), b.op("convert", y, type=U8)])
    rows = (3, 16)  # 64 bytes of float32, 16 of uint8
    layouts = [Layout(F32, rows, (64, 4)), Layout(F32, rows[1:], (4,))]
    streams = [
        plan((both,), [OutputRequest(0, k) for k in wanted], layouts, rows, 0).spec.streaming
        for wanted in ((0,), (1,), (0, 1))
    ]
    assert streams == [True, False, False]


def test_summed_results_do_not_stream():
    assert not planned([np.ones(64)], (64,), cache_bytes=0, results=((),)).spec.streaming


# -- strides of broadcast arrays -------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(broadcasts())
def test_broadcast_strides_are_those_of_numpy(case):
    shape, arrays = case
    for array in arrays:
        ours = broadcast_strides(Layout(F64, array.shape, array.strides), shape)
        theirs = np.broadcast_to(array, shape).strides
        moves = [n > 1 for n in shape]
        assert [s for s, m in zip(ours, moves, strict=True) if m] == [
            s for s, m in zip(theirs, moves, strict=True) if m
        ]


@pytest.mark.rows(
    "summed", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=lambda axes: f"axes {axes}"
)
def test_tiles_leave_few_partial_sums_whichever_axes_are_summed(summed):
    # Neither rows nor columns follow on one another in memory: no axes can be merged.
    array = as_strided(np.zeros(1, "f4"), (200, 300, 400), (4_000_000, 2_000, 4))
    result = tuple(1 if k in summed else n for k, n in enumerate(array.shape))
    launch = planned([array], array.shape, results=(result,))
    (output,) = launch.spec.outputs
    left = math.prod(partial_shape(launch.extents, launch.rows, output.reduced))
    assert left <= max(array.size // 100, 2 * math.prod(result))


@pytest.mark.parametrize("shape", [(1000, 1000), (512, 2048), (2000, 300), (4096, 64)])
def test_sum_over_moderately_many_rows_has_tiles_for_many_cores(shape):
    # A padded row, so that the axes are not merged.
    launch = column_sum(shape)
    assert tile_count(launch) >= min(shape[0] // 64, math.prod(shape) // 8192)


@pytest.mark.parametrize("shape", [(100_000, 2048), (40_000, 1000), (3_000_000, 16), (20, 1 << 21)])
def test_sum_over_rows_of_a_large_shape_leaves_few_partial_sums(shape):
    launch = column_sum(shape)
    (output,) = launch.spec.outputs
    left = math.prod(partial_shape(launch.extents, launch.rows, output.reduced))
    assert left * 8 < max(0.005 * math.prod(shape) * 4, 2 * 8 * shape[1])
    assert tile_count(launch) >= 64


def column_sum(shape):
    rows, columns = shape
    array = as_strided(np.zeros(1, "f4"), shape, (4 * (columns + 16), 4))
    launch = planned([array], shape, results=((1, columns),))
    assert launch.extents == (rows, columns)
    return launch
