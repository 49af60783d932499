"""Logarithms: log, log2, log10, log1p, logaddexp.

x = 2ᵏ·m with √½ <= m < √2, and log x = k ln 2 + log(1 + f), f = m - 1 exact.  In f32 log(1 + f) is
a polynomial; in f64 it is 2 atanh(f/(2 + f)), arranged so that the quotient's rounding error enters
only through a small term (Tang, *Table-driven implementation of the logarithm function in IEEE
floating-point arithmetic*, ACM TOMS 16, 1990, has the same splitting; Muller, *Elementary
Functions*, 3rd ed., ch. 11).
"""

from __future__ import annotations

from math import inf, nan, sqrt

from mixad.scalar.expression import Operand, Term
from mixad.scalar.math.exponential import exp_sum
from mixad.scalar.math.floats import Format, copysign, fma, format_of, polynomial, where
from mixad.scalar.math.simple import maximum
from mixad.scalar.types import F32

__all__ = ["exponent_and_fraction", "log", "log1p", "log2", "log10", "logaddexp"]

_NEGLIGIBLE = {23: -104.0, 52: -746.0}  # by bits of the fraction: the exponential is 0


def log(x: Term) -> Term:
    """Natural logarithm."""
    k, f = exponent_and_fraction(x)
    return _with_limits(x, _sum_of_logs(k, f))


def log2(x: Term) -> Term:
    """Logarithm to base 2; exact for powers of two."""
    k, f = exponent_and_fraction(x)
    high, low = format_of(x).tables["LOG2_E"]
    r = _log_one_plus(f)
    return _with_limits(x, fma(r, high, fma(r, low, k)))


def log10(x: Term) -> Term:
    """Logarithm to base 10."""
    k, f = exponent_and_fraction(x)
    tables = format_of(x).tables
    r = _log_one_plus(f)
    low = fma(r, tables["LOG10_E"][1], k * tables["LOG10_2"][1])
    return _with_limits(x, fma(k, tables["LOG10_2"][0], fma(r, tables["LOG10_E"][0], low)))


def log1p(x: Term) -> Term:
    """log(1 + x)."""
    result = where(x < inf, _log1p_finite(x), x)
    limit = where(x == -1, -inf, nan, type=x.type)
    return copysign(where(x > -1, result, limit), x)


def logaddexp(x: Term, y: Term) -> Term:
    """log(exp x + exp y) = max + log1p(exp(min - max)), the difference in two floats."""
    layout = format_of(x)
    larger = maximum(x, y)
    smaller = where(x == larger, y, x)
    difference = where(x == y, 0, smaller - larger)
    part = difference - smaller
    lost = (smaller - (difference - part)) - (larger + part)  # exact (Knuth, *TAOCP* 2, §4.2.2)
    near = (difference < 0) & (difference > _NEGLIGIBLE[layout.fraction])
    return larger + _log1p_finite(exp_sum(difference, where(near, lost, 0)))


def exponent_and_fraction(x: Term) -> tuple[Term, Term]:
    """Return k and f with x = 2ᵏ·(1 + f) for positive finite x, denormals included."""
    layout = format_of(x)
    tiny = x < layout.smallest_normal
    shift = layout.fraction + 1
    origin = _origin(layout)
    exponent, m = _split(layout, where(tiny, x * 2.0**shift, x))
    return exponent - where(tiny, origin + shift, origin, type=x.type), m - 1


def _split(layout: Format, x: Term) -> tuple[Term, Term]:
    """Return k (off by `_origin`) and m of a normal number.

    Adding the distance from √½ to 1 to the bits carries into the exponent exactly where m >= √2.
    The exponent becomes a float as the low bits of 2^fraction: no conversion instruction.
    """
    half_root = layout.pattern(sqrt(0.5))
    moved = layout.bits(x) + (layout.pattern(1.0) - half_root)
    m = layout.value((moved & layout.fraction_mask) + half_root)
    return layout.value((moved >> layout.fraction) | layout.pattern(2.0**layout.fraction)), m


def _origin(layout: Format) -> float:
    return 2.0**layout.fraction + layout.bias


def _sum_of_logs(k: Term, f: Term) -> Term:
    high, low = format_of(f).tables["LN2"]
    return fma(k, high, fma(k, low, _log_one_plus(f)))


def _log_one_plus(f: Term) -> Term:
    """log(1 + f) for 1 + f between √½ and √2."""
    tables = format_of(f).tables
    if f.type == F32:
        return fma(f * f, fma(f, polynomial(f, tables["LOG"]), -0.5), f)
    s = f / (2 + f)
    z = s * s
    return fma(s, fma(z, polynomial(z, tables["LOG_ODD"]), -f), f)


def _with_limits(x: Term, result: Operand) -> Term:
    """Return the result where x is positive and finite, else a logarithm's limits."""
    limit = where(x == 0, -inf, nan, type=x.type)
    return where(x > 0, where(x < inf, result, x), limit)


def _log1p_finite(x: Term) -> Term:
    """log(1 + x) for finite x > -1: what 1 + x loses in rounding is added to f.

    u = 1 + x rounded = 2ᵏ·m, and f = (m - 1) + (1 + x - u)·2⁻ᵏ; for k = 0 that is x itself.
    """
    layout = format_of(x)
    small, large = where(x < 1, x, 1), where(x < 1, 1, x)
    u = large + small
    lost = small - (u - large)  # exact (Dekker, Numer. Math. 18, 1971)
    exponent, m = _split(layout, u)
    k = exponent - _origin(layout)
    return _sum_of_logs(k, (m - 1) + lost * _inverse_power(layout, x, exponent))


def _inverse_power(layout: Format, x: Term, exponent: Term) -> Term:
    """Return 2⁻ᵏ; 0 where x is so large that nothing was lost."""
    twice_bias = 2 * layout.bias
    bits = (twice_bias - (layout.bits(exponent) & layout.fraction_mask)) << layout.fraction
    return where(x < 2.0 ** (2 * layout.fraction), layout.value(bits), 0)
