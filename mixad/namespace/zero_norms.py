"""Corners: where a norm is 0 its derivative is 0 by convention, and it has no second one.

A convention has no second derivative: at x = 0, |x| and |x|² would have the same one, 0. So it is
nan there, in all elements that the norm is of. A tangent to differentiate there is refused: a
factor 0 that follows, as in |x|², would drop the nan.
"""

from __future__ import annotations

import math
from typing import Any

from mixad.backends.arrays import Array
from mixad.errors import TracerError
from mixad.namespace.complex_numbers import is_complex, real
from mixad.tape.broadcasting import sum_to
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import Tracer, may_differentiate_twice

__all__ = ["nan_at_zeros"]


def nan_at_zeros(value: Any, x: Any, at: Any, axis: tuple[int, ...]) -> Any:
    """Return a value whose second derivatives are nan at its corners in ``x``.

    Its axes have length 1. ``at`` returns where corners are, if second derivatives are possible.
    Elements with the constant cotangent 0, which nothing used, have second derivatives.
    """
    if not isinstance(x, Tracer) or not may_differentiate_twice(x.levels):
        return value
    library, corners = library_of_value(x), at()
    if not library.is_lazy and not bool(library.xp.any(corners)):
        return value
    return apply_rule(_CORNERED, value, x, at=corners, axis=axis)


def _of_corners(g: Any, value: Any, x: Any, at: Array, axis: tuple[int, ...]) -> Any:
    if _is_tangent(g, x) and not library_of_value(x).is_lazy:
        raise TracerError(
            "the tangent of a norm, standard deviation or singular value that is 0 is a convention "
            "and has no derivative: write the sum of squares instead of the squared norm, or take "
            "the gradient first, as mixad.hvp and mixad.hessian do, which give nan there"
        )
    used = at if isinstance(g, Tracer) else at & (g != 0)
    return apply_rule(_ZERO, x, g, at=used, axis=axis)


def _is_tangent(g: Any, x: Any) -> bool:
    """Whether a cotangent stands for a tangent: it depends on nothing that the value depends on.

    The pullback is linear in it; transposed, it pushes tangents forward.
    """
    if not isinstance(g, Tracer) or not isinstance(x, Tracer):
        return False
    return not g.levels & x.levels


_CORNERED = Rule(
    "norm",
    lambda xp, value, x, at, axis: value,
    (lambda g, value, x, at, axis: g, _of_corners),
    reads=((), (1,)),
)


def _of_factor(h: Any, x: Any, g: Any, at: Array, axis: tuple[int, ...]) -> Any:
    found = sum_to(apply_rule(_ZERO, x, h, at=at, axis=axis), tuple(g.shape))
    return real(found) if is_complex(found) and not is_complex(g) else found


_ZERO: Rule = Rule(
    "the derivative of a norm at 0",
    lambda xp, x, g, at, axis: xp.zeros_like(x),
    (lambda h, x, g, at, axis: apply_rule(_STEEP, h, at=at, axis=axis), _of_factor),
    reads=((), (0,)),
    fresh=True,
)
"""Zeros of the shape of ``x``, which depend on it and on the cotangent ``g`` of the norm."""


def _steep(xp: Any, h: Array, at: Array, axis: tuple[int, ...]) -> Array:
    moves = xp.any(h != 0, axis=axis, keepdims=True) if axis else h != 0
    return xp.where(at & moves, xp.full_like(h, math.nan), xp.zeros_like(h))


_STEEP: Rule = Rule(
    "the second derivative of a norm at 0",
    _steep,
    (lambda g, h, at, axis: apply_rule(_STEEP, g, at=at, axis=axis),),
    fresh=True,
    linear="each",
)
"""Nans around corners, whatever tangent or cotangent passes there."""
