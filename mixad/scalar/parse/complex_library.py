"""Functions of complex numbers: plain Python on their parts, compiled as a user's function is.

Formulas are chosen so that a result keeps its digits relative to its size, and so that what is
derived from them is the derivative, on axes and branch cuts too: `abs`, `min` and `max`, whose
slopes jump, stand for nothing that is smooth here.  Where zero is multiplied by what overflowed,
zero is right.  `held` numbers are constants of derivatives: they choose between formulas that agree
where they meet, so no result has a kink there.
"""

from __future__ import annotations

import cmath
import math
from typing import Any

__all__ = [
    "cosine",
    "exponential",
    "exponential_less_one",
    "exponential_of_two",
    "held",
    "hyperbolic_cosine",
    "hyperbolic_sine",
    "hyperbolic_tangent",
    "largest",
    "logarithm",
    "logarithm_of_one_more",
    "power_of_complex",
    "power_of_real",
    "power_of_whole",
    "sine",
    "square_root",
    "tangent",
]


def held(x: Any) -> Any:
    """Stand for a number as a constant of derivatives."""
    return x


def largest(x: Any) -> Any:
    """Stand for the largest finite number in the type of one."""
    return x


held.__mixad_op__ = "stop_gradient"  # type: ignore[attr-defined]  # `intrinsics` compiles both
largest.__mixad_op__ = "largest"  # type: ignore[attr-defined]


def _times(small: Any, large: Any) -> Any:
    """Return a product that is 0 where the first factor is, also where the other one is infinite.

    The derivative there is the largest number in place of the infinity, not nan.
    """
    if held(small) == 0 and abs(held(large)) == math.inf:
        return small * math.copysign(largest(large), held(large))
    return small * large


# -- exponentials ----------------------------------------------------------------------------------


def exponential(z: Any) -> Any:
    """e^z."""
    size = math.exp(z.real)
    return complex(math.cos(z.imag) * size, _times(math.sin(z.imag), size))


def exponential_of_two(z: Any) -> Any:
    """2^z."""
    size, angle = math.exp2(z.real), z.imag * math.log(2)
    return complex(math.cos(angle) * size, _times(math.sin(angle), size))


def exponential_less_one(z: Any) -> Any:
    """e^z - 1, without losing digits near 0, nor those of the derivative far to the left."""
    x, y = z.real, z.imag
    if held(x) > -1:
        half = math.sin(0.5 * y)
        re = math.expm1(x) * math.cos(y) - 2 * half * half
    else:
        re = math.exp(x) * math.cos(y) - 1
    return complex(re, _times(math.sin(y), math.exp(x)))


# -- logarithms ------------------------------------------------------------------------------------


def logarithm(z: Any) -> Any:
    """log z, from -πi to πi; log |z| keeps its digits near |z| = 1, where it is near 0."""
    x, y = z.real, z.imag
    size = math.hypot(x, y)
    if held(size) > 0.5 and held(size) < 2:
        a, b = (x, y) if abs(held(x)) >= abs(held(y)) else (y, x)
        re = 0.5 * math.log1p((a - 1) * (a + 1) + b * b)
    else:
        re = math.log(x if held(size) == 0 else size)  # infinitely steep at 0, where hypot is flat
    return complex(re, math.atan2(y, x))


def logarithm_of_one_more(z: Any) -> Any:
    """log(1 + z), without losing digits near 0."""
    x, y = z.real, z.imag
    size = math.hypot(1 + x, y)
    if held(size) > 0.5 and held(size) < 2:
        re = 0.5 * math.log1p(x * (2 + x) + y * y)
    else:
        re = math.log(1 + x if held(size) == 0 else size)
    return complex(re, math.atan2(y, 1 + x))


# -- circular and hyperbolic functions -------------------------------------------------------------


def sine(z: Any) -> Any:
    """sin z."""
    x, y = z.real, z.imag
    return complex(_times(math.sin(x), math.cosh(y)), math.cos(x) * math.sinh(y))


