"""Taking a number out of what is differentiated."""

from __future__ import annotations

from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.values import Scalar
from mixad.scalar.types import I32, I64

__all__ = ["held"]


def held(frame: Frame, x: Scalar) -> Scalar:
    """Return a number as a constant of derivatives: a float goes through its bits."""
    type_ = x.atom.type
    if not type_.is_float:
        return x
    wide = frame.builder.convert(x.atom, type_.arithmetic)
    bits = frame.builder.op("bitcast", wide, type=I64 if type_.bits == I64.bits else I32)
    same = frame.builder.op("bitcast", bits, type=wide.type)
    return Scalar(frame.builder.convert(same, type_), x.weak)
