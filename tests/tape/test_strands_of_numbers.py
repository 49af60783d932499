"""Numbers as inputs of transforms: as by nodes, in type and in bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import mixad

from .test_inner_strands import by_nodes

pytestmark = pytest.mark.usefixtures("fresh")

NUMBERS = [1.25, np.float64(1.25), np.float32(1.25), np.array(1.25), np.array(1.25, np.float32)]
TABLE = np.linspace(0.5, 2.0, 5, dtype=np.float32)

kernel = mixad.broadcast(lambda x: math.sin(x) * x if x > 1.0 else x)
error_function = mixad.broadcast(lambda x: math.erf(x) * x)


def root(x: Any) -> Any:
    """Newton's method, which decides by values when it ends."""
    y = x
    while abs(y * y - x) > 1e-12 * x:
        y = (y + x / y) / 2
    return y


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "operators": lambda x: 2.0 * x * x - x / 3 + 1,
    "a constant factor": lambda x: 2.5 * x,
    "itself": lambda x: x,
    "functions": lambda x: np.sin(x) * np.exp(-x) + abs(x),
    "powers": lambda x: x**2 + x**-1.5 + 2.0**x,
    "whole powers": lambda x: x**3,
    "an array beside it": lambda x: (x * TABLE).sum(),
    "an array made of it": lambda x: np.stack([x, x * x]).sum(),
    "a kernel": lambda x: kernel(x),
    "a branch": lambda x: x * x if x > 1.0 else -x,
    "a loop that ends by values": root,
    "a long loop": lambda x: sum((x * k for k in range(80)), 0.0 * x),
    "a sum of it": lambda x: np.sum(x * x),
    "a number beside it": lambda x: x * np.float32(0.5) + np.float64(2.0) * x,
    "a view": lambda x: np.reshape(x, (1,))[0] * x,
    "a derivative": lambda x: mixad.grad(lambda y: y * y * y)(x) * x,
    "a second derivative": lambda x: mixad.grad(mixad.grad(lambda y: np.sin(y) * y))(x),
    "a function of the scalar language": lambda x: np.float64(1.0) * error_function(x),
}


def described(tree: Any) -> Any:
    """Return types and bits of what a transform gives."""
    leaves = mixad.pytree.leaves(tree)
    return [(type(a), np.asarray(a).dtype, np.shape(a), np.asarray(a).tobytes()) for a in leaves]


def direction(x: Any) -> Any:
    return x * 0.0 + type(x)(0.5) if not isinstance(x, np.ndarray) else np.full_like(x, 0.5)


def kept(f: Callable[..., Any], x: Any) -> Any:
    value, pullback = mixad.vjp(f, x)
    return value, pullback(mixad.pytree.tree_map(direction, value)), pullback(direction(value))


def linear(f: Callable[..., Any], x: Any) -> Any:
    value, push = mixad.linearize(f, x)
    return value, push(direction(x)), push(x)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x: mixad.grad(f)(x),
    "value_and_grad": lambda f, x: mixad.value_and_grad(f)(x),
    "aux": lambda f, x: mixad.value_and_grad(lambda x: (f(x), (x, 2.0 * x)), has_aux=True)(x),
    "jvp": lambda f, x: mixad.jvp(f, (x,), (direction(x),)),
    "hvp": lambda f, x: mixad.hvp(f, (x,), (direction(x),)),
    "vjp": kept,
    "linearize": linear,
    "jacobian": lambda f, x: mixad.jacobian(f)(x),
    "hessian": lambda f, x: mixad.hessian(f)(x),
    "second": lambda f, x: mixad.grad(mixad.grad(f))(x),
}


def outcome(transform: Callable[..., Any], f: Callable[..., Any], x: Any) -> Any:
    try:
        return described(transform(f, x))
    except (TypeError, ValueError, mixad.errors.MixadError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_have_the_derivatives_of_nodes(name: str, transform: str) -> None:
    f, of = FUNCTIONS[name], TRANSFORMS[transform]
    wrong = []
    for x in NUMBERS:
        expected = by_nodes(partial(outcome, of, f), x)
        found = [outcome(of, f, x) for _ in range(3)]
        wrong += [(repr(x), x.__class__, each, expected) for each in found if each != expected]
    if name in LOOKS and transform in SECOND:  # what is cut where values are looked at rounds so
        wrong = [each for each in wrong if not are_near(each[2], each[3])]
    assert not wrong


LOOKS = "a branch", "a loop that ends by values"
SECOND = "hvp", "hessian", "second"


def are_near(found: Any, expected: Any) -> bool:
    """Whether two outcomes differ in last bits alone."""
    pairs = zip(found, expected, strict=True)
    return all(
        one[:3] == other[:3]
        and np.allclose(
            *[np.frombuffer(bits, one[1]) for bits in (one[3], other[3])],
            rtol=8 * np.finfo(one[1]).eps,
            atol=0,
        )
        for one, other in pairs
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_with_respect_to_numbers_are_those_of_differences(name: str) -> None:
    f, h = FUNCTIONS[name], 1e-6
    for x in (1.25, 1.5, 0.75):
        low, high = f(np.float64(x - h)), f(np.float64(x + h))
        for kind in (float, np.float64, np.array):
            slope = mixad.grad(f)(kind(x))
            tolerance = 1e-6 if kind is float and name == "an array beside it" else 1e-8  # float32
            np.testing.assert_allclose(slope, (high - low) / (2 * h), rtol=tolerance, atol=1e-8)


@pytest.mark.parametrize("function", [np.maximum, np.minimum, np.hypot, np.multiply])
def test_numbers_beside_them_are_those_of_each_call(function: Any) -> None:
    for c in (1.0, 0.5, 2.0, 1.0):
        f = lambda s: function(s, c) * s  # noqa: B023, E731
        value, slope = mixad.value_and_grad(f)(1.25)
        assert value == f(1.25)
        np.testing.assert_allclose(slope, (f(1.25 + 1e-6) - f(1.25 - 1e-6)) / 2e-6, rtol=1e-8)


def test_blocks_of_a_jacobian_have_the_types_of_its_inputs() -> None:
    f = lambda x, y, z: (x * 2.0, 3.0 * y, z * y)  # noqa: E731
    args = 1.25, np.float32(2.0), np.array(0.5)
    expected = by_nodes(lambda: described(mixad.jacobian(f, (0, 1, 2))(*args)))
    for _ in range(3):
        assert described(mixad.jacobian(f, (0, 1, 2))(*args)) == expected


def test_gradients_of_arrays_without_axes_are_arrays() -> None:
    table = np.linspace(0.5, 2.0, 3, dtype=np.float32)

    def f(x: Any) -> Any:
        a = table * np.max(x)
        power = 2.0**a if a.sum() > 1 else a
        return (power * power).sum()

    for _ in range(3):
        assert type(mixad.grad(f)(np.array(1.25))) is np.ndarray
        assert type(mixad.vjp(f, np.array(1.25))[1](np.float64(1.0))[0]) is np.ndarray
