"""A loop over the steps of a body as one operation: how it runs, and how it is differentiated.

The pullback of a loop is a loop again: over the pullback of the body, from the last step to the
first, with the carries that each step began with.  So is its pushforward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mixad.backends.array_memory import packed_strides
from mixad.backends.arrays import NUMPY, Library, as_array, strides_of
from mixad.constructs.derivatives import or_zeros, pull_back, push_forward
from mixad.constructs.leaves import result_of
from mixad.constructs.recorded_body import LoggedBody
from mixad.constructs.schedule import Schedule
from mixad.errors import TracerError
from mixad.namespace.indexing import part_along, written_at
from mixad.namespace.joining import concat
from mixad.tape.body import Body
from mixad.tape.native_steps import NativeSteps, Track
from mixad.tape.node import Result, added, common_library, mixture
from mixad.tape.operations import Static
from mixad.tape.plan import Plan
from mixad.tape.registers import as_register, of_register, own_array
from mixad.tape.step_order import order_steps
from mixad.tape.tracer import Tracer, journal_of
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["Loop", "Step", "cotangents_of", "needs_of", "packed", "run_loop", "tangents_of"]

_Item = TypeVar("_Item")

_FEW = 4
"""Steps that are laid out in memory; fewer run as quickly from Python."""


class Needs(NamedTuple):
    """Carries that the pullback of a step reads: as they are kept, or found by undoing writes."""

    kept: tuple[int, ...]
    undone: tuple[int, ...]


@dataclass(frozen=True)
class Loop(Static):
    """A loop over steps of a body of carries, one of each of ``xs``, and captures.

    The body returns the next carries, then one of each of ``ys``. `kept` are the carries whose
    values at the begin of each step are results, after all others; with `is_alone` the only ones,
    and the last step is not taken. `room` is the number of carries that a derivative may store
    beside those of the step it takes back; below 2 it is 0: then no loop of more than a step has a
    derivative that reads all of them.
    """

    body: Body
    carries: int
    xs: int  # how many arrays the steps slice along the first axis
    length: int  # number of steps
    reverse: bool  # from the last slices of xs and ys to the first
    kept: tuple[int, ...]
    is_alone: bool
    room: int
    logged: LoggedBody | None = None  # takes the body's place if a derivative needs it

    def split(self, arguments: Sequence[_Item]) -> tuple[list[_Item], list[_Item], list[_Item]]:
        """Return carries, ``xs`` and captures of the body."""
        end = self.carries + self.xs
        return (
            list(arguments[: self.carries]),
            list(arguments[self.carries : end]),
            list(arguments[end:]),
        )

    def split_values(self, values: Sequence[_Item]) -> tuple[list[_Item], list[_Item], list[_Item]]:
        """Return the last carries, ``ys``, and the carries that are kept."""
        if self.is_alone:
            return [], [], list(values)
        count = len(self.body.results)
        return (
            list(values[: self.carries]),
            list(values[self.carries : count]),
            list(values[count:]),
        )

    def describe(self, values: Sequence[Any]) -> str:
        """Return the number of steps, what each does, and how they are taken back."""
        steps = f"{self.length} step{'s' * (self.length != 1)} of {self.body.describe_step()}"
        if self.kept or self.length <= self.room + 1:
            return f"{steps}; all carries are kept, no step runs again"
        if not self.room:
            return f"{steps}; there is no room for two carries, and so no derivative"
        again = Schedule(self.room).steps_again(self.length)
        return f"{steps}; {self.room + 1} carries are kept, {again} steps run again"

    def needs(self, read: Iterable[int]) -> Needs:
        """Return what a pullback needs that reads some carries."""
        writes = dict(self.logged.writes) if self.logged else {}
        undone = tuple([at for at in read if at in writes])
        return Needs(tuple([at for at in read if at not in undone]), undone)

    def keeping(self, needs: Needs) -> Loop:
        """Return the loop whose values have what a pullback needs."""
        if not needs.undone:
            return replace(self, kept=needs.kept)
        assert self.logged is not None
        return replace(self, body=self.logged.body, kept=needs.kept)

    def keeps(self, needs: Needs) -> bool:
        """Whether the values have what a pullback needs."""
        has_logs = self.logged is not None and self.body is self.logged.body
        return set(self.kept) >= set(needs.kept) and (has_logs or not needs.undone)

    def has_room(self, steps: int, needs: Needs, room: int) -> bool:
        """Whether what is needed of so many steps has room where so many carries have.

        There is room for those of the step that is taken back in any case.
        """
        sizes = [result.nbytes for result in self.body.results[: self.carries]]
        kept = [sizes[at] for at in needs.kept]
        if needs.undone and self.logged is not None:
            results = self.logged.body.results[self.carries :]
            kept += [results[at].nbytes for at in self.logs(needs.undone)]
        return steps * sum(kept) <= (room + 1) * sum(sizes)

    def logs(self, carries: Iterable[int]) -> list[int]:
        """Return the ``ys`` that undo the writes to some carries: old elements, then positions."""
        writes = dict(self.logged.writes) if self.logged else {}
        return [at - self.carries for carry in carries for at in writes[carry]]

    @property
    def moving(self) -> list[int]:
        """The positions of the carries that have derivatives."""
        results = self.body.results[: self.carries]
        return [at for at, result in enumerate(results) if result.kind.type.is_inexact]

    @property
    def steps(self) -> range:
        """The order of the slices."""
        return range(self.length - 1, -1, -1) if self.reverse else range(self.length)

    @property
    def ys(self) -> tuple[Result, ...]:
        """The results of each step beside carries."""
        return self.body.results[self.carries :]

    def part(self, first: int, last: int) -> Loop:
        """Return the loop over some of its steps, which keeps nothing."""
        return replace(self, length=last - first, kept=())

    def parts_of(self, xs: Iterable[Any], first: int, last: int) -> list[Any]:
        """Return the slices of ``xs`` that steps of the loop take."""
        if last - first == self.length:
            return list(xs)
        if self.reverse:
            first, last = self.length - last, self.length - first
        return [part_along(x, 0, first, last) for x in xs]


def run_loop(loop: Loop, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Run a loop, or record it if an argument is traced.

    Arguments are carries, ``xs``, and captures; results are the last carries, ``ys``, and the
    carries that are kept.
    """
    if not any(isinstance(each, Tracer) for each in arguments):
        return _run(None, *arguments, loop=loop)
    return apply_values_rule(_LOOP, *arguments, loop=loop)


