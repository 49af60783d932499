"""Values and gradients of a recording by plans: of one segment, or of several one after another.

A plan of a segment is made the first time: its operations are done on nodes over what came in, and
what these do is noted.  Backward, a segment is computed again from what it was given: nothing but
values that other segments read is stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np

from mixad.backends.arrays import describe_array
from mixad.tape.backward import backward
from mixad.tape.operations import LINK, Segment
from mixad.tape.replay import Replay
from mixad.tape.schedule import Cotangent, together
from mixad.tape.states import State
from mixad.tape.strand import Strand
from mixad.tape.strand_plan import came_in, plan_of

__all__ = ["one_of", "values_of_slots", "whole_gradient"]


def values_of_slots(values: Sequence[Any]) -> list[Any]:
    """Return what came in as plans take it, by slot; None for what was made.

    Raises
    ------
    TracerError
        If an array has been changed.
    """
    return [None if type(v) is State or v is LINK else came_in(v) for v in values]


@cache
def one_of(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the cotangent of a number that a gradient begins with."""
    one = np.ones((), dtype)
    one.flags.writeable = False
    return one


def whole_gradient(
    strand: Strand,
    inputs: int,
    outputs: Sequence[tuple[int, Any]],
    wanted: Sequence[int],
) -> tuple[Sequence[Any], list[Cotangent | None]] | None:
    """Return values of a recording, and the cotangents of its inputs.

    None if a segment has no plan.

    Parameters
    ----------
    strand : Strand
        A recording of several segments.
    inputs : int
        How many inputs there are: they have the first slots.
    outputs : sequence of (int, array)
        The slots that cotangents come to, with these.
    wanted : sequence of int
        The slots of the values that are wanted.
    """
    run = _Run(strand, inputs, wanted)
    numbers = range(len(strand.ends) + 1)
    if not all(map(run.forward, numbers)):
        return None
    for slot, cotangent in outputs:
        run.add(slot, Cotangent(cotangent, False))
    if not all(map(run.backward, reversed(numbers))):
        return None
    return [run.values[slot] for slot in wanted], [run.found.get(slot) for slot in range(inputs)]


_RARE = 2
"""Times in one call up to which a segment of small arrays may be one that never comes again."""

_OFTEN = 256
"""Times in one call from which on a kernel of numbers is compiled, not computed by NumPy."""


