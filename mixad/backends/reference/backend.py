"""Kernels as array-API calls: each op of a program is a pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixad.backends.arrays import NUMPY, library_of
from mixad.emit.array_run import in_memory, run_procedure, sum_by_halves
from mixad.emit.arrays import Procedure, procedure_of, show
from mixad.kernel.spec import KernelSpec, Launch
from mixad.scalar.ir import source_lines
from mixad.scalar.widen import widened

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
            shown = show(procedure_of(widened(program)))
            parts.append("".join(f"# {c}\n" for c in comments) + shown)
        return "\n\n".join(parts)

    def compile(self, spec: KernelSpec) -> ReferenceKernel:
        """Return the kernel's procedures."""
        return ReferenceKernel(spec, tuple(procedure_of(widened(p)) for p in spec.passes))

    def bind(self, executable: ReferenceKernel, launch: Launch) -> BoundReference:
        """Return the kernel with its broadcast shape."""
        return BoundReference(executable, launch)

    def launch(self, bound: BoundReference, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run the kernel; the outputs are of the arguments' library and device."""
        executable, launch = bound.kernel, bound.launch
        passes = executable.spec.passes
        kinds = tuple((p.kind, p.var.type) for p in passes[0].params)
        arrays = [a for a, (kind, _) in zip(arguments, kinds, strict=True) if kind != "uniform"]
        xp = (library_of(arrays[0]) if arrays else NUMPY).xp
        results = [
            run_procedure(procedure, kinds, arguments, launch.shape, xp)
            for procedure in executable.procedures
        ]
        outputs = executable.spec.outputs
        return tuple(
            in_memory(sum_by_halves(results[o.source[0]][o.source[1]], shape, xp), o.type, xp)
            for o, shape in zip(outputs, launch.results, strict=True)
        )
