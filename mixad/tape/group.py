"""Nodes whose gradients one kernel computes: they join on the way back."""

from __future__ import annotations

from collections.abc import Sequence

from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Load, walk_statements
from mixad.tape.fusion import common_options, fits
from mixad.tape.kernel_node import KernelNode
from mixad.tape.tracer import Level, Origin

__all__ = ["Group"]


_NONE: frozenset[int] = frozenset()


def _reads(node: KernelNode, level: Level) -> set[tuple[int, ...]]:
    """Return what a node reads by index of what carries a level: each read is an input."""
    found: set[tuple[int, ...]] = set()
    program = node.call.passes[0]
    for param, parent in zip(program.params, node.parents, strict=True):
        if param.kind == "array" and parent is not None and level in parent.levels:
            loads = (s for s in walk_statements(program.body) if isinstance(s, Load))
            count = sum(s.array == param.var for s in loads)
            found |= {(id(parent.node), parent.output, read) for read in range(1, count)}
            found.add((id(parent.node), parent.output))
    return found


class Group:
    """Pending nodes over one shape that are pulled back together.

    Parameters
    ----------
    level : Level
        The transform's whose backward pass it is.
    node : KernelNode
        The first of them.
    active : sequence of Origin
        Its parents that carry the level.

    Attributes
    ----------
    shape : tuple of int
        Theirs.
    level : Level
        As given.
    members : list of KernelNode
        Each before those that it reads; empty once they have been pulled back or taken.
    options : KernelOptions
        The user's overrides, those of all together.
    """

    __slots__ = ("_active", "_cost", "_has_loops", "_indexed", "_taker", "level", "members",
                 "options", "shape")  # fmt: skip

    def __init__(self, level: Level, node: KernelNode, active: Sequence[Origin]) -> None:
        self.shape = node.shape
        self.members = [node]
        self.level = level
        self.options = node.options
        self._cost = node.call.cost
        self._has_loops = node.call.has_loops
        self._active: set[tuple[int, ...]] = {(id(p.node), p.output) for p in active}
        self._indexed: frozenset[int] = _NONE
        if "array" in node.call.kinds:
            reads = _reads(node, level)
            self._active |= reads
            self._indexed = frozenset([at for at, *_ in reads])
        self._taker: Group | None = None

    @property
    def whole(self) -> Group:
        """The group that has taken it, itself if none has."""
        group = self
        while group._taker is not None:
            group = group._taker
        if group is not self:
            self._taker = group
        return group

    def take(self, other: Group) -> bool:
        """Let the nodes of another group join if they fit; tell whether they did.

        Their cotangents are there or come from members, and nothing that has yet to be visited
        lies between the two.  More inputs than one dual chunk holds would be paid for with a
        second evaluation of all, unless there is no loop, and so reverse accumulation.

        Parameters
        ----------
        other : Group
            Over the same shape.
        """
        if not self.level.fuses:
            return False
        options = common_options(self.options, other.options)
        has_loops = self._has_loops or other._has_loops
        if options is None or (has_loops and options.strategy == "reverse"):
            return False
        count = len(self.members) + len(other.members)
        if not fits(count, self._cost, other._cost):
            return False
        joining = set(map(id, other.members))
        if self._indexed & joining:
            return False  # what is read by index has its cotangent when the group is pulled back
        active = {value for value in self._active if value[0] not in joining} | other._active
        is_by_duals = has_loops or options.mode.strategy == "forward"
        most = max(MAX_PARTIALS, len(self._active), len(other._active))
        if is_by_duals and len(active) > most:
            return False
        self._has_loops = has_loops
        self._active = active
        self._indexed |= other._indexed
        self.options = options
        self._cost += other._cost
        self.members += other.members
        other.members, other._taker = [], self
        return True
