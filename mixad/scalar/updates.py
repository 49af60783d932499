"""How programs change the elements of accumulators: one table that emitters and backends read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from mixad.scalar.types import ScalarType, integer_bounds

__all__ = ["OPS", "neutral"]

OPS: Mapping[str, str] = MappingProxyType({"add": "add", "min": "minimum", "max": "maximum"})
"""The op of each update that is no write, which NumPy and the standard have under its name."""


def neutral(update: str, type: ScalarType) -> bool | int | float:
    """Return an element's initial value, which an update with it does not change.

    >>> from mixad.scalar.types import F64
    >>> neutral("add", F64), neutral("min", F64)
    (0, inf)
    """
    if update not in ("min", "max"):
        return 0
    if type.is_float:
        return math.inf if update == "min" else -math.inf
    low, high = integer_bounds(type)
    return high if update == "min" else low
