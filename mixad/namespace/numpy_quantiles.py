"""NumPy's quantiles: sorted elements, and values between two of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import Array
from mixad.errors import TracerError
from mixad.namespace.complex_numbers import is_complex
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.indexing import getitem, part_along, take, take_along_axis
from mixad.namespace.joining import stack
from mixad.namespace.manipulation import normalized_axes, permute_dims, reshape
from mixad.namespace.sorting import sort
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import mean
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["NUMPY_QUANTILES", "quantile"]

Axis = int | Sequence[int] | None


def median(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Return the element in the middle of sorted ones, the mean of two if there are two."""
    ordered, axes = _in_order(x, axis)
    count = ordered.shape[0]
    middle = part_along(ordered, 0, (count - 1) // 2, count // 2 + 1) if count else ordered
    found = _or_nan(x, axes, mean(middle, 0))
    return _with_axes(found, x, axes, (), keepdims=keepdims)


def quantile(
    x: Any, q: Any, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return quantiles along axes, all for None; axes of ``q`` come first.

    ``method`` is "linear", "lower", "higher" or "midpoint". Equal elements stay in their order.
    TracerError if ``q`` is differentiated, or for another method.
    """
    return _quantile(x, _shares(q), axis, method, keepdims, is_weak=_is_number(q))


def percentile(
    x: Any, q: Any, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return `quantile` of shares in percent."""
    return _quantile(x, _percents(q), axis, method, keepdims, is_weak=_is_number(q))


def _quantile(
    x: Any, shares: Any, axis: Axis, method: str, keepdims: bool, *, is_weak: bool
) -> Any:
    _check(x, shares, method)
    ordered, axes = _in_order(x, axis)
    last = ordered.shape[0] - 1
    places = np.asarray(_PLACES[method](np, last * shares))
    below = np.floor(places).astype(np.intp)
    found = _elements_at(ordered, below)
    if _is_between(shares, method):
        part = np.asarray(places - below, dtype=places.dtype)
        above = _elements_at(ordered, np.minimum(below + 1, last))
        found = _interpolate(found, above, float(part) if is_weak else _array_beside(ordered, part))
    found = _or_nan(x, axes, found)
    return _with_axes(found, x, axes, shares.shape, keepdims=keepdims)


def _is_number(q: Any) -> bool:
    return type(q) in (int, float)


def _shares(q: Any) -> Any:
    if isinstance(q, Tracer):
        raise TracerError(
            "quantile(q=) of a value that is being differentiated is not available: it jumps "
            "between the differences of neighbours; pass mixad.stop_gradient(q)"
        )
    return np.asarray(q)


def _percents(q: Any) -> Any:
    return np.asarray(np.true_divide(_shares(q), 100))


def _check(x: Any, shares: Any, method: str) -> None:
    if is_complex(x):
        raise TypeError("quantiles of complex numbers, which have no order: take a part first")
    if not np.all((shares >= 0) & (shares <= 1)):
        raise ValueError("quantiles are in the range [0, 1], percentiles in [0, 100]")
    if method not in _PLACES:
        raise TracerError(
            f"quantile(method={method!r}) of a value that is being differentiated is not "
            f"available: use one of {tuple(_PLACES)}"
        )


_PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda xp, places: places,
    "lower": lambda xp, places: xp.floor(places),
    "higher": lambda xp, places: xp.ceil(places),
    "midpoint": lambda xp, places: 0.5 * (xp.floor(places) + xp.ceil(places)),
}
"""For each method, the place to read, by the place among sorted elements."""


def _is_between(shares: Any, method: str) -> bool:
    """Whether a quantile may be between two elements, and not the first or the last."""
    return shares.dtype.kind == "f" and method in ("linear", "midpoint")


def _in_order(x: Any, axis: Axis) -> tuple[Any, tuple[int, ...]]:
    """Return sorted elements of the given axes along a first axis, and these axes."""
    axes = normalized_axes(axis, x.ndim)
    rest = [a for a in range(x.ndim) if a not in axes]
    first = permute_dims(x, (*axes, *rest))
    count = math.prod(x.shape[a] for a in axes)
    return sort(reshape(first, (count, *(x.shape[a] for a in rest))), axis=0), axes


def _elements_at(ordered: Any, places: Any) -> Any:
    if not places.ndim:
        return getitem(ordered, int(places))
    at = library_of_value(ordered).xp.asarray(places.reshape(-1), device=device(ordered))
    return reshape(take(ordered, at, axis=0), (*places.shape, *ordered.shape[1:]))


def _array_beside(ordered: Any, part: Any) -> Array:
    """Return numbers for each quantile as an array that broadcasts to quantiles of columns."""
    shape = (*part.shape, *[1] * (ordered.ndim - 1))
    return library_of_value(ordered).xp.asarray(part.reshape(shape), device=device(ordered))


def _interpolate(x: Any, y: Any, part: Any) -> Any:
    """Interpolate from ``x`` to ``y``, starting at the nearer one."""
    step = elementwise("sub", y, x)
    low = elementwise("add", x, elementwise("mul", step, part))
    high = elementwise("sub", y, elementwise("mul", step, 1 - part))
    return where(part >= 0.5, high, low)


def _or_nan(x: Any, axes: tuple[int, ...], found: Any) -> Any:
    """Return quantiles, nan where elements are."""
    xp = library_of_value(x).xp
    return where(xp.any(xp.isnan(primal_value(x)), axis=axes), math.nan, found)


def _with_axes(
    found: Any, x: Any, axes: tuple[int, ...], leading: tuple[int, ...], *, keepdims: bool
) -> Any:
    """Return quantiles, with the reduced axes if they are kept."""
    if not keepdims:
        return found
    return reshape(found, (*leading, *(1 if a in axes else n for a, n in enumerate(x.shape))))


# -- without nans ----------------------------------------------------------------------------------


def nanmedian(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Return the median of the elements that are no nan, nan if all are."""
    ordered, counts, axes = _numbers_in_order(x, axis)
    low, high = (_at_least_one(counts) - 1) // 2, counts // 2
    one, other = _of_columns(ordered, low), _of_columns(ordered, high)
    both = mean(stack([one, other]), 0)
    found = where(counts == 0, math.nan, where(low == high, one, both))
    return _with_axes(found, x, axes, (), keepdims=keepdims)


def nanquantile(
    x: Any, q: Any, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return `quantile` of the elements that are no nan, nan if all are."""
    return _nanquantile(x, _shares(q), axis, method, keepdims, is_weak=_is_number(q))


def nanpercentile(
    x: Any, q: Any, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return `percentile` of the elements that are no nan, nan if all are."""
    return _nanquantile(x, _percents(q), axis, method, keepdims, is_weak=_is_number(q))


def _nanquantile(
    x: Any, shares: Any, axis: Axis, method: str, keepdims: bool, *, is_weak: bool
) -> Any:
    _check(x, shares, method)
    ordered, counts, axes = _numbers_in_order(x, axis)
    xp, dtype = library_of_value(x).xp, np.float64 if is_weak else shares.dtype
    among = _array_beside(ordered, np.asarray(shares, dtype=dtype))
    last = _at_least_one(counts) - 1
    places = _PLACES[method](xp, among * xp.astype(last, among.dtype))
    below = xp.floor(places)
    found = _of_columns(ordered, xp.astype(below, counts.dtype))
    if _is_between(shares, method):
        above = xp.where(below < xp.astype(last, below.dtype), below + 1, below)
        part = places - below
        part = xp.astype(part, ordered.dtype) if is_weak else part
        found = _interpolate(found, _of_columns(ordered, xp.astype(above, counts.dtype)), part)
    found = where(counts == 0, math.nan, found)
    return _with_axes(found, x, axes, shares.shape, keepdims=keepdims)


def _numbers_in_order(x: Any, axis: Axis) -> tuple[Any, Array, tuple[int, ...]]:
    """Return sorted elements, the count of numbers in each column, and the axes."""
    ordered, axes = _in_order(x, axis)  # nans are last
    library = library_of_value(x)
    xp = library.xp
    if not ordered.shape[0]:
        shape = (1, *ordered.shape[1:])
        ordered = xp.full(shape, math.nan, dtype=ordered.dtype, device=device(x))
    counts = xp.sum(xp.astype(~xp.isnan(primal_value(ordered)), library.widest("int64")), axis=0)
    return ordered, counts, axes


def _at_least_one(counts: Array) -> Array:
    """Return counts, 1 in place of 0."""
    xp = library_of_value(counts).xp
    return xp.where(counts == 0, xp.ones_like(counts), counts)


def _of_columns(ordered: Any, places: Array) -> Any:
    """Return the elements at each column's own places, along first axes."""
    rest = tuple(ordered.shape[1:])
    count = math.prod(places.shape[: places.ndim - len(rest)])
    at = library_of_value(ordered).xp.reshape(places, (count, *rest))
    return reshape(take_along_axis(ordered, at, axis=0), tuple(places.shape))


_MEDIAN = "a axis out overwrite_input keepdims"
_QUANTILE = "a q axis out overwrite_input method keepdims * weights interpolation"

NUMPY_QUANTILES: Mapping[str, BoundFunction] = {
    "median": function_of(median, _MEDIAN),
    "quantile": function_of(quantile, _QUANTILE),
    "percentile": function_of(percentile, _QUANTILE),
    "nanmedian": function_of(nanmedian, _MEDIAN),
    "nanquantile": function_of(nanquantile, _QUANTILE),
    "nanpercentile": function_of(nanpercentile, _QUANTILE),
}
