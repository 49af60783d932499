"""A kernel with everything done that does not depend on the data."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mixad.backends.cuda.choice import BlockShape
from mixad.backends.cuda.driver import PreparedLaunch
from mixad.backends.cuda.kernel import CudaKernel
from mixad.emit.cuda import MAX_ELEMENTS, Dialect, accumulator, packed_types
from mixad.kernel.binding import ArgumentBlock, bind
from mixad.kernel.spec import Launch, Operand
from mixad.kernel.tiling import BLOCK, slab_tiles, tile_count

__all__ = ["PAIR_WORDS", "CudaBound", "DeviceRun", "are_rows_aligned", "bind_launch",
           "changed_outputs", "threads_of", "widest_of"]  # fmt: skip

_WIDEST = 16
"""Bytes that a thread loads or stores at once, at most."""

_MAX_NEIGHBOURS = 8
"""Of a thread: so many threads of a block have one group of neighbours each in a tile."""

_WIDE = 1 << 31
"""So many elements of a row, rows or tiles are counted in 64 bits."""


DeviceRun: TypeAlias = Callable[["CudaBound", Sequence[Any]], tuple[Any, ...]]
"""Runs a kernel on arguments on one device.  The kernel holds it and is handed in: no cycle."""


@dataclass(frozen=True)
class CudaBound:
    """A kernel with everything done that does not depend on the data."""

    kernel: CudaKernel
    launch: Launch
    block: ArgumentBlock
    first: int | None  # the first param that is an array, which tells the device
    widest: int  # neighbours of a row that extents and types let a thread have
    wide: bool  # whether elements of a row, rows and tiles are counted in 64 bits
    # Of loads in packs: the word of an address, the bytes less one.
    packed: tuple[tuple[int, int], ...]
    rows_aligned: bool  # whether all rows of an array begin on a pack if the first one does
    # Elements of arrays changed at indices that a block has copies of, a power of two, so that
    # there are few texts. 0 if they are too many: then pairs are sorted.
    elements: int
    blocks: int  # those that have something to do
    # What launches each pass, by device and by whether packs are aligned.
    launches: dict[Hashable, dict[bool, tuple[PreparedLaunch, ...]]] = field(
        default_factory=dict, compare=False
    )
    runs: dict[Hashable, DeviceRun] = field(default_factory=dict, compare=False)

    def moved(self, launch: Launch) -> CudaBound:
        """Return the kernel bound to a launch that writes the same parts elsewhere."""
        block = self.block.move_slices(launch)
        rows_aligned = are_rows_aligned(launch, block, self.widest)
        return replace(self, launch=launch, block=block, rows_aligned=rows_aligned, runs={})

    def dialect(self, shape: BlockShape, is_aligned: bool) -> Dialect:
        """Return the dialect of the text for a shape of blocks.

        Where packs are not aligned, sums are still made of the same runs: they have the same bits
        wherever the arrays are.  Without sums, neighbours go to neighbouring threads.
        """
        whole = Dialect(*shape, wide=self.wide, elements=self.elements)
        if is_aligned or shape.vector == 1:
            return whole
        if any(any(o.reduced) for o in self.launch.spec.outputs):
            return replace(whole, aligned=False)
        return replace(whole, vector=1)


def bind_launch(kernel: CudaKernel, launch: Launch) -> CudaBound:
    """Return a kernel with the argument block of a launch."""
    elements = _elements(launch)
    if not elements:
        launch = replace(launch, slabs=1)
    block = bind(launch, accumulator)
    blocks = block.tiles if elements else tile_count(launch)
    block.words.append(blocks)
    if not elements:
        block.words.extend(array("q", bytes(8 * PAIR_WORDS)))
    widest = widest_of(launch)
    operands = [(at, launch.spec.operands[k]) for k, at in block.arrays]
    return CudaBound(
        kernel=kernel,
        launch=launch,
        block=block,
        first=block.arrays[0][0] if block.arrays else None,
        widest=widest,
        wide=_is_wide(launch, block),
        packed=tuple(
            (at, widest * o.type.itemsize - 1)
            for at, o in operands
            if isinstance(o, Operand) and o.step == "unit"
        ),
        rows_aligned=are_rows_aligned(launch, block, widest),
        elements=elements,
        blocks=blocks,
    )


PAIR_WORDS = 4
"""Words at the end of the block where pairs are sorted: see `mixad.emit.cuda.kernel`."""


def _elements(launch: Launch) -> int:
    """Return how many elements a block has copies of, rounded up; 0 if they are too many."""
    if not launch.spec.accumulates:
        return MAX_ELEMENTS
    passes = range(len(launch.spec.passes))
    most = max(
        sum(math.prod(launch.results[k]) for k in changed_outputs(launch, n)) for n in passes
    )
    return 0 if most > MAX_ELEMENTS else 1 << max(0, most - 1).bit_length()


def changed_outputs(launch: Launch, number: int) -> list[int]:
    """Return the outputs that a pass changes at indices."""
    outputs = launch.spec.outputs
    return [k for k, o in enumerate(outputs) if o.is_changed and o.source[0] == number]


def are_rows_aligned(launch: Launch, block: ArgumentBlock, widest: int) -> bool:
    """Whether all rows of an array begin on a pack if the first one does."""
    return all(step % (widest * size) == 0 for step, size in _steps(launch, block))


def threads_of(extent: int, vector: int, threads: int) -> tuple[int, int]:
    """Return a block's threads along a row and along rows, for an innermost extent."""
    needed = max(1, -(-extent // vector))
    along = min(threads, 1 << (needed - 1).bit_length())
    return along, threads // along


def widest_of(launch: Launch) -> int:
    """Return how many neighbours fit a load of all types and divide a row.

    One where elements of arrays are changed: what that takes is more than loads do.
    """
    if launch.spec.accumulates:
        return 1
    vector = min((_WIDEST // t.itemsize for t in packed_types(launch.spec)), default=1)
    return math.gcd(vector, _MAX_NEIGHBOURS, launch.extents[-1])


def _steps(launch: Launch, block: ArgumentBlock) -> Iterator[tuple[int, int]]:
    """Yield the bytes from row to row of what is moved in packs, and those of an element."""
    for operand, strides in zip(launch.spec.operands, launch.strides, strict=True):
        if isinstance(operand, Operand) and operand.step == "unit":
            yield from ((step, operand.type.itemsize) for step in (strides or ())[:-1])
    for part, result in zip(launch.parts, block.outputs, strict=True):
        if part is not None:
            size = result.type.itemsize
            yield from ((step, size) for step in (*part.strides[:-1], result.first * size))


def _is_wide(launch: Launch, block: ArgumentBlock) -> bool:
    """Whether something that a kernel counts, up to the end of its last tile, takes 64 bits."""
    rows = math.prod(launch.extents[:-1])
    tiles = tile_count(launch) + slab_tiles(launch) if launch.spec.accumulates else block.tiles
    return max(launch.extents[-1] + BLOCK, rows + launch.rows, tiles) >= _WIDE
