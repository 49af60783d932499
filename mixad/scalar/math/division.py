"""Rounded-down division of floats, as Python and NumPy define it: exact remainder first."""

from __future__ import annotations

from mixad.scalar.expression import Term
from mixad.scalar.math.floats import copysign, where

__all__ = ["floordiv", "mod"]


def mod(x: Term, y: Term) -> Term:
    """The remainder of C, moved by y where signs differ; a zero takes the sign of y."""
    rest = _fmod(x, y)
    moved = where((y < 0) != (rest < 0), rest + y, rest)
    settled = where(rest == 0, copysign(_zero(x), y), moved)
    return where(y == 0, rest, settled)


def floordiv(x: Term, y: Term) -> Term:
    """(x - remainder)/y is whole up to rounding: take the nearest whole number below or at it."""
    rest = _fmod(x, y)
    quotient = (x - rest) / y
    lower = where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    whole = Term(x.builder, x.builder.op("floor", lower.atom))
    near = where(lower - whole > 0.5, whole + 1, whole)
    settled = where(lower == 0, copysign(_zero(x), x / y), near)
    return where(y == 0, x / y, settled)


def _fmod(x: Term, y: Term) -> Term:
    return Term(x.builder, x.builder.op("fmod", x.atom, y.atom))


def _zero(x: Term) -> Term:
    return Term(x.builder, x.builder.const(0.0, x.type))
