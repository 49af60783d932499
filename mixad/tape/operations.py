"""What a recording is made of: operations, links between its segments, and these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mixad.tape.tracer import Tracer

if TYPE_CHECKING:
    from mixad.tape.states import State

__all__ = ["FURTHER", "Link", "Operation", "Segment"]


class Operation:
    """What is applied to operands, known by identity.

    Parameters
    ----------
    compute : callable
        Of tracers with cells and nodes, arrays and numbers, returns a tracer or a tuple of them.

    Attributes
    ----------
    is_kernel : bool
        Whether it is one kernel, whose arguments are the operands.
    """

    __slots__ = ("compute", "is_kernel")

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute = compute
        self.is_kernel = True

    def is_static(self, operands: Sequence[Any]) -> bool:
        """Whether it reads no array and no number beside traced values."""
        return not self.is_kernel and all(isinstance(operand, Tracer) for operand in operands)


def _refused(*operands: Any) -> Any:
    raise AssertionError("a further result is made with the first")


FURTHER = Operation(_refused)
"""What makes further results of the operation before."""


class Link(NamedTuple):
    """A value of an earlier segment, by its slot."""

    slot: int


class Segment(NamedTuple):
    """A part of a recording: its slots from ``start`` to ``stop``, and the state at its end."""

    state: State
    start: int
    stop: int
