"""How many threads a block has, and how many neighbours a thread: by what the compiler made of it.

What hides the time that memory takes is the number of bytes on their way (Volkov: "Better
performance at lower occupancy", GTC 2010): threads that are there at once, times what each loads
together.  More neighbours to a thread are more bytes from each, and more registers, hence fewer
threads.  So shapes are tried in the order in which they are preferred, and the first that keeps
enough bytes on their way is taken; where none does, the one that keeps most.  One that spills what
the least demanding one does not is never taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mixad.backends.cuda.device import Device, Usage

__all__ = ["BlockShape", "chosen", "enough", "in_flight", "preferred"]

_THREADS = (256, 128)
"""Threads of a block, what is preferred first: of larger blocks, fewer sums are left."""

_LATENCY = 800e-9
"""Seconds from a load to its value when the memory is busy; measured ones are 500 to 800 ns."""


class BlockShape(NamedTuple):
    """How a row's elements are shared out.

    Attributes
    ----------
    vector : int
        Neighbours of a row that a thread has at a time.
    threads : int
        Of a block.
    """

    vector: int
    threads: int


def preferred(widest: int) -> Iterator[BlockShape]:
    """Yield the shapes that are tried, from the widest that extents and types allow."""
    vector = widest
    while vector:
        for threads in _THREADS:
            yield BlockShape(vector, threads)
        vector //= 2


def enough(device: Device) -> float:
    """Return how many bytes on their way to one multiprocessor keep the memory busy."""
    return device.bandwidth * _LATENCY / device.processors


def in_flight(device: Device, shape: BlockShape, usages: Iterable[Usage], element: int) -> int:
    """Return how many bytes are on their way to one multiprocessor, in the weakest pass."""
    return min(device.resident(u, shape.threads) for u in usages) * shape.vector * element


def chosen(
    device: Device,
    widest: int,
    element: int,
    usages: Callable[[BlockShape], Sequence[Usage]],
) -> BlockShape:
    """Return the shape that blocks are given on a device.

    ``element`` is the bytes that are loaded for one; ``usages`` compiles the functions for a shape
    and returns what they use, one for each pass.
    """
    best, most = BlockShape(1, _THREADS[0]), -1
    for shape in preferred(widest):
        if device.threads * shape.vector * element <= most:
            continue  # not even if all threads were there
        used = usages(shape)
        if _spills(used, usages):
            continue
        bytes_ = in_flight(device, shape, used, element)
        if bytes_ >= enough(device):
            return shape
        if bytes_ > most:
            best, most = shape, bytes_
    return best


def _spills(used: Sequence[Usage], usages: Callable[[BlockShape], Sequence[Usage]]) -> bool:
    """Whether functions have more local memory than for one neighbour, where it is not spills."""
    if not any(u.local for u in used):
        return False
    least = usages(BlockShape(1, _THREADS[0]))
    return any(own.local > one.local for own, one in zip(used, least, strict=True))
