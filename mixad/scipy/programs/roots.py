"""Roots of functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from mixad.special import nextafter
from mixad.special.calling import Number

__all__ = ["newton", "smallest_whole"]


def newton(start: Number, step: Callable[..., Number], *others: Number) -> Number:
    """Return where Newton's steps end; they go one way from where a concave function is negative.

    Two more are taken, after which two derivatives with respect to all arguments are those of the
    root.
    """
    epsilon = nextafter(1 + 0 * start, 2.0) - 1
    x, k, quiet = start, 0, 0
    while quiet < 3 and k < 200:
        change = step(x, *others)
        x = x - change
        quiet = quiet + 1 if abs(change) <= 8 * epsilon * (1 + abs(x)) else 0
        k += 1
    return x


def smallest_whole(
    cdf: Callable[..., Number], q: Number, a: Number, b: Number, guess: Number
) -> Number:
    """Return the smallest whole number from 0 on where a distribution function is q or more.

    It is the upper of two floats with none between, which may be more than 1 apart; inf of an
    infinite guess.
    """
    below, above, k = -1.0, math.inf, 1.0 * guess
    if k != k:
        return k
    while below < k and k < above:
        if cdf(k, a, b) < q:
            below = k
        else:
            above = k
        k = 2 * k + 1 if above == math.inf else below + (above - below) // 2
    return above
