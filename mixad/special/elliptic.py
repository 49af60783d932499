"""Complete elliptic integrals of the parameter m = k²: means, and series where a logarithm is near.

With p = 1 - m from 1/8 to 8, arithmetic-geometric means (DLMF 19.8): six steps are more than
enough, for two derivatives too, and nothing cancels at m = 0.  Below, power series of p with
its logarithm (19.12.1 and 2); above, those of 1/p (19.7.3).
"""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring
from mixad.special.polynomials import polynomial
from mixad.special.table import isinf, log, sqrt

__all__ = ["ellipe", "ellipk", "ellipkm1"]

_TERMS = range(19, -1, -1)  # the rest is below 1e-19 of the sum where p is 1/8
_SQUARES = tuple((math.comb(2 * n, n) / 4**n) ** 2 for n in _TERMS)  # ((1/2)ₙ / n!)²
_WEIGHTS = tuple(c * (2 * n + 1) / (n + 1) for n, c in zip(_TERMS, _SQUARES, strict=True))
_PAIRS = tuple(1 / ((2 * n + 1) * (2 * n + 2)) for n in _TERMS)
_OFFSETS = tuple(math.fsum([math.log(4), *(-2 * d for d in _PAIRS[20 - n :])]) for n in _TERMS)
"""d(n) of DLMF 19.12.1, ψ(1 + n) - ψ(1/2 + n)."""

_FIRST = tuple(c * d for c, d in zip(_SQUARES, _OFFSETS, strict=True))
_SECOND = tuple(0.5 * c * (d - pair) for c, d, pair in zip(_WEIGHTS, _OFFSETS, _PAIRS, strict=True))


@complete_docstring
def ellipk(m: Number) -> Number:
    """Return the complete elliptic integral of the first kind, K(m): inf at 1, nan above."""
    return ellipkm1(1 - m)


@complete_docstring
def ellipkm1(p: Number) -> Number:
    """Return the complete elliptic integral K(1 - p), which keeps its digits near p = 0."""
    if p == 0:
        return -log(p)  # inf, and so are the signs of derivatives
    if p < 0.125:
        return _first_near(p, log(sqrt(p)))  # twice its derivatives may be too large
    if p > 8:
        return 0.0 if isinf(p) else _first_near(1 / p, -0.5 * log(p)) / sqrt(p)
    mean, _ = _means(p)
    return 0.5 * math.pi / mean


@complete_docstring
def ellipe(m: Number) -> Number:
    """Return the complete elliptic integral of the second kind, E(m): 1 at 1, nan above."""
    p = 1 - m
    if p == 0:
        return 1 + sqrt(p)  # infinite derivatives with the right signs
    if p < 0.125:
        return _second_near(p, log(p))
    if p > 8:
        return sqrt(p) if isinf(p) else sqrt(p) * _second_near(1 / p, -log(p))
    mean, share = _means(p)
    return 0.5 * math.pi / mean * share


def _first_near(p: Number, log_root: Number) -> Number:
    return polynomial(p, _FIRST) - log_root * polynomial(p, _SQUARES)


def _second_near(p: Number, log_p: Number) -> Number:
    return 1 + p * (polynomial(p, _SECOND) - 0.25 * log_p * polynomial(p, _WEIGHTS))


def _means(p: Number) -> tuple[Number, Number]:
    """Return the mean M of 1 and √p, and E/K = 1 - Σ 2ⁿ⁻¹cₙ² of its differences (DLMF 19.8.6)."""
    a, b, share = 1.0, sqrt(p), 0.5 * (1 + p)
    for weight in (1, 2, 4, 8, 16, 32):
        half = 0.5 * (a - b)
        share -= weight * half * half
        a, b = a - half, sqrt(a * b)
    return a, share
