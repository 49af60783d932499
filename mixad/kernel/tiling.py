"""How a loop nest is cut into tiles, and what each tile leaves of a sum.

A tile is a run of rows (neighbours along the last outer axis) times a block of the innermost axis.
Both sizes are functions of the loop nest's extents, of which of them are summed and of the kind of
device (`Tiling`), never of threads, so sums have the same bits however many threads run the tiles.
The loop nest follows from shapes and layouts; whether short rows of it are folded
(`mixad.kernel.folding`), from the program's cost too, so that two programs may add up equal values
in another order. A summed output leaves one partial result for each tile and kept element; those
are added up by a binary tree afterwards.

An accumulating lane has no place of its own in the array, so consecutive tiles make a *slab*: one
worker runs it in order, lanes in order, and changes a copy of the array that no other slab has. The
copies are put together by the same tree. Shapes decide how many there are. A written lane has its
own place, and needs no slabs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from mixad.kernel.spec import Launch, Output
from mixad.scalar.types import F64, ScalarType

__all__ = ["BLOCK", "CPU_TILING", "FEW_PARTIALS", "GANG", "MAX_RUN", "MAX_TILE",
           "Combine", "Tiling",
           "accumulator", "combine_of", "is_left_whole", "padded_columns",
           "partial_shape", "slab_limit", "slab_tiles", "tile_blocks", "tile_count", "tile_rows",
           "tile_runs"]  # fmt: skip

GANG = 16
"""Elements that go through a kernel together on every CPU: no result depends on the width."""

BLOCK = 2048
"""Elements of the innermost axis in one tile; inputs of a tile stay in cache between passes."""

MAX_RUN = 512
"""Rows that are summed one after another, at most: each run leaves a row of partial sums."""


MAX_TILE = 8192
"""Elements that make a tile worth its overhead on a CPU, and of several rows at most anywhere."""


class Tiling(NamedTuple):
    """How finely loop nests are cut for a kind of device; the defaults are a CPU's.

    `tiles` and `slabs` are enough for the cores of most machines. To add up what runs shorter than
    `least_run` leave costs more than it gains to run them side by side.
    """

    tiles: int = 64
    least_run: int = 64
    least: int = MAX_TILE
    slabs: int = 64


CPU_TILING = Tiling()

FEW_PARTIALS = 1 << 16
"""Partial sums that may be left of any shape: half a megabyte."""

Combine = Literal["store", "columns", "row", "tile"]
"""What a kernel does with a result: store it; sum it over the rows of a run, element by element;
over the elements of a row; or over both."""


def combine_of(reduced: Sequence[bool]) -> Combine:
    """Return how a kernel combines an output that is summed over these axes of the loop nest."""
    row = reduced[-1]
    run = len(reduced) > 1 and reduced[-2]
    if row:
        return "tile" if run else "row"
    return "columns" if run else "store"


def accumulator(type: ScalarType) -> ScalarType:
    """Return the type in which values of a type are summed: float32 in float64."""
    return F64 if type.is_float else type


def is_left_whole(output: Output) -> bool:
    """Whether a kernel leaves the output itself, where it sums it in every row."""
    return bool(output.segments) and not any(output.reduced) and not output.type.is_narrow


def tile_rows(
    extents: Sequence[int], reduced: Sequence[Sequence[bool]], tiling: Tiling = CPU_TILING
) -> int:
    """Return how many rows make a run."""
    if len(extents) == 1:
        return 1
    if any(combine_of(r) == "columns" for r in reduced):
        return _rows_of_columns(extents, tiling)
    if _blocks(extents) > 1:
        return 1  # tiles that follow one another are neighbours in memory, which is read ahead of
    columns = max(1, extents[-1])
    for_tiles = min(MAX_TILE // columns, math.prod(extents[:-1]) // tiling.tiles)
    return max(1, min(extents[-2], max(tiling.least // columns, for_tiles)))


def _rows_of_columns(extents: Sequence[int], tiling: Tiling) -> int:
    """Return how many rows make a run that is summed column by column.

    A run is longer than the least where there are tiles enough, or too many partial sums or too
    small tiles would be left.
    """
    rows = max(1, extents[-2])
    for_tiles = rows * math.prod(extents[:-2]) * _blocks(extents) // tiling.tiles
    for_memory = math.prod(extents) * tiling.least_run // (FEW_PARTIALS * CPU_TILING.least_run)
    for_work = tiling.least // max(1, min(extents[-1], BLOCK))
    return min(rows, MAX_RUN, max(tiling.least_run, for_tiles, for_memory, for_work))


def tile_count(launch: Launch) -> int:
    """Return the number of tiles of a launch."""
    blocks, runs = tile_blocks(launch), tile_runs(launch)
    return 0 if 0 in launch.shape else math.prod(launch.loops[:-2]) * runs * blocks


def partial_shape(extents: Sequence[int], rows: int, reduced: Sequence[bool]) -> tuple[int, ...]:
    """Return the shape that tiles leave of an output: one axis for each of the loop nest.

    ``rows`` is the number of rows in a run.
    """
    shape = list(extents)
    if reduced[-1]:
        shape[-1] = _blocks(extents)
    if len(shape) > 1 and reduced[-2]:
        shape[-2] = _runs(extents, rows)
    return tuple(shape)


_SUM_BYTES = 8
"""Bytes of an element of a slab's copy."""

_SHARE_BY_BYTES = ((1 << 15, 1), (1 << 18, 2), (1 << 21, 4), (1 << 23, 8), (1 << 26, 16))
"""Slabs that share a copy, by its bytes: a copy has to be cleared, added to at random, added up."""

_ADDS = 4
"""Additions for each element of all copies, at least."""


def slab_limit(adds: int, elements: int, tiling: Tiling = CPU_TILING) -> int:
    """Return how many slabs an array of some elements allows that gets some additions.

    >>> slab_limit(4_000_000, 1001), slab_limit(4_000_000, 1 << 20), slab_limit(100, 1001)
    (64, 1, 1)
    """
    size = elements * _SUM_BYTES
    most = tiling.slabs // next((share for limit, share in _SHARE_BY_BYTES if size <= limit), 32)
    return max(1, min(most, adds // (_ADDS * max(1, elements))))


def slab_tiles(launch: Launch) -> int:
    """Return how many tiles make a slab; the last one may have fewer."""
    return max(1, -(-tile_count(launch) // launch.slabs))


def tile_blocks(launch: Launch) -> int:
    """Return how many blocks a row has."""
    return _blocks(launch.loops)


def tile_runs(launch: Launch) -> int:
    """Return how many runs the last outer axis has."""
    return _runs(launch.loops, launch.rows)


def _blocks(extents: Sequence[int]) -> int:
    return max(1, -(-extents[-1] // BLOCK))


def _runs(extents: Sequence[int], rows: int) -> int:
    return -(-extents[-2] // rows) if len(extents) > 1 else 1


def padded_columns(extent: int) -> int:
    """Return how many partial sums a row has where columns are summed: whole gangs.

    >>> padded_columns(16), padded_columns(17)
    (16, 32)
    """
    return -(-extent // GANG) * GANG
