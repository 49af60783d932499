"""What a name of the user's function stands for while it is compiled."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mixad.scalar.ir import Atom, Var
from mixad.scalar.parse.argument import Argument
from mixad.scalar.parse.code import FunctionNode
from mixad.scalar.parse.info import called_by
from mixad.scalar.parse.snapshot import Address
from mixad.scalar.promotion_rules import Typed, Weak
from mixad.scalar.types import complex_of

if TYPE_CHECKING:
    from mixad.scalar.parse.frame import Frame

__all__ = [
    "Array",
    "Bound",
    "Captured",
    "Closure",
    "Complex",
    "Helper",
    "Indexed",
    "List",
    "Named",
    "Number",
    "Object",
    "Record",
    "Scalar",
    "Tuple",
    "Value",
    "a_kind_of",
    "complex_name",
    "element_of",
    "field_names",
    "field_of",
    "has_operators",
    "instead_of_two_kinds",
    "is_called",
    "kind_of",
    "kind_of_object",
    "named_tuple",
    "record",
    "refused_attribute",
    "shape_of_array",
    "told_apart",
    "way_out",
    "with_article",
]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number that the program computes, receives or contains."""

    atom: Atom
    weak: Weak

    @property
    def typed(self) -> Typed:
        """Its type."""
        return Typed(self.atom.type, self.weak)


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number: its real and its imaginary part, of one type of floats."""

    re: Scalar
    im: Scalar

    @property
    def typed(self) -> Typed:
        """The type of its parts."""
        return self.re.typed


Number: TypeAlias = Scalar | Complex


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple: it exists while the function is compiled, not when it runs."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Array(Tuple):
    """A small array, of one axis or of rows: a tuple in all but its operators.

    ``is_shared``: whether it may go by another name, too; then it is not assigned to.
    """

    is_shared: bool = True


@dataclass(frozen=True, slots=True)
class List(Tuple):
    """A list; ``is_shared``: whether it may go by another name, too."""

    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Named(Tuple):
    """A named tuple: its class, which knows the names."""

    kind: Any


@dataclass(frozen=True, slots=True)
class Record:
    """An instance of a dataclass: its class, fields with their values, and static ones.

    Also a named tuple whose class has its own way to be looped over or indexed: nothing is known of
    it but its fields.

    Classes of static values tell 1 from 1.0, their texts 0.0 from -0.0.
    """

    items: tuple[Value, ...]
    kind: type
    names: tuple[str, ...]
    static: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    known: tuple[tuple[type, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Captured:
    """An array or tracer from outside: a scalar per element, or an array if it is indexed."""

    address: Address
    name: str
    argument: Argument


@dataclass(frozen=True, slots=True)
class Indexed:
    """An argument that is read by index: the array params that it is, two if it is complex.

    ``lead`` are the indices of its first axes, which the function does not write.
    """

    name: str
    argument: Argument
    arrays: tuple[Var, ...]
    lead: tuple[Var, ...] = ()


@dataclass(frozen=True, slots=True)
class Helper:
    """A Python function from outside, by its place in the snapshot; ``kind`` is for messages."""

    index: int
    kind: str = field(default="function", compare=False)


@dataclass(frozen=True, slots=True)
class Closure:
    """A function or lambda defined inside the compiled one."""

    node: FunctionNode
    frame: Frame
    defaults: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Object:
    """Any other Python object: a built-in function, a module, None, a string."""

    value: Any
    name: str = ""


Value: TypeAlias = (
    Scalar | Complex | Tuple | Record | Captured | Indexed | Helper | Closure | Object
)


_ITEMS = ("__bool__", "__contains__", "__getitem__", "__iter__", "__len__", "__reversed__")
_OPERATORS = ("__add__", "__mul__", "__radd__", "__rmul__")


def named_tuple(items: tuple[Value, ...], kind: Any) -> Named | Record:
    """Return a named tuple."""
    return Named(items, kind) if _is_as_tuples(kind, _ITEMS) else Record(items, kind, kind._fields)


def record(
    items: tuple[Value, ...],
    kind: type,
    names: tuple[str, ...],
    static: tuple[tuple[str, Any], ...],
) -> Record:
    """Return an instance of a dataclass."""
    return Record(items, kind, names, static, told_apart(static))


def told_apart(static: Sequence[tuple[str, Any]]) -> tuple[tuple[type, str], ...]:
    """Return what tells static fields apart that are equal."""
    return tuple([(type(value), repr(value)) for _, value in static])


def has_operators(value: Value) -> bool:
    """Whether a value is a named tuple whose class adds or multiplies in its own way."""
    return isinstance(value, Named) and not _is_as_tuples(value.kind, _OPERATORS)


def _is_as_tuples(kind: Any, methods: Sequence[str]) -> bool:
    return all(getattr(kind, name, None) == getattr(tuple, name, None) for name in methods)


class Bound(NamedTuple):
    """The value of a name, and the line that gave it."""

    value: Value
    line: int


def kind_of(value: Value) -> str:
    """Describe a value's type for a message."""
    match value:
        case Scalar():
            return str(value.typed)
        case Complex():
            return complex_name(value.typed)
        case Named() | Record():
            return value.kind.__name__
        case Array():
            return f"array of {len(value.items)}"
        case List():
            return f"list of {len(value.items)}"
        case Tuple():
            return f"tuple of {len(value.items)}"
        case Captured() | Indexed():
            return _kind_of_array(value)
        case Helper():
            return value.kind
        case Closure():
            return "function"
    return kind_of_object(value.value)


