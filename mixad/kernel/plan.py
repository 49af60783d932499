"""From shapes and strides to a loop nest: axes ordered by stride, merged where they can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from mixad.kernel.folding import FOLDED, copy_step, fold_of, partial_sum_shape
from mixad.kernel.nest import Nest, Written, left_by_tiles, loop_order, nest_over, other_orders
from mixad.kernel.spec import (
    Fold,
    Indexed,
    KernelSpec,
    Launch,
    Operand,
    Output,
    OutputRequest,
    StrideKind,
    SubBox,
    SubBoxLayout,
)
from mixad.kernel.tiling import (
    BLOCK,
    CPU_TILING,
    FEW_PARTIALS,
    Tiling,
    slab_limit,
    tile_rows,
)
from mixad.scalar.build import as_array
from mixad.scalar.ir import Param, Program, Update, UpdateKind, walk_statements
from mixad.scalar.types import ScalarType

__all__ = [
    "DEFAULT_CACHE_BYTES",
    "MAX_FOLDED",
    "MAX_PARTIALS",
    "Layout",
    "broadcast_strides",
    "plan",
    "summed_axes",
]

DEFAULT_CACHE_BYTES = 8 << 20
"""Taken for the last-level cache where neither the system nor a backend tells its size."""


MAX_PARTIALS = 100
"""Elements of the broadcast shape for each partial sum that the tiles may leave."""

MAX_FOLDED = 16
"""The same where rows are folded: rows that are not cost more than adding more of them up."""


@dataclass(frozen=True)
class Layout:
    """Type, shape and byte strides of one array argument."""

    type: ScalarType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def plan(
    passes: tuple[Program, ...],
    requests: Sequence[OutputRequest],
    layouts: Sequence[Layout | None],
    shape: tuple[int, ...],
    cache_bytes: int,
    *,
    folds: bool = False,
    tiling: Tiling = CPU_TILING,
) -> Launch:
    """Return the launch that computes the requested results over a broadcast shape.

    Lanes have layouts that broadcast to it, uniforms None. Results stream past the cache if the
    launch moves more than the last level holds. ``folds`` and ``tiling`` describe the device.
    """
    kinds = [p.kind for p in passes[0].params]
    strides = [
        None if lay is None or kind != "lane" else broadcast_strides(lay, shape)
        for lay, kind in zip(layouts, kinds, strict=True)
    ]
    nest_of = partial(
        nest_over, shape=shape, strides=strides, written=_written_results(passes, requests, shape)
    )
    order = loop_order(shape, [s for s in strides if s is not None])
    nest, fold = _loops(nest_of, order, passes, math.prod(shape), folds)
    return Launch(
        spec=_spec(passes, requests, layouts, nest, fold, cache_bytes),
        shape=shape,
        order=nest.order,
        extents=nest.extents,
        fold=fold,
        rows=_tile_rows(fold or nest, tiling),
        strides=nest.strides,
        indexed=tuple(
            None if lay is None or kind != "array" else (lay.shape, lay.strides)
            for lay, kind in zip(layouts, kinds, strict=True)
        ),
        results=tuple(_result_shape(r, shape) for r in requests),
        parts=tuple(
            r.part and _part_layout(r.part, nest, shape, steps)
            for r, steps in zip(requests, (fold or nest).steps, strict=True)
        ),
        slabs=_slabs(passes, requests, shape, tiling),
    )


def _slabs(
    passes: Sequence[Program],
    requests: Sequence[OutputRequest],
    shape: tuple[int, ...],
    tiling: Tiling,
) -> int:
    """Return how many slabs all accumulators allow."""
    found = tiling.slabs
    for r in requests:
        added = passes[r.pass_index].accumulator(r.result)
        if added is not None and added.kind != "write" and r.shape is not None:
            statements = walk_statements(passes[r.pass_index].body)
            sums = sum(isinstance(s, Update) and s.array == added.var for s in statements)
            adds, elements = math.prod(shape) * sums, math.prod(r.shape)
            found = min(found, slab_limit(adds, elements, tiling))
    return found


def _written_results(
    passes: Sequence[Program], requests: Sequence[OutputRequest], shape: tuple[int, ...]
) -> list[Written]:
    """Return each result's description for the nest."""
    found = []
    for r in requests:
        program = passes[r.pass_index]
        is_sum = program.accumulator(r.result) is None
        summed = summed_axes(r.shape if is_sum else None, shape)
        found.append(Written(summed, r.part, program.outputs[r.result].type.itemsize))
    return found