# -- running ---------------------------------------------------------------------------------------


class Step:
    """Computes one step: by a plan of the body, or by its operations one by one."""

    def __init__(self, body: Body, library: Library) -> None:
        self._body = body
        self._library = library
        self._plan: Plan | None = None
        self._is_first = True

    def native_plan(self, registers: Sequence[Any]) -> Plan | None:
        """Return the plan for the contents of registers, if a backend runs it by itself."""
        self._plan = plan = self._body.plan(registers, self._library)
        return None if plan is None or plan.natives is None or plan.decided else plan

    def __call__(self, registers: list[Any]) -> list[Any]:
        """Return the results for the contents of registers."""
        is_first, self._is_first = self._is_first, False
        if is_first:
            self._plan = self._body.plan(registers, self._library)
        if self._plan is None:
            given = [of_register(self._library, each) for each in registers]
            values = list(map(as_array, self._body.compute(*given)))
            self._body.check(values)
            found = map(as_register, values)
        else:
            found = map(as_array, self._plan.run(registers, (), warns=is_first)[0])
        return list(map(packed, found))


def _run(xp: Any, *arguments: Any, loop: Loop) -> tuple[Any, ...]:
    """Run a loop over arrays."""
    own = library = loop.body.results[0].kind.library
    if arguments:
        library = common_library("a loop of steps", arguments)
    if library.is_lazy and not own.is_lazy:
        raise mixture("a loop of steps", library, own)
    registers = [packed(as_register(as_array(each))) for each in arguments]
    found = _Memory(loop)
    carries, xs, captured = loop.split(registers)
    step = Step(loop.body, library)
    first = [*carries, *[x[loop.steps[0], ...] for x in xs], *captured] if loop.length else None
    plan = step.native_plan(first) if first is not None and loop.length >= _FEW else None
    if plan is None or not _run_natively(loop, plan, carries, xs, captured, found):
        _run_by_python(loop, step, carries, xs, captured, found)
    values = found.kept if loop.is_alone else (*found.last, *found.ys, *found.kept)
    return tuple([of_register(library, each) for each in values])


