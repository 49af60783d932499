"""Functions that return their arguments or views of them: which results share memory with these.

A recorded call runs on arrays, and its results are new tracers. In plain code a result may be an
argument itself, a view of it, or another result: the tracers then note that they share memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mixad.backends.arrays import is_array
from mixad.tape.constant import is_one_memory
from mixad.tape.locks import owner_of
from mixad.tape.memory import share
from mixad.tape.tracer import Tracer

__all__ = ["propagate_aliases"]


def propagate_aliases(
    arguments: Iterable[tuple[Any, Any]], results: Iterable[tuple[Tracer, Any]]
) -> None:
    """Let tracers share memory whose arrays do.

    Each pair is a tracer and the array that the function got or returned for it. Arguments that are
    no tracers are skipped.
    """
    found: dict[int, list[tuple[Tracer, Any]]] = {}
    for tracer, array in arguments:
        if isinstance(tracer, Tracer) and is_array(array):
            found.setdefault(_key(array), []).append((tracer, array))
    for tracer, array in results:
        if is_array(array):
            near = found.setdefault(_key(array), [])
            base = next((base for base, other in near if is_one_memory(array, other)), None)
            share(tracer, base)
            near.append((tracer, array))


def _key(array: Any) -> int:
    """Return a key that is equal for arrays that may share memory."""
    if isinstance(array, np.ndarray):
        return id(owner_of(array))
    storage = getattr(array, "untyped_storage", None)  # torch's
    return int(storage().data_ptr()) if storage else id(array)
