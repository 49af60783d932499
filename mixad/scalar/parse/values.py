"""What a name of the user's function stands for while it is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mixad.scalar.ir import Atom
from mixad.scalar.parse.argument import Argument
from mixad.scalar.parse.code import FunctionNode
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
    "kind_of",
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
    """A Python function from outside, by its place in the snapshot."""

    index: int


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
        case Helper() | Closure():
            return "function"
    return "function" if callable(value.value) else type(value.value).__name__
