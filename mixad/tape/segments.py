"""Values and gradients of a recording by plans: of one segment, or of several one after another.

A plan of a segment is made the first time: its operations are done on nodes over what came in, and
what these do is noted.  Backward, a segment is computed again from what it was given: nothing but
values that other segments read is stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from mixad.backends.arrays import as_array, describe_array
from mixad.tape.backward import backward
from mixad.tape.cell import Kind
from mixad.tape.held import Held
from mixad.tape.making import make_together
from mixad.tape.operations import LINK, Segment
from mixad.tape.over_numpy import as_numpy, came_in, of_numpy
from mixad.tape.replay import Replay
from mixad.tape.schedule import Cotangent, together
from mixad.tape.states import State
from mixad.tape.strand import Strand
from mixad.tape.strand_plan import plan_of

__all__ = ["MAX_FUSED", "Run", "one_of", "values_of_slots"]


def values_of_slots(values: Sequence[Any]) -> list[Any]:
    """Return what came in as plans take it, by slot; None for what was made.

    Raises
    ------
    TracerError
        If an array has been changed.
    """
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is State or value is LINK:
            found.append(None)
        else:
            found.append(value if kind is float else came_in(value))
    return found


@cache
def one_of(kind: Kind) -> np.ndarray[Any, Any]:
    """Return the cotangent of a number that a gradient begins with."""
    return np.ones((), kind.type.dtype)


_MAX_KEPT = 1 << 14
"""Elements of an array that is copied where it is to be read again later."""

MAX_FUSED = 128
"""Operations of a recording that are fused: compiling more would take seconds.  So many on small
arrays are launched one by one, in whichever call, so that results depend on the recording alone."""


def _copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of an array with its strides, which plans are made for."""
    if not array.size:
        return array.copy()
    first, last = byte_bounds(array)
    start = int(array.__array_interface__["data"][0]) - first
    memory = np.empty(last - first, np.uint8)
    found = np.ndarray(array.shape, array.dtype, memory, start, array.strides)
    found[...] = array
    return found


_RARE = 2
"""Times in one call up to which a segment of small arrays may be one that never comes again."""

_OFTEN = 256
"""Times in one call from which on a kernel of numbers is compiled, not computed by NumPy."""


