"""A loop nest: axes ordered by stride, merged where one loop can walk them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mixad.kernel.spec import SubBox
from mixad.kernel.tiling import partial_shape, tile_rows

__all__ = ["Nest", "Written", "left_by_tiles", "loop_order", "nest_over", "other_orders"]


@dataclass(frozen=True)
class Written:
    """An output: the axes that it sums, the slice of an array that it is, bytes of an element."""

    summed: tuple[bool, ...]
    part: SubBox | None
    itemsize: int

    def steps(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """Return byte strides of the array that it is a slice of; zeros if it is none."""
        found, step = [0] * len(order), self.itemsize
        if self.part is not None:
            for axis in reversed(order):
                found[axis] = step
                step *= self.part.whole[axis]
        return tuple(found)


@dataclass(frozen=True)
class _Axis:
    """An axis of the loop nest: extent, strides of params and slices, outputs that sum it."""

    extent: int
    strides: tuple[int, ...]
    summed: tuple[bool, ...]

    def continues(self, outer: _Axis) -> bool:
        """Whether one loop can walk this axis and the one around it."""
        steps = tuple(s * self.extent for s in self.strides)
        return outer.strides == steps and outer.summed == self.summed


@dataclass(frozen=True)
class Nest:
    """The merged axes, outermost first: extents, strides of each param, axes that each output sums.

    ``order`` are the axes before they were merged, ``steps`` the strides of the arrays whose slices
    outputs are.
    """

    order: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    summed: tuple[tuple[bool, ...], ...]
    steps: tuple[tuple[int, ...], ...]


def loop_order(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Order axes so that the innermost loop moves by the smallest strides; C order on ties."""

    def weight(axis: int) -> float:
        if shape[axis] == 1:
            return math.inf
        return max((abs(s[axis]) for s in strides), default=0)

    return tuple(sorted(range(len(shape)), key=lambda axis: -weight(axis)))


def other_orders(order: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the orders with another axis around the innermost loop, which stays."""
    *outer, last = order
    return [(*outer[:k], *outer[k + 1 :], outer[k], last) for k in range(len(outer) - 1)]


def left_by_tiles(nest: Nest) -> int:
    """Return how many partial sums are left to add up after the kernel."""
    rows = tile_rows(nest.extents, nest.summed)
    return sum(
        math.prod(partial_shape(nest.extents, rows, summed))
        for summed in nest.summed
        if any(summed)
    )


def nest_over(
    order: tuple[int, ...],
    shape: tuple[int, ...],
    strides: Sequence[tuple[int, ...] | None],
    written: Sequence[Written],
) -> Nest:
    """Return the loop nest that walks the axes of a shape in some order.

    ``strides`` are those of the params over the shape, ``written`` the outputs.
    """
    walked = [*strides, *(w.steps(order) for w in written)]
    axes = _merge_axes(order, shape, walked, [w.summed for w in written])
    return Nest(
        order,
        tuple(axis.extent for axis in axes),
        tuple(
            None if s is None else tuple(axis.strides[k] for axis in axes)
            for k, s in enumerate(strides)
        ),
        tuple(tuple(axis.summed[k] for axis in axes) for k in range(len(written))),
        tuple(tuple(axis.strides[k] for axis in axes) for k in range(len(strides), len(walked))),
    )


def _merge_axes(
    order: Sequence[int],
    shape: tuple[int, ...],
    strides: Sequence[tuple[int, ...] | None],
    summed: Sequence[tuple[bool, ...]],
) -> list[_Axis]:
    """Return the loop nest without axes of extent 1; one loop walks neighbours if it can."""
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
