"""`reduce_by_index`: elements combined with those of an array at indices, by any operator.

Sums, minima and maxima are kernels that change an accumulator, which has a copy for each slab.
Others sort the elements by their index, stably, and scan them: an operator of elements with a flag,
which says where an index begins, does not combine what belongs to two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from mixad.backends.arrays import library_of
from mixad.constructs.associative_rules import Reduction, run_reduction
from mixad.constructs.block_programs import Operator
from mixad.constructs.elements import Elements, read_elements
from mixad.constructs.leaves import (
    copy_leaf,
    leaf_of,
    places_along,
    reshape_leaf,
    result_of,
    without_element,
)
from mixad.constructs.operators import Combination, kind_of_operator, read_operator
from mixad.errors import ConfigurationError, KernelIndexError, KernelShapeError, KernelTypeError
from mixad.namespace.elementwise import where
from mixad.namespace.indexing import gather, of_positions, scatter_add, take
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType, Atom, Program, Update
from mixad.scalar.types import BOOL, I32, I64, U64, ScalarType
from mixad.scalar.updates import OPS
from mixad.scalar.verify import verify
from mixad.tape.apply import apply_program
from mixad.tape.kernel_call import KernelCall
from mixad.tape.node import Rule, apply_rule, common_library, library_beside
from mixad.tape.tracer import Tracer, plain
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["reduce_by_index"]


def reduce_by_index(
    op: Callable[[Any, Any], Any],
    dest: Any,
    indices: Any,
    xs: Any,
    *,
    indices_are_sorted: bool = False,
    mode: Literal["raise", "drop"] = "raise",
) -> Any:
    """Combine elements with those of an array that indices say, by an associative operator.

    Parameters
    ----------
    op : callable
        As for `reduce`.
    dest : array, or tuple, named tuple or dataclass of array
        What elements are combined with, from the left, along the first axis.  Axes after it belong
        to neither: each place along them is by itself.
    indices : array of int
        Where each of ``xs`` goes; a negative one counts from the end.  Of any number of axes.
    xs : array, or structure of array
        Elements, of the structure and dtypes of ``dest``: the axes of ``indices``, then those of
        ``dest`` after its first one.  Those of one index are combined in their order.
    indices_are_sorted : bool
        Whether no index is less than one before it.
    mode : {"raise", "drop"}
        Whether an index outside of ``dest`` is an error, or its element is left out.

    Returns
    -------
    array, or structure of array
        A new ``dest``.  Floats of 16 bits are combined as float32, sums of floats as float64.

    Raises
    ------
    IndexError
        If an index is outside.
    ValueError
        If shapes do not fit together, or indices are not sorted that are said to be.
    KernelTypeError
        If structures or dtypes differ, or the operator does not return an element.

    Notes
    -----
    The derivative of the smallest or largest element belongs to the first one of equal ones, that
    of ``dest`` before all.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> counts = np.zeros(3)
    >>> mixad.reduce_by_index(lambda a, b: a + b, counts, np.asarray([0, 2, 2]), np.ones(3))
    array([1., 0., 2.])
    >>> mixad.reduce_by_index(max, np.zeros(2), np.asarray([0, 0]), np.asarray([3.0, 5.0]))
    array([5., 0.])
    """
    histogram = _Histogram(op, dest, indices, xs, indices_are_sorted, mode)
    return histogram.run()


class _Histogram:
    """What `reduce_by_index` is given, looked at once."""

    def __init__(
        self, op: Any, dest: Any, indices: Any, xs: Any, is_sorted: bool, mode: str
    ) -> None:
        if mode not in ("raise", "drop"):
            raise ConfigurationError(
                f"mixad.reduce_by_index: mode={mode!r} is none: write 'raise' or 'drop'"
            )
        self.drops, self.is_sorted = mode == "drop", is_sorted
        self.elements = read_elements("reduce_by_index", "dest", dest)
        combined = read_elements("reduce_by_index", "xs", xs)
        if combined.structure != self.elements.structure:
            raise KernelTypeError(
                f"mixad.reduce_by_index: xs is {combined.structure}, dest is "
                f"{self.elements.structure}",
                hint="pass elements of the structure of dest",
            )
        self.indices = self._read_indices(indices)
        common_library(
            "mixad.reduce_by_index", [*self.elements.leaves, *combined.leaves, self.indices]
        )
        self._check(combined)
        self.extent, *rows = self.elements.shape
        count = math.prod(self.indices.shape)
        self.dest = self.elements.leaves
        self.xs = [reshape_leaf(leaf, (count, *rows)) for leaf in combined.leaves]
        self.indices = reshape_leaf(self.indices, (count,))
        self._check_indices(0 in rows)
        self.combination: Combination = read_operator("reduce_by_index", op, self.elements, ())

    @staticmethod
    def _read_indices(indices: Any) -> Any:
        found = plain(leaf_of(indices, "mixad.reduce_by_index: indices"))
        if not result_of(found).kind.type.is_integer:
            raise KernelTypeError(
                f"mixad.reduce_by_index: indices have the dtype {found.dtype}",
                hint="pass whole numbers",
            )
        return found

    def _check(self, combined: Elements) -> None:
        """Raise if shapes or dtypes do not fit together."""
        shape = self.elements.shape
        if not shape:
            raise KernelShapeError(
                "mixad.reduce_by_index: dest has the shape ()",
                hint="pass arrays with an axis for the indices",
            )
        expected = (*self.indices.shape, *shape[1:])
        if combined.shape != expected:
            raise KernelShapeError(
                f"mixad.reduce_by_index: xs has the shape {combined.shape}, with indices of shape "
                f"{tuple(self.indices.shape)} and dest of shape {shape}",
                hint=f"pass elements of shape {expected}",
            )
        for one, other in zip(combined.results, self.elements.results, strict=True):
            if one.kind.type != other.kind.type:
                raise KernelTypeError(
                    f"mixad.reduce_by_index: xs has the dtype {one.kind.type.dtype_name}, dest has "
                    f"{other.kind.type.dtype_name}",
                    hint="convert one of them",
                )

    def run(self) -> Any:
        """Return the new arrays."""
        made, kind = self.combination.operator, kind_of_operator(self.combination.operator)
        type = made.types[0]
        if kind == "add" and not type.is_bool:
            found = [self._sum()]
        elif kind in ("minimum", "maximum") and not type.is_bool:
            found = [self._extreme("min" if kind == "minimum" else "max")]
        else:
            found = self._general()
        return self.elements.restore(found)

    # -- by an accumulator -------------------------------------------------------------------------

    def _sum(self) -> Any:
        (dest,), (xs,) = self.dest, self.xs
        return apply_rule(_SUM, dest, xs, self.indices, drops=self.drops)

    def _extreme(self, update: Update) -> Any:
        (dest,), (xs,) = self.dest, self.xs
        if not math.prod(xs.shape):
            return copy_leaf(dest)
        if not isinstance(dest, Tracer) and not isinstance(xs, Tracer):
            return _extremes(dest, xs, self.indices, update, self.drops)[0]
        arguments = dest, xs, self.indices
        return apply_values_rule(_EXTREME, *arguments, update=update, drops=self.drops)[0]

    # -- by sorting --------------------------------------------------------------------------------

    def _general(self) -> list[Any]:
        """Sort by index, scan within indices, combine what is last of each with ``dest``."""
        made, captured = self.combination.operator, self.combination.captured
        xp, count = library_of(self.indices).xp, self.extent
        keys, order = self._sorted(count)
        if not keys.shape[0] or 0 in self.elements.shape:
            return list(map(copy_leaf, self.dest))
        xs = [leaf if order is None else take(leaf, order, axis=0) for leaf in self.xs]
        after = math.prod(xs[0].shape[1:])
        begins = xp.concat([xp.ones_like(keys[:1], dtype=xp.bool), keys[1:] != keys[:-1]])
        flags = xp.broadcast_to(xp.reshape(begins, (1, -1, 1)), (1, keys.shape[0], after))
        arrays = [reshape_leaf(leaf, (1, -1, after)) for leaf in xs]
        reduction = Reduction(_with_flags(made), True)
        scanned = run_reduction(reduction, [*arrays, flags, *captured])[: len(arrays)]
        bins = xp.arange(count, dtype=keys.dtype)
        last = xp.searchsorted(keys, bins, side="right") - 1
        taken = xp.where(last < 0, xp.zeros_like(last), last)
        is_there = xp.reshape(
            (last >= 0) & (keys[taken] == bins), (-1, *[1] * (len(xs[0].shape) - 1))
        )
        totals = [
            reshape_leaf(take(y, taken, axis=1), leaf.shape)
            for y, leaf in zip(scanned, self.dest, strict=True)
        ]
        combined = apply_program(made.program, [*self.dest, *totals, *captured])
        return [where(is_there, new, old) for new, old in zip(combined, self.dest, strict=True)]

    def _sorted(self, count: int) -> tuple[Any, Any]:
        """Return the indices in order, counted from the first element of ``dest``, and which of
        ``xs`` each of them had; None if all had their place."""
        xp, keys, outside = library_of(self.indices).xp, _signed(self.indices), self._outside()
        if not self.drops:
            self._check_inside(outside)
        if self.is_sorted and not bool(xp.any((keys < 0) | outside)):
            return keys, None
        keys = xp.where(keys < 0, keys + count, keys)
        order = _order(keys, count)
        if self.drops:
            order = order[~xp.take(outside, order)]
        return xp.take(keys, order), order

    def _outside(self) -> Any:
        """Return which indices are those of no element."""
        keys, count = _signed(self.indices), self.extent
        return (keys >= count) | (keys < -count)

    def _check_indices(self, is_without_rows: bool) -> None:
        """Raise if indices are not sorted that are said to be, or, where no kernel looks at them,
        if one is outside."""
        xp, keys = library_of(self.indices).xp, _signed(self.indices)
        if self.is_sorted and bool(xp.any(keys[1:] < keys[:-1])):
            raise KernelShapeError(
                "mixad.reduce_by_index: indices_are_sorted=True, and they are not",
                hint="leave it out",
            )
        if is_without_rows and not self.drops:
            self._check_inside(self._outside())

    def _check_inside(self, outside: Any) -> None:
        """Raise if an index is outside."""
        xp = library_of(self.indices).xp
        if not bool(xp.any(outside)):
            return
        first = int(xp.argmax(xp.astype(outside, xp.int8)))
        raise KernelIndexError(
            f"mixad.reduce_by_index: index {int(self.indices[first])} at place {first} is outside "
            f"of dest, which has {self.extent} elements",
            hint="mode='drop' leaves it out",
        )


def _order(keys: Any, count: int) -> Any:
    """Return what sorts indices, those from 0 to below a number and others, stably.

    NumPy sorts numbers of 16 bits by their digits: several times faster than others.
    """
    if not isinstance(keys, np.ndarray):
        return library_of(keys).xp.argsort(keys, stable=True)
    within = np.where((keys < 0) | (keys > count), count, keys)  # what is left out comes last
    order = np.argsort((within & _DIGIT).astype(np.uint16), kind="stable")
    shift = 16
    while count >> shift:
        digits = (within >> shift) & _DIGIT
        order = order[np.argsort(digits[order].astype(np.uint16), kind="stable")]
        shift += 16
    return order


_DIGIT = (1 << 16) - 1


def _signed(indices: Any) -> Any:
    """Return indices as signed integers; those beyond these are outside of any array."""
    xp = library_of(indices).xp
    if xp.isdtype(indices.dtype, "unsigned integer"):
        most = min(int(xp.iinfo(indices.dtype).max), (1 << 63) - 1)
        indices = xp.where(indices < most, indices, xp.full_like(indices, most))
    return xp.astype(indices, xp.int64)


@lru_cache(maxsize=256)
def _with_flags(made: Operator) -> Operator:
    """Return the operator of elements with a flag: one that has it combines with none before it."""
    b, size, params = Builder(made.program.name), made.size, made.program.params
    one = list(b.copy_params(params[:size]).values())
    has_one = b.param("flag", BOOL)
    other = list(b.copy_params(params[size : 2 * size]).values())
    has_other = b.param("flag", BOOL)
    captured = list(b.copy_params(params[2 * size :]).values())
    found = b.if_(
        has_other,
        lambda: other,
        lambda: b.inline(made.program, [*one, *other, *captured]),
    )
    return Operator(b.finish([*found, b.op("or", has_one, has_other)]), (*made.cores, ()))


# -- programs over accumulators --------------------------------------------------------------------


@lru_cache(maxsize=256)
def _accumulating_call(program: Program, shape: tuple[int, ...]) -> KernelCall:
    """Return the call of a program whose one output is an accumulator."""
    return KernelCall.giving(program, {0: shape})


def _run_change(program: Program, dest: Any, values: Sequence[Any]) -> Any:
    """Return the accumulator of a program, of the shape of an array."""
    return _launch(_accumulating_call(program, tuple(dest.shape)), values)


def _launch(call: KernelCall, values: Sequence[Any]) -> Any:
    """Return the one output of a call."""
    try:
        return call.kernel(values)[0]
    except KernelIndexError as error:
        raise without_element(error, "mode='drop' leaves out what is outside") from None


def _add_update(
    b: Builder, place: Sequence[Atom], count: Atom | None, update: Callable[[], None]
) -> None:
    """Add an update at a place, unless its index is outside where those are left out."""
    if count is None:
        update()
        return

    def inside() -> tuple[Atom, ...]:
        update()
        return ()

    b.if_(_is_inside(b, place[0], count), inside, tuple)


def _is_inside(b: Builder, index: Atom, count: Atom) -> Atom:
    """Return whether an index is that of one of some elements."""
    if index.type.kind == "uint":
        wide = index if index.type.bits == I64.bits else b.convert(index, U64)
        return b.op("lt", wide, b.convert(count, U64))
    wide = b.convert(index, I64)
    return b.op("and", b.op("lt", wide, count), b.op("le", b.op("neg", count), wide))


@lru_cache(maxsize=256)
def _change_program(
    update: Update, type: ScalarType, index: ScalarType, rank: int, drops: bool
) -> Program:
    """Return the program that changes an array by elements at their indices.

    Params: elements, indices, the places along other axes; how many elements there are to be
    changed, where others are left out.
    """
    b = Builder("reduce_by_index")
    x, at = b.param("xs", type), b.param("indices", index)
    place = [at, *(b.param(f"axis {axis}", I64) for axis in range(1, rank))]
    count = b.param("count", I64, "uniform") if drops else None
    array = b.accumulator("dest", ArrayType(type, rank), update)
    _add_update(b, place, count, lambda: b.accumulate(array, *place, value=x))
    return verify(b.finish([array]))


@lru_cache(maxsize=256)
def _winner_program(
    type: ScalarType, index: ScalarType, rank: int, drops: bool, count_type: ScalarType
) -> Program:
    """Return the program that finds the first element that is what came out at its index.

    Params: as of `_change_program`, then the elements' numbers, and what came out.
    """
    b = Builder("reduce_by_index")
    x, at = b.param("xs", type), b.param("indices", index)
    place = [at, *(b.param(f"axis {axis}", I64) for axis in range(1, rank))]
    count = b.param("count", I64, "uniform") if drops else None
    number, found = b.param("numbers", count_type), b.array_param("dest", ArrayType(type, rank))
    first = b.accumulator("winners", ArrayType(I64, rank), "min")

    def won() -> tuple[Atom, ...]:
        b.accumulate(first, *place, value=b.convert(number, I64))
        return ()

    def update() -> None:
        y = b.load(found, *place)
        is_it = b.op("eq", x, y)
        if type.is_float:  # of nan the first nan
            both = b.op("and", b.op("ne", x, x), b.op("ne", y, y))
            is_it = b.op("or", is_it, both)
        b.if_(is_it, won, tuple)

    _add_update(b, place, count, update)
    return verify(b.finish([first]))


@lru_cache(maxsize=256)
def _read_program(type: ScalarType, index: ScalarType, rank: int, drops: bool) -> Program:
    """Return the program that reads an array at indices, and has zeros at those left out.

    Params: the array, indices, and the rest as of `_change_program`.
    """
    b = Builder("reduce_by_index")
    array, at = b.array_param("dest", ArrayType(type, rank)), b.param("indices", index)
    place = [at, *(b.param(f"axis {axis}", I64) for axis in range(1, rank))]
    count = b.param("count", I64, "uniform") if drops else None
    if count is None:
        return verify(b.finish([b.load(array, *place)]))
    inside = _is_inside(b, place[0], count)
    found = b.if_(inside, lambda: [b.load(array, *place)], lambda: [b.const(0, type)])
    return verify(b.finish(found))


def _lanes(dest: Any, indices: Any, drops: bool) -> tuple[list[Any], tuple[Any, ...]]:
    """Return what kernels take after elements, and what their programs depend on."""
    library, shape = library_of(dest), tuple(dest.shape)
    places = places_along(shape[1:], library, getattr(dest, "device", None))
    own = library.xp.reshape(indices, (-1, *[1] * (len(shape) - 1)))
    lanes = [own, *places, *([shape[0]] if drops else [])]
    return lanes, (result_of(dest).kind.type, result_of(indices).kind.type, len(shape), drops)


# -- sums ------------------------------------------------------------------------------------------


def _run_sum(xp: Any, dest: Any, xs: Any, indices: Any, drops: bool) -> Any:
    lanes, key = _lanes(dest, indices, drops)
    return dest + _run_change(_change_program("add", *key), dest, [xs, *lanes])


def _run_reading(xp: Any, dest: Any, indices: Any, drops: bool) -> Any:
    lanes, key = _lanes(dest, indices, drops)
    return _launch(KernelCall.storing(_read_program(*key)), [dest, *lanes])


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros beside an array or a traced value."""
    xp, device = library_beside(like).xp, getattr(like, "device", None)
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


