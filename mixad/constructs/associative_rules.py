"""Reductions and scans as operations, and what differentiates them.

Forward mode is the same operation on elements with their tangents, for dual numbers combine
associatively, too.  Reverse mode is an operation of its own; its derivatives are those of the
steps, one after another, as a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mixad.constructs.derivatives import or_zeros, pull_back, push_forward
from mixad.constructs.leaves import join_numbers, result_of, split_elements
from mixad.constructs.loops import scan
from mixad.constructs.run_programs import Operator
from mixad.constructs.runs import pull_fold, pull_scan, run_fold, run_scan
from mixad.namespace.array import ArrayTracer
from mixad.namespace.joining import concat
from mixad.namespace.manipulation import moveaxis, reshape
from mixad.scalar.build import Builder
from mixad.scalar.pushforward import pushforward_along
from mixad.tape.apply import apply_program
from mixad.tape.body import Body
from mixad.tape.operations import Static
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["Reduction", "run_reduction"]


@dataclass(frozen=True)
class Reduction(Static):
    """A reduction or a scan.

    Attributes
    ----------
    operator : Operator
        What combines elements.
    is_scan : bool
        Whether all prefixes are wanted, or the last one.
    """

    operator: Operator
    is_scan: bool

    @property
    def leaves(self) -> int:
        """How many arrays make up elements."""
        return len(self.operator.cores)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return "associative_scan" if self.is_scan else "reduce"

    def wanted(self, active: Sequence[int]) -> tuple[int, ...]:
        """Return which captured values are among arguments."""
        return tuple([at - self.leaves for at in active if at >= self.leaves])


def run_reduction(reduction: Reduction, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Run a reduction or a scan, or record it if an argument is traced.

    Parameters
    ----------
    reduction : Reduction
        What to do.
    arguments : sequence of array or Tracer
        The arrays of elements, along whose second axis these are; and what the operator captures.

    Returns
    -------
    tuple of (array or Tracer)
        Of a scan the arrays of prefixes, else those of one element.
    """
    return apply_values_rule(_REDUCTION, *arguments, reduction=reduction)[: reduction.leaves]


def _run(xp: Any, *arguments: Any, reduction: Reduction) -> tuple[Any, ...]:
    count, run = reduction.leaves, run_scan if reduction.is_scan else run_fold
    found, totals = run(reduction.operator, arguments[:count], arguments[count:])
    return (*found, *totals)


def _pull(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    *arguments: Any,
    reduction: Reduction,
) -> list[Any]:
    operator, count = reduction.operator, reduction.leaves
    floats = operator.float_leaves
    seeded = tuple([at for at in floats if gs[at] is not None])
    captured = tuple([at for at, is_wanted in enumerate(wanted[count:]) if is_wanted])
    ys = values if reduction.is_scan else values[count:]
    found = apply_values_rule(
        _PULLBACK,
        *arguments,
        *ys,
        *[gs[at] for at in seeded],
        reduction=reduction,
        seeded=seeded,
        wanted=captured,
    )
    places = [*floats, *[count + at for at in captured]]
    cotangents = dict(zip(places, found, strict=True))
    return [cotangents[at] if is_wanted else None for at, is_wanted in enumerate(wanted)]


def _push(
    tangents: Sequence[Any], values: Sequence[Any], *arguments: Any, reduction: Reduction
) -> list[Any]:
    operator, count = reduction.operator, reduction.leaves
    floats = operator.float_leaves
    moving = tuple([at for at, t in enumerate(tangents[count:]) if t is not None])
    along = [or_zeros(tangents[at], result_of(arguments[at])) for at in floats]
    dual = Reduction(_dual(operator, moving), reduction.is_scan)
    given = [
        *arguments[:count],
        *along,
        *arguments[count:],
        *[tangents[count + at] for at in moving],
    ]
    found = dict(zip(floats, run_reduction(dual, given)[count:], strict=True))
    return [found.get(at) for at in range(len(values))]


@lru_cache(maxsize=256)
def _dual(operator: Operator, moving: tuple[int, ...]) -> Operator:
    """Return the operator of elements with their tangents; some captured values have one, too."""
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


