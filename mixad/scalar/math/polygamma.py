"""digamma and its derivatives: asymptotic series, recurrence below them, reflection for x < 0.

Abramowitz & Stegun, *Handbook of Mathematical Functions*, 6.3.5, 6.3.7, 6.3.18 and 6.4.6, 6.4.7,
6.4.10 to 6.4.12.  f32 is computed in f64: these are rare, and their roots are worth the digits.
"""

from __future__ import annotations

from math import inf, nan

from mixad.scalar.expression import Term, call
from mixad.scalar.math.floats import (
    Pair,
    copysign,
    fast_sum,
    fma,
    format_of,
    if_else,
    pair_product,
    polynomial,
    rint,
    where,
    while_,
)
from mixad.scalar.math.logarithm import log
from mixad.scalar.types import F64

__all__ = ["digamma", "polygamma", "trigamma"]

_ASYMPTOTIC = 8.0
_HIGHEST_ORDER = 100.0  # beyond, powers of what the recurrence reaches underflow
_PI = 3.141592653589793


def digamma(x: Term) -> Term:
    """Derivative of lgamma; nan at negative whole numbers, ∓inf at ±0."""
    return _digamma(x.convert(F64)).convert(x.type)


def trigamma(x: Term) -> Term:
    """Derivative of digamma; inf at 0 and at negative whole numbers."""
    return _trigamma(x.convert(F64)).convert(x.type)


def polygamma(n: Term, x: Term) -> Term:
    """Derivative of digamma of order n, a whole number up to 100; nan for others.

    At 0 and at negative whole numbers: inf for odd n; for even n ∓inf at ±0, else nan.
    """
    return _polygamma(n.convert(F64), x.convert(F64)).convert(x.type)


def _digamma(x: Term) -> Term:
    reflected = x < 0
    y = where(reflected, 1 - x, x)
    offset = where(reflected, (1 - y) - x, 0)  # what y lost: it counts beside the root
    below_one = y < 1
    total, lost, y = while_(
        (where(below_one, -1 / y, 0), x.const(0.0), where(below_one, y + 1, y)),
        lambda total, lost, y: (y >= 2) & (y < _ASYMPTOTIC),
        lambda total, lost, y: (*_add_compensated(total, lost, 1 / (y - 1)), y - 1),
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
        lambda total, lost, y: (*_add_compensated(total, lost, 1 / (y * y)), y + 1),
    )
    positive = _trigamma_asymptotic(y) + lost + total
    sine, _, _ = _half_turn(x)
    return where(reflected, _reciprocal_square(*sine) - positive, positive)


def _trigamma_asymptotic(y: Term) -> Term:
    inverse = 1 / y
    w = inverse * inverse
    tail = fma(w, polynomial(w, format_of(y).tables["TRIGAMMA_TAIL"]), 0.5 * inverse)
    return fma(tail, inverse, inverse)


def _polygamma(n: Term, x: Term) -> Term:
    known = (n >= 0) & (n <= _HIGHEST_ORDER) & (rint(n) == n)
    order = where(known, n, 1)
    (result,) = if_else(order == 0, lambda: [_digamma(x)], lambda: [_derivative(order, x)])
    return where(known, result, nan)


def _derivative(n: Term, x: Term) -> Term:
    """±n! Σ (x + k)^-(n+1), k = 0, 1, …: odd orders are positive, even ones negative for x > 0."""
    bound = n + 11
    factorial, scaled = _factorials(n)
    far = x < -bound
    fraction = x - call("floor", x)
    total, y = _terms(where(far, fraction - bound, x), n + 1, bound)
    value = fma(total, factorial, _tail(y, n, scaled))
    odd = _is_odd(n)
    (skipped,) = if_else(
        far, lambda: [_sum_between(fraction, x, n, scaled)], lambda: [x.const(0.0)]
    )
    pole = (x < 0) & (rint(x) == x) & ~odd  # +inf on one side, -inf on the other
    return where(pole, nan, where(odd, value + skipped, -(value - skipped)))


