"""Where a call comes near a kink: counted and located, line by line."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from mixad.backends.arrays import is_array, library_of
from mixad.backends.execute import broadcast_shape
from mixad.errors import ConfigurationError, KernelTypeError
from mixad.kernel.options import KernelOptions
from mixad.scalar.comparison_margins import KinkKind, Place, margins
from mixad.scalar.ir import Line, Program
from mixad.scalar.parse import complex_library, sinc
from mixad.scalar.types import ScalarType
from mixad.special import kinked
from mixad.tape.kernel_call import KernelCall, kernel_values

__all__ = ["Kink", "KinkReport", "kink_report"]

_SPECIAL = {str(m.__file__) for n, m in sys.modules.items() if n.startswith("mixad.special.")}
_SMOOTH = frozenset({complex_library.__file__, sinc.__file__, *_SPECIAL}) - {kinked.__file__}
"""Files of smooth functions: their comparisons choose between methods."""

_SHOWN = 3
"""Elements of a line that are shown to a reader."""


@dataclass(frozen=True, eq=False)
class Kink:
    """A line of the user's function with a kink that some elements come near.

    Attributes
    ----------
    kind : str
        ``"branch"``: a comparison that an `if` or a conditional expression looks at.
        ``"trip count"``: one that decides whether a loop goes on.  ``"tie"``: `abs` near 0, also
        of complex numbers and as `hypot`, `min` and `max` of nearly equal numbers.  ``"jump"``:
        `floor`, `round`, `int`, `%`, `atan2` and the like near where they jump.
    line : Line
        Where: ``filename``, ``number``, ``text``.
    tolerance : float
        What counts as near.
    indices : tuple of arrays of int
        Which elements, nearest first: one array for each axis of the broadcast shape, as from
        ``numpy.nonzero``.
    margins : array
        How near they come, in the same order: relative to what is compared, absolute beside 0.
    """

    kind: KinkKind
    line: Line
    tolerance: float
    indices: tuple[Any, ...]
    margins: Any

    @property
    def count(self) -> int:
        """How many elements come near."""
        return int(self.margins.shape[0])

    def __str__(self) -> str:
        few = min(self.count, _SHOWN)
        rows = zip(*(axis[:few] for axis in self.indices), strict=True)
        shown = [f"[{', '.join(str(int(i)) for i in row)}]" for row in rows]
        more = ["..."] if self.count > _SHOWN else []
        where = f" at {', '.join([*shown, *more])}" if shown else ""
        nearest = f"nearest {float(self.margins[0]):.1e}"
        return f"{self.line.shown}\n    {self.kind}: {self.count}{where}, {nearest}"


@dataclass(frozen=True, eq=False)
class KinkReport:
    """Which elements of a call come near a kink of the function.

    Attributes
    ----------
    function : str
        Its name.
    shape : tuple of int
        The broadcast shape.
    kinks : tuple of Kink
        Line by line, those that some element comes near.
    places : int
        How many kinks were looked at, near or not.
    count : int
        How many elements come near one or more.
    """

    function: str
    shape: tuple[int, ...]
    kinks: tuple[Kink, ...]
    places: int
    count: int

    def __bool__(self) -> bool:
        return bool(self.kinks)

    def __str__(self) -> str:
        looked = f"of {self.places} kink{'s' * (self.places != 1)} in {self.function}"
        total = math.prod(self.shape)
        if not self.kinks:
            return f"no element of {total} is near one {looked}"
        head = f"{self.count} of {total} elements are near one {looked}:"
        return "\n".join([head, *(f"  line {kink}" for kink in self.kinks)])


def kink_report(
    program: Program,
    values: Sequence[Any],
    wrt: Sequence[int],
    options: KernelOptions,
    tolerance: float | None,
    first: Line,
) -> KinkReport:
    """Report which elements of a call come near a kink as some params move.

    Near means within ``tolerance``, by default the square root of the precision of what is
    compared. ``first`` is the first line of the function.
    """
    _check(tolerance)
    _check_has_elements(program, values)
    derived, places = margins(program, wrt, first, _SMOOTH)
    found = KernelCall.storing(derived).kernel(kernel_values(derived, values), options.backend)
    limits = [_default(p.type) if tolerance is None else float(tolerance) for p in places]
    near = [least <= limit for least, limit in zip(found, limits, strict=True)]
    kinks = (_locate(*of_place) for of_place in zip(places, found, near, limits, strict=True))
    return KinkReport(
        program.name,
        broadcast_shape(program, [tuple(getattr(v, "shape", ())) for v in values]),
        tuple(kink for kink in kinks if kink.count),
        len(places),
        _positions(reduce(operator.or_, near)).shape[0] if near else 0,
    )


def _check(tolerance: float | None) -> None:
    if tolerance is not None and not (isinstance(tolerance, int | float) and tolerance >= 0):
        raise ConfigurationError(
            f"tolerance must be None or a number that is not negative, not {tolerance!r}"
        )


def _check_has_elements(program: Program, values: Sequence[Any]) -> None:
    for param, value in zip(program.params, values, strict=True):
        if is_array(value) and library_of(value).is_lazy:
            raise KernelTypeError(
                f"{program.name}: kinks are counted among elements, and the array {param.name!r} "
                "has none before it is computed",
                hint=f"pass {param.name}.compute()",
            )


def _positions(mask: Any) -> Any:
    """Return where a mask holds, counted over all its elements in C order."""
    xp = library_of(mask).xp
    return xp.nonzero(xp.reshape(mask, (-1,)))[0]


def _locate(place: Place, least: Any, near: Any, limit: float) -> Kink:
    """Return the elements of an array of margins that are near, the nearest first."""
    xp, at = library_of(least).xp, _positions(near)
    found = xp.take(xp.reshape(least, (-1,)), at)
    order = xp.argsort(found, stable=True)
    indices = _unravel(xp.take(at, order), tuple(least.shape))
    return Kink(place.kind, place.line, limit, indices, xp.take(found, order))


def _unravel(at: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return positions in a flattened array as indices along each axis."""
    found: list[Any] = []
    for extent in reversed(shape):
        found.append(at % extent)
        at = at // extent
    return tuple(reversed(found))


def _default(type: ScalarType) -> float:
    """Return the square root of a type's precision, the resolution of differences."""
    bits = 7 if type.brain else {16: 10, 32: 23, 64: 52}[type.bits]
    return math.sqrt(2.0**-bits)
