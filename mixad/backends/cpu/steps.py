"""Launches one after another, again and again, without Python between them.

The code is `steps.ll`, compiled as kernels are.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
from array import array
from collections.abc import Sequence
from typing import Any

from mixad.backends.cpu.compiler import cached_module
from mixad.backends.protocols import LaunchBlock, Written

__all__ = ["add_at_block", "move_block", "narrow_block", "sum_block", "take_block", "take_steps",
           "write_at_block"]  # fmt: skip


class _Native:
    """The functions of steps.ll; calls release the GIL."""

    def __init__(self) -> None:
        files = importlib.resources.files("mixad.backends.cpu")
        source = files.joinpath("steps.ll").read_text("utf-8")
        module = cached_module(source, lambda: source, allowed=_COPIES)
        module.keep_forever()
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        types = pointer, number, pointer, number, number, number, pointer, number
        self.move = module.address("move")
        self.take, self.write_at = module.address("take"), module.address("write_at")
        self.add_at = {size: module.address(f"add_at{size}") for size in (4, 8)}
        self.sum_rows, self.narrow = module.address("sum_rows"), module.address("narrow")
        self.take_steps: Any = module.function("take_steps", ctypes.CFUNCTYPE(number, *types))


_COPIES = frozenset({"memcpy", "memset", "bzero", "__bzero"})
"""What LLVM calls to copy and to clear memory."""


@functools.cache
def _native() -> _Native:
    return _Native()


def move_block(sources: int, runs: Sequence[tuple[int, int, int, int]], size: int) -> LaunchBlock:
    """Return what makes so many bytes of runs of others: see `Stepping.move_block`."""
    words = array("q", (0, len(runs), _FIRST_SOURCE + sources, *[0] * sources))
    for source, first, after, count in runs:
        words.extend((0 if source < 0 else _FIRST_SOURCE + source, first, after, count))
    reads = tuple([(k, _FIRST_SOURCE + k, 0) for k in range(sources)])
    return LaunchBlock(_native().move, words, 1, reads, (), (Written(0, size),))


_FIRST_SOURCE = 3
"""The word of the first source of a copy."""


def take_block(count: int, size: int, gaps: Sequence[int]) -> LaunchBlock:
    """Return what takes so many elements of a size at positions: see `Stepping.take_block`."""
    words = array("q", (0, 0, 0, count, _TABLE if gaps else 0, size, *gaps))
    return LaunchBlock(_native().take, words, 1, _TWO_READS, (), (Written(0, count * size),))


def add_at_block(count: int, length: int, size: int, gaps: Sequence[int]) -> LaunchBlock:
    """Return what adds so many floats at positions: see `Stepping.add_at_block`."""
    words = array("q", (0, 0, 0, count, _TABLE if gaps else 0, 8 * length, *gaps))
    finish = ((False, narrow_block(length)),) if size == _FLOAT else ()
    written = Written(0, 8 * length, finish)
    return LaunchBlock(_native().add_at[size], words, 1, _TWO_READS, (), (written,))


def write_at_block(how: str, count: int, room: int, size: int, gaps: Sequence[int]) -> LaunchBlock:
    """Return what changes so many elements at positions: see `Stepping.write_at_block`."""
    number = ("write", "add", "clear").index(how)
    words = array("q", (0, 0, 0, count, _TABLE + 1 if gaps else 0, size, number, *gaps))
    reads = ((1, 1, 0), (2, 2, 0)) if how != "clear" else ((1, 2, 0),)
    written = Written(0, room, changes=0)
    return LaunchBlock(_native().write_at, words, 1, reads, (), (written,))


_TWO_READS = ((0, 1, 0), (1, 2, 0))
"""Elements and positions, after the word of the result."""

_TABLE = 6
"""The word after those of elements at positions."""

_FLOAT = 4
"""Bytes of a float, whose sums are doubles."""


def sum_block(rows: int, length: int, blocks: int) -> LaunchBlock:
    """Return a launch that adds up rows of doubles in each block, in place, as Python does."""
    words = array("q", (0, rows, length, blocks))
    return LaunchBlock(_native().sum_rows, words, 1, (), (), ())


def narrow_block(count: int) -> LaunchBlock:
    """Return a launch that rounds a number of doubles to floats."""
    words = array("q", (0, 0, count))
    return LaunchBlock(_native().narrow, words, 1, (), (), (Written(0, 4 * count),))


def take_steps(
    blocks: Sequence[LaunchBlock],
    moves: Sequence[tuple[int, int, int, int]],
    first: int,
    last: int,
    flag: int,
    tested: int,
) -> int:
    """Run the launches of each step from ``first`` on before ``last``; return the next step.

    See `mixad.backends.protocols.Stepping.take_steps`.
    """
    launches, words = array("q"), [block.words.buffer_info()[0] for block in blocks]
    for block, address in zip(blocks, words, strict=True):
        launches.extend((block.kernel, address, block.tiles))
    moved = array("q")
    for at, word, even, odd in moves:
        moved.extend((words[at] + 8 * word, even, odd))
    found: int = _native().take_steps(
        launches.buffer_info()[0],
        len(blocks),
        moved.buffer_info()[0],
        len(moves),
        first,
        last,
        flag or None,
        tested,
    )
    return found
