"""What nobody asks for costs nothing: outputs without a cotangent, branches that are stopped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.scalar.ir import Equation, walk_statements

X = np.linspace(0.2, 1.7, 6)
Y = np.linspace(1.1, 0.3, 6)
PLACEMENTS = ["forward", "reverse"]


def ops(launches: list[Any]) -> list[str]:
    """Return the names of all ops of all kernels that ran, in order."""
    return [
        s.op
        for passes, _ in launches
        for p in passes
        for s in walk_statements(p.body)
        if isinstance(s, Equation)
    ]


def two(x, y):
    return math.sin(x) * y, math.tanh(x + y) * math.exp(y)


FIRST = (Y * np.cos(X), np.sin(X))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_pullback_has_no_work_of_an_output_that_is_not_used(
    placement: Any, launches: list[Any]
) -> None:
    kernel = mixad.broadcast(two, placement=placement)
    dx, dy = mixad.grad(lambda x, y: kernel(x, y)[0].sum(), (0, 1))(X, Y)
    np.testing.assert_allclose(dx, FIRST[0], rtol=1e-14)
    np.testing.assert_allclose(dy, FIRST[1], rtol=1e-14)
    last = ops(launches[-1:])
    assert not {"tanh", "exp"} & set(last)
    assert len(launches[-1][1]) == 2  # the two gradients


def test_an_output_that_is_not_used_is_not_computed_at_all(launches: list[Any]) -> None:
    kernel = mixad.broadcast(two)
    mixad.value_and_grad(lambda x, y: kernel(x, y)[0].sum(), (0, 1))(X, Y)
    assert "sin" in ops(launches)
    assert not {"tanh", "exp"} & set(ops(launches))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_output_that_is_only_looked_at_is_not_pulled_back(
    placement: Any, launches: list[Any]
) -> None:
    kernel = mixad.broadcast(two, placement=placement)
    seen = []

    def loss(x: Any, y: Any) -> Any:
        first, second = kernel(x, y)
        seen.append(mixad.stop_gradient(second))
        launches.clear()
        return first.sum()

    found = mixad.grad(loss, (0, 1))(X, Y)
    np.testing.assert_allclose(seen[0], np.tanh(X + Y) * np.exp(Y), rtol=1e-14)
    for gradient, want in zip(found, FIRST, strict=True):
        np.testing.assert_allclose(gradient, want, rtol=1e-14)
    assert not {"tanh", "exp"} & set(ops(launches))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_second_derivatives_have_no_work_of_it_either(placement: Any, launches: list[Any]) -> None:
    kernel = mixad.broadcast(two, placement=placement)
    slope = lambda x: (mixad.grad(lambda x: kernel(x, Y)[0].sum())(x) * Y).sum()  # noqa: E731
    np.testing.assert_allclose(mixad.grad(slope)(X), -Y * Y * np.sin(X), rtol=1e-13)
    assert not {"tanh", "exp"} & set(ops(launches[-1:]))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_argument_that_is_not_differentiated_has_no_partial(
    placement: Any, launches: list[Any]
) -> None:
    """∂/∂x of sin x · y needs a cosine; ∂/∂y the sine alone."""
    kernel = mixad.broadcast(lambda x, y: math.sin(x) * y, placement=placement)
    mixad.grad(lambda y: kernel(X, y).sum())(Y)
    assert "cos" not in ops(launches)
    mixad.grad(lambda x: kernel(x, Y).sum())(X)
    assert "cos" in ops(launches)


def test_a_stopped_branch_is_not_visited(launches: list[Any]) -> None:
    dear = mixad.broadcast(lambda x: math.tanh(x) * math.exp(x))

    def loss(x: Any) -> Any:
        weights = mixad.stop_gradient(dear(x))
        launches.clear()
        return (weights * x).sum()

    np.testing.assert_allclose(mixad.grad(loss)(X), np.tanh(X) * np.exp(X), rtol=1e-14)
    assert not {"tanh", "exp"} & set(ops(launches))


def test_what_is_stopped_inside_a_kernel_has_no_partial(launches: list[Any]) -> None:
    @mixad.broadcast
    def weighed(x, y):
        return mixad.stop_gradient(math.tanh(x)) * y * x

    dx = mixad.grad(lambda x: weighed(x, Y).sum())(X)
    np.testing.assert_allclose(dx, np.tanh(X) * Y, rtol=1e-14)
    assert ops(launches).count("tanh") == 1
    assert not {"sub", "fma"} & set(ops(launches))  # 1 − tanh²


def test_a_branch_that_nothing_returned_depends_on_is_not_visited(launches: list[Any]) -> None:
    def loss(x: Any) -> Any:
        unused = np.exp(x) * np.tanh(x)
        del unused
        return (x * x).sum()

    np.testing.assert_array_equal(mixad.grad(loss)(X), 2 * X)
    assert not {"tanh", "exp"} & set(ops(launches))


def test_a_cotangent_of_none_of_several_outputs_costs_no_kernel(launches: list[Any]) -> None:
    """Of a tuple of results, one is constant: nothing is pulled back for it."""
    value, pullback = mixad.vjp(lambda x: (x * 2.0, np.sin(Y)), X)
    launches.clear()
    np.testing.assert_array_equal(pullback((np.ones(6), np.ones(6)))[0], np.full(6, 2.0))
    assert len(launches) <= 1
    np.testing.assert_array_equal(value[1], np.sin(Y))


def test_gradients_that_are_zero_launch_nothing(launches: list[Any]) -> None:
    step = mixad.broadcast(lambda x, y: math.floor(x) + y)
    dx, dy = mixad.grad(lambda x, y: step(x, y).sum(), (0, 1))(X, Y)
    np.testing.assert_array_equal(dx, np.zeros(6))
    np.testing.assert_array_equal(dy, np.ones(6))
    assert not launches
