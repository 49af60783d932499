"""Constants: tracers that no transform follows, so that whole programs stay in one namespace.

The results of a namespace's functions on plain arrays have no derivative, but stand beside values
that have one: they must have the same namespace, and take traced values when they are written to.
So a constant is a tracer of no level. Its library computes it at once, on arrays; where a constant
meets a traced value, its array is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from mixad import pytree
from mixad.backends.arrays import Array, Library, is_array, library_of
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.types import ScalarType
from mixad.tape.cell import Cell, Kind, kind_of
from mixad.tape.memory import share
from mixad.tape.node import ConstantNode
from mixad.tape.tracer import Level, Origin, Tracer, primal_value

__all__ = ["ConstantCell", "constant", "constant_class", "constants", "derived", "is_constant",
           "is_one_memory", "is_traced", "unwrapped"]  # fmt: skip


class ConstantCell(Cell):
    """An array of any library and dtype, as it is; it is not watched for changes."""

    __slots__ = ("_given", "is_lent")

    def __init__(self, array: Array) -> None:
        self._given = array
        self.is_lent = False  # whether it has been recorded, so that it is not written to any more
        self.pending = None

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Its shape."""
        return tuple(self._given.shape)

    @property
    def device(self) -> Any:
        """Its device, as the library names it."""
        return getattr(self._given, "device", None)

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """Its type and library; raises for dtypes in which kernels do not compute."""
        return kind_of(self.type, self.library)

    @property
    def type(self) -> ScalarType:
        """Type of the elements."""
        return element_type_of(self._given.dtype)

    @property
    def library(self) -> Library:
        """The array library."""
        return library_of(self._given)

    @property
    def weak(self) -> bool:
        """Whether it adapts to dtypes beside it, as Python numbers do: it does not."""
        return False

    @property
    def array(self) -> Array:
        """The array."""
        return self._given

    @property
    def value(self) -> Array:
        """The array."""
        return self._given


_Class = TypeVar("_Class", bound=type[Tracer])
_classes: list[type[Tracer]] = []
_NO_LEVELS: frozenset[Level] = frozenset()


def constant_class(cls: _Class) -> _Class:
    """Decorate the class of constants: it has the operators of arrays, which are known above."""
    _classes.append(cls)
    return cls


def constant(array: Array) -> Any:
    """Return an array as a constant of its library's namespace."""
    return _classes[0](ConstantCell(array), Origin(ConstantNode(), 0, _NO_LEVELS))


def constants(result: Any) -> Any:
    """Return what a function gave with constants in place of arrays."""
    if isinstance(result, Tracer):
        return result
    if type(result) is np.ndarray or is_array(result):
        return constant(result)
    return pytree.tree_map(_constant, result) if isinstance(result, (tuple, list)) else result


def _constant(leaf: Any) -> Any:
    return constant(leaf) if is_array(leaf) else leaf


def derived(result: Any, sources: Iterable[Any]) -> Any:
    """Return results computed from constants as constants, which know what they are views of."""
    found = constants(result)
    bases = [source for source in sources if is_constant(source)]
    for each in found if isinstance(found, (tuple, list)) else (found,):
        if is_constant(each):
            for base in bases:
                if is_one_memory(primal_value(each), primal_value(base)):
                    share(each, base)
    return found


def is_one_memory(array: Array, other: Array) -> bool:
    """Whether two arrays may have elements in common; where nobody tells, whether they are one."""
    if isinstance(array, np.ndarray) and isinstance(other, np.ndarray):
        return np.may_share_memory(array, other)
    storages = [getattr(each, "untyped_storage", None) for each in (array, other)]
    if None not in storages:  # torch's
        first, second = (storage().data_ptr() for storage in storages if storage)
        return bool(first == second)
    return array is other


def is_constant(value: object) -> bool:
    """Whether a value is a tracer that no transform follows."""
    return isinstance(value, Tracer) and value.state is None and not value.origin.levels


def is_traced(value: object) -> bool:
    """Whether a transform follows a value."""
    return isinstance(value, Tracer) and bool(value.levels)


def unwrapped(value: Any) -> Any:
    """Return the array of a constant, which is not written to from now on; others as they are."""
    if not is_constant(value):
        return value
    if isinstance(value.cell, ConstantCell):
        value.cell.is_lent = True
        if value.sharing is not None:
            value.sharing.memory.is_lent = True
    return primal_value(value)
