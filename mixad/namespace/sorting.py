"""Sorting functions."""

from __future__ import annotations

from typing import Any

from mixad.backends.arrays import Array, library_of
from mixad.namespace.indexing import take_along_axis
from mixad.tape.tracer import primal_value

__all__ = ["sort"]


def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Return the elements along an axis in order; each cotangent goes back to its element.

    Equal elements stay in their order, whatever ``stable`` says.
    """
    return take_along_axis(x, _order(primal_value(x), axis, descending), axis=axis)


def _order(x: Array, axis: int, descending: bool) -> Array:
    xp = library_of(x).xp
    if not descending:
        return xp.argsort(x, axis=axis, stable=True)
    # Not every library sorts downwards: upwards from the end keeps the order of equal elements.
    back = xp.argsort(xp.flip(x, axis=axis), axis=axis, stable=True)
    return xp.flip(x.shape[axis] - 1 - back, axis=axis)
