"""The kernel node: a program at every element of broadcast arrays, its results stored or summed.

Its pullback is again such a call: the pullback program over the arguments and the cotangents, each
gradient summed to the shape of its argument.  So unbroadcasting and higher orders need nothing of
their own, and sums of a pending broadcast become outputs of its launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from mixad.backends.arrays import Library, scalar_type_of
from mixad.backends.execute import execute
from mixad.errors import KernelGradientError
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import Program
from mixad.scalar.types import F64, ScalarType
from mixad.tape.cell import Cell, Launch, kernel_values
from mixad.tape.node import Cotangents, Rule, apply_rule, common_library
from mixad.tape.plan import PullbackPlan, plan_pullback
from mixad.tape.tracer import Level, Origin, Tracer, levels_of, stripped

__all__ = ["KernelCall", "KernelNode", "apply_call", "apply_program", "broadcast_to", "sum_to"]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class KernelCall:
    """What is computed at every element, and what becomes of the results.

    Attributes
    ----------
    passes : tuple of Program
        With the same params.
    outputs : tuple of OutputRequest
        The wanted arrays; of one pass, no result twice.
    """

    passes: tuple[Program, ...]
    outputs: tuple[OutputRequest, ...]

    @classmethod
    def storing(cls, program: Program) -> KernelCall:
        """Return the call that stores every output of one program."""
        return cls((program,), tuple(OutputRequest(0, i) for i in range(len(program.outputs))))


def apply_program(
    program: Program, arguments: Sequence[Any], options: KernelOptions = DEFAULT_OPTIONS
) -> tuple[Any, ...]:
    """Apply a program at every element of its broadcast arguments.

    Parameters
    ----------
    program : Program
        Of scalars.
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
    return apply_call(KernelCall.storing(program), arguments, options)


def apply_call(
    call: KernelCall, arguments: Sequence[Any], options: KernelOptions = DEFAULT_OPTIONS
) -> tuple[Any, ...]:
    """Make a call, or record it if an argument is traced: see `apply_program`."""
    tracers = [a for a in arguments if isinstance(a, Tracer)]
    if tracers:
        return _recorded(call, arguments, tracers, options)
    values = kernel_values(call.passes[0], arguments)
    return execute(call.passes, call.outputs, values, options.backend)