def _loops(
    nest_of: Callable[[tuple[int, ...]], Nest],
    order: tuple[int, ...],
    passes: tuple[Program, ...],
    elements: int,
    folds: bool,
) -> tuple[Nest, Fold | None]:
    """Return the loop nest in the given order, folded, unless it leaves too many partial sums.

    In that case return the order that leaves the fewest, folded if it leaves no more that way.
    """
    nest, few = nest_of(order), max(FEW_PARTIALS, elements // MAX_FOLDED)
    fold = _fold(nest, passes, few) if folds else None
    if fold is not None or left_by_tiles(nest) * MAX_PARTIALS <= elements:
        return nest, fold
    nest = min([nest, *map(nest_of, other_orders(order))], key=left_by_tiles)
    return nest, _fold(nest, passes, max(few, left_by_tiles(nest))) if folds else None


def _fold(nest: Nest, passes: tuple[Program, ...], most: int) -> Fold | None:
    """Return a nest with short rows folded, unless tiles would leave more partial sums."""
    fold = fold_of(nest, passes, FOLDED)
    if fold is not None and _left_by_fold(fold) * MAX_PARTIALS > math.prod(nest.extents):
        fold = min(fold, fold_of(nest, passes, BLOCK) or fold, key=_left_by_fold)
    return None if fold is None or _left_by_fold(fold) > most else fold


def _left_by_fold(fold: Fold) -> int:
    rows = _tile_rows(fold)
    sums = (k for k, flags in enumerate(fold.summed) if any(flags))
    return sum(math.prod(partial_sum_shape(fold, k, rows)[0]) for k in sums)


def _tile_rows(nest: Nest | Fold, tiling: Tiling = CPU_TILING) -> int:
    return tile_rows(nest.extents, nest.summed, tiling)


def _result_shape(request: OutputRequest, shape: tuple[int, ...]) -> tuple[int, ...]:
    if request.part is not None:
        return request.part.whole
    own = shape if request.shape is None else request.shape
    return (*own, 1 + len(request.beside)) if request.beside else own


def _part_layout(
    part: SubBox, nest: Nest, shape: tuple[int, ...], steps: tuple[int, ...]
) -> SubBoxLayout:
    def in_order(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[axis] for axis in nest.order)

    return SubBoxLayout(in_order(part.whole), in_order(part.starts), in_order(shape), steps)


def summed_axes(result: tuple[int, ...] | None, shape: tuple[int, ...]) -> tuple[bool, ...]:
    """Return which axes of a broadcast shape are summed for a result's shape; None is no sum.

    >>> summed_axes((3, 1), (2, 3, 4))
    (True, False, True)
    """
    if result is None:
        return (False,) * len(shape)
    padded = (1,) * (len(shape) - len(result)) + tuple(result)
    if len(padded) != len(shape) or any(
        r not in (1, n) for r, n in zip(padded, shape, strict=True)
    ):
        raise ValueError(f"a result of shape {result} does not broadcast to {shape}")
    return tuple(r == 1 and n != 1 for r, n in zip(padded, shape, strict=True))


def broadcast_strides(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return byte strides over a broadcast shape: 0 along axes that the array lacks or repeats."""
    missing = len(shape) - len(layout.shape)
    own = (s if n != 1 else 0 for n, s in zip(layout.shape, layout.strides, strict=True))
    return (0,) * missing + tuple(own)


def _spec(
    passes: tuple[Program, ...],
    requests: Sequence[OutputRequest],
    layouts: Sequence[Layout | None],
    nest: Nest,
    fold: Fold | None,
    cache_bytes: int,
) -> KernelSpec:
    """Return the static part of a kernel over a loop nest."""
    loops = fold or nest
    operands = tuple(_operand(lay, k, loops) for k, lay in enumerate(layouts))
    outputs = tuple(
        Output(
            passes[r.pass_index].outputs[r.result].type,
            (r.pass_index, r.result),
            summed,
            r.part is not None,
            fold.segments[k] if fold else (),
            r.beside,
            *_update_of(passes[r.pass_index].accumulator(r.result)),
        )
        for k, (r, summed) in enumerate(zip(requests, loops.summed, strict=True))
    )
    stored = [o.type for o in outputs if o.is_stored for _ in o.sources]
    read = [o.type for o in operands if o is not None]
    moved = math.prod(nest.extents) * sum(type.itemsize for type in (*read, *stored))
    streams = bool(stored) and moved > cache_bytes and _begins_lines(loops, outputs)
    return KernelSpec(
        passes,
        operands,
        outputs,
        rank=len(loops.extents),
        streaming=streams,
        folded=len(fold.axes) if fold else 0,
        is_split=fold is not None and fold.is_split,
    )


def _update_of(accumulator: Param | None) -> tuple[int | None, UpdateKind]:
    """Return how many axes an accumulator has, and how it changes."""
    if accumulator is None:
        return None, "add"
    return as_array(accumulator).rank, cast("UpdateKind", accumulator.kind)


def _operand(layout: Layout | None, param: int, loops: Nest | Fold) -> Operand | Indexed | None:
    strides = loops.strides[param]
    if layout is None:
        return None
    if strides is None:
        return Indexed(layout.type, len(layout.shape))
    copied = copy_step(loops, param) if isinstance(loops, Fold) else None
    return Operand(layout.type, copied or _step(strides[-1], layout.type))


def _step(stride: int, type: ScalarType) -> StrideKind:
    if stride == 0:
        return "zero"
    return "unit" if stride == type.itemsize else "any"


_LINE = 64
"""Bytes of a cache line."""


def _begins_lines(loops: Nest | Fold, outputs: Sequence[Output]) -> bool:
    """Whether every stored row begins on a cache line."""
    counts = [loops.extents[-1]] if len(loops.extents) > 1 else []
    if len(loops.extents) > 2 and isinstance(loops, Fold):
        counts.append(loops.length)
    steps = [
        steps[:-1] if o.is_part else [count * o.type.itemsize for count in counts]
        for o, steps in zip(outputs, loops.steps, strict=True)
        if o.is_stored
    ]
    return all(step % _LINE == 0 for row in steps for step in row)
