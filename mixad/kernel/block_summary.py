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

__all__ = ["BlockSummary", "reads_of", "summarize_blocks"]


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """A summary of a block and all blocks inside it."""

    reads: frozenset[Var]  # variables read and not written; no array params
    cost: int  # of its statements (`mixad.kernel.cost`)
    has_loop: bool  # whether there is a While


def summarize_blocks(program: Program) -> Mapping[int, BlockSummary]:
    """Return a summary of each block of a program, by ``id``."""
    summaries: dict[int, BlockSummary] = {}
    _summarize(program.body, summaries)
    return summaries


def reads_of(statement: Statement, summaries: Mapping[int, BlockSummary]) -> set[Var]:
    """Return the variables that a statement reads from around it, its blocks included."""
    found = {a for a in read_atoms(statement) if isinstance(a, Var)}
    found = found.union(*(summaries[id(b)].reads for b in nested_blocks(statement)))
    return found.difference(statement.carries) if isinstance(statement, While) else found


def _summarize(block: Block, summaries: dict[int, BlockSummary]) -> None:
    reads = {a for a in block.results if isinstance(a, Var)}
    cost, has_loop = 0, False
    for s in block.statements:
        inner = nested_blocks(s)
        for nested in inner:
            _summarize(nested, summaries)
        reads |= reads_of(s, summaries)
        cost += statement_cost(s, lambda b: summaries[id(b)].cost)
        has_loop |= isinstance(s, While) or any(summaries[id(b)].has_loop for b in inner)
    reads.difference_update(*map(written_vars, block.statements))
    summaries[id(block)] = BlockSummary(frozenset(reads), cost, has_loop)
