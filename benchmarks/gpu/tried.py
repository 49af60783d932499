"""Make what is to be timed and compare its values, or tell why it cannot be timed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.peers.harness import UnavailableError, why

T = TypeVar("T")


@dataclass(frozen=True)
class Tried(Generic[T]):
    """What was made and gave the expected values, or the reason why there is nothing to time.

    Attributes
    ----------
    made : object or None
        None where it is not here, raised, or gave other values.
    error : float or None
        Over the tolerance; infinite where it raised; None where nothing was compared.
    reason : str
        Empty where something was made.
    """

    made: T | None
    error: float | None
    reason: str = ""


def tried(make: Callable[[], T], error_of: Callable[[T], float | None]) -> Tried[T]:
    """Make something and compare its values; whatever is raised is the reason."""
    try:
        made = make()
        error = error_of(made)
    except (ImportError, UnavailableError) as absent:
        return Tried(None, None, why(absent))
    except Exception as problem:  # whatever a library raises, the others are to be measured
        return Tried(None, math.inf, why(problem))
    if error is not None and error > 1:
        return Tried(None, error, f"wrong values: {error:.1e} × the tolerance")
    return Tried(made, error)
