"""NumPy's functions of samples: slopes, integrals, interpolation, polynomials, filters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import Array, library_of
from mixad.errors import TracerError
from mixad.namespace.array_likes import arrays_of
from mixad.namespace.complex_numbers import conj
from mixad.namespace.data_types import astype, in_doubles, of_one_type
from mixad.namespace.elementwise import array_beside, elementwise, where
from mixad.namespace.indexing import call_on_plain, getitem, part_along
from mixad.namespace.joining import concat, unstack
from mixad.namespace.manipulation import flip, normalized_axes, reshape
from mixad.namespace.numpy_rearrange import at_least
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import total
from mixad.namespace.utility import diff
from mixad.scalar.dtypes import element_type_of
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import Tracer, concrete_value, primal_value

__all__ = ["NUMPY_SAMPLES"]


def _sum(*terms: tuple[Any, Any]) -> Any:
    """Return the sum of products of pairs."""
    products = [elementwise("mul", x, y) for x, y in terms]
    found = products[0]
    for product in products[1:]:
        found = elementwise("add", found, product)
    return found


def _vector_along(x: Any, values: Any, axis: int) -> Any:
    """Return a vector along an axis of ``x``."""
    (axis,) = normalized_axes(axis, x.ndim)
    return reshape(values, [-1 if a == axis else 1 for a in range(x.ndim)])


# -- slopes and integrals --------------------------------------------------------------------------


def gradient(x: Any, *spacings: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return slopes of parabolas through neighbours; ``edge_order`` 1 has lines at the ends.

    ``spacings`` are distances, one for all axes or one each, or coordinates. ValueError for too few
    values or a wrong number of coordinates, TypeError for a wrong number of spacings.
    """
    axes = normalized_axes(axis, x.ndim)
    if edge_order not in (1, 2):
        raise ValueError(f"gradient(edge_order={edge_order!r}): 1 or 2")
    if not spacings or (len(spacings) == 1 and not np.ndim(primal_value(spacings[0]))):
        spacings = (spacings or (1.0,)) * len(axes)
    if len(spacings) != len(axes):
        raise TypeError(f"gradient() along {len(axes)} axes with {len(spacings)} spacings")
    pairs = zip(axes, spacings, strict=True)
    found = [_slope(x, a, spacing, edge_order) for a, spacing in pairs]
    if element_type_of(x.dtype).is_inexact:
        found = [astype(slope, x.dtype, copy=False) for slope in found]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    if x.shape[axis] < edge_order + 1:
        raise ValueError(
            f"gradient(edge_order={edge_order}) takes {edge_order + 1} values along each axis, "
            f"there are {x.shape[axis]}"
        )
    if not np.ndim(primal_value(spacing)):
        return elementwise("div", _even_slope(x, axis, edge_order), spacing)
    _, spacing = arrays_of(x, spacing)
    if tuple(spacing.shape) != (x.shape[axis],):
        raise ValueError(
            f"gradient() along an axis of length {x.shape[axis]} with coordinates of shape "
            f"{tuple(spacing.shape)}: pass one for each value"
        )
    return _uneven_slope(x, axis, _vector_along(x, diff(spacing), axis), edge_order)


def _even_slope(x: Any, axis: int, edge_order: int) -> Any:
    def part(start: int | None, stop: int | None) -> Any:
        return part_along(x, axis, start, stop)

    middle = elementwise("mul", elementwise("sub", part(2, None), part(None, -2)), 0.5)
    if edge_order == 1:
        first = elementwise("sub", part(1, 2), part(0, 1))
        last = elementwise("sub", part(-1, None), part(-2, -1))
    else:
        first = _sum((part(0, 1), -1.5), (part(1, 2), 2.0), (part(2, 3), -0.5))
        last = _sum((part(-3, -2), 0.5), (part(-2, -1), -2.0), (part(-1, None), 1.5))
    return concat([first, middle, last], axis=axis)


