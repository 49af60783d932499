"""Transforms inside of recordings: a call is one operation of the outer one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.fifo_cache import FifoCache
from mixad.tape.backward import backward
from mixad.tape.body import came_into, perform
from mixad.tape.held import Held
from mixad.tape.memory import join
from mixad.tape.operations import NUMBERS, Operation, results_of
from mixad.tape.segments import MAX_FUSED
from mixad.tape.states import State
from mixad.tape.strand import Strand
from mixad.tape.tracer import Level, Tracer, journal_of, plain
from mixad.transforms.lifting import Inputs, Outputs, in_structures, lifted
from mixad.transforms.recorded_calls import Carried, Recorded
from mixad.transforms.returning import constant_around, handed
from mixad.transforms.strand_calls import Asked, StrandCall, as_input

__all__ = [
    "HandedOnError",
    "InnerCall",
    "InnerForward",
    "Inside",
    "as_results",
    "operation_of",
    "push_tangent",
]  # fmt: skip


_MAX_INSIDE = 4096
"""Most operations of a call that is one operation of the outer recording."""

_MAX_OPERATIONS = 16
"""Most calls with other numbers or requests that are operations of the outer recording: each has a
plan."""


class InnerRun:
    """Computes segments of an inner transform's strand as operations of the outer recording."""

    def __init__(self, strand: Strand) -> None:
        self._strand = strand
        self._values: dict[int, Any] = {}
        self._done = 0

    @property
    def is_behind(self) -> bool:
        """Whether segments have ended that are not computed yet."""
        return self._done < len(self._strand.ends)

    def value(self, slot: int) -> Any:
        """Return the array of a computed value."""
        return plain(self._values[slot])

    def advance(self, wanted: Iterable[int]) -> bool:
        """Compute the wanted values of segments that have ended, and those that others read."""
        strand, outer = self._strand, self._strand.outer
        assert outer is not None
        start, done = strand.segment(self._done).start, len(strand.ends)
        if sum([end.count for end in strand.ends[self._done :]]) > _MAX_INSIDE:
            return False
        asked = sorted({*strand.sources.values(), *wanted})
        made = [slot for slot in asked if slot >= start and strand.made(slot)]
        if made:
            operation, operands = self._operation(start, made)
            results = results_of(outer.applied(operation, operands))
            self._values.update(zip(made, results, strict=True))
        self._done = done
        return not outer.is_left

    def _operation(self, start: int, wanted: Sequence[int]) -> tuple[Operation, list[Any]]:
        """Return the operation of some values recorded from a slot on, and its operands."""
        places: dict[int, Hashable] = {}
        numbers: dict[Hashable, Any] = {}
        operands: list[Any] = []
        steps = []
        for slot, operation, given in self._strand.steps(start):
            for at in given:
                if at not in places:
                    value = self._values.get(at, self._strand.values[at])
                    if type(value) in NUMBERS:
                        places[at] = told = type(value), np.asarray(value).tobytes()
                        numbers[told] = value
                    else:
                        places[at] = ~len(operands)
                        operands.append(value.array if type(value) is Held else value)
            places[slot] = slot - start
            steps.append((slot - start, operation, tuple([places[at] for at in given])))
        key = tuple(steps), tuple([slot - start for slot in wanted])
        found = _VALUES.get(key)
        if found is None:
            compute, weight = partial(_values, *key, numbers), sum([o.weight for _, o, _ in steps])
            found = Operation(compute, is_kernel=False, is_primitive=True, weight=weight)
            _VALUES.keep(key, 1, found)
        return found, operands


_VALUES: FifoCache[Operation] = FifoCache(4096)
"""Operations for values of an inner recording, by steps and wanted values."""


def _values(
    steps: Sequence[tuple[int, Operation, Sequence[Hashable]]],
    wanted: Sequence[int],
    numbers: Mapping[Hashable, Any],
    *operands: Any,
) -> Any:
    """Return some values of an inner recording without derivatives of it."""
    done: dict[Hashable, Any] = {**numbers, **{~k: value for k, value in enumerate(operands)}}
    perform(steps, done)
    return as_results([done[at] for at in wanted])


