"""Arrays of Cubed: functions of blocks as one operation with several results.

A result has an element for each block along what is summed; one tree of sums adds these up.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mixad.backends.array_memory import Array
from mixad.backends.chunked_arrays import BlockResult, Operand, chunks_in
from mixad.errors import KernelTypeError

__all__ = ["CubedBlocks"]

_SPLIT_EVERY = 16
"""Blocks whose sums one task adds up; each level of the tree is a round of tasks."""


class CubedBlocks:
    """What mixad asks of Cubed: see `mixad.backends.chunked_arrays.Chunked`."""

    def check(self, array: Array) -> None:
        """Refuse an array with a specification of its own: constants made here have the default."""
        cubed = _module()
        if array.spec != sys.modules["cubed.spec"].spec_from_config(cubed.config):
            raise KernelTypeError(
                "a Cubed array whose specification is not the default one is not supported: "
                "constants beside it have the default, and Cubed computes no two together",
                hint='make it the default, cubed.config.set({"spec.allowed_mem": "4GB"}), in place '
                "of spec=",
            )

    def asarray(self, value: Any) -> Array:
        """Return a lazy array as it is, and an array of NumPy as a lazy one."""
        cubed = _module()
        return value if isinstance(value, cubed.Array) else cubed.from_array(value, chunks=-1)

    def with_plain_blocks(
        self, array: Array, beside: Array | None = None, what: str = "mixad"
    ) -> Array:
        """Return the array: what Cubed stores between operations are plain arrays."""
        return array

    def broadcast_to(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Return a view in a larger shape, which has chunks along new axes."""
        chunks = chunks_in(array, shape)
        found = sys.modules["cubed.utils"].normalize_chunks(chunks, shape, dtype=array.dtype)
        return _module().broadcast_to(array, shape, chunks=found)

    def apply_whole(
        self, function: Callable[..., Any], shape: tuple[int, ...], dtype: Any, *arrays: Array
    ) -> Array:
        """Return what a function of whole arrays of NumPy gives."""
        whole = tuple([(extent,) for extent in shape])
        operands = [(array.rechunk(-1), ()) for array in arrays]
        return _mapped(function, operands, [(shape, dtype, whole)])[0]

    def map_blocks(
        self,
        name: str,
        function: Callable[..., tuple[Any, ...]],
        rank: int,
        operands: Sequence[Operand],
        results: Sequence[BlockResult],
    ) -> tuple[Array, ...]:
        """Return what a function gives of all blocks, added up where blocks are summed."""
        operands, chunks = _aligned(operands, rank)
        parts = []
        for result in results:
            own = [
                chunks[axis] if axis in result.axes else (1,) * len(chunks[axis])
                for axis in range(rank)
            ]
            parts.append((tuple(map(sum, own)), result.dtype, tuple(own)))
        values = {at: operand for at, (operand, axes) in enumerate(operands) if axes is None}
        arrays = [(operand, axes) for operand, axes in operands if axes is not None]
        found = _mapped(partial(_block, function, values, rank), arrays, parts)
        return tuple([_summed(a, r, chunks) for a, r in zip(found, results, strict=True)])


def _module() -> Any:
    return sys.modules["cubed"]


_Chunks = tuple[tuple[int, ...], ...]


def _aligned(operands: Sequence[Operand], rank: int) -> tuple[list[Operand], _Chunks]:
    """Return the operands cut alike, and the chunks along all axes of the blocks."""
    cut = [at for at, (_, axes) in enumerate(operands) if axes]
    pairs = [part for at in cut for part in operands[at]]
    chunks, arrays = sys.modules["cubed.core.ops"].unify_chunks(*pairs)
    found = list(operands)
    for at, array in zip(cut, arrays, strict=True):
        found[at] = (array, operands[at][1])
    return found, tuple([chunks[axis] for axis in range(rank)])


def _mapped(
    function: Callable[..., Any],
    operands: Sequence[tuple[Array, tuple[int, ...]]],
    outputs: Sequence[tuple[tuple[int, ...], Any, _Chunks]],
) -> tuple[Array, ...]:
    """Return arrays of some shapes, dtypes and chunks, all of which one task a block makes."""
    shapes, dtypes, chunks = zip(*outputs, strict=True)
    sizes = [
        math.prod(map(max, own)) * np.dtype(dtype).itemsize
        for dtype, own in zip(dtypes, chunks, strict=True)
    ]
    found = sys.modules["cubed.core.ops"].general_blockwise(
        function,
        partial(_keys, [(array.name, array.numblocks, axes) for array, axes in operands]),
        *[array for array, _ in operands],
        shapes=shapes,
        dtypes=dtypes,
        chunkss=chunks,
        target_stores=[None] * len(outputs) if len(outputs) > 1 else None,
        extra_projected_mem=sum(sizes) - max(sizes),  # Cubed counts one result
    )
    return found if isinstance(found, tuple) else (found,)


def _keys(operands: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]], block: Any) -> Any:
    """Return which block of each operand makes a block of the results."""
    of_blocks = sys.modules["cubed.primitive.blockwise"]
    keys = [
        of_blocks.ChunkKey(
            name, tuple([block.coords[axes[k]] if n > 1 else 0 for k, n in enumerate(numbers)])
        )
        for name, numbers, axes in operands
    ]
    return of_blocks.FunctionArgs(*keys, output_name=block.name)


def _block(
    function: Callable[..., tuple[Any, ...]], numbers: dict[int, Any], rank: int, *blocks: Any
) -> Any:
    """Return what a function gives of a block, with all axes that blocks have."""
    rest = iter(blocks)
    count = len(numbers) + len(blocks)
    results = function(*[numbers[at] if at in numbers else next(rest) for at in range(count)])
    found = tuple(
        [np.asarray(r).reshape((1,) * (rank - np.ndim(r)) + np.shape(r)) for r in results]
    )
    return found if len(found) > 1 else found[0]


def _summed(array: Array, result: BlockResult, chunks: _Chunks) -> Array:
    """Return a result, given one that has an element for each block along what is summed."""
    ops = sys.modules["cubed.core.ops"]
    over = [a for a, own in enumerate(chunks) if len(own) > 1 and a not in result.axes]
    if over:
        array = ops.tree_reduce(array, _added, tuple(over), result.dtype, split_every=_SPLIT_EVERY)
    lead = len(chunks) - len(result.axes)
    return ops.squeeze(array, tuple(range(lead))) if lead else array


def _added(block: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return np.sum(block, axis=axis, keepdims=keepdims, dtype=block.dtype)