def cosine(z: Any) -> Any:
    """cos z."""
    x, y = z.real, z.imag
    return complex(math.cos(x) * math.cosh(y), -_times(math.sin(x), math.sinh(y)))


def hyperbolic_sine(z: Any) -> Any:
    """sinh z."""
    x, y = z.real, z.imag
    return complex(math.sinh(x) * math.cos(y), _times(math.sin(y), math.cosh(x)))


def hyperbolic_cosine(z: Any) -> Any:
    """cosh z."""
    x, y = z.real, z.imag
    return complex(math.cosh(x) * math.cos(y), _times(math.sin(y), math.sinh(x)))


def hyperbolic_tangent(z: Any) -> Any:
    """tanh z: numerator and denominator of sinh z / cosh z, times conj(cosh z), over cosh² x.

    ``q`` is 1 / cosh² x, which does not overflow so; nothing cancels near the poles.
    """
    x, y = z.real, z.imag
    e = math.exp((-2.0 if held(x) >= 0 else 2.0) * x)
    q = 4 * e / ((1 + e) * (1 + e))
    t, c = math.tanh(x), math.cos(y)
    d = t * t + c * c * q
    return complex(t / d, math.sin(y) * c * q / d)


def tangent(z: Any) -> Any:
    """tan z = -i tanh(iz)."""
    w = hyperbolic_tangent(complex(-z.imag, z.real))
    return complex(w.imag, -w.real)


# -- powers ----------------------------------------------------------------------------------------


def square_root(z: Any) -> Any:
    """√z with a real part that is not negative, on the side of the cut that the sign of 0 says.

    W. Kahan, "Branch cuts for complex elementary functions" (1987).  ``s`` is twice the larger
    part, √(2|x| + 2|z|).  At 0 there is no derivative: it is inf or nan.
    """
    x, y = z.real, z.imag
    is_small = max(abs(held(x)), abs(held(y))) <= 1
    f, g = (2.0, 1.0) if is_small else (0.125, 4.0)  # nothing overflows or is lost
    s = g * math.sqrt((f * x if held(x) >= 0 else -f * x) + math.hypot(f * x, f * y))
    side = math.copysign(1.0, held(y))
    if held(s) == 0:
        other = side * s
    elif abs(held(y)) == math.inf:
        other = y
    else:
        other = y / s
    if held(x) >= 0:
        return complex(0.5 * s, other)
    return complex(side * other, side * (0.5 * s))


def power_of_whole(z: Any, n: Any) -> Any:
    """z ** n for an integer, by squaring."""
    factor, count = z, abs(n)
    power = 1 + 0j
    while count > 0:
        if count % 2 == 1:
            power = power * factor
        factor = factor * factor
        count = count // 2
    return power if n >= 0 else 1 / power


def power_of_real(z: Any, p: Any) -> Any:
    """z ** p for a real number."""
    if held(z.real) == 0 and held(z.imag) == 0:
        return _power_of_zero(z, p)
    size, angle = math.hypot(z.real, z.imag) ** p, p * math.atan2(z.imag, z.real)
    return complex(math.cos(angle) * size, _times(math.sin(angle), size))


def power_of_complex(z: Any, w: Any) -> Any:
    """z ** w."""
    if held(z.real) == 0 and held(z.imag) == 0:
        if held(w.imag) == 0 or held(w.real) > 1:
            return _power_of_zero(z, w.real)
        return _power_of_zero(z, 0.5 if held(w.real) > 0 else -1.0)
    return cmath.exp(w * cmath.log(z))


def _power_of_zero(z: Any, p: Any) -> Any:
    """0 to a power, as a power of ``z`` that has the same first derivative at 0."""
    if p > 1:
        return z * z if p <= 2 else z * z * z
    if p == 1:
        return z
    if p == 0:
        return 1 + 0j
    return square_root(z) if p > 0 else complex(math.nan, math.nan)
