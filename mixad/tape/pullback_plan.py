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
    """The passes of a pullback, without the params that they do not read.

    Attributes
    ----------
    strategy : str
        ``"forward"`` or ``"reverse"``: what was taken.
    passes : tuple of Program
        With the same params; a pass without results is left out.
    kept : tuple of int
        Which params they take, among the original's and, after those, one for each cotangent.
    gradients : tuple of (tuple of int, or None)
        For each param in ``wrt``, pass and result of its gradient; None where it is zero.
    primals : tuple of (tuple of int)
        For each output of the original, pass and result; empty if they were not asked for.
    """

    strategy: Literal["forward", "reverse"]
    passes: tuple[Program, ...]
    kept: tuple[int, ...]
    gradients: tuple[tuple[int, int] | None, ...]
    primals: tuple[tuple[int, int], ...]


def plan_pullback(
    program: Program,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    mode: Mode,
    *,
    with_primals: bool = False,
    units: tuple[int, ...] = (),
) -> PullbackPlan:
    """Return how the gradients of a program's params are computed.

    Parameters
    ----------
    program : Program
        Of the broadcast.
    wrt : tuple of int
        Params whose gradients are wanted.
    cotangents : tuple of int
        Outputs that have a cotangent.
    mode : Mode
        By dual chunks, in reverse, or the cheaper of both.
    with_primals : bool
        Whether the outputs of the broadcast are wanted too.
    units : tuple of int
        Positions in ``cotangents`` of those that are known to be 1: no pass reads them.

    Returns
    -------
    PullbackPlan
        Made of this very program, with its names and lines.
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
