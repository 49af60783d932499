"""Basic indexing: whole numbers, slices, ellipsis, new axes."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any

import numpy as np
from array_api_compat import device, is_writeable_array

from mixad.errors import TracerError
from mixad.tape.node import Rule, apply_rule

__all__ = ["getitem"]

_Key = tuple[Any, ...]


def getitem(x: Any, key: Any) -> Any:
    """Return ``x[key]`` for a key without arrays.

    Raises
    ------
    TracerError
        For keys that select by arrays.
    """
    keys = key if isinstance(key, tuple) else (key,)
    return apply_rule(_GETITEM, x, key=tuple(map(_basic, keys)))


_GETITEM = Rule(
    "indexing",
    lambda xp, x, key: x[key],
    (lambda g, x, key: _place(g, tuple(x.shape), key),),
    fresh=True,
    linear="each",
)


def _place(g: Any, shape: tuple[int, ...], key: _Key) -> Any:
    """Return zeros of a shape with ``g`` at ``key``: the adjoint of basic indexing."""
    return apply_rule(_PLACE, g, shape=shape, key=key)


def _placed(xp: Any, g: Any, shape: tuple[int, ...], key: _Key) -> Any:
    whole = xp.zeros(shape, dtype=g.dtype, device=device(g))
    if not is_writeable_array(whole):
        return _gathered(xp, g, shape, key)
    axes = tuple(k for k in key if k is not None)  # the standard assigns to no new axes
    if Ellipsis not in axes:
        axes = (*axes, Ellipsis)
    whole[axes] = xp.reshape(g, whole[axes].shape)
    return whole


def _gathered(xp: Any, g: Any, shape: tuple[int, ...], key: _Key) -> Any:
    """Return what `_placed` does, of arrays that cannot be written to: each element is looked up.

    Elements outside of the key are looked up behind the last of ``g``, where there is a zero.
    """
    size = math.prod(g.shape)
    sources = np.full(shape, size)
    sources[key] = np.arange(size).reshape(g.shape)
    zero = xp.zeros(1, dtype=g.dtype, device=device(g))
    found = xp.take(
        xp.concat([xp.reshape(g, (-1,)), zero]),
        xp.asarray(sources.reshape(-1), device=device(g)),
        axis=0,
    )
    return xp.reshape(found, shape)


_PLACE = Rule(
    "the adjoint of indexing",
    _placed,
    (lambda g, x, shape, key: getitem(g, key),),
    linear="each",
)


def _basic(key: Any) -> Any:
    if key is None or key is Ellipsis or isinstance(key, slice):
        return key
    if not isinstance(key, bool):
        with contextlib.suppress(TypeError):
            return operator.index(key)
    raise TracerError(
        f"an array that is being differentiated cannot be indexed by a {type(key).__name__} yet: "
        "use whole numbers, slices, ... and None"
    )
