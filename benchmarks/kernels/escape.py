"""The Mandelbrot set from outside: when a point escapes, and how far away the set is."""

from __future__ import annotations

import math


def escape(re, im, limit):
    """Return after how many steps of z -> z² + c the point leaves a disc, and the potential there.

    The count is made continuous; the potential is log |z|.  Its gradient by c is |z'| / |z|: then
    log |z| over that estimates the distance to the set, |z| log |z| / |z'|, half of Milnor's
    ("Self-similarity and hairiness in the Mandelbrot set", 1989).  Both are 0 where it does not
    leave.
    """
    x, y = 0.0, 0.0
    for n in range(limit):
        x, y = x * x - y * y + re, 2.0 * x * y + im
        square = x * x + y * y
        if square > 1e6:
            return n + 1.0 - math.log2(0.5 * math.log(square)), 0.5 * math.log(square)
    return 0.0, 0.0
