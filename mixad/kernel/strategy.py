"""How the partials of a kernel are computed: by dual numbers, or in reverse.

Dual numbers take one pass for each chunk of inputs, and each pass evaluates the program again;
reverse accumulation takes one for all, and as many walks back as there are outputs.  Both do the
same where one pass of dual numbers is enough: which of them is faster there differs by a tenth
either way (record 0012), so that dual numbers, which go through loops as well, are the rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from mixad.kernel.cost import block_cost
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Program

__all__ = ["may_reverse", "reverse_pays"]


def may_reverse(inputs: int) -> bool:
    """Whether dual numbers would take several passes for so many inputs."""
    return inputs > MAX_PARTIALS


def reverse_pays(forward: Sequence[Program], reverse: Sequence[Program]) -> bool:
    """Whether the programs of reverse accumulation cost less than those on dual numbers."""
    return _cost(reverse) < _cost(forward)


def _cost(programs: Sequence[Program]) -> int:
    return sum(block_cost(p.body) for p in programs)
