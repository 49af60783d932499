"""The forward pass: tangents go along a trace, from the inputs of a transform to its outputs.

Every kernel node is recorded once more on dual chunks: values together with their tangents along
up to ten directions.  What has been made is read, what is pending is computed again; so values and
tangents come out of the same kernels, fused as all pending nodes are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias, cast

from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Const, Program
from mixad.scalar.pushforward import pushforward_along
from mixad.tape.apply import apply_program
from mixad.tape.backward import backward
from mixad.tape.broadcasting import broadcast_to, sum_to
from mixad.tape.cell import Cell
from mixad.tape.forward_node import ForwardNode, seen
from mixad.tape.forward_plan import ForwardPlan
from mixad.tape.kernel_call import KernelCall
from mixad.tape.kernel_node import KernelNode, record
from mixad.tape.node import InputNode, RuleNode, apply_rule
from mixad.tape.schedule import argument_outside
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Origin, Tracer, stripped

__all__ = ["Dual", "Tangents", "carry_forward"]

Tangents: TypeAlias = tuple[Any, ...]
"""One for each direction: None where it is zero, an array or a tracer of the value's shape."""


class Dual(NamedTuple):
    """A value and its tangents; the value is None where it has been made as it is."""

    value: Any
    tangents: Tangents


def carry_forward(
    level: Level,
    outputs: Sequence[Origin],
    inputs: Sequence[InputNode],
    seeds: Sequence[Tangents],
) -> list[Dual]:
    """Carry tangents from the inputs of a transform to its outputs.

    Parameters
    ----------
    level : Level
        The transform's; only edges that carry it are followed.
    outputs : sequence of Origin
        Where to end.
    inputs : sequence of InputNode
        Where to begin.
    seeds : sequence of Tangents
        For each input, tracers of a transform that is running; as many for each.

    Returns
    -------
    list of Dual
        For each output.
    """
    trace = Trace(level, [(origin, None) for origin in outputs])
    forward = _Forward(level, trace, {id(n): s for n, s in zip(inputs, seeds, strict=True)})
    for number in trace.inputs_first(level, outputs):
        forward.visit(number)
    return [forward.dual(origin) for origin in outputs]


class _Forward:
    """One forward pass: ``_found`` has a function of the output's index for each visited node."""

    def __init__(self, level: Level, trace: Trace, seeds: dict[int, Tangents]) -> None:
        self._level = level
        self._trace = trace
        self._seeds = seeds
        self._zero: Tangents = (None,) * len(next(iter(seeds.values()), ()))
        self._found: dict[int, Callable[[int], Dual]] = {}

    def visit(self, number: int) -> None:
        """Compute the tangents of a node's outputs, from those of its parents."""
        node: Any = self._trace.nodes[number]
        duals = [self._parent(parent) for parent in node.parents]
        tangents = [self._zero if dual is None else dual.tangents for dual in duals]
        if isinstance(node, KernelNode):
            values = [self._argument(node, i, dual) for i, dual in enumerate(duals)]
            self._found[number] = _pushed_kernel(node, values, tangents)
        elif isinstance(node, RuleNode):
            arguments = [stripped(a, self._level) for a in node.arguments]
            along = zip(*tangents, strict=True)
            found = Dual(None, tuple(_pushed_rule(node, arguments, moving) for moving in along))
            self._found[number] = lambda _: found
        elif isinstance(node, ForwardNode):
            self._found[number] = _pushed_partials(node, self._level, tangents)
        elif isinstance(node, InputNode):
            dual = Dual(None, self._seeds.get(id(node), tangents[0]))
            self._found[number] = lambda _: dual
        else:
            self._found[number] = lambda _: Dual(None, self._zero)

    def dual(self, origin: Origin) -> Dual:
        """Return what was found of a value."""
        return self._found[self._trace.numbers[id(origin.node)]](origin.output)

    def _parent(self, parent: Origin | None) -> Dual | None:
        return None if parent is None or self._level not in parent.levels else self.dual(parent)

    def _argument(self, node: KernelNode, index: int, dual: Dual | None) -> Any:
        """Return an argument: what was recorded again in place of what is pending."""
        if dual is not None and dual.value is not None:
            return dual.value
        return argument_outside(node, index, self._level)


def _pushed_kernel(
    node: KernelNode, values: Sequence[Any], tangents: Sequence[Tangents]
) -> Callable[[int], Dual]:
    """Record a node's program on dual chunks, which returns each of its outputs."""
    directions = len(tangents[0])
    moving = tuple(
        tuple(i for i, along in enumerate(tangents) if along[k] is not None)
        for k in range(directions)
    )
    plan = _pushed_call(node.call, moving)
    seeds = [tangents[i][k] for k, indices in enumerate(moving) for i in indices]
    recorded = record(plan.call, [*values, *seeds], node.options)[0]

    def result(output: int) -> Dual:
        request = node.outputs[output]
        shape = node.shape if request.shape is None else request.shape

        def summed(position: int | None) -> Any:
            return None if position is None else sum_to(recorded.traced(position), shape)

        primal, partials = plan.outputs[request.result]
        value = None if node.is_made(output) else summed(primal)
        return Dual(value, tuple(map(summed, partials)))

    return result