def _uneven_slope(x: Any, axis: int, steps: Any, edge_order: int) -> Any:
    """Slopes of parabolas through three points, by Newton's divided differences."""
    slopes = elementwise(
        "div",
        elementwise("sub", part_along(x, axis, 1, None), part_along(x, axis, None, -1)), steps,
    )  # fmt: skip

    def part(of: Any, start: int | None, stop: int | None) -> Any:
        return part_along(of, axis, start, stop)

    before, after = part(steps, None, -1), part(steps, 1, None)
    both = elementwise("add", before, after)
    left, right = part(slopes, None, -1), part(slopes, 1, None)
    middle = elementwise("div", _sum((left, after), (right, before)), both)
    first, last = part(slopes, 0, 1), part(slopes, -1, None)
    if edge_order == 2:
        bend = elementwise("div", elementwise("sub", right, left), both)
        first = elementwise("sub", first, elementwise("mul", part(bend, 0, 1), part(steps, 0, 1)))
        last = _sum((last, 1.0), (part(bend, -1, None), part(steps, -1, None)))
    return concat([first, middle, last], axis=axis)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Return the integral along an axis of the linear interpolation between samples."""
    if x is not None:
        y, x = arrays_of(y, x)
        # An axis is counted in each array: x may have more of them, or fewer.
        dx = _vector_along(y, diff(x), axis) if x.ndim == 1 else diff(x, axis=axis)
    sums = elementwise("add", part_along(y, axis, 1, None), part_along(y, axis, None, -1))
    return total(elementwise("div", elementwise("mul", dx, sums), 2.0), axis)


# -- what is between points ------------------------------------------------------------------------


def interp(
    x: Any, points: Any, values: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Interpolate linearly between increasing points, in 64 bits; constant outside of them.

    The derivative at a point is that on its right: 0 after the last. With ``period`` points may be
    in any order. ValueError if there are not as many points as values, or none.
    """
    like = next(v for v in (x, points, values, left, right) if isinstance(v, Tracer))
    x, points, values = (array_beside(v, like) for v in (x, points, values))
    if points.ndim != 1 or tuple(points.shape) != tuple(values.shape) or not points.shape[0]:
        raise ValueError(
            f"interp() of points of shape {tuple(points.shape)} and values of shape "
            f"{tuple(values.shape)}: as many values as points, at least one"
        )
    x, points, values = map(in_doubles, (x, points, values))
    shape, x = tuple(x.shape), reshape(x, -1)
    if period is not None:
        x, points, values = _one_period(x, points, values, period)
        left = right = None
    found = _line_at(x, points, values)
    first, last = (getitem(points, (slice(n, n + 1 or None),)) for n in (0, -1))
    low, high = (getitem(values, (slice(n, n + 1 or None),)) for n in (0, -1))
    found = where(primal_value(x) == primal_value(last), high, found)
    found = where(primal_value(x) > primal_value(last), high if right is None else right, found)
    found = where(primal_value(x) < primal_value(first), low if left is None else left, found)
    return reshape(found, shape)


def _one_period(x: Any, points: Any, values: Any, period: Any) -> tuple[Any, Any, Any]:
    """Return places and points in one period, which begins before the first point."""
    if period == 0:
        raise ValueError("interp(period=0): a period is a distance that is not 0")
    period = abs(period)
    x, points = elementwise("mod", x, period), elementwise("mod", points, period)
    order = library_of_value(x).xp.argsort(primal_value(points))
    points, values = getitem(points, order), getitem(values, order)
    before = elementwise("sub", part_along(points, 0, -1, None), period)
    after = elementwise("add", part_along(points, 0, 0, 1), period)
    ends = part_along(values, 0, -1, None), part_along(values, 0, 0, 1)
    return x, concat([before, points, after]), concat([ends[0], values, ends[1]])


def _line_at(x: Any, points: Any, values: Any) -> Any:
    """Return the line through the two points around ``x``, or the nearest two, at ``x``."""
    xp = library_of_value(x).xp
    known = primal_value(points), primal_value(x)
    given = [each if isinstance(each, Tracer) else xp.asarray(each) for each in known]
    at = call_on_plain(xp.searchsorted, given, {"side": "right"}) - 1
    at = xp.clip(at, 0, max(points.shape[0] - 2, 0))
    above = xp.clip(at + 1, 0, points.shape[0] - 1)
    start, base = getitem(points, at), getitem(values, at)
    length = elementwise("sub", getitem(points, above), start)
    # Outside of the points it is 0: nothing reads the quotient.
    length = where(primal_value(length) == 0, 1.0, length)
    slope = elementwise("div", elementwise("sub", getitem(values, above), base), length)
    return elementwise("add", elementwise("mul", slope, elementwise("sub", x, start)), base)


