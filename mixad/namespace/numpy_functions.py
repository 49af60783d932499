"""The functions of NumPy beside those of the standard, by NumPy's names."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mixad import special
from mixad.backends.arrays import is_array, is_scalar
from mixad.errors import TracerError
from mixad.namespace.array_likes import arrays_of
from mixad.namespace.complex_numbers import conj, real
from mixad.namespace.creation import tril, triu
from mixad.namespace.data_types import astype, in_doubles
from mixad.namespace.decompositions import eigh, eigvalsh, qr, svd, svdvals
from mixad.namespace.elementwise import as_numpy_gives, elementwise, where
from mixad.namespace.fourier import fftn, ifftn, irfftn, rfftn
from mixad.namespace.indexing import getitem, positions_of, scatter_add
from mixad.namespace.joining import broadcast_arrays, broadcast_to, concat, meshgrid
from mixad.namespace.linear_algebra import diagonal, trace
from mixad.namespace.manipulation import matrix_transpose, moveaxis, reshape
from mixad.namespace.numpy_linear_algebra import NUMPY_LINEAR_ALGEBRA
from mixad.namespace.numpy_products import NUMPY_PRODUCTS
from mixad.namespace.numpy_quantiles import NUMPY_QUANTILES
from mixad.namespace.numpy_rearrange import (
    append,
    array_split,
    at_least,
    axes_split,
    column_stack,
    compress,
    delete,
    diag,
    dstack,
    extract,
    fliplr,
    flipud,
    hstack,
    insert,
    pad,
    partition,
    ravel,
    resize,
    rollaxis,
    rot90,
    sliding_windows,
    split,
    swapaxes,
    vstack,
)
from mixad.namespace.numpy_samples import NUMPY_SAMPLES
from mixad.namespace.numpy_statistics import NUMPY_STATISTICS
from mixad.namespace.sorting import sort
from mixad.namespace.special import of_scalars
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import amax, amin, cumprod
from mixad.namespace.ufunc_methods import UFUNC_METHODS
from mixad.scalar.parse.library import NUMPY_LIBRARY
from mixad.tape.memory import gives_arrays, gives_read_only_views
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["NUMPY_FUNCTIONS", "nan_to_num", "of_half"]


def _matrices_last(x: Any, axis1: int, axis2: int) -> Any:
    return moveaxis(x, (axis1, axis2), (-2, -1))


@gives_read_only_views
def _diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return diagonal(_matrices_last(x, axis1, axis2), offset=offset)


def _trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, *, dtype: Any = None) -> Any:
    return trace(_matrices_last(x, axis1, axis2), offset=offset, dtype=dtype)


def _broadcast_arrays(*operands: Any) -> tuple[Any, ...]:
    return broadcast_arrays(*arrays_of(*operands))


def _triangle(part: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes a vector for a matrix with equal rows."""

    def evaluate(x: Any, *, k: int = 0) -> Any:
        return part(broadcast_to(x, 2 * tuple(x.shape)) if x.ndim == 1 else x, k=k)

    return evaluate


def _ptp(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the difference between the largest and the smallest element."""
    ends = [function(x, axis, keepdims=keepdims) for function in (amax, amin)]
    return elementwise("sub", *ends)


def _diagflat(x: Any, k: int = 0) -> Any:
    return diag(reshape(x, -1), k)


def _vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Return the powers of each element in a row; products, since 0 has powers."""
    if x.ndim != 1:
        raise ValueError(f"vander() of shape {tuple(x.shape)}: it takes a vector")
    count = x.shape[0] if N is None else operator.index(N)
    x, xp = in_doubles(x), library_of_value(x).xp
    ones = xp.ones((x.shape[0], 1), dtype=x.dtype, device=x.device)
    factors = broadcast_to(reshape(x, (-1, 1)), (x.shape[0], max(count - 1, 0)))
    powers = cumprod(concat([ones, factors], axis=1), 1)[:, :count]
    return powers if increasing else powers[:, ::-1]


def _sort(x: Any, axis: int | None = -1, kind: Any = None, *, stable: bool | None = None) -> Any:
    """Return sorted elements, of equal ones in their order, whatever the kind."""
    np.sort(np.empty(0), kind=kind, stable=stable)  # which may refuse
    return sort(reshape(x, -1)) if axis is None else sort(x, axis=axis)


def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, axis: int = 0) -> Any:
    """Return evenly spaced numbers between two, along an axis of their own."""
    like = as_numpy_gives(elementwise("add", start, stop))  # of their shape and dtype
    shares = library_of_value(like).xp.linspace(
        0.0, 1.0, operator.index(num), dtype=like.dtype, device=like.device, endpoint=endpoint
    )
    shares = reshape(shares, (-1, *[1] * like.ndim))
    ends = elementwise("mul", start, 1.0 - shares), elementwise("mul", stop, shares)
    return moveaxis(elementwise("add", *ends), 0, axis)


