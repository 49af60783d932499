"""Torch's reductions and scans along axes, beside the standard's functions, by torch's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from mixad.namespace.complex_numbers import real
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.indexing import take_along_axis
from mixad.namespace.manipulation import expand_dims, moveaxis, normalized_axes, squeeze
from mixad.namespace.masked_reductions import nanmean, nansum
from mixad.namespace.norms import matrix_norm, norm, vector_norm
from mixad.namespace.numpy_quantiles import quantile
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import amax, amin, in_float32, mean, std, total, var
from mixad.scalar.dtypes import element_type_of
from mixad.tape.memory import unshared
from mixad.tape.node import Rule, apply_without_derivative, library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["TORCH_REDUCTIONS", "largest", "log_softmax", "over_all_for_none", "softmax"]

Axis = int | Sequence[int] | None


def _or_all(axis: Any) -> Any:
    """Return axes, None for none of them."""
    return None if isinstance(axis, Sequence) and not len(axis) else axis


def over_all_for_none(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction that takes ``()`` for all axes, as torch's do."""

    @wraps(function)
    def evaluate(x: Any, axis: Any = None, *args: Any, **options: Any) -> Any:
        return function(x, _or_all(axis), *args, **options)

    return evaluate


class Selected(NamedTuple):
    """Elements along an axis, and their indices."""

    values: Any
    indices: Any


def largest(x: Any, axis: Axis, *, is_finite: bool = False) -> Any:
    """Return the largest elements over axes as a plain array; ``is_finite`` puts 0 for others."""
    axes, xp = normalized_axes(axis, x.ndim), library_of_value(x).xp
    if 0 in x.shape:  # which torch takes no largest element of
        x = xp.full(tuple(n or 1 for n in x.shape), -math.inf, dtype=x.dtype, device=x.device)
    rule = _FINITE_LARGEST if is_finite else _LARGEST
    return apply_without_derivative(rule, x, axes=axes)


