"""Functions of complex numbers: plain Python on their parts, compiled as a user's function is.

Formulas are chosen so that a result keeps its digits relative to its size, and so that what is
derived from them is the derivative, on axes and branch cuts too: `abs`, `min` and `max`, whose
slopes jump, stand for nothing that is smooth here.  Where zero is multiplied by what overflowed,
zero is right.  What `constant_of_derivatives` returns chooses between formulas that agree where
they meet, so no result has a kink there.
"""

from __future__ import annotations

import cmath
import math
from typing import Any

__all__ = ["constant_of_derivatives", "cosine", "exponential", "exponential_less_one",
           "exponential_of_two", "hyperbolic_cosine", "hyperbolic_sine", "hyperbolic_tangent",
           "largest", "logarithm", "logarithm_of_one_more", "power_of_complex", "power_of_real",
           "power_of_whole", "sine", "square_root", "tangent", "with_derivatives_of"]  # fmt: skip


def constant_of_derivatives(x: Any) -> Any:
    """Stand for a number as a constant of derivatives."""
    return x


def largest(x: Any) -> Any:
    """Stand for the largest finite number in the type of one."""
    return x


def _mul_zero(x: Any, y: Any) -> Any:
    """Stand for a product that is 0 where the first factor is."""
    return x * y


def _mul_pow(x: Any, y: Any, z: Any) -> Any:
    """Stand for x yᶻ, of which only the product need be representable."""
    return x * y**z


constant_of_derivatives.__mixad_op__ = "stop_gradient"  # type: ignore[attr-defined]  # `intrinsics` compiles both
largest.__mixad_op__ = "largest"  # type: ignore[attr-defined]
_mul_zero.__mixad_op__ = "mul_zero"  # type: ignore[attr-defined]
_mul_pow.__mixad_op__ = "mul_pow"  # type: ignore[attr-defined]


def _times(small: Any, large: Any) -> Any:
    """Return a product that is 0 where the first factor is, also where the other one is infinite.

    The derivative there is the largest number in place of the infinity, not nan.
    """
    if constant_of_derivatives(small) == 0 and abs(constant_of_derivatives(large)) == math.inf:
        return small * math.copysign(largest(large), constant_of_derivatives(large))
    return small * large


def with_derivatives_of(value: Any, other: Any) -> Any:
    """Return a value whose derivatives are those of another, which is as large but for rounding."""
    re, im = constant_of_derivatives(value.real), constant_of_derivatives(value.imag)
    return complex(_with_derivatives_of(re, other.real), _with_derivatives_of(im, other.imag))


def _with_derivatives_of(value: Any, other: Any) -> Any:
    return value


def _partials_of_other(value: Any, other: Any) -> Any:
    return None, 1.0


_with_derivatives_of.__mixad_rule__ = _partials_of_other  # type: ignore[attr-defined]


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
    if constant_of_derivatives(x) > -1:
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
    if constant_of_derivatives(size) > 0.5 and constant_of_derivatives(size) < 2:
        a, b = (
            (x, y) if abs(constant_of_derivatives(x)) >= abs(constant_of_derivatives(y)) else (y, x)
        )
        re = 0.5 * math.log1p((a - 1) * (a + 1) + b * b)
    else:
        re = math.log(
            x if constant_of_derivatives(size) == 0 else size
        )  # infinitely steep at 0, where hypot is flat
    return complex(re, math.atan2(y, x))


def logarithm_of_one_more(z: Any) -> Any:
    """log(1 + z), without losing digits near 0."""
    x, y = z.real, z.imag
    size = math.hypot(1 + x, y)
    if constant_of_derivatives(size) > 0.5 and constant_of_derivatives(size) < 2:
        re = 0.5 * math.log1p(x * (2 + x) + y * y)
    else:
        re = math.log(1 + x if constant_of_derivatives(size) == 0 else size)
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
    e = math.exp((-2.0 if constant_of_derivatives(x) >= 0 else 2.0) * x)
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
    is_small = max(abs(constant_of_derivatives(x)), abs(constant_of_derivatives(y))) <= 1
    f, g = (2.0, 1.0) if is_small else (0.125, 4.0)  # nothing overflows or is lost
    s = g * math.sqrt(
        (f * x if constant_of_derivatives(x) >= 0 else -f * x) + math.hypot(f * x, f * y)
    )
    side = math.copysign(1.0, constant_of_derivatives(y))
    if constant_of_derivatives(s) == 0:
        other = side * s
    elif abs(constant_of_derivatives(y)) == math.inf:
        other = y
    else:
        other = y / s
    if constant_of_derivatives(x) >= 0:
        return complex(0.5 * s, other)
    return complex(side * other, side * (0.5 * s))


