"""x to the y as exp(y·log|x|), the logarithm in two floats, as C's pow; x·yᶻ and xʸ·log x.

The product y·log|x| reaches 745, so log|x| needs ten bits more than the result has: it is summed
as an unevaluated pair, high + low (Dekker, *A floating-point technique for extending the available
precision*, Numer. Math. 18, 1971; Muller et al., *Handbook of Floating-Point Arithmetic*, 2nd ed.,
ch. 4 and 10).  Special values: C23, F.10.4.4.
"""

from __future__ import annotations

from math import inf, nan

from mixad.scalar.expression import Term, call
from mixad.scalar.math.exponential import exp_reduced, exp_sum, power_of_two, scaled_exp_sum
from mixad.scalar.math.floats import (
    Pair,
    at_least,
    at_most,
    copysign,
    fast_sum,
    fma,
    format_of,
    pair_product,
    polynomial,
    rint,
    where,
)
from mixad.scalar.math.logarithm import exponent_and_fraction, log
from mixad.scalar.math.simple import isfinite

__all__ = ["mul_pow", "pow", "pow_log"]

_FAR = 2000.0  # beyond any argument whose exponential is finite and positive
_REACH = {23: 210.0, 52: 1500.0}  # by bits of the fraction: x·exp(t) is 0 or inf beyond, for all x


def pow(x: Term, y: Term) -> Term:
    """X to the y."""
    magnitude = where((y == 0) | (abs(x) == 1), 1, exp_sum(*_exponent(abs(x), y)))  # exp(y log|x|)
    return _with_sign(x, y, magnitude)


def mul_pow(x: Term, y: Term, z: Term) -> Term:
    """X times y to the z, where only the product need be representable; 0 where x is zero."""
    product = _mul_exp(x, *_exponent(abs(y), z))
    product = where((z == 0) | (abs(y) == 1), x, product)
    return where(x != 0, _with_sign(y, z, product), 0)


def pow_log(x: Term, y: Term) -> Term:
    """X to the y times log(x); 0 at the origin; nan for x < 0 and finite y.

    A power below 1 is multiplied before it may round to less digits, or to zero.  Where it is
    zero, which depends on the type, the sign of the product and nan do not.
    """
    power = pow(x, y)
    scaled, undo = scaled_exp_sum(*_exponent(abs(x), y))
    small = (abs(power) < 1) & (x > 0) & isfinite(x) & isfinite(y)
    zero = where(x > 0, copysign(0.0, x - 1), 0)
    found = where(power != 0, power * log(x), zero)
    found = where(small, scaled * log(x) * undo, found)
    found = where((x < 0) & isfinite(y), log(x), found)
    return where((x == 0) & (y == 0), 0, found)


def _mul_exp(x: Term, t: Term, low: Term) -> Term:
    """x·exp(t + low), rounded almost once: 2ᵏ⁺ᵉ, of both, is applied in two factors."""
    layout = format_of(x)
    reach, bias = _REACH[layout.fraction], layout.bias
    near = at_most(at_least(t, -reach), reach)
    k = rint(near * layout.tables["LOG2_E"][0])
    one_more, tail = exp_reduced(near, low, k)
    e, f = exponent_and_fraction(abs(x))
    m = copysign(1 + f, x)
    head = one_more * m
    found = head + fma(tail, m, fma(one_more, m, -head))
    n = at_most(at_least(k + e, -2.0 * bias), bias + 3.0)
    half = rint(0.5 * n)
    found = found * power_of_two(half) * power_of_two(n - half)
    return where(abs(x) < inf, found, x * at_least(t + reach, 0))


def _exponent(x: Term, y: Term) -> Pair:
    """y·log x for x >= 0."""
    high, low = _log_pair(x)
    high = where((x > 0) & (x < inf), high, where(x == 0, -inf, x))
    product = y * high
    rest = fma(y, high, -product) + y * low
    return product, where(abs(product) < _FAR, rest, 0)


def _with_sign(x: Term, y: Term, magnitude: Term) -> Term:
    """Apply the sign of an odd power of a negative base; nan unless the power is whole."""
    layout = format_of(x)
    whole = call("floor", y) == y
    half = y * 0.5
    odd = whole & (call("floor", half) != half)
    sign = where(odd, layout.bits(x) & layout.sign_bit, 0)
    signed = layout.value(layout.bits(magnitude) ^ sign)
    undefined = (x < 0) & (x > -inf) & ~whole
    return where(undefined, nan, signed)


def _log_pair(x: Term) -> Pair:
    """log x of a positive finite x as a pair: k ln 2 + 2 atanh(s), s = f/(2 + f)."""
    k, f = exponent_and_fraction(x)
    high, low = format_of(x).tables["LN2"]
    head, tail = _twice_atanh(*_quotient(f))
    whole = k * high  # exact
    total, rest = fast_sum(whole, head)
    return total, rest + fma(k, low, tail)


def _quotient(f: Term) -> Pair:
    """f/(2 + f) as a pair, with one division."""
    d, d_low = fast_sum(f.const(2.0), f)
    inverse = 1 / d
    s = f * inverse
    return s, fma(-s, d_low, fma(-s, d, f)) * inverse


def _twice_atanh(s: Term, s_low: Term) -> Pair:
    """2s + s³·(2/3 + z·P(z)), z = s²; the polynomial's part is small enough for one float."""
    tables = format_of(s).tables
    third, third_low = tables["TWO_THIRDS"]
    z = s * s
    z_low = fma(2 * s, s_low, fma(s, s, -z))
    c, c_low = fast_sum(s.const(third), z * polynomial(z, tables["LOG_ODD_TAIL"]))
    cube = pair_product(pair_product((z, z_low), (c, c_low + third_low)), (s, s_low))
    head, rest = fast_sum(2 * s, cube[0])
    return head, rest + fma(2.0, s_low, cube[1])
