"""Products of vectors, matrices and arrays; diagonals."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from mixad.namespace.array_likes import arrays_of
from mixad.namespace.complex_numbers import conj
from mixad.namespace.data_types import of_one_type
from mixad.namespace.elementwise import elementwise
from mixad.namespace.indexing import gather, positions_of
from mixad.namespace.manipulation import (
    is_several,
    matrix_transpose,
    moveaxis,
    normalized_axes,
    permute_dims,
    reshape,
    roll,
    whole_numbers,
)
from mixad.namespace.statistical import total
from mixad.scalar.dtypes import element_type_of, is_complex_dtype
from mixad.scalar.types import F32, F64
from mixad.tape.broadcasting import sum_to
from mixad.tape.memory import gives_arrays, gives_read_only_views, gives_views
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import Tracer, bodies_among

__all__ = [
    "adjoint",
    "cross",
    "diagonal",
    "dot",
    "inner",
    "matmul",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
]


def matmul(a: Any, b: Any) -> Any:
    """Return the matrix product; leading axes broadcast.

    Vectors are rows on the left and columns on the right.
    """
    if not getattr(a, "ndim", 0) or not getattr(b, "ndim", 0):
        raise ValueError("matmul takes arrays with at least one axis: use * to scale")
    a, b = of_one_type("matmul", (a, b))
    if _is_kernel(a, b):
        return _summed_products(a, b)
    rows = reshape(a, (1, *a.shape)) if a.ndim == 1 else a
    columns = reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    product = apply_rule(_MATMUL, rows, columns, turns_a=False, turns_b=False)
    shape = tuple(product.shape)
    shape = (*shape[:-2], *shape[-2:][a.ndim == 1 : 2 - (b.ndim == 1)])
    return reshape(product, shape)


_MAX_PRODUCTS = 1 << 14
"""Most products of elements that a kernel adds up in the body of a loop."""


def _is_kernel(a: Any, b: Any) -> bool:
    """Whether a product is a kernel: of small real matrices in the body of a loop.

    Its steps then need no library.
    """
    levels = [x.origin.levels for x in (a, b) if isinstance(x, Tracer) and x.state is None]
    if not any(map(bodies_among, levels)) or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        return False
    batch = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    count = batch * math.prod(a.shape[-2:]) * (b.shape[-1] if b.ndim > 1 else 1)
    are_floats = all(element_type_of(x.dtype) in (F32, F64) for x in (a, b))
    return are_floats and 0 < count <= _MAX_PRODUCTS


def _summed_products(a: Any, b: Any) -> Any:
    """Return a matrix product as a broadcast product and a sum."""
    if b.ndim == 1:
        return total(elementwise("mul", a, b), -1)
    columns = reshape(a, (*a.shape, 1))
    rows = b if b.ndim <= 2 else reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return total(elementwise("mul", columns, rows), -2)


def _product(a: Any, b: Any, *, turns_a: bool = False, turns_b: bool = False) -> Any:
    """Return the product of a cotangent and a factor, each as its adjoint or not."""
    a, b = of_one_type("matmul", (a, b))
    return apply_rule(_MATMUL, a, b, turns_a=turns_a, turns_b=turns_b)


def _multiply(xp: Any, a: Any, b: Any, turns_a: bool, turns_b: bool) -> Any:
    return xp.matmul(_adjoint(xp, a) if turns_a else a, _adjoint(xp, b) if turns_b else b)


def _adjoint(xp: Any, x: Any) -> Any:
    turned = xp.matrix_transpose(x)
    return xp.conj(turned) if is_complex_dtype(x.dtype) else turned


def _of_first(g: Any, a: Any, b: Any, turns_a: bool, turns_b: bool) -> Any:
    """Return g Bᴴ, or its adjoint where the factor is the adjoint of ``a``."""
    found = (
        _product(b, g, turns_a=turns_b, turns_b=True)
        if turns_a
        else _product(g, b, turns_b=not turns_b)
    )
    return sum_to(found, tuple(a.shape))


def _of_second(g: Any, a: Any, b: Any, turns_a: bool, turns_b: bool) -> Any:
    """Return Aᴴ g, or its adjoint where the factor is the adjoint of ``b``."""
    found = (
        _product(g, a, turns_a=True, turns_b=turns_a)
        if turns_b
        else _product(a, g, turns_a=not turns_a)
    )
    return sum_to(found, tuple(b.shape))


_MATMUL = Rule(
    "matmul", _multiply, (_of_first, _of_second), reads=((1,), (0,)), fresh=True, linear="each"
)


@gives_views
def adjoint(x: Any) -> Any:
    """Return the conjugate transposes of matrices."""
    return conj(matrix_transpose(x))


def dot(a: Any, b: Any) -> Any:
    """Return NumPy's product: sums over the last axis of ``a`` and the last but one of ``b``."""
    if not a.ndim or not b.ndim:
        return elementwise("mul", a, b)
    return matmul(a, b) if b.ndim <= 2 else tensordot(a, b, axes=((-1,), (-2,)))