class _Run:
    """One call.

    Attributes
    ----------
    values : list
        By slot, what came in and, of what was made, what other segments read.
    found : dict
        By slot, the cotangent so far.
    """

    def __init__(self, strand: Strand, inputs: int, wanted: Sequence[int]) -> None:
        self.values = values_of_slots(strand.values)
        self.found: dict[int, Cotangent] = {}
        self._strand = strand
        self._inputs = inputs
        ends = [*strand.ends, strand.state]
        count = Counter(map(id, ends))
        self._times = [count[id(state)] for state in ends]
        self._links = list(strand.sources)
        read = {*strand.sources.values(), *wanted}
        self._read = sorted([slot for slot in read if strand.made(slot) is not None])
        self._traced = [*range(inputs), *filter(strand.is_traced, self._links)]
        self._layouts: list[tuple[Any, ...]] = []
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def forward(self, number: int) -> bool:
        """Compute what others read of a segment; tell whether there is a plan."""
        segment, values = self._strand.segment(number), self.values
        for slot in self._inside(self._links, segment):
            values[slot] = values[self._strand.sources[slot]]
        inside = self._inside(self._traced, segment)
        layout = tuple([describe_array(values[slot]) for slot in inside])  # links: no state knows
        self._layouts.append(self._known.setdefault(layout, layout))
        start, stop = segment.start, segment.stop
        asked = [slot - start for slot in self._inside(self._read, segment)]
        if not asked:
            return True
        key = self._key("forward", number, tuple(asked))
        plan = segment.state.plans.get(key)
        if plan is None:
            done = self._on_nodes(key, number, asked, [])
        else:
            done = plan.run(values[start:stop], ())
        if done is None:
            return False
        for local, value in zip(asked, done[0], strict=True):
            values[start + local] = value
        return True

    def _inside(self, slots: list[int], segment: Segment) -> list[int]:
        """Return which of some slots in order are in a segment."""
        return slots[bisect_left(slots, segment.start) : bisect_left(slots, segment.stop)]

    def backward(self, number: int) -> bool:
        """Carry cotangents back through a segment; tell whether there is a plan."""
        segment = self._strand.segment(number)
        start, stop = segment.start, segment.stop
        made = range(max(start, self._inputs), stop)
        seeds = [slot for slot in sorted(self.found) if slot in made]
        if not seeds:
            return True
        gs = [self._whole(slot) for slot in seeds]
        locals_ = [slot - start for slot in seeds]
        given = tuple(zip(locals_, map(describe_array, gs), strict=True))
        key = self._key("backward", number, given)
        plan = segment.state.plans.get(key)
        if plan is None:
            done = self._on_nodes(key, number, locals_, gs)
        else:
            done = plan.run(self.values[start:stop], gs)
        if done is None:
            return False
        inside, sources = self._inside(self._traced, segment), self._strand.sources
        for slot, cotangent in zip(inside, done[1], strict=True):
            if cotangent is not None:
                self.add(sources.get(slot, slot), cotangent)
        return True

    def _key(self, what: str, number: int, asked: Hashable) -> tuple[Any, ...]:
        """Return what a plan is kept for."""
        return what, self._layouts[number], asked, self._fuses(number), self._compiles(number)

    def _compiles(self, number: int) -> bool:
        """Whether kernels of numbers of a segment are compiled."""
        return self._times[number] >= _OFTEN

    def _fuses(self, number: int) -> bool:
        """Whether a segment is fused: it comes again in the call, as in a loop, or lies beside one
        that does, or its arrays are not small."""
        beside = self._times[max(number - 1, 0) : number + 2]
        return max(beside) > _RARE or not self._strand.segment(number).state.is_small

    def _whole(self, slot: int) -> Any:
        """Return a cotangent in the shape of its value."""
        found, shape = self.found.pop(slot).value, self._strand.known(slot).shape
        return found if found.shape == shape else np.array(np.broadcast_to(found, shape))

    def add(self, slot: int, cotangent: Cotangent) -> None:
        """Add to the cotangent of a value."""
        known = self.found.get(slot)
        self.found[slot] = cotangent if known is None else together(known, *cotangent)

    def _on_nodes(
        self, key: tuple[Any, ...], number: int, asked: Sequence[int], gs: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Cotangent | None]] | None:
        """Return some values of a segment, or cotangents of what came in, by nodes.

        What they do is kept as a plan, unless it may never come again.  None if a segment that is
        fused has no plan.
        """
        segment, fuses = self._strand.segment(number), self._fuses(number)
        replayed = Replay(self._strand, segment.start, self.values.__getitem__)
        replayed.advance(segment.stop)
        journal, level = replayed.journal, replayed.level
        level.fuses = fuses
        chosen = [replayed.done[at] for at in asked]
        replayed.done.clear()
        with level:
            if gs:
                outputs = list(zip([t.origin for t in chosen], gs, strict=True))
                nodes = [t.origin.node for t in replayed.inputs]
                chosen.clear()
                cotangents = backward(level, outputs, nodes)  # type: ignore[arg-type]
            else:
                cotangents = []
            values = [tracer.cell.value for tracer in chosen]
        if not (fuses or segment.state.come() > _RARE):
            return values, cotangents
        registers = [journal.register(tracer.cell) for tracer in chosen]
        came = self.values[segment.start : segment.stop]
        plan = plan_of(journal, came, gs, registers, compiles=self._compiles(number))
        if plan is not None:
            segment.state.keep(key, plan)
        elif fuses:
            return None  # else its bits would be others from the third call on
        return values, cotangents