class _Memory:
    """What a loop leaves: the last carries, and arrays of its steps' results.

    The whole array of a carry that is kept also has the one after the last step.
    """

    def __init__(self, loop: Loop) -> None:
        results = loop.body.results
        self.last: list[Any] = []
        self.ys = [] if loop.is_alone else [_stacked(r, loop.length) for r in loop.ys]
        self.wholes = [_stacked(results[at], loop.length + 1) for at in loop.kept]
        part = (slice(1, None), ...) if loop.reverse else (slice(-1), ...)
        self.kept = [whole[part] for whole in self.wholes]


def _run_by_python(
    loop: Loop,
    step: Step,
    carries: list[Any],
    xs: Sequence[Any],
    captured: Sequence[Any],
    found: _Memory,
) -> None:
    """Take the steps of a loop one by one."""
    for at in loop.steps:
        for whole, kept in zip(found.kept, loop.kept, strict=True):
            whole[at, ...] = carries[kept]
        if loop.is_alone and at == loop.steps[-1]:
            break
        made = step([*carries, *[x[at, ...] for x in xs], *captured])
        carries = made[: loop.carries]
        for whole, part in zip(found.ys, made[loop.carries :], strict=bool(found.ys)):
            whole[at, ...] = part
    found.last = list(map(_own, carries))


def _run_natively(
    loop: Loop,
    plan: Plan,
    carries: Sequence[Any],
    xs: Sequence[Any],
    captured: Sequence[Any],
    found: _Memory,
) -> bool:
    """Take the steps of a loop without Python between them; return whether that was possible."""
    first, by = loop.steps[0], loop.steps.step
    count, wholes = loop.length - loop.is_alone, dict(zip(loop.kept, found.wholes, strict=True))
    begin, end = (loop.length, 0) if loop.reverse else (0, loop.length)
    inputs, outputs, last = list[Track](), list[Track](), list[Any]()
    assert plan.natives is not None
    free = [number for number in range(loop.carries) if number not in wholes]
    steps, order = NativeSteps(), order_steps(plan.natives, plan.values, free)
    for number, carry in enumerate(carries):
        whole = wholes.get(number)
        if number in order.staying:
            steps.memory.append(carry.copy())
            last.append(steps.memory[-1])
            inputs.append(Track.of(last[-1]))
            outputs.append(inputs[-1])
        elif whole is not None:
            whole[begin, ...] = carry
            inputs.append(Track.along(whole, begin, by))
            outputs.append(Track.along(whole, begin + by, by))
            last.append(whole[end, ...])
        else:
            pair = carry.copy(), np.empty_like(carry)
            steps.memory += pair
            inputs.append(Track.between(*pair))
            outputs.append(Track.between(*pair[::-1]))
            last.append(pair[count % 2])
    inputs += [Track.along(x, first, by) for x in xs] + list(map(Track.of, captured))
    ys = found.ys or [_stacked(result, 1) for result in loop.ys]
    outputs += [Track.along(y, first, by) if found.ys else Track.of(y) for y in ys]
    if not steps.add(plan, order, inputs, outputs, captured):
        return False
    steps.take(count)
    if steps.has_failed:
        return False
    found.last = list(map(_own, last))
    return True


