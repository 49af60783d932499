"""Powers, exponentials and logarithms, in forms that neither overflow nor cancel."""

from __future__ import annotations

import math

from mixad.scalar.parse.sinc import sinc_by
from mixad.special.calling import Number, complete_docstring, of_op, with_partials
from mixad.special.polynomials import polynomial
from mixad.special.scaling import unscale
from mixad.special.table import (
    exp,
    expm1,
    isnan,
    log,
    log1p,
    logaddexp,
    pow,
    rint,
    sin,
    sqrt,
    where,
)

__all__ = ["abs2", "cosm1", "exp10", "exprel", "log1mexp", "log1pexp", "logit", "logsubexp",
           "rsqrt", "select", "sinc", "xlog1py", "xlogy"]  # fmt: skip


@complete_docstring
def logit(x: Number) -> Number:
    """Return log(x / (1 - x)), the inverse of sigmoid."""
    return log(x) - log1p(-x)


@complete_docstring
def rsqrt(x: Number) -> Number:
    """Return 1 / √x."""
    return 1 / sqrt(x)


@complete_docstring
def sinc(x: Number) -> Number:
    """Return sin(πx) / (πx), 1 at 0: the convention of NumPy."""
    return sinc_by(x, sin, rint)


_div_zero = of_op("div_zero")
_mul_zero = of_op("mul_zero")


@complete_docstring
@with_partials(lambda x, y: (log(y), _div_zero(x, y)))
def xlogy(x: Number, y: Number) -> Number:
    """Return x · log(y), 0 where x is 0 unless y is nan; the derivative log(y) stays."""
    product = _mul_zero(x, log(y))  # outside of the branch, so that the derivative shares it
    return x * y if isnan(y) else product


@complete_docstring
@with_partials(lambda x, y: (log1p(y), _div_zero(x, 1 + y)))
def xlog1py(x: Number, y: Number) -> Number:
    """Return x · log(1 + y), 0 where x is 0 unless y is nan; the derivative log(1 + y) stays."""
    product = _mul_zero(x, log1p(y))
    return x * y if isnan(y) else product


@complete_docstring
def cosm1(x: Number) -> Number:
    """Return cos(x) - 1, without cancellation."""
    half = sin(0.5 * x)
    return -2 * half * half


_EXPREL = tuple(1 / math.factorial(k + 1) for k in range(24, -1, -1))
"""Coefficients of (exp(x) - 1) / x, highest power first.

The third derivative is exact to 1e-17 at |x| = 1.5.
"""


@complete_docstring
def exprel(x: Number) -> Number:
    """Return (exp(x) - 1) / x, 1 at 0, without cancellation, or overflow before the quotient's."""
    if abs(x) < 1.5:  # terms of the derivatives of the quotient cancel near 0
        return polynomial(x, _EXPREL)
    return unscale(x, 1 / x) if x > 40 else expm1(x) / x


@complete_docstring
def exp10(x: Number) -> Number:
    """Return 10 to the x."""
    return pow(10.0, x)


@complete_docstring
def abs2(x: Number) -> Number:
    """Return x²."""
    return x * x


@complete_docstring
def select(condition: Number, x: Number, y: Number) -> Number:
    """Return x where the condition holds, else y: another name of `where`."""
    return where(condition, x, y)


@complete_docstring
def log1pexp(x: Number) -> Number:
    """Return log(1 + exp(x)) without overflow: another name of `softplus`."""
    return logaddexp(x, 0.0)


@complete_docstring
def log1mexp(x: Number) -> Number:
    """Return log(1 - exp(x)) for x <= 0, without cancellation at either end."""
    # Mächler, "Accurately computing log(1 - exp(-|a|))" (2012).  The zero is positive, so that
    # the derivative at 0 is -inf.
    return log(0.0 - expm1(x)) if x > -math.log(2) else log1p(-exp(x))


@complete_docstring
def logsubexp(x: Number, y: Number) -> Number:
    """Return log(exp(x) - exp(y)) for x >= y, without overflow."""
    return x if y == -math.inf else x + log1mexp(y - x)
