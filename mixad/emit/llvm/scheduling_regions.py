"""Scheduling regions, which keep LLVM from undoing `mixad.kernel.order`.

Statements come in an order in which independent chains alternate. LLVM schedules each block once
more, and where registers become short it finishes one chain after the other, to save spills. The
processor then waits for every chain, which costs more than a few spills do: so LLVM gets a long
block in regions. Many spills cost more than waiting: then the order is LLVM's. Figures are in
record 0005.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from mixad.emit.llvm.text import GANG
from mixad.kernel.block_summary import BlockSummary, reads_of
from mixad.scalar.ir import Block, Var, written_vars

__all__ = ["MAX_LIVE", "REGION", "scheduling_boundaries"]

REGION = 128
"""Statements that LLVM may reorder as one; 96 to 256 make no difference."""

MAX_LIVE = 50
"""Values that may live at once, of the 32 registers that 512-bit vectors have; the rest spill."""


def scheduling_boundaries(
    block: Block, vector_bits: int, summaries: Mapping[int, BlockSummary]
) -> range:
    """Return the indices of the statements before which a scheduling region of a block ends.

    There are none where a gang takes several registers, or more than `MAX_LIVE` values live at
    once.
    """
    count = len(block.statements)
    if count <= REGION or not _takes_one_register_each(block, vector_bits):
        return range(0)
    return range(REGION, count, REGION) if _most_live(block, summaries) <= MAX_LIVE else range(0)


def _takes_one_register_each(block: Block, vector_bits: int) -> bool:
    types = (var.type for statement in block.statements for var in written_vars(statement))
    return all(type.is_bool or GANG * type.bits <= vector_bits for type in types)


def _most_live(block: Block, summaries: Mapping[int, BlockSummary]) -> int:
    """Return how many values of a block live at once; truth values have their own registers."""
    last: dict[Var, int] = {}
    for index, statement in enumerate(block.statements):
        last.update(dict.fromkeys(reads_of(statement, summaries), index))
    last.update({a: len(block.statements) for a in block.results if isinstance(a, Var)})
    changes: Counter[int] = Counter()
    for index, statement in enumerate(block.statements):
        for var in written_vars(statement):
            if var in last and not var.type.is_bool:
                changes[index] += 1
                changes[last[var] + 1] -= 1
    return max(accumulate(changes[index] for index in range(len(block.statements))))