def power_of_whole(z: Any, n: Any) -> Any:
    """z ** n for an integer, 1/zⁿ for a negative one, whose derivatives are those of (1/z)ⁿ."""
    if n == 0:
        return 1 + 0j
    power = _by_squaring(z, abs(n))
    if n > 0:
        return power
    if _is_zero(z):
        return 1 / power
    return with_derivatives_of(1 / power, _by_squaring(1 / z, abs(n)))


def _by_squaring(z: Any, count: Any) -> Any:
    """z ** count for a positive integer; no square is made that is not a factor."""
    factor = z
    while count > 1 and count % 2 == 0:
        factor, count = factor * factor, count // 2
    power = factor
    while count > 1:
        factor, count = factor * factor, count // 2
        if count % 2 == 1:
            power = power * factor
    return power


def power_of_real(z: Any, p: Any) -> Any:
    """z ** p for a real number."""
    if _is_zero(z):
        return _power_of_zero(z, p)
    size, angle = math.hypot(z.real, z.imag) ** p, p * math.atan2(z.imag, z.real)
    value = complex(math.cos(angle) * size, _times(math.sin(angle), size))
    return with_derivatives_of(value, _power(z, p, 0.0))


def power_of_complex(z: Any, w: Any) -> Any:
    """z ** w."""
    if not _is_zero(z):
        return with_derivatives_of(cmath.exp(w * cmath.log(z)), _power(z, w.real, w.imag))
    if constant_of_derivatives(w.imag) == 0 or constant_of_derivatives(w.real) > 1:
        return _power_of_zero(z, w.real)
    return _power_of_zero(z, 0.5 if constant_of_derivatives(w.real) > 0 else -1.0)


def _is_zero(z: Any) -> Any:
    return constant_of_derivatives(z.real) == 0 and constant_of_derivatives(z.imag) == 0


def _power(z: Any, p: Any, q: Any) -> Any:
    """z ** (p + iq) for a z that is not 0, by what knows its derivatives."""
    x, y = z.real, z.imag
    return complex(_part_of_power(1.0, 0.0, x, y, p, q), _part_of_power(0.0, -1.0, x, y, p, q))


def _part_of_power(a: Any, b: Any, x: Any, y: Any, p: Any, q: Any) -> Any:
    """The real part of (a + ib) (x + iy) ** (p + iq), of which only the product need be finite."""
    size, angle = math.hypot(x, y), math.atan2(y, x)
    turn = p * angle + _mul_zero(q, math.log(size))
    part = _mul_zero(a, math.cos(turn)) - _mul_zero(b, math.sin(turn))
    return _mul_pow(part * math.exp(-_mul_zero(q, angle)), size, p)


def _partials_of_power(a: Any, b: Any, x: Any, y: Any, p: Any, q: Any) -> Any:
    """Those of z^w, w z^(w-1) and z^w log z are such parts again, of other coefficients.

    They are stated because size and angle, differentiated apart, leave the range in between.  An
    infinite logarithm is the largest number here, so that times 0 it is 0.
    """
    re, im = _mul_zero(a, p) - _mul_zero(q, b), _mul_zero(b, p) + _mul_zero(q, a)
    log, angle = min(math.log(math.hypot(x, y)), largest(x)), math.atan2(y, x)
    log_re, log_im = _mul_zero(a, log) - b * angle, _mul_zero(b, log) + a * angle
    return (
        _part_of_power(1.0, 0.0, x, y, p, q),
        _part_of_power(0.0, 1.0, x, y, p, q),
        _part_of_power(re, im, x, y, p - 1, q),
        _part_of_power(-im, re, x, y, p - 1, q),
        _part_of_power(log_re, log_im, x, y, p, q),
        _part_of_power(-log_im, log_re, x, y, p, q),
    )


_part_of_power.__mixad_rule__ = _partials_of_power  # type: ignore[attr-defined]


def _power_of_zero(z: Any, p: Any) -> Any:
    """0 to a power, as a power of ``z`` that has the same first derivative at 0."""
    if p > 1:
        return z * z if p <= 2 else z * z * z
    if p == 1:
        return z
    if p == 0:
        return 1 + 0j
    return square_root(z) if p > 0 else complex(math.nan, math.nan)
