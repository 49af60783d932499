"""Complex numbers: two real ones."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mixad.scalar.ir import Atom
from mixad.scalar.parse.values.value import Number, Scalar, Value
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import ScalarType, complex_of, part_of

__all__ = ["PARTS", "Complex", "number_of_parts", "types_of_parts"]

PARTS = ("real", "imag")
"""The attributes of numbers."""


@dataclass(frozen=True, slots=True)
class Complex(Number):
    """A complex number: its real and its imaginary part, of one type of floats."""

    re: Scalar = field()
    im: Scalar = field()

    def describe(self) -> str:
        return "Python complex" if self.re.weak else str(complex_of(self.typed.type))

    def suggestion(self, spelled: str) -> str:
        inner = spelled if spelled.isidentifier() else f"({spelled})"
        return f"its size, abs({spelled}), or a part of it, such as {inner}.real"

    def scalar(self, frame: Any, node: ast.expr) -> Scalar:
        """Refuse it: it is not real."""
        raise self._not_a_number(frame, node, "real number")

    def truth(self, frame: Any) -> Atom:
        truth: Atom = frame.builder.op("or", self.re.truth(frame), self.im.truth(frame))
        return truth

    def attribute(self, frame: Any, name: str) -> Value | None:
        return {"real": self.re, "imag": self.im}.get(name)

    def parts(self) -> tuple[Scalar, ...]:
        return self.re, self.im

    def of_parts(self, parts: Sequence[Value]) -> Complex:
        return Complex(*parts)  # type: ignore[arg-type]  # of scalars, scalars

    def strong(self) -> Complex:
        return Complex(self.re.strong(), self.im.strong())

    def of_type(self, typed: Typed) -> Complex:
        part = self.re.of_type(typed)
        return Complex(part, part)


def types_of_parts(type_: ScalarType) -> dict[str, ScalarType]:
    """Return the types of the real numbers that a number of a type is, by their attributes."""
    return dict.fromkeys(PARTS, part_of(type_)) if type_.is_complex else {"": type_}


def number_of_parts(parts: Sequence[Scalar]) -> Number:
    """Return the number that one or two real numbers make up."""
    return Complex(*parts) if len(parts) == 2 else parts[0]