class InnerCall(StrandCall):
    """A gradient inside of a recording, as one operation of that."""

    _make_run = InnerRun

    def finish(self, outputs: Outputs, aux: Any, asked: Asked) -> None:
        """End the recording; on nodes, a view of an input is a view of the given array."""
        super().finish(outputs, aux, asked)
        if not self.is_known:
            own = self.completed().nodes
            for outer, given, inner, node in zip(
                self._arrays, self._given(), self.inputs, own, strict=True
            ):
                is_same = isinstance(given, Tracer) and outer.origin is given.origin
                if is_same and inner.origin.node is node:  # neither has been written to
                    join(inner, outer)

    def _find(self, outputs: Outputs, asked: Asked) -> None:
        """Record the call with the outer strand."""
        if not asked.of_number:
            return
        leaf = outputs.leaves[0]
        if leaf.shape or not leaf.kind.type.is_float:
            return
        wanted = [self._returned.leaves[at].slot for at in self._traced]
        results = self._record(_pull_back, [leaf.slot], wanted, [])
        if results is not None:
            count = len(self._states)
            self._found = results[count:], results[:count]

    def _record(
        self,
        compute: Callable[..., Any],
        outputs: Sequence[int],
        wanted: Sequence[int],
        further: Sequence[Any],
    ) -> list[Any] | None:
        """Return the results of the call as one operation of the outer strand; None if impossible.

        ``compute`` makes them from the inner inputs and the ``further`` operands.
        """
        strand = self._strand
        strand.is_left |= sum([end.count for end in (*strand.ends, strand.state)]) > _MAX_INSIDE
        strand.is_left |= bool(strand.views)  # what is handed on would not be known as a view
        if strand.is_left:
            return None
        came, numbers = came_into(strand)
        slots = tuple(outputs), tuple(wanted)
        operation = operation_of(strand, strand.state, compute, numbers, *slots)
        if operation is None:
            strand.is_left = True
            return None
        assert strand.outer is not None
        fused = [level for level in strand.outer.levels if level.fuses]
        if operation.weight > MAX_FUSED and strand.state.is_small:
            for level in fused:
                level.fuses = False
        operands = [v.array if type(v) is Held else v for v in came.values()]
        try:
            found = strand.outer.applied(operation, [*operands, *further])
        except HandedOnError:
            strand.is_left = True
            for level in fused:
                level.fuses = True
            return None
        return results_of(found)

    def _answer(
        self, values: Sequence[Any], cotangents: Sequence[Any]
    ) -> tuple[Any, list[Any], Any]:
        derivatives = self._derivatives(list(cotangents))
        if not self._returned.structures:
            return None, derivatives, None
        found = dict(zip(self._traced, values, strict=True))
        value, aux = self._returned.trees(found, self._level)
        return value, derivatives, aux

    def _derivatives(self, found: list[Any]) -> list[Any]:
        """Return the derivatives as the caller gets them."""
        return in_structures(found, self._structures)

    def completed(self) -> Inputs:
        """Return the inputs with their nodes, over those of the outer transform."""
        if self._lifted is None:
            given = self._given()
            lifted_inputs = lifted(self._level, given, range(len(given)))
            self._tracers = lifted_inputs.arguments
            structures = list(self._structures)
            self._lifted = lifted_inputs._replace(arguments=[], structures=structures)
        return self._lifted

    def _given(self) -> list[Any]:
        """Return the arguments of the call in the outer transform."""
        return self._strand.values[: len(self._states)]


class InnerForward(InnerCall):
    """A forward transform inside of a recording; its results are the value and its tangent.

    `is_outermost` says that the outer recording exists for this call alone: nodes then use the
    plain arrays.
    """

    is_outermost = False

    def finish(self, outputs: Outputs, aux: Any, asked: Asked) -> None:
        """End the recording; an outer recording for it alone is dropped if nodes do it."""
        super().finish(outputs, aux, asked)
        around = self._strand.outer
        if self.is_outermost and not self.is_known and around is not None:
            around.is_left = True

    def _find(self, outputs: Outputs, asked: Asked) -> None:
        """Record the call with the outer strand; ``asked.given`` are the tangents."""
        strand, leaves = self._strand, outputs.leaves
        slots = [leaf.slot for leaf in leaves if strand.has(leaf)]
        own = len(slots) if asked.with_value else 0
        aux = [self._returned.leaves[at].slot for at in self._traced if at >= own]
        are_made = all(strand.made(slot) for slot in (*slots, *aux))
        if not leaves or len(slots) < len(leaves) or not are_made:  # what came in is handed on
            strand.is_left = True
            return
        compute, further = self._computation(outputs, asked)
        results = self._record(compute, slots, aux, further)
        if results is not None:
            self._outputs = outputs
            count = len(results) - len(self._traced)
            self._found = results[count:], results[:count]

    def _computation(
        self, outputs: Outputs, asked: Asked
    ) -> tuple[Callable[..., Any], Sequence[Any]]:
        """Return the function for the derivatives, then values, and its further operands."""
        return _push_forward if asked.with_value else push_tangent, asked.given

    def _derivatives(self, found: list[Any]) -> list[Any]:
        return [pytree.unflatten(self._outputs.structure, found)]

    def _given(self) -> list[Any]:
        given, around = super()._given(), self._strand.outer
        if not self.is_outermost:
            return given
        assert around is not None
        came = [around.values[tracer.slot].array for tracer in given]
        return list(map(as_input, came, self._states))


