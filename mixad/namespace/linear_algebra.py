"""Linear algebra functions of the main namespace."""

from __future__ import annotations

from typing import Any

from mixad.namespace.data_types import of_one_type
from mixad.namespace.manipulation import matrix_transpose, reshape
from mixad.tape.broadcasting import sum_to
from mixad.tape.node import Rule, apply_rule

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
    a, b = of_one_type("matmul", (a, b))
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
)