def packed(register: Any) -> Any:
    """Return an array without gaps, in the order of its axes: all steps have one layout."""
    if type(register) is np.ndarray:
        return register if register.flags.c_contiguous else register.copy()
    if strides_of(register) == packed_strides(register):
        return register
    return own_array(register, tuple(register.shape))


def _own(register: Any) -> Any:
    """Return a copy: a carry may be an argument."""
    is_numpys = type(register) is np.ndarray
    return register.copy() if is_numpys else own_array(register, tuple(register.shape))


def _stacked(result: Result, length: int) -> Any:
    """Return a register for results of all steps."""
    shape, kind = (length, *result.shape), result.kind
    if kind.library is NUMPY or str(result.device) == "cpu":
        return np.empty(shape, kind.type.dtype)
    dtype = kind.library.dtype_of(kind.type)
    return kind.library.xp.empty(shape, dtype=dtype, device=result.device)


def _alike(xp: Any, *arguments: Any, loop: Loop) -> tuple[Any, ...]:
    """Return arrays of the shapes and dtypes of a loop's results."""
    results = loop.body.results
    carries, ys = results[: loop.carries], results[loop.carries :]
    kept = [carries[at] for at in loop.kept]
    found = [] if loop.is_alone else [carry.zeros() for carry in carries]
    side_by_side = kept if loop.is_alone else (*ys, *kept)
    return (*found, *[each.zeros((loop.length, *each.shape)) for each in side_by_side])


# -- reverse mode ----------------------------------------------------------------------------------


def cotangents_of(
    gs: Sequence[Any],
    wanted: Sequence[bool],
    values: Sequence[Any],
    *arguments: Any,
    loop: Loop,
) -> list[Any]:
    """Return the wanted cotangents of a loop's arguments, None for the others."""
    backward = _Backward(loop, wanted, values, gs)
    carries, xs, captured = loop.split(arguments)
    backward.take_back(carries, xs, captured)
    return backward.cotangents(wanted)


class _Asked(NamedTuple):
    """Which results of a step have cotangents, and of which operands these are wanted."""

    ys: tuple[int, ...]
    kept: tuple[int, ...]  # carries whose values at the begin of a step are results
    xs: tuple[int, ...]
    captured: tuple[int, ...]


def needs_of(loop: Loop, xs: Sequence[Any], captured: Sequence[Any]) -> Needs:
    """Return what a pullback of a loop on such arguments needs."""
    ys = [at for at, each in enumerate(loop.ys) if each.kind.type.is_inexact]
    traced = [
        tuple([at for at, v in enumerate(values) if isinstance(v, Tracer) and _is_inexact(v)])
        for values in (xs, captured)
    ]
    return _needs_of(loop, _Asked(tuple(ys), (), *traced), xs, captured)


def _is_inexact(value: Tracer) -> bool:
    return value.kind.type.is_inexact


def _needs_of(loop: Loop, asked: _Asked, xs: Sequence[Any], captured: Sequence[Any]) -> Needs:
    """Return what the pullback of a step needs."""
    carries, results = tuple(range(loop.carries)), loop.body.results
    body = _pullback(loop, asked, Needs(carries, ()), xs, captured)
    sums = [result_of(captured[at]) for at in asked.captured]
    first = len(loop.moving) + len(sums)
    operands = [*[results[at] for at in loop.moving], *sums, *results[: loop.carries]]
    operands += [_part_of(x) for x in xs]
    operands += [loop.ys[at] for at in asked.ys] + [results[at] for at in asked.kept]
    read = body.operands_read([*operands, *map(result_of, captured)])
    return loop.needs([at for at in carries if first + at in read])


def _part_of(x: Any) -> Result:
    """Return the description of what a step takes of an array."""
    return result_of(x)._replace(shape=tuple(x.shape[1:]))