def _kind_of_array(value: Captured | Indexed) -> str:
    """Describe an array: one from outside may stand for its elements."""
    type_ = str(value.argument.type)
    if isinstance(value, Indexed):
        why = "" if value.argument.batch is None else ", as its core is too long to be variables"
        return f"array of {type_} that is read by index{why}"
    return f"captured array of {type_}" if value.argument.rank else type_


def a_kind_of(value: Value) -> str:
    """Describe a value's type for a message, with the article."""
    return with_article(kind_of(value))


def with_article(kind: str) -> str:
    """Return the description of a type with its article."""
    if kind == "NoneType":
        return "None"
    return f"an {kind}" if kind.startswith("array") else f"a {kind}"


def instead_of_two_kinds(one: str, other: str, otherwise: str) -> str:
    """Return what to write where a name is of two types, by their descriptions."""
    if {one.partition(" ")[0], other.partition(" ")[0]} == {"array", "list"}:
        return "a list in both cases, such as list(w), or an array, such as np.array([x, y])"
    return otherwise


def complex_name(part: Typed) -> str:
    """Describe the type of complex numbers with parts of a type."""
    return "Python complex" if part.weak else str(complex_of(part.type))


def kind_of_object(value: Any) -> str:
    """Describe an object's type for a message; what is called like a function may be none."""
    if isinstance(value, type):
        return "class"
    if isinstance(value, functools.partial):
        return "functools.partial"
    if isinstance(value, _FUNCTIONS) or called_by(value) is not None:
        return "function"
    return f"{type(value).__name__} object" if callable(value) else type(value).__name__


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, np.ufunc, type(np.where))


def field_names(value: Named | Record) -> tuple[str, ...]:
    """Return the names of what a named tuple or a dataclass holds."""
    if isinstance(value, Named):
        return tuple(value.kind._fields)
    return (*value.names, *(name for name, _ in value.static))


def shape_of_array(value: Array) -> tuple[int, ...]:
    """Return the lengths of a small array's axes."""
    first = value.items[0] if value.items else None
    return (len(value.items), *(shape_of_array(first) if isinstance(first, Array) else ()))


def field_of(value: Named | Record, name: str) -> Value | None:
    """Return the value of a field that is not static, None if there is none."""
    names = value.kind._fields if isinstance(value, Named) else value.names
    return value.items[names.index(name)] if name in names else None


def is_called(value: Value) -> bool:
    """Whether a value is there to be called."""
    called = isinstance(value, Object) and callable(value.value)
    return called or isinstance(value, Helper | Closure)


def refused_attribute(value: Value, spelled: str, name: str) -> tuple[str, str]:
    """Return the message and the hint for an attribute that a value does not have in a kernel."""
    here, lacks = f"{spelled!r} is {a_kind_of(value)} here", f"it has no attribute {name!r}"
    if isinstance(value, Named | Record):
        of_class = inspect.getattr_static(value.kind, name, None)
        if isinstance(of_class, FunctionType):
            called = f"{value.kind.__name__}.{name}({spelled}, ...)"
            return (
                f"{here}: only its fields are read, not {name!r}",
                f"call it by its class, {called}",
            )
        return f"{here}: {lacks}", f"its fields are {', '.join(field_names(value))}"
    if isinstance(value, List):
        instead = "a list of its final length, such as [0.0] * 3, and out[i] = ..."
        return f"{here}: {lacks}", instead
    if isinstance(value, Indexed):
        return f"{here}: {lacks}", "pass its lengths as arguments"
    return f"{here}: {lacks}", "use functions and operators of numbers"


def element_of(array: Indexed, spelled: str) -> str:
    """Return how an element of an array is written."""
    return f"{spelled}[{', '.join('ijklmn'[: array.argument.indices])}]"


def way_out(value: Value, spelled: str) -> str:
    """Return what to write in place of something that is no number."""
    if isinstance(value, Complex):
        inner = spelled if spelled.isidentifier() else f"({spelled})"
        return f"its size, abs({spelled}), or a part of it, such as {inner}.real"
    if isinstance(value, Named | Record):
        return f"one of its fields, such as {spelled}.{next(iter(field_names(value)), 'x')}"
    if isinstance(value, Tuple):
        return "unpack it, or index it with a constant"
    if isinstance(value, Indexed):
        return f"read an element of it, {element_of(value, spelled)}"
    if not isinstance(value, Object):
        return "call it"
    if isinstance(value.value, np.complexfloating):  # of long doubles
        return f"complex({spelled})"
    for kind, hint in _INSTEAD.items():
        if isinstance(value.value, kind):
            return hint
    return "call it" if callable(value.value) else "pass its numbers as arguments"


_INSTEAD: Mapping[type, str] = MappingProxyType({
    set: "make it a tuple",
    dict: "read its numbers before the call, into names of their own",
    str: "a number or a bool stands for it; strings are only compared, with == and !=",
    type(None): "a number, or test it with `is None`",
    np.ndarray: "pass it as an argument",
})  # fmt: skip
