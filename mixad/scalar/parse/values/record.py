"""Named tuples and instances of dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, ClassVar

from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.snapshot import plain_number, scalar_argument
from mixad.scalar.parse.values.object import Object
from mixad.scalar.parse.values.sequence import Items, Tuple
from mixad.scalar.parse.values.value import Value

__all__ = ["Named", "Record", "distinguish", "named_tuple", "record", "static_value"]


class _Fields(Items):
    """What named tuples and dataclasses share: their items are fields of a class."""

    __slots__ = ()

    has_attributes: ClassVar[bool] = True
    kind: Any

    @property
    def fields(self) -> dict[str, Value]:
        """The values of the fields that are not static, by their names."""
        raise NotImplementedError

    @property
    def static_fields(self) -> dict[str, Any]:
        """The objects that static fields are, by their names."""
        return {}

    def attribute(self, frame: Frame, name: str) -> Value | None:
        if name in self.static_fields:
            return static_value(frame, self.static_fields[name], name)
        return self.fields.get(name)

    def refused_attribute(self, spelled: str, name: str) -> tuple[str, str]:
        of_class = inspect.getattr_static(self.kind, name, None)
        if not isinstance(of_class, FunctionType):
            return Items.refused_attribute(self, spelled, name)
        return (
            f"{spelled!r} is a {self.describe()} here: only its fields are read, not {name!r}",
            f"call it by its class, {self.describe()}.{name}({spelled}, ...)",
        )

    def _instead_of_attribute(self) -> str:
        return f"its fields are {', '.join([*self.fields, *self.static_fields])}"

    def describe(self) -> str:
        name: str = self.kind.__name__
        return name

    def suggestion(self, spelled: str) -> str:
        first = next(iter([*self.fields, *self.static_fields]), "x")
        return f"one of its fields, such as {spelled}.{first}"

    @property
    def is_named_tuple(self) -> bool:
        """Whether it is a named tuple."""
        return issubclass(self.kind, tuple)


@dataclass(frozen=True, slots=True)
class Named(_Fields, Tuple):
    """A named tuple: its class, which knows the names."""

    kind: Any

    @property
    def fields(self) -> dict[str, Value]:
        return dict(zip(self.kind._fields, self.items, strict=True))

    @property
    def concatenates(self) -> bool:
        return _is_as_tuples(self.kind, _OPERATORS)

    def known_object(self) -> Any:
        return self.kind(*[item.known_object() for item in self.items])

    def structure(self) -> tuple[Any, tuple[Any, ...]]:
        return self.kind, ()


@dataclass(frozen=True, slots=True)
class Record(_Fields):
    """An instance of a dataclass: its class, fields with their values, and static ones.

    A named tuple whose class is looped over or indexed in its own way is one, too: only its fields
    are known.  ``known`` are the classes and texts of static values: equal values may differ in
    them, 1 from 1.0 and 0.0 from -0.0.
    """

    kind: type
    names: tuple[str, ...]
    static: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    known: tuple[tuple[type, str], ...] = ()

    @property
    def fields(self) -> dict[str, Value]:
        return dict(zip(self.names, self.items, strict=True))

    @property
    def static_fields(self) -> dict[str, Any]:
        return dict(self.static)

    def structure(self) -> tuple[Any, tuple[Any, ...]]:
        return self.kind, () if self.is_named_tuple else (self.names, self.static)


_ITEMS = ("__bool__", "__contains__", "__getitem__", "__iter__", "__len__", "__reversed__")
_OPERATORS = ("__add__", "__mul__", "__radd__", "__rmul__")


def named_tuple(items: tuple[Value, ...], kind: Any) -> Named | Record:
    """Return a named tuple."""
    return Named(items, kind) if _is_as_tuples(kind, _ITEMS) else Record(items, kind, kind._fields)


def _is_as_tuples(kind: Any, methods: Sequence[str]) -> bool:
    return all(getattr(kind, name, None) == getattr(tuple, name, None) for name in methods)


def record(
    items: tuple[Value, ...],
    kind: type,
    names: tuple[str, ...],
    static: tuple[tuple[str, Any], ...],
) -> Record:
    """Return an instance of a dataclass."""
    return Record(items, kind, names, static, distinguish(static))


def distinguish(static: Sequence[tuple[str, Any]]) -> tuple[tuple[type, str], ...]:
    """Return what tells static fields apart that are equal."""
    return tuple([(type(value), repr(value)) for _, value in static])


def static_value(frame: Frame, value: Any, name: str) -> Value:
    """Return what a static field or a default is; numbers, alone or in tuples, are known."""
    if not frame.context.rules.numpy_scalars:
        value = plain_number(value)
    argument = scalar_argument(value)
    if argument is not None:
        return frame.known_number(value, argument)
    if isinstance(value, int):  # a member of an enumeration
        return frame.constant(value)
    if isinstance(value, tuple):
        items = tuple([static_value(frame, v, f"{name}[{i}]") for i, v in enumerate(value)])
        return named_tuple(items, type(value)) if hasattr(value, "_fields") else Tuple(items)
    return Object(value, name)
