"""Sums, minima and maxima of elements at indices, as operations, and their derivatives.

Each is a kernel over elements that updates an array, which has a copy for each slab. The sum and
the reading of an array at indices are each other's transpose. For minima and maxima a second kernel
finds the first element that equals the result, which has the derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mixad.backends.arrays import library_of
from mixad.call.arguments import places_along
from mixad.constructs.leaves import copy_leaf, result_of, without_element
from mixad.errors import KernelIndexError
from mixad.namespace.elementwise import where
from mixad.namespace.indexing import gather, of_positions, scatter_add
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType, Atom, Program, UpdateKind
from mixad.scalar.types import I32, I64, U64, ScalarType
from mixad.scalar.updates import OPS
from mixad.scalar.verify import verify
from mixad.tape.kernel_call import KernelCall
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import Tracer, primal_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["update_by_index"]


def update_by_index(update: UpdateKind, dest: Any, xs: Any, indices: Any, drops: bool) -> Any:
    """Return an array updated by elements at indices; ``drops`` leaves out those outside."""
    if update == "add":
        return apply_rule(_SUM, dest, xs, indices, drops=drops)
    if not math.prod(xs.shape):
        return copy_leaf(dest)
    if not isinstance(dest, Tracer) and not isinstance(xs, Tracer):
        return _extremes(dest, xs, indices, update, drops)
    return apply_values_rule(_EXTREME, dest, xs, indices, update=update, drops=drops)[0]


# -- programs over the elements --------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """What programs depend on: types of elements and indices, the number of axes, and `drops`.

    `drops` leaves out elements whose indices are outside.
    """

    type: ScalarType
    index: ScalarType
    rank: int
    drops: bool

    @property
    def array(self) -> ArrayType:
        """The type of the array."""
        return ArrayType(self.type, self.rank)

    def declare(self, b: Builder) -> tuple[list[Atom], Atom | None]:
        """Declare the params after elements (see `_lanes`).

        Return the place of an element, and whether it is inside where that is in question.
        """
        index = b.param("indices", self.index)
        place: list[Atom] = [index, *(b.param(f"axis {axis}", I64) for axis in range(1, self.rank))]
        if not self.drops:
            return place, None
        count = b.param("count", I64, "uniform")
        if index.type.kind == "uint":
            wide = index if index.type.bits == I64.bits else b.convert(index, U64)
            return place, b.op("lt", wide, b.convert(count, U64))
        wide = b.convert(index, I64)
        inside = b.op("and", b.op("lt", wide, count), b.op("le", b.op("neg", count), wide))
        return place, inside


def _lanes(dest: Any, indices: Any, drops: bool) -> tuple[_Layout, list[Any]]:
    """Return a layout, and the arguments of kernels after elements.

    These are indices, places along other axes and, with ``drops``, the length of the first axis.
    """
    library, shape = library_of(dest), tuple(dest.shape)
    places = places_along(shape[1:], library, getattr(dest, "device", None))
    own = library.xp.reshape(indices, (-1, *[1] * (len(shape) - 1)))
    lanes = [own, *places, *([shape[0]] if drops else [])]
    types = result_of(dest).kind.type, result_of(indices).kind.type
    return _Layout(*types, len(shape), drops), lanes


def _launch(program: Program, values: Sequence[Any], shape: tuple[int, ...] | None = None) -> Any:
    """Return the only output of a program; an updated array has a shape."""
    try:
        return _call(program, shape).kernel(values)[0]
    except KernelIndexError as error:
        raise without_element(error, "mode='drop' leaves out what is outside") from None


@lru_cache(maxsize=256)
def _call(program: Program, shape: tuple[int, ...] | None) -> KernelCall:
    return KernelCall.giving(program, {} if shape is None else {0: shape})


def _when(b: Builder, cond: Atom | None, update: Callable[[], None]) -> None:
    """Add an update where a condition holds, or everywhere."""
    if cond is None:
        update()
        return

    def updated() -> tuple[Atom, ...]:
        update()
        return ()

    b.if_(cond, updated, tuple)


@lru_cache(maxsize=256)
def _update_program(update: UpdateKind, layout: _Layout) -> Program:
    """Return the program that updates an array by elements at their indices."""
    b = Builder("reduce_by_index")
    x = b.param("xs", layout.type)
    place, inside = layout.declare(b)
    array = b.accumulator("dest", layout.array, update)
    _when(b, inside, lambda: b.update(array, *place, value=x))
    return verify(b.finish([array]))


@lru_cache(maxsize=256)
def _winner_program(layout: _Layout, number_type: ScalarType) -> Program:
    """Return the program that finds the first element which equals the result at its index.

    Params: those of `_update_program`, then the elements' numbers, and the result.
    """
    b = Builder("reduce_by_index")
    x = b.param("xs", layout.type)
    place, inside = layout.declare(b)
    number, found = b.param("numbers", number_type), b.array_param("dest", layout.array)
    first = b.accumulator("winners", ArrayType(I64, layout.rank), "min")

    def update() -> None:
        y = b.load(found, *place)
        is_it = b.op("eq", x, y)
        if layout.type.is_float:  # of nan the first nan
            both = b.op("and", b.op("ne", x, x), b.op("ne", y, y))
            is_it = b.op("or", is_it, both)
        _when(b, is_it, lambda: b.update(first, *place, value=b.convert(number, I64)))

    _when(b, inside, update)
    return verify(b.finish([first]))


@lru_cache(maxsize=256)
def _read_program(layout: _Layout) -> Program:
    """Return the program that reads an array at indices, zeros at those left out."""
    b = Builder("reduce_by_index")
    array = b.array_param("dest", layout.array)
    place, inside = layout.declare(b)
    if inside is None:
        return verify(b.finish([b.load(array, *place)]))
    zero = b.const(0, layout.type)
    return verify(b.finish(b.if_(inside, lambda: [b.load(array, *place)], lambda: [zero])))


# -- sums ------------------------------------------------------------------------------------------


def _run_sum(xp: Any, dest: Any, xs: Any, indices: Any, drops: bool) -> Any:
    layout, lanes = _lanes(dest, indices, drops)
    return dest + _launch(_update_program("add", layout), [xs, *lanes], tuple(dest.shape))


def _run_reading(xp: Any, dest: Any, indices: Any, drops: bool) -> Any:
    layout, lanes = _lanes(dest, indices, drops)
    return _launch(_read_program(layout), [dest, *lanes])


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros beside an array or a traced value."""
    xp, device = library_of_value(like).xp, getattr(like, "device", None)
    return xp.zeros(shape, dtype=like.dtype, device=device)


