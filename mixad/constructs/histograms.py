"""`reduce_by_index`: elements combined with those of an array at indices, by any operator.

Sums, minima and maxima are updates of an array (`histogram_rules`).  Others sort the elements by
their index, stably, and scan them: an operator of elements with a flag, which says where an index
begins, does not combine what belongs to two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from mixad.backends.arrays import library_of
from mixad.constructs.associative_rules import Reduction, run_reduction
from mixad.constructs.block_programs import Operator
from mixad.constructs.elements import Elements, read_elements
from mixad.constructs.histogram_rules import update_by_index
from mixad.constructs.leaves import copy_leaf, leaf_of, reshape_leaf, result_of
from mixad.constructs.operators import Combination, kind_of_operator, read_operator
from mixad.errors import ConfigurationError, KernelIndexError, KernelShapeError, KernelTypeError
from mixad.namespace.elementwise import where
from mixad.namespace.indexing import take
from mixad.scalar.build import Builder
from mixad.scalar.ir import UpdateKind
from mixad.scalar.types import BOOL
from mixad.tape.apply import apply_program
from mixad.tape.node import Result, common_library
from mixad.tape.tracer import primal_value

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
    if mode not in ("raise", "drop"):
        raise ConfigurationError(
            f"mixad.reduce_by_index: mode={mode!r} is none: write 'raise' or 'drop'"
        )
    elements, leaves = read_elements("reduce_by_index", "dest", dest)
    combined, xs = read_elements("reduce_by_index", "xs", xs)
    places = primal_value(leaf_of(indices, "mixad.reduce_by_index: indices"))
    common_library("mixad.reduce_by_index", [*leaves, *xs, places])
    _check_arguments(elements, combined, result_of(places))
    extent, *rows = elements.shape
    count = math.prod(places.shape)
    at = _Indices(reshape_leaf(places, (count,)), extent, indices_are_sorted, mode == "drop")
    if indices_are_sorted:
        at.check_order()
    if 0 in rows:  # no kernel looks at them
        at.check_inside()
    combination = read_operator("reduce_by_index", op, elements, ())
    flat = [reshape_leaf(leaf, (count, *rows)) for leaf in xs]
    update = _UPDATES.get(kind_of_operator(combination.operator))
    if update is not None and not combination.operator.types[0].is_bool:
        (leaf,), (x,) = leaves, flat
        return elements.restore([update_by_index(update, leaf, x, at.values, at.drops)])
    return elements.restore(_combine_sorted(combination, leaves, flat, at))


_UPDATES: Mapping[str | None, UpdateKind] = MappingProxyType({
    "add": "add", "minimum": "min", "maximum": "max",
})  # fmt: skip
"""The update of an array that combines elements by an op of the table."""


def _check_arguments(elements: Elements, combined: Elements, indices: Result) -> None:
    """Raise if structures, shapes or dtypes do not fit together."""
    if combined.structure != elements.structure:
        raise KernelTypeError(
            f"mixad.reduce_by_index: xs is {combined.structure}, dest is {elements.structure}",
            hint="pass elements of the structure of dest",
        )
    if not indices.kind.type.is_integer:
        raise KernelTypeError(
            f"mixad.reduce_by_index: indices have the dtype {indices.kind.type.dtype_name}",
            hint="pass whole numbers",
        )
    shape = elements.shape
    if not shape:
        raise KernelShapeError(
            "mixad.reduce_by_index: dest has the shape ()",
            hint="pass arrays with an axis for the indices",
        )
    expected = (*indices.shape, *shape[1:])
    if combined.shape != expected:
        raise KernelShapeError(
            f"mixad.reduce_by_index: xs has the shape {combined.shape}, with indices of shape "
            f"{indices.shape} and dest of shape {shape}",
            hint=f"pass elements of shape {expected}",
        )
    for one, other in zip(combined.results, elements.results, strict=True):
        if one.kind.type != other.kind.type:
            raise KernelTypeError(
                f"mixad.reduce_by_index: xs has the dtype {one.kind.type.dtype_name}, dest has "
                f"{other.kind.type.dtype_name}",
                hint="convert one of them",
            )


@dataclass(frozen=True)
class _Indices:
    """Indices into an array of some extent; they may be sorted, and some may be left out."""

    values: Any
    extent: int
    are_sorted: bool
    drops: bool

    @cached_property
    def keys(self) -> Any:
        """The indices as signed integers; larger ones than these become the largest."""
        keys, xp = self.values, library_of(self.values).xp
        if xp.isdtype(keys.dtype, "unsigned integer"):
            most = min(int(xp.iinfo(keys.dtype).max), (1 << 63) - 1)
            keys = xp.where(keys < most, keys, xp.full_like(keys, most))
        return xp.astype(keys, xp.int64)

    @cached_property
    def outside(self) -> Any:
        """A mask of the indices without an element."""
        return (self.keys >= self.extent) | (self.keys < -self.extent)

    def check_order(self) -> None:
        """Raise if they are not sorted."""
        if bool(library_of(self.keys).xp.any(self.keys[1:] < self.keys[:-1])):
            raise KernelShapeError(
                "mixad.reduce_by_index: indices_are_sorted=True, and they are not",
                hint="leave it out",
            )

    def check_inside(self) -> None:
        """Raise if one is outside, unless it is left out."""
        xp = library_of(self.keys).xp
        if self.drops or not bool(xp.any(self.outside)):
            return
        first = int(xp.argmax(xp.astype(self.outside, xp.int8)))
        raise KernelIndexError(
            f"mixad.reduce_by_index: index {int(self.values[first])} at place {first} is outside "
            f"of dest, which has {self.extent} elements",
            hint="mode='drop' leaves it out",
        )

    def sort(self) -> tuple[Any, Any]:
        """Return sorted indices, counted from the array's first element, and the order.

        The order is None if all had their place.
        """
        self.check_inside()
        keys, xp = self.keys, library_of(self.keys).xp
        if self.are_sorted and not bool(xp.any((keys < 0) | self.outside)):
            return keys, None
        keys = xp.where(keys < 0, keys + self.extent, keys)
        order = _order(keys, self.extent)
        if self.drops:
            order = order[~xp.take(self.outside, order)]
        return xp.take(keys, order), order


def _combine_sorted(
    combination: Combination, dest: list[Any], xs: list[Any], indices: _Indices
) -> list[Any]:
    """Sort by index, scan within indices, combine the last prefix of each with an array."""
    operator, captured = combination.operator, combination.captured
    keys, order = indices.sort()
    xp, shape = library_of(keys).xp, tuple(dest[0].shape)
    if not keys.shape[0] or 0 in shape:
        return list(map(copy_leaf, dest))
    after = math.prod(shape[1:])
    if order is not None:
        xs = [take(leaf, order, axis=0) for leaf in xs]
    begins = xp.concat([xp.ones_like(keys[:1], dtype=xp.bool), keys[1:] != keys[:-1]])
    flags = xp.broadcast_to(xp.reshape(begins, (1, -1, 1)), (1, keys.shape[0], after))
    arrays = [reshape_leaf(leaf, (1, -1, after)) for leaf in xs]
    reduction = Reduction(_with_flags(operator), True)
    scanned = run_reduction(reduction, [*arrays, flags, *captured])[: len(arrays)]
    bins = xp.arange(indices.extent, dtype=keys.dtype)
    last = xp.searchsorted(keys, bins, side="right") - 1
    taken = xp.where(last < 0, xp.zeros_like(last), last)
    is_there = xp.reshape((last >= 0) & (keys[taken] == bins), (-1, *[1] * (len(shape) - 1)))
    totals = [reshape_leaf(take(y, taken, axis=1), shape) for y in scanned]
    combined = apply_program(operator.program, [*dest, *totals, *captured])
    return [where(is_there, new, old) for new, old in zip(combined, dest, strict=True)]


def _order(keys: Any, count: int) -> Any:
    """Return the stable order of indices, of which those below ``count`` are inside.

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


@lru_cache(maxsize=256)
def _with_flags(made: Operator) -> Operator:
    """Return the operator of elements with a flag, which stops combination with those before."""
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
