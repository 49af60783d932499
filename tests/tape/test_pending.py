"""Recording does not run: what runs, when, and how often."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.tape.apply import apply_program

from .conftest import program

X = np.asarray([1.0, 2.0, 3.0])
Y = np.asarray([0.5, -1.0, 2.0])
CUBE = program(lambda b, x: b.op("mul", x, b.op("mul", x, x)), count=1, name="cube")


def cube(x: Any) -> Any:
    return apply_program(CUBE, (x,))[0]


def test_a_gradient_alone_needs_no_forward_kernel(launches: list[Any]) -> None:
    np.testing.assert_array_equal(mixad.grad(lambda x: cube(x).sum())(X), 3 * X**2)
    assert len(launches) == 1


def test_value_and_gradient_of_a_sum_are_one_kernel(launches: list[Any]) -> None:
    value, gradient = mixad.value_and_grad(lambda x: cube(x).sum())(X)
    assert value == 36.0
    np.testing.assert_array_equal(gradient, 3 * X**2)
    [(_, requests)] = launches
    assert [r.shape for r in requests] == [(), None]  # the cubes themselves are not stored


def test_value_and_gradient_of_a_mean_share_the_kernel(launches: list[Any]) -> None:
    value, gradient = mixad.value_and_grad(lambda x: cube(x).mean())(X)
    assert value == 12.0
    np.testing.assert_allclose(gradient, X**2)
    assert sum(passes[0].name == "cube" for passes, _ in launches) == 1


def test_value_and_vjp_are_one_kernel(launches: list[Any]) -> None:
    value, (gradient,) = mixad.value_and_vjp(cube, (X,), np.asarray([1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(value, X**3)
    np.testing.assert_array_equal(gradient, [3.0, 0.0, 54.0])
    assert len(launches) == 1


def test_an_intermediate_that_is_returned_comes_from_the_same_kernel(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        y = cube(x)
        return y.sum(), y

    (value, aux), gradient = mixad.value_and_grad(f, has_aux=True)(X)
    assert value == 36.0
    np.testing.assert_array_equal(aux, X**3)
    np.testing.assert_array_equal(gradient, 3 * X**2)
    assert len(launches) == 1


def test_what_nobody_uses_never_runs(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        cube(x)
        return x.sum()

    mixad.grad(f)(X)
    assert not launches


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("force", [bool, repr, lambda y: y @ np.ones(1), lambda y: y > 0])
def test_a_value_that_is_looked_at_is_computed_once(force: Any, launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        y = cube(x)
        assert not launches
        force(y)
        force(y)
        assert len(launches) == 1
        return y.sum()

    np.testing.assert_array_equal(mixad.grad(f)(X[:1]), 3 * X[:1] ** 2)


def test_a_sum_and_its_terms_are_made_by_one_launch(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        y = cube(x)
        total = y.sum(axis=0, keepdims=True)
        assert bool(total > 0)
        assert len(launches) == 1
        assert bool((y > 0).all())
        assert len(launches) == 1
        return total.sum()

    mixad.grad(f)(X)


def error(x: Any) -> Any:
    """Return what reads a logarithm, whose derivative does not read it."""
    return (Y * (x - np.log(2.0 + np.exp(x).sum()))).sum()


def test_what_a_sum_of_terms_reads_is_made_with_its_gradient(launches: list[Any]) -> None:
    value, gradient = mixad.value_and_grad(error)(X)
    alone = len(launches)
    total, same = mixad.value_and_grad(lambda x: error(x) + 1.0)(X)
    assert len(launches) == 2 * alone + 1  # the sum
    np.testing.assert_allclose(total, value + 1.0)
    np.testing.assert_array_equal(same, gradient)
    weights = np.exp(X) / (2.0 + np.exp(X).sum())
    np.testing.assert_allclose(gradient, Y - Y.sum() * weights)


def test_under_an_outer_transform_the_inner_result_is_recorded() -> None:
    def inner(x: Any) -> Any:
        value, gradient = mixad.value_and_grad(lambda x: cube(x).sum())(x)
        return (value * gradient).sum()  # (Σ x³) · Σ 3 x²

    expected = 3 * X**2 * (3 * X**2).sum() + (X**3).sum() * 6 * X
    np.testing.assert_allclose(mixad.grad(inner)(X), expected)


def test_nothing_is_kept_after_a_gradient() -> None:
    kept = []

    def f(x: Any) -> Any:
        y = cube(x) * x
        kept.append(weakref.ref(y))
        kept.append(weakref.ref(y.cell))
        kept.append(weakref.ref(x))
        return y.sum()

    gc.disable()  # references alone must do it: no cycles
    try:
        mixad.grad(f)(X)
        assert [ref() for ref in kept] == [None, None, None]
    finally:
        gc.enable()
