"""The kernel node whose partials are computed with the primal and multiplied by cotangents later.

One call makes outputs and partials; the pullback is a second, cheap kernel that reads partials
and cotangents only. It pays where the program is costly and nothing is broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from mixad.errors import KernelGradientError, SourceLocation
from mixad.kernel.options import KernelOptions
from mixad.scalar.ir import Load, Program, Var, walk_statements
from mixad.scalar.loop_results import decided_results
from mixad.tape.cell import Cell
from mixad.tape.forward_plan import ForwardPlan, Stored, plan_contraction, plan_forward
from mixad.tape.gradient_plan import GradientPlan, plan_of_pullback
from mixad.tape.kernel_call import KernelCall, Shape
from mixad.tape.kernel_node import KernelNode, record
from mixad.tape.memory import unshared
from mixad.tape.node import Cotangents, Result, added
from mixad.tape.tracer import Level, Origin, Tracer, stripped, warn
from mixad.tape.values_rule import followed

__all__ = ["ForwardNode", "contract", "contraction_of", "record_forward"]


class ForwardNode:
    """A broadcast whose partials are stored, or will be when its call runs."""

    __slots__ = ("options", "parents", "results", "shape", "stored")
    name = "kernel"
    fresh = True

    def __init__(
        self, stored: Stored, shape: Shape, results: Sequence[Result], options: KernelOptions
    ) -> None:
        self.stored = stored
        self.shape = shape  # the broadcast shape
        self.options = options
        self.parents = tuple(stored.parents)
        self.results = results  # what the outputs are

    @classmethod
    def of(cls, node: KernelNode) -> ForwardNode:
        """Return the node of a kernel whose results were made with their partials."""
        assert node.stored is not None
        return cls(node.stored, node.shape, node.results, node.options)

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Run, or record, the contraction of the partials with the cotangents."""
        stored = self.stored
        wrt = tuple(i for i, p in enumerate(self.parents) if p is not None and level in p.levels)
        pairs = zip(stored.outputs, cotangents, strict=False)
        given = [(output, g) for output, g in pairs if g is not None]
        if stored.plan.program.has_named_loops:
            program, results = stored.plan.program, tuple(dict.fromkeys([at for at, _ in given]))
            levels = frozenset(chain(*[p.levels for p in self.parents if p is not None]))
            warn(decided_results(program, program.origin, wrt, results), levels)
        residual = lambda at: _seen(stored.residuals[at], level)  # noqa: E731
        found = contract(stored.plan, wrt, given, residual, stored.shapes, self.shape, self.options)
        gradients: list[Any] = [None] * len(self.parents)
        for index, gradient in zip(wrt, found, strict=True):
            gradients[index] = gradient
        return gradients


def contract(
    plan: ForwardPlan,
    wrt: tuple[int, ...],
    given: Sequence[tuple[int, Any]],
    residual: Callable[[int], Any],
    shapes: Sequence[Shape],
    shape: Shape,
    options: KernelOptions,
) -> list[Any]:
    """Multiply partials by the cotangents of outputs; return the gradients, None if zero.

    `residual` returns an argument or a stored array; the rest is as for `contraction_of`.
    """
    gs: dict[int, Any] = {}
    for output, g in given:
        gs[output] = added(gs[output], g) if output in gs else g
    found = contraction_of(plan, wrt, tuple(gs), shapes, shape)
    count, sums = (
        len(plan.program.params) + sum(len(p.outputs) for p in plan.passes),
        [*gs.values()],
    )
    kept = [residual(i) if i < count else sums[i - count] for i in found.kept]
    arrays = found.arrays(kept, shape, options)
    return [arrays[at] if kind == "array" else None for kind, at in found.places]


def contraction_of(
    plan: ForwardPlan,
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
    plan: ForwardPlan,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    shapes: tuple[Shape | None, ...],
) -> GradientPlan:
    pullback = plan_contraction(plan, wrt, cotangents)
    return plan_of_pullback(plan.program, pullback, (), shapes, copies=True)


def record_forward(
    program: Program, arguments: Sequence[Any], options: KernelOptions
) -> tuple[Any, ...]:
    """Record a program so that its call computes outputs and partials; return the outputs.

    Some arguments are traced. Outputs are like those of `mixad.tape.apply.apply_program`.
    """
    active = tuple(i for i, a in enumerate(arguments) if isinstance(a, Tracer))
    for index in active:
        _check_not_indexed(program, index)
    plan = plan_forward(program, active, options)
    call = KernelCall.storing(*plan.passes)
    nodes = record(call, arguments, options, residuals=True)
    first = nodes[0]
    traced = [node.traced(k) for node in nodes for k in range(len(node.outputs))]
    cells = [t.cell for t in traced]
    # To a single transform the stored arrays are constants: then nothing differentiates them.
    made = cells if len(first.levels) == 1 else traced
    given = [_residual(a, s) for a, s in zip(arguments, first.arguments, strict=True)]
    read = plan.read
    residuals = [r if i in read else None for i, r in enumerate((*given, *made))]
    shapes = tuple(tuple(getattr(a, "shape", ())) for a in arguments)
    results = [Result(first.shape, c.kind, c.device) for c in cells[: len(program.outputs)]]
    stored = Stored(plan, residuals, first.parents, shapes, range(len(results)))
    node = ForwardNode(stored, first.shape, results, options)
    outputs = [
        first.tracer_type(cells[m], Origin(node, m, first.levels))
        for m in range(len(program.outputs))
    ]
    return tuple(map(followed, outputs))


def _check_not_indexed(program: Program, index: int) -> None:
    """Refuse the gradient of an array that a program indexes."""
    param = program.params[index]
    if param.kind == "array":
        raise KernelGradientError(
            f"{program.name}: the gradient of the array {param.name!r}, which is read by index, is "
            "not available with stored partials",
            location=_first_read(program, param.var),
            hint='leave out placement="forward"',
        )


def _first_read(program: Program, array: Var) -> SourceLocation | None:
    """Return where a program first reads an element of one of its arrays."""
    statements = walk_statements(program.body)
    lines = (s.line for s in statements if isinstance(s, Load) and s.array == array and s.line)
    return next((line.place for line in lines), None)


def _residual(argument: Any, source: Any) -> Any:
    """Return an argument as the node retains it: a tracer, a `Held` array or a number.

    The user's own tracer may stand for another value later: the node has one of its own.
    """
    return unshared(argument) if isinstance(argument, Tracer) else source


def _seen(residual: Any, level: Level) -> Any:
    """Return a residual as the transforms around ``level`` see it."""
    return residual.value if isinstance(residual, Cell) else stripped(residual, level)
