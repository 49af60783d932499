"""Linear algebra of small matrices as programs over their elements.

Elimination has partial pivoting: rows change places by selection, so that every matrix of a batch
runs the same instructions.  Golub and Van Loan, "Matrix Computations" (2013), sections 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from mixad.backends.arrays import Array
from mixad.scalar.build import Builder
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.ir import Atom
from mixad.scalar.types import BOOL, F32, F64, ScalarType
from mixad.tape.core_kernel import CoreKernel

__all__ = ["checked_symmetric", "determinant", "inverse", "log_determinant", "lower_factor",
           "solution"]  # fmt: skip

_MAX_ROWS = 6
"""Rows of the largest matrix: compiling a program for it takes half a second."""

_MAX_ELEMENTS = 64
"""Elements of all arguments of a program."""

_Rows: TypeAlias = list[list[Atom]]


def inverse(x: Array) -> CoreKernel | None:
    """Return what computes inverses and tells which matrices are singular; None for large ones."""
    return _of_squares(_inverse, x)


def solution(a: Array, b: Array) -> CoreKernel | None:
    """Return what computes solutions, for right sides in columns."""
    n, columns = a.shape[-1], b.shape[-1]
    is_small = b.ndim > 1 and b.shape[-2] == n and columns and n * (n + columns) <= _MAX_ELEMENTS
    if not is_small or a.dtype != b.dtype or type(b) is not np.ndarray or 0 in b.shape:
        return None
    return _of_squares(_solution, a, columns)


def determinant(x: Array) -> CoreKernel | None:
    """Return what computes determinants."""
    return _of_squares(_determinant, x)


def log_determinant(x: Array) -> CoreKernel | None:
    """Return what computes signs of determinants and logarithms of their magnitudes."""
    return _of_squares(_log_determinant, x)


def lower_factor(x: Array) -> CoreKernel | None:
    """Return what computes Cholesky factors and tells which matrices have none."""
    return _of_squares(_lower_factor, x)


def checked_symmetric(x: Array, what: str) -> CoreKernel | None:
    """Return what copies matrices and tells which are not symmetric."""
    return _of_squares(_checked_symmetric, x)


def _of_squares(
    kernel: Callable[..., CoreKernel], x: Array, columns: int | None = None
) -> CoreKernel | None:
    """Return the kernel for square matrices; None where there is none."""
    if type(x) is not np.ndarray or x.ndim < 2 or 0 in x.shape:
        return None
    if not x.dtype.isnative:
        return None
    rows, type_ = x.shape[-2], element_type_of(x.dtype)
    if rows != x.shape[-1] or rows > _MAX_ROWS or type_ not in (F32, F64):
        return None
    found = kernel(rows, type_) if columns is None else kernel(rows, type_, columns)
    return found if found.is_served else None


# -- programs --------------------------------------------------------------------------------------


def _matrix(b: Builder, name: str, shape: tuple[int, int], type: ScalarType) -> _Rows:
    """Add a param for each element of a matrix."""
    rows, columns = shape
    return [[b.param(f"{name}{i}{j}", type) for j in range(columns)] for i in range(rows)]


def _flat(rows: Sequence[Sequence[Atom]]) -> list[Atom]:
    return [atom for row in rows for atom in row]


def _eliminate(b: Builder, rows: _Rows) -> Atom:
    """Make the first columns upper triangular, in place; return whether rows were swapped oddly.

    As in LAPACK the first of the largest elements is the pivot, and nan is none.
    """
    count = len(rows)
    is_odd: Atom = b.const(False, BOOL)
    for k in range(count):
        for i in range(k + 1, count):
            swaps = b.op("lt", b.op("abs", rows[k][k]), b.op("abs", rows[i][k]))
            is_odd = b.op("xor", is_odd, swaps)
            pairs = list(zip(rows[k], rows[i], strict=True))
            rows[k][k:] = [b.op("where", swaps, low, top) for top, low in pairs[k:]]
            rows[i][k:] = [b.op("where", swaps, top, low) for top, low in pairs[k:]]
        for row in rows[k + 1 :]:
            factor = b.op("div", row[k], rows[k][k])
            pairs = list(zip(row, rows[k], strict=True))
            row[k + 1 :] = [
                b.op("sub", own, b.op("mul", factor, top)) for own, top in pairs[k + 1 :]
            ]
    return is_odd


def _back_substitute(b: Builder, rows: _Rows) -> _Rows:
    """Return what upper triangular matrices times it are the columns beside them."""
    count, found = len(rows), list[list[Atom]]()
    for k in range(count - 1, -1, -1):
        row = rows[k][count:]
        for factor, known in zip(rows[k][k + 1 : count], found, strict=True):
            pairs = list(zip(row, known, strict=True))
            row = [b.op("sub", own, b.op("mul", factor, x)) for own, x in pairs]
        found.insert(0, [b.op("div", own, rows[k][k]) for own in row])
    return found


def _is_singular(b: Builder, rows: _Rows) -> Atom:
    """Return whether a pivot is zero."""
    found: Atom = b.const(False, BOOL)
    for k, row in enumerate(rows):
        found = b.op("or", found, b.op("eq", row[k], b.const(0.0, row[k].type)))
    return found


@cache
def _inverse(n: int, type: ScalarType) -> CoreKernel:
    b = Builder("inv")
    rows = _matrix(b, "x", (n, n), type)
    fails = b.param("fails", BOOL)
    for i, row in enumerate(rows):
        row += [b.const(float(i == j), type) for j in range(n)]
    _eliminate(b, rows)
    results = _flat(_back_substitute(b, rows))
    program = b.finish([*results, b.op("or", fails, _is_singular(b, rows))])
    return CoreKernel(program, ((n, n),), ((n, n),))


@cache
def _solution(n: int, type: ScalarType, columns: int) -> CoreKernel:
    b = Builder("solve")
    left, right = _matrix(b, "a", (n, n), type), _matrix(b, "b", (n, columns), type)
    fails = b.param("fails", BOOL)
    rows = [[*one, *other] for one, other in zip(left, right, strict=True)]
    _eliminate(b, rows)
    results = _flat(_back_substitute(b, rows))
    program = b.finish([*results, b.op("or", fails, _is_singular(b, rows))])
    return CoreKernel(program, ((n, n), (n, columns)), ((n, columns),))


@cache
def _determinant(n: int, type: ScalarType) -> CoreKernel:
    """The product of pivots; where that leaves the range, the exponential of the logarithm."""
    b = Builder("det")
    rows = _matrix(b, "x", (n, n), type)
    sign, product, is_normal = _product_of_pivots(b, rows)
    found = b.if_(
        is_normal,
        lambda: [b.op("mul", sign, product)],
        lambda: [b.op("mul", sign, b.op("exp", _sum_of_logarithms(b, rows)))],
    )
    return CoreKernel(b.finish(found), ((n, n),), ((),))


@cache
def _log_determinant(n: int, type: ScalarType) -> CoreKernel:
    """The logarithm of the product of pivots; where that leaves the range, the sum of theirs."""
    b = Builder("slogdet")
    rows = _matrix(b, "x", (n, n), type)
    sign, product, is_normal = _product_of_pivots(b, rows)
    found = b.if_(is_normal, lambda: [b.op("log", product)], lambda: [_sum_of_logarithms(b, rows)])
    return CoreKernel(b.finish([sign, *found]), ((n, n),), ((), ()))


def _product_of_pivots(b: Builder, rows: _Rows) -> tuple[Atom, Atom, Atom]:
    """Eliminate; return the sign of the determinant, the product of the magnitudes of pivots, and
    whether that has all its digits."""
    type, is_odd = rows[0][0].type, _eliminate(b, rows)
    zero, one = b.const(0.0, type), b.const(1.0, type)
    product: Atom = one
    for k, row in enumerate(rows):
        is_odd = b.op("xor", is_odd, b.op("lt", row[k], zero))
        product = b.op("mul", product, b.op("abs", row[k]))
    sign = b.op("where", is_odd, b.const(-1.0, type), one)
    limits = np.finfo(type.dtype)
    is_normal = b.op(
        "and",
        b.op("ge", product, b.const(float(limits.smallest_normal), type)),
        b.op("le", product, b.const(float(limits.max), type)),
    )
    return b.op("where", _is_singular(b, rows), zero, sign), product, is_normal


def _sum_of_logarithms(b: Builder, rows: _Rows) -> Atom:
    """Return the sum of the logarithms of the magnitudes of pivots; of singular matrices -inf."""
    type = rows[0][0].type
    found: Atom = b.const(0.0, type)
    for k, row in enumerate(rows):
        found = b.op("add", found, b.op("log", b.op("abs", row[k])))
    return b.op("where", _is_singular(b, rows), b.const(-np.inf, type), found)


@cache
def _lower_factor(n: int, type: ScalarType) -> CoreKernel:
    b = Builder("cholesky")
    rows = _matrix(b, "x", (n, n), type)
    fails: Atom = b.param("fails", BOOL)
    zero = b.const(0.0, type)
    found: _Rows = [[zero] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = rows[i][j]
            for one, other in zip(found[i][:j], found[j][:j], strict=True):
                rest = b.op("sub", rest, b.op("mul", one, other))
            if i == j:
                fails = b.op("or", fails, b.op("le", rest, zero))
            found[i][j] = b.op("sqrt", rest) if i == j else b.op("div", rest, found[j][j])
    return CoreKernel(b.finish([*_flat(found), fails]), ((n, n),), ((n, n),))


@cache
def _checked_symmetric(n: int, type: ScalarType) -> CoreKernel:
    b = Builder("symmetric")
    rows = _matrix(b, "x", (n, n), type)
    fails = b.param("fails", BOOL)
    sizes = [b.op("abs", each) for each in _flat(rows)]
    pairs = [(rows[i][j], rows[j][i]) for i in range(n) for j in range(i)]
    gaps = [b.op("abs", b.op("sub", one, other)) for one, other in pairs]
    limit = b.const(16 * n * float(np.finfo(type.dtype).eps), type)
    most = b.op("mul", limit, _largest(b, sizes))
    is_uneven = b.op("gt", _largest(b, gaps), most) if gaps else b.const(False, BOOL)
    return CoreKernel(b.finish([*_flat(rows), b.op("or", fails, is_uneven)]), ((n, n),), ((n, n),))


def _largest(b: Builder, atoms: Sequence[Atom]) -> Atom:
    found = atoms[0]
    for each in atoms[1:]:
        found = b.op("maximum", found, each)
    return found
