"""Nodes as equations, from which the planner plans what no strand has recorded.

There are two graphs: of the pending nodes that a value needs, and of the nodes between the outputs
of a transform and its inputs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from mixad.kernel.spec import OutputRequest
from mixad.tape.cell import Cell
from mixad.tape.guard import GuardedArray
from mixad.tape.journal import (
    CallEquation,
    Equation,
    KernelEquation,
    Noted,
    Register,
    RuleEquation,
)
from mixad.tape.kernel_call import Shape
from mixad.tape.kernel_node import KernelNode, Partials
from mixad.tape.node import InputNode, RuleNode, Shaped, Waiting
from mixad.tape.planner import SavedPartials
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Origin, Tracer
from mixad.tape.writing import WriteNode

__all__ = ["Graph", "PendingGraph", "TraceGraph"]

Place: TypeAlias = tuple[KernelNode, int]
"""A kernel's node, and which of its arguments."""


class Graph:
    """Equations of nodes, and what is known of their registers.

    `made` are registers of values that are there, `held` of values that others hold; `uses` tells,
    by the id of an equation, how many nodes read its results. `nodes` has what makes a register,
    and `places` where kernels read it, along an edge. `stored` has partials that have been made, by
    the id of an equation, and `partials` their arrays.
    """

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self.made: set[Register] = set()
        self.held: set[Register] = set()
        self.uses: dict[int, int] = {}
        self.stored: dict[int, SavedPartials] = {}
        self.partials: dict[Register, Any] = {}
        self.nodes: dict[Register, tuple[Any, int]] = {}
        self.places: dict[tuple[Register, Hashable], Place] = {}
        self._registers: dict[Hashable, Register] = {}
        self._kernels: set[int] = set()

    @property
    def noted(self) -> Noted:
        """The equations, as the planner takes them."""
        return Noted(self.equations, (), {}, len(self._registers), ())

    @property
    def read(self) -> set[Register]:
        """The values that kernels read."""
        return {register for register, _ in self.places}

    def register_of(self, node: Any, output: int) -> Register:
        """Return the register of a node's output."""
        return self._register(id(node), output)

    def _register(self, *key: Hashable) -> Register:
        """Return the register of what a key identifies."""
        return self._registers.setdefault(key, -1 - len(self._registers))

    def _read(self, node: KernelNode, index: int) -> tuple[Register, Hashable]:
        """Return the register of a kernel's argument, and the edge that a cotangent goes along."""
        raise NotImplementedError

    def _add_call_of(self, node: KernelNode) -> None:
        """Add a kernel's node, with all passes of its call, if that has not been done."""
        if (id(node), 0) in self._registers and self._register(id(node), 0) in self.nodes:
            return
        nodes = _siblings(node) or [node]
        found: list[KernelEquation] = []
        siblings = found if len(nodes) > 1 else []
        for node in nodes:
            registers, edges, inside, shapes = [], [], [], []
            for index, source in enumerate(node.arguments):
                register, edge = read = self._read(node, index)
                if type(source) is not Shaped:  # another node may have the value
                    self.places.setdefault(read, (node, index))
                registers.append(register)
                edges.append(edge)
                inside.append(type(source) is Origin and self._may_be_inside(source))
                shapes.append(_shape_of(source, node.call.kinds[index]))
            equation = KernelEquation(
                node.call,
                node.options,
                node.shape,
                node.library,
                node.device,
                tuple(registers),
                tuple(edges),
                tuple(inside),
                tuple(shapes),
                self._outputs(node),
                siblings,
                len(node.levels) == 1 and all(level.is_reverse for level in node.levels),
            )
            self.uses[id(equation)] = node.uses
            if node.partials is not None:
                self._add_partials(node.partials, equation)
            found.append(equation)
        self.equations += found

    def _add_partials(self, partials: Partials, equation: KernelEquation) -> None:
        """Note the partials of a kernel."""
        read = partials.plan.read
        residuals = [r if at in read else None for at, r in enumerate(equation.arguments)]
        for at, array in enumerate(partials.arrays):
            register = None if array is None else self._register("partial", id(equation), at)
            residuals.append(register)
            if register is not None:
                self.made.add(register)
                self.partials[register] = array
        kinds = zip(equation.shapes, equation.call.kinds, strict=True)
        self.stored[id(equation)] = SavedPartials(
            partials.plan,
            tuple(residuals),
            equation.arguments,
            equation.carries,
            [shape if kind == "lane" else () for shape, kind in kinds],
            {register: request.result for request, register in equation.outputs},
        )

    def _outputs(self, node: KernelNode) -> list[tuple[OutputRequest, Register]]:
        """Return what is wanted of a kernel, with its registers; note what is there of it."""
        found = []
        for output, request in enumerate(node.outputs):
            register, cell = self._register(id(node), output), node.live_cell(output)
            self.nodes[register] = node, output
            if node.partials is not None:  # what reads it has it
                self.made.add(register)
            elif cell is not None:
                (self.made if cell.pending is None else self.held).add(register)
            found.append((request, register))
        return found

    def _may_be_inside(self, source: Origin) -> bool:
        """Whether a value may be computed inside of the kernel that reads it.

        Not along an edge that lacks a running transform of the node: through it, that transform
        would see what it must not.
        """
        if id(source.node) not in self._kernels:
            return False
        levels: frozenset[Level] = source.node.levels  # type: ignore[attr-defined]  # a kernel's
        return levels is source.levels or not any(each.alive for each in levels - source.levels)

    def _value(self, source: Any, parent: Origin | None) -> Register:
        """Return the register of a value that is there; each number has its own."""
        if parent is not None:
            register = self._register(id(parent.node), parent.output)
        elif type(source) is Cell:
            register = self._register(id(source))
        elif type(source) is GuardedArray:
            register = self._register(source.identity)
        else:
            register = self._register("number", len(self._registers))
        self.made.add(register)
        return register


