"""Values that are needed before their cotangents are known: perhaps with their partials.

Where the program is dear, evaluating it again in the backward pass would cost more than storing the
partials does (`mixad.kernel.placement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mixad.backends.execute import kernel_for
from mixad.config import CheckMode
from mixad.kernel.cost import block_cost
from mixad.kernel.options import KernelOptions, Mode
from mixad.kernel.placement import LEAST_COST, Work, forward_pays
from mixad.kernel.spec import OutputRequest
from mixad.kernel.strategy import cost_of_passes, may_reverse
from mixad.tape.forward_plan import ForwardPlan, plan_forward
from mixad.tape.fusion import FusedProgram, Fusion
from mixad.tape.held import Held
from mixad.tape.kernel_call import Shape
from mixad.tape.pullback_plan import plan_pullback

if TYPE_CHECKING:
    from mixad.tape.kernel_node import KernelNode

__all__ = ["cheaper_plan", "make_storing", "storing_plan"]


def storing_plan(
    members: Sequence[KernelNode],
    fusion: Fusion,
    requests: Sequence[OutputRequest],
    options: KernelOptions,
) -> ForwardPlan | None:
    """Return how results are made together with their partials; None if they had better not be.

    Parameters
    ----------
    members : sequence of KernelNode
        Fused nodes.
    fusion : Fusion
        Their fusion, whose results are wanted.
    requests : sequence of OutputRequest
        What is wanted of them.
    options : KernelOptions
        The user's overrides.
    """
    levels = members[-1].levels
    if len(levels) != 1 or not all(level.is_reverse for level in levels):
        return None
    wrt = tuple(i for i, parent in enumerate(fusion.parents) if parent is not None)
    return cheaper_plan(fusion.fused, wrt, fusion.shapes, members[-1].shape, requests, options)


def cheaper_plan(
    fused: FusedProgram,
    wrt: tuple[int, ...],
    shapes: Sequence[Shape],
    shape: Shape,
    requests: Sequence[OutputRequest],
    options: KernelOptions,
) -> ForwardPlan | None:
    """Return how results are made together with their partials, if that takes less time.

    Parameters
    ----------
    fused : FusedProgram
        The program.
    wrt : tuple of int
        Params that a reverse transform differentiates with respect to.
    shapes : sequence of tuple
        For each param, that of its argument.
    shape : tuple of int
        The broadcast shape.
    requests : sequence of OutputRequest
        What is wanted of the results.
    options : KernelOptions
        The user's overrides.
    """
    if fused.cost < LEAST_COST or options.placement != "auto":
        return None
    if options.strategy == "reverse":  # what is stored would be made by dual numbers
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


def make_storing(
    plan: ForwardPlan,
    fusion: Fusion,
    requests: Sequence[OutputRequest],
    values: Sequence[Any],
    options: KernelOptions,
    check: CheckMode,
) -> tuple[tuple[Any, ...], list[Any]]:
    """Run the dual programs.

    Parameters
    ----------
    plan : ForwardPlan
        The programs.
    fusion : Fusion
        What they were made of.
    requests : sequence of OutputRequest
        What is wanted beside the partials.
    values : sequence
        The leaves, as kernels take them.
    options : KernelOptions
        The user's overrides.
    check : "off", "sample" or "full"
        How closely results are watched that are partials too.

    Returns
    -------
    arrays : tuple of array
        What ``requests`` ask for, and after that arrays of partials.
    residuals : list
        Arguments and stored arrays, as `Stored` has them.
    """
    places = [(at, k) for at, p in enumerate(plan.passes) for k in range(len(p.outputs))]
    first, read = len(plan.program.params), plan.read
    kept = {i: OutputRequest(*place) for i, place in enumerate(places, first) if i in read}
    asked = tuple(dict.fromkeys([*requests, *kept.values()]))
    arrays = kernel_for(plan.passes, asked)(values, options.backend)
    seen = frozenset(requests)  # results may be changed by whoever gets them

    def residual(request: OutputRequest) -> Any:
        array = arrays[asked.index(request)]
        return Held(array, check) if request in seen else array

    stored = [residual(kept[i]) if i in kept else None for i, _ in enumerate(places, first)]
    given = [source if i in read else None for i, source in enumerate(fusion.sources)]
    return arrays, [*given, *stored]


@lru_cache(maxsize=1024)
def _planned(fused: FusedProgram, wrt: tuple[int, ...], mode: Mode) -> tuple[ForwardPlan, int, int]:
    """Return the dual programs of a fused program, their cost, and a backward pass's without."""
    plan = plan_forward(fused.program, wrt, KernelOptions(chunk=mode.chunk))
    dual = sum(block_cost(p.body) for p in plan.passes)
    floats = tuple(i for i, out in enumerate(fused.program.outputs) if out.type.is_float)
    if mode.strategy == "forward" or not may_reverse(len(wrt)):
        return plan, dual, dual
    pulled = plan_pullback(fused.program, wrt, floats, mode)
    return plan, dual, cost_of_passes(pulled.passes) if pulled.strategy == "reverse" else dual


def _share(shape: Shape, whole: Shape) -> float:
    """Return how much of the elements of a shape an array has."""
    return math.prod(shape) / max(1, math.prod(whole))
