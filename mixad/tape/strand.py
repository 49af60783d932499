"""What one call of a transform records, as long as it is known from other calls.

A tracer of a strand is a slot: it has no cell and no node. Operations look up the next state
(`mixad.tape.states`); an unknown operation is done on nodes of the strand's own, which tell its
results. If someone asks a tracer for more than its shape and type, everything is done on nodes in
the order in which it was recorded, and goes on so.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from sys import getrefcount
from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from mixad.backends.array_memory import is_bfloat16
from mixad.backends.arrays import Array, describe_array
from mixad.errors import TracerError
from mixad.scalar.dtypes import element_type_of
from mixad.tape.cell import Kind, kind_of
from mixad.tape.constant import is_constant, unwrapped
from mixad.tape.guard import GuardedArray, Reader, is_compared_whole
from mixad.tape.kernel_node import KernelNode
from mixad.tape.memory import (
    is_numpy_number,
    noted_array,
    restore,
    retire_flat,
    retire_others,
    unshared,
)
from mixad.tape.node import ConstantNode, InputNode, Result, RuleNode
from mixad.tape.on_nodes import give_nodes
from mixad.tape.operations import (
    LINK,
    NUMBERS,
    Called,
    Given,
    Operation,
    Segment,
    call_of,
    results_of,
)
from mixad.tape.registers import array_like
from mixad.tape.replay import Replay
from mixad.tape.states import SeenSlot, State, initial_state
from mixad.tape.tracer import (
    Level,
    NotRecordedError,
    Tracer,
    check_alive,
    check_levels,
    primal_value,
)
from mixad.tape.values_rule import ValuesNode

if TYPE_CHECKING:
    from mixad.tape.journal import Noted
    from mixad.tape.segments import Run

__all__ = ["Computed", "Strand"]

_MAX_SLOTS = 4096
"""Values of a segment that does not end before; what follows is recorded on nodes."""

_MAX_INT = 1 << 31
"""Whole numbers up to this size fit all types that they may be converted to."""

_MIN_TRACERS = 1024
"""Tracers from which on a segment's end lets go of those that nobody else holds."""

_new = object.__new__

_LONE = next(map(getrefcount, [object()]))
"""The reference count of an object that only a list holds."""

_NOTHING: dict[Any, State] = {}
"""The states that are known to follow while operations are done on nodes: none."""


class Computed(Protocol):
    """The segments of a recording that have been computed, since a value was asked for."""

    @property
    def is_behind(self) -> bool:
        """Whether segments have ended that have not been computed."""
        ...

    def known(self) -> tuple[int, dict[int, Array]]:
        """Return how many segments have been computed, and the values that are there."""
        ...

    def advance(self, wanted: Iterable[int]) -> bool:
        """Compute the segments that have ended; return whether that could be done.

        These are the values of some slots, and what later segments read.
        """
        ...

    def value(self, slot: int) -> Array:
        """Return a value that has been computed, as an array of the library."""
        ...


