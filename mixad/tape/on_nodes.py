"""A recording done on nodes, from its beginning, in the order in which it was recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mixad.tape.guard import GuardedArray
from mixad.tape.memory import share, stand_for
from mixad.tape.operations import LINK, Operation, results_of
from mixad.tape.tracer import Tracer

if TYPE_CHECKING:
    from mixad.tape.strand import Strand

__all__ = ["give_nodes"]


def give_nodes(strand: Strand, make_input: Callable[[int], Tracer], done: list[Any]) -> None:
    """Give the tracers of a recording cells and nodes.

    `make_input` returns the tracer of an input, with cell and node, by its slot. `done` has by slot
    what has been done: after an exception, the next call goes on from there.
    """
    flat = {tracer.slot: tracer for tracer in strand.alive()}
    others: dict[int, list[Tracer]] = {}
    for tracer in strand.others:
        if tracer.state is not None:
            others.setdefault(tracer.slot, []).append(tracer)
    while len(done) < len(strand.values):
        slot = len(done)
        if strand.is_input(slot):
            results = [make_input(slot)]
        elif (made := strand.made(slot)) is None:
            done.append(_came_in(strand, slot, done))
            continue
        else:
            results = _computed(*made, done)
        for at, result in enumerate(results, slot):
            for other in others.get(at, ()):
                other.cell, other.origin, other.sharing = result.cell, result.origin, None
                other.state = None
            found = flat.get(at)
            is_usable = found is not None and stand_for(found, result)
            done.append(found if is_usable else result)
            if at in strand.views:
                share(done[-1], done[strand.views[at]])


def _came_in(strand: Strand, slot: int, done: Sequence[Any]) -> Any:
    """Return what came in, as operations on nodes take it."""
    value = strand.values[slot]
    if value is LINK:
        return done[strand.sources[slot]]
    return value.array if type(value) is GuardedArray else value


def _computed(operation: Operation, operands: Sequence[int], done: Sequence[Any]) -> list[Any]:
    """Return the results of an operation."""
    return results_of(operation.compute(*[done[at] for at in operands]))
