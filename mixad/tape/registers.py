"""What registers of plans hold.

For torch's tensors on the CPU these are NumPy arrays over their memory; other arrays are as they
are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from mixad.backends.array_memory import packed_strides
from mixad.backends.arrays import (
    NUMPY,
    Library,
    as_array,
    is_array,
    library_of,
    strides_of,
)
from mixad.tape.guard import GuardedArray

if TYPE_CHECKING:
    from mixad.tape.cell import Kind

__all__ = ["StridedView", "array_like", "as_register", "bits_of", "came_in", "filled",
           "have_same_bits", "may_share_memory", "of_register", "own_array",
           "strided_view_in"]  # fmt: skip


def as_register(array: Any) -> Any:
    """Return what a register holds in place of an array or a number."""
    if type(array) is np.ndarray or not getattr(array, "is_cpu", False):
        return array
    try:
        return array.numpy()
    except TypeError:  # of bfloat16, which NumPy does not know
        return array


def of_register(library: Library, array: Any) -> Any:
    """Return a library's array of what a register holds, which may be a NumPy scalar."""
    if library is NUMPY or not isinstance(array, (np.ndarray, np.generic)):
        return array
    return library.memory.wrapped(library.xp, as_array(array), None)


def array_like(shape: tuple[int, ...], kind: Kind, device: Any) -> Any:
    """Return an array of a shape and kind.

    It has full rank, which decompositions need; indices lie in any array.
    """
    library = kind.library
    if len(shape) < 2 or not kind.type.is_inexact:
        number = 1.0 if kind.type.is_inexact else 0.0
        return of_register(library, filled(number, shape, kind, device))
    with library.memory.apart():
        dtype = library.dtype_of(kind.type)
        return own_array(library.xp.eye(*shape[-2:], dtype=dtype, device=device), shape)


def filled(number: float, shape: tuple[int, ...], kind: Kind, device: Any) -> Any:
    """Return a register of one number, made on its device."""
    library = kind.library
    if _are_numpys(library, device):
        return np.full(shape, number, kind.type.dtype)
    with library.memory.apart():
        dtype = library.dtype_of(kind.type)
        return library.xp.full(shape, number, dtype=dtype, device=device)


def _are_numpys(library: Library, device: Any) -> bool:
    """Whether registers hold NumPy arrays in place of a library's on a device."""
    return library is NUMPY or (library.name == "torch" and device.type == "cpu")


def own_array(array: Any, shape: tuple[int, ...]) -> Any:
    """Return a copy of an array or a NumPy scalar, broadcast to a shape."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np.array(np.broadcast_to(array, shape))
    xp = library_of(array).xp
    return xp.asarray(xp.broadcast_to(array, shape), copy=True)


class StridedView(NamedTuple):
    """A view of an array: its strides, and how many bytes after the array it begins."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int

    def of(self, array: Any) -> Any:
        """Return that view of an array."""
        strided_view = library_of(array).memory.strided_view
        assert strided_view is not None, "or there would be no such view"
        return strided_view(array, *self)


def strided_view_in(view: Any, whole: Any) -> StridedView | None:
    """Return where in an array a view lies.

    None unless all of its memory is the array's, which has no gaps.
    """
    bounds, around = _bounds(view), _bounds(whole)
    if bounds is None or around is None or not (around[0] <= bounds[0] < bounds[1] <= around[1]):
        return None
    library = library_of(whole)
    has_views = library.memory.strided_view is not None
    is_packed = strides_of(whole) == packed_strides(whole)
    if not (has_views and is_packed) or (library.name == "torch" and view.dtype != whole.dtype):
        return None
    first = cast("int", library.memory.address(view)) - around[0]
    return StridedView(view.dtype, tuple(view.shape), strides_of(view), first)


def may_share_memory(a: Any, b: Any) -> bool:
    """Whether two values may share memory; what is no array shares none."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        return np.may_share_memory(a, b)
    if not (_has_memory(a) and _has_memory(b)):
        return False
    first, second = _bounds(a), _bounds(b)
    if first is None or second is None:
        return type(a) is type(b)
    return first[0] < second[1] and second[0] < first[1]


def _has_memory(value: Any) -> bool:
    return is_array(value) and not isinstance(value, np.generic)


def _bounds(array: Any) -> tuple[int, int] | None:
    """Return the addresses between which an array lies; None if its library does not tell."""
    start = library_of(array).memory.address(array)
    if start is None:
        return None
    if 0 in array.shape:
        return start, start
    steps = [(n - 1) * step for n, step in zip(array.shape, strides_of(array), strict=True)]
    below, above = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
    return start + below, start + above + array.itemsize


def have_same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays or numbers are the same in type, form and bits."""
    a, b = as_register(a), as_register(b)
    is_alike = type(a) is type(b) and a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape)
    if not is_alike:
        return False
    have_same_bytes = library_of(a).memory.have_same_bytes
    return bits_of(a) == bits_of(b) if have_same_bytes is None else have_same_bytes(a, b)


def bits_of(array: Any) -> bytes:
    """Return the elements of an array or a number, wherever they are."""
    return library_of(array).memory.elements(array).tobytes()


def came_in(value: Any) -> Any:
    """Return what came in as plans take it; TracerError if it is an array that has changed."""
    if type(value) is GuardedArray:
        value = value.array
    kind = type(value)
    return value if kind is np.ndarray or kind is float else as_array(as_register(value))
