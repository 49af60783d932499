"""Where each lane param is loaded: in the innermost block around all its uses, outside loops.

A param that only one side of a condition reads is not loaded when that side is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from mixad.kernel.block_summary import BlockSummary, reads_of
from mixad.scalar.ir import Atom, Block, If, Program, Var

__all__ = ["find_load_sites"]


def find_load_sites(
    program: Program, summaries: Mapping[int, BlockSummary]
) -> Mapping[int, tuple[Var, ...]]:
    """Return, for each block by ``id``, the lane params to load at its start.

    ``summaries`` are those of the program's blocks (`mixad.kernel.block_summary`).
    """
    sites: dict[int, tuple[Var, ...]] = {}
    lanes = {p.var for p in program.params if p.kind == "lane"}
    _settle(program.body, lanes & summaries[id(program.body)].reads, summaries, sites)
    return sites


def _settle(
    block: Block,
    wanted: set[Var],
    summaries: Mapping[int, BlockSummary],
    sites: dict[int, tuple[Var, ...]],
) -> None:
    """Give each wanted param to the one nested side that reads it, or else to this block."""
    sides = [side for s in block.statements if isinstance(s, If) for side in (s.then, s.orelse)]
    reads = [summaries[id(side)].reads for side in sides]
    direct = _direct_reads(block, summaries)
    here = {v for v in wanted if v in direct or sum(v in r for r in reads) != 1}
    sites[id(block)] = tuple(sorted(here, key=lambda v: v.id))
    for side, read in zip(sides, reads, strict=True):
        _settle(side, (wanted - here) & read, summaries, sites)


def _direct_reads(block: Block, summaries: Mapping[int, BlockSummary]) -> set[Atom]:
    """Return what a block reads outside the sides of conditions; loops count as a whole."""
    found: set[Atom] = set(block.results)
    for s in block.statements:
        if isinstance(s, If):
            found.add(s.cond)
        else:
            found |= reads_of(s, summaries)
    return found
