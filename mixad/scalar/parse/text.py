"""A function's source text: where a syntax node is, as users see it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Protocol

from mixad.errors import SourceLocation
from mixad.scalar.ir import Line

__all__ = ["Located", "SourceText"]


class Located(Protocol):
    """A syntax node that has a position."""

    lineno: int
    col_offset: int
    end_lineno: int | None
    end_col_offset: int | None


@dataclass(frozen=True, eq=False)
class SourceText:
    """The lines of a file, without line ends; its name is that of the code object."""

    filename: str
    lines: tuple[str, ...]

    def text(self, number: int) -> str:
        """Return a line, counted from 1."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def line(self, node: Located) -> Line:
        """Return the line on which a node starts."""
        return Line(self.filename, node.lineno, self.text(node.lineno))

    def span(self, node: Located) -> Line:
        """Return the line on which a node starts, and where in it the node is."""
        place = self.locate(node)
        return Line(self.filename, node.lineno, place.text, place.column, place.end_column)

    def locate(self, node: Located) -> SourceLocation:
        """Return the span of a node within its first line, in characters."""
        text = self.text(node.lineno)
        encoded = text.encode()
        start = len(encoded[: node.col_offset].decode(errors="replace"))
        end = len(text)
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            end = len(encoded[: node.end_col_offset].decode(errors="replace"))
        if isinstance(node, ast.stmt) and ":" in text and end == len(text):
            end = len(text.rstrip())
        return SourceLocation(self.filename, node.lineno, start, end, text)
