"""Statistical functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mixad.backends.arrays import library_of, scalar_type_of
from mixad.errors import TracerError
from mixad.namespace.data_types import astype
from mixad.namespace.manipulation import normalized_axes, reshape
from mixad.tape.broadcasting import sum_to

__all__ = ["mean", "total"]

Axis = int | Sequence[int] | None


def total(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the sum over axes, all of them for None.

    Parameters
    ----------
    x : array or Tracer
        Of floats.
    axis : int or sequence of int, optional
        What to sum over.
    dtype : dtype, optional
        What the elements are converted to first.
    keepdims : bool
        Whether summed axes stay, with length 1.

    Returns
    -------
    array or Tracer
        The sums; a plain array if the dtype is no float: then there is no derivative.
    """
    if dtype is not None:
        x = astype(x, dtype)
        if not scalar_type_of(x.dtype).is_float:
            axes = normalized_axes(axis, x.ndim)
            return library_of(x).xp.sum(x, axis=axes, dtype=x.dtype, keepdims=keepdims)
    if axis is None and not keepdims:
        return sum_to(x, ())
    axes = normalized_axes(axis, x.ndim)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    if keepdims:
        return sum_to(x, kept)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    leading = set(axes) == set(range(len(axes)))  # then the shape without them broadcasts back
    return sum_to(x, shape) if leading else reshape(sum_to(x, kept), shape)


def mean(x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the arithmetic mean over axes: see `total`.

    Raises
    ------
    TracerError
        If the dtype is no float.
    """
    if dtype is not None:
        x = astype(x, dtype)
        if not scalar_type_of(x.dtype).is_float:
            raise TracerError(
                f"mean(dtype={dtype!r}): a mean is computed in a float dtype: pass one, or leave "
                "dtype out"
            )
    count = math.prod(x.shape[i] for i in normalized_axes(axis, x.ndim))
    return total(x, axis, keepdims=keepdims) / count
