"""What lies between the outputs of a transform and its inputs: the nodes, numbered, and their key.

Two traces with the same key are pulled back by the same steps (`mixad.tape.schedule`).  So the key
holds everything that planning looks at: calls, shapes, who reads whom, what has been made, what
somebody still holds.  It holds no array and no number that was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.backends.arrays import device_key
from mixad.kernel.options import DEFAULT_OPTIONS
from mixad.tape.cell import Cell
from mixad.tape.forward_node import ForwardNode
from mixad.tape.held import Held
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import InputNode, Node, PulledNode
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["Trace"]


class Trace:
    """The nodes that depend on a transform's inputs and that its outputs depend on.

    Parameters
    ----------
    level : Level
        The transform's; only edges that carry it are followed.
    outputs : sequence of (Origin, array)
        Where the backward pass begins and with which cotangents.
    of_number : bool
        Whether the output is one number, with the cotangent 1.

    Attributes
    ----------
    nodes : list of (Node or None)
        In the order in which they are found from the outputs, those with stored partials as such;
        None once a node has been visited, so that what only it holds is let go.
    numbers : dict
        The position of a node by its id.
    consumers : list of int
        How often each node will be given a cotangent.
    is_inner : bool
        Whether a running transform around this one follows a node or a cotangent.
    unit : tuple of int or None
        The place whose cotangent is 1 in every trace with the same key: where it begins.  What
        rules of the user's hand on may be another number next time.
    key : tuple or None
        What the steps of the backward pass depend on; None where other transforms are involved:
        then they are planned every time.
    """

    __slots__ = ("consumers", "is_inner", "key", "nodes", "numbers", "unit")

    def __init__(
        self, level: Level, outputs: Sequence[tuple[Origin, Any]], *, of_number: bool = False
    ) -> None:
        self.nodes: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.consumers: list[int] = []
        self.is_inner = any(isinstance(value, Tracer) for _, value in outputs)
        key: list[object] = [of_number]
        is_alone = not self.is_inner
        held: dict[object, int] = {}
        alone = None  # the set of this level alone: one object for most values
        for origin, _ in outputs:
            key += (self._reach(origin.node), origin.output)
        at = 0
        while at < len(self.nodes):
            node = self.nodes[at]
            at += 1
            if type(node) is KernelNode:
                _describe_kernel(node, key, held)
            else:
                key += (_structure(node, level), len(node.parents))
            for parent in node.parents:
                if parent is None:
                    key.append(None)
                    continue
                levels = parent.levels
                if levels is not alone:
                    if len(levels) == 1 and level in levels:
                        alone = levels
                    else:
                        is_alone = False
                        if any(other.alive and other is not level for other in levels):
                            self.is_inner = True
                        if level not in levels:
                            continue
                key += (self._reach(parent.node), parent.output)
        self.key = tuple(key) if is_alone else None
        self.unit = self.place(outputs[0][0]) if of_number and outputs else None

    def has(self, node: Node) -> bool:
        """Whether a node is one of these, and has not been visited."""
        number = self.numbers.get(id(node))
        return number is not None and self.nodes[number] is node

    def place(self, origin: Origin) -> tuple[int, int]:
        """Return the number of a node and which of its outputs a value is."""
        return self.numbers[id(origin.node)], origin.output

    def inputs_first(self, level: Level, outputs: Sequence[Origin]) -> list[int]:
        """Return the numbers of all nodes, each after those that it reads."""
        order: list[int] = []
        waiting = self.consumers.copy()
        arrived = [self.place(origin)[0] for origin in outputs]
        while arrived:
            number = arrived.pop()
            waiting[number] -= 1
            if not waiting[number]:
                order.append(number)
                parents = [p for p in self.nodes[number].parents if p and level in p.levels]
                arrived += [self.place(parent)[0] for parent in parents]
        return order[::-1]

    def _reach(self, node: Node) -> int:
        """Count a consumer of a node; return the node's number."""
        number = self.numbers.setdefault(id(node), len(self.nodes))
        if number == len(self.nodes):
            if isinstance(node, KernelNode) and node.stored is not None:
                node = ForwardNode.of(node)
            self.nodes.append(node)
            self.consumers.append(1)
        else:
            self.consumers[number] += 1
        return number


def _describe_kernel(node: KernelNode, key: list[object], held: dict[object, int]) -> None:
    """Add what a kernel node is; ``held`` numbers the arrays that are read.

    Shapes of lanes are in the key: kernels take no more lanes than give them theirs, and parts of
    one array are computed where these are alike.
    """
    options, device = node.options, device_key(node.device)
    key += (node.call, node.shape, node.library, device, node.states(), node.uses)
    key.append(None if options is DEFAULT_OPTIONS else options)
    for source, parent, kind in zip(node.arguments, node.parents, node.call.kinds, strict=True):
        if type(source) is Cell:
            key += (source.shape, source.pending is None)
        elif type(source) is Held:
            key.append(held.setdefault(source.identity, len(held)))
            if kind == "lane" or parent is not None:
                key.append(source.shape)  # of an indexed array, where its gradient is wanted
        else:
            key.append(type(source))


def _structure(node: InputNode | PulledNode, level: Level) -> object:
    """Return what tells which cotangents a node gives that is pulled back by itself."""
    return node.level is level if isinstance(node, InputNode) else node.structure
