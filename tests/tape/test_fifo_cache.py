"""A memory with a bound: what is forgotten, what it costs, several threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mixad.backends.fifo_cache import FifoCache

from .test_threads import THREADS, together


def test_what_is_known_longest_is_forgotten_first() -> None:
    memory: FifoCache[str] = FifoCache(10)
    for key, weight in [("a", 4), ("b", 4), ("c", 2), ("a", 5)]:  # the second a takes b's place
        memory.keep(key, weight, key.upper())
    assert [memory.get(key) for key in "abc"] == ["A", None, "C"]
    memory.keep("d", 3, "D")
    assert [memory.get(key) for key in "acd"] == ["A", "C", "D"]


def test_what_weighs_too_much_alone_is_not_remembered() -> None:
    memory: FifoCache[str] = FifoCache(10)
    memory.keep("a", 11, "A")
    assert len(memory) == 0
    memory.keep("b", 10, "B")
    assert memory.get("b") == "B"


def test_nothing_is_weighed_after_clearing() -> None:
    memory: FifoCache[str] = FifoCache(10)
    memory.keep("a", 9, "A")
    memory.clear()
    memory.keep("b", 9, "B")
    assert [memory.get(key) for key in "ab"] == [None, "B"]


@dataclass(frozen=True)
class Counted:
    """A key that counts how often it is looked at."""

    name: int
    looked: list[int] = field(compare=False)

    def __hash__(self) -> int:
        self.looked.append(self.name)
        return hash(self.name)


def test_remembering_costs_the_same_however_much_is_known() -> None:
    looked: list[int] = []
    memory: FifoCache[int] = FifoCache(500)
    for n in range(600):
        looked.clear()
        memory.keep(Counted(n, looked), 1, n)
        assert len(looked) <= 6
    assert len(memory) == 500


def test_threads_remember_at_once() -> None:
    memory: FifoCache[Any] = FifoCache(100)

    def work(at: int) -> None:
        for n in range(2000):
            memory.keep((at, n % 150), 1 + n % 3, n)
            memory.get((at + 1, n % 150))

    together(work)
    assert 100 // 3 <= len(memory) <= 100
    for at in range(THREADS):
        memory.keep(at, 100, at)
        assert len(memory) == 1


def test_who_cannot_have_the_lock_remembers_nothing() -> None:
    """As a signal's handler that interrupted the thread that has it."""
    memory: FifoCache[int] = FifoCache(10)
    with memory._lock:
        memory.keep("a", 1, 7)
    assert memory.get("a") is None
    memory.keep("a", 1, 7)
    assert memory.get("a") == 7
