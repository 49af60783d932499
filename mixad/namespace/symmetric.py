"""Checks of symmetric matrices: libraries read one triangle and look at nothing else.

The derivatives of Cholesky factors and of eigenvalues are those along symmetric (Hermitian)
matrices. At a matrix whose triangles differ, the library's function depends on one of them alone,
and these derivatives would be those of another function.
"""

from __future__ import annotations

import sys
from typing import Any

from mixad.backends.arrays import Array, library_of
from mixad.errors import TracerError
from mixad.namespace.complex_numbers import is_complex
from mixad.namespace.small_matrices import checked_symmetric
from mixad.tape.constant import is_traced
from mixad.tape.core_kernel import OverCores
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["symmetric"]


def symmetric(what: str, x: Any) -> Any:
    """Return matrices that are differentiated after a check that they are symmetric.

    TracerError if one differs from its adjoint by more than rounding; lazy arrays are checked when
    computed. Plain arrays, and matrices that are not square, are left to the library.
    """
    if not is_traced(x) or x.ndim < 2 or x.shape[-1] != x.shape[-2] or not x.shape[-1]:
        return x
    return apply_values_rule(_SYMMETRIC, x, what=what)[0]


def _uneven(x: Array) -> Array:
    """Return a mask of matrices that differ from their adjoint by more than rounding."""
    xp = library_of(x).xp
    other = xp.matrix_transpose(x)
    other = xp.conj(other) if is_complex(x) else other
    most = 16 * x.shape[-1] * float(xp.finfo(x.dtype).eps) * xp.max(xp.abs(x), axis=(-2, -1))
    return xp.max(xp.abs(x - other), axis=(-2, -1)) > most


def _check(what: str, is_uneven: bool, has_complex: bool) -> None:
    if is_uneven:
        raise _refusal(what, has_complex)


def _refusal(what: str, has_complex: bool = False) -> TracerError:
    kind, other = ("Hermitian", "x.conj().mT") if has_complex else ("symmetric", "x.mT")
    return TracerError(
        f"{what}() of a matrix that is being differentiated and is not {kind}: the library reads "
        f"one triangle, and the derivative is that along {kind} matrices; pass (x + {other}) / 2, "
        f"or a {kind} matrix made of the triangle that is meant"
    )


def _check_matrices(xp: Any, x: Array, what: str) -> tuple[Array]:
    """Return checked matrices; a Dask array is checked whole, before its blocks are used."""
    uneven = _uneven(x)
    if not library_of(x).is_lazy:
        _check(what, bool(library_of(uneven).xp.any(uneven)), is_complex(x))
        return (x,)
    of_blocks = sys.modules["dask.array"].map_blocks
    uneven = uneven[..., None, None]
    return (of_blocks(_checked_block, x, uneven, what=what, dtype=x.dtype, meta=x._meta),)


def _checked_block(block: Array, uneven: Array, what: str) -> Array:
    _check(what, bool(uneven.any()), is_complex(block))
    return block


_SYMMETRIC = ValuesRule(
    "symmetric",
    OverCores(checked_symmetric, _check_matrices, _refusal),
    (lambda gs, values, x, what: gs[0],),
)
