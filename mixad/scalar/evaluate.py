"""The definition of every instruction-level op, on NumPy scalars.

IEEE arithmetic for floats, wrapping arithmetic for integers, no exceptions. The interpreter and the
builder's constant folding both call `evaluate`; every emitter is compared with it bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad.scalar.ir import Const
from mixad.scalar.narrow import round_to_type
from mixad.scalar.types import ScalarType

__all__ = ["DEFINITIONS", "constant", "evaluate", "instruction"]

Scalar = Any  # a NumPy scalar


def constant(value: bool | int | float, type: ScalarType) -> Const:
    """Return ``value`` as a constant of ``type``: floats rounded, integers wrapped.

    Only ``convert`` rounds one of a 16-bit type to what memory holds.
    """
    if type.is_narrow:
        return Const(float(value), type)
    if type.bits == 64 and type.is_float:
        return Const(float(value), type)  # no NumPy: most constants are these
    if not type.is_integer:
        with np.errstate(all="ignore"):
            return Const(type.dtype.type(value).item(), type)
    span = 1 << type.bits
    wrapped = int(value) % span
    return Const(wrapped - span if type.kind == "int" and wrapped >= span // 2 else wrapped, type)


def evaluate(name: str, args: tuple[Scalar, ...], type: ScalarType) -> Scalar:
    """Evaluate an op whose lowering is ``"instruction"`` on NumPy scalars."""
    with np.errstate(all="ignore"):
        return instruction(name, type)(*args)


@cache
def instruction(name: str, type: ScalarType) -> Callable[..., Scalar]:
    """Return the function of NumPy scalars for an instruction-level op; it may warn."""
    if name == "convert":
        return lambda x: _convert(x, type)
    if name == "bitcast":
        return lambda x: np.asarray(x).view(type.dtype)[()]
    define, result = DEFINITIONS[name], type.arithmetic.dtype.type
    return lambda *args: result(define(*args))


def _convert(x: Scalar, type: ScalarType) -> Scalar:
    """Convert; floats go to integers towards zero, clamped to the range, nan to 0."""
    if type.is_narrow:
        return round_to_type(x, type)[()]
    if not (type.is_integer and x.dtype.kind == "f"):
        return np.asarray(x).astype(type.dtype)[()]
    if math.isnan(x):
        return type.dtype.type(0)
    limits = np.iinfo(type.dtype)
    if math.isinf(x):
        return type.dtype.type(limits.max if x > 0 else limits.min)
    return type.dtype.type(min(max(int(x), limits.min), limits.max))


def _fma(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """x·y + z rounded once."""
    if not (np.isfinite(x) and np.isfinite(y)):
        return x * y + z
    if not np.isfinite(z):
        return z  # the exact product is finite, however large
    if x.dtype == np.float32:
        return np.float32(_sum_to_odd(float(x) * float(y), float(z)))  # the product is exact
    return _fma_of_integers(x, y, z)


def _sum_to_odd(a: float, b: float) -> float:
    """a + b; where inexact, that of the floats on both sides whose last bit is 1.

    Rounding it again, to a format of at most half the digits, rounds the exact sum: Boldo and
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    total = a + b
    b_in_total = total - a
    error = (a - (total - b_in_total)) + (b - b_in_total)
    if error and not np.float64(total).view(np.int64) & 1:
        return math.nextafter(total, math.copysign(math.inf, error))
    return total


def _fma_of_integers(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """x·y + z of finite float64: Python divides integers of any size with one rounding."""
    (a, b), (c, d), (e, f) = (v.as_integer_ratio() for v in (x, y, z))
    numerator, denominator = a * c * f + e * b * d, b * d * f
    if not numerator:
        return x * y + z  # for the sign of zero
    try:
        return np.float64(numerator / denominator)
    except OverflowError:
        return np.float64(math.inf if numerator > 0 else -math.inf)


def _integer_division(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """Quotient rounded down and remainder; by zero both are 0; the quotient wraps."""
    if y == 0:
        return x.dtype.type(0), x.dtype.type(0)
    quotient, remainder = divmod(int(x), int(y))
    return _wrap_integer(quotient, x.dtype), _wrap_integer(remainder, x.dtype)


def _wrap_integer(value: int, dtype: np.dtype[Any]) -> Scalar:
    return np.asarray(value & ((1 << (8 * dtype.itemsize)) - 1), f"u{dtype.itemsize}").view(dtype)[
        ()
    ]


def _floordiv(x: Scalar, y: Scalar) -> Scalar:
    return np.floor_divide(x, y) if x.dtype.kind == "f" else _integer_division(x, y)[0]


def _mod(x: Scalar, y: Scalar) -> Scalar:
    return np.remainder(x, y) if x.dtype.kind == "f" else _integer_division(x, y)[1]


def _shl(x: Scalar, y: Scalar) -> Scalar:
    bits = 8 * x.dtype.itemsize
    return _wrap_integer(int(x) << int(y), x.dtype) if 0 <= y < bits else x.dtype.type(0)


def _shr(x: Scalar, y: Scalar) -> Scalar:
    bits = 8 * x.dtype.itemsize
    return x.dtype.type(int(x) >> (int(y) if 0 <= y < bits else bits))


DEFINITIONS: Mapping[str, Callable[..., Scalar]] = MappingProxyType({
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "bounded_reciprocal": np.reciprocal,
    "floordiv": _floordiv, "mod": _mod, "neg": np.negative, "abs": np.abs, "fma": _fma,
    "sqrt": np.sqrt, "copysign": np.copysign,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "signbit": np.signbit,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": _shl, "shr": _shr, "where": lambda c, x, y: x if c else y,
})  # fmt: skip
