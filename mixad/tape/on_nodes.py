"""A recording on nodes: done in the order in which it was recorded, from its beginning on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from mixad.tape.cell import Cell
from mixad.tape.held import Held
from mixad.tape.journal import Journal
from mixad.tape.memory import share, stand_for
from mixad.tape.operations import FURTHER, LINK, Operation, results_of
from mixad.tape.tracer import Origin, Tracer

if TYPE_CHECKING:
    from mixad.tape.strand import Strand

__all__ = ["OnNodes"]


class OnNodes:
    """What a recording has on nodes.

    Parameters
    ----------
    values, sources : list, dict
        Of the recording.
    make_input : callable
        Of the slot of an input, returns its tracer with cell and node.
    journal : Journal
        What is done by them.

    Attributes
    ----------
    tracers : dict
        By slot, the tracers that stood for values when they got their nodes.
    """

    def __init__(
        self,
        values: list[Any],
        sources: dict[int, int],
        make_input: Callable[[int], Tracer],
        journal: Journal,
    ) -> None:
        self.tracers: dict[int, ref[Tracer]] = {}
        self.journal = journal
        self._values = values
        self._sources = sources
        self._make_input = make_input
        self._origins: dict[int, Origin] = {}
        self._cells: dict[int, ref[Cell]] = {}
        self._done: list[Any] = []
        self._rest: list[Any] = []

    def alive(self) -> list[Tracer]:
        """Return the tracers that someone holds."""
        found = [each() for each in self.tracers.values()]
        return [tracer for tracer in found if tracer is not None]

    def is_current(self, tracer: Tracer) -> bool:
        """Whether a tracer with a node still stands for its slot: it may have been written to."""
        cell = self._cells.get(tracer.slot)
        is_same = cell is not None and tracer.cell is cell()
        return is_same and tracer.origin is self._origins[tracer.slot]

    def advance(self, strand: Strand) -> None:
        """Give tracers cells and nodes; after an exception, it goes on from there."""
        flat = {tracer.slot: tracer for tracer in strand.alive()}
        others: dict[int, list[Tracer]] = {}
        for tracer in strand.others:
            if tracer.state is not None:
                others.setdefault(tracer.slot, []).append(tracer)
        done, values = self._done, self._values
        for slot in range(len(done), len(values)):
            if strand.is_input(slot):
                result = self._make_input(slot)
                self.journal.name(result.cell, slot)
                self.add(slot, result)
            elif (made := strand.made(slot)) is None:
                done.append(self._came_in(slot))
                continue
            else:
                result = self._computed(slot, *made)
            for other in others.get(slot, ()):
                other.cell, other.origin, other.sharing = result.cell, result.origin, None
                other.state = None
            found = flat.get(slot)
            if found is not None:
                self.tracers[slot] = ref(found)
            is_usable = found is not None and stand_for(found, result)
            done.append(found if is_usable else result)
            if slot in strand.views:
                share(done[-1], done[strand.views[slot]])
        self._done = []

    def follow(self, tracer: Tracer, slot: int) -> None:
        """Note that a tracer, which was written to, stands for the value of another slot."""
        known = self.tracers.get(tracer.slot)
        if known is not None and known() is tracer:
            del self.tracers[tracer.slot]
        tracer.slot = slot
        self.tracers[slot] = ref(tracer)

    def _came_in(self, slot: int) -> Any:
        """Return what came in, as operations on nodes take it."""
        value = self._values[slot]
        if value is LINK:
            return self._done[self._sources[slot]]
        return value.array if type(value) is Held else value

    def _computed(self, slot: int, operation: Operation, operands: tuple[int, ...]) -> Tracer:
        """Return what an operation gives."""
        journal = self.journal
        if operation is not FURTHER:
            given = [self._done[at] for at in operands]
            with journal.operating(operation, given):
                self._rest = results_of(operation.compute(*given))
                self.link(self._rest, operation, operands)
        found: Tracer = self._rest.pop(0)
        self.add(slot, found)
        return found

    def add(self, slot: int, tracer: Tracer) -> None:
        """Note where the value of a slot comes from."""
        self._origins[slot] = tracer.origin
        self._cells[slot] = ref(tracer.cell)

    def link(
        self, results: Sequence[Tracer], operation: Operation, operands: tuple[int, ...]
    ) -> None:
        """Note which slots the nodes of an operation read."""
        origins, sources = self._origins, self._sources
        linked = [sources.get(at, at) for at in operands]
        known = {id(origins[at].node) for at in linked if at in origins}
        for result in results:
            self.journal.link(result.origin.node, operands if operation.is_kernel else None, known)
