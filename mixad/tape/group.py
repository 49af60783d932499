"""Nodes whose gradients one kernel computes: they join on the way back, then are pulled back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from mixad.kernel.spec import OutputRequest
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.loop_results import DecidedResult, decided_results
from mixad.tape.cell import Cell
from mixad.tape.fusion import Fusion, common_options, fits, fuse
from mixad.tape.gradient_plan import MADE, Asked, GradientPlan, plan_gradients
from mixad.tape.kernel_call import Shape
from mixad.tape.kernel_node import KernelNode
from mixad.tape.schedule import Cotangent, KernelStep
from mixad.tape.trace import Trace
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

    def step(self, trace: Trace, found: Mapping[int, Mapping[int, Cotangent]]) -> KernelStep | None:
        """Return the step that pulls the group back; None if nothing has a cotangent.

        Parameters
        ----------
        trace : Trace
            With the members.
        found : mapping
            By the number of a node, for each of its outputs that has one its cotangent.
        """
        members = self.members[::-1]
        numbers = [trace.numbers[id(node)] for node in members]
        given = [(at, output) for at, n in enumerate(numbers) for output in found.get(n, ())]
        if not given:
            return None
        seeds = [(at, members[at].outputs[output].result) for at, output in given]
        live = [] if trace.is_inner else _live(members)
        results = list(dict.fromkeys([*seeds, *[(at, r.result) for at, _, r in live]]))
        fusion = fuse(members, results)
        asked = self._asked(
            fusion,
            tuple([results.index(seed) for seed in seeds]),
            tuple([(results.index((at, r.result)), r.shape) for at, _, r in live]),
        )
        plan, waiting = _chosen(fusion, asked)
        if not plan.primals:
            live = []
        leaves = [(numbers[member], index) for member, index in fusion.places]
        return KernelStep(
            members=tuple(numbers),
            cotangents=tuple([(numbers[at], output) for at, output in given]),
            plan=plan,
            arguments=tuple([leaves[i] if i < len(leaves) else i - len(leaves) for i in plan.kept]),
            results=tuple([(numbers[at], output) for at, output, _ in live]),
            waiting=tuple([leaves[i] for i in waiting]),
            targets=tuple(
                [
                    (trace.place(cast("Origin", fusion.parents[i])), kind, at)
                    for i, (kind, at) in zip(asked.wrt, plan.places, strict=True)
                    if kind != "zero"
                ]
            ),
            shape=self.shape,
            options=self._options,
            decided=tuple(self._decided(members, seeds)),
        )

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

    def _decided(
        self, members: Sequence[KernelNode], seeds: Sequence[tuple[int, int]]
    ) -> Iterator[DecidedResult]:
        """Return the loop results to warn of, in the names of the user's own functions.

        ``seeds`` are the members, and the results of their programs, that have a cotangent.
        """
        for at, node in enumerate(members):
            program = node.call.passes[0]
            if program.has_named_loops:
                parents = enumerate(node.parents)
                wrt = tuple(i for i, p in parents if p is not None and self._level in p.levels)
                results = {result for member, result in seeds if member == at}
                results |= {
                    node.outputs[source.output].result
                    for reader in members
                    for source in reader.arguments
                    if type(source) is Origin and source.node is node
                }
                yield from decided_results(program, program.origin, wrt, tuple(sorted(results)))


def _live(members: Sequence[KernelNode]) -> list[tuple[int, int, OutputRequest]]:
    """Return the pending outputs that someone holds: member, output, what is wanted of it."""
    return [
        (at, output, request)
        for at, node in enumerate(members)
        for output, _, request in node.live()
    ]


def _chosen(fusion: Fusion, asked: Asked) -> tuple[GradientPlan, Sequence[int]]:
    """Return the kernel of the gradients, and the leaves that the results it leaves out wait for.

    It makes results too unless there are no gradients to make; or unless they read what is pending
    and the gradients do not: then they may still come for free further back.
    """
    plan = plan_gradients(fusion.fused, asked)
    if not asked.primals:
        return plan, ()
    alone = plan_gradients(fusion.fused, asked._replace(primals=()))
    if all(kind not in MADE for kind, _ in plan.places):
        return alone, ()
    others = [i for i in plan.kept if i < len(fusion.sources) and i not in alone.kept]
    waiting = [i for i in others if _is_pending(fusion.sources[i])]
    return (alone, waiting) if waiting else (plan, ())


def _is_pending(source: Any) -> bool:
    return type(source) is Cell and source.pending is not None
