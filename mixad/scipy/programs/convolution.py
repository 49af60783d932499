"""An element of a convolution."""

from __future__ import annotations

from mixad.scalar.parse.whole_arrays import Array
from mixad.special.calling import Number

__all__ = ["sum_of_products"]


def sum_of_products(place: Number, x: Array, h: Array, back: Array, count: Number) -> Number:
    """Return Σ h[k] · x[place + back[k]], k = 0, …, count - 1."""
    total = 0 * x[0]  # type: ignore[index]
    for k in range(count):
        total = total + x[place + back[k]] * h[k]  # type: ignore[index]
    return total
