"""Nodes whose gradients one kernel computes: they join on the way back, then are pulled back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from mixad.kernel.spec import OutputRequest
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.tape.cell import Cell
from mixad.tape.fusion import Fusion, common_options, fits, fuse, value_of
from mixad.tape.gradient_plan import Asked, GradientPlan, plan_gradients
from mixad.tape.kernel_call import Shape
from mixad.tape.kernel_node import KernelNode
from mixad.tape.tracer import Level, Origin, Tracer, outside

__all__ = ["Cotangent", "Group"]


class Cotangent(NamedTuple):
    """A cotangent on its way; ``fresh`` says that nothing else holds its array."""

    value: Any
    fresh: bool


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
    members : list of KernelNode
        In the order in which they joined.
    """

    __slots__ = ("_active", "_cost", "_level", "_options", "members", "shape")

    def __init__(self, level: Level, node: KernelNode, active: Sequence[Origin]) -> None:
        self.shape = node.shape
        self.members = [node]
        self._level = level
        self._options = node.options
        self._cost = node.call.cost
        self._active = {(id(p.node), p.output) for p in active}

    def join(self, node: KernelNode, active: Sequence[Origin]) -> bool:
        """Let a node join whose cotangents are there or come from members; tell whether it did.

        More inputs than one dual chunk holds would be paid for with a second evaluation of all.

        Parameters
        ----------
        node : KernelNode
            Over the same shape.
        active : sequence of Origin
            Its parents that carry the level.
        """
        options = common_options(self._options, node.options)
        if options is None or not fits(len(self.members), self._cost, node.call):
            return False
        key = id(node)
        inputs = {value for value in self._active if value[0] != key}
        inputs.update([(id(p.node), p.output) for p in active])
        if len(inputs) > max(MAX_PARTIALS, len(self._active)):
            return False
        self._active = inputs
        self._options = options
        self._cost += node.call.cost
        self.members.append(node)
        return True

    def pull(self, cotangents: Mapping[int, Mapping[int, Any]]) -> list[tuple[Origin, Cotangent]]:
        """Return the gradients of what the group reads from outside.

        Parameters
        ----------
        cotangents : mapping
            By the id of a member, for each of its outputs that has one its cotangent.

        Returns
        -------
        list of (Origin, Cotangent)
            Those that are not zero, with where the values came from.
        """
        members = self.members[::-1]
        given: list[Any] = []
        places: list[tuple[int, int]] = []
        for at, node in enumerate(members):
            found = cotangents.get(id(node))
            if found is not None:
                places += [(at, node.outputs[k].result) for k in found]
                given += found.values()
        if not given:
            return []
        if self._is_inner(members) or any(isinstance(value, Tracer) for value in given):
            return self._pulled(members, places, given, [])
        with self._level.lock:
            live = [
                (at, cell, request)
                for at, node in enumerate(members)
                for cell, request in node.live()
            ]
            return self._pulled(members, places, given, live)

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
        places: Sequence[tuple[int, int]],
        given: Sequence[Any],
        live: Sequence[tuple[int, Cell, OutputRequest]],
    ) -> list[tuple[Origin, Cotangent]]:
        """Make the gradients, and pending results where one kernel can make both.

        Parameters
        ----------
        members : sequence of KernelNode
            Each after those that it reads.
        places : sequence of (int, int)
            For each cotangent, the member and the result of its program that it belongs to.
        given : sequence of array or Tracer
            The cotangents.
        live : sequence of (int, Cell, OutputRequest)
            Pending results that someone holds: the member, the cell, what is wanted.
        """
        results = list(dict.fromkeys([*places, *[(at, r.result) for at, _, r in live]]))
        fusion = fuse(members, results)
        asked = self._asked(
            fusion,
            tuple([results.index(place) for place in places]),
            tuple([(results.index((at, r.result)), r.shape) for at, _, r in live]),
        )
        self._warn(members, places)
        plan = plan_gradients(fusion.fused, asked)
        if live and not self._shares(fusion, plan, asked):
            live, plan = [], plan_gradients(fusion.fused, asked._replace(primals=()))
        kept = [
            self._outer(fusion.sources[i], fusion.parents[i])
            if i < len(fusion.sources)
            else given[i - len(fusion.sources)]
            for i in plan.kept
        ]
        arrays = plan.arrays(kept, self.shape, self._options)
        for (_, cell, _), array in zip(live, arrays, strict=False):
            cell.fill(array, self._level.check)
        return [
            (
                cast("Origin", fusion.parents[i]),
                Cotangent(arrays[at] if kind == "array" else given[at], kind == "array"),
            )
            for i, (kind, at) in zip(asked.wrt, plan.places, strict=True)
            if kind != "zero"
        ]

    def _asked(
        self,
        fusion: Fusion,
        cotangents: tuple[int, ...],
        primals: tuple[tuple[int, Shape | None], ...],
    ) -> Asked:
        """Ask for the gradient of each leaf that carries the level, in the leaf's shape."""
        parents, level, shape = enumerate(fusion.parents), self._level, self.shape
        wrt = tuple([i for i, p in parents if p is not None and level in p.levels])
        own = [fusion.shapes[i] for i in wrt]
        shapes = tuple([None if s == shape else s for s in own])
        return Asked(wrt, cotangents, primals, shapes, self._options.chunk)

    def _warn(self, members: Sequence[KernelNode], places: Sequence[tuple[int, int]]) -> None:
        """Warn of loop results, in the names of the user's own functions."""
        for at, node in enumerate(members):
            program = node.call.passes[0]
            if program.has_named_loops:
                parents = enumerate(node.parents)
                wrt = tuple(i for i, p in parents if p is not None and self._level in p.levels)
                results = {result for member, result in places if member == at}
                results |= {
                    node.outputs[source.output].result
                    for reader in members
                    for source in reader.arguments
                    if type(source) is Origin and source.node is node
                }
                warn_of_decided_results(program, wrt, tuple(sorted(results)))

    def _shares(self, fusion: Fusion, plan: GradientPlan, asked: Asked) -> bool:
        """Whether the kernel of the gradients should make primal results too.

        Not where there is no such kernel; and where the primal alone reads what is pending, that
        may still come for free further back.
        """
        if all(kind != "array" for kind, _ in plan.places):
            return False
        alone = plan_gradients(fusion.fused, asked._replace(primals=()))
        waits = [fusion.sources[i] for i in plan.kept if i not in alone.kept]
        pending = [cell for cell in waits if type(cell) is Cell and cell.pending is not None]
        for cell in pending:
            cell.hold()  # the results that wait for it are held: it will be read
        return not pending

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
