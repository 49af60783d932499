"""Which programs take a broadcast's cotangents back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Program
from mixad.scalar.pullback import pullback
from mixad.scalar.simplify import read_params, without_dead_code

__all__ = ["PullbackPlan", "plan_pullback"]


@dataclass(frozen=True, eq=False)
class PullbackPlan:
    """The passes of a pullback, without the params that they do not read.

    Attributes
    ----------
    passes : tuple of Program
        With the same params; a pass without results is left out.
    kept : tuple of int
        Which params they take, among the original's and, after those, one for each cotangent.
    gradients : tuple of (tuple of int, or None)
        For each param in ``wrt``, pass and result of its gradient; None where it is zero.
    primals : tuple of (tuple of int)
        For each output of the original, pass and result; empty if they were not asked for.
    """

    passes: tuple[Program, ...]
    kept: tuple[int, ...]
    gradients: tuple[tuple[int, int] | None, ...]
    primals: tuple[tuple[int, int], ...]


def plan_pullback(
    program: Program,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    chunk: int | None,
    *,
    with_primals: bool = False,
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
    chunk : int or None
        Most active inputs in one pass; None: as many as a dual chunk holds.
    with_primals : bool
        Whether the outputs of the broadcast are wanted too.

    Returns
    -------
    PullbackPlan
        Made of this very program, with its names and lines.
    """
    chunks = pullback(
        program, wrt, cotangents, chunk=chunk or MAX_PARTIALS, with_primals=with_primals
    )
    passes: list[Program] = []
    gradients: list[tuple[int, int] | None] = []
    primals: tuple[tuple[int, int], ...] = ()
    for chunk_pass in chunks:
        at = len(passes)
        gradients += [None if g is None else (at, g) for g in chunk_pass.gradients]
        primals += tuple((at, p) for p in chunk_pass.primals)
        if chunk_pass.program.outputs:
            passes.append(without_dead_code(chunk_pass.program))
    kept = tuple(sorted({i for p in passes for i in read_params(p)}))
    trimmed = (replace(p, params=tuple(p.params[i] for i in kept)) for p in passes)
    return PullbackPlan(tuple(trimmed), kept, tuple(gradients), primals)
