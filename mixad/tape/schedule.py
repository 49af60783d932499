"""The steps of a backward pass, as data: planned once for all traces with the same key.

A step names nodes by their numbers in the trace. Running it reads cotangents and arrays, launches
a kernel or calls a rule, and adds into the cotangents of what it reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from mixad.kernel.options import KernelOptions
from mixad.scalar.loop_results import DecidedResult
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.fusion import value_of
from mixad.tape.gradient_plan import MADE, GradientPlan
from mixad.tape.kernel_call import Shape
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import Cotangents, InputNode, PulledNode, RuleNode, added
from mixad.tape.placing import Placed, Shifted
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Tracer, outside, warn
from mixad.tape.writing import WriteNode, writable

__all__ = ["Cotangent", "KernelStep", "NodeStep", "Pass", "Place", "Step",
           "argument_outside", "takes", "together", "traced_outside"]  # fmt: skip

Place: TypeAlias = tuple[int, int]
"""The number of a node, and which of its outputs or arguments."""


class Cotangent(NamedTuple):
    """A cotangent on its way; ``fresh`` says that nothing else holds its array."""

    value: Any
    fresh: bool

    def is_own(self, shape: Shape) -> bool:
        """Whether it is a value's whole cotangent, in an array that may be changed."""
        return self.fresh and tuple(self.value.shape) == shape


class Parts(NamedTuple):
    """Cotangents of parts of one value."""

    read: list[tuple[RuleNode, Any]]  # what read each part, and its cotangent
    size: int  # how many elements there are


def together(known: Cotangent, value: Any, fresh: bool) -> Cotangent:
    """Return the sum of two cotangents, in the memory of one that nothing else holds.

    New memory for large ones would cost more than the sum: its pages are new to the process.
    """
    own, other = (known.value, value) if known.fresh else (value, known.value)
    if (known.fresh or fresh) and takes(own, other):
        own += other
        return Cotangent(own, True)
    return Cotangent(added(known.value, value), True)


def takes(own: Any, other: Any) -> bool:
    """Whether one array can be added to another in place: NumPy arrays tell."""
    return (
        type(own) is np.ndarray
        and type(other) is np.ndarray
        and own.shape == other.shape
        and own.dtype == other.dtype
        and own.flags.writeable
    )


class Pass:
    """One backward pass under way."""

    __slots__ = ("found", "is_inner", "level", "nodes", "parts")

    def __init__(self, level: Level, trace: Trace) -> None:
        self.level = level
        self.nodes = trace.nodes
        self.is_inner = trace.is_inner
        self.found: dict[int, dict[int, Cotangent]] = {}  # by node and output: the cotangent so far
        self.parts: dict[int, Parts] = {}  # by write: cotangents of parts, which wait for the whole

    def add(self, place: Place, value: Any, fresh: bool) -> None:
        """Add a cotangent to what an output has; a smaller one broadcasts."""
        number, output = place
        found = self.found.setdefault(number, {})
        known = found.get(output)
        found[output] = Cotangent(value, fresh) if known is None else together(known, value, fresh)

    def add_part(self, number: int, reader: RuleNode, g: Any) -> None:
        """Add the cotangent of a part of what was written, once that of the whole is there.

        A loop that writes an array and reads it has many versions of it with a few parts each, and
        one array for the cotangents of all of them.
        """
        parts = self.parts.setdefault(number, Parts([], 0))
        parts.read.append((reader, g))
        parts = self.parts[number] = parts._replace(size=parts.size + math.prod(g.shape))
        self.found.setdefault(number, {})
        if parts.size > math.prod(self.nodes[number].results[0].shape):
            self.found[number][0] = self.whole(number)

    def whole(self, number: int) -> Cotangent:
        """Return the cotangent of what was written, with those of its parts."""
        result = self.nodes[number].results[0]
        known = self.found[number].get(0)
        for reader, g in self.parts.pop(number, Parts([], 0)).read:
            if known is not None and not known.is_own(result.shape):
                known = Cotangent(writable(known.value, result), True)
            if known is None or not reader.pull_into(known.value, g):
                (part,) = reader.pullback([g], self.level)
                known = Cotangent(part if known is None else added(known.value, part), True)
        assert known is not None
        return known

    def argument(self, place: Place) -> Any:
        """Return an argument of a kernel node, as the transforms around the level see it."""
        number, index = place
        node: KernelNode = self.nodes[number]
        return (
            argument_outside(node, index, self.level)
            if self.is_inner
            else value_of(node.source(index))
        )


def argument_outside(node: KernelNode, index: int, level: Level) -> Any:
    """Return an argument of a node as the transforms around a level see it."""
    traced = traced_outside(node, index, level)
    return value_of(node.source(index)) if traced is None else traced


def traced_outside(node: KernelNode, index: int, level: Level) -> Tracer | None:
    """Return an argument of a node as the transforms around a level trace it; None if none does."""
    parent = node.parents[index]
    if parent is not None:
        levels = parent.levels
        if len(levels) > 1 or level not in levels:
            around = frozenset([other for other in levels if other.alive and other is not level])
            if around:
                origin = outside(parent, level)._replace(levels=around)
                return node.tracer_type(node.source(index), origin)
    return None


