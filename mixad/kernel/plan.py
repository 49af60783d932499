"""From shapes and strides to a loop nest: axes ordered by stride, merged where they can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mixad.kernel.spec import (
    Indexed,
    KernelSpec,
    Launch,
    Operand,
    Output,
    OutputRequest,
    Part,
    PartLayout,
    Step,
)
from mixad.kernel.tiling import partial_shape, tile_rows
from mixad.scalar.ir import Program
from mixad.scalar.types import ScalarType

__all__ = ["DEFAULT_CACHE_BYTES", "Layout", "broadcast_strides", "plan", "summed_axes"]

DEFAULT_CACHE_BYTES = 8 << 20
"""Taken for the last-level cache where neither the system nor a backend tells its size."""


_MOST_PARTIALS = 100
"""Elements of the broadcast shape for each partial sum that the tiles may leave."""


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
    """Return the launch that computes some results over a broadcast shape.

    Parameters
    ----------
    passes : tuple of Program
        Programs with the same params.
    requests : sequence of OutputRequest
        The wanted results; a ``shape`` broadcasts to the broadcast shape.
    layouts : sequence of (Layout or None)
        One per param; None for a uniform.
    shape : tuple of int
        The broadcast shape; the layout of every lane param broadcasts to it.
    cache_bytes : int
        Size of the last-level cache: a launch that moves more streams its results past it.
    """
    kinds = [p.kind for p in passes[0].params]
    strides = [
        None if lay is None or kind != "lane" else broadcast_strides(lay, shape)
        for lay, kind in zip(layouts, kinds, strict=True)
    ]
    summed = [summed_axes(r.shape, shape) for r in requests]
    order = _loop_order(shape, [s for s in strides if s is not None])
    written = [
        _Written(on, r.part, _itemsize(passes, r)) for on, r in zip(summed, requests, strict=True)
    ]
    nest = _nest(order, shape, strides, written)
    if _left_by_tiles(nest) * _MOST_PARTIALS > math.prod(shape):
        others = [_nest(o, shape, strides, written) for o in _other_orders(order)]
        nest = min([nest, *others], key=_left_by_tiles)
    spec = _spec(passes, requests, layouts, nest, cache_bytes)
    return Launch(
        spec=spec,
        shape=shape,
        order=nest.order,
        extents=nest.extents,
        rows=tile_rows(nest.extents, [output.reduced for output in spec.outputs]),
        strides=nest.strides,
        indexed=tuple(
            None if lay is None or kind != "array" else (lay.shape, lay.strides)
            for lay, kind in zip(layouts, kinds, strict=True)
        ),
        results=tuple(_result_shape(r, shape) for r in requests),
        parts=tuple(
            r.part and _part_layout(r.part, nest, shape, steps)
            for r, steps in zip(requests, nest.steps, strict=True)
        ),
    )


def _itemsize(passes: Sequence[Program], request: OutputRequest) -> int:
    return passes[request.pass_index].outputs[request.result].type.itemsize


def _result_shape(request: OutputRequest, shape: tuple[int, ...]) -> tuple[int, ...]:
    if request.part is not None:
        return request.part.whole
    return shape if request.shape is None else request.shape


def _part_layout(
    part: Part, nest: _Nest, shape: tuple[int, ...], steps: tuple[int, ...]
) -> PartLayout:
    def in_order(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[axis] for axis in nest.order)

    return PartLayout(in_order(part.whole), in_order(part.starts), in_order(shape), steps)


def summed_axes(result: tuple[int, ...] | None, shape: tuple[int, ...]) -> tuple[bool, ...]:
    """Return which axes of a broadcast shape are summed to reach a result's shape.

    Parameters
    ----------
    result : tuple of int or None
        A shape that broadcasts to ``shape``; None for ``shape`` itself.
    shape : tuple of int
        The broadcast shape.

    Raises
    ------
    ValueError
        If ``result`` does not broadcast to ``shape``.

    Examples
    --------
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


