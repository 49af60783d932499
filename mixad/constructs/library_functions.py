"""Functions of libraries that are reductions and scans by an operator, under their names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mixad.constructs.associative import associative_scan, reduce
from mixad.constructs.histograms import reduce_by_index
from mixad.errors import KernelShapeError
from mixad.namespace.assignment import setitem
from mixad.namespace.creation import zeros_like
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import array_beside
from mixad.namespace.indexing import positions_of
from mixad.namespace.joining import broadcast_to
from mixad.namespace.manipulation import moveaxis, normalized_axes, permute_dims, reshape
from mixad.namespace.spelling import function_of
from mixad.namespace.spellings import NUMPY
from mixad.namespace.torch_reductions import Selected
from mixad.namespace.torch_spellings import TORCH
from mixad.tape.node import library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["add_library_functions"]


def add_library_functions() -> None:
    """Let traced values take this module's functions, which stand above the namespace's."""
    for ufunc in (np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2):
        name = ufunc.__name__
        NUMPY.functions[f"{name}.accumulate"] = function_of(
            _accumulate(ufunc), "array=x / axis dtype out"
        )
        if f"{name}.reduce" not in NUMPY.functions:
            NUMPY.functions[f"{name}.reduce"] = function_of(
                _reduce(ufunc), "array=x / axis dtype out keepdims initial"
            )
    for changing in (np.multiply, np.maximum, np.minimum):
        spelled = f"{changing.__name__}.at"
        NUMPY.functions[spelled] = function_of(_change_at(changing), "a=x indices b /")
    NUMPY.functions["add.reduceat"] = function_of(_sums_between, "array=x / indices axis dtype out")
    TORCH.functions["logcumsumexp"] = function_of(_logcumsumexp, "input dim")
    TORCH.functions["cummax"] = function_of(_first_of(_larger), "input dim")
    TORCH.functions["cummin"] = function_of(_first_of(_smaller), "input dim")


def _accumulate(ufunc: np.ufunc) -> Callable[..., Any]:
    def accumulate(x: Any, axis: int = 0, dtype: Any = None) -> Any:
        return associative_scan(ufunc, x if dtype is None else astype(x, dtype), axis)

    return accumulate


def _reduce(ufunc: np.ufunc) -> Callable[..., Any]:
    def reduced(
        x: Any, axis: int | None = 0, *, dtype: Any = None, keepdims: bool = False,
        initial: Any = None,
    ) -> Any:  # fmt: skip
        x = x if dtype is None else astype(x, dtype)
        axes = normalized_axes(axis, x.ndim)
        kept = [a for a in range(x.ndim) if a not in axes]
        shape, count = [x.shape[a] for a in kept], math.prod(x.shape[a] for a in axes)
        if initial is None and not count:
            initial = ufunc.identity
        rows = reshape(permute_dims(x, (*kept, *axes)), (*shape, count))
        y = reduce(ufunc, rows, -1, initial=initial)
        return reshape(y, [1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else y

    return reduced


def _change_at(ufunc: np.ufunc) -> Callable[..., None]:
    def change(x: Any, indices: Any, b: Any) -> None:
        keys = indices if isinstance(indices, tuple) else (indices,)
        at = positions_of(x)[tuple(map(primal_value, keys))]
        values = broadcast_to(astype(array_beside(b, x), x.dtype), at.shape)
        changed = reduce_by_index(ufunc, reshape(x, -1), at, values)
        setitem(x, ..., reshape(changed, x.shape))

    return change


def _sums_between(x: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Return the sums from each index to the next along an axis."""
    x = x if dtype is None else astype(x, dtype)
    starts = np.asarray(primal_value(indices))
    if starts.ndim != 1 or not starts.size or (np.diff(starts) <= 0).any() or starts[0] < 0:
        raise KernelShapeError(
            "numpy.add.reduceat of a traced value takes whole numbers that grow",
            hint="mixad.reduce_by_index, or sums of slices",
        )
    moved = moveaxis(x, axis, 0)[int(starts[0]) :]
    count = np.arange(int(starts[0]), int(x.shape[axis]))
    if starts[-1] >= x.shape[axis]:
        raise IndexError(
            f"index {int(starts[-1])} is outside of an axis of {int(x.shape[axis])} elements"
        )
    at = np.searchsorted(starts, count, side="right") - 1
    dest = zeros_like(moved, shape=(len(starts), *moved.shape[1:]))
    return moveaxis(reduce_by_index(np.add, dest, at, moved, indices_are_sorted=True), 0, axis)


def _logcumsumexp(x: Any, axis: int) -> Any:
    return associative_scan(np.logaddexp, x, axis)


def _first_of(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for the largest or smallest element up to each, and its place."""

    def found(x: Any, axis: int) -> Any:
        xp = library_of_value(x).xp
        if not x.shape:
            return Selected(x, xp.zeros((), dtype=xp.int64, device=x.device))
        shape = [1] * len(x.shape)
        shape[axis] = -1
        places = xp.reshape(xp.arange(x.shape[axis], device=x.device), tuple(shape))
        at = xp.broadcast_to(places, tuple(x.shape))
        return Selected(*associative_scan(operator, (x, at), axis))

    return found


def _larger(a: Any, b: Any) -> Any:
    """Return the pair of number and place with the larger number; of equal ones the last."""
    if b[0] >= a[0] or b[0] != b[0]:
        return b
    return a


def _smaller(a: Any, b: Any) -> Any:
    """Return the pair of number and place with the smaller number; of equal ones the last."""
    if b[0] <= a[0] or b[0] != b[0]:
        return b
    return a
