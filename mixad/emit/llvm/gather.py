"""Elements of arrays at indices that the program computes: read, or changed.

Negative indices count from the end, as Python's do. An index outside is noted in a word of the
call, for the host to raise an IndexError, and reads an element inside instead. It also asks the
kernel to stop: a loop that looks for something in the array would otherwise never find it.

Lanes add one after another, for several may have the same index; where all have one, they are added
up before. A lane that is switched off adds zero to its element, one that is outside to the first,
which changes no sum: sums begin as +0.0 and are never -0.0. Minima and maxima do the same. A write
goes to an element of the lane's own, or, by a lane that is switched off, to a spare one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

from mixad.emit.llvm.combine import lane_of, lane_sum, plus
from mixad.emit.llvm.operands import from_memory
from mixad.emit.llvm.text import GANG, Text, Value, llvm_type, memory_type
from mixad.scalar.ir import Const, UpdateKind
from mixad.scalar.types import BOOL, I64, ScalarType
from mixad.scalar.updates import neutral

__all__ = ["Array", "Element", "checked_element", "emit_gather", "known_element", "touch",
           "update_array"]  # fmt: skip


@dataclass(frozen=True)
class Array:
    """An array param in the text of a kernel; `extents` and `strides` (bytes) are by axis."""

    number: int  # of the param; outputs come after params
    start: str  # pointer to the first element
    extents: list[str]
    strides: list[str]
    outside: str  # pointer to the word for an index outside
    stop: str  # pointer to the stop flag
    type: ScalarType  # of the elements, or of an accumulator's sums
    update: UpdateKind = "add"  # of an accumulator
    spare: str = ""  # pointer to an unread element of a written one


class Element(NamedTuple):
    """Where each lane has the element of an access."""

    pointer: str  # to the element, or the origin of lanes' offsets
    offset: Value | None  # bytes by lane; None if all have one element
    mask: Value | None  # lanes that may change it; None is every lane
    is_row: str | None = None  # an i1: neighbours are neighbours in memory; None if rare


def checked_element(
    text: Text, array: Array, indices: Sequence[Value], mask: Value | None
) -> Element:
    """Emit where the element at some indices is; an index outside is noted.

    Lanes that are outside, or not in the mask, have the first element.
    """
    offset, inside = _locate(text, array, indices, mask)
    # The first element is there to be read even in an array that has none (`ArgumentBlock.filled`).
    offset = text.select(inside, offset, text.const(Const(0, I64)))
    mask = text.both(mask, inside)
    if offset.lanes:
        return Element(array.start, offset, mask)
    return Element(_offset_pointer(text, array.start, offset.text), None, mask)


def known_element(
    text: Text, array: Array, indices: Sequence[tuple[Value, Value | None]], mask: Value | None
) -> Element:
    """Emit where the element at some indices is, which are inside in all lanes.

    Each index may be the sum of a varying and a uniform one. The varying one stays apart, since it
    is usually the same in every iteration of a loop.
    """
    pointer, apart = array.start, list[Value]()
    for (index, same), stride in zip(indices, array.strides, strict=True):
        step = Value(stride, I64, False)
        for part in (index, same):
            if part is None:
                continue
            moved = _arithmetic(text, "mul", _widen_index(text, part), step)
            if moved.lanes:
                apart.append(moved)
            else:
                pointer = _offset_pointer(text, pointer, moved.text)
    if not apart:
        return Element(pointer, None, mask)
    offset = reduce(partial(_arithmetic, text, "add"), apart)
    return Element(pointer, offset, mask, _is_row(text, array, offset))


def _is_row(text: Text, array: Array, offset: Value) -> str:
    """Return an i1: whether neighbouring lanes have neighbouring elements."""
    lanes = ", ".join(f"i64 {lane * array.type.itemsize}" for lane in range(GANG))
    first = Value(text.let(f"extractelement {offset}, i64 0"), I64, False)
    row = _arithmetic(text, "add", first, Value(f"<{lanes}>", I64, True))
    return text.all_lanes(_compare(text, "eq", offset, row))


def emit_gather(text: Text, array: Array, at: Element) -> Value:
    """Emit a read of one element for each lane, or of one for the gang if all are the same."""
    if at.offset is None:
        loaded = text.let(f"load {memory_type(array.type, False)}, ptr {at.pointer}, align 1")
        return from_memory(text, loaded, array.type, lanes=False)
    if at.is_row is None:
        loaded = _gang(text, array, at.pointer, at.offset)
        return from_memory(text, loaded, array.type, lanes=True)
    row, lanes, join = (text.name() for _ in range(3))
    text.add(f"br i1 {at.is_row}, label %{row}, label %{lanes}")
    text.begin(row)
    pointer, memory = _lane_pointer(text, at.pointer, at.offset, 0), memory_type(array.type, True)
    together = text.let(f"load {memory}, ptr {pointer}, align {array.type.itemsize}")
    text.add(f"br label %{join}")
    text.begin(lanes)
    apart = _gang(text, array, at.pointer, at.offset)
    text.add(f"br label %{join}")
    text.begin(join)
    loaded = text.let(f"phi {memory} [ {together}, %{row} ], [ {apart}, %{lanes} ]")
    return from_memory(text, loaded, array.type, lanes=True)


def touch(text: Text, at: Element) -> None:
    """Load the element of each lane for nothing: only loads make memory read ahead."""
    for lane in range(1 if at.offset is None else GANG):
        pointer = _lane_pointer(text, at.pointer, at.offset, lane)
        text.let(f"load volatile i8, ptr {pointer}, align 1")


def update_array(text: Text, array: Array, at: Element, value: Value, elements: Value) -> None:
    """Emit the change of an element by a value, of the array's type, for each lane that has one."""
    mask = text.both(at.mask, elements)
    if array.update == "write":
        _write(text, array, at, value, mask)
        return
    start = text.const(Const(neutral(array.update, array.type), array.type))
    value = text.select(mask, text.splat(value), text.splat(start))
    if at.offset is None and array.update == "add":  # the lanes are added up by halves
        _update_lane(text, array, at.pointer, lane_sum(text, value))
        return
    if array.update == "add":
        _update_lanes(text, array, at, value)
        return
    with text.when(text.any(mask), True):
        _update_lanes(text, array, at, value, None if at.mask is None else mask)


