"""Which carries of a loop are kept where there is no room for all: the binomial schedule.

Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """How a loop is taken back with room for ``room`` carries, those of its first step included."""

    room: int

    def repetitions(self, steps: int) -> int:
        """Return how often a step runs again at most."""
        found = 0
        while _reach(self.room, found) < steps:
            found += 1
        return found

    def steps_again(self, steps: int) -> int:
        """Return the number of repeated steps in all, until each has begun with its carries."""
        r = self.repetitions(steps)
        return r * steps - comb(self.room + r, r - 1) if r else 0

    def advance(self, steps: int) -> int:
        """Return after how many steps the next carries are kept; there are several steps."""
        r = self.repetitions(steps)
        return min(_reach(self.room, r - 1), steps - _reach(self.room - 1, r - 1))


def _reach(room: int, repetitions: int) -> int:
    """Return how many steps can be taken back with ``repetitions`` runs of each."""
    return comb(room + repetitions, room) if repetitions >= 0 else 0
