"""The backward pass: nodes are planned as equations, and what is planned is done at once.

Each step reads cotangents and values, launches a kernel or calls a node's pullback, and adds to the
cotangents of what was read. If a transform around follows what it reads, it is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

from mixad.backends.autocast import in_given_types
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.cotangents import Cotangent, together
from mixad.tape.entries import (
    Contracted,
    Entry,
    Evaluated,
    Launched,
    Pulled,
    PulledCall,
    PulledKernel,
    Stores,
)
from mixad.tape.fusion import value_of
from mixad.tape.gradient_plan import IN_MEMORY, contraction_of
from mixad.tape.graph import TraceGraph
from mixad.tape.journal import Register
from mixad.tape.materialize import Run
from mixad.tape.node import InputNode, RuleNode, added
from mixad.tape.planner import Planner
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Origin, Tracer, bodies_among, warn
from mixad.tape.writing import WriteNode, writable

__all__ = ["Cotangent", "backward"]


@in_given_types
def backward(
    level: Level,
    outputs: list[tuple[Origin, Any]],
    inputs: Sequence[InputNode],
    *,
    of_number: bool = False,
) -> list[Cotangent | None]:
    """Carry cotangents from the outputs of a transform to its inputs; None for an input if zero.

    Nodes are freed on the way: `outputs` is emptied. Results broadcast to the inputs' shapes. If
    the output is one number (`of_number`), kernels need not read its cotangent, 1.
    """
    with level.lock:  # another thread may store partials of nodes
        way_back = _WayBack(level, outputs, inputs, of_number=of_number)
    outputs.clear()
    return way_back.run()


class _Parts(NamedTuple):
    """Cotangents of parts of one value."""

    read: list[tuple[RuleNode, Any]]  # what read each part, and its cotangent
    size: int  # how many elements there are


class _WayBack(Run):
    """One backward pass: `found` has the cotangents so far, by the registers of values."""

    def __init__(
        self,
        level: Level,
        outputs: Sequence[tuple[Origin, Any]],
        inputs: Sequence[InputNode],
        *,
        of_number: bool,
    ) -> None:
        trace = Trace(level, outputs)
        graph = TraceGraph(level, trace)
        super().__init__(graph)
        self.found: dict[Register, Cotangent] = {}
        self._level = level
        self._parts: dict[Register, _Parts] = {}
        seeds = [graph.register_of(origin.node, origin.output) for origin, _ in outputs]
        self._ends = [graph.register_of(node, 0) for node in inputs]
        planner = Planner(
            graph.noted,
            is_reverse=level.is_reverse,
            fuses=level.fuses,
            beside=outputs[0][1] if outputs else None,
            is_inner=trace.is_inner,
        )
        planner.know(graph.made, graph.held, graph.uses, graph.stored)
        entries = planner.plan_back(seeds, of_number=of_number and bool(seeds))
        launched = [entry for entry in entries if type(entry) in (Launched, Stores)]
        self._kept = planner.awaited.union(*map(_results, launched))
        if planner.decided:
            warn(planner.decided, frozenset(chain(*[origin.levels for origin, _ in outputs])))
        for register, (_, value) in zip(reversed(seeds), reversed(outputs), strict=True):
            self._add(register, value, False)
        self._entries = entries[::-1]
        self._over = list(_over(self._entries))
        read = set(chain(*map(_reads, entries)))
        places, self._places = self._places, {}  # a node holds all its arguments
        self._arguments = {
            at: node.argument(index) for at, (node, index) in places.items() if at in read
        }
        self._partials = graph.partials
        known, results = self._nodes, set(chain(*map(_results, entries)))
        self._nodes = {at: node for at, node in known.items() if at in results}
        self._pulled_nodes = {at: known[at][0] for entry in entries for at in _pulled(entry)}

    def run(self) -> list[Cotangent | None]:
        """Take the entries, let go of what no other one reads; return the inputs' cotangents."""
        while self._entries:
            entry = self._entries.pop()
            _ENTRIES[type(entry)](self, entry)
            for register in self._over.pop():
                for table in (self.made, self._arguments, self._nodes, self._partials):
                    table.pop(register, None)
        return [self.found.get(end) for end in self._ends]

    def value(self, register: Register) -> Any:
        """Return a value as transforms around see it."""
        if register in self.made:
            return self.made[register]
        if register in self._partials:
            return value_of(self._partials[register])
        return self._arguments[register].seen_outside(self._level)

    # -- cotangents --------------------------------------------------------------------------------

    def _add(self, register: Register, value: Any, fresh: bool) -> None:
        """Add a cotangent to what a value has; a smaller one broadcasts."""
        known = self.found.get(register)
        self.found[register] = (
            Cotangent(value, fresh) if known is None else together(known, value, fresh)
        )

    def _add_part(self, register: Register, write: WriteNode, reader: RuleNode, g: Any) -> None:
        """Add the cotangent of a part of what was written, once that of the whole is there.

        A loop that writes an array and reads it has many versions of it with a few parts each, and
        one array for the cotangents of all of them.
        """
        parts = self._parts.setdefault(register, _Parts([], 0))
        parts.read.append((reader, g))
        parts = self._parts[register] = parts._replace(size=parts.size + math.prod(g.shape))
        if parts.size > math.prod(write.results[0].shape):
            self.found[register] = self._whole(register, write)

    def _whole(self, register: Register, write: WriteNode) -> Cotangent:
        """Return the cotangent of what was written, with those of its parts."""
        result, known = write.results[0], self.found.pop(register, None)
        for reader, g in self._parts.pop(register, _Parts([], 0)).read:
            if known is not None and not known.is_own(result.shape):
                known = Cotangent(writable(known.value, result), True)
            if known is None or not reader.pull_into(known.value, g):
                (part,) = reader.pullback([g], self._level)
                known = Cotangent(part if known is None else added(known.value, part), True)
        assert known is not None
        return known

    # -- entries -----------------------------------------------------------------------------------

    def _launched(self, entry: Launched) -> None:
        with self._level.lock:
            self.launched(entry)

    def _stores(self, entry: Stores) -> None:
        with self._level.lock:
            self.stores(entry)

    def _evaluated(self, entry: Evaluated) -> None:
        """Do nothing: who reads the value makes it, of what has been made now."""

    def _pulled_kernel(self, entry: PulledKernel) -> None:
        """Launch a kernel that pulls kernels back."""
        with self._level.lock:
            given = [self.found.pop(register).value for register in entry.cotangents]

            def at(source: tuple[bool, int]) -> Any:
                is_given, place = source
                return given[place] if is_given else self.value(place)

            arguments = list(map(at, entry.arguments))
            arrays = entry.plan.arrays(arguments, entry.shape, entry.options)
            self.fill(entry.results, arrays)
            for target, kind, place in entry.targets:
                made = arrays[place] if kind in IN_MEMORY else given[place]
                self._add(target, made, kind == "array")
            for placed in entry.placed:
                self._add(placed.target, placed.added_up(arrays, given, entry.shape), True)
            values = {index: at(source) for index, source in entry.read.items()}
            for shifted in entry.shifted:
                whole = shifted.added_up(values, entry.shape, entry.options)
                self._add(shifted.target, whole, True)

    def _contracted(self, entry: Contracted) -> None:
        """Multiply stored partials by cotangents."""
        with self._level.lock:
            targets = {i: at for i, at in enumerate(entry.targets) if at is not None}
            gs: dict[int, Any] = {}
            for output, register in zip(entry.outputs, entry.given, strict=True):
                g = self.found.pop(register).value
                gs[output] = added(gs[output], g) if output in gs else g
            shapes, shape, count = entry.shapes, entry.shape, len(entry.residuals)
            plan = contraction_of(entry.plan, tuple(targets), tuple(gs), shapes, shape)
            sums = list(gs.values())
            arrays = plan.arrays(
                [
                    sums[i - count] if i >= count else self.value(cast("int", entry.residuals[i]))
                    for i in plan.kept
                ],
                shape,
                entry.options,
            )
            for target, (kind, at) in zip(targets.values(), plan.places, strict=True):
                if kind == "array":
                    self._add(target, arrays[at], True)

    def _pulled(self, entry: Pulled) -> None:
        """Pull a rule back."""
        self._pull(entry.value, (entry.value,), entry.targets)

    def _pulled_call(self, entry: PulledCall) -> None:
        """Pull a node back."""
        self._pull(entry.call, entry.given, entry.targets)

    def _pull(
        self,
        register: Register,
        results: Sequence[Register | None],
        targets: Sequence[Register | None],
    ) -> None:
        """Pull a node back whose results may have cotangents."""
        node = self._pulled_nodes.pop(register)
        if isinstance(node, WriteNode):
            whole, result = self._whole(register, node), node.results[0]
            g = whole.value if whole.is_own(result.shape) else writable(whole.value, result)
            del whole
            gradients, fresh = node.pull_owned(g, self._level), True
        else:
            taken = [None if at is None else self.found.pop(at, None) for at in results]
            gs = [None if g is None else g.value for g in taken]
            # What an input of a transform inside gets goes through.
            fresh = taken[0].fresh if isinstance(node, InputNode) and taken[0] else node.fresh
            if isinstance(node, RuleNode):
                gs = [broadcast_to(gs[0], node.results[0].shape)]
                if self._is_added(node, gs[0], targets[0]):
                    return
            gradients = node.pullback(gs, self._level)
        for target, gradient in zip(targets, gradients, strict=True):
            if target is not None and gradient is not None:
                self._add(target, gradient, fresh)

    def _is_added(self, node: RuleNode, g: Any, target: Register | None) -> bool:
        """Add to the cotangent that the argument already has, in place, or let that wait."""
        if target is None:
            return False
        known = self.found.get(target)
        if node.rule.adds is not None and known is not None and _is_in_body(known.value, g):
            whole = broadcast_to(known.value, tuple(node.arguments[0].shape))
            self.found[target] = Cotangent(node.added_to(whole, g, self._level), True)
            return True
        if node.rule.add_into is None:
            return False
        write = self._pulled_nodes.get(target)
        if isinstance(write, WriteNode):
            self._add_part(target, write, node, g)
            return True
        if known is None or isinstance(known.value, Tracer) or isinstance(g, Tracer):
            return False
        is_own = known.is_own(tuple(node.arguments[0].shape))
        return is_own and node.pull_into(known.value, g)


