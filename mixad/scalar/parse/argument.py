"""What the parser is told about a value that the compiled function will receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mixad.scalar.promotion_rules import Weak
from mixad.scalar.types import BOOL, F64, I64, ScalarType

__all__ = ["PYTHON_SCALARS", "Argument"]


@dataclass(frozen=True)
class Argument:
    """Type information of an argument or of a captured value.

    Attributes
    ----------
    type : ScalarType
        Type of the value, or of an array's elements.
    weak : bool or RANKLESS
        Whether it is a Python scalar, which adopts the type of what it meets; or a tensor of torch
        without axes, which does so among types of its kind.
    kind : str
        ``"lane"``: one value per element of the broadcast; ``"uniform"``: one for the whole call.
    rank : int
        Number of axes, for captured arrays: what indexing them takes.
    library : object
        The array library, None for a number: programs for several are remembered separately.
    """

    type: ScalarType
    weak: Weak = False
    kind: Literal["lane", "uniform"] = "lane"
    rank: int = 0
    library: object = None


PYTHON_SCALARS = {
    bool: Argument(BOOL, weak=True, kind="uniform"),
    int: Argument(I64, weak=True, kind="uniform"),
    float: Argument(F64, weak=True, kind="uniform"),
}
"""What Python's numbers are to a compiled function."""
