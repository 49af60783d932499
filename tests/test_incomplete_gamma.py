"""The regularized incomplete gamma functions: values and derivatives in both arguments.

References are mpmath's functions and its derivatives of them.  Errors count beside the exact
result times 1 + |log P| or Q, what an error of x makes of the exponent; those of second
derivatives, which change sign near x = a, beside the first ones over 1 + √a if these are larger.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import mixad
from mixad import special
from tools.measure_derivatives import derivatives

scipy_special = pytest.importorskip("scipy.special")

SMALL = [(a, x) for a in (1e-12, 0.1, 0.45) for x in (1e-6, 0.2, 0.97)]
ORDINARY = [
    (a, x)
    for a in (0.5, 1.0, 2.0, 3.7, 9.99, 10.0, 20.5)
    for x in (0.05, 0.9, 1.0, 2.5, 7.0, 21.0, 60.0)
]
BORDERS = [(a, a + 1 + s) for a in (0.3, 1.0, 4.5, 30.0, 400.0) for s in (-1e-3, 1e-3)]
LARGE = [
    (a, a * r)
    for a in (59.0, 61.0, 200.0, 990.0, 1010.0, 5e4)
    for r in (0.75, 0.9, 0.99, 1.0, 1.02, 1.2)
]
FAR = [(1e3, 600.0), (1e3, 690.0), (1e3, 1400.0), (5.0, 300.0), (50.0, 3.0)]
POINTS = [*SMALL, *ORDINARY, *BORDERS, *LARGE, *FAR]
EXACT = {
    "gammainc": lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
    "gammaincc": lambda a, x: mpmath.gammainc(a, x, regularized=True),
}
ORDERS = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
TOLERANCE = (15, 12, 80)
"""Of the value, of first and of second derivatives, times the distance of 1 to the next number."""


@cache
def exact(name: str, a: float, x: float) -> dict[tuple[int, int], mpf]:
    with mp.workdps(60):
        return {
            order: EXACT[name](mpf(a), mpf(x)) if order == (0, 0)
            else _derivative(name, a, x, order)
            for order in ORDERS
        }  # fmt: skip


def _derivative(name: str, a: float, x: float, order: tuple[int, int]) -> mpf:
    """Return the derivative of P or Q, of the smaller one: the other's digits are those of 1."""
    smaller = min(EXACT, key=lambda each: EXACT[each](mpf(a), mpf(x)))
    found = mpmath.diff(EXACT[smaller], (mpf(a), mpf(x)), order)
    return found if smaller == name else -found


def computed(name: str, points: Any, dtype: str) -> dict[tuple[int, int], np.ndarray]:
    columns = [np.array(c, dtype) for c in zip(*points, strict=True)]
    (value,), (da, dx), (daa, dax, dxa, dxx) = derivatives(name, columns)
    np.testing.assert_allclose(dxa, dax, rtol=1e-3 if dtype == "f4" else 1e-9, atol=1e-30)
    return dict(zip(ORDERS, (value, da, dx, daa, dax, dxx), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", EXACT)
def test_two_derivatives_in_both_arguments_agree_with_mpmath(name: str, dtype: str) -> None:
    points = [tuple(map(float, np.array(p, dtype))) for p in POINTS]
    found = computed(name, points, dtype)
    limits = np.finfo(dtype)
    for k, (a, x) in enumerate(points):
        wanted = exact(name, a, x)
        part = min(wanted[0, 0], 1 - wanted[0, 0])
        amplified = 1 + abs(mpmath.log(part)) if part else 1000
        for order, values in found.items():
            before = max(abs(wanted[1, 0]), abs(wanted[0, 1])) / (1 + math.sqrt(a))
            scale = max(abs(wanted[order]), before if sum(order) == 2 else 0)
            error = abs(mpf(float(values[k])) - wanted[order])
            bound = TOLERANCE[sum(order)] * limits.eps * amplified * scale + float(limits.tiny)
            assert error <= bound, (
                order,
                a,
                x,
                values[k],
                float(wanted[order]),
                float(error / scale / limits.eps),
            )


@pytest.mark.slow
@pytest.mark.parametrize("a", [1.0, 2.0, 3.0, 8.0])
def test_whole_parameters_end_the_fraction_but_not_its_derivatives(a: float) -> None:
    x = np.array([a + 2, a + 10.0])
    kernel = mixad.broadcast(special.gammaincc)
    found = mixad.grad(lambda a: kernel(a, x).sum())(np.array([a, a]))
    wanted = [exact("gammaincc", a, float(t))[1, 0] for t in x]
    np.testing.assert_allclose(found, [float(w) for w in wanted], rtol=1e-13)


@pytest.mark.slow
def test_the_gradient_in_the_shape_is_that_of_differences() -> None:
    """SciPy's values, differenced: nothing of mixad or mpmath."""
    a, x, step = np.array([0.7, 2.2, 15.0]), np.array([1.1, 2.0, 14.0]), 1e-5
    kernel = mixad.broadcast(special.gammainc)
    found = mixad.grad(lambda a: kernel(a, x).sum())(a)
    above, below = (scipy_special.gammainc(a + s, x) for s in (step, -step))
    np.testing.assert_allclose(found, (above - below) / (2 * step), rtol=1e-7)


EDGES = (-math.inf, -1.0, -0.0, 0.0, 1e-200, 0.5, 1.0, 12.0, 1e3, 1e300, math.inf, math.nan)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_values_at_edges_are_those_of_scipy(name: str) -> None:
    a, x = map(np.array, zip(*itertools.product(EDGES, EDGES), strict=True))
    function = getattr(special, name)
    found = mixad.broadcast(function)(a, x)
    wanted = getattr(scipy_special, name)(a, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-300)
    alone = [function(float(s), float(t)) for s, t in zip(a, x, strict=True)]
    np.testing.assert_allclose(alone, wanted, rtol=1e-13, atol=1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_derivatives_where_the_function_begins(name: str) -> None:
    sign = 1 if name == "gammainc" else -1
    kernel = mixad.broadcast(getattr(special, name))
    gradient = mixad.grad(lambda a, x: kernel(a, x).sum(), argnums=(0, 1))
    da, dx = gradient(np.array([0.5, 1.0, 2.0, 20.0]), np.zeros(4))
    np.testing.assert_array_equal(da, 0)
    np.testing.assert_allclose(sign * dx, [math.inf, 1, 0, 0], rtol=1e-15)
    da, dx = gradient(np.zeros(3), np.array([0.25, 1.0, 5.0]))
    np.testing.assert_allclose(-sign * da, scipy_special.exp1([0.25, 1.0, 5.0]), rtol=1e-14)
    np.testing.assert_array_equal(dx, 0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_huge_arguments_end(dtype: str) -> None:
    a = np.array([1e9, 1e16, 1e30], dtype)
    np.testing.assert_allclose(mixad.broadcast(special.gammainc)(a, a), 0.5, rtol=1e-4)
    np.testing.assert_allclose(mixad.broadcast(special.gammaincc)(a, a * 2), 0)
