"""Kernels of complex numbers, for the tests: functions of one, operators, and longer ones."""

from __future__ import annotations

import cmath
import math

import numpy as np

import mixad
from mixad import special


@mixad.broadcast
def exp(z):
    return np.exp(z)


@mixad.broadcast
def exp2(z):
    return np.exp2(z)


@mixad.broadcast
def expm1(z):
    return np.expm1(z)


@mixad.broadcast
def log(z):
    return cmath.log(z)


@mixad.broadcast
def log2(z):
    return np.log2(z)


@mixad.broadcast
def log10(z):
    return np.log10(z)


@mixad.broadcast
def log1p(z):
    return np.log1p(z)


@mixad.broadcast
def sqrt(z):
    return special.sqrt(z)


@mixad.broadcast
def sin(z):
    return np.sin(z)


@mixad.broadcast
def cos(z):
    return np.cos(z)


@mixad.broadcast
def tan(z):
    return np.tan(z)


@mixad.broadcast
def sinh(z):
    return cmath.sinh(z)


@mixad.broadcast
def cosh(z):
    return cmath.cosh(z)


@mixad.broadcast
def tanh(z):
    return cmath.tanh(z)


FUNCTIONS = {
    f.__name__: f
    for f in (exp, exp2, expm1, log, log2, log10, log1p, sqrt, sin, cos, tan, sinh, cosh, tanh)
}


@mixad.broadcast
def add(a, b):
    return a + b


@mixad.broadcast
def sub(a, b):
    return a - b


@mixad.broadcast
def mul(a, b):
    return a * b


@mixad.broadcast
def div(a, b):
    return a / b


@mixad.broadcast
def power(a, b):
    return a**b


OPERATORS = {f.__name__: f for f in (add, sub, mul, div)}


@mixad.broadcast
def cell(z, w):
    """Take branches by parts, mix real with complex, return all kinds."""
    y = np.exp(z) / w if z.real > w.real else abs(w)
    return y * z.conjugate(), y == z, abs(z) + math.exp(w.imag)


@mixad.broadcast
def mandelbrot(c, most):
    """Escape time, and the estimate of the distance from the set."""
    z, dz, turns = 0j, 0j, 0
    while abs(z) < 1e3 and turns < most:
        dz = 2 * z * dz + 1
        z = z * z + c
        turns += 1
    return turns, abs(z) * math.log(abs(z)) / abs(dz)


@mixad.broadcast
def newton_fractal(z, a):
    """The root of z³ = a that Newton's method finds from z."""
    for _ in range(40):
        step = (z**3 - a) / (3 * z**2)
        z = z - step
        if abs(step) < 1e-14:
            break
    return z


@mixad.broadcast
def gain(omega, damping, stiffness):
    """|H(iω)|² of a damped oscillator."""
    s = complex(0.0, omega)
    h = 1 / (s * s + damping * s + stiffness)
    return abs(h) ** 2


@mixad.broadcast
def airy_step(y, slope, z, h):
    """One step of Runge and Kutta for y'' = z y along a line in the plane."""

    def derivative(t, u, v):
        return v, t * u

    a, b = derivative(z, y, slope)
    c, d = derivative(z + h / 2, y + h / 2 * a, slope + h / 2 * b)
    e, f = derivative(z + h / 2, y + h / 2 * c, slope + h / 2 * d)
    g, k = derivative(z + h, y + h * e, slope + h * f)
    return y + h / 6 * (a + 2 * c + 2 * e + g), slope + h / 6 * (b + 2 * d + 2 * f + k)