def _update_lanes(
    text: Text, array: Array, at: Element, value: Value, mask: Value | None = None
) -> None:
    """Change the elements of all lanes, or of those in a mask, which are usually few."""
    for lane in range(GANG):
        pointer = _lane_pointer(text, at.pointer, at.offset, lane)
        own = lane_of(text, value, lane)
        if mask is None:
            _update_lane(text, array, pointer, own)
            continue
        with text.when(text.let(f"extractelement {text.splat(mask)}, i64 {lane}"), True):
            _update_lane(text, array, pointer, own)


def _update_lane(text: Text, array: Array, pointer: str, value: Value) -> None:
    element, align = llvm_type(array.type, False), array.type.itemsize
    old = Value(text.let(f"load {element}, ptr {pointer}, align {align}"), array.type, False)
    new = plus(text, old, value) if array.update == "add" else _extreme(text, array, old, value)
    text.add(f"store {new}, ptr {pointer}, align {align}")


def _extreme(text: Text, array: Array, old: Value, value: Value) -> Value:
    """Return the smaller or larger of two numbers, nan if one is; the first of equal ones."""
    type, is_min = array.type, array.update == "min"
    if type.is_float:
        beyond = text.let(f"fcmp {'olt' if is_min else 'ogt'} {value}, {old.text}")
        is_nan = text.let(f"fcmp uno {value}, {value.text}")
        taken = text.let(f"or i1 {beyond}, {is_nan}")
    else:
        order = ("s" if type.kind == "int" else "u") + ("lt" if is_min else "gt")
        taken = text.let(f"icmp {order} {value}, {old.text}")
    return text.select(Value(taken, BOOL, False), value, old)


