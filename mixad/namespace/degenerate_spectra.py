"""Repeated or vanishing eigenvalues and singular values, and phases: they have no derivatives.

Values are equal, or zero, here if rounding alone explains the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import device

from mixad.backends.arrays import Array, library_of
from mixad.errors import TracerError
from mixad.namespace.complex_numbers import conj, is_complex
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.manipulation import expand_dims
from mixad.namespace.statistical import total
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["check_distinct", "check_even", "check_phases", "check_regular", "check_unread",
           "inner_products", "inverse_gaps", "nearly_zero", "repeated_pairs"]  # fmt: skip


def inner_products(vectors: Any, g: Any) -> Any:
    """Return the inner product of each vector with its cotangent."""
    return total(elementwise("mul", conj(vectors), g), -2)


def _tolerance(w: Array) -> Array:
    """Return the difference of values that rounding alone explains, for each matrix."""
    eps = float(library_of(w).xp.finfo(w.dtype).eps)
    return 4 * w.shape[-1] * eps * _largest(w)


def _largest(w: Array) -> Array:
    """Return the largest magnitude for each matrix."""
    xp = library_of(w).xp
    sizes = xp.abs(w)
    if not w.shape[-1]:
        return xp.zeros(w.shape[:-1], dtype=sizes.dtype, device=device(w))
    return xp.max(sizes, axis=-1)


def nearly_zero(s: Array) -> Array:
    """Return a mask of the values that rounding alone explains."""
    return s <= _tolerance(s)[..., None]


def repeated_pairs(w: Array) -> Array:
    """Return a mask of pairs of equal values; each equals itself."""
    gaps = w[..., None, :] - w[..., :, None]
    return library_of(w).xp.abs(gaps) <= _tolerance(w)[..., None, None]


def inverse_gaps(w: Any, repeated: Array) -> Any:
    """Return 1/(w[j] - w[i]), and 0 where they are equal."""
    gaps = expand_dims(w, axis=-2) - expand_dims(w, axis=-1)
    return where(repeated, 0.0, 1.0 / where(repeated, 1.0, gaps))


def check_even(what: str, g: Any, repeated: Array) -> None:
    """Refuse cotangents that distinguish equal values."""
    _check_constant(what, g, repeated)
    g = primal_value(g)
    xp = library_of(g).xp
    uneven = xp.abs(g[..., None, :] - g[..., :, None])
    most = _largest(g)[..., None, None] * float(xp.finfo(g.dtype).eps) ** 0.5
    if bool(xp.any(repeated & (uneven > most))):
        raise TracerError(_repeated_message(what, "one of several equal values"))


def check_unread(what: str, gs: tuple[Any, ...], repeated: Array) -> None:
    """Refuse cotangents of vectors whose values are equal."""
    several = _count(repeated, axis=-1) > 1
    for g in gs:
        _check_constant(what, g, repeated)
        xp = library_of(primal_value(g)).xp
        if bool(xp.any(several & xp.any(primal_value(g) != 0, axis=-2))):
            raise TracerError(_repeated_message(what, "vectors of equal values"))


def _check_constant(what: str, g: Any, repeated: Array) -> None:
    """Refuse cotangents that are differentiated, where only some have a derivative.

    A forward pass differentiates with respect to them, whatever they are now.
    """
    xp = library_of(repeated).xp
    if isinstance(g, Tracer) and bool(xp.any(_count(repeated, axis=-1) > 1)):
        raise TracerError(_repeated_message(what, "tangents and second derivatives"))


def _count(pairs: Array, axis: int) -> Array:
    return library_of(pairs).xp.count_nonzero(pairs, axis=axis)


def check_phases(what: str, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Refuse cotangents that would turn the phases of complex vectors, a phase per pair."""
    if not is_complex(pairs[0][0]):
        return
    products = [inner_products(primal_value(vectors), primal_value(g)) for vectors, g in pairs]
    xp = library_of(products[0]).xp
    turns = xp.abs(xp.imag(sum(products[1:], products[0])))
    sizes = [_largest(_largest(primal_value(g))) for _, g in pairs]
    most = sum(sizes[1:], sizes[0]) * float(xp.finfo(turns.dtype).eps) ** 0.5
    if bool(xp.any(turns > most[..., None])):
        raise TracerError(
            f"{what}() of complex matrices: a function of the vectors that depends on their phases "
            "has no derivative, for they are not unique; differentiate one that does not, such as "
            "abs(v) or v @ conj(v).mT"
        )


def check_distinct(repeated: Array) -> None:
    """Refuse repeated eigenvalues of a matrix that may lack eigenvectors."""
    if bool(library_of(repeated).xp.any(_count(repeated, axis=-1) > 1)):
        raise TracerError(
            "eig() of a matrix with repeated eigenvalues has no derivative: use eigh() if it is "
            "symmetric or Hermitian, otherwise differentiate trace(), det() or powers of the matrix"
        )


def check_regular(shape: tuple[int, ...], tiny: Array, has_phases: bool) -> None:
    """Refuse cotangents of vectors that a matrix without full rank does not determine."""
    if (shape[-1] != shape[-2] or has_phases) and bool(library_of(tiny).xp.any(tiny)):
        raise TracerError(
            "svd() of a matrix without full rank: its vectors have no derivative; differentiate a "
            "function of the singular values, or of a matrix of full rank"
        )


def _repeated_message(what: str, which: str) -> str:
    return (
        f"{what}() of a matrix with repeated values: {which} have no derivative, for they are not "
        "unique; differentiate a function that treats equal values alike, such as their sum"
    )
