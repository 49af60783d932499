"""Functions whose derivatives jump: rectifiers, thresholds, Huber's loss.

In the other files of `mixad.special`, what is compared chooses between methods, and is no kink.
"""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring
from mixad.special.table import expm1

__all__ = ["elu", "hardtanh", "huber", "leaky_relu"]


@complete_docstring
def elu(x: Number, alpha: Number = 1.0) -> Number:
    """Return x where it is positive, else alpha · (exp(x) - 1)."""
    return x if x > 0 else alpha * expm1(x)


@complete_docstring
def leaky_relu(x: Number, slope: Number = 0.01) -> Number:
    """Return x where it is positive, else slope · x."""
    return x if x > 0 else slope * x


@complete_docstring
def hardtanh(x: Number, low: Number = -1.0, high: Number = 1.0) -> Number:
    """Return x between two bounds, and beyond them the bound, where derivatives are 0."""
    return low if x <= low else high if x >= high else x


@complete_docstring
def huber(delta: Number, r: Number) -> Number:
    """Return r² / 2 where r is at most delta away from 0, else the tangent there."""
    if delta < 0:
        return math.inf
    return 0.5 * r * r if abs(r) <= delta else delta * (abs(r) - 0.5 * delta)
