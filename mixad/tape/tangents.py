"""The forward pass: tangents go along a trace, from the inputs of a transform to its outputs.

Every kernel node is recorded once more on dual chunks: values together with their tangents along
up to ten directions. Values that have been made are read, pending ones are computed again: values
and tangents come out of the same kernels, fused as all pending nodes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain
from operator import add
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from mixad.backends.autocast import in_given_types
from mixad.scalar.loop_results import decided_results
from mixad.scalar.pushforward import pushforward_along
from mixad.tape.backward import backward
from mixad.tape.broadcasting import broadcast_to, sum_to
from mixad.tape.cell import Cell
from mixad.tape.fusion import value_of
from mixad.tape.kernel_call import KernelCall, Shape
from mixad.tape.kernel_node import KernelNode, record
from mixad.tape.node import InputNode, PulledNode, RuleNode, apply_rule
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level, Origin, Tracer, journal_of, warn, without_level
from mixad.tape.values_rule import ValuesNode
from mixad.tape.writing import WriteNode, pushed_write

__all__ = ["Dual", "Tangents", "carry_forward"]

Tangents: TypeAlias = tuple[Any, ...]
"""One for each direction: None if it is zero, else an array or a tracer of the value's shape."""


class Dual(NamedTuple):
    """A value and its tangents."""

    value: Any  # None if what has been made serves as it is
    tangents: Tangents


@in_given_types
def carry_forward(
    level: Level,
    own: Level,
    outputs: Sequence[Origin],
    inputs: Sequence[InputNode],
    seeds: Sequence[Tangents],
) -> list[Dual]:
    """Carry tangents from the inputs of a transform to its outputs.

    Only edges that carry `level` are followed. `seeds` has as many tracers for each input, of the
    level `own`, which is running.
    """
    trace = Trace(level, [(origin, None) for origin in outputs])
    by_input = {id(node): along for node, along in zip(inputs, seeds, strict=True)}
    forward = _Forward(level, own, trace, outputs, by_input)
    for number in trace.inputs_first(level, outputs):
        forward.visit(number)
    found = [forward.dual(origin) for origin in outputs]
    if any(isinstance(node, ValuesNode) and node.has_phases for node in trace.nodes):
        _check_phases(level, outputs, inputs)
    return found


def _check_phases(level: Level, outputs: Sequence[Origin], inputs: Sequence[InputNode]) -> None:
    """Refuse outputs that depend on how phases of vectors were chosen.

    Tangents do not show it. A cotangent does, and a random one misses nothing: what does not depend
    on phases has no component along them, for any cotangent.
    """
    rng = np.random.default_rng(0)
    seeds = []
    for origin in outputs:
        node: Any = origin.node
        shape, kind, device = node.results[origin.output]
        drawn = rng.standard_normal((2, *shape))
        g = drawn[0] + 1j * drawn[1] if kind.type.is_complex else drawn[0]
        seeds.append((origin, kind.library.asarray(g, kind.type, device)))
    backward(level, seeds, inputs)


class PushedNode(PulledNode, Protocol):
    """A node with a pushforward of its own."""

    def pushforward(
        self, directions: Iterable[Sequence[Any]], level: Level
    ) -> Sequence[Sequence[Any]]:
        """Return the outputs' tangents for each direction, given those of the parents."""
        ...


