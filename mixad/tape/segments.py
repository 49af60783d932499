"""Values and gradients of a recording by plans: of one segment, or of several one after another.

A plan is made the first time, from the equations of the operations, and run as it is made. If there
are several segments, the backward pass computes each again: only values that other segments read
are stored.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from mixad.backends.arrays import as_array, describe_array, device_key, library_of
from mixad.scalar.linearity import linear_results
from mixad.tape.cell import Kind
from mixad.tape.cotangents import Cotangent, together
from mixad.tape.guard import GuardedArray
from mixad.tape.journal import Equation, KernelEquation, Noted, Register, ViewEquation, sources_of
from mixad.tape.operations import LINK, Segment
from mixad.tape.registers import (
    came_in,
    filled,
    have_same_bits,
    of_register,
    own_array,
)
from mixad.tape.states import State
from mixad.tape.strand import Strand
from mixad.tape.strand_plan import Done, make_plan

__all__ = ["MAX_FUSED", "Run", "one_of"]


def _values_of_slots(values: Sequence[Any]) -> list[Any]:
    """Return by slot what came in, as plans take it; None for what was made.

    TracerError if an array has been changed.
    """
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is State or value is LINK:
            found.append(None)
        else:
            found.append(value if kind is float else came_in(value))
    return found


def one_of(kind: Kind, device: Any) -> Any:
    """Return the cotangent 1 of a number, with which a gradient begins."""
    key = kind, device_key(device)
    found = _ONES.get(key)
    if found is None:
        found = filled(1.0, (), kind, device)
        # Memory of a graph is another's after it, and torch's transforms wrap what is made in them.
        if not kind.library.memory.is_capturing() and describe_array(found) is not None:
            _ONES[key] = found
    return found


_ONES: dict[Hashable, Any] = {}


_MAX_KEPT = 1 << 14
"""Most elements of an array that is copied if it will be read again later."""

MAX_FUSED = 128
"""Operations of a recording that are fused: compiling more would take seconds. More on small arrays
are launched one by one, in whichever call, so that results depend on the recording alone."""


def _copied(array: Any) -> Any:
    """Return a copy of an array with the same strides, for which plans are made.

    None if the copy would be large, or the library gives it other strides.
    """
    if type(array) is not np.ndarray:
        if not library_of(array).is_mutable:
            return array
        if math.prod(array.shape) > _MAX_KEPT:
            return None
        found = own_array(array, tuple(array.shape))
        return found if describe_array(found) == describe_array(array) else None
    if not array.size:
        return array.copy()
    first, last = byte_bounds(array)
    if last - first > _MAX_KEPT * array.itemsize:
        return None
    start = int(array.__array_interface__["data"][0]) - first
    memory = np.empty(last - first, np.uint8)
    found = np.ndarray(array.shape, array.dtype, memory, start, array.strides)
    found[...] = array
    return found


_RARE = 2
"""Times in one call up to which a segment of small arrays may be one that never comes again."""

_OFTEN = 256
"""Times in one call from which on a kernel of numbers is compiled; before, NumPy computes them."""


class Run:
    """One call of a recording in segments, computed in order and pulled back in reverse."""

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
        self._unread: frozenset[int] = frozenset()

    @property
    def is_behind(self) -> bool:
        """Whether segments have ended that have not been computed."""
        return len(self._layouts) < len(self._strand.ends)

    def advance(self, wanted: Iterable[int]) -> bool:
        """Compute what is wanted of the segments that have ended, and what others read of them.

        Return whether there is a plan for each.
        """
        strand, done = self._strand, len(self._layouts)
        self._look(strand.ends[self._counted :])
        start = strand.segment(done).start
        linked = list(islice(strand.sources.items(), len(self._links), None))
        self._links += [link for link, _ in linked]
        self._traced += [link for link, _ in linked if strand.is_traced(link)]
        asked = {*[source for _, source in linked], *wanted} - self._unread
        self._read = sorted([s for s in asked if s >= start and strand.made(s) is not None])
        return all(map(self._forward, range(done, len(strand.ends))))

    def value(self, slot: int) -> Any:
        """Return a value that has been computed, as an array of the library."""
        return of_register(self._strand.library, as_array(self.values[slot]))

    def known(self) -> tuple[int, dict[int, Any]]:
        """Return how many segments have been computed, and the values that are there."""
        made = [at for at, _ in enumerate(self.values) if self._strand.made(at) is not None]
        values = {slot: self.value(slot) for slot in made if self.values[slot] is not None}
        return len(self._layouts), values

    def once(
        self,
        key: Hashable,
        outputs: Sequence[tuple[int, Any]],
        wanted: Sequence[int],
        *,
        of_number: bool,
    ) -> Done | None:
        """Return values of a recording of one segment, and the cotangents of its inputs.

        None without a plan, which `key` finds the next time. `outputs` are slots with cotangents,
        `wanted` those of values; `of_number`: the output is one number, with the cotangent 1.
        """
        self._look([self._strand.state])
        slots, gs = [slot for slot, _ in outputs], [g for _, g in outputs]
        return self._planned(key, 0, slots, gs, wanted, of_number=of_number)

    def gradient(
        self, outputs: Sequence[tuple[int, Any]], wanted: Sequence[int]
    ) -> tuple[Sequence[Any], Sequence[tuple[Any, bool] | None]] | None:
        """Return values of a recording that is over, and the cotangents of its inputs.

        None if a segment has no plan. `outputs` are slots with their cotangents, `wanted` those of
        values.
        """
        strand = self._strand
        if self.values:  # what came in before has been read, and will be again
            _values_of_slots(strand.values[: len(self.values)])
        last = len(strand.ends)
        self._look([*strand.ends[self._counted :], strand.state])
        if not self._layouts:
            self._unread = self._find_unread(wanted)
        if not (self.advance(wanted) and self._forward(last)):
            return None
        found = self._pull(outputs)
        return None if found is None else ([self.values[slot] for slot in wanted], found)

    def keep(self, wanted: Iterable[int]) -> bool:
        """Retain copies of what came in, and no values that no later segment reads.

        Later changes of arrays then do not matter. False if a copy would be large.
        """
        strand, values = self._strand, self.values
        for slot, value in enumerate(strand.values):
            if type(value) is GuardedArray:
                found = _copied(values[slot])
                if found is None:
                    return False
                values[slot] = found
        for link, source in strand.sources.items():
            values[link] = values[source]
        read = set(strand.sources.values())
        for slot in wanted:
            if slot not in read and strand.made(slot) is not None:
                values[slot] = None
        return True

    def pull(self, outputs: Sequence[tuple[int, Any]]) -> Sequence[tuple[Any, bool] | None] | None:
        """Return the cotangents of the inputs of what has been computed, once more.

        None if a segment has no plan. `outputs` are slots with their cotangents.
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

    def _find_unread(self, wanted: Sequence[int]) -> frozenset[int]:
        """Return the values of earlier segments that no gradient reads, such as a sum so far.

        A segment that has not been noted may read all of them.
        """
        strand, needed = self._strand, set(wanted)
        links = sorted(strand.sources)
        values = sorted({*strand.sources.values(), *wanted})
        for number in range(len(strand.ends), -1, -1):
            segment = strand.segment(number)
            noted, start = segment.state.noted, segment.start
            inside = self._inside(links, segment)
            if noted is not None:
                own = [slot - start for slot in self._inside(values, segment) if slot in needed]
                asked = tuple([noted.registers.get(local, local) for local in own])
                read = _registers_read(noted, asked)
                inside = [slot for slot in inside if slot - start in read]
            needed.update([strand.sources[slot] for slot in inside])
        unread = [slot for slot in values if slot not in needed]
        return frozenset([slot for slot in unread if type(strand.values[slot]) is State])

    def _look(self, ends: Sequence[State]) -> None:
        """Take in what has been recorded since the last time."""
        self.values += _values_of_slots(self._strand.values[len(self.values) :])
        self._counted += len(ends)
        self._times.update(map(id, ends))
        self._operations += sum([end.weight for end in ends])

    def _forward(self, number: int) -> bool:
        """Compute what others read of a segment; tell whether there is a plan."""
        segment, values = self._strand.segment(number), self.values
        for slot in self._inside(self._links, segment):
            source = self._strand.sources[slot]
            values[slot] = self._stand_in(source) if source in self._unread else values[source]
        inside = self._inside(self._traced, segment)
        layout = tuple([describe_array(values[slot]) for slot in inside])  # links: no state knows
        self._layouts.append(self._known.setdefault(layout, layout))
        start, stop = segment.start, segment.stop
        asked = [slot - start for slot in self._inside(self._read, segment)]
        if not asked:
            return True
        key = self._key("forward", number, tuple(asked))
        plan = segment.state.plans.get(key)
        done = (
            self._planned(key, number, [], [], asked)
            if plan is None
            else plan.run(values[start:stop], ())
        )
        if done is None:
            return False
        made, _ = done
        for local, value in zip(asked, made, strict=True):
            values[start + local] = value
        return True

    def _stand_in(self, slot: int) -> Any:
        """Return an array as a value would be, in place of one that nothing reads."""
        state = self._strand.known(slot)
        assert state.kind is not None
        return filled(math.nan, state.shape, state.kind, self._strand.device)

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
        done = (
            self._planned(key, number, locals_, gs)
            if plan is None
            else plan.run(self.values[start:stop], gs)
        )
        if done is None:
            return False
        _, found = done
        inside, sources = self._inside(self._traced, segment), self._strand.sources
        for slot, cotangent in zip(inside, found, strict=True):
            if cotangent is not None:
                self._add(sources.get(slot, slot), *cotangent)
        return True

    def _key(self, what: str, number: int, asked: Hashable) -> tuple[Any, ...]:
        """Return the key of a plan."""
        return what, self._layouts[number], asked, self._fuses(number), self._compiles(number)

    def _compiles(self, number: int) -> bool:
        """Whether kernels of numbers are compiled in a segment."""
        return self._times[id(self._strand.end_of(number))] >= _OFTEN

    def _fuses(self, number: int) -> bool:
        """Whether a segment is fused.

        It is if there is little to compile, if its arrays are not small, or if it or one beside it
        comes again in the call, as in a loop.
        """
        if self._operations <= MAX_FUSED:
            return True
        end_of, last = self._strand.end_of, len(self._strand.ends)
        beside = range(max(number - 1, 0), min(number + 2, last + 1))
        times = [self._times[id(end_of(each))] for each in beside]
        return max(times) > _RARE or not end_of(number).is_small

    def _whole(self, slot: int) -> Any:
        """Return a cotangent in the shape of its value."""
        found, shape = self._found.pop(slot).value, self._strand.known(slot).shape
        return found if found.shape == shape else own_array(found, shape)

    def _add(self, slot: int, value: Any, fresh: bool) -> None:
        """Add to the cotangent of a value."""
        known = self._found.get(slot)
        new = Cotangent(value, fresh) if known is None else together(known, value, fresh)
        self._found[slot] = new

    def _came_in(self, slot: int) -> Any:
        """Return an array or a number that a segment reads; arrays have been compared."""
        strand = self._strand
        value = strand.values[strand.sources.get(slot, slot)]
        if strand.is_traced(slot) or type(value) is GuardedArray:
            return of_register(strand.library, self.values[slot])
        return strand.arrived(slot)

    def _planned(
        self,
        key: Hashable,
        number: int,
        asked: Sequence[int],
        gs: Sequence[Any],
        wanted: Sequence[int] = (),
        *,
        of_number: bool = False,
    ) -> Done | None:
        """Return some values of a segment, and cotangents of what came in; None if it has no plan.

        The plan is retained unless it may never come again.
        """
        strand, segment = self._strand, self._strand.segment(number)
        noted = strand.noted(number, self._came_in)
        if noted is None:
            return None
        came, register = self.values[segment.start : segment.stop], noted.registers
        traced = self._inside(self._traced, segment) if gs else ()
        local = [slot - segment.start for slot in traced]
        found = make_plan(
            noted,
            came,
            [(register.get(slot, slot), g) for slot, g in zip(asked, gs, strict=True)],
            [register.get(slot, slot) for slot in wanted],
            local,
            strand.library,
            strand.kind,
            of_number=of_number,
            fuses=self._fuses(number),
            compiles=self._compiles(number),
        )
        if found is None:
            return None
        plan, done = found
        for each in plan.decided:
            each.warn()
        known = segment.state.plans.get(key)
        if known is not None:
            is_same = _are_same(known.run(came, gs, warns=False), done)
            assert is_same, "a known gradient is another one"
        elif segment.state.come() >= self._least_calls(number):
            segment.state.keep(key, plan)
        return done

    def _least_calls(self, number: int) -> int:
        """Return the call from which on the plan of a segment is retained."""
        return 1 if self._fuses(number) else _RARE + 1


