"""Walks through recordings that have been seen: what was found out about each step is kept.

A *state* stands for everything that was recorded so far: which arrays came in, with which shapes
and types, and which operations were applied to what.  A recorded operation is a lookup of the next
state by the operation and its operand codes.  States are shared by all calls; they hold no values.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from mixad.tape.cell import Kind
from mixad.tape.held import Reader

__all__ = ["State", "forget", "initial_state"]

_MAX_STATES = 8192
_MAX_PLANS = 256
"""States and plans that are known at once; beyond either, all are forgotten."""


class State:
    """One recording: what its last value is, and what may follow.

    Parameters
    ----------
    kind : Kind or None
        Of the last value.
    shape : tuple of int
        Its shape.

    Attributes
    ----------
    inputs : tuple of State
        Of a recording that begins, what is known of each input.
    next : dict
        By operation and operand codes, the state after it.
    reader : Reader or None
        What read its operands last, for messages.
    plans : dict
        By what is asked of the recording, what computes it.
    """

    __slots__ = ("inputs", "kind", "next", "plans", "reader", "shape")

    def __init__(self, kind: Kind | None = None, shape: tuple[int, ...] = ()) -> None:
        self.kind = kind
        self.shape = shape
        self.inputs: tuple[State, ...] = ()
        self.reader: Reader | None = None
        self.next: dict[tuple[Hashable, ...], State] = {}
        self.plans: dict[Hashable, Any] = {}

    def follow(self, key: tuple[Hashable, ...], kind: Kind, shape: tuple[int, ...]) -> State:
        """Return the next state by a key, which is made if there is none; threads get one."""
        _known.states += 1
        return self.next.setdefault(key, State(kind, shape))

    def keep(self, key: Hashable, plan: Any) -> None:
        """Keep a plan of what is asked of the recording."""
        _known.plans += 1
        self.plans[key] = plan


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


def initial_state(key: Hashable) -> State:
    """Return the state in which some inputs have come in."""
    if _known.states > _MAX_STATES or _known.plans > _MAX_PLANS:
        _known.forget()
    found = _known.initial.get(key)
    if found is None:
        _known.states += 1
        found = _known.initial.setdefault(key, State())
    return found
