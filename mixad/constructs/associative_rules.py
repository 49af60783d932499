"""Reductions and scans as operations, and their derivatives.

Forward mode is the same operation on elements with their tangents, for dual numbers combine
associatively, too. Reverse mode is an operation of its own; its derivatives are those of the steps,
one after another, as a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from mixad.constructs.block_programs import Operator
from mixad.constructs.blocks import Scan, fold, pull_fold
from mixad.constructs.derivatives import or_zeros, pull_back, push_forward
from mixad.constructs.leaves import join_numbers, result_of, split_elements
from mixad.constructs.loops import scan
from mixad.namespace.array import ArrayTracer
from mixad.namespace.joining import concat
from mixad.namespace.manipulation import moveaxis, reshape
from mixad.scalar.build import Builder
from mixad.scalar.pushforward import pushforward_along
from mixad.tape.apply import apply_program
from mixad.tape.body import Body
from mixad.tape.operations import Static
from mixad.tape.tracer import Tracer
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["Reduction", "run_reduction"]


@dataclass(frozen=True)
class Reduction(Static):
    """A reduction or a scan: whether all prefixes are wanted, or the last one."""

    operator: Operator
    is_scan: bool

    @property
    def leaves(self) -> int:
        """How many arrays make up elements."""
        return len(self.operator.cores)

    @property
    def operands(self) -> int:
        """The number of arguments: arrays of elements, and captures of the operator."""
        return self.leaves + self.operator.captured

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "associative_scan" if self.is_scan else "reduce"


def run_reduction(reduction: Reduction, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Run a reduction or a scan, or record it if an argument is traced.

    Arguments are arrays, with elements along their second axis, then the operator's captures. The
    result is the arrays of prefixes, or those of one element.
    """
    if any(isinstance(each, Tracer) for each in arguments):
        found = apply_values_rule(_REDUCTION, *arguments, reduction=reduction)
    else:
        found = _run(None, *arguments, reduction=reduction)
    return found[: reduction.leaves]


def _run(xp: Any, *arguments: Any, reduction: Reduction) -> tuple[Any, ...]:
    """Return the arrays of a result, and the numbers of the combinations of several blocks."""
    operator, count = reduction.operator, reduction.leaves
    leaves, captured = arguments[:count], arguments[count:]
    if reduction.is_scan:
        scanned = Scan.of(operator, leaves, captured)
        return (*scanned.ys, *scanned.totals)
    found, totals = fold(operator, leaves, captured)
    return (*found, *totals)


def _pull(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    *arguments: Any,
    reduction: Reduction,
) -> list[Any]:
    count = reduction.leaves
    seeded = tuple([at for at in reduction.operator.float_leaves if gs[at] is not None])
    captured = tuple([at for at, is_wanted in enumerate(wanted[count:]) if is_wanted])
    pullback = _Pullback(reduction, seeded, captured)
    kept = values if reduction.is_scan else values[count:]
    seeds = [gs[at] for at in seeded]
    found = apply_values_rule(_PULLBACK, *arguments, *kept, *seeds, pullback=pullback)
    cotangents = dict(zip(pullback.active, found, strict=True))
    return [cotangents[at] if is_wanted else None for at, is_wanted in enumerate(wanted)]


def _push(
    tangents: Sequence[Any], values: Sequence[Any], *arguments: Any, reduction: Reduction
) -> list[Any]:
    count, floats = reduction.leaves, reduction.operator.float_leaves
    moving = tuple([at for at, t in enumerate(tangents[count:]) if t is not None])
    along = [or_zeros(tangents[at], result_of(arguments[at])) for at in floats]
    dual = Reduction(_dual(reduction.operator, moving), reduction.is_scan)
    of_captured = [tangents[count + at] for at in moving]
    found = run_reduction(dual, [*arguments[:count], *along, *arguments[count:], *of_captured])[
        count:
    ]
    own = dict(zip(floats, found, strict=True))
    return [own.get(at) for at in range(len(values))]


@lru_cache(maxsize=256)
def _dual(operator: Operator, moving: tuple[int, ...]) -> Operator:
    """Return the operator of elements with tangents, which captured values may have, too."""
    program, size, floats = operator.program, operator.size, operator.floats
    along = [*floats, *[size + n for n in floats], *[2 * size + at for at in moving]]
    dual, b, params = pushforward_along(program, [along]), Builder(program.name), program.params
    tangents = dual.program.params[len(params) :]

    def element(first: int, tangent: int) -> tuple[list[Any], list[Any]]:
        own = list(b.copy_params(params[first : first + size]).values())
        return own, list(b.copy_params(tangents[tangent : tangent + len(floats)]).values())

    (one, of_one), (other, of_other) = element(0, 0), element(size, len(floats))
    captured = list(b.copy_params(params[2 * size :]).values())
    of_captured = list(b.copy_params(tangents[2 * len(floats) :]).values())
    found = b.inline(dual.program, [*one, *other, *captured, *of_one, *of_other, *of_captured])
    outputs = [found[out.primal] for out in dual.outputs]
    for n in floats:
        at = dual.outputs[n].partials.get(0)
        outputs.append(b.const(0, operator.types[n]) if at is None else found[at])
    cores = (*operator.cores, *[operator.cores[leaf] for leaf in operator.float_leaves])
    return Operator(b.finish(outputs), cores)


