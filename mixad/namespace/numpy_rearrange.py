"""NumPy's functions that move elements, which the standard does not have."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import is_array, library_of
from mixad.errors import TracerError
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import array_beside
from mixad.namespace.indexing import gather, getitem
from mixad.namespace.joining import concat
from mixad.namespace.manipulation import flip, normalized_axes, permute_dims, reshape
from mixad.tape.memory import gives_read_only_views, gives_views, read_only, share, view_of
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["append", "array_split", "at_least", "axes_split", "column_stack", "compress", "delete",
           "diag", "dstack", "extract", "fliplr", "flipud", "hstack", "insert", "pad", "partition",
           "ravel", "resize", "rollaxis", "rot90", "sliding_windows", "split", "swapaxes",
           "vstack"]  # fmt: skip


def _positions(x: Any) -> Any:
    """Return the numbers of the elements of ``x``, from 1, for NumPy's functions to arrange."""
    return np.arange(1, np.prod(x.shape, dtype=int) + 1).reshape(tuple(x.shape))


def _rearrange(x: Any, places: Any, nothing: float = 0.0) -> Any:
    """Return the elements of ``x`` at places, counted from 1; a number where the place is 0."""
    xp = library_of_value(x).xp
    if np.any(places == 0):
        x = concat([reshape(x, -1), xp.full(1, nothing, dtype=x.dtype, device=device(x))])
        places = np.where(places == 0, x.shape[0], places)
    return gather(x, xp.asarray(places - 1, device=device(x)))


@gives_views
def ravel(x: Any, *, order: str = "C") -> Any:
    """Return the elements in one row."""
    return reshape(x, -1, order=order)


@gives_read_only_views
def sliding_windows(x: Any, window_shape: Any, axis: Any = None) -> Any:
    """Return all windows of a shape along axes; the axes of the windows are the last."""
    places = np.lib.stride_tricks.sliding_window_view(_positions(x), window_shape, axis)
    return _rearrange(x, places)


@gives_views
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Return ``x`` with two axes exchanged."""
    (first,), (second,) = normalized_axes(axis1, x.ndim), normalized_axes(axis2, x.ndim)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permute_dims(x, order)


@gives_views
def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    """Return ``x`` with an axis before another one."""
    (axis,) = normalized_axes(axis, x.ndim)
    order = list(range(x.ndim))
    return permute_dims(x, np.rollaxis(np.empty(order), axis, start).shape)


@gives_views
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Return ``x`` turned by ``k`` right angles in the plane of two axes."""
    return _rearrange(x, np.rot90(_positions(x), k, axes))


@gives_views
def fliplr(x: Any) -> Any:
    """Return ``x`` with its second axis in reverse order."""
    return flip(x, axis=1)


@gives_views
def flipud(x: Any) -> Any:
    """Return ``x`` with its first axis in reverse order."""
    return flip(x, axis=0)


def diag(x: Any, k: int = 0) -> Any:
    """Return the matrix with a vector as its ``k``-th diagonal, or that diagonal of a matrix."""
    found = _rearrange(x, np.diag(_positions(x), k))
    return read_only(view_of(found, x)) if x.ndim == 2 else found


_PADDINGS = ("edge", "reflect", "symmetric", "wrap")


