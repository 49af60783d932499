"""The steps of a backward pass, as data: planned once for all traces with the same key.

A step names nodes by their numbers in the trace.  Running it reads cotangents and arrays, launches
a kernel or calls a rule, and adds into the cotangents of what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from mixad.kernel.options import KernelOptions
from mixad.scalar.loop_results import DecidedResult
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.fusion import value_of
from mixad.tape.gradient_plan import GradientPlan
from mixad.tape.kernel_call import Shape
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import PulledNode, RuleNode
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Tracer, outside

__all__ = ["Cotangent", "KernelStep", "NodeStep", "Pass", "Place", "Step",
           "argument_outside"]  # fmt: skip

Place: TypeAlias = tuple[int, int]
"""The number of a node, and which of its outputs or arguments."""


class Cotangent(NamedTuple):
    """A cotangent on its way; ``fresh`` says that nothing else holds its array."""

    value: Any
    fresh: bool


class Pass:
    """One backward pass under way.

    Parameters
    ----------
    level : Level
        The transform's.
    trace : Trace
        What it goes through.

    Attributes
    ----------
    found : dict
        By the number of a node and the index of an output: the cotangent so far.
    """

    __slots__ = ("found", "is_inner", "level", "nodes")

    def __init__(self, level: Level, trace: Trace) -> None:
        self.level = level
        self.nodes = trace.nodes
        self.is_inner = trace.is_inner
        self.found: dict[int, dict[int, Cotangent]] = {}

    def add(self, place: Place, value: Any, fresh: bool) -> None:
        """Add a cotangent to what an output has; a smaller one broadcasts."""
        number, output = place
        found = self.found.setdefault(number, {})
        known = found.get(output)
        if known is not None:
            # A tracer comes first: not every library leaves `array + tracer` to the tracer.
            first, second = known.value, value
            value = second + first if isinstance(second, Tracer) else first + second
            fresh = True
        found[output] = Cotangent(value, fresh)

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
    source, parent = node.source(index), node.parents[index]
    if parent is not None:
        levels = parent.levels
        if len(levels) > 1 or level not in levels:
            around = frozenset([other for other in levels if other.alive and other is not level])
            if around:
                return node.tracer_type(source, outside(parent, level)._replace(levels=around))
    return value_of(source)


class Step(Protocol):
    """One step of a backward pass."""

    def run(self, under_way: Pass) -> None:
        """Take it."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class KernelStep:
    """One kernel: the gradients of what some kernel nodes read from outside.

    Attributes
    ----------
    members : tuple of int
        The nodes, which have been visited afterwards.
    cotangents : tuple of Place
        Outputs of members that have a cotangent.
    plan : GradientPlan
        The kernel.
    arguments : tuple
        What it takes: the place of a member's argument, or the index of a cotangent.
    results : tuple of Place
        Pending outputs that the kernel makes too, as its first ones.
    waiting : tuple of Place
        Arguments of members that will be read when what makes them is pulled back.
    targets : tuple
        For each gradient that is not zero: of what it is, and where it is found (``plan.places``).
    shape : tuple of int
        The broadcast shape.
    options : KernelOptions
        The user's overrides.
    decided : tuple of DecidedResult
        What to warn of.
    """

    members: tuple[int, ...]
    cotangents: tuple[Place, ...]
    plan: GradientPlan
    arguments: tuple[Place | int, ...]
    results: tuple[Place, ...]
    waiting: tuple[Place, ...]
    targets: tuple[tuple[Place, bool, int], ...]
    shape: Shape
    options: KernelOptions
    decided: tuple[DecidedResult, ...]

    def run(self, under_way: Pass) -> None:
        """Launch the kernel; or record it, if a transform around follows what it reads."""
        with under_way.level.lock:
            self._run(under_way)

    def _run(self, under_way: Pass) -> None:
        for found in self.decided:
            found.warn()
        nodes, cotangents = under_way.nodes, under_way.found
        given = [cotangents[number][output].value for number, output in self.cotangents]
        for number, index in self.waiting:
            nodes[number].source(index).hold()
        arguments = [
            given[at] if isinstance(at, int) else under_way.argument(at) for at in self.arguments
        ]
        arrays = self.plan.arrays(arguments, self.shape, self.options)
        for (number, output), array in zip(self.results, arrays, strict=False):
            nodes[number].cell(output).fill(array, under_way.level.check)
        for place, is_array, at in self.targets:
            under_way.add(place, arrays[at] if is_array else given[at], is_array)
        for number in self.members:
            nodes[number] = None
            cotangents.pop(number, None)


@dataclass(frozen=True, eq=False, slots=True)
class NodeStep:
    """A node that is pulled back by itself.

    Attributes
    ----------
    number : int
        The node.
    targets : tuple of (Place or None)
        What its parents are; None for those that do not carry the level.
    """

    number: int
    targets: tuple[Place | None, ...]

    def run(self, under_way: Pass) -> None:
        """Call the node's pullback."""
        node: PulledNode = under_way.nodes[self.number]
        under_way.nodes[self.number] = None
        found = under_way.found.pop(self.number)
        cotangents: Sequence[Any] = [
            found[i].value if i in found else None for i in range(max(found) + 1)
        ]
        if isinstance(node, RuleNode):
            g = broadcast_to(cotangents[0], node.results[0].shape)
            if self._added(under_way, node, g):
                return
            cotangents = [g]
        gradients = node.pullback(cotangents, under_way.level)
        for place, gradient in zip(self.targets, gradients, strict=True):
            if place is not None and gradient is not None:
                under_way.add(place, gradient, node.fresh)

    def _added(self, under_way: Pass, node: RuleNode, g: Any) -> bool:
        """Add to the cotangent that the argument has already, in place, if that can be done."""
        if node.rule.add_into is None:
            return False
        (place,) = self.targets
        known = None if place is None else under_way.found.get(place[0], {}).get(place[1])
        if known is None or not known.fresh or isinstance(known.value, Tracer):
            return False
        is_whole = tuple(known.value.shape) == tuple(node.arguments[0].shape)
        return is_whole and not isinstance(g, Tracer) and node.pull_into(known.value, g)
