"""Arrays that cannot be written to while a function runs that has recorded reading them.

What is recorded is computed later.  A program that goes on to fill one of its arrays anew would
change what was recorded before; NumPy refuses that at the line that writes.  An array is locked
with the array that it is a view of, and both are as they were when the last lock is gone.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Locks"]

_NumpyArray: TypeAlias = np.ndarray[Any, Any]


class _Locked:
    """An array that owns its memory and views of it, as many locks, and who was writable."""

    __slots__ = ("count", "writable")

    def __init__(self) -> None:
        self.count = 0
        self.writable: list[_NumpyArray] = []

    def lock(self, array: _NumpyArray) -> None:
        """Lock one more of them, if it is not and can be unlocked."""
        if array.flags.writeable and _owns(array):
            array.flags.writeable = False
            self.writable.append(array)

    def unlock(self) -> None:
        """Let all of them be as they were; the owner, which views follow, is the first."""
        for array in self.writable:
            array.flags.writeable = True


def _owns(array: _NumpyArray) -> bool:
    """Whether the memory is NumPy's own; only that may be made writable again.

    The results of kernels have memory that is lent; they are compared when they are read.
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


class Locks:
    """What one transform has locked."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: list[_NumpyArray] = []

    def __bool__(self) -> bool:
        return bool(self._owners)

    def add(self, array: _NumpyArray) -> None:
        """Lock an array."""
        base = array.base
        owner = base if isinstance(base, np.ndarray) else array
        with _mutex:
            locked = _LOCKED.setdefault(id(owner), _Locked())
            locked.lock(owner)
            locked.lock(array)
            locked.count += 1
            self._owners.append(owner)

    def release(self) -> None:
        """Unlock what nobody else has locked."""
        if not self._owners:
            return
        with _mutex:
            for owner in self._owners:
                locked = _LOCKED[id(owner)]
                locked.count -= 1
                if not locked.count:
                    del _LOCKED[id(owner)]
                    locked.unlock()
        self._owners.clear()


_LOCKED: dict[int, _Locked] = {}
"""By the id of an array that owns its memory; whoever has locked it holds it."""

_mutex = threading.Lock()


def _unlock() -> None:
    """Start anew in a forked child, where a thread of its parent may have held the lock."""
    global _mutex
    _mutex = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
