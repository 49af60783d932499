"""The backward pass: planned by a walk over the trace, and taken step by step.

Kernel nodes are not pulled back one by one. A node whose results are read by the members of groups
joins these groups, which become one. A group is pulled back, by one kernel, when something else
needs the cotangents that it makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from mixad.backends.autocast import in_given_types
from mixad.kernel.spec import Part
from mixad.tape.fusion import is_alike, may_fuse
from mixad.tape.group import Group
from mixad.tape.group_step import step_of
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import InputNode, PulledNode, RuleNode
from mixad.tape.schedule import Cotangent, NodeStep, Pass, Place, Step
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Origin
from mixad.tape.writing import WriteNode

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
    trace = Trace(level, outputs, of_number=of_number)
    under_way = Pass(level, trace)
    numbers = [trace.numbers.get(id(node)) for node in inputs]
    walk = _Walk(level, trace, [origin for origin, _ in outputs], under_way)
    while outputs:
        under_way.add(trace.place(outputs[-1][0]), outputs.pop()[1], fresh=False)
    for step in walk.steps():
        step.run(under_way)
    return [None if n is None else under_way.found.get(n, {}).get(0) for n in numbers]


class _Walk:
    """One walk over the trace from the outputs; `under_way` takes each step before the next."""

    def __init__(
        self, level: Level, trace: Trace, outputs: Sequence[Origin], under_way: Pass
    ) -> None:
        self._level = level
        self._trace = trace
        self._pass = under_way
        self._waiting = trace.consumers
        self._kernels: list[KernelNode] = []  # ready, may join a group
        self._others: list[int] = []  # numbers of those that are ready, but need what groups give
        self._groups: dict[Group, None] = {}  # open, in the order of their beginning
        self._readers: dict[
            int, list[tuple[Group, Origin]]
        ] = {}  # by number: open groups that read it
        for origin in outputs:
            self._arrive(origin, None)

    def steps(self) -> Iterator[Step]:
        """Visit all nodes; each step is taken before the walk goes on."""
        while True:
            if self._kernels:
                self._join(self._kernels.pop())
            elif self._others:
                yield from self._pull(self._others.pop())
            elif self._groups:
                yield from self._close(next(reversed(self._groups)))
            else:
                return

    def _arrive(self, origin: Origin, reader: Group | None) -> None:
        """Note that a consumer of a node was visited; `reader`: it joined this group."""
        number = self._trace.numbers[id(origin.node)]
        if reader is not None:
            self._readers.setdefault(number, []).append((reader, origin))
        self._waiting[number] -= 1
        if not self._waiting[number]:
            node = self._trace.nodes[number]
            if isinstance(node, KernelNode):
                self._kernels.append(node)
            elif not (isinstance(node, InputNode) and node.level is self._level):
                self._others.append(number)

    def _join(self, node: KernelNode) -> None:
        """Let a kernel node join the groups that read it, or one that reads what it reads."""
        number = self._trace.numbers[id(node)]
        readers = self._readers_of(number)
        active = [p for p in node.parents if p is not None and self._level in p.levels]
        own = Group(self._level, node, active)
        group = self._joined(own, readers, active)
        if group is None and readers:
            self._others.append(number)  # what it needs is not there yet
            return
        self._readers.pop(number, None)
        if group is None:
            group = own
            self._groups[group] = None
        for parent in active:
            self._arrive(parent, group)

    def _joined(
        self, own: Group, readers: Sequence[tuple[Group, Origin]], active: Sequence[Origin]
    ) -> Group | None:
        """Return the open group that a node has joined; None if there is none.

        Groups that read it become one: open ones do not wait for each other.
        """
        node = own.members[0]
        if not readers:
            for parent in active:
                other = self._last_reader(parent)
                if other is not None and is_alike(node, other.members[0]) and other.take(own):
                    return other
            return None
        if not all(may_fuse(origin, reader.members[0]) for reader, origin in readers):
            return None
        group = readers[0][0]
        for other in {reader: None for reader, _ in readers if reader is not group}:
            if not group.take(other):
                return None
            del self._groups[other]
        return group if group.take(own) else None

    def _readers_of(self, number: int) -> list[tuple[Group, Origin]]:
        """Return the open groups that read a node, and what of it."""
        readers = [(group.whole, origin) for group, origin in self._readers.get(number, ())]
        return [each for each in readers if each[0].members]

    def _last_reader(self, parent: Origin) -> Group | None:
        """Return the open group that was the last to read a value; None if there is none."""
        readers = self._readers.get(self._trace.numbers[id(parent.node)])
        while readers:
            group, origin = readers[-1][0].whole, readers[-1][1]
            if group.members:
                return group if origin.output == parent.output else None
            readers.pop()
        return None

    def _pull(self, number: int) -> Iterator[Step]:
        """Visit a node that needs its cotangents now."""
        for group, _ in self._readers_of(number):
            yield from self._close(group)
        self._readers.pop(number, None)
        node: KernelNode | PulledNode = self._trace.nodes[number]
        if isinstance(node, KernelNode):
            self._join(node)
            return
        parents = [p if p is not None and self._level in p.levels else None for p in node.parents]
        if number in self._pass.found:
            yield NodeStep(number, tuple([p and self._trace.place(p) for p in parents]))
        self._pass.nodes[number] = None
        for parent in parents:
            if parent is not None:
                self._arrive(parent, None)

    def _part(self, group: Group, origin: Origin) -> tuple[Place, Part] | None:
        """Return the place and box that a value is a part of; None if it is none.

        None too unless one group alone gives its cotangent.
        """
        number = self._trace.numbers[id(origin.node)]
        node = self._trace.nodes[number]
        if type(node) is not RuleNode or self._waiting[number] or number in self._pass.found:
            return None
        part, parent = node.part(), node.parents[0]
        readers = self._readers_of(number)
        if part is None or any(reader is not group for reader, _ in readers):
            return None
        assert parent is not None  # a value is a part of the one argument of its rule
        place = self._trace.place(parent)
        return None if isinstance(self._trace.nodes[place[0]], WriteNode) else (place, part)

    def _close(self, group: Group) -> Iterator[Step]:
        """Pull a group back, if that has not been done."""
        if not group.members:
            return
        del self._groups[group]
        step = step_of(group, self._trace, self._pass.found, partial(self._part, group))
        if step is not None:
            yield step
        group.members = []  # now closed; what only they hold is let go
