"""Values as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograd.core import make_vjp
from mixad import pytree

__all__ = ["const_graph", "flatten"]


def const_graph(fun: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse: mixad keeps no graph that is run again with other values."""
    raise NotImplementedError("const_graph")


def flatten(value: Any) -> Any:
    """Return a value as a vector, and what gives the value of a vector."""
    unflatten, flat = make_vjp(_flat, value)
    return flat, unflatten


def _flat(value: Any) -> Any:
    leaves = [np.reshape(leaf, -1) for leaf in pytree.leaves(value)]
    return np.concatenate(leaves) if leaves else np.array([])
