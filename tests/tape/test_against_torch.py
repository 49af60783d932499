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
