"""The cost of statements: a model in vector instructions, for choices between equals, and flops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mixad.scalar.ir import Block, Equation, If, Statement, Update, Var, While
from mixad.scalar.ops import BY_NAME

__all__ = ["BRANCH_COST", "block_cost", "flops", "statement_cost"]

BRANCH_COST = 24
"""A side of a varying condition that costs less than this is computed without a branch."""

_COSTS: Mapping[str, int] = MappingProxyType(
    {"isnan": 1, "isinf": 2, "isfinite": 2, "relu": 2, "mul_zero": 3, "sign": 4, "minimum": 4,
     "maximum": 4, "mul_zeros": 5, "div": 6, "bounded_reciprocal": 6, "sqrt": 8, "div_zero": 8,
     "floordiv": 20, "mod": 20, "fmod": 40}
)  # fmt: skip
_LIBRARY_CALL = 40
_ITERATIONS = 8
"""Assumed iterations of an unknown loop."""
_ITERATION = 8
"""Cost of an iteration besides its statements: masks, selections of carries, the jump."""


def block_cost(block: Block) -> int:
    """Return the cost of all statements of a block."""
    return sum(map(statement_cost, block.statements))


def statement_cost(statement: Statement, inside: Callable[[Block], int] = block_cost) -> int:
    """Return the cost of a statement with everything inside it; ``inside`` has its blocks'."""
    match statement:
        case Equation():
            otherwise = _LIBRARY_CALL if BY_NAME[statement.op].lowering != "instruction" else 1
            return _COSTS.get(statement.op, otherwise)
        case If():
            return 1 + inside(statement.then) + inside(statement.orelse)
        case While():
            return _ITERATIONS * (_ITERATION + inside(statement.cond) + inside(statement.body))
        case Update():
            return _ACCUMULATION
    return 4


_ACCUMULATION = 32
"""Cost of an addition to an array: lane by lane, so a gang that adds nothing skips it."""

_FLOPS: Mapping[str, int] = MappingProxyType(
    {"add": 1, "sub": 1, "mul": 1, "div": 1, "bounded_reciprocal": 1, "sqrt": 1, "fma": 2,
     "floordiv": 1, "mod": 1}
)  # fmt: skip


def flops(block: Block) -> int:
    """Return the number of floating-point operations of a block for one element.

    An fma counts two, a library call as many as a cheap one takes, comparisons, selections and
    conversions none. Both sides of a condition count, since some element may take each.
    """
    return sum(map(_flops, block.statements))


def _flops(statement: Statement) -> int:
    match statement:
        case Equation(out=Var(type=type), op=op) if type.is_float:
            is_call = BY_NAME[op].lowering == "libm"
            return _LIBRARY_CALL if is_call else _FLOPS.get(op, 0)
        case If():
            return flops(statement.then) + flops(statement.orelse)
        case While():
            return _ITERATIONS * (flops(statement.cond) + flops(statement.body))
        case Update():
            return 1
    return 0
