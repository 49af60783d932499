"""The step that pulls a group of pending nodes back: one kernel, planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from mixad.backends.execute import writes_parts
from mixad.kernel.spec import OutputRequest, Part
from mixad.scalar.loop_results import DecidedResult, decided_results
from mixad.tape.cell import Cell
from mixad.tape.fusion import Fusion, fuse
from mixad.tape.gradient_plan import MADE, Asked, GradientPlan, plan_gradients
from mixad.tape.group import Group
from mixad.tape.kernel_call import Shape
from mixad.tape.kernel_node import KernelNode
from mixad.tape.placing import is_placeable, move_shifted, placed_parts
from mixad.tape.schedule import Cotangent, KernelStep, Place
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Origin

__all__ = ["step_of"]

_Found: TypeAlias = Mapping[int, Mapping[int, Cotangent]]
"""Cotangents, by the number of a node and its output; only outputs that have one."""

_PartOf: TypeAlias = Callable[[Origin], tuple[Place, Part] | None]
"""Returns the place and box that a value is a part of, if it gets no other cotangent; else None."""

_Wholes: TypeAlias = Mapping[Place, Mapping[int, Part]]
"""Values that leaves are parts of, with the leaves and which parts they are."""

_Result: TypeAlias = tuple[int, int]
"""A member, and a result of its program."""

_Live: TypeAlias = tuple[int, int, OutputRequest]
"""A live output: its member, its number, what is wanted of it."""


def step_of(group: Group, trace: Trace, found: _Found, part_of: _PartOf) -> KernelStep | None:
    """Return the step that pulls a group back; None if no member has a cotangent.

    Nothing joins it later. `found` has the cotangents so far, by node and output. `part_of` returns
    the place and box that a value is a part of, if it gets no other cotangent; else None.
    """
    members = group.members[::-1]
    numbers = [trace.numbers[id(node)] for node in members]
    given = [(at, output) for at, n in enumerate(numbers) for output in found.get(n, ())]
    if not given:
        return None
    live = [] if trace.is_inner else _live(members)
    seeds = [(at, members[at].outputs[output].result) for at, output in given]
    fusion, asked = _fused(group, members, seeds, live)
    wholes = {} if trace.is_inner else _wholes(group, fusion, asked, part_of, found)
    if wholes and not _writes_parts(group, fusion, found[numbers[given[0][0]]]):
        wholes = {}
    places = [(numbers[at], output) for at, output in given]
    if not wholes:  # whose kernels read all cotangents
        asked = asked._replace(units=tuple([i for i, p in enumerate(places) if p == trace.unit]))
    asked, moved = move_shifted(fusion.fused, fusion.shapes, asked, wholes, group.shape)
    plan, waiting = _plan_and_waiting(fusion, asked)
    leaves = [(numbers[member], index) for member, index in fusion.places]
    targets = {i: p for i, p in zip(asked.wrt, plan.places, strict=True) if p[0] != "zero"}

    def read_at(index: int) -> Place | int:
        return leaves[index] if index < len(leaves) else index - len(leaves)

    return KernelStep(
        members=tuple(numbers),
        cotangents=tuple(places),
        plan=plan,
        arguments=tuple(map(read_at, plan.kept)),
        results=tuple([(numbers[at], o) for at, o, _ in live]) if plan.primals else (),
        waiting=tuple([leaves[i] for i in waiting]),
        targets=tuple(_added_alone(trace, fusion, targets, wholes)),
        placed=tuple(placed_parts(wholes, targets)),
        shifted=tuple(moved),
        read=tuple([(i, read_at(i)) for i in sorted({i for s in moved for i in s.read})]),
        shape=group.shape,
        options=group.options,
        decided=tuple(_decided(group.level, members, seeds)),
    )


def _live(members: Sequence[KernelNode]) -> list[_Live]:
    """Return the pending outputs that someone holds."""
    return [
        (at, output, request)
        for at, node in enumerate(members)
        for output, _, request in node.live()
    ]


def _fused(
    group: Group, members: Sequence[KernelNode], seeds: Sequence[_Result], live: Sequence[_Live]
) -> tuple[Fusion, Asked]:
    """Return the members' programs as one, and what is wanted of it; `seeds` have a cotangent."""
    held = [(at, request.result) for at, _, request in live]
    results = list(dict.fromkeys([*seeds, *held]))
    fusion = fuse(members, results)
    primals = zip(held, live, strict=True)
    return fusion, _asked(
        group,
        fusion,
        tuple([results.index(seed) for seed in seeds]),
        tuple([(results.index(place), request.shape) for place, (_, _, request) in primals]),
    )


def _asked(
    group: Group,
    fusion: Fusion,
    cotangents: tuple[int, ...],
    primals: tuple[tuple[int, Shape | None], ...],
) -> Asked:
    """Ask for the gradient of each leaf that carries the level, in the leaf's shape."""
    parents, level = enumerate(fusion.parents), group.level
    wrt = tuple([i for i, p in parents if p is not None and level in p.levels])
    kinds = [param.kind for param in fusion.fused.program.params]
    shapes = tuple(
        [
            fusion.sources[i].shape
            if kinds[i] == "array"  # of its own, whatever the loop's is
            else None
            if fusion.shapes[i] == group.shape
            else fusion.shapes[i]
            for i in wrt
        ]
    )
    return Asked(wrt, cotangents, primals, shapes, group.options.mode)


def _wholes(group: Group, fusion: Fusion, asked: Asked, part_of: _PartOf, found: _Found) -> _Wholes:
    """Return the values that leaves are parts of, with the leaves and which parts they are.

    If a value has a cotangent already, a single part of it is added to that.
    """
    wholes: dict[Place, dict[int, Part]] = {}
    for leaf, shape in zip(asked.wrt, asked.shapes, strict=True):
        known = part_of(cast("Origin", fusion.parents[leaf])) if shape is None else None
        if known is not None and is_placeable(known[1], group.shape):
            wholes.setdefault(known[0], {})[leaf] = known[1]
    return {
        place: parts
        for place, parts in wholes.items()
        if len(parts) > 1 or place[1] not in found.get(place[0], ())
    }


def _writes_parts(group: Group, fusion: Fusion, found: Mapping[int, Cotangent]) -> bool:
    beside = next(iter(found.values())).value
    return writes_parts(fusion.fused.program, beside, group.options.backend)


def _plan_and_waiting(fusion: Fusion, asked: Asked) -> tuple[GradientPlan, Sequence[int]]:
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


def _added_alone(
    trace: Trace, fusion: Fusion, targets: Mapping[int, tuple[str, int]], wholes: _Wholes
) -> Iterator[tuple[Place, str, int]]:
    """Return the target of each gradient that is no part of a whole, and where it is found."""
    in_wholes = {leaf for parts in wholes.values() for leaf in parts}
    for leaf, place in targets.items():
        if leaf not in in_wholes:
            yield (trace.place(cast("Origin", fusion.parents[leaf])), *place)


def _decided(
    level: Level, members: Sequence[KernelNode], seeds: Sequence[_Result]
) -> Iterator[DecidedResult]:
    """Return the loop results to warn of, in the names of the user's own functions."""
    for at, node in enumerate(members):
        program = node.call.passes[0]
        if program.has_named_loops:
            parents = enumerate(node.parents)
            wrt = tuple(i for i, p in parents if p is not None and level in p.levels)
            results = {result for member, result in seeds if member == at}
            results |= {
                node.outputs[source.output].result
                for reader in members
                for source in reader.arguments
                if type(source) is Origin and source.node is node
            }
            yield from decided_results(program, program.origin, wrt, tuple(sorted(results)))
