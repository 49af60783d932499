"""What the parser is told about a value that the compiled function will receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mixad.pytree import Structure
from mixad.scalar.promotion_rules import Weak
from mixad.scalar.types import BOOL, C128, F64, I64, ScalarType

__all__ = ["PYTHON_SCALARS", "Argument", "Described", "Structured"]


@dataclass(frozen=True)
class Argument:
    """Type information of an argument or of a captured value.

    A number is one of each element of the broadcast (``"lane"``) or of the whole call
    (``"uniform"``); an ``"array"`` is read by index.  An array with a ``core`` is taken apart along
    its last axes: each element is a value of its own.  If its core is too long for that, it is read
    by index, each element at its own place along the ``batch`` axes before the core.
    """

    type: ScalarType  # of elements; a complex one becomes two params of a program
    weak: Weak = False  # whether a Python scalar, or a tensor of torch without axes
    kind: Literal["lane", "uniform", "array"] = "lane"
    rank: int = 0  # axes of an array that is read by index
    library: object = None  # of an array: programs for several are remembered separately
    core: tuple[int, ...] = ()
    batch: int | None = None

    @property
    def leaves(self) -> tuple[Argument]:
        """The leaf that it is, alone."""
        return (self,)

    @property
    def indices(self) -> int:
        """How many indices an element has of an array that is read by index."""
        return self.rank - (self.batch or 0)


@dataclass(frozen=True)
class Structured:
    """Type information of an argument that is several: a leaf for each place of a structure.

    If it has a ``core``, the structure, of sequences alone, is an array of such lengths.
    """

    structure: Structure
    leaves: tuple[Argument, ...]
    core: tuple[int, ...] = ()


Described: TypeAlias = Argument | Structured
"""What is known of a value that a function receives."""

PYTHON_SCALARS = {
    bool: Argument(BOOL, weak=True, kind="uniform"),
    int: Argument(I64, weak=True, kind="uniform"),
    float: Argument(F64, weak=True, kind="uniform"),
    complex: Argument(C128, weak=True, kind="uniform"),
}
"""What Python's numbers are to a compiled function."""
