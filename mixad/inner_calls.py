"""Transforms inside of others that are recorded: a call is one operation of what is around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.lifting import Inputs, Outputs, in_structures, lifted
from mixad.returning import handed
from mixad.strand_calls import Asked, StrandCall
from mixad.tape.backward import backward
from mixad.tape.held import Held
from mixad.tape.operations import FURTHER, NUMBERS, Operation
from mixad.tape.segments import MAX_FUSED
from mixad.tape.states import State
from mixad.tape.tracer import Level, journal_of

__all__ = ["InnerCall"]


class InnerCall(StrandCall):
    """A call inside of one that is recorded: it is one operation of that."""

    def _find(self, outputs: Outputs, asked: Asked) -> None:
        """Record the call with the strand around it."""
        strand, leaf = self._strand, outputs.leaves[0]
        is_one = asked.of_number and not leaf.shape and leaf.kind.type.is_float
        strand.is_left |= bool(strand.ends) or strand.state.count > MAX_FUSED
        if strand.is_left or not is_one:
            return
        wanted = tuple([self._returned.leaves[at].slot for at in self._traced])
        values = enumerate(strand.values)
        came = [(slot, value) for slot, value in values if type(value) is not State]
        numbers = {slot: value for slot, value in came if type(value) in NUMBERS}
        told = tuple([(slot, type(v), np.asarray(v).tobytes()) for slot, v in numbers.items()])
        key = self._level.name, leaf.slot, wanted, told
        operation = strand.state.plans.get(key)
        if operation is None:
            operation = Operation(
                partial(
                    _computed,
                    _Inside(
                        self._level.name,
                        len(self._states),
                        tuple([slot for slot, _ in came if slot not in numbers]),
                        numbers,
                        tuple(strand.steps()),
                        leaf.slot,
                        wanted,
                    ),
                )
            )
            operation.is_kernel = False
            strand.state.keep(key, operation)
        operands = [v.array if type(v) is Held else v for slot, v in came if slot not in numbers]
        assert strand.outer is not None
        found = strand.outer.applied(operation, operands)
        results = list(found) if type(found) is tuple else [found]
        count = len(self._states)
        self._found = results[count:], results[:count]

    def _answer(
        self, values: Sequence[Any], cotangents: Sequence[Any]
    ) -> tuple[Any, list[Any], Any]:
        gradients = in_structures(list(cotangents), self._arguments.structures)
        found = dict(zip(self._traced, values, strict=True))
        value, aux = self._returned.trees(found, self._level)
        return value, gradients, aux

    def completed(self) -> Inputs:
        """Return the inputs with their nodes, over those of the transform around."""
        if self._lifted is None:
            held = self._strand.values[: len(self._states)]
            lifted_inputs = lifted(self._level, list(held), range(len(held)))
            self._tracers = lifted_inputs.arguments
            structures = list(self._arguments.structures)
            self._lifted = lifted_inputs._replace(arguments=[], structures=structures)
        return self._lifted


class _Inside(NamedTuple):
    """A call of a transform inside of another, as an operation of that.

    Attributes
    ----------
    name : str
        The transform.
    inputs : int
        How many there are: they have the first slots.
    slots : tuple of int
        Those of the operands.
    numbers : mapping
        By slot, the numbers that came in.
    steps : tuple of (int, Operation, tuple of int)
        What is done: the slot of each result, the operation, and the slots of its operands.
    output : int
        The slot of the value: one number.
    wanted : tuple of int
        The slots of what else is wanted.
    """

    name: str
    inputs: int
    slots: tuple[int, ...]
    numbers: Mapping[int, Any]
    steps: tuple[tuple[int, Operation, tuple[int, ...]], ...]
    output: int
    wanted: tuple[int, ...]


def _computed(call: _Inside, *operands: Any) -> Any:
    """Return gradients, and what else is wanted of a call, by nodes."""
    done: dict[int, Any] = {**call.numbers, **dict(zip(call.slots, operands, strict=True))}
    rest: list[Any] = []
    with Level(call.name) as level:
        inputs = lifted(level, [done[slot] for slot in range(call.inputs)], range(call.inputs))
        done.update(enumerate(inputs.arguments))
        for slot, operation, given in call.steps:
            if operation is not FURTHER:
                result = operation.compute(*[done[at] for at in given])
                rest = list(result) if type(result) is tuple else [result]
            done[slot] = rest.pop(0)
    outputs, wanted = Outputs([done[call.output]], pytree.LEAF), [done[at] for at in call.wanted]
    done.clear()  # what the function let go of is not stored
    inputs.arguments.clear()
    seeds = [(leaf.origin, g) for leaf, g in outputs.seeds(1.0, level)]
    journal = journal_of(outputs.leaves[0].levels)
    if journal is not None:
        journal.know(seeds[0][1])
    cotangents = backward(level, seeds, inputs.nodes, of_number=True)
    found = inputs.gradients(cotangents, outputs.around(level))
    found += [handed(leaf, level) for leaf in wanted]
    return tuple(found) if len(found) > 1 else found[0]
