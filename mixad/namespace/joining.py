"""Manipulation functions that join arrays, take them apart or repeat them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from mixad.namespace.data_types import of_one_type
from mixad.namespace.indexing import (
    gather,
    part_along,
    positions_of,
    side_by_side,
    without_lists,
)
from mixad.namespace.manipulation import expand_dims, normalized_axes, reshape, whole_numbers
from mixad.tape import broadcasting
from mixad.tape.memory import gives_read_only_views, gives_views, share, unshared
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule, instantiate_zeros

__all__ = ["broadcast_arrays", "broadcast_to", "concat", "meshgrid", "repeat", "stack", "tile",
           "unstack"]  # fmt: skip


@gives_read_only_views
def broadcast_to(x: Any, shape: int | Sequence[int]) -> Any:
    """Return a view of an array in a larger shape."""
    return broadcasting.broadcast_to(x, whole_numbers(shape))


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """Return views of arrays in their broadcast shape."""
    shape = np.broadcast_shapes(*(tuple(x.shape) for x in arrays))
    return tuple(share(broadcasting.broadcast_to(x, shape), x) for x in arrays)


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """Return the coordinates of the points of a grid, one array for each axis."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid(indexing={indexing!r}): 'xy' or 'ij'")
    axes = list(range(len(arrays)))
    if indexing == "xy":
        axes[:2] = axes[:2][::-1]
    along = [
        reshape(x, [-1 if a == axis else 1 for a in range(len(arrays))])
        for x, axis in zip(arrays, axes, strict=True)
    ]
    return tuple(map(unshared, broadcast_arrays(*along)))


def concat(arrays: Sequence[Any], *, axis: int | None = 0) -> Any:
    """Return arrays joined along an axis, flattened first for None.

    The library promotes the dtypes.
    """
    parts = of_one_type("concat", tuple(arrays))
    if axis is None:
        parts, axis = tuple(reshape(x, -1) for x in parts), 0
    (axis,) = normalized_axes(axis, parts[0].ndim)
    return apply_rule(_CONCAT, *parts, axis=axis)


def _parts(g: Any, wanted: Sequence[bool], *arrays: Any, axis: int) -> list[Any]:
    ends = list(accumulate(x.shape[axis] for x in arrays))
    return [
        part_along(g, axis, start, end) if is_wanted else None
        for start, end, is_wanted in zip([0, *ends], ends, wanted, strict=False)
    ]


_CONCAT = Rule(
    "concat",
    side_by_side,
    _parts,
    linear="all",
    moves=True,
)


def stack(arrays: Sequence[Any], *, axis: int = 0) -> Any:
    """Return arrays of one shape side by side along a new axis."""
    arrays = tuple(arrays)
    shapes = {tuple(x.shape) for x in arrays}
    if len(shapes) > 1:
        raise ValueError(f"stack() takes arrays of one shape, these have {sorted(shapes)}")
    return concat([expand_dims(x, axis=axis) for x in arrays], axis=axis)


@gives_views
def unstack(x: Any, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices of an array along an axis, without it."""
    (axis,) = normalized_axes(axis, x.ndim)
    return apply_values_rule(_UNSTACK, x, axis=axis)


def _stack_values(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any, axis: int) -> Any:
    return stack(instantiate_zeros(gs, values), axis=axis)


_UNSTACK = ValuesRule(
    "unstack", lambda xp, x, axis: tuple(xp.unstack(x, axis=axis)), (_stack_values,), is_total=True
)  # fmt: skip


def tile(x: Any, repetitions: int | Sequence[int]) -> Any:
    """Return an array repeated as a whole along each axis."""
    times = whole_numbers(repetitions)
    ndim = max(x.ndim, len(times))
    times = (*[1] * (ndim - len(times)), *times)
    lengths = (*[1] * (ndim - x.ndim), *x.shape)
    split = [each for length in lengths for each in (1, length)]
    full = [each for pair in zip(times, lengths, strict=True) for each in pair]
    whole = tuple(n * length for n, length in zip(times, lengths, strict=True))
    return reshape(broadcast_to(reshape(x, split), full), whole)


def repeat(x: Any, repeats: Any, *, axis: int | None = None) -> Any:
    """Return an array with each element repeated, or each slice along an axis.

    An array of ``repeats`` has one number for each slice; None as ``axis`` flattens first.
    """
    if axis is None:
        x, axis = reshape(x, math.prod(x.shape)), 0
    (axis,) = normalized_axes(axis, x.ndim)
    xp = library_of_value(x).xp
    return gather(x, xp.repeat(positions_of(x), without_lists(repeats, x), axis=axis))
