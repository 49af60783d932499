"""How the gradients of a fused program are computed: by which kernel, from what, and into what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from mixad.kernel.options import KernelOptions, Mode
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.ir import Const, Program
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.fusion import FusedProgram
from mixad.tape.kernel_call import KernelCall, Shape
from mixad.tape.kernel_node import record
from mixad.tape.partials_plan import PartialsPlan, plan_contraction
from mixad.tape.pullback_plan import PullbackPlan, plan_pullback
from mixad.tape.tracer import Tracer

__all__ = [
    "IN_MEMORY",
    "GradientPlan",
    "GradientRequest",
    "contraction_of",
    "in_shape",
    "plan_gradients",
    "plan_of_pullback",
    "pulled",
]

GradientPlace: TypeAlias = tuple[Literal["array", "shared", "cotangent", "zero"], int]
"""Where a gradient is: an ``"array"`` that the kernel makes, one ``"shared"`` by several gradients,
one of the ``"cotangent"``s itself, or nowhere, since it is ``"zero"``."""

IN_MEMORY = ("array", "shared")
"""What the kernel makes."""


@dataclass(frozen=True, eq=False)
class GradientPlan:
    """The kernel of some gradients."""

    call: KernelCall | None  # makes primal results, then gradients; None if there are none
    kept: tuple[int, ...]  # its params: leaves and, after those, cotangents
    places: tuple[GradientPlace, ...]  # for each leaf in `wrt`, where its gradient is
    primals: int  # how many of the arrays are primal results

    def arrays(self, kept: list[Any], shape: Shape, options: KernelOptions) -> Sequence[Any]:
        """Run the call on `kept`, or record it if one of these is traced; return the outputs."""
        if self.call is None:
            return ()
        call = self.call
        kept = in_shape(call, kept, shape)
        for value in kept:
            if isinstance(value, Tracer):
                nodes = record(call, kept, options)
                return [node.traced(k) for node in nodes for k in range(len(node.outputs))]
        return call.arrays(kept, options)


def in_shape(call: KernelCall, kept: list[Any], shape: Shape) -> list[Any]:
    """Return the arguments of a call such that they broadcast to a shape.

    Those that a pullback does not read may have been all that gave it this shape: then a lane is
    broadcast before the call. Indexed arrays do not count, whatever their shape is.
    """
    for kind, value in zip(call.kinds, kept, strict=True):
        if kind == "lane" and value.shape == shape:
            return kept
    lanes = [tuple(v.shape) if k == "lane" else () for k, v in zip(call.kinds, kept, strict=True)]
    if call.shape(tuple(lanes)) == shape:
        return kept
    at = call.kinds.index("lane")
    return [*kept[:at], broadcast_to(kept[at], shape), *kept[at + 1 :]]


class GradientRequest(NamedTuple):
    """What is wanted of a fused program.

    `primals` are results that are wanted too, with the shapes that they are summed to. For each of
    `wrt`, `shapes` has the shape that its gradient is summed to or the part of a larger array that
    it becomes; None if nothing is summed.
    """

    wrt: tuple[int, ...]  # leaves whose gradients are wanted
    cotangents: tuple[int, ...]  # results that have a cotangent
    primals: tuple[tuple[int, Shape | None], ...]
    shapes: tuple[Shape | SubBox | None, ...]
    mode: Mode
    units: tuple[int, ...] = ()  # positions in `cotangents` of those that are known to be 1


@lru_cache(maxsize=1024)
def plan_gradients(fused: FusedProgram, asked: GradientRequest) -> GradientPlan:
    """Return how gradients, and some results on the way, are computed.

    Equal arguments give the same object.
    """
    return plan_of_pullback(fused.program, pulled(fused, asked), asked.primals, asked.shapes)


def pulled(fused: FusedProgram, asked: GradientRequest) -> PullbackPlan:
    """Return the programs of `plan_gradients`, whatever the shapes are."""
    with_primals = bool(asked.primals)
    given = (fused, asked.wrt, asked.cotangents, asked.mode)
    if asked.units and fused.program.body.statements:  # others hand the cotangent on
        plan = _pullback(*given, with_primals=with_primals, units=asked.units)
        if _varies(plan):
            return plan
    return _pullback(*given, with_primals=with_primals, units=())


def _varies(plan: PullbackPlan) -> bool:
    """Whether gradients are computed from lanes: a kernel has at least one.

    A gradient that is a number everywhere is a multiple of its cotangent and may need no kernel.
    """
    made = [plan.passes[at].outputs[result] for at, result in filter(None, plan.gradients)]
    lanes = [param for found in plan.passes for param in found.params if param.kind == "lane"]
    return bool(lanes) and not any(isinstance(atom, Const) for atom in made)


@lru_cache(maxsize=1024)
def _pullback(
    fused: FusedProgram,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    mode: Mode,
    *,
    with_primals: bool,
    units: tuple[int, ...],
) -> PullbackPlan:
    """Differentiate a fused program once, whatever the shapes are."""
    return plan_pullback(
        fused.program, wrt, cotangents, mode, with_primals=with_primals, units=units
    )


def plan_of_pullback(
    program: Program,
    pullback: PullbackPlan,
    primals: Sequence[tuple[int, Shape | None]],
    shapes: Sequence[Shape | SubBox | None],
    *,
    copies: bool = False,
) -> GradientPlan:
    """Return the kernel of a pullback: see `plan_gradients`.

    `copies` says that a gradient that is an unchanged cotangent gets an array of its own.
    """
    outputs = [OutputRequest(*pullback.primals[result], shape) for result, shape in primals]
    places: list[GradientPlace] = []
    made: dict[object, int] = {}  # by what is computed, for which shape: the output that it is
    for at, shape in zip(pullback.gradients, shapes, strict=True):
        is_free = at is not None and shape is None and not copies
        same = _cotangent(program, pullback, *at) if at is not None and is_free else None
        if at is None:
            places.append(("zero", 0))
        elif same is not None:
            places.append(("cotangent", same))
        else:
            value = (at[0], pullback.passes[at[0]].outputs[at[1]], shape)
            new = len(outputs)
            is_own = copies or isinstance(shape, SubBox)  # parts are added to the whole
            index = new if is_own else made.setdefault(value, new)
            places.append(("array", index))
            if index == new:
                outputs.append(_request(at, shape))
    call = KernelCall(pullback.passes, tuple(outputs)) if outputs else None
    return GradientPlan(call, pullback.kept, _shared(places), len(primals))


def _request(at: tuple[int, int], shape: Shape | SubBox | None) -> OutputRequest:
    if isinstance(shape, SubBox):
        return OutputRequest(*at, part=shape)
    return OutputRequest(*at, shape)


def _shared(places: Sequence[GradientPlace]) -> tuple[GradientPlace, ...]:
    """Mark the arrays that are several gradients."""
    uses = Counter(at for kind, at in places if kind == "array")
    return tuple(
        ("shared", at) if kind == "array" and uses[at] > 1 else (kind, at) for kind, at in places
    )


def _cotangent(program: Program, pullback: PullbackPlan, at: int, result: int) -> int | None:
    """Return which cotangent a gradient is, unchanged; None if it is computed."""
    chunk = pullback.passes[at]
    found: Any = chunk.outputs[result]
    for param, kept in zip(chunk.params, pullback.kept, strict=True):
        if param.var == found and kept >= len(program.params):
            return kept - len(program.params)
    return None


def contraction_of(
    plan: PartialsPlan,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    shapes: Sequence[Shape],
    shape: Shape,
) -> GradientPlan:
    """Return the kernel that multiplies partials by the cotangents of some outputs.

    `wrt` are arguments whose gradients are wanted, `shapes` those of all arguments, `shape` the
    broadcast shape.
    """
    summed = tuple([None if shapes[i] == shape else shapes[i] for i in wrt])
    return _contraction(plan, wrt, cotangents, summed)


@lru_cache(maxsize=1024)
def _contraction(
    plan: PartialsPlan,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    shapes: tuple[Shape | None, ...],
) -> GradientPlan:
    pullback = plan_contraction(plan, wrt, cotangents)
    return plan_of_pullback(plan.program, pullback, (), shapes, copies=True)
