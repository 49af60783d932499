"""`reduce` and `associative_scan`: elements combined by any associative operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import is_scalar
from mixad.config import CHECK
from mixad.constructs.associative_rules import Reduction, run_reduction
from mixad.constructs.associativity import check_elements
from mixad.constructs.elements import read_elements
from mixad.constructs.leaves import (
    copy_leaf,
    leaf_of,
    reshape_leaf,
    result_of,
    returned_leaf,
)
from mixad.constructs.operators import (
    Combination,
    core_of,
    kind_of_operator,
    prefer_first,
    read_operator,
)
from mixad.errors import KernelShapeError, KernelTypeError
from mixad.namespace.assignment import broadcasts
from mixad.namespace.data_types import astype
from mixad.namespace.joining import broadcast_to, concat
from mixad.namespace.manipulation import flip
from mixad.namespace.masked_reductions import masked_max, masked_min, masked_total
from mixad.tape.node import Result
from mixad.tape.tracer import Tracer

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
    elements = _checked("reduce", op, xs, axis, signature)
    return elements.reduce(initial, keepdims)


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
    elements = _checked("associative_scan", op, xs, axis, signature)
    return elements.scan(reverse, exclusive, initial)


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
    _Elements("check_associative", op, xs, axis, signature).check()


_REDUCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    "add": masked_total, "minimum": masked_min, "maximum": masked_max,
})  # fmt: skip
"""What combines elements by an op of the table that arrays have a reduction for."""


def _checked(name: str, op: Any, xs: Any, axis: int | None, signature: str | None) -> _Elements:
    """Return the elements of a construct, checked if all checks are asked for."""
    elements = _Elements(name, op, xs, axis, signature)
    if CHECK.read() == "full":
        elements.check()
    return elements


class _Elements:
    """The elements of a reduction or a scan, and what combines them.

    Parameters
    ----------
    name : str
        Of the construct, for messages.
    op, xs, axis, signature
        The user's.
    """

    def __init__(
        self, name: str, op: Any, xs: Any, axis: int | None, signature: str | None
    ) -> None:
        self.name = name
        self.core = core_of(name, signature)
        self.elements = read_elements(name, "xs", xs)
        self.leaves = self.elements.leaves
        self._check_shape()
        shape = self.elements.shape
        self.shape = shape[: len(shape) - len(self.core)]
        self.ones = (1,) * len(self.shape) if axis is None else None
        if axis is None:
            self.shape, axis = (math.prod(self.shape),), 0
            form = (*self.shape, *self.core)
            self.leaves = [reshape_leaf(leaf, form) for leaf in self.leaves]
        self.axis = self._axis(axis)
        self.combination: Combination = read_operator(name, op, self.elements, self.core)

    def _check_shape(self) -> None:
        """Raise if arrays lack the axes of elements."""
        shape, core = self.elements.shape, self.core
        if shape[len(shape) - len(core) :] != core or len(shape) <= len(core):
            axes = f"the last axes {core}, and " if core else ""
            raise KernelShapeError(
                f"mixad.{self.name}: xs has the shape {shape}",
                hint=f"pass arrays with {axes}an axis along which elements are combined",
            )

    def _axis(self, axis: Any) -> int:
        """Return which axis is meant, counted from the first."""
        count = len(self.shape)
        try:
            at = axis.__index__()
        except (AttributeError, TypeError):
            raise KernelTypeError(
                f"mixad.{self.name}: axis is {axis!r}", hint="pass a whole number or None"
            ) from None
        if not -count <= at < count:
            raise np.exceptions.AxisError(at, count)
        return int(at % count)

    @property
    def extent(self) -> int:
        """How many elements are combined."""
        return self.shape[self.axis]

    def check(self) -> None:
        """Raise if the operator is not associative at some places of the axis."""
        check_elements(self.name, self.combination, self.leaves, self.shape, self.axis)

    # -- the two constructs ------------------------------------------------------------------------

    def reduce(self, initial: Any, keepdims: bool) -> Any:
        """Return the combination of all elements."""
        kind, leaf = kind_of_operator(self.combination.operator), self.leaves[0]
        around = self._around(1 if keepdims else None)
        if keepdims and self.ones is not None:
            around = self.ones
        if not self.extent:
            if initial is None:
                initial = self._neutral(kind)
            begun = self._initial(initial, around)
            return self.elements.restore([copy_leaf(leaf) for leaf in begun])
        of = _REDUCTIONS.get(kind or "")
        if of is not None and self.extent > 1 and not _type_of(leaf).is_bool:
            options = {"dtype": leaf.dtype} if kind == "add" else {}
            found = [reshape_leaf(of(leaf, self.axis, **options), around)]
        else:
            found = [reshape_leaf(y, (*around, *self.core)) for y in self._run(False)]
        if initial is not None:
            found = self.combination.combine(self._initial(initial, around), found)
        return self.elements.restore(found)

    def _neutral(self, kind: str | None) -> Any:
        """Return the number that changes no other when it is combined by an op of the table."""
        type = _type_of(self.leaves[0])
        ones: Any = type.is_bool or -1
        known = {"add": 0, "mul": 1, "or": 0, "and": ones if type.kind != "uint" else None}
        found = known.get(kind or "")
        if found is None or (type.is_bool and kind in ("add", "mul")):
            raise KernelShapeError(
                f"mixad.{self.name}: axis {self.axis} of shape {self.shape} has no element",
                hint="pass initial",
            )
        return bool(found) if type.is_bool else found

    def scan(self, reverse: bool, exclusive: bool, initial: Any) -> Any:
        """Return the combinations of all elements up to each."""
        if exclusive and initial is None:
            raise KernelShapeError(
                f"mixad.{self.name}: exclusive=True needs initial, which the first element becomes",
                hint="pass initial, as a rule what changes no element",
            )
        if not self.extent:
            return self.elements.restore([copy_leaf(leaf) for leaf in self.leaves])
        if reverse:
            self.leaves = [flip(leaf, axis=self.axis) for leaf in self.leaves]
        if initial is not None:
            firsts = self._initial(initial, self._around(1))
            cut = self._part(slice(None, -1)) if exclusive else (...,)
            self.leaves = [
                concat([first, leaf[cut]], axis=self.axis)
                for first, leaf in zip(firsts, self.leaves, strict=True)
            ]
        found = [
            reshape_leaf(y, tuple(x.shape))
            for y, x in zip(self._run(True), self.leaves, strict=True)
        ]
        if initial is not None and not exclusive:
            found = [y[self._part(slice(1, None))] for y in found]
        if reverse:
            found = [flip(y, axis=self.axis) for y in found]
        return self.elements.restore(found)

    def _part(self, part: slice) -> tuple[Any, ...]:
        """Return the key of a part of the axis."""
        return (*[slice(None)] * self.axis, part, ...)

    def _run(self, is_scan: bool) -> tuple[Any, ...]:
        """Run the construct over arrays of three axes and those of an element."""
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        extent = int(self.leaves[0].shape[self.axis])
        form = (math.prod(before), extent, math.prod(after), *self.core)
        arrays = [reshape_leaf(leaf, form) for leaf in self.leaves]
        operator, captured = self.combination.operator, self.combination.captured
        if is_scan:
            operator = prefer_first(operator)
        found = run_reduction(Reduction(operator, is_scan), [*arrays, *captured])
        return tuple(map(returned_leaf, found))

    def _around(self, extent: int | None) -> tuple[int, ...]:
        """Return the shape with the axis of another extent, or without it."""
        own = () if extent is None else (extent,)
        return (*self.shape[: self.axis], *own, *self.shape[self.axis + 1 :])

    def _initial(self, initial: Any, around: tuple[int, ...]) -> list[Any]:
        """Return an element of the user's for each place of a shape."""
        given, structure = pytree.flatten(initial)
        if structure != self.elements.structure:
            raise KernelTypeError(
                f"mixad.{self.name}: initial is {structure}, of elements that are "
                f"{self.elements.structure}",
                hint="pass an element like those of xs",
            )
        pairs = zip(given, self.leaves, self.elements.results, strict=True)
        return [self._initial_leaf(*each, around) for each in pairs]

    def _initial_leaf(self, given: Any, leaf: Any, result: Result, around: tuple[int, ...]) -> Any:
        """Return one array of an element of the user's, for each place of a shape."""
        library, type, wide = result.kind.library, result.kind.type, _type_of(leaf)
        is_weak = is_scalar(given) or (isinstance(given, Tracer) and given.kind.weak)
        if is_scalar(given):
            number = given
            try:
                given = library.asarray(number, wide, result.device)
            except (OverflowError, ValueError):
                given = None
            is_exact = wide.is_float or (given is not None and given.item() == number)
            if not is_exact or isinstance(number, bool) != type.is_bool:
                raise KernelTypeError(
                    f"mixad.{self.name}: initial is {number!r}, elements are {leaf.dtype}",
                    hint="pass a number of that dtype, or convert the elements",
                )
        own = leaf_of(given, f"mixad.{self.name}: initial")
        if is_weak and wide.is_float:
            own = astype(own, leaf.dtype)
        if _type_of(own) not in (type, wide):
            raise KernelTypeError(
                f"mixad.{self.name}: initial has the dtype {own.dtype}, elements have "
                f"{library.dtype_of(type)}",
                hint="pass a Python number, or convert it",
            )
        shape, whole = tuple(own.shape), (*around, *self.core)
        if shape != whole:  # of one place: without the axis
            one = (*self._around(None), *self.core)
            if not broadcasts(shape, one):
                raise KernelShapeError(
                    f"mixad.{self.name}: initial has the shape {shape}, elements beside each other "
                    f"have {one}",
                    hint="pass a number, or an array of that shape",
                )
            own = reshape_leaf(broadcast_to(own, one), whole)
        return astype(own, leaf.dtype)


def _type_of(leaf: Any) -> Any:
    """Return the scalar type of an array."""
    return result_of(leaf).kind.type
