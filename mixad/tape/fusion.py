"""Fusion of kernels into one program.

The programs of several calls are copied into one, where each reads the others' results directly. A
fused program depends only on the calls and on who reads whom; that is its key, and everything
derived from it is retained with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from mixad.kernel.cost import block_cost
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Program, Var
from mixad.scalar.simplify import read_params, without_dead_code
from mixad.tape.cell import Cell
from mixad.tape.guard import GuardedArray
from mixad.tape.kernel_call import KernelCall

__all__ = ["LONGEST", "NOTHING", "FusedProgram", "common_options", "fits", "fused_program",
           "internal", "value_of"]  # fmt: skip

MAX_NODES = 64
"""Nodes in one kernel: compile time grows with its length (at 32 nodes of 10 inputs 0.2 s), speed
does not. Each cut is one more kernel to compile: compiling a long chain takes time with its length,
whatever the number is, unless the chain repeats itself and finds its kernels again."""

LONGEST = 1000
"""What one element of a kernel of several nodes may cost: compile time grows with it as well."""

HIGH_COST = 500
"""Cost per element from which two programs are not put into one kernel: nothing is gained, since
the arrays between them are cheap beside them, and registers are short."""


@dataclass(frozen=True, eq=False)
class FusedProgram:
    """The program of fused calls; the same object for the same calls, so that it is a key."""

    program: Program

    @cached_property
    def cost(self) -> int:
        """What one element costs, as `mixad.kernel.cost` counts."""
        return block_cost(self.program.body)

    @cached_property
    def trimmed(self) -> tuple[Program, tuple[int, ...]]:
        """The program without what its results do not need, and which params it has left."""
        program = without_dead_code(self.program)
        kept = read_params(program)
        return replace(program, params=tuple([program.params[i] for i in kept])), kept


def internal(member: int, result: int) -> int:
    """Return the code, among leaves, of a result of a call."""
    return ~(member << 16 | result)


def value_of(source: Any) -> Any:
    """Return a leaf as kernels take it; a pending one is made."""
    return source.value if type(source) is Cell or type(source) is GuardedArray else source


NOTHING = FusedProgram(Builder("nothing").finish([]))


@lru_cache(maxsize=1024)
def fused_program(
    calls: tuple[KernelCall, ...], reads: tuple[int, ...], wanted: tuple[tuple[int, int], ...]
) -> FusedProgram:
    """Return the fused program of some calls, in order.

    `reads` has for each argument of each call a leaf, or a result inside as `internal` packs it;
    `wanted` has the results: a call, and a result of its program.
    """
    first = calls[0].passes[0]
    is_alone = len(calls) == 1 and reads == tuple(range(len(reads)))
    if is_alone and wanted == tuple((0, k) for k in range(len(first.outputs))):
        return FusedProgram(first)  # one call of which nothing is read twice
    builder = Builder(calls[-1].name)
    leaves: list[Var] = []
    results: list[tuple[Atom, ...]] = []
    places = iter(reads)
    for call in calls:
        program = call.passes[0]
        names: dict[Var, Atom] = {}
        for param in program.params:
            at = next(places)
            if at == len(leaves):
                leaves += builder.copy_params([param]).values()
            # As memory would hold it: what is computed does not depend on what is fused.
            names[param.var] = (
                leaves[at]
                if at >= 0
                else builder.round_to_storage(results[~at >> 16][~at & 0xFFFF])
            )
        names |= builder.copy_accumulators(program.accumulators)
        results.append(builder.copy(program.body, names))
    return FusedProgram(builder.finish([results[member][result] for member, result in wanted]))


def common_options(one: KernelOptions, other: KernelOptions) -> KernelOptions | None:
    """Return the options of a kernel that two nodes share; None if theirs differ."""
    if one is other or other == DEFAULT_OPTIONS:
        return one
    return other if one in (DEFAULT_OPTIONS, other) else None


def fits(count: int, cost: int, other: int) -> bool:
    """Whether nodes of two costs, so many together, fit into one kernel."""
    return count <= MAX_NODES and min(cost, other) < HIGH_COST and cost + other <= LONGEST
