"""Where a value lives: an array, or a recorded call that will make it when someone asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from mixad.backends.arrays import NUMPY, Array, Library, library_of
from mixad.config import CheckMode
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.types import ScalarType
from mixad.tape.guard import GuardedArray, Reader

__all__ = ["Cell", "Kind", "kind_of", "makes_pending"]


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """What operations must know of a value beside its shape; the same object for equal ones."""

    type: ScalarType
    library: Library
    weak: bool  # whether it began as a Python number and adapts to the dtypes beside it


@cache
def kind_of(type: ScalarType, library: Library, weak: bool = False) -> Kind:
    """Return the kind with these attributes."""
    return Kind(type, library, weak)


@cache
def _numpy_kind(dtype: np.dtype[Any], weak: bool) -> Kind:
    return kind_of(element_type_of(dtype), NUMPY, weak)


_Make = TypeVar("_Make", bound=Callable[["Cell"], None])
_makes: list[Callable[[Cell], None]] = []


def makes_pending(make: _Make) -> _Make:
    """Decorate the function that makes the value of a pending cell, which is known above."""
    _makes.append(make)
    return make


class Cell:
    """One value: shape and kind are known, the array may be pending."""

    __slots__ = ("__weakref__", "_array", "_check", "_seen", "device", "kind", "output", "pending",
                 "shape")  # fmt: skip

    def __init__(
        self,
        shape: tuple[int, ...],
        kind: Kind,
        device: Any,
        pending: Any = None,
        output: int = 0,
    ) -> None:
        self.shape = shape
        self.kind = kind
        self.device = device  # as the library names it
        self.pending = pending  # what makes the array; None if it is there
        self.output = output  # which output of `pending` it is
        self._check: CheckMode = "off"
        self._array: Array = None
        self._seen: GuardedArray | None = None  # the array with its mark, once others can change it

    @classmethod
    def of(
        cls, array: Array, check: CheckMode, *, weak: bool = False, reader: Reader | None = None
    ) -> Cell:
        """Return the cell of an array that exists; ``reader`` knows its name, for messages."""
        if type(array) is np.ndarray:
            kind, shape = _numpy_kind(array.dtype, weak), array.shape
        else:
            library = library_of(array)  # first: what is more than an array is refused as that
            kind, shape = kind_of(element_type_of(array.dtype), library, weak), tuple(array.shape)
        cell = cls(shape, kind, getattr(array, "device", None))
        cell._seen = GuardedArray(array, check, reader)
        return cell

    @classmethod
    def of_held(cls, held: GuardedArray, shape: tuple[int, ...], kind: Kind, device: Any) -> Cell:
        """Return the cell of an array that is watched already, of the shape that it had then."""
        cell = cls(shape, kind, device)
        cell._seen = held
        return cell

    @property
    def given(self) -> Array | None:
        """The array that it was made of, if others have it."""
        return None if self._seen is None else self._seen.array

    @property
    def type(self) -> ScalarType:
        """Type of the elements."""
        return self.kind.type

    @property
    def library(self) -> Library:
        """The array library."""
        return self.kind.library

    @property
    def weak(self) -> bool:
        """Whether the value began as a Python number."""
        return self.kind.weak

    @property
    def array(self) -> Array:
        """The array, for others to see; it is made first if it is pending."""
        if self._seen is None:
            self._seen = GuardedArray(self.value, self._check)
        return self._seen.array

    @property
    def value(self) -> Array:
        """The array, for kernels to read."""
        if self.pending is not None:  # another thread may make it meanwhile
            _makes[0](self)
        return self._array if self._seen is None else self._seen.array

    def fill(self, array: Array, check: CheckMode) -> None:
        """Store the array that the call made; ``check``: how closely it is watched once seen."""
        self._array = array
        self._check = check
        self.pending = None  # last: other threads take this as the sign that the array is there
