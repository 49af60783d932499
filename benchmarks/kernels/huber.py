"""Huber's loss: quadratic for small residuals, linear for large ones (Huber, 1964)."""

from __future__ import annotations


def huber(r, delta):
    """Return the loss of one residual."""
    size = abs(r)
    if size <= delta:
        return 0.5 * r * r
    return delta * (size - 0.5 * delta)