def pad(x: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Any:
    """Return ``x`` with elements around it; ``pad_width`` as NumPy takes it.

    Modes are constant, edge, reflect, symmetric and wrap; others, which compute what they put
    there, are a TracerError.
    """
    if mode in _PADDINGS:
        return _rearrange(x, np.pad(_positions(x), pad_width, mode))
    if mode != "constant" or not isinstance(constant_values, numbers.Real):
        raise TracerError(
            f"pad(mode={mode!r}, constant_values={constant_values!r}) of a value that is being "
            f"differentiated is not available: use one of {('constant', *_PADDINGS)} with a number"
        )
    return _rearrange(x, np.pad(_positions(x), pad_width, mode), float(constant_values))


def partition(x: Any, kth: int | Sequence[int], axis: int | None = -1) -> Any:
    """Return the elements along an axis so that the ``kth`` is where it would be in order."""
    x, axis = (reshape(x, -1), 0) if axis is None else (x, axis)
    order = np.argpartition(np.asarray(primal_value(x)), kth, axis)
    return _rearrange(x, np.take_along_axis(_positions(x), order, axis))


def _array(x: Any) -> Any:
    return x if isinstance(x, Tracer) or is_array(x) else np.asarray(x)


def _at_least(x: Any, ndim: int) -> Any:
    """Return ``x`` with axes of length 1, so that it has as many as NumPy's ``atleast_nd``."""
    x = _array(x)
    shape = tuple(x.shape)
    if len(shape) >= ndim:
        return x
    spread = {0: (1,) * ndim, 1: ((1,) * min(ndim - 1, 1) + shape + (1,) * max(ndim - 2, 0))}
    return reshape(x, spread.get(len(shape), (*shape, 1)))


def at_least(ndim: int) -> Callable[..., Any]:
    """Return NumPy's function that gives its arguments at least ``ndim`` axes."""

    def reshape_all(*arrays: Any) -> Any:
        found = tuple(share(_at_least(x, ndim), x) for x in arrays)
        return found if len(found) > 1 else found[0]

    return reshape_all


def vstack(arrays: Sequence[Any]) -> Any:
    """Return arrays one below the other."""
    return concat([_at_least(x, 2) for x in arrays], axis=0)


def hstack(arrays: Sequence[Any]) -> Any:
    """Return arrays one beside the other."""
    parts = [_at_least(x, 1) for x in arrays]
    return concat(parts, axis=0 if parts[0].ndim == 1 else 1)


def column_stack(arrays: Sequence[Any]) -> Any:
    """Return vectors, or matrices, beside each other as columns."""
    parts = map(_array, arrays)
    return concat([x if x.ndim > 1 else reshape(x, (-1, 1)) for x in parts], axis=1)


def dstack(arrays: Sequence[Any]) -> Any:
    """Return arrays behind each other along a third axis."""
    return concat([_at_least(x, 3) for x in arrays], axis=2)


def append(x: Any, values: Any, axis: int | None = None) -> Any:
    """Return ``x`` with ``values`` behind it, both flattened if no axis is given."""
    return concat([_array(x), _array(values)], axis=axis)


def delete(x: Any, places: Any, axis: int | None = None) -> Any:
    """Return ``x`` without some slices along an axis, flattened if none is given."""
    return _rearrange(x, np.delete(_positions(x), _place_values("delete", places), axis))


def insert(x: Any, places: Any, values: Any, axis: int | None = None) -> Any:
    """Return ``x`` with ``values`` before some places along an axis, flattened if none is given.

    NumPy inserts positions of the values, which are numbered after those of ``x``.
    """
    like = x if isinstance(x, Tracer) else values
    x, values = array_beside(x, like), array_beside(values, like)
    values = astype(values, x.dtype, copy=False)
    here = _positions(x)
    there = _positions(values) + here.size
    both = concat([reshape(x, -1), reshape(values, -1)])
    return _rearrange(both, np.insert(here, _place_values("insert", places), there, axis))


def resize(x: Any, shape: Any) -> Any:
    """Return the elements, repeated as needed, in a shape."""
    return _rearrange(x, np.resize(_positions(x), shape))


def compress(selected: Any, x: Any, axis: int | None = None) -> Any:
    """Return the slices along an axis that a condition selects; no axis means the flat array."""
    chosen = np.compress(np.asarray(_place_values("compress", selected)), _positions(x), axis)
    return _rearrange(x, chosen)


def extract(selected: Any, x: Any) -> Any:
    """Return the elements that a condition selects."""
    return compress(np.ravel(np.asarray(_place_values("extract", selected))), reshape(x, -1))


def _place_values(name: str, places: Any) -> Any:
    """Return the values of ``places``.

    TracerError for a lazy array: it would be computed behind the user's back.
    """
    given = primal_value(places)
    if is_array(given) and library_of(given).is_lazy:
        raise TracerError(
            f"{name}() with a lazy array of places would compute all that it depends on: pass them "
            "as an array of NumPy's"
        )
    return given


@gives_views
def array_split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Return slices of ``x`` along an axis: as many, or split at these places."""
    return _parts(np.array_split, x, indices_or_sections, axis)


@gives_views
def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Return equal slices of ``x`` along an axis, as many, or slices split at these places."""
    return _parts(np.split, x, indices_or_sections, axis)


def _parts(divide: Callable[..., Any], x: Any, places: int | Sequence[int], axis: int) -> list[Any]:
    (axis,) = normalized_axes(axis, x.ndim)
    kept = [slice(None)] * axis
    parts = [part.tolist() or [0, -1] for part in divide(np.arange(x.shape[axis]), places)]
    return [getitem(x, (*kept, slice(part[0], part[-1] + 1), ...)) for part in parts]


def axes_split(axis: int) -> Callable[..., list[Any]]:
    """Return NumPy's function that splits along an axis."""

    @gives_views
    def divide(x: Any, indices_or_sections: int | Sequence[int]) -> list[Any]:
        along = 0 if axis == 1 and x.ndim == 1 else axis  # as hsplit does
        return split(x, indices_or_sections, along)

    return divide
