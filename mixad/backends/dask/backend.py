"""Kernels on lazy arrays: programs go into the graph, blocks of NumPy arrays go through them.

Nothing is computed here.  One task for each block computes all results of a kernel, with the best
backend for NumPy on the machine that computes the block; sums are taken inside.  What is summed
over several blocks is added up by one tree of tasks for all results summed over the same blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np

from mixad.backends.execute import broadcast_shape, kernel_for
from mixad.backends.unsupported_arrays import plain_block
from mixad.config import NUM_THREADS, POOL_BYTES
from mixad.kernel.spec import KernelSpec, Launch, OutputRequest
from mixad.scalar.ir import Param, Program, source_lines, without_lines
from mixad.scalar.widen import without_rules

__all__ = ["DaskBackend"]

_SPLIT_EVERY = 16
"""Blocks whose sums one task adds up, unless Dask's ``split_every`` is configured."""

_SHARE = 8
"""The part of a worker's memory that kernels may keep for results to come, as of a machine's."""

_Axes: TypeAlias = tuple[int | None, ...]
"""For each axis of a result, the axis of the broadcast that it is; None if it is summed."""

_Wanted: TypeAlias = tuple[int, int, _Axes]
"""A pass, the position among its outputs, and the axes of the result."""


class DaskBackend:
    """Puts kernels into the graphs of Dask arrays."""

    name = "dask"

    def emit(self, spec: KernelSpec) -> str:
        """Return the programs that go into the graph, as text."""
        lines = dict.fromkeys(line.shown for p in spec.passes for line in source_lines(p))
        return "\n\n".join(["\n".join(f"# {line}" for line in lines), *map(str, spec.passes)])

    def compile(self, spec: KernelSpec) -> KernelSpec:
        """Return the kernel as it is: each worker compiles it for itself."""
        return spec

    def bind(self, executable: KernelSpec, launch: Launch) -> Launch:
        """Return the kernel with its shapes."""
        return launch

    def launch(self, bound: Launch, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results, which Dask computes when someone asks for them."""
        spec, passes = bound.spec, tuple(map(without_rules, bound.spec.passes))
        if not spec.checks_indices:  # no message on a worker names a line
            passes = tuple(map(without_lines, passes))
        axes = [_axes(shape, bound.shape) for shape in bound.results]
        wanted = tuple([(*o.source, own) for o, own in zip(spec.outputs, axes, strict=True)])
        name = f"mixad-{passes[0].name}"
        blocks = _blocks(name, passes, wanted, len(bound.shape), arguments)
        several = [axis for axis, number in enumerate(blocks.numblocks) if number > 1]
        together: dict[tuple[int, ...], list[int]] = {}  # results by the axes that are added up
        for at, own in enumerate(axes):
            together.setdefault(tuple([a for a in several if a not in own]), []).append(at)
        results: dict[int, Any] = {}
        for over, chosen in together.items():
            found = _added_up(name, blocks, chosen, over) if over else blocks
            for position, at in enumerate(chosen):
                place = position if over else at
                results[at] = _result(name, found, place, spec.outputs[at].type.dtype, axes[at])
        return tuple([results[at] for at in range(len(axes))])


def _axes(shape: tuple[int, ...], whole: tuple[int, ...]) -> _Axes:
    """Return the axes of a result of some shape: it may lack the first ones of the broadcast."""
    lead = len(whole) - len(shape)
    return tuple(
        [None if extent != whole[lead + a] else lead + a for a, extent in enumerate(shape)]
    )


def _blocks(
    name: str,
    passes: tuple[Program, ...],
    wanted: tuple[_Wanted, ...],
    rank: int,
    arguments: Sequence[Any],
) -> Any:
    """Return an array whose blocks are tuples: what a block gives of each result."""
    import dask.array as da

    axes = tuple(range(rank))
    operands: list[Any] = []
    pairs = [
        (p, a if p.kind == "uniform" else da.asarray(a))  # NumPy's beside lazy ones
        for p, a in zip(passes[0].params, arguments, strict=True)
    ]
    lanes = [argument for param, argument in pairs if param.kind == "lane"]
    largest = max(lanes, key=_size, default=None)
    for at, (param, argument) in enumerate(pairs):
        if param.kind == "uniform":
            operands += [argument, () if isinstance(argument, da.Array) else None]
        elif param.kind == "lane":
            operands += [_cut_like(argument, largest), axes[rank - argument.ndim :]]
        else:  # read at any place: every block gets the whole array
            block = partial(plain_block, what=_place(passes[0], param))  # before they are joined
            whole = argument.map_blocks(block, dtype=argument.dtype, meta=argument._meta).rechunk(
                -1
            )
            operands += [whole, tuple(rank + 64 * at + k for k in range(whole.ndim))]
    return da.blockwise(
        partial(_block, passes, wanted),
        axes,
        *operands,
        dtype=object,
        meta=np.empty((0,) * rank, object),
        concatenate=True,
        token=name,
    )


def _size(array: Any) -> int:
    return int(array.size)


def _cut_like(array: Any, largest: Any) -> Any:
    """Return an array in chunks like those of the largest one, which are cheaper to leave."""
    if array.size == largest.size:
        return array
    lead = largest.ndim - array.ndim
    return array.rechunk(
        {
            axis: largest.chunks[lead + axis]
            for axis, extent in enumerate(array.shape)
            if lead + axis >= 0 and extent == largest.shape[lead + axis]
        }
    )


def _added_up(name: str, blocks: Any, chosen: Sequence[int], over: tuple[int, ...]) -> Any:
    """Return an array whose blocks are tuples of some results only, added up over axes."""
    import dask.array as da
    from dask import config

    return da.reduction(
        blocks,
        partial(_chosen, chosen),
        _sums,
        axis=over,
        keepdims=True,
        name=name,
        split_every=config.get("split_every", _SPLIT_EVERY),
        concatenate=False,
        dtype=blocks.dtype,
        meta=blocks._meta,
    )


def _result(name: str, blocks: Any, position: int, dtype: np.dtype[Any], axes: _Axes) -> Any:
    """Return the array of one result, given one whose blocks are tuples."""
    import dask.array as da

    rank = blocks.ndim
    own = tuple([rank + at if axis is None else axis for at, axis in enumerate(axes)])
    return da.blockwise(
        partial(_taken, position),
        own,
        blocks,
        tuple(range(rank)),
        new_axes={axis: 1 for axis in own if axis >= rank},
        dtype=dtype,
        meta=np.empty((0,) * len(axes), dtype),
        concatenate=False,
        token=name,
    )


def _block(passes: tuple[Program, ...], wanted: tuple[_Wanted, ...], *arguments: Any) -> Any:
    """Compute what a block gives of each result."""
    _fit_into_worker()
    pairs = zip(passes[0].params, arguments, strict=True)
    values = [_of_block(p, a, _place(passes[0], p)) for p, a in pairs]
    shape = broadcast_shape(passes[0], [np.shape(value) for value in values])
    return kernel_for(passes, tuple([_request(*each, shape) for each in wanted]))(values)


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


def _request(at: int, result: int, axes: _Axes, shape: tuple[int, ...]) -> OutputRequest:
    """Return the request for a result on a block of some shape."""
    is_stored = axes == tuple(range(len(shape)))
    own = tuple([1 if axis is None else shape[axis] for axis in axes])
    return OutputRequest(at, result, None if is_stored else own)


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


def _place(program: Program, param: Param) -> str:
    return f"{program.name}: argument {param.name!r}"


def _of_block(param: Param, value: Any, what: str) -> Any:
    """Return an argument of a kernel on blocks: an array, or a number for a uniform."""
    plain = plain_block(value, what)
    if param.kind != "uniform":
        return np.asarray(plain)
    return plain.item() if isinstance(plain, (np.ndarray, np.generic)) else plain
