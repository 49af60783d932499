"""Promotion: the type of an operation between values of different types.

A policy is what the base library does: NumPy's rules (NEP 50), PyTorch's, JAX's (JEP 9407), or the
array-API standard's, which refuse mixed kinds.  *Weak* types are those of Python literals and
Python scalars: they adopt the other operand's type.  *Rankless* ones are those of PyTorch's tensors
without axes: beside a tensor with axes they decide only where their kind (bool, integer, float) is
higher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from mixad.scalar.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I32,
    I64,
    U16,
    U32,
    U64,
    ScalarType,
    type_of_dtype,
)

__all__ = [
    "JAX_DOUBLE_RULES",
    "JAX_RULES",
    "NUMPY_RULES",
    "PLAIN_NUMPY_RULES",
    "RANKLESS",
    "STRICT_RULES",
    "TORCH_DOUBLE_RULES",
    "TORCH_RULES",
    "Rules",
    "Typed",
    "Weak",
]


class _Rankless(Enum):
    RANKLESS = "rankless"

    def __bool__(self) -> bool:
        """Return False: code that tests ``weak`` nearly always means Python numbers."""
        return False


RANKLESS: Literal[_Rankless.RANKLESS] = _Rankless.RANKLESS
Weak: TypeAlias = bool | Literal[_Rankless.RANKLESS]


class Typed(NamedTuple):
    """A type, and whether it is weak: True, False or `RANKLESS`."""

    type: ScalarType
    weak: Weak

    def __str__(self) -> str:
        return _WEAK_NAMES[self.type] if self.weak else self.type.name


_WEAK_NAMES = {BOOL: "bool", I64: "Python int", F64: "Python float"}


@dataclass(frozen=True, eq=False)
class Rules:
    """The promotion policy of one base library.

    `strong` is the type of an operation on two strong types, `floating_integer` the float type of a
    strong integer or boolean in ``sin(x)``, `quotient` that of a quotient of two integers; each is
    None where the library refuses.
    """

    name: str  # for cache keys
    default_float: ScalarType  # of weak floats beside integers, and of weak results
    strong: Callable[[ScalarType, ScalarType], ScalarType | None]
    floating_integer: Callable[[ScalarType], ScalarType | None]
    quotient: Callable[[ScalarType], ScalarType | None]
    default_integer: ScalarType = I64  # of weak integers beside booleans
    mixed: bool = True  # weak floats mix with integers, booleans with numbers
    by_rank: bool = False  # arrays without axes are rankless
    numpy_scalars: bool = False  # whether NumPy's scalars are strong

    def join(self, a: Typed, b: Typed) -> Typed | None:
        """Return the type of an operation between two values; None if it is refused."""
        if a.weak and b.weak:
            return Typed(max(a.type, b.type, key=lambda t: _KIND_RANK[t.kind]), True)
        if a.weak or b.weak:
            weak, strong = (a.type, b.type) if a.weak else (b.type, a.type)
            adopted = self._adopted_type(weak, strong)
            return Typed(adopted, b.weak if a.weak else a.weak) if adopted else None
        if a.weak != b.weak:
            ranked, rankless = (a.type, b.type) if b.weak is RANKLESS else (b.type, a.type)
            return self._beside_rankless(ranked, rankless)
        joined = self.strong(a.type, b.type)
        return Typed(joined, a.weak) if joined else None

    def array(self, type: ScalarType, rank: int) -> Typed:
        """Return how an array of a type and rank takes part in operations."""
        return Typed(type, RANKLESS if self.by_rank and not rank else False)

    def floating(self, a: Typed) -> Typed | None:
        """Return the float type in which ``sin`` of a value is computed, or None."""
        if a.type.is_float:
            return a
        if a.weak:
            return Typed(F64, True)
        found = self.floating_integer(a.type)
        return Typed(found, a.weak) if found else None

    def quotient_type(self, a: Typed) -> Typed | None:
        """Return the type of a true quotient of two values of one type, or None."""
        if a.type.is_float:
            return a
        if a.weak:
            return Typed(F64, True)
        found = self.quotient(a.type)
        return Typed(found, a.weak) if found else None

    def default(self, a: Typed) -> ScalarType:
        """Return the type of a value as a result: the library's default for a weak one."""
        return self.default_float if a.weak and a.type.is_float else a.type

    def _adopted_type(self, weak: ScalarType, strong: ScalarType) -> ScalarType | None:
        rank = _KIND_RANK
        if rank[weak.kind] <= rank[strong.kind]:
            return strong if self.mixed or weak.is_bool == strong.is_bool else None
        if not self.mixed:
            return None
        return self.default_float if weak.is_float else self.default_integer

    def _beside_rankless(self, ranked: ScalarType, rankless: ScalarType) -> Typed | None:
        """Promote as combine_categories does (PyTorch: aten/src/ATen/native/TypeProperties.cpp)."""
        if ranked.is_bool or (rankless.is_float and not ranked.is_float):
            joined = self.strong(ranked, rankless)
            return Typed(joined, False) if joined else None
        return Typed(ranked, False)


