"""From programs as users' functions give them to programs that emitters spell."""

from __future__ import annotations

from dataclasses import replace

from mixad.kernel.spec import KernelSpec
from mixad.scalar.math import expand

__all__ = ["lowered"]


def lowered(spec: KernelSpec) -> KernelSpec:
    """Return a spec whose programs hold instruction-level and libm ops only."""
    return replace(spec, passes=tuple(map(expand, spec.passes)))
