"""From programs of users' functions to programs of ops that emitters spell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mixad.kernel.divergence import flatten_divergence
from mixad.kernel.order import order_by_height
from mixad.kernel.spec import KernelSpec
from mixad.scalar.ir import Program
from mixad.scalar.math import expand
from mixad.scalar.types import ScalarType

__all__ = ["lower_spec"]


def lower_spec(
    spec: KernelSpec,
    *,
    ordered: bool = True,
    native: Callable[[str, ScalarType], bool] = lambda op, type: False,
) -> KernelSpec:
    """Return a spec of programs of instruction-level and libm ops, with divergence flattened.

    If ``ordered``, longest dependence chains come first, for compilers that keep the order;
    ``native`` is asked as by `mixad.scalar.math.expand`.
    """

    def lower(program: Program) -> Program:
        program = flatten_divergence(expand(program, native), spec.varying_params)
        return order_by_height(program) if ordered else program

    return replace(spec, passes=tuple(map(lower, spec.passes)))
