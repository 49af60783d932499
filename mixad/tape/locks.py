"""Locks on arrays: a function that has recorded reading one refuses writes to it while it runs.

Recorded operations are computed later. A program that fills one of its arrays anew would change
what was recorded before; NumPy refuses that at the line that writes. An array is locked together
with the array that owns its memory, and both are as they were when the last lock is gone. NumPy
makes a view writable again if its owner is. A view that the user takes of a locked array is
read-only, as views of read-only arrays are, and stays so: nobody has a list of them.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, TypeAlias

import numpy as np

from mixad.fork_locks import lock_of

__all__ = ["Locks", "owner_of"]

_NumpyArray: TypeAlias = np.ndarray[Any, Any]


class _Locked:
    """An array that owns its memory, with its views: how many locks, and what was writable."""

    __slots__ = ("count", "writable")

    def __init__(self) -> None:
        self.count = 0
        self.writable: list[_NumpyArray] = []

    def lock(self, owner: _NumpyArray, array: _NumpyArray) -> None:
        """Lock the owner and an array if they are writable and can be unlocked again.

        Memory that is not NumPy's (results of kernels, tensors, what compiled solvers hand to
        callbacks) is not locked: what is read of it is compared.
        """
        for each in (owner,) if owner is array else (owner, array):
            if each.flags.writeable and (each.flags.owndata or self.writable):
                np.ndarray.setflags(each, write=False)
                self.writable.append(each)

    def unlock(self) -> None:
        """Make all of them writable again, the owner first: views follow it."""
        failed: list[ValueError] = []
        for array in self.writable:
            try:
                np.ndarray.setflags(array, write=True)
            except ValueError as error:  # of one: the others are unlocked all the same
                failed.append(error)
        if failed:
            raise failed[0]


def owner_of(array: _NumpyArray) -> _NumpyArray:
    """Return the array that an array is a view of; itself if it is no view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Locks(list[_NumpyArray]):
    """What one transform has locked: arrays that own their memory."""

    def add(self, array: _NumpyArray) -> None:
        """Lock an array."""
        owner = array if array.base is None else owner_of(array)
        with _mutex:
            locked = _LOCKED.get(id(owner))
            if locked is None:
                locked = _LOCKED[id(owner)] = _Locked()
            locked.lock(owner, array)
            locked.count += 1
            self.append(owner)

    def release(self) -> None:
        """Unlock what nobody else has locked."""
        failed: list[ValueError] = []
        with _mutex:
            for owner in self:
                locked = _LOCKED[id(owner)]
                locked.count -= 1
                if not locked.count:
                    try:
                        _LOCKED.pop(id(owner)).unlock()
                    except ValueError as error:
                        failed.append(error)
            self.clear()
        if failed:
            raise failed[0]


_LOCKED: dict[int, _Locked] = {}
"""By the id of an array that owns its memory, which whoever has locked it holds."""

_mutex = lock_of(sys.modules[__name__], "_mutex", threading.Lock)
