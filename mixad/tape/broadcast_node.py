"""The kernel node: a program at every element of broadcast arrays, its results stored or summed.

Its pullback is again such a call: the pullback program over the arguments and the cotangents, each
gradient summed to the shape of its argument.  So unbroadcasting and higher orders need nothing of
their own, and sums of a pending broadcast become outputs of its call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from mixad.backends.arrays import scalar_type_of
from mixad.backends.execute import broadcast_shape, execute
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.scalar.types import ScalarType
from mixad.tape.cell import Cell, PendingCall, kernel_values
from mixad.tape.node import Cotangents, Rule, apply_rule
from mixad.tape.pullback_plan import PullbackPlan, plan_pullback
from mixad.tape.recording import KernelCall, Recording, Shape, lane_shapes
from mixad.tape.tracer import Level, Origin, Tracer, check_mode, levels_of, stripped

__all__ = ["KernelNode", "apply_call", "apply_plan", "broadcast_to", "sum_to"]


def apply_call(
    call: KernelCall, arguments: Sequence[Any], options: KernelOptions = DEFAULT_OPTIONS
) -> tuple[Any, ...]:
    """Make a call, or record it if an argument is traced.

    Parameters
    ----------
    call : KernelCall
        What to compute.
    arguments : sequence
        One for each param: an array or a tracer, of the param's type; for a uniform param a
        Python number or a 0-d tracer.
    options : KernelOptions
        The user's overrides.

    Returns
    -------
    tuple
        One array for each output; a pending tracer where an argument is traced.  Outputs that are
        no floats have no derivative and are plain arrays.
    """
    tracers = [a for a in arguments if isinstance(a, Tracer)]
    if not tracers:
        values = kernel_values(call.passes[0], arguments)
        return call.kernel(values, options.backend)
    recording = Recording.of(call.passes[0], arguments, tracers)
    pending, cells = recording.pending(call, options.backend)
    nodes = [KernelNode.of(call, at, recording, pending, options) for at in range(len(call.passes))]
    outputs = []
    for cell, request in zip(cells, call.outputs, strict=True):
        node = nodes[request.pass_index]
        outputs.append(recording.traced(cell, node, node.results.index(request.result)))
    return tuple(o if o.cell.type.is_float else o.cell.array for o in outputs)


class KernelNode:
    """One program of a call that was recorded.

    Parameters
    ----------
    program : Program
        The program.
    arguments : tuple
        Tracers, held arrays and numbers; None for those that the pullback does not read.
    parents : tuple of (Origin or None)
        Where the arguments came from.
    shape : tuple of int
        The broadcast shape.
    shapes : tuple of tuple
        Shapes of the arguments; empty for those that are no lanes.
    results : tuple of int
        Which outputs of the program the node has.
    pending : PendingCall
        What makes its outputs.
    options : KernelOptions
        The user's overrides.
    """

    __slots__ = ("arguments", "fresh", "options", "parents", "pending", "program", "results",
                 "shape", "shapes")  # fmt: skip

    def __init__(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        parents: tuple[Origin | None, ...],
        shape: Shape,
        shapes: tuple[Shape, ...],
        results: tuple[int, ...],
        pending: PendingCall,
        options: KernelOptions,
    ) -> None:
        self.program = program
        self.arguments = arguments
        self.parents = parents
        self.shapes = shapes
        self.shape = shape
        self.results = results
        self.pending = pending
        self.options = options
        self.fresh = True

    @classmethod
    def of(
        cls,
        call: KernelCall,
        at: int,
        recording: Recording,
        pending: PendingCall,
        options: KernelOptions,
    ) -> KernelNode:
        """Return the node of one pass of a call."""
        read = _read(call, at, recording.active, options)
        held = tuple([a if i in read else None for i, a in enumerate(recording.arguments)])
        return cls(
            call.passes[at],
            held,
            recording.parents,
            recording.shape,
            recording.shapes,
            call.results[at],
            pending,
            options,
        )

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Run, or record, the pullback program; it makes pending outputs on its way."""
        wrt = tuple(i for i, p in enumerate(self.parents) if p is not None and level in p.levels)
        given = {r: g for r, g in zip(self.results, cotangents, strict=False) if g is not None}
        if self.program.has_named_loops:
            warn_of_decided_results(self.program, wrt, tuple(given))
        gradients: list[Any] = [None] * len(self.parents)
        found = self._with_primals(wrt, given, level)
        if found is None:
            found = self._gradients(wrt, given, level)
        for index, gradient in zip(wrt, found, strict=True):
            gradients[index] = gradient
        return gradients

    def _is_wanted(self, given: dict[int, Any], level: Level) -> bool:
        """Whether one kernel can make pending outputs that someone holds, and the gradients.

        Under an outer level the outputs and the gradients are recorded one by one; and where the
        primal alone needs a pending argument, that may still come for free further back.
        """
        around = (other for p in self.parents if p is not None for other in p.levels)
        return (
            len(self.pending.passes) == 1
            and bool(self.pending.live())
            and not self._primal_waits()
            and not any(other.alive and other is not level for other in around)
            and not any(isinstance(g, Tracer) for g in given.values())
        )

    def _primal_waits(self) -> bool:
        """Whether a pending argument is not read by the gradients."""
        return any(
            isinstance(cell, Cell) and cell.pending is not None and held is None
            for cell, held in zip(self.pending.arguments, self.arguments, strict=True)
        )

    def _gradients(self, wrt: tuple[int, ...], given: dict[int, Any], level: Level) -> list[Any]:
        plan = plan_pullback(self.program, wrt, tuple(given), self.options)
        values = [*(stripped(a, level) for a in self.arguments), *given.values()]
        return apply_plan(plan, values, [self.shapes[i] for i in wrt], self.shape, self.options)

    def _with_primals(
        self, wrt: tuple[int, ...], given: dict[int, Any], level: Level
    ) -> list[Any] | None:
        """Return gradients from a kernel that makes pending outputs too; None if it may not."""
        with self.pending.lock:
            return self._merged(wrt, given) if self._is_wanted(given, level) else None

    def _merged(self, wrt: tuple[int, ...], given: dict[int, Any]) -> list[Any]:
        plan = plan_pullback(self.program, wrt, tuple(given), self.options, with_primals=True)
        if not any(plan.gradients):
            return [None] * len(wrt)  # nothing to share a kernel with: the call runs by itself
        live = self.pending.live()
        values = _kept(plan, [*self.pending.values(), *given.values()], self.shape)
        primals = [OutputRequest(*plan.primals[r.result], r.shape) for _, r in live]
        own = (self.shapes[i] for i in wrt)
        shapes = [None if shape == self.shape else shape for shape in own]
        requests = (*primals, *_requests(plan, shapes))
        numbers = kernel_values(plan.passes[0], values)
        arrays = execute(plan.passes, requests, numbers, self.options.backend)
        self.pending.finish(live, arrays[: len(live)])
        return _spread(plan, arrays[len(live) :])


