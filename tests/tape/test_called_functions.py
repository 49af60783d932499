"""Functions with rules of the user's, and checkpoints, beside what strands know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad

from .test_inner_strands import by_nodes

pytestmark = pytest.mark.usefixtures("fresh")

X = np.linspace(0.3, 1.4, 5)
W = np.linspace(-1.0, 2.0, 5)

seen: list[str] = []


@mixad.custom_vjp
def wave(x: Any, y: Any) -> Any:
    return np.sin(x) * y


def _forward(x: Any, y: Any) -> Any:
    seen.append("forward")
    return np.sin(x) * y, (x, y)


def _backward(kept: Any, g: Any) -> Any:
    seen.append("backward")
    x, y = kept
    return g * np.cos(x) * y, g * np.sin(x)


wave.defvjp(_forward, _backward)


@mixad.custom_jvp
def bent(x: Any) -> Any:
    return x * x * x


@bent.defjvp
def _rule(primals: Any, tangents: Any) -> Any:
    return bent(primals[0]), 3.0 * primals[0] ** 2 * tangents[0]


@mixad.custom_vjp
def pair(x: Any) -> Any:
    return {"square": x * x, "count": len(x), "sum": x.sum()}


pair.defvjp(
    lambda x: (pair.f(x), x), lambda x, g: (2.0 * x * g["square"] + g["sum"] * np.ones_like(x),)
)


@mixad.custom_vjp
def one_sided(x: Any, y: Any) -> Any:
    return x * y


one_sided.defvjp(lambda x, y: (x * y, y), lambda y, g: (g * y, None))


def layer(x: Any, w: Any) -> Any:
    return np.tanh(w * x) + x


CALLS: dict[str, Callable[[Any], Any]] = {
    "a reverse rule": lambda x: (wave(x * 2.0, x) * W).sum(),
    "of an input": lambda x: wave(x, W).sum(),
    "twice": lambda x: (wave(wave(x, x), x * x) * x).sum(),
    "a forward rule": lambda x: (bent(np.exp(x)) * x).sum(),
    "a checkpoint": lambda x: (mixad.checkpoint(layer)(x * 2.0, W) ** 2).sum(),
    "checkpoints of traced values": lambda x: sum(
        (mixad.checkpoint(lambda y, k: y * x + k)(x * k, k).sum() for k in range(3)), 0.0 * x[0]
    ),
    "several results": lambda x: (lambda p: (p["square"] * W).sum() * p["sum"] * p["count"])(
        pair(x * 1.5)
    ),
    "one result of several": lambda x: pair(x)["sum"] * 2.0,
    "no cotangent": lambda x: (one_sided(x, np.sin(x)) * W).sum(),
    "numbers": lambda x: bent(x[0]) * wave(x[1], 2.0) + wave(x[2], x[3] * x[4]),
    "in a loop": lambda x: sum((wave(x * k, x).sum() for k in range(40)), 0.0 * x[0]),
    "a branch on its value": lambda x: wave(x, x).sum() if wave(x, x)[0] > 0.05 else x.sum(),
    "a view of its value": lambda x: (wave(x, x)[1:] * x[:-1]).sum(),
    "written to": lambda x: written(wave(x, x), x).sum(),
}


def written(y: Any, x: Any) -> Any:
    y[1] = x[2] * x[3]
    return y


def outcome(f: Callable[..., Any], x: Any) -> list[Any]:
    value, gradient = mixad.value_and_grad(f)(x)
    moved, pullback = mixad.vjp(f, x)
    return [value, gradient, moved, *pullback(1.5), *pullback(np.float64(-1.0))]


@pytest.mark.parametrize("name", CALLS)
def test_they_are_as_by_nodes(name: str, runs: list[type]) -> None:
    f = CALLS[name]
    for scale in (1.0, 1.1, -0.6, 0.0, 2.0):
        x = scale * X
        for found, expected in zip(outcome(f, x), by_nodes(outcome, f, x), strict=True):
            assert type(found) is type(expected)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert len(runs) >= 4


@pytest.mark.parametrize("name", [name for name in CALLS if name != "no cotangent"])
def test_their_derivatives_are_those_of_differences(name: str) -> None:
    f, h = CALLS[name], 1e-6
    units = np.eye(len(X)) * h
    differences = [(f(X + unit) - f(X - unit)) / (2 * h) for unit in units]
    for _ in range(3):
        np.testing.assert_allclose(mixad.grad(f)(X), differences, rtol=2e-8, atol=1e-8)


@pytest.mark.parametrize("transform", [mixad.grad, mixad.value_and_grad])
def test_rules_run_once_a_call(transform: Any) -> None:
    """Plans are tried beside nodes: no rule is asked twice for that."""
    for _ in range(4):
        seen.clear()
        transform(lambda x: (wave(x * 2.0, x) * W).sum())(X)
        assert seen == ["forward", "backward"]


def test_each_pullback_asks_the_rule() -> None:
    seen.clear()
    _, pullback = mixad.vjp(lambda x: wave(x, x).sum(), X)
    first, again, other = pullback(1.0), pullback(1.0), pullback(2.0)
    assert seen == ["forward", *["backward"] * 3]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(other[0], 2.0 * first[0], rtol=1e-15)


def test_what_calls_differ_in_is_no_part_of_a_plan() -> None:
    """Calls with other functions, and with other arguments traced, take one plan."""
    for by in (2.0, 3.0):
        scaled = mixad.custom_vjp(lambda n, x, by=by: n * x * by, nondiff_argnums=(0, 2))
        scaled.defvjp(lambda n, x, by: (n * x * by, None), lambda n, by, kept, g: (g * n * by,))
        for n in (1.5, 2.5):
            gradient = mixad.grad(lambda x: scaled(n, x).sum())(X)  # noqa: B023
            np.testing.assert_allclose(gradient, np.full(5, n * by), rtol=1e-15)
    first = mixad.grad(lambda x: wave(x, W).sum())(X)
    second = mixad.grad(lambda x: wave(W, x).sum())(X)
    np.testing.assert_allclose(first, np.cos(X) * W, rtol=1e-14)
    np.testing.assert_allclose(second, np.sin(W), rtol=1e-14)


def test_a_rule_that_fails_fails_each_time() -> None:
    broken = mixad.custom_vjp(lambda x: x * 2.0)
    broken.defvjp(lambda x: (x * 2.0, None), lambda kept, g: (g[:2],))
    for _ in range(3):
        with pytest.raises(mixad.errors.MixadError, match="shape"):
            mixad.grad(lambda x: (broken(x) * x).sum())(X)


def test_arrays_that_they_give_may_be_written_to_by_their_owner() -> None:
    store = np.zeros(5)

    @mixad.custom_vjp
    def stored(x: Any) -> Any:
        return x * 2.0

    def forward(x: Any) -> Any:
        store[:] = x * 2.0
        return store.copy(), None

    stored.defvjp(forward, lambda kept, g: (2.0 * g,))
    for scale in (1.0, 2.0, 3.0):
        gradient = mixad.grad(lambda x: (stored(x) * stored(x * 2.0)).sum())(scale * X)
        np.testing.assert_allclose(gradient, 16.0 * scale * X, rtol=1e-14)


def test_a_rule_of_two_transforms_of_which_one_is_of_plain_arrays() -> None:
    """Cotangents of one level are not those of another, though their bits are the same."""
    both = mixad.custom_vjp(lambda x, a: x * a)
    both.defvjp(lambda x, a: (x * a, None), lambda kept, g: (g, 2.0 * g))

    def f(a: Any) -> Any:
        return mixad.value_and_grad(lambda x: both(x, a).sum())(X)[0]

    for _ in range(3):
        np.testing.assert_array_equal(mixad.grad(f)(W), np.full(5, 2.0))


def test_each_pullback_of_a_long_recording_asks_the_rule() -> None:
    def f(x: Any) -> Any:
        y = wave(x, x)
        for k in range(140):
            y = y * (1.0 + 0.001 * k) if k % 3 else y + 0.001 * k * x
        return y.sum()

    for _ in range(4):
        seen.clear()
        _, pullback = mixad.vjp(f, X)
        first, again = pullback(1.0), pullback(1.0)
        assert seen == ["forward", "backward", "backward"]
        np.testing.assert_array_equal(first, again)


def test_tangents_of_rules_are_those_of_the_rule_that_is_called() -> None:
    """Rules of other functions, and of other numbers, take no plan of each other."""
    for by in (2.0, 3.0, 5.0):
        scaled = mixad.custom_jvp(lambda x, by=by: x * by)
        scaled.defjvp(lambda p, t, by=by: (p[0] * by, t[0] * by))
        back = mixad.custom_vjp(lambda x, by=by: x * by)
        back.defvjp(lambda x, by=by: (x * by, None), lambda kept, g, by=by: (g * by,))
        for rule in (scaled, back):
            push = mixad.linearize(lambda x: rule(x) * x, X)[1]  # noqa: B023
            np.testing.assert_allclose(push(W), 2 * by * X * W, rtol=1e-14)
            np.testing.assert_allclose(push(X), 2 * by * X * X, rtol=1e-14)
            np.testing.assert_allclose(
                mixad.jvp(lambda x: rule(x) * x, (X,), (W,))[1],  # noqa: B023
                2 * by * X * W,
                rtol=1e-14,
            )
    push = mixad.linearize(lambda x: bent(x), X)[1]
    np.testing.assert_allclose(push(W), 3 * X**2 * W, rtol=1e-14)
    push = mixad.linearize(mixad.checkpoint(np.sin), X)[1]
    np.testing.assert_allclose(push(W), np.cos(X) * W, rtol=1e-14)
