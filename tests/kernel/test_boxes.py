"""Boxes: what lies in all of them, and in one but not in another, against masks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mixad.kernel.boxes import Box, common_box, subtract_box

SIZE = 6


@st.composite
def boxes(draw, count):
    rank = draw(st.integers(1, 3))
    found = []
    for _ in range(count):
        starts = tuple(draw(st.integers(0, SIZE)) for _ in range(rank))
        found.append(Box(starts, tuple(draw(st.integers(0, SIZE - s)) for s in starts)))
    return found


def mask(box):
    found = np.zeros((SIZE,) * len(box.starts), dtype=int)
    found[box.slices] += 1
    return found


@given(boxes(3))
def test_the_common_box_is_where_all_masks_are_set(given_boxes):
    expected = np.prod([mask(box) for box in given_boxes], axis=0)
    np.testing.assert_array_equal(mask(common_box(given_boxes)), expected)


@given(boxes(2))
def test_what_is_left_of_a_box_is_covered_once(given_boxes):
    box, other = given_boxes
    covered = sum([mask(left) for left in subtract_box(box, other)], start=0 * mask(box))
    np.testing.assert_array_equal(covered, mask(box) * (1 - mask(other)))


@given(boxes(1))
def test_a_moved_box_selects_what_lies_further(given_boxes):
    (box,) = given_boxes
    moved = box.shift([1] * len(box.starts))
    assert moved.extents == box.extents
    assert moved.stops == tuple(s + n + 1 for s, n in zip(box.starts, box.extents, strict=True))
