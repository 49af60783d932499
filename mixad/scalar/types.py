"""Scalar types of the program: booleans, integers and floats of a stated width.

Arrays may have complex elements too, of which programs know nothing: the parser makes pairs of
floats of them (record 0016).  Floats of 16 bits are types of *storage*: memory holds them, and
arithmetic on them is that of float32 (`ScalarType.arithmetic`, record 0009).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["ALL_TYPES", "BF16", "BOOL", "C64", "C128", "COMPLEX_TYPES", "F16", "F32", "F64", "I8",
           "I16", "I32", "I64", "STORED_TYPES", "U8", "U16", "U32", "U64", "ScalarType",
           "complex_of", "integer_bounds", "part_of", "type_named", "type_of_dtype"]  # fmt: skip


@dataclass(frozen=True)
class ScalarType:
    """One scalar type; two types are the same exactly when kind and width agree."""

    kind: str  # bool, int, uint, float; complex in arrays only
    bits: int  # width of a value; 8 for bool, as in an array
    brain: bool = False  # bfloat16: the upper half of a float32

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def name(self) -> str:
        """Short name: ``bool``, ``i32``, ``u8``, ``f64``, ``bf16``."""
        return "bool" if self.kind == "bool" else f"{'b' * self.brain}{self.kind[0]}{self.bits}"

    @cached_property
    def dtype_name(self) -> str:
        """Name of the dtype in array libraries: ``bool``, ``int32``, ``bfloat16``."""
        return "bool" if self.kind == "bool" else f"{'b' * self.brain}{self.kind}{self.bits}"

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype that memory of this type has; NumPy has only the bits of bfloat16."""
        return np.dtype("uint16" if self.brain else self.dtype_name)

    @cached_property
    def arithmetic(self) -> ScalarType:
        """The type in which values of this type are computed."""
        return F32 if self.is_narrow else self

    @cached_property
    def is_narrow(self) -> bool:
        """Whether it is a float of 16 bits: stored in these, computed in `arithmetic`."""
        return self.kind == "float" and self.bits == 16

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
F16, BF16 = ScalarType("float", 16), ScalarType("float", 16, brain=True)
F32, F64 = ScalarType("float", 32), ScalarType("float", 64)

C64, C128 = ScalarType("complex", 64), ScalarType("complex", 128)
COMPLEX_TYPES = (C64, C128)
"""Types of elements of arrays that no value of a program has: there they are pairs of floats."""

ALL_TYPES = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64)
"""The types in which programs compute."""

STORED_TYPES = (*ALL_TYPES, F16, BF16)
"""The types that arrays have."""

_BY_NAME = {t.name: t for t in STORED_TYPES}
_BY_DTYPE = {t.dtype: t for t in STORED_TYPES if not t.brain}


def part_of(type: ScalarType) -> ScalarType:
    """Return the type of the real and the imaginary part of complex numbers."""
    return F32 if type == C64 else F64


def complex_of(part: ScalarType) -> ScalarType:
    """Return the type of complex numbers whose parts have a type, float32 or float64."""
    return C64 if part == F32 else C128


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
    """Return the scalar type of a NumPy dtype (native byte order); None if there is none."""
    return _BY_DTYPE.get(np.dtype(dtype))
