"""Gradients summed to the shapes of their arguments: exact for any layout, always the same bits.

Whole numbers make every order of summation give one right result, so layouts are compared exactly.
Bits are compared on numbers for which another order would round otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mixad
from mixad.backends import registry
from mixad.backends.arrays import layout_of
from mixad.backends.cpu import workers
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.backends.execute import Kernel
from mixad.kernel.plan import plan
from mixad.kernel.tiling import BLOCK

EXAMPLES = 150
EXAMPLES_OF_LAYOUTS = 60
DTYPES = [np.float32, np.float64]
NARROW = ["float16", "bfloat16"]
"""The latter is a type of ml_dtypes, where that is installed."""
WIDTHS = [bits for bits in (128, 256, 512) if bits <= detect().vector_bits]


@mixad.broadcast
def weighed(w, x, y, z):
    return w * (x * y + x * z * z)


def gradients_by_hand(w: Any, x: Any, y: Any, z: Any) -> list[Any]:
    """Return the gradients of the sum of `weighed` with respect to x, y, z, in float64."""
    w, x, y, z = (np.asarray(a, "f8") for a in (w, x, y, z))
    whole = np.zeros(np.broadcast_shapes(w.shape, x.shape, y.shape, z.shape))
    terms = (w * (y + z * z), w * x, w * 2 * x * z)
    return [unbroadcast(t + whole, a.shape) for t, a in zip(terms, (x, y, z), strict=True)]


def unbroadcast(array: Any, shape: tuple[int, ...]) -> Any:
    lead = array.ndim - len(shape)
    axes = tuple(a for a in range(array.ndim) if a < lead or shape[a - lead] != array.shape[a])
    return array.sum(axis=axes).reshape(shape)


# -- arrays of any layout --------------------------------------------------------------------------

STEPS = [1, 1, 2, -1, -3, 0]


@st.composite
def layouts(draw: Any, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """Return a function from an array of a shape to an equal one that lies otherwise in memory.

    Along an axis of step 0, the first element is repeated: there the result has other values.
    """
    steps = [draw(st.sampled_from(STEPS)) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    offset = draw(st.integers(0, 17))

    def laid_out(array: Any) -> Any:
        sides = [1 if s == 0 else n * abs(s) for n, s in zip(array.shape, steps, strict=True)]
        memory = np.zeros(offset + math.prod(sides), array.dtype)[offset:]
        view = memory.reshape([sides[a] for a in order]).transpose(np.argsort(order).astype(int))
        view = view[(*(slice(None, None, s or None) for s in steps), ...)]
        view[...] = array[tuple(slice(None) if s else slice(1) for s in steps)]
        return np.broadcast_to(view, array.shape)

    return laid_out


@st.composite
def operands(
    draw: Any, sides: Sequence[int], most_axes: int, drawn: Callable[[Any, Any], Any]
) -> tuple[Any, ...]:
    """Return w, x, y, z that broadcast: rows, columns, scalars, what lacks some axes, or all."""
    rank = draw(st.sampled_from([*range(most_axes, -1, -1)]))
    shape = tuple(draw(st.sampled_from(sides)) for _ in range(rank))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = draw(st.sampled_from(DTYPES))
    arrays = []
    for _ in range(4):
        lacks = draw(st.sampled_from([0, 0, 0, *range(rank + 1)]))
        own = tuple(draw(st.sampled_from([n, n, 1])) for n in shape[lacks:])
        type = draw(st.sampled_from([dtype, dtype, dtype, *DTYPES]))
        arrays.append(draw(layouts(own))(drawn(rng, own).astype(type)))
    return tuple(arrays)


def whole_numbers(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.integers(-5, 6, shape)


def magnitudes(rng: Any, shape: tuple[int, ...]) -> Any:
    """Return numbers of many magnitudes: another order of summation would round otherwise."""
    return rng.normal(size=shape) * 10.0 ** rng.uniform(-6, 6, shape)


def gradients(w: Any, x: Any, y: Any, z: Any, backend: str | None = None) -> Any:
    kernel = weighed.with_options(backend=backend)
    return mixad.grad(lambda x, y, z: kernel(w, x, y, z).sum(), (0, 1, 2))(x, y, z)


@pytest.mark.slow
@given(operands((17, 5, 3, 2, 1), 4, whole_numbers))
@settings(max_examples=EXAMPLES)
def test_gradients_of_arrays_of_any_layout(arrays: tuple[Any, ...]) -> None:
    expected = gradients_by_hand(*arrays)
    for backend in ("cpu", "reference"):
        found = gradients(*arrays, backend=backend)
        for gradient, want, argument in zip(found, expected, arrays[1:], strict=True):
            assert gradient.dtype == argument.dtype
            assert gradient.shape == argument.shape
            np.testing.assert_array_equal(gradient, want)


PATTERNS: dict[str, tuple[tuple[int, ...], ...]] = {
    "row": ((700, 90), (90,)),
    "column": ((700, 90), (700, 1)),
    "long column": ((3, 3 * BLOCK + 5), (3, 1)),
    "scalar": ((3 * BLOCK + 5,), ()),
    "scalar of a matrix": ((700, 90), (1, 1)),
    "row and column": ((700, 1), (90,)),
    "leading": ((1100, 6, 7), (6, 7)),
    "middle": ((40, 600, 7), (40, 1, 7)),
    "outer of three": ((20, 30, 40), (30, 40)),
    "outer and inner": ((20, 30, 400), (1, 30, 1)),
    "two apart of four": ((7, 20, 9, 30), (7, 1, 9, 1)),
    "two leading of four": ((7, 20, 9, 30), (9, 30)),
    "every other of five": ((3, 4, 5, 6, 7), (1, 4, 1, 6, 1)),
    "short row": ((5003, 3), (3,)),
    "short column": ((5003, 10), (5003, 1)),
    "short middle": ((900, 3, 5), (900, 1, 5)),
    "short outer and inner": ((7, 300, 3), (300, 1)),
}
"""A full shape and one that broadcasts to it, of more than a tile each."""


@pytest.mark.rows("dtype", DTYPES)
@pytest.mark.rows("pattern", PATTERNS)
def test_gradients_of_every_pattern(pattern: str, dtype: Any) -> None:
    full, own = PATTERNS[pattern]
    rng = np.random.default_rng(0)
    w, x, y, z = (rng.integers(-3, 4, s).astype(dtype) for s in (full, own, full, own))
    for found, want in zip(gradients(w, x, y, z), gradients_by_hand(w, x, y, z), strict=True):
        np.testing.assert_array_equal(found, want)


# -- the same bits ---------------------------------------------------------------------------------


@pytest.fixture
def _workers_of_our_own() -> Iterator[None]:
    workers.shutdown()
    yield
    workers.shutdown()


def of_pattern(pattern: str, dtype: Any) -> tuple[Any, ...]:
    full, own = PATTERNS[pattern]
    rng = np.random.default_rng(0)
    drawn = [magnitudes(rng, s) for s in (full, own, full, own)]
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    elif dtype == "float16":  # whose range is shorter
        drawn = [np.copysign(abs(a) ** 0.2, a) for a in drawn]
    return tuple(np.asarray(a, dtype) for a in drawn)


def bits_of(arrays: Sequence[Any]) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in arrays]


def test_numbers_of_many_magnitudes_tell_orders_of_summation_apart() -> None:
    """Otherwise the tests below could not fail."""
    numbers = magnitudes(np.random.default_rng(0), (6, BLOCK))
    assert len({numbers.sum(), numbers[:, ::-1].sum(), numbers.sum(axis=0).sum()}) == 3


@pytest.mark.usefixtures("_workers_of_our_own")
@pytest.mark.parametrize("dtype", [*DTYPES, *NARROW])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_any_number_of_threads_gives_the_same_bits(
    pattern: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = of_pattern(pattern, dtype)
    found = []
    for threads in (1, 2, 3):
        workers.shutdown()
        monkeypatch.setenv("MIXAD_NUM_THREADS", str(threads))
        found += [bits_of(gradients(*arrays)) for _ in range(3)]
        assert workers.shared_workers().threads == threads
    assert all(bits == found[0] for bits in found)


def at_offset(array: Any, count: int) -> Any:
    """Return an equal array of the same strides, of which all lies so many bytes after a line."""
    low, high = np.lib.array_utils.byte_bounds(array)
    memory = np.zeros(high - low + 64 + count, "u1")
    start = -memory.ctypes.data % 64 + count
    first = start + array.ctypes.data - low
    moved = np.ndarray(array.shape, array.dtype, memory, first, array.strides)
    moved[...] = array
    return moved


@pytest.mark.rows("dtype", [*DTYPES, *NARROW])
@pytest.mark.rows("pattern", PATTERNS)
def test_any_alignment_gives_the_same_bits(pattern: str, dtype: Any) -> None:
    arrays = of_pattern(pattern, dtype)
    item = arrays[0].itemsize
    found = [
        bits_of(gradients(*(at_offset(a, (count * k) % 64) for k, a in enumerate(arrays, 1))))
        for count in (0, item, 3 * item, 32, 1)
    ]
    assert all(bits == found[0] for bits in found)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernel calls made so far: passes, requests, arguments, results."""
    made: list[Any] = []
    # Plans launch without it.
    monkeypatch.setattr("mixad.transforms.gradients.open_strand", lambda *given: None)
    call = Kernel.__call__

    def recorded(self: Kernel, arguments: Any, backend: Any = None) -> Any:
        results = call(self, arguments, backend)
        made.append((self.passes, self.requests, list(arguments), results))
        return results

    monkeypatch.setattr(Kernel, "__call__", recorded)
    return made


