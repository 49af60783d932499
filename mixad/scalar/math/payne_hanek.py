"""Reduction of large angles: only the bits of 2/π that matter are multiplied.

x = m·2ᵉ with an integer m.  In x·2/π the leading bits of 2/π contribute multiples of 4, whole
turns, and the far ones nothing; a window of three words remains, chosen by the exponent.  The
product modulo 2 to the number of the window's bits is quadrant and fraction (Payne & Hanek,
*Radian reduction for trigonometric functions*, ACM SIGNUM 18, 1983).  Integer ops only; the window
is picked by selects, since lanes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mixad.scalar.expression import Operand, Term
from mixad.scalar.math.coefficients import F64 as TABLES_F64
from mixad.scalar.math.coefficients import TWO_OVER_PI_32, TWO_OVER_PI_64
from mixad.scalar.math.floats import Format, fma, where
from mixad.scalar.types import F32, F64, I64, U64

__all__ = ["reduced_large"]

_LOW_32 = 0xFFFF_FFFF
_HALF_PI, _HALF_PI_REST = (part * 2.0**-62 for part in TABLES_F64["HALF_PI"][:2])


def reduced_large(layout: Format, x: Term) -> tuple[Term, Term]:
    """Return the quadrant and r = x - quadrant·π/2 of a large x >= 0; nan for inf."""
    quadrant, r = (_reduced_f32 if layout.type == F32 else _reduced_f64)(layout, x)
    return quadrant, r + (x - x)


def _parts(layout: Format, x: Term) -> tuple[Term, Term]:
    """Return biased exponent and integer significand of a positive normal number, as U64."""
    bits = layout.bits(x).convert(U64)
    implicit = 1 << layout.fraction
    return bits >> layout.fraction, (bits & layout.fraction_mask) | implicit


def _window(words: Sequence[int], index: Term, count: int) -> list[Term]:
    """Return ``count`` consecutive words from ``index`` on, by a tree of selects.

    Each bit of the index halves what is left; entries beyond the table are never selected.
    """
    left: list[Operand] = list(words)
    bit = 1 << (len(words) - count).bit_length() - 1
    while bit:
        chosen = (index & bit) != 0
        kept = left[: count + bit - 1]
        left = [
            where(chosen, left[i + bit], word, type=U64) if i + bit < len(left) else word
            for i, word in enumerate(kept)
        ]
        bit >>= 1
    return [w if isinstance(w, Term) else index.const(w) for w in left]


def _nearest_quadrant(fraction: Term) -> tuple[Term, Term]:
    """Split 64 bits of x·2/π mod 4: the nearest quadrant, and what is beyond it, signed."""
    quadrant = (fraction + (1 << 61)) >> 62
    return quadrant, (fraction - (quadrant << 62)).bitcast(I64)


def _reduced_f32(layout: Format, x: Term) -> tuple[Term, Term]:
    exponent, m = _parts(layout, x)
    first = exponent - (layout.bias + layout.fraction + 2 - 32)  # a word of zeros leads the table
    words = _window((0, *TWO_OVER_PI_32), first >> 5, 4)
    shift = 32 - (first & 31)
    w0, w1, w2 = ((((a << 32) | b) >> shift) & _LOW_32 for a, b in pairwise(words))
    product = ((m * w0) << 32) + m * w1 + ((m * w2) >> 32)
    quadrant, rest = _nearest_quadrant(product)
    return quadrant.convert(layout.unsigned), (rest.convert(F64) * _HALF_PI).convert(F32)


def _reduced_f64(layout: Format, x: Term) -> tuple[Term, Term]:
    exponent, m = _parts(layout, x)
    first = exponent - (layout.bias + layout.fraction + 2 - 64)
    words = _window((0, *TWO_OVER_PI_64), first >> 6, 4)
    shift = first & 63
    w0, w1, w2 = ((a << shift) | ((b >> 1) >> (63 - shift)) for a, b in pairwise(words))
    middle = m * w1
    low = middle + _high_product(m, w2)
    carry = where(low < middle, 1, 0, type=U64)
    quadrant, rest = _nearest_quadrant(m * w0 + _high_product(m, w1) + carry)
    return quadrant, _radians(rest, low)


def _high_product(x: Term, y: Term) -> Term:
    """Return the upper 64 bits of a product of 64-bit words (Knuth, *TAOCP* 2, §4.3.1)."""
    x1, x0, y1, y0 = x >> 32, x & _LOW_32, y >> 32, y & _LOW_32
    first = x1 * y0 + ((x0 * y0) >> 32)
    second = x0 * y1 + (first & _LOW_32)
    return x1 * y1 + (first >> 32) + (second >> 32)


def _radians(high: Term, low: Term) -> Term:
    """Return (high + low/2⁶⁴)·2⁻⁶²·π/2, in two doubles until the last rounding."""
    head = high.convert(F64)
    tail = (high - head.convert(I64)).convert(F64) + low.convert(F64) * 2.0**-64
    r = head * _HALF_PI
    return r + (fma(head, _HALF_PI, -r) + fma(head, _HALF_PI_REST, tail * _HALF_PI))
