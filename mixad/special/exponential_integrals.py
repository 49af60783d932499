"""Exponential integrals: power series near 0, a continued fraction and an asymptotic series beyond.

Formulas: DLMF 6.6.2 and 6.6.1, 6.12.2, 8.19.8, 8.19.12 and 8.19.17.
"""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring
from mixad.special.legendre_fraction import legendre_fraction
from mixad.special.polynomials import polynomial
from mixad.special.scaling import unscale
from mixad.special.table import exp, log, polygamma, pow, rint, sqrt

__all__ = ["exp1", "expi", "expn"]

_SERIES = (
    *((-1) ** (k + 1) / (k * math.factorial(k)) for k in range(22, 0, -1)),
    -0.5772156649015329,  # Euler's constant
)  # of E₁(x) + log(x) for x <= 1


@complete_docstring
def exp1(x: Number) -> Number:
    """Return the exponential integral E₁(x): inf at 0, nan below."""
    if x == 0:
        return -log(x)  # inf, and so are the signs of derivatives
    if x <= 1:
        return polynomial(x, _SERIES) - log(x)
    return exp(-x) * legendre_fraction(0.0, x)


@complete_docstring
def expi(x: Number) -> Number:
    """Return the exponential integral Ei(x), its principal value for x > 0: -inf at 0."""
    if x == 0:
        return log(x)  # -inf, and so are the signs of derivatives
    if x < 0:
        return -exp1(-x)
    if x < 40:
        return log(x) - _SERIES[-1] + _entire(x)
    scaled = 1.0
    for k in range(39, 0, -1):
        scaled = 1 + k / x * scaled
    return unscale(x, scaled / x)


def _entire(x: Number) -> Number:
    """Return Σ xᵏ/(k k!), k = 1, 2, …, for 0 < x < 40, with what its second derivative needs."""
    total, term, k = x, x, 1
    while k < 2.5 * x + 30:
        k += 1
        term = term * x / k
        total = total + term / k
    return total


@complete_docstring
def expn(n: Number, x: Number) -> Number:
    """Return the exponential integral Eₙ(x), n = 0, 1, …: nan for x < 0; no derivative by n."""
    if n < 0 or rint(n) != n:
        return polygamma(n, 1.0)  # nan, and refused where derivatives with respect to n are asked
    if x < 0:
        return math.nan
    if x == 0:
        return _expn_at_zero(n, x)
    if n == 0:
        return exp(-x) / x
    if x > 1:
        return exp(-x) * legendre_fraction(1 - n, x)
    if n > 25:
        return _expn_by_series(n, x)
    value, k = exp1(x), 1
    while k < n:
        value = (exp(-x) - x * value) / k
        k += 1
    return value


def _expn_at_zero(n: Number, x: Number) -> Number:
    """Return Eₙ(0), by what has the same two derivatives there."""
    if n < 2:
        return -log(x)
    if n == 2:
        return 1 - sqrt(x)
    if n == 3:
        return 0.5 - x + pow(x, 1.5)
    return 1 / (n - 1) - x / (n - 2) + 0.5 * x * x / (n - 3)


def _expn_by_series(n: Number, x: Number) -> Number:
    """Return Eₙ(x) for n > 25 and x <= 1: the term of the logarithm is xⁿ⁻¹/(n - 1)!, nothing."""
    total, term = 1 / (n - 1), 1.0
    for k in range(1, 20):
        term = -term * x / k
        total = total + term / (n - 1 - k)
    return total
