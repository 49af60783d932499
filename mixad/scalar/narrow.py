"""Floats of 16 bits as NumPy arrays: rounded to what memory holds, to its bits and back.

NumPy has float16 and knows nothing of bfloat16, whose bits are the upper half of a float32's.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from mixad.scalar.types import ScalarType

__all__ = ["from_memory", "round_to_type", "to_memory"]

_Array: TypeAlias = np.ndarray[Any, Any]

_QUIET = np.uint32(1 << 22)
"""The bit of a float32 nan that makes it quiet."""


def to_memory(values: Any, type: ScalarType) -> _Array:
    """Return floats rounded half to even as memory of a 16-bit type; bfloat16 as bits.

    >>> from mixad.scalar.types import BF16
    >>> [hex(bits) for bits in to_memory([1.0, 1.00390625, -3.4e38], BF16)]
    ['0x3f80', '0x3f80', '0xff80']
    """
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if not type.brain:
            return np.asarray(values.astype(type.dtype))
        bits = _to_odd(values).view(np.uint32)
        is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        halfway = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        near = np.where(is_nan, bits | _QUIET, bits + halfway)
        return np.asarray(near >> np.uint32(16)).astype(np.uint16)


def from_memory(memory: _Array, type: ScalarType) -> _Array:
    """Return memory of a 16-bit type as the float32 numbers that it holds."""
    with np.errstate(all="ignore"):
        if not type.brain:
            return np.asarray(memory.astype(np.float32))
        return (memory.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_to_type(values: Any, type: ScalarType) -> _Array:
    """Return floats as float32 numbers that a 16-bit type holds."""
    return from_memory(to_memory(values, type), type)


def _to_odd(values: _Array) -> _Array:
    """Return float64 as float32 such that a second rounding is the right one.

    What is inexact becomes the neighbour with an odd last bit (Boldo, Melquiond: "Emulation of a
    FMA and Correctly Rounded Sums", IEEE Trans. Computers 57, 2008).
    """
    near = np.atleast_1d(values.astype(np.float32))
    missing = np.abs(np.atleast_1d(values)) - np.abs(near.astype(np.float64))
    bits = near.view(np.uint32)
    step = np.where(missing > 0, 1, np.where(missing < 0, -1, 0)).astype(np.int32)
    odd = np.where((bits & 1) == 0, bits + step.view(np.uint32), bits)
    return np.asarray(odd.astype(np.uint32).view(np.float32).reshape(values.shape))
