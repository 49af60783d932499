"""Transforms inside of others by strands: as by nodes, and central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.transforms import (
    forward,
    gradients,
    inner_calls,
    jacobians,
    kept_calls,
    recorded_values,
    strand_calls,
)

X = np.linspace(0.3, 1.7, 5)
SQUARE = np.random.default_rng(0).normal(size=(5, 5))

fold = mixad.broadcast(lambda x: x * x * x if x > 0.5 else x * x)


pytestmark = pytest.mark.usefixtures("fresh")


def by_nodes(call: Callable[..., Any], *args: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for module in (gradients, forward, jacobians, kept_calls, recorded_values):
            patch.setattr(module, "open_strand", lambda *given: None)
        return call(*args)


def bits(found: Any) -> list[Any]:
    leaves = [(type(leaf), np.asarray(leaf)) for leaf in mixad.pytree.leaves(found)]
    return [(kind, leaf.dtype, leaf.shape, leaf.tobytes()) for kind, leaf in leaves]


def loss(x: Any) -> Any:
    return (np.sin(x) * x + np.exp(-x)).sum()


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def descended(x: Any) -> Any:
    """Differentiate through steps of gradient descent."""
    y = x * 0.5
    for _ in range(4):
        y = y - 0.1 * mixad.grad(lambda z: ((z - x) ** 2 * z).sum())(y)
    return (y * y).sum()


def summed(x: Any) -> Any:
    return mixad.grad(lambda y: (mixad.grad(loss)(y) * y).sum())(x).sum()


NESTED: dict[str, Callable[..., Any]] = {
    "a gradient of a gradient": lambda x: (mixad.grad(loss)(x) * x).sum(),
    "numbers and arrays inside": lambda x: (
        mixad.grad(lambda y: (2.0 * y * (SQUARE @ y)).sum() + 3 * y[0] ** 3)(x) * x
    ).sum(),
    "parts": lambda x: (mixad.grad(rosenbrock)(x) ** 2).sum(),
    "a value from around": lambda x: (
        mixad.grad(lambda y: (np.sin(y) * x * x.sum()).sum())(x * x) * x
    ).sum(),
    "three": summed,
    "a loop": descended,
    "a kernel": lambda x: (mixad.grad(lambda y: (fold(y) * y).sum())(x) * x).sum(),
    "two arguments": lambda x: sum(
        (g * x).sum() for g in mixad.grad(lambda a, b: (a * b * b).sum(), (0, 1))(x, 2.0 * x)
    ),
    "aux": lambda x: (lambda g, aux: (g * aux).sum())(
        *mixad.grad(lambda y: ((y * y * x).sum(), y * 3.0), has_aux=True)(x)
    ),
    "a tree": lambda x: mixad.grad(lambda p: (p["a"] * p["b"] ** 2).sum())({"a": x, "b": x + 1.0})[
        "b"
    ].sum(),
    "a Hessian product inside": lambda x: (mixad.hvp(loss, (x,), (x,)) * x).sum(),
    "one value as primal and tangent": lambda x: (
        lambda v: mixad.jvp(lambda z: z * np.sin(z), (v,), (v,))[1].sum()
    )(2.0 * x),
    "a tangent inside": lambda x: mixad.jvp(loss, (x,), (x * x,))[1],
}
OTHERS: dict[str, Callable[..., Any]] = {
    "a value and a gradient": lambda x: (lambda v, g: (v * g).sum())(
        *mixad.value_and_grad(loss)(x)
    ),
    "a branch inside": lambda x: mixad.grad(lambda y: (y * y).sum() if y.sum() > 0 else y.sum())(
        x
    ).sum(),
    "an array from outside": lambda x: mixad.grad(lambda y: (y * y * x).sum())(np.ones(5)).sum(),
    "written to inside": lambda x: mixad.grad(lambda y: (y * written(x * 2.0)).sum())(x * x).sum(),
    "nothing inside": lambda x: (mixad.grad(lambda y: (x * x).sum())(x) + x).sum(),
}


def written(x: Any) -> Any:
    x[0] = 1.0
    return x


@pytest.mark.filterwarnings("ignore:.*does not depend")
@pytest.mark.parametrize("name", [*NESTED, *OTHERS])
def test_transforms_inside_of_others_are_those_by_nodes(name: str, runs: list[type]) -> None:
    """Where a value is read inside and around, its cotangents are added in another order."""
    f = (NESTED | OTHERS)[name]
    call = mixad.value_and_grad(f)
    for x in (X, X, 0.5 * X, X.astype(np.float32), X):
        for found, expected in zip(call(x), by_nodes(call, x), strict=True):
            assert type(found) is type(expected)
            rtol = 8 * np.finfo(x.dtype).eps
            np.testing.assert_allclose(found, expected, rtol, rtol, strict=True)
    assert bits(call(X)) == bits(call(X))
    if name in NESTED:
        inner = {inner_calls.InnerCall, inner_calls.InnerForward} & set(runs)
        assert strand_calls.StrandCall in runs
        assert inner
    eps = 1e-6
    differences = [(f(X + eps * unit) - f(X - eps * unit)) / (2 * eps) for unit in np.eye(5)]
    np.testing.assert_allclose(call(X)[1], differences, rtol=1e-7, atol=1e-7)


def test_what_is_written_to_outside_counts_inside_as_it_was() -> None:
    def f(x: Any) -> Any:
        a = x * 1.0

        def inside(y: Any) -> Any:
            first = (y * a).sum()
            a[0] = 7.0
            return first + (y * y * a).sum()

        return (mixad.grad(inside)(x) * x).sum()

    for _ in range(3):
        assert bits(mixad.grad(f)(X)) == bits(by_nodes(mixad.grad(f), X))


def test_numbers_inside_are_told_apart() -> None:
    for factor in (2.0, 3.0, 2, 2.0, -0.5):
        f = lambda x: mixad.grad(lambda y: (factor * y * y * y).sum())(x).sum()  # noqa: B023, E731
        np.testing.assert_allclose(mixad.grad(f)(X), 6.0 * factor * X, rtol=1e-15)


def test_perturbations_are_not_confused() -> None:
    f = lambda x: (x * mixad.grad(lambda y: (x * y).sum())(2.0 * x)).sum()  # noqa: E731
    for _ in range(3):
        np.testing.assert_array_equal(mixad.grad(f)(X), 2.0 * X)


SLOPES = np.asarray([1.0, 2.0])
SUMMED: list[tuple[Callable[[Any], Any], Any, Any]] = [
    (lambda h: mixad.grad(h), 2.0, 6.0),
    (lambda h: mixad.grad(lambda a: h(a).sum()), np.asarray(2.0), 6.0),
    (lambda h: mixad.grad(lambda a: h(a)[0]), np.asarray([2.0]), [6.0]),
    (lambda h: mixad.grad(lambda a: -h(a) * 1.0), 2.0, -6.0),
]


@pytest.mark.parametrize(("outer", "at", "want"), SUMMED)
def test_gradients_of_gradients_that_are_sums(outer: Any, at: Any, want: Any) -> None:
    """What is differentiated again is a sum over what the argument was broadcast to."""
    second = outer(mixad.grad(lambda a: (a**2 * SLOPES).sum()))
    for _ in range(3):
        np.testing.assert_allclose(second(at), want, rtol=1e-15)