def _run_pullback(
    xp: Any,
    *arguments: Any,
    reduction: Reduction,
    seeded: tuple[int, ...],
    wanted: tuple[int, ...],
) -> tuple[Any, ...]:
    operator, count = reduction.operator, reduction.leaves
    leaves, captured, values, gs = _split(arguments, reduction, seeded)
    given = dict(zip(seeded, gs, strict=True))
    shapes = values if reduction.is_scan else [leaf[:, :1, ...] for leaf in leaves]
    of_values = [
        given[at] if at in given else xp.zeros_like(shapes[at]) for at in operator.float_leaves
    ]
    if reduction.is_scan:
        ys, totals = values[:count], values[count:]
        return tuple(pull_scan(operator, leaves, ys, totals, of_values, captured, wanted))
    return tuple(pull_fold(operator, leaves, values, of_values, captured, wanted))


def _split(
    arguments: Sequence[Any], reduction: Reduction, seeded: tuple[int, ...]
) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Return leaves, captured values, what the reduction gave, and cotangents."""
    first = reduction.leaves + reduction.operator.captured
    last = len(arguments) - len(seeded)
    return (
        list(arguments[: reduction.leaves]),
        list(arguments[reduction.leaves : first]),
        list(arguments[first:last]),
        list(arguments[last:]),
    )


def _step_by_step(
    reduction: Reduction, seeded: tuple[int, ...], wanted: tuple[int, ...]
) -> Callable[..., list[Any]]:
    """Return the pullback as a function of leaves, captured values and cotangents, by a loop."""
    count = reduction.leaves
    active = [*reduction.operator.float_leaves, *[count + at for at in wanted]]

    def compute(*arguments: Any) -> list[Any]:
        last = len(arguments) - len(seeded)
        operands, gs = arguments[:last], arguments[last:]
        given = dict(zip(seeded, gs, strict=True))
        steps = Body(reduction.name, _steps_of(reduction), [], ArrayTracer)
        found = pull_back(steps, operands, active, [given.get(at) for at in range(count)])
        pairs = zip(active, found, strict=True)
        return [or_zeros(each, result_of(operands[at])) for at, each in pairs]

    return compute


def _steps_of(reduction: Reduction) -> Callable[..., list[Any]]:
    """Return a reduction as a function of leaves and captured values, by a loop."""
    operator, count = reduction.operator, reduction.leaves

    def compute(*operands: Any) -> list[Any]:
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

    return compute


def _pull_pullback(
    gs: Sequence[Any],
    is_wanted: Sequence[bool],
    values: Sequence[Any],
    *arguments: Any,
    reduction: Reduction,
    seeded: tuple[int, ...],
    wanted: tuple[int, ...],
) -> list[Any]:
    body, operands, places = _second(arguments, reduction, seeded, wanted)
    active = [n for n, at in enumerate(places) if is_wanted[at]]
    found = pull_back(body, operands, active, gs)
    cotangents = {
        places[n]: or_zeros(each, result_of(operands[n]))
        for n, each in zip(active, found, strict=True)
    }
    return [cotangents.get(at) for at in range(len(arguments))]


def _push_pullback(
    tangents: Sequence[Any],
    values: Sequence[Any],
    *arguments: Any,
    reduction: Reduction,
    seeded: tuple[int, ...],
    wanted: tuple[int, ...],
) -> list[Any]:
    body, operands, places = _second(arguments, reduction, seeded, wanted)
    active = [n for n, at in enumerate(places) if tangents[at] is not None]
    return push_forward(body, operands, active, [tangents[places[n]] for n in active])[1]


def _second(
    arguments: Sequence[Any], reduction: Reduction, seeded: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[Body, list[Any], list[int]]:
    """Return the pullback as a function of what it depends on, and where that is among arguments.

    What the reduction gave is computed from its elements there.
    """
    first = reduction.leaves + reduction.operator.captured
    places = [*range(first), *range(len(arguments) - len(seeded), len(arguments))]
    body = Body(reduction.name, _step_by_step(reduction, seeded, wanted), [], ArrayTracer)
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