class Run:
    """One call of a recording in segments: they are computed in order, and pulled back in reverse.

    Parameters
    ----------
    strand : Strand
        The recording.

    Attributes
    ----------
    values : list
        By slot, what came in and, of what was made, what others read.
    """

    def __init__(self, strand: Strand) -> None:
        self.values: list[Any] = []
        self._found: dict[int, Cotangent] = {}
        self._strand = strand
        self._inputs = len(strand.inputs)
        self._times: Counter[int] = Counter()
        self._counted = self._operations = 0
        self._links: list[int] = []
        self._read: list[int] = []
        self._traced = list(range(self._inputs))
        self._layouts: list[tuple[Any, ...]] = []
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @property
    def is_behind(self) -> bool:
        """Whether segments have ended that have not been computed."""
        return len(self._layouts) < len(self._strand.ends)

    def advance(self, wanted: Iterable[int]) -> bool:
        """Compute what is wanted of the segments that have ended, and what others read of them.

        Returns whether there is a plan for each.
        """
        strand, done = self._strand, len(self._layouts)
        self._look(strand.ends[self._counted :])
        start = strand.segment(done).start
        linked = list(islice(strand.sources.items(), len(self._links), None))
        self._links += [link for link, _ in linked]
        self._traced += [link for link, _ in linked if strand.is_traced(link)]
        asked = {*[source for _, source in linked], *wanted}
        self._read = sorted([s for s in asked if s >= start and strand.made(s) is not None])
        return all(map(self._forward, range(done, len(strand.ends))))

    def value(self, slot: int) -> Any:
        """Return a value that has been computed, as an array of the library."""
        return of_numpy(self._strand.library, as_array(self.values[slot]))

    def gradient(
        self, outputs: Sequence[tuple[int, Any]], wanted: Sequence[int]
    ) -> tuple[Sequence[Any], Sequence[tuple[Any, bool] | None]] | None:
        """Return values of a recording that is over, and the cotangents of its inputs.

        None if a segment has no plan.

        Parameters
        ----------
        outputs : sequence of (int, array)
            The slots that cotangents come to, with these.
        wanted : sequence of int
            The slots of the values that are wanted.
        """
        strand = self._strand
        if self.values:  # what came in before has been read, and will be again
            values_of_slots(strand.values[: len(self.values)])
        last = len(strand.ends)
        self._look([*strand.ends[self._counted :], strand.state])
        if not (self.advance(wanted) and self._forward(last)):
            return None
        found = self._pull(outputs)
        return None if found is None else ([self.values[slot] for slot in wanted], found)

    def keep(self, wanted: Iterable[int]) -> bool:
        """Hold copies of what came in, and no values that no later segment reads.

        What others do to arrays then changes nothing.  False where a copy would be large.
        """
        strand, values = self._strand, self.values
        for slot, value in enumerate(strand.values):
            if type(value) is Held:
                array = values[slot]
                first, last = byte_bounds(array)
                if last - first > _MAX_KEPT * array.itemsize:
                    return False
                values[slot] = _copied(array)
        for link, source in strand.sources.items():
            values[link] = values[source]
        read = set(strand.sources.values())
        for slot in wanted:
            if slot not in read and strand.made(slot) is not None:
                values[slot] = None
        return True

    def pull(self, outputs: Sequence[tuple[int, Any]]) -> Sequence[tuple[Any, bool] | None] | None:
        """Return the cotangents of the inputs of what has been computed, once more.

        None if a segment has no plan.

        Parameters
        ----------
        outputs : sequence of (int, array)
            The slots that cotangents come to, with these.
        """
        with self._strand.level.lock:  # threads may share it
            return self._pull(outputs)

    def _pull(self, outputs: Sequence[tuple[int, Any]]) -> Sequence[tuple[Any, bool] | None] | None:
        self._found.clear()
        for slot, cotangent in outputs:
            self._add(slot, cotangent, False)
        if not all(map(self._backward, range(len(self._strand.ends), -1, -1))):
            return None
        return [self._found.get(slot) for slot in range(self._inputs)]

    def _look(self, ends: Sequence[State]) -> None:
        """Look at what has been recorded since the last time."""
        self.values += values_of_slots(self._strand.values[len(self.values) :])
        self._counted += len(ends)
        self._times.update(map(id, ends))
        self._operations += sum([end.weight for end in ends])

    def _forward(self, number: int) -> bool:
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

    def _backward(self, number: int) -> bool:
        """Carry cotangents back through a segment; tell whether there is a plan."""
        segment = self._strand.segment(number)
        start, stop = segment.start, segment.stop
        made = range(max(start, self._inputs), stop)
        seeds = [slot for slot in sorted(self._found) if slot in made]
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
                self._add(sources.get(slot, slot), *cotangent)
        return True

    def _key(self, what: str, number: int, asked: Hashable) -> tuple[Any, ...]:
        """Return what a plan is kept for."""
        return what, self._layouts[number], asked, self._fuses(number), self._compiles(number)

    def _compiles(self, number: int) -> bool:
        """Whether kernels of numbers of a segment are compiled."""
        return self._times[id(self._strand.end_of(number))] >= _OFTEN

    def _fuses(self, number: int) -> bool:
        """Whether a segment is fused: there is little to compile, or it comes again in the call, as
        in a loop, or lies beside one that does, or its arrays are not small."""
        if self._operations <= MAX_FUSED:
            return True
        end_of, last = self._strand.end_of, len(self._strand.ends)
        beside = range(max(number - 1, 0), min(number + 2, last + 1))
        times = [self._times[id(end_of(each))] for each in beside]
        return max(times) > _RARE or not end_of(number).is_small

    def _whole(self, slot: int) -> Any:
        """Return a cotangent in the shape of its value."""
        found, shape = self._found.pop(slot).value, self._strand.known(slot).shape
        return found if found.shape == shape else np.array(np.broadcast_to(found, shape))

    def _add(self, slot: int, value: Any, fresh: bool) -> None:
        """Add to the cotangent of a value."""
        known = self._found.get(slot)
        new = Cotangent(value, fresh) if known is None else together(known, value, fresh)
        self._found[slot] = new

    def _came_in(self, slot: int) -> Any:
        """Return an array or a number that a segment reads; arrays have been compared."""
        strand = self._strand
        value = strand.values[strand.sources.get(slot, slot)]
        if strand.is_traced(slot) or type(value) is Held:
            return of_numpy(strand.library, self.values[slot])
        return strand.arrived(slot)

    def _on_nodes(
        self, key: tuple[Any, ...], number: int, asked: Sequence[int], gs: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[tuple[Any, bool] | None]] | None:
        """Return some values of a segment, or cotangents of what came in, by nodes.

        What they do is kept as a plan, unless it may never come again.  None if a segment that is
        fused has no plan.
        """
        segment, fuses = self._strand.segment(number), self._fuses(number)
        library, values = self._strand.library, self.values
        try:
            replayed = Replay(self._strand, segment.start, self._came_in, is_reverse=bool(gs))
            journal, level = replayed.journal, replayed.level
            level.fuses = fuses
            chosen = replayed.finish(segment.stop, asked)
            replayed.done.clear()
            with level:
                if gs:
                    given = [of_numpy(library, g) for g in gs]
                    outputs = list(zip([t.origin for t in chosen], given, strict=True))
                    nodes = [t.origin.node for t in replayed.inputs]
                    chosen.clear()
                    found = backward(level, outputs, nodes)  # type: ignore[arg-type]
                else:
                    found = []
                make_together([tracer.cell for tracer in chosen])
                made = [as_numpy(tracer.cell.value) for tracer in chosen]
            cotangents = [c and (as_numpy(c.value), c.fresh) for c in found]
            if not (fuses or segment.state.come() > _RARE):
                return made, cotangents
            registers = [journal.register(tracer.cell) for tracer in chosen]
            came, compiles = values[segment.start : segment.stop], self._compiles(number)
            plan = plan_of(
                journal, came, gs, registers, library, self._strand.kind, compiles=compiles
            )
            if plan is not None:
                segment.state.keep(key, plan)
            elif fuses:
                return None  # else its bits would be others from the third call on
            return made, cotangents
        finally:
            self._strand.forget_calls()
