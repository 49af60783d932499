"""Manipulation functions: the same elements in another shape or order."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.exceptions import AxisError

from mixad.errors import TracerError
from mixad.kernel.rolls import Shifts
from mixad.tape.memory import gives_views
from mixad.tape.node import Rule, apply_rule, shape_of_view

__all__ = ["expand_dims", "flip", "matrix_transpose", "moveaxis", "normalized_axes", "permute_dims",
           "reshape", "roll", "squeeze"]  # fmt: skip


@gives_views
def reshape(
    x: Any, shape: int | Sequence[int], *, order: str = "C", copy: bool | None = None
) -> Any:
    """Return the elements of an array in another shape, of which one length may be -1.

    ``order`` "F" reads and writes column by column. ``copy`` False raises, as the library does,
    where elements would have to be copied.
    """
    if order == "F":
        turned = reshape(permute_dims(x), whole_numbers(shape)[::-1], copy=copy)
        return permute_dims(turned)
    if order != "C":
        own = "reshape"  # users may have called another function, which is named then
        raise TracerError(
            f"{own} of a value that is being differentiated takes no order={order!r}, since its "
            "order in memory is not known: use 'C' or 'F'",
            own,
        )
    lengths = _lengths(shape, math.prod(x.shape))
    if tuple(x.shape) == lengths:
        return x
    return apply_rule(_RESHAPE, x, shape=lengths, **({} if copy is None else {"copy": copy}))


def _lengths(shape: int | Sequence[int], size: int) -> tuple[int, ...]:
    """Return the lengths of a shape, with that of -1 filled in."""
    lengths = whole_numbers(shape)
    if lengths.count(-1) == 1:
        rest = -math.prod(lengths)
        lengths = tuple(size // rest if n == -1 and rest else n for n in lengths)
    return lengths


def _reshape(xp: Any, x: Any, shape: Sequence[int], **copy: Any) -> Any:
    if type(x) is np.ndarray and not copy:
        return x.reshape(shape)  # what the function calls in the end
    return xp.reshape(x, shape, **copy)


_RESHAPE = Rule(
    "reshape",
    _reshape,
    (lambda g, x, shape, **copy: reshape(g, x.shape),),
    linear="each",
    shape=shape_of_view(_reshape),
    is_view=True,
    moves=True,
)


@gives_views
def permute_dims(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` with its axes in another order, reversed for None."""
    if axes is None:
        axes = range(x.ndim)[::-1]
    return apply_rule(_PERMUTE_DIMS, x, axes=normalized_axes(axes, x.ndim))


def _permute(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    return x.transpose(axes) if type(x) is np.ndarray else xp.permute_dims(x, axes)


_PERMUTE_DIMS = Rule(
    "permute_dims",
    _permute,
    (lambda g, x, axes: permute_dims(g, sorted(range(len(axes)), key=axes.__getitem__)),),
    linear="each",
    shape=lambda xp, own, axes: tuple(own[a] for a in axes),
    is_view=True,
    moves=True,
)


@gives_views
def matrix_transpose(x: Any) -> Any:
    """Return ``x`` with its last two axes exchanged."""
    if x.ndim < 2:
        raise ValueError(f"a matrix has at least 2 axes, this array has shape {tuple(x.shape)}")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@gives_views
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """Return ``x`` with axes at other places, the rest in their order."""
    moved, places = normalized_axes(source, x.ndim), normalized_axes(destination, x.ndim)
    if len(moved) != len(places):
        raise ValueError(f"moveaxis() of {len(moved)} axes to {len(places)} places")
    order = [axis for axis in range(x.ndim) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, order)


@gives_views
def expand_dims(x: Any, *, axis: int | Sequence[int] = 0) -> Any:
    """Return ``x`` with new axes of length 1 at these places of the result."""
    count = len(whole_numbers(axis))
    new = normalized_axes(axis, x.ndim + count)
    lengths = iter(x.shape)
    return reshape(x, [1 if a in new else next(lengths) for a in range(x.ndim + count)])


@gives_views
def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` without some axes of length 1, without all of them for None."""
    if axis is None:
        axis = tuple(a for a, n in enumerate(x.shape) if n == 1)
    axes = normalized_axes(axis, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(
            f"squeeze(axis={axis}) of an array of shape {tuple(x.shape)}: axes of length 1 only"
        )
    return reshape(x, [n for a, n in enumerate(x.shape) if a not in axes])


@gives_views
def flip(x: Any, *, axis: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` with the elements along some axes in reverse order, along all for None."""
    return apply_rule(_FLIP, x, axis=normalized_axes(axis, x.ndim))


_FLIP = Rule(
    "flip",
    lambda xp, x, axis: xp.flip(x, axis=axis),
    (lambda g, x, axis: flip(g, axis=axis),),
    linear="each",
    moves=True,
)


def roll(x: Any, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` with the elements along axes moved on, the last to the beginning.

    None as ``axis`` rolls the flattened array.
    """
    steps = whole_numbers(shift)
    return apply_rule(_ROLL, x, shift=steps[0] if len(steps) == 1 else steps, axis=axis)


def _roll_back(g: Any, x: Any, shift: int | tuple[int, ...], axis: Any) -> Any:
    return roll(g, tuple(-s for s in whole_numbers(shift)), axis=axis)


def _steps(own: tuple[int, ...], shift: int | tuple[int, ...], axis: Any) -> Shifts | None:
    """Return how far elements move along each axis; None if through the flattened array."""
    shifts = whole_numbers(shift)
    if axis is None and len(own) != 1:
        return None
    axes = whole_numbers(0 if axis is None else axis)
    steps = [0] * len(own)
    for at, by in np.broadcast(axes, shifts):  # one axis may be there several times
        steps[at] += int(by)
    return tuple(steps)


_ROLL = Rule(
    "roll",
    lambda xp, x, shift, axis: xp.roll(x, shift, axis=axis),
    (_roll_back,),
    fresh=True,
    linear="each",
    steps=_steps,
    moves=True,
)


def whole_numbers(given: Any) -> tuple[int, ...]:
    """Return one or several whole numbers of any library as Python's."""
    return tuple(map(operator.index, given if is_several(given) else (given,)))


def is_several(given: Any) -> bool:
    """Whether an argument, one number or several, is several; arrays may be either."""
    return isinstance(given, Iterable) and getattr(given, "ndim", 1) > 0


def normalized_axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return axes counted from 0, each once; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    given = whole_numbers(axis)
    for a in given:
        if not -ndim <= a < ndim:
            raise AxisError(a, ndim)
    axes = tuple(a % ndim for a in given)
    if len(set(axes)) != len(axes):
        raise ValueError(f"an axis is repeated: {given}")
    return axes