class PendingGraph(Graph):
    """The pending nodes that a value needs."""

    def __init__(self, root: KernelNode | Waiting) -> None:
        super().__init__()
        found: dict[int, Any] = {}
        left: list[Any] = [root]
        while left:
            node = left.pop()
            if id(node) not in found:
                found[id(node)] = node
                if type(node) is KernelNode:
                    left += _siblings(node)
                    left += _pending(node.arguments)
                else:
                    left += _pending((node.source,))
        self._kernels = {key for key, node in found.items() if type(node) is KernelNode}
        for node in found.values():
            if type(node) is Waiting:
                self._add_waiting(node)
            else:
                self._add_call_of(node)

    def _read(self, node: KernelNode, index: int) -> tuple[Register, Hashable]:
        source, parent = node.arguments[index], node.parents[index]
        edge = None if parent is None else (id(parent.node), parent.output, id(parent.levels))
        return self._source(source, parent), edge

    def _source(self, source: Any, parent: Origin | None) -> Register:
        if type(source) is Origin:
            register = self._register(id(source.node), source.output)
            if id(source.node) not in self._kernels:
                self.made.add(register)
            return register
        if type(source) is Cell and type(source.pending) in (KernelNode, Waiting):
            return self._register(id(source.pending), source.output)
        return self._value(source, parent)

    def _add_waiting(self, node: Waiting) -> None:
        argument, result = self._source(node.source, None), self._register(id(node), 0)
        self.nodes[result] = node, 0
        form = Shaped(node.source.shape, node.source.kind.type.dtype)
        self.equations.append(
            RuleEquation(
                node.rule,
                node.static,
                (argument,),
                (True,),
                (form,),
                (result,),
                (node.result.shape,),
                waits=True,
            )
        )


def _siblings(node: KernelNode) -> list[KernelNode]:
    """Return the passes of a node's call that someone has."""
    return [found for held in node.siblings if (found := held()) is not None]


def _pending(sources: Iterable[Any]) -> Iterator[Any]:
    """Yield what makes the pending values among what is read."""
    for source in sources:
        if type(source) is Origin:
            node: Any = source.node
            if not node.is_materialized(source.output):
                yield node
        elif type(source) is Cell and type(source.pending) in (KernelNode, Waiting):
            yield source.pending


