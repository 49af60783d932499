"""Nodes whose gradients one kernel computes: they join on the way back, then are pulled back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from mixad.backends.execute import writes_parts
from mixad.kernel.spec import OutputRequest, Part
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.loop_results import DecidedResult, decided_results
from mixad.tape.cell import Cell
from mixad.tape.fusion import Fusion, common_options, fits, fuse
from mixad.tape.gradient_plan import MADE, Asked, GradientPlan, plan_gradients
from mixad.tape.kernel_call import Shape
from mixad.tape.kernel_node import KernelNode
from mixad.tape.placing import Placed, Shifted, placed_in_one, shifted
from mixad.tape.schedule import Cotangent, KernelStep, Place
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Origin

__all__ = ["Group"]

_Live: TypeAlias = tuple[int, int, OutputRequest]
"""An output that someone holds: its member, its number, what is wanted of it."""


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

    __slots__ = ("_active", "_cost", "_has_loops", "_level", "_options", "members", "shape")

    def __init__(self, level: Level, node: KernelNode, active: Sequence[Origin]) -> None:
        self.shape = node.shape
        self.members = [node]
        self._level = level
        self._options = node.options
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
        options = common_options(self._options, node.options)
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
        self._options = options
        self._cost += node.call.cost
        self.members.append(node)
        return True

    def step(
        self,
        trace: Trace,
        found: Mapping[int, Mapping[int, Cotangent]],
        part_of: Callable[[Origin], tuple[Place, Part] | None],
    ) -> KernelStep | None:
        """Return the step that pulls the group back; None if nothing has a cotangent.

        Parameters
        ----------
        trace : Trace
            With the members.
        found : mapping
            By the number of a node, for each of its outputs that has one its cotangent.
        part_of : callable
            What a value is a part of that gets no other cotangent, and which part; None for others.
        """
        members = self.members[::-1]
        numbers = [trace.numbers[id(node)] for node in members]
        given = [(at, output) for at, n in enumerate(numbers) for output in found.get(n, ())]
        if not given:
            return None
        live = [] if trace.is_inner else _live(members)
        seeds = [(at, members[at].outputs[output].result) for at, output in given]
        fusion, asked = self._fused(members, seeds, live)
        wholes = {} if trace.is_inner else self._wholes(fusion, asked, part_of, found)
        if wholes and not self._writes_parts(fusion, found[numbers[given[0][0]]]):
            wholes = {}
        asked, moved = self._moved(fusion, asked, wholes)
        plan, waiting = _chosen(fusion, asked)
        leaves = [(numbers[member], index) for member, index in fusion.places]

        def read_at(index: int) -> Place | int:
            return leaves[index] if index < len(leaves) else index - len(leaves)

        targets = {i: p for i, p in zip(asked.wrt, plan.places, strict=True) if p[0] != "zero"}
        in_wholes = {leaf for parts in wholes.values() for leaf in parts}
        return KernelStep(
            members=tuple(numbers),
            cotangents=tuple([(numbers[at], output) for at, output in given]),
            plan=plan,
            arguments=tuple(map(read_at, plan.kept)),
            results=tuple([(numbers[at], o) for at, o, _ in live]) if plan.primals else (),
            waiting=tuple([leaves[i] for i in waiting]),
            targets=tuple(
                [
                    (trace.place(cast("Origin", fusion.parents[i])), *place)
                    for i, place in targets.items()
                    if i not in in_wholes
                ]
            ),
            placed=tuple(_placed(wholes, targets)),
            shifted=tuple(moved),
            read=tuple([(i, read_at(i)) for i in sorted({i for s in moved for i in s.read})]),
            shape=self.shape,
            options=self._options,
            decided=tuple(self._decided(members, seeds)),
        )

    def _fused(
        self, members: Sequence[KernelNode], seeds: Sequence[tuple[int, int]], live: Sequence[_Live]
    ) -> tuple[Fusion, Asked]:
        """Return the members' programs as one, and what is asked of it.

        ``seeds`` are members, and results of theirs that have a cotangent.
        """
        held = [(at, request.result) for at, _, request in live]
        results = list(dict.fromkeys([*seeds, *held]))
        fusion = fuse(members, results)
        primals = zip(held, live, strict=True)
        return fusion, self._asked(
            fusion,
            tuple([results.index(seed) for seed in seeds]),
            tuple([(results.index(place), request.shape) for place, (_, _, request) in primals]),
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
        return Asked(wrt, cotangents, primals, shapes, self._options.mode)

    def _wholes(
        self,
        fusion: Fusion,
        asked: Asked,
        part_of: Callable[[Origin], tuple[Place, Part] | None],
        found: Mapping[int, Mapping[int, Cotangent]],
    ) -> dict[Place, dict[int, Part]]:
        """Return the values that leaves are parts of, with the leaves and which parts they are.

        A single part of what has a cotangent already is added to that.
        """
        wholes: dict[Place, dict[int, Part]] = {}
        for leaf, shape in zip(asked.wrt, asked.shapes, strict=True):
            known = part_of(cast("Origin", fusion.parents[leaf])) if shape is None else None
            if known is not None and _is_placeable(known[1], self.shape):
                wholes.setdefault(known[0], {})[leaf] = known[1]
        return {
            place: parts
            for place, parts in wholes.items()
            if len(parts) > 1 or place[1] not in found.get(place[0], ())
        }

    def _writes_parts(self, fusion: Fusion, found: Mapping[int, Cotangent]) -> bool:
        beside = next(iter(found.values())).value
        return writes_parts(fusion.fused.program, beside, self._options.backend)

    def _moved(
        self, fusion: Fusion, asked: Asked, wholes: Mapping[Place, Mapping[int, Part]]
    ) -> tuple[Asked, list[Shifted]]:
        """Return what is wanted of the kernel, and what kernels of their own add up."""

        def is_alike(index: int) -> bool:
            return index < len(fusion.shapes) and math.prod(fusion.shapes[index]) == 1

        moved = []
        for target, parts in wholes.items():
            added = shifted(fusion.fused, asked, parts, target, self.shape, is_alike)
            if added is None:
                asked = placed_in_one(fusion.fused, asked, parts)
            else:
                left = [at for at, leaf in enumerate(asked.wrt) if leaf not in parts]
                asked = asked._replace(
                    wrt=tuple([asked.wrt[at] for at in left]),
                    shapes=tuple([asked.shapes[at] for at in left]),
                )
                moved.append(added)
        return asked, moved

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


def _is_placeable(part: Part, shape: Shape) -> bool:
    """Whether a kernel over a shape writes a part: in loops that go through the whole in order."""
    extents = zip(part.whole, shape, strict=True) if len(part.whole) == len(shape) else [(0, 1)]
    return 0 not in shape and shape != () and all(n > 1 or own == 1 for own, n in extents)


def _placed(
    wholes: Mapping[Place, Mapping[int, Part]], targets: Mapping[int, tuple[str, int]]
) -> Iterator[Placed]:
    """Return which parts a kernel has made, by where each leaf's gradient is."""
    for target, parts in wholes.items():
        made = [(*targets[leaf], part) for leaf, part in sorted(parts.items()) if leaf in targets]
        if made:
            yield Placed(target, tuple(made))


def _live(members: Sequence[KernelNode]) -> list[_Live]:
    """Return the pending outputs that someone holds."""
    return [
        (at, output, request)
        for at, node in enumerate(members)
        for output, _, request in node.live()
    ]


def _chosen(fusion: Fusion, asked: Asked) -> tuple[GradientPlan, Sequence[int]]:
    """Return the kernel of the gradients, and the leaves that the results it leaves out wait for.

    It makes results too unless there are no gradients to make; or unless they read what is pending
    and the gradients do not: what they read may still come for free further back.
    """
    alone = plan_gradients(fusion.fused, asked._replace(primals=()))
    if not (asked.primals and asked.wrt):
        return alone, ()
    plan = plan_gradients(fusion.fused, asked)
    others = [i for i in plan.kept if i < len(fusion.sources) and i not in alone.kept]
    waiting = [i for i in others if _is_pending(fusion.sources[i])]
    is_free = any(kind in MADE for kind, _ in alone.places)
    return (plan, ()) if is_free and not waiting else (alone, waiting)


def _is_pending(source: Any) -> bool:
    return type(source) is Cell and source.pending is not None
