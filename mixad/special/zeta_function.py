"""Riemann's and Hurwitz's zeta functions, by the Euler-Maclaurin formula (DLMF 25.11.5, 25.2.9).

From w = x + 12 on, ten of its terms are enough for two derivatives.  Where x is large the sum
before is all there is.  Riemann's below 1/2 is reflected (25.4.1), with the pole of ζ(1 - x)
divided out.
"""

from __future__ import annotations

import math

from mixad.scalar.math.coefficients import F64
from mixad.special.calling import Number, complete_docstring, of_op
from mixad.special.logarithms import sinc
from mixad.special.polynomials import polynomial
from mixad.special.table import exp, floor, gamma, isinf, lgamma, log, pow

__all__ = ["zeta"]

_TAIL = tuple((2 * j + 1, c) for j, c in enumerate(F64["POLYGAMMA_TAIL"]))[::-1]  # B₂ⱼ / (2j)!
_EXPONENTIAL = tuple(1 / math.factorial(k + 1) for k in range(20, -1, -1))  # (exp(z) - 1)/z

_mul_zero = of_op("mul_zero")


@complete_docstring
def zeta(x: Number, q: Number = None) -> Number:
    """Return Hurwitz's zeta function Σ (k + q)⁻ˣ, nan for x < 1; or Riemann's, without q."""
    return _riemann(x) if q is None else _hurwitz(x, q)


def _hurwitz(x: Number, q: Number) -> Number:
    if x < 1:
        return math.nan
    if x == 1:
        return -log(x - 1)  # inf, and so are the signs of derivatives
    if q <= 0 and floor(q) == q:
        return math.inf if isinf(q) else -log(q - floor(q))
    regular, pole = _parts(x, x - 1, 1.0 * q)
    return regular + pole / (x - 1)


def _riemann(x: Number) -> Number:
    if x == 1:
        return -log(x - 1)
    if x >= 0.5:
        regular, pole = _parts(x, x - 1, 1.0)
        return regular + pole / (x - 1)
    regular, pole = _parts(1 - x, -x, 1.0)
    residue = pole - x * regular  # -x ζ(1 - x)
    if x > -150:
        scale = pow(2 * math.pi, x) * gamma(1 - x)
    else:
        scale = exp(lgamma(1 - x) + math.log(2 * math.pi) * x)
    return -0.5 * _mul_zero(sinc(0.5 * x), scale) * residue


def _parts(x: Number, distance: Number, q: Number) -> tuple[Number, Number]:
    """Return r and p, with which ζ(x, q) is r + p / (x - 1); ``distance`` is x - 1, not rounded."""
    enough = x + 12
    # (1 + 200/x)⁻ˣ, 3⁻¹⁰⁰ and less, is nothing beside the second term.
    last = min(enough, (abs(q) + 2) * (1 + 200 / x)) if x > 100 else enough
    total, k = 0.0, 0
    while q + k < last:
        total = total + pow(q + k, -x)
        k += 1
    w = q + k
    if w < enough:
        return total, 0.0
    inverse, series = 1 / w, 0.0
    for k, coefficient in _TAIL:
        series = ((x + k) * inverse) * ((x + (k + 1)) * inverse) * series + coefficient
    regular, log_w = total + pow(w, -x) * (0.5 + x * inverse * series), log(w)
    # Near the pole, w^-t / t is 1/t, which does not change with q, and (w^-t - 1) / t.
    z = distance * log_w
    if abs(z) < 1:
        return regular - log_w * polynomial(-z, _EXPONENTIAL), 1.0
    return regular, pow(w, -distance)