def again(call: Any, bits: int) -> list[Any]:
    """Return the results of a kernel call, made once more by code for another vector width."""
    passes, requests, arguments, results = call
    backend = CpuBackend(detect().with_vector_bits(bits))
    params = passes[0].params
    layouts = [layout_of(a) if p.kind == "lane" else None
               for a, p in zip(arguments, params, strict=True)]  # fmt: skip
    shape = np.broadcast_shapes(*(lay.shape for lay in layouts if lay is not None))
    most = registry.capability("cpu").cache_bytes
    launch = plan(passes, requests, layouts, shape, most, folds=True)
    bound = backend.bind(backend.compile(launch.spec), launch)
    assert len(results) == len(requests)
    return list(backend.launch(bound, arguments))


@pytest.mark.skipif(len(WIDTHS) < 2, reason="this processor has one vector width")
@pytest.mark.rows("dtype", [*DTYPES, *NARROW])
@pytest.mark.rows(
    "pattern",
    PATTERNS,
    slow=["short outer and inner", "short column", "short middle", "every other of five"],
)
def test_any_vector_width_gives_the_same_bits(pattern: str, dtype: Any, calls: list[Any]) -> None:
    gradients(*of_pattern(pattern, dtype))
    assert calls
    for call in list(calls):
        for bits in WIDTHS:
            assert bits_of(again(call, bits)) == bits_of(call[-1])


