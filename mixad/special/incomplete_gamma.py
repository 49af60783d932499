"""The regularized incomplete gamma functions P and Q, differentiable in both arguments.

For x < a + 1, P by its power series (DLMF 8.11.4); above, Q by a continued fraction.  Where x is
near a, both need turns in proportion to √a: from a = 60 on, Temme's expansion is taken there, which
is uniform in x (8.12).  Q of small a and x, which is small, has a form of its own (8.7.3).
"""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring
from mixad.special.coefficients import LGAMMA1P, TEMME
from mixad.special.legendre_fraction import legendre_fraction
from mixad.special.polynomials import polynomial
from mixad.special.stirling import correction
from mixad.special.table import erfc, exp, expm1, gamma, isinf, log, log1p, pow, sqrt

__all__ = ["gammainc", "gammaincc"]

_ATANH = tuple(1 / (2 * k + 3) for k in range(14, -1, -1))  # (atanh(s) - s)/s³ over s²
_EXPONENTIAL = tuple((k, (-1) ** k / math.factorial(k)) for k in range(1, 20))


@complete_docstring
def gammainc(a: Number, x: Number) -> Number:
    """Return the regularized lower incomplete gamma function P(a, x); nan for negative numbers."""
    if _is_outside(a, x):
        return math.nan
    if isinf(a) or isinf(x):
        return 0.0 * x if isinf(a) else 1.0 + 0.0 * a  # or nan
    if _is_near(a, x):
        z, rest = _uniform(a, x)
        return 0.5 * erfc(-z) - rest
    if a < 0.5 and 0 < x < 1:
        upper = _upper_of_small(a, x)
        if upper < 0.5:
            return 1 - upper  # whose derivative with respect to x is as small as a
    is_lower, part = _part(a, x)
    return part if is_lower else 1 - part


@complete_docstring
def gammaincc(a: Number, x: Number) -> Number:
    """Return the regularized upper incomplete gamma function Q(a, x), which is 1 - P(a, x)."""
    if _is_outside(a, x):
        return math.nan
    if isinf(a) or isinf(x):
        return 1.0 + 0.0 * x if isinf(a) else 0.0 * a  # or nan
    if _is_near(a, x):
        z, rest = _uniform(a, x)
        return 0.5 * erfc(z) + rest
    if a < 0.5 and 0 < x < 1:
        return _upper_of_small(a, x)
    is_lower, part = _part(a, x)
    return 1 - part if is_lower else part


def _is_outside(a: Number, x: Number) -> Number:
    return a < 0 or x < 0 or (a == 0 and x == 0) or (isinf(a) and isinf(x))


def _is_near(a: Number, x: Number) -> Number:
    """Return whether series and fraction need many turns, and derivatives of the latter cancel."""
    return a >= 60 and abs(x - a) <= 0.3 * a


def _part(a: Number, x: Number) -> tuple[bool, Number]:
    """Return True and P, or False and Q: the one that is not near 1."""
    density = _density(a, x)
    if x < a + 1:
        return True, density * _series(a, x)
    return False, a * density * legendre_fraction(a, x)


def _density(a: Number, x: Number) -> Number:
    """Return xᵃ exp(-x) / Γ(a + 1); of large a without cancellation of its exponents."""
    if a < 10:
        return 0.0 if x > 1000 else pow(1.0 * x, a) * exp(-x) / gamma(a + 1)
    d = (x - a) / a
    s = d / (2 + d)
    near = abs(d) < 0.4
    # log(1 + d) - d
    deficit = s * (2 * s * s * polynomial(s * s, _ATANH) - d) if near else log(x / a) - d
    size = exp(a * deficit)
    if size == 0:
        return 0.0  # so are its derivatives, whose factors may be infinite
    return size * exp(-correction(a)) / (math.sqrt(2 * math.pi) * sqrt(a))


def _series(a: Number, x: Number) -> Number:
    """Return Σ xᵏ / ((a + 1) … (a + k)), k = 0, 1, …

    It ends where a term times (k/g)², g = x/(a + 1), adds nothing: of two derivatives with respect
    to x, and to a, this is a bound beside those of the sum.
    """
    g = x / (a + 1)
    total, term, k = 1.0, 1.0, 1
    while total * g * g + k * k * term > total * g * g:
        term = term * (x / (a + k))
        total = total + term
        k += 1
    return total


def _uniform(a: Number, x: Number) -> tuple[Number, Number]:
    """Return η √(a/2) and what Q has beside half of its erfc (DLMF 8.12.3 and 8.12.7)."""
    d = (x - a) / a
    s = d / (2 + d)
    # -η²/2 is log(1 + d) - d
    eta = d * sqrt((2 - 4 * s * polynomial(s * s, _ATANH) / (2 + d)) / (2 + d))
    z = eta * sqrt(0.5 * a)
    series = 0.0
    for coefficients in TEMME:
        series = series / a + polynomial(eta, coefficients)
    return z, exp(-z * z) * series / (math.sqrt(2 * math.pi) * sqrt(a))


def _upper_of_small(a: Number, x: Number) -> Number:
    """Return Q(a, x) for a < 1/2, x < 1 as 1 - exp(u) (1 + a v), whose parts do not cancel."""
    # log Γ(1 + a) from A&S 6.1.33
    u = a * log(x) + log1p(a) - a * polynomial(a, LGAMMA1P)
    v, power = 0.0, 1.0
    for k, coefficient in _EXPONENTIAL:
        power = power * x
        v = v + coefficient * power / (a + k)
    return -expm1(u) - a * exp(u) * v
