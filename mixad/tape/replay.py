"""A segment of a recording, done again on nodes of a level that launches nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mixad.backends.arrays import is_array
from mixad.backends.autocast import in_given_types
from mixad.tape.cell import Cell
from mixad.tape.guard import GuardedArray
from mixad.tape.journal import Journal, Noted
from mixad.tape.memory import noted_array
from mixad.tape.node import InputNode
from mixad.tape.operations import (
    FURTHER,
    Called,
    Container,
    Given,
    Operation,
    container_of,
    results_of,
)
from mixad.tape.tracer import Level, Origin, Tracer

if TYPE_CHECKING:
    from mixad.tape.strand import Strand

__all__ = ["Replay"]


class Replay:
    """A segment on nodes, from the slot `start` on.

    `value` returns the array or number that comes in, by its slot.
    """

    def __init__(
        self,
        strand: Strand,
        start: int,
        value: Callable[[int], Any],
    ) -> None:
        around = strand.level  # it refuses what the transform would
        self.level = Level(
            around.name, is_reverse=around.is_reverse, differentiates=around.differentiates
        )
        self.level.check = "off"  # the recording watches what comes in
        self.level.foresees, self.level.unknown = True, around.unknown
        self._entered: dict[int, tuple[int, Any]] = {}
        at = lambda slot: value(start + slot)  # noqa: E731
        self.journal = self.level.journal = Journal(self._entered, at)  # what the nodes do
        self.done: list[Any] = []  # by slot, what has been done
        self._mark = self.journal.mark()
        self._strand = strand
        self._start = start
        self._value = value
        self._alone = frozenset((self.level,))
        self._further: list[Any] = []
        self._container: Container | None = None

    def advance(self, stop: int) -> None:
        """Do what was recorded before a slot."""
        for slot in range(self._start + len(self.done), stop):
            self._do(slot)

    def noted(self, stop: int) -> Noted | None:
        """Return what is done before a slot, with the registers of its values.

        None if not all of that could be noted.
        """
        self.advance(stop)
        made = self._strand.made
        values = {at: v for at, v in enumerate(self.done) if made(self._start + at) is not None}
        noted = self.journal.noted(values) if self.journal.is_whole else None
        self.close()
        return noted

    def close(self) -> None:
        """Let go of nodes, their level and the journal: they hold each other."""
        self.level.journal = None
        self.done.clear()

    def _do(self, slot: int) -> None:
        """Do the next recorded operation."""
        made = self._strand.made(slot)
        if made is not None:
            self.done.append(self._made(*made))
        elif self._strand.is_traced(slot):
            self.done.append(self._traced(slot))
        else:
            self.done.append(self._arrived(slot))

    @in_given_types
    def result(self, operation: Operation, slots: Sequence[int]) -> Given:
        """Do an operation on nodes; return what is known of its results."""
        self.advance(len(self._strand.values))
        self.journal.is_whole, self._mark = True, self.journal.mark()
        before, risks = self.level.looks, self.level.risks
        with np.errstate(all="ignore"):
            first = self._made(operation, slots)
        results, may_fail = [first, *self._further], risks != self.level.risks
        self._further.clear()
        operands = [self.done[slot - self._start] for slot in slots]
        is_new = not any(result is operand for result in results for operand in operands)
        is_told = before == self.level.looks and self.journal.is_whole and is_new
        return Given.of(results, self._container, operands, may_fail=may_fail, is_told=is_told)

    def forget(self, first: int) -> None:
        """Forget the last operation, and what has been done from a slot of the recording on."""
        self.journal.forget(self._mark)
        del self.done[first - self._start :]
        for key in [key for key, (slot, _) in self._entered.items() if slot >= first - self._start]:
            del self._entered[key]

    def _traced(self, slot: int) -> Tracer:
        known = self._strand.known(slot)
        assert known.kind is not None
        array = self._value(slot)
        device = getattr(array, "device", None)
        cell = Cell.of_held(GuardedArray(array, "off"), known.shape, known.kind, device)
        tracer: Tracer = self._strand.kind(
            cell, Origin(InputNode(self.level, None), 0, self._alone)
        )
        self.journal.name(cell, slot - self._start)
        if not known.is_number:
            noted_array(tracer)
        return tracer

    def _arrived(self, slot: int) -> Any:
        value = self._value(slot)
        if is_array(value) or isinstance(value, Called):
            self._entered[id(value)] = slot - self._start, value  # held: ids are used again
        return value

    def _made(self, operation: Operation, operands: Sequence[int]) -> Any:
        own = tuple([slot - self._start for slot in operands])
        given = [self.done[at] for at in own]
        if operation is not FURTHER:
            found = self.journal.perform(operation, given, own)
            self._further, self._container = results_of(found), container_of(found)
        return self._further.pop(0)
