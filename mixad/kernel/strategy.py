"""How the partials of a kernel are computed: by dual numbers, or in reverse.

Dual numbers take one pass for each chunk of inputs, and each pass evaluates the program again;
reverse accumulation takes one for all, and as many walks back as there are outputs.  Both do the
same where one pass of dual numbers is enough: which of them is faster there differs by a tenth
either way (record 0014), so that dual numbers, which go through loops as well, are the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, Protocol, TypeVar

from mixad.kernel.cost import block_cost, statement_cost
from mixad.kernel.options import Mode
from mixad.scalar.accesses import count_inputs
from mixad.scalar.adjoint import active_loop
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Equation, Program, Statement, walk_statements
from mixad.scalar.math import expand, program_of
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import ScalarType

__all__ = ["cost_of_passes", "may_reverse", "taken_passes"]


class _Pass(Protocol):
    @property
    def program(self) -> Program:
        """The program of the pass."""
        ...


_P = TypeVar("_P", bound=_Pass)


def taken_passes(
    program: Program,
    wrt: Sequence[int],
    mode: Mode,
    forward: Callable[[], tuple[_P, ...]],
    reverse: Callable[[], tuple[_P, ...]],
) -> tuple[Literal["forward", "reverse"], tuple[_P, ...]]:
    """Return the strategy that a mode chooses for a program, and its passes.

    The callables return the passes of a strategy, and are called if the mode may choose it.
    """
    if not wrt or mode.strategy == "forward":
        return "forward", forward()
    if mode.strategy == "reverse":
        return "reverse", reverse()
    if not may_reverse(count_inputs(program, wrt)) or active_loop(program, wrt) is not None:
        return "forward", forward()
    duals, adjoints = forward(), reverse()
    costs = [cost_of_passes([p.program for p in passes]) for passes in (duals, adjoints)]
    return ("reverse", adjoints) if costs[1] < costs[0] else ("forward", duals)


def may_reverse(inputs: int) -> bool:
    """Whether dual numbers would take several passes for ``inputs`` active inputs."""
    return inputs > MAX_PARTIALS


def cost_of_passes(programs: Sequence[Program]) -> int:
    """Return the cost of programs, contractions with cotangents included."""
    return sum(_statement_cost(s) for p in programs for s in walk_statements(p.body))


def _statement_cost(statement: Statement) -> int:
    """Return the cost of a statement without those inside it; an op counts what it expands to.

    As library calls, products with a strong zero would decide: contractions have many.
    """
    if isinstance(statement, Equation) and BY_NAME[statement.op].lowering == "program":
        return _program_cost(statement.op, statement.args[0].type.arithmetic)
    return statement_cost(statement, lambda block: 0)


@cache
def _program_cost(op: str, type: ScalarType) -> int:
    return block_cost(expand(program_of(op, type)).body)
