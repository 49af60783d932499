"""One of several functions, chosen by an element that is unknown, as one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixad.backends.arrays import as_array, library_of
from mixad.constructs.derivatives import or_zeros, pull_back, push_forward
from mixad.constructs.leaves import result_of
from mixad.constructs.loop import Step
from mixad.tape.body import Body
from mixad.tape.node import Result
from mixad.tape.operations import Static
from mixad.tape.registers import as_register, of_register, own_array
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["Switch", "run_switch"]


@dataclass(frozen=True)
class Switch(Static):
    """Functions to choose from: each takes the operands and its own captures; results are alike."""

    bodies: tuple[Body, ...]
    operands: int  # how many
    captured: tuple[int, ...]  # how many values each body captures

    def places(self, branch: int) -> list[int]:
        """Return the positions of a body's arguments after the index."""
        first = self.operands + sum(self.captured[:branch])
        return [*range(self.operands), *range(first, first + self.captured[branch])]


def run_switch(switch: Switch, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Run the chosen function, or record the choice if an argument is traced.

    Arguments are the index, or whether the second function is meant; operands; each function's
    captures.
    """
    return apply_values_rule(_SWITCH, *arguments, switch=switch)


def _run(xp: Any, index: Any, *arguments: Any, switch: Switch) -> tuple[Any, ...]:
    branch = min(max(int(index), 0), len(switch.bodies) - 1)
    library = library_of(index)
    given = [as_register(as_array(arguments[at])) for at in switch.places(branch)]
    found = Step(switch.bodies[branch], library)(given)
    return tuple([of_register(library, own_array(each, tuple(each.shape))) for each in found])


def _alike(xp: Any, index: Any, *arguments: Any, switch: Switch) -> tuple[Any, ...]:
    return tuple([result.zeros() for result in switch.bodies[0].results])


def _pull(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    index: Any,
    *arguments: Any,
    switch: Switch,
) -> list[Any]:
    active = tuple([at for at, is_wanted in enumerate(wanted[1:]) if is_wanted])
    seeded = tuple([at for at, g in enumerate(gs) if g is not None])
    results = [result_of(arguments[at]) for at in active]

    def derived(branch: int) -> Body:
        body, places = switch.bodies[branch], switch.places(branch)
        own = [at for at in active if at in places]
        key = "pullback of a choice", switch, branch, active, seeded
        known = body.derived.get(key)

        def compute(*inputs: Any) -> list[Any]:
            count, end = switch.operands, switch.operands + len(seeded)
            of_results = dict(zip(seeded, inputs[count:end], strict=True))
            operands = [*inputs[:count], *inputs[end:]]
            given = [of_results.get(at) for at in range(len(body.results))]
            found = pull_back(body, operands, [places.index(at) for at in own], given)
            cotangents = dict(zip(own, found, strict=True))
            pairs = zip(active, results, strict=True)
            return [or_zeros(cotangents.get(at), result) for at, result in pairs]

        return known or body.derived.setdefault(key, Body(body.name, compute, results, body.kind))

    found = iter(_run_derived(switch, derived, index, arguments, [gs[at] for at in seeded]))
    return [next(found) if is_wanted else None for is_wanted in wanted]


def _push(
    tangents: Sequence[Any], values: Sequence[Any], index: Any, *arguments: Any, switch: Switch
) -> list[Any]:
    moving = tuple([at for at, t in enumerate(tangents[1:]) if t is not None])
    results = switch.bodies[0].results
    floats = [at for at, result in enumerate(results) if result.kind.type.is_inexact]

    def derived(branch: int) -> Body:
        body, places = switch.bodies[branch], switch.places(branch)
        own = [number for number, at in enumerate(moving) if at in places]
        key = "pushforward of a choice", switch, branch, moving
        known = body.derived.get(key)

        def compute(*inputs: Any) -> list[Any]:
            count, end = switch.operands, switch.operands + len(moving)
            along, operands = inputs[count:end], [*inputs[:count], *inputs[end:]]
            active = [places.index(moving[number]) for number in own]
            _, found = push_forward(body, operands, active, [along[number] for number in own])
            return [or_zeros(found[at], results[at]) for at in floats]

        made: list[Result] = [results[at] for at in floats]
        return known or body.derived.setdefault(key, Body(body.name, compute, made, body.kind))

    along = [tangents[1 + at] for at in moving]
    found = dict(zip(floats, _run_derived(switch, derived, index, arguments, along), strict=True))
    return [found.get(at) for at in range(len(results))]


def _run_derived(
    switch: Switch, derived: Any, index: Any, arguments: Sequence[Any], further: Sequence[Any]
) -> tuple[Any, ...]:
    """Run the choice of derivatives, which take further operands."""
    bodies = tuple([derived(branch) for branch in range(len(switch.bodies))])
    if not bodies[0].results:
        return ()
    count = switch.operands
    choice = Switch(bodies, count + len(further), switch.captured)
    return run_switch(choice, [index, *arguments[:count], *further, *arguments[count:]])


_SWITCH = ValuesRule(
    "a choice", _run, _pull, reads=range(1 << 30), is_total=True, alike=_alike, tangents=_push
)
