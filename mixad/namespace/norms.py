"""Norms of vectors and matrices; their derivative at zero is 0, as that of ``abs``.

They have no second one there: see `mixad.namespace.zero_norms`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mixad.errors import TracerError
from mixad.namespace.data_types import astype
from mixad.namespace.decompositions import svdvals
from mixad.namespace.elementwise import convert, elementwise, where
from mixad.namespace.manipulation import normalized_axes, permute_dims, reshape
from mixad.namespace.statistical import amax, amin, total
from mixad.namespace.zero_norms import nan_at_zeros
from mixad.scalar.dtypes import element_type_of
from mixad.tape.tracer import primal_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["matrix_norm", "norm", "vector_norm"]

Axis = int | Sequence[int] | None
Order = int | float | str | None


def vector_norm(x: Any, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Any:
    """Return the norms of vectors along an axis or several, all for None.

    ``ord`` is the exponent; ``inf`` and ``-inf`` give the largest and smallest magnitude.
    """
    if not x.ndim:
        if axis is not None:
            normalized_axes(axis, 0)
        return vector_norm(reshape(x, (1,)), axis=0, ord=ord)
    type = element_type_of(x.dtype)
    if type.is_narrow and ord not in (2, *_OF_MAGNITUDES):  # powers are beyond what 16 bits hold
        wide = convert(x, type.arithmetic)
        return convert(vector_norm(wide, axis=axis, keepdims=keepdims, ord=ord), type)
    axes = normalized_axes(axis, x.ndim)
    found = apply_values_rule(_EUCLIDEAN, x, axis=axes)[0] if ord == 2 else _norm(x, axes, ord)
    if ord not in _OF_MAGNITUDES:
        found = nan_at_zeros(found, x, lambda: primal_value(found) == 0, axes)
    kept = [n for i, n in enumerate(x.shape) if i not in axes]
    return found if keepdims else reshape(found, kept)


_OF_MAGNITUDES = (0, 1, math.inf, -math.inf)
"""Orders of norms that are sums or extremes of magnitudes, which have straight sides."""


def _norm(x: Any, axes: tuple[int, ...], ord: float) -> Any:
    size = elementwise("abs", x)
    if ord == math.inf:
        return amax(size, axes, keepdims=True)
    if ord == -math.inf:
        return amin(size, axes, keepdims=True)
    if ord == 0:
        return total(astype(primal_value(x) != 0, size.dtype), axes, keepdims=True)
    if ord == 1:
        return total(size, axes, keepdims=True)
    powers = total(elementwise("pow", size, ord), axes, keepdims=True)
    is_zero = primal_value(powers) == 0
    return where(is_zero, 0.0, elementwise("pow", where(is_zero, 1.0, powers), 1 / ord))


def _of_length(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any, axis: Any) -> Any:
    length = values[0]
    return elementwise(
        "mul", gs[0], elementwise("div", x, where(primal_value(length) == 0, 1.0, length))
    )


_EUCLIDEAN = ValuesRule(
    "vector_norm",
    lambda xp, x, axis: (xp.linalg.vector_norm(x, axis=axis, keepdims=True),),
    (_of_length,),
    reads=(0,),
    is_total=True,
)


def matrix_norm(x: Any, *, keepdims: bool = False, ord: Order = "fro") -> Any:
    """Return the norms of matrices in the last two axes, which stay with length 1 for ``keepdims``.

    ``ord`` is "fro", "nuc", or one of 1, -1, 2, -2, inf, -inf; ValueError for others, and without
    matrices.
    """
    normalized_axes((-2, -1), x.ndim)  # raises
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord == "nuc":
        found = total(svdvals(x), -1)
    elif ord in (2, -2):
        found = (_largest if ord == 2 else amin)(svdvals(x), -1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = total(elementwise("abs", x), -2 if ord in (1, -1) else -1)
        found = (_largest if ord in (1, math.inf) else amin)(sums, -1)
    else:
        raise ValueError(f"matrix_norm(ord={ord!r}): 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    return reshape(found, (*found.shape, 1, 1)) if keepdims else found


def _largest(x: Any, axis: int) -> Any:
    """Return the largest of numbers that are not negative; 0 if there are none."""
    return amax(x, axis) if x.shape[axis] else total(x, axis)


def norm(x: Any, ord: Order = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """Return NumPy's ``norm``: norms of vectors or of matrices."""
    axes = normalized_axes(axis, x.ndim)
    if axis is not None and len(axes) not in (1, 2):
        raise ValueError(f"norm() is along one axis or two, axis={axis!r} was given")
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims)
    if len(axes) == 1 and not isinstance(ord, str):
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise TracerError(
            f"norm(ord={ord!r}, axis={axis!r}) of an array of shape {tuple(x.shape)} that is being "
            "differentiated is not available: use vector_norm() or matrix_norm()"
        )
    rest = [i for i in range(x.ndim) if i not in axes]
    found = matrix_norm(permute_dims(x, (*rest, *axes)), ord=ord)
    shape = [1 if i in axes else n for i, n in enumerate(x.shape)]
    return reshape(found, shape) if keepdims else found