@dataclass(frozen=True)
class _Written:
    """An output: which axes it sums, the part of an array that it is, bytes of an element."""

    summed: tuple[bool, ...]
    part: Part | None
    itemsize: int

    def steps(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """Return byte strides of the array of which it is a part; zeros if it is no part."""
        found, step = [0] * len(order), self.itemsize
        if self.part is not None:
            for axis in reversed(order):
                found[axis] = step
                step *= self.part.whole[axis]
        return tuple(found)


@dataclass(frozen=True)
class _Axis:
    """An axis of the loop nest: extent, strides of params and parts, which outputs sum it."""

    extent: int
    strides: tuple[int, ...]
    summed: tuple[bool, ...]

    def continues(self, outer: _Axis) -> bool:
        """Whether one loop can walk this axis and the one around it."""
        steps = tuple(s * self.extent for s in self.strides)
        return outer.strides == steps and outer.summed == self.summed


@dataclass(frozen=True)
class _Nest:
    """The merged axes, outermost first: extents, strides of each param, which each output sums.

    ``order`` are the axes before they were merged, ``steps`` the strides of the arrays that outputs
    are parts of.
    """

    order: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    summed: tuple[tuple[bool, ...], ...]
    steps: tuple[tuple[int, ...], ...]


def _loop_order(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Order axes so that the innermost loop moves by the smallest strides; C order on ties."""

    def weight(axis: int) -> float:
        if shape[axis] == 1:
            return math.inf
        return max((abs(s[axis]) for s in strides), default=0)

    return tuple(sorted(range(len(shape)), key=lambda axis: -weight(axis)))


def _other_orders(order: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the orders with another axis around the innermost loop, which goes as it went."""
    *outer, last = order
    return [(*outer[:k], *outer[k + 1 :], outer[k], last) for k in range(len(outer) - 1)]


def _left_by_tiles(nest: _Nest) -> int:
    """Return how many partial sums are left to be added up after the kernel."""
    rows = tile_rows(nest.extents, nest.summed)
    return sum(
        math.prod(partial_shape(nest.extents, rows, summed))
        for summed in nest.summed
        if any(summed)
    )


def _nest(
    order: tuple[int, ...],
    shape: tuple[int, ...],
    strides: Sequence[tuple[int, ...] | None],
    written: Sequence[_Written],
) -> _Nest:
    walked = [*strides, *(w.steps(order) for w in written)]
    axes = _merged(order, shape, walked, [w.summed for w in written])
    return _Nest(
        order,
        tuple(axis.extent for axis in axes),
        tuple(
            None if s is None else tuple(axis.strides[k] for axis in axes)
            for k, s in enumerate(strides)
        ),
        tuple(tuple(axis.summed[k] for axis in axes) for k in range(len(written))),
        tuple(tuple(axis.strides[k] for axis in axes) for k in range(len(strides), len(walked))),
    )


def _merged(
    order: Sequence[int],
    shape: tuple[int, ...],
    strides: Sequence[tuple[int, ...] | None],
    summed: Sequence[tuple[bool, ...]],
) -> list[_Axis]:
    """Return the loop nest: axes of extent 1 dropped, neighbours merged where one loop will do."""
    nest: list[_Axis] = []
    for a in order:
        if shape[a] == 1:
            continue
        walked = tuple(0 if s is None else s[a] for s in strides)
        axis = _Axis(shape[a], walked, tuple(s[a] for s in summed))
        if nest and axis.continues(nest[-1]):
            axis = _Axis(axis.extent * nest.pop().extent, axis.strides, axis.summed)
        nest.append(axis)
    return nest or [_Axis(1, (0,) * len(strides), (False,) * len(summed))]


def _spec(
    passes: tuple[Program, ...],
    requests: Sequence[OutputRequest],
    layouts: Sequence[Layout | None],
    nest: _Nest,
    cache_bytes: int,
) -> KernelSpec:
    """Return what is static of a kernel over a loop nest."""
    operands = tuple(
        _operand(lay, strides, nest.extents[-1])
        for lay, strides in zip(layouts, nest.strides, strict=True)
    )
    outputs = tuple(
        Output(
            passes[r.pass_index].outputs[r.result].type,
            (r.pass_index, r.result),
            summed,
            r.part is not None,
        )
        for r, summed in zip(requests, nest.summed, strict=True)
    )
    streams = _streams(nest, operands, outputs, cache_bytes)
    return KernelSpec(passes, operands, outputs, len(nest.extents), streams)


def _operand(
    layout: Layout | None, strides: tuple[int, ...] | None, extent: int
) -> Operand | Indexed | None:
    if layout is None:
        return None
    if strides is None:
        return Indexed(layout.type, len(layout.shape))
    return Operand(layout.type, _step(strides[-1], extent, layout.type))


def _step(stride: int, extent: int, type: ScalarType) -> Step:
    if stride == 0:
        return "zero" if extent > 1 else "unit"
    return "unit" if stride == type.itemsize else "any"


_LINE = 64
"""Bytes of a cache line."""


def _streams(
    nest: _Nest,
    operands: Sequence[Operand | Indexed | None],
    outputs: Sequence[Output],
    cache_bytes: int,
) -> bool:
    """Whether stored results bypass the cache: too large for it, and every row on a line."""
    stored = [o for o in outputs if not any(o.reduced)]
    types = [o.type for o in (*operands, *stored) if o is not None]
    moved = math.prod(nest.extents) * sum(t.itemsize for t in types)
    rows = [
        steps[:-1] if o.is_part else (nest.extents[-1] * o.type.itemsize,) * (len(nest.extents) > 1)
        for o, steps in zip(outputs, nest.steps, strict=True)
        if not any(o.reduced)
    ]
    aligned = all(step % _LINE == 0 for steps in rows for step in steps)
    return bool(stored) and moved > cache_bytes and aligned
