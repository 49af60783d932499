"""What a name of the user's function stands for while it is compiled."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mixad.scalar.ir import Atom
from mixad.scalar.parse.argument import Argument
from mixad.scalar.parse.code import FunctionNode
from mixad.scalar.parse.info import called_by
from mixad.scalar.parse.snapshot import Address
from mixad.scalar.promotion_rules import Typed, Weak

if TYPE_CHECKING:
    from mixad.scalar.parse.frame import Frame

__all__ = [
    "Bound",
    "Captured",
    "Closure",
    "Helper",
    "Object",
    "Scalar",
    "Tuple",
    "Value",
    "is_called",
    "kind_of",
    "kind_of_object",
    "way_out",
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
class Tuple:
    """A tuple: it exists while the function is compiled, not when it runs."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Captured:
    """An array or tracer from outside: a scalar per element, or an array if it is indexed."""

    address: Address
    name: str
    argument: Argument


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


Value: TypeAlias = Scalar | Tuple | Captured | Helper | Closure | Object


class Bound(NamedTuple):
    """The value of a name, and the line that gave it."""

    value: Value
    line: int


def kind_of(value: Value) -> str:
    """Describe a value's type for a message."""
    match value:
        case Scalar():
            return str(value.typed)
        case Tuple():
            return f"tuple of {len(value.items)}"
        case Captured():
            return (
                f"captured array of {value.argument.type}"
                if value.argument.rank
                else str(value.argument.type)
            )
        case Helper():
            return value.kind
        case Closure():
            return "function"
    return kind_of_object(value.value)


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


def is_called(value: Value) -> bool:
    """Whether a value is there to be called."""
    called = isinstance(value, Object) and callable(value.value)
    return called or isinstance(value, Helper | Closure)


def way_out(value: Value, spelled: str) -> str:
    """Return what to write in place of something that is no number."""
    if isinstance(value, Tuple):
        return "unpack it, or index it with a constant"
    if not isinstance(value, Object):
        return "call it"
    if isinstance(value.value, complex | np.complexfloating):
        return f"two real numbers, {spelled}.real and {spelled}.imag"
    for kind, hint in _INSTEAD.items():
        if isinstance(value.value, kind):
            return hint
    return "call it" if callable(value.value) else "pass its numbers as arguments"


_INSTEAD: Mapping[type, str] = MappingProxyType({
    list: "make it a tuple, or a NumPy array",
    set: "make it a tuple",
    dict: "read its numbers before the call, into names of their own",
    str: "a number or a bool stands for it; strings are only compared, with == and !=",
    type(None): "a number, or test it with `is None`",
    np.ndarray: "pass it as an argument",
})  # fmt: skip
