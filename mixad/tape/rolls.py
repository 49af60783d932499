"""Arrays that are not made: rolled arrays, and sums of these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mixad.kernel.rolls import Shifts
from mixad.scalar.build import Builder
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.ir import Atom
from mixad.tape.kernel_call import KernelCall

__all__ = ["Term", "can_be_added", "rolled", "sum_of"]

_MAX_TERMS = 16
"""Arrays that one kernel adds up."""


class Term(NamedTuple):
    """What is in a register, with its elements rolled along each axis; None: as it is."""

    register: int
    shifts: Shifts | None


def rolled(array: np.ndarray[Any, Any], shifts: Shifts) -> np.ndarray[Any, Any]:
    """Return an array with its elements rolled."""
    return np.roll(array, shifts, tuple(range(array.ndim)))


def can_be_added(terms: Sequence[Term], first: Any, second: Any) -> bool:
    """Whether one kernel adds up terms to NumPy's bits; `first` and `second` are the two sums."""
    return (
        len(terms) <= _MAX_TERMS
        and first.shape == second.shape
        and first.dtype == second.dtype
        and first.dtype in (np.float32, np.float64)
    )


@lru_cache(maxsize=64)
def sum_of(count: int, dtype: np.dtype[Any]) -> KernelCall:
    """Return the call that adds up so many arrays, one after another."""
    builder, type = Builder("add"), scalar_type_of(dtype)
    total: Atom
    total, *others = [builder.param(f"x{at}", type) for at in range(count)]
    for other in others:
        total = builder.op("add", total, other)
    return KernelCall.storing(builder.finish([total]))
