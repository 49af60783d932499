"""Memory for results, used again once nothing refers to it.

Writing to pages that are new to the process costs several times what a kernel does: the system
finds, clears and maps each of them. So large results come from a pool. A block of memory is owned
by the *base object* of the array made of it, which every view, tensor or capsule made from the
array keeps alive; when it goes, the block goes back to the pool.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from mixad.backends.cpu.container import memory_bytes
from mixad.config import POOL_BYTES

__all__ = ["SMALLEST", "BufferPool", "clear", "empty", "limit", "retained_bytes"]

SMALLEST = 128 << 10
"""Arrays of fewer bytes come from NumPy: malloc gives them recycled memory as well."""

_HUGE_PAGE = 2 << 20


class _Block:
    """A private mapping; freed with the object. Blocks of 2 MiB and more lie on huge pages."""

    __slots__ = ("_export", "_mapping", "address", "size")

    def __init__(self, size: int) -> None:
        slack = _HUGE_PAGE if size >= _HUGE_PAGE else 0
        self._mapping = _private_mapping(size + slack)
        self._export = ctypes.c_char.from_buffer(self._mapping)
        start = ctypes.addressof(self._export)
        self.address = -(-start // _HUGE_PAGE) * _HUGE_PAGE if slack else start
        self.size = size


def _private_mapping(size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    # Python's default is MAP_SHARED, where a forked child writes into its parent's results.
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size > _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        _advise_huge_pages(mapping)
    return mapping


def _advise_huge_pages(mapping: mmap.mmap) -> None:
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a kernel built without them
        return


class _Owner:
    """The base object of an array: lends a block to it and returns the block when it dies."""

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_pool")

    def __init__(
        self, pool: BufferPool, block: _Block, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._pool = pool
        self._block = block
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (block.address, False),
        }

    def __del__(self) -> None:
        self._pool.give_back(self._block)


class BufferPool:
    """Blocks of memory that no array uses; the least recently used are freed beyond a limit.

    `limit` returns that number of bytes and is asked for each new array. Arrays of fewer bytes than
    `smallest` come from NumPy.
    """

    def __init__(self, limit: Callable[[], int], smallest: int = SMALLEST) -> None:
        self._limit = limit
        self._most = 0  # as it was told last: nothing may be raised where blocks come back
        self._smallest = smallest
        self.forget()

    def forget(self) -> None:
        """Start anew, as in a forked child, where another thread may have held the lock."""
        self._lock = threading.Lock()
        self._free: OrderedDict[int, list[_Block]] = OrderedDict()
        self._retained = 0
        # The garbage collector returns blocks at any moment, also to the thread that holds the
        # lock. So returning is one atomic append, and whoever can lock does the rest.
        self._returned: deque[_Block] = deque()

    @property
    def retained_bytes(self) -> int:
        """The number of bytes that no array uses."""
        with self._lock:
            self._sort_in()
            return self._retained

    def empty(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, aligned: bool = False
    ) -> np.ndarray[Any, Any]:
        """Return a C-contiguous array whose elements are not set.

        Memory of the pool is aligned to a page, from 2 MiB on to 2 MiB. ``aligned`` aligns small
        arrays, too: stores that bypass the cache crash at malloc's alignment of 16 bytes.
        """
        size = math.prod(shape) * dtype.itemsize
        if size < self._smallest and not aligned:
            return np.empty(shape, dtype)
        return np.asarray(_Owner(self, self._take(_round_size(size)), shape, dtype))

    def give_back(self, block: _Block) -> None:
        """Take back a block that no array uses any more; free it if the pool is full."""
        self._returned.append(block)
        self._sort_in_if_unlocked()

    def clear(self) -> None:
        """Free every block that no array uses."""
        with self._lock:
            self._returned.clear()
            self._free.clear()
            self._retained = 0

    def _take(self, size: int) -> _Block:
        block, lock = None, self._lock
        self._most = self._limit()
        # A signal's handler that runs a kernel may have interrupted the thread that has the lock.
        if lock.acquire(timeout=_PATIENCE_SECONDS):
            try:
                self._sort_in()
                block = self._pop(size)
            finally:
                lock.release()
        self._sort_in_if_unlocked()
        return _Block(size) if block is None else block

    def _pop(self, size: int) -> _Block | None:
        blocks = self._free.get(size)
        if not blocks:
            return None
        self._free.move_to_end(size)
        self._retained -= size
        return blocks.pop()

    def _sort_in_if_unlocked(self) -> None:
        # Looks again after unlocking: a block returned meanwhile found the lock taken.
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self._lock.release()

    def _sort_in(self) -> None:
        """File the returned blocks, then free those over the limit; the caller holds the lock."""
        while self._returned:
            block = self._returned.popleft()
            self._free.setdefault(block.size, []).append(block)
            self._free.move_to_end(block.size)
            self._retained += block.size
        while self._retained > self._most:
            size, blocks = next(iter(self._free.items()))
            if blocks:
                blocks.pop(0)
                self._retained -= size
            if not blocks:
                del self._free[size]


def _round_size(size: int) -> int:
    """Round a size up to three significant bits below its highest, and to whole pages.

    Results of slightly different sizes so use the same blocks, and at most an eighth is unused.
    """
    step = max(mmap.PAGESIZE, 1 << size.bit_length() >> 4)
    return -(-size // step) * step


@functools.cache
def _share_of_memory() -> int | None:
    """Return an eighth of the memory that this process may have, None if unknown."""
    memory = memory_bytes()
    return None if memory is None else memory // 8


def limit() -> int:
    """Return how many unused bytes the pool of this process retains at most.

    That is ``MIXAD_POOL_BYTES`` where it is set, else its default or an eighth of the memory if
    that is less.
    """
    most = POOL_BYTES.read()
    share = _share_of_memory()
    return most if share is None or POOL_BYTES.is_set() else min(most, share)


_PATIENCE_SECONDS = 0.5
"""How long one waits for the pool's lock, which is held for microseconds, before doing without."""

_POOL = BufferPool(limit)
empty = _POOL.empty
clear = _POOL.clear

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.forget)


def retained_bytes() -> int:
    """Return the number of bytes in this process's pool that no array uses."""
    return _POOL.retained_bytes
