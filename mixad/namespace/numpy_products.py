"""Products of vectors and matrices as NumPy has them: of numbers and lists, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mixad.namespace.array_likes import arrays_of
from mixad.namespace.complex_numbers import conj
from mixad.namespace.einsum import einsum, read_operands
from mixad.namespace.elementwise import elementwise
from mixad.namespace.indexing import getitem
from mixad.namespace.joining import concat
from mixad.namespace.linear_algebra import (
    cross,
    dot,
    inner,
    matmul,
    outer,
    tensordot,
    vecdot,
)
from mixad.namespace.manipulation import expand_dims, moveaxis, reshape, squeeze
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.tape.memory import gives_arrays
from mixad.tape.node import library_of_value

__all__ = ["NUMPY_PRODUCTS", "kron"]


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of two arrays that takes numbers and lists for them."""

    def evaluate(a: Any, b: Any) -> Any:
        return function(*arrays_of(a, b))

    return evaluate


@gives_arrays
def _tensordot(a: Any, b: Any, *, axes: Any = 2) -> Any:
    return tensordot(*arrays_of(a, b), axes=axes)


def _flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of two vectors that takes all elements of arrays, in their order."""

    def evaluate(a: Any, b: Any) -> Any:
        return function(*(reshape(x, -1) for x in arrays_of(a, b)))

    return evaluate


def _einsum(*operands: Any, optimize: Any = None) -> Any:
    text, arrays = read_operands(operands)
    return einsum(text, *arrays_of(*arrays), optimize=optimize)


def kron(x: Any, y: Any) -> Any:
    """Return the products of all elements of ``y`` by each of ``x``, side by side."""
    ndim = max(x.ndim, y.ndim)
    rows, columns = ((*[1] * (ndim - v.ndim), *v.shape) for v in (x, y))
    left = reshape(x, [n for length in rows for n in (length, 1)])
    right = reshape(y, [n for length in columns for n in (1, length)])
    whole = [m * n for m, n in zip(rows, columns, strict=True)]
    return reshape(elementwise("mul", left, right), whole)


def _matvec(x: Any, y: Any) -> Any:
    """Return the products of matrices and vectors; the axes before those broadcast."""
    x, y = arrays_of(x, y)
    if x.ndim < 2 or y.ndim < 1 or x.shape[-1] != y.shape[-1]:
        raise ValueError(_misfit("matvec", x, y, "(..., m, n) and (..., n)"))
    return matmul(x, y) if y.ndim == 1 else squeeze(matmul(x, expand_dims(y, axis=-1)), -1)


def _vecmat(x: Any, y: Any) -> Any:
    """Return the products of vectors, conjugated, and matrices; the axes before those broadcast."""
    x, y = arrays_of(x, y)
    if x.ndim < 1 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ValueError(_misfit("vecmat", x, y, "(..., n) and (..., n, m)"))
    x = conj(x)
    return matmul(x, y) if x.ndim == 1 else squeeze(matmul(expand_dims(x, axis=-2), y), -2)


def _misfit(name: str, x: Any, y: Any, shapes: str) -> str:
    return f"{name}() of arrays of shape {tuple(x.shape)} and {tuple(y.shape)}: it takes {shapes}"


def _cross(
    x: Any, y: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """Return cross products of vectors of length 3; a vector of length 2 has the third number 0.

    For two vectors of length 2 it is the third number alone.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = arrays_of(x, y)
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    lengths = x.shape[-1], y.shape[-1]
    if lengths != (3, 3):
        first, second = map(np.ones, lengths)
        np.cross(first, second)  # which raises or warns as this version of NumPy does
    found = cross(_of_length_3(x), _of_length_3(y))
    return getitem(found, (..., 2)) if lengths == (2, 2) else moveaxis(found, -1, axisc)


def _of_length_3(x: Any) -> Any:
    if x.shape[-1] == 3:
        return x
    zeros = library_of_value(x).xp.zeros((*x.shape[:-1], 1), dtype=x.dtype, device=x.device)
    return concat([x, zeros], axis=-1)


NUMPY_PRODUCTS: Mapping[str, BoundFunction] = {
    "dot": function_of(_of_arrays(dot), "a b out"),
    "inner": function_of(_of_arrays(inner), "a b /"),
    "kron": function_of(_of_arrays(kron), "a b"),
    "matvec": function_of(_matvec),
    "vecmat": function_of(_vecmat),
    "outer": function_of(_flat(outer), "a b out"),
    "vdot": function_of(_flat(vecdot), "a b /"),
    "tensordot": function_of(_tensordot, "a b axes"),
    "linalg.tensordot": function_of(_tensordot, "x1=a x2=b / * axes"),
    "einsum": BoundFunction(_einsum, ()),
    "cross": function_of(_cross, "a=x b=y axisa axisb axisc axis"),
}
