"""Derivatives of determinants of every order, at singular matrices too: nothing is divided by.

Where L x R is diagonal, with pivots d, det(x + E) is ± det(diag(d) + L E R), a polynomial: terms of
it are products of elements of L E R and of the pivots in other rows (Bhatia and Jain, "Higher order
derivatives and perturbation bounds for determinants", 2009).  Those of order k take n^k numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, permutations
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import Array
from mixad.namespace.complex_numbers import conj
from mixad.namespace.elimination import Eliminated, eliminate
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.node import Rule, apply_rule
from mixad.tape.tracer import primal_value

__all__ = ["gradient_of_det"]


def gradient_of_det(x: Any) -> Any:
    """Return the cofactors of matrices: the derivatives of their determinants, not conjugated."""
    return apply_rule(_gradient_along(0), x, factors=eliminate(primal_value(x)))


@cache
def _gradient_along(order: int) -> Rule:
    """Return the rule for the gradient of the derivative of det along ``order`` directions.

    It is linear in each direction, and symmetric in them and the gradient's place: its cotangents
    are such gradients again.
    """
    arguments = tuple(range(order + 1))
    return Rule(
        "the derivative of det",
        _gradient,
        tuple(map(_of_argument, arguments)),
        reads=(arguments,) * len(arguments),
        fresh=True,
    )


def _of_argument(index: int) -> Callable[..., Any]:
    def cotangent(g: Any, x: Any, *directions: Any, factors: Eliminated) -> Any:
        along = [*directions[: index - 1], *directions[index:]] if index else [*directions]
        along.append(broadcast_to(conj(g), tuple(x.shape)))
        return conj(apply_rule(_gradient_along(len(along)), x, *along, factors=factors))

    return cotangent


def _gradient(xp: Any, x: Array, *directions: Array, factors: Eliminated) -> Array:
    left, pivots, right, sign = factors
    with np.errstate(all="ignore"):  # as kernels do
        inside = _of_diagonal(xp, pivots, [left @ e @ right for e in directions])
        product = xp.matrix_transpose(left) @ inside @ xp.matrix_transpose(right)
        return sign[..., None, None] * product


# -- at diagonal matrices --------------------------------------------------------------------------


def _of_diagonal(xp: Any, s: Array, directions: Sequence[Array]) -> Array:
    """Return the gradient for diag(s): a sum over permutations of the directions and the gradient.

    Row m of a permutation takes an element of direction m; row 0 is the gradient's.
    """
    count = len(directions) + 1
    others = _products_of_others(xp, s, count)
    own, beside = xp.zeros_like(s), xp.zeros_like(s[..., None] * s[..., None, :])
    for order in permutations(range(count)):
        term = _sign(order) * others
        for row, direction in enumerate(directions, start=1):
            term = term * _along_axes(xp, direction, (row, order[row]), count)
        summed = tuple(axis - count for axis in range(count) if axis not in (0, order[0]))
        term = xp.sum(term, axis=summed) if summed else term
        own, beside = (own, beside + term) if order[0] else (own + term, beside)
    is_own = xp.eye(s.shape[-1], dtype=s.dtype, device=device(s)) != 0
    return xp.where(is_own, own[..., None], beside)


def _sign(order: Sequence[int]) -> int:
    """Return the sign of a permutation, by the pairs that it reverses."""
    reversed_pairs = sum(first > second for first, second in combinations(order, 2))
    return -1 if reversed_pairs % 2 else 1


def _along_axes(xp: Any, matrices: Array, axes: tuple[int, int], count: int) -> Array:
    """Return matrices along two of the last ``count`` axes.

    Return their diagonals along one axis if both axes are the same.
    """
    first, second = axes
    if first == second:
        matrices = xp.linalg.diagonal(matrices)
    elif first > second:
        matrices = xp.matrix_transpose(matrices)
    n = matrices.shape[-1]
    batch = matrices.shape[: matrices.ndim - (1 if first == second else 2)]
    return xp.reshape(matrices, (*batch, *(n if a in axes else 1 for a in range(count))))


def _products_of_others(xp: Any, s: Array, count: int) -> Array:
    """Return for ``count`` places the product of ``s`` at all others; 0 where some coincide.

    There are ``count`` axes. The product is one of those before, between and behind the places.
    """
    n = s.shape[-1]
    spans = _spans(xp, s)
    between = spans[..., 1:, :n]
    ordered = spans[..., 0, :n]
    for axis in range(1, count):
        ordered = ordered[..., None] * _along_axes(xp, between, (axis - 1, axis), axis + 1)
    ordered = ordered * _last(xp, spans[..., 1:, n], count)
    batch = tuple(range(s.ndim - 1))
    orders = [tuple(s.ndim - 1 + axis for axis in order) for order in permutations(range(count))]
    return sum(xp.permute_dims(ordered, (*batch, *order)) for order in orders)


def _last(xp: Any, vectors: Array, count: int) -> Array:
    """Return vectors along the last of ``count`` axes."""
    return xp.reshape(vectors, (*vectors.shape[:-1], *(1,) * (count - 1), vectors.shape[-1]))


def _spans(xp: Any, s: Array) -> Array:
    """Return the products of s[a], …, s[b - 1] for all a ≤ b ≤ n; 0 for a > b."""
    n = s.shape[-1]
    places = xp.arange(n + 1, device=device(s))
    begun = xp.where(places[:n] >= places[:, None], s[..., None, :], xp.ones_like(s[..., None, :]))
    running = xp.cumulative_prod(begun, axis=-1)
    return xp.triu(xp.concat([xp.ones_like(begun[..., :1]), running], axis=-1))