class Strand:
    """One recording, by one thread.

    `state` is the one in which the inputs have come in. `make_input` returns the tracer of an input
    with cell and node, by its number; `make_run` returns what computes the segments that have
    ended. `values` has by slot a guarded array or a number that came in, `LINK`, or the state of
    what was made.
    """

    is_flat = True  # whether its tracers have no nodes
    is_left = is_over = False  # asked for what strands do not know; nothing more is recorded
    _is_busy = False
    _is_cold = False
    _start = 0
    _most = _MIN_TRACERS
    _replay: Replay | None = None
    run: Computed | None = None  # has computed segments, once a value was looked at
    refusal: TracerError | None = None  # in a loop's body: why Python was not told an element

    def __init__(
        self,
        level: Level,
        state: State,
        arrays: Sequence[Array],
        make_input: Callable[[int], Tracer],
        kind: type[Tracer],
        make_run: Callable[[Strand], Computed],
    ) -> None:
        self.level = level
        self._is_body = level.unknown is not None
        self._lock = level.lock
        self.state = state
        self.inputs = state.inputs
        self.kind = kind
        self.values: list[Any] = list(map(self._held, arrays))
        self.ends: list[State] = []  # in which segments have ended
        self._starts = [0]
        self._next = state.next
        assert state.inputs[0].kind is not None
        self.library = state.inputs[0].kind.library
        self.outer = self._outer(arrays) if type(arrays[0]) is kind else None
        self._arrays: type = type(arrays[0]) if self.outer is None else self.outer._arrays
        self.device = getattr(arrays[0], "device", None)
        self._make_input: Callable[[int], Tracer] | None = make_input
        self._make_run = make_run
        self._alive: list[Tracer] = list(map(self._flat, count(), state.inputs))
        self._entered: dict[Any, tuple[int, Hashable]] = {}
        self._links: dict[int, int] = {}
        self.sources: dict[int, int] = {}  # by the slot of a link: that of the value
        self._thread = get_ident()
        self.others: list[Tracer] = []  # values in strands inside, whatever is written here
        self.views: dict[int, int] = {}  # by the slot of a view that no operation tells: its base's
        # By the slot of an array that was written to at unknown positions, in the body of a loop:
        # the slots of the array before, of its elements there, and of the positions.
        self.writes: dict[int, tuple[int, int, int]] = {}
        self._done: list[Any] = []

    def _held(self, value: Any) -> Any:
        """Return what is stored of an input: another tracer, or an array that is watched."""
        if type(value) is self.kind:
            return cast("Strand", value.strand).another(value)
        check = self.level.check
        if type(value) is np.ndarray and check != "off" and not is_compared_whole(value):
            self.level.locks.add(value)
        return GuardedArray(value, check)

    def _outer(self, inputs: Sequence[Any]) -> Strand | None:
        """Return the newest strand around that traces inputs; None if there is none."""
        found = [value.strand for value in inputs if isinstance(value, Tracer)]
        return max(filter(None, found), key=_number_of, default=None)

    def another(self, tracer: Tracer) -> Tracer:
        """Return another tracer that stands for what this one stands for now."""
        found: Tracer = _new(self.kind)
        found.strand, found.slot, found.state = self, tracer.slot, tracer.state
        if found.state is None:
            found.cell, found.origin, found.sharing = tracer.cell, tracer.origin, None
        self.others.append(found)
        return found

    def tracers_of_inputs(self) -> list[Tracer]:
        """Return a tracer for each input."""
        return self._alive[:]

    def _flat(self, slot: int, state: State) -> Tracer:
        """Return a tracer that has neither cell nor node."""
        tracer: Tracer = _new(self.kind)
        tracer.strand, tracer.slot, tracer.state = self, slot, state
        return tracer

    @property
    def levels(self) -> frozenset[Level]:
        """The transforms that its values may depend on."""
        alone = frozenset((self.level,))
        return alone if self.outer is None else alone | self.outer.levels

    # -- recording ---------------------------------------------------------------------------------

    def record(self, operation: Operation, operands: Sequence[Any]) -> Any:
        """Return the result of an operation; None if nodes have to do it."""
        kind, start, links, comes_in = self.kind, self._start, self._links, False
        codes: list[Any] = [operation]
        for operand in operands:
            own = type(operand)
            if own is kind and operand.strand is self and operand.state is not None:
                slot = operand.slot
                if slot < start:
                    slot = links.get(slot, slot)
                if slot >= start:
                    codes.append(slot - start)
                    continue
            code = float if own is float else self._code(operands, len(codes) - 1)
            if code is None and self._stands_for_another(operand):
                return self._record_other(operation, operands, operand)
            comes_in |= type(code) is not int
            codes.append(code)
        key, state, found = tuple(codes), None, None
        if self._thread == get_ident():
            self._is_busy = True  # a lock would take a fifth of the time: see `_halt`
            try:
                state = self._next.get(key)
                if state is not None:
                    if comes_in:
                        self._let_in(key, operands, state.reader)
                    values = self.values
                    tracer = _new(kind)
                    tracer.strand, tracer.slot, tracer.state = self, len(values), state
                    values.append(state)
                    self._alive.append(tracer)
                    self.state, self._next = state, state.next
                    if state.is_plain:
                        return tracer
                    found = self._with_further(tracer, state)
            finally:
                self._is_busy = False
        return self._continue(key, operands, state, found)

    def _continue(
        self, key: tuple[Any, ...], operands: Sequence[Any], state: State | None, found: Any
    ) -> Any:
        """Return the result of an operation that is not known, or that has ended a segment."""
        if state is None:
            operation: Operation = key[0]
            self._check_open()
            if self.is_flat and operation.is_open(operands):
                return operation.compute(*operands)
            with self._lock:  # another thread may ask for nodes
                return self._begin(key, operands)
        return self._proven(found, state) if state.may_fail and not self._is_body else found

    def _stands_for_another(self, operand: Any) -> bool:
        """Whether something else is recorded in place of an operand, or by another strand."""
        is_unknown = self._is_body and type(operand) is not self.kind
        if is_unknown and isinstance(operand, self.kind) and not is_constant(operand):
            return True
        return is_constant(operand) or _strand_inside(operand, self.level) is not None

    def _check_open(self) -> None:
        """Raise if the transform has ended and its values are used."""
        if self.is_over and self.is_flat and not self._is_cold:
            raise TracerError(self.level.over)

    def _record_other(self, operation: Operation, operands: Sequence[Any], operand: Any) -> Any:
        """Return the result of an operation on a constant, or on a value of a transform inside."""
        inner = _strand_inside(operand, self.level)
        if inner is not None:
            return inner.record(operation, operands)
        return self.record(operation, list(map(self._recorded_for, operands)))

    def _recorded_for(self, operand: Any) -> Any:
        """Return what is recorded for an operand: of a constant the array.

        In the body of a loop, it is the value without its derivative.
        """
        is_constant_or_own = is_constant(operand) or type(operand) is self.kind
        if is_constant_or_own or not isinstance(operand, self.kind):
            return unwrapped(operand)
        return cast("Any", operand).without_derivative()

    def _with_further(self, tracer: Tracer, state: State) -> Any:
        """Return the result of an operation that has several values or ends a segment."""
        found = [tracer]
        for each in state.further:
            found.append(self._flat(len(self.values), each))
            self.values.append(each)
        self._alive += found[1:]
        if state.is_end and not self._is_body:
            self._end_segment()
        return tracer if state.container is None else state.container(found)

    def _proven(self, found: Any, state: State) -> Any:
        """Return the result of an operation that ended a segment since it may fail: it is computed.

        None if nodes have to do it. The user's function may catch what it raises: then it is as if
        the operation had not been recorded.
        """
        results = results_of(found)
        first = results[0].slot - sum([type(code) not in (int, _Same) for code in state.codes])
        if self.run is None:
            self.run = self._make_run(self)
        held = [tracer.slot for tracer in (*self.alive(), *self.others, *results)]
        try:
            if self.run.advance(held):
                return found
        except BaseException:
            self._undo(first, state)
            raise
        self._undo(first, state)
        return None

    def _undo(self, first: int, state: State) -> None:
        """Forget the operation that has just ended a segment, and go on with nodes."""
        assert state.before is not None
        self._forget(first)
        self.ends.pop()
        self._starts.pop()
        self._start, self.state = self._starts[-1], state.before
        self._leave()

    def _forget(self, first: int) -> None:
        """Forget the values from a slot on."""
        del self.values[first:]
        for table in (self.sources, self.views):  # which others hold, too
            for slot in [slot for slot in table if slot >= first]:
                del table[slot]
        for key in [key for key, known in self._entered.items() if known[0] >= first]:
            del self._entered[key]
        self._links = {slot: link for slot, link in self._links.items() if link < first}
        self._alive = [tracer for tracer in self._alive if tracer.slot < first]

    def _end_segment(self) -> None:
        """End the segment; what follows is recorded as another one."""
        stop = len(self.values)
        if self._replay is not None and self.state.noted is None:
            self.state.noted = self._replay.noted(stop)
        self.ends.append(self.state)
        self._starts.append(stop)
        self._start, self._links = stop, {}
        if self._replay is not None:
            self._close_replay()
        self._go_to(initial_state(self.level.check))
        if len(self._alive) > self._most:
            self._alive = self.alive()
            self._most = max(_MIN_TRACERS, 2 * len(self._alive))

    def _go_to(self, state: State) -> None:
        """Go on in a state; only tracers without nodes look up what follows."""
        self.state = state
        self._next = _NOTHING if self._is_cold or self.is_over else state.next

    def _code(self, operands: Sequence[Any], position: int) -> Any:
        """Return the code of an operand: its slot, if it has one; None if unknown."""
        operand = operands[position]
        kind = type(operand)
        if kind in NUMBERS:
            return kind if kind is not int or -_MAX_INT < operand < _MAX_INT else None
        if kind is self.kind:
            code = self._code_of_traced(operand)
        elif kind is self._arrays:
            code = describe_array(operand)
            known = self._entered.get(id(operand))
            if known is not None and known[1] == code:
                slot = self._links.get(known[0], known[0]) - self._start
                code = slot if slot >= 0 else code
        else:
            return kind if isinstance(operand, Called) else None
        return code if type(code) is int else (_same_as_before(operands, position) or code)

    def _code_of_traced(self, operand: Tracer) -> Any:
        """Return the code of a traced value; None if unknown."""
        if operand.strand is not self:
            return self._code_of_outer(operand)
        state = operand.state
        if state is None:
            return None
        slot = self._links.get(operand.slot, operand.slot) - self._start
        return slot if slot >= 0 else state.description

    def _code_of_outer(self, operand: Tracer) -> Any:
        """Return the code of a value of a transform around; None if unknown."""
        other = operand.strand
        if self._is_body:
            return self._code_around(operand)
        if other is None or not other.level.alive:
            return None
        is_around = other.level.number < self.level.number and other._thread == self._thread
        if not (is_around and other.has(operand) and self._is_inside(other)):
            return None
        description = _OUTER, operand.kind, operand.shape, is_numpy_number(operand)
        known = self._entered.get((id(other), operand.slot))
        if known is None:
            return description
        slot = self._links.get(known[0], known[0]) - self._start
        return slot if slot >= 0 else description

    def _is_inside(self, other: Strand) -> bool:
        """Whether it is inside of another recording, whose value it meets, or is from now on.

        Numbers that came in are not: their gradients are numbers.
        """
        if self.outer is None and any(known.is_number for known in self.inputs):
            return False
        if self.outer is None or other.level.number > self.outer.level.number:
            is_first, self.outer = self.outer is None, other
            if is_first and self.run is not None:
                self.run = self._make_run(self)
        return True

    def _code_around(self, operand: Tracer) -> Any:
        """Return the code of a value that the body of a loop captures; None if unknown."""
        if any(level.number > self.level.number for level in operand.levels):
            return None
        check_alive(operand)
        description = _OUTER, operand.kind, operand.shape, is_numpy_number(operand)
        known = self._entered.get(_key_around(operand))
        return description if known is None else known[0]

    def _begin(self, key: tuple[Any, ...], operands: Sequence[Any]) -> Any:
        """Return the result of an operation that is not known; None if nodes have to do it."""
        if self._is_cold or not self.is_flat:
            return None
        if (
            any(code is None for code in key)
            or any(type(x) is self._arrays and is_bfloat16(x) for x in operands)  # no register's
            or self._thread != get_ident()
            or len(self.values) - self._start > _MAX_SLOTS
        ):
            self._leave()
            return None
        return self._foresee(key, operands)

    def _foresee(self, key: tuple[Any, ...], operands: Sequence[Any]) -> Any:
        """Return the result of an operation, done by the open segment on nodes of its own.

        None if these do not tell all of it.
        """
        step, first = tuple(map(self._seen_from_here, key)), len(self.values)
        slots = self._enter(key, operands, None)
        if self._replay is None:
            self._replay = Replay(self, self._start, self._value_like)
        replay, operation = self._replay, key[0]
        try:
            given = replay.result(operation, slots)
        except Exception:  # of these values, or the user's: nodes tell which
            given = None
        except BaseException:  # what came in has slots that no other call gives it
            self._leave()
            raise
        is_told = given is not None and given.is_told
        if not is_told and not operation.is_primitive:
            self._forget(first)
            replay.forget(first)
            del replay, given  # where nodes go on, these would hold what has been done
            found = operation.compute(*operands)
            if self.is_flat:  # else what failed may be these values
                operation.open(operands)
            return found
        if given is None or not self._may_know(given):
            self._leave()
            return None
        replay.done += given.results
        self._follow(key, given, step)
        tracer = self._flat(len(self.values), self.state)
        self.values.append(self.state)
        self._alive.append(tracer)
        state = self.state
        found = self._with_further(tracer, state)
        return self._proven(found, state) if state.may_fail and not self._is_body else found

    def _follow(self, key: tuple[Any, ...], given: Given, step: Any) -> None:
        """Go on in the state after an operation, given its results on nodes."""
        described = list(map(_described, given.results))
        self._go_to(self.state.follow(key, described, step, given))
        self.state.reader = _reader_of(given.results[0].origin.node)

    def _let_in(self, key: tuple[Any, ...], operands: Sequence[Any], reader: Reader | None) -> None:
        """Give slots to operands that have none."""
        values = self.values
        for position, value in enumerate(operands):
            code = key[position + 1]
            kind = type(code)
            if kind is type:
                if code not in NUMBERS:
                    self._entered[id(value)] = len(values), code
                values.append(value)
            elif kind is not int and kind is not _Same:
                values.append(self._entered_as(value, code, reader, position))

    def _enter(
        self, key: tuple[Any, ...], operands: Sequence[Any], reader: Reader | None
    ) -> tuple[int, ...]:
        """Return the slots of operands; those that have none get one."""
        first = len(self.values)
        self._let_in(key, operands, reader)
        return _slots(key[1:], self._start, first)

    def _entered_as(self, value: Any, code: Hashable, reader: Reader | None, index: int) -> Any:
        """Return what stands for an array, or a value of an earlier segment, that comes in."""
        slot = len(self.values)
        key: Hashable = id(value)
        if type(value) is self.kind:
            if value.strand is self:
                self._links[value.slot], self.sources[slot] = slot, value.slot
                return LINK
            key = _key_around(value)
        known = self._entered.get(key)
        if known is not None and known[1] == code:  # of an earlier segment
            self._links[known[0]], self.sources[slot] = slot, known[0]
            return LINK
        self._entered[key] = slot, code
        if type(value) is self.kind:
            return unshared(value) if value.state is None else _another(value)
        if self.level.check != "off" and type(value) is np.ndarray:
            self.level.locks.add(value)
        return GuardedArray(value, self.level.check, reader, index)

    def demanded(self, tracer: Tracer) -> Any:
        """Return the array of a value whose elements are read; None if nodes have to make it.

        The segment that made it ends, and the live values of ended segments are computed. In the
        body of a loop something stands for the array.
        """
        if self.level.unknown is not None:
            self._check_open()
            return self.level.unknown(tracer)
        if self._is_cold or self.is_over or self._thread != get_ident():
            return None
        if tracer.state is None or self.state.is_large:
            return None
        slot = tracer.slot
        if self.is_input(slot):
            given = self.values[slot]
            return primal_value(given) if type(given) is self.kind else given.array
        if slot >= self._start:
            self._end_segment()
        if self.run is None:
            self.run = self._make_run(self)
        if self.run.is_behind:
            held = [each.slot for each in (*self.alive(), *self.others)]
            if not self.run.advance([*held, slot]):
                self._leave()
                return None
        return self.run.value(slot)

    def keep(self, wanted: Sequence[int]) -> Run | None:
        """End the recording; return what has computed some values and will pull them back.

        It computes again what that needs. None if nodes have to do it: they retain what they have
        computed of large arrays.
        """
        self.is_left |= not all(end.is_small for end in (*self.ends, self.state))
        return None if self.outer is not None else cast("Run | None", self.finish(wanted))

    def finish(self, wanted: Sequence[int]) -> Computed | None:
        """End the recording; return what has computed some values; None if nodes have to do it."""
        if self.is_left:
            return None
        if self.state.count:
            self._end_segment()
        run = self.run or self._make_run(self)
        if not run.advance(wanted):
            self._leave()
            return None
        return run

    def call(
        self,
        compute: Callable[[Any, Any, Any], Any],
        function: Hashable,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        is_primitive: bool = False,
    ) -> Any:
        """Return the result of a function of arrays, which may be made of several operations.

        If no key identifies the call for good, these are recorded. `compute` takes the function,
        `args` and `kwargs`. `is_primitive` says that it is a rule, which is made of nothing.
        """
        if self.is_over:
            self._check_open()
        if is_primitive:
            args = [self._recorded_for(a) if isinstance(a, Tracer) else a for a in args]
        given = self.kind, self._arrays, compute, function, args, kwargs
        found = call_of(*given, is_primitive=is_primitive)
        if found is not None and not found[0].is_open(found[1]):
            return self.applied(*found)
        if is_primitive:
            self._leave()
        return compute(function, args, kwargs)

    def as_array(self, number: Tracer) -> Any:
        """Return an array without axes in place of NumPy's number."""
        return self.applied(_AS_ARRAY, (number,))

    def applied(self, operation: Operation, operands: Sequence[Any]) -> Any:
        """Return the result of an operation, which may be made of others."""
        found = self.record(operation, operands)
        return operation.compute(*operands) if found is None else found

    def _seen_from_here(self, code: Any) -> Any:
        """Return a code that is alike in each iteration of a loop."""
        if type(code) is not int:
            return code
        slot = self._start + code
        if self.is_input(slot):
            return SeenSlot(code, self.state.count)
        after = (each.count for each in self.values[slot:] if type(each) is State)
        return SeenSlot(code, self.state.count - next(after, self.state.count))

    def _may_know(self, given: Given) -> bool:
        """Whether the result of an operation can be known without nodes.

        An operation that may fail is computed at once, if it can be.
        """
        if not given.is_told:
            return False
        if given.may_fail and not self._is_body:
            size = max([math.prod(result.shape) for result in given.results])
            if not self.state.has_room_for(size):
                return False
        if any(base is not None and base.operand is None for base in given.bases):
            return False
        return bool(given.results) and all(map(self._is_new, given.results))

    def _is_new(self, result: Any) -> bool:
        """Whether a result is a value of the strand that was made or copied.

        A bfloat16 value is none: no register holds one.
        """
        if type(result) is not self.kind or result.strand is not None or result.cell.type.brain:
            return False
        known = (KernelNode, RuleNode, ValuesNode, Called, InputNode, ConstantNode)
        return isinstance(result.origin.node, known) and len(result.origin.levels) == 1

    # -- writing -----------------------------------------------------------------------------------

    def may_write(self, tracer: Tracer, value: Any) -> bool:
        """Whether a tracer can stand for a value of the strand once that is written to it.

        It must be one of the strand's, or a constant that shares no memory.
        """
        is_known = self._is_body or not isinstance(value, Tracer) or self.is_recording(value)
        if not is_known:
            return False
        if tracer.strand is None:
            is_alone = is_constant(tracer) and tracer.sharing is None and bool(tracer.shape)
            return is_alone and isinstance(value, Tracer)
        return self.is_recording(tracer) and self._is_writable(tracer.slot)

    def rebind(self, tracer: Tracer, result: Tracer) -> None:
        """Let a tracer, which has been written to, stand for a value of the strand.

        What shares memory with it raises when it is used.
        """
        with self._lock:  # another thread may ask for nodes
            is_new = tracer.strand is None
            if is_new:
                tracer.strand, tracer.slot = self, result.slot
            if result.state is None:
                tracer.cell, tracer.origin = result.cell, result.origin
                retire_others(tracer)
                return
            if is_new:
                self._alive.append(tracer)
                del tracer.cell, tracer.origin, tracer.sharing
            else:
                self._retire_others(tracer, result)
            tracer.slot, tracer.state = result.slot, result.state

    def restore(self, tracer: Tracer) -> None:
        """Let a tracer be used again; a part of it is about to be written back."""
        with self._lock:
            restore(tracer)

    def _retire_others(self, tracer: Tracer, result: Tracer) -> None:
        """Retire what shares memory with a tracer without a node: it raises when it is used."""
        root, made, self._alive = self._root(tracer.slot), self.made(tracer.slot), self.alive()
        base = None if made is None else self.sources.get(made[1][0], made[1][0])
        for other in self._alive:
            is_other = other is not tracer and other is not result and other.state is not None
            if is_other and self._root(other.slot) == root:
                retire_flat(other, tracer, made[0] if made and other.slot == base else None)

    def _is_writable(self, slot: int) -> bool:
        """Whether a value is an array of the strand that may be written to, or a view of one."""
        state, root = self.values[slot], self._root(slot)
        is_read_only = type(state) is State and state.base is not None and state.base.is_read_only
        return not is_read_only and (type(self.values[root]) is State or self.is_input(root))

    def _root(self, slot: int) -> int:
        """Return the slot of the array that a value is or is a view of."""
        while type(state := self.values[slot]) is State:
            if slot in self.views:
                slot = self.views[slot]
                continue
            if state.base is None:
                break
            made = self.made(slot)
            assert made is not None
            assert state.base.operand is not None
            slot = made[1][state.base.operand]
            slot = self.sources.get(slot, slot)
        return slot

    # -- nodes -------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Go on with nodes for what strands do not know; leave the body of a loop altogether."""
        self.is_left = True
        if self._is_body:
            raise NotRecordedError("an operation of a loop's body is not known")
        self.depart()

    def complete(self) -> None:
        """Give tracers cells and nodes, since someone asks for those of one."""
        check_levels((self.level,))
        with self._lock:  # another thread may be about it
            self._check_open()
            if not self._is_cold:
                self._leave()

    def depart(self) -> None:
        """Give all tracers cells and nodes: do everything recorded on nodes, in order."""
        with self._lock:
            if not self.is_flat:
                return
            assert self._make_input is not None
            self._is_cold = True
            self._close_replay()
            self._halt()
            try:
                give_nodes(self, self._make_input, self._done)
                self.is_flat, self.is_over, self._alive, self._done = False, True, [], []
            finally:
                self._is_cold = False
                self._go_to(self.state)

    def _halt(self) -> None:
        """Stop recording by known states; wait for the thread that is recording.

        It takes its next step from `_next` after it has said that it is busy. So if it is not busy,
        and has not gone on since `_next` was emptied, it meets the lock.
        """
        self._next = _NOTHING
        if self._thread != get_ident():
            while self._is_busy or self._next is not _NOTHING:
                self._next = _NOTHING
                sleep(0)

    def is_recording(self, tracer: Tracer) -> bool:
        """Whether it records what is done with one of its tracers."""
        is_open = not self.is_over and self.level.alive and self._thread == get_ident()
        return is_open and not self._is_cold and self.has(tracer)

    def takes(self, tracer: Tracer) -> bool:
        """Whether it is to record what is done with a tracer, which has no node then."""
        if self.is_over and tracer.state is not None:
            self._check_open()
        return tracer.state is not None

    def steps(self, start: int = 0) -> Iterator[tuple[int, Operation, tuple[int, ...]]]:
        """Yield what was done from a slot on: the result's slot, the operation, operands' slots.

        These are where values came in or were made, not links to them.
        """
        for slot in range(start, len(self.values)):
            made = self.made(slot)
            if made is not None:
                operation, operands = made
                yield slot, operation, tuple([self.sources.get(at, at) for at in operands])

    # -- what has been recorded --------------------------------------------------------------------

    def has(self, value: Any) -> bool:
        """Whether a value is a tracer of the strand, and stands for its slot."""
        return type(value) is self.kind and value.strand is self and value.state is not None

    def alive(self) -> list[Tracer]:
        """Return the tracers that someone else holds."""
        counts = list(map(getrefcount, self._alive))
        return list(compress(self._alive, map(_LONE.__lt__, counts)))

    def is_input(self, slot: int) -> bool:
        """Whether a slot is that of an input."""
        return slot < len(self.inputs)

    def made(self, slot: int) -> tuple[Operation, tuple[int, ...]] | None:
        """Return the operation that made a value, and its operands; None if the value came in."""
        state = self.values[slot]
        if type(state) is not State:
            return None
        assert state.operation is not None
        came_in = sum([type(code) not in (int, _Same) for code in state.codes])
        first = slot - state.place - came_in
        return state.operation, _slots(state.codes, self._start_at(slot), first)

    def segment(self, number: int) -> Segment:
        """Return one of the segments: those that have ended, and what comes after them."""
        is_open = number == len(self.ends)
        stop = len(self.values) if is_open else self._starts[number + 1]
        return Segment(self.end_of(number), self._starts[number], stop)

    def end_of(self, number: int) -> State:
        """Return the state in which a segment has ended, or is now."""
        return self.state if number == len(self.ends) else self.ends[number]

    def _start_at(self, slot: int) -> int:
        """Return where the segment of a slot starts."""
        if slot >= self._start:
            return self._start
        return self._starts[bisect_right(self._starts, slot) - 1]

    def arrived(self, slot: int) -> Any:
        """Return the array or number that came in, as operations take it."""
        value = self.values[self.sources.get(slot, slot)]
        if type(value) is self.kind:
            found = array_like(value.shape, value.kind, self.device)
            if self._is_body and value.kind.weak:
                return found.item()
            return found[()] if is_numpy_number(value) else found
        return value.array if type(value) is GuardedArray else value

    def _value_like(self, slot: int) -> Any:
        """Return the array or number that came in; for what is made elsewhere, an array like it."""
        is_made = self.is_traced(slot) and (bool(self.ends) or self.outer is not None)
        if not is_made:
            return self.arrived(slot)
        known = self.known(slot)
        assert known.kind is not None
        return array_like(known.shape, known.kind, self.device)

    def is_traced(self, slot: int) -> bool:
        """Whether the value of a slot is an input, was made, or links to one that is."""
        slot = self.sources.get(slot, slot)
        return self.is_input(slot) or type(self.values[slot]) is State

    def known(self, slot: int) -> State:
        """Return what is known of a traced value."""
        slot = self.sources.get(slot, slot)
        found: State = self.inputs[slot] if slot < len(self.inputs) else self.values[slot]
        return found

    def result(self, slot: int) -> Result:
        """Return what is known of a value, which may be an array that came in."""
        if self.is_traced(slot):
            known = self.known(slot)
            assert known.kind is not None
            return Result(known.shape, known.kind, self.device)
        array = self.arrived(slot)
        kind = kind_of(element_type_of(array.dtype), self.library)
        return Result(tuple(array.shape), kind, self.device)

    def slot_of(self, value: Any) -> int:
        """Return the slot of a value, which comes in if it has none."""
        key = (_AS_ARRAY, self._code((value,), 0))
        if key[1] is None:
            self._leave()
        (slot,) = self._enter(key, (value,), None)
        return slot

    def noted(self, number: int, value: Callable[[int], Any]) -> Noted | None:
        """Return what the operations of a segment are made of; None if it cannot be noted.

        `value` returns the array or number that comes in, by its slot.
        """
        segment = self.segment(number)
        if segment.state.noted is None:
            own = self._replay if number == len(self.ends) else None
            replay = own or Replay(self, segment.start, value)
            segment.state.noted = replay.noted(segment.stop)
        return segment.state.noted

    def stop(self) -> None:
        """Record nothing any more."""
        self.is_over, self._next = True, _NOTHING

    def end(self) -> None:
        """Let go of all tracers and nodes, once it has stopped: a backward pass frees them."""
        self._alive = self.others = []
        self._entered = {}
        self._make_input = self.run = None
        if self._replay is not None:
            self._close_replay()

    def _close_replay(self) -> None:
        """Let go of the nodes that results are told by."""
        if self._replay is not None:
            self._replay.close()
            self._replay = None


