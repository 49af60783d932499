"""Utility functions."""

from __future__ import annotations

from typing import Any

from mixad.namespace.elementwise import array_beside, elementwise
from mixad.namespace.indexing import part_along
from mixad.namespace.joining import broadcast_to, concat
from mixad.namespace.manipulation import normalized_axes

__all__ = ["diff"]


def diff(x: Any, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Return the ``n``-th differences of neighbours along an axis; ValueError if ``n`` is negative.

    ``prepend`` and ``append`` are joined to ``x`` first; a number along the whole edge.
    """
    if n < 0:
        raise ValueError(f"diff(n={n}): n is at least 0")
    (axis,) = normalized_axes(axis, x.ndim)
    if not n:  # NumPy and torch return the input then, without what is around it
        return x
    around = [_edge(part, x, axis) for part in (prepend, x, append) if part is not None]
    x = concat(around, axis=axis) if len(around) > 1 else x
    for _ in range(n):
        if x.shape[axis]:  # there are none of none
            x = elementwise("sub", part_along(x, axis, 1, None), part_along(x, axis, None, -1))
    return x


def _edge(part: Any, x: Any, axis: int) -> Any:
    """Return the array to join to ``x``; a number becomes one row across the axis."""
    part = array_beside(part, x)
    if part.ndim:
        return part
    return broadcast_to(part, tuple(1 if a == axis else n for a, n in enumerate(x.shape)))