@pytest.mark.slow
@given(operands((130, 19, 2, 1), 3, magnitudes), st.integers(0, 63))
@settings(
    max_examples=EXAMPLES_OF_LAYOUTS, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_layout_lets_width_or_alignment_show(
    calls: list[Any], arrays: tuple[Any, ...], count: int
) -> None:
    calls.clear()
    bits = bits_of(gradients(*arrays))
    made = list(calls)
    assert bits_of(gradients(*(at_offset(a, count) for a in arrays))) == bits
    for call in made:
        for width in WIDTHS:
            assert bits_of(again(call, width)) == bits_of(call[-1])


# -- sums keep their digits ------------------------------------------------------------------------

DISTRIBUTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "uniform": lambda rng, n: rng.uniform(0, 1, n),
    "normal": lambda rng, n: rng.normal(size=n),
    "many magnitudes": lambda rng, n: magnitudes(rng, (n,)),
    "all equal": lambda rng, n: np.full(n, 0.1),
    "one large, many small": lambda rng, n: np.where(np.arange(n) == 0, 1e8, 0.3),
    "large ones that cancel": lambda rng, n: (
        np.where(np.arange(n) % 2, -1e6, 1e6) + rng.uniform(0, 1, n)
    ),
}


def drawn(distribution: str, count: int, dtype: Any) -> Any:
    return DISTRIBUTIONS[distribution](np.random.default_rng(count), count).astype(dtype)


def summed(x: Any, **options: Any) -> Any:
    """Return a sum that mixad takes, of values that a kernel computes."""
    return mixad.vjp(lambda x: (x * 1.0).sum(**options), x)[0]


@pytest.mark.rows("distribution", DISTRIBUTIONS)
@pytest.mark.rows("count", [10, 1000, 100_003, 10_000_000], slow="10000000")
def test_sums_of_f32_are_as_good_as_numpys(count: int, distribution: str) -> None:
    x = drawn(distribution, count, np.float32)
    exact = math.fsum(x)
    found, numpys = summed(x), x.sum()
    assert found.dtype == np.float32
    rounding = 0.5 * np.spacing(np.float32(abs(exact))) * (1 + 1e-6)
    assert abs(float(found) - exact) <= max(abs(float(numpys) - exact), float(rounding))


@pytest.mark.rows("distribution", DISTRIBUTIONS)
@pytest.mark.rows(
    ("shape", "axis"),
    [((1500, 300), 0), ((1500, 300), 1), ((300, 1500), 0), ((9, 800, 60), 1),
     ((900, 6, 70), (0, 2)), ((800, 20, 30), 0)],
)  # fmt: skip
def test_sums_of_f32_along_axes_are_as_good_as_numpys(
    shape: tuple[int, ...], axis: Any, distribution: str
) -> None:
    x = drawn(distribution, math.prod(shape), np.float32).reshape(shape)
    axes = (axis,) if isinstance(axis, int) else axis
    rows = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(-1, math.prod(shape[a] for a in axes))
    exact = np.asarray([math.fsum(row) for row in rows])
    found, numpys = (s.astype("f8").ravel() for s in (summed(x, axis=axis), x.sum(axis=axis)))
    rounding = 0.5 * np.spacing(np.abs(exact).astype("f4")) * (1 + 1e-6)
    assert (np.abs(found - exact) <= np.maximum(np.abs(numpys - exact), rounding)).all()


@pytest.mark.rows("distribution", DISTRIBUTIONS)
@pytest.mark.rows("count", [10, 1000, 100_003, 3_000_000], slow="3000000")
def test_sums_of_f64_err_by_the_bound_of_pairwise_summation(count: int, distribution: str) -> None:
    """Higham, Accuracy and Stability of Numerical Algorithms, §4.2: u · depth · Σ|x|.

    The depth is that of the longest run of one accumulator, the folds of a gang, and the tree.
    """
    x = drawn(distribution, count, np.float64)
    depth = BLOCK // 16 + 4 + math.ceil(math.log2(max(2, count / BLOCK)))
    bound = 2.0**-53 * depth * math.fsum(np.abs(x))
    assert abs(float(summed(x)) - math.fsum(x)) <= bound
