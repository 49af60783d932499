"""The nodes between the outputs of a transform and its inputs, numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.tape.node import Node
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["Trace"]


class Trace:
    """The nodes that depend on a transform's inputs and that its outputs depend on.

    Only edges that carry `level` are followed. `is_inner` says that a running transform around it
    follows a node or a cotangent.
    """

    __slots__ = ("consumers", "is_inner", "nodes", "numbers")

    def __init__(self, level: Level, outputs: Sequence[tuple[Origin, Any]]) -> None:
        self.nodes: list[Any] = []  # as found from the outputs
        self.numbers: dict[int, int] = {}  # positions by id
        self.consumers: list[int] = []  # how often each node is read
        self.is_inner = any(isinstance(value, Tracer) for _, value in outputs)
        for origin, _ in outputs:
            self._reach(origin.node)
        for node in self.nodes:  # which grows
            for parent in node.parents:
                if parent is not None:
                    if any(other.alive and other is not level for other in parent.levels):
                        self.is_inner = True
                    if level in parent.levels:
                        self._reach(parent.node)

    def place(self, origin: Origin) -> tuple[int, int]:
        """Return the number of a node, and which of its outputs a value is."""
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

    def _reach(self, node: Node) -> None:
        """Count a consumer of a node; number the node if it is new."""
        number = self.numbers.setdefault(id(node), len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
            self.consumers.append(1)
        else:
            self.consumers[number] += 1
