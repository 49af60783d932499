"""The order of a program's statements: what the end waits for longest comes first.

The chains of a program that do not depend on one another (two sigmoids, say) stand one after the
other as they were written, each operation waiting for the one before.  A processor finds work in
the other chains only as far as it looks ahead, which is less than a gang of a large kernel.  So
statements are sorted by their *height*, what the dearest chain from them to the end of the block
costs (Hu, *Parallel sequencing and assembly line problems*, Oper. Res. 9, 1961): chains take turns,
and what is needed late is computed late.  No value changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from mixad.kernel.contents import Contents, contents_of, reads_of
from mixad.kernel.cost import statement_cost
from mixad.scalar.ir import Block, If, Program, Statement, Var, While, written_vars

__all__ = ["order_by_height"]


def order_by_height(program: Program) -> Program:
    """Return a program with the statements of each block in the order of their heights."""
    return replace(program, body=_ordered(program.body, contents_of(program)))


def _ordered(block: Block, contents: Mapping[int, Contents]) -> Block:
    """Sort a block and the blocks inside it; equal heights stay in the order they were in."""
    heights = _heights(block, contents)
    order = sorted(range(len(heights)), key=lambda i: -heights[i])
    return Block(tuple(_inside(block.statements[i], contents) for i in order), block.results)


def _heights(block: Block, contents: Mapping[int, Contents]) -> list[int]:
    """Return for each statement the cost of the dearest chain that starts with it."""
    after: defaultdict[Var, int] = defaultdict(int)
    heights = []
    for s in reversed(block.statements):
        cost = statement_cost(s, lambda b: contents[id(b)].cost)
        height = cost + max((after[v] for v in written_vars(s)), default=0)
        for var in reads_of(s, contents):
            after[var] = max(after[var], height)
        heights.append(height)
    return heights[::-1]


def _inside(s: Statement, contents: Mapping[int, Contents]) -> Statement:
    """Sort the blocks inside a statement."""
    match s:
        case If():
            return replace(s, then=_ordered(s.then, contents), orelse=_ordered(s.orelse, contents))
        case While():
            return replace(s, cond=_ordered(s.cond, contents), body=_ordered(s.body, contents))
    return s
