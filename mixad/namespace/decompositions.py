"""Decompositions of matrices.

Where singular or eigenvalues are repeated, their vectors are not unique: derivatives that depend on
the choice do not exist, and are refused.  Complex vectors have a phase that the matrix does not
determine: cotangents that would turn it are refused, and tangents of vectors do not turn it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import Array, library_of
from mixad.errors import TracerError
from mixad.namespace.complex_numbers import (
    as_complex,
    complex_type_of,
    conj,
    imag,
    is_complex,
    real,
)
from mixad.namespace.creation import tril
from mixad.namespace.degenerate_spectra import (
    check_distinct,
    check_even,
    check_phases,
    check_regular,
    check_unread,
    inner_products,
    inverse_gaps,
    nearly_zero,
    repeated_pairs,
)
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.indexing import part_along
from mixad.namespace.joining import concat
from mixad.namespace.linear_algebra import adjoint, diagonal, matmul
from mixad.namespace.manipulation import expand_dims, reshape
from mixad.namespace.small_matrices import lower_factor
from mixad.namespace.solving import identity_like, solve
from mixad.namespace.symmetric import symmetric
from mixad.namespace.zero_norms import nan_at_zeros
from mixad.tape.core_kernel import OverCores
from mixad.tape.tracer import primal_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["EigResult", "EighResult", "QRResult", "SVDResult", "cholesky", "complex_eig",
           "complex_eigvals", "eig", "eigh", "eigvals",
           "eigvalsh", "qr", "svd", "svdvals"]  # fmt: skip


# -- Cholesky --------------------------------------------------------------------------------------


def cholesky(x: Any, *, upper: bool = False) -> Any:
    """Return Cholesky factors of symmetric or Hermitian matrices; so is the gradient.

    ``upper`` reads the upper triangle and returns the right factor. TracerError if a matrix that is
    differentiated is not symmetric or Hermitian.
    """
    x = symmetric("cholesky", x)
    return adjoint(_lower_factor(adjoint(x))) if upper else _lower_factor(x)


def _lower_factor(x: Any) -> Any:
    return apply_values_rule(_CHOLESKY, x)[0]


def _of_cholesky(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Murray, "Differentiation of the Cholesky decomposition" (2016), equation 10."""
    upper = adjoint(values[0])
    inside = solve(upper, _mirror_lower(matmul(upper, tril(gs[0]))))
    return 0.5 * adjoint(solve(upper, adjoint(inside)))


def _mirror_lower(x: Any) -> Any:
    """Return symmetric matrices with the lower triangles of ``x``; Hermitian ones if complex."""
    doubled = tril(x) + tril(x, k=-1)
    return 0.5 * (doubled + adjoint(doubled))


def _lower(xp: Any, x: Array) -> tuple[Array]:
    if library_of(x).is_lazy:  # whose factor is the upper one unless it is asked
        return (sys.modules["dask.array"].linalg.cholesky(x, lower=True),)
    return (xp.linalg.cholesky(x),)


def _indefinite() -> np.linalg.LinAlgError:
    """Return what NumPy raises."""
    return np.linalg.LinAlgError("Matrix is not positive definite")


_CHOLESKY = ValuesRule("cholesky", OverCores(lower_factor, _lower, _indefinite), (_of_cholesky,))


# -- QR --------------------------------------------------------------------------------------------


class QRResult(NamedTuple):
    """An orthogonal factor and an upper triangular one."""

    Q: Any
    R: Any


def qr(x: Any, *, mode: str = "reduced") -> QRResult:
    """Return orthogonal and upper triangular factors; the first columns must be independent.

    ``mode`` "complete" is taken where it equals "reduced"; otherwise TracerError: ``x`` does not
    determine the other columns.
    """
    rows, columns = x.shape[-2:]
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr(mode={mode!r}): 'reduced' or 'complete'")
    if mode == "complete" and rows > columns:
        raise TracerError(
            "qr(mode='complete') of a tall matrix that is being differentiated is not available: "
            "the further columns are not determined by it; use mode='reduced'"
        )
    if rows >= columns:
        return QRResult(*apply_values_rule(_QR, x))
    # Roberts and Roberts (2020): the columns beyond the square are multiplied by the transpose.
    q, square = qr(part_along(x, x.ndim - 1, None, rows))
    rest = matmul(adjoint(q), part_along(x, x.ndim - 1, rows, None))
    return QRResult(q, concat([square, rest], axis=-1))


