"""Nodes whose gradients one kernel computes: they join on the way back, then are pulled back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.dual import MAX_PARTIALS
from mixad.tape.cell import Cell
from mixad.tape.fusion import MOST_NODES, Fusion, common_options, fuse, value_of
from mixad.tape.gradient_plan import GradientPlan, plan_gradients
from mixad.tape.kernel_node import KernelNode
from mixad.tape.tracer import Level, Origin, Tracer, outside

__all__ = ["Gradient", "Group"]


class Gradient(NamedTuple):
    """A cotangent on its way to where a value came from; ``fresh``: nothing else holds it."""

    parent: Origin
    value: Any
    fresh: bool


class _Live(NamedTuple):
    """A pending result that someone holds: its member, its cell, what is wanted of it."""

    member: int
    cell: Cell
    request: OutputRequest


class Group:
    """Pending nodes over one shape, each read by those that joined before it.

    Parameters
    ----------
    level : Level
        The transform's whose backward pass it is.
    node : KernelNode
        The first of them.

    Attributes
    ----------
    shape : tuple of int
        Theirs.
    members : list of KernelNode
        In the order in which they joined.
    """

    __slots__ = ("_active", "_level", "_options", "members", "shape")

    def __init__(self, level: Level, node: KernelNode) -> None:
        self.shape = node.shape
        self.members = [node]
        self._level = level
        self._options = node.options
        self._active = self._active_parents(node)

    def admits(self, node: KernelNode) -> bool:
        """Whether a node may join; its results are not read by others that are still to come.

        More inputs than one dual chunk holds would be paid for with a second evaluation of all.
        """
        if len(self.members) >= MOST_NODES or common_options(self._options, node.options) is None:
            return False
        return len(self._with(node)) <= max(MAX_PARTIALS, len(self._active))

    def reads(self, node: KernelNode) -> bool:
        """Whether a node reads a value that the group reads as well."""
        return not self._active.isdisjoint(self._active_parents(node))

    def add(self, node: KernelNode) -> None:
        """Let a node join that is admitted."""
        self._active = self._with(node)
        self._options = common_options(self._options, node.options) or self._options
        self.members.append(node)

    def _with(self, node: KernelNode) -> set[tuple[int, int]]:
        rest = {value for value in self._active if value[0] != id(node)}
        return rest | self._active_parents(node)

    def _active_parents(self, node: KernelNode) -> set[tuple[int, int]]:
        level = self._level
        return {(id(p.node), p.output) for p in node.parents if p and level in p.levels}

    def pull(self, cotangents: Mapping[int, Mapping[int, Any]]) -> list[Gradient]:
        """Return the gradients of what the group reads from outside.

        Parameters
        ----------
        cotangents : mapping
            By the id of a member, for each of its outputs that has one its cotangent.

        Returns
        -------
        list of Gradient
            Those that are not zero.
        """
        members = self.members[::-1]
        given = [
            (at, node.outputs[output].result, value)
            for at, node in enumerate(members)
            for output, value in cotangents.get(id(node), _NONE).items()
        ]
        if not given:
            return []
        if self._is_inner(members) or any(isinstance(value, Tracer) for _, _, value in given):
            return self._pulled(members, given, [])
        with self._level.lock:
            live = [_Live(at, *each) for at, node in enumerate(members) for each in node.live()]
            return self._pulled(members, given, live)

    def _is_inner(self, members: Sequence[KernelNode]) -> bool:
        """Whether a running transform around the level follows a member; it records all results."""
        known = None
        for node in members:
            if node.levels is not known:
                known = node.levels
                if len(known) > 1 and any(o.alive and o is not self._level for o in known):
                    return True
        return False

    def _pulled(
        self,
        members: Sequence[KernelNode],
        given: Sequence[tuple[int, int, Any]],
        live: Sequence[_Live],
    ) -> list[Gradient]:
        """Make the gradients, and pending results where one kernel can make both."""
        results = list(dict.fromkeys([(at, result) for at, result, _ in given]))
        if live:
            results = list(dict.fromkeys([*results, *((e.member, e.request.result) for e in live)]))
        fusion = fuse(members, results)
        cotangents = tuple([results.index((at, result)) for at, result, _ in given])
        primals = tuple(
            [
                OutputRequest(0, results.index((e.member, e.request.result)), e.request.shape)
                for e in live
            ]
        )
        wrt = tuple([i for i, p in enumerate(fusion.parents) if p and self._level in p.levels])
        plan = self._plan(fusion, wrt, cotangents, primals)
        if primals and not self._shares(fusion, plan, wrt, cotangents):
            live, plan = [], self._plan(fusion, wrt, cotangents, ())
        count = len(fusion.sources)
        kept = [
            self._outer(fusion.sources[i], fusion.parents[i]) if i < count else given[i - count][2]
            for i in plan.kept
        ]
        arrays = plan.arrays(kept, self.shape, self._options)
        for made, array in zip(live, arrays, strict=False):
            made.cell.fill(array)
        return [
            Gradient(
                fusion.parents[i],  # type: ignore[arg-type]  # is active
                arrays[at] if kind == "array" else given[at][2],
                kind == "array",
            )
            for i, (kind, at) in zip(wrt, plan.places, strict=True)
            if kind != "zero"
        ]

    def _plan(
        self,
        fusion: Fusion,
        wrt: tuple[int, ...],
        cotangents: tuple[int, ...],
        primals: tuple[OutputRequest, ...],
    ) -> GradientPlan:
        own = map(fusion.shapes.__getitem__, wrt)
        shapes = tuple([None if shape == self.shape else shape for shape in own])
        return plan_gradients(fusion.fused, wrt, cotangents, primals, shapes, self._options)

    def _shares(
        self, fusion: Fusion, plan: GradientPlan, wrt: tuple[int, ...], cotangents: tuple[int, ...]
    ) -> bool:
        """Whether the kernel of the gradients should make primal results too.

        Not where there is no such kernel; and where the primal alone reads what is pending, that
        may still come for free further back.
        """
        if all(kind != "array" for kind, _ in plan.places):
            return False
        waits = [i for i, s in enumerate(fusion.sources) if type(s) is Cell and s.pending]
        if not waits:
            return True
        alone = self._plan(fusion, wrt, cotangents, ())
        return all(i in alone.kept or i not in plan.kept for i in waits)

    def _outer(self, source: Any, parent: Origin | None) -> Any:
        """Return a leaf as the transforms around the level see it."""
        if parent is not None:
            levels = parent.levels
            if len(levels) > 1 or self._level not in levels:
                around = frozenset([o for o in levels if o.alive and o is not self._level])
                if around:
                    origin = outside(parent, self._level)._replace(levels=around)
                    return self.members[0].tracer_type(source, origin)
        return value_of(source)


_NONE: Mapping[int, Any] = {}
