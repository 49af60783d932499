"""Products with exponentials that overflow before the product does."""

from __future__ import annotations

import math

from mixad.special.calling import Number
from mixad.special.table import exp

__all__ = ["unscale"]


def unscale(x: Number, scaled: Number) -> Number:
    """Return exp(x) times a number below 1, in halves, of which the first does not overflow."""
    half = exp(0.5 * x)
    whole = half * scaled * half
    return whole if whole < math.inf else exp(x)  # inf, as all derivatives are