_SUM: Rule = Rule(
    "reduce_by_index",
    _run_sum,
    (
        lambda g, dest, xs, indices, drops: g,
        lambda g, dest, xs, indices, drops: apply_rule(_READING, g, indices, drops=drops),
        of_positions,
    ),
    linear="all",
    positions=(2,),
)
_READING: Rule = Rule(
    "reading by index",
    _run_reading,
    (
        lambda g, dest, indices, drops: apply_rule(
            _SUM, _zeros(g, tuple(dest.shape)), g, indices, drops=drops
        ),
        of_positions,
    ),
    fresh=True,
    linear="each",
    positions=(1,),
)


# -- minima and maxima -----------------------------------------------------------------------------


def _extremes(dest: Any, xs: Any, indices: Any, update: UpdateKind, drops: bool) -> Any:
    """Return the smaller or larger of an array and of elements at indices."""
    layout, lanes = _lanes(dest, indices, drops)
    found = _launch(_update_program(update, layout), [xs, *lanes], tuple(dest.shape))
    return getattr(library_of(dest).xp, OPS[update])(dest, found)


def _run_extreme(
    xp: Any, dest: Any, xs: Any, indices: Any, update: UpdateKind, drops: bool
) -> tuple[Any, ...]:
    """Return the extremes, and the number of each one's element, -1 for one of ``dest``."""
    y, (layout, lanes) = _extremes(dest, xs, indices, update, drops), _lanes(dest, indices, drops)
    count = math.prod(xs.shape)
    type = I32 if count < 1 << 31 else I64  # half as many bytes
    numbers = xp.arange(count, dtype=library_of(dest).dtype_of(type))
    numbers = xp.reshape(numbers, tuple(xs.shape))
    values = [xs, *lanes, numbers, y]
    winners = _launch(_winner_program(layout, type), values, tuple(dest.shape))
    is_dest = (dest == y) | ((dest != dest) & (y != y))
    return y, xp.where(is_dest, xp.full_like(winners, -1), winners)


def _pull_extreme(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    *arguments: Any,
    **static: Any,
) -> list[Any]:
    g, (is_dest, at) = gs[0], _split_winners(values[1])
    of_dest = where(is_dest, g, 0.0) if wanted[0] else None
    of_xs = (
        scatter_add(where(is_dest, 0.0, g), tuple(arguments[1].shape), at) if wanted[1] else None
    )
    return [of_dest, of_xs, None]


def _push_extreme(
    tangents: Sequence[Any], values: Sequence[Any], *arguments: Any, **static: Any
) -> list[Any]:
    is_dest, at = _split_winners(values[1])
    of_dest, of_xs, _ = tangents
    from_dest = 0.0 if of_dest is None else of_dest
    from_xs = 0.0 if of_xs is None else gather(of_xs, at)
    return [where(is_dest, from_dest, from_xs), None]


def _split_winners(winners: Any) -> tuple[Any, Any]:
    """Return which extremes come from ``dest``, and the number of the element for others."""
    winners = primal_value(winners)
    xp = library_of(winners).xp
    is_dest = winners < 0
    return is_dest, xp.where(is_dest, xp.zeros_like(winners), winners)


_EXTREME = ValuesRule(
    "reduce_by_index",
    _run_extreme,
    _pull_extreme,
    reads=range(3),
    fresh=True,
    is_total=True,
    tangents=_push_extreme,
)