def unwrap(x: Any, discont: float | None = None, axis: int = -1, *, period: Any = None) -> Any:
    """Return angles without jumps of whole periods, which have no derivative."""
    period = 2 * math.pi if period is None else period
    if isinstance(period, Tracer) or isinstance(discont, Tracer):
        raise TracerError(
            "unwrap() takes no period or discont that is being differentiated: pass "
            "mixad.stop_gradient(period)"
        )
    xp, given = library_of_value(x).xp, np.asarray(concrete_value(x, "unwrap()"))
    turns = np.unwrap(given, discont, axis, period=period) - given
    return elementwise("add", x, xp.asarray(turns, device=device(primal_value(x))))


# -- polynomials and filters -----------------------------------------------------------------------


def polyval(p: Any, x: Any) -> Any:
    """Return a polynomial, its highest coefficient first, by Horner's rule."""
    like = p if isinstance(p, Tracer) else x
    x = array_beside(x, like)
    found = elementwise("mul", x, 0)
    for coefficient in unstack(array_beside(p, like)):
        found = elementwise("add", elementwise("mul", found, x), coefficient)
    return found


def convolve(x: Any, y: Any, mode: str = "full") -> Any:
    """Return the convolution of two vectors; ValueError if one is no vector or is empty.

    ``mode`` "same" gives the middle, as long as the longer vector, "valid" the sums of as many
    products as the shorter has elements.
    """
    x, y = _vectors("convolve", x, y)
    return _part(apply_rule(_CONVOLVE, x, y), x, y, mode, 1)


def correlate(x: Any, y: Any, mode: str = "valid") -> Any:
    """Return the correlation of two vectors: products with equal distance of indices are added.

    ``y`` is conjugated; see `convolve`.
    """
    x, y = _vectors("correlate", x, y)
    swapped = x.shape[0] < y.shape[0]
    return _part(apply_rule(_CONVOLVE, x, flip(conj(y))), x, y, mode, 0 if swapped else 1)


def _vectors(what: str, x: Any, y: Any) -> tuple[Any, Any]:
    like = x if isinstance(x, Tracer) else y
    x, y = of_one_type(what, [at_least(1)(array_beside(v, like)) for v in (x, y)])
    for v in (x, y):
        if v.ndim != 1 or not v.shape[0]:
            raise ValueError(f"{what}() takes vectors with elements, not shape {tuple(v.shape)}")
    return x, y


def _part(full: Any, x: Any, y: Any, mode: str, rounding: int) -> Any:
    """Return the part of a full convolution that a mode names."""
    short, long = sorted((x.shape[0], y.shape[0]))
    parts = {
        "full": (0, short + long - 1),
        "same": ((short - rounding) // 2, long),
        "valid": (short - 1, long - short + 1),
    }
    if mode not in parts:
        raise ValueError(f"convolve(mode={mode!r}): one of {tuple(parts)}")
    start, count = parts[mode]
    return getitem(full, slice(start, start + count))


def _convolve(xp: Any, x: Array, y: Array) -> Array:
    library, shape = library_of(x), (x.shape[0] + y.shape[0] - 1,)
    if library.name == "cupy":
        return xp.convolve(x, y)
    return library.apply_on_cpu(np.convolve, shape, x.dtype, x, y)


def _of_factor(g: Any, other: Any, count: int) -> Any:
    """Return the cotangent of a factor, which is a slice of another convolution."""
    start = other.shape[0] - 1
    full = apply_rule(_CONVOLVE, g, flip(conj(other)))
    return getitem(full, slice(start, start + count))


_CONVOLVE = Rule(
    "convolve",
    _convolve,
    (
        lambda g, x, y: _of_factor(g, y, x.shape[0]),
        lambda g, x, y: _of_factor(g, x, y.shape[0]),
    ),
    reads=((1,), (0,)),
    linear="each",
)

NUMPY_SAMPLES: Mapping[str, BoundFunction] = {
    "gradient": BoundFunction(gradient, ()),
    "trapezoid": function_of(trapezoid, "y x dx axis"),
    "interp": function_of(interp, "x xp=points fp=values left right period"),
    "unwrap": function_of(unwrap, "p=x discont axis * period"),
    "polyval": function_of(polyval, "p x"),
    "convolve": function_of(convolve, "a=x v=y mode"),
    "correlate": function_of(correlate, "a=x v=y mode"),
}
