"""A cache of values that have a weight: the oldest entries are evicted when it is full."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from mixad.fork_locks import lock_of

__all__ = ["FifoCache"]

T = TypeVar("T")

_PATIENCE_SECONDS = 0.02
"""How long one waits for the lock, which is held for microseconds, before doing without."""


class FifoCache(Generic[T]):
    """Values by key, up to a total weight of ``most``; several threads may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()
        self._weight = 0  # counted along: summing up would take longer the more is known
        self._lock = lock_of(self, "_lock", threading.Lock)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._known)

    def get(self, key: Hashable) -> T | None:
        """Return a value, None if there is none."""
        found = self._known.get(key)
        return None if found is None else found[1]

    def keep(self, key: Hashable, weight: int, value: T) -> None:
        """Add a value; the oldest entries are evicted while all weigh too much."""
        # A signal's handler may have interrupted the thread that has the lock: it keeps nothing.
        lock = self._lock
        if not lock.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            self._weight += weight - self._known.pop(key, (0, None))[0]
            self._known[key] = weight, value
            while self._weight > self._most:
                self._weight -= self._known.popitem(last=False)[1][0]
        finally:
            lock.release()

    def clear(self) -> None:
        """Evict everything."""
        with self._lock:
            self._known.clear()
            self._weight = 0
