"""The error function: x + x·P(x²) near 0, 1 - exp(-x²)·Q(|x|) beyond 1.

Q stands for exp(t²)·erfc(t), which is smooth; an error in it counts the less the larger t is, so
one polynomial reaches to where erf rounds to 1.  exp(-x²) is shared with the derivative.
"""

from __future__ import annotations

from mixad.scalar.expression import Term
from mixad.scalar.math.exponential import exp
from mixad.scalar.math.floats import at_most, copysign, fma, format_of, polynomial, where

__all__ = ["erf"]

_SPLIT = 1.0
_ONE = {23: 4.0, 52: 6.0}  # by bits of the fraction: erf rounds to 1 here


def erf(x: Term) -> Term:
    """2/√π times the integral of exp(-t²) from 0 to x."""
    layout = format_of(x)
    z = x * x
    small = fma(x, polynomial(z, layout.tables["ERF"]), x)
    t = at_most(abs(x), _ONE[layout.fraction])
    large = fma(-exp(-z), polynomial(t, layout.tables["ERFCX"]), 1.0)
    return where(abs(x) < _SPLIT, small, copysign(large, x))
