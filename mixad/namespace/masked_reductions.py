"""NumPy's reductions of masked elements, with a start, and of elements that are no nan.

A constant that does not count replaces the others, so they have no derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mixad.backends.arrays import Array
from mixad.namespace.complex_numbers import imag, is_complex, real
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import elementwise, square, where
from mixad.namespace.manipulation import normalized_axes, reshape
from mixad.namespace.statistical import (
    amax,
    amin,
    cumprod,
    cumsum,
    in_float32,
    mean,
    prod,
    std,
    total,
    var,
)
from mixad.namespace.zero_norms import nan_at_zeros
from mixad.scalar.dtypes import element_type_of
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["masked_max", "masked_mean", "masked_min", "masked_prod", "masked_std", "masked_total",
           "masked_var", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod",
           "nanstd", "nansum", "nanvar"]  # fmt: skip

Axis = int | Sequence[int] | None


def masked_total(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False,
                 initial: Any = None, where: Any = True) -> Any:  # fmt: skip
    """Return the sum of the elements in a mask, and of ``initial``."""
    found = total(_or(where, x, 0), axis, dtype=dtype, keepdims=keepdims)
    return found if initial is None else elementwise("add", found, _start(initial, found))


def masked_prod(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False,
                initial: Any = None, where: Any = True) -> Any:  # fmt: skip
    """Return the product of the elements in a mask, and of ``initial``."""
    found = prod(_or(where, x, 1), axis, dtype=dtype, keepdims=keepdims)
    return found if initial is None else elementwise("mul", found, _start(initial, found))


def masked_mean(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False,
                where: Any = True) -> Any:  # fmt: skip
    """Return the arithmetic mean of the elements in a mask."""
    if where is True:
        return mean(x, axis, dtype=dtype, keepdims=keepdims)
    x = x if dtype is None else astype(x, dtype)
    return _mean_of(x, axis, selected=_mask(where, x), keepdims=keepdims)


def _mean_of(x: Any, axis: Axis, *, selected: Array, keepdims: bool = False) -> Any:
    if element_type_of(x.dtype).is_narrow:
        return in_float32(_mean_of, x, axis, selected=selected, keepdims=keepdims)
    count = _count(selected, x, axis, keepdims=keepdims)
    return elementwise("div", total(where(selected, x, 0), axis, keepdims=keepdims), count)


def masked_var(x: Any, axis: Axis = None, *, dtype: Any = None, correction: float = 0.0,
               keepdims: bool = False, where: Any = True) -> Any:  # fmt: skip
    """Return the variance of the elements in a mask."""
    x = x if dtype is None else astype(x, dtype)
    if where is True:
        return var(x, axis, correction=correction, keepdims=keepdims)
    return _var_of(
        x,
        axis,
        selected=_mask(where, x),
        correction=correction,
        keepdims=keepdims,
        nothing_left=0.0,
    )


def masked_std(x: Any, axis: Axis = None, *, dtype: Any = None, correction: float = 0.0,
               keepdims: bool = False, where: Any = True) -> Any:  # fmt: skip
    """Return the square root of `masked_var`; it has corners at 0."""
    x = x if dtype is None else astype(x, dtype)
    if where is True:
        return std(x, axis, correction=correction, keepdims=keepdims)
    selected, axes = _mask(where, x), normalized_axes(axis, x.ndim)
    return _std_of(
        x, axes, selected=selected, correction=correction, keepdims=keepdims, nothing_left=0.0
    )


def _var_of(
    x: Any, axis: Axis, *, selected: Array, correction: float, keepdims: bool, nothing_left: float
) -> Any:
    """Return a variance; ``nothing_left`` is the divisor where the correction leaves none."""
    if element_type_of(x.dtype).is_narrow:
        return in_float32(
            _var_of, x, axis, selected=selected, correction=correction, keepdims=keepdims,
            nothing_left=nothing_left,
        )  # fmt: skip
    center = _mean_of(x, axis, selected=selected, keepdims=True)
    distances = where(selected, elementwise("sub", x, center), 0)
    squares = square(distances)
    if is_complex(x):
        squares = elementwise("add", square(real(distances)), square(imag(distances)))
    xp, count = library_of_value(x).xp, _count(selected, squares, axis, keepdims=keepdims)
    rest = xp.where(count > correction, count - correction, nothing_left)
    return elementwise("div", total(squares, axis, keepdims=keepdims), rest)


def _std_of(
    x: Any, axes: tuple[int, ...], *, selected: Array, correction: float, keepdims: bool,
    nothing_left: float,
) -> Any:  # fmt: skip
    if element_type_of(x.dtype).is_narrow:
        return in_float32(
            _std_of, x, axes, selected=selected, correction=correction, keepdims=keepdims,
            nothing_left=nothing_left,
        )  # fmt: skip
    variance = _var_of(
        x, axes, selected=selected, correction=correction, keepdims=True, nothing_left=nothing_left
    )
    alone = _count(selected, variance, axes, keepdims=True) == 1
    fixed = alone & (primal_value(variance) == 0)  # the element is its own mean, whatever it is
    found = elementwise("sqrt", where(fixed, 1.0, variance))
    found = nan_at_zeros(found, x, lambda: primal_value(found) == 0, axes)
    found = where(fixed, 0.0, found)
    return found if keepdims else reshape(found, _remaining_shape(x, axes, keepdims=False))


def _extreme_of(of: Callable[..., Any], op: str, worst: float) -> Callable[..., Any]:
    """Return NumPy's ``max`` or ``min``, where the start is one more element."""

    def evaluate(x: Any, axis: Axis = None, *, keepdims: bool = False, initial: Any = None,
                 where: Any = True) -> Any:  # fmt: skip
        if initial is None and where is not True:
            raise ValueError(f"{op} has no identity: where= takes initial= beside it")
        if initial is None:
            return of(x, axis, keepdims=keepdims)
        axes = normalized_axes(axis, x.ndim)
        if all(x.shape[a] for a in axes):
            found = of(_or(where, x, worst), axis, keepdims=keepdims)
        else:
            found = _full(x, _remaining_shape(x, axes, keepdims=keepdims), worst)
        return elementwise(op, found, _start(initial, found))

    return evaluate


