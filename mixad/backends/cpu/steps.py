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
from mixad.backends.hookspecs import LaunchBlock, Written

__all__ = ["copy_block", "narrow_block", "sum_block", "take_steps"]


class _Native:
    """The functions of steps.ll; calls release the GIL."""

    def __init__(self) -> None:
        files = importlib.resources.files("mixad.backends.cpu")
        source = files.joinpath("steps.ll").read_text("utf-8")
        module = cached_module(source, lambda: source, allowed=frozenset({"memcpy"}))
        module.keep_forever()
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        types = pointer, number, pointer, number, number, number, pointer, number
        self.copy = module.address("copy")
        self.sum_rows, self.narrow = module.address("sum_rows"), module.address("narrow")
        self.take_steps: Any = module.function("take_steps", ctypes.CFUNCTYPE(number, *types))


@functools.cache
def _native() -> _Native:
    return _Native()


def copy_block(bytes_: int) -> LaunchBlock:
    """Return a launch that copies a number of bytes: its words are destination and source."""
    return LaunchBlock(
        _native().copy, array("q", (0, 0, bytes_)), 1, ((0, 1, 0),), (), (Written(0, bytes_),)
    )


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

    See `mixad.backends.hookspecs.Stepping.take_steps`.
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
