"""Pullbacks taken apart: the same bits, fewer calls, and as they are where elements decide."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.backends.arrays import NUMPY
from mixad.namespace.array import ArrayTracer
from mixad.tape import states, strand_plan, unfolded

X = np.linspace(0.3, 1.7, 6)
SQUARE = np.random.default_rng(0).normal(size=(6, 6))
LABELS = np.arange(6) % 2 * 1.0

pytestmark = pytest.mark.usefixtures("fresh")

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a product with a vector": lambda x: np.tanh(SQUARE @ x).sum(),
    "two traced matrices": lambda x: np.sin(x.reshape(2, 3) @ x.reshape(3, 2)).sum(),
    "views": lambda x: (x.reshape(2, 3).T[1:] * x[:4].reshape(2, 2)).sum(),
    "joined": lambda x: (np.concatenate([x, x[::-1] * x]) ** 3).sum(),
    "a determinant": lambda x: np.linalg.det(SQUARE * x),
    "gathered": lambda x: (x[[0, 0, 3]] * x[[1, 2, 5]]).sum(),
    "sums over": lambda x: (np.cumsum(x) * np.roll(x, 2)).sum(),
    "one value twice": lambda x: np.dot(x * x, x * x) + np.outer(x, x)[0].sum(),
}


def bits(found: Any) -> Any:
    return found.dtype, found.shape, found.tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_what_is_taken_apart_has_the_same_bits(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, x = PROGRAMS[name], X.astype(dtype)
    found = [bits(mixad.grad(f)(each)) for each in (x, x, 0.5 * x, x)]
    monkeypatch.setattr(strand_plan, "unfold", lambda *given: None)
    states.forget()
    expected = [bits(mixad.grad(f)(each)) for each in (x, x, 0.5 * x, x)]
    assert found == expected
    eps = 1e-6
    differences = [(f(X + eps * unit) - f(X - eps * unit)) / (2 * eps) for unit in np.eye(6)]
    np.testing.assert_allclose(mixad.grad(f)(X), differences, rtol=1e-7, atol=1e-7)


def test_what_looks_at_elements_is_not_taken_apart() -> None:
    looks = lambda g: (g * 2.0 if g.sum() > 0.0 else g,)  # noqa: E731
    assert unfolded.unfold(looks, [X], ArrayTracer, NUMPY, [X * 2.0]) is None


def test_what_gives_an_array_of_its_own_is_not_taken_apart() -> None:
    assert unfolded.unfold(lambda g: (np.ones(6),), [X], ArrayTracer, NUMPY, [np.ones(6)]) is None


def test_what_gives_other_bits_is_not_taken_apart() -> None:
    assert unfolded.unfold(lambda g: (g * 2.0,), [X], ArrayTracer, NUMPY, [X * 3.0]) is None


def test_what_is_taken_apart_says_which_arrays_it_reads() -> None:
    found = unfolded.unfold(
        lambda g, x: (g * x, None), [X, LABELS], ArrayTracer, NUMPY, [X * LABELS, None]
    )
    assert found is not None
    assert [entry.arguments for entry in found.entries] == [(0, 1)]
    assert found.results[1] is None


def calls_of(call: Callable[[], Any]) -> list[str]:
    """Return the Python functions that a call calls."""
    found: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_qualname)

    for _ in range(3):
        call()
    gc.collect()  # what other tests have left says so when it goes
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


CALLS: dict[str, tuple[int, Callable[[], Any]]] = {
    "a tiny gradient": (85, lambda: mixad.grad(lambda x: (np.sin(x) * x + np.exp(-x)).sum())(X)),
    "a regression": (
        220,
        lambda: mixad.grad(lambda w: (np.logaddexp(0, SQUARE @ w) - LABELS * (SQUARE @ w)).sum())(
            X
        ),
    ),
    "a Hessian product": (400, lambda: mixad.hvp(rosenbrock, (X,), (X,))),
}


@pytest.mark.parametrize("name", CALLS)
def test_known_recordings_make_few_python_calls(name: str) -> None:
    most, call = CALLS[name]
    found = calls_of(call)
    assert len(found) <= most, found