class Inside(NamedTuple):
    """A call of a transform inside of another, as an operation of the outer one.

    A step is the slot of its result, the operation, and the slots of the operands.
    """

    name: str  # of the transform
    inputs: int  # how many; they have the first slots
    slots: tuple[int, ...]  # of the operands
    numbers: Mapping[int, Any]  # values of numbers, by slot
    steps: tuple[tuple[int, Operation, tuple[int, ...]], ...]
    outputs: Sequence[int]  # slots of what the function returned
    wanted: Sequence[int]  # slots of what else is wanted

    @staticmethod
    def of(strand: Strand, outputs: Sequence[int], wanted: Sequence[int]) -> Inside:
        """Return a recorded call; its operands are `came_into` it."""
        came, numbers = came_into(strand)
        steps, name = tuple(strand.steps()), strand.level.name
        return Inside(name, len(strand.inputs), tuple(came), numbers, steps, outputs, wanted)

    def replay(
        self, level: Level, operands: Sequence[Any], *, is_alone: bool = False
    ) -> tuple[Inputs, Outputs, list[Tracer]]:
        """Repeat the recorded steps on nodes; return inputs, outputs and the other wanted values.

        HandedOnError if a result is a view of an input, which the outer recording takes for two
        arrays; a recording for derivatives alone may have such results.
        """
        done: dict[int, Any] = {**self.numbers, **dict(zip(self.slots, operands, strict=True))}
        inputs = lifted(level, [done[slot] for slot in range(self.inputs)], range(self.inputs))
        traced = [each for each in operands if isinstance(each, Tracer)]
        level.fuses = all(around.fuses for each in traced for around in each.origin.levels)
        done.update(enumerate(inputs.arguments))
        perform(self.steps, done)
        outputs = Outputs([done[slot] for slot in self.outputs], pytree.LEAF)
        wanted = [done[slot] for slot in self.wanted]
        came = [*inputs.arguments, *[o for o in operands if isinstance(o, Tracer)]]
        if not is_alone and any(_shares(leaf, came) for leaf in outputs.leaves + wanted):
            raise HandedOnError
        inputs.arguments.clear()  # what the function let go of is not stored
        return inputs, outputs, wanted


class HandedOnError(Exception):
    """A function returns a view of its argument."""


def _shares(leaf: Any, inputs: Sequence[Tracer]) -> bool:
    """Whether a traced value is one of the inputs, or a view of one."""
    if not isinstance(leaf, Tracer):
        return False
    memories = [other.sharing.memory for other in inputs if other.sharing is not None]
    is_view = leaf.sharing is not None and leaf.sharing.memory in memories
    return is_view or any(leaf is other for other in inputs)


def operation_of(
    strand: Strand,
    end: State,
    compute: Callable[..., Any],
    numbers: Mapping[int, Any],
    outputs: tuple[int, ...],
    wanted: tuple[int, ...] = (),
) -> Operation | None:
    """Return the operation by which the outer strand records a call of a transform.

    Recordings that end in one state share one operation. None if the call has come with different
    ``numbers`` each time.
    """
    told = tuple([(slot, type(v), np.asarray(v).tobytes()) for slot, v in numbers.items()])
    segments = tuple(strand.ends), tuple(strand.sources.items())
    key = compute, strand.level.name, outputs, wanted, told, segments
    operation: Operation | None = end.plans.get(key)
    if operation is None:
        if sum([type(kept) is Operation for kept in end.plans.values()]) >= _MAX_OPERATIONS:
            return None
        call = Inside.of(strand, outputs, wanted)
        made, weight = partial(compute, call), sum([each.weight for _, each, _ in call.steps])
        operation = Operation(made, is_kernel=False, is_primitive=True, weight=weight)
        end.keep(key, operation)
    return operation


def _pull_back(call: Inside, *operands: Any) -> Any:
    """Return gradients and the other wanted values of a call, by nodes."""
    with Level(call.name) as level:
        inputs, outputs, wanted = call.replay(level, operands)
    around = outputs.around(level)
    ((leaf, seed),) = outputs.seeds(1.0, level)
    journal = journal_of(outputs.leaves[0].levels)
    if journal is not None:  # what is made of it is noted as what is traced
        journal.know(seed)
        seed = constant_around(seed, around)
    cotangents = backward(level, [(leaf.origin, seed)], inputs.nodes, of_number=True)
    found = inputs.gradients(cotangents, around)
    found += [handed(leaf, level) for leaf in wanted]
    return as_results(found)


def _push_forward(call: Inside, *operands: Any) -> Any:
    """Return the tangents of what a function returns, its values, and what else is wanted.

    The last operands are the tangents of the inputs.
    """
    carried, wanted = _carry(call, operands)
    return (*carried.along(0), *carried.values(), *wanted)


def push_tangent(call: Inside, *operands: Any) -> Any:
    """Return the tangents of a function's outputs and the other wanted values, but no outputs."""
    carried, wanted = _carry(call, operands)
    return as_results([*carried.without_values().along(0), *wanted])


def _carry(call: Inside, operands: Sequence[Any]) -> tuple[Carried, list[Any]]:
    """Return a function's results on dual numbers, and the other wanted values."""
    at = len(operands) - call.inputs
    with Level(call.name, is_reverse=False) as level:
        inputs, outputs, wanted = call.replay(level, operands[:at])
    carried = Recorded(level, inputs, outputs).carried([operands[at:]])
    return carried, [handed(leaf, level) for leaf in wanted]


def as_results(found: Sequence[Any]) -> Any:
    """Return the results of an operation: one value, or several."""
    return tuple(found) if len(found) > 1 else found[0]
