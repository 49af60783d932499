"""One type for the values that different paths give to one name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mixad.scalar.ir import Atom
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values import Array, Captured, Complex, List, Record, Scalar, Tuple, Value
from mixad.scalar.promotion_rules import Rules, Typed
from mixad.scalar.types import F32, part_of

__all__ = [
    "Fixed",
    "Mismatch",
    "OfComplex",
    "Parts",
    "Shape",
    "atoms_of",
    "filler",
    "joined",
    "parts_type",
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


@dataclass(frozen=True)
class OfComplex:
    """The shape of a complex number: the type of its parts."""

    part: Typed


@dataclass(frozen=True)
class Parts:
    """The shape of a value that is made of others: what it is without them, and their shapes."""

    whole: Tuple | Record
    items: tuple[Shape, ...]


Shape: TypeAlias = Typed | OfComplex | Fixed | Parts


def shape_of(value: Value) -> Shape:
    """Return the types inside a value."""
    if isinstance(value, Scalar):
        return value.typed
    if isinstance(value, Complex):
        return OfComplex(value.typed)
    if isinstance(value, Captured):
        typed = Typed(value.argument.type, value.argument.weak)
        return OfComplex(Typed(part_of(typed.type), typed.weak)) if typed.type.is_complex else typed
    if isinstance(value, Tuple | Record):
        return Parts(replace(value, items=()), tuple(map(shape_of, value.items)))
    return Fixed(value)


def parts_type(rules: Rules, types: Sequence[Typed]) -> Typed | None:
    """Return the type of the parts of a complex number made of numbers, None where there is none.

    One of the types is that of the parts of a complex number.  16 bits are too few for parts.
    """
    found: Typed | None = types[0]
    for other in types[1:]:
        found = None if found is None else found if found == other else rules.join(found, other)
    return found._replace(type=F32) if found is not None and found.type.is_narrow else found


def joined(rules: Rules, a: Shape, b: Shape) -> Shape:
    """Return the shape that both fit into; raise Mismatch if there is none."""
    if isinstance(a, Typed) and isinstance(b, Typed):
        found = a if a == b else rules.join(a, b)
        if found is not None:
            return found
    elif isinstance(a, OfComplex | Typed) and isinstance(b, OfComplex | Typed):
        part = parts_type(rules, [s.part if isinstance(s, OfComplex) else s for s in (a, b)])
        if part is not None:
            return OfComplex(part)
    elif isinstance(a, Fixed) and isinstance(b, Fixed):
        if a == b:
            return a
    elif isinstance(a, Parts) and isinstance(b, Parts) and len(a.items) == len(b.items):
        pairs = zip(a.items, b.items, strict=True)
        return Parts(_one_whole(a.whole, b.whole), tuple(joined(rules, x, y) for x, y in pairs))
    raise Mismatch


def _one_whole(a: Tuple | Record, b: Tuple | Record) -> Tuple | Record:
    """Return what two values are without their items: shared if one of them is."""
    if a == b:
        return a
    if type(a) is type(b) and isinstance(a, Array | List):  # they differ in that alone
        return replace(a, is_shared=True)
    raise Mismatch


def types_in(shape: Shape) -> Iterator[Typed]:
    """Yield the types of the numbers in a shape, in order."""
    if isinstance(shape, Typed):
        yield shape
    elif isinstance(shape, OfComplex):
        yield from (shape.part, shape.part)
    elif isinstance(shape, Parts):
        for item in shape.items:
            yield from types_in(item)


def atoms_of(frame: Frame, value: Value, shape: Shape, node: Located) -> list[Atom]:
    """Return the numbers in a value, converted to a shape's types; ``node`` is for messages."""
    if isinstance(value, Captured):
        value = frame.walk.capture(value.name, value.address, value.argument)
    if isinstance(shape, OfComplex):
        return _parts_of(frame, value, shape.part, node)
    if isinstance(value, Scalar):
        assert isinstance(shape, Typed)
        return [frame.adopt(value, shape.type, node)]
    if isinstance(value, Tuple | Record):
        assert isinstance(shape, Parts)
        pairs = zip(value.items, shape.items, strict=True)
        return [atom for item, part in pairs for atom in atoms_of(frame, item, part, node)]
    return []


def _parts_of(frame: Frame, value: Value, part: Typed, node: Located) -> list[Atom]:
    """Return the parts of a number; the imaginary one of a real number is zero."""
    if isinstance(value, Complex):
        return [frame.adopt(s, part.type, node) for s in (value.re, value.im)]
    assert isinstance(value, Scalar)
    return [frame.adopt(value, part.type, node), frame.builder.const(0, part.type)]


def filler(frame: Frame, shape: Shape) -> list[Atom]:
    """Return zeros for a shape: what a name holds where nothing reads it."""
    return [frame.builder.const(0, typed.type) for typed in types_in(shape)]


def rebuilt(shape: Shape, atoms: Iterator[Atom]) -> Value:
    """Return the value of a shape whose numbers are ``atoms``, taken in order."""
    if isinstance(shape, Typed):
        return Scalar(next(atoms), shape.weak)
    if isinstance(shape, OfComplex):
        re, im = (Scalar(next(atoms), shape.part.weak) for _ in range(2))
        return Complex(re, im)
    if isinstance(shape, Fixed):
        return shape.value
    return replace(shape.whole, items=tuple(rebuilt(part, atoms) for part in shape.items))
