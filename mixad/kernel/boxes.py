"""Boxes of elements: what basic slices without steps select."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise, product
from typing import NamedTuple

__all__ = ["Box", "boxes_between", "common_box", "subtract_box"]


class Box(NamedTuple):
    """A box of an array: where it begins and its extent, for each axis."""

    starts: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def stops(self) -> tuple[int, ...]:
        """Where it ends, for each axis."""
        return tuple([s + n for s, n in zip(self.starts, self.extents, strict=True)])

    @property
    def slices(self) -> tuple[slice, ...]:
        """The key that selects it."""
        return tuple([slice(s, s + n) for s, n in zip(self.starts, self.extents, strict=True)])

    def shift(self, by: Sequence[int]) -> Box:
        """Return the box moved by some steps along each axis."""
        return Box(tuple([s + d for s, d in zip(self.starts, by, strict=True)]), self.extents)


def common_box(boxes: Sequence[Box]) -> Box:
    """Return the elements that lie in all boxes; an extent is 0 if there are none.

    >>> common_box([Box((0,), (4,)), Box((1,), (4,))])
    Box(starts=(1,), extents=(3,))
    """
    return reduce(_common, boxes)


def _common(one: Box, other: Box) -> Box:
    starts = tuple(map(max, one.starts, other.starts))
    stops = map(min, one.stops, other.stops)
    return Box(starts, tuple([max(0, b - a) for a, b in zip(starts, stops, strict=True)]))


def subtract_box(box: Box, other: Box) -> list[Box]:
    """Return disjoint boxes that together are ``box`` without ``other``.

    >>> subtract_box(Box((0,), (4,)), Box((1,), (2,)))
    [Box(starts=(0,), extents=(1,)), Box(starts=(3,), extents=(1,))]
    """
    inside = common_box([box, other])
    if 0 in box.extents:
        return []
    if 0 in inside.extents:
        return [box]
    found = []
    for axis, (low, high) in enumerate(zip(inside.starts, inside.stops, strict=True)):
        for start, stop in ((box.starts[axis], low), (high, box.stops[axis])):
            if start < stop:
                found.append(_cut(box, axis, start, stop))
        box = _cut(box, axis, low, high)
    return found


def _cut(box: Box, axis: int, start: int, stop: int) -> Box:
    starts, extents = list(box.starts), list(box.extents)
    starts[axis], extents[axis] = start, stop - start
    return Box(tuple(starts), tuple(extents))


def boxes_between(ends: Sequence[Sequence[int]]) -> list[Box]:
    """Return the boxes that an array is cut into: for each axis all ends, in order.

    >>> boxes_between([(0, 1, 4)])
    [Box(starts=(0,), extents=(1,)), Box(starts=(1,), extents=(3,))]
    """
    intervals = product(*[pairwise(each) for each in ends])
    return [Box(tuple(a for a, _ in i), tuple(b - a for a, b in i)) for i in intervals]
