"""`reduce` and `associative_scan`: elements combined by any associative operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import is_scalar
from mixad.config import CHECK
from mixad.constructs.associative_rules import Reduction, run_reduction
from mixad.constructs.leaves import (
    check_is_here,
    copy_leaf,
    join_numbers,
    leaf_of,
    reshape_leaf,
    result_of,
    returned_leaf,
    split_elements,
)
from mixad.constructs.operators import (
    Combination,
    core_of,
    kind_of_operator,
    read_operator,
    taking_first,
)
from mixad.errors import KernelError, KernelShapeError, KernelTypeError
from mixad.namespace.assignment import broadcasts
from mixad.namespace.data_types import astype
from mixad.namespace.joining import broadcast_to, concat
from mixad.namespace.manipulation import flip
from mixad.namespace.masked_reductions import masked_max, masked_min, masked_total
from mixad.scalar.types import F32
from mixad.tape.apply import apply_program
from mixad.tape.node import Result, common_library
from mixad.tape.tracer import Tracer, plain

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
        Lengths of the last axes that belong to an element, such as ``"(2,2)"``: the operator gets
        small arrays, of up to 32 numbers.

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
    elements = _Elements("reduce", op, xs, axis, signature)
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
    elements = _Elements("associative_scan", op, xs, axis, signature)
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
    _Elements("check_associative", op, xs, axis, signature, checks=False).check()


_TRIALS = 64
"""Places that are tried whether an operator is associative there."""

_ROUNDING = 1e5
"""How many times the spacing of the largest number beside them two results may differ."""

_REDUCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    "add": masked_total, "minimum": masked_min, "maximum": masked_max,
})  # fmt: skip
"""What combines elements by an op of the table that arrays have a reduction for."""


class _Elements:
    """The elements of a reduction or a scan, and what combines them.

    Parameters
    ----------
    name : str
        Of the construct, for messages.
    op, xs, axis, signature
        The user's.
    checks : bool
        Whether it is tried whether the operator is associative, if all checks are asked for.
    """

    def __init__(
        self, name: str, op: Any, xs: Any, axis: int | None, signature: str | None, *,
        checks: bool = True,
    ) -> None:  # fmt: skip
        self.name = name
        self.core = core_of(name, signature)
        found, self.structure = pytree.flatten(xs)
        _check_structure(name, self.structure, found)
        leaves = [leaf_of(leaf, f"mixad.{name}: xs") for leaf in found]
        library = common_library(f"mixad.{name}", leaves)
        check_is_here(name, library)
        self.results = [result_of(leaf) for leaf in leaves]
        self._check_shapes()
        is_narrow = [result.kind.type.is_narrow for result in self.results]
        wide = library.dtype_of(F32)
        leaves = [
            astype(leaf, wide) if narrow else leaf
            for leaf, narrow in zip(leaves, is_narrow, strict=True)
        ]
        shape = self.results[0].shape
        self.shape = shape[: len(shape) - len(self.core)]
        self.ones = (1,) * len(self.shape) if axis is None else None
        if axis is None:
            self.shape, axis = (math.prod(self.shape),), 0
            leaves = [reshape_leaf(leaf, (*self.shape, *self.core)) for leaf in leaves]
        self.axis = self._axis(axis)
        self.leaves = leaves
        kinds = [result_of(leaf).kind for leaf in leaves]
        device = self.results[0].device
        self.combination: Combination = read_operator(
            name, op, self.structure, kinds, device, self.core
        )
        if checks and CHECK.read() == "full":
            self.check()

    def _check_shapes(self) -> None:
        """Raise if arrays are of several shapes, are complex, or lack the axes of elements."""
        first, core = self.results[0], self.core
        for result in self.results:
            if result.shape != first.shape:
                raise KernelShapeError(
                    f"mixad.{self.name}: arrays of the shapes {first.shape} and {result.shape} in "
                    "xs",
                    hint="pass arrays of one shape: an element is what is at one place of all",
                )
            if result.kind.type.is_complex:
                raise KernelTypeError(
                    f"mixad.{self.name}: xs contains complex numbers",
                    hint="pass a tuple of real and imaginary parts, and combine these",
                )
        shape = first.shape
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
            return self._returned([copy_leaf(each) for each in self._initial(initial, around)])
        of = _REDUCTIONS.get(kind or "")
        if of is not None and self.extent > 1 and not _type_of(leaf).is_bool:
            options = {"dtype": leaf.dtype} if kind == "add" else {}
            found = [reshape_leaf(of(leaf, self.axis, **options), around)]
        else:
            found = [reshape_leaf(y, (*around, *self.core)) for y in self._run(False)]
        if initial is not None:
            found = self._combined(self._initial(initial, around), found)
        return self._returned(found)

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
            return self._returned([copy_leaf(leaf) for leaf in self.leaves])
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
        return self._returned(found)

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
            operator = taking_first(operator)
        found = run_reduction(Reduction(operator, is_scan), [*arrays, *captured])
        return tuple(map(returned_leaf, found))

    def _around(self, extent: int | None) -> tuple[int, ...]:
        """Return the shape with the axis of another extent, or without it."""
        own = () if extent is None else (extent,)
        return (*self.shape[: self.axis], *own, *self.shape[self.axis + 1 :])

    def _initial(self, initial: Any, around: tuple[int, ...]) -> list[Any]:
        """Return an element of the user's for each place of a shape."""
        given, structure = pytree.flatten(initial)
        if structure != self.structure:
            raise KernelTypeError(
                f"mixad.{self.name}: initial is {structure}, of elements that are {self.structure}",
                hint="pass an element like those of xs",
            )
        pairs = zip(given, self.leaves, self.results, strict=True)
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

    def _combined(self, these: Sequence[Any], those: Sequence[Any]) -> list[Any]:
        """Return the combination of the elements at each place of two."""
        operator, captured = self.combination.operator, self.combination.captured
        one, other = (split_elements(operator, dict(enumerate(x))) for x in (these, those))
        return join_numbers(operator, apply_program(operator.program, [*one, *other, *captured]))

    def _returned(self, found: Sequence[Any]) -> Any:
        """Return arrays in the structure and dtypes of the elements."""
        leaves = [
            astype(y, r.kind.library.dtype_of(r.kind.type)) if r.kind.type.is_narrow else y
            for y, r in zip(found, self.results, strict=True)
        ]
        return pytree.unflatten(self.structure, leaves)

    # -- checking ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if the operator is not associative at some places of the axis."""
        places = range(0, self.extent - 2, max(1, -(-(self.extent - 2) // _TRIALS)))
        if not places or 0 in self.shape:
            return
        leaves = [plain(leaf) for leaf in self.leaves]
        at = self._part(slice(0, None))[:-2]
        a, b, c = (
            [leaf[(*at, slice(k, k + places.stop, places.step), ...)] for leaf in leaves]
            for k in range(3)
        )
        count = len(places)
        a, b, c = ([leaf[(*at, slice(0, count), ...)] for leaf in each] for each in (a, b, c))
        left, right = (
            self._combined(self._combined(a, b), c),
            self._combined(a, self._combined(b, c)),
        )
        size = self._sizes([a, b, c, left, right])
        for one, other in zip(left, right, strict=True):
            wrong = ~_are_close(np.asarray(plain(one)), np.asarray(plain(other)), size)
            if wrong.any():
                first = tuple(int(i[0]) for i in np.nonzero(wrong))[: len(self.shape)]
                raise self._not_associative([a, b, c, left, right], first)

    def _sizes(self, elements: Sequence[Sequence[Any]]) -> Any:
        """Return the largest finite number at each place of some elements, with axes for cores."""
        sizes: Any = 0.0
        axes = tuple(range(len(self.shape), len(self.shape) + len(self.core)))
        for leaf in (np.asarray(plain(leaf)) for each in elements for leaf in each):
            if leaf.dtype.kind == "f":
                finite = np.where(np.isfinite(leaf), np.abs(leaf), 0.0)
                sizes = np.maximum(sizes, np.max(finite, axis=axes, keepdims=True))
        return sizes

    def _not_associative(self, elements: Sequence[Any], place: tuple[int, ...]) -> KernelError:
        shown = [
            ", ".join(str(np.asarray(plain(leaf))[place].tolist()) for leaf in each)
            for each in elements
        ]
        shown = [f"({each})" if len(self.leaves) > 1 else each for each in shown]
        a, b, c, left, right = shown
        return KernelError.at(
            self.combination.place,
            f"mixad.{self.name}: {self.combination.name} is not associative: with a = {a}, "
            f"b = {b}, c = {c}, (a∘b)∘c is {left} and a∘(b∘c) is {right}",
            "an operator for which these are one, or mixad.scan, which takes steps in order",
        )


def _type_of(leaf: Any) -> Any:
    """Return the scalar type of an array."""
    return result_of(leaf).kind.type


def _check_structure(name: str, structure: pytree.Structure, leaves: Sequence[Any]) -> None:
    """Raise if elements are no numbers, tuples or records of numbers."""
    are_nested = any(child.kind for child in structure.children)
    if structure.kind in (list, dict, type(None)) or are_nested or not leaves:
        raise KernelTypeError(
            f"mixad.{name}: xs is {structure}",
            hint="pass an array, or a tuple, named tuple or dataclass of arrays",
        )


def _are_close(one: Any, other: Any, size: Any) -> Any:
    """Return where two results are one, up to rounding of numbers of some size."""
    if one.dtype.kind != "f":
        return one == other
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= _ROUNDING * np.finfo(one.dtype).eps * size
    return near | (one == other) | (np.isnan(one) & np.isnan(other))