def nan_to_num(
    x: Any, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Return ``x`` with numbers in place of nan and infinities: 0, the largest, the smallest."""
    limits, nan = library_of_value(x).xp.finfo(x.dtype), 0.0 if nan is None else nan
    x = where(elementwise("isnan", x), nan, x)
    x = where(elementwise("eq", x, math.inf), limits.max if posinf is None else posinf, x)
    return where(elementwise("eq", x, -math.inf), limits.min if neginf is None else neginf, x)


@gives_arrays
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return elements of either (numbers but zero are true); of a condition alone its places."""
    condition = primal_value(condition)
    if x is None and y is None:
        return np.where(condition)
    if is_scalar(condition):
        return where(bool(condition), x, y)
    is_known = is_array(condition) or isinstance(condition, Tracer)
    condition = condition if is_known else np.asarray(condition)
    return where(condition if condition.dtype == bool else condition != 0, x, y)


@gives_arrays
def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0.0) -> Any:
    """Return the elements of the first choice whose condition holds."""
    chosen = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        arrays = [v for v in (choice, chosen) if isinstance(v, Tracer) or is_array(v)]
        chosen = where(condition, choice, chosen) if arrays else np.where(condition, choice, chosen)
    return chosen


@gives_arrays
def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any) -> Any:
    """Return, where a condition holds, a number or the result of a function of those elements.

    The last condition that holds counts; one more function serves elements where none holds.
    """
    xp = library_of_value(x).xp
    is_list = isinstance(condlist, (list, tuple))
    depth = 1 + np.ndim(primal_value(condlist[0])) if is_list else np.ndim(primal_value(condlist))
    given = [condlist] if depth < (2 if x.ndim else 1) else condlist
    conditions = [xp.astype(xp.asarray(primal_value(c)), xp.bool) for c in given]
    if len(conditions) == len(funclist) - 1:
        conditions.append(~functools.reduce(operator.or_, conditions))
    if len(conditions) != len(funclist):
        raise ValueError(
            f"piecewise() with {len(conditions)} conditions takes as many functions, or one more"
        )
    found = xp.zeros_like(primal_value(x))
    for condition, function in zip(conditions, funclist, strict=True):
        value = _on_part(function, x, condition, args) if callable(function) else function
        found = where(condition, value, found)
    return found


def _on_part(function: Callable[..., Any], x: Any, condition: Any, args: tuple[Any, ...]) -> Any:
    """Return a function's results for the elements where a condition holds, in their places."""
    part = getitem(x, condition)
    value = function(part, *args) if math.prod(part.shape) else 0
    if not hasattr(value, "dtype"):
        return value
    value = broadcast_to(astype(value, x.dtype, copy=False), part.shape)
    return scatter_add(value, tuple(x.shape), positions_of(x)[condition])


def _modf(x: Any) -> tuple[Any, Any]:
    """Return the fractional and the whole part."""
    whole = elementwise("trunc", x)
    xp, given = library_of_value(x).xp, primal_value(x)
    rest = where(xp.isinf(given), xp.copysign(xp.zeros_like(given), given),
                 elementwise("fmod", x, 1.0))  # fmt: skip
    return rest, whole


def _float_power(x: Any, y: Any) -> Any:
    """Return powers in 64 bits."""
    return elementwise("pow", *map(in_doubles, arrays_of(x, y)))


def _meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
    return meshgrid(*map(at_least(1), arrays), indexing=indexing)


def _block(blocks: Any) -> Any:
    """Return blocks in nested lists as one array: innermost lists run along the last axis."""
    depths, leaves = zip(*_leaves(blocks), strict=True)
    if len(set(depths)) > 1:
        raise ValueError(f"block() of arrays in lists of different depths: {sorted(set(depths))}")
    return _joined_blocks(blocks, depths[0], max(depths[0], *map(np.ndim, leaves)))