def apply_plan(
    plan: PullbackPlan,
    values: Sequence[Any],
    shapes: Sequence[Shape],
    shape: Shape,
    options: KernelOptions,
) -> list[Any]:
    """Compute gradients, or record how.

    Parameters
    ----------
    plan : PullbackPlan
        By which programs.
    values : sequence
        What ``plan.kept`` chooses from: arrays, tracers and numbers, cotangents last.
    shapes : sequence of tuple
        For each gradient, its shape: broadcast axes are summed by the kernel.
    shape : tuple of int
        The broadcast shape.
    options : KernelOptions
        The user's overrides.

    Returns
    -------
    list
        One gradient for each of ``shapes``; None where it is statically zero.
    """
    if not plan.passes:
        return [None] * len(shapes)
    call = _gradient_call(plan, tuple([None if own == shape else own for own in shapes]))
    return _spread(plan, apply_call(call, _kept(plan, values, shape), options))


@lru_cache(maxsize=4096)
def _gradient_call(plan: PullbackPlan, shapes: tuple[Shape | None, ...]) -> KernelCall:
    """Return the call that sums each gradient to its shape; None stands for the broadcast shape."""
    return KernelCall(plan.passes, _requests(plan, shapes))


@lru_cache(maxsize=4096)
def _read(
    call: KernelCall, at: int, active: tuple[int, ...], options: KernelOptions
) -> frozenset[int]:
    """Return which arguments the pullback of a pass reads."""
    program = call.passes[at]
    floats = tuple(r for r in call.results[at] if program.outputs[r].type.is_float)
    return frozenset(plan_pullback(program, active, floats, options).kept)


