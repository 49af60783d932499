"""Programs run as array-API calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.emit.array_run import in_memory, run_procedure
from mixad.emit.arrays import procedure_of
from mixad.scalar.dtypes import array_dtype
from mixad.scalar.ir import Program
from mixad.scalar.widen import widened


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
    added = [a.var.type for a in program.accumulators]
    pairs = zip(accumulators, added, strict=True)
    zeros = [xp.zeros(s, dtype=array_dtype(xp, t.arithmetic)) for s, t in pairs]
    arguments = [*arguments, *zeros]
    kinds = (
        *((p.kind, p.var.type) for p in program.params),
        *(("accumulator", type) for type in added),
    )
    results = run_procedure(procedure_of(widened(program)), kinds, arguments, shape, xp)
    types = (output.type for output in program.outputs)
    return tuple(in_memory(r, type, xp) for r, type in zip(results, types, strict=True))
