"""Calls whose values are computed at once, and whose linear maps later, any number of times."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from mixad import pytree
from mixad.call.signature import Function
from mixad.tape.backward import backward
from mixad.tape.body import came_into
from mixad.tape.operations import Called, results_of
from mixad.tape.registers import as_register, may_share_memory, of_register, own_array
from mixad.tape.segments import Run
from mixad.tape.states import SMALL
from mixad.tape.tracer import Level, Tracer
from mixad.transforms.inside import (
    HandedOnError,
    Inside,
    operation_of,
    push_tangent,
)
from mixad.transforms.lifting import Outputs, call_lifted, in_structures, warn_if_constant
from mixad.transforms.recorded_calls import Recorded
from mixad.transforms.recorded_values import record_values
from mixad.transforms.returning import unshared_tangent, unwrap_aux
from mixad.transforms.strand_calls import VALUES_ALONE, CallRequest, StrandCall, as_input, size_of
from mixad.transforms.strands import open_strand

__all__ = ["KeptCall", "keep_call"]


def keep_call(
    name: str, f: Function, primals: Sequence[Any], has_aux: bool, *, is_reverse: bool
) -> tuple[Any, Any, KeptCall | Recorded]:
    """Return value, aux and the linear map of a call: by plans, or by nodes."""
    positions = range(len(primals))
    with Level(name, is_reverse=is_reverse) as level:
        call = open_strand(level, f, primals, positions, None, KeptCall)
        if call is None:
            inputs, outputs, aux = call_lifted(level, f, primals, positions, {}, has_aux)
        else:
            outputs, aux = call.record(f, {}, has_aux, VALUES_ALONE)
    if call is not None and call.is_known:
        assert isinstance(call, KeptCall)
        value, _, aux = call.run()
        return value, aux, call
    inputs = inputs if call is None else call.completed()
    warn_if_constant(f, outputs, level)
    value, aux = outputs.values(level), unwrap_aux(aux, level)
    return value, aux, Recorded(level, inputs, outputs.without_values())


class KeptCall(StrandCall):
    """A call of `mixad.vjp` or `mixad.linearize`."""

    _run: Run | None = None

    @classmethod
    def takes(cls, arrays: Sequence[Any], described: Sequence[Hashable]) -> bool:
        """Whether the arrays have few elements; for others nodes keep their values."""
        return None in described or size_of(arrays) <= SMALL

    def _find(self, outputs: Outputs, asked: CallRequest) -> None:
        """Compute the values; ``asked`` says whether there are any."""
        strand, leaves = self._strand, outputs.leaves
        own = [leaf for leaf in leaves if strand.has(leaf)]
        if not own or any(leaf.kind.type.is_complex for leaf in own):
            return
        wanted = [self._returned.leaves[at].slot for at in self._traced]
        run = strand.keep(wanted)
        if run is None:
            return
        values = [self._own(run, slot) for slot in wanted]
        strand.is_left = not run.keep(wanted)
        if not strand.is_left:
            self._run, self._outputs, self._found = run, outputs, (values, ())

    def _find_inside(self, outputs: Outputs, asked: CallRequest) -> None:
        """Let nodes do it: the transform around follows the values that are kept."""
        self._strand.is_left = True

    def run(self) -> tuple[Any, list[Any], Any]:
        """Return the value, no gradients, and aux, and release them."""
        found = super().run()
        self._found, self._returned = ([], ()), self._returned._replace(leaves=[])
        return found

    def _own(self, run: Run, slot: int) -> Any:
        """Return a value that the caller may change."""
        values, sources = run.values, set(self._strand.sources.values())
        value, stored = values[slot], [values[at] for at in sources]
        is_stored = any(may_share_memory(value, other) for other in stored)
        return own_array(value, tuple(value.shape)) if is_stored else value

    def pull(self, cotangent: Any) -> list[Any]:
        """Return the cotangents of the arguments."""
        assert self._run is not None
        seeds = self._outputs.seeds(cotangent, self._level)
        if self._are_alike([g for _, g in seeds]):
            found = self._run.pull([(leaf.slot, as_register(g)) for leaf, g in seeds])
            if found is not None:
                return self._gradients(found)
        return self._pulled_by_nodes(seeds)

    def tangent(self, tangents: Sequence[Any]) -> Any:
        """Return the tangent of the value."""
        structure = self._outputs.structure
        leaves = Recorded(self._level, self.completed(), self._outputs).leaves(tangents)
        found = self._pushed(leaves) if self._are_alike(leaves) else None
        return pytree.unflatten(structure, found or self._pushed_by_nodes(leaves))

    def _pushed(self, tangents: Sequence[Any]) -> Sequence[Any] | None:
        """Return the tangents of outputs by a plan; None where none can serve."""
        strand, outputs = self._strand, self._outputs.leaves
        if not (strand.ends and all(map(strand.has, outputs))):
            return None
        slots = tuple([leaf.slot for leaf in outputs])
        own, numbers = came_into(strand)
        if any(isinstance(value, Called) for value in own.values()):  # whose rules are the user's
            return None
        operation = operation_of(strand, strand.ends[-1], push_tangent, numbers, slots)
        if operation is None:
            return None
        came, count = self._came(own), len(self._states)

        def push(_: Sequence[Any], inputs: Sequence[Any]) -> Any:
            operands = [*inputs[:count], *came[count:], *inputs[count:]]
            return results_of(inputs[0].strand.applied(operation, operands))

        given = [*came[:count], *self._as_inputs(tangents)]
        try:
            found = record_values(strand.level.name, self._f, given, range(len(given)), push, False)
        except HandedOnError:
            return None
        taken = list(map(as_register, tangents))
        return found and [unshared_tangent(tangent, taken) for tangent in found[0]]

    def _pushed_by_nodes(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Return the tangents of outputs, which outer transforms may trace."""
        found = self._outputs.leaves
        call = Inside.of(self._strand, [leaf.slot for leaf in found if self._strand.has(leaf)], [])
        with Level(self._level.name, is_reverse=False) as level:
            inputs, outputs, _ = call.replay(level, self._came(call.slots), is_alone=True)
        traced = iter(outputs.leaves)
        leaves = [next(traced) if self._strand.has(leaf) else leaf for leaf in found]
        function = Recorded(level, inputs, outputs._replace(leaves=leaves))
        return function.carried([tangents]).without_values().along(0)

    def _came(self, slots: Iterable[int]) -> list[Any]:
        """Return the inputs, as they were then."""
        assert self._run is not None
        values, library = self._run.values, self._strand.library
        inputs = self._as_inputs(values[: len(self._states)])
        return [
            inputs[slot] if slot < len(inputs) else of_register(library, values[slot])
            for slot in slots
        ]

    def _as_inputs(self, arrays: Sequence[Any]) -> list[Any]:
        """Return an array for each input, in the form in which inputs come in."""
        library = self._strand.library
        return [
            as_input(of_register(library, a), s) for a, s in zip(arrays, self._states, strict=True)
        ]

    def _pulled_by_nodes(self, seeds: Sequence[tuple[Tracer, Any]]) -> list[Any]:
        """Return the cotangents of the arguments, which outer transforms may trace."""
        call = Inside.of(self._strand, [leaf.slot for leaf, _ in seeds], [])
        with Level(self._level.name) as level:
            inputs, outputs, _ = call.replay(level, self._came(call.slots), is_alone=True)
        origins = [leaf.origin for leaf in outputs.leaves]
        given = zip(origins, [g for _, g in seeds], strict=True)
        cotangents = backward(level, list(given), inputs.nodes)
        return in_structures(inputs.gradients(cotangents, frozenset()), self._structures)
