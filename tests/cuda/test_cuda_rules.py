"""Kernels with rules of users' own as CUDA C++ that the emulator runs, against formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import KernelGradientError

pytestmark = pytest.mark.slow  # every kernel is compiled by g++

ON_CUDA: dict[str, Any] = {"backend": "emulated"}


@mixad.scalar_rule(lambda x, n, value: (n * value / x, None))
def power(x, n):
    result = 1.0
    for _ in range(n):
        result = result * x
    return result


@mixad.broadcast(**ON_CUDA)
def polynomial(x, n, weight):
    if x > 1.0:
        return weight * power(x, n)
    return weight - power(x + 1.0, n + 1)


X = np.linspace(0.25, 2.5, 37).reshape(1, 37)
N = np.array([[0], [1], [4]])
WEIGHT = np.array([[0.5], [2.0], [-1.0]])
ABOVE = X > 1.0


@pytest.mark.parametrize("placement", ["forward", "reverse"])
def test_values_and_gradients_are_those_of_the_rule(placement: str) -> None:
    kernel = polynomial.with_options(placement=placement)
    value = kernel(X, N, WEIGHT)
    want = np.where(ABOVE, WEIGHT * X**N, WEIGHT - (X + 1.0) ** (N + 1))
    np.testing.assert_allclose(value, want, rtol=1e-14)
    of_x, of_weight = mixad.grad(lambda x, w: kernel(x, N, w).sum(), (0, 1))(X, WEIGHT)
    partial = np.where(ABOVE, WEIGHT * N * X ** (N - 1.0), -(N + 1) * (X + 1.0) ** N)
    np.testing.assert_allclose(of_x, partial.sum(axis=0, keepdims=True), rtol=1e-13)
    partial = np.where(ABOVE, X**N, 1.0)
    np.testing.assert_allclose(of_weight, partial.sum(axis=1, keepdims=True), rtol=1e-13)


def test_second_derivatives_are_those_of_the_rule() -> None:
    def slope(x):
        return mixad.grad(lambda x: polynomial(x, N, WEIGHT).sum())(x).sum()

    above, below = WEIGHT * N * (N - 1) * X ** (N - 2.0), -(N + 1) * N * (X + 1.0) ** (N - 1.0)
    want = np.where(ABOVE, above, below).sum(axis=0, keepdims=True)
    np.testing.assert_allclose(mixad.grad(slope)(X), want, rtol=1e-12)


def test_single_precision_and_partials_by_themselves() -> None:
    x = X.astype(np.float32)
    found = polynomial.duals(x, 4, np.float32(2.0), wrt="x")
    want = np.where(ABOVE, 8.0 * X**3, -5.0 * (X + 1.0) ** 4)
    assert found.partials["x"].dtype == np.float32
    np.testing.assert_allclose(found.partials["x"], want, rtol=1e-6)


def test_a_parameter_without_a_partial_is_refused() -> None:
    kernel = mixad.broadcast(lambda x: power(2.0, 3) * x + half(1.0, x), **ON_CUDA)
    np.testing.assert_array_equal(kernel(np.ones(3)), np.full(3, 8.5))
    with pytest.raises(KernelGradientError, match="half with respect to its parameter 'y'"):
        mixad.grad(lambda x: kernel(x).sum())(np.ones(3))


@mixad.scalar_rule(lambda x, y: (0.5 * y, None))
def half(x, y):
    return 0.5 * x * y
