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
from collections.abc import Iterator
from dataclasses import replace

from mixad.kernel.cost import statement_cost
from mixad.scalar.ir import (
    Block,
    If,
    Program,
    Statement,
    Var,
    While,
    nested_blocks,
    read_atoms,
    written_vars,
)

__all__ = ["order_by_height", "read_vars"]


def order_by_height(program: Program) -> Program:
    """Return a program with the statements of each block in the order of their heights.

    Parameters
    ----------
    program : Program
        Any program that accumulates into no array.

    Returns
    -------
    Program
        Computes the same values.
    """
    return replace(program, body=_ordered(program.body))


def _ordered(block: Block) -> Block:
    """Sort a block and the blocks inside it; equal heights stay in the order they were in."""
    heights = _heights(block)
    order = sorted(range(len(heights)), key=lambda i: -heights[i])
    return Block(tuple(_inside(block.statements[i]) for i in order), block.results)


def _heights(block: Block) -> list[int]:
    """Return for each statement the cost of the dearest chain that starts with it."""
    after: defaultdict[Var, int] = defaultdict(int)
    heights = []
    for s in reversed(block.statements):
        height = statement_cost(s) + max((after[v] for v in written_vars(s)), default=0)
        for var in read_vars(s):
            after[var] = max(after[var], height)
        heights.append(height)
    return heights[::-1]


def read_vars(s: Statement) -> Iterator[Var]:
    """Yield the variables that a statement reads, also inside its blocks."""
    yield from (a for a in read_atoms(s) if isinstance(a, Var))
    for block in nested_blocks(s):
        yield from (a for a in block.results if isinstance(a, Var))
        for inner in block.statements:
            yield from read_vars(inner)


def _inside(s: Statement) -> Statement:
    """Sort the blocks inside a statement."""
    match s:
        case If():
            return replace(s, then=_ordered(s.then), orelse=_ordered(s.orelse))
        case While():
            return replace(s, cond=_ordered(s.cond), body=_ordered(s.body))
    return s
