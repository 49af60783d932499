"""`reduce` and `associative_scan`: elements combined by any associative operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mixad.config import CHECK
from mixad.constructs.associative_rules import Reduction, run_reduction
from mixad.constructs.associativity import check_elements
from mixad.constructs.elements import Elements, read_elements
from mixad.constructs.leaves import copy_leaf, reshape_leaf, returned_leaf
from mixad.constructs.operators import (
    Combination,
    core_of,
    kind_of_operator,
    prefer_first,
    read_operator,
)
from mixad.errors import KernelShapeError, KernelTypeError
from mixad.namespace.joining import concat
from mixad.namespace.manipulation import flip
from mixad.namespace.masked_reductions import masked_max, masked_min, masked_total

__all__ = ["associative_scan", "check_associative", "reduce"]


def reduce(
    op: Callable[[Any, Any], Any],
    xs: Any,
    axis: int | None = 0,
    *,
    initial: Any = None,
    keepdims: bool = False,
    signature: str | None = None,
) -> Any:
    """Combine the elements along an axis by an associative operator.

    Elements are combined in their order, so the operator need not commute; how they are grouped
    follows from the shape alone.  It is compiled, as a function of `broadcast` is, and
    may capture numbers, arrays that it indexes and traced values, which have gradients.

    Parameters
    ----------
    op : callable
        ``op(a, b) -> element``, a scalar function, ``min``, ``max``, one of `operator`, a ufunc or
        a kernel.
    xs : array, or tuple, named tuple or dataclass of array
        Elements: numbers, or the numbers at one place of arrays of one shape, which are what the
        operator gets and returns then.
    axis : int, optional
        Along which; None for all elements in the order of the axes.
    initial : element, optional
        What is combined with the result from the left: a number, or an array of the result's shape.
    keepdims : bool
        Whether the axis stays, with length 1.
    signature : str, optional
        Lengths of the last axes of each array that belong to an element, such as ``"(2,2)"``: the
        operator gets small arrays, or a tuple of these, of up to 32 numbers.

    Returns
    -------
    array, or structure of array
        Of the structure and dtypes of ``xs``.  Floats of 16 bits are combined as float32.

    Raises
    ------
    ValueError
        If there is no element and no ``initial``, but for sums and products of numbers, ``&`` and
        ``|``; if arrays have several shapes.
    KernelTypeError
        If the operator does not return an element.

    Notes
    -----
    The derivative of the smallest or largest number is shared evenly by equal ones, as that of
    `max` is; in `associative_scan` the first one has it.  In operators of several numbers, and
    between ``initial`` and the others, it is what `max` has in a kernel.

    References
    ----------
    Schenck, Rønning, Henriksen, Oancea: "AD for an Array Language with Nested Parallelism" (SC22).

    Examples
    --------
    >>> import mixad, numpy as np
    >>> float(mixad.reduce(lambda a, b: a * b, np.asarray([2.0, 3.0, 4.0])))
    24.0
    >>> def after(f, g):  # of maps x -> a x + b
    ...     return g[0] * f[0], g[0] * f[1] + g[1]
    >>> mixad.reduce(after, (np.asarray([2.0, 3.0]), np.asarray([1.0, 5.0])))
    (array(6.), array(8.))
    """
    return _reduce(_read_operands("reduce", op, xs, axis, signature), initial, keepdims)


def associative_scan(
    op: Callable[[Any, Any], Any],
    xs: Any,
    axis: int | None = 0,
    *,
    reverse: bool = False,
    exclusive: bool = False,
    initial: Any = None,
    signature: str | None = None,
) -> Any:
    """Combine each element along an axis with all before it, by an associative operator.

    Parameters
    ----------
    op : callable
        As for `reduce`.
    xs : array, or tuple, named tuple or dataclass of array
        As for `reduce`.
    axis : int, optional
        Along which; None for all elements in the order of the axes: then results have one axis.
    reverse : bool
        Whether to begin with the last element, as if elements were flipped before and after.
    exclusive : bool
        Whether an element is combined with those before it only: the first with ``initial``.
    initial : element, optional
        What comes before the first element: a number, or an array of the shape of one place.
    signature : str, optional
        As for `reduce`.

    Returns
    -------
    array, or structure of array
        Of the structure, shapes and dtypes of ``xs``.

    Raises
    ------
    ValueError
        As for `reduce`; if ``exclusive`` is without ``initial``.
    KernelTypeError
        If the operator does not return an element.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.associative_scan(max, np.asarray([1.0, 3.0, 2.0, 5.0]))
    array([1., 3., 3., 5.])
    >>> mixad.associative_scan(lambda a, b: a + b, np.asarray([1, 2, 3]), exclusive=True, initial=0)
    array([0, 1, 3])
    """
    operands = _read_operands("associative_scan", op, xs, axis, signature)
    return _scan(operands, reverse, exclusive, initial)


def check_associative(
    op: Callable[[Any, Any], Any], xs: Any, axis: int | None = 0, *, signature: str | None = None
) -> None:
    """Raise if an operator is not associative for some elements that follow one another.

    Up to 64 places of the axis are tried.  With ``MIXAD_CHECK=full``, `reduce` and
    `associative_scan` do this.

    Parameters
    ----------
    op : callable
        As for `reduce`.
    xs : array, or tuple, named tuple or dataclass of array
        As for `reduce`.
    axis : int, optional
        Along which.
    signature : str, optional
        As for `reduce`.

    Raises
    ------
    KernelError
        If (a∘b)∘c is not a∘(b∘c), up to rounding: with the operator's line, the elements and both
        results.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.check_associative(lambda a, b: a - b, np.asarray([1.0, 2.0, 3.0]))
    Traceback (most recent call last):
    mixad.errors.KernelError: ...is not associative: with a = 1.0, b = 2.0, c = 3.0...
    """
    _read_operands("check_associative", op, xs, axis, signature, is_checked=True)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The axis along which elements are combined."""

    elements: Elements
    core: tuple[int, ...]  # axes of an element, which come last
    shape: tuple[int, ...]  # the others; one axis alone if the user's is None
    number: int  # which of these

    @property
    def extent(self) -> int:
        """The number of elements that are combined."""
        return self.shape[self.number]

    def around(self, *extent: int) -> tuple[int, ...]:
        """Return the shape with another extent of the axis, or without it."""
        return (*self.shape[: self.number], *extent, *self.shape[self.number + 1 :])

    @cached_property
    def form(self) -> tuple[int, ...]:
        """Three axes, of which the axis is the second, and those of an element."""
        before, after = self.shape[: self.number], self.shape[self.number + 1 :]
        return (math.prod(before), self.extent, math.prod(after), *self.core)

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """The shape of a reduction."""
        return (*self.around(), *self.core)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The shape of a reduction that keeps its axes."""
        rank = len(self.elements.shape) - len(self.core)
        return self.around(1) if len(self.shape) == rank else (1,) * rank


class _Operands(NamedTuple):
    """The arguments of a construct of some name."""

    name: str
    axis: _Axis
    leaves: list[Any]
    combination: Combination

    def read_initial(self, initial: Any, around: tuple[int, ...]) -> list[Any]:
        """Return an element of the user's for each place of a shape."""
        axis = self.axis
        whole = (*around, *axis.core)
        return axis.elements.read_initial(self.name, initial, axis.reduced, whole)

    def run(self, leaves: Sequence[Any], *, is_scan: bool) -> tuple[Any, ...]:
        """Reduce or scan arrays of three axes and an element's."""
        before, _, *after = self.axis.form
        form = (before, int(leaves[0].shape[self.axis.number]), *after)
        arrays = [reshape_leaf(leaf, form) for leaf in leaves]
        operator, captured = self.combination.operator, self.combination.captured
        if is_scan:
            operator = prefer_first(operator)
        found = run_reduction(Reduction(operator, is_scan), [*arrays, *captured])
        return tuple(map(returned_leaf, found))


