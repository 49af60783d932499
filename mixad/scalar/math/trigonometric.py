"""sin and cos: reduction to |r| <= π/4 and a quadrant, and two polynomials that both share.

Common arguments are reduced by three multiples of parts of π/2 in fma (Cody & Waite; Boldo, Daumas
& Li, *Formally verified argument reduction with a fused multiply-add*, IEEE TC 58, 2009): the first
step is exact, the others lose at most one rounding each.  Larger ones take `payne_hanek`, which is
skipped where no lane is large.
"""

from __future__ import annotations

from mixad.scalar.expression import Term
from mixad.scalar.math.floats import Format, fma, format_of, if_else, polynomial, where
from mixad.scalar.math.payne_hanek import reduced_large

__all__ = ["cos", "cos_reduced", "sin", "sin_reduced"]

_LARGE = {23: 2.0**17, 52: 2.0**30}  # by bits of the fraction: where the three parts lose precision


def sin(x: Term) -> Term:
    """Sine of an angle in radians; the sign of x is applied last, which keeps -0."""
    layout = format_of(x)
    quadrant, r = _reduce(layout, abs(x))
    return _sine_in_quadrant(layout, quadrant, r, layout.bits(x) & layout.sign_bit)


def cos(x: Term) -> Term:
    """Cosine of an angle in radians: the sine a quadrant further."""
    layout = format_of(x)
    quadrant, r = _reduce(layout, abs(x))
    return _sine_in_quadrant(layout, quadrant + 1, r, None)


def _sine_in_quadrant(layout: Format, quadrant: Term, r: Term, sign: Term | None) -> Term:
    """sin(r + quadrant·π/2), with the sign flipped by the bit ``sign``."""
    odd = (quadrant & 1) == 1
    value = where(odd, cos_reduced(r), sin_reduced(r))
    flip = (quadrant & 2) << (layout.type.bits - 2)
    return layout.value(layout.bits(value) ^ (flip if sign is None else flip ^ sign))


def sin_reduced(r: Term) -> Term:
    """sin(r) for |r| <= π/4."""
    z = r * r
    return fma(r * z, polynomial(z, format_of(r).tables["SIN"]), r)


def cos_reduced(r: Term) -> Term:
    """cos(r) for |r| <= π/4."""
    z = r * r
    return fma(z, fma(z, polynomial(z, format_of(r).tables["COS"]), -0.5), 1.0)


def _reduce(layout: Format, x: Term) -> tuple[Term, Term]:
    """Return the quadrant (its low two bits count) and r of an x >= 0."""
    t = fma(x, 1 / layout.tables["HALF_PI"][0], layout.shifter)
    k = t - layout.shifter
    r_common = x
    for part in layout.tables["HALF_PI"]:
        r_common = fma(k, -part, r_common)
    common = layout.bits(t)
    large = x > _LARGE[layout.fraction]
    quadrant, r = if_else(large, lambda: reduced_large(layout, x), lambda: (common, r_common))
    return quadrant, r
