"""Taking a number out of what is differentiated."""

from __future__ import annotations

from mixad.scalar.ir import Atom
from mixad.scalar.parse.frame import Frame
from mixad.scalar.types import I32, I64

__all__ = ["constant"]


def constant(frame: Frame, atom: Atom) -> Atom:
    """Take a float through its bits: the same number, and no derivative follows."""
    type_ = atom.type
    if not type_.is_float:
        return atom
    wide = frame.builder.convert(atom, type_.arithmetic)
    bits = frame.builder.op("bitcast", wide, type=I64 if type_.bits == I64.bits else I32)
    same = frame.builder.op("bitcast", bits, type=wide.type)
    return frame.builder.convert(same, type_)
