"""Elements of arrays at indices that the program computes: read, or added to.

Negative indices count from the end, as Python's do.  An index outside is noted in a word of the
call, for the host to raise an IndexError, and reads an element inside instead.  It also asks the
kernel to stop: a loop that looks for something in the array would otherwise never find it.

Lanes add one after another, for several may have the same index; where all have one, they are added
up before.  A lane that is switched off, or is outside, adds zero to the first element, which
changes no sum: sums begin as +0.0 and are never -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mixad.emit.llvm.combine import lane_of, lane_sum
from mixad.emit.llvm.operands import from_memory
from mixad.emit.llvm.text import GANG, Text, Value, llvm_type, memory_type
from mixad.scalar.ir import Const
from mixad.scalar.types import BOOL, I64, ScalarType

__all__ = ["Array", "add_to_array", "gathered"]


@dataclass(frozen=True)
class Array:
    """An array param in the text of a kernel.

    Attributes
    ----------
    number : int
        Index of the param, or of an output after the params.
    start, outside, stop : str
        Pointers to the first element, to the word that an index outside is noted in, and to that
        which asks the kernel to stop.
    extents, strides : list of str
        Along each axis, elements and bytes.
    type : ScalarType
        Type of the elements, of an accumulator that of its sums.
    """

    number: int
    start: str
    extents: list[str]
    strides: list[str]
    outside: str
    stop: str
    type: ScalarType


def gathered(text: Text, array: Array, indices: Sequence[Value], mask: Value | None) -> Value:
    """Emit a read of one element for each lane, or of one for the gang if the indices are uniform.

    Lanes that a mask switches off read nothing.
    """
    offset, inside = _located(text, array, indices, mask)
    # The first element is there to be read even in an array that has none (`Binding.filled`).
    offset = text.select(inside, offset, text.const(Const(0, I64)))
    if not any(i.lanes for i in indices):
        pointer = text.let(f"getelementptr i8, ptr {array.start}, i64 {offset.text}")
        loaded = text.let(f"load {memory_type(array.type, False)}, ptr {pointer}, align 1")
        return from_memory(text, loaded, array.type, lanes=False)
    return from_memory(text, _gang(text, array, offset), array.type, lanes=True)


def add_to_array(
    text: Text, array: Array, indices: Sequence[Value], value: Value, mask: Value
) -> None:
    """Emit the addition of a value, of the array's type, for each lane that a mask has."""
    offset, inside = _located(text, array, indices, mask)
    is_on = text.both(mask, inside)
    zero = Value("zeroinitializer", array.type, True)
    value = text.select(is_on, text.splat(value), zero)
    offset = text.select(is_on if offset.lanes else inside, offset, text.const(Const(0, I64)))
    if not offset.lanes:  # one element gets all: the lanes are added up by halves
        pointer = text.let(f"getelementptr i8, ptr {array.start}, i64 {offset.text}")
        _add_lane(text, array, pointer, lane_sum(text, value))
        return
    for lane in range(GANG):
        at = text.let(f"extractelement {offset}, i64 {lane}")
        pointer = text.let(f"getelementptr i8, ptr {array.start}, i64 {at}")
        _add_lane(text, array, pointer, lane_of(text, value, lane))


def _add_lane(text: Text, array: Array, pointer: str, value: Value) -> None:
    element, align = llvm_type(array.type, False), array.type.itemsize
    old = text.let(f"load {element}, ptr {pointer}, align {align}")
    plus = "fadd" if array.type.is_float else "add"
    new = text.let(f"{plus} {element} {old}, {value.text}")
    text.add(f"store {element} {new}, ptr {pointer}, align {align}")


def _located(
    text: Text, array: Array, indices: Sequence[Value], mask: Value | None
) -> tuple[Value, Value]:
    """Return the offset of an element in bytes, and whether it is inside; note where it is not."""
    offset, inside = text.const(Const(0, I64)), text.const(Const(True, BOOL))
    for index, extent, stride in zip(indices, array.extents, array.strides, strict=True):
        size = Value(extent, I64, False)
        counted = _from_start(text, index, size)
        inside = _arithmetic(text, "and", inside, _compare(text, "ult", counted, size))
        moved = _arithmetic(text, "mul", counted, Value(stride, I64, False))
        offset = _arithmetic(text, "add", offset, moved)
    _note_outside(text, array, inside, mask)
    return offset, inside


def _from_start(text: Text, index: Value, extent: Value) -> Value:
    """Return an index as a 64-bit integer; a negative one counts from the end."""
    wide = Value(index.text, I64, index.lanes)
    if index.type.bits < I64.bits:
        extend = "sext" if index.type.kind == "int" else "zext"
        wide = text.value(f"{extend} {index} to {wide.llvm}", I64, index.lanes)
    if index.type.kind == "uint":
        return wide
    negative = _compare(text, "slt", wide, text.const(Const(0, I64)))
    return text.select(negative, _arithmetic(text, "add", wide, extent), wide)


def _arithmetic(text: Text, instruction: str, a: Value, b: Value) -> Value:
    lanes = a.lanes or b.lanes
    if lanes:
        a, b = text.splat(a), text.splat(b)
    return text.value(f"{instruction} {a}, {b.text}", a.type, lanes)


def _compare(text: Text, predicate: str, a: Value, b: Value) -> Value:
    if a.lanes:
        b = text.splat(b)
    return text.value(f"icmp {predicate} {a}, {b.text}", BOOL, a.lanes)


def _note_outside(text: Text, array: Array, inside: Value, mask: Value | None) -> None:
    """Note that a lane which is switched on reads outside, and have all loops end."""
    wrong = text.opposite(inside)
    if mask is not None:
        wrong = text.both(mask, wrong)
    note, go_on = text.name(), text.name()
    text.add(f"br i1 {text.any(wrong)}, label %{note}, label %{go_on}")
    text.begin(note)
    text.add(f"store atomic i32 {array.number + 1}, ptr {array.outside} monotonic, align 4")
    text.add(f"store atomic i32 1, ptr {array.stop} monotonic, align 4")
    text.add(f"br label %{go_on}")
    text.begin(go_on)


def _gang(text: Text, array: Array, offset: Value) -> str:
    """Load lane by lane; offsets are inside, so every lane can be read whatever the mask."""
    memory = memory_type(array.type, True)
    element = memory_type(array.type, False)
    gang = "poison"
    for lane in range(GANG):
        at = text.let(f"extractelement {offset}, i64 {lane}")
        pointer = text.let(f"getelementptr i8, ptr {array.start}, i64 {at}")
        loaded = text.let(f"load {element}, ptr {pointer}, align 1")
        gang = text.let(f"insertelement {memory} {gang}, {element} {loaded}, i64 {lane}")
    return gang
