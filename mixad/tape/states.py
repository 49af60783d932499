"""Walks through recordings that have been seen; each state retains what is known of a step.

A *state* stands for everything that was recorded so far: which arrays came in, with which shapes
and types, and which operations were applied to what. Recording an operation looks up the next state
by the operation and its operand codes. All calls share the states, which hold no values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from mixad.tape.cell import Kind
from mixad.tape.guard import Reader
from mixad.tape.memory import Base
from mixad.tape.operations import FURTHER, Given, Operation

if TYPE_CHECKING:
    from mixad.tape.journal import Noted

__all__ = ["SMALL", "SeenSlot", "State", "forget", "initial_state", "known_state"]

_MAX_STATES = 8192
_MAX_PLANS = 256
"""States and plans that are known at once; beyond either, all are dropped."""


class SeenSlot:
    """A slot as an operation sees it.

    It may be the same in each iteration of a loop, or as long ago in each.
    """

    __slots__ = ("_ago", "_slot")
    __hash__ = None  # type: ignore[assignment]  # what is equal to one need not be to another

    def __init__(self, slot: int, ago: int) -> None:
        self._slot = slot
        self._ago = ago

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SeenSlot):
            return NotImplemented
        return self._slot == other._slot or self._ago == other._ago


class State:
    """One recording: what its last value is, and what may follow.

    `is_end` says that the segment ends here: what follows is recorded from a state without a past.
    `container` makes the user's result of several values; None if there is one. `place` says which
    of these the value is, `times` how often a recording, or a segment of it, has ended here without
    a plan, `weight` what the operations count for where compilation is limited.
    """

    __slots__ = ("_step", "base", "before", "codes", "container", "count", "description", "further",
                 "inputs", "is_end", "is_large", "is_number", "is_plain", "is_small", "kind",
                 "may_fail", "next", "noted", "operation", "place", "plans", "reader", "shape",
                 "times", "weight")  # fmt: skip
    count: int  # operations of the segment so far
    is_small: bool  # no value so far has so many elements that passes over it take long
    is_large: bool  # a value so far is so large that what others read of it is not stored

    def __init__(
        self,
        kind: Kind | None = None,
        shape: tuple[int, ...] = (),
        is_number: bool = False,
        before: State | None = None,
        step: tuple[Hashable | SeenSlot, ...] = (),
    ) -> None:
        self.kind = kind  # of the last value; None where a recording begins
        self.shape = shape
        self.is_number = is_number  # whether NumPy has a number there, not an array
        self.description = kind, shape, is_number  # tells values of earlier segments apart
        self.before = before  # the state before the last operation
        self._step = step
        self.count = 0 if before is None else before.count + 1
        self.is_large = math.prod(shape) > _MAX_CUT or (before is not None and before.is_large)
        self.is_small = math.prod(shape) <= SMALL and (before is None or before.is_small)
        self.is_end = self.count >= _MIN_LENGTH and not self.is_large and _ends(self._past())
        self.is_plain = not self.is_end  # it does not end, and there is one result
        self.may_fail = False  # raises for some elements: the segment ends, and is computed at once
        self.container: Callable[[list[Any]], Any] | None = None
        self.operation: Operation | None = None  # makes the value; None of an input
        self.codes: tuple[Hashable, ...] = ()  # of the operands
        self.place = self.times = self.weight = 0
        self.base: Base | None = None  # what the value is a view of
        self.inputs: tuple[State, ...] = ()  # where a recording begins: what is known of each
        self.further: tuple[State, ...] = ()  # further results of the last operation
        self.reader: Reader | None = None  # read the operands last, for messages
        self.next: dict[tuple[Hashable, ...], State] = {}  # by operation and codes
        self.plans: dict[Hashable, Any] = {}  # by what is asked of the recording
        self.noted: Noted | None = None  # what an ended segment is made of

    def follow(
        self,
        key: tuple[Any, ...],
        results: Sequence[tuple[Kind, tuple[int, ...], bool]],
        step: tuple[Hashable | SeenSlot, ...],
        given: Given,
    ) -> State:
        """Return the next state by a key, which is made if there is none; threads get the same one.

        `results` have kind, shape, and whether they are numbers; `step` is the key with slots as
        seen from here; `given` has what else is known of the results.
        """
        found = self.next.get(key)
        if found is None:
            _known.states += 1
            state = State(*results[0], self, step)
            state.operation, *codes = key
            state.weight = self.weight + state.operation.weight
            state.codes = tuple(codes)
            state.further = tuple([State(*result) for result in results[1:]])
            state.container, state.may_fail = given.container, given.may_fail
            state.is_end |= given.may_fail
            state.is_plain = given.container is None and not state.is_end
            state.base = given.bases[0]
            for place, each in enumerate(state.further, 1):
                each.operation, each.codes, each.place = FURTHER, state.codes, place
                each.count, each.base = state.count, given.bases[place]
            found = self.next.setdefault(key, state)
        return found

    def has_room_for(self, size: int) -> bool:
        """Whether a segment may end here with a result of so many elements."""
        return not self.is_large and size <= _MAX_CUT

    def come(self) -> int:
        """Count a recording or segment that has ended here without a plan; return how many."""
        self.times += 1
        return self.times

    def _past(self) -> list[State]:
        """Return the states up to this one, the last first."""
        states, state = [], self
        while state.before is not None:
            states.append(state)
            state = state.before
        return states

    def keep(self, key: Hashable, plan: Any) -> None:
        """Retain a plan for what is asked of the recording."""
        _known.plans += 1
        self.plans[key] = plan


def _ends(states: Sequence[State]) -> bool:
    """Whether a segment ends after these operations, of which the last comes first.

    It ends after whole iterations of a loop, at least two and at least as many operations as a
    segment has, which are alike; and where there are too many operations.
    """
    count = len(states)
    steps = [state._step for state in states]
    return count >= _MAX_LENGTH or any(
        steps[0] == steps[period] and _is_periodic(steps, period)
        for period in range(1, count // 2 + 1)
        if count % period == 0
    )


def _is_periodic(steps: Sequence[Any], period: int) -> bool:
    length = max(period, _MIN_LENGTH - period)
    return length + period <= len(steps) and steps[:length] == steps[period : period + length]


SMALL = 1 << 14
"""Elements of what may be done operation by operation, and is computed again, not stored."""

_MIN_LENGTH = 32
_MAX_LENGTH = 1024
"""Operations of a segment that ends."""

_MAX_CUT = 1 << 18
"""Elements of the values of such a segment: what others read of it is stored."""


class _Known:
    """All states, from where recordings begin.

    Counts may miss what threads add at once: they are bounds.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.initial: dict[Hashable, State] = {}
        self.states = self.plans = 0


_known = _Known()
forget = _known.forget


def known_state(key: Hashable) -> State | None:
    """Return the state in which some inputs have come in, if they have before."""
    if _known.states > _MAX_STATES or _known.plans > _MAX_PLANS:
        _known.forget()
    return _known.initial.get(key)


def initial_state(key: Hashable, inputs: tuple[State, ...] = ()) -> State:
    """Return the state in which some inputs, of which this much is known, have come in."""
    found = known_state(key)
    if found is None:
        _known.states += 1
        state = State()
        state.inputs = inputs
        found = _known.initial.setdefault(key, state)
    return found
