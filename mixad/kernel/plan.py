"""From shapes and strides to a loop nest: axes ordered by stride, merged where they can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mixad.kernel.spec import Indexed, KernelSpec, Launch, Operand, Output, OutputRequest, Step
from mixad.scalar.ir import Program
from mixad.scalar.types import ScalarType

__all__ = ["Layout", "broadcast_strides", "plan"]


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
) -> Launch:
    """Return the launch that computes stored outputs over a broadcast shape.

    Parameters
    ----------
    passes : tuple of Program
        Programs with the same params.
    requests : sequence of OutputRequest
        The wanted results; every ``shape`` is None or the broadcast shape.
    layouts : sequence of (Layout or None)
        One per param; None for a uniform.
    shape : tuple of int
        The broadcast shape; the layout of every lane param broadcasts to it.
    cache_bytes : int
        Size of the last-level cache: a launch that moves more streams its results past it.
    """
    kinds = [p.kind for p in passes[0].params]
    indexed = tuple(
        (lay.shape, lay.strides) if lay is not None and kind == "array" else None
        for lay, kind in zip(layouts, kinds, strict=True)
    )
    strides = [
        broadcast_strides(lay, shape) if lay is not None and kind == "lane" else None
        for lay, kind in zip(layouts, kinds, strict=True)
    ]
    order = _loop_order(shape, [s for s in strides if s is not None])
    extents, merged = _merged(
        [shape[a] for a in order],
        [None if s is None else [s[a] for a in order] for s in strides],
    )
    operands = tuple(
        _operand(lay, s, extents[-1]) for lay, s in zip(layouts, merged, strict=True)
    )
    outputs = tuple(
        Output(
            passes[r.pass_index].outputs[r.result].type,
            (r.pass_index, r.result),
            (False,) * len(extents),
        )
        for r in requests
    )
    types = [*(o.type for o in operands if o is not None), *(o.type for o in outputs)]
    moved = math.prod(shape) * sum(t.itemsize for t in types)
    spec = KernelSpec(
        passes, operands, outputs, len(extents), moved > cache_bytes and _aligned(extents, outputs)
    )
    return Launch(spec, shape, order, extents, merged, indexed)


def _operand(
    layout: Layout | None, strides: tuple[int, ...] | None, extent: int
) -> Operand | Indexed | None:
    if layout is None:
        return None
    if strides is None:
        return Indexed(layout.type, len(layout.shape))
    return Operand(layout.type, _step(strides[-1], extent, layout.type))


def broadcast_strides(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return byte strides over a broadcast shape: 0 along axes that the array lacks or repeats."""
    missing = len(shape) - len(layout.shape)
    own = (s if n != 1 else 0 for n, s in zip(layout.shape, layout.strides, strict=True))
    return (0,) * missing + tuple(own)


def _loop_order(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Order axes so that the innermost loop moves by the smallest strides; C order on ties."""

    def weight(axis: int) -> int:
        return max((abs(s[axis]) for s in strides), default=0)

    return tuple(
        sorted(range(len(shape)), key=lambda axis: -weight(axis) if shape[axis] > 1 else -math.inf)
    )


def _merged(
    extents: list[int], strides: list[list[int] | None]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...] | None, ...]]:
    """Drop axes of extent 1 and merge neighbours that every operand walks as one."""
    kept: list[int] = []
    walks: list[list[int]] = [[] for s in strides]
    for axis, extent in enumerate(extents):
        if extent == 1:
            continue
        here = [0 if s is None else s[axis] for s in strides]
        if kept and all(w[-1] == h * extent for w, h in zip(walks, here, strict=True)):
            kept[-1] *= extent
            for w, h in zip(walks, here, strict=True):
                w[-1] = h
            continue
        kept.append(extent)
        for w, h in zip(walks, here, strict=True):
            w.append(h)
    if not kept:
        kept, walks = [1], [[0] for _ in strides]
    merged = tuple(None if s is None else tuple(w) for s, w in zip(strides, walks, strict=True))
    return tuple(kept), merged


def _step(stride: int, extent: int, type: ScalarType) -> Step:
    if stride == 0:
        return "zero" if extent > 1 else "unit"
    return "unit" if stride == type.itemsize else "any"


_STREAM_BYTES = 64


def _aligned(extents: tuple[int, ...], outputs: Sequence[Output]) -> bool:
    """Whether every row of every output starts on a cache line if the first one does."""
    return len(extents) == 1 or all(
        extents[-1] * o.type.itemsize % _STREAM_BYTES == 0 for o in outputs
    )
