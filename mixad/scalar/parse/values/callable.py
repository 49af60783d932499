"""Functions of the user, which are compiled where they are called."""

from __future__ import annotations

from dataclasses import dataclass, field

from mixad.scalar.parse.code import FunctionNode
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.values.value import Value

__all__ = ["Closure", "Function", "Helper"]


class Function(Value):
    """A function of the user."""

    __slots__ = ()

    @property
    def is_called(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Helper(Function):
    """A Python function from outside, by its place in the snapshot; ``kind`` is for messages."""

    index: int
    kind: str = field(default="function", compare=False)

    def describe(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class Closure(Function):
    """A function or lambda defined inside the compiled one."""

    node: FunctionNode
    frame: Frame
    defaults: dict[str, Value]

    def describe(self) -> str:
        return "function"