def _as_array(value: Tracer) -> Tracer:
    """Return an array in place of a number."""
    return cast("Tracer", noted_array(unshared(value)))


_AS_ARRAY = Operation(_as_array, is_kernel=False, weight=0)


class _Same(NamedTuple):
    """The code of an operand that is the array of one before it, in the same operation."""

    position: int


def _slots(codes: Sequence[Hashable], start: int, first: int) -> tuple[int, ...]:
    """Return the slots of operands, of which those that come in get the first free ones."""
    arrived, slots = count(first), list[int]()
    for code in codes:
        if type(code) is _Same:
            slots.append(slots[code.position])
        else:
            slots.append(start + code if type(code) is int else next(arrived))
    return tuple(slots)


def _same_as_before(operands: Sequence[Any], position: int) -> _Same | None:
    """Return the code of an operand that is one before it; None if it is none."""
    operand = operands[position]
    for k in range(position):
        if operands[k] is operand:
            return _Same(k)
    return None


_OUTER = object()
"""Marks the code of a value of a transform around."""


def _key_around(tracer: Tracer) -> tuple[int, Hashable]:
    """Return the key of a value from outside a strand among those that have come in."""
    if tracer.state is None:
        return id(tracer.cell), None
    return id(tracer.strand), tracer.slot


def _another(tracer: Tracer) -> Tracer:
    """Return another tracer for a value of another strand."""
    strand = tracer.strand
    assert strand is not None
    return strand.another(tracer)


def _strand_inside(operand: Any, level: Level) -> Strand | None:
    """Return the strand of a value of a transform inside; None for others."""
    strand = operand.strand if isinstance(operand, Tracer) else None
    is_inside = strand is not None and strand.level.alive and strand.level.number > level.number
    return strand if is_inside else None


def _number_of(strand: Strand) -> int:
    return strand.level.number


def _described(tracer: Tracer) -> tuple[Kind, tuple[int, ...], bool]:
    """Return what states know of a value."""
    return tracer.cell.kind, tracer.cell.shape, is_numpy_number(tracer)


def _reader_of(node: Any) -> Reader | None:
    """Return what reads the arguments of a node, for messages; None if it is not watched."""
    if type(node) in (InputNode, ConstantNode):
        return None
    return cast("Reader", node.call if type(node) is KernelNode else node.rule)
