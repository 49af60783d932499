"""Programs of several fields under transforms of transforms: as by nodes, and by plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad

from .test_inner_strands import by_nodes

pytestmark = pytest.mark.usefixtures("fresh")

DRAW = np.random.default_rng(7)
SERIES, POINTS = DRAW.normal(size=6), DRAW.normal(size=(8, 2))
EMITTED, INPUTS = DRAW.normal(size=(7, 3)), DRAW.normal(size=(10, 4))
KERNEL = np.exp(1j * DRAW.normal(size=8) * 0.1)
COLUMN = np.array([[1.0, 0.0]])
STEP = np.array([[1.0, 0.1], [0.0, 1.0]])


def process(t: Any) -> Any:
    """Return the negative log density of a Gaussian process."""
    apart = ((POINTS[:, None] - POINTS[None]) ** 2 * np.exp(t[:2])).sum(-1)
    covariance = np.exp(-apart + t[2]) + np.exp(t[3]) * np.eye(8)
    factor = np.linalg.cholesky(covariance)
    found = np.linalg.solve(factor, INPUTS[:8, 0])
    return 0.5 * found @ found + np.log(np.diagonal(factor)).sum()


def process_by_determinant(t: Any) -> Any:
    apart = ((POINTS[:, None] - POINTS[None]) ** 2 * np.exp(t[:2])).sum(-1)
    covariance = np.exp(-apart + t[2]) + np.exp(t[3]) * np.eye(8)
    y = INPUTS[:8, 0]
    return 0.5 * y @ np.linalg.solve(covariance, y) + 0.5 * np.linalg.slogdet(covariance)[1]


def filtered(q: Any) -> Any:
    """Return the log likelihood of a Kalman filter, whose loop goes through NumPy's numbers."""
    x, p, found = np.zeros(2), np.eye(2), 0.0
    for y in SERIES:
        x, p = STEP @ x, STEP @ p @ STEP.T + np.exp(q[0]) * np.eye(2)
        spread = (COLUMN @ p @ COLUMN.T)[0, 0] + np.exp(q[1])
        gain, error = (p @ COLUMN.T)[:, 0] / spread, y - x[0]
        x, p = x + gain * error, p - np.outer(gain, gain) * spread
        found = found - 0.5 * (np.log(spread) + error * error / spread)
    return found


def forward_of_chain(a: Any) -> Any:
    """Return the log likelihood of a hidden Markov model; the largest is taken out of each sum."""
    logs = a.reshape(3, 3)
    moves, state = logs - np.log(np.exp(logs).sum(1, keepdims=True)), EMITTED[0]
    for each in EMITTED[1:]:
        top = state.max()
        state = np.log(np.exp(state - top) @ np.exp(moves)) + top + each
    return np.log(np.exp(state).sum())


def propagated(u: Any) -> Any:
    """Return the intensity of a wave after steps through a medium."""
    z = u + 0j
    for _ in range(3):
        z = np.fft.ifft(np.fft.fft(z) * KERNEL) * np.exp(-0.01j * np.abs(z) ** 2)
    return (np.abs(z[:4]) ** 2).sum()


def loss_of_layers(w: Any) -> Any:
    first, bias, second = w[:12].reshape(4, 3), w[12:15], w[15:18]
    return ((np.maximum(INPUTS @ first + bias, 0) @ second - 1) ** 2).mean()


def loss_of_classes(w: Any) -> Any:
    z = INPUTS @ w.reshape(4, 3)
    z = z - z.max(1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    return -logs[np.arange(10), np.arange(10) % 3].mean()


def of_order(x: Any) -> Any:
    return (np.sort(x)[1:4] ** 3).sum() + np.ptp(x * x) + np.median(x) * x.max()


def smoothed(x: Any) -> Any:
    y = x.reshape(4, 4)
    for _ in range(2):
        z = np.zeros_like(y)
        z[1:-1, 1:-1] = y[1:-1, 1:-1] * 0.6 + 0.1 * (y[2:, 1:-1] * y[:-2, 1:-1])
        y = z + y
    return (y**2).sum()


def settled(x: Any) -> Any:
    y, turns = x * 1.0, 0
    while (y**2).sum() > 0.5 and turns < 30:
        y, turns = y * 0.7 + 0.01 * np.sin(y), turns + 1
    return (y * x).sum()


def long_loop(x: Any) -> Any:
    for k in range(40):
        x = np.tanh(x * 0.9 + 0.1 * k) * x + x * 0.1
    return (x * x).sum()


PROGRAMS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a Gaussian process": (process, 4),
    "by its determinant": (process_by_determinant, 4),
    "a Kalman filter": (filtered, 2),
    "a hidden Markov model": (forward_of_chain, 9),
    "a wave": (propagated, 8),
    "a perceptron": (loss_of_layers, 18),
    "classes": (loss_of_classes, 12),
    "order": (of_order, 6),
    "a stencil": (smoothed, 16),
    "a loop that ends by values": (settled, 5),
    "a long loop": (long_loop, 4),
}
BY_NODES = {("a wave", "hvp"), ("a wave", "hessian")}


