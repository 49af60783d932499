"""The kernel node whose partials are computed with the primal and multiplied by cotangents later.

One call makes outputs and partials; the pullback is a second, cheap kernel that reads partials
and cotangents only.  It pays where the program is dear and nothing is broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.kernel.options import KernelOptions
from mixad.scalar.ir import Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.tape.broadcast_node import KernelNode, apply_plan
from mixad.tape.cell import Cell, PendingCall
from mixad.tape.forward_plan import ForwardPlan, plan_contraction, plan_forward
from mixad.tape.node import Cotangents
from mixad.tape.recording import KernelCall, Recording, Shape
from mixad.tape.tracer import Level, Origin, Tracer, stripped

__all__ = ["ForwardNode", "record_forward"]


class ForwardNode:
    """A broadcast whose partials are stored, or will be when its call runs.

    Parameters
    ----------
    plan : ForwardPlan
        Where the partials are.
    residuals : sequence
        The arguments, then the stored arrays: tracers, cells, held arrays and numbers; None for
        those that are no partials.
    parents : tuple of (Origin or None)
        Where the arguments came from.
    shape : tuple of int
        The broadcast shape.
    shapes : tuple of tuple
        Shapes of the arguments.
    options : KernelOptions
        The user's overrides.
    """

    __slots__ = ("fresh", "options", "parents", "plan", "residuals", "shape", "shapes")

    def __init__(
        self,
        plan: ForwardPlan,
        residuals: Sequence[Any],
        parents: tuple[Origin | None, ...],
        shape: Shape,
        shapes: tuple[Shape, ...],
        options: KernelOptions,
    ) -> None:
        self.plan = plan
        self.residuals = residuals
        self.parents = parents
        self.shape = shape
        self.shapes = shapes
        self.options = options
        self.fresh = True

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Run, or record, the contraction of the partials with the cotangents."""
        wrt = tuple(i for i, p in enumerate(self.parents) if p is not None and level in p.levels)
        given = {m: g for m, g in enumerate(cotangents) if g is not None}
        if self.plan.program.has_named_loops:
            warn_of_decided_results(self.plan.program, wrt, tuple(given))
        plan = plan_contraction(self.plan, wrt, tuple(given))
        values = [*self.residuals, *given.values()]
        for i in plan.kept:
            values[i] = _seen(values[i], level) if i < len(self.residuals) else values[i]
        shapes = [self.shapes[i] for i in wrt]
        found = apply_plan(plan, values, shapes, self.shape, self.options)
        gradients: list[Any] = [None] * len(self.parents)
        for index, gradient in zip(wrt, found, strict=True):
            gradients[index] = gradient
        return gradients


def record_forward(
    program: Program, arguments: Sequence[Any], tracers: list[Tracer], options: KernelOptions
) -> tuple[Any, ...]:
    """Record a program so that its call computes outputs and partials.

    Parameters
    ----------
    program : Program
        Of scalars.
    arguments : sequence
        One for each param, some of them traced.
    tracers : list of Tracer
        Those.
    options : KernelOptions
        The user's overrides.

    Returns
    -------
    tuple
        The outputs of the program, as `mixad.tape.apply.apply_program` returns them.
    """
    recording = Recording.of(program, arguments, tracers)
    plan = plan_forward(program, recording.active, options)
    call = KernelCall.storing(*plan.passes)
    pending, cells = recording.pending(call, options.backend)
    stored = (
        cells if len(recording.levels) == 1 else _traced(call, recording, pending, cells, options)
    )
    read = plan.read
    residuals = [r if i in read else None for i, r in enumerate((*recording.arguments, *stored))]
    shapes = recording.shape, recording.shapes
    node = ForwardNode(plan, residuals, recording.parents, *shapes, options)
    outputs = [recording.traced(cells[m], node, m) for m in range(len(program.outputs))]
    return tuple(o if o.cell.type.is_float else o.cell.array for o in outputs)


def _traced(
    call: KernelCall,
    recording: Recording,
    pending: PendingCall,
    cells: Sequence[Cell],
    options: KernelOptions,
) -> list[Tracer]:
    """Return the stored arrays as results of the dual programs, for the transforms around.

    To a single transform they are constants; then nothing needs to be kept to differentiate them.
    """
    nodes = [KernelNode.of(call, at, recording, pending, options) for at in range(len(call.passes))]
    return [
        recording.traced(cell, nodes[request.pass_index], request.result)
        for cell, request in zip(cells, call.outputs, strict=True)
    ]


def _seen(residual: Any, level: Level) -> Any:
    """Return a residual as the transforms around ``level`` see it."""
    return residual.array if isinstance(residual, Cell) else stripped(residual, level)
