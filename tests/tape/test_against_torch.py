"""Random programs of kernels and array operations, differentiated once and twice, beside torch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PROGRAMS = 20


@mixad.broadcast
def kepler(m: float, e: float) -> float:
    x = m
    k = 0
    while k < 6:
        x = x - (x - 0.3 * e * math.sin(x) - m) / (1 - 0.3 * e * math.cos(x))
        k += 1
    return x


def torch_kepler(m: Any, e: Any) -> Any:
    x = m
    for _ in range(6):
        x = x - (x - 0.3 * e * torch.sin(x) - m) / (1 - 0.3 * e * torch.cos(x))
    return x


@mixad.broadcast
def branching(a: float, b: float) -> tuple[float, float]:
    if a > b:
        return a * b, a
    return math.sin(a), b * b


def torch_branching(a: Any, b: Any) -> Any:
    return torch.where(a > b, a * b, torch.sin(a)), torch.where(a > b, a + 0 * b, b * b)


STEPS: list[Callable[..., Any]] = [
    lambda u, v, k: u + v,
    lambda u, v, k: u * v * 0.5,
    lambda u, v, k: u / (v * v + 1.0),
    lambda u, v, k: 1 - u,
    lambda u, v, k: u**2 * 0.5,
    lambda u, v, k: k[0](u, v),
    lambda u, v, k: k[1](u, v)[0],
    lambda u, v, k: k[1](u, v)[1] * v,
    lambda u, v, k: u.sum(axis=0, keepdims=True) * 0.3 + v,
    lambda u, v, k: u.sum() * 0.1 * v,
    lambda u, v, k: u.mean(axis=-1)[:, None] * v,
    lambda u, v, k: (u @ v.mT) * 0.3,
    lambda u, v, k: u[1:2, :] * v,
    lambda u, v, k: u.mT * v,
]


def random_program(seed: int) -> Callable[..., Any]:
    """Return a function of two matrices and a pair of kernels; intermediates are used again."""
    choose = random.Random(seed)
    steps = [(choose.choice(STEPS), choose.random(), choose.random()) for _ in range(7)]

    def f(x: Any, y: Any, kernels: Any) -> Any:
        values = [x, y]
        for step, a, b in steps:
            u, v = (values[int(p * len(values))] for p in (a, b))
            values.append(step(u, v, kernels))
        total = values[-1].sum()
        for value in values:
            total = total + value.mean()
        return total

    return f


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_first_and_second_derivatives(seed: int) -> None:
    x, y = np.random.default_rng(seed).uniform(-1, 1, (2, 3, 3))
    f = random_program(seed)
    ours: Any = lambda x, y: f(x, y, (kepler, branching))  # noqa: E731
    theirs: Any = lambda x, y: f(x, y, (torch_kepler, torch_branching))  # noqa: E731

    def of_gradient(grad: Any, f: Any) -> Any:
        def second(x: Any, y: Any) -> Any:
            a, b = grad(f, (0, 1))(x, y)
            return (a * a).sum() + (a * b).sum() * 0.5 + (x * b).sum()

        return second

    tensors = torch.tensor(x), torch.tensor(y)
    value, gradients = mixad.value_and_grad(ours, (0, 1))(x, y)
    np.testing.assert_allclose(value, theirs(*tensors), rtol=1e-10)
    expected = torch.func.grad(theirs, (0, 1))(*tensors)
    np.testing.assert_allclose(gradients, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(mixad.grad(ours, (0, 1))(x, y), expected, rtol=1e-9, atol=1e-11)
    second = mixad.grad(of_gradient(mixad.grad, ours), (0, 1))(x, y)
    expected = torch.func.grad(of_gradient(torch.func.grad, theirs), (0, 1))(*tensors)
    np.testing.assert_allclose(second, expected, rtol=1e-8, atol=1e-10)


@mixad.broadcast(strategy="reverse")
def projected(r0, r1, r2, t0, t1, t2, f, k1, k2, u0, u1, x0, x1, x2, weight):
    """A bundle adjustment's residual: rotation, projection, radial distortion."""
    square = r0 * r0 + r1 * r1 + r2 * r2
    if square > 0.01:
        angle = math.sqrt(square)
        c, s = math.cos(angle), math.sin(angle) / angle
    else:
        c, s = 1.0 - 0.5 * square, 1.0
    dot = (r0 * x0 + r1 * x1 + r2 * x2) * (1.0 - c) / max(square, 1e-8)
    p0 = x0 * c + (r1 * x2 - r2 * x1) * s + r0 * dot + t0
    p1 = x1 * c + (r2 * x0 - r0 * x2) * s + r1 * dot + t1
    p2 = x2 * c + (r0 * x1 - r1 * x0) * s + r2 * dot + t2
    a, b = p0 / p2, p1 / p2
    n = a * a + b * b
    scale = f * (1.0 + n * (k1 + n * k2))
    return weight * (scale * a - u0), weight * (scale * b - u1)


def torch_projected(
    r0: Any, r1: Any, r2: Any, t0: Any, t1: Any, t2: Any, f: Any, k1: Any, k2: Any, u0: Any,
    u1: Any, x0: Any, x1: Any, x2: Any, weight: Any,
) -> Any:  # fmt: skip
    square = r0 * r0 + r1 * r1 + r2 * r2
    angle = torch.sqrt(square)
    large = square > 0.01
    c = torch.where(large, torch.cos(angle), 1.0 - 0.5 * square)
    s = torch.where(large, torch.sin(angle) / angle, torch.ones_like(square))
    dot = (r0 * x0 + r1 * x1 + r2 * x2) * (1.0 - c) / torch.clamp(square, min=1e-8)
    p0 = x0 * c + (r1 * x2 - r2 * x1) * s + r0 * dot + t0
    p1 = x1 * c + (r2 * x0 - r0 * x2) * s + r1 * dot + t1
    p2 = x2 * c + (r0 * x1 - r1 * x0) * s + r2 * dot + t2
    a, b = p0 / p2, p1 / p2
    n = a * a + b * b
    scale = f * (1.0 + n * (k1 + n * k2))
    return weight * (scale * a - u0), weight * (scale * b - u1)


@pytest.mark.slow
def test_fifteen_inputs_in_reverse() -> None:
    """First derivatives, and second ones by reverse and by forward mode over reverse."""
    rng = np.random.default_rng(5)
    xs = tuple(rng.uniform(0.05, 0.6, (15, 7)))
    xs[0][:3] = xs[1][:3] = xs[2][:3] = 0.02  # the other side of the condition
    vs = tuple(rng.standard_normal((15, 7)))
    every = tuple(range(15))
    tensors, directions = (tuple(map(torch.tensor, t)) for t in (xs, vs))

    def loss(f: Any) -> Any:
        def squares(*xs: Any) -> Any:
            a, b = f(*xs)
            return (a * a + 0.5 * b * b).sum()

        return squares

    def along(gradient: Any, vs: Any) -> Any:
        return lambda *xs: sum((g * v).sum() for g, v in zip(gradient(*xs), vs, strict=True))

    ours, theirs = mixad.grad(loss(projected), every), torch.func.grad(loss(torch_projected), every)
    np.testing.assert_allclose(ours(*xs), theirs(*tensors), rtol=1e-9, atol=1e-11)
    expected = torch.func.grad(along(theirs, directions), every)(*tensors)
    second = mixad.grad(along(ours, vs), every)(*xs)
    np.testing.assert_allclose(second, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(mixad.jvp(ours, xs, vs)[1], expected, rtol=1e-8, atol=1e-9)
