"""NumPy's functions of matrices beside those of the standard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from mixad.errors import TracerError
from mixad.namespace.complex_numbers import imag, is_complex, real
from mixad.namespace.data_types import in_doubles, of_one_type
from mixad.namespace.decompositions import qr, svdvals
from mixad.namespace.elementwise import elementwise, square, where
from mixad.namespace.indexing import getitem
from mixad.namespace.linear_algebra import adjoint, matmul
from mixad.namespace.manipulation import reshape
from mixad.namespace.norms import matrix_norm
from mixad.namespace.solving import inv, solve
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import total
from mixad.scalar.dtypes import element_type_of
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer, concrete_value, primal_value

__all__ = ["NUMPY_LINEAR_ALGEBRA"]


def cond(x: Any, p: Any = None) -> Any:
    """Return the condition numbers of matrices in a norm; None for the Euclidean one.

    LinAlgError for matrices without elements, and for singular ones unless ``p`` is None, 2 or -2.
    """
    if not all(x.shape[-2:]):
        raise np.linalg.LinAlgError("cond() of matrices without elements")
    if p is None or p in (2, -2):
        s = svdvals(x)
        first, last = getitem(s, (..., 0)), getitem(s, (..., -1))
        found = elementwise("div", last, first) if p == -2 else elementwise("div", first, last)
    else:
        found = elementwise("mul", matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p))
    xp = library_of_value(x).xp
    is_zero = xp.isnan(primal_value(found)) & ~xp.any(xp.isnan(primal_value(x)), axis=(-2, -1))
    return where(is_zero, math.inf, found)


def lstsq(a: Any, b: Any, rcond: float | None = None) -> tuple[Any, Any, int, Any]:
    """Return solution, squared distances, rank and singular values, as NumPy returns them.

    The solution is by factors Q R of the matrix or its adjoint. TracerError without full rank,
    where it is not continuous, and for lazy arrays, whose rank would have to be computed.
    """
    matrix, right = (concrete_value(v, "lstsq()") if isinstance(v, Tracer) else v for v in (a, b))
    _, _, rank, _ = np.linalg.lstsq(np.asarray(matrix), np.asarray(right), rcond)
    rows, columns = a.shape
    if rank < min(rows, columns):
        raise TracerError(
            f"lstsq() of a matrix of rank {rank} and shape {(rows, columns)} has no derivative: "
            "remove dependent rows or columns, or use solve() of regularised normal equations"
        )
    a, b = of_one_type("lstsq", [_of_floats(v) for v in (a, b)])
    right = reshape(b, (rows, 1)) if b.ndim == 1 else b
    found = _solution(a, right)
    xp = library_of_value(a).xp
    distances = xp.zeros((0,), dtype=real(primal_value(a)).dtype)
    if rows > columns:
        rest = elementwise("sub", right, matmul(a, found))
        squares = square(real(rest))
        if is_complex(rest):
            squares = elementwise("add", squares, square(imag(rest)))
        distances = total(squares, 0)
    return reshape(found, (columns, *b.shape[1:])), distances, rank, svdvals(a)


def _of_floats(x: Any) -> Any:
    is_inexact = element_type_of(x.dtype).is_inexact
    return x if is_inexact else in_doubles(x)


def _solution(a: Any, b: Any) -> Any:
    rows, columns = a.shape
    if rows >= columns:
        q, r = qr(a)
        return solve(r, matmul(adjoint(q), b))
    q, r = qr(adjoint(a))
    return matmul(q, solve(adjoint(r), b))


def multi_dot(arrays: Sequence[Any]) -> Any:
    """Return the product of matrices, the first and the last of which may be vectors."""
    if len(arrays) < 2:
        raise ValueError(f"multi_dot() takes at least two arrays, {len(arrays)} were given")
    shapes = [tuple(x.shape) for x in arrays]
    first, *inside, last = (len(shape) for shape in shapes)
    if first not in (1, 2) or last not in (1, 2) or any(n != 2 for n in inside):
        raise np.linalg.LinAlgError(f"multi_dot() of arrays of shapes {shapes}: matrices")
    before = 1 if first == 1 else shapes[0][0]
    after = 1 if last == 1 else shapes[-1][1]
    lengths = (before, shapes[0][-1], *(shape[1] for shape in shapes[1:-1]), after)
    return _product(list(arrays), _split(lengths))


@lru_cache(maxsize=256)
def _split(lengths: tuple[int, ...]) -> tuple[Any, ...]:
    """Return where to split a chain of matrices for the fewest multiplications.

    The chain between lengths i and j is split at k, then both halves: Cormen et al., "Introduction
    to Algorithms", the matrix-chain product.
    """

    @cache
    def best(i: int, j: int) -> tuple[int, tuple[Any, ...]]:
        if j == i + 1:
            return 0, ()
        choices = []
        for k in range(i + 1, j):
            (left, left_tree), (right, right_tree) = best(i, k), best(k, j)
            cost = left + right + lengths[i] * lengths[k] * lengths[j]
            choices.append((cost, k - i, left_tree, right_tree))
        cost, *tree = min(choices, key=lambda choice: choice[0])
        return cost, tuple(tree)

    return best(0, len(lengths) - 1)[1]


def _product(arrays: Sequence[Any], tree: tuple[Any, ...]) -> Any:
    if not tree:
        return arrays[0]
    count, left, right = tree
    return matmul(_product(arrays[:count], left), _product(arrays[count:], right))


NUMPY_LINEAR_ALGEBRA: Mapping[str, BoundFunction] = {
    "linalg.cond": function_of(cond, "x p"),
    "linalg.lstsq": function_of(lstsq, "a b rcond"),
    "linalg.multi_dot": function_of(multi_dot, "arrays * out"),
}
