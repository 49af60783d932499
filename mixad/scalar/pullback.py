"""The pullback: x̄ₙ = Σₘ ȳₘ ∂yₘ/∂xₙ as programs, the partials by dual chunks or in reverse.

By dual chunks there is one program for each chunk of inputs, in reverse one for all.  What is read
of an array that is differentiated is an input for itself: its gradient is added to the array's at
the indices of the read.  The cotangent of an array that a program adds to is an array, read where
it added.  The contraction with the cotangents is a strong zero: where a
cotangent is zero the gradient is zero, whatever the partial is (``sqrt`` at 0, for example), and
where a partial is zero it is so whatever the cotangent is, which may come from such a ``sqrt``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixad.scalar.access_pullback import access_pullback
from mixad.scalar.accesses import accesses_arrays
from mixad.scalar.adjoint import adjoint_block
from mixad.scalar.build import Builder
from mixad.scalar.contraction import contraction
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Atom, Program
from mixad.scalar.pushforward import push_block

__all__ = ["ChunkPass", "pullback", "reverse_pullback"]


@dataclass(frozen=True)
class ChunkPass:
    """One pass of a pullback."""

    # Takes the original's params, then one cotangent for each of the chosen outputs.
    program: Program
    # For each input of this chunk, in order, the position of its gradient among the outputs of
    # ``program``; None where the gradient is statically zero.
    gradients: tuple[int | None, ...]
    # Positions of the original's outputs; empty if they were not asked for in this pass.
    primals: tuple[int, ...] = ()


def pullback(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    *,
    chunk: int = MAX_PARTIALS,
    with_primals: bool = False,
    units: Collection[int] = (),
) -> tuple[ChunkPass, ...]:
    """Return the passes that compute gradients; their chunks cover ``wrt``, floats, in order.

    ``wrt`` are the params whose gradients are wanted, floats; the gradient of an array param is an
    accumulator.  ``cotangents`` are the outputs that have one: that of an accumulator is an array
    param, and those at the positions ``units`` are 1, taken but not read.  A pass has at most
    ``chunk`` inputs; together the passes cover ``wrt`` in order.  If ``with_primals``, the first
    also returns the program's own outputs.  A param or chunk that does not fit is a ValueError, a
    derivative that the op table does not have, or of what a loop reads, a KernelGradientError.
    """
    if not 1 <= chunk <= MAX_PARTIALS:
        raise ValueError(f"chunk must be from 1 to {MAX_PARTIALS}, not {chunk}")
    if accesses_arrays(program, wrt):
        found, gradients, count = access_pullback(
            program, wrt, cotangents, chunk=chunk, with_primals=with_primals, units=units
        )
        return (ChunkPass(found, gradients, tuple(range(count))),)
    chunks = even_chunks(len(wrt), chunk)
    return tuple(
        _chunk_pass(
            program,
            [wrt[slot] for slot in slots],
            cotangents,
            with_primals and slots.start == 0,
            units,
        )
        for slots in chunks
    )


def reverse_pullback(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    *,
    with_primals: bool = False,
    units: Collection[int] = (),
) -> ChunkPass:
    """Return the one pass that computes the gradients of a program's inputs in reverse.

    Parameters are those of `pullback`; KernelGradientError for a loop whose results have partials.
    """
    if accesses_arrays(program, wrt):
        found, gradients, count = access_pullback(
            program, wrt, cotangents, chunk=None, with_primals=with_primals, units=units
        )
        return ChunkPass(found, gradients, tuple(range(count)))
    builder = Builder(program.name)
    primals, rows = adjoint_block(builder, program, wrt, cotangents)
    partials = [rows[m] for m in cotangents]
    own = primals if with_primals else ()
    return _contract(builder, program, wrt, cotangents, partials, own, units)


def _chunk_pass(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    with_primals: bool,
    units: Collection[int],
) -> ChunkPass:
    builder = Builder(program.name)
    duals = push_block(builder, program, wrt)
    partials = [duals[m].partials for m in cotangents]
    primals = [d.primal for d in duals] if with_primals else []
    return _contract(builder, program, wrt, cotangents, partials, primals, units)


def _contract(
    builder: Builder,
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    partials: Sequence[Mapping[Any, Atom]],
    primals: Sequence[Atom],
    units: Collection[int],
) -> ChunkPass:
    """Finish a program of partials by their contraction with cotangents."""
    seeds: list[Atom] = []
    for at, m in enumerate(cotangents):
        type = program.outputs[m].type
        given = builder.param(f"cotangent {m}", type)
        seeds.append(builder.const(1, type) if at in units else given)
    gradients = [
        contraction(builder, slot, program.params[index].var.type, seeds, partials)
        for slot, index in enumerate(wrt)
    ]
    results = list(primals)
    positions = []
    for gradient in gradients:
        positions.append(None if gradient is None else len(results))
        results += [] if gradient is None else [gradient]
    return ChunkPass(builder.finish(results), tuple(positions), tuple(range(len(primals))))
