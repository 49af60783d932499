"""Arrays of Dask: how their blocks are checked, and how functions of blocks go into the graph.

What is summed over several blocks is added up by one tree of tasks for all results summed over the
same blocks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, reduce
from operator import add
from typing import Any

import numpy as np

from mixad.backends.array_memory import Array
from mixad.backends.chunked_arrays import BlockResult, Operand, chunks_in
from mixad.backends.unsupported_arrays import is_plain, name_of, other_blocks, plain_block
from mixad.config import NUM_THREADS, POOL_BYTES
from mixad.errors import KernelTypeError

__all__ = ["DaskBlocks"]

_SPLIT_EVERY = 16
"""Blocks whose sums one task adds up, unless Dask's ``split_every`` is configured."""

_SHARE = 8
"""The part of a worker's memory that kernels may keep for results to come, as of a machine's."""

_PLAIN_BLOCKS = "mixad-plain"
"""The prefix of the names of arrays whose blocks are checked."""


class DaskBlocks:
    """What mixad asks of Dask: see `mixad.backends.chunked_arrays.Chunked`."""

    def check(self, array: Array) -> None:
        """Refuse an array of unknown shape, and one whose blocks are no plain arrays."""
        if any(map(math.isnan, array.shape)):
            raise KernelTypeError(
                "a Dask array whose shape is not known before it is computed is not supported",
                hint="write numpy.where() in place of x[mask]; call x.compute_chunk_sizes() before",
            )
        if not is_plain(array._meta):
            name = name_of(type(array._meta))
            problem = f"a Dask array of blocks that are {name} is not supported"
            raise other_blocks(problem, array._meta)

    def asarray(self, value: Any) -> Array:
        """Return a lazy array as it is, and an array of NumPy as a lazy one."""
        return _module().asarray(value)

    def with_plain_blocks(
        self, array: Array, beside: Array | None = None, what: str = "mixad"
    ) -> Array:
        """Return an array, each block of which is checked when it is computed.

        With ``beside``, whose axes are the array's last ones, its blocks are checked instead, and
        these axes are cut as it is.
        """
        if type(array) is not _module().Array:
            return array
        if beside is None and array.name.startswith(_PLAIN_BLOCKS):
            return array
        if beside is not None:
            lead = array.ndim - beside.ndim
            cut = {lead + axis: chunks for axis, chunks in enumerate(beside.chunks)}
            array = array.rechunk(cut)
        axes, token = tuple(range(array.ndim)), _PLAIN_BLOCKS if beside is None else "mixad-beside"
        looked_at = () if beside is None else (beside, axes[array.ndim - beside.ndim :])
        return _module().blockwise(
            partial(_if_plain, what), axes, array, axes, *looked_at, token=token,
            dtype=array.dtype, meta=array._meta, concatenate=True,
        )  # fmt: skip

    def broadcast_to(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Return a view in a larger shape, which has chunks along new axes."""
        chunks = chunks_in(array, shape)
        found = sys.modules["dask.array.core"].normalize_chunks(chunks, shape, dtype=array.dtype)
        return _module().broadcast_to(array, shape, chunks=found)

    def apply_whole(
        self, function: Callable[..., Any], shape: tuple[int, ...], dtype: Any, *arrays: Array
    ) -> Array:
        """Return what a function of whole arrays of NumPy gives."""
        delayed = sys.modules["dask"].delayed(function, pure=True)(*arrays)
        return _module().from_delayed(delayed, shape, dtype=dtype)

    def map_blocks(
        self,
        name: str,
        function: Callable[..., tuple[Any, ...]],
        rank: int,
        operands: Sequence[Operand],
        results: Sequence[BlockResult],
    ) -> tuple[Array, ...]:
        """Return what a function gives of all blocks, added up where blocks are summed."""
        blocks = _blocks(name, function, rank, operands)
        several = [axis for axis, number in enumerate(blocks.numblocks) if number > 1]
        together: dict[tuple[int, ...], list[int]] = {}  # results by the axes that are added up
        for at, result in enumerate(results):
            over = tuple([a for a in several if a not in result.axes])
            together.setdefault(over, []).append(at)
        found: dict[int, Array] = {}
        for over, chosen in together.items():
            of = _added_up(name, blocks, chosen, over) if over else blocks
            for position, at in enumerate(chosen):
                found[at] = _result(name, of, position if over else at, results[at])
        return tuple([found[at] for at in range(len(results))])


def _module() -> Any:
    return sys.modules["dask.array"]


def _if_plain(what: str, block: object, beside: object = None) -> object:
    plain_block(block if beside is None else beside, what)
    return block


def _blocks(
    name: str,
    function: Callable[..., tuple[Any, ...]],
    rank: int,
    operands: Sequence[Operand],
) -> Array:
    """Return an array whose blocks are tuples: what a block gives of each result."""
    given: list[Any] = []
    for at, (operand, axes) in enumerate(operands):
        if axes == ():  # every block gets the whole array
            axes = tuple(rank + 64 * at + k for k in range(operand.ndim))
        given += [operand, axes]
    return _module().blockwise(
        partial(_on_worker, function),
        tuple(range(rank)),
        *given,
        dtype=object,
        meta=np.empty((0,) * rank, object),
        concatenate=True,
        token=name,
    )


def _added_up(name: str, blocks: Array, chosen: Sequence[int], over: tuple[int, ...]) -> Array:
    """Return an array whose blocks are tuples of some results only, added up over axes."""
    return _module().reduction(
        blocks,
        partial(_chosen, chosen),
        _sums,
        axis=over,
        keepdims=True,
        name=name,
        split_every=sys.modules["dask"].config.get("split_every", _SPLIT_EVERY),
        concatenate=False,
        dtype=blocks.dtype,
        meta=blocks._meta,
    )


def _result(name: str, blocks: Array, position: int, result: BlockResult) -> Array:
    """Return the array of one result, given one whose blocks are tuples."""
    rank = blocks.ndim
    own = tuple([rank + at if axis is None else axis for at, axis in enumerate(result.axes)])
    return _module().blockwise(
        partial(_taken, position),
        own,
        blocks,
        tuple(range(rank)),
        new_axes={axis: 1 for axis in own if axis >= rank},
        dtype=result.dtype,
        meta=np.empty((0,) * len(own), result.dtype),
        concatenate=False,
        token=name,
    )


def _on_worker(function: Callable[..., tuple[Any, ...]], *blocks: Any) -> tuple[Any, ...]:
    _fit_into_worker()
    return function(*blocks)


@cache
def _fit_into_worker() -> None:
    """Give kernels in a worker process of Dask its threads, and their pool a share of its memory.

    Dask sets OMP_NUM_THREADS there in the same way. What the user has set stays.
    """
    distributed = sys.modules.get("distributed")
    try:
        worker = distributed and distributed.get_worker()
    except ValueError:  # another scheduler runs the task
        return
    if worker is None or worker.nanny is None:  # the process is the user's own
        return
    memory = worker.memory_manager.memory_limit
    NUM_THREADS.suggest(str(worker.state.nthreads))
    if memory:
        POOL_BYTES.suggest(str(memory // _SHARE))


def _chosen(places: Sequence[int], block: Any, axis: Any, keepdims: bool) -> Any:
    """Return some results of a block, which Dask adds up over axes."""
    return tuple([block[at] for at in places])


def _sums(blocks: Any, axis: Any, keepdims: bool) -> Any:
    """Return the sums of each result of several blocks, which come in lists of lists."""
    return tuple([reduce(add, parts) for parts in zip(*_flat(blocks), strict=True)])


def _taken(position: int, blocks: Any) -> Any:
    """Return one result of a block, which comes in a list for each axis that was summed."""
    return next(_flat(blocks))[position]


def _flat(blocks: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the blocks in lists of lists."""
    if isinstance(blocks, tuple):
        yield blocks
    else:
        for each in blocks:
            yield from _flat(each)