def _pullback(
    loop: Loop,
    asked: _Asked,
    needs: Needs,
    xs: Sequence[Any],
    captured: Sequence[Any],
) -> Body:
    """Return the pullback of one step, which gets what it needs.

    Its operands are cotangents of carries, sums of those of captures, carries after the step whose
    writes it undoes, carries before it, ``xs``, cotangents of ``ys`` and of kept carries, what
    undoes writes, and captures.
    """
    body, key = loop.body, ("pullback", loop.carries, loop.xs, asked, needs)
    known: Body | None = body.derived.get(key)
    if known is not None:
        return known
    n, m, carried = loop.carries, loop.xs, loop.moving
    moving, of_captured = len(carried), [n + m + at for at in asked.captured]
    active = [*carried, *[n + at for at in asked.xs], *of_captured]
    places = [*carried, *[n + at for at in asked.ys]]
    numbers = [carried.index(at) for at in asked.kept]

    def compute(*inputs: Any) -> list[Any]:
        taken = iter(inputs)
        of_carries, sums = _take(taken, moving), _take(taken, len(of_captured))
        after = dict(zip(needs.undone, _take(taken, len(needs.undone)), strict=True))
        kept = dict(zip(needs.kept, _take(taken, len(needs.kept)), strict=True))
        zeros = {at: body.results[at].zeros() for at in range(n) if at not in kept}
        journal = journal_of(frozenset(chain(*[v.levels for v in inputs if isinstance(v, Tracer)])))
        if journal is not None:
            for each in zeros.values():
                journal.know(each)
        operands = [kept[at] if at in kept else zeros[at] for at in range(n)]
        operands += _take(taken, m)
        of_ys, of_kept = _take(taken, len(places) - moving), _take(taken, len(numbers))
        for at, value in after.items():
            logs = _take(taken, len(loop.logs((at,))))
            for old, positions in zip(logs[-2::-2], logs[::-2], strict=True):
                value = written_at(value, old, positions, are_distinct=True)
            operands[at] = after[at] = value
        operands += taken
        gs = dict(zip(places, (*of_carries, *of_ys), strict=True))
        given = [gs.get(k) for k in range(len(body.results))]
        found = pull_back(body, operands, active, given, list(zip(of_captured, sums, strict=True)))
        end = len(found) - len(sums)
        before, of_xs = found[:moving], found[moving:end]
        for number, g in zip(numbers, of_kept, strict=True):
            before[number] = _sum(before[number], g)
        alike = [result_of(operands[at]) for at in active]
        own = [*map(or_zeros, before, alike), *found[end:], *after.values()]
        return [*own, *map(or_zeros, of_xs, alike[moving:])]

    results = [body.results[at] for at in carried]
    results += [result_of(captured[at]) for at in asked.captured]
    results += [body.results[at] for at in needs.undone]
    results += [_part_of(xs[at]) for at in asked.xs]
    return body.derived.setdefault(key, Body(body.name, compute, results, body.kind))


