"""Functions that look at elements, or compute with plain arrays, are recorded by what they do."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad

from .test_inner_strands import by_nodes

pytestmark = pytest.mark.usefixtures("fresh")

DRAW = np.random.default_rng(1)
N = 6
B, C, SQUARE = DRAW.normal(size=N), DRAW.normal(size=2 * N).view(complex), DRAW.normal(size=(N, N))
POSITIVE = SQUARE @ SQUARE.T + N * np.eye(N)
GROUPS = DRAW.integers(0, N, 8)
MANY = DRAW.integers(0, N, 5000)


def begin(name: str) -> None:
    """Draw what a case of this name draws, whatever was drawn before."""
    DRAW.bit_generator.state = np.random.default_rng(zlib.crc32(name.encode())).bit_generator.state


def vector() -> Any:
    return DRAW.normal(size=N)


def matrix() -> Any:
    return DRAW.normal(size=(N, N))


def positive() -> Any:
    square = matrix()
    return square @ square.T + N * np.eye(N)


def numbers() -> Any:
    return DRAW.normal(size=2 * N).view(complex)


def written(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(N):
        y[i] = x[i] * x[(i + 1) % N]
    return y


def halved(x: Any, where: Any) -> Any:
    y = x * 1.0
    y[where] = y[where] / 2
    return y


def added_at(x: Any) -> Any:
    y = np.zeros_like(x)
    np.add.at(y, GROUPS, x[GROUPS] ** 2)
    return y


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "slogdet": (lambda a: np.linalg.slogdet(a).logabsdet, matrix),
    "a sign": (lambda a: (lambda sign, log: sign * log)(*np.linalg.slogdet(a)), matrix),
    "solve beside an array": (lambda b: (np.linalg.solve(POSITIVE, b) ** 2).sum(), vector),
    "solve of an array": (lambda a: (np.linalg.solve(a, B) ** 2).sum(), positive),
    "svd": (lambda a: (np.linalg.svd(a)[1] ** 3).sum(), matrix),
    "sort": (lambda x: (np.sort(x)[:3] ** 2).sum(), vector),
    "sort along an axis": (lambda a: (np.sort(a, axis=0)[:3] ** 2).sum(), matrix),
    "argsort": (lambda x: (x[np.argsort(x)][:3] ** 2).sum(), vector),
    "partition": (lambda x: (np.partition(x, 2)[:2] ** 2).sum(), vector),
    "median": (lambda x: np.median(x * x), vector),
    "quantile": (lambda x: np.quantile(x, [0.2, 0.7]).sum(), vector),
    "nansum": (lambda x: np.nansum(np.where(x > 1, np.nan, x * x)), vector),
    "a mask": (lambda x: (x[x > 0] ** 2).sum(), vector),
    "a mask of what was computed": (lambda x: (np.sin(x)[np.sin(x) > 0] ** 2).sum(), vector),
    "groups": (lambda x: (x[GROUPS] * np.arange(8)).sum(), vector),
    "many groups": (lambda x: (x[MANY] * MANY).sum(), vector),
    "interp": (lambda x: np.interp(x, np.linspace(-3, 3, N), B).sum(), vector),
    "interp of heights": (lambda y: np.interp([0.5, 2.5], np.arange(N), y).sum(), vector),
    "convolve": (lambda x: (np.convolve(x, np.arange(3.0)) ** 2).sum(), vector),
    "polyval": (lambda x: np.polyval([1.0, 2.0, 3.0], x).sum(), vector),
    "written": (lambda x: (written(x) ** 2).sum(), vector),
    "written by a mask": (lambda x: (halved(x, x > 0) ** 2).sum(), vector),
    "written by indices": (lambda x: (halved(x, np.argsort(x)[:3]) ** 2).sum(), vector),
    "added at indices": (lambda x: (added_at(x) * B).sum(), vector),
    "spectrum": (lambda x: (np.abs(np.fft.fft(x)) ** 2 * np.arange(N)).sum(), vector),
    "filtered": (lambda x: (np.fft.irfft(np.fft.rfft(x) * B[:4]) ** 2).sum(), vector),
    "complex": (lambda z: np.abs(z * z * C).sum(), numbers),
    "a complex number": (lambda z: ((2 + 1j) * z**2 + z * 2.0).real.sum(), numbers),
    "complex beside real": (lambda x: np.abs(x * 1j + 2).sum(), vector),
}


def half(x: Any) -> Any:
    return np.full_like(x, 0.5)


def kept(f: Callable[..., Any], x: Any) -> Any:
    value, pullback = mixad.vjp(f, x)
    return value, pullback(np.ones_like(value)), pullback(value)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x: mixad.grad(f)(x),
    "value_and_grad": lambda f, x: mixad.value_and_grad(f)(x),
    "jvp": lambda f, x: mixad.jvp(f, (x,), (half(x),)),
    "vjp": kept,
    "hvp": lambda f, x: mixad.hvp(f, (x,), (half(x),)),
    "inside": lambda f, x: mixad.grad(lambda y: (mixad.grad(f)(y) * mixad.grad(f)(y)).real.sum())(
        x
    ),
}


def assert_same(found: Any, expected: Any) -> None:
    """Compare what a transform gives: cuts and fusion round sums otherwise than nodes do."""
    pairs = zip(mixad.pytree.leaves(found), mixad.pytree.leaves(expected), strict=True)
    for one, other in pairs:
        assert type(one) is type(other)
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.rows(("transform", "name"), [(t, name) for t in TRANSFORMS for name in CASES])
def test_functions_of_whole_arrays_are_as_by_nodes(transform: str, name: str) -> None:
    (f, draw), call = CASES[name], TRANSFORMS[transform]
    begin(name)
    for _ in range(4):
        x = draw()
        given = x.copy()
        assert_same(call(f, x), by_nodes(call, f, x))
        np.testing.assert_array_equal(x, given)


@pytest.mark.parametrize("name", CASES)
def test_they_go_by_plans_once_they_are_known(name: str, runs: list[type]) -> None:
    f, draw = CASES[name]
    begin(name)
    gradient = mixad.grad(f)
    for _ in range(16):
        gradient(draw())
    runs.clear()
    gradient(draw())
    assert runs


def test_values_that_a_function_looks_at_are_those_of_the_call() -> None:
    """The order of the elements is another one in each call, as is what a mask selects."""
    gradient = mixad.grad(lambda x: (np.sort(x) * np.arange(N)).sum() + (x[x > 0] ** 3).sum())
    for _ in range(30):
        x = vector()
        order = np.empty(N)
        order[np.argsort(x)] = np.arange(N)
        np.testing.assert_allclose(gradient(x), order + 3 * np.where(x > 0, x, 0) ** 2, rtol=1e-14)


def test_an_index_outside_is_refused_at_its_line() -> None:
    gradient = mixad.grad(lambda x, i: (x[i] ** 2).sum())
    for _ in range(12):
        indices = DRAW.integers(0, N, 3)
        gradient(vector(), indices)
    with pytest.raises(IndexError, match="out of bounds") as caught:
        gradient(vector(), np.array([0, N, 1]))
    assert "<lambda>" in [entry.frame.code.name for entry in caught.traceback]
    x = vector()
    expected = np.zeros(N)
    expected[2] = 2 * x[2]
    np.testing.assert_allclose(gradient(x, np.array([2, 2, 2])), 3 * expected, rtol=1e-15)


def test_plain_arrays_may_change_between_calls() -> None:
    heights = np.zeros(3)
    gradient = mixad.grad(lambda x: (np.interp(x, [0.0, 1.0, 2.0], heights) ** 2).sum())
    for k in range(6):
        heights[:] = [0.0, k, 1.0]
        slope = np.array([2.0 * k * 0.5 * k, 2.0 * (k + (1.0 - k) * 0.5) * (1.0 - k)])
        np.testing.assert_allclose(gradient(np.array([0.5, 1.5])), slope, rtol=1e-12)


WRITES: dict[str, Callable[[Any, Any], None]] = {
    "added numbers": lambda y, x: np.add.at(y, [0, 1, 1], np.ones(3)),
    "subtracted numbers": lambda y, x: np.subtract.at(y, [0, 1, 1], 2),
    "whole numbers by a slice": lambda y, x: y.__setitem__(slice(2), np.array([5, 7])),
    "flags by indices": lambda y, x: y.__setitem__([0, 2], np.array([True, False])),
    "nothing by a mask": lambda y, x: y.__setitem__(x > 99, x[x > 99]),
    "nothing by indices": lambda y, x: y.__setitem__(np.array([], int), x[0]),
    "one value twice": lambda y, x: y.__setitem__([1, 1, 2], x[:3] * x[1:4]),
    "rows that broadcast": lambda y, x: y.__setitem__([[0, 1], [2, 3]], x[:2] * 2.0),
}


@pytest.mark.parametrize("base", [np.zeros_like, lambda x: x * 1.5])
@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_has_the_derivatives_of_nodes(name: str, base: Any) -> None:
    def f(x: Any) -> Any:
        y = base(x)
        WRITES[name](y, x)
        return (y * y * x).sum()

    for transform in ("grad", "jvp", "vjp", "hvp", "inside"):
        call = TRANSFORMS[transform]
        for _ in range(4):
            x = vector()
            assert_same(call(f, x), by_nodes(call, f, x))


def test_what_libraries_refuse_is_refused_in_each_call() -> None:
    def complex_into_real(x: Any) -> Any:
        y = x * 1.0
        y[np.array([], int)] = x[:0] * 1j
        return y.sum()

    def more_axes(x: Any) -> Any:
        y = x * 1.0
        np.add.at(y, [0, 1], np.ones((1, 2)))
        return y.sum()

    def used_later(x: Any) -> Any:
        y = np.zeros_like(x)
        part = y[1:]
        part[0] = x[0]
        return (x * y).sum()

    for _ in range(3):
        with pytest.raises(mixad.errors.KernelTypeError, match="imaginary part"):
            mixad.grad(complex_into_real)(vector())
        with pytest.raises(ValueError, match="more dimensions"):
            mixad.grad(more_axes)(vector())
        with pytest.raises(mixad.errors.TracerError, match="shares memory"):
            mixad.grad(used_later)(vector())


@pytest.mark.parametrize("name", [name for name, (_, draw) in CASES.items() if draw is vector])
def test_their_derivatives_are_those_of_differences(name: str) -> None:
    f, _ = CASES[name]
    begin(name)
    for _ in range(3):
        x, h = vector(), 1e-6
        ends = [(f(x + h * unit), f(x - h * unit)) for unit in np.eye(N)]
        expected = [(high - low) / (2 * h) for high, low in ends]
        np.testing.assert_allclose(mixad.grad(f)(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_recordings_go_on_after_errors_of_the_user() -> None:
    """Products and sums of wrong shapes, caught amid a recording, and arrays that come in later."""

    def f(x: Any, a: Any, b: Any) -> Any:
        y = x * a
        for _ in range(40):
            y = np.sin(y) + x
        for wrong in (np.ones(N + 1), np.ones((N + 1, 2))):
            try:
                y = y @ wrong
            except ValueError:
                y = y * 1.5
        return (y * b + x * a).sum()

    for _ in range(5):
        x, a, b = vector(), vector(), vector()
        gradient = mixad.grad(f)
        assert_same(gradient(x, a, b), by_nodes(gradient, x, a, b))
        ends = [(f(x + 1e-6 * u, a, b), f(x - 1e-6 * u, a, b)) for u in np.eye(N)]
        expected = [(high - low) / 2e-6 for high, low in ends]
        np.testing.assert_allclose(gradient(x, a, b), expected, rtol=1e-6, atol=1e-6)


def test_functions_that_look_go_on_after_errors_of_the_user() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        for others in ([y, np.ones((6, 1))], [y, np.ones(5)]):
            with contextlib.suppress(ValueError):
                np.stack(others)
            with contextlib.suppress(ValueError):
                y = y + others[1][:5, ...].reshape(-1)[:5]
        return np.sort(y).sum() + np.median(y)

    for _ in range(4):
        x = vector()
        assert_same(mixad.grad(f)(x), by_nodes(mixad.grad(f), x))
