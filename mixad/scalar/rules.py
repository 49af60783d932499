"""Users' derivatives of their own functions: ops beside those of the table.

A call of such a function is its body, written out on numbers that carry no derivative, and one
equation more: of the value, of its arguments, and of the rule's captures. Its result is the value;
a derivative writes the rule's program out, whose outputs are the partials. Before anything runs,
`mixad.scalar.widen` puts the value in the equation's place.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Block, Program
from mixad.scalar.ops import Op, ScalarRule, add_op

__all__ = ["add_rule", "announce_rule", "fresh_name", "own_partials"]

_NUMBERS = itertools.count()


def fresh_name() -> str:
    """Return a name for an op that no other has."""
    return f"rule{next(_NUMBERS)}"


def announce_rule(name: str, arity: int) -> None:
    """Let programs name an op whose rule is not compiled yet."""
    rule = ScalarRule("", (), Program("", (), Block((), ())))
    add_op(Op(name, arity, "any", rule=rule))


def add_rule(name: str, rule: ScalarRule, places: Sequence[int | None]) -> None:
    """Make an op of a rule, under a name from `fresh_name`.

    ``places`` has, for each argument of the op after the value, its partial among the rule's
    outputs; None is refused, -1 has no derivative because it is no float.
    """
    partials = (None, *(None if p is None else "0" if p < 0 else f"p{p}" for p in places))
    add_op(Op(name, len(partials), "any", partials, singular=True, rule=rule,
              doc=f"The user's function {rule.function}."))  # fmt: skip


def own_partials(op: Op, builder: Builder, args: Sequence[Atom], out: Atom) -> Mapping[str, Atom]:
    """Return the values of the names in a user's op's `Op.partials`; empty for others."""
    if op.rule is None:
        return _NOTHING
    count = 1 + len(op.rule.parameters)
    partials = builder.inline(op.rule.program, (*args[1:count], out, *args[count:]))
    return {f"p{k}": atom for k, atom in enumerate(partials)}


_NOTHING: Mapping[str, Atom] = MappingProxyType({})
