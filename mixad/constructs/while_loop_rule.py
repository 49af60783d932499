"""A loop that runs for as long as a predicate holds, as one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mixad.backends.arrays import as_array, library_of
from mixad.constructs.loop import Loop, Step, cotangents_of, packed, tangents_of
from mixad.constructs.recorded_body import LoggedBody
from mixad.tape.body import Body
from mixad.tape.native_steps import NativeSteps, Track
from mixad.tape.operations import Static
from mixad.tape.registers import as_register, of_register, own_array
from mixad.tape.step_order import order_steps
from mixad.tape.tracer import primal_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["WhileLoop", "run_while_loop"]

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class WhileLoop(Static):
    """A loop whose number of steps depends on elements; the test says whether there is another.

    Test and body take the carries and their own captures; the body returns the next carries.
    """

    test: Body
    body: Body
    carries: int  # how many
    tests: int  # how many values the test captures
    room: int  # as of a Loop, as the next
    logged: LoggedBody | None

    def split(self, arguments: Sequence[_Item]) -> tuple[list[_Item], list[_Item], list[_Item]]:
        """Return carries, and the captures of the test and of the body."""
        end = self.carries + self.tests
        return (
            list(arguments[: self.carries]),
            list(arguments[self.carries : end]),
            list(arguments[end:]),
        )

    def describe(self, values: Sequence[Any]) -> str:
        """Return what the test does, and the steps that were taken."""
        return f"test of {self.test.describe_step()}; {self.steps(values[-1]).describe(values)}"

    def steps(self, count: Any) -> Loop:
        """Return the loop over the steps that were taken."""
        length = int(primal_value(count))
        return Loop(self.body, self.carries, 0, length, False, (), False, self.room, self.logged)


def run_while_loop(loop: WhileLoop, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Run a loop, or record it if an argument is traced.

    Arguments are carries, the test's captures and the body's; results are the last carries, and the
    number of steps.
    """
    return apply_values_rule(_WHILE_LOOP, *arguments, loop=loop)


def _run(xp: Any, *arguments: Any, loop: WhileLoop) -> tuple[Any, ...]:
    library = library_of(arguments[0])
    carries, tested, captured = loop.split([as_register(as_array(each)) for each in arguments])
    carries, tested, captured = [list(map(packed, each)) for each in (carries, tested, captured)]
    test, step = Step(loop.test, library), Step(loop.body, library)
    begins = bool(test([*carries, *tested])[0])
    found = _run_natively(test, step, carries, tested, captured) if begins else None
    if found is None:
        count = 0
        while begins and bool(test([*carries, *tested])[0]):
            carries, count = step([*carries, *captured]), count + 1
        found = [own_array(carry, tuple(carry.shape)) for carry in carries], count
    last, count = found
    return tuple([of_register(library, each) for each in (*last, np.asarray(count))])


def _run_natively(
    test: Step,
    step: Step,
    carries: Sequence[Any],
    tested: Sequence[Any],
    captured: Sequence[Any],
) -> tuple[list[Any], int] | None:
    """Return the last carries and the number of steps; None if Python has to take these."""
    tests, body = test.native_plan([*carries, *tested]), step.native_plan([*carries, *captured])
    if tests is None or body is None:
        return None
    assert tests.natives is not None
    assert body.natives is not None
    tested_first = order_steps(tests.natives, tests.values, ())
    order = order_steps(body.natives, body.values, range(len(carries)))
    pairs = [
        (one, one if number in order.staying else np.empty_like(one))
        for number, one in enumerate([carry.copy() for carry in carries])
    ]
    now = [Track.between(one, other) for one, other in pairs]
    then = [Track.between(other, one) for one, other in pairs]
    steps, flag = NativeSteps(), np.zeros((), bool)
    if not steps.add(tests, tested_first, [*now, *map(Track.of, tested)], [Track.of(flag)], tested):
        return None
    before = len(steps.blocks)
    if not steps.add(body, order, [*now, *map(Track.of, captured)], then, captured):
        return None
    count = steps.take(None, Track.of(flag).address, before)
    if steps.has_failed:
        return None
    return [pair[count % 2] for pair in pairs], count


def _alike(xp: Any, *arguments: Any, loop: WhileLoop) -> tuple[Any, ...]:
    library = library_of(arguments[0])
    found = [result.zeros() for result in loop.body.results]
    return (*found, of_register(library, np.asarray(0)))


def _pull(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    *arguments: Any,
    loop: WhileLoop,
) -> list[Any]:
    steps = loop.steps(values[-1])
    carries, tested, captured = loop.split(arguments)
    of_carries, _, of_captured = loop.split(list(wanted))
    wanted = [*of_carries, *of_captured]
    found = cotangents_of(gs[:-1], wanted, values[:-1], *carries, *captured, loop=steps)
    return [*found[: loop.carries], *[None] * len(tested), *found[loop.carries :]]


def _push(
    tangents: Sequence[Any], values: Sequence[Any], *arguments: Any, loop: WhileLoop
) -> list[Any]:
    carries, _, captured = loop.split(arguments)
    of_carries, _, of_captured = loop.split(list(tangents))
    steps = loop.steps(values[-1])
    along = [*of_carries, *of_captured]
    return [*tangents_of(along, values[:-1], *carries, *captured, loop=steps), None]


_WHILE_LOOP = ValuesRule(
    "a loop", _run, _pull, reads=range(1 << 30), is_total=True, alike=_alike, tangents=_push
)
