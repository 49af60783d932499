"""How many threads a block has, and how many neighbours a thread: by what the compiler made of it.

What hides the time that memory takes is the number of bytes on their way (Volkov: "Better
performance at lower occupancy", GTC 2010): threads that are there at once, times what each loads
together.  What hides the time that instructions take are other threads.  More neighbours to a
thread are more bytes from each, and more registers, hence fewer threads.  So shapes are tried in
the order in which they are preferred, and the first that has enough of both is taken; where none
has, the one that lacks least.  One that spills what the least demanding one does not is never
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mixad.backends.cuda.device import Device, Usage

__all__ = ["BlockShape", "candidate_shapes", "choose_shape", "enough", "resident", "speed_share"]

_THREADS = (256, 128)
"""Threads of a block, what is preferred first: of larger blocks, fewer sums are left."""

_LATENCY = 800e-9
"""Seconds from a load to its value when the memory is busy; measured ones are 500 to 800 ns."""


_ENOUGH_THREADS = 3 / 8
"""Of the threads that a multiprocessor can have.  Measured on an H200, like what follows: with a
quarter of them kernels reach 3/4 of the memory's speed, with an eighth 1/2."""

_ENOUGH_LOADED, _NARROW = 8, 0.6
"""Bytes that a thread loads at once, and what of the speed is left where they are fewer."""


class BlockShape(NamedTuple):
    """How a row's elements are shared out."""

    vector: int  # neighbours of a row that a thread has at a time
    threads: int  # of a block


def candidate_shapes(widest: int) -> Iterator[BlockShape]:
    """Yield the shapes that are tried, from the widest that extents and types allow."""
    vector = widest
    while vector:
        for threads in _THREADS:
            yield BlockShape(vector, threads)
        vector //= 2


def enough(device: Device) -> float:
    """Return how many bytes on their way to one multiprocessor keep the memory busy."""
    return device.bandwidth * _LATENCY / device.processors


def speed_share(device: Device, shape: BlockShape, threads: int, loaded: Sequence[int]) -> float:
    """Return which share of the memory's speed a shape reaches with so many resident threads."""
    flying = threads * shape.vector * sum(loaded) / enough(device) if loaded else 1.0
    hidden = threads / device.threads / _ENOUGH_THREADS
    is_narrow = bool(loaded) and shape.vector * max(loaded) < _ENOUGH_LOADED
    return min(flying, hidden, 1.0) * (_NARROW if is_narrow else 1.0)


def choose_shape(
    device: Device,
    widest: int,
    loaded: Sequence[int],
    usages: Callable[[BlockShape], Sequence[Usage]],
) -> BlockShape:
    """Return the shape that blocks are given on a device.

    ``loaded`` are the bytes of each value that is loaded for an element; ``usages`` compiles the
    functions for a shape and returns what they use, one for each pass.
    """
    best, most = BlockShape(1, _THREADS[0]), 0.0
    for shape in candidate_shapes(widest):
        if speed_share(device, shape, device.threads, loaded) <= most:
            continue  # not even if all threads were there
        used = usages(shape)
        if _spills(used, usages):
            continue
        share = speed_share(device, shape, resident(device, shape, used), loaded)
        if share == 1:
            return shape
        if share > most:
            best, most = shape, share
    return best


def resident(device: Device, shape: BlockShape, usages: Iterable[Usage]) -> int:
    """Return how many threads one multiprocessor has at once, in the weakest pass."""
    return min(device.resident(u, shape.threads) for u in usages)


def _spills(used: Sequence[Usage], usages: Callable[[BlockShape], Sequence[Usage]]) -> bool:
    """Whether functions have more local memory than for one neighbour, where it is not spills."""
    if not any(u.local for u in used):
        return False
    least = usages(BlockShape(1, _THREADS[-1]))
    return any(own.local > one.local for own, one in zip(used, least, strict=True))
