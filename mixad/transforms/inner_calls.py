"""Transforms of traced values: a call is one operation of the recording around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mixad import pytree
from mixad.tape.memory import join
from mixad.tape.tracer import Tracer
from mixad.transforms.inside import push_forward, push_tangent
from mixad.transforms.lifting import Inputs, Outputs, wrap_inputs
from mixad.transforms.strand_calls import CallRequest, StrandCall, as_input

__all__ = ["InnerCall", "InnerForward"]


class InnerCall(StrandCall):
    """A gradient inside of a recording, as one operation of that."""

    def finish(self, outputs: Outputs, aux: Any, asked: CallRequest) -> None:
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

    def completed(self) -> Inputs:
        """Return the inputs with their nodes, over those of the outer transform."""
        if self._lifted is None:
            given = self._given()
            lifted_inputs = wrap_inputs(self._level, given, range(len(given)))
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

    def finish(self, outputs: Outputs, aux: Any, asked: CallRequest) -> None:
        """End the recording; an outer recording for it alone is dropped if nodes do it."""
        super().finish(outputs, aux, asked)
        around = self._strand.outer
        if self.is_outermost and not self.is_known and around is not None:
            around.is_left = True

    def _find_inside(self, outputs: Outputs, asked: CallRequest) -> None:
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
        self, outputs: Outputs, asked: CallRequest
    ) -> tuple[Callable[..., Any], Sequence[Any]]:
        """Return the function for the derivatives, then values, and its further operands."""
        return push_forward if asked.with_value else push_tangent, asked.given

    def _derivatives(self, found: list[Any]) -> list[Any]:
        return [pytree.unflatten(self._outputs.structure, found)]

    def _given(self) -> list[Any]:
        given, around = super()._given(), self._strand.outer
        if not self.is_outermost:
            return given
        assert around is not None
        came = [around.values[tracer.slot].array for tracer in given]
        return list(map(as_input, came, self._states))
