"""Growing a function's text: names, types, constants, declarations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mixad.kernel.tiling import GANG
from mixad.scalar.ir import Const
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["ENTRY", "GANG", "Dialect", "Text", "Value", "literal", "llvm_type", "memory_type"]

ENTRY = "mixad_kernel"
"""Symbol of every kernel."""


@dataclass(frozen=True)
class Dialect:
    """What the emitter must know of the machine.

    `vector_functions` are the mangled names of libmvec's functions that can be linked.
    """

    vector_bits: int = 256  # of a register: 128, 256 or 512
    vector_functions: frozenset[str] = field(default_factory=frozenset)
    has_half: bool = False  # instructions between float16 and float32


@dataclass(frozen=True)
class Value:
    """A value in LLVM text: one scalar for the whole gang, or a vector of `GANG` lanes."""

    text: str
    type: ScalarType
    lanes: bool

    @property
    def llvm(self) -> str:
        """Its LLVM type."""
        return llvm_type(self.type, self.lanes)

    def __str__(self) -> str:
        return f"{self.llvm} {self.text}"


def llvm_type(type: ScalarType, lanes: bool) -> str:
    """Return the LLVM type of a value in registers; a 16-bit float is its bits."""
    if type.is_float and not type.is_narrow:
        element = "float" if type.bits == 32 else "double"
    else:
        element = "i1" if type.is_bool else f"i{type.bits}"
    return f"<{GANG} x {element}>" if lanes else element


def memory_type(type: ScalarType, lanes: bool) -> str:
    """Return the LLVM type of a value in memory, where a boolean is a byte."""
    return (f"<{GANG} x i8>" if lanes else "i8") if type.is_bool else llvm_type(type, lanes)


def literal(const: Const) -> str:
    """Spell a scalar constant; floats by their bits as a double, as LLVM wants."""
    if const.type.is_float:
        return f"0x{struct.unpack('>Q', struct.pack('>d', const.value))[0]:016X}"
    if const.type.is_bool:
        return "true" if const.value else "false"
    return str(const.value)


class Text:
    """The lines of one function, and the declarations that they need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.label = "entry"
        self._count = 0

    def name(self) -> str:
        """Return a fresh local name; generated names hold no identifier of the user."""
        self._count += 1
        return f"v{self._count}"

    def add(self, line: str) -> None:
        """Add an instruction that has no result."""
        self.lines.append(f"  {line}")

    def comment(self, text: str) -> None:
        """Add a comment; whatever ``text`` holds, it stays one line of printable ASCII."""
        self.lines.append(f"  ; {text.encode('unicode_escape').decode('ascii')}")

    def let(self, expression: str) -> str:
        """Add an instruction and return the name of its result."""
        name = f"%{self.name()}"
        self.add(f"{name} = {expression}")
        return name

    def value(self, expression: str, type: ScalarType, lanes: bool) -> Value:
        """Add an instruction and return its result as a value."""
        return Value(self.let(expression), type, lanes)

    def begin(self, label: str) -> None:
        """Start a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def declare(self, name: str, signature: str) -> str:
        """Declare a function once (``signature`` has ``{}`` for its name); return ``@name``."""
        self.declarations[name] = f"declare {signature.format('@' + name)}"
        return f"@{name}"

    def scheduling_boundary(self) -> None:
        """Add a label that nobody refers to: LLVM's scheduler moves nothing across it."""
        label = self.declare("llvm.codeview.annotation", "void {}(metadata)")
        self.add(f"call void {label}(metadata !2)")

    def reserve(self) -> int:
        """Reserve a line to fill later; return its position for `fill`."""
        self.lines.append("")
        return len(self.lines) - 1

    def fill(self, position: int, line: str) -> None:
        """Give a reserved line its text."""
        self.lines[position] = f"  {line}"

    @contextmanager
    def counting(
        self, low: str, high: str, step: int = 1, stop: str | None = None
    ) -> Iterator[str]:
        """Emit a loop over indices that are yielded; the body is what is added inside the ``with``.

        It runs at least once, and ends early once the 32-bit word at ``stop`` is not zero.
        """
        head, done = self.name(), self.name()
        index, following = f"%{self.name()}", f"%{self.name()}"
        before = self.label
        self.add(f"br label %{head}")
        self.begin(head)
        phi = self.reserve()
        yield index
        self.add(f"{following} = add i64 {index}, {step}")
        again = self.let(f"icmp slt i64 {following}, {high}")
        if stop is not None:
            again = self.let(f"and i1 {again}, {self.is_zero(stop)}")
        self.fill(phi, f"{index} = phi i64 [ {low}, %{before} ], [ {following}, %{self.label} ]")
        self.add(f"br i1 {again}, label %{head}, label %{done}")
        self.begin(done)

    @contextmanager
    def when(self, cond: str, expected: bool) -> Iterator[None]:
        """Emit the body of the ``with`` for the case that an i1 is ``expected``."""
        inside, after = self.name(), self.name()
        targets = (inside, after) if expected else (after, inside)
        self.add(f"br i1 {cond}, label %{targets[0]}, label %{targets[1]}")
        self.begin(inside)
        yield
        self.add(f"br label %{after}")
        self.begin(after)

    def is_zero(self, flag: str) -> str:
        """Return an i1: whether a 32-bit word that other threads may set is still zero."""
        loaded = self.let(f"load atomic i32, ptr {flag} monotonic, align 4")
        return self.let(f"icmp eq i32 {loaded}, 0")

    # -- small idioms ----------------------------------------------------------------------------

    def const(self, const: Const) -> Value:
        """Return a constant as a scalar value."""
        return Value(literal(const), const.type, False)

    def splat(self, value: Value) -> Value:
        """Return a value with the same content in every lane."""
        if value.lanes:
            return value
        vector = llvm_type(value.type, True)
        if not value.text.startswith("%"):
            return Value(f"splat ({value})", value.type, True)
        first = self.let(f"insertelement {vector} poison, {value}, i64 0")
        return self.value(
            f"shufflevector {vector} {first}, {vector} poison, <{GANG} x i32> zeroinitializer",
            value.type,
            True,
        )

    def any(self, mask: Value) -> str:
        """Return an i1: whether some lane of a mask is set."""
        if not mask.lanes:
            return mask.text
        bits = self.let(f"bitcast {mask} to i{GANG}")
        return self.let(f"icmp ne i{GANG} {bits}, 0")

    def all_lanes(self, mask: Value) -> str:
        """Return an i1: whether every lane of a mask is set."""
        return self.let(f"xor i1 {self.any(self.opposite(mask))}, true")

    def both(self, a: Value | None, b: Value) -> Value:
        """Return the lanes that are in both masks; None is every lane."""
        if a is None:
            return b
        a, b = self.splat(a), self.splat(b)
        return self.value(f"and {a}, {b.text}", BOOL, True)

    def opposite(self, mask: Value) -> Value:
        """Return the lanes that are not in a mask."""
        ones = "splat (i1 true)" if mask.lanes else "true"
        return self.value(f"xor {mask}, {ones}", BOOL, mask.lanes)

    def select(self, cond: Value, yes: Value, no: Value) -> Value:
        """Return ``yes`` where ``cond`` holds, else ``no``; by lanes if any of them has lanes."""
        if yes == no:
            return yes
        lanes = cond.lanes or yes.lanes or no.lanes
        if lanes:
            yes, no = self.splat(yes), self.splat(no)
        return self.value(f"select {cond}, {yes}, {no}", yes.type, lanes)