class _Backward:
    """Carries cotangents through the steps of a loop, from the last to the first.

    ``values`` are the loop's results, ``gs`` their cotangents, None for zero.
    """

    def __init__(
        self, loop: Loop, wanted: Sequence[bool], values: Sequence[Any], gs: Sequence[Any]
    ) -> None:
        self._loop = loop
        self._moving, results, self._values = loop.moving, loop.body.results, values
        of_carries, of_ys, of_kept = loop.split_values(gs)
        _, of_xs, of_captured = loop.split(list(wanted))
        kept_given = [at for at, g in enumerate(of_kept) if g is not None]
        self._asked = _Asked(
            tuple([at for at, g in enumerate(of_ys) if g is not None]),
            tuple([loop.kept[at] for at in kept_given]),
            tuple([at for at, is_wanted in enumerate(of_xs) if is_wanted]),
            tuple([at for at, is_wanted in enumerate(of_captured) if is_wanted]),
        )
        last = dict(enumerate(of_carries))
        self._of_carries = [or_zeros(last.get(at), results[at]) for at in self._moving]
        self._of_captured: list[Any] = []
        self._of_ys = [of_ys[at] for at in self._asked.ys]
        self._of_kept = [of_kept[at] for at in kept_given]
        self._of_xs: list[list[Any]] = []

    def take_back(self, carries: Sequence[Any], xs: Sequence[Any], captured: Sequence[Any]) -> None:
        """Carry cotangents back through all steps, of which the first begins with ``carries``.

        Where not all carries are kept, steps run again from those that are.
        """
        loop = self._loop
        needs = _needs_of(loop, self._asked, xs, captured)
        if loop.keeps(needs):
            self._step_back(loop, needs, 0, self._values, xs, captured)
            return
        left = [(0, loop.length, list(carries), loop.room)]
        while left:
            first, last, begun, room = left.pop()
            is_short = loop.has_room(last - first, needs, room)
            if not (is_short or room):
                two = 2 * sum(each.nbytes for each in loop.body.results[: loop.carries])
                raise TracerError(
                    f"mixad.{loop.body.name}: there is no room for two carries, from which the "
                    f"derivative is computed: pass memory={two} or more, or set MIXAD_LOOP_MEMORY"
                )
            middle = last if is_short else first + Schedule(room).advance(last - first)
            part = loop.part(first, middle)
            if is_short:
                part = replace(part.keeping(needs), is_alone=not needs.undone)
            made = run_loop(part, [*begun, *loop.parts_of(xs, first, middle), *captured])
            if is_short:
                self._step_back(part, needs, first, made, xs, captured)
            else:
                left.append((first, middle, begun, room))
                left.append((middle, last, list(made[: loop.carries]), room - 1))

    def _step_back(
        self,
        loop: Loop,
        needs: Needs,
        first: int,
        values: Sequence[Any],
        xs: Sequence[Any],
        captured: Sequence[Any],
    ) -> None:
        """Pull cotangents back through some steps; they are a loop with these values."""
        asked, moving, last = self._asked, len(self._moving), first + loop.length
        if not self._of_captured:
            self._of_captured = [result_of(captured[at]).zeros() for at in asked.captured]
        carries, ys, made = loop.split_values(values)
        kept, after = dict(zip(loop.kept, made, strict=True)), [carries[at] for at in needs.undone]
        parts = [kept[at] for at in needs.kept]
        parts += self._loop.parts_of((*xs, *self._of_ys, *self._of_kept), first, last)
        parts += [ys[at] for at in loop.logs(needs.undone)]
        body = _pullback(loop, asked, needs, xs, captured)
        begun = [*self._of_carries, *self._of_captured, *after]
        reverse, room = not loop.reverse, loop.room
        back = Loop(body, len(begun), len(parts), loop.length, reverse, (), False, room)
        found = run_loop(back, [*begun, *parts, *captured])
        end = moving + len(asked.captured)
        self._of_carries, self._of_captured = list(found[:moving]), list(found[moving:end])
        self._of_xs.append(list(found[len(begun) :]))

    def cotangents(self, wanted: Sequence[bool]) -> list[Any]:
        """Return the cotangents of the arguments, None for those not wanted."""
        loop = self._loop
        of_carries = dict(zip(self._moving, self._of_carries, strict=True))
        pieces = self._of_xs if loop.reverse else self._of_xs[::-1]
        of_xs = dict(zip(self._asked.xs, map(_joined, zip(*pieces, strict=True)), strict=True))
        of_captured = dict(zip(self._asked.captured, self._of_captured, strict=True))
        found = [of_carries.get(at) for at in range(loop.carries)]
        found += [of_xs.get(at) for at in range(loop.xs)]
        found += [of_captured.get(at) for at in range(len(wanted) - len(found))]
        return [g if is_wanted else None for g, is_wanted in zip(found, wanted, strict=True)]


