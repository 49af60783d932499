"""The beta function and its logarithm, without cancellation of large arguments.

For b <= a, as Didonato and Morris (ACM TOMS 18, 1992, Algorithm 708): for b >= 10 Stirling's
formula of all three gammas; else of Γ(a) / Γ(a + b) alone, after steps that make a at least 10.
Negative arguments are reflected (DLMF 5.5.3).
"""

from __future__ import annotations

import math

from mixad.special.angles import cospi, sinpi
from mixad.special.calling import Number, complete_docstring, of_op, with_partials
from mixad.special.stirling import correction, correction_drop
from mixad.special.table import exp, floor, gamma, isinf, lgamma, log, log1p

__all__ = ["beta", "betaln"]

_mul_pow = of_op("mul_pow")


@complete_docstring
def beta(a: Number, b: Number) -> Number:
    """Return Γ(a) Γ(b) / Γ(a + b): inf where only one Γ above is, nan where that below is, too."""
    if _is_pole(a) or _is_pole(b):
        return exp(_at_pole(a, b))
    factor, power, c, d = _reflect(a, b)
    order, product, base, exponent = _parts(c, d)
    if power == 1:
        return factor * (_mul_pow(gamma(order) * product, base, -order) * exp(exponent))
    return factor * exp(-_log(order, product, base, exponent))


@complete_docstring
def betaln(a: Number, b: Number) -> Number:
    """Return log(abs(beta(a, b))), without overflow."""
    if _is_pole(a) or _is_pole(b):
        return _at_pole(a, b)
    factor, power, c, d = _reflect(a, b)
    order, product, base, exponent = _parts(c, d)
    return log(abs(factor)) + power * _log(order, product, base, exponent)


def betaln_of_positive(a: Number, b: Number) -> Number:
    """Return log(beta(a, b)) for a, b > 0, which is a shorter program."""
    return _log(*_parts(a, b))


def _is_pole(x: Number) -> Number:
    """Return whether Γ is infinite at x."""
    return x <= 0 and floor(x) == x


def _at_pole(a: Number, b: Number) -> Number:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _reflect(a: Number, b: Number) -> tuple[Number, Number, Number, Number]:
    """Return f, ±1, and c and d above 0, with which B(a, b) is f · B(c, d) to the ±1."""
    if a > b:
        a, b = b, a
    if a > 0:
        return 1.0, 1, a, b
    if b < 0:
        both = cospi(a) / sinpi(a) + cospi(b) / sinpi(b)
        return math.pi * both / (1 - a - b), -1, 1 - a, 1 - b
    if a + b > 0:
        return math.pi / (sinpi(a) * b), -1, 1 - a, a + b
    # sin π(a + b) / sin πa, without what rounding a + b loses
    return cospi(b) + sinpi(b) * cospi(a) / sinpi(a), 1, 1 - (a + b), b


def _parts(a: Number, b: Number) -> tuple[Number, Number, Number, Number]:
    """Return n, p, x and e, with which B(a, b) is Γ(n) · p · x⁻ⁿ · exp(e), for a, b > 0."""
    if a < b:
        a, b = b, a
    if isinf(a):
        return 1.0, 0.0 * b, 1.0, 0.0
    if b >= 10:
        rest = correction(b) + correction_drop(a, b)
        exponent = rest - _decay(a, b) - _growth(a, b)
        return 0.5, math.sqrt(2), a, exponent
    product = 1.0
    while a < 10:
        product = product * (1 + b / a)
        a = a + 1
    return 1.0 * b, product, a + b, b - _growth(a, b) + 0.5 * log1p(b / a) + correction_drop(a, b)


@with_partials(lambda a, b: (1 / a / (1 + b / a), -1 / b / (1 + b / a)))
def _log_of_sum(a: Number, b: Number) -> Number:
    """Return log(1 + a/b) for b <= a, whose derivatives by the rule for quotients need a/b²."""
    return log1p(a / b)


def _decay_partials(a: Number, b: Number) -> tuple[Number, Number]:
    weight = 1 - 0.5 / b
    return weight * (b / a / (1 + b / a)), _log_of_sum(a, b) - weight / (1 + b / a)


@with_partials(_decay_partials)
def _decay(a: Number, b: Number) -> Number:
    """Return (b - 1/2) · log(1 + a/b), whose second derivatives as a product need 1/b²."""
    return (b - 0.5) * log1p(a / b)


@with_partials(lambda a, b: (log1p(b / a) - b / a / (1 + b / a), 1 / (1 + b / a)))
def _growth(a: Number, b: Number) -> Number:
    """Return a · log(1 + b/a), whose derivatives by the rule for products need b/a²."""
    return a * log1p(b / a)


def _log(order: Number, product: Number, base: Number, exponent: Number) -> Number:
    """Return the logarithm of what `_parts` says."""
    return lgamma(order) + log(product) - order * log(base) + exponent
