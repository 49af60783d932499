"""Trigonometric functions of degrees and of half turns, and the reciprocals of those of radians.

Angles are reduced exactly, in the unit that they have: at multiples of 90 degrees, and of half a
unit of the ``pi`` functions, values are exact, and so are derivatives that are 0.
"""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring
from mixad.special.table import acos, asin, atan, cos, floor, fma, fmod, rint, sin

__all__ = ["acosd", "asind", "atand", "cosd", "cospi", "cot", "cotd", "csc", "cscd", "deg2rad",
           "rad2deg", "sec", "secd", "sind", "sinpi", "tand", "tanpi"]  # fmt: skip


# -- of radians ------------------------------------------------------------------------------------


@complete_docstring
def sec(x: Number) -> Number:
    """Return 1 / cos(x)."""
    return 1 / cos(x)


@complete_docstring
def csc(x: Number) -> Number:
    """Return 1 / sin(x)."""
    return 1 / sin(x)


@complete_docstring
def cot(x: Number) -> Number:
    """Return cos(x) / sin(x)."""
    return cos(x) / sin(x)


@complete_docstring
def deg2rad(x: Number) -> Number:
    """Return an angle in degrees as one in radians."""
    return x * (math.pi / 180)


@complete_docstring
def rad2deg(x: Number) -> Number:
    """Return an angle in radians as one in degrees."""
    return x * (180 / math.pi)


# -- of degrees ------------------------------------------------------------------------------------


@complete_docstring
def sind(x: Number) -> Number:
    """Return the sine of degrees; exact for multiples of 90."""
    r, quadrant = _quadrant_of_degrees(x)
    return _sine(quadrant, deg2rad(r))


@complete_docstring
def cosd(x: Number) -> Number:
    """Return the cosine of degrees; exact for multiples of 90."""
    r, quadrant = _quadrant_of_degrees(x)
    return _cosine(quadrant, deg2rad(r))


@complete_docstring
def tand(x: Number) -> Number:
    """Return the tangent of degrees; infinite at odd multiples of 90."""
    return sind(x) / cosd(x)


@complete_docstring
def secd(x: Number) -> Number:
    """Return 1 / cosd(x)."""
    return 1 / cosd(x)


@complete_docstring
def cscd(x: Number) -> Number:
    """Return 1 / sind(x)."""
    return 1 / sind(x)


@complete_docstring
def cotd(x: Number) -> Number:
    """Return cosd(x) / sind(x); infinite at multiples of 180."""
    return cosd(x) / sind(x)


@complete_docstring
def asind(x: Number) -> Number:
    """Return the arc sine in degrees."""
    return rad2deg(asin(x))


@complete_docstring
def acosd(x: Number) -> Number:
    """Return the arc cosine in degrees."""
    return rad2deg(acos(x))


@complete_docstring
def atand(x: Number) -> Number:
    """Return the arc tangent in degrees."""
    return rad2deg(atan(x))


def _quadrant_of_degrees(x: Number) -> tuple[Number, Number]:
    """Return x less the nearest multiple of 90, and its number modulo 4; all of it is exact."""
    # Whole turns are taken out first where multiples of 90 would round.
    near = fmod(x, 360.0) if abs(x) > 1e6 else x
    k = rint(near / 90)
    return fma(k, -90.0, near), k - 4 * floor(k / 4)


# -- of half turns ---------------------------------------------------------------------------------


@complete_docstring
def sinpi(x: Number) -> Number:
    """Return sin(πx); exact for multiples of 1/2."""
    r, quadrant = _quadrant_of_half_turns(x)
    return _sine(quadrant, math.pi * r)


@complete_docstring
def cospi(x: Number) -> Number:
    """Return cos(πx); exact for multiples of 1/2."""
    r, quadrant = _quadrant_of_half_turns(x)
    return _cosine(quadrant, math.pi * r)


@complete_docstring
def tanpi(x: Number) -> Number:
    """Return tan(πx); infinite at odd multiples of 1/2."""
    return sinpi(x) / cospi(x)


def _quadrant_of_half_turns(x: Number) -> tuple[Number, Number]:
    """Return x less the nearest multiple of 1/2, and its number modulo 4; all of it is exact."""
    near = fmod(x, 2.0) if abs(x) > 1e6 else x
    k = rint(2 * near)
    return near - 0.5 * k, k - 4 * floor(k / 4)


# -- of a quadrant and the rest, in radians --------------------------------------------------------
# Zeros are positive: 0 - 0 is.


def _sine(quadrant: Number, r: Number) -> Number:
    if quadrant == 1:
        return cos(r)
    if quadrant == 2:
        return 0.0 - sin(r)
    return 0.0 - cos(r) if quadrant == 3 else sin(r)


def _cosine(quadrant: Number, r: Number) -> Number:
    if quadrant == 1:
        return 0.0 - sin(r)
    if quadrant == 2:
        return 0.0 - cos(r)
    return 0.0 + sin(r) if quadrant == 3 else cos(r)
