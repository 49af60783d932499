"""Plans compute on NumPy's arrays, over the memory of those that came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mixad.backends.arrays import NUMPY, Library, as_array
from mixad.tape.held import Held

if TYPE_CHECKING:
    from mixad.tape.cell import Kind

__all__ = ["array_like", "as_numpy", "came_in", "have_same_bits", "of_numpy"]


def as_numpy(array: Any) -> Any:
    """Return the NumPy array over the memory of a tensor; arrays and numbers as they are."""
    view = None if type(array) is np.ndarray else getattr(array, "numpy", None)
    return array if view is None else view()


def of_numpy(library: Library, array: Any) -> Any:
    """Return a library's array over the memory of one of NumPy, which may be a number."""
    return array if library is NUMPY else library.memory.wrapped(library.xp, as_array(array), None)


def array_like(shape: tuple[int, ...], kind: Kind) -> Any:
    """Return an array of a shape and kind: of full rank, which decompositions take."""
    dtype = kind.type.dtype
    found = np.eye(*shape[-2:], dtype=dtype) if len(shape) > 1 else np.ones((), dtype)
    return of_numpy(kind.library, np.broadcast_to(found, shape).copy())


def have_same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays or numbers of NumPy, or tensors, are the same in type, form and bits."""
    a, b = as_numpy(a), as_numpy(b)
    is_alike = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
    return is_alike and bool(a.tobytes() == b.tobytes())


def came_in(value: Any) -> Any:
    """Return what came in as plans take it.

    Raises
    ------
    TracerError
        If it is an array that has been changed.
    """
    if type(value) is Held:
        value = value.array
    kind = type(value)
    return value if kind is np.ndarray or kind is float else as_array(as_numpy(value))
