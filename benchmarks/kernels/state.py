"""An equation of state, that of Redlich and Kwong (1949), and its inversion."""

from __future__ import annotations

import math

import mixad

R = 0.0831446  # bar L / (mol K)


def pressure(rho, T, a, b):
    """Return the pressure in bar at a density in mol/L."""
    return R * T * rho / (1.0 - b * rho) - a * rho**2 / (math.sqrt(T) * (1.0 + b * rho))


def slope(rho, T, a, b):
    """Return the derivative of the pressure with respect to the density."""
    attraction = rho * (2.0 + b * rho) / (1.0 + b * rho) ** 2
    return R * T / (1.0 - b * rho) ** 2 - a * attraction / math.sqrt(T)


def solved(p, T, a, b):
    """Return the density at a pressure: Newton's method in a bracket that bisection keeps."""
    low, high = 0.0, 1.0 / b
    rho, step = min(p / (R * T), 0.5 / b), 1.0
    while abs(step) > 1e-8 * rho:
        excess = pressure(rho, T, a, b) - p
        if excess > 0.0:
            high = rho
        else:
            low = rho
        newton = rho - excess / slope(rho, T, a, b)
        following = newton if low <= newton <= high else 0.5 * (low + high)
        step = following - rho
        rho = following
    return rho


def density(p, T, a, b):
    """Return the density with the derivatives of the implicit function theorem."""
    rho = mixad.stop_gradient(solved(p, T, a, b))
    return rho - (pressure(rho, T, a, b) - p) / slope(rho, T, a, b)