@gives_arrays
def tensordot(a: Any, b: Any, *, axes: Any = 2) -> Any:
    """Return the sum of products over axes of ``a`` and of ``b``: a pair of axes, or how many.

    A number means the last axes of ``a`` and the first of ``b``. The result has the other axes of
    ``a``, then those of ``b``. ValueError if lengths differ.
    """
    if not is_several(axes):
        count = operator.index(axes)
        axes = range(a.ndim - count, a.ndim), range(count)
    first, second = map(whole_numbers, axes)
    left, right = normalized_axes(first, a.ndim), normalized_axes(second, b.ndim)
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ValueError(
            f"tensordot(axes={axes}) of shapes {tuple(a.shape)} and {tuple(b.shape)}: the axes "
            "that are summed over differ in length"
        )
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    summed = math.prod(a.shape[i] for i in left)
    shape = [a.shape[i] for i in rows], [b.shape[i] for i in columns]
    product = matmul(
        reshape(permute_dims(a, (*rows, *left)), (math.prod(shape[0]), summed)),
        reshape(permute_dims(b, (*right, *columns)), (summed, math.prod(shape[1]))),
    )
    return reshape(product, (*shape[0], *shape[1]))


def vecdot(x: Any, y: Any, *, axis: int = -1) -> Any:
    """Return the sum of products along an axis of each; the other axes broadcast.

    Complex elements of ``x`` are conjugated.
    """
    x, y = arrays_of(x, y)
    lengths = [_length(x, axis), _length(y, axis)]
    if lengths[0] != lengths[1]:
        raise ValueError(f"vecdot() of vectors of length {lengths[0]} and {lengths[1]}")
    if _broadcasting_moves(axis, x, y):
        return vecdot(moveaxis(x, axis, -1), moveaxis(y, axis, -1))
    return total(elementwise("mul", conj(x), y), axis)


def inner(x: Any, y: Any) -> Any:
    """Return sums of products along the last axes; plain products where one has no axes."""
    if not x.ndim or not y.ndim:
        return elementwise("mul", x, y)
    return tensordot(x, y, axes=((-1,), (-1,)))


def outer(x: Any, y: Any) -> Any:
    """Return the matrix of products of the elements of two vectors."""
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"outer() of arrays of shape {tuple(x.shape)} and {tuple(y.shape)}")
    return elementwise("mul", reshape(x, (-1, 1)), y)


def cross(x: Any, y: Any, *, axis: int = -1) -> Any:
    """Return the cross products of vectors of length 3 along an axis of each and of the result."""
    lengths = [_length(x, axis), _length(y, axis)]
    if lengths != [3, 3]:
        raise ValueError(f"cross() of vectors of length {lengths[0]} and {lengths[1]}: 3")
    if _broadcasting_moves(axis, x, y):
        return moveaxis(cross(moveaxis(x, axis, -1), moveaxis(y, axis, -1)), -1, axis)
    x1, x2, y1, y2 = (roll(v, -n, axis=axis) for v in (x, y) for n in (1, 2))
    return elementwise("sub", elementwise("mul", x1, y2), elementwise("mul", x2, y1))


def _broadcasting_moves(axis: int, x: Any, y: Any) -> bool:
    """Whether an axis is another one in each of two arrays once they are broadcast."""
    return axis >= 0 and x.ndim != y.ndim


def _length(x: Any, axis: int) -> int:
    """Return the length of an axis."""
    (axis,) = normalized_axes(axis, x.ndim)
    length: int = x.shape[axis]
    return length


@gives_read_only_views
def diagonal(x: Any, *, offset: int = 0) -> Any:
    """Return the diagonals of matrices, or those ``offset`` above."""
    return gather(x, library_of_value(x).xp.linalg.diagonal(positions_of(x), offset=offset))


def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sums of the diagonals of matrices, or of those ``offset`` above."""
    return total(diagonal(x, offset=offset), -1, dtype=dtype)
