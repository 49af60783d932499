"""One launch of a CPU kernel: addresses filled in, sums of tiles added up."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from ctypes import c_size_t
from typing import Any

import numpy as np

from mixad.backends.cpu import buffers
from mixad.kernel.arguments import ArgumentBlock
from mixad.kernel.binding import Binding, Result
from mixad.kernel.boxes import Box, without
from mixad.kernel.tiling import padded_columns
from mixad.scalar.narrow import to_memory
from mixad.scalar.types import ScalarType

__all__ = ["address", "allocated", "filled", "finished", "tree_sum"]

_LINE = 64
"""Bytes of a cache line, on which streamed results begin."""

_DATA = object.__basicsize__
"""How many bytes into an array object its address is (``PyArrayObject_fields.data``)."""

_NOTHING = np.zeros(1, np.float64)
"""What an empty array's address is, so that a kernel can read an element before it is refused."""


def allocated(result: Result, aligned: bool) -> np.ndarray[Any, Any]:
    """Return the memory of an output, zero where the kernel does not write.

    Parameters
    ----------
    result : Result
        The output.
    aligned : bool
        Whether the first element that is written begins a line of the cache.
    """
    dtype, part = result.held.dtype, result.part
    if result.is_summed_by_columns:
        *outer, extent = result.memory
        return buffers.empty((*outer, padded_columns(extent)), dtype)[..., :extent]
    if part is None:
        return buffers.empty(result.memory, dtype, aligned=aligned)
    lead = -result.first % (_LINE // dtype.itemsize)
    flat = buffers.empty((lead + math.prod(result.memory),), dtype, aligned=aligned)
    whole = flat[lead:].reshape(result.memory)
    written = Box(part.starts, part.extents)
    for box in without(Box((0,) * len(part.whole), part.whole), written):
        whole[box.slices] = 0
    return whole


def filled(
    binding: Binding,
    views: Sequence[np.ndarray[Any, Any]],
    arguments: Sequence[Any],
    results: Sequence[np.ndarray[Any, Any]],
    status: array[int],
) -> array[int]:
    """Return the argument block of one call.

    Parameters
    ----------
    binding : Binding
        The launch.
    views : sequence of ndarray
        The arrays, in the order of ``binding.arrays``.
    arguments : sequence
        All arguments of the call, for the uniforms among them.
    results : sequence of ndarray
        Memory for the outputs.
    status : array of int32
        Two words: a request to stop, and the array that was read outside its extents.
    """
    words = binding.words[:]
    flags = status.buffer_info()[0]
    words[ArgumentBlock.STOP] = flags
    words[ArgumentBlock.OUTSIDE] = flags + status.itemsize
    for view, (_, at) in zip(views, binding.arrays, strict=True):
        words[at] = address(view if view.size else _NOTHING)
    for k, at, type in binding.uniforms:
        words[at] = binding.word(k, arguments[k], type)
    for result, output in zip(results, binding.outputs, strict=True):
        words[output.position] = address(result) + output.first * output.held.itemsize
    return words


def finished(
    result: Result, memory: np.ndarray[Any, Any], axes: tuple[int, ...] | None
) -> np.ndarray[Any, Any]:
    """Return an output from what the kernel left.

    Parameters
    ----------
    result : Result
        Which output.
    memory : ndarray
        What the kernel wrote.
    axes : tuple of int or None
        The permutation from the order of the loops to the caller's.
    """
    if result.summed is not None:
        for axis in result.summed:
            if memory.shape[axis] > 1:
                memory = tree_sum(memory, axis)
        memory = _summed_columns(result, memory)
        memory = np.ascontiguousarray(_rounded(memory, result.type)).reshape(result.shape)
    if axes is not None:
        memory = memory.transpose((*axes, *range(len(axes), memory.ndim)))
    return memory if memory.shape == result.final else memory.reshape(result.final)


def _summed_columns(result: Result, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what is left once the axes are summed that are within the last one of the memory."""
    if not result.columns:
        return memory
    first = memory.ndim - 1
    memory = memory.reshape(*memory.shape[:-1], *(extent for extent, _ in result.columns))
    for axis, (_, is_sum) in enumerate(result.columns, first):
        if is_sum:
            memory = tree_sum(memory, axis)
    return memory


def _rounded(sums: np.ndarray[Any, Any], type: ScalarType) -> np.ndarray[Any, Any]:
    """Return sums in the type of the output."""
    return to_memory(sums, type) if type.is_narrow else sums.astype(type.dtype, copy=False)


def tree_sum(values: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    """Sum along an axis by a binary tree that depends on nothing but the extent.

    The axis is kept with extent 1.  ``values`` may be overwritten.  These are few partial sums, in
    `mixad.kernel.tiling.accumulator`'s type, not the elements, for which the reference backend has
    `mixad.emit.array_run.sum_by_halves`: the two agree up to rounding only.
    """
    values = np.moveaxis(values, axis, 0)
    count = len(values)
    with np.errstate(all="ignore"):
        while count > 1:
            half = count // 2
            values[:half] += values[count - half : count]
            count -= half
    return np.moveaxis(values[:1], 0, axis)


def address(array: np.ndarray[Any, Any]) -> int:
    """Return where an array begins.

    Every extension that is compiled against NumPy reads it there: the first word after the head of
    the object.  `ndarray.ctypes` takes ten times as long, a buffer three times.
    """
    return c_size_t.from_address(id(array) + _DATA).value
