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
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.indexing import part_along
from mixad.namespace.joining import concat
from mixad.namespace.linear_algebra import adjoint, diagonal, matmul
from mixad.namespace.manipulation import expand_dims
from mixad.namespace.solving import identity_like, solve
from mixad.namespace.statistical import total
from mixad.namespace.symmetric import symmetric
from mixad.tape.tracer import Tracer, plain
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["EigResult", "EighResult", "QRResult", "SVDResult", "cholesky", "complex_eig",
           "complex_eigvals", "eig", "eigh", "eigvals",
           "eigvalsh", "qr", "svd", "svdvals"]  # fmt: skip


# -- Cholesky --------------------------------------------------------------------------------------


def cholesky(x: Any, *, upper: bool = False) -> Any:
    """Return triangular matrices whose products with their adjoints are positive definite.

    Parameters
    ----------
    x : array or Tracer
        Symmetric or Hermitian matrices; so is the gradient.
    upper : bool
        Whether the right factor is returned; that of the upper triangle, which alone is read.

    Returns
    -------
    array or Tracer
        Lower triangular matrices, or upper ones.

    Raises
    ------
    TracerError
        If a matrix that is being differentiated is not symmetric or Hermitian.
    """
    x = symmetric("cholesky", x)
    return adjoint(_lower_factor(adjoint(x))) if upper else _lower_factor(x)


def _lower_factor(x: Any) -> Any:
    return apply_values_rule(_CHOLESKY, x)[0]


