"""Statistical functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from array_api_compat import device

from mixad.backends.arrays import Array, library_of
from mixad.errors import KernelTypeError, TracerError
from mixad.namespace.complex_numbers import conj, imag, is_complex, real
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import convert, elementwise, square
from mixad.namespace.indexing import getitem
from mixad.namespace.joining import concat
from mixad.namespace.manipulation import flip, moveaxis, normalized_axes, permute_dims, reshape
from mixad.namespace.zero_norms import nan_at_zeros
from mixad.scalar.dtypes import element_type_of, is_complex_dtype
from mixad.tape.broadcasting import sum_to
from mixad.tape.memory import unshared
from mixad.tape.node import Rule, apply_rule, apply_without_derivative, library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["amax", "amin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "in_float32",
           "mean", "prod", "std", "total", "var"]  # fmt: skip

Axis = int | Sequence[int] | None


def total(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the sum over axes, all for None, of elements converted to ``dtype`` first.

    The result is a plain array, without a derivative, if ``dtype`` is no float.
    """
    if dtype is not None:
        x = astype(x, dtype)
        if not element_type_of(x.dtype).is_inexact:
            axes = normalized_axes(axis, x.ndim)
            return library_of(x).xp.sum(x, axis=axes, dtype=x.dtype, keepdims=keepdims)
    found = _sum_axes(x, axis, keepdims)
    return unshared(x) if found is x else found


def _sum_axes(x: Any, axis: Axis, keepdims: bool) -> Any:
    """Return the sum over axes; ``x`` itself if each sum has one element."""
    if axis is None and not keepdims:
        return sum_to(x, ())
    axes = normalized_axes(axis, x.ndim)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    if keepdims:
        return sum_to(x, kept)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    leading = set(axes) == set(range(len(axes)))  # then the shape without them broadcasts back
    return sum_to(x, shape) if leading else reshape(sum_to(x, kept), shape)


