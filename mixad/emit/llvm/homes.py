"""Where each lane param is loaded: in the innermost block around all its uses, outside loops.

A param that only one side of a condition reads is not loaded when that side is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from mixad.scalar.ir import Block, If, Program, Var, nested_blocks, read_atoms

__all__ = ["param_homes"]


def param_homes(program: Program) -> Mapping[int, tuple[Var, ...]]:
    """Return, for each block by ``id``, the lane params to load at its start."""
    homes: dict[int, tuple[Var, ...]] = {}
    lanes = {p.var for p in program.params if p.kind == "lane"}
    _settle(program.body, lanes & _all_reads(program.body), homes)
    return homes


def _settle(block: Block, wanted: set[Var], homes: dict[int, tuple[Var, ...]]) -> None:
    """Give each wanted param to the one nested side that reads it, or else to this block."""
    sides = [side for s in block.statements if isinstance(s, If) for side in (s.then, s.orelse)]
    reads = [_all_reads(side) for side in sides]
    direct = _direct_reads(block)
    here = {v for v in wanted if v in direct or sum(v in r for r in reads) != 1}
    homes[id(block)] = tuple(sorted(here, key=lambda v: v.id))
    for side, read in zip(sides, reads, strict=True):
        _settle(side, (wanted - here) & read, homes)


def _direct_reads(block: Block) -> set[Var]:
    """Return what a block reads outside the sides of conditions; loops count as a whole."""
    found = {a for a in block.results if isinstance(a, Var)}
    for statement in block.statements:
        found |= {a for a in read_atoms(statement) if isinstance(a, Var)}
        if not isinstance(statement, If):
            for inner in nested_blocks(statement):
                found |= _all_reads(inner)
    return found


def _all_reads(block: Block) -> set[Var]:
    found = {a for a in block.results if isinstance(a, Var)}
    for statement in block.statements:
        found |= {a for a in read_atoms(statement) if isinstance(a, Var)}
        for inner in nested_blocks(statement):
            found |= _all_reads(inner)
    return found
