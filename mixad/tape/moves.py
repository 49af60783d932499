"""Rules that move elements: which bytes of which argument each part of the value is a copy of.

It is found by letting the rule move numbers that tell where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Run", "gaps_of", "runs_of"]

Run: TypeAlias = tuple[int, int, int, int]
"""An argument, -1 for zeros; how many bytes come before in it, and in the value; how many are
copied."""

_MAX_RUNS = 256
"""Runs from which on a library moves elements as quickly."""

_MAX_ELEMENTS = 1 << 16
"""Elements of arguments and value: looking where more go takes long, as moving them does."""

_ROOM = 1 << 40
"""Bytes that an argument may reach before and behind its first element, taken together."""

_Array: TypeAlias = np.ndarray[Any, Any]


def runs_of(
    evaluate: Callable[..., _Array], arguments: Sequence[_Array], moved: Sequence[int], value: Any
) -> list[Run] | None:
    """Return the runs that a value consists of; None for many, for large arrays and for gaps.

    The arguments that are ``moved`` have its elements, the others say where; ``evaluate`` is the
    rule, of arrays of any dtype.
    """
    whole = type(value) is np.ndarray and value.flags.c_contiguous and value.size > 0
    if not whole or any(type(a) is not np.ndarray or not a.size for a in arguments):
        return None
    if value.size + sum([a.size for a in arguments]) > _MAX_ELEMENTS:
        return None
    if any(arguments[at].dtype != value.dtype for at in moved):
        return None
    places = list(arguments)
    for number, at in enumerate(moved):
        places[at] = _places(arguments[at]) + (number * _ROOM + _ROOM // 2)
    found = np.asarray(evaluate(*places)).reshape(-1)
    size = value.dtype.itemsize
    follows = (found[1:] == found[:-1] + size) | ((found[1:] == 0) & (found[:-1] == 0))
    begins = np.flatnonzero(np.concatenate([[True], ~follows]))
    if len(begins) > _MAX_RUNS:
        return None
    ends = [*begins[1:].tolist(), len(found)]
    runs = []
    for begin, end in zip(begins.tolist(), ends, strict=True):
        source, first = divmod(int(found[begin]), _ROOM)
        is_zero = found[begin] == 0
        source, first = (-1, 0) if is_zero else (source, first - _ROOM // 2)
        runs.append((source, first, begin * size, (end - begin) * size))
    return runs


def gaps_of(array: _Array) -> list[int] | None:
    """Return how many bytes come before each element of an array with gaps, in its order; nothing
    if it has none.  None for a large or an empty one."""
    if array.flags.c_contiguous:
        return [] if array.size else None
    return _places(array).reshape(-1).tolist() if array.size <= _MAX_GAPS else None


_MAX_GAPS = 1 << 12
"""Elements of an array with gaps up to which a backend is told where they are."""


def _places(array: _Array) -> _Array:
    """Return how many bytes come before each element."""
    found = np.zeros(array.shape, np.int64)
    for axis, (length, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        along = np.arange(length, dtype=np.int64) * stride
        found += along.reshape((-1, *[1] * (array.ndim - axis - 1)))
    return found