class TraceGraph(Graph):
    """The nodes between the outputs of a transform and its inputs."""

    def __init__(self, level: Level, trace: Trace) -> None:
        super().__init__()
        self._level = level
        self._is_inner = trace.is_inner
        self._seen: dict[Register, frozenset[Level]] = {}
        self._waiting: set[Register] = set()
        pairs = list(zip(trace.numbers, trace.nodes, strict=True))
        self._kernels = {key for key, node in pairs if type(node) is KernelNode}
        for key, node in pairs:
            if type(node) is KernelNode:
                self._add_call_of(node)
            elif type(node) is InputNode and node.level is level:
                self.made.add(self._register(key, 0))
            else:
                self._add_node(key, node)
        for _, node in pairs:
            if type(node) is KernelNode:
                self.held.difference_update(self._retained(node))

    def _read(self, node: KernelNode, index: int) -> tuple[Register, Hashable]:
        source, parent = node.arguments[index], node.parents[index]
        around = self._around(parent)
        if parent is not None and self._level in parent.levels:
            return self._carrying(parent, around, source), True
        if type(source) is Cell and id(source.pending) in self._kernels:
            return self._register(id(source.pending), source.output), None
        if parent is None or not around:
            return self._value(source, None), None
        register = self._register(id(parent.node), parent.output, around)
        self.made.add(register)
        return register, None

    def _retained(self, node: KernelNode) -> Iterator[Register]:
        """Yield the pending values that a kernel's node holds: it is over when they are reached."""
        for source in node.arguments:
            while type(source) is Cell and type(source.pending) is Waiting:
                source = source.pending.source
            if type(source) is Cell and id(source.pending) in self._kernels:
                yield self._register(id(source.pending), source.output)

    def _around(self, parent: Origin | None) -> frozenset[Level]:
        """Return the running transforms around that follow a value."""
        if parent is None or not self._is_inner:
            return _NO_LEVELS
        return frozenset([each for each in parent.levels if each.alive and each is not self._level])

    def _carrying(self, parent: Origin, around: frozenset[Level], source: Any) -> Register:
        """Return the register of a value that carries the level.

        What transforms around see of it is not the same along all edges: then it is another value.
        """
        register = self._register(id(parent.node), parent.output)
        if self._seen.setdefault(register, around) != around:
            other = self._register(id(parent.node), parent.output, around)
            if other not in self.nodes:
                link = InputNode(self._level, parent)
                self.nodes[other] = link, 0
                self._add_call((register,), (other,))
            return other
        is_waiting = type(source) is Cell and type(source.pending) is Waiting
        if is_waiting and type(parent.node) is RuleNode:
            self.made.discard(register)
            self._waiting.add(register)
        elif id(parent.node) not in self._kernels and register not in self._waiting:
            self.made.add(register)
        return register

    def _add_node(self, key: int, node: Any) -> None:
        """Add a node that is pulled back by itself."""
        parents = [p if p is not None and self._level in p.levels else None for p in node.parents]
        arguments = [None if p is None else self._register(id(p.node), p.output) for p in parents]
        results = tuple([self._register(key, k) for k in range(max(1, len(node.results)))])
        for output, register in enumerate(results):
            self.nodes[register] = node, output
        # What was written waits for the cotangents of its parts: see `backward`.
        reads_written = any(p is not None and type(p.node) is WriteNode for p in parents)
        if type(node) is RuleNode and not (reads_written and node.rule.part is not None):
            self._add_rule(node, arguments, results)
        else:
            self._add_call(arguments, results)

    def _add_call(self, arguments: Sequence[Register | None], results: Sequence[Register]) -> None:
        self.made.update(set(results) - self._waiting)
        own = tuple(results)
        self.equations.append(CallEquation(own[0], tuple(arguments), own, ()))

    def _add_rule(
        self, node: RuleNode, targets: Sequence[Register | None], results: tuple[Register, ...]
    ) -> None:
        arguments = []
        for argument, target in zip(node.arguments, targets, strict=True):
            register = (
                self._register("argument", len(self._registers)) if target is None else target
            )
            arguments.append(register)
            is_there = isinstance(argument, Tracer) and argument.cell.pending is None
            if is_there or target is None:
                self.made.add(register)
        self.made.update(set(results) - self._waiting)
        self.equations.append(
            RuleEquation(
                node.rule,
                node.static,
                tuple(arguments),
                tuple([target is not None for target in targets]),
                tuple([Shaped(tuple(a.shape), a.dtype) for a in node.arguments]),
                results,
                (node.results[0].shape,),
                waits=True,
            )
        )


def _shape_of(source: Any, kind: str) -> Shape:
    """Return the shape of a kernel's argument; numbers have none."""
    if type(source) is Origin:
        node: Any = source.node
        request = node.outputs[source.output]
        shape: Shape = node.shape if request.shape is None else request.shape
        return shape
    return (
        source.shape
        if kind != "uniform" and isinstance(source, (Cell, GuardedArray, Shaped))
        else ()
    )


_NO_LEVELS: frozenset[Level] = frozenset()
