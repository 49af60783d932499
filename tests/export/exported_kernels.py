"""Kernels that the tests export."""

import numpy as np

import mixad
from mixad.special import exp, tanh

GAIN = 3.0


@mixad.broadcast
def model(x, a, b):
    """One argument of the full shape, two that broadcast, a number from outside."""
    if x > b:
        return tanh(x * a + b) * GAIN
    return exp(-x * x) * a


@mixad.broadcast
def scaled(x, factor, n):
    return x * factor + n, x > 0.5


@mixad.broadcast
def three(x, rows, columns, planes):
    return x * rows * columns + planes * rows


@mixad.broadcast
def halves(x):
    """A loop whose turns depend on the element."""
    n = 0
    while x > 1.0:
        x = x * 0.5
        n = n + 1
    return x, n


@mixad.broadcast
def looked_up(t: mixad.Array, i, x):
    return t[i] * x


@mixad.broadcast
def whole(a, b):
    return a * 3 + (b << 2) - (a & b)


@mixad.broadcast
def divided(x):
    """A function of libm, by vectors of libmvec where they are."""
    return np.arctan(x) / np.cbrt(x)


@mixad.broadcast(signature="(3),(3)->()")
def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@mixad.broadcast
def endless(x):
    while x < 2.0:
        x = x * 1.0
    return x


@mixad.broadcast
def four(x, a, b):
    """Sums over two axes of four, and over the other two."""
    return tanh(x * a) * b


@mixad.broadcast
def two(x, a, b, c):
    """Two results, a branch, arguments of two types."""
    if a > 0.3:
        return tanh(x * a) * c, a * b * c
    return x * b * c + exp(-b * b), a - c


@mixad.broadcast
def product(z, w):
    return z * w, z.real


@mixad.broadcast
def constant(x, y):
    """The gradient of y is zero whatever the values are."""
    return x * x if y > 0.0 else x


@mixad.broadcast
def squared(x, n):
    """Python integers that may be too large for their type."""
    k = n * n
    return x * k