@lru_cache(maxsize=1024)
def _registers_read(noted: Noted, asked: tuple[Register, ...]) -> frozenset[Register]:
    """Return what must be there to compute some registers of a segment and to pull it back."""
    read = set(asked)
    for equation in reversed(noted.equations):
        sources = sources_of(equation)
        is_made = not read.isdisjoint(equation.results)
        read.update(sources if is_made else _read_going_back(equation, sources))
    return frozenset(read)


def _read_going_back(equation: Equation, sources: Sequence[Register]) -> Sequence[Register]:
    """Return what the pullback of an equation reads: of a sum, say, nothing."""
    if isinstance(equation, ViewEquation):
        return ()
    if isinstance(equation, KernelEquation) and len(equation.call.passes) == 1:
        active = frozenset([at for at, carries in enumerate(equation.carries) if carries])
        if all(linear_results(equation.call.passes[0], active, frozenset())):
            return [source for at, source in enumerate(sources) if at not in active]
    return sources


def _are_same(one: Done, other: Done) -> bool:
    """Whether values and cotangents have the same bits."""
    (values, found), (others, others_found) = one, other
    pairs = [*zip(values, others, strict=True)]
    for first, second in zip(found, others_found, strict=True):
        if first is None or second is None:
            if first is not second:
                return False
        else:
            pairs.append((first[0], second[0]))
    return all(have_same_bits(as_array(a), as_array(b)) for a, b in pairs)
