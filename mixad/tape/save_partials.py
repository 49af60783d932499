"""Values that are needed before their cotangents are known, perhaps with their partials.

If the program is costly, evaluating it again in the backward pass costs more than storing the
partials (`mixad.kernel.placement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from mixad.kernel.cost import block_cost
from mixad.kernel.options import KernelOptions, Mode
from mixad.kernel.placement import LEAST_COST, Work, forward_pays
from mixad.kernel.spec import OutputRequest
from mixad.kernel.strategy import cost_of_passes, may_reverse
from mixad.scalar.accesses import accesses_arrays
from mixad.tape.fusion import FusedProgram
from mixad.tape.kernel_call import Shape
from mixad.tape.partials_plan import PartialsPlan, plan_forward
from mixad.tape.pullback_plan import plan_pullback

__all__ = ["asked_for", "cheaper_plan"]


def cheaper_plan(
    fused: FusedProgram,
    wrt: tuple[int, ...],
    shapes: Sequence[Shape],
    shape: Shape,
    requests: Sequence[OutputRequest],
    options: KernelOptions,
) -> PartialsPlan | None:
    """Return how results are made together with their partials, if asked for or faster.

    A reverse transform differentiates with respect to the params `wrt`; `shapes` are those of the
    arguments, `shape` is the broadcast shape.
    """
    if options.placement == "reverse" or accesses_arrays(fused.program, wrt):
        return None  # each read of an array has a partial of its own, and an index
    if options.placement == "forward":
        return plan_forward(fused.program, wrt, options)
    if fused.cost < LEAST_COST or options.strategy == "reverse":  # partials are of dual numbers
        return None
    plan, dual, backward = _planned(fused, wrt, options.mode)
    share = [_share(own, shape) for own in shapes]
    work = Work(
        primal=fused.cost,
        dual=dual,
        backward=backward,
        arguments=sum(share),
        results=sum(1.0 if r.shape is None else _share(r.shape, shape) for r in requests),
        gradients=sum(share[i] for i in wrt),
        stored=sum(len(p.outputs) for p in plan.passes) - len(plan.program.outputs),
        partials=len(plan.read),
    )
    return plan if forward_pays(work) else None


def asked_for(
    plan: PartialsPlan, requests: Sequence[OutputRequest]
) -> tuple[tuple[OutputRequest, ...], dict[int, OutputRequest]]:
    """Return all that a kernel gives that stores partials, `requests` first; and these partials.

    They are by position among the arguments followed by the stored arrays.
    """
    places = [(at, k) for at, p in enumerate(plan.passes) for k in range(len(p.outputs))]
    first = enumerate(places, len(plan.program.params))
    partials = {i: OutputRequest(*place) for i, place in first if i in plan.read}
    return tuple(dict.fromkeys([*requests, *partials.values()])), partials


@lru_cache(maxsize=1024)
def _planned(
    fused: FusedProgram, wrt: tuple[int, ...], mode: Mode
) -> tuple[PartialsPlan, int, int]:
    """Return the dual programs of a fused program, their cost, and a backward pass's without."""
    plan = plan_forward(fused.program, wrt, KernelOptions(chunk=mode.chunk))
    dual = sum(block_cost(p.body) for p in plan.passes)
    floats = tuple(i for i, out in enumerate(fused.program.outputs) if out.type.is_float)
    if mode.strategy == "forward" or not may_reverse(len(wrt)):
        return plan, dual, dual
    pulled = plan_pullback(fused.program, wrt, floats, mode)
    return plan, dual, cost_of_passes(pulled.passes) if pulled.strategy == "reverse" else dual


def _share(shape: Shape, whole: Shape) -> float:
    """Return the elements that an array has, as a share of those of the shape."""
    return math.prod(shape) / max(1, math.prod(whole))
