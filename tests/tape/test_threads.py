"""Several threads may ask for one pending value; it is made once, and all get it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mixad

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


def test_sums_join_a_call_that_another_thread_runs() -> None:
    def f(x: Any) -> Any:
        y = cube(x)
        sums = together(lambda at: y.sum() if at % 2 else mixad.stop_gradient(y.sum()))
        for total in sums:
            np.testing.assert_allclose(mixad.stop_gradient(total), np.sum(X**3), atol=1e-12)
        return sums[1]

    for _ in range(ROUNDS):
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