@dataclass(frozen=True, eq=False)
class _PushedCall:
    """A call on dual chunks; for each output where the value is and where the tangents are."""

    call: KernelCall
    outputs: tuple[tuple[int, tuple[int | None, ...]], ...]


@lru_cache(maxsize=2048)
def _pushed_call(call: KernelCall, moving: tuple[tuple[int, ...], ...]) -> _PushedCall:
    dual = pushforward_along(call.passes[0], moving)
    outputs = tuple(
        (output.primal, tuple(output.partials.get(k) for k in range(len(moving))))
        for output in dual.outputs
    )
    return _PushedCall(KernelCall.storing(dual.program), outputs)


def _pushed_rule(node: RuleNode, arguments: Sequence[Any], tangents: Tangents) -> Any:
    """Return the tangent of a rule's value along one direction; None if it is zero."""
    moving = [i for i, tangent in enumerate(tangents) if tangent is not None]
    if moving and node.rule.linear == "all":
        zeros = _zeros(node)
        given = [zeros(a) if t is None else t for a, t in zip(arguments, tangents, strict=True)]
        return apply_rule(node.rule, *given, **node.static)
    terms = [_along_one(node, i, arguments, tangents[i]) for i in moving]
    found = [term for term in terms if term is not None]
    return reduce(add, found) if found else None


def _along_one(node: RuleNode, index: int, arguments: Sequence[Any], tangent: Any) -> Any:
    """Return what a rule's value changes by as one argument does."""
    if node.rule.linear == "each":
        moved = [*arguments[:index], tangent, *arguments[index + 1 :]]
        return apply_rule(node.rule, *moved, **node.static)
    return _transposed(node, index, arguments, tangent)


def _zeros(node: RuleNode) -> Callable[[Any], Any]:
    """Return what makes zeros like an argument of a node, or like its result."""
    library = node.kind.library
    dtype = library.dtype_of(node.kind.type)
    return lambda like: library.xp.zeros(tuple(like.shape), dtype=dtype, device=node.device)


def _transposed(node: RuleNode, index: int, arguments: Sequence[Any], tangent: Any) -> Any:
    """Return J ẋ, where a rule's formula is g ↦ Jᵀ g: the gradient of ⟨Jᵀ g, ẋ⟩ with respect to g.

    None if it is zero.
    """
    with Level("jvp") as level:
        source = InputNode(level, None)
        cell = Cell.of(_zeros(node)(node), level.check)
        g = type(tangent)(cell, Origin(source, 0, frozenset((level,))))
        cotangent = node.rule.cotangents[index](g, *arguments, **node.static)
    if not isinstance(cotangent, Tracer) or level not in cotangent.origin.levels:
        return None
    seed = sum_to(tangent, tuple(cotangent.shape))
    (found,) = backward(level, [(cotangent.origin, seed)], [source])
    return None if found is None else broadcast_to(found.value, node.shape)


def _pushed_partials(
    node: ForwardNode, level: Level, tangents: Sequence[Tangents]
) -> Callable[[int], Dual]:
    """Multiply the partials that a node has stored by tangents, for each of its outputs."""

    def result(output: int) -> Dual:
        return Dual(
            None,
            tuple(_contracted(node, level, output, along) for along in zip(*tangents, strict=True)),
        )

    return result


def _contracted(node: ForwardNode, level: Level, output: int, tangents: Tangents) -> Any:
    partials = node.plan.partials[output]
    moving = tuple(i for i, tangent in enumerate(tangents) if tangent is not None and i in partials)
    if not moving:
        return None
    read = [partials[i] for i in moving if isinstance(partials[i], int)]
    values = [seen(node.residuals[cast("int", at)], level) for at in read]
    program = _contraction(node.plan, output, moving)
    (found,) = apply_program(program, [*(tangents[i] for i in moving), *values])
    return broadcast_to(found, node.shape)


@lru_cache(maxsize=2048)
def _contraction(plan: ForwardPlan, output: int, moving: tuple[int, ...]) -> Program:
    """Return Σ ẋₙ · ∂y/∂xₙ as a program of the tangents and the partials that are no constants."""
    builder = Builder(plan.program.name)
    params = [plan.program.params[i] for i in moving]
    type = plan.program.outputs[output].type
    tangents = [builder.param(f"tangent of {p.name}", p.var.type) for p in params]
    terms = []
    for index, tangent in zip(moving, tangents, strict=True):
        partial: Atom | int = plan.partials[output][index]
        if not isinstance(partial, Const):
            partial = builder.param(f"partial {partial}", type)
        terms.append(builder.op("mul_zero", builder.convert(tangent, type), partial))
    return builder.finish([reduce(lambda total, term: builder.op("add", total, term), terms)])
