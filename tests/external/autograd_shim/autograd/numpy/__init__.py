"""NumPy, which asks traced arrays what its functions of them are."""

from typing import Any

import numpy
from numpy import fft, linalg, random

import mixad

__all__ = ["array", "fft", "linalg", "random"]


def __getattr__(name: str) -> Any:
    return getattr(numpy, name)


row_stack = numpy.vstack


def array(values: Any, *args: Any, **kwargs: Any) -> Any:
    """Return an array, of lists of traced numbers too: NumPy does not ask these."""
    if any(hasattr(leaf, "__mixad_tracer__") for leaf in mixad.pytree.leaves(values)):
        return mixad.namespace_of(numpy).asarray(values, *args, **kwargs)
    return numpy.array(values, *args, **kwargs)


def make_diagonal(values: Any, offset: int = 0, axis1: int = -1, axis2: int = -2) -> Any:
    """Return matrices with vectors as their diagonals: a function of autograd's own."""
    return values[..., None] * numpy.eye(values.shape[-1])