class KernelNode:
    """One program of a call that was recorded.

    Parameters
    ----------
    program : Program
        The program.
    arguments : tuple
        Tracers, arrays and numbers; None for those that the pullback does not read.
    parents : tuple of (Origin or None)
        Where the arguments came from.
    shape : tuple of int
        The broadcast shape.
    shapes : tuple of tuple
        Shapes of the arguments; empty for those that are no lanes.
    results : tuple of int
        Which outputs of the program the node has.
    launch : Launch
        What makes its outputs.
    options : KernelOptions
        The user's overrides.
    """

    __slots__ = ("arguments", "fresh", "launch", "options", "parents", "program", "results",
                 "shape", "shapes")  # fmt: skip

    def __init__(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        parents: tuple[Origin | None, ...],
        shape: Shape,
        shapes: tuple[Shape, ...],
        results: tuple[int, ...],
        launch: Launch,
        options: KernelOptions,
    ) -> None:
        self.program = program
        self.arguments = arguments
        self.parents = parents
        self.shapes = shapes
        self.shape = shape
        self.results = results
        self.launch = launch
        self.options = options
        self.fresh = True

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Run, or record, the pullback program; it makes pending outputs on its way."""
        wrt = tuple(i for i, p in enumerate(self.parents) if p is not None and level in p.levels)
        given = {r: g for r, g in zip(self.results, cotangents, strict=False) if g is not None}
        gradients: list[Any] = [None] * len(self.parents)
        run = self._with_primals if self._is_wanted(given, level) else self._gradients
        for index, gradient in zip(wrt, run(wrt, given, level), strict=True):
            gradients[index] = gradient
        return gradients

    def _is_wanted(self, given: dict[int, Any], level: Level) -> bool:
        """Whether one kernel can make pending outputs that someone holds, and the gradients.

        Under an outer level the outputs and the gradients are recorded one by one; and where the
        primal alone needs a pending argument, that may still come for free further back.
        """
        around = (other for p in self.parents if p is not None for other in p.levels)
        return (
            len(self.launch.passes) == 1
            and bool(self.launch.live())
            and not self._primal_waits()
            and not any(other.alive and other is not level for other in around)
            and not any(isinstance(g, Tracer) for g in given.values())
        )

    def _primal_waits(self) -> bool:
        """Whether a pending argument is not read by the gradients."""
        return any(
            isinstance(cell, Cell) and cell.launch is not None and held is None
            for cell, held in zip(self.launch.arguments, self.arguments, strict=True)
        )

    def _gradients(self, wrt: tuple[int, ...], given: dict[int, Any], level: Level) -> list[Any]:
        plan = plan_pullback(self.program, wrt, tuple(given), self.options)
        values = self._kept(plan, [stripped(a, level) for a in self.arguments], given)
        call = KernelCall(plan.passes, tuple(self._requests(plan, wrt)))
        return _spread(plan, apply_call(call, values, self.options) if plan.passes else ())

    def _with_primals(self, wrt: tuple[int, ...], given: dict[int, Any], _: Level) -> list[Any]:
        plan = plan_pullback(self.program, wrt, tuple(given), self.options, with_primals=True)
        live = self.launch.live()
        values = self._kept(plan, list(self.launch.values()), given)
        primals = [OutputRequest(*plan.primals[r.result], r.shape) for _, r in live]
        requests = (*primals, *self._requests(plan, wrt))
        numbers = kernel_values(plan.passes[0], values)
        arrays = execute(plan.passes, requests, numbers, self.options.backend)
        self.launch.finish(live, arrays[: len(live)])
        return _spread(plan, arrays[len(live) :])

    def _kept(self, plan: PullbackPlan, values: list[Any], given: dict[int, Any]) -> list[Any]:
        """Return the values that the programs take; together they have the broadcast shape."""
        kept = [[*values, *given.values()][i] for i in plan.kept]
        if plan.kept and np.broadcast_shapes(*_lane_shapes(plan.passes[0], kept)) != self.shape:
            kept[-1] = broadcast_to(kept[-1], self.shape)
        return kept

    def _requests(self, plan: PullbackPlan, wrt: tuple[int, ...]) -> list[OutputRequest]:
        """Ask for each gradient in its param's shape: broadcast axes are summed by the kernel."""
        shapes = (self.shapes[i] if self.shapes[i] != self.shape else None for i in wrt)
        return [
            OutputRequest(*place, shape)
            for place, shape in zip(plan.gradients, shapes, strict=True)
            if place is not None
        ]


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
        program = _identity(scalar_type_of(x.dtype))
        return apply_call(KernelCall((program,), (OutputRequest(0, 0, shape),)), (x,))[0]
    levels = levels_of([x])
    source, launch = x.cell, x.cell.launch
    cell = Cell(shape, source.type, source.library, source.device, weak=source.weak)
    if launch is not None and launch.request_of(source).shape is None:
        request = launch.request_of(source)
        launch.add(cell, OutputRequest(request.pass_index, request.result, shape))
    else:
        launch = Launch((_identity(source.type),), (source,), None)
        launch.add(cell, OutputRequest(0, 0, shape))
    return type(x)(cell, Origin(SumNode(x.origin), 0, levels))


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Return a view of an array in a larger shape; its cotangent is summed back."""
    return x if tuple(x.shape) == shape else apply_rule(_BROADCAST_TO, x, shape=shape)


_BROADCAST_TO = Rule(
    "broadcast_to",
    lambda xp, x, shape: xp.broadcast_to(x, shape),
    (lambda g, x, shape: sum_to(g, x.shape),),
)


def _recorded(
    call: KernelCall, arguments: Sequence[Any], tracers: list[Tracer], options: KernelOptions
) -> tuple[Tracer, ...]:
    """Record one node for each pass, all made by one launch."""
    levels = levels_of(tracers)
    program = call.passes[0]
    arrays = [a for a in arguments if hasattr(a, "shape") and not _is_weak(a)]
    library = common_library(program.name, arrays or tracers)
    device = next((a.device for a in arrays if hasattr(a, "device")), tracers[0].device)
    arguments = [_moved(a, library, device) for a in arguments]
    shapes = _lane_shapes(program, arguments)
    shape = np.broadcast_shapes(*shapes)
    cells = tuple(a.cell if isinstance(a, Tracer) else a for a in arguments)
    launch = Launch(call.passes, cells, options.backend)
    nodes = [
        _node(call, at, arguments, (shape, shapes), launch, options)
        for at in range(len(call.passes))
    ]
    outputs = []
    for request in call.outputs:
        node = nodes[request.pass_index]
        kind = call.passes[request.pass_index].outputs[request.result].type
        size = shape if request.shape is None else request.shape
        cell = Cell(size, kind, library, device, weak=not arrays)
        launch.add(cell, request)
        origin = Origin(node, node.results.index(request.result), levels)
        outputs.append(type(tracers[0])(cell, origin))
    return tuple(o if o.cell.type.is_float else o.cell.array for o in outputs)


def _node(
    call: KernelCall,
    at: int,
    arguments: Sequence[Any],
    shapes: tuple[Shape, tuple[Shape, ...]],
    launch: Launch,
    options: KernelOptions,
) -> KernelNode:
    program = call.passes[at]
    parents = tuple(a.origin if isinstance(a, Tracer) else None for a in arguments)
    wrt = tuple(i for i, p in enumerate(parents) if p is not None)
    results = tuple(r.result for r in call.outputs if r.pass_index == at)
    floats = tuple(r for r in results if program.outputs[r].type.is_float)
    read = set(plan_pullback(program, wrt, floats, options).kept)
    held = tuple(a if i in read else None for i, a in enumerate(arguments))
    return KernelNode(program, held, parents, *shapes, results, launch, options)


def _spread(plan: PullbackPlan, arrays: Sequence[Any]) -> list[Any]:
    """Put arrays where the plan has gradients, and None where it has zeros."""
    left = iter(arrays)
    return [None if place is None else next(left) for place in plan.gradients]


def _lane_shapes(program: Program, arguments: Sequence[Any]) -> tuple[Shape, ...]:
    """Return the shapes of the arguments that are broadcast, and () for the others."""
    for param, argument in zip(program.params, arguments, strict=True):
        if param.kind == "array" and isinstance(argument, Tracer):
            raise KernelGradientError(
                f"{program.name}: the gradient of the array {param.name!r}, which is indexed "
                "inside the function, is not available yet",
                hint=f"pass mixad.stop_gradient({param.name}), or pass its elements as arguments",
            )
    return tuple(
        tuple(a.shape) if p.kind == "lane" else ()
        for p, a in zip(program.params, arguments, strict=True)
    )


def _moved(argument: Any, library: Library, device: Any) -> Any:
    """Return what was a Python number as a 0-d array of the library beside it."""
    if _is_weak(argument) and argument.cell.library is not library:
        return _move(argument, (argument.cell.library, None), (library, device))
    return argument


def _move(x: Any, source: _Place, target: _Place) -> Any:
    return apply_rule(_MOVE, x, source=source, target=target)


_Place: TypeAlias = tuple[Library, Any]  # with the device
_MOVE = Rule(
    "a Python number",
    lambda xp, x, source, target: target[0].asarray(float(x), F64, target[1]),
    (lambda g, x, source, target: _move(g, target, source),),
)


def _is_weak(argument: Any) -> bool:
    return isinstance(argument, Tracer) and argument.cell.weak


@cache
def _identity(type: ScalarType) -> Program:
    builder = Builder("sum")
    return builder.finish([builder.param("x", type)])
