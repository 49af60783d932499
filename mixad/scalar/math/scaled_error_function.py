"""exp(x²) erfc(x), its derivatives, and the inverses of erf and erfc.

For x >= 0, (1 + 2x) exp(x²) erfc(x) is a polynomial of (x - k)/(x + k) (Shepherd and Laframboise,
"Chebyshev approximation of (1 + 2x) exp(x²) erfc x", Math. Comp. 36, 1981).  Derivatives are the
repeated integrals of erfc, scaled likewise: Iₙ' = -2(n + 1) Iₙ₊₁, all of one sign, where a
difference of terms would cancel.  They satisfy 2(n + 1) Iₙ₊₁ + 2x Iₙ = Iₙ₋₁ (DLMF 7.18.7): forwards
for small x, and backwards, as a continued fraction, beyond (Gautschi, "Evaluation of the repeated
integrals of the coerror function", ACM TOMS 3, 1977).

The inverses are x/y or x/s as polynomials of w = -log(1 - y²), s = √w, or (s - k)/(s + k) (Giles,
"Approximating the erfinv function", GPU Computing Gems 2, 2011, has w and s).

f32 is computed in f64.
"""

from __future__ import annotations

from math import inf, nan, pi, sqrt

from mixad.scalar.expression import Term, call
from mixad.scalar.math.exponential import exp_sum
from mixad.scalar.math.floats import (
    copysign,
    fma,
    format_of,
    if_else,
    polynomial,
    rint,
    where,
    while_,
)
from mixad.scalar.math.logarithm import log
from mixad.scalar.types import F64

__all__ = ["erfcinv", "erfcx", "erfinv", "ierfcx"]

_TURNING = 3.75
_HUGE = 1e300  # stands for infinity, of which there are no quotients
_BACKWARD = 0.5  # from here on the continued fraction is used
_HIGHEST_ORDER = 100.0  # so that loops end soon
_CENTRAL = 6.25  # w, up to which y times a polynomial of w is taken
_MIDDLE = 4.0  # s, up to which the first polynomial of the tail is taken
_LAST = 8.0
_TAIL = 15.0


def erfcx(x: Term) -> Term:
    """exp(x²)·erfc(x)."""
    return _erfcx(x.convert(F64)).convert(x.type)


def ierfcx(n: Term, x: Term) -> Term:
    """exp(x²) times the n-th repeated integral of erfc; nan unless n is one of 0, …, 100."""
    return _ierfcx(n.convert(F64), x.convert(F64)).convert(x.type)


def erfinv(x: Term) -> Term:
    """The number whose erf is x."""
    y = x.convert(F64)
    return copysign(_inverse(abs(y), 1 - abs(y)), y).convert(x.type)


def erfcinv(x: Term) -> Term:
    """The number whose erfc is x."""
    q = x.convert(F64)
    upper = q > 1
    rest = where(upper, 2 - q, q)
    found = _inverse(1 - rest, rest)
    return where(upper, -found, found).convert(x.type)


def _erfcx(x: Term) -> Term:
    size = abs(x)
    t = _quotient(where(size < inf, size, _HUGE))
    right = (1 + polynomial(t, format_of(x).tables["ERFCX_SCALED"])) / fma(2.0, size, 1.0)
    z = x * x
    lost = fma(x, x, -z)
    left = fma(2.0, exp_sum(z, where(z < 1000, lost, 0)), -right)
    return where(x < 0, left, right)


def _quotient(x: Term) -> Term:
    """(x - k)/(x + k), corrected once by what the quotient leaves."""
    inverse = 1 / (x + _TURNING)
    t = (x - _TURNING) * inverse
    left = fma(-t, x, fma(t + 1, -_TURNING, x))
    return fma(inverse, left, t)


def _ierfcx(n: Term, x: Term) -> Term:
    known = (n >= 0) & (n <= _HIGHEST_ORDER) & (rint(n) == n)
    order = where(known, n, 0)
    (result,) = if_else(x >= _BACKWARD, lambda: [_backward(order, x)], lambda: [_forward(order, x)])
    return where(known, result, nan)


def _forward(n: Term, x: Term) -> Term:
    _, result, _ = while_(
        (n.const(0.0), _erfcx(x), x.const(2 / sqrt(pi))),
        lambda k, now, before: k < n,
        lambda k, now, before: (k + 1, 0.5 * fma(-2 * x, now, before) / (k + 1), now),
    )
    return result


def _backward(n: Term, x: Term) -> Term:
    """2/√π times the product of r_k = I_k/I_(k-1) = 1/(2x + 2(k + 1) r_(k+1)), k = 0, …, n."""
    last = n + call("ceil", 40 + 180 / (x * x))
    twice = 2 * x
    start = 1 / (x + call("sqrt", fma(x, x, 2 * last)))

    def turn(k: Term, ratio: Term, product: Term) -> tuple[Term, Term, Term]:
        now = 1 / fma(2 * (k + 1), ratio, twice)
        return k - 1, now, where(k <= n, product * now, product)

    _, _, product = while_(
        (last, start, x.const(2 / sqrt(pi))), lambda k, ratio, product: k >= 0, turn
    )
    return product


def _inverse(y: Term, q: Term) -> Term:
    """The number x >= 0 whose erf is y and whose erfc is q: the smaller of both is exact."""
    tables = format_of(y).tables
    w = -log(q * (1 + y))
    near = y * polynomial(w - 0.5 * _CENTRAL, tables["ERFINV_CENTRAL"])
    s = call("sqrt", w)
    middle = polynomial(s - 3.25, tables["ERFINV_MIDDLE"])
    far = polynomial(s - 6, tables["ERFINV_FAR"])
    last = polynomial(1 - (2 * _TAIL) / (s + _TAIL), tables["ERFINV_LAST"])
    beyond = fma(s, where(s < _MIDDLE, middle, where(s < _LAST, far, last)), s)
    return where(q == 0, inf, where(w < _CENTRAL, near, beyond))