def _of_qr(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Walter and Lehmann, "On evaluating higher-order derivatives of the QR decomposition" (2010).

    With gr and gq for the cotangents: m = r gr' - gq' q, and the result (gq + q sym(m)) r'^-1,
    where sym copies the lower triangle to the upper one.
    """
    (gq, gr), (q, r) = gs, values
    _check_independent(primal_value(r))
    parts = [] if gr is None else [matmul(r, adjoint(gr))]
    parts += [] if gq is None else [-matmul(adjoint(gq), q)]
    inside = matmul(q, _mirror_lower(_sum(parts)))
    inside = inside if gq is None else elementwise("add", gq, inside)
    return adjoint(solve(r, adjoint(inside)))


def _check_independent(r: Array) -> None:
    xp = library_of(r).xp
    if not library_of(r).is_lazy and bool(xp.any(xp.linalg.diagonal(r) == 0)):
        raise TracerError(
            "qr() of a matrix with dependent columns has no derivative: leave such columns out"
        )


_QR = ValuesRule("qr", lambda xp, x: tuple(xp.linalg.qr(x)), (_of_qr,))


# -- symmetric eigenvalues -------------------------------------------------------------------------


class EighResult(NamedTuple):
    """Eigenvalues in order and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


def eigh(x: Any) -> EighResult:
    """Return eigenvalues, the smallest first, and eigenvectors in columns of symmetric matrices.

    The gradient is symmetric. TracerError if a differentiated matrix is not symmetric or Hermitian,
    and if a backward pass depends on the choice of repeated eigenvalues' vectors or of phases.
    """
    return EighResult(*apply_values_rule(_EIGH, symmetric("eigh", x)))


def eigvalsh(x: Any) -> Any:
    """Return the eigenvalues of symmetric matrices: see `eigh`."""
    return eigh(symmetric("eigvalsh", x)).eigenvalues


def _of_eigh(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Giles (2008), section 3.1, the symmetric part."""
    (gw, gv), (w, v) = gs, values
    repeated = repeated_pairs(primal_value(w))
    vt = adjoint(v)
    parts = []
    if gw is not None:
        check_even("eigh", gw, repeated)
        parts.append(matmul(elementwise("mul", v, expand_dims(gw, axis=-2)), vt))
    if gv is not None:
        check_unread("eigh", (gv,), repeated)
        check_phases("eigh", ((v, gv),))
        inside = elementwise("mul", matmul(vt, gv), inverse_gaps(w, repeated))
        parts.append(matmul(v, matmul(inside, vt)))
    found = _sum(parts)
    return 0.5 * (found + adjoint(found))


_EIGH = ValuesRule("eigh", lambda xp, x: tuple(xp.linalg.eigh(x)), (_of_eigh,), has_phases=True)


# -- eigenvalues -----------------------------------------------------------------------------------


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors of length 1 in columns."""

    eigenvalues: Any
    eigenvectors: Any


def eig(x: Any) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices, in the library's order and dtype.

    NumPy's are real if all eigenvalues are. TracerError in a backward pass if eigenvalues are
    repeated, or if it depends on the phases of complex vectors.
    """
    return EigResult(*apply_values_rule(_EIG, x))


def eigvals(x: Any) -> Any:
    """Return the eigenvalues of square matrices: see `eig`."""
    return eig(x).eigenvalues


def complex_eig(x: Any) -> EigResult:
    """Return `eig` in the standard's form: complex numbers, also for real ones."""
    return EigResult(*map(_complex, eig(x)))


def complex_eigvals(x: Any) -> Any:
    """Return `eigvals` as complex numbers: see `complex_eig`."""
    return complex_eig(x).eigenvalues


def _complex(x: Any) -> Any:
    return x if is_complex(x) else as_complex(x, complex_type_of(x))


def _of_eig(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Boeddeker et al., "On the computation of complex-valued gradients" (2017), section 4.

    Vectors keep their length, so what would stretch them is taken off first.
    """
    (gw, gv), (w, v) = gs, values
    repeated = repeated_pairs(primal_value(w))
    check_distinct(repeated)
    vh = adjoint(v)
    parts = []
    if gw is not None:
        parts.append(elementwise("mul", expand_dims(gw, axis=-2), identity_like(v)))
    if gv is not None:
        check_phases("eig", ((v, gv),))
        product = matmul(vh, gv)
        stretch = expand_dims(real(diagonal(product)), axis=-2)
        turned = elementwise("sub", product, elementwise("mul", matmul(vh, v), stretch))
        parts.append(elementwise("mul", turned, conj(inverse_gaps(w, repeated))))
    found = solve(vh, matmul(_sum(parts), vh))
    return found if is_complex(x) else real(found)


_EIG = ValuesRule("eig", lambda xp, x: tuple(xp.linalg.eig(x)), (_of_eig,), has_phases=True)


# -- singular values -------------------------------------------------------------------------------


class SVDResult(NamedTuple):
    """Left vectors in columns, singular values in order, right vectors in rows."""

    U: Any
    S: Any
    Vh: Any


def svd(x: Any, *, full_matrices: bool = True) -> SVDResult:
    """Return the singular value decomposition of matrices.

    At singular value 0 the derivative is 0, the second nan. TracerError for vectors that ``x`` does
    not determine, and if a backward pass depends on the choice of repeated values' vectors or
    phases.
    """
    if full_matrices and x.shape[-1] != x.shape[-2]:
        raise TracerError(
            "svd(full_matrices=True) of a matrix that is being differentiated and is not square is "
            "not available: it does not determine the further vectors; use full_matrices=False"
        )
    u, s, vh = apply_values_rule(_SVD, x)
    return SVDResult(u, _with_corners(s, x), vh)


def _with_corners(s: Any, x: Any) -> Any:
    """Return singular values, those that are 0 without a second derivative."""
    values = primal_value(s)
    xp = library_of(values).xp
    zeros = xp.zeros((*values.shape[:-1], 1, 1), dtype=values.dtype, device=device(values))
    marked = nan_at_zeros(
        zeros, x, lambda: xp.any(nearly_zero(values), axis=-1)[..., None, None], (-2, -1)
    )
    if marked is zeros:
        return s
    of_rows = reshape(marked, (*values.shape[:-1], 1))
    return elementwise("add", s, where(nearly_zero(values), of_rows, 0.0))


def svdvals(x: Any) -> Any:
    """Return the singular values of matrices, the largest first: see `svd`."""
    return svd(x, full_matrices=False).S


def _of_svd(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Townsend, "Differentiating the singular value decomposition" (2016)."""
    (gu, gs_, gvh), (u, s, vh) = gs, values
    repeated, tiny = repeated_pairs(primal_value(s)), nearly_zero(primal_value(s))
    gv = None if gvh is None else adjoint(gvh)
    v = adjoint(vh)
    vectors = tuple(g for g in (gu, gv) if g is not None)
    if vectors:
        check_unread("svd", vectors, repeated)
        check_phases("svd", tuple((a, g) for a, g in ((u, gu), (v, gv)) if g is not None))
        check_regular(x.shape, tiny, is_complex(u))
    parts = []
    if gs_ is not None:
        check_even("svd", gs_, repeated)
        parts.append(matmul(elementwise("mul", u, expand_dims(where(tiny, 0.0, gs_), axis=-2)), vh))
    if gu is not None:
        inside = elementwise("mul", _rotate_vectors(u, gu, s, repeated), expand_dims(s, axis=-2))
        parts.append(matmul(_sum([matmul(u, inside), _outside(u, gu, s)]), vh))
    if gv is not None:
        inside = elementwise("mul", expand_dims(s, axis=-1), _rotate_vectors(v, gv, s, repeated))
        parts.append(matmul(u, _sum([matmul(inside, vh), adjoint(_outside(v, gv, s))])))
    if vectors and is_complex(u):
        parts.append(matmul(elementwise("mul", u, _of_phases(u, gu, v, gv, s)), vh))
    return _sum(parts)


def _of_phases(u: Any, gu: Any, v: Any, gv: Any, s: Any) -> Any:
    """Return how much the phases of a pair's vectors matter against each other."""
    parts = [] if gu is None else [imag(inner_products(u, gu))]
    parts += [] if gv is None else [-imag(inner_products(v, gv))]
    return expand_dims(elementwise("div", _sum(parts) * 0.5j, s), axis=-2)


def _rotate_vectors(vectors: Any, g: Any, s: Any, repeated: Array) -> Any:
    """Return the rotation of the vectors within their space, over the gaps of the squares."""
    product = matmul(adjoint(vectors), g)
    return elementwise("mul", product - adjoint(product), inverse_gaps(s * s, repeated))


def _outside(vectors: Any, g: Any, s: Any) -> Any:
    """Return the part orthogonal to the vectors, over the singular values; 0 if square."""
    if vectors.shape[-1] == vectors.shape[-2]:
        return 0.0 * vectors
    rest = elementwise("sub", g, matmul(vectors, matmul(adjoint(vectors), g)))
    return elementwise("div", rest, expand_dims(s, axis=-2))


_SVD = ValuesRule(
    "svd",
    lambda xp, x: tuple(xp.linalg.svd(x, full_matrices=False)),
    (_of_svd,),
    has_phases=True,
)


def _sum(parts: Sequence[Any]) -> Any:
    """Add up arrays: not every library leaves ``array + tracer`` to the tracer."""
    return functools.reduce(functools.partial(elementwise, "add"), parts)