def half(x: Any) -> Any:
    return np.full_like(x, 0.5)


def kept(f: Callable[..., Any], x: Any) -> Any:
    value, pullback = mixad.vjp(f, x)
    return value, pullback(1.0), pullback(np.float64(-2.0))


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x: mixad.grad(f)(x),
    "vjp": kept,
    "jvp": lambda f, x: mixad.jvp(f, (x,), (half(x),)),
    "hvp": lambda f, x: mixad.hvp(f, (x,), (half(x),)),
    "hessian": lambda f, x: mixad.hessian(f)(x),
    "gradient of a gradient": lambda f, x: mixad.grad(lambda y: (mixad.grad(f)(y) ** 2).sum())(x),
}
CASES = [(transform, name) for transform in TRANSFORMS for name in PROGRAMS]


def assert_near(found: Any, expected: Any) -> None:
    pairs = zip(mixad.pytree.leaves(found), mixad.pytree.leaves(expected), strict=True)
    for one, other in pairs:
        assert type(one) is type(other)
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("transform", "name"), CASES)
def test_they_are_as_by_nodes_and_go_by_plans(transform: str, name: str, runs: list[type]) -> None:
    (f, size), call = PROGRAMS[name], TRANSFORMS[transform]
    draw = np.random.default_rng(size)
    for _ in range(5):
        x = draw.normal(size=size)
        assert_near(call(f, x), by_nodes(call, f, x))
    runs.clear()
    x = draw.normal(size=size)
    found = call(f, x)
    assert bool(runs) == ((name, transform) not in BY_NODES)
    assert_near(found, by_nodes(call, f, x))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_hessians_are_those_of_differences(name: str) -> None:
    f, size = PROGRAMS[name]
    x, eps = np.random.default_rng(3).normal(size=size), 1e-5
    v = half(x)
    ends = [mixad.grad(f)(x + eps * v), mixad.grad(f)(x - eps * v)]
    for _ in range(3):
        found = mixad.hvp(f, (x,), (v,))
        np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * eps), rtol=1e-5, atol=1e-5)


def test_the_order_of_elements_is_no_part_of_a_plan() -> None:
    """What of a maximum is shared by which element depends on values."""
    hessian = mixad.hessian(lambda x: np.max(x * x) - np.min(x * x * x))
    for x in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 4.0, 3.0], [2.0, 1.5, 1.0]):
        expected = np.zeros((3, 3))
        expected[np.argmax(x), np.argmax(x)] += 2.0
        expected[np.argmin(x), np.argmin(x)] -= 6.0 * min(x)
        np.testing.assert_allclose(hessian(np.array(x)), expected, rtol=1e-14)


def test_numbers_of_arrays_are_told_apart_inside() -> None:
    for scale in (1.0, 2.0, 3.0, 1.0):
        numbers = scale * SERIES[:3]
        f = lambda x: sum(((y - x[0]) ** 2 * y * x[1] for y in numbers), 0.0 * x[0])  # noqa: B023, E731
        x = np.array([0.5, 1.5])
        total, squares = numbers.sum(), (numbers**2).sum()
        expected = [[2 * total * x[1], 2 * (x[0] * total - squares)], [0.0, 0.0]]
        expected[1][0] = expected[0][1]
        for _ in range(2):
            np.testing.assert_allclose(mixad.hessian(f)(x), expected, rtol=1e-12, atol=1e-12)


def test_views_of_arrays_with_gaps_are_kept_as_they_are() -> None:
    table = np.arange(24.0).reshape(4, 6)
    views = [table[::2, ::3], table[:, ::-1], table.T[::5], np.broadcast_to(table[0, :3], (2, 3))]
    for view in views:
        value, pullback = mixad.vjp(lambda x, v=view: (np.sin(x) * v).sum() * x[0, 0], view + 0.5)
        first = pullback(1.0)[0]
        np.testing.assert_allclose(pullback(2.0)[0], 2.0 * first, rtol=1e-14)
        expected = mixad.grad(lambda x, v=view: (np.sin(x) * v).sum() * x[0, 0])(view + 0.5)
        np.testing.assert_allclose(first, expected, rtol=1e-14)
        x = view + 0.5
        np.testing.assert_allclose(value, (np.sin(x) * view).sum() * x[0, 0], rtol=1e-14)


@pytest.mark.parametrize("is_complex", [False, True])
def test_third_derivatives_of_products_are_those_of_a_formula(is_complex: bool) -> None:
    """Cotangents of products turn their factors; of tr(A X B X C X) all orders are known."""
    draw = np.random.default_rng(5)
    a, b, c, x, v = draw.normal(size=(5, 3, 3)) + (1j * draw.normal(size=(5, 3, 3))) * is_complex

    def f(t: Any) -> Any:
        y = x + t * v
        return np.trace(a @ y @ b @ y @ c @ y).real

    third = mixad.grad(mixad.grad(mixad.grad(f)))
    for t in (0.0, 0.7):
        np.testing.assert_allclose(third(t), 6 * np.trace(a @ v @ b @ v @ c @ v).real, rtol=1e-11)
