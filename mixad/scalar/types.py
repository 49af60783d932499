"""Scalar types of the program: booleans, integers and floats of a stated width.

Arrays may have complex elements too, of which programs know nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["ALL_TYPES", "BOOL", "COMPLEX_TYPES", "F32", "F64", "I8", "I16", "I32", "I64", "U8",
           "U16", "U32", "U64", "ScalarType", "integer_bounds", "type_named",
           "type_of_dtype"]  # fmt: skip


@dataclass(frozen=True)
class ScalarType:
    """One scalar type; two types are the same exactly when kind and width agree.

    Attributes
    ----------
    kind : str
        ``"bool"``, ``"int"``, ``"uint"`` or ``"float"``; ``"complex"`` in arrays only.
    bits : int
        Width of a value in bits (8 for ``bool``: its width in an array).
    """

    kind: str
    bits: int

    @cached_property
    def name(self) -> str:
        """Short name: ``bool``, ``i32``, ``u8``, ``f64``."""
        return "bool" if self.kind == "bool" else f"{self.kind[0]}{self.bits}"

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype that holds values of this type."""
        return np.dtype("bool" if self.kind == "bool" else f"{self.kind}{self.bits}")

    @property
    def is_float(self) -> bool:
        """Whether values are floats."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """Whether values are complex numbers."""
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        """Whether values have derivatives: floats and complex numbers."""
        return self.kind in ("float", "complex")

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers, signed or not (booleans are not)."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        """Whether values are truth values."""
        return self.kind == "bool"

    @property
    def itemsize(self) -> int:
        """Bytes that an array element takes."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


BOOL = ScalarType("bool", 8)
I8, I16, I32, I64 = (ScalarType("int", bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (ScalarType("uint", bits) for bits in (8, 16, 32, 64))
F32, F64 = ScalarType("float", 32), ScalarType("float", 64)

COMPLEX_TYPES = (ScalarType("complex", 64), ScalarType("complex", 128))
"""What elements of arrays may be, but no value of a program."""

ALL_TYPES = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64)
_BY_NAME = {t.name: t for t in ALL_TYPES}
_BY_DTYPE = {t.dtype: t for t in ALL_TYPES}


def integer_bounds(type: ScalarType) -> tuple[int, int]:
    """Return the least and the largest integer (or truth value) of a type."""
    if type.is_bool:
        return 0, 1
    low = -(1 << (type.bits - 1)) if type.kind == "int" else 0
    return low, low + (1 << type.bits) - 1


def type_named(name: str) -> ScalarType:
    """Return the type with a short name such as ``"f32"``."""
    return _BY_NAME[name]


def type_of_dtype(dtype: Any) -> ScalarType | None:
    """Return the scalar type of a NumPy dtype (native byte order), or None where there is none."""
    return _BY_DTYPE.get(np.dtype(dtype))
