"""The array library that a value belongs to, and how its dtypes map to scalar types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import array_api_compat
import numpy as np

from mixad.backends.arrays import scalar_type_of
from mixad.errors import KernelTypeError, TracerError
from mixad.scalar import promotion
from mixad.scalar.promotion import Typed
from mixad.scalar.types import ScalarType

__all__ = ["NUMPY", "Array", "Library", "as_array", "is_array", "is_scalar", "library_of"]

Array = Any
"""An array of any library, a NumPy scalar, or a tracer of one."""

_RULES = {"numpy": promotion.NUMPY, "torch": promotion.TORCH}
_INEXACT = ("matrix", "MaskedArray")


class Library:
    """One array library: its array-API namespace and its dtypes.

    Parameters
    ----------
    namespace : module
        From `array_api_compat.array_namespace`.
    """

    def __init__(self, namespace: Any) -> None:
        self.xp = namespace
        self.name = namespace.__name__.removeprefix("array_api_compat.").partition(".")[0]
        self.rules = _RULES.get(self.name, promotion.STRICT)
        self._dtypes: dict[ScalarType, Any] = {}

    def type_of(self, dtype: Any) -> ScalarType:
        """Return the scalar type of a dtype of this library."""
        return scalar_type_of(dtype)

    def dtype_of(self, type: ScalarType) -> Any:
        """Return this library's dtype of a scalar type."""
        if self.name == "numpy":
            return type.dtype
        found = self._dtypes.get(type)
        if found is None:
            found = self._dtypes[type] = getattr(self.xp, type.dtype.name)
        return found

    def promoted(self, what: str, operands: Sequence[tuple[Typed, int]]) -> ScalarType:
        """Return the type that an operation on values of these types and ranks is carried out in.

        torch lets an array of rank 0 decide only where its kind is higher (bool, whole numbers,
        floats); the other libraries look at dtypes alone.
        """
        ranked = [t for t, rank in operands if rank > 0 and not t.weak]
        if self.name == "torch" and ranked:
            highest = max(_kind_rank(t.type) for t in ranked)
            deciding = [t for t, _ in operands if t in ranked or _kind_rank(t.type) > highest]
            return self._joined(what, deciding)
        return self._joined(what, [t for t, _ in operands])

    def _joined(self, what: str, types: Sequence[Typed]) -> ScalarType:
        joined = types[0]
        for other in types[1:]:
            found = self.rules.join(joined, other)
            if found is None:
                raise KernelTypeError(f"{what} of {joined} and {other} is refused by {self.name}")
            joined = found
        return joined.type

    def asarray(self, value: Any, type: ScalarType, device: Any = None) -> Array:
        """Return a scalar or an array as an array of this library."""
        return self.xp.asarray(value, dtype=self.dtype_of(type), device=device)

    def __repr__(self) -> str:
        return f"<array library {self.name}>"


def is_scalar(value: object) -> bool:
    """Whether a value is a Python number, which adapts to the dtype of the arrays beside it."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def is_array(value: object) -> bool:
    """Whether a value is an array of some library (a tracer is not) or a NumPy scalar."""
    return bool(array_api_compat.is_array_api_obj(value)) and not hasattr(value, "__mixad_tracer__")


def as_array(value: Any) -> Any:
    """Return a NumPy scalar as the 0-d array that it stands for, anything else as it is."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def library_of(array: Array) -> Library:
    """Return the library of an array, refusing what would not be differentiated exactly.

    Raises
    ------
    TracerError
        For a torch tensor that requires grad: its own tape would not see what happens here.
    KernelTypeError
        For subclasses of arrays whose operations mean something else.
    """
    if getattr(array, "requires_grad", False) is True:
        raise TracerError(
            "a torch tensor that requires grad would be silently detached here: pass "
            "tensor.detach(), or record the call with the plugin mixad-torch"
        )
    kind = type(array)
    found = _LIBRARIES.get(kind)
    if found is None:
        _check_kind(kind)
        found = _LIBRARIES[kind] = _library(array_api_compat.array_namespace(array))
    return found


_LIBRARIES: dict[type, Library] = {}


def _check_kind(kind: type) -> None:
    if any(base.__name__ in _INEXACT for base in kind.__mro__):
        raise KernelTypeError(
            f"{kind.__module__}.{kind.__name__} is not supported, its operations are not those of "
            "an array",
            hint="convert it with numpy.asarray",
        )


@cache
def _library(namespace: Any) -> Library:
    return Library(namespace)


def _kind_rank(type: ScalarType) -> int:
    return 2 if type.is_float else 1 if type.is_integer else 0


NUMPY = _library(array_api_compat.array_namespace(np.empty(0)))
