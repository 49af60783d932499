"""Summaries of a program's blocks: found once for each, inner blocks first.

A chain of n conditions is n blocks inside one another. A pass that looked through everything inside
each of them would take time that grows as n².
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mixad.kernel.cost import statement_cost
from mixad.scalar.ir import (
    Block,
    Program,
    Statement,
    Var,
    While,
    nested_blocks,
    read_atoms,
    written_vars,
)

__all__ = ["Contents", "contents_of", "reads_of"]


@dataclass(frozen=True, slots=True)
class Contents:
    """A summary of a block and all blocks inside it."""

    reads: frozenset[Var]  # variables read and not written; no array params
    cost: int  # of its statements (`mixad.kernel.cost`)
    has_loop: bool  # whether there is a While


def contents_of(program: Program) -> Mapping[int, Contents]:
    """Return the contents of each block of a program, by ``id``."""
    found: dict[int, Contents] = {}
    _look_into(program.body, found)
    return found


def reads_of(statement: Statement, contents: Mapping[int, Contents]) -> set[Var]:
    """Return the variables that a statement reads from around it, its blocks included."""
    found = {a for a in read_atoms(statement) if isinstance(a, Var)}
    found = found.union(*(contents[id(b)].reads for b in nested_blocks(statement)))
    return found.difference(statement.carries) if isinstance(statement, While) else found


def _look_into(block: Block, found: dict[int, Contents]) -> None:
    reads = {a for a in block.results if isinstance(a, Var)}
    cost, has_loop = 0, False
    for s in block.statements:
        inner = nested_blocks(s)
        for nested in inner:
            _look_into(nested, found)
        reads |= reads_of(s, found)
        cost += statement_cost(s, lambda b: found[id(b)].cost)
        has_loop |= isinstance(s, While) or any(found[id(b)].has_loop for b in inner)
    reads.difference_update(*map(written_vars, block.statements))
    found[id(block)] = Contents(frozenset(reads), cost, has_loop)
