"""Determinants of matrices and their logarithms."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from array_api_compat import device

from mixad.backends.arrays import Array, library_of
from mixad.errors import TracerError
from mixad.namespace import small_matrices
from mixad.namespace.complex_numbers import conj, imag, is_complex
from mixad.namespace.determinant_derivatives import gradient_of_det
from mixad.namespace.elementwise import elementwise
from mixad.namespace.joining import stack
from mixad.namespace.linear_algebra import adjoint
from mixad.namespace.manipulation import reshape
from mixad.namespace.solving import identity_like, inv, of_inverse
from mixad.tape.core_kernel import OverCores
from mixad.tape.tracer import Tracer, bodies_among, primal_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["SlogdetResult", "det", "slogdet"]


def det(x: Any) -> Any:
    """Return the determinants of matrices."""
    return apply_values_rule(_DET, x)[0]


def _of_determinant(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    return _scale_matrices(gs[0], conj(_cofactors(x, values[0])))


def _cofactors(x: Any, values: Any) -> Any:
    """Return det(x) times the transposed inverse, the fastest way to first derivatives.

    Its own derivative loses digits, and it loses some near singular matrices unless both factors
    come from one elimination, whose errors cancel.
    """
    if not x.shape[-1]:
        return x
    if _is_in_step(x) and x.shape[-1] <= _MAX_MINORS and not is_complex(x):
        return _minors(x)
    library = library_of(primal_value(x))
    by_formula = library.name == "jax" and x.shape[-1] <= 3
    if isinstance(x, Tracer) or by_formula:
        return gradient_of_det(x)
    inverse: Callable[[], Array] = functools.partial(inv, x)
    if library.name == "torch":  # whose determinant may be that of the transposed matrix
        values, inverse = _eliminated_by_torch(x)
    if not _are_normal(values):
        return gradient_of_det(x)
    return values[..., None, None] * library.xp.matrix_transpose(inverse())


_MAX_MINORS = 3
"""Rows of matrices whose cofactors are written down in steps of loops, where nobody may look."""


def _is_in_step(x: Any) -> bool:
    """Whether a matrix is one in the body of a loop."""
    return isinstance(x, Tracer) and bool(bodies_among(x.origin.levels))


def _minors(x: Any) -> Any:
    """Return cofactors as elements, or differences of two products of them."""
    n = x.shape[-1]
    if n == 1:
        return elementwise("pow", x, 0.0)
    rows = [[x[..., i, j] for j in range(n)] for i in range(n)]
    if n == 2:
        (a, b), (c, d) = rows
        found = [[d, -c], [-b, a]]
    else:
        turned = [[*row, *row] for row in (*rows, *rows)]
        found = [
            [
                turned[i + 1][j + 1] * turned[i + 2][j + 2]
                - turned[i + 1][j + 2] * turned[i + 2][j + 1]
                for j in range(n)
            ]
            for i in range(n)
        ]
    return stack([stack(row, axis=-1) for row in found], axis=-2)


def _eliminated_by_torch(x: Array) -> tuple[Array, Callable[[], Array]]:
    """Return the determinants of tensors, and a function for their inverses."""
    linalg = sys.modules["torch"].linalg
    factors, rows, _ = linalg.lu_factor_ex(x)
    moved = rows != library_of(x).xp.arange(1, x.shape[-1] + 1, device=device(x))
    sign = 1 - 2 * (moved.sum(dim=-1) % 2)
    values = sign * linalg.diagonal(factors).prod(dim=-1)
    return values, lambda: linalg.lu_solve(factors, rows, identity_like(x))


def _are_normal(values: Array) -> bool:
    """Whether numbers are finite, and none is so small that it loses digits."""
    xp, limits = library_of(values).xp, library_of(values).xp.finfo(values.dtype)
    sizes = xp.abs(values)
    return bool(xp.all((sizes <= limits.max) & (sizes >= limits.smallest_normal)))


_DET = ValuesRule(
    "det",
    OverCores(small_matrices.determinant, lambda xp, x: (xp.linalg.det(x),)),
    (_of_determinant,),
    reads=(0,),
    is_total=True,
)


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the magnitude of a determinant; a real sign has no derivative."""

    sign: Any
    logabsdet: Any


def slogdet(x: Any) -> SlogdetResult:
    """Return the signs of determinants and the logarithms of their magnitudes."""
    sign, logabsdet = apply_values_rule(_SLOGDET, x)
    return SlogdetResult(sign if is_complex(x) else primal_value(sign), logabsdet)


def _of_logarithm(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """The logarithm changes by Re tr(x⁻¹ dx), the angle of the sign by Im tr(x⁻¹ dx)."""
    (gsign, glog), (sign, _) = gs, values
    if isinstance(x, Tracer):
        inverse = adjoint(apply_values_rule(_REGULAR_INVERSE, x)[0])
    else:
        _check_regular(primal_value(sign))
        inverse = adjoint(inv(x))
    if gsign is None or not is_complex(sign):
        return _scale_matrices(glog, inverse)
    turned = imag(elementwise("mul", gsign, conj(sign))) * 1j
    return _scale_matrices(turned if glog is None else elementwise("add", turned, glog), inverse)


def _inverse(xp: Any, x: Array) -> tuple[Array]:
    """Return the inverses of matrices that have one."""
    _check_regular(xp.linalg.slogdet(x)[0])
    return (xp.linalg.inv(x),)


def _check_regular(sign: Array) -> None:
    if bool(library_of(sign).xp.any(sign == 0)):
        raise _without_logarithm()


def _without_logarithm() -> TracerError:
    return TracerError(
        "slogdet() of a singular matrix has no derivative: differentiate det(), which has one, "
        "or add a multiple of the identity to the matrix"
    )


_REGULAR_INVERSE = ValuesRule(
    "inverse of a regular matrix",
    OverCores(small_matrices.inverse, _inverse, _without_logarithm),
    (of_inverse,),
)


_SLOGDET = ValuesRule(
    "slogdet",
    OverCores(small_matrices.log_determinant, lambda xp, x: tuple(xp.linalg.slogdet(x))),
    (_of_logarithm,),
    reads=(0,),
    is_total=True,
)


def _scale_matrices(factors: Any, matrices: Any) -> Any:
    return elementwise("mul", reshape(factors, (*factors.shape, 1, 1)), matrices)
