"""Programs run as array-API calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.emit.array_run import in_memory, run_procedure
from mixad.emit.arrays import procedure_of
from mixad.scalar.dtypes import array_dtype
from mixad.scalar.ir import Program
from mixad.scalar.updates import neutral
from mixad.scalar.widen import widen_program


def run_arrays(
    program: Program,
    arguments: Any,
    shape: tuple[int, ...],
    xp: Any,
    accumulators: Sequence[tuple[int, ...]] = (),
) -> tuple[Any, ...]:
    """Run a program on every element of arrays of a namespace, and return its outputs.

    ``accumulators`` are their shapes.
    """
    added = [(a.kind, a.var.type) for a in program.accumulators]
    begun = [
        xp.full(shape, neutral(kind, type), dtype=array_dtype(xp, type.arithmetic))
        for shape, (kind, type) in zip(accumulators, added, strict=True)
    ]
    arguments = [*arguments, *begun]
    kinds = (*((p.kind, p.var.type) for p in program.params), *added)
    results = run_procedure(procedure_of(widen_program(program)), kinds, arguments, shape, xp)
    types = (output.type for output in program.outputs)
    return tuple(in_memory(r, type, xp) for r, type in zip(results, types, strict=True))
