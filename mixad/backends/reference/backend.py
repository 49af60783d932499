"""Kernels as array-API calls: each op of a program is a pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from mixad.backends.arrays import NUMPY, library_of
from mixad.emit.array_run import in_memory, run_procedure, sum_by_halves
from mixad.emit.arrays import Procedure, procedure_of, show
from mixad.kernel.spec import KernelSpec, Launch
from mixad.scalar.ir import Param, source_lines
from mixad.scalar.updates import neutral
from mixad.scalar.widen import widen_program

__all__ = ["BoundReference", "ReferenceBackend", "ReferenceKernel"]


@dataclass(frozen=True)
class ReferenceKernel:
    """A kernel's programs as array-API procedures, one per pass."""

    spec: KernelSpec
    procedures: tuple[Procedure, ...]


@dataclass(frozen=True)
class BoundReference:
    """A kernel and the shapes that it runs over."""

    kernel: ReferenceKernel
    launch: Launch


class ReferenceBackend:
    """Runs kernel specs with the functions of the arrays' own namespace."""

    name = "reference"

    def emit(self, spec: KernelSpec) -> str:
        """Return the array-API calls of a kernel as text, pass by pass."""
        parts = []
        for k, program in enumerate(spec.passes):
            wanted = [o.source[1] for o in spec.outputs if o.source[0] == k]
            outputs = ", ".join(map(str, wanted)) or "none"
            comments = [f"pass {k}; outputs used: {outputs}"]
            comments += [line.shown for line in source_lines(program)]
            shown = show(procedure_of(widen_program(program)))
            parts.append("".join(f"# {c}\n" for c in comments) + shown)
        return "\n\n".join(parts)

    def compile(self, spec: KernelSpec) -> ReferenceKernel:
        """Return the kernel's procedures."""
        return ReferenceKernel(spec, tuple(procedure_of(widen_program(p)) for p in spec.passes))

    def bind(self, executable: ReferenceKernel, launch: Launch) -> BoundReference:
        """Return the kernel with its broadcast shape."""
        return BoundReference(executable, launch)

    def launch(self, bound: BoundReference, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run the kernel; the outputs are of the arguments' library and device."""
        executable, launch = bound.kernel, bound.launch
        spec = executable.spec
        kinds = tuple((p.kind, p.var.type) for p in spec.passes[0].params)
        arrays = [a for a, (kind, _) in zip(arguments, kinds, strict=True) if kind != "uniform"]
        library = library_of(arrays[0]) if arrays else NUMPY
        place = device(arrays[0]) if arrays else None
        xp, results = library.xp, []
        for at, procedure in enumerate(executable.procedures):
            sums = _accumulators(launch, at)
            begun = [
                xp.full(
                    shape,
                    neutral(added.kind, added.var.type),
                    dtype=library.dtype_of(added.var.type.arithmetic),
                    device=place,
                )
                for added, shape in sums
            ]
            own = (*kinds, *((added.kind, added.var.type) for added, _ in sums))
            results.append(run_procedure(procedure, own, [*arguments, *begun], launch.shape, xp))
        outputs = []
        for o, shape in zip(spec.outputs, launch.results, strict=True):
            found = results[o.source[0]][o.source[1]]
            total = found if o.accumulated is not None else sum_by_halves(found, shape, xp)
            outputs.append(in_memory(total, o.type, xp))
        return tuple(outputs)


def _accumulators(launch: Launch, number: int) -> list[tuple[Param, tuple[int, ...]]]:
    """Return each accumulator of a pass and its shape; without dead code all are outputs."""
    program, spec = launch.spec.passes[number], launch.spec
    shapes = {
        program.outputs[o.source[1]]: shape
        for o, shape in zip(spec.outputs, launch.results, strict=True)
        if o.source[0] == number
    }
    return [(a, shapes[a.var]) for a in program.accumulators]