def _extremes(
    dest: Any, xs: Any, indices: Any, update: Update, drops: bool
) -> tuple[Any, list[Any], tuple[Any, ...]]:
    """Return the extremes; what a kernel over elements takes, and what it depends on."""
    lanes, key = _lanes(dest, indices, drops)
    program, xp = _change_program(update, *key), library_of(dest).xp
    found = _run_change(program, dest, [xs, *lanes])
    combine = getattr(xp, OPS[update])
    return combine(dest, found), [xs, *lanes], key


def _run_extreme(
    xp: Any, dest: Any, xs: Any, indices: Any, update: Update, drops: bool
) -> tuple[Any, ...]:
    """Return the extremes, and for each the number of the element that it is, -1 of ``dest``."""
    y, lanes, key = _extremes(dest, xs, indices, update, drops)
    count = math.prod(xs.shape)
    type = I32 if count < 1 << 31 else I64  # half as many bytes
    numbers = xp.arange(count, dtype=library_of(dest).dtype_of(type))
    numbers = xp.reshape(numbers, tuple(xs.shape))
    winners = _run_change(_winner_program(*key, type), dest, [*lanes, numbers, y])
    is_dest = (dest == y) | ((dest != dest) & (y != y))
    return y, xp.where(is_dest, xp.full_like(winners, -1), winners)


def _pull_extreme(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    dest: Any,
    xs: Any,
    indices: Any,
    update: Update,
    drops: bool,
) -> list[Any]:
    (g, _), (is_dest, at) = gs, _split_winners(values[1])
    of_dest = where(is_dest, g, 0.0) if wanted[0] else None
    of_xs = scatter_add(where(is_dest, 0.0, g), tuple(xs.shape), at) if wanted[1] else None
    return [of_dest, of_xs, None]


def _push_extreme(
    tangents: Sequence[Any],
    values: Sequence[Any],
    dest: Any,
    xs: Any,
    indices: Any,
    update: Update,
    drops: bool,
) -> list[Any]:
    is_dest, at = _split_winners(values[1])
    of_dest, of_xs, _ = tangents
    from_dest = 0.0 if of_dest is None else of_dest
    from_xs = 0.0 if of_xs is None else gather(of_xs, at)
    return [where(is_dest, from_dest, from_xs), None]


def _split_winners(winners: Any) -> tuple[Any, Any]:
    """Return which extremes are those of ``dest``, and the number of the element of the others."""
    winners = plain(winners)
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
