"""Pullbacks of rules, written down as the rules and kernels that they are made of.

What carries a cotangent through a rule is written with functions of the namespace, which look at
what they are given.  Of arrays of one shape and type they do the same each time: it is noted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mixad.backends.arrays import as_array
from mixad.tape.cell import Cell
from mixad.tape.journal import Entry, Evaluated, Journal, Launched, Register
from mixad.tape.node import InputNode
from mixad.tape.registers import have_same_bits
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["Unfolded", "unfold"]

_TAKEN = {Evaluated, Launched}
"""What is noted of a pullback that can be done again."""


class Unfolded(NamedTuple):
    """What a pullback does, with registers: 0, 1, … are what it is given.

    Attributes
    ----------
    entries : list of Entry
        In order.
    constants : list of (int, array)
        Registers of arrays that depend on shapes and options alone.
    results : list of (int or None)
        The registers of what it gives.
    """

    entries: list[Entry]
    constants: list[tuple[Register, Any]]
    results: list[Register | None]


def unfold(
    pull: Callable[..., Sequence[Any]],
    arrays: Sequence[Any],
    kind: type[Tracer],
    expected: Sequence[Any],
) -> Unfolded | None:
    """Return what a pullback does with some arrays; None unless that depends on no element.

    Parameters
    ----------
    pull : callable
        Of tracers that stand for the arrays, returns what the pullback gives.
    arrays : sequence of array
        What it is given.
    kind : type
        Of tracers.
    expected : sequence
        What it gives for the arrays themselves: the same, bit by bit, is to come of it.
    """
    with Level("plan", is_reverse=False) as level:
        level.check, level.fuses = "off", False
        level.journal = journal = Journal({}, arrays.__getitem__)
        journal.is_static = True
        alone, given = frozenset((level,)), []
        for register, array in enumerate(arrays):
            cell = Cell.of(array, level.check)
            journal.name(cell, register)
            given.append(kind(cell, Origin(InputNode(level, None), 0, alone)))
        try:
            found = pull(*given)
        except Exception:  # tracers may be refused where arrays are taken
            return None
        made = [each is None or (type(each) is kind and bool(each.levels)) for each in found]
        if not all(made) or not all(map(_are_same, found, expected)):
            return None
        results = [None if each is None else journal.register(each.cell) for each in found]
    entries = journal.entries
    if level.looks or level.risks or not journal.is_whole or not set(map(type, entries)) <= _TAKEN:
        return None
    return Unfolded(entries, journal.constants, results)


def _are_same(found: Any, expected: Any) -> bool:
    if found is None or expected is None:
        return found is expected
    return have_same_bits(found.cell.value, as_array(expected))
