"""Small arrays, whose elements are variables."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from mixad.scalar.parse.complex_arithmetic import as_complex
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.values.sequence import OwnItems, Tuple
from mixad.scalar.parse.values.value import Number, Scalar, Value

__all__ = ["Array"]


@dataclass(frozen=True, slots=True)
class Array(OwnItems):
    """A small array, of one axis or of rows: a tuple in all but its operators."""

    has_attributes: ClassVar[bool] = True
    has_axes: ClassVar[bool] = True
    is_shared: bool = True

    def describe(self) -> str:
        return f"array of {len(self.items)}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        first = self.items[0] if self.items else None
        return (len(self.items), *(first.shape if isinstance(first, Array) else ()))

    @property
    def concatenates(self) -> bool:
        """No: `+` would add its elements."""
        return False

    def attribute(self, frame: Any, name: str) -> Value | None:
        if name == "shape":
            return Tuple(tuple(map(frame.constant, self.shape)))
        size = {"ndim": len(self.shape), "size": math.prod(self.shape)}.get(name)
        return None if size is None else frame.constant(size)

    def takes_index(self, number: Scalar) -> bool:
        return not number.atom.type.is_bool

    def selection(self, items: tuple[Value, ...]) -> Tuple:
        """Return several of its items: a view, which shares its elements."""
        return Array(tuple([item.mark_shared() for item in items]))

    def store_value(self, frame: Frame, target: ast.Subscript, old: Value, value: Value) -> Value:
        """Return what an element becomes: it keeps its type, as NumPy has it."""
        if isinstance(old, Number) and not (old.typed.weak or old.is_complex):
            return frame.convert(value.scalar(frame, target), old.typed)
        stored = OwnItems.store_value(self, frame, target, old, value)
        if not isinstance(old, Number) or old.typed.weak:
            return stored
        z = as_complex(frame, target, stored.number(frame, target))
        return z.of_parts([frame.convert(part, old.typed) for part in z.parts()])
