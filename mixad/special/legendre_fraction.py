"""Legendre's continued fraction of the upper incomplete gamma function (DLMF 8.9.2)."""

from __future__ import annotations

from mixad.special.calling import Number

__all__ = ["legendre_fraction"]


def legendre_fraction(a: Number, x: Number) -> Number:
    """Return Γ(a, x) x⁻ᵃ exp(x) for x > a + 1: 1/(x + 1 - a - 1(1 - a)/(x + 3 - a - 2(2 - a)/…)).

    Convergents are summed (Steed's algorithm).  ``bound`` is above a term and above its derivatives
    over (2k)² and less: a term that is 0, since a is a whole number, has derivatives that go on.
    """
    b = x + 1 - a
    inverse = 1 / b
    total, term, bound = inverse, inverse, inverse
    k = 1
    while total + 4 * k * k * bound > total:
        partial = k * (a - k)
        older = inverse
        b = b + 2
        inverse = 1 / (b + partial * older)
        ratio = older * inverse
        term = -partial * ratio * term
        total = total + term
        bound = max(abs(partial), k) * ratio * bound
        k += 1
    return total