masked_max = _extreme_of(amax, "maximum", -math.inf)
masked_min = _extreme_of(amin, "minimum", math.inf)


def _remaining_shape(x: Any, axes: Sequence[int], *, keepdims: bool) -> tuple[int, ...]:
    """Return the remaining shape of a reduced array."""
    lengths = [1 if a in axes else n for a, n in enumerate(x.shape)]
    return tuple(n for a, n in enumerate(lengths) if keepdims or a not in axes)


def _full(x: Any, shape: tuple[int, ...], value: float) -> Array:
    return library_of_value(x).xp.full(shape, value, dtype=x.dtype, device=x.device)


def _mask(where: Any, x: Any) -> Array:
    """Return a mask in the shape of ``x``; ValueError if it does not broadcast to that."""
    xp, where = library_of_value(x).xp, primal_value(where)
    mask = where if isinstance(where, Tracer) else xp.asarray(where)
    return xp.broadcast_to(mask, tuple(x.shape))


def _or(mask: Any, x: Any, value: float) -> Any:
    """Return ``x`` where a mask selects it, a number elsewhere."""
    return x if mask is True else where(_mask(mask, x), x, value)


def _start(initial: Any, found: Any) -> Any:
    """Return the initial value of a reduction, in the dtype of the result."""
    if isinstance(initial, Tracer):
        return initial if initial.weak else astype(initial, found.dtype, copy=False)
    return initial.item() if hasattr(initial, "item") else initial


def _count(selected: Array, x: Any, axis: Axis, *, keepdims: bool) -> Array:
    """Return how many elements are selected over axes, as numbers of the dtype of ``x``."""
    library, axes = library_of_value(x), normalized_axes(axis, x.ndim)
    xp, integer = library.xp, library.widest("int64")
    found = xp.sum(xp.astype(selected, integer), axis=axes, keepdims=keepdims)
    return xp.astype(found, x.dtype)


# -- without nans ----------------------------------------------------------------------------------


def _is_number(x: Any) -> Array:
    """Return a mask of the elements that are no nan."""
    return ~library_of_value(x).xp.isnan(primal_value(x))


def nansum(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False,
           initial: Any = None, where: Any = True) -> Any:  # fmt: skip
    """Return the sum of the elements that are no nan; see `masked_total`."""
    x = _or(_is_number(x), x, 0)
    return masked_total(x, axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)


def nanprod(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False,
            initial: Any = None, where: Any = True) -> Any:  # fmt: skip
    """Return the product of the elements that are no nan; see `masked_prod`."""
    x = _or(_is_number(x), x, 1)
    return masked_prod(x, axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)


def nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Return the cumulative sum of the elements that are no nan."""
    return cumsum(_or(_is_number(x), x, 0), axis, dtype)


def nancumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Return the cumulative product of the elements that are no nan."""
    return cumprod(_or(_is_number(x), x, 1), axis, dtype)


def nanmean(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False,
            where: Any = True) -> Any:  # fmt: skip
    """Return the arithmetic mean of the elements that are no nan, nan if all are."""
    x = x if dtype is None else astype(x, dtype)
    return _mean_of(x, axis, selected=_numbers(x, where), keepdims=keepdims)


def _numbers(x: Any, where: Any) -> Array:
    return _is_number(x) if where is True else _is_number(x) & _mask(where, x)


def nanvar(x: Any, axis: Axis = None, *, dtype: Any = None, correction: float = 0.0,
           keepdims: bool = False, where: Any = True) -> Any:  # fmt: skip
    """Return the variance without nans; nan if the correction leaves no divisor."""
    x = x if dtype is None else astype(x, dtype)
    selected = _numbers(x, where)
    return _var_of(
        x, axis, selected=selected, correction=correction, keepdims=keepdims, nothing_left=math.nan
    )


def nanstd(x: Any, axis: Axis = None, *, dtype: Any = None, correction: float = 0.0,
           keepdims: bool = False, where: Any = True) -> Any:  # fmt: skip
    """Return the square root of `nanvar`; it has corners at 0."""
    x = x if dtype is None else astype(x, dtype)
    selected, axes = _numbers(x, where), normalized_axes(axis, x.ndim)
    return _std_of(
        x, axes, selected=selected, correction=correction, keepdims=keepdims, nothing_left=math.nan
    )


def _without_nans(
    extreme: Callable[..., Any], of_masked: Callable[..., Any], worst: float
) -> Callable[..., Any]:
    """Return NumPy's ``nanmax`` or ``nanmin``: where all are nan and there is no start, nan."""

    def evaluate(x: Any, axis: Axis = None, *, keepdims: bool = False, initial: Any = None,
                 where: Any = True) -> Any:  # fmt: skip
        numbers = _is_number(x)
        x = _or(numbers, x, worst)
        if initial is not None or where is not True:
            return of_masked(x, axis, keepdims=keepdims, initial=initial, where=where)
        some = library_of_value(x).xp.any(
            numbers, axis=normalized_axes(axis, x.ndim), keepdims=keepdims
        )
        return _or(some, extreme(x, axis, keepdims=keepdims), math.nan)

    return evaluate


nanmax = _without_nans(amax, masked_max, -math.inf)
nanmin = _without_nans(amin, masked_min, math.inf)
