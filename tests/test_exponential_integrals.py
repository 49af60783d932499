"""Exponential integrals of whole orders, against mpmath and SciPy."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import mixad
from mixad import special
from mixad.errors import KernelGradientError

scipy_special = pytest.importorskip("scipy.special")

ORDERS = (0, 1, 2, 3, 4, 7, 25, 26, 60, 1000)
POINTS = (1e-30, 1e-5, 0.3, 0.999, 1.0, 1.001, 2.5, 30.0, 80.0)


@pytest.mark.rows("dtype", ["f8", "f4"])
@pytest.mark.rows("n", ORDERS, slow="0")
def test_derivatives_are_those_of_lower_orders(n: int, dtype: str) -> None:
    x = np.array([t for t in POINTS if dtype == "f8" or t > 1e-10], dtype)
    kernel = mixad.broadcast(lambda x: special.expn(n, x))
    first = mixad.grad(lambda x: kernel(x).sum())
    second = mixad.grad(lambda x: first(x).sum())
    with mp.workdps(50):
        for order, found in enumerate((kernel(x), first(x), second(x))):
            for t, got in zip(x.tolist(), found, strict=True):
                exact = (-1) ** order * mpmath.expint(n - order, mpf(t))
                error = float(abs(mpf(float(got)) - exact) / abs(exact)) / np.finfo(dtype).eps
                assert error < 40 or abs(exact) < np.finfo(dtype).tiny, (order, t, got, error)


@pytest.mark.slow
def test_derivatives_at_zero() -> None:
    n, x = np.arange(7.0), np.zeros(7)
    kernel = mixad.broadcast(special.expn)
    first = mixad.grad(lambda x: kernel(n, x).sum())
    second = mixad.grad(lambda x: first(x).sum())
    inf = math.inf
    np.testing.assert_allclose(kernel(n, x), [inf, inf, 1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    np.testing.assert_allclose(first(x), [-inf, -inf, -inf, -1, -1 / 2, -1 / 3, -1 / 4])
    np.testing.assert_allclose(second(x), [inf, inf, inf, inf, 1, 1 / 2, 1 / 3])


@pytest.mark.slow
def test_values_at_edges_are_those_of_scipy() -> None:
    n, x = (g.ravel() for g in np.meshgrid(
        [-1, 0, 1, 2, 3, 30, 1000000],
        [-math.inf, -1.0, -0.0, 0.0, 1e-300, 0.7, 1.0, 20.0, 800.0, math.inf, math.nan],
    ))  # fmt: skip
    wanted = scipy_special.expn(n, x)
    np.testing.assert_allclose(mixad.broadcast(special.expn)(n, x), wanted, rtol=1e-13, atol=1e-320)
    alone = [special.expn(int(k), float(t)) for k, t in zip(n, x, strict=True)]
    np.testing.assert_allclose(alone, wanted, rtol=1e-13, atol=1e-320)


def test_orders_that_are_not_whole_have_no_value() -> None:
    assert np.isnan(mixad.broadcast(special.expn)(np.array([0.5, math.nan]), 1.0)).all()


def test_the_derivative_in_the_order_is_refused() -> None:
    kernel = mixad.broadcast(special.expn)
    with pytest.raises(KernelGradientError):
        mixad.grad(lambda n: kernel(n, 1.0).sum())(np.array([2.0]))


@pytest.mark.parametrize("name", ["exp1", "expi"])
def test_values_of_e1_and_ei_at_edges_are_those_of_scipy(name: str) -> None:
    x = np.array([-math.inf, -800.0, -1.0, -0.0, 0.0, 5e-324, 1.0, 40.0, 705.0, 800.0,
                  math.inf, math.nan])  # fmt: skip
    found = mixad.broadcast(getattr(special, name))(x)
    np.testing.assert_allclose(found, getattr(scipy_special, name)(x), rtol=1e-13, atol=1e-320)
