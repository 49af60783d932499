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

    Attributes
    ----------
    type : ScalarType
        Type of the value, or of an array's elements; a complex one becomes two params of a program.
    weak : bool or RANKLESS
        Whether it is a Python scalar, which adopts the type of what it meets; or a tensor of torch
        without axes, which does so among types of its kind.
    kind : str
        ``"lane"``: one value per element of the broadcast; ``"uniform"``: one for the whole call;
        ``"array"``: it is read by index.
    rank : int
        Number of axes, for arrays that are read by index: what indexing them takes.
    library : object
        The array library, None for a number: programs for several are remembered separately.
    core : tuple of int
        Lengths of the last axes, where an array is taken apart along them: each element is a value
        of its own.
    batch : int or None
        Of an array that is read by index because it is a core which is too long to be variables,
        how many axes come before the core: each element reads at its own place along them.
    """

    type: ScalarType
    weak: Weak = False
    kind: Literal["lane", "uniform", "array"] = "lane"
    rank: int = 0
    library: object = None
    core: tuple[int, ...] = ()
    batch: int | None = None

    @property
    def indices(self) -> int:
        """How many indices an element has of an array that is read by index."""
        return self.rank - (self.batch or 0)


@dataclass(frozen=True)
class Structured:
    """Type information of an argument that is several.

    Attributes
    ----------
    structure : Structure
        Of tuples, named tuples and dataclasses.
    leaves : tuple of Argument
        One for each of its places.
    core : tuple of int
        Not empty if the structure, then of sequences alone, stands for an array of such lengths.
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