_KIND_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2}


@cache
def _numpy_strong(a: ScalarType, b: ScalarType) -> ScalarType | None:
    if BF16 in (a, b):
        return a if a == b else _beside_bfloat16(b if a == BF16 else a)
    return type_of_dtype(np.result_type(a.dtype, b.dtype))


def _beside_bfloat16(other: ScalarType) -> ScalarType | None:
    """Promote as ml_dtypes does, whose bfloat16 NumPy's arrays have: exact promotions only.

    None beside wider integers and float16.
    """
    if other.is_float:
        return None if other.is_narrow else other
    return BF16 if other.bits == 8 else None


def _numpy_floating(a: ScalarType) -> ScalarType | None:
    return F16 if a.bits == 8 else F32 if a.bits == 16 else F64


def _torch_strong(a: ScalarType, b: ScalarType) -> ScalarType | None:
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a != b and (a in _TORCH_UNMIXED or b in _TORCH_UNMIXED):
        return None
    if a != b and a.is_narrow and b.is_narrow:
        return F32
    return _numpy_strong(a, b)


_TORCH_UNMIXED = (U16, U32, U64)  # "Promotion for uint16, uint32, uint64 types is not supported"


def _strict_strong(a: ScalarType, b: ScalarType) -> ScalarType | None:
    if a.is_float != b.is_float or a.is_bool != b.is_bool:
        return None
    joined = _numpy_strong(a, b)
    return None if joined is None or joined.is_float != a.is_float else joined


def _jax_strong(a: ScalarType, b: ScalarType) -> ScalarType | None:
    """Promote as JEP 9407 does, except uint64 beside signed integers: that is a weak float."""
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a != b and a.is_narrow and b.is_narrow:
        return F32
    joined = _numpy_strong(a, b)
    return None if joined is None or joined.is_float != a.is_float else joined


def _jax_strong_in_32_bits(a: ScalarType, b: ScalarType) -> ScalarType | None:
    """Promote as JAX does while it has no types of 64 bits."""
    joined = _jax_strong(a, b)
    return I32 if joined == I64 else joined


def _jax_floating(a: ScalarType) -> ScalarType:
    return F64 if a.bits == 64 else F32


NUMPY_RULES = Rules("numpy", F64, _numpy_strong, _numpy_floating, lambda a: F64, numpy_scalars=True)
PLAIN_NUMPY_RULES = replace(NUMPY_RULES, name="numpy, plain numbers", numpy_scalars=False)
"""Those of libraries like NumPy beside whose arrays NumPy's scalars are plain numbers."""

TORCH_RULES = Rules("torch", F32, _torch_strong, lambda a: F32, lambda a: F32, by_rank=True)
TORCH_DOUBLE_RULES = Rules(
    "torch, double", F64, _torch_strong, lambda a: F64, lambda a: F64, by_rank=True
)
"""PyTorch's where ``torch.set_default_dtype`` has set float64."""

JAX_RULES = Rules("jax", F32, _jax_strong_in_32_bits, _jax_floating, _jax_floating, I32)
JAX_DOUBLE_RULES = Rules("jax, 64 bits", F64, _jax_strong, _jax_floating, _jax_floating)
"""JAX's where ``jax_enable_x64`` is set."""

STRICT_RULES = Rules("strict", F64, _strict_strong, lambda a: None, lambda a: None, mixed=False)
