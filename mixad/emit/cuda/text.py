"""The text of a CUDA C++ module as it grows: names, types, literals, the user's lines."""

from __future__ import annotations

import math
import string
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType

from mixad.scalar.ir import Const, Line
from mixad.scalar.types import ScalarType

__all__ = ["Text", "c_type", "literal"]

_TYPES = MappingProxyType({
    "bool": "bool", "f32": "float", "f64": "double",
    "f16": "unsigned short", "bf16": "unsigned short",  # in memory: see mixad.emit.cuda.narrow
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned", "u64": "unsigned long long",
})  # fmt: skip


def c_type(type: ScalarType) -> str:
    """Return a scalar type as CUDA C++ spells it."""
    return _TYPES[type.name]


def literal(const: Const) -> str:
    """Return a constant with exactly its bits and its type."""
    value, type = const.value, const.type
    if type.is_bool:
        return "true" if value else "false"
    if type.is_float:
        return _float_literal(float(value), type)
    suffix = ("u" if type.kind == "uint" else "") + ("ll" if type.bits == 64 else "")
    number = f"{value}{suffix}"
    if type.kind == "int" and value == -(1 << (type.bits - 1)):
        number = f"({value + 1}{suffix} - 1)"  # its magnitude is no int
    return f"({c_type(type)})({number})"


def _float_literal(value: float, type: ScalarType) -> str:
    if not math.isfinite(value):
        code, name = ("<f", "i") if type.bits == 32 else ("<d", "q")
        bits = int.from_bytes(struct.pack(code, value), "little")
        suffix = "u" if name == "i" else "ull"
        return f"from_bits<{c_type(type)}>({bits:#x}{suffix})"
    if type.bits == 32:  # rounded once, here
        value = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"{value.hex()}f"
    return value.hex()


class Text:
    """Lines of a module, indented by the braces that are open."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._origin: str | None = None  # of statements that come from a line of the user's

    def add(self, line: str) -> None:
        """Add a statement; one that comes from a line of the user's is said to be there."""
        if self._origin is not None:
            self.lines.append(self._origin)
        self.lines.append("  " * self._depth + line)

    def paste(self, text: str) -> None:
        """Add lines as they are."""
        self.lines += text.strip("\n").split("\n")

    def name(self, letter: str = "t") -> str:
        """Return a new name; the user's never appear in the text."""
        self._names += 1
        return f"{letter}{self._names}"

    def let(self, type: ScalarType | str, expression: str) -> str:
        """Add a constant with a new name; return the name."""
        name = self.name()
        spelled = type if isinstance(type, str) else c_type(type)
        self.add(f"const {spelled} {name} = {expression};")
        return name

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """Add a block."""
        self.add(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    def user_line(self, line: Line) -> None:
        """Add the user's line that what follows comes from, as a comment, and say where it is.

        The bar at the end keeps a backslash there from joining the next line to the comment.
        """
        self._origin = None
        shown = line.shown.encode("ascii", "backslashreplace").decode("ascii")
        self.add(f"// {shown} |")
        self._origin = f'#line {line.number} "{_quote_name(line.filename)}"'

    def own_lines(self) -> None:
        """Say that what follows is mixad's own."""
        if self._origin is not None:
            self._origin = None
            self.lines.append(f'#line {len(self.lines) + 2} "mixad.cu"')


_PLAIN = frozenset(string.ascii_letters + string.digits + "_./-")


def _quote_name(name: str) -> str:
    """Return the name of a file for a string of C: what might end it as octal numbers of bytes."""
    return "".join(
        chr(byte) if chr(byte) in _PLAIN else f"\\{byte:03o}"
        for byte in name.encode("utf-8", "surrogatepass")
    )