def _leaves(blocks: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield the leaves of nested lists, each with the number of lists around it."""
    if not isinstance(blocks, list):
        yield depth, blocks
        return
    for block in blocks:
        yield from _leaves(block, depth + 1)


def _joined_blocks(blocks: Any, depth: int, ndim: int) -> Any:
    """Return blocks in ``depth`` nested lists as one array of ``ndim`` axes."""
    if depth:
        return concat([_joined_blocks(b, depth - 1, ndim) for b in blocks], axis=-depth)
    x = blocks if isinstance(blocks, Tracer) or is_array(blocks) else np.asarray(blocks)
    return reshape(x, (*[1] * (ndim - len(x.shape)), *x.shape))


def _over_two(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Fourier transform along several axes as NumPy's along two."""

    def evaluate(x: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Any:
        return transform(x, s=s, axes=axes, norm=norm or "backward")

    return evaluate


def _real_if_close(x: Any, tol: float = 100) -> Any:
    return real(x) if np.isrealobj(np.real_if_close(np.asarray(primal_value(x)), tol)) else x


def _fix(x: Any) -> Any:
    return elementwise("trunc", x)


def _svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return svd(x, full_matrices=full_matrices) if compute_uv else svdvals(x)


def _qr(x: Any, mode: Any = "reduced") -> Any:
    np.linalg.qr(np.ones((1, 1)), mode=mode)  # raises or warns as this version of NumPy does
    if mode in ("raw", "economic", "e"):
        raise TracerError(
            f"linalg.qr(mode={mode!r}) of a value that is being differentiated is not available, "
            "since it returns how the factors are stored: use mode='reduced', or mode='r'"
        )
    return qr(x).R if mode == "r" else qr(x, mode="reduced" if mode in ("full", "f") else mode)


def of_half(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the lower half of matrices as one with an argument for the half."""

    def evaluate(x: Any, uplo: str = "L") -> Any:
        return function(x if uplo.upper() == "L" else conj(matrix_transpose(x)))

    return evaluate


_ELEMENTWISE = ("degrees rad2deg radians deg2rad logaddexp2 heaviside sinc fmin fmax").split()

NUMPY_FUNCTIONS: Mapping[str, BoundFunction] = {
    **{name: of_scalars(name, NUMPY_LIBRARY[getattr(np, name)]) for name in _ELEMENTWISE},
    "i0": of_scalars("i0", special.i0),
    "fix": function_of(_fix, "x out"),
    "ravel": function_of(ravel, "a order"),
    "swapaxes": function_of(swapaxes, "a axis1 axis2"),
    "rollaxis": function_of(rollaxis, "a axis start"),
    "rot90": function_of(rot90, "m=x k axes"),
    "lib.stride_tricks.sliding_window_view": function_of(
        sliding_windows, "x window_shape axis * subok writeable"
    ),
    "fliplr": function_of(fliplr, "m=x"),
    "flipud": function_of(flipud, "m=x"),
    "diag": function_of(diag, "v=x k"),
    "pad": function_of(pad, "array=x pad_width mode"),
    "partition": function_of(partition, "a kth axis kind order"),
    "atleast_1d": BoundFunction(at_least(1), ()),
    "atleast_2d": BoundFunction(at_least(2), ()),
    "atleast_3d": BoundFunction(at_least(3), ()),
    "broadcast_arrays": BoundFunction(_broadcast_arrays, ()),
    "tril": function_of(_triangle(tril), "m=x k"),
    "triu": function_of(_triangle(triu), "m=x k"),
    "vstack": function_of(vstack, "tup=arrays * dtype casting"),
    "hstack": function_of(hstack, "tup=arrays * dtype casting"),
    "dstack": function_of(dstack, "tup=arrays"),
    "column_stack": function_of(column_stack, "tup=arrays"),
    "linspace": function_of(_linspace, "start stop num endpoint retstep dtype axis * device"),
    "append": function_of(append, "arr=x values axis"),
    "delete": function_of(delete, "arr=x obj=places axis"),
    "insert": function_of(insert, "arr=x obj=places values axis"),
    "resize": function_of(resize, "a new_shape=shape"),
    "extract": function_of(extract, "condition=selected arr=x"),
    "diagflat": function_of(_diagflat, "v=x k"),
    "vander": function_of(_vander, "x N increasing"),
    "compress": function_of(compress, "condition=selected a axis out"),
    "piecewise": BoundFunction(_piecewise, ()),
    "modf": function_of(_modf, "x"),
    "float_power": function_of(_float_power, "x y"),
    "split": function_of(split, "ary=x indices_or_sections axis"),
    "array_split": function_of(array_split, "ary=x indices_or_sections axis"),
    "vsplit": function_of(axes_split(0), "ary=x indices_or_sections"),
    "hsplit": function_of(axes_split(1), "ary=x indices_or_sections"),
    "dsplit": function_of(axes_split(2), "ary=x indices_or_sections"),
    "diagonal": function_of(_diagonal, "a offset axis1 axis2"),
    "trace": function_of(_trace, "a offset axis1 axis2 dtype out"),
    "ptp": function_of(_ptp, "a axis out keepdims"),
    "sort": function_of(_sort, "a axis kind order * stable"),
    "meshgrid": BoundFunction(_meshgrid, ()),
    "block": function_of(_block, "arrays=blocks"),
    "nan_to_num": function_of(nan_to_num, "x copy nan posinf neginf"),
    **{
        f"fft.{f.__name__[:-1]}2": function_of(_over_two(f), "a s axes norm out")
        for f in (fftn, ifftn, rfftn, irfftn)
    },
    "real_if_close": function_of(_real_if_close, "a tol"),
    "where": function_of(_where, "condition x y /"),
    "select": function_of(_select, "condlist choicelist default"),
    "linalg.svd": function_of(_svd, "a full_matrices compute_uv hermitian"),
    "linalg.qr": function_of(_qr, "a mode"),
    "linalg.eigh": function_of(of_half(eigh), "a UPLO=uplo"),
    "linalg.eigvalsh": function_of(of_half(eigvalsh), "a UPLO=uplo"),
    **NUMPY_QUANTILES,
    **NUMPY_STATISTICS,
    **NUMPY_SAMPLES,
    **NUMPY_LINEAR_ALGEBRA,
    **NUMPY_PRODUCTS,
    **UFUNC_METHODS,
}
"""Functions that are neither here nor in the standard are refused by name."""
