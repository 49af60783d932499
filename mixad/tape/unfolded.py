"""Pullbacks of rules, written down as the rules and kernels that they are made of.

The cotangents of a rule are written with functions of the namespace, which look at their arguments.
For arrays of one shape and type they do the same each time: it is noted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mixad.backends.arrays import Library, as_array
from mixad.tape.cell import Cell
from mixad.tape.entries import Evaluated, Launched
from mixad.tape.journal import Journal, Register
from mixad.tape.node import InputNode
from mixad.tape.planner import NotPlannedError, Planner
from mixad.tape.registers import as_register, have_same_bits, of_register
from mixad.tape.tracer import Level, Origin, Tracer
from mixad.tape.values_rule import ValuesRule

__all__ = ["Unfolded", "unfold"]


class Unfolded(NamedTuple):
    """What a pullback does, over registers; the first are its arguments: 0, 1, …"""

    entries: list[Launched | Evaluated]
    constants: Sequence[tuple[Register, Any]]  # arrays that depend on shapes and options alone
    results: list[Register | None]  # registers of what it returns


def unfold(
    pull: Callable[..., Sequence[Any]],
    arrays: Sequence[Any],
    kind: type[Tracer],
    library: Library,
    expected: Sequence[Any],
) -> Unfolded | None:
    """Return what a pullback does with some arrays; None unless that depends on no element.

    `pull` takes tracers that stand for the arrays; `expected` is what it returns for the arrays
    themselves: what it does must give the same bits.
    """
    with Level("plan", is_reverse=False) as level:
        level.check, level.foresees = "off", True
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
        if not all(each is None or (type(each) is kind and bool(each.levels)) for each in found):
            return None
        made = {at: each for at, each in enumerate(found) if each is not None}
        noted, level.journal = journal.noted(made), None
    if level.looks or level.risks or not journal.is_whole:
        return None
    results = [None if each is None else noted.registers[at] for at, each in enumerate(found)]
    planner = Planner(noted, is_reverse=False, fuses=False, beside=arrays[0])
    try:
        entries = planner.plan([], list(noted.registers.values()), of_number=False)
    except NotPlannedError:
        return None
    taken = [entry for entry in entries if isinstance(entry, (Launched, Evaluated))]
    if len(taken) < len(entries):
        return None
    values = {**dict(enumerate(arrays)), **dict(noted.constants)}
    for entry in taken:
        _take(entry, values, library)
    made_of = [None if register is None else values[register] for register in results]
    is_same = all(map(_are_same, made_of, expected))
    return Unfolded(taken, noted.constants, results) if is_same else None


def _take(entry: Launched | Evaluated, values: dict[Register, Any], library: Library) -> None:
    """Compute the results of an entry."""
    given = [of_register(library, values[register]) for register in entry.arguments]
    if isinstance(entry, Launched):
        found: Sequence[Any] = entry.call.arrays(given, entry.options)
    else:
        made = entry.rule.evaluate(library.xp, *given, **entry.static)
        found = made if isinstance(entry.rule, ValuesRule) else (made,)
    values.update(zip(entry.results, found, strict=True))


def _are_same(found: Any, expected: Any) -> bool:
    if found is None or expected is None:
        return found is expected
    return have_same_bits(as_register(as_array(found)), as_array(expected))