def _read_operands(
    name: str,
    op: Any,
    xs: Any,
    axis: int | None,
    signature: str | None,
    *,
    is_checked: bool = False,
) -> _Operands:
    """Return the arguments of a construct; check the operator if that is asked for."""
    elements, leaves = read_elements(name, "xs", xs)
    along = _axis_of(name, elements, core_of(name, signature), _read_axis(name, axis))
    if axis is None:
        leaves = [reshape_leaf(leaf, (*along.shape, *along.core)) for leaf in leaves]
    combination = read_operator(name, op, elements, along.core)
    if is_checked or CHECK.read() == "full":
        check_elements(name, combination, leaves, along.shape, along.number)
    return _Operands(name, along, leaves, combination)


def _read_axis(name: str, axis: Any) -> int | None:
    """Return the number of an axis; None for all of them."""
    try:
        return None if axis is None else int(axis.__index__())
    except (AttributeError, TypeError):
        raise KernelTypeError(
            f"mixad.{name}: axis is {axis!r}", hint="pass a whole number or None"
        ) from None


@lru_cache(maxsize=256)
def _axis_of(name: str, elements: Elements, core: tuple[int, ...], axis: int | None) -> _Axis:
    """Return the axis along which elements are combined, counted from the first."""
    count = len(elements.shape) - len(core)
    if elements.shape[count:] != core or count <= 0:
        axes = f"the last axes {core}, and " if core else ""
        raise KernelShapeError(
            f"mixad.{name}: xs has the shape {elements.shape}",
            hint=f"pass arrays with {axes}an axis along which elements are combined",
        )
    shape = elements.shape[:count]
    if axis is None:
        return _Axis(elements, core, (math.prod(shape),), 0)
    if not -count <= axis < count:
        raise np.exceptions.AxisError(axis, count)
    return _Axis(elements, core, shape, axis % count)


_REDUCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    "add": masked_total, "minimum": masked_min, "maximum": masked_max,
})  # fmt: skip
"""Reductions of arrays, by the op of the table that combines elements."""


def _reduce(operands: _Operands, initial: Any, keepdims: bool) -> Any:
    """Return the combination of all elements."""
    axis, leaf = operands.axis, operands.leaves[0]
    kind = kind_of_operator(operands.combination.operator)
    shape = (*axis.kept, *axis.core) if keepdims else axis.reduced
    around = shape[: len(shape) - len(axis.core)]
    if not axis.extent:
        initial = _neutral(operands, kind) if initial is None else initial
        found = list(map(copy_leaf, operands.read_initial(initial, around)))
        return axis.elements.restore(found)
    of = _REDUCTIONS.get(kind or "")
    if of is not None and axis.extent > 1 and not axis.elements.kinds[0].type.is_bool:
        options = {"dtype": leaf.dtype} if kind == "add" else {}
        found = [reshape_leaf(of(leaf, axis.number, **options), shape)]
    else:
        found = [reshape_leaf(y, shape) for y in operands.run(operands.leaves, is_scan=False)]
    if initial is not None:
        found = operands.combination.combine(operands.read_initial(initial, around), found)
    return axis.elements.restore(found)


def _neutral(operands: _Operands, kind: str | None) -> Any:
    """Return the number that changes no other when an op of the table combines them."""
    axis = operands.axis
    type = axis.elements.kinds[0].type
    ones: Any = type.is_bool or -1
    known = {"add": 0, "mul": 1, "or": 0, "and": ones if type.kind != "uint" else None}
    found = known.get(kind or "")
    if found is None or (type.is_bool and kind in ("add", "mul")):
        raise KernelShapeError(
            f"mixad.{operands.name}: axis {axis.number} of shape {axis.shape} has no element",
            hint="pass initial",
        )
    return bool(found) if type.is_bool else found


def _scan(operands: _Operands, reverse: bool, exclusive: bool, initial: Any) -> Any:
    """Return, for each element, the combination of all up to it."""
    along, leaves = operands.axis, operands.leaves
    axis, elements = along.number, along.elements
    if exclusive and initial is None:
        raise KernelShapeError(
            f"mixad.{operands.name}: exclusive=True needs initial, which the first element becomes",
            hint="pass initial, as a rule what changes no element",
        )
    if not along.extent:
        return elements.restore(list(map(copy_leaf, leaves)))
    if reverse:
        leaves = [flip(leaf, axis=axis) for leaf in leaves]
    but_last, but_first = ((*[slice(None)] * axis, s, ...) for s in (slice(-1), slice(1, None)))
    if initial is not None:
        firsts = operands.read_initial(initial, along.around(1))
        rest = [leaf[but_last] for leaf in leaves] if exclusive else leaves
        leaves = [concat(pair, axis=axis) for pair in zip(firsts, rest, strict=True)]
    scanned = zip(operands.run(leaves, is_scan=True), leaves, strict=True)
    found = [reshape_leaf(y, tuple(x.shape)) for y, x in scanned]
    if initial is not None and not exclusive:
        found = [y[but_first] for y in found]
    if reverse:
        found = [flip(y, axis=axis) for y in found]
    return elements.restore(found)