_REDUCTION = ValuesRule(
    "a reduction", _run, _pull, reads=range(1 << 30), fresh=True, is_total=True, tangents=_push
)


# -- the pullback, and its derivatives -------------------------------------------------------------


@dataclass(frozen=True)
class _Pullback(Static):
    """The pullback of a reduction or a scan.

    It maps the reduction's arguments, its results, and the cotangents of the ``seeded`` arrays to
    the cotangents of float arrays and of the ``wanted`` captured values.
    """

    reduction: Reduction
    seeded: tuple[int, ...]
    wanted: tuple[int, ...]

    @property
    def active(self) -> list[int]:
        """The positions of the arguments that have cotangents."""
        reduction = self.reduction
        return [*reduction.operator.float_leaves, *[reduction.leaves + at for at in self.wanted]]

    def seeds(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the cotangent of each result array of the reduction, None for zero."""
        seeds = arguments[len(arguments) - len(self.seeded) :]
        given = dict(zip(self.seeded, seeds, strict=True))
        return [given.get(at) for at in range(self.reduction.leaves)]


def _run_pullback(xp: Any, *arguments: Any, pullback: _Pullback) -> tuple[Any, ...]:
    reduction, wanted = pullback.reduction, pullback.wanted
    operator, count, end = reduction.operator, reduction.leaves, reduction.operands
    leaves, captured = arguments[:count], arguments[count:end]
    kept = arguments[end : len(arguments) - len(pullback.seeded)]
    seeds = pullback.seeds(arguments)
    likes = kept if reduction.is_scan else [leaf[:, :1, ...] for leaf in leaves]
    gs = [
        xp.zeros_like(likes[at]) if seeds[at] is None else seeds[at] for at in operator.float_leaves
    ]
    if reduction.is_scan:
        return tuple(Scan(operator, leaves, captured, kept[:count], kept[count:]).pull(gs, wanted))
    return tuple(pull_fold(operator, leaves, captured, kept, gs, wanted))


def _pull_steps(pullback: _Pullback, *arguments: Any) -> list[Any]:
    """Return the results of a pullback of operands and cotangents, by a loop."""
    reduction = pullback.reduction
    operands = arguments[: reduction.operands]
    steps = Body(reduction.name, partial(_take_steps, reduction), [], ArrayTracer)
    found = pull_back(steps, operands, pullback.active, pullback.seeds(arguments))
    pairs = zip(pullback.active, found, strict=True)
    return [or_zeros(each, result_of(operands[at])) for at, each in pairs]


def _take_steps(reduction: Reduction, *operands: Any) -> list[Any]:
    """Return the results of a reduction, by a loop."""
    operator, count = reduction.operator, reduction.leaves
    leaves, captured = operands[:count], operands[count:]
    elements = split_elements(operator, dict(enumerate(leaves)))
    numbers = [moveaxis(number, 1, 0) for number in elements]

    def step(total: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[Any, Any]:
        found = apply_program(operator.program, [*total, *x, *captured])
        return found, found if reduction.is_scan else None

    first = tuple([number[0, ...] for number in numbers])
    last, ys = scan(step, first, tuple([number[1:, ...] for number in numbers]))
    if not reduction.is_scan:
        return join_numbers(operator, [reshape(y, (y.shape[0], 1, y.shape[1])) for y in last])
    whole = [
        concat([reshape(one, (1, *one.shape)), rest], axis=0)
        for one, rest in zip(first, ys, strict=True)
    ]
    return join_numbers(operator, [moveaxis(y, 0, 1) for y in whole])


def _pull_pullback(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    *arguments: Any,
    pullback: _Pullback,
) -> list[Any]:
    body, operands, places = _second(arguments, pullback)
    active = [n for n, at in enumerate(places) if wanted[at]]
    found = pull_back(body, operands, active, gs)
    cotangents = {
        places[n]: or_zeros(each, result_of(operands[n]))
        for n, each in zip(active, found, strict=True)
    }
    return [cotangents.get(at) for at in range(len(arguments))]


def _push_pullback(
    tangents: Sequence[Any], values: Sequence[Any], *arguments: Any, pullback: _Pullback
) -> list[Any]:
    body, operands, places = _second(arguments, pullback)
    active = [n for n, at in enumerate(places) if tangents[at] is not None]
    return push_forward(body, operands, active, [tangents[places[n]] for n in active])[1]


def _second(arguments: Sequence[Any], pullback: _Pullback) -> tuple[Body, list[Any], list[int]]:
    """Return the pullback as a function of what it depends on, and where that is among arguments.

    It computes the reduction's results from the elements again.
    """
    count = len(arguments)
    places = [*range(pullback.reduction.operands), *range(count - len(pullback.seeded), count)]
    body = Body(pullback.reduction.name, partial(_pull_steps, pullback), [], ArrayTracer)
    return body, [arguments[at] for at in places], places


_PULLBACK = ValuesRule(
    "the pullback of a reduction",
    _run_pullback,
    _pull_pullback,
    reads=range(1 << 30),
    fresh=True,
    is_total=True,
    tangents=_push_pullback,
)
