"""Weights of torch's losses and layers: their shapes are checked, and rows of them taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.namespace.indexing import gather, positions_of

__all__ = ["check_shape", "rows"]


def check_shape(called: str, name: str, given: Any, shape: Sequence[int]) -> None:
    """Refuse a shape that NumPy would broadcast and torch does not."""
    if tuple(given.shape) != tuple(shape):
        raise ValueError(
            f"{called}() got {name} of shape {tuple(given.shape)}: it has to be of shape "
            f"{tuple(shape)}, torch does not broadcast it"
        )


def rows(x: Any, index: Any) -> Any:
    """Return the slices of ``x`` at indices along the first axis, counted from its start."""
    places = positions_of(x).index_select(0, index.reshape(-1))  # refuses those that are negative
    return gather(x, places.reshape((*index.shape, *x.shape[1:])))
