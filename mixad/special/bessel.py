"""Bessel functions of orders 0 and 1: polynomials, whose derivatives are the functions'.

Up to |x| = 8, the power series of I (DLMF 10.25.2), that of J up to 2 (10.2.2), then polynomials
of x², as for what Y is without its logarithm and its pole (10.8.1).  Beyond, what the asymptotic
expansions stand for (10.17 and 10.40) are polynomials of 1/x or 1/x²; angles are reduced by `sin`
and `cos`.  The polynomials have more terms than values need: two derivatives are as good.

At ±inf each is its limit, where SciPy's i0, i1, j0, j1, y0 and y1 are nan.
"""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring
from mixad.special.coefficients import (
    I0E_FAR,
    I1E_FAR,
    J0_NEAR,
    J1_NEAR,
    P0,
    P1,
    Q0,
    Q1,
    Y0_NEAR,
    Y1_NEAR,
)
from mixad.special.polynomials import polynomial
from mixad.special.scaling import unscale
from mixad.special.table import cos, exp, fma, isinf, log, sin, sqrt

__all__ = ["i0", "i0e", "i1", "i1e", "j0", "j1", "y0", "y1"]

# 27 terms: the rest is below 1e-20 of the sum where x is 8.
_I0_SERIES = tuple(1 / math.factorial(k) ** 2 for k in range(26, -1, -1))
_I1_SERIES = tuple(c / (2 * k) for k, c in zip(range(27, 0, -1), _I0_SERIES, strict=True))
_J0_SERIES, _J1_SERIES = _I0_SERIES[13:], _I1_SERIES[13:]  # of -x²/4, for |x| < 2


@complete_docstring
def i0(x: Number) -> Number:
    """Return the modified Bessel function of the first kind, of order 0: inf at ±inf."""
    if abs(x) < 8:
        return polynomial(0.25 * x * x, _I0_SERIES)
    return unscale(abs(x), _far(abs(x), I0E_FAR))


@complete_docstring
def i1(x: Number) -> Number:
    """Return the modified Bessel function of the first kind, of order 1: ±inf at ±inf."""
    if abs(x) < 8:
        return x * polynomial(0.25 * x * x, _I1_SERIES)
    size = unscale(abs(x), _far(abs(x), I1E_FAR))
    return -size if x < 0 else size


@complete_docstring
def i0e(x: Number) -> Number:
    """Return exp(-|x|) · i0(x), without overflow."""
    return exp(-abs(x)) * i0(x) if abs(x) < 8 else _far(abs(x), I0E_FAR)


@complete_docstring
def i1e(x: Number) -> Number:
    """Return exp(-|x|) · i1(x), without overflow."""
    if abs(x) < 8:
        return exp(-abs(x)) * i1(x)
    size = _far(abs(x), I1E_FAR)
    return -size if x < 0 else size


@complete_docstring
def j0(x: Number) -> Number:
    """Return the Bessel function of the first kind, of order 0: 0 at ±inf."""
    if abs(x) < 8:
        return _near(x, _J0_SERIES, J0_NEAR)
    if isinf(x):
        return 0.0
    p, q, root = _modulation(abs(x), P0, Q0)
    return ((p + q) * cos(x) + (p - q) * sin(abs(x))) / root


@complete_docstring
def j1(x: Number) -> Number:
    """Return the Bessel function of the first kind, of order 1: 0 at ±inf."""
    if abs(x) < 8:
        return x * _near(x, _J1_SERIES, J1_NEAR)
    if isinf(x):
        return 0.0
    p, q, root = _modulation(abs(x), P1, Q1)
    size = ((p + q) * sin(abs(x)) - (p - q) * cos(x)) / root
    return -size if x < 0 else size


@complete_docstring
def y0(x: Number) -> Number:
    """Return the Bessel function of the second kind, of order 0: -inf at 0, nan below, 0 at inf."""
    if x == 0:
        return log(x)  # -inf, and so are the signs of derivatives
    if x < 8:
        near = _near(x, _J0_SERIES, J0_NEAR)
        return fma(2 / math.pi * _log_of_half(x), near, polynomial(_centre(x), Y0_NEAR))
    if isinf(x):
        return 0.0
    p, q, root = _modulation(x, P0, Q0)
    return ((p + q) * sin(x) - (p - q) * cos(x)) / root


@complete_docstring
def y1(x: Number) -> Number:
    """Return the Bessel function of the second kind, of order 1: -inf at 0, nan below, 0 at inf."""
    if x == 0:
        return log(x)  # -inf, and so are the signs of derivatives
    if x < 8:
        near = _near(x, _J1_SERIES, J1_NEAR)
        regular = fma(2 / math.pi * _log_of_half(x), near, polynomial(_centre(x), Y1_NEAR))
        return x * regular - 2 / math.pi / x
    if isinf(x):
        return 0.0
    p, q, root = _modulation(x, P1, Q1)
    return -((p - q) * sin(x) + (p + q) * cos(x)) / root


def _near(x: Number, series: tuple[float, ...], centred: tuple[float, ...]) -> Number:
    """Return J(x) by its power series (DLMF 10.2.2), exact at 0, or a polynomial up to 8."""
    if abs(x) < 2:
        return polynomial(-0.25 * x * x, series)
    return polynomial(_centre(x), centred)


def _log_of_half(x: Number) -> Number:
    """Return log(x/2), of the smallest numbers too, whose half is 0."""
    return log(x) - math.log(2)


def _centre(x: Number) -> Number:
    """Return x²/32 - 1, from -1 to 1 on the interval of the series."""
    return x * x / 32 - 1


def _far(x: Number, coefficients: tuple[float, ...]) -> Number:
    """Return exp(-x) I(x) for x >= 8: a polynomial of 1/x, divided by √x."""
    return polynomial(16 / x - 1, coefficients) / sqrt(x)


def _modulation(
    x: Number, p: tuple[float, ...], q: tuple[float, ...]
) -> tuple[Number, Number, Number]:
    """Return P, Q and √(πx) for x >= 8 (DLMF 10.17.3): cosines of x - π/4 are (cos + sin)/√2."""
    inverse = 8 / x
    u = 2 * inverse * inverse - 1
    return (
        polynomial(u, p),
        polynomial(u, q) * (inverse / 8),
        math.sqrt(math.pi) * sqrt(x),
    )
