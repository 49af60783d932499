"""Elimination with complete pivoting: factors that are regular whatever the matrix is.

Golub and Van Loan, "Matrix Computations" (2013), section 3.4.8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from array_api_compat import device

from mixad.backends.arrays import Array, library_of

__all__ = ["Eliminated", "eliminate"]


class Eliminated(NamedTuple):
    """``left @ x @ right`` is diag(pivots); the determinant is their product times ``sign``."""

    left: Array
    pivots: Array
    right: Array
    sign: Array


def eliminate(x: Array) -> Eliminated:
    """Eliminate rows and columns, those of the largest element first.

    Pivots divide only smaller elements, so the factors are regular also where the matrix is
    singular. Rows or columns in small units keep their digits, unlike in singular values.
    """
    xp, n = library_of(x).xp, x.shape[-1]
    one = xp.zeros_like(x) + xp.eye(n, dtype=x.dtype, device=device(x))
    under_way, pivots = _UnderWay(one, x, one, xp.ones_like(x) != 0), []
    for _ in range(n):
        pivots.append(_largest(xp, under_way))
        under_way = _subtract_pivot(xp, under_way, pivots[-1])
    rows = xp.stack([xp.astype(pivot.row, x.dtype) for pivot in pivots], axis=-2)
    columns = xp.stack([xp.astype(pivot.column, x.dtype) for pivot in pivots], axis=-1)
    return Eliminated(
        xp.stack([pivot.left for pivot in pivots], axis=-2),
        xp.stack([pivot.value for pivot in pivots], axis=-1),
        xp.stack([pivot.right for pivot in pivots], axis=-1),
        xp.linalg.det(rows @ columns),
    )


class _UnderWay(NamedTuple):
    """``left @ x @ right`` is ``rest`` where rows and columns are open, and done elsewhere."""

    left: Array
    rest: Array
    right: Array
    is_open: Array


class _Pivot(NamedTuple):
    """An element, the places of its row and its column, and their parts of the factors."""

    value: Array
    row: Array
    column: Array
    left: Array
    right: Array


def _largest(xp: Any, under_way: _UnderWay) -> _Pivot:
    """Return the largest of the open elements of each matrix."""
    left, rest, right, is_open = under_way
    n = rest.shape[-1]
    sizes = xp.abs(rest)
    sizes = xp.where(is_open, sizes, -xp.ones_like(sizes))
    place = xp.argmax(xp.reshape(sizes, (*rest.shape[:-2], n * n)), axis=-1)[..., None]
    every = xp.arange(n, dtype=place.dtype, device=device(rest))
    row, column = place // n == every, place % n == every
    value = _row(xp, _column(xp, rest, column)[..., None], row)[..., 0]
    return _Pivot(value, row, column, _row(xp, left, row), _column(xp, right, column))


def _subtract_pivot(xp: Any, under_way: _UnderWay, pivot: _Pivot) -> _UnderWay:
    """Subtract multiples of the pivot's row and column from the others, which leaves zeros."""
    left, rest, right, is_open = under_way
    down, across = _column(xp, rest, pivot.column), _row(xp, rest, pivot.row)
    divisor = xp.where(pivot.value == 0, xp.ones_like(pivot.value), pivot.value)[..., None]
    of_rows = xp.where(pivot.row, xp.zeros_like(down), down / divisor)
    of_columns = xp.where(pivot.column, xp.zeros_like(across), across / divisor)
    is_open = is_open & ~(pivot.row[..., :, None] | pivot.column[..., None, :])
    rest = rest - down[..., :, None] * of_columns[..., None, :]
    return _UnderWay(
        left - of_rows[..., :, None] * pivot.left[..., None, :],
        xp.where(is_open, rest, xp.zeros_like(rest)),
        right - pivot.right[..., :, None] * of_columns[..., None, :],
        is_open,
    )


def _row(xp: Any, matrices: Array, row: Array) -> Array:
    """Return the row that is marked."""
    return xp.sum(xp.where(row[..., None], matrices, xp.zeros_like(matrices)), axis=-2)


def _column(xp: Any, matrices: Array, column: Array) -> Array:
    """Return the column that is marked."""
    return _row(xp, xp.matrix_transpose(matrices), column)
