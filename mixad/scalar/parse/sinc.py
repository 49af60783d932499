"""The function sinc, of which NumPy's and that of `mixad.special` are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["sinc_by"]


def sinc_by(x: Any, sin: Callable[[Any], Any], rint: Callable[[Any], Any]) -> Any:
    """Return sin(πx) / (πx) such that derivatives keep their digits, too.

    Near 0 terms of the derivatives of the quotient cancel, those of the power series do not.
    Elsewhere the distance from a whole number is exact, which πx is not.
    """
    t = math.pi * x
    if abs(x) < 0.5:
        series = 0.0
        for coefficient in _SINC:
            series = series * (t * t) + coefficient
        return series
    k = rint(x)
    odd = k - 2 * rint(k / 2)  # 0 or ±1
    return (1 - 2 * odd * odd) * sin(math.pi * (x - k)) / t


_SINC = tuple((-1) ** n / math.factorial(2 * n + 1) for n in reversed(range(13)))
"""Coefficients of sin(t)/t in t², highest power first.

The third derivative is exact to 1e-17 at t = π/2.
"""
