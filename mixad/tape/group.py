"""Groups of nodes whose gradients one kernel computes: nodes join on the way back."""

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
    """Pending nodes over one shape that are pulled back together in the backward pass of one level.

    `node` is the first; `active` are its parents that carry the level.
    """

    __slots__ = ("_active", "_cost", "_has_loops", "_indexed", "_taker", "level", "members",
                 "options", "shape")  # fmt: skip

    def __init__(self, level: Level, node: KernelNode, active: Sequence[Origin]) -> None:
        self.shape = node.shape
        self.members = [node]  # each before those that it reads; empty once pulled back or taken
        self.level = level
        self.options = node.options  # of all members together
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
        """Let the nodes of another group of the same shape join if they fit; tell whether they did.

        Nothing that is still to be visited lies between. They do not join if dual numbers, for a
        loop or by the options, would carry more inputs than one chunk holds: that needs a second
        pass.
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
