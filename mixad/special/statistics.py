"""Entropies, a smooth loss and distribution functions."""

from __future__ import annotations

import math

from mixad.special.calling import Number, documented, of_op
from mixad.special.table import erfc, erfcinv, hypot, isinf, isnan, log, log1p

__all__ = ["entr", "kl_div", "ndtr", "ndtri", "normcdf", "normcdfinv", "pseudo_huber",
           "rel_entr"]  # fmt: skip

_mul_zero = of_op("mul_zero")


@documented
def ndtr(x: Number) -> Number:
    """Return the distribution function of the standard normal distribution."""
    return 0.5 * erfc(x * (-1 / math.sqrt(2)))


@documented
def ndtri(p: Number) -> Number:
    """Return the quantile of the standard normal distribution, the inverse of `ndtr`."""
    return -math.sqrt(2) * erfcinv(2 * p)


@documented
def normcdf(x: Number) -> Number:
    """Return the normal distribution function: another name of `ndtr`, CUDA's."""
    return ndtr(x)


@documented
def normcdfinv(p: Number) -> Number:
    """Return the quantile of the normal distribution: another name of `ndtri`, CUDA's."""
    return ndtri(p)


@documented
def entr(x: Number) -> Number:
    """Return -x · log(x), a term of an entropy: 0 where x is 0, -inf where it is negative."""
    return -math.inf if x < 0 else -_mul_zero(x, log(x))


@documented
def rel_entr(x: Number, y: Number) -> Number:
    """Return x · log(x / y), 0 where x is 0, inf where x or y is negative or y alone is 0."""
    if isnan(x) or isnan(y):
        return x + y
    if _is_apart(x, y):
        return math.inf
    near = abs(x - y) < 0.5 * y  # then logarithms would cancel
    return _mul_zero(x, log1p((x - y) / y) if near else log(x) - log(y))


@documented
def kl_div(x: Number, y: Number) -> Number:
    """Return x · log(x / y) - x + y, with the conventions of `rel_entr`."""
    return math.inf if _is_apart(x, y) else rel_entr(x, y) - x + y


def _is_apart(x: Number, y: Number) -> bool:
    """Return whether x and y are no probabilities, or x is one where y is 0."""
    return not (isnan(x) or isnan(y)) and (x < 0 or y < 0 or (y == 0 and x > 0))


@documented
def pseudo_huber(delta: Number, r: Number) -> Number:
    """Return delta² (√(1 + (r/delta)²) - 1), a smooth `huber`, without cancellation."""
    if delta < 0:
        return math.inf
    if isinf(r):
        return delta * abs(r)
    sides = delta + hypot(delta, r)
    return r * r if sides == 0 else delta * (r * (r / sides))
