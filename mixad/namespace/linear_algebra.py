"""Linear algebra functions of the main namespace."""

from __future__ import annotations

from typing import Any

from mixad.backends.arrays import scalar_type_of
from mixad.namespace.elementwise import convert
from mixad.namespace.manipulation import matrix_transpose, reshape
from mixad.namespace.promotion import promoted
from mixad.scalar.promotion_rules import Typed
from mixad.tape.broadcasting import sum_to
from mixad.tape.node import Rule, apply_rule, common_library

__all__ = ["matmul"]


def matmul(a: Any, b: Any) -> Any:
    """Return the matrix product; vectors are rows on the left and columns on the right.

    Parameters
    ----------
    a, b : array or Tracer
        Of one library; leading axes broadcast.

    Returns
    -------
    array or Tracer
        The product.
    """
    if not getattr(a, "ndim", 0) or not getattr(b, "ndim", 0):
        raise ValueError("matmul takes arrays with at least one axis: use * to scale")
    a, b = _of_one_type(a, b)
    rows = reshape(a, (1, *a.shape)) if a.ndim == 1 else a
    columns = reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    product = apply_rule(_MATMUL, rows, columns)
    shape = tuple(product.shape)
    shape = (*shape[:-2], *shape[-2:][a.ndim == 1 : 2 - (b.ndim == 1)])
    return reshape(product, shape)


_MATMUL = Rule(
    "matmul",
    lambda xp, a, b: xp.matmul(a, b),
    (
        lambda g, a, b: sum_to(matmul(g, matrix_transpose(b)), tuple(a.shape)),
        lambda g, a, b: sum_to(matmul(matrix_transpose(a), g), tuple(b.shape)),
    ),
    reads=((1,), (0,)),
    fresh=True,
    linear="each",
)


def _of_one_type(a: Any, b: Any) -> tuple[Any, Any]:
    library = common_library("matmul", (a, b))
    types = [scalar_type_of(x.dtype) for x in (a, b)]
    if types[0] == types[1]:
        return a, b
    common = promoted(library, "matmul", [Typed(t, False) for t in types])
    return _converted(a, common), _converted(b, common)


def _converted(x: Any, common: Any) -> Any:
    return x if scalar_type_of(x.dtype) == common else convert(x, common)