def mean(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the arithmetic mean over axes, in a dtype of floats: see `total`."""
    if dtype is not None:
        x = astype(x, dtype)
        if not element_type_of(x.dtype).is_inexact:
            raise TracerError(
                f"mean(dtype={dtype!r}): a mean is computed in a float dtype: pass one, or leave "
                "dtype out"
            )
    if element_type_of(x.dtype).is_narrow:
        return in_float32(mean, x, axis, keepdims=keepdims)
    count = math.prod(x.shape[i] for i in normalized_axes(axis, x.ndim))
    return total(x, axis, keepdims=keepdims) / count


def in_float32(function: Callable[..., Any], x: Any, axis: Axis, **options: Any) -> Any:
    """Compute in float32 where a sum may exceed what 16 bits hold."""
    type = element_type_of(x.dtype)
    return convert(function(convert(x, type.arithmetic), axis, **options), type)


def var(x: Any, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Return the variance over axes, all for None.

    The squared distances from the mean are divided by the number of elements less ``correction``.
    """
    if is_complex(x):
        _check_variance(x)
    if element_type_of(x.dtype).is_narrow:
        return in_float32(var, x, axis, correction=correction, keepdims=keepdims)
    count = math.prod(x.shape[i] for i in normalized_axes(axis, x.ndim))
    distances = elementwise("sub", x, mean(x, axis, keepdims=True))
    return total(_abs2(distances), axis, keepdims=keepdims) / max(count - correction, 0)


def _check_variance(x: Any) -> None:
    """Raise the library's error: the standard has no variance of complex numbers."""
    xp = library_of_value(x).xp
    xp.var(xp.ones(1, dtype=x.dtype))


def _abs2(x: Any) -> Any:
    """Return the squares of magnitudes."""
    return square(real(x)) + square(imag(x)) if is_complex(x) else square(x)


def std(x: Any, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Return the square root of the variance over axes: see `var`; it has corners at 0."""
    if element_type_of(x.dtype).is_narrow:
        return in_float32(std, x, axis, correction=correction, keepdims=keepdims)
    axes = normalized_axes(axis, x.ndim)
    found = elementwise("sqrt", var(x, axes, correction=correction, keepdims=True))
    if any(x.shape[a] != 1 for a in axes):  # of one element it is 0 whatever that is
        found = nan_at_zeros(found, x, lambda: primal_value(found) == 0, axes)
    return found if keepdims else _drop_axes(found, axes)


# -- largest and smallest --------------------------------------------------------------------------


def amax(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Return the largest element over axes; elements that tie share its cotangent evenly."""
    return _extreme(_MAX, x, axis, keepdims)


def amin(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    """Return the smallest element over axes; elements that tie share its cotangent evenly."""
    return _extreme(_MIN, x, axis, keepdims)


def _extreme(rule: Rule, x: Any, axis: Axis, keepdims: bool) -> Any:
    if is_complex_dtype(x.dtype):
        raise KernelTypeError(
            f"{rule.name} of complex numbers, which have no order, is not available",
            hint="take it of real numbers: x.real, x.imag, abs(x)",
        )
    axes = normalized_axes(axis, x.ndim)
    found = apply_rule(rule, x, axis=axes)
    return found if keepdims else _drop_axes(found, axes)


def _drop_axes(x: Any, axes: Sequence[int]) -> Any:
    """Return ``x`` without axes of length 1."""
    return reshape(x, [n for i, n in enumerate(x.shape) if i not in axes])


def _of_extreme(g: Any, x: Any, name: str, axis: tuple[int, ...]) -> Any:
    """Return the cotangent of elements; 16-bit ones cannot count many ties."""
    type = element_type_of(x.dtype)
    if type.is_narrow:
        wide = type.arithmetic
        return convert(_of_extreme(convert(g, wide), convert(x, wide), name, axis), type)
    return g * apply_without_derivative(_SHARES, x, name=name, axis=axis)


def _shares(xp: Any, x: Array, name: str, axis: tuple[int, ...]) -> Array:
    """Return each element's share of its cotangent; where one is nan, the nans'."""
    extreme = getattr(xp, name)(x, axis=axis, keepdims=True)
    ties = xp.astype((x == extreme) | xp.isnan(x), x.dtype)
    return ties / xp.sum(ties, axis=axis, keepdims=True)


_SHARES = Rule("shares of an extreme", _shares, ())


_MAX = Rule(
    "max",
    lambda xp, x, axis: xp.max(x, axis=axis, keepdims=True),
    (lambda g, x, axis: _of_extreme(g, x, "max", axis),),
    reads=((0,),),
    fresh=True,
)
_MIN = Rule(
    "min",
    lambda xp, x, axis: xp.min(x, axis=axis, keepdims=True),
    (lambda g, x, axis: _of_extreme(g, x, "min", axis),),
    reads=((0,),),
    fresh=True,
)


# -- products --------------------------------------------------------------------------------------


def prod(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the product over axes (see `total`); exact at zeros, since nothing is divided by."""
    if dtype is not None:
        x = astype(x, dtype)
        if not element_type_of(x.dtype).is_inexact:
            return library_of(x).xp.prod(x, axis=axis, dtype=x.dtype, keepdims=keepdims)
    axes = normalized_axes(axis, x.ndim)
    rest = [i for i in range(x.ndim) if i not in axes]
    kept = [x.shape[i] for i in rest]
    factors = math.prod(x.shape[i] for i in axes)
    found = apply_rule(_PROD, reshape(permute_dims(x, (*rest, *axes)), (*kept, factors)))
    shape = [1 if i in axes else n for i, n in enumerate(x.shape)] if keepdims else kept
    return reshape(found, shape)


_PROD = Rule(
    "prod",
    lambda xp, x: xp.prod(x, axis=-1, dtype=x.dtype),
    (
        lambda g, x: _times(
            reshape(g, (*g.shape, 1)),
            conj(_times(_product_before(x), flip(_product_before(flip(x, axis=-1)), axis=-1))),
        ),
    ),
    reads=((0,),),
    fresh=True,
)


def cumulative_prod(
    x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Return the products of the elements up to each along an axis: see `cumulative_sum`."""
    return _cumulative(_CUMULATIVE_PROD, 1, x, axis, dtype, include_initial)


_CUMULATIVE_PROD = Rule(
    "cumulative_prod",
    lambda xp, x: xp.cumulative_prod(x, axis=-1, dtype=x.dtype),
    (lambda g, x: _times(conj(_product_before(x)), _fold_cotangent(g, conj(x))),),
    reads=((0,),),
    fresh=True,
)


def _times(x: Any, y: Any) -> Any:
    """Multiply: not every library leaves ``array * tracer`` to the tracer."""
    return elementwise("mul", x, y)


def _product_before(x: Any) -> Any:
    """Return the product of the elements before each along the last axis."""
    if not x.shape[-1]:
        return x
    ones = _fill_like(x, 1)
    return cumulative_prod(concat([ones, getitem(x, (..., slice(0, -1)))], axis=-1), axis=-1)


def _fold_cotangent(g: Any, x: Any) -> Any:
    """Return s with s[j] = g[j] + x[j + 1] s[j + 1] along the last axis.

    It scans linear functions in steps of 1, 2, 4, …, each of which joins neighbours (Blelloch
    1990), and divides by nothing, so zeros are right.
    """
    count = x.shape[-1]
    if not count:
        return g
    found, slope = g, concat([getitem(x, (..., slice(1, None))), _fill_like(x, 0)], axis=-1)
    step = 1
    while step < count:
        found = elementwise("add", found, _times(slope, _ahead(found, step)))
        slope = _times(slope, _ahead(slope, step))
        step *= 2
    return found


def _ahead(x: Any, step: int) -> Any:
    """Return the elements ``step`` places further along the last axis; zeros behind the end."""
    return concat([getitem(x, (..., slice(step, None))), _fill_like(x, 0, step)], axis=-1)


def _fill_like(x: Any, value: float, length: int = 1) -> Any:
    """Return equal elements beside those of ``x`` along the last axis."""
    like = primal_value(x)[..., :length]
    return library_of_value(x).xp.full_like(like, value)


# -- running sums ----------------------------------------------------------------------------------


def cumulative_sum(
    x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Return the sums of the elements up to each along an axis, after conversion to ``dtype``.

    The result is a plain array, without a derivative, if ``dtype`` is no float. ``include_initial``
    puts 0 first. ValueError if there are several axes and none is named.
    """
    return _cumulative(_CUMULATIVE_SUM, 0, x, axis, dtype, include_initial)


def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Return `cumulative_prod`, of the flattened array for None."""
    flat = reshape(x, -1) if axis is None else x
    return cumulative_prod(flat, axis=0 if axis is None else axis, dtype=dtype)


def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Return `cumulative_sum`, of the flattened array for None."""
    flat = reshape(x, -1) if axis is None else x
    return cumulative_sum(flat, axis=0 if axis is None else axis, dtype=dtype)


_CUMULATIVE_SUM = Rule(
    "cumulative_sum",
    lambda xp, x: xp.cumulative_sum(x, axis=-1, dtype=x.dtype),
    (lambda g, x: flip(cumulative_sum(flip(g, axis=-1), axis=-1), axis=-1),),
    fresh=True,
    linear="each",
)


def _cumulative(
    rule: Rule, initial: int, x: Any, axis: int | None, dtype: Any, include_initial: bool
) -> Any:
    if axis is None and x.ndim != 1:
        raise ValueError(
            f"{rule.name}() of an array of shape {tuple(x.shape)}: name the axis, axis="
        )
    if dtype is not None:
        x = astype(x, dtype)
    if not element_type_of(x.dtype).is_inexact:
        base = getattr(library_of(x).xp, rule.name)
        return base(x, axis=axis, dtype=x.dtype, include_initial=include_initial)
    last = moveaxis(x, 0 if axis is None else axis, -1)
    found = apply_rule(rule, last)
    if include_initial:
        shape, xp = (*last.shape[:-1], 1), library_of_value(x).xp
        first = xp.full(shape, initial, dtype=x.dtype, device=device(x))
        found = concat([first, found], axis=-1)
    return moveaxis(found, -1, 0 if axis is None else axis)
