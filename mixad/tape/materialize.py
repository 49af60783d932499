"""Making pending values: what they need is planned, and done at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mixad.backends.arrays import as_array
from mixad.backends.execute import kernel_for
from mixad.config import CheckMode
from mixad.tape.buffer import Buffer
from mixad.tape.cell import Cell, makes_pending
from mixad.tape.entries import Entry, Launched, Stores
from mixad.tape.fusion import value_of
from mixad.tape.graph import Graph, PendingGraph
from mixad.tape.guard import GuardedArray
from mixad.tape.journal import Register
from mixad.tape.kernel_call import kernel_values
from mixad.tape.kernel_node import KernelNode, Partials
from mixad.tape.node import Waiting
from mixad.tape.planner import Fusion, Planner, SavedPartials
from mixad.tape.registers import array_like
from mixad.tape.tracer import Origin, check_mode, journal_of, locked

__all__ = ["Run", "kernel_of"]


@makes_pending
def make(cell: Cell) -> None:
    """Make the value of a cell, unless another thread has made it meanwhile."""
    pending: Any = cell.pending
    if type(pending) is Buffer:
        pending.hand_over(cell)
    elif pending is not None:
        with locked(pending.levels):
            if cell.pending is not None:
                _make(cell, pending)


def _make(cell: Cell, pending: KernelNode | Waiting) -> None:
    """Make the value of a cell; hold it if nodes read it: the derivative will read it again."""
    if type(pending) is KernelNode and pending.uses:
        pending.keep(cell.output)
    if any(level.foresees for level in pending.levels):
        _foresee(pending)
        return
    graph = PendingGraph(pending)
    planner = _planner_of(graph, pending.levels)
    root = graph.register_of(pending, cell.output)
    entries = planner.plan_value(root)
    making = _Making(graph, (planner.kept & graph.read) - {root})
    making.take(entries)
    making.store(planner.stored, check_mode(pending.levels))


def _foresee(node: Any) -> None:
    """Fill the results of a node with arrays of their shapes and kinds."""
    if type(node) is Waiting:
        waiting: list[Any] = [node]
        while type(waiting[-1].source.pending) is Waiting:
            waiting.append(waiting[-1].source.pending)
        for each in reversed(waiting):
            each.fill(_value_of(each))
        return
    journal = journal_of(node.levels)
    for _, cell, _ in node.live():
        if journal is not None:
            journal.register(cell)
        cell.fill(array_like(cell.shape, cell.kind, cell.device), "off")


def _value_of(node: Waiting) -> Any:
    """Return the value of a rule whose argument is there."""
    rule, source = node.rule, node.source
    return as_array(rule.evaluate(source.library.xp, source.value, **node.static))


def _planner_of(graph: PendingGraph, levels: Iterable[Any]) -> Planner:
    """Return the planner of pending nodes, which may be of more transforms than the value is."""
    fuses = all(level.fuses for level in levels)
    planner = Planner(graph.noted, is_reverse=True, fuses=fuses, beside=None)
    planner.know(graph.made, graph.held, graph.uses, {})
    return planner


def kernel_of(node: KernelNode) -> tuple[Fusion, list[Origin | None], list[Any]]:
    """Return the kernel that makes a node, where its arguments came from, and what is in it."""
    graph = PendingGraph(node)
    planner = _planner_of(graph, node.levels)
    fusion, members = planner.kernel_of(graph.register_of(node, 0))
    places = [graph.places[read] for read in zip(fusion.registers, fusion.carries, strict=True)]
    return fusion, [reader.parents[index] for reader, index in places], members


class Run:
    """Takes entries: `made` has the values that they have made."""

    def __init__(self, graph: Graph, kept: Iterable[Register] = ()) -> None:
        self.made: dict[Register, Any] = {}
        self._nodes = graph.nodes
        self._kept = set(kept)
        self._places = {register: place for (register, _), place in graph.places.items()}

    def value(self, register: Register) -> Any:
        """Return a value as kernels take it."""
        if register in self.made:
            return self.made[register]
        node, index = self._places[register]
        return value_of(node.source(index))

    def launched(self, entry: Launched) -> None:
        """Launch a kernel."""
        values = kernel_values(entry.call.passes[0], list(map(self.value, entry.arguments)))
        self.fill(entry.results, entry.call.kernel(values, entry.options.backend))

    def stores(self, entry: Stores) -> None:
        """Launch a kernel that makes partials, too."""
        values = kernel_values(entry.passes[0], list(map(self.value, entry.arguments)))
        arrays = kernel_for(entry.passes, entry.asked)(values, entry.options.backend)
        self.fill([at for at, _ in entry.results], [arrays[k] for _, k in entry.results])

    def fill(self, registers: Sequence[Register], arrays: Sequence[Any]) -> None:
        """Give values that have been made to those who hold them."""
        for register, array in zip(registers, arrays, strict=False):
            self.made[register] = array
            node, output = self._nodes.get(register, (None, 0))
            if type(node) is KernelNode:
                cell = node.keep(output) if register in self._kept else node.live_cell(output)
                if cell is not None and cell.pending is not None:
                    cell.fill(array, check_mode(node.levels))


class _Making(Run):
    """Makes pending values."""

    def __init__(self, graph: Graph, kept: Iterable[Register]) -> None:
        super().__init__(graph, kept)
        self._edges = graph.places

    def take(self, entries: Sequence[Entry]) -> None:
        """Take entries, in order."""
        for entry in entries:
            if type(entry) is Launched:
                self.launched(entry)
            elif type(entry) is Stores:
                self.stores(entry)
            else:
                self._evaluate(entry)

    def _evaluate(self, entry: Any) -> None:
        """Apply a rule that has waited."""
        node, _ = self._nodes[entry.results[0]]
        self.made[entry.results[0]] = array = _value_of(node)
        node.fill(array)

    def store(self, stored: Iterable[SavedPartials], check: CheckMode) -> None:
        """Let nodes have the partials that have been made with their results."""
        changes = [self._partials(each, check) for each in stored]
        for node, change in changes:  # which were arguments' places until now
            node.store(*change)

    def _partials(self, stored: SavedPartials, check: CheckMode) -> tuple[KernelNode, Any]:
        """Return a node, and what it becomes."""
        outputs, count = stored.outputs, len(stored.arguments)
        seen = {id(self.made[register]) for register in outputs if register in self.made}
        arrays = [None if r is None else self.made[r] for r in stored.residuals[count:]]
        # Whoever gets the results may change them.
        arrays = [GuardedArray(array, check) if id(array) in seen else array for array in arrays]
        leaves = [self._edges[r] for r in zip(stored.arguments, stored.carries, strict=True)]
        node, _ = self._nodes[next(iter(outputs))]
        return node, (
            Partials(stored.plan, arrays),
            [reader.source(index) for reader, index in leaves],
            [reader.parents[index] for reader, index in leaves],
            list(outputs.values()),
        )