def _is_in_body(*values: Any) -> bool:
    """Whether one of some values is recorded in the body of a loop."""
    return any(isinstance(v, Tracer) and bodies_among(v.levels) for v in values)


def _reads(entry: Entry) -> Sequence[Register]:
    """Return the values that an entry reads; nodes that are pulled back have their own."""
    return () if _pulled(entry) else entry.reads


def _pulled(entry: Entry) -> Sequence[Register]:
    """Return the value whose node an entry pulls back."""
    if type(entry) is Pulled:
        return (entry.value,)
    return (entry.call,) if type(entry) is PulledCall else ()


def _results(entry: Entry) -> list[Register]:
    """Return the values that an entry makes."""
    return [r if type(r) is int else r[0] for r in getattr(entry, "results", ())]


def _over(entries: Iterable[Entry]) -> Iterator[set[Register]]:
    """Yield the registers that each entry is the last to use; the last entry comes first.

    A node that is pulled back is let go of by that; what reads its value may be over before.
    """
    used: set[Register] = set()
    for entry in entries:
        own = {*_reads(entry), *_results(entry)}
        yield own - used
        used |= own


_ENTRIES: Mapping[type, Callable[[_WayBack, Any], None]] = {
    Launched: _WayBack._launched,
    Stores: _WayBack._stores,
    Evaluated: _WayBack._evaluated,
    PulledKernel: _WayBack._pulled_kernel,
    Pulled: _WayBack._pulled,
    PulledCall: _WayBack._pulled_call,
    Contracted: _WayBack._contracted,
}
