"""What statements cost, in units of one vector instruction: a model, for choices between equals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mixad.scalar.ir import Block, Equation, If, Statement, While
from mixad.scalar.ops import BY_NAME

__all__ = ["BRANCH_COST", "block_cost", "statement_cost"]

BRANCH_COST = 24
"""A side of a varying condition that costs less than this is computed without asking whether."""

_DEAR: Mapping[str, int] = MappingProxyType(
    {"div": 6, "sqrt": 8, "floordiv": 20, "mod": 20, "fmod": 40}
)
_LIBRARY_CALL = 40
_TURNS = 8
"""Turns that an unknown loop is assumed to make."""


def statement_cost(statement: Statement) -> int:
    """Return the cost of one statement with everything inside it."""
    match statement:
        case Equation():
            dear = _LIBRARY_CALL if BY_NAME[statement.op].lowering != "instruction" else 1
            return _DEAR.get(statement.op, dear)
        case If():
            return 1 + block_cost(statement.then) + block_cost(statement.orelse)
        case While():
            return _TURNS * (1 + block_cost(statement.cond) + block_cost(statement.body))
    return 4


def block_cost(block: Block) -> int:
    """Return the cost of all statements of a block."""
    return sum(map(statement_cost, block.statements))