def _largest(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    return xp.amax(x, axes, keepdim=True)


def _finite_largest(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    top = _largest(xp, x, axes)
    return xp.where(abs(top) == math.inf, 0.0, top)


_LARGEST = Rule("largest", _largest, ())
_FINITE_LARGEST = Rule("finite_largest", _finite_largest, ())


def _extreme(of_all: Callable[..., Any], op: str, indices: str) -> Callable[..., Any]:
    """Return torch's ``max`` or ``min``: of all elements, along an axis, or of two tensors.

    Along an axis the value is that of the one element whose index is returned.
    """

    def evaluate(x: Any, axis: Any = None, keepdims: bool = False, *, y: Any = None) -> Any:
        y = axis if hasattr(axis, "shape") else y
        if y is not None:
            return elementwise(op, x, y)
        if axis is None:
            return of_all(x)
        at = getattr(primal_value(x), indices)(axis, keepdim=True).indices
        return _select(x, at, axis, keepdims=keepdims)

    return evaluate


def _select(x: Any, at: Any, axis: int, *, keepdims: bool = True) -> Selected:
    """Return the elements of ``x`` at indices along an axis, and the indices."""
    found = Selected(take_along_axis(x, at, axis=axis) if x.ndim else unshared(x), at)
    if keepdims or not x.ndim:
        return found
    return Selected(squeeze(found.values, axis), at.squeeze(axis))


def _sort(x: Any, axis: int = -1, descending: bool = False, *, stable: bool = False) -> Selected:
    at = primal_value(x).sort(dim=axis, descending=descending, stable=stable or False).indices
    return _select(x, at, axis)


def _topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Selected:
    return _select(x, primal_value(x).topk(k, axis, largest, sorted).indices, axis)


def _spread_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a correction with all forms of the arguments of torch's ``var``."""

    def evaluate(
        x: Any,
        axis: Any = None,
        unbiased: bool | None = None,
        keepdims: bool = False,
        *,
        correction: float | None = None,
    ) -> Any:
        if isinstance(axis, bool):  # var(input, unbiased)
            axis, unbiased = None, axis
        if correction is None:
            correction = 1.0 if unbiased is None else float(unbiased)
        return function(x, _or_all(axis), correction=correction, keepdims=keepdims)

    return evaluate


def _with_mean(spread: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(x: Any, axis: Any, *, correction: float, keepdims: bool) -> Any:
        found = spread(x, axis, correction=correction, keepdims=keepdims)
        return found, mean(x, axis, keepdims=keepdims)

    return evaluate


def _logsumexp(x: Any, axis: Axis, keepdims: bool = False) -> Any:
    """Return log Σ exp x; the largest x is a constant that cancels."""
    if not normalized_axes(axis, x.ndim) and x.ndim:
        raise ValueError("logsumexp() got no axis: name one")
    top = largest(real(x), axis, is_finite=True)
    found = elementwise("log", total(elementwise("exp", elementwise("sub", x, top)), axis,
                                     keepdims=True))  # fmt: skip
    found = elementwise("add", found, top)
    return found if keepdims else squeeze(found, normalized_axes(axis, x.ndim))


def _one_axis(x: Any, axis: int) -> tuple[int, ...]:
    """Return an axis, counted from 0, as axes; torch lets a number have one."""
    (axis,) = normalized_axes(operator.index(axis), x.ndim or 1)
    return (axis,) if x.ndim else ()


def softmax(x: Any, axis: int, dtype: Any = None) -> Any:
    """Return exp x over its sum along an axis."""
    x = x if dtype is None else astype(x, dtype)
    if element_type_of(x.dtype).is_narrow:
        return in_float32(softmax, x, axis)
    axes = _one_axis(x, axis)
    powers = elementwise("exp", elementwise("sub", x, largest(x, axes)))
    return elementwise("div", powers, total(powers, axes, keepdims=True))


def log_softmax(x: Any, axis: int, dtype: Any = None) -> Any:
    """Return the logarithm of `softmax`, not computed by it."""
    x = x if dtype is None else astype(x, dtype)
    if element_type_of(x.dtype).is_narrow:
        return in_float32(log_softmax, x, axis)
    axes = _one_axis(x, axis)
    above = elementwise("sub", x, largest(x, axes))
    scale = total(elementwise("exp", above), axes, keepdims=True)
    return elementwise("sub", above, elementwise("log", scale))


def _norm(x: Any, p: Any = "fro", axis: Axis = None, keepdims: bool = False, *,
          dtype: Any = None) -> Any:  # fmt: skip
    """Return torch's older norm: of vectors, for any number of axes, except ``"nuc"``."""
    x = x if dtype is None else astype(x, dtype)
    if p != "nuc":
        return _vector_norm(x, 2 if p in (None, "fro") else p, axis, keepdims)
    if axis is not None:
        x = _axes_last(x, axis)
    return matrix_norm(x, keepdims=keepdims and axis is None, ord="nuc")


def _axes_last(x: Any, axis: Any) -> Any:
    return moveaxis(x, axis, (-2, -1))


def _in_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a norm that takes a dtype, to which elements are converted first."""

    def evaluate(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False, *,
                 dtype: Any = None) -> Any:  # fmt: skip
        options = {"ord": ord, "axis": axis}
        given = {name: value for name, value in options.items() if value is not None}
        return function(x if dtype is None else astype(x, dtype), keepdims=keepdims, **given)

    return evaluate


def _matrix_norm(x: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    axes = normalized_axes(axis, x.ndim)
    found = matrix_norm(_axes_last(x, axes), ord=ord)
    return expand_dims(found, axis=tuple(sorted(axes))) if keepdims else found


def _vector_norm(x: Any, ord: Any = 2, axis: Axis = None, keepdims: bool = False) -> Any:
    return vector_norm(x, axis=_or_all(axis) if x.ndim else None, keepdims=keepdims, ord=ord)


def _dist(x: Any, y: Any, p: float = 2) -> Any:
    return vector_norm(elementwise("sub", x, y), ord=p)


def _cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    """Return the distances of points from others; between equal points the derivative is 0."""
    between = elementwise("sub", expand_dims(x1, axis=-2), expand_dims(x2, axis=-3))
    return vector_norm(between, axis=-1, ord=p)


def _middle(indices: str) -> Callable[..., Any]:
    """Return torch's ``median`` or ``nanmedian``; of two elements in the middle the smaller.

    Along an axis the derivative is that of the returned index; over all elements, equal ones share.
    """

    def evaluate(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        given = primal_value(x)
        if axis is None and not given.numel():
            return elementwise("add", total(x), math.nan)
        if axis is None:
            value = getattr(given, indices)()
            equal = (given == value) | (given.isnan() & value.isnan())
            return amax(where(equal, x, -math.inf))
        at = getattr(given, indices)(axis, keepdim=True).indices
        return _select(x, at, axis, keepdims=keepdims)

    return evaluate


def _kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> Selected:
    at = primal_value(x).kthvalue(k, axis, keepdim=True).indices
    return _select(x, at, axis, keepdims=keepdims)


def _quantile(
    x: Any, q: Any, axis: int | None = None, keepdims: bool = False, *,
    interpolation: str = "linear",
) -> Any:  # fmt: skip
    """Return quantiles; shares are numbers, or have the dtype of ``x``, as torch requires."""
    if not isinstance(q, Tracer):
        q = np.asarray(library_of_value(x).xp.asarray(q, dtype=x.dtype, device="cpu"))
    return quantile(x, q, axis, method=interpolation, keepdims=keepdims)


_SPREAD = "input dim unbiased keepdim * correction"
_SUMS_OF_POWERS = {
    "softmax": function_of(softmax, "input dim dtype"),
    "log_softmax": function_of(log_softmax, "input dim dtype"),
    "logsumexp": function_of(_logsumexp, "input dim keepdim"),
}

TORCH_REDUCTIONS: Mapping[str, BoundFunction] = {
    "max": function_of(_extreme(amax, "maximum", "max"), "input dim keepdim * other"),
    "min": function_of(_extreme(amin, "minimum", "min"), "input dim keepdim * other"),
    "sort": function_of(_sort, "input dim descending * stable"),
    "topk": function_of(_topk, "input k dim largest sorted"),
    "var": function_of(_spread_of(var), _SPREAD),
    "std": function_of(_spread_of(std), _SPREAD),
    "var_mean": function_of(_spread_of(_with_mean(var)), _SPREAD),
    "std_mean": function_of(_spread_of(_with_mean(std)), _SPREAD),
    **_SUMS_OF_POWERS,
    **{f"special_{name}": function for name, function in _SUMS_OF_POWERS.items()},
    "special_log_softmax": function_of(log_softmax, "input dim * dtype"),
    "nansum": function_of(over_all_for_none(nansum), "input dim keepdim * dtype"),
    "nanmean": function_of(over_all_for_none(nanmean), "input dim keepdim * dtype"),
    "median": function_of(_middle("median"), "input dim keepdim"),
    "nanmedian": function_of(_middle("nanmedian"), "input dim keepdim"),
    "kthvalue": function_of(_kthvalue, "input k dim keepdim"),
    "quantile": function_of(_quantile, "input q dim keepdim * interpolation"),
    "norm": function_of(_norm, "input p dim keepdim out dtype"),
    "linalg_norm": function_of(_in_dtype(norm), "input ord dim keepdim * dtype"),
    "linalg_vector_norm": function_of(_in_dtype(_vector_norm), "input ord dim keepdim * dtype"),
    "linalg_matrix_norm": function_of(_in_dtype(_matrix_norm), "input ord dim keepdim * dtype"),
    "dist": function_of(_dist, "input other p"),
    "cdist": function_of(_cdist, "x1 x2 p compute_mode"),
}
