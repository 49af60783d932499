"""The functions of a distribution, as SciPy has them: of any number, with location and scale.

All take two shapes, of which a family may have fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from mixad.scipy.programs.families import Family
from mixad.special import exp, floor, isinf, log
from mixad.special.calling import Number

__all__ = ["programs_of"]

_Program: TypeAlias = Callable[..., Any]


def programs_of(family: Family) -> Mapping[str, _Program]:
    """Return the scalar programs of a distribution, by SciPy's names."""
    share = _discrete_share if family.is_discrete else _share
    shares = {
        "logcdf": share(family, family.log_cdf, -math.inf, 0.0),
        "cdf": share(family, family.cdf, 0.0, 1.0),
        "sf": share(family, family.sf, 1.0, 0.0),
    }
    if family.is_discrete:
        logarithm = _logpmf(family)
        return {
            "logpmf": logarithm,
            "pmf": _mass(family, logarithm),
            **shares,
            "ppf": _least(family),
        }
    logarithm = _logpdf(family)
    return {"logpdf": logarithm, "pdf": _density(logarithm), **shares, "ppf": _ppf(family)}


def _of_two(family: Family, program: _Program) -> _Program:
    """Return a program of a number and two shapes."""
    count = len(family.shapes)
    if count == 0:
        return lambda z, a, b: program(z)
    return (lambda z, a, b: program(z, a)) if count == 1 else program


def _density(logarithm: _Program) -> _Program:
    def density(x: Number, a: Number, b: Number, loc: Number, scale: Number) -> Number:
        value = logarithm(x, a, b, loc, scale)
        return 0.0 if value == -math.inf else exp(value)  # where derivatives are 0

    return density


def _mass(family: Family, logarithm: _Program) -> _Program:
    program = _of_two(family, family.mass_at_end)
    low, high, has_first = *_bounds(family), family.support[1] is None

    def mass(k: Number, a: Number, b: Number, loc: Number) -> Number:
        value = logarithm(k, a, b, loc)
        if value != -math.inf:
            return exp(value)
        z = 1.0 * (k - loc)
        if z < low or z > (a if has_first else high) or floor(z) != z or isinf(z):
            return 0.0
        return program(z, a, b)

    return mass


# -- continuous ------------------------------------------------------------------------------------


def _logpdf(family: Family) -> _Program:
    is_valid, program = family.is_valid, _of_two(family, family.log_density)
    low, high = family.support

    def logpdf(x: Number, a: Number, b: Number, loc: Number, scale: Number) -> Number:
        if not (scale > 0 and is_valid(a, b)):
            return math.nan
        z = (x - loc) / scale
        if z < low or z > high or isinf(z):
            return -math.inf
        return program(z, a, b) - log(scale)

    return logpdf


def _share(family: Family, program: _Program, before: float, after: float) -> _Program:
    is_valid, program = family.is_valid, _of_two(family, program)
    low, high = family.support

    def share(x: Number, a: Number, b: Number, loc: Number, scale: Number) -> Number:
        if not (scale > 0 and is_valid(a, b)):
            return math.nan
        z = (x - loc) / scale
        if z <= low or z >= high:
            return before if z <= low else after
        return program(z, a, b)

    return share


def _ppf(family: Family) -> _Program:
    is_valid, program = family.is_valid, _of_two(family, family.ppf)
    low, high = family.support

    def ppf(q: Number, a: Number, b: Number, loc: Number, scale: Number) -> Number:
        if not (scale > 0 and is_valid(a, b) and 0 <= q <= 1):
            return math.nan
        if q == 0 or q == 1:
            return loc + scale * (low if q == 0 else high)
        return loc + scale * program(q, a, b)

    return ppf


# -- discrete --------------------------------------------------------------------------------------


def _logpmf(family: Family) -> _Program:
    is_valid, program = family.is_valid, _of_two(family, family.log_density)
    low, high, has_first = *_bounds(family), family.support[1] is None

    def logpmf(k: Number, a: Number, b: Number, loc: Number) -> Number:
        if not is_valid(a, b):
            return math.nan
        z = 1.0 * (k - loc)
        if z != z:
            return math.nan
        if z < low or z > (a if has_first else high) or floor(z) != z or isinf(z):
            return -math.inf
        return program(z, a, b)

    return logpmf


def _discrete_share(family: Family, program: _Program, before: float, after: float) -> _Program:
    is_valid, program = family.is_valid, _of_two(family, program)
    low, high, has_first = *_bounds(family), family.support[1] is None

    def share(k: Number, a: Number, b: Number, loc: Number) -> Number:
        if not is_valid(a, b):
            return math.nan
        z = floor(1.0 * (k - loc))
        if z != z:
            return math.nan
        if z < low or z >= (a if has_first else high):
            return before if z < low else after
        return program(z, a, b)

    return share


def _least(family: Family) -> _Program:
    is_valid, program = family.is_valid, _of_two(family, family.ppf)
    low, high, has_first = *_bounds(family), family.support[1] is None

    def ppf(q: Number, a: Number, b: Number, loc: Number) -> Number:
        if not (is_valid(a, b) and 0 <= q <= 1):
            return math.nan
        if q == 0 or q == 1:
            return loc + (low - 1 if q == 0 else (a if has_first else high))
        return loc + program(1.0 * q, a, b)

    return ppf


def _bounds(family: Family) -> tuple[float, float]:
    low, high = family.support
    return low, math.inf if high is None else high
