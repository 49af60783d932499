"""From programs as users' functions give them to programs that emitters spell."""

from __future__ import annotations

from dataclasses import replace

from mixad.kernel.divergence import flatten_divergence
from mixad.kernel.order import order_by_height
from mixad.kernel.spec import KernelSpec
from mixad.scalar.ir import Program
from mixad.scalar.math import expand

__all__ = ["lowered"]


def lowered(spec: KernelSpec) -> KernelSpec:
    """Return a spec of programs as emitters spell them.

    They have instruction-level and libm ops only, divergence is flattened, and what the end waits
    for longest comes first.
    """

    def lower(program: Program) -> Program:
        return order_by_height(flatten_divergence(expand(program), spec.moving))

    return replace(spec, passes=tuple(map(lower, spec.passes)))
