"""Recorded calls, to be pushed forward on dual numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mixad import pytree
from mixad.call.signature import Function
from mixad.errors import TracerError
from mixad.namespace.array import ArrayTracer
from mixad.tape.backward import backward
from mixad.tape.body import enter
from mixad.tape.memory import share
from mixad.tape.tangents import Dual, carry_forward
from mixad.tape.tracer import Level, Tracer
from mixad.transforms.lifting import Inputs, Outputs, call_lifted, matching
from mixad.transforms.returning import tangent_of, unwrap_aux, unwrap_output, unwrap_shared

__all__ = ["Carried", "Recorded", "recorded"]


class Recorded(NamedTuple):
    """A recorded call, to be pushed forward or pulled back."""

    level: Level
    inputs: Inputs
    outputs: Outputs

    def pushed(self, directions: Sequence[Sequence[Any]]) -> tuple[Any, list[Any]]:
        """Return the value, and its tangent along each of at most ten directions."""
        carried = self.carried([self.leaves(tangents) for tangents in directions])
        structure = self.outputs.structure
        return (
            pytree.unflatten(structure, carried.values()),
            [pytree.unflatten(structure, carried.along(k)) for k in range(len(directions))],
        )

    def tangent(self, tangents: Sequence[Any]) -> Any:
        """Return the tangent of the value along one direction, without the value."""
        found = self.carried([self.leaves(tangents)]).without_values().along(0)
        return pytree.unflatten(self.outputs.structure, found)

    def pull(self, cotangent: Any) -> list[Any]:
        """Return the cotangents of the arguments from the value's."""
        inputs, outputs, level = self.inputs, self.outputs, self.level
        seeds = [(leaf.origin, g) for leaf, g in outputs.seeds(cotangent, level)]
        cotangents = backward(level, seeds, inputs.nodes)
        return inputs.gradients(cotangents, outputs.around(level))

    def carried(self, directions: Sequence[Sequence[Any]]) -> Carried:
        """Push tangents of the primals' leaves through the call, None for zero.

        There are at most ten directions.
        """
        with Level(self.level.name, is_reverse=False) as own:
            own.fuses = self.level.fuses
            return Carried(self, own, self._duals(own, directions))

    def _duals(self, own: Level, directions: Sequence[Sequence[Any]]) -> list[Dual]:
        """Return each output with its tangents, as tracers of a level."""
        cells = self.inputs.cells
        seeds = [
            tuple(
                [
                    None if t is None else enter(t, own, ArrayTracer, weak=cell.kind.weak)
                    for t in tangents
                ]
            )
            for cell, tangents in zip(cells, zip(*directions, strict=True), strict=True)
        ]
        level = self.level
        moving = [
            leaf.origin if isinstance(leaf, Tracer) and level in leaf.levels else None
            for leaf in self.outputs.leaves
        ]
        origins = [origin for origin in moving if origin is not None]
        found = iter(carry_forward(level, own, origins, self.inputs.nodes, seeds))
        constant = Dual(None, (None,) * len(directions))
        return [constant if origin is None else next(found) for origin in moving]

    def leaves(self, tangents: Sequence[Any]) -> list[Any]:
        """Return the tangents of the leaves of the primals along one direction."""
        name, structures = self.level.name, self.inputs.structures
        if len(tangents) != len(structures):
            raise TracerError(
                f"mixad.{name}: {len(tangents)} tangents for {len(structures)} primals: pass one "
                "for each"
            )
        given: list[Any] = []
        for at, (tangent, structure) in enumerate(zip(tangents, structures, strict=True)):
            found, own_structure = pytree.flatten_as(structure, tangent)
            if own_structure != structure:
                raise TracerError(
                    f"mixad.{name}: tangent {at} has the structure {own_structure}, the argument "
                    f"has {structure}: pass one array for each of its arrays, in the same structure"
                )
            given += [(leaf, f"mixad.{name}: tangent {at}", f"argument {at}") for leaf in found]
        return [
            matching(cell, leaf, what, of)
            for cell, (leaf, what, of) in zip(self.inputs.cells, given, strict=True)
        ]


class Carried(NamedTuple):
    """The outputs of a recorded call, on dual numbers of a level of their own."""

    function: Recorded
    own: Level
    duals: list[Dual]

    def without_values(self) -> Carried:
        """Return it without the values of outputs: what nobody holds is not computed."""
        return self._replace(duals=[dual._replace(value=None) for dual in self.duals])

    def values(self) -> list[Any]:
        """Return the outputs as the caller of the transform gets them."""
        function = self.function
        return [
            unwrap_shared(leaf, function.level)
            if dual.value is None
            else share(unwrap_output(dual.value, self.own), leaf)
            for leaf, dual in zip(function.outputs.leaves, self.duals, strict=True)
        ]

    def along(self, direction: int) -> list[Any]:
        """Return their tangents along one of the directions."""
        outputs = self.function.outputs
        around = outputs.around(self.function.level)
        return [
            tangent_of(leaf, dual.tangents[direction], self.own, around)
            for leaf, dual in zip(outputs.leaves, self.duals, strict=True)
        ]


def recorded(
    name: str,
    f: Function,
    arguments: Sequence[Any],
    has_aux: bool,
    *,
    positions: Sequence[int] | None = None,
    kwargs: dict[str, Any] | None = None,
    is_reverse: bool = False,
) -> tuple[Recorded, Any]:
    """Call a function on tracers; return what was recorded, and its aux.

    The arguments at ``positions``, by default all, are primals. With ``is_reverse`` the recording
    takes cotangents, too.
    """
    positions = range(len(arguments)) if positions is None else positions
    with Level(name, is_reverse=is_reverse) as level:
        inputs, outputs, aux = call_lifted(level, f, arguments, positions, kwargs or {}, has_aux)
    return Recorded(level, inputs, outputs), unwrap_aux(aux, level)
