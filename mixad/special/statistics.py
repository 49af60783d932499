"""Entropies, a smooth loss and distribution functions."""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring, of_op, with_partials
from mixad.special.table import copysign, erfc, erfcinv, fma, isinf, isnan, log, log1p, sqrt

__all__ = ["entr", "kl_div", "ndtr", "ndtri", "normcdf", "normcdfinv", "pseudo_huber",
           "rel_entr"]  # fmt: skip

_direction_cosine = of_op("direction_cosine")
_div_zero = of_op("div_zero")
_mul_zero = of_op("mul_zero")


@complete_docstring
def ndtr(x: Number) -> Number:
    """Return the distribution function of the standard normal distribution."""
    return 0.5 * erfc(x * (-1 / math.sqrt(2)))


@complete_docstring
def ndtri(p: Number) -> Number:
    """Return the quantile of the standard normal distribution, the inverse of `ndtr`."""
    return -math.sqrt(2) * erfcinv(2 * p)


@complete_docstring
def normcdf(x: Number) -> Number:
    """Return the normal distribution function: another name of `ndtr`, CUDA's."""
    return ndtr(x)


@complete_docstring
def normcdfinv(p: Number) -> Number:
    """Return the quantile of the normal distribution: another name of `ndtri`, CUDA's."""
    return ndtri(p)


def _entr_slope(x: Number) -> Number:
    slope = -1 - log(x)
    return 0.0 if x < 0 else slope


@complete_docstring
@with_partials(_entr_slope)
def entr(x: Number) -> Number:
    """Return -x · log(x), a term of an entropy: 0 where x is 0, -inf where it is negative."""
    product = -_mul_zero(x, log(x))
    return -math.inf if x < 0 else product


def _rel_entr_partials(x: Number, y: Number) -> tuple[Number, Number]:
    along, across = 1 + _log_ratio(x, y), -_div_zero(x, y)
    return (0.0, 0.0) if _is_apart(x, y) else (along, across)


@complete_docstring
@with_partials(_rel_entr_partials)
def rel_entr(x: Number, y: Number) -> Number:
    """Return x · log(x / y), 0 where x is 0, inf where x or y is negative or y alone is 0."""
    product = _mul_zero(x, _log_ratio(x, y))
    if isnan(x) or isnan(y):
        return x + y
    return math.inf if _is_apart(x, y) else product


def _kl_div_partials(x: Number, y: Number) -> tuple[Number, Number]:
    if _is_apart(x, y):
        return 0.0, 0.0
    return _log_ratio(x, y), (y - x) / y if _is_near(x, y) else 1 - _div_zero(x, y)


@complete_docstring
@with_partials(_kl_div_partials)
def kl_div(x: Number, y: Number) -> Number:
    """Return x · log(x / y) - x + y, with the conventions of `rel_entr`."""
    return math.inf if _is_apart(x, y) else rel_entr(x, y) - x + y


def _is_apart(x: Number, y: Number) -> bool:
    """Return whether x and y are no probabilities, or x is one where y is 0."""
    return not (isnan(x) or isnan(y)) and (x < 0 or y < 0 or (y == 0 and x > 0))


@with_partials(lambda x, y: (1 / x, -1 / y))
def _log_ratio(x: Number, y: Number) -> Number:
    """Return log(x / y), without cancellation."""
    ratio = x / y
    above, below = (ratio, 1.0) if 1e-30 < ratio < 1e30 else (x, y)
    near, far = log1p((x - y) / y), log(above) - log(below)  # shared by value and derivative
    return near if _is_near(x, y) else far


def _is_near(x: Number, y: Number) -> Number:
    return abs(x - y) < 0.5 * y


def _huber_in_delta_partials(delta: Number, r: Number) -> tuple[Number, Number]:
    if delta < 0 or r == 0:
        return 0.0, 0.0
    _, share = _rest(delta, abs(r))
    across, along = _direction_cosine(r, delta), _direction_cosine(delta, r)
    return -(share * share * (2 + along)), across * across * across


@with_partials(_huber_in_delta_partials)
def _huber_in_delta(delta: Number, r: Number) -> Number:
    """Return (h - delta)²/h, for the hypotenuse h of delta and r."""
    if delta < 0 or (delta == 0 and r == 0):
        return 0.0
    rest, share = _rest(delta, abs(r))
    return rest * share


def _huber_in_r_partials(delta: Number, r: Number) -> tuple[Number, Number]:
    if delta < 0:
        return 0.0, 0.0
    across, along = _direction_cosine(r, delta), _direction_cosine(delta, r)
    return across * across * across, along * along * along


@with_partials(_huber_in_r_partials)
def _huber_in_r(delta: Number, r: Number) -> Number:
    """Return delta·r/h."""
    if delta < 0 or (delta == 0 and r == 0):
        return 0.0
    least, _, root = _sides(delta, abs(r))
    return copysign(least, r) / root


@complete_docstring
@with_partials(lambda delta, r: (_huber_in_delta(delta, r), _huber_in_r(delta, r)))
def pseudo_huber(delta: Number, r: Number) -> Number:
    """Return delta² (√(1 + (r/delta)²) - 1), a smooth `huber`, without cancellation."""
    if delta < 0:
        return math.inf
    if isinf(r) or (delta == 0 and r == 0):
        return delta * abs(r)
    least, ratio, root = _sides(delta, abs(r))
    return least * (abs(r) / ((1.0 if abs(r) <= delta else ratio) + root))


def _rest(delta: Number, r: Number) -> tuple[Number, Number]:
    """Return h - delta and what it is of h, without cancellation, for r >= 0."""
    _, ratio, root = _sides(delta, r)
    if r <= delta:
        return r * (ratio / (1 + root)), ratio * ratio / ((1 + root) * root)
    return r / (ratio + root), 1 / ((ratio + root) * root)


def _sides(x: Number, y: Number) -> tuple[Number, Number, Number]:
    """Return the smaller of two numbers, and it and hypot(x, y) over the larger."""
    least, most = (y, x) if y <= x else (x, y)
    ratio = least / most
    return least, ratio, sqrt(fma(ratio, ratio, 1.0))
