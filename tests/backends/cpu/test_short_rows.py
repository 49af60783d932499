"""Kernels whose innermost axis is short: NumPy's results, for every pattern, layout and sum."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixad.backends.arrays import layout_of
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.backends.execute import Kernel
from mixad.errors import KernelIndexError
from mixad.kernel.folding import FOLDED
from mixad.kernel.plan import Layout, plan
from mixad.kernel.spec import Launch, OutputRequest, SubBox
from mixad.kernel.tiling import BLOCK
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import F16, F32, F64, I16, I64, ScalarType

EXAMPLES_OF_WIDTHS = 40

EXAMPLES = 150
LEAST_FOLDED = 0.3  # of what is drawn, about 0.6 are
ENDLESS_CACHE = 1 << 60
WIDTHS = [bits for bits in (128, 256, 512) if bits <= detect().vector_bits]
BACKENDS = [CpuBackend(detect().with_vector_bits(bits)) for bits in WIDTHS]


def product_and_difference(type: ScalarType) -> Any:
    """Return x y + z, and x - z."""
    b = Builder("product_and_difference")
    x, y, z = (b.param(name, type) for name in "xyz")
    return b.finish([b.op("add", b.op("mul", x, y), z), b.op("sub", x, z)])


def planned(program: Any, requests: Any, arrays: Any, cache_bytes: int = ENDLESS_CACHE) -> Launch:
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    layouts = [layout_of(a) for a in arrays]
    return plan((program,), requests, layouts, shape, cache_bytes, folds=True)


def launched(launch: Launch, arrays: Any, backend: CpuBackend = BACKENDS[-1]) -> Any:
    return backend.launch(backend.bind(backend.compile(launch.spec), launch), arrays)


# -- every pattern, layout and sum -----------------------------------------------------------------


@st.composite
def laid_out(draw: Any, values: Any) -> Any:
    """Return equal values that lie otherwise in memory: padded, transposed, reversed, somewhere."""
    order = draw(st.permutations(range(values.ndim)))
    more = [draw(st.sampled_from((0, 0, 1, 3))) for _ in order]
    steps = [draw(st.sampled_from((1, 1, 1, 2, -1))) for _ in order]
    sides = [n * abs(s) + m for n, s, m in zip(values.shape, steps, more, strict=True)]
    offset = draw(st.integers(0, 5))
    memory = np.zeros(offset + math.prod(sides), values.dtype)[offset:]
    view = memory.reshape([sides[a] for a in order]).transpose(np.argsort(order).astype(int))
    view = view[tuple(slice(0, n * abs(s)) for n, s in zip(values.shape, steps, strict=True))]
    view = view[tuple(slice(None, None, s) for s in steps)]
    view[...] = values
    return view


@st.composite
def short_rows(draw: Any) -> Any:
    """Draw three arrays that broadcast to a shape with short inner axes, and shapes of sums."""
    inner = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2))
    long = draw(st.sampled_from((1, 2, 9, 100, *(n // math.prod(inner) + 3 for n in (700, 1500)))))
    shape = (*draw(st.lists(st.sampled_from((1, 4, 70)), max_size=1)), long, *inner)
    type = draw(st.sampled_from((F32, F64, I64, I16)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    arrays = []
    for _ in range(3):
        own = tuple(draw(st.sampled_from((n, n, 1))) for n in shape)
        values = rng.integers(-5, 6, own).astype(type.dtype)
        values = draw(laid_out(values)) if draw(st.booleans()) else values
        missing = next((k for k, n in enumerate(own) if n != 1), len(own))
        arrays.append(values[(*(0,) * draw(st.integers(0, missing)), ...)])
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    kept = st.tuples(*(st.sampled_from((n, 1)) for n in shape))
    return type, arrays, draw(st.lists(kept, min_size=1, max_size=3))


def sum_to(values: Any, shape: tuple[int, ...]) -> Any:
    axes = tuple(a for a, n in enumerate(shape) if n == 1)
    return values.sum(axis=axes, keepdims=True, dtype=values.dtype)


@pytest.mark.slow
def test_values_and_sums_of_any_shape() -> None:
    folded: list[bool] = []

    @settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
    @given(short_rows(), st.sampled_from((0, ENDLESS_CACHE)))
    def check(case: Any, cache_bytes: int) -> None:
        folded.append(check_values_and_sums(case, cache_bytes))

    check()
    assert sum(folded) >= LEAST_FOLDED * len(folded), "too few cases show short rows"


def check_values_and_sums(case: Any, cache_bytes: int) -> bool:
    """Compare with NumPy, and return whether rows are folded."""
    type, arrays, kept = case
    x, y, z = (a.astype(type.dtype) for a in arrays)
    both = [x * y + z, x - z + np.zeros_like(y)]
    sums = [(k, shape) for k, shape in itertools.product((0, 1), kept)]
    requests = [OutputRequest(0, 0), OutputRequest(0, 1), *(OutputRequest(0, *s) for s in sums)]
    launch = planned(product_and_difference(type), requests, arrays, cache_bytes)
    expected = [*both, *(sum_to(both[k], shape) for k, shape in sums)]
    for found, want in zip(launched(launch, arrays), expected, strict=True):
        assert found.dtype == type.dtype
        np.testing.assert_array_equal(found, want)
    return launch.fold is not None


@pytest.mark.slow
@settings(max_examples=EXAMPLES_OF_WIDTHS, suppress_health_check=[HealthCheck.too_slow])
@given(short_rows(), st.integers(0, 2**16))
def test_any_vector_width_gives_the_same_bits(case: Any, seed: int) -> None:
    type, arrays, kept = case
    rng = np.random.default_rng(seed)
    for a in arrays:
        if type.is_float:
            a[...] = rng.normal(size=a.shape) * 10.0 ** rng.uniform(-6, 6, a.shape)
    requests = [OutputRequest(0, 0), *(OutputRequest(0, 1, shape) for shape in kept)]
    launch = planned(product_and_difference(type), requests, arrays)
    first, *others = (launched(launch, arrays, backend) for backend in BACKENDS)
    for results in others:
        for found, want in zip(results, first, strict=True):
            assert found.tobytes() == want.tobytes()


# -- what is folded --------------------------------------------------------------------------------

FOLDED_PATTERNS: dict[str, tuple[tuple[tuple[int, ...], ...], tuple[int, ...] | None]] = {
    "row": (((5000, 3), (3,)), None),
    "row of ten": (((25_000, 10), (10,)), None),
    "column": (((5000, 3), (5000, 1)), None),
    "row and column": (((5000, 1), (3,)), None),
    "sum along rows": (((5000, 3),), (5000, 1)),
    "sum along columns": (((5000, 3),), (1, 3)),
    "two short axes": (((5000, 3, 5), (3, 1)), None),
    "two short axes, one summed": (((5000, 3, 5),), (5000, 1, 5)),
    "outer axis": (((4, 900, 7), (4, 1, 7)), (4, 1, 7)),
    "outer axes": (((1000, 100, 3), (3,)), (1, 100, 3)),
    "outer axes, longer": (((300, 50, 20), (300, 1, 20), (50, 20)), (50, 20)),
    "less than a row": (((30, 7), (7,)), (1, 7)),
}


def spec_of(shapes: Any, kept: Any, type: ScalarType = F64) -> Launch:
    b = Builder("total")
    total = b.const(0.0, type)
    for k, _ in enumerate(shapes):
        total = b.op("add", total, b.param(f"x{k}", type))
    program = b.finish([total])
    return planned(program, [OutputRequest(0, 0, kept)], [np.ones(s) for s in shapes])


@pytest.mark.rows("pattern", FOLDED_PATTERNS)
def test_short_rows_are_folded(pattern: str) -> None:
    launch = spec_of(*FOLDED_PATTERNS[pattern])
    fold = launch.fold
    assert fold is not None
    assert launch.loops[-1] == math.prod(fold.axes) <= (FOLDED if fold.is_split else BLOCK)
    assert launch.loops[-1] >= 5 * launch.extents[-1]
    outer = len(launch.extents) - len(fold.axes)
    assert fold.length * math.prod(launch.extents[:outer]) == math.prod(launch.shape)


@pytest.mark.rows("specials", [(), (math.nan,), (math.inf, -math.inf), (math.nan, math.inf)])
@pytest.mark.rows("pattern", FOLDED_PATTERNS)
def test_floats_in_folded_rows_reach_their_own_results_only(pattern: str, specials: Any) -> None:
    shapes, kept = FOLDED_PATTERNS[pattern]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in shapes]
    for k, special in enumerate(specials):
        flat = arrays[k % len(arrays)].reshape(-1)
        flat[rng.integers(flat.size)] = special
    launch = spec_of(shapes, kept)
    assert launch.fold is not None
    with np.errstate(invalid="ignore"):
        values = sum(arrays, np.zeros(()))
        sums = values if kept is None else sum_to(values, (1,) * (values.ndim - len(kept)) + kept)
    allowed = 0.0 if kept is None else 1e-13 * values.size
    finite = np.isfinite(sums)
    for backend in BACKENDS:
        (found,) = launched(launch, arrays, backend)
        found = found.reshape(sums.shape)
        np.testing.assert_array_equal(found[~finite], sums[~finite])
        np.testing.assert_allclose(found[finite], sums[finite], rtol=0.0, atol=allowed)
    assert finite.any()  # what is special stays where it is
    assert finite.all() == (not specials)


@pytest.mark.parametrize("kept", [None, (1, 3), "column"])
def test_any_number_of_rows_takes_the_same_kernel(kept: Any) -> None:
    specs = {
        spec_of(((n, 3), (3,)), (n, 1) if kept == "column" else kept).spec
        for n in (2, 9, 999, 9999)
    }
    assert len(specs) == 1


@pytest.mark.parametrize(
    ("shapes", "kept"),
    [
        (((5000, 3), (5000, 3)), None),  # merged
        (((5000, 16), (16,)), None),  # whole gangs
        (((5000, 300), (300,)), None),  # long
        (((5000, 90), (5000, 1)), None),  # copies would cost more than ends of rows
        (((1, 3), (3,)), None),
    ],
)
def test_other_rows_are_left(shapes: Any, kept: Any) -> None:
    assert spec_of(shapes, kept).fold is None


def test_what_dear_values_a_row_shares_are_not_computed_for_its_elements() -> None:
    """The value of a column is computed once a row; rows that are not much shorter stay."""
    b = Builder("dear")
    x, y = b.param("x", F64), b.param("y", F64)
    dear = b.finish([b.op("mul", x, b.op("exp", b.op("sin", y)))])
    for columns, folds in ((3, True), (15, False)):
        arrays = [np.ones((500, columns)), np.ones((500, 1))]
        assert (planned(dear, [OutputRequest(0, 0)], arrays).fold is not None) == folds


def test_partial_sums_of_folded_rows_stay_few() -> None:
    """A sum over outer axes that would leave a value for each element of them is not folded."""
    launch = spec_of(((1000, 1000, 3), (3,)), (1, 1000, 3))
    assert launch.fold is None


def test_only_backends_that_fold_are_given_folds() -> None:
    layouts = [Layout(F64, (5000, 3), (24, 8)), Layout(F64, (3,), (8,)), Layout(F64, (), ())]
    requests = [OutputRequest(0, 0)]
    program = product_and_difference(F64)
    assert plan((program,), requests, layouts, (5000, 3), ENDLESS_CACHE).fold is None
    arrays = [np.ones((5000, 3)), np.ones(3), np.ones(())]
    kernel = Kernel((program,), tuple(requests))
    assert kernel.prepare_launch(arrays).launch.fold is not None
    assert kernel.prepare_launch(arrays, "reference").launch.fold is None


# -- what else kernels do --------------------------------------------------------------------------


@pytest.mark.rows("count", [1, 7, 100, 1001])
@pytest.mark.rows("columns", [2, 3, 7])
def test_lanes_beyond_the_end_divide_by_no_zero(count: int, columns: int) -> None:
    """An integer division by zero would end the process."""
    b = Builder("quotient")
    x, y = b.param("x", I64), b.param("y", I64)
    program = b.finish([b.op("floordiv", x, y)])
    rng = np.random.default_rng(0)
    x, y = rng.integers(-99, 99, (count, columns)), rng.integers(1, 9, (count, 1))
    requests = [OutputRequest(0, 0), OutputRequest(0, 0, (count, 1))]
    stored, summed = launched(planned(program, requests, [x, y]), [x, y])
    np.testing.assert_array_equal(stored, x // y)
    np.testing.assert_array_equal(summed, (x // y).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("kept", [None, (700, 1), (1, 3), ()])
def test_half_precision(kept: Any) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (700, 3)).astype("f2")
    y, z = x[:1].copy(), x[:, :1].copy()
    launch = planned(product_and_difference(F16), [OutputRequest(0, 0, kept)], [x, y, z])
    assert launch.fold is not None
    expected = x.astype("f8") * y + z
    if kept is not None:
        expected = expected.sum(axis={(700, 1): 1, (1, 3): 0, (): (0, 1)}[kept]).reshape(kept)
    np.testing.assert_array_equal(launched(launch, [x, y, z])[0], expected.astype("f2"))


def test_truth_values() -> None:
    b = Builder("less")
    x, y = b.param("x", F64), b.param("y", F64)
    either = b.finish([b.op("lt", x, y)])
    x, y = np.random.default_rng(0).random((2, 999, 3))
    y = y[:, :1]
    launch = planned(either, [OutputRequest(0, 0)], [x, y])
    np.testing.assert_array_equal(launched(launch, [x, y])[0], x < y)


@pytest.mark.parametrize("starts", [(2, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_a_part_of_a_larger_array(starts: tuple[int, ...]) -> None:
    """Folded where the part's rows follow one another."""
    x = np.random.default_rng(0).random((4, 500, 3))
    y, z = x[:1, :1].copy(), x[:, :, :1].copy()
    part = SubBox(tuple(n + s for n, s in zip(x.shape, starts, strict=True)), starts)
    requests = [OutputRequest(0, 0, part=part), OutputRequest(0, 1)]
    launch = planned(product_and_difference(F64), requests, [x, y, z])
    assert (launch.fold is not None) == (starts[2] == 0)
    whole, difference = launched(launch, [x, y, z])
    expected = np.zeros(part.whole)
    expected[tuple(slice(start, None) for start in starts)] = x * y + z
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(difference, x - z)


def test_an_index_outside_is_noticed() -> None:
    b = Builder("looked_up")
    x, k = b.param("x", F64), b.param("k", I64)
    table = b.array_param("table", ArrayType(F64, 1))
    program = b.finish([b.op("mul", x, b.load(table, k))])
    x, k, table = np.ones((500, 3)), np.arange(500)[:, None] % 7, np.arange(7.0)
    kernel = Kernel((program,), (OutputRequest(0, 0),))
    np.testing.assert_array_equal(kernel([x, k, table])[0], x * table[k])
    k[321] = 7
    with pytest.raises(KernelIndexError, match="321"):
        kernel([x, k, table])
