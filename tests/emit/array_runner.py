"""Programs run as array-API calls."""

from __future__ import annotations

from typing import Any

from mixad.emit.array_run import in_memory, run_procedure
from mixad.emit.arrays import procedure_of
from mixad.scalar.ir import Program
from mixad.scalar.widen import widened


def run_arrays(
    program: Program, arguments: Any, shape: tuple[int, ...], xp: Any
) -> tuple[Any, ...]:
    """Run a program on every element of arrays of a namespace, and return its outputs."""
    kinds = tuple((p.kind, p.var.type) for p in program.params)
    results = run_procedure(procedure_of(widened(program)), kinds, arguments, shape, xp)
    types = (output.type for output in program.outputs)
    return tuple(in_memory(r, type, xp) for r, type in zip(results, types, strict=True))