def _sum(one: Any, other: Any) -> Any:
    """Return the sum of two cotangents; None is zero."""
    if one is None or other is None:
        return other if one is None else one
    return added(one, other)


def _take(items: Iterator[Any], count: int) -> list[Any]:
    return list(islice(items, count))


def _joined(pieces: Sequence[Any]) -> Any:
    return pieces[0] if len(pieces) == 1 else concat(pieces, axis=0)


# -- forward mode ----------------------------------------------------------------------------------


def tangents_of(
    tangents: Sequence[Any], values: Sequence[Any], *arguments: Any, loop: Loop
) -> list[Any]:
    """Return the tangents of a loop's results, None for zero."""
    n, moving, results = loop.carries, loop.moving, loop.body.results
    carries, xs, captured = loop.split(arguments)
    of_carries, of_xs, of_captured = loop.split(list(tangents))
    moving_xs = [at for at, t in enumerate(of_xs) if t is not None]
    moving_captured = [at for at, t in enumerate(of_captured) if t is not None]
    floats = [at for at, each in enumerate(loop.ys) if each.kind.type.is_inexact]
    forward = replace(
        loop,
        body=_pushforward_of(loop, floats, moving_xs, moving_captured),
        carries=n + len(moving),
        xs=loop.xs + len(moving_xs),
        kept=(*loop.kept, *[n + moving.index(at) for at in loop.kept if at in moving]),
    )
    along = [or_zeros(of_carries[at], results[at]) for at in moving]
    along_xs = [of_xs[at] for at in moving_xs]
    along_captured = [of_captured[at] for at in moving_captured]
    found = run_loop(forward, [*carries, *along, *xs, *along_xs, *along_captured, *captured])
    last, ys, made = forward.split_values(found)
    of_last = dict(zip(moving, last[n:], strict=False))
    of_ys = dict(zip(floats, ys[len(loop.ys) :], strict=False))
    places = [number for number, at in enumerate(loop.kept) if at in moving]
    of_kept = dict(zip(places, made[len(loop.kept) :], strict=True))
    counts = [len(each) for each in loop.split_values(values)]
    return [
        of.get(at)
        for of, count in zip((of_last, of_ys, of_kept), counts, strict=True)
        for at in range(count)
    ]


def _pushforward_of(
    loop: Loop, floats: Sequence[int], moving_xs: Sequence[int], moving_captured: Sequence[int]
) -> Body:
    """Return a step with tangents: of carries, of ``floats`` among results, of other operands."""
    body, results, n, moving = loop.body, loop.body.results, loop.carries, loop.moving
    key = "pushforward", n, loop.xs, tuple(moving_xs), tuple(moving_captured)
    known: Body | None = body.derived.get(key)
    if known is not None:
        return known
    of_captured = [n + loop.xs + at for at in moving_captured]
    active = [*moving, *[n + at for at in moving_xs], *of_captured]

    def compute(*inputs: Any) -> list[Any]:
        taken = iter(inputs)
        own, along = _take(taken, n), _take(taken, len(moving))
        own += _take(taken, loop.xs)
        along += _take(taken, len(moving_xs) + len(moving_captured))
        made, found = push_forward(body, [*own, *taken], active, along)
        directions = [or_zeros(found[at], results[at]) for at in moving]
        of_ys = [or_zeros(found[n + at], results[n + at]) for at in floats]
        return [*made[:n], *directions, *made[n:], *of_ys]

    own = [*results[:n], *[results[at] for at in moving], *results[n:]]
    own += [loop.ys[at] for at in floats]
    return body.derived.setdefault(key, Body(body.name, compute, own, body.kind))


_LOOP = ValuesRule(
    "a loop",
    _run,
    cotangents_of,
    reads=range(1 << 30),
    is_total=True,
    fresh=False,
    alike=_alike,
    tangents=tangents_of,
)
