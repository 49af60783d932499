"""Smooth activations of neural networks."""

from __future__ import annotations

import math

from mixad.special.calling import Number, complete_docstring
from mixad.special.table import erfc, logaddexp, sigmoid

__all__ = ["gelu", "gelu_tanh", "log_sigmoid", "silu", "softplus", "softsign"]


@complete_docstring
def softplus(x: Number) -> Number:
    """Return log(1 + exp(x)) without overflow."""
    return logaddexp(x, 0.0)


@complete_docstring
def silu(x: Number) -> Number:
    """Return x · sigmoid(x)."""
    return x * sigmoid(x)


@complete_docstring
def gelu(x: Number) -> Number:
    """Return x · Φ(x), with the normal distribution function Φ (not its tanh approximation)."""
    return 0.5 * x * erfc(x * (-1 / math.sqrt(2)))


@complete_docstring
def softsign(x: Number) -> Number:
    """Return x / (1 + |x|)."""
    inverse = 1 / (1 + abs(x))
    if abs(x) < 1:
        return x * inverse
    return 1 - inverse if x > 0 else inverse - 1  # the derivative of a product would cancel


@complete_docstring
def log_sigmoid(x: Number) -> Number:
    """Return log(sigmoid(x)), without overflow."""
    return -logaddexp(-x, 0.0)


@complete_docstring
def gelu_tanh(x: Number) -> Number:
    """Return the approximation of `gelu` by tanh: x · sigmoid(2u), u = √(2/π) (x + 0.044715 x³)."""
    if abs(x) > 30:  # where it has reached its limits, which powers of x would overflow to get to
        return x if x > 0 else 0.0
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))
