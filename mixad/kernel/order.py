"""The order of a program's statements: the longest chains come first.

The chains of a program that do not depend on one another (two sigmoids, say) stand one after the
other as they were written, each operation waiting for the one before. A processor finds work in the
other chains only as far as it looks ahead, which is less than a gang of a large kernel. So
statements are sorted by their *height*, the cost of the costliest chain from them to the end of the
block (Hu, *Parallel sequencing and assembly line problems*, Oper. Res. 9, 1961): chains alternate,
and what is needed late is computed late. No value changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from mixad.kernel.block_summary import BlockSummary, reads_of, summarize_blocks
from mixad.kernel.cost import statement_cost
from mixad.scalar.ir import (
    Block,
    If,
    Load,
    Program,
    Statement,
    Touch,
    Update,
    Var,
    While,
    walk_statements,
    written_vars,
)

__all__ = ["order_by_height"]


def order_by_height(program: Program) -> Program:
    """Return a program with the statements of each block in the order of their heights."""
    written = frozenset(a.var for a in program.accumulators if a.kind == "write")
    written |= {s.array for s in walk_statements(program.body) if isinstance(s, Touch)}
    return replace(program, body=_sort_block(program.body, summarize_blocks(program), written))


def _sort_block(
    block: Block, summaries: Mapping[int, BlockSummary], written: frozenset[Var]
) -> Block:
    """Sort a block and the blocks inside it; statements of equal height keep their order."""
    heights = _heights(block, summaries, written)
    order = sorted(range(len(heights)), key=lambda i: -heights[i])
    inside = (_inside(block.statements[i], summaries, written) for i in order)
    return Block(tuple(inside), block.results)


def _heights(
    block: Block, summaries: Mapping[int, BlockSummary], written: frozenset[Var]
) -> list[int]:
    """Return for each statement the cost of the costliest chain that starts with it.

    A statement that reads or writes an array in ``written``, or touches one, waits for all such
    before it.
    """
    after: defaultdict[Var, int] = defaultdict(int)
    heights = []
    for s in reversed(block.statements):
        cost = statement_cost(s, lambda b: summaries[id(b)].cost)
        changed = _accessed_arrays(s, written) if written else ()
        height = cost + max((after[v] for v in (*written_vars(s), *changed)), default=0)
        for var in (*reads_of(s, summaries), *changed):
            after[var] = max(after[var], height)
        heights.append(height)
    return heights[::-1]


def _accessed_arrays(s: Statement, arrays: frozenset[Var]) -> set[Var]:
    """Return the arrays that a statement reads or changes, its blocks included."""
    inside = walk_statements(Block((s,), ()))
    return {t.array for t in inside if isinstance(t, Load | Update | Touch) and t.array in arrays}


def _inside(
    s: Statement, summaries: Mapping[int, BlockSummary], written: frozenset[Var]
) -> Statement:
    """Sort the blocks inside a statement."""

    def sort_nested(block: Block) -> Block:
        return _sort_block(block, summaries, written)

    match s:
        case If():
            return replace(s, then=sort_nested(s.then), orelse=sort_nested(s.orelse))
        case While():
            return replace(s, cond=sort_nested(s.cond), body=sort_nested(s.body))
    return s
