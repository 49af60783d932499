"""Results of CPU kernels: memory that is allocated, sums of tiles and slabs that are added up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends.cpu import buffers
from mixad.backends.cpu.steps import narrow_block, sum_block
from mixad.backends.protocols import LaunchBlock, Written
from mixad.kernel.binding import ArgumentBlock, Result
from mixad.kernel.boxes import Box, subtract_box
from mixad.kernel.tiling import padded_columns
from mixad.scalar.narrow import to_memory
from mixad.scalar.types import F32, F64, ScalarType
from mixad.scalar.updates import OPS, neutral

__all__ = ["Output", "allocator", "output_of", "written_part", "written_whole"]

_Array: TypeAlias = np.ndarray[Any, Any]

_LINE = 64
"""Bytes of a cache line, on which streamed results begin."""


class Output(NamedTuple):
    """The memory of an output, and what is made of it."""

    position: int  # of the word for its address
    make: Callable[[], _Array]  # returns the memory
    first: int = 0  # bytes of it before the output
    finish: Callable[[_Array], _Array] | None = None  # None if the output is the memory


def output_of(result: Result, block: ArgumentBlock, aligned: bool) -> Output:
    """Return how one output is allocated and finished."""
    dtype = result.held.dtype
    if result.is_accumulated and result.summed is not None:
        make: Callable[[], _Array] = partial(_initial_memory, result)
    elif not block.tiles:
        make = partial(np.zeros, result.memory, dtype)
    elif block.axes is None and result.is_left_whole:
        return Output(result.position, allocator(result.final, dtype, aligned))
    else:
        make = partial(_allocate, result, aligned)
    needs_finish = block.axes is not None or not result.is_finished
    finishes = partial(_finish, result, axes=block.axes) if needs_finish else None
    return Output(result.position, make, result.first * dtype.itemsize, finishes)


def _initial_memory(result: Result) -> _Array:
    """Return an accumulator's initial memory.

    An array without elements gets one behind it: lanes without a place of their own add a neutral
    value to the first.
    """
    count, dtype = math.prod(result.memory), result.held.dtype
    if result.update == "add":  # pages that nothing is added to are not touched
        memory = np.zeros(max(1, count), dtype)
    else:
        memory = np.full(max(1, count), neutral(result.update or "add", result.held), dtype)
    return memory[:count].reshape(result.memory)


def allocator(shape: tuple[int, ...], dtype: np.dtype[Any], aligned: bool) -> Callable[[], _Array]:
    """Return a function that makes an array; small ones do not come from the pool."""
    if aligned or math.prod(shape) * dtype.itemsize >= buffers.SMALLEST:
        return partial(buffers.empty, shape, dtype, aligned=aligned)
    return partial(np.empty, shape, dtype)


def _allocate(result: Result, aligned: bool) -> _Array:
    """Return the memory of an output, zero where the kernel does not write.

    With ``aligned`` the first element that is written begins a cache line.
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
    for box in subtract_box(Box((0,) * len(part.whole), part.whole), written):
        whole[box.slices] = 0
    return whole


def _finish(result: Result, memory: _Array, axes: tuple[int, ...] | None) -> _Array:
    """Return an output from the kernel's memory.

    ``axes`` is the permutation from the order of the loops to the caller's.
    """
    if result.summed is not None:
        combine = getattr(np, OPS[result.update or "add"])
        for axis in result.summed:
            if memory.shape[axis] > 1:
                memory = _tree_sum(memory, axis, combine)
        memory = _summed_columns(result, memory)
        sums = np.ascontiguousarray(_round_sums(memory, result.type)).reshape(result.shape)
        # An array that is handed out does not keep the copies of all slabs.
        memory = sums.copy() if result.is_accumulated and result.memory[0] > 1 else sums
    if axes is not None and not result.is_accumulated:
        memory = memory.transpose((*axes, *range(len(axes), memory.ndim)))
    return memory if memory.shape == result.final else memory.reshape(result.final)


def _summed_columns(result: Result, memory: _Array) -> _Array:
    """Return the memory after the sums over axes that its last one contains."""
    if not result.columns:
        return memory
    first = memory.ndim - 1
    memory = memory.reshape(*memory.shape[:-1], *(extent for extent, _ in result.columns))
    for axis, (_, is_sum) in enumerate(result.columns, first):
        if is_sum:
            memory = _tree_sum(memory, axis)
    return memory


def _round_sums(sums: _Array, type: ScalarType) -> _Array:
    """Return sums in the type of the output."""
    if type.is_narrow:
        return to_memory(sums, type)
    if sums.dtype == type.dtype:
        return sums
    with np.errstate(all="ignore"):
        return sums.astype(type.dtype)


def _tree_sum(values: _Array, axis: int, combine: np.ufunc = np.add) -> _Array:
    """Sum partial sums along an axis, kept with extent 1, by a binary tree of the extent alone.

    ``values`` may be overwritten. They have `mixad.kernel.tiling.accumulator`'s type; elements are
    summed by `mixad.emit.array_run.sum_by_halves`, which agrees up to rounding only.
    """
    values = np.moveaxis(values, axis, 0)
    count = len(values)
    with np.errstate(all="ignore"):
        while count > 1:
            half = count // 2
            combine(values[:half], values[count - half : count], out=values[:half])
            count -= half
    return np.moveaxis(values[:1], 0, axis)


# -- results of steps: no Python finishes them -----------------------------------------------------


def written_part(result: Result) -> Written:
    """Return where a slice of an array is written."""
    return Written(result.position, 0, (), result.first * result.held.dtype.itemsize)


def written_whole(result: Result, axes: tuple[int, ...] | None) -> Written | None:
    """Return where a result goes and what finishes it; None if Python has to do that.

    ``axes`` is as in `_finish`.
    """
    if result.part is not None or result.is_accumulated or not _is_in_order(result, axes):
        return None
    shape, size = list(result.memory), result.held.dtype.itemsize
    if result.summed is None:
        is_final = result.memory in (result.final, result.shape)
        return Written(result.position, math.prod(shape) * size) if is_final else None
    padded = padded_columns(shape[-1]) if result.is_summed_by_columns else shape[-1]
    finish, room = list[tuple[bool, LaunchBlock]](), math.prod((*shape[:-1], padded)) * size
    shape[-1] = padded
    if padded != result.memory[-1] and math.prod(shape[:-1]) > shape[-2]:
        return None  # there would be gaps between blocks of rows
    finish += _sums(shape, [(axis, shape[axis]) for axis in result.summed])
    if result.columns:
        shape = [*shape[:-1], *[extent for extent, _ in result.columns]]
        first = len(result.memory) - 1
        columns = enumerate(result.columns, first)
        finish += _sums(shape, [(axis, extent) for axis, (extent, is_sum) in columns if is_sum])
    if finish and result.held != F64:
        return None
    if result.held != result.type:
        if (result.held, result.type) != (F64, F32):
            return None
        finish.append((False, narrow_block(math.prod(result.final))))
    return Written(result.position, room, tuple(finish))


def _is_in_order(result: Result, axes: tuple[int, ...] | None) -> bool:
    """Whether memory has the elements in the caller's order; axes of length 1 do not matter."""
    places = [axis for axis in axes or () if result.shape[axis] > 1]
    return places == sorted(places)


def _sums(shape: list[int], axes: Sequence[tuple[int, int]]) -> list[tuple[bool, LaunchBlock]]:
    """Return a function that adds up along axes in place; their extents become 1."""
    found = []
    for axis, extent in axes:
        if extent > 1:
            after, before = math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
            found.append((True, sum_block(extent, after, before)))
            shape[axis] = 1
    return found
