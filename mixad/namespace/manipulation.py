"""Manipulation functions: the same elements in another shape or order."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from numpy.exceptions import AxisError

from mixad.errors import TracerError
from mixad.tape.node import Rule, apply_rule

__all__ = ["matrix_transpose", "normalized_axes", "permute_dims", "reshape"]


def reshape(
    x: Any, shape: int | Sequence[int], *, order: str = "C", copy: bool | None = None
) -> Any:
    """Return the elements of an array in another shape.

    Parameters
    ----------
    x : array or Tracer
        The elements, taken row by row.
    shape : int or sequence of int
        One length may be -1.
    order : str
        ``"C"``; no other is available.
    copy : bool, optional
        As for the array's library; False raises where the elements would have to be copied.

    Returns
    -------
    array or Tracer
        Of that shape.
    """
    if order != "C":
        raise TracerError(
            f"reshape(order={order!r}) of a value that is being differentiated is not available: "
            "write x.T.reshape(shape[::-1]).T for the order of Fortran"
        )
    lengths = _lengths(shape, math.prod(x.shape))
    if tuple(x.shape) == lengths:
        return x
    return apply_rule(_RESHAPE, x, shape=lengths, **({} if copy is None else {"copy": copy}))


def _lengths(shape: int | Sequence[int], size: int) -> tuple[int, ...]:
    """Return the lengths of a shape, with that of -1 filled in."""
    lengths = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    if lengths.count(-1) == 1:
        rest = -math.prod(lengths)
        lengths = tuple(size // rest if n == -1 and rest else n for n in lengths)
    return lengths


_RESHAPE = Rule(
    "reshape",
    lambda xp, x, shape, **copy: xp.reshape(x, shape, **copy),
    (lambda g, x, shape, **copy: reshape(g, x.shape),),
    linear="each",
)


def permute_dims(x: Any, axes: Sequence[int] | None = None) -> Any:
    """Return ``x`` with its axes in another order; in reverse order for None."""
    if axes is None:
        axes = range(x.ndim)[::-1]
    return apply_rule(_PERMUTE_DIMS, x, axes=normalized_axes(tuple(axes), x.ndim))


_PERMUTE_DIMS = Rule(
    "permute_dims",
    lambda xp, x, axes: xp.permute_dims(x, axes),
    (lambda g, x, axes: permute_dims(g, sorted(range(len(axes)), key=axes.__getitem__)),),
    linear="each",
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
    given = tuple(map(operator.index, axis if isinstance(axis, Sequence) else (axis,)))
    for a in given:
        if not -ndim <= a < ndim:
            raise AxisError(a, ndim)
    axes = tuple(a % ndim for a in given)
    if len(set(axes)) != len(axes):
        raise ValueError(f"an axis is repeated: {given}")
    return axes
