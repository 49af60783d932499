"""One type for the values that different paths give to one name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from mixad.scalar.ir import Atom
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values import Captured, Scalar, Tuple, Value
from mixad.scalar.promotion_rules import Rules, Typed

__all__ = [
    "Fixed",
    "Mismatch",
    "Shape",
    "atoms_of",
    "filler",
    "joined",
    "rebuilt",
    "shape_of",
    "types_in",
]


class Mismatch(Exception):  # noqa: N818  (caught at once, never shown)
    """Two values have no common type."""


@dataclass(frozen=True)
class Fixed:
    """The shape of a value that is no number: it must be the same on all paths."""

    value: Value


Shape: TypeAlias = "Typed | Fixed | tuple[Shape, ...]"


def shape_of(value: Value) -> Shape:
    """Return the types inside a value."""
    if isinstance(value, Scalar):
        return value.typed
    if isinstance(value, Captured):
        return Typed(value.argument.type, value.argument.weak)
    if isinstance(value, Tuple):
        return tuple(map(shape_of, value.items))
    return Fixed(value)


def joined(rules: Rules, a: Shape, b: Shape) -> Shape:
    """Return the shape that both fit into.

    Raises
    ------
    Mismatch
        If there is none.
    """
    if isinstance(a, Typed) and isinstance(b, Typed):
        found = a if a == b else rules.join(a, b)
        if found is not None:
            return found
    elif isinstance(a, Fixed) and isinstance(b, Fixed):
        if a == b:
            return a
    elif not any(isinstance(s, Typed | Fixed) for s in (a, b)) and len(a) == len(b):  # type: ignore[arg-type]
        return tuple(joined(rules, x, y) for x, y in zip(a, b, strict=True))  # type: ignore[arg-type]
    raise Mismatch


def types_in(shape: Shape) -> Iterator[Typed]:
    """Yield the types of the numbers in a shape, in order."""
    if isinstance(shape, Typed):
        yield shape
    elif not isinstance(shape, Fixed):
        for item in shape:
            yield from types_in(item)


def atoms_of(frame: Frame, value: Value, shape: Shape, node: Located) -> list[Atom]:
    """Return the numbers in a value, converted to a shape's types; ``node`` is for messages."""
    if isinstance(value, Captured):
        value = frame.walk.capture(value.name, value.address, value.argument)
    if isinstance(value, Scalar):
        assert isinstance(shape, Typed)
        return [frame.adopt(value, shape.type, node)]
    if isinstance(value, Tuple):
        pairs = zip(value.items, shape, strict=True)  # type: ignore[arg-type]
        return [atom for item, part in pairs for atom in atoms_of(frame, item, part, node)]  # type: ignore[arg-type]
    return []


def filler(frame: Frame, shape: Shape) -> list[Atom]:
    """Return zeros for a shape: what a name holds where nothing reads it."""
    return [frame.builder.const(0, typed.type) for typed in types_in(shape)]


def rebuilt(shape: Shape, atoms: Iterator[Atom]) -> Value:
    """Return the value of a shape whose numbers are ``atoms``, taken in order."""
    if isinstance(shape, Typed):
        return Scalar(next(atoms), shape.weak)
    if isinstance(shape, Fixed):
        return shape.value
    return Tuple(tuple(rebuilt(part, atoms) for part in shape))
