"""Values and partial derivatives of a program at every element, as dual chunks of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from mixad.backends.arrays import scalar_type_of
from mixad.kernel.options import KernelOptions
from mixad.scalar.dual import MAX_PARTIALS, DualChunk, even_chunks
from mixad.scalar.ir import Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.scalar.pushforward import pushforward
from mixad.tape.apply import apply_program
from mixad.tape.node import library_beside
from mixad.tape.tracer import plain

__all__ = ["dual_arrays"]


def dual_arrays(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> tuple[DualChunk[Any], ...]:
    """Return a dual chunk of arrays for each output of a program.

    Parameters
    ----------
    program : Program
        What is applied.
    values : sequence
        One per param.
    wrt : sequence of int
        Params to differentiate with respect to, at most `MAX_PARTIALS`.
    options : KernelOptions
        ``chunk`` limits the partials of one pass.
    """
    if program.has_named_loops:
        warn_of_decided_results(program, tuple(wrt), tuple(range(len(program.outputs))))
    slots = even_chunks(len(wrt), options.chunk or MAX_PARTIALS) or (range(0),)
    passes = [_dual_pass(program, values, [wrt[slot] for slot in part], options) for part in slots]
    return tuple(map(_joined, zip(*passes, strict=True)))


def _dual_pass(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> list[DualChunk[Any]]:
    """Return the outputs with their partials with respect to some params, from one pass."""
    dual = pushforward(program, wrt)
    arrays = apply_program(dual.program, values, options)
    names = [program.params[i].name for i in wrt]
    return [_taken(output, arrays, names) for output in dual.outputs]


def _taken(
    positions: DualChunk[int], arrays: Sequence[Any], names: Sequence[str]
) -> DualChunk[Any]:
    """Return a dual chunk of arrays from one of positions; static zeros become arrays of zeros."""
    primal = arrays[positions.primal]
    values = plain(primal)
    xp = library_beside(primal).xp
    if not scalar_type_of(values.dtype).is_float:
        return DualChunk(primal)
    partials: dict[Hashable, Any] = {
        name: arrays[at]
        if (at := positions.partials.get(slot)) is not None
        else xp.zeros_like(values)
        for slot, name in enumerate(names)
    }
    return DualChunk(primal, partials)


def _joined(parts: Sequence[DualChunk[Any]]) -> DualChunk[Any]:
    """Return the dual chunks that several passes give for one output as one."""
    return DualChunk(parts[0].primal, {n: p for part in parts for n, p in part.partials.items()})
