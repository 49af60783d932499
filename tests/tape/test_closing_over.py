"""Derivatives by plain arrays of functions that close over traced values: they go by plans, too.

So are losses of physics-informed networks and of forces. Gradients are compared with differences,
and with those of the same program where the array is an argument of the outer function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.transforms import strand_history

pytestmark = pytest.mark.usefixtures("fresh")

RNG = np.random.default_rng(0)
X = np.linspace(0.1, 1.3, 7)
V = RNG.normal(size=7)
P = RNG.normal(size=5)
M = RNG.normal(size=(7, 7))

bent = mixad.broadcast(lambda x, a: x * x * a if x > 0.6 else x * a + a)


def central(f: Callable[[Any], Any], at: Any, step: float = 1e-5) -> Any:
    """Return the gradient of a function of an array by central differences."""
    ends = [step * unit for unit in np.eye(len(at))]
    return np.asarray([(f(at + end) - f(at - end)) / (2 * step) for end in ends])


def net(p: Any, x: Any) -> Any:
    """Return a small network of one unit, smooth in all."""
    return p[0] * np.tanh(p[1] * x + p[2]) + p[3] * x * x + p[4]


def looked_at(p: Any, x: Any) -> Any:
    scale = 2.0 if x[0] > 0 else 3.0
    y = x * x * p[0]
    return (np.sin(y) * scale + net(p, x)).sum() if y[1] > -1e3 else y.sum()


def with_loop(p: Any, x: Any) -> Any:
    for _ in range(40):
        x = x + 0.05 * np.sin(x * p[1]) * p[0]
    return x.sum()


def written(p: Any, x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:4] = x[1:4] * p[0]
    y[0] = p[1] * x[-1]
    return (y * y * x).sum()


def of_constants(p: Any, x: Any) -> Any:
    """Compute most from what nobody around differentiates."""
    y = M @ x + np.cumsum(x)
    z = x[::-1].reshape(7, 1) * x
    return ((z @ y) * p[0]).sum() + np.sort(x)[2] * p[1]


def squares(derivative: Any) -> Any:
    return sum((leaf * leaf).sum() for leaf in mixad.pytree.leaves(derivative))


PROGRAMS: dict[str, Callable[..., Any]] = {
    "a gradient": lambda p, x: squares(mixad.grad(lambda x: net(p, x).sum())(x)),
    "a gradient of a gradient": lambda p, x: squares(
        mixad.grad(lambda x: mixad.grad(lambda x: net(p, x).sum())(x).sum())(x)
    ),
    "value and gradient": lambda p, x: squares(
        mixad.value_and_grad(lambda x: (net(p, x) * x).sum())(x)
    ),
    "gradients by two arrays": lambda p, x: squares(
        mixad.grad(lambda x, y: (net(p, x) * y * y).sum(), (0, 1))(x, x[::-1].copy())
    ),
    "a tree": lambda p, x: squares(
        mixad.grad(lambda t: (net(p, t["x"]) * t["y"]).sum())({"x": x, "y": x * 2.0})
    ),
    "a tangent": lambda p, x: squares(mixad.jvp(lambda x: net(p, x) ** 2, (x,), (V,))),
    "a product with the Hessian": lambda p, x: squares(
        mixad.hvp(lambda x: (net(p, x) ** 2).sum(), (x,), (V,))
    ),
    "a Jacobian": lambda p, x: squares(mixad.jacobian(lambda x: net(p, x) * x[0])(x)),
    "a Hessian": lambda p, x: squares(mixad.hessian(lambda x: (net(p, x) ** 2).sum())(x)),
    "aux": lambda p, x: (lambda found: squares(found[0]) * found[1])(
        mixad.grad(lambda x: (net(p, x).sum(), (x * p[0]).sum()), has_aux=True)(x)
    ),
    "a value of the array alone": lambda p, x: squares(
        mixad.value_and_grad(lambda x: (of_constants(p, x) * 0.1, x * x), has_aux=True)(x)[0]
    ),
    "constants inside": lambda p, x: squares(mixad.grad(lambda x: of_constants(p, x))(x)),
    "a look": lambda p, x: squares(mixad.grad(lambda x: looked_at(p, x))(x)),
    "a look before": lambda p, x: squares(mixad.grad(lambda x: looked_at(p, x + x * x))(x)),
    "a loop": lambda p, x: squares(mixad.grad(lambda x: with_loop(p, x))(x)),
    "a norm": lambda p, x: squares(mixad.grad(lambda x: np.linalg.norm(x * p[0]))(x)),
    "writes": lambda p, x: squares(mixad.grad(lambda x: written(p, x))(x)),
    "a kernel": lambda p, x: squares(mixad.grad(lambda x: bent(x, p[0]).sum())(x)),
    "what is linear": lambda p, x: squares(mixad.grad(lambda x: (x * p[1]).sum())(x)),
    "a parameter only beside it": lambda p, x: (
        squares(mixad.grad(lambda x: (x**3).sum() + p[0])(x)) * p[1]
    ),
    "two around": lambda p, x: squares(
        mixad.grad(lambda q: (mixad.grad(lambda x: (net(p, x) * q).sum())(x) * q).sum())(p[:1])
    ),
    "the newer is met last": lambda p, x: squares(
        mixad.grad(lambda q: mixad.grad(lambda x: (np.sin(x * p[0]) * (q * x)).sum())(x).sum())(
            p[1:2]
        )
    ),
    "inside of a tangent": lambda p, x: squares(
        mixad.jvp(lambda q: mixad.grad(lambda x: (net(p, x) * q[0]).sum())(x), (p[:2],), (V[:2],))
    ),
}
BY_NODES = {"a norm": "its corners are looked for"}
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name == "a loop" else name for name in PROGRAMS
]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_differences(name: str, runs: list[type]) -> None:
    program = PROGRAMS[name]
    gradient = mixad.grad(lambda p: program(p, X))
    want = central(lambda p: program(p, X), P)
    for _ in range(3):
        runs.clear()
        np.testing.assert_allclose(gradient(P), want, rtol=2e-6, atol=1e-7)
    assert bool(runs) == (name not in BY_NODES)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_those_where_the_array_is_traced(name: str) -> None:
    program = PROGRAMS[name]
    want = mixad.grad(program, (0, 1))(P, X)[0]
    np.testing.assert_allclose(mixad.grad(lambda p: program(p, X))(P), want, rtol=1e-12)


def test_ever_other_arrays_need_no_other_plan() -> None:
    gradient = mixad.grad(lambda p, x: PROGRAMS["a gradient"](p, x))
    for _ in range(4):
        x = RNG.uniform(0.1, 1.0, 7)
        want = central(lambda p, x=x: PROGRAMS["a gradient"](p, x), P)
        np.testing.assert_allclose(gradient(P, x), want, rtol=2e-6)


def test_an_array_that_changes_meanwhile_is_refused() -> None:
    x = X.copy()

    def loss(p: Any) -> Any:
        found = mixad.grad(lambda x: net(p, x).sum())(x)
        x[0] = 5.0
        return (found * found).sum()

    for _ in range(3):
        with pytest.raises(mixad.errors.TracerError, match="changed in place"):
            mixad.grad(loss)(P)


def test_numbers_inside_are_given_back_as_they_are() -> None:
    """A number's gradient is one of its own kind: those calls go by nodes."""
    for x in (0.7, np.float32(0.7), np.float64(0.7)):

        def loss(p: Any, x: Any = x) -> Any:
            return mixad.grad(lambda x: x * x * p[0] + np.sin(x) * p[1])(x)

        found = mixad.grad(loss)(P)
        np.testing.assert_allclose(found[:2], [1.4, np.cos(0.7)], rtol=1e-6)
        assert found.dtype == P.dtype


def test_no_derivative_is_taken_that_nobody_asks_for(launches: list[Any]) -> None:
    """By the plain array, the outer pass has no cotangent."""
    gradient = mixad.grad(lambda p: PROGRAMS["a gradient"](p, X))
    gradient(P)
    results = [request for _, requests in launches for request in requests]
    launches.clear()
    mixad.grad(PROGRAMS["a gradient"], (0, 1))(P, X)
    of_both = [request for _, requests in launches for request in requests]
    assert len(results) < len(of_both)


def test_functions_keep_their_strands() -> None:
    mixad.grad(lambda p: PROGRAMS["a Hessian"](p, X))(P)
    assert not [
        history
        for by_transform in strand_history._HISTORIES.values()
        for history in by_transform.values()
        if history.left
    ]
