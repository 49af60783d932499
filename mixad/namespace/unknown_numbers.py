"""Functions of whole numbers and flags that kernels compute in the steps of a loop.

Each returns what the library does, or None where a kernel would not: then the library is called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from mixad.backends.arrays import NUMPY
from mixad.namespace.elementwise import convert, elementwise, where
from mixad.namespace.indexing import gather, getitem, is_selection, written_at
from mixad.namespace.joining import broadcast_to
from mixad.namespace.statistical import total
from mixad.namespace.unknown_positions import positions_selected
from mixad.scalar.build import Builder
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.ir import Atom
from mixad.scalar.types import BOOL, F64, I64, ScalarType, integer_bounds
from mixad.tape.core_kernel import CoreKernel, OverCores
from mixad.tape.tracer import Tracer
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["computed_by_kernels"]


def computed_by_kernels(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return the result of a function of traced values, by its name; None if kernels have none."""
    function = _FUNCTIONS.get(name)
    tracers = [a for a in args if isinstance(a, Tracer)]
    if function is None or any(each.library is not NUMPY for each in tracers):
        return None
    is_known = len(args) in _COUNTS[name] and options.keys() <= _OPTIONS.get(name, set())
    return function(*args, **options) if is_known else None


def _item(x: Any, key: Any) -> Any:
    keys = key if isinstance(key, tuple) else (key,)
    if not isinstance(x, Tracer) or x.kind.type.is_inexact:
        return None
    if not any(map(is_selection, keys)):
        return getitem(x, key)
    positions = positions_selected(tuple(x.shape), keys)
    return None if positions is None else gather(x, positions)


def _with_item(x: Any, key: Any, value: Any) -> Any:
    keys = key if isinstance(key, tuple) else (key,)
    if not isinstance(x, Tracer) or x.kind.type.is_inexact:
        return None
    positions = positions_selected(tuple(x.shape), keys)
    given = None if positions is None else _value_for(x, tuple(positions.shape), value)
    if given is None:
        return None
    are_distinct = not any(getattr(k, "shape", ()) for k in keys)
    return written_at(x, given, positions, are_distinct=are_distinct)


def _value_for(x: Tracer, shape: tuple[int, ...], value: Any) -> Any:
    """Return what is written in the type of an array and the shape of its part; None otherwise."""
    own = x.kind.type
    if type(value) in (int, bool):
        low, high = integer_bounds(own)
        return np.full(shape, value, own.dtype) if low <= value <= high else None
    is_whole = isinstance(value, Tracer) and not value.kind.type.is_inexact
    extra = len(shape) - len(getattr(value, "shape", ()))
    if not is_whole or extra < 0 or np.broadcast_shapes(value.shape, shape) != shape:
        return None
    return broadcast_to(value if value.kind.type == own else convert(value, own), shape)


def _are_alike(*operands: Any) -> bool:
    """Whether operands are of one type of whole numbers, or numbers of Python that it has."""
    types = {a.kind.type for a in operands if isinstance(a, Tracer)}
    if len(types) != 1 or not all(type(a) is int or isinstance(a, Tracer) for a in operands):
        return False
    (own,) = types
    if not own.is_integer:
        return False
    low, high = integer_bounds(own)
    return all(low <= a <= high for a in operands if type(a) is int)


def _elementwise(op: str) -> Callable[..., Any]:
    def function(*operands: Any) -> Any:
        return elementwise(op, *operands) if _are_alike(*operands) else None

    return function


def _clipped(x: Any, low: Any, high: Any) -> Any:
    if not (_are_alike(x, low, high) and isinstance(x, Tracer)):
        return None
    return elementwise("minimum", elementwise("maximum", x, low), high)


def _selected(condition: Any, x: Any, y: Any) -> Any:
    is_flag = isinstance(condition, Tracer) and condition.kind.type.is_bool
    return where(condition, x, y) if is_flag and _are_alike(x, y) else None


def _converted(x: Any, dtype: Any) -> Any:
    if not isinstance(x, Tracer) or x.kind.type.is_complex:
        return None
    dtype, source = np.dtype(dtype), x.kind.type
    target = element_type_of(dtype)
    if target.is_complex or (source.is_inexact and target.is_inexact):
        return None
    if source.is_inexact and target.is_integer:
        return apply_values_rule(_WHOLE, x, dtype=dtype)[0]
    return convert(x, target)


def _extreme(op: str) -> Callable[..., Any]:
    def function(x: Any, axis: int | None = None) -> Any:
        if not isinstance(x, Tracer) or x.kind.type.is_complex or not 0 < x.size <= _MOST:
            return None
        core = tuple(x.shape) if axis is None else tuple(x.shape[-1:])
        if not core or axis not in (None, -1, len(x.shape) - 1):
            return None
        return apply_values_rule(_EXTREMES, x, op=op, core=core)[0]

    return function