class Step(Protocol):
    """One step of a backward pass."""

    def run(self, under_way: Pass) -> None:
        """Take the step."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class KernelStep:
    """One kernel: the gradients of what some kernel nodes read from outside."""

    members: tuple[int, ...]  # the nodes, which have been visited afterwards
    cotangents: tuple[Place, ...]  # outputs of members that have one
    plan: GradientPlan
    arguments: tuple[Place | int, ...]  # places of members' arguments, indices of cotangents
    results: tuple[Place, ...]  # pending outputs that the kernel makes too, as its first ones
    waiting: tuple[Place, ...]  # members' arguments, read when what makes them is pulled back
    targets: tuple[tuple[Place, str, int], ...]  # of what a nonzero gradient is; `plan.places`
    placed: tuple[Placed, ...]  # gradients that are parts of one value
    shifted: tuple[Shifted, ...]  # those of them that kernels of their own add up
    read: tuple[tuple[int, Place | int], ...]  # what these take: leaf or cotangent, and where
    shape: Shape  # the broadcast shape
    options: KernelOptions
    decided: tuple[DecidedResult, ...]  # what to warn of

    def run(self, under_way: Pass) -> None:
        """Launch the kernel; or record it, if a transform around follows what it reads."""
        with under_way.level.lock:
            self._run(under_way)

    def _run(self, under_way: Pass) -> None:
        nodes, cotangents = under_way.nodes, under_way.found
        if self.decided:
            warn(self.decided, nodes[self.members[0]].levels)
        given = [cotangents[number][output].value for number, output in self.cotangents]
        for number, index in self.waiting:
            nodes[number].source(index).hold()
        # This list keeps results alive until they have been read: nodes hold them weakly.
        sources = [nodes[at[0]].source(at[1]) for at in self.arguments if not isinstance(at, int)]
        arguments = [
            given[at] if isinstance(at, int) else under_way.argument(at) for at in self.arguments
        ]
        sources.clear()
        arrays = self.plan.arrays(arguments, self.shape, self.options)
        for (number, output), array in zip(self.results, arrays, strict=False):
            nodes[number].cell(output).fill(array, under_way.level.check)
        for place, kind, at in self.targets:
            under_way.add(place, arrays[at] if kind in MADE else given[at], kind == "array")
        for parts in self.placed:
            under_way.add(parts.target, parts.added_up(arrays, given, self.shape), True)
        if self.shifted:
            self._add_shifted(under_way, given)
        for number in self.members:
            nodes[number] = None
            cotangents.pop(number, None)

    def _add_shifted(self, under_way: Pass, given: Sequence[Any]) -> None:
        """Add the cotangents that kernels of their own add up."""
        values = {
            index: given[at] if isinstance(at, int) else under_way.argument(at)
            for index, at in self.read
        }
        for parts in self.shifted:
            whole = parts.added_up(values, self.shape, self.options)
            under_way.add(parts.target, whole, True)


@dataclass(frozen=True, eq=False, slots=True)
class NodeStep:
    """A node that is pulled back by itself."""

    number: int  # the node
    targets: tuple[Place | None, ...]  # its parents; None for those that do not carry the level

    def run(self, under_way: Pass) -> None:
        """Call the node's pullback."""
        node: PulledNode = under_way.nodes[self.number]
        is_input = isinstance(node, InputNode)  # of a transform inside: what it gets goes through
        fresh = under_way.found[self.number][0].fresh if is_input else node.fresh
        gradients = self._gradients(under_way, node)
        under_way.nodes[self.number] = None
        for place, gradient in zip(self.targets, gradients, strict=True):
            if place is not None and gradient is not None:
                under_way.add(place, gradient, fresh)

    def _gradients(self, under_way: Pass, node: PulledNode) -> Cotangents:
        """Return the cotangents of the parents; None for those that have been added already."""
        if isinstance(node, WriteNode):
            whole, result = under_way.whole(self.number), node.results[0]
            del under_way.found[self.number]
            g = whole.value if whole.is_own(result.shape) else writable(whole.value, result)
            return node.pull_owned(g, under_way.level)
        found = under_way.found.pop(self.number)
        cotangents = [found[i].value if i in found else None for i in range(max(found) + 1)]
        if isinstance(node, RuleNode):
            cotangents = [broadcast_to(cotangents[0], node.results[0].shape)]
            if self._added(under_way, node, cotangents[0]):
                return (None,)
        return node.pullback(cotangents, under_way.level)

    def _added(self, under_way: Pass, node: RuleNode, g: Any) -> bool:
        """Add to the cotangent that the argument already has, in place, or let that wait."""
        if node.rule.add_into is None or self.targets[0] is None:
            return False
        number, output = self.targets[0]
        if isinstance(under_way.nodes[number], WriteNode):
            under_way.add_part(number, node, g)
            return True
        known = under_way.found.get(number, {}).get(output)
        if known is None or isinstance(known.value, Tracer) or isinstance(g, Tracer):
            return False
        is_own = known.is_own(tuple(node.arguments[0].shape))
        return is_own and node.pull_into(known.value, g)