def _write(text: Text, array: Array, at: Element, value: Value, mask: Value) -> None:
    """Emit a store for each lane in a mask."""
    if at.offset is None and not value.lanes:
        with text.when(text.any(mask), True):
            _store(text, array, at.pointer, value)
        return
    value, all_are_on = text.splat(value), text.all_lanes(mask)
    if at.is_row is None:
        _write_lanes(text, array, at, value, mask, all_are_on)
        return
    is_row = text.let(f"and i1 {at.is_row}, {all_are_on}")
    with text.when(is_row, True):
        _store(text, array, _lane_pointer(text, at.pointer, at.offset, 0), value)
    with text.when(is_row, False):
        _write_lanes(text, array, at, value, mask, all_are_on)


def _write_lanes(
    text: Text, array: Array, at: Element, value: Value, mask: Value, all_are_on: str
) -> None:
    """Emit a store for each lane by itself."""
    lanes = [lane_of(text, value, lane) for lane in range(GANG)]
    pointers = [_lane_pointer(text, at.pointer, at.offset, lane) for lane in range(GANG)]
    with text.when(all_are_on, True):
        for pointer, own in zip(pointers, lanes, strict=True):
            _store(text, array, pointer, own)
    with text.when(all_are_on, False):
        is_on = text.splat(mask)
        for lane, (pointer, own) in enumerate(zip(pointers, lanes, strict=True)):
            bit = text.let(f"extractelement {is_on}, i64 {lane}")
            target = text.let(f"select i1 {bit}, ptr {pointer}, ptr {array.spare}")
            _store(text, array, target, own)


def _store(text: Text, array: Array, pointer: str, value: Value) -> None:
    stored, memory = str(value), memory_type(array.type, value.lanes)
    if array.type.is_bool:
        stored = f"{memory} " + text.let(f"zext {value} to {memory}")
    text.add(f"store {stored}, ptr {pointer}, align {array.type.itemsize}")


def _lane_pointer(text: Text, base: str, offset: Value | None, lane: int) -> str:
    if offset is None:
        return base
    return _offset_pointer(text, base, text.let(f"extractelement {offset}, i64 {lane}"))


def _offset_pointer(text: Text, pointer: str, offset: str) -> str:
    return text.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")


def _locate(
    text: Text, array: Array, indices: Sequence[Value], mask: Value | None
) -> tuple[Value, Value]:
    """Return the offset of an element in bytes, and whether it is inside; note where not."""
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
    wide = _widen_index(text, index)
    if index.type.kind == "uint":
        return wide
    negative = _compare(text, "slt", wide, text.const(Const(0, I64)))
    return text.select(negative, _arithmetic(text, "add", wide, extent), wide)


def _widen_index(text: Text, index: Value) -> Value:
    """Return an index as a 64-bit integer."""
    wide = Value(index.text, I64, index.lanes)
    if index.type.bits < I64.bits:
        extend = "sext" if index.type.kind == "int" else "zext"
        wide = text.value(f"{extend} {index} to {wide.llvm}", I64, index.lanes)
    return wide


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
    """Note that an active lane reads outside, and make all loops end."""
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


def _gang(text: Text, array: Array, pointer: str, offset: Value) -> str:
    """Load lane by lane; offsets are inside, so every lane can be read whatever the mask."""
    memory = memory_type(array.type, True)
    element = memory_type(array.type, False)
    gang = "poison"
    for lane in range(GANG):
        at = _lane_pointer(text, pointer, offset, lane)
        loaded = text.let(f"load {element}, ptr {at}, align 1")
        gang = text.let(f"insertelement {memory} {gang}, {element} {loaded}, i64 {lane}")
    return gang