def _factorials(n: Term) -> tuple[Term, Term]:
    """n!, and (n - 1)! 256^-n, for which (y/256)^-n is in range where the product of both is."""
    _, factorial, scaled = while_(
        (n.const(1.0), n, n.const(2.0**-8)),
        lambda k, factorial, scaled: k < n,
        lambda k, factorial, scaled: (k + 1, factorial * k, scaled * (k * 2.0**-8)),
    )
    return factorial, scaled


def _terms(start: Term, power: Term, bound: Term) -> tuple[Term, Pair]:
    """Σ y^-power over y = start, start + 1, … below the bound, and the next y."""
    zero = start.const(0.0)

    def turn(k: Term, y: Term, y_low: Term, total: Term, lost: Term) -> tuple[Term, ...]:
        term = _reciprocal_power((y, y_low), power)
        return (k + 1, *_sum(start, k + 1), *_add_compensated(total, lost, term))

    _, y, y_low, total, lost = while_(
        (zero, start, zero, zero, zero), lambda k, y, y_low, total, lost: y < bound, turn
    )
    return total + lost, (y, y_low)


def _sum_between(fraction: Term, x: Term, n: Term, scaled: Term) -> Term:
    """n! Σ |y|^-(n+1) over y = x, x + 1, … below fraction - n - 11: a difference of two tails."""
    zero = x.const(0.0)
    near, beyond = (1 - fraction) + (n + 11), 1 - x
    return _tail((near, zero), n, scaled) - _tail((beyond, zero), n, scaled)


def _tail(y: Pair, n: Term, scaled: Term) -> Term:
    """n! Σ (y + k)^-(n+1), k = 0, 1, …, by its asymptotic series."""
    inverse = 1 / y[0]
    series = inverse.const(0.0)
    for j, coefficient in reversed([*enumerate(format_of(inverse).tables["POLYGAMMA_TAIL"])]):
        rising = (n + 2 * j) * (n + (2 * j + 1))
        series = (series + coefficient) * (rising * inverse * inverse)
    leading = scaled * _reciprocal_power((y[0] * 2.0**-8, y[1] * 2.0**-8), n)
    return fma(leading, fma(0.5 * n, inverse, series), leading)


def _reciprocal_power(x: Pair, power: Term) -> Term:
    """x^-power for a whole power from 0 to 127, by repeated squaring of 1/x as a pair."""
    inverse = 1 / x[0]
    square = inverse, inverse * fma(-inverse, x[1], fma(-inverse, x[0], 1.0))
    odd = _is_odd(power)
    result = where(odd, square[0], 1.0), where(odd, square[1], 0.0)
    for _ in range(6):
        power = call("floor", 0.5 * power)
        square = pair_product(square, square)
        odd = _is_odd(power)
        high, low = pair_product(result, square)
        result = where(odd, high, result[0]), where(odd, low, result[1])
    high, low = result
    return where(abs(low) < inf, high + low, high)  # where high is infinite or 0, low may be nan


def _is_odd(n: Term) -> Term:
    half = 0.5 * n
    return call("floor", half) != half


def _sum(x: Term, y: Term) -> Pair:
    """Return x + y as a pair, exactly (Knuth, *The Art of Computer Programming* 2, 4.2.2)."""
    total = x + y
    added = total - x
    return total, (x - (total - added)) + (y - added)


def _add_compensated(total: Term, lost: Term, term: Term) -> tuple[Term, Term]:
    """Add a term to a sum and its rounding error to ``lost`` (Neumaier, ZAMM 54, 1974)."""
    swap = abs(total) < abs(term)
    larger, smaller = where(swap, term, total), where(swap, total, term)
    new = larger + smaller
    return new, lost + where(abs(new) < inf, (larger - new) + smaller, 0)


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
