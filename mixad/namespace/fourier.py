"""Fourier transform functions without complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.namespace.manipulation import normalized_axes, roll

__all__ = ["fftshift", "ifftshift"]


def fftshift(x: Any, *, axes: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` with the middle of axes where they began; of all axes for None."""
    along = normalized_axes(axes, x.ndim)
    return roll(x, tuple(x.shape[a] // 2 for a in along), axis=along)


def ifftshift(x: Any, *, axes: int | Sequence[int] | None = None) -> Any:
    """Undo `fftshift`."""
    along = normalized_axes(axes, x.ndim)
    return roll(x, tuple(-(x.shape[a] // 2) for a in along), axis=along)
