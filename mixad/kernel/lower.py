"""From programs as users' functions give them to programs that emitters spell."""

from __future__ import annotations

from dataclasses import replace

from mixad.kernel.divergence import flatten_divergence
from mixad.kernel.spec import KernelSpec
from mixad.scalar.math import expand

__all__ = ["lowered"]


def lowered(spec: KernelSpec) -> KernelSpec:
    """Return a spec of programs with instruction-level and libm ops only, divergence flattened."""
    return replace(
        spec, passes=tuple(flatten_divergence(expand(p), spec.moving) for p in spec.passes)
    )
