"""Where a gang's inputs are read from: the array itself, or a staging area on the stack.

A gang that is not full, or that moves by a stride, is copied to its stage first, padded with an
element of its own, so that every gang runs the same code over full vectors.
"""

from __future__ import annotations

from mixad.emit.llvm.combine import LINE, Gang, copy_memory, element_at
from mixad.emit.llvm.text import GANG, Text, Value, llvm_type, memory_type
from mixad.kernel.spec import Operand
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["Reader", "from_memory", "scalar_at"]


class Reader:
    """Reads one operand gang by gang.

    ``stride`` names the innermost stride in bytes, for the step "any".
    """

    def __init__(self, text: Text, operand: Operand, stride: str | None) -> None:
        self.text = text
        self.type = operand.type
        self.step = operand.step
        self.stride = stride
        self.row = ""
        self.pointer = ""
        if self.step != "zero":
            self.stage = text.let(f"alloca {memory_type(self.type, True)}, align {LINE}")

    @property
    def streams(self) -> bool:
        """Whether full gangs are read from the array itself."""
        return self.step == "unit"

    def element_pointer(self, pointer: str, index: str) -> str:
        """Return the pointer to an element of the array."""
        return element_at(self.text, pointer, index, self.type)

    def begin_row(self, start: str) -> None:
        """Start a row at a pointer."""
        self.row = start

    def begin_gang(self, gang: Gang, base: str | None) -> None:
        """Decide where a gang is read from; ``base`` is where element 0 of the row seems to be."""
        if base is not None:
            self.pointer = self.element_pointer(base, gang.here)
        elif self.step == "zero":
            self.pointer = self.row
        else:
            self.copy_strided(gang)
            self.pointer = self.stage

    def fill_stage(self, here: str, count: str) -> None:
        """Copy the last elements of a row, fewer than a gang, padded with the first of them."""
        text = self.text
        direct = self.element_pointer(self.row, here)
        byte = ScalarType("uint", 8) if self.type.is_bool else self.type
        first = Value(
            text.let(f"load {llvm_type(byte, False)}, ptr {direct}, align 1"), byte, False
        )
        text.add(f"store {text.splat(first)}, ptr {self.stage}, align {LINE}")
        copy_memory(text, self.stage, direct, count, self.type)

    def copy_strided(self, gang: Gang) -> None:
        """Gather a gang into its stage; lanes beyond the end repeat its first element.

        All operands do so: together the lanes have an element that exists.
        """
        text = self.text
        element = memory_type(self.type, False)
        last = text.let(f"add i64 {gang.count()}, -1")
        offset = text.let(f"mul i64 {gang.here}, {self.stride}")
        first = text.let(f"getelementptr i8, ptr {self.row}, i64 {offset}")
        for lane in range(GANG):
            inside = text.let(f"icmp sle i64 {lane}, {last}")
            index = text.let(f"select i1 {inside}, i64 {lane}, i64 0")
            step = text.let(f"mul i64 {index}, {self.stride}")
            source = text.let(f"getelementptr i8, ptr {first}, i64 {step}")
            loaded = text.let(f"load {element}, ptr {source}, align 1")
            target = text.let(f"getelementptr {element}, ptr {self.stage}, i64 {lane}")
            text.add(f"store {element} {loaded}, ptr {target}, align {self.type.itemsize}")

    def load(self) -> Value:
        """Load the gang's values."""
        if self.step == "zero":
            return scalar_at(self.text, self.pointer, self.type)
        memory = memory_type(self.type, True)
        loaded = self.text.let(f"load {memory}, ptr {self.pointer}, align 1")
        return from_memory(self.text, loaded, self.type, lanes=True)


def scalar_at(text: Text, pointer: str, type: ScalarType) -> Value:
    """Load one value that never changes while a kernel runs."""
    memory = memory_type(type, False)
    loaded = text.let(f"load {memory}, ptr {pointer}, align 1, !invariant.load !1")
    return from_memory(text, loaded, type, lanes=False)


def from_memory(text: Text, loaded: str, type: ScalarType, *, lanes: bool) -> Value:
    """Return a loaded value in its type: bytes become truth values."""
    if not type.is_bool:
        return Value(loaded, type, lanes)
    zero = "zeroinitializer" if lanes else "0"
    return text.value(f"icmp ne {memory_type(type, lanes)} {loaded}, {zero}", BOOL, lanes)
