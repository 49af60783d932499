"""Random programs that nest transforms over values that they share, against differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.transforms import forward, gradients, jacobians, kept_calls, recorded_values

EXAMPLES = 60
STEP = 1e-6


@mixad.broadcast
def dear(x: float, y: float) -> float:
    """A function whose partials are worth storing."""
    for _ in range(6):
        x = math.sin(x) * y + math.exp(-x * x)
    return x


@mixad.broadcast
def two(x: float, y: float) -> tuple[float, float]:
    """A function of two results."""
    return x * y, x / (1.0 + y * y)


@mixad.checkpoint
def checkpointed(x: Any) -> Any:
    """A function that is run again on the way back."""
    return np.tanh(x) * x


def changed(x: Any, y: Any) -> Any:
    """Write a row of one value into another."""
    z = x * 1.0
    z[0] = y[1] * 0.5
    return z


def looked_at(x: Any, y: Any) -> Any:
    """Ask for a value in the middle: what comes before is made then."""
    z = np.sin(x) * y
    return z * 2.0 if z[0, 0] > -10.0 else z


def pulled_twice(x: Any, y: Any) -> Any:
    """Pull a function back along one of its own results, and once more."""
    (o, s), pull = mixad.vjp(lambda z, w: (dear(z, 0.9) * w, np.cumsum(w * z, axis=1)), x, y)[:2]
    a, b = pull((y, o))
    c, d = pull((s, x))
    return np.tanh(a * b + c * d)


OPERATIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x + y,
    lambda x, y: 0.7 * x * y,
    lambda x, y: np.sin(x) - 0.3 * y,
    lambda x, y: x * x.sum() * 0.1,
    lambda x, y: x.sum(axis=0, keepdims=True) * 0.2 + y,
    lambda x, y: np.cumsum(x, axis=1) * 0.3,
    lambda x, y: x[::-1] * y,
    lambda x, y: np.concatenate([x[:1], y[1:]]),
    lambda x, y: np.roll(x, 1, axis=1) - y,
    lambda x, y: dear(x, y * 0.1),
    lambda x, y: (lambda a, b: a * 0.4 + b)(*two(x, y)),
    lambda x, y: np.tanh(x) / (1.5 + np.cos(y)),
    lambda x, y: checkpointed(x) * 0.5,
    lambda x, y: x - x.mean(axis=1)[:, None],
    lambda x, y: (np.tanh(x) @ np.tanh(y).T) @ np.tanh(x),
    lambda x, y: np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape) * 0.2 + y,
    lambda x, y: mixad.grad(lambda z: (np.sin(z) * z * y).sum())(x),
    lambda x, y: mixad.grad(lambda z: (z * x * y).sum())(x),
    lambda x, y: mixad.jvp(lambda z: z * np.exp(-z * z) + y, (x,), (y,))[1],
    lambda x, y: mixad.vjp(lambda z: np.cumsum(z * y, axis=0), x)[1](x)[0],
    changed,
    looked_at,
    pulled_twice,
)


@st.composite
def programs(draw: Any) -> Callable[[Any, Any], Any]:
    """Draw a function of two arrays to a number: operations on what is there, and their sum."""
    chosen = []
    for count in range(2, 2 + draw(st.integers(1, 8))):
        operands = draw(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)))
        chosen.append((draw(st.sampled_from(OPERATIONS)), operands))
    wanted = draw(st.lists(st.integers(0, 1 + len(chosen)), min_size=1, max_size=3))

    def program(x: Any, y: Any) -> Any:
        values = [x, y]
        for operation, (a, b) in chosen:
            values.append(operation(values[a], values[b]))
        return sum(
            (values[at] * (1.0 + k)).sum() for k, at in enumerate((len(values) - 1, *wanted))
        )

    return program


def by_differences(f: Callable[..., Any], at: tuple[Any, ...]) -> list[Any]:
    """Return the gradient by differences of fourth order."""
    found = []
    for k, array in enumerate(at):
        gradient = np.empty_like(array)
        for index in np.ndindex(array.shape):
            unit = np.zeros_like(array)
            unit[index] = STEP ** (2 / 3)

            def moved(times: float, k: int = k, unit: Any = unit) -> Any:
                return f(*[a + times * unit if j == k else a for j, a in enumerate(at)])

            step = 12 * unit[index]
            gradient[index] = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / step
        found.append(gradient)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("by_nodes", [False, True], ids=["strands", "nodes"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs(), seed=st.integers(0, 2**16))
def test_gradients_of_nested_programs_are_limits_of_differences(
    by_nodes: bool, program: Callable[[Any, Any], Any], seed: int
) -> None:
    x, y = np.random.default_rng(seed).uniform(-1, 1, (2, 2, 3))
    expected = by_differences(program, (x, y))
    with pytest.MonkeyPatch.context() as patch:
        for module in (forward, gradients, jacobians, kept_calls, recorded_values) * by_nodes:
            patch.setattr(module, "open_strand", lambda *given: None)
        for _ in range(2):
            gradient = mixad.grad(program, (0, 1))(x, y)
            for found, wanted in zip(gradient, expected, strict=True):
                scale = 1 + np.abs(wanted).max()
                np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("by_nodes", [False, True], ids=["strands", "nodes"])
def test_partials_are_not_stored_where_a_transform_around_follows_them(
    by_nodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of the transform around needs one of the transform inside, pulled back once more."""
    for module in (forward, gradients, jacobians, kept_calls, recorded_values) * by_nodes:
        monkeypatch.setattr(module, "open_strand", lambda *given: None)

    def f(x: Any, y: Any) -> Any:
        return pulled_twice(x, y).sum()

    x, y = np.random.default_rng(0).uniform(-1, 1, (2, 2, 3))
    for found, wanted in zip(mixad.grad(f, (0, 1))(x, y), by_differences(f, (x, y)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
