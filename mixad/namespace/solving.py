"""Inverses, linear systems, powers of matrices.

The formulas are those of Giles, "Collected matrix derivative results for forward and reverse mode
algorithmic differentiation" (2008), section 2; that of the pseudoinverse is Golub and Pereyra's
(1973).
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import library_of, own_library
from mixad.errors import TracerError
from mixad.namespace.data_types import of_one_type
from mixad.namespace.elementwise import elementwise
from mixad.namespace.linear_algebra import adjoint, matmul
from mixad.namespace.manipulation import reshape
from mixad.namespace.small_matrices import inverse, solution
from mixad.tape.broadcasting import sum_to
from mixad.tape.core_kernel import OverCores
from mixad.tape.tracer import primal_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["identity_like", "inv", "matrix_power", "of_inverse", "pinv", "solve"]


def inv(x: Any) -> Any:
    """Return the inverses of matrices."""
    return apply_values_rule(_INV, x)[0]


def of_inverse(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Return the cotangent of matrices, of that of their inverses."""
    turned = adjoint(values[0])
    return -matmul(turned, matmul(gs[0], turned))


def _invert(xp: Any, x: Any) -> tuple[Any]:
    return (xp.linalg.inv(x),)


def singular() -> np.linalg.LinAlgError:
    """Return what NumPy raises of a matrix without an inverse."""
    return np.linalg.LinAlgError("Singular matrix")


_INV = ValuesRule("inv", OverCores(inverse, _invert, singular), (of_inverse,))


def solve(a: Any, b: Any) -> Any:
    """Return the solution of ``a @ x == b``; ``b`` with one axis is a vector.

    Leading axes broadcast.
    """
    a, b = of_one_type("solve", (a, b))
    columns = reshape(b, (-1, 1)) if b.ndim == 1 else b
    found = apply_values_rule(_SOLVE, a, columns)[0]
    return reshape(found, tuple(found.shape)[:-1]) if b.ndim == 1 else found


def _of_matrix(gs: tuple[Any, ...], values: tuple[Any, ...], a: Any, b: Any) -> Any:
    right = solve(adjoint(a), gs[0])
    return sum_to(-matmul(right, adjoint(values[0])), tuple(a.shape))


def _of_right_side(gs: tuple[Any, ...], values: tuple[Any, ...], a: Any, b: Any) -> Any:
    return sum_to(solve(adjoint(a), gs[0]), tuple(b.shape))


def _solve(xp: Any, a: Any, b: Any) -> tuple[Any]:
    if a.shape[:-2] != b.shape[:-2] and own_library(a).name == "cupy":  # it broadcasts nothing
        leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (xp.broadcast_to(m, (*leading, *m.shape[-2:])) for m in (a, b))
    return (xp.linalg.solve(a, b),)


_SOLVE = ValuesRule(
    "solve", OverCores(solution, _solve, singular), (_of_matrix, _of_right_side), reads=(0,)
)


def matrix_power(x: Any, n: int) -> Any:
    """Return products of ``n`` equal matrices; of their inverses where ``n`` is negative."""
    n = operator.index(n)
    square, power = (inv(x) if n < 0 else x), None
    count = abs(n)
    while count:
        if count % 2:
            power = square if power is None else matmul(power, square)
        count //= 2
        square = matmul(square, square) if count else square
    return identity_like(x) if power is None else power


def identity_like(x: Any) -> Any:
    """Return identity matrices beside square ones."""
    like = primal_value(x)
    xp = library_of(like).xp
    ones = xp.eye(like.shape[-1], dtype=like.dtype, device=device(like))
    return xp.zeros_like(like) + ones


def pinv(x: Any, *, rtol: Any = None) -> Any:
    """Return the pseudoinverses of matrices; the derivative needs full rank.

    Singular values below the share ``rtol`` of the largest one count as zero.
    """
    return apply_values_rule(_PINV, x, rtol=rtol)[0]


def _of_pseudoinverse(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any, rtol: Any) -> Any:
    _check_rank(primal_value(x), rtol)
    (g,), p = gs, values[0]
    pt, gt = adjoint(p), adjoint(g)
    beside = elementwise("sub", gt, matmul(matmul(x, p), gt))
    below = elementwise("sub", gt, matmul(gt, matmul(p, x)))
    ends = matmul(beside, matmul(p, pt)) + matmul(matmul(pt, p), below)
    return ends - matmul(pt, matmul(g, pt))


def _check_rank(x: Any, rtol: Any) -> None:
    """Refuse matrices whose rank changes: their pseudoinverse is not continuous."""
    xp = library_of(x).xp
    if not bool(xp.all(xp.linalg.matrix_rank(x, rtol=rtol) == min(x.shape[-2:]))):
        raise TracerError(
            "pinv() of a matrix without full rank has no derivative: remove dependent rows or "
            "columns, or use solve() of regularised normal equations"
        )


_PINV = ValuesRule(
    "pinv", lambda xp, x, rtol: (xp.linalg.pinv(x, rtol=rtol),), (_of_pseudoinverse,), reads=(0,)
)
