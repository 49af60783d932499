"""What Stirling's formula leaves of log Γ: log Γ(x) - (x - 1/2) log x + x - log √2π, for x >= 10.

DLMF 5.11.1.  Ten terms are enough for two derivatives.
"""

from __future__ import annotations

import math

from mixad.scalar.math.coefficients import F64
from mixad.special.calling import Number
from mixad.special.polynomials import polynomial

__all__ = ["correction", "correction_drop"]

# B₂ⱼ / (2j(2j - 1)), of B₂ⱼ / (2j)!
_TERMS = tuple(c * math.factorial(2 * j) for j, c in enumerate(F64["POLYGAMMA_TAIL"]))
_HIGHEST_FIRST = _TERMS[::-1]


def correction(x: Number) -> Number:
    """Return what the formula leaves at x."""
    inverse = 1 / x
    return inverse * polynomial(inverse * inverse, _HIGHEST_FIRST)


def correction_drop(x: Number, y: Number) -> Number:
    """Return what it leaves at x less that at x + y, for y >= 0: without cancellation.

    x⁻ⁿ - (x + y)⁻ⁿ is a product of y/(x + y), x⁻ⁿ and a geometric sum.
    """
    inverse, ratio = 1 / x, x / (x + y)
    total, power, geometric = 0.0, inverse, 1.0
    for coefficient in _TERMS:
        total = total + coefficient * power * geometric
        power = power * (inverse * inverse)
        geometric = 1 + ratio * (1 + ratio * geometric)
    return y / (x + y) * total