class _Forward:
    """One forward pass; `_found` maps visited nodes to functions from output index to dual."""

    def __init__(
        self,
        level: Level,
        own: Level,
        trace: Trace,
        outputs: Sequence[Origin],
        seeds: dict[int, Tangents],
    ) -> None:
        self._level = level
        self._own = own
        self._trace = trace
        self._outputs = outputs
        self._seeds = seeds
        self._zero: Tangents = (None,) * len(next(iter(seeds.values()), ()))
        self._found: dict[int, Callable[[int], Dual]] = {}
        self._waiting = trace.consumers.copy()

    def visit(self, number: int) -> None:
        """Compute the tangents of a node's outputs, from those of its parents."""
        node: Any = self._trace.nodes[number]
        is_last = isinstance(node, WriteNode) and self._is_last(node)
        duals = [self._parent(parent) for parent in node.parents]
        tangents = [self._zero if dual is None else dual.tangents for dual in duals]
        if isinstance(node, KernelNode):
            found = self._pushed(node, duals, tangents)
        elif isinstance(node, InputNode):
            found = _always(self._seeds.get(id(node), tangents[0]))
        elif not any(map(_moves, tangents)):
            found = _always(self._zero)
        elif isinstance(node, WriteNode):
            along = zip(*tangents, strict=True)
            found = _always(tuple([pushed_write(node, each, is_last=is_last) for each in along]))
        elif isinstance(node, RuleNode) and node.rule.linear:
            arguments = [without_level(a, self._level) for a in node.arguments]
            along = zip(*tangents, strict=True)
            found = _always(tuple([_pushed_linear(node, arguments, each) for each in along]))
        else:
            found = _pushed_node(node, self._level, tangents)
        self._found[number] = found

    def _pushed(
        self, node: KernelNode, duals: Sequence[Dual | None], tangents: Sequence[Tangents]
    ) -> Callable[[int], Dual]:
        """Record a kernel node on dual chunks if anything that it reads is traced."""
        moving = tuple([i for i, along in enumerate(tangents) if _moves(along)])
        values = [self._argument(node, i, dual, bool(moving)) for i, dual in enumerate(duals)]
        program = node.call.passes[0]
        if program.has_named_loops:
            warn(decided_results(program, program.origin, moving, self._read(node)), node.levels)
        if moving or any(isinstance(value, Tracer) for value in values):
            return _pushed_kernel(node, values, tangents)
        return _always(self._zero)

    def _read(self, node: KernelNode) -> tuple[int, ...]:
        """Return the results of a kernel node on which the outputs of the transform depend."""
        parents = (parent for other in self._trace.nodes for parent in other.parents)
        read = {p.output for p in (*parents, *self._outputs) if p is not None and p.node is node}
        return tuple(sorted({node.outputs[output].result for output in read}))

    def dual(self, origin: Origin) -> Dual:
        """Return the dual of a value; drop it when all its readers have asked."""
        number, output = self._trace.place(origin)
        self._waiting[number] -= 1
        found = self._found[number] if self._waiting[number] else self._found.pop(number)
        return found(output)

    def _is_last(self, node: WriteNode) -> bool:
        """Whether a write is the last to read the tangent of its array, made by another write."""
        array = node.parents[0]
        if array is None or self._level not in array.levels:
            return False
        number, _ = self._trace.place(array)
        return self._waiting[number] == 1 and isinstance(self._trace.nodes[number], WriteNode)

    def _parent(self, parent: Origin | None) -> Dual | None:
        return None if parent is None or self._level not in parent.levels else self.dual(parent)

    def _argument(self, node: KernelNode, index: int, dual: Dual | None, moves: bool) -> Any:
        """Return an argument; one that was pending is the one recorded again.

        If the node `moves`, what is pending elsewhere stays pending: tangents may not need it.
        """
        if dual is not None and dual.value is not None:
            return dual.value
        traced = node.traced_outside(index, self._level)
        if traced is not None:
            return traced
        source = node.source(index)
        if type(source) is not Cell or not (source.kind.weak or (moves and source.pending)):
            return value_of(source)
        # An array would be no Python number any more.
        origin = Origin(InputNode(self._own, None), 0, frozenset((self._own,)))
        return node.tracer_type(source, origin)


def _moves(along: Tangents) -> bool:
    return any(tangent is not None for tangent in along)


def _always(tangents: Tangents) -> Callable[[int], Dual]:
    dual = Dual(None, tangents)
    return lambda output: dual


def _pushed_kernel(
    node: KernelNode, values: Sequence[Any], tangents: Sequence[Tangents]
) -> Callable[[int], Dual]:
    """Record a node's program on dual chunks; return what has the dual of each output."""
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
        value = None if node.is_materialized(output) else summed(primal)
        return Dual(value, tuple(map(summed, partials)))

    return result


