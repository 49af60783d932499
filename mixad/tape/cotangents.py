"""Cotangents on their way back, and sums of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mixad.tape.kernel_call import Shape
from mixad.tape.node import added

__all__ = ["Cotangent", "takes", "together"]


class Cotangent(NamedTuple):
    """A cotangent on its way; ``fresh`` says that nothing else holds its array."""

    value: Any
    fresh: bool

    def is_own(self, shape: Shape) -> bool:
        """Whether it is a value's whole cotangent, in an array that may be changed."""
        return self.fresh and tuple(self.value.shape) == shape


def together(known: Cotangent, value: Any, fresh: bool) -> Cotangent:
    """Return the sum of two cotangents, in the memory of one that nothing else holds.

    New memory for large ones would cost more than the sum: its pages are new to the process.
    """
    own, other = (known.value, value) if known.fresh else (value, known.value)
    if (known.fresh or fresh) and takes(own, other):
        own += other
        return Cotangent(own, True)
    return Cotangent(added(known.value, value), True)


def takes(own: Any, other: Any) -> bool:
    """Whether one array can be added to another in place: NumPy arrays tell."""
    return (
        type(own) is np.ndarray
        and type(other) is np.ndarray
        and own.shape == other.shape
        and own.dtype == other.dtype
        and own.flags.writeable
    )