def _counted(op: str | None, *, inverts: bool = False) -> Callable[..., Any]:
    """Return a function of flags that compares how many hold, or do not, with none."""

    def function(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if not (isinstance(x, Tracer) and x.kind.type.is_bool):
            return None
        flags = elementwise("not", x) if inverts else x
        count = total(convert(flags, F64), axis, keepdims=keepdims)
        return convert(count, I64) if op is None else elementwise(op, count, 0.0)

    return function


_MOST = 64
"""Elements of an array whose largest one a kernel finds."""


# -- kernels that may fail -------------------------------------------------------------------------


def _as_whole(xp: Any, x: Any, dtype: np.dtype[Any]) -> tuple[Any]:
    return (x.astype(dtype),)


def _whole_kernel(x: Any, dtype: np.dtype[Any]) -> CoreKernel | None:
    return _served(x, lambda: _conversion(element_type_of(x.dtype), element_type_of(dtype)))


@cache
def _conversion(source: ScalarType, target: ScalarType) -> CoreKernel:
    """Return what converts floats to whole numbers, and fails of those that it does not have."""
    b = Builder("astype")
    x, fails = b.param("x", source), b.param("fails", BOOL)
    low, high = integer_bounds(target)
    wide = b.op("trunc", b.convert(x, F64))
    # The bounds of 64 bits are no doubles: the next that are inside are taken.
    least, most = (float(bound) for bound in (low, high))
    inside = b.op("ge", wide, b.const(least, F64))
    below = "lt" if most > high else "le"
    inside = b.op("and", inside, b.op(below, wide, b.const(most, F64)))
    found = b.convert(b.op("where", inside, wide, b.const(0.0, F64)), target)
    program = b.finish([found, b.op("or", fails, b.op("not", inside))])
    return CoreKernel(program, [()], [()])


_WHOLE = ValuesRule("astype", OverCores(_whole_kernel, _as_whole), ())


def _place_of(xp: Any, x: Any, op: str, core: tuple[int, ...]) -> tuple[Any]:
    flat = x.reshape((*x.shape[: x.ndim - len(core)], -1))
    return (np.asarray(getattr(np, op)(flat, axis=-1)),)


def _extreme_kernel(x: Any, op: str, core: tuple[int, ...]) -> CoreKernel | None:
    return _served(x, lambda: _search(element_type_of(x.dtype), op, core))


@cache
def _search(type: ScalarType, op: str, core: tuple[int, ...]) -> CoreKernel:
    """Return what finds the first of the largest or least elements: the first nan, if any."""
    b, count = Builder(op), reduce(operator.mul, core)
    xs: list[Atom] = [b.param(f"x{k}", type) for k in range(count)]
    if type.is_bool:
        xs = [b.convert(x, I64) for x in xs]
    best: Atom = xs[0]
    place: Atom = b.const(0, I64)
    compare = "gt" if op == "argmax" else "lt"
    for k, x in enumerate(xs[1:], 1):
        is_better = b.op(compare, x, best)
        if type.is_float:
            is_first = b.op("and", b.op("isnan", x), b.op("not", b.op("isnan", best)))
            is_better = b.op("or", is_better, is_first)
        best = b.op("where", is_better, x, best)
        place = b.op("where", is_better, b.const(k, I64), place)
    return CoreKernel(b.finish([place]), [core], [()])


_EXTREMES = ValuesRule("argmax", OverCores(_extreme_kernel, _place_of), (), is_total=True)


def _served(x: Any, kernel: Callable[[], CoreKernel]) -> CoreKernel | None:
    """Return a kernel of an array of NumPy, if there is a backend for it."""
    if type(x) is not np.ndarray or not x.dtype.isnative:
        return None
    found = kernel()
    return found if found.is_served else None


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "getitem": _item,
    "_with_item": _with_item,
    "minimum": _elementwise("minimum"),
    "maximum": _elementwise("maximum"),
    "abs": _elementwise("abs"),
    "absolute": _elementwise("abs"),
    "clip": _clipped,
    "where": _selected,
    "astype": _converted,
    "argmax": _extreme("argmax"),
    "argmin": _extreme("argmin"),
    "any": _counted("ne"),
    "all": _counted("eq", inverts=True),
    "sum": _counted(None),
    "count_nonzero": _counted(None),
}

_COUNTS = {
    "getitem": (2,), "_with_item": (3,), "minimum": (2,), "maximum": (2,), "abs": (1,),
    "absolute": (1,), "clip": (3,), "where": (3,), "astype": (2,), "argmax": (1, 2),
    "argmin": (1, 2),
    "any": (1, 2), "all": (1, 2), "sum": (1, 2), "count_nonzero": (1, 2),
}  # fmt: skip
"""How many arguments each takes."""

_OPTIONS = {
    "argmax": {"axis"}, "argmin": {"axis"}, "any": {"axis", "keepdims"},
    "all": {"axis", "keepdims"}, "sum": {"axis", "keepdims"}, "count_nonzero": {"axis", "keepdims"},
}  # fmt: skip
"""Options of functions that have some."""
