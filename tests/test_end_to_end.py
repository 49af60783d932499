"""Programs of several kernels: gradients against central differences and formulas, four deep."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad import special

STEP = 1e-6
LINKS = 300  # of a chain of pending kernels
SHAPES = [(), (1,), (3,), (2, 1), (2, 3), (4, 1, 1), (4, 2, 3), (1, 1, 3)]
LARGE = (1500, 1200)


@mixad.broadcast
def two(x, y):
    if x > y:
        return x * y, special.sin(x)
    return x - y, y * y * x


def two_in_numpy(x: Any, y: Any) -> Any:
    return np.where(x > y, x * y, x - y), np.where(x > y, np.sin(x), y * y * x)


def points() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, (5, 7)), rng.uniform(-1, 1, 7)]


def differences(f: Callable[..., Any], at: list[Any], which: int, step: float = STEP) -> Any:
    """Return the gradient of a NumPy function by central differences."""
    slopes = np.zeros_like(at[which])
    for index in np.ndindex(slopes.shape):
        moved = [[a.copy() for a in at] for _ in range(2)]
        moved[0][which][index] += step
        moved[1][which][index] -= step
        slopes[index] = (f(*moved[0]) - f(*moved[1])) / (2 * step)
    return slopes


LOSSES: dict[str, Callable[[Any], Any]] = {
    "both outputs": lambda outputs: (outputs[0] * outputs[1]).sum() + outputs[1].mean(),
    "the first output": lambda outputs: outputs[0].sum(),
    "the second output": lambda outputs: (outputs[1] ** 2).sum(),
    "sums over one axis": lambda outputs: (outputs[0].sum(axis=0) * outputs[1].sum(axis=0)).sum(),
    "a sum with kept axes": lambda o: (o[0] * o[1].sum(axis=1, keepdims=True)).sum(),
}


@pytest.mark.parametrize("reduce", LOSSES.values(), ids=LOSSES)
def test_gradient_through_several_outputs(reduce: Any) -> None:
    at = points()
    value, gradients = mixad.value_and_grad(lambda x, y: reduce(two(x, y)), argnums=(0, 1))(*at)
    assert value == pytest.approx(reduce(two_in_numpy(*at)), rel=1e-13)
    for which, got in enumerate(gradients):
        want = differences(lambda x, y: reduce(two_in_numpy(x, y)), at, which)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_values_that_are_returned_beside_the_gradient() -> None:
    at = points()

    def loss(x: Any, y: Any) -> Any:
        a, b = two(x, y)
        return (a * b).sum(), (a, b)

    (value, outputs), _ = mixad.value_and_grad(loss, has_aux=True)(*at)
    a, b = two_in_numpy(*at)
    assert value == pytest.approx((a * b).sum(), rel=1e-13)
    np.testing.assert_allclose(outputs[0], a, rtol=1e-15)
    np.testing.assert_allclose(outputs[1], b, rtol=1e-15)


def test_product_of_the_hessian_and_a_vector() -> None:
    x, y = points()
    reduce = LOSSES["both outputs"]

    def slope(x: Any) -> Any:
        return (mixad.grad(lambda x: reduce(two(x, y)))(x) * v).sum()

    v = np.random.default_rng(1).uniform(-1, 1, x.shape)
    np.testing.assert_allclose(
        mixad.grad(slope)(x), differences(slope, [x], 0, 1e-5), rtol=1e-7, atol=1e-8
    )


DERIVATIVES_OF_EXP_OF_SQUARE = [
    lambda x: 1 + 0 * x,
    lambda x: 2 * x,
    lambda x: 4 * x**2 + 2,
    lambda x: 8 * x**3 + 12 * x,
    lambda x: 16 * x**4 + 48 * x**2 + 12,
]


@pytest.mark.parametrize("depth", range(1, len(DERIVATIVES_OF_EXP_OF_SQUARE)))
def test_derivatives_of_any_depth(depth: int) -> None:
    kernel = mixad.broadcast(lambda x: special.exp(x * x))
    f = kernel
    for _ in range(depth):
        f = (lambda inner: mixad.grad(lambda x: inner(x).sum()))(f)
    x = np.linspace(-1, 1, 21)
    want = DERIVATIVES_OF_EXP_OF_SQUARE[depth](x) * np.exp(x * x)
    np.testing.assert_allclose(f(x), want, rtol=1e-13, atol=1e-14)


def test_one_array_given_twice() -> None:
    x = np.linspace(-1, 1, 20)
    got = mixad.grad(lambda x: two(x, x)[1].sum())(x)
    np.testing.assert_allclose(got, 3 * x * x, rtol=1e-15)


@pytest.mark.slow
def test_long_chain_of_kernels() -> None:
    def chained(x: Any, sin: Any) -> Any:
        s = x
        for _ in range(LINKS):
            s = sin(s, x)
        return s.sum()

    x = np.linspace(-1, 1, 9)
    link = mixad.broadcast(lambda s, x: s + 0.01 * special.sin(s * x))
    got = mixad.grad(lambda x: chained(x, link))(x)
    want = differences(lambda x: chained(x, lambda s, x: s + 0.01 * np.sin(s * x)), [x], 0)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.rows(("first", "second"), list(itertools.product(SHAPES, repeat=2)))
def test_gradients_of_all_broadcasts(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(first) + 7 * len(second))
    x, y = rng.uniform(-1, 1, first), rng.uniform(-1, 1, second)
    shape = np.broadcast_shapes(first, second)
    weights = rng.uniform(-1, 1, shape)
    _, (dx, dy) = mixad.value_and_vjp(lambda x, y: two(x, y)[0], (x, y), weights)
    wide_x, wide_y = np.broadcast_arrays(x, y)
    for got, partial in (
        (dx, np.where(wide_x > wide_y, wide_y, 1.0)),
        (dy, np.where(wide_x > wide_y, wide_x, -1.0)),
    ):
        want = weights * partial
        want = want.sum(axis=tuple(range(want.ndim - np.ndim(got))))
        axes = tuple(i for i, n in enumerate(np.shape(got)) if n == 1)
        want = want.sum(axis=axes, keepdims=True)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_large_arrays_give_the_same_bits_at_every_call() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, LARGE), rng.uniform(-1, 1, LARGE[1])
    run = mixad.value_and_grad(lambda x, y: two(x, y)[1].sum(), argnums=(0, 1))
    value, (dx, dy) = run(x, y)
    assert value == pytest.approx(two_in_numpy(x, y)[1].sum(), rel=1e-12)
    np.testing.assert_allclose(dx, np.where(x > y, np.cos(x), y * y), rtol=1e-14)
    np.testing.assert_allclose(dy, np.where(x > y, 0, 2 * y * x).sum(0), rtol=1e-12, atol=1e-10)
    again, (dx_again, dy_again) = run(x, y)
    assert again == value
    np.testing.assert_array_equal(dx_again, dx)
    np.testing.assert_array_equal(dy_again, dy)
