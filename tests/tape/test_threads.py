"""Several threads ask for one pending value, or differentiate at once: all get what one would."""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.tape import states
from mixad.tape.cell import Cell
from mixad.transforms import strand_history

from .test_pending import cube

THREADS = 4
ROUNDS = 60
X = np.linspace(-1.0, 1.0, 40)


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], Any]) -> list[Any]:
    """Return what ``work`` gives to each of several threads that start at one moment."""
    start = threading.Barrier(THREADS)
    found: list[Any] = [None] * THREADS

    def run(at: int) -> None:
        start.wait()
        try:
            found[at] = work(at)
        except Exception as error:
            found[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found


def test_value_that_several_threads_ask_for_is_made_once(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        launches.clear()
        y = cube(cube(x))
        for value in together(lambda _: mixad.stop_gradient(y)):
            np.testing.assert_allclose(value, X**9, rtol=1e-12)
        assert len(launches) == 1
        return y.sum()

    for _ in range(ROUNDS):
        np.testing.assert_allclose(mixad.grad(f)(X), 9 * X**8, rtol=1e-12)


def slow_down(mapping: type[dict[Any, Any]]) -> None:
    """Let what follows each known state be found in mappings of another type."""
    known = [*states._known.initial.values()]
    for state in known:
        state.next = mapping(state.next)
        known += state.next.values()


@pytest.mark.usefixtures("fresh")
def test_a_thread_that_asks_for_nodes_waits_for_what_is_being_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything recorded is done on nodes then, while the thread that records is at it."""

    class Slow(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            time.sleep(1e-4)  # the other thread asks between a look and what comes of it
            return found

    def f(x: Any, asks: int) -> Any:
        others: list[Any] = []

        def ask() -> None:
            time.sleep(2e-4 * asks)
            others.append(np.sin(x) * 2.0)

        asking = threading.Thread(target=ask)
        if asks:
            asking.start()
        y = x
        for _ in range(12):
            y = y * x + 0.5
        if not asks:
            return y.sum()
        asking.join()
        return y.sum() + others[0].sum()

    y, slope = X, np.ones_like(X)
    for _ in range(12):
        y, slope = y * X + 0.5, slope * X + y
    for _ in range(3):
        np.testing.assert_allclose(mixad.grad(lambda x: f(x, 0))(X), slope, rtol=1e-12)
    slow_down(Slow)
    for at in range(1, 20):
        monkeypatch.setattr(strand_history, "_HISTORIES", {})  # it leaves its strand each time
        found = mixad.grad(lambda x, at=at: f(x, at))(X)
        np.testing.assert_allclose(found, slope + 2.0 * np.cos(X), rtol=1e-12)


def test_sums_join_a_call_that_another_thread_runs() -> None:
    def f(x: Any) -> Any:
        y = cube(x)
        sums = together(lambda at: y.sum() if at % 2 else mixad.stop_gradient(y.sum()))
        for total in sums:
            np.testing.assert_allclose(mixad.stop_gradient(total), np.sum(X**3), atol=1e-12)
        return sums[1]

    for _ in range(ROUNDS):
        np.testing.assert_allclose(mixad.grad(f)(X), 3 * X**2, rtol=1e-12)


def test_threads_that_take_one_sum_at_once_share_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cell each, one of them would never be filled."""

    make = Cell.__init__

    def slowly(self: Cell, *args: Any) -> None:
        time.sleep(0.01)
        make(self, *args)

    def f(x: Any) -> Any:
        y = cube(x)
        monkeypatch.setattr(Cell, "__init__", slowly)
        first, *others = together(lambda _: y.sum())
        assert all(total.cell is first.cell for total in others)
        return first

    np.testing.assert_allclose(mixad.grad(f)(X), 3 * X**2, rtol=1e-12)


def test_one_pullback_is_called_by_several_threads() -> None:
    for _ in range(ROUNDS):
        _, pullback = mixad.vjp(lambda x: cube(cube(x).sum() * cube(x)).sum(), X + 2.0)
        first, *others = together(lambda _: pullback(1.0)[0])  # noqa: B023
        s, t = (X + 2.0) ** 3, 3 * (X + 2.0) ** 2
        inner = 3 * (s.sum() * s) ** 2
        np.testing.assert_allclose(first, ((inner * s).sum() + inner * s.sum()) * t, rtol=1e-10)
        for other in others:
            np.testing.assert_array_equal(other, first)


# -- derivatives at once: nothing is global --------------------------------------------------------


def settled(x, y):
    """Return an iterate of a loop whose length differs from element to element."""
    z = x
    k = 0
    while abs(z) < 2.0 and k < 6:
        z = z * y + math.sin(z) + 0.5
        k += 1
    return z


Y = np.linspace(0.6, 1.4, 40)


def _first(f: Any) -> Any:
    return mixad.grad(lambda x, y: f(x, y).sum(), (0, 1))(X, Y)


def _second(f: Any) -> Any:
    slope = lambda x: (mixad.grad(lambda x: f(x, Y).sum())(x) * Y).sum()  # noqa: E731
    return (mixad.grad(slope)(X),)


def _of_vjp(f: Any) -> Any:
    value, pullback = mixad.vjp(lambda y: f(X, y) * y, Y)
    return value, *pullback(X)


def _with_value(f: Any) -> Any:
    value, gradient = mixad.value_and_grad(lambda x: (f(x, Y) ** 2).mean())(X)
    return value, gradient


WORKS = [_first, _second, _of_vjp, _with_value]


NEW = [
    settled,
    lambda x, y: math.sin(x * y) + x * x * y,
    lambda x, y: x * y if x < 0.25 else math.exp(x) - y * y,
    lambda x, y: math.tanh(x) / (1.0 + y * y),
]
"""Functions that no other test has compiled."""


@pytest.mark.slow
@pytest.mark.rows("placement", ["forward", "reverse"])
@pytest.mark.rows("which", range(len(NEW)))
def test_threads_differentiate_one_function_as_if_they_were_alone(
    which: int, placement: Any
) -> None:
    """They compile it at the same moment, too."""
    shared = mixad.broadcast(NEW[which], placement=placement)

    def several(at: int) -> list[Any]:
        return [(k % 4, WORKS[k % 4](shared)) for k in range(at, at + 12)]

    found = together(several)
    expected = [work(shared) for work in WORKS]
    for work, results in itertools.chain(*found):
        for mine, want in zip(results, expected[work], strict=True):
            np.testing.assert_array_equal(mine, want)


def _summed(f: Any) -> Any:
    return lambda x: f(x).sum()


def test_threads_differentiate_at_different_depths_at_once() -> None:
    cubic = mixad.broadcast(lambda x: x * x * x * x)

    def order(at: int) -> list[Any]:
        f: Any = lambda x: cubic(x).sum()  # noqa: E731
        for _ in range(at):
            f = _summed(mixad.grad(f))
        return [mixad.grad(f)(X) for _ in range(20)]

    factors = [4 * X**3, 12 * X**2, 24 * X, np.full(X.shape, 24.0)]
    for found, want in zip(together(order), factors, strict=True):
        for gradient in found:
            np.testing.assert_allclose(gradient, want, rtol=1e-13, atol=1e-15)


@pytest.mark.slow
def test_threads_differentiate_inside_one_outer_derivative() -> None:
    """All read the outer tracer; what they return is recorded for the outer transform."""
    wave = mixad.broadcast(lambda x, y: math.sin(x * y) + x * x * y)

    def outer(x: Any) -> Any:
        y = wave(x, Y)  # pending when the threads start

        def inner(at: int) -> Any:
            loss = lambda t: (wave(t, y) * (at + 1.0)).sum()  # noqa: E731
            return (mixad.grad(loss)(x) * x).sum()

        return sum(together(inner) if at_once else map(inner, range(THREADS)))

    at_once = False
    alone = mixad.grad(outer)(X)
    at_once = True
    expected = mixad.grad(outer)(X)
    for _ in range(ROUNDS // 4):
        np.testing.assert_array_equal(mixad.grad(outer)(X), expected)
    # Nodes, which record what several threads do, add cotangents in another order.
    np.testing.assert_allclose(expected, alone, rtol=1e-13)
    # ∂/∂t of wave(t, y) at t = x is y cos(x y) + 2 x y; y depends on x too.
    y, slope = np.sin(X * Y) + X * X * Y, Y * np.cos(X * Y) + 2 * X * Y
    partial_x = y * np.cos(X * y) + 2 * X * y + X * (2 * y - y * y * np.sin(X * y))
    partial_y = X * (np.cos(X * y) - X * y * np.sin(X * y) + 2 * X)
    want = sum(range(1, THREADS + 1)) * (partial_x + partial_y * slope)
    np.testing.assert_allclose(expected, want, rtol=1e-11, atol=1e-13)


def test_one_pullback_under_an_outer_derivative_is_called_by_several_threads() -> None:
    def outer(x: Any) -> Any:
        _, pullback = mixad.vjp(lambda t: cube(t) * x, x)
        found = together(lambda at: pullback(x * (at + 1.0))[0])  # 3 x⁴ (at + 1)
        return sum(g.sum() for g in found)

    want = 12 * X**3 * sum(range(1, THREADS + 1))
    for _ in range(ROUNDS // 4):
        np.testing.assert_allclose(mixad.grad(outer)(X), want, rtol=1e-11, atol=1e-13)


def test_what_another_thread_completes_after_it_was_found_missing_is_there() -> None:
    """Python asks a class for a slot that is empty; until it does, another thread may fill it."""

    def f(x: Any) -> Any:
        y = x * x
        assert y.strand is not None
        y.strand.complete()
        assert y.__getattr__("origin") is y.origin
        assert y.__getattr__("cell") is y.cell
        return y.sum()

    np.testing.assert_array_equal(mixad.grad(f)(X), 2.0 * X)