def _of_cholesky(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Murray, "Differentiation of the Cholesky decomposition" (2016), equation 10."""
    upper = adjoint(values[0])
    inside = solve(upper, _copied(matmul(upper, tril(gs[0]))))
    return 0.5 * adjoint(solve(upper, adjoint(inside)))


def _copied(x: Any) -> Any:
    """Return symmetric matrices with the lower triangles of ``x``; Hermitian ones of complex."""
    doubled = tril(x) + tril(x, k=-1)
    return 0.5 * (doubled + adjoint(doubled))


def _lower(xp: Any, x: Array) -> tuple[Array]:
    if library_of(x).is_lazy:  # whose factor is the upper one unless it is asked
        return (sys.modules["dask.array"].linalg.cholesky(x, lower=True),)
    return (xp.linalg.cholesky(x),)


_CHOLESKY = ValuesRule("cholesky", _lower, (_of_cholesky,))


# -- QR --------------------------------------------------------------------------------------------


class QRResult(NamedTuple):
    """An orthogonal factor and an upper triangular one."""

    Q: Any
    R: Any


def qr(x: Any, *, mode: str = "reduced") -> QRResult:
    """Return orthogonal and upper triangular factors of matrices with independent columns.

    Parameters
    ----------
    x : array or Tracer
        Matrices; of wide ones the first columns are independent.
    mode : str
        ``"reduced"``, or ``"complete"`` where that is the same.

    Returns
    -------
    QRResult
        The factors.

    Raises
    ------
    TracerError
        If columns are asked for that ``x`` does not determine.
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
    parts = [] if gr is None else [matmul(r, adjoint(gr))]
    parts += [] if gq is None else [-matmul(adjoint(gq), q)]
    inside = matmul(q, _copied(_sum(parts)))
    inside = inside if gq is None else elementwise("add", gq, inside)
    return adjoint(solve(r, adjoint(inside)))


_QR = ValuesRule("qr", lambda xp, x: tuple(xp.linalg.qr(x)), (_of_qr,))


# -- symmetric eigenvalues -------------------------------------------------------------------------


class EighResult(NamedTuple):
    """Eigenvalues in order and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


def eigh(x: Any) -> EighResult:
    """Return eigenvalues and eigenvectors of symmetric matrices; the gradient is symmetric too.

    Parameters
    ----------
    x : array or Tracer
        Symmetric or Hermitian matrices.

    Returns
    -------
    EighResult
        Eigenvalues, the smallest first, and eigenvectors in columns.  A backward pass that depends
        on how vectors of repeated eigenvalues, or phases of complex vectors, are chosen raises a
        TracerError.

    Raises
    ------
    TracerError
        If a matrix that is being differentiated is not symmetric or Hermitian.
    """
    return EighResult(*apply_values_rule(_EIGH, symmetric("eigh", x)))


def eigvalsh(x: Any) -> Any:
    """Return the eigenvalues of symmetric matrices: see `eigh`."""
    return eigh(symmetric("eigvalsh", x)).eigenvalues


def _of_eigh(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Giles (2008), section 3.1, the symmetric part."""
    (gw, gv), (w, v) = gs, values
    repeated = _repeated(plain(w))
    vt = adjoint(v)
    parts = []
    if gw is not None:
        _check_even("eigh", gw, repeated)
        parts.append(matmul(elementwise("mul", v, expand_dims(gw, axis=-2)), vt))
    if gv is not None:
        _check_unread("eigh", (gv,), repeated)
        _check_phases("eigh", ((v, gv),))
        inside = elementwise("mul", matmul(vt, gv), _inverse_gaps(w, repeated))
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
    """Return eigenvalues and eigenvectors of square matrices.

    Parameters
    ----------
    x : array or Tracer
        Square matrices.

    Returns
    -------
    EigResult
        In the order and of the dtype that the library gives: of NumPy real ones, if all
        eigenvalues are.  A backward pass raises a TracerError if eigenvalues are repeated, or if
        it depends on how phases of complex vectors are chosen.
    """
    return EigResult(*apply_values_rule(_EIG, x))


def eigvals(x: Any) -> Any:
    """Return the eigenvalues of square matrices: see `eig`."""
    return eig(x).eigenvalues


def complex_eig(x: Any) -> EigResult:
    """Return what `eig` does as the standard has it: complex numbers, real ones among them."""
    return EigResult(*map(_complex, eig(x)))


def complex_eigvals(x: Any) -> Any:
    """Return what `eigvals` does as complex numbers: see `complex_eig`."""
    return complex_eig(x).eigenvalues


def _complex(x: Any) -> Any:
    return x if is_complex(x) else as_complex(x, complex_type_of(x))


def _of_eig(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Boeddeker et al., "On the computation of complex-valued gradients" (2017), section 4.

    Vectors keep their length, so what would stretch them is taken off first.
    """
    (gw, gv), (w, v) = gs, values
    repeated = _repeated(plain(w))
    _check_distinct(repeated)
    vh = adjoint(v)
    parts = []
    if gw is not None:
        parts.append(elementwise("mul", expand_dims(gw, axis=-2), identity_like(v)))
    if gv is not None:
        _check_phases("eig", ((v, gv),))
        product = matmul(vh, gv)
        stretch = expand_dims(real(diagonal(product)), axis=-2)
        turned = elementwise("sub", product, elementwise("mul", matmul(vh, v), stretch))
        parts.append(elementwise("mul", turned, conj(_inverse_gaps(w, repeated))))
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

    Parameters
    ----------
    x : array or Tracer
        Matrices.
    full_matrices : bool
        Of square ones without a meaning.

    Returns
    -------
    SVDResult
        The factors.  A backward pass that depends on how vectors of repeated singular values are
        chosen, or phases of complex ones, raises a TracerError.  The derivative of a singular
        value at 0 is 0, as that of ``abs``.

    Raises
    ------
    TracerError
        If vectors are asked for that ``x`` does not determine.
    """
    if full_matrices and x.shape[-1] != x.shape[-2]:
        raise TracerError(
            "svd(full_matrices=True) of a matrix that is being differentiated and is not square is "
            "not available: it does not determine the further vectors; use full_matrices=False"
        )
    return SVDResult(*apply_values_rule(_SVD, x))


def svdvals(x: Any) -> Any:
    """Return the singular values of matrices, the largest first: see `svd`."""
    return svd(x, full_matrices=False).S


def _of_svd(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """Townsend, "Differentiating the singular value decomposition" (2016)."""
    (gu, gs_, gvh), (u, s, vh) = gs, values
    repeated, tiny = _repeated(plain(s)), _tiny(plain(s))
    gv = None if gvh is None else adjoint(gvh)
    v = adjoint(vh)
    vectors = tuple(g for g in (gu, gv) if g is not None)
    if vectors:
        _check_unread("svd", vectors, repeated)
        _check_phases("svd", tuple((a, g) for a, g in ((u, gu), (v, gv)) if g is not None))
        _check_regular(x.shape, tiny, is_complex(u))
    parts = []
    if gs_ is not None:
        _check_even("svd", gs_, repeated)
        parts.append(matmul(elementwise("mul", u, expand_dims(where(tiny, 0.0, gs_), axis=-2)), vh))
    if gu is not None:
        inside = elementwise("mul", _turned(u, gu, s, repeated), expand_dims(s, axis=-2))
        parts.append(matmul(_sum([matmul(u, inside), _outside(u, gu, s)]), vh))
    if gv is not None:
        inside = elementwise("mul", expand_dims(s, axis=-1), _turned(v, gv, s, repeated))
        parts.append(matmul(u, _sum([matmul(inside, vh), adjoint(_outside(v, gv, s))])))
    if vectors and is_complex(u):
        parts.append(matmul(elementwise("mul", u, _of_phases(u, gu, v, gv, s)), vh))
    return _sum(parts)


def _of_phases(u: Any, gu: Any, v: Any, gv: Any, s: Any) -> Any:
    """Return how much the phases of both vectors of a pair, one against the other, matter."""
    parts = [] if gu is None else [imag(_products(u, gu))]
    parts += [] if gv is None else [-imag(_products(v, gv))]
    return expand_dims(elementwise("div", _sum(parts) * 0.5j, s), axis=-2)


def _products(vectors: Any, g: Any) -> Any:
    """Return the inner product of each vector with its cotangent."""
    return total(elementwise("mul", conj(vectors), g), -2)


def _turned(vectors: Any, g: Any, s: Any, repeated: Array) -> Any:
    """Return what turns the vectors within their space, over the gaps of the squares."""
    product = matmul(adjoint(vectors), g)
    return elementwise("mul", product - adjoint(product), _inverse_gaps(s * s, repeated))


def _outside(vectors: Any, g: Any, s: Any) -> Any:
    """Return what is orthogonal to the vectors, over the singular values; 0 for square matrices."""
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


# -- repeated values -------------------------------------------------------------------------------


def _tolerance(w: Array) -> Array:
    """Return by how much values may differ through rounding alone, for each matrix."""
    eps = float(library_of(w).xp.finfo(w.dtype).eps)
    return 4 * w.shape[-1] * eps * _largest(w)


def _largest(w: Array) -> Array:
    """Return the largest magnitude for each matrix."""
    xp = library_of(w).xp
    if not w.shape[-1]:
        return xp.zeros(w.shape[:-1], dtype=w.dtype, device=device(w))
    return xp.max(xp.abs(w), axis=-1)


def _tiny(s: Array) -> Array:
    return s <= _tolerance(s)[..., None]


def _repeated(w: Array) -> Array:
    """Return which pairs of values are equal; each is to itself."""
    gaps = w[..., None, :] - w[..., :, None]
    return library_of(w).xp.abs(gaps) <= _tolerance(w)[..., None, None]


def _inverse_gaps(w: Any, repeated: Array) -> Any:
    """Return 1/(w[j] - w[i]), and 0 where they are equal."""
    gaps = expand_dims(w, axis=-2) - expand_dims(w, axis=-1)
    return where(repeated, 0.0, 1.0 / where(repeated, 1.0, gaps))


def _check_even(what: str, g: Any, repeated: Array) -> None:
    """Refuse cotangents that tell equal values apart."""
    _check_constant(what, g, repeated)
    g = plain(g)
    xp = library_of(g).xp
    uneven = xp.abs(g[..., None, :] - g[..., :, None])
    most = _largest(g)[..., None, None] * float(xp.finfo(g.dtype).eps) ** 0.5
    if bool(xp.any(repeated & (uneven > most))):
        raise TracerError(_of_repeated(what, "one of several equal values"))


def _check_unread(what: str, gs: tuple[Any, ...], repeated: Array) -> None:
    """Refuse cotangents of vectors whose values are equal."""
    several = _count(repeated, axis=-1) > 1
    for g in gs:
        _check_constant(what, g, repeated)
        xp = library_of(plain(g)).xp
        if bool(xp.any(several & xp.any(plain(g) != 0, axis=-2))):
            raise TracerError(_of_repeated(what, "vectors of equal values"))


def _check_constant(what: str, g: Any, repeated: Array) -> None:
    """Refuse cotangents that are differentiated, where only some have a derivative.

    A forward pass differentiates with respect to them, so what they are now does not matter.
    """
    xp = library_of(repeated).xp
    if isinstance(g, Tracer) and bool(xp.any(_count(repeated, axis=-1) > 1)):
        raise TracerError(_of_repeated(what, "tangents and second derivatives"))


def _count(pairs: Array, axis: int) -> Array:
    return library_of(pairs).xp.count_nonzero(pairs, axis=axis)


def _check_phases(what: str, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Refuse cotangents that would turn the phases of complex vectors, each pair with its own."""
    if not is_complex(pairs[0][0]):
        return
    products = [_products(plain(vectors), plain(g)) for vectors, g in pairs]
    xp = library_of(products[0]).xp
    turns = xp.abs(xp.imag(sum(products[1:], products[0])))
    sizes = [_largest(_largest(plain(g))) for _, g in pairs]
    most = sum(sizes[1:], sizes[0]) * float(xp.finfo(turns.dtype).eps) ** 0.5
    if bool(xp.any(turns > most[..., None])):
        raise TracerError(
            f"{what}() of complex matrices: a function of the vectors that depends on their phases "
            "has no derivative, for they are not unique; differentiate one that does not, such as "
            "abs(v) or v @ conj(v).mT"
        )


def _check_distinct(repeated: Array) -> None:
    """Refuse repeated eigenvalues of a matrix that may lack eigenvectors."""
    if bool(library_of(repeated).xp.any(_count(repeated, axis=-1) > 1)):
        raise TracerError(
            "eig() of a matrix with repeated eigenvalues has no derivative: use eigh() if it is "
            "symmetric or Hermitian, otherwise differentiate trace(), det() or powers of the matrix"
        )


def _check_regular(shape: tuple[int, ...], tiny: Array, has_phases: bool) -> None:
    """Refuse cotangents of vectors that a matrix without full rank does not determine."""
    if (shape[-1] != shape[-2] or has_phases) and bool(library_of(tiny).xp.any(tiny)):
        raise TracerError(
            "svd() of a matrix without full rank: its vectors have no derivative; differentiate a "
            "function of the singular values, or of a matrix of full rank"
        )


def _of_repeated(what: str, which: str) -> str:
    return (
        f"{what}() of a matrix with repeated values: {which} have no derivative, for they are not "
        "unique; differentiate a function that treats equal values alike, such as their sum"
    )
