"""Determinants of matrices; at singular ones the derivative is the adjugate."""

from __future__ import annotations

from typing import Any, NamedTuple

from array_api_compat import device

from mixad.backends.arrays import library_of
from mixad.errors import TracerError
from mixad.namespace.complex_numbers import conj, imag, is_complex
from mixad.namespace.decompositions import svd
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.linear_algebra import adjoint, matmul
from mixad.namespace.manipulation import expand_dims, reshape
from mixad.namespace.solving import inv
from mixad.namespace.statistical import prod
from mixad.tape.tracer import Tracer, plain
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["SlogdetResult", "det", "slogdet"]


def det(x: Any) -> Any:
    """Return the determinants of matrices."""
    return apply_values_rule(_DET, x)[0]


def _of_determinant(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    if _has_zeros(values[0]):
        return _scaled(gs[0], _adjoint_of_adjugate(x))
    return _scaled(elementwise("mul", gs[0], conj(values[0])), adjoint(inv(x)))


def _adjoint_of_adjugate(x: Any) -> Any:
    """Return the adjoint of adj(x) = det(U) det(V') V diag(products of the other s) U'.

    It is zero where two singular values are.  The formula is not differentiated: singular values
    have kinks at 0, the adjugate has none.
    """
    if isinstance(x, Tracer):
        raise TracerError(
            "det() of a singular matrix has a first derivative only: differentiate it at a regular "
            "matrix, or write the determinant as a sum of products"
        )
    u, s, vh = svd(x)
    own = library_of(s).xp.eye(s.shape[-1], dtype=s.dtype, device=device(s)) != 0
    others = prod(where(own, 1.0, expand_dims(s, axis=-2)), axis=-1)
    turned = conj(elementwise("mul", det(u), det(vh)))
    scaled = elementwise("mul", u, expand_dims(others, axis=-2))
    return _scaled(turned, matmul(scaled, vh))


_DET = ValuesRule("det", lambda xp, x: (xp.linalg.det(x),), (_of_determinant,), reads=(0,))


def _has_zeros(values: Any) -> bool:
    array = plain(values)
    return bool(library_of(array).xp.any(array == 0))


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the magnitude of a determinant; a real sign has no derivative."""

    sign: Any
    logabsdet: Any


def slogdet(x: Any) -> SlogdetResult:
    """Return the signs of determinants and the logarithms of their magnitudes."""
    sign, logabsdet = apply_values_rule(_SLOGDET, x)
    return SlogdetResult(sign if is_complex(x) else plain(sign), logabsdet)


def _of_logarithm(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any) -> Any:
    """The logarithm changes by Re tr(x⁻¹ dx), the angle of the sign by Im tr(x⁻¹ dx)."""
    (gsign, glog), (sign, _) = gs, values
    if _has_zeros(sign):
        raise TracerError(
            "slogdet() of a singular matrix has no derivative: differentiate det(), which has one, "
            "or add a multiple of the identity to the matrix"
        )
    if gsign is None or not is_complex(sign):
        return _scaled(glog, adjoint(inv(x)))
    turned = imag(elementwise("mul", gsign, conj(sign))) * 1j
    return _scaled(turned if glog is None else elementwise("add", turned, glog), adjoint(inv(x)))


_SLOGDET = ValuesRule(
    "slogdet", lambda xp, x: tuple(xp.linalg.slogdet(x)), (_of_logarithm,), reads=(0,)
)


def _scaled(factors: Any, matrices: Any) -> Any:
    return elementwise("mul", reshape(factors, (*factors.shape, 1, 1)), matrices)
