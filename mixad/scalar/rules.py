"""Users' derivatives of their own functions: ops beside those of the table.

A call of such a function is its body, written out on numbers that carry no derivative, and one
equation more: of the value, of its arguments, and of the rule's captures. Its result is the value;
a derivative writes the rule's program out, whose outputs are the partials. Before anything runs,
`mixad.scalar.widen` puts the value in the equation's place.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Block, Program
from mixad.scalar.ops import Op, add_op

__all__ = ["Rule", "add_rule", "announce_rule", "fresh_name", "own_partials"]

_NUMBERS = itertools.count()


@dataclass(frozen=True, eq=False)
class Rule:
    """The derivative of one function for arguments of some types.

    Its program takes the parameters, the value, and what the op takes after the parameters; it
    returns the partials, of the type of the value.
    """

    function: str  # the user's name of it
    parameters: tuple[str, ...]  # the op takes them after the value
    program: Program

    def partials(self, builder: Builder, args: Sequence[Atom], out: Atom) -> tuple[Atom, ...]:
        """Add the equations of the rule for the op's arguments and result; return the partials."""
        count = 1 + len(self.parameters)
        return builder.inline(self.program, (*args[1:count], out, *args[count:]))

    def refusal(self, argument: int) -> tuple[str, str]:
        """Return the message and the hint for an argument of the op without a derivative."""
        of, missing = f"the derivative of {self.function} with respect to", "is not available"
        if argument == 0:
            return (
                f"{of} what it reads from outside {missing}: its rule is about its parameters",
                "one parameter more, or mixad.stop_gradient of what it reads",
            )
        return (
            f"{of} its parameter {self.parameters[argument - 1]!r} {missing}: its rule has None",
            "a partial derivative in the rule, or mixad.stop_gradient of the argument",
        )


def fresh_name() -> str:
    """Return a name for an op that no other has."""
    return f"rule{next(_NUMBERS)}"


def announce_rule(name: str, arity: int) -> None:
    """Add a name for an op whose rule is not compiled yet."""
    rule = Rule("", (), Program("", (), Block((), ())))
    add_op(Op(name, arity, "any", rule=rule))


def add_rule(name: str, rule: Rule, places: Sequence[int | None]) -> None:
    """Add an op for a rule, under a name from `fresh_name`.

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
    return {f"p{k}": atom for k, atom in enumerate(op.rule.partials(builder, args, out))}


_NOTHING: Mapping[str, Atom] = MappingProxyType({})
