"""The Jacobian: all partials of a program's outputs as outputs of programs, row by row.

By dual chunks there is one program for each chunk of inputs, in reverse one for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixad.scalar.adjoint import adjoint_block
from mixad.scalar.build import Builder
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Atom, Program
from mixad.scalar.pushforward import push_block
from mixad.scalar.simplify import without_dead_code

__all__ = ["PartialsPass", "dual_partials", "reverse_partials"]


@dataclass(frozen=True)
class PartialsPass:
    """One pass of a Jacobian."""

    # Takes the original's params.  Returns the original's outputs, if they were asked for, and
    # for each of them its partials with respect to the inputs of this pass.
    program: Program
    columns: range  # which inputs, by their positions among all that were named
    primals: int  # how many outputs of ``program`` are the original's own


def dual_partials(
    program: Program,
    wrt: Sequence[int],
    *,
    chunk: int = MAX_PARTIALS,
    with_primals: bool = False,
) -> tuple[PartialsPass, ...]:
    """Return the passes that compute partials by dual chunks of at most ``chunk`` inputs.

    The outputs are floats of one type. With primals, the first pass returns them, too.
    """
    passes = []
    for columns in even_chunks(len(wrt), chunk):
        builder = Builder(program.name)
        duals = push_block(builder, program, [wrt[slot] for slot in columns])
        primals = [d.primal for d in duals] if with_primals and not columns.start else []
        rows = [d.partials for d in duals]
        passes.append(_finish_program(builder, program, columns, primals, rows))
    return tuple(passes)


def reverse_partials(program: Program, wrt: Sequence[int], *, with_primals: bool) -> PartialsPass:
    """Return the one pass that computes partials in reverse, one walk back for each output.

    A loop whose results have partials is a KernelGradientError.
    """
    builder = Builder(program.name)
    outputs = range(len(program.outputs))
    primals, rows = adjoint_block(builder, program, wrt, outputs)
    own = primals if with_primals else ()
    return _finish_program(builder, program, range(len(wrt)), own, [rows[m] for m in outputs])


def _finish_program(
    builder: Builder,
    program: Program,
    columns: range,
    primals: Sequence[Atom],
    rows: Sequence[Mapping[Any, Atom]],
) -> PartialsPass:
    """Finish a program of partials; statically zero ones are zeros."""
    type = program.outputs[0].type
    zero = builder.const(0.0, type)
    partials = [
        builder.convert(row[slot], type) if slot in row else zero
        for row in rows
        for slot in range(len(columns))
    ]
    found = without_dead_code(builder.finish([*primals, *partials]))
    return PartialsPass(found, columns, len(primals))
