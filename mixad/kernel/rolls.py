"""Launches over rolled arrays: box by box, so that none is copied.

An element of ``roll(x, s)`` is ``x[(i - s) % n]``: in either of two intervals along each axis it is
at a fixed distance in memory. So the elements are cut into boxes, and one kernel is launched for
each of them, which reads every array with its own strides from a first element of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from mixad.kernel.boxes import Box, boxes_between
from mixad.kernel.plan import Layout, broadcast_strides, plan
from mixad.kernel.spec import Launch, OutputRequest, SubBox
from mixad.kernel.tiling import CPU_TILING, tile_rows
from mixad.scalar.ir import Program

__all__ = ["RolledBox", "Shifts", "plan_rolled"]

Shifts: TypeAlias = tuple[int, ...]
"""How far the elements of an array move along each axis."""

_MAX_BOXES = 64
"""A launch costs as much as copying some thousand elements: with more, copies are faster."""


class RolledBox(NamedTuple):
    """A launch that writes its results into slices of arrays."""

    launch: Launch
    firsts: tuple[int, ...]  # for each argument, bytes before the first that is read


def plan_rolled(
    passes: tuple[Program, ...],
    requests: Sequence[OutputRequest],
    layouts: Sequence[Layout | None],
    shifts: Sequence[Shifts | None],
    shape: tuple[int, ...],
) -> list[RolledBox] | None:
    """Return one launch for each box, all of one kernel; None where that is not possible.

    Launches need results of one value for each element. Arguments that are rolled, by one of
    ``shifts``, have the broadcast shape.
    """
    if 0 in shape or any(r.shape is not None or r.part is not None or r.beside for r in requests):
        return None
    if any(s and lay and lay.shape != shape for s, lay in zip(shifts, layouts, strict=True)):
        return None
    axes = _merge_axes(shape, layouts, shifts)
    extents = tuple([axis.extent for axis in axes])
    boxes = boxes_between([(0, *sorted(set(axis.shifts) - {0}), axis.extent) for axis in axes])
    largest = max(boxes, key=lambda box: math.prod(box.extents))
    if not axes or len(boxes) > _MAX_BOXES or 1 in largest.extents:
        return None
    of_boxes = [
        lay and Layout(lay.type, largest.extents, tuple([axis.strides[k] for axis in axes]))
        for k, lay in enumerate(layouts)
    ]
    in_parts = [replace(r, part=SubBox(extents, largest.starts)) for r in requests]
    launch = plan(passes, in_parts, of_boxes, largest.extents, _NEVER_STREAMS)
    if launch.extents != largest.extents or launch.order != tuple(range(len(extents))):
        return None
    return [_launch_over(launch, box, axes) for box in boxes]


_NEVER_STREAMS = 1 << 62
"""Bytes of a cache that no launch exceeds: slices need not begin on its lines."""


class _Axis(NamedTuple):
    """An axis: its extent, and for each argument the bytes between neighbours and its shift."""

    extent: int
    strides: tuple[int, ...]
    shifts: tuple[int, ...]


def _merge_axes(
    shape: tuple[int, ...],
    layouts: Sequence[Layout | None],
    shifts: Sequence[Shifts | None],
) -> list[_Axis]:
    """Return the axes, merged with the one before where nothing is rolled along them.

    Along an axis with others behind it elements move by whole rows of these.
    """
    walked = [
        (0,) * len(shape) if lay is None else broadcast_strides(lay, shape) for lay in layouts
    ]
    axes: list[_Axis] = []
    for k, extent in enumerate(shape):
        if extent == 1:
            continue
        strides = tuple([each[k] for each in walked])
        steps = tuple([s[k] % extent if s else 0 for s in shifts])
        outer = axes[-1] if axes else None
        if outer and not any(steps) and outer.strides == tuple([s * extent for s in strides]):
            moved = tuple([s * extent for s in outer.shifts])
            axes[-1] = _Axis(outer.extent * extent, strides, moved)
        else:
            axes.append(_Axis(extent, strides, steps))
    return axes


def _launch_over(launch: Launch, box: Box, axes: Sequence[_Axis]) -> RolledBox:
    """Return the launch over another box, with where it begins to read each argument."""
    firsts = [0] * len(launch.strides)
    for start, axis in zip(box.starts, axes, strict=True):
        for k, (stride, step) in enumerate(zip(axis.strides, axis.shifts, strict=True)):
            firsts[k] += (start - step) % axis.extent * stride
    parts = [p and p._replace(starts=box.starts, extents=box.extents) for p in launch.parts]
    summed = [output.reduced for output in launch.spec.outputs]
    over = replace(
        launch,
        shape=box.extents,
        extents=box.extents,
        rows=tile_rows(box.extents, summed, CPU_TILING),
        parts=tuple(parts),
    )
    return RolledBox(over, tuple(firsts))
