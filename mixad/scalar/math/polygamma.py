"""digamma and trigamma: asymptotic series from 8 on, recurrence below, reflection for x < 0.

Abramowitz & Stegun, *Handbook of Mathematical Functions*, 6.3.5, 6.3.7, 6.3.18 and 6.4.6, 6.4.7,
6.4.12.  f32 is computed in f64: these are rare, and their roots are worth the digits.
"""

from __future__ import annotations

from math import inf, nan

from mixad.scalar.expression import Term
from mixad.scalar.math.floats import (
    Pair,
    copysign,
    fast_sum,
    fma,
    format_of,
    polynomial,
    rint,
    where,
    while_,
)
from mixad.scalar.math.logarithm import log
from mixad.scalar.types import F64

__all__ = ["digamma", "trigamma"]

_ASYMPTOTIC = 8.0
_PI = 3.141592653589793


def digamma(x: Term) -> Term:
    """Derivative of lgamma; nan at negative whole numbers, ∓inf at ±0."""
    return _digamma(x.convert(F64)).convert(x.type)


def trigamma(x: Term) -> Term:
    """Derivative of digamma; inf at 0 and at negative whole numbers."""
    return _trigamma(x.convert(F64)).convert(x.type)


def _digamma(x: Term) -> Term:
    reflected = x < 0
    y = where(reflected, 1 - x, x)
    offset = where(reflected, (1 - y) - x, 0)  # what y lost: it counts beside the root
    below_one = y < 1
    total, lost, y = while_(
        (where(below_one, -1 / y, 0), x.const(0.0), where(below_one, y + 1, y)),
        lambda total, lost, y: (y >= 2) & (y < _ASYMPTOTIC),
        lambda total, lost, y: (*_compensated(total, lost, 1 / (y - 1)), y - 1),
    )
    positive = (
        where(y < _ASYMPTOTIC, _digamma_near_root(y, offset), _digamma_asymptotic(y)) + lost + total
    )
    (sine, _), cosine, distance = _half_turn(x)
    mirrored = fma(copysign(cosine / sine, distance), -_PI, positive)
    return where(reflected, where(distance == 0, nan, mirrored), positive)


def _digamma_near_root(y: Term, offset: Term) -> Term:
    """ψ(y + offset) on [1, 2]: a product with the distance from the root keeps its digits."""
    tables = format_of(y).tables
    high, low = tables["DIGAMMA_ROOT"]
    return ((y - high) + (offset - low)) * polynomial(y - 1.5, tables["DIGAMMA"])


def _digamma_asymptotic(y: Term) -> Term:
    inverse = 1 / y
    w = inverse * inverse
    return log(y) - fma(w, polynomial(w, format_of(y).tables["DIGAMMA_TAIL"]), 0.5 * inverse)


def _trigamma(x: Term) -> Term:
    reflected = x < 0
    total, lost, y = while_(
        (x.const(0.0), x.const(0.0), where(reflected, 1 - x, x)),
        lambda total, lost, y: y < _ASYMPTOTIC,
        lambda total, lost, y: (*_compensated(total, lost, 1 / (y * y)), y + 1),
    )
    positive = _trigamma_asymptotic(y) + lost + total
    sine, _, _ = _half_turn(x)
    return where(reflected, _reciprocal_square(*sine) - positive, positive)


def _trigamma_asymptotic(y: Term) -> Term:
    inverse = 1 / y
    w = inverse * inverse
    tail = fma(w, polynomial(w, format_of(y).tables["TRIGAMMA_TAIL"]), 0.5 * inverse)
    return fma(tail, inverse, inverse)


def _compensated(total: Term, lost: Term, term: Term) -> tuple[Term, Term]:
    """Add a term to a sum and its rounding error to ``lost`` (Neumaier, ZAMM 54, 1974)."""
    larger, smaller = where(total < term, term, total), where(total < term, total, term)
    new = larger + smaller
    return new, lost + where(new < inf, (larger - new) + smaller, 0)


def _reciprocal_square(s: Term, s_low: Term) -> Term:
    """π²/(s + s_low)², the quotient corrected once by its remainder."""
    high, low = format_of(s).tables["PI_SQUARED"]
    square = s * s
    square_low = fma(2 * s, s_low, fma(s, s, -square))
    quotient = high / square
    left = fma(-quotient, square_low, fma(-quotient, square, high) + low)
    return where(quotient < inf, quotient + left / square, quotient)


def _half_turn(x: Term) -> tuple[Pair, Term, Term]:
    """Return |sin πx| as a pair, the cosine beside it, and x less the nearest whole number."""
    distance = x - rint(x)
    near = abs(distance)
    far = near > 0.25
    s, c = _sine_and_cosine_of_turns(where(far, 0.5 - near, near))
    sine = where(far, c[0], s[0]), where(far, c[1], s[1])
    return sine, where(far, s[0], c[0]), distance


def _sine_and_cosine_of_turns(h: Term) -> tuple[Pair, Pair]:
    """sin and cos of πh for 0 <= h <= 1/4, with what r = πh and z = r² lose in rounding."""
    tables = format_of(h).tables
    high, low = tables["PI"]
    r = high * h
    z = r * r
    r_lost = fma(h, low, fma(h, high, -r))
    z_lost = fma(2 * r, r_lost, fma(r, r, -z))
    slope = fma(z, polynomial(z, tables["COS"]), -0.5)
    return (
        fast_sum(r, fma(r * z, polynomial(z, tables["SIN"]), r_lost)),
        fast_sum(h.const(1.0), fma(z, slope, -0.5 * z_lost)),
    )
