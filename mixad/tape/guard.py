"""Arrays that will be read later; one that has changed in the meantime is refused.

A pending or recorded operation reads its arrays when it runs, perhaps long after the user handed
them over. Locking them would break programs that rightly write to arrays that no derivative needs,
so they are compared instead: torch counts the writes to a tensor; of other arrays a sample of the
elements is retained, or a digest of all with ``MIXAD_CHECK=full``.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np

from mixad.backends.arrays import Array, as_array, device_name, library_met
from mixad.config import CheckMode
from mixad.errors import TracerError

__all__ = ["GuardedArray", "Reader", "is_compared_whole", "sampling_step"]

_WHOLE = 256
"""Arrays of up to so many elements are compared whole."""

_SAMPLES = 64
"""Least number of elements of a larger array that are compared: a changed block of 1/64 of it is
always found. Each is fetched from memory twice, which takes as long as some 100 elements of a
kernel."""


class Reader(Protocol):
    """What reads an array later."""

    def argument(self, index: int) -> str:
        """Return what one of its arguments is called in messages."""
        ...


class GuardedArray:
    """An array with a mark of its content, which differs after most changes in place.

    `reader` has the array as argument `index`, for messages; without one, it is a traced value's.
    """

    __slots__ = ("_array", "_check", "_index", "_reader", "mark")

    def __init__(
        self, array: Array, check: CheckMode, reader: Reader | None = None, index: int = 0
    ) -> None:
        self._reader = reader
        self._index = index
        self._array = array = array if type(array) is np.ndarray else as_array(array)
        self._check = check  # how closely to look
        self.mark = _mark(array, check)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self._array.shape)

    @property
    def dtype(self) -> Any:
        """Dtype of the array."""
        return self._array.dtype

    @property
    def key(self) -> int:
        """The id of the array."""
        return id(self._array)

    @property
    def identity(self) -> object:
        """Equal for two objects that hold one array with the same elements."""
        return id(self._array), self.mark

    @property
    def value(self) -> Array:
        """The array, for kernels to read."""
        return self.array

    @property
    def array(self) -> Array:
        """The array, as it was when it was handed over; TracerError if it has changed since."""
        if _mark(self._array, self._check) != self.mark:
            raise TracerError(
                f"{self._name} of shape {tuple(self._array.shape)} and dtype "
                f"{self._array.dtype}, was changed in place while a derivative still needed the "
                "elements it had: change a copy of it, or change it when the last gradient that "
                "uses it is there"
            )
        return self._array

    @property
    def _name(self) -> str:
        if self._reader is None:
            return "an array that a transform was given,"
        return f"{self._reader.argument(self._index)}, there"


def _mark(array: Array, check: CheckMode) -> object:
    """Return a mark that differs after most changes in place; None if changes cannot be told."""
    if isinstance(array, np.ndarray):
        if check == "sample" and array.size <= _WHOLE:
            return array.shape, array.tobytes()
        # Unwatched: but what is read must be there.
        return array.shape if check == "off" else (array.shape, _elements(array, check))
    if check == "off":
        return None
    library = library_met(array)
    if library.is_lazy:
        return array.name  # a write makes another graph
    version = _version(array)
    is_on_cpu = array.is_cpu if library.name == "torch" else device_name(array) == "cpu"
    if is_on_cpu:  # what is written through `.data` or NumPy is not counted
        return version, _elements(library.numpy_view(array), check)
    return version


def is_compared_whole(array: np.ndarray[Any, Any]) -> bool:
    """Whether every change of an array is found."""
    return array.size <= _WHOLE


def _version(array: Array) -> int | None:
    """Return torch's count of the writes to a tensor; those of inference mode have none."""
    try:
        version: int | None = getattr(array, "_version", None)
    except RuntimeError:
        return None
    return version


def _elements(array: np.ndarray[Any, Any], check: CheckMode) -> bytes:
    """Return the elements that are compared, or what stands for all of them."""
    if check == "full":
        return hashlib.blake2b(array.tobytes()).digest()
    if is_compared_whole(array):
        return array.tobytes()
    elements = array.reshape(-1) if array.flags.c_contiguous else array.flat  # a view is faster
    return elements[:: sampling_step(array.size)].tobytes()


def sampling_step(size: int) -> int:
    """Return how far apart the compared elements are, of so many.

    An odd step does not stay in one column where the length of a row is a power of two.
    """
    return max(1, (size // _SAMPLES - 1) | 1)