@dataclass(frozen=True, eq=False)
class _PushedCall:
    """A call on dual chunks."""

    call: KernelCall
    outputs: tuple[tuple[int, tuple[int | None, ...]], ...]  # where value and tangents are


@lru_cache(maxsize=1024)
def _pushed_call(call: KernelCall, moving: tuple[tuple[int, ...], ...]) -> _PushedCall:
    program = call.passes[0]
    dual = pushforward_along(program, moving)
    shapes: dict[int, Shape] = {}
    for request in call.outputs:
        if program.accumulator(request.result) is not None and request.shape is not None:
            found = dual.outputs[request.result]
            shapes |= dict.fromkeys((found.primal, *found.partials.values()), request.shape)
    outputs = tuple(
        (output.primal, tuple(output.partials.get(k) for k in range(len(moving))))
        for output in dual.outputs
    )
    return _PushedCall(KernelCall.giving(dual.program, shapes), outputs)


def _pushed_linear(node: RuleNode, arguments: Sequence[Any], tangents: Tangents) -> Any:
    """Return the tangent of the value of a linear rule along one direction; None if it is zero."""
    moving = [i for i, tangent in enumerate(tangents) if tangent is not None]
    if not moving:
        return None
    if node.rule.linear == "all":
        pairs = enumerate(zip(arguments, tangents, strict=True))
        given = [_unmoved(node, i, a) if t is None else t for i, (a, t) in pairs]
        return apply_rule(node.rule, *given, **node.static)
    terms = (
        apply_rule(node.rule, *arguments[:i], tangents[i], *arguments[i + 1 :], **node.static)
        for i in moving
    )
    return reduce(add, terms)


def _unmoved(node: RuleNode, index: int, argument: Any) -> Any:
    """Return zeros, the tangent of an argument (perhaps a `Shaped`) that has none.

    Positions stay what they are.
    """
    if index in node.rule.positions:
        return argument
    result = node.results[0]
    xp, shape = result.kind.library.xp, tuple(argument.shape)
    zeros = xp.zeros(shape, dtype=argument.dtype, device=result.device)
    journal = journal_of(frozenset(chain(*[p.levels for p in node.parents if p is not None])))
    if journal is not None:
        journal.know(zeros)
    return zeros


def _pushed_node(
    node: PulledNode | PushedNode, level: Level, tangents: Sequence[Tangents]
) -> Callable[[int], Dual]:
    """Return the result of the node's own pushforward, or of its transposed pullback."""
    pushforward = getattr(node, "pushforward", None)
    if pushforward is None:
        return _transposed(node, level, tangents)
    found = pushforward(zip(*tangents, strict=True), level)
    return lambda output: Dual(None, tuple([each[output] for each in found]))


def _transposed(
    node: PulledNode, level: Level, tangents: Sequence[Tangents]
) -> Callable[[int], Dual]:
    """Return J ẋ, where a node's pullback is g ↦ Jᵀ g: the gradient of ⟨Jᵀ g, ẋ⟩ with respect to g.

    ``tangents`` are those of its parents.
    """
    traced = next(t for along in tangents for t in along if t is not None)
    with Level(level.name) as own:
        sources = [InputNode(own, None) for _ in node.results]
        gs = [
            type(traced)(Cell.of(r.zeros(), own.check), Origin(s, 0, frozenset((own,))))
            for r, s in zip(node.results, sources, strict=True)
        ]
        pulled = node.pullback(gs, level)
    found = []
    for along in zip(*tangents, strict=True):
        seeds = [
            (g.origin, sum_to(tangent, tuple(g.shape)))
            for g, tangent in zip(pulled, along, strict=True)
            if tangent is not None and isinstance(g, Tracer) and own in g.origin.levels
        ]
        found.append(backward(own, seeds, sources))

    def result(output: int) -> Dual:
        shape = node.results[output].shape
        tangents = [f[output] for f in found]
        return Dual(
            None, tuple([None if t is None else broadcast_to(t.value, shape) for t in tangents])
        )

    return result
