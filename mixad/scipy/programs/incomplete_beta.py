"""The regularized incomplete beta function, its logarithm and its inverse, as functions of numbers.

I(a, b, x) is a continued fraction (DLMF 8.17.22) for small x, and 1 - I(b, a, y) beyond, y = 1 - x:
both are given, so that neither is rounded.  All are differentiable in all arguments.  What is long
is called once, for kernels hold a copy for every call.
"""

from __future__ import annotations

import math

from mixad.scipy.programs.roots import newton
from mixad.special import exp, fma, log, log1p, nextafter, sigmoid
from mixad.special.beta_function import betaln_of_positive
from mixad.special.calling import Number

__all__ = ["betainc", "fraction", "log_betainc", "log_odds", "log_power"]


def betainc(a: Number, b: Number, x: Number, y: Number) -> Number:
    """Return I(a, b, x), for y = 1 - x."""
    if x <= 0:
        return _near_zero(a, b, x)
    if y <= 0:
        return 1 - _near_zero(b, a, y)
    is_lower, part = _part(a, b, x, y, betaln_of_positive(a, b))
    return exp(part) if is_lower else 1 - exp(part)


def log_betainc(a: Number, b: Number, x: Number, y: Number) -> Number:
    """Return log I(a, b, x), without underflow, for y = 1 - x."""
    if x <= 0:
        return -math.inf
    if y <= 0:
        return log1p(-_near_zero(b, a, y))
    is_lower, part = _part(a, b, x, y, betaln_of_positive(a, b))
    return part if is_lower else log1p(-exp(part))


def _near_zero(a: Number, b: Number, x: Number) -> Number:
    """Return I(a, b, x) at x = 0 with two derivatives by x of whole a, else 0."""
    if a == 1:
        return b * x * (1 + 0.5 * (1 - b) * x)
    return 0.5 * (b * x) * ((b + 1) * x) if a == 2 else 0.0 * x


def _part(a: Number, b: Number, x: Number, y: Number, beta: Number) -> tuple[bool, Number]:
    """Return True and log I(a, b, x), or False and log I(b, a, y), for beta = log B(a, b).

    It is the one that is not near 0.
    """
    is_lower = x * (a + b + 2) < a + 1
    c, d, u, w = (a, b, x, y) if is_lower else (b, a, y, x)
    return is_lower, log_power(c, d, u, w) - beta + log(fraction(c, d, u) / c)


def log_power(a: Number, b: Number, x: Number, y: Number) -> Number:
    """Return log(xᵃ yᵇ)."""
    of_x = log(x) if x < 0.5 else log1p(-y)
    of_y = log(y) if y < 0.5 else log1p(-x)
    return fma(a, of_x, b * of_y)


def fraction(a: Number, b: Number, x: Number) -> Number:
    """Return a I(a, b, x) B(a, b) / (xᵃ yᵇ), by Lentz's method.

    It ends where several factors have been 1: those of derivatives are by then, too.
    """
    epsilon = nextafter(1 + 0 * x, 2.0) - 1
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value, m, quiet = d, 1, 0
    while quiet < 4 and m < 20000:
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + even * d)
        c = 1 + even / c
        value = value * (c * d)
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + odd * d)
        c = 1 + odd / c
        value = value * (c * d)
        quiet = quiet + 1 if abs(c * d - 1) <= 2 * epsilon else 0
        m += 1
    return value


def log_odds(a: Number, b: Number, p: Number, q: Number) -> Number:
    """Return log(x/y) where I(a, b, x) is p, for q = 1 - p.

    Log-concave densities have log-concave distribution functions: log I is one of log(x/y).  It is
    at most log(wᵃ / (a B)), w = x/y, where steps begin.
    """
    is_lower, beta = p <= q, betaln_of_positive(a, b)
    c, d, r = (a, b, p) if is_lower else (b, a, q)
    start = (log(r) + log(c) + beta) / c
    if start + log(c + d + 1) < -40:  # where w is less than what is added to 1
        return start if is_lower else -start
    v = newton(start, _excess, c, d, beta, log(r))
    return v if is_lower else -v


def _excess(v: Number, a: Number, b: Number, beta: Number, target: Number) -> Number:
    """Return log I less a target over its derivative with respect to v = log(x/y)."""
    x, y = sigmoid(v), sigmoid(-v)
    is_lower, part = _part(a, b, x, y, beta)
    value = part if is_lower else log1p(-exp(part))
    return (value - target) / exp(log_power(a, b, x, y) - beta - value)
