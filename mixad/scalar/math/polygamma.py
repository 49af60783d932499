"""digamma and trigamma: asymptotic series from 8 on, recurrence below, reflection for x < 0.

Abramowitz & Stegun, *Handbook of Mathematical Functions*, 6.3.5, 6.3.7, 6.3.18 and 6.4.6, 6.4.7,
6.4.12.  f32 is computed in f64: these are rare, and their roots are worth the digits.
"""

from __future__ import annotations

from math import inf, nan

from mixad.scalar.expression import Term
from mixad.scalar.math.floats import copysign, fma, format_of, polynomial, rint, where, while_
from mixad.scalar.math.logarithm import log
from mixad.scalar.math.trigonometric import cos_reduced, sin_reduced
from mixad.scalar.types import F64

__all__ = ["digamma", "trigamma"]

_ASYMPTOTIC = 8.0


def digamma(x: Term) -> Term:
    """Derivative of lgamma; nan at negative whole numbers, ∓inf at ±0."""
    return _digamma(x.convert(F64)).convert(x.type)


def trigamma(x: Term) -> Term:
    """Derivative of digamma; inf at 0 and at negative whole numbers."""
    return _trigamma(x.convert(F64)).convert(x.type)


def _digamma(x: Term) -> Term:
    reflected = x < 0
    y = where(reflected, 1 - x, x)
    below_one = y < 1
    start = where(below_one, -1 / y, 0)
    total, y = while_(
        (start, where(below_one, y + 1, y)),
        lambda total, y: (y >= 2) & (y < _ASYMPTOTIC),
        lambda total, y: (total + 1 / (y - 1), y - 1),
    )
    positive = where(y < _ASYMPTOTIC, _digamma_near_root(y), _digamma_asymptotic(y)) + total
    sine, cosine, distance = _half_turn(x)
    mirrored = positive - copysign(_PI * (cosine / sine), distance)
    return where(reflected, where(distance == 0, nan, mirrored), positive)


def _digamma_near_root(y: Term) -> Term:
    """ψ on [1, 2] as a product with the distance from its root, which keeps relative precision."""
    tables = format_of(y).tables
    high, low = tables["DIGAMMA_ROOT"]
    return ((y - high) - low) * polynomial(y - 1.5, tables["DIGAMMA"])


def _digamma_asymptotic(y: Term) -> Term:
    inverse = 1 / y
    w = inverse * inverse
    return log(y) - fma(w, polynomial(w, format_of(y).tables["DIGAMMA_TAIL"]), 0.5 * inverse)


def _trigamma(x: Term) -> Term:
    reflected = x < 0
    total, y = while_(
        (x.const(0.0), where(reflected, 1 - x, x)),
        lambda total, y: y < _ASYMPTOTIC,
        lambda total, y: (total + (1 / y) * (1 / y), y + 1),
    )
    positive = total + _trigamma_asymptotic(y)
    sine, _, _ = _half_turn(x)
    return where(reflected, (_PI / sine) * (_PI / sine) - positive, positive)


def _trigamma_asymptotic(y: Term) -> Term:
    inverse = 1 / y
    w = inverse * inverse
    tail = fma(w, polynomial(w, format_of(y).tables["TRIGAMMA_TAIL"]), 0.5 * inverse)
    return fma(tail, inverse, inverse)


def _half_turn(x: Term) -> tuple[Term, Term, Term]:
    """Return |sin πx|, cos of the angle to the nearest whole number, and the signed distance to it."""
    distance = x - rint(x)
    near = abs(distance)
    far = near > 0.25
    r = _PI * where(far, 0.5 - near, near)
    s, c = sin_reduced(r), cos_reduced(r)
    return where(far, c, s), where(far, s, c), distance


_PI = 3.141592653589793
