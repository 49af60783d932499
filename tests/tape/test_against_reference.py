"""What kernels compute for whole programs is what the reference backend computes, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad

ELSEWHERE = array_api_strict.Device("device1")  # no compiled backend reads its memory
RNG = np.random.default_rng(11)
X, Y, V = RNG.uniform(0.2, 0.8, (3, 60))


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def chain(x: Any, y: Any) -> Any:
    xp = x.__array_namespace__()
    z = xp.exp(-x) * y + xp.sin(x * y)
    z = xp.sqrt(1.0 + z * z) - xp.tanh(z) / (2.0 + y)
    return (z * z).sum() + z.mean() + (x - z).sum()


@mixad.broadcast
def dear(x, y):
    z = x
    for _ in range(12):
        z = z - (z - y * math.sin(z) - x) / (1.0 - y * math.cos(z))
    if z > 0.7:
        return z * y
    return z


@mixad.broadcast
def term(x):
    return math.sin(x) * x + math.exp(-x)


def placed(placement: Any) -> Callable[..., Any]:
    kernel = dear.with_options(placement=placement)

    def run(x: Any, y: Any, v: Any) -> Any:
        value, pullback = mixad.vjp(kernel, x, y)
        second = mixad.hvp(lambda x: (kernel(x, y) * v).sum(), (x,), (v,))
        return value, *pullback(v), second

    return run


PROGRAMS: dict[str, Callable[..., Any]] = {
    "Hessian product": lambda x, y, v: mixad.hvp(rosenbrock, (x,), (v,)),
    "chain": lambda x, y, v: mixad.value_and_grad(chain, argnums=(0, 1))(x, y),
    "Hessian product of a chain": lambda x, y, v: mixad.hvp(chain, (x, y), (v, v)),
    "tiny": lambda x, y, v: mixad.value_and_grad(lambda x: term(x).sum())(x[:8]),
    "tiny, operators": lambda x, y, v: mixad.grad(lambda x: (x * x + x / 2.0).sum())(x[:8]),
    **{f"{placement} placement": placed(placement) for placement in ("auto", "forward", "reverse")},
}


@pytest.mark.rows("name", PROGRAMS)
def test_programs_give_what_the_reference_gives(name: str) -> None:
    assert term.explain(X).backend == "cpu"
    given = [array_api_strict.asarray(a, device=ELSEWHERE) for a in (X, Y, V)]
    assert term.explain(given[0]).backend == "reference"
    found, expected = (
        mixad.pytree.leaves(PROGRAMS[name](*arrays)) for arrays in ((X, Y, V), given)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other._array, rtol=1e-12, atol=1e-13)
