"""Operations between kernels: values as NumPy's, gradients as finite differences, twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices

import mixad
from mixad.tape.constant import is_constant

EXAMPLES = 60

RNG = np.random.default_rng(0)
W = RNG.uniform(-1, 1, (3, 4))
X = RNG.uniform(0.5, 2, (2, 3))


def check(f: Callable[..., Any], *arguments: Any) -> None:
    """Compare value, gradients and a second derivative with NumPy and finite differences."""
    arguments = tuple(np.asarray(a, dtype=np.float64) for a in arguments)
    positions = tuple(range(len(arguments)))
    value = f(*arguments)
    weights = np.cos(np.arange(np.size(value))).reshape(np.shape(value))

    def loss(*args: Any) -> Any:
        return (f(*args) * weights).sum()

    def slope(*args: Any) -> Any:  # a function of the gradient, for the second derivative
        gradients = mixad.grad(loss, positions)(*args)
        return sum(((g * g) * 0.5 + g).sum() for g in gradients)

    found, gradients = mixad.value_and_vjp(f, arguments, weights)
    np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-14)
    for gradient, expected in zip(gradients, _differences(loss, arguments), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)
    second = mixad.grad(slope, positions)(*arguments)
    for gradient, expected in zip(second, _differences(slope, arguments), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.rows(
    "f",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y * x,
        lambda x, y: x / y,
        lambda x, y: x**y,
        lambda x, y: x % y * x,
        lambda x, y: (x // y) * x * y,
        lambda x, y: -x * abs(y - 1.0) + (+x) ** 3,
        lambda x, y: 2 - x + (3 * y) - 1 / x + 2.0**y + 7 // x * y + 7 % y * x + x**2,
        lambda x, y: x * x + y**-1,
    ],
    slow="<lambda>8",
)
def test_operators(f: Any) -> None:
    check(f, X, RNG.uniform(0.6, 1.9, 3))


def test_powers_of_negative_numbers_stay_real() -> None:
    check(lambda x: x**3 + x**2 + x**0, np.asarray([-2.0, 1.5]))


@pytest.mark.rows("keepdims", [False, True])
@pytest.mark.rows("axis", [None, 0, 1, -1, (0, 2), (1, 2), (0, 1), ()])
def test_sums_and_means(axis: Any, keepdims: bool) -> None:
    x = RNG.uniform(-1, 1, (2, 3, 4))
    check(lambda x: (x * x).sum(axis=axis, keepdims=keepdims), x)
    check(lambda x: (x * x).mean(axis=axis, keepdims=keepdims), x)


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(np.exceptions.AxisError):
        mixad.grad(lambda x: x.sum(axis=2))(X)
    with pytest.raises(ValueError, match="repeated"):
        mixad.grad(lambda x: x.sum(axis=(0, -2)))(X)


@pytest.mark.rows(
    "f",
    [
        lambda x: x.reshape(3, 2) ** 2,
        lambda x: (x * x).reshape((6,)),
        lambda x: x.reshape(-1, 1, 3) * x[None, ...].reshape(2, 1, -1),
        lambda x: x.T**2,
        lambda x: x.T[1] * x[0, 1],
        lambda x: x[None].mT ** 2,
    ],
)
def test_shapes(f: Any) -> None:
    check(f, X)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_basic_indexing(data: Any) -> None:
    shape = data.draw(array_shapes(max_dims=3, max_side=4))
    key = data.draw(basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    x = np.random.default_rng(0).uniform(-1, 1, shape)
    value = x[key]
    weights = np.arange(1.0, 1.0 + value.size).reshape(value.shape)
    expected = np.zeros(shape)
    expected[key] = weights * 3 * value**2
    found, (gradient,) = mixad.value_and_vjp(lambda x: x[key] ** 3, (x,), weights)
    np.testing.assert_allclose(found, value**3, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def test_indexing_is_differentiated_twice() -> None:
    check(lambda x: x[0, ::-1] * x[1, 1:2] + x[..., 2][:, None], X)


@pytest.mark.parametrize(
    "key", [(slice(None, None, 2), None, 1), (None, slice(1, None), ...), (None, ..., None), ...]
)
def test_indexing_with_new_axes_by_the_standard(key: Any) -> None:
    x = array_api_strict.asarray(X)
    gradient = mixad.grad(lambda x: (x[key] ** 3).sum())(x)
    expected = np.zeros_like(X)
    expected[tuple(k for k in np.index_exp[key] if k is not None)] = 1.0
    np.testing.assert_allclose(np.from_dlpack(gradient), expected * 3 * X**2, rtol=1e-14)


def test_iteration_and_unpacking() -> None:
    def f(x: Any) -> Any:
        a, b = x
        return a * b

    check(f, X)


@pytest.mark.rows(
    ("a", "b"),
    [
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (2, 3, 1)),
        ((3,), (5, 3, 2)),
        ((0, 3), (3, 2)),
    ],
)
def test_matrix_products(a: Any, b: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, a), rng.uniform(-1, 1, b)
    check(lambda x, y: x @ y, x, y)
    check(lambda x: x @ y, x)
    check(lambda y: x @ y, y)


def test_a_product_of_mixed_types() -> None:
    x, w = X.astype("f4"), np.arange(12).reshape(3, 4)
    value, (gradient,) = mixad.value_and_vjp(lambda x: x @ w, (x,), np.ones((2, 4)))
    assert value.dtype == np.float64
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, np.ones((2, 4)) @ w.T)


def test_conversions_between_floats_carry_the_gradient() -> None:
    x = X.astype("f4")
    gradient = mixad.grad(lambda x: (x.astype(np.float64) * W[:, 0]).sum())(x)
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, np.broadcast_to(W[:, 0], (2, 3)).astype("f4"))
    assert mixad.grad(lambda x: (x * x.astype(np.int64)).sum())(X).dtype == np.float64


@pytest.mark.rows(
    "other",
    [np.float32(2), np.float64(2), np.asarray(2.0), np.ones(3, "f8"), np.arange(3), 2, 2.0, True],
)
def test_dtypes_are_those_of_numpy(other: Any) -> None:
    x = np.ones(3, "f4")
    dtypes = []

    def f(t: Any) -> Any:
        for result in (t * other, other * t, t + other):
            dtypes.append(result.dtype)
        return t.sum()

    mixad.grad(f)(x)
    assert dtypes == [(x * other).dtype] * 3


def test_comparisons_give_constants() -> None:
    def f(x: Any) -> Any:
        for compared in (x > 1, x <= X, x > X, x == x, x != 2):
            assert is_constant(compared)
            assert compared.dtype == bool
        return x.sum()

    mixad.grad(f)(X)


def _differences(f: Any, arguments: tuple[Any, ...], step: float = 1e-6) -> list[Any]:
    found = []
    for at, x in enumerate(arguments):
        gradient = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[index] += sign * step
                ends.append(f(*arguments[:at], moved, *arguments[at + 1 :]))
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
        found.append(gradient)
    return found


def test_shapes_that_do_not_broadcast_are_refused_as_numpy_does() -> None:
    with pytest.raises(ValueError, match="do not broadcast"):
        mixad.grad(lambda x: (x + np.ones(4)).sum())(np.ones(3))
