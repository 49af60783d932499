"""Polynomials by their tables."""

from __future__ import annotations

from mixad.special.calling import Number
from mixad.special.table import fma

__all__ = ["polynomial"]


def polynomial(x: Number, coefficients: tuple[float, ...]) -> Number:
    """Return the sum of coefficients times powers of x, the highest first."""
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = fma(total, x, coefficient)
    return total
