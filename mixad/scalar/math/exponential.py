"""exp and what is made of it: exp2, expm1, sigmoid, tanh.

All reduce to 2ᵏ·exp(r) with |r| <= ln(2)/2 (Cody & Waite, *Software Manual for the Elementary
Functions*, 1980, ch. 6).  Adding 1.5·2^p rounds to a whole number that is left in the low bits of
the sum, so 2ᵏ takes one shift; the exponent's bias is part of the addend.  Results below the
normal range are rounded once: 2ᵏ is applied in two factors, the first of which is harmless.
"""

from __future__ import annotations

from mixad.scalar.expression import Operand, Term, call
from mixad.scalar.ir import Atom, Const, Equation
from mixad.scalar.math.floats import (
    Format,
    Pair,
    at_least,
    at_most,
    copysign,
    fma,
    format_of,
    polynomial,
    where,
)

__all__ = ["exp", "exp2", "exp_nonpositive", "exp_reduced", "exp_sum", "expm1", "power_of_two",
           "scaled_exp_sum", "sigmoid", "tanh"]  # fmt: skip

_HEADROOM = {23: 64, 52: 512}  # by bits of the fraction: 2^±headroom times 2ᵏ is always normal
_UNDERFLOW = {23: -125.0, 52: -1000.0}  # exp, and its product with a logarithm, rounds to zero
_OVERFLOW = {23: 89.0, 52: 710.0}
_MINUS_ONE = {23: -20.0, 52: -40.0}  # expm1 rounds to -1
_TANH_SPLIT = 0.625


def exp(x: Term) -> Term:
    """E to the x."""
    layout = format_of(x)
    shifter, undo = _factors(layout, x < 0)
    r, scale = _reduce(layout, _clamp(layout, x), shifter)
    return fma(_expm1_reduced(layout, r), scale, scale) * undo


def exp_sum(x: Term, low: Term) -> Term:
    """exp(x + low) for a small correction ``low`` of x, rounded almost once."""
    scaled, undo = scaled_exp_sum(x, low)
    return scaled * undo


def scaled_exp_sum(x: Term, low: Term) -> tuple[Term, Term]:
    """Return two factors of exp(x + low): a normal number, and a power of two."""
    layout = format_of(x)
    shifter, undo = _factors(layout, x < 0)
    x = _clamp(layout, x)
    k, scale = _nearest_power(layout, x, shifter)
    one_more, tail = exp_reduced(x, low, k)
    return fma(tail, scale, one_more * scale), undo


def exp_reduced(x: Term, low: Term, k: Term) -> Pair:
    """Return exp(x + low - k ln 2) as a float and a small term, for k near x/ln 2.

    1 + r is split into a float and what it lost, and r itself likewise: what is rounded last is a
    float plus a small term, so that exact results come out exact.
    """
    layout = format_of(x)
    head, rest = (fma(k, -part, z) for part, z in zip(layout.tables["LN2"], (x, low), strict=True))
    r = head + rest
    one_more = 1 + r
    lost = ((1 - one_more) + r) + ((head - r) + rest)
    return one_more, fma(r * r, polynomial(r, layout.tables["EXP"]), lost)


def power_of_two(n: Term) -> Term:
    """Return 2^n for a whole number n of a normal power, and 0 where n is minus the bias."""
    layout = format_of(n)
    return _power_of_two(layout, n + (layout.shifter + layout.bias))


def _clamp(layout: Format, x: Term) -> Term:
    return at_most(at_least(x, _UNDERFLOW[layout.fraction]), _OVERFLOW[layout.fraction])


def exp_nonpositive(x: Term) -> Term:
    """E to the x for x <= 0: no overflow, one pair of factors."""
    layout = format_of(x)
    headroom = _HEADROOM[layout.fraction]
    x = at_least(x, _UNDERFLOW[layout.fraction])
    r, scale = _reduce(layout, x, _shifter(layout, headroom))
    return fma(_expm1_reduced(layout, r), scale, scale) * 2.0**-headroom


def _shifter(layout: Format, excess: int) -> float:
    """Return the addend that leaves k + excess + bias in the low bits of a sum."""
    return layout.shifter + layout.bias + excess


def _factors(layout: Format, negative: Term) -> tuple[Term, Term]:
    """Return the addend for 2^(k + h) and 2⁻ʰ: h is positive for small results, else negative."""
    h = _HEADROOM[layout.fraction]
    shifter = where(negative, _shifter(layout, h), _shifter(layout, -h), type=layout.type)
    return shifter, where(negative, 2.0**-h, 2.0**h, type=layout.type)


