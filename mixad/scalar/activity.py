"""Which variables of a program can depend, differentiably, on which seeds, and through what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mixad.scalar.ir import (
    Atom,
    Block,
    Equation,
    If,
    Load,
    Param,
    Program,
    Statement,
    Update,
    Var,
    While,
    written_vars,
)
from mixad.scalar.ops import BY_NAME, TABLE

__all__ = ["SINGULAR", "Activity", "active_arguments", "activity", "spread"]

Activity = Mapping[Var, frozenset[int]]

SINGULAR = -1
"""Is among the slots of a variable whose partials can be infinite: one came through a singular
op."""

_NONE: frozenset[int] = frozenset()
_ARGUMENTS = ("x", "y", "z")


def _flowing(partials: tuple[str | None, ...], tangent: str | None, arity: int) -> tuple[int, ...]:
    if tangent is None:
        return tuple(i for i, p in enumerate(partials) if p != "0")
    used = set(re.findall(r"\bd([xyz])\b", tangent))
    return tuple(i for i in range(arity) if _ARGUMENTS[i] in used)


class _ActiveArguments(dict[str, tuple[int, ...]]):
    """The active arguments of the table's ops, and of users' ops as they are met."""

    def __missing__(self, name: str) -> tuple[int, ...]:
        self[name] = found = _flowing(BY_NAME[name].partials, None, BY_NAME[name].arity)
        return found


active_arguments: Mapping[str, tuple[int, ...]] = _ActiveArguments(
    {op.name: _flowing(op.partials, op.tangent, op.arity) for op in TABLE}
)
"""Op name → positions of the arguments whose tangents reach the result."""


def activity(
    program: Program,
    seeds: Mapping[int, Iterable[int]],
    loads: Mapping[Var, frozenset[int]] | None = None,
) -> Activity:
    """Return the slots that each variable can depend on; without an entry it depends on none.

    ``seeds`` maps params to slots, ``loads`` reads of arrays to slots of their own. Only floats
    depend on slots, among them accumulators, and `SINGULAR` may be one.
    """
    found: dict[Var, frozenset[int]] = dict(loads or {})
    for index, slots in seeds.items():
        found[_seedable(program.params[index])] = frozenset(slots)
    _visit_block(program.body, found)
    return found


def spread(block: Block, seeds: Mapping[Var, frozenset[int]]) -> Activity:
    """Return the slots of each variable of a block from those of the variables that it reads."""
    found = dict(seeds)
    _visit_block(block, found)
    return found


def _seedable(param: Param) -> Var:
    if not param.var.type.is_float:
        raise ValueError(f"param {param.name!r} of type {param.var.type} cannot carry a derivative")
    return param.var


def _inputs_of(atom: Atom, found: Mapping[Var, frozenset[int]]) -> frozenset[int]:
    return found.get(atom, _NONE) if isinstance(atom, Var) else _NONE


def _visit_block(block: Block, found: dict[Var, frozenset[int]]) -> None:
    for statement in block.statements:
        if isinstance(statement, Update) and _inputs_of(statement.value, found):
            found[statement.array] = _inputs_of(statement.array, found) | _inputs_of(
                statement.value, found
            )
        outs = _slots_of_outs(statement, found)
        for var, slots in zip(written_vars(statement), outs, strict=False):
            if slots and var.type.is_float:
                found[var] = slots


def _slots_of_outs(s: Statement, found: dict[Var, frozenset[int]]) -> list[frozenset[int]]:
    match s:
        case Equation():
            slots = _NONE.union(*(_inputs_of(s.args[i], found) for i in active_arguments[s.op]))
            return [slots | {SINGULAR} if slots and BY_NAME[s.op].singular else slots]
        case Load():
            return [_inputs_of(s.array, found) | _inputs_of(s.out, found)]
        case If():
            _visit_block(s.then, found)
            _visit_block(s.orelse, found)
            return [
                _inputs_of(a, found) | _inputs_of(b, found)
                for a, b in zip(s.then.results, s.orelse.results, strict=True)
            ]
        case While():
            carried = _slots_of_carries(s, found)
            # Where a loop has no fixed point, its derivative is not finite.
            carried = [f | {SINGULAR} if f and s.implicit else f for f in carried]
            return [f | _inputs_of(out, found) for f, out in zip(carried, s.outs, strict=True)]
    return []


def _slots_of_carries(s: While, found: dict[Var, frozenset[int]]) -> list[frozenset[int]]:
    """Grow the carries' slots until an iteration of the body adds none."""
    slots = [_inputs_of(a, found) if a.type.is_float else _NONE for a in s.inits]
    while True:
        found.update({v: f for v, f in zip(s.carries, slots, strict=True) if f})
        _visit_block(s.body, found)
        grown = [
            f | _inputs_of(a, found) if a.type.is_float else _NONE
            for f, a in zip(slots, s.body.results, strict=True)
        ]
        if grown == slots:
            return slots
        slots = grown
