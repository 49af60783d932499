"""The backward pass: pop a node's cotangents, call its pullback, add into its parents.

Kernel nodes are not pulled back one by one.  A node whose results are read by the members of a
group joins it; the group is pulled back, by one kernel, when something else needs what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from mixad.tape.broadcasting import broadcast_to
from mixad.tape.fusion import is_alike, may_fuse
from mixad.tape.group import Cotangent, Group
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import InputNode, Node, PulledNode, RuleNode
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["Cotangent", "backward"]


def backward(
    level: Level, outputs: list[tuple[Origin, Any]], inputs: Sequence[InputNode]
) -> list[Cotangent | None]:
    """Carry cotangents from the outputs of a transform to its inputs.

    Nodes are visited after all that consume them, without recursion; each is let go as soon as it
    has been visited, with what only it holds.

    Parameters
    ----------
    level : Level
        The transform's; only edges that carry it are followed.
    outputs : list of (Origin, array)
        Where to begin and with which cotangents; emptied, so that nodes can be freed on the way.
    inputs : sequence of InputNode
        Where to end.

    Returns
    -------
    list of (Cotangent or None)
        One for each input, broadcasting to its shape; None where it is zero.
    """
    walk = _Walk(level, outputs)
    walk.run()
    return [walk.found.get(id(node), {}).get(0) for node in inputs]


class _Walk:
    """One backward pass.

    Parameters
    ----------
    level : Level
        The transform's.
    outputs : list of (Origin, array)
        Where it begins and with which cotangents; emptied.

    Attributes
    ----------
    found : dict
        By the id of a node and the index of an output: the cotangent so far.
    """

    def __init__(self, level: Level, outputs: list[tuple[Origin, Any]]) -> None:
        self.found: dict[int, dict[int, Cotangent]] = {}
        self._level = level
        self._waiting = _count_consumers(level, [origin.node for origin, _ in outputs])
        self._kernels: list[KernelNode] = []  # ready, may join a group
        self._others: list[KernelNode | PulledNode] = []  # ready, need what open groups give
        self._groups: dict[Group, None] = {}  # open, in the order of their beginning
        self._readers: dict[int, list[tuple[Group, Origin]]] = {}  # open groups that read a node
        while outputs:
            origin, value = outputs.pop()
            self.add(origin, value, fresh=False)
            self.arrive(origin, None)

    def run(self) -> None:
        """Visit all nodes."""
        while True:
            if self._kernels:
                self._join(self._kernels.pop())
            elif self._others:
                self._pull(self._others.pop())
            elif self._groups:
                self._close(next(reversed(self._groups)))
            else:
                return

    def add(self, origin: Origin, value: Any, *, fresh: bool) -> None:
        """Add a cotangent to what an output has; None is zero, a smaller one broadcasts."""
        if value is None:
            return
        found = self.found.setdefault(id(origin.node), {})
        known = found.get(origin.output)
        if known is not None:
            # A tracer comes first: not every library leaves `array + tracer` to the tracer.
            first, second = known.value, value
            value = second + first if isinstance(second, Tracer) else first + second
            fresh = True
        found[origin.output] = Cotangent(value, fresh)

    def arrive(self, origin: Origin, reader: Group | None) -> None:
        """Note that a consumer of a node has been visited; ``reader``: and joined a group."""
        node = origin.node
        key = id(node)
        if reader is not None:
            self._readers.setdefault(key, []).append((reader, origin))
        self._waiting[key] -= 1
        if not self._waiting[key]:
            if isinstance(node, KernelNode):
                self._kernels.append(node)
            elif not (isinstance(node, InputNode) and node.level is self._level):
                self._others.append(cast("PulledNode", node))

    def _join(self, node: KernelNode) -> None:
        """Let a kernel node join the group that reads it, or one that reads what it reads."""
        readers = self._readers.pop(id(node), None)
        if readers is not None:
            readers = [each for each in readers if each[0].members]
        active = [p for p in node.parents if p is not None and self._level in p.levels]
        group = self._open_group(node, readers, active)
        if readers and any(reader is not group for reader, _ in readers):
            self._readers[id(node)] = readers
            self._others.append(node)  # what it needs is not there yet
            return
        if group is None:
            group = Group(self._level, node, active)
            self._groups[group] = None
        for parent in active:
            self.arrive(parent, group)

    def _open_group(
        self,
        node: KernelNode,
        readers: Sequence[tuple[Group, Origin]] | None,
        active: Sequence[Origin],
    ) -> Group | None:
        """Return the open group that a node has joined; None if it opens one."""
        if readers:
            group = readers[0][0]
            is_inside = all(
                reader is group and may_fuse(origin, group.members[0]) for reader, origin in readers
            )
            return group if is_inside and group.join(node, active) else None
        for parent in active:
            other = self._last_reader(parent)
            if other is not None and is_alike(node, other.members[0]) and other.join(node, active):
                return other
        return None

    def _last_reader(self, parent: Origin) -> Group | None:
        """Return the open group that was the last to read a value; None if there is none."""
        readers = self._readers.get(id(parent.node))
        if readers:
            group, origin = readers[-1]
            if group.members and origin.output == parent.output:
                return group
        return None

    def _pull(self, node: KernelNode | PulledNode) -> None:
        """Visit a node that needs its cotangents now."""
        for group, _ in self._readers.pop(id(node), ()):
            self._close(group)
        if isinstance(node, KernelNode):
            self._join(node)
            return
        gradients = _pulled(node, self.found.pop(id(node), {}), self._level)
        for parent, gradient in zip(node.parents, gradients, strict=True):
            if parent is not None and self._level in parent.levels:
                self.add(parent, gradient, fresh=node.fresh)
                self.arrive(parent, None)

    def _close(self, group: Group) -> None:
        """Pull a group back, if that has not been done."""
        if not group.members:
            return
        del self._groups[group]
        cotangents = {
            id(node): {k: c.value for k, c in self.found.pop(id(node)).items()}
            for node in group.members
            if id(node) in self.found
        }
        for parent, cotangent in group.pull(cotangents):
            self.add(parent, cotangent.value, fresh=cotangent.fresh)
        group.members = []  # now closed; what only they hold is let go


def _pulled(node: PulledNode, found: dict[int, Cotangent], level: Level) -> Sequence[Any]:
    """Return the cotangents of a node's parents; all None if it has none itself."""
    if not found:
        return [None] * len(node.parents)
    cotangents = [found[i].value if i in found else None for i in range(max(found) + 1)]
    if isinstance(node, RuleNode):
        cotangents = [broadcast_to(cotangents[0], node.shape)]
    return node.pullback(cotangents, level)


def _count_consumers(level: Level, roots: list[Node]) -> dict[int, int]:
    """Return how often each node (by id) will be given a cotangent."""
    counts: dict[int, int] = {}
    stack: list[Node] = []
    for node in roots:
        known = counts.get(id(node), 0)
        counts[id(node)] = known + 1
        if not known:
            stack.append(node)
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and level in parent.levels:
                key = id(parent.node)
                if key in counts:
                    counts[key] += 1
                else:
                    counts[key] = 1
                    stack.append(parent.node)
    return counts
