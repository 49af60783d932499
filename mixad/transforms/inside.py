"""Calls of transforms inside of recordings, as operations of the recording around."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.fifo_cache import FifoCache
from mixad.tape.backward import backward
from mixad.tape.body import came_into, perform
from mixad.tape.guard import GuardedArray
from mixad.tape.operations import NUMBERS, Operation, results_of
from mixad.tape.states import State
from mixad.tape.strand import Strand
from mixad.tape.tracer import Level, Tracer, journal_of, primal_value
from mixad.transforms.lifting import Inputs, Outputs, wrap_inputs
from mixad.transforms.recorded_calls import Carried, Recorded
from mixad.transforms.returning import constant_around, unwrap_shared

__all__ = ["MAX_INSIDE", "HandedOnError", "InnerRun", "Inside", "as_results", "operation_of",
           "pull_back", "push_forward", "push_tangent"]  # fmt: skip


MAX_INSIDE = 4096
"""Most operations of a call that is one operation of the outer recording."""

_MAX_OPERATIONS = 16
"""Most calls with other numbers or requests that are operations of the outer recording: each has a
plan."""


class InnerRun:
    """Computes segments of an inner transform's strand as operations of the outer recording."""

    def __init__(self, strand: Strand) -> None:
        self._strand = strand
        self._done, self._values = (0, {}) if strand.run is None else strand.run.known()

    @property
    def is_behind(self) -> bool:
        """Whether segments have ended that are not computed yet."""
        return self._done < len(self._strand.ends)

    def known(self) -> tuple[int, dict[int, Any]]:
        """Return how many segments have been computed, and the values that are there."""
        return self._done, self._values

    def value(self, slot: int) -> Any:
        """Return the array of a computed value."""
        return primal_value(self._values[slot])

    def traced(self, slot: int) -> Any:
        """Return a computed value, or what came in, as the transform around sees it."""
        found = self._values.get(slot, self._strand.values[slot])
        return found.array if type(found) is GuardedArray else found

    def advance(self, wanted: Iterable[int]) -> bool:
        """Compute the wanted values of segments that have ended, and those that others read."""
        strand, outer = self._strand, self._strand.outer
        assert outer is not None
        start, done = strand.segment(self._done).start, len(strand.ends)
        if sum([end.count for end in strand.ends[self._done :]]) > MAX_INSIDE:
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
        strand = self._strand
        places: dict[int, Hashable] = {}
        numbers: dict[Hashable, Any] = {}
        operands: list[Any] = []
        steps = []
        for slot, operation, given in strand.steps(start):
            for at in given:
                if at not in places:
                    value = self._values.get(at, strand.values[at])
                    if type(value) in NUMBERS:
                        places[at] = told = type(value), np.asarray(value).tobytes()
                        numbers[told] = value
                    else:
                        places[at] = ~len(operands)
                        operands.append(value.array if type(value) is GuardedArray else value)
            places[slot] = slot - start
            steps.append((slot - start, operation, tuple([places[at] for at in given])))
        inputs = [at for at in places if strand.is_input(at) or at in self._values]
        key = tuple(steps), tuple([slot - start for slot in wanted]), tuple(map(places.get, inputs))
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
    inputs: Sequence[Hashable],
    numbers: Mapping[Hashable, Any],
    *operands: Any,
) -> Any:
    """Return some values of an inner recording without derivatives of it."""
    done: dict[Hashable, Any] = {**numbers, **{~k: value for k, value in enumerate(operands)}}
    done.update({place: _traced_around(done[place], operands) for place in inputs})
    perform(steps, done)
    return as_results([done[at] for at in wanted])


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
        given = [done[slot] for slot in range(self.inputs)]
        if not is_alone:
            given = [_traced_around(value, operands) for value in given]
        inputs = wrap_inputs(level, given, range(self.inputs))
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


def _traced_around(value: Any, operands: Sequence[Any]) -> Any:
    """Return an input of a transform as a value of those around, which have the other operands.

    So all that is computed from it is noted there, though nobody around differentiates it.
    """
    if isinstance(value, Tracer):
        return value
    traced = [each for each in operands if isinstance(each, Tracer)]
    levels = frozenset(chain.from_iterable(each.origin.levels for each in traced))
    found, journal = constant_around(value, levels), journal_of(levels)
    if journal is not None:
        journal.take_constant(found.cell, value)
    return found


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


def pull_back(call: Inside, *operands: Any) -> Any:
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
    found += [unwrap_shared(leaf, level) for leaf in wanted]
    return as_results(found)


def push_forward(call: Inside, *operands: Any) -> Any:
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
    tangents = [_traced_around(tangent, operands) for tangent in operands[at:]]
    carried = Recorded(level, inputs, outputs).carried([tangents])
    return carried, [unwrap_shared(leaf, level) for leaf in wanted]


def as_results(found: Sequence[Any]) -> Any:
    """Return the results of an operation: one value, or several."""
    return tuple(found) if len(found) > 1 else found[0]
