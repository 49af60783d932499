"""Activations of neural networks, and the rectifiers and thresholds that they are made of."""

from __future__ import annotations

import math

from mixad.special.calling import Number, documented
from mixad.special.table import erfc, expm1, logaddexp, sigmoid

__all__ = ["elu", "gelu", "gelu_tanh", "hardtanh", "leaky_relu", "log_sigmoid", "silu", "softplus",
           "softsign"]  # fmt: skip


@documented
def softplus(x: Number) -> Number:
    """Return log(1 + exp(x)) without overflow."""
    return logaddexp(x, 0.0)


@documented
def silu(x: Number) -> Number:
    """Return x · sigmoid(x)."""
    return x * sigmoid(x)


@documented
def gelu(x: Number) -> Number:
    """Return x · Φ(x), with the normal distribution function Φ (not its tanh approximation)."""
    return 0.5 * x * erfc(x * (-1 / math.sqrt(2)))


@documented
def elu(x: Number, alpha: Number = 1.0) -> Number:
    """Return x where it is positive, else alpha · (exp(x) - 1)."""
    return x if x > 0 else alpha * expm1(x)


@documented
def leaky_relu(x: Number, slope: Number = 0.01) -> Number:
    """Return x where it is positive, else slope · x."""
    return x if x > 0 else slope * x


@documented
def softsign(x: Number) -> Number:
    """Return x / (1 + |x|)."""
    return x / (1 + abs(x))


@documented
def log_sigmoid(x: Number) -> Number:
    """Return log(sigmoid(x)), without overflow."""
    return -logaddexp(-x, 0.0)


@documented
def gelu_tanh(x: Number) -> Number:
    """Return the approximation of `gelu` by tanh: x · sigmoid(2u), u = √(2/π) (x + 0.044715 x³)."""
    if abs(x) > 30:  # where it has reached its limits, which powers of x would overflow to get to
        return x if x > 0 else 0.0
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))


@documented
def hardtanh(x: Number, low: Number = -1.0, high: Number = 1.0) -> Number:
    """Return x between two bounds, and beyond them the bound, where derivatives are 0."""
    return low if x <= low else high if x >= high else x
