"""Programs of a few operations: selections, strong zeros, neighbours, integer powers, cosines."""

from __future__ import annotations

from math import inf

from mixad.scalar.expression import Term, call
from mixad.scalar.math.floats import (
    at_least,
    at_most,
    copysign,
    fma,
    format_of,
    rint,
    where,
    while_,
)

__all__ = ["circle_inversion", "direction_cosine", "div_zero", "isfinite", "isinf", "isnan",
           "ldexp", "maximum", "minimum", "mul_zero", "mul_zeros", "nextafter", "powi", "relu",
           "sign"]  # fmt: skip


def isnan(x: Term) -> Term:
    """Only nan differs from itself."""
    return x != x


def isinf(x: Term) -> Term:
    """Whether x is ±inf."""
    return abs(x) == inf


def isfinite(x: Term) -> Term:
    """Whether x is neither inf nor nan."""
    return abs(x) < inf


def sign(x: Term) -> Term:
    """-1, 0, 1, or nan; zeros of either sign give +0."""
    positive = where(x > 0, 1, x - x)
    return positive if x.type.kind == "uint" else where(x < 0, -1, positive)


def relu(x: Term) -> Term:
    """max(x, 0); nan stays."""
    return where(x <= 0, 0, x)


def minimum(x: Term, y: Term) -> Term:
    """The smaller argument; nan spreads; of equal ones the first."""
    return where(_first_loses(y < x, y), y, x)


def maximum(x: Term, y: Term) -> Term:
    """The larger argument; nan spreads; of equal ones the first."""
    return where(_first_loses(y > x, y), y, x)


def _first_loses(beaten: Term, y: Term) -> Term:
    return beaten | isnan(y) if y.type.is_float else beaten


def mul_zero(x: Term, y: Term) -> Term:
    """x·y, and 0 where x is zero, whatever y is."""
    return where(x != 0, x * y, 0)


def mul_zeros(x: Term, y: Term) -> Term:
    """x·y, and 0 where x or y is zero, whatever the other is."""
    return where((x != 0) & (y != 0), x * y, 0)


def div_zero(x: Term, y: Term) -> Term:
    """x/y, and 0 where x is zero, whatever y is."""
    return where(x != 0, x / y, 0)


def direction_cosine(x: Term, y: Term) -> Term:
    """x/√(x² + y²), of numbers that are scaled by powers of two where squares leave the range.

    A small x is scaled before it is divided, a large one after, so that only the result rounds.
    """
    unit = (format_of(x).bias + 1) // 128
    size = abs(x) + abs(y)
    up = where(size < 2.0 ** (-40 * unit), 2.0 ** (96 * unit), 1, type=x.type)
    down = where(size > 2.0 ** (60 * unit), 2.0 ** (-70 * unit), 1, type=x.type)
    a, b = (x * up) * down, (y * up) * down
    found = (x * up) / call("sqrt", a * a + b * b) * down
    found = where(isinf(x) & isfinite(y), copysign(1, x), found)
    return where(size == 0, 0, found)


def circle_inversion(x: Term, y: Term) -> Term:
    """x/(x² + y²), of numbers that are divided by the power of two below the larger one.

    One below the normal range is made no larger than its squares can be.
    """
    layout = format_of(x)
    larger, smaller = maximum(abs(x), abs(y)), minimum(abs(x), abs(y))
    power = layout.value(layout.bits(larger) & layout.pattern(inf))
    up = 1 / at_least(power, layout.smallest_normal)
    a, b = larger * up, smaller * up
    found = x * up * up / fma(a, a, b * b)  # of which the quotient alone rounds a normal number
    return where((larger == 0) | isinf(x) | isinf(y), 0, found)


def nextafter(x: Term, y: Term) -> Term:
    """The neighbour of x on the side of y: bit patterns of one sign are ordered like magnitudes."""
    layout = format_of(x)
    bits = layout.bits(x)
    outwards = (x < y) ^ (x < 0)
    step = layout.value(where(outwards, bits + 1, bits - 1))
    smallest = copysign(2.0 ** (1 - layout.bias - layout.fraction), y)
    moved = where(x == 0, smallest, step)
    return where(x == y, y, where(isnan(x) | isnan(y), x + y, moved))


def ldexp(x: Term, n: Term) -> Term:
    """x·2ⁿ in up to three factors, of which only the last one that counts rounds.

    A small factor leaves so many bits that what comes after it, if anything, rounds to zero.
    """
    layout = format_of(x)
    large, small = layout.bias, layout.fraction + 2 - layout.bias
    whole = rint(n)
    for _ in range(2):
        up, down = whole > large, whole < 1 - layout.bias
        x = x * where(up, 2.0**large, where(down, 2.0**small, 1, type=x.type))
        whole = whole - where(up, large, where(down, small, 0, type=x.type))
    whole = at_most(at_least(whole, 1 - layout.bias), large)
    biased = whole + (layout.shifter + layout.bias)  # left in the low bits of the sum
    return where(isnan(n), n, x * layout.value(layout.bits(biased) << layout.fraction))


def powi(x: Term, y: Term) -> Term:
    """x to the y by repeated squaring (Knuth, *TAOCP* 2, §4.6.3), wrapping.

    A negative y gives the quotient 1/xⁿ rounded towards zero: 0, but ±1 for x = ±1.
    """
    power, _, _ = while_(
        (x.const(1), x, y),
        lambda power, base, n: n > 0,
        lambda power, base, n: (where((n & 1) == 1, power * base, power), base * base, n >> 1),
    )
    if x.type.kind == "uint":
        return power
    alternating = where((y & 1) == 1, x, 1)
    unit = (x == 1) | (x == -1)
    return where(y < 0, where(unit, alternating, 0), power)
