"""Manipulation functions: the same elements in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.exceptions import AxisError

from mixad.tape.node import Rule, apply_rule

__all__ = ["matrix_transpose", "normalized_axes", "permute_dims", "reshape"]


def reshape(x: Any, shape: Sequence[int]) -> Any:
    """Return the elements of ``x``, in order, in another shape; one length may be -1."""
    shape = tuple(map(int, shape))
    if shape.count(-1) == 1:
        rest = -math.prod(shape)
        size = math.prod(x.shape)
        shape = tuple(size // rest if n == -1 and rest else n for n in shape)
    return x if tuple(x.shape) == shape else apply_rule(_RESHAPE, x, shape=shape)


_RESHAPE = Rule(
    "reshape",
    lambda xp, x, shape: xp.reshape(x, shape),
    (lambda g, x, shape: reshape(g, x.shape),),
)


def permute_dims(x: Any, axes: Sequence[int]) -> Any:
    """Return ``x`` with its axes in another order."""
    return apply_rule(_PERMUTE_DIMS, x, axes=normalized_axes(tuple(axes), x.ndim))


_PERMUTE_DIMS = Rule(
    "permute_dims",
    lambda xp, x, axes: xp.permute_dims(x, axes),
    (lambda g, x, axes: permute_dims(g, sorted(range(len(axes)), key=axes.__getitem__)),),
)


def matrix_transpose(x: Any) -> Any:
    """Return ``x`` with its last two axes exchanged."""
    if x.ndim < 2:
        raise ValueError(f"a matrix has at least 2 axes, this array has shape {tuple(x.shape)}")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def normalized_axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return axes counted from 0, each once; all of them for None.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    ValueError
        If one is named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in given:
        if not -ndim <= a < ndim:
            raise AxisError(a, ndim)
    axes = tuple(a % ndim for a in given)
    if len(set(axes)) != len(axes):
        raise ValueError(f"an axis is repeated: {given}")
    return axes