def _reduce(layout: Format, x: Term, shifter: Operand) -> tuple[Term, Term]:
    """Return r = x - k ln 2 and 2^(k + excess)."""
    k, scale = _nearest_power(layout, x, shifter)
    high, low = layout.tables["LN2"]
    return fma(k, -low, fma(k, -high, x)), scale


def _nearest_power(layout: Format, x: Term, shifter: Operand) -> tuple[Term, Term]:
    """Return k, the nearest whole number to x/ln 2, and 2^(k + excess)."""
    t = fma(x, layout.tables["LOG2_E"][0], shifter)
    return t - shifter, _power_of_two(layout, t)


def _power_of_two(layout: Format, t: Term) -> Term:
    """Return 2^n for the whole number n + bias in the low bits of a shifted sum."""
    return layout.value(layout.bits(t) << layout.fraction)


def _expm1_reduced(layout: Format, r: Term) -> Term:
    return fma(r * r, polynomial(r, layout.tables["EXP"]), r)


def exp2(x: Term) -> Term:
    """2 to the x; the reduced argument x - k is exact."""
    layout = format_of(x)
    shifter, undo = _factors(layout, x < 0)
    x = at_most(at_least(x, -float(layout.bias + layout.fraction + 1)), layout.bias + 2.0)
    t = x + shifter
    r = x - (t - shifter)
    return (fma(r, polynomial(r, layout.tables["EXP2"]), 1.0) * _power_of_two(layout, t)) * undo


def expm1(x: Term) -> Term:
    """exp(x) - 1 as 2·(2ᵏ⁻¹·(exp(r) - 1) + (2ᵏ⁻¹ - ½)); 2ᵏ⁻¹ is finite for every k."""
    layout = format_of(x)
    clamped = at_most(at_least(x, _MINUS_ONE[layout.fraction]), _OVERFLOW[layout.fraction])
    r, half = _reduce(layout, clamped, _shifter(layout, -1))
    small = _expm1_reduced(layout, r)
    large = 2 * fma(half, small, half - 0.5)
    return copysign(where(half == 0.5, small, large), x)


def sigmoid(x: Term) -> Term:
    """1/(1 + exp(-x)): p = e/(1 + e) for x < 0 and 1 - p for x >= 0, with e = exp(-|x|)."""
    smaller, larger = _tails(x)
    return where(x < 0, smaller, larger)


def logistic_density(x: Term) -> Term:
    """Derivative of sigmoid as p - p², p <= ½: where that cancels, an error in p counts little."""
    p, _ = _tails(x)
    return fma(-p, p, p)


def _tails(x: Term) -> tuple[Term, Term]:
    """Return sigmoid(-|x|) and sigmoid(|x|)."""
    e = exp_nonpositive(-abs(_twice_half(x)))
    inverse = call("bounded_reciprocal", 1 + e)
    p = e * inverse
    lost = fma(-p, e, e - p)  # e - p(1 + e): what rounding 1 + e, its inverse and p left over
    smaller = fma(lost, inverse, p)
    return smaller, 1 - smaller


def tanh(x: Term) -> Term:
    """1 - 2p with p = sigmoid(-2|x|), which the derivative needs, and an odd polynomial near 0."""
    layout = format_of(x)
    p, _ = _tails(2 * x)
    magnitude = abs(x)
    z = x * x
    small = fma(magnitude * z, polynomial(z, layout.tables["TANH"]), magnitude)
    return copysign(where(magnitude < _TANH_SPLIT, small, fma(p, -2.0, 1.0)), x)


def _twice_half(x: Term) -> Term:
    """Return y for 2·(½·y), which derivatives spell: only below the normal range do they differ.

    There exp is 1 for both, so that tanh(½y) shares the exponential of sigmoid(y).
    """
    outer, inner = _split_factor(x), None
    if outer is not None:
        inner = _split_factor(Term(x.builder, outer[1]))
    if outer is None or inner is None or {outer[0], inner[0]} != {2.0, 0.5}:
        return x
    return Term(x.builder, inner[1])


def _split_factor(x: Term) -> tuple[float, Atom] | None:
    """Return the constant factor of a product and the other one, if a value is such a product."""
    match x.builder.definition(x.atom):
        case Equation(op="mul", args=(Const(value=value), other) | (other, Const(value=value))):
            return value, other
    return None
