"""Which programs take a broadcast's cotangents back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from mixad.kernel.options import Mode
from mixad.kernel.strategy import taken_passes
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Program
from mixad.scalar.pullback import ChunkPass, pullback, reverse_pullback
from mixad.scalar.simplify import read_params, without_dead_code

__all__ = ["PullbackPlan", "plan_pullback"]


@dataclass(frozen=True, eq=False)
class PullbackPlan:
    """The passes of a pullback, without the params that they do not read."""

    strategy: Literal["forward", "reverse"]  # what was taken
    passes: tuple[Program, ...]  # with the same params; each has results
    kept: tuple[int, ...]  # their params: the original's, then one for each cotangent
    gradients: tuple[tuple[int, int] | None, ...]  # in `wrt`'s order: pass, result; None if zero
    primals: tuple[tuple[int, int], ...]  # by output: pass and result; empty if not asked for


def plan_pullback(
    program: Program,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    mode: Mode,
    *,
    with_primals: bool = False,
    units: tuple[int, ...] = (),
) -> PullbackPlan:
    """Return how the gradients of the params `wrt` of this very program are computed.

    `with_primals` asks for the outputs, too. `units` are positions in `cotangents` of those that
    are known to be 1: no pass reads them.
    """

    def forward() -> tuple[ChunkPass, ...]:
        chunk = mode.chunk or MAX_PARTIALS
        found = pullback(
            program, wrt, cotangents, chunk=chunk, with_primals=with_primals, units=units
        )
        return tuple(map(_trimmed, found))

    def reverse() -> tuple[ChunkPass, ...]:
        found = reverse_pullback(program, wrt, cotangents, with_primals=with_primals, units=units)
        return (_trimmed(found),)

    strategy, chunks = taken_passes(program, wrt, mode, forward, reverse)
    passes: list[Program] = []
    gradients: list[tuple[int, int] | None] = []
    primals: tuple[tuple[int, int], ...] = ()
    for chunk_pass in chunks:
        at = len(passes)
        gradients += [None if g is None else (at, g) for g in chunk_pass.gradients]
        primals += tuple((at, p) for p in chunk_pass.primals)
        if chunk_pass.program.outputs:
            passes.append(chunk_pass.program)
    kept = tuple(sorted({i for p in passes for i in read_params(p)}))
    trimmed = (replace(p, params=tuple(p.params[i] for i in kept)) for p in passes)
    return PullbackPlan(strategy, tuple(trimmed), kept, tuple(gradients), primals)


def _trimmed(found: ChunkPass) -> ChunkPass:
    return replace(found, program=without_dead_code(found.program))