def _kept(plan: PullbackPlan, values: Sequence[Any], shape: Shape) -> list[Any]:
    """Return the values that the programs take; together they have the broadcast shape."""
    kept = [values[i] for i in plan.kept]
    program = plan.passes[0]
    shapes = lane_shapes(program, kept)
    if kept and shape not in shapes and broadcast_shape(program, shapes) != shape:
        kept[-1] = broadcast_to(kept[-1], shape)
    return kept


def _requests(plan: PullbackPlan, shapes: Sequence[Shape | None]) -> tuple[OutputRequest, ...]:
    """Ask for each gradient in its param's shape."""
    return tuple(
        OutputRequest(*place, own)
        for place, own in zip(plan.gradients, shapes, strict=True)
        if place is not None
    )


def _spread(plan: PullbackPlan, arrays: Sequence[Any]) -> list[Any]:
    """Put arrays where the plan has gradients, and None where it has zeros."""
    left = iter(arrays)
    return [None if place is None else next(left) for place in plan.gradients]


class SumNode:
    """A sum to a smaller shape: its cotangent broadcasts back by itself.

    Parameters
    ----------
    parent : Origin
        Where the summed value came from.
    """

    __slots__ = ("fresh", "parents")

    def __init__(self, parent: Origin) -> None:
        self.parents = (parent,)
        self.fresh = False

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return the cotangent as it is: it broadcasts to the shape before the sum."""
        return cotangents


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Sum a float array over the axes that a shape lacks or has with extent 1.

    Parameters
    ----------
    x : array or Tracer
        What to sum; if it is pending, its kernel will sum it and need not store it.
    shape : tuple of int
        A shape that broadcasts to that of ``x``.

    Returns
    -------
    array or Tracer
        Of that shape.
    """
    if tuple(x.shape) == shape:
        return x
    if not isinstance(x, Tracer):
        return apply_call(_summing(scalar_type_of(x.dtype), shape), (x,))[0]
    levels = levels_of([x])
    source, pending = x.cell, x.cell.pending
    cell = Cell(shape, source.type, source.library, source.device, weak=source.weak)
    if pending is None or not pending.join(cell, source):
        pending = PendingCall((_identity(source.type),), (source,), None, check_mode(levels))
        pending.add(cell, OutputRequest(0, 0, shape))
    return type(x)(cell, Origin(SumNode(x.origin), 0, levels))


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Return a view of an array in a larger shape; its cotangent is summed back."""
    return x if tuple(x.shape) == shape else apply_rule(_BROADCAST_TO, x, shape=shape)


_BROADCAST_TO = Rule(
    "broadcast_to",
    lambda xp, x, shape: xp.broadcast_to(x, shape),
    (lambda g, x, shape: sum_to(g, x.shape),),
)


@lru_cache(maxsize=4096)
def _summing(type: ScalarType, shape: Shape) -> KernelCall:
    return KernelCall((_identity(type),), (OutputRequest(0, 0, shape),))


@cache
def _identity(type: ScalarType) -> Program:
    builder = Builder("sum")
    return builder.finish([builder.param("x", type)])
