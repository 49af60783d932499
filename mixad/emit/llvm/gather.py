"""Reading elements of an array at indices that the program computes.

Negative indices count from the end, as Python's do.  An index outside is noted in a word of the
call, for the host to raise an IndexError, and reads an element inside instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mixad.emit.llvm.operands import from_memory
from mixad.emit.llvm.text import GANG, Text, Value, memory_type
from mixad.scalar.ir import Const
from mixad.scalar.types import BOOL, I64, ScalarType

__all__ = ["Array", "gathered"]


@dataclass(frozen=True)
class Array:
    """An array param in the text of a kernel.

    Attributes
    ----------
    number : int
        Index of the param.
    start, outside : str
        Pointers to the first element, and to the word that an index outside is noted in.
    extents, strides : list of str
        Along each axis, elements and bytes.
    """

    number: int
    start: str
    extents: list[str]
    strides: list[str]
    outside: str


def gathered(
    text: Text, array: Array, indices: Sequence[Value], mask: Value | None, type: ScalarType
) -> Value:
    """Emit a read of one element for each lane, or of one for the gang if the indices are uniform.

    Parameters
    ----------
    text : Text
        The function that grows.
    array : Array
        What is read.
    indices : sequence of Value
        Integers, one for each axis.
    mask : Value or None
        The lanes that are switched on; None: all.
    type : ScalarType
        Type of the elements.
    """
    lanes = any(i.lanes for i in indices)
    offset = Value("zeroinitializer" if lanes else "0", I64, lanes)
    for index, extent, stride in zip(indices, array.extents, array.strides, strict=True):
        inside = _inside(text, array, _wide(text, index), Value(extent, I64, False), mask)
        moved = _arithmetic(text, "mul", inside, Value(stride, I64, False))
        offset = _arithmetic(text, "add", offset, moved)
    if not lanes:
        pointer = text.let(f"getelementptr i8, ptr {array.start}, i64 {offset.text}")
        loaded = text.let(f"load {memory_type(type, False)}, ptr {pointer}, align 1")
        return from_memory(text, loaded, type, lanes=False)
    return from_memory(text, _gang(text, array, offset, type), type, lanes=True)


def _wide(text: Text, index: Value) -> Value:
    """Return an index as a 64-bit integer."""
    if index.type.bits == 64:
        return Value(index.text, I64, index.lanes)
    extend = "sext" if index.type.kind == "int" else "zext"
    wide = Value("", I64, index.lanes).llvm
    return text.value(f"{extend} {index} to {wide}", I64, index.lanes)


def _arithmetic(text: Text, instruction: str, a: Value, b: Value) -> Value:
    lanes = a.lanes or b.lanes
    if lanes:
        a, b = text.splat(a), text.splat(b)
    return text.value(f"{instruction} {a}, {b.text}", I64, lanes)


def _compare(text: Text, predicate: str, a: Value, b: Value) -> Value:
    if a.lanes:
        b = text.splat(b)
    return text.value(f"icmp {predicate} {a}, {b.text}", BOOL, a.lanes)


def _inside(text: Text, array: Array, index: Value, extent: Value, mask: Value | None) -> Value:
    """Count negative indices from the end; note those outside and replace them by 0."""
    zero = text.const(Const(0, I64))
    negative = _compare(text, "slt", index, zero)
    index = text.select(negative, _arithmetic(text, "add", index, extent), index)
    fits = _compare(text, "ult", index, extent)
    wrong = text.both(mask, text.opposite(fits)) if mask is not None else text.opposite(fits)
    note, go_on = text.name(), text.name()
    text.add(f"br i1 {text.any(wrong)}, label %{note}, label %{go_on}")
    text.begin(note)
    text.add(f"store atomic i32 {array.number + 1}, ptr {array.outside} monotonic, align 4")
    text.add(f"br label %{go_on}")
    text.begin(go_on)
    return text.select(fits, index, zero)


def _gang(text: Text, array: Array, offset: Value, type: ScalarType) -> str:
    """Load lane by lane; offsets are inside, so every lane can be read whatever the mask."""
    memory = memory_type(type, True)
    element = memory_type(type, False)
    gang = "poison"
    for lane in range(GANG):
        at = text.let(f"extractelement {offset}, i64 {lane}")
        pointer = text.let(f"getelementptr i8, ptr {array.start}, i64 {at}")
        loaded = text.let(f"load {element}, ptr {pointer}, align 1")
        gang = text.let(f"insertelement {memory} {gang}, {element} {loaded}, i64 {lane}")
    return gang
