"""Python integers, which take the type of what they meet and must fit it."""

from __future__ import annotations

from dataclasses import dataclass

from mixad.errors import KernelOverflowError, SourceLocation
from mixad.scalar.parse.integers import spelled
from mixad.scalar.types import I16, I32, I64, U64, ScalarType, integer_bounds

__all__ = ["Limit", "fits", "overflow"]


@dataclass(frozen=True)
class Limit:
    """A Python integer that must fit a type, beside others or by itself.

    Attributes
    ----------
    place : int
        Which parameter of the program it is, or, counted on, which step of its integers.
    type : ScalarType
        What it must fit.
    location : SourceLocation
        Where they meet.
    """

    place: int
    type: ScalarType
    location: SourceLocation


def fits(value: int, type_: ScalarType) -> bool:
    """Whether an integer type holds a value."""
    low, high = integer_bounds(type_)
    return low <= value <= high


def overflow(
    location: SourceLocation, value: int, type_: ScalarType, name: str | None = None
) -> KernelOverflowError:
    """Return the error for a Python integer that its neighbour's type does not hold."""
    given = "" if name is None else f", the value of {name!r},"
    message = f"Python integer {spelled(value, name or '')}{given} out of bounds for {type_.dtype}"
    wider = next((t for t in (I16, I32, I64) if fits(value, t)), None)
    if wider is None or type_ == U64:
        is_finite = abs(value) < 1 << 1023
        instead = f"a float, {float(value)!r}, for a result of floats" if is_finite else "a float"
        return KernelOverflowError.at(location, message, instead)
    hint = f"np.{wider.dtype}({value}), for a result that is wide enough"
    return KernelOverflowError.at(location, message, hint)
