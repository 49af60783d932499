"""Nodes whose gradients one kernel computes: they join on the way back."""

from __future__ import annotations

from collections.abc import Sequence

from mixad.scalar.dual import MAX_PARTIALS
from mixad.tape.fusion import common_options, fits
from mixad.tape.kernel_node import KernelNode
from mixad.tape.tracer import Level, Origin

__all__ = ["Group"]


class Group:
    """Pending nodes over one shape, each read by those that joined before it.

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
        In the order in which they joined.
    options : KernelOptions
        The user's overrides, those of all together.
    """

    __slots__ = ("_active", "_cost", "_has_loops", "level", "members", "options", "shape")

    def __init__(self, level: Level, node: KernelNode, active: Sequence[Origin]) -> None:
        self.shape = node.shape
        self.members = [node]
        self.level = level
        self.options = node.options
        self._cost = node.call.cost
        self._has_loops = node.call.has_loops
        self._active = {(id(p.node), p.output) for p in active}

    def join(self, node: KernelNode, active: Sequence[Origin]) -> bool:
        """Let a node join whose cotangents are there or come from members; tell whether it did.

        More inputs than one dual chunk holds would be paid for with a second evaluation of all,
        unless there is no loop, and so reverse accumulation.

        Parameters
        ----------
        node : KernelNode
            Over the same shape.
        active : sequence of Origin
            Its parents that carry the level.
        """
        if not self.level.fuses:
            return False
        options = common_options(self.options, node.options)
        has_loops = self._has_loops or node.call.has_loops
        if options is None or (has_loops and options.strategy == "reverse"):
            return False
        if not fits(len(self.members), self._cost, node.call):
            return False
        key = id(node)
        inputs = {value for value in self._active if value[0] != key}
        inputs.update([(id(p.node), p.output) for p in active])
        is_by_duals = has_loops or options.mode.strategy == "forward"
        if is_by_duals and len(inputs) > max(MAX_PARTIALS, len(self._active)):
            return False
        self._has_loops = has_loops
        self._active = inputs
        self.options = options
        self._cost += node.call.cost
        self.members.append(node)
        return True
