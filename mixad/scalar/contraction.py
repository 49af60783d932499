"""The contraction of partials with cotangents, with a strong zero on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mixad.scalar.adjoint import is_zero
from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom
from mixad.scalar.types import ScalarType

__all__ = ["contraction"]


def contraction(
    builder: Builder,
    slot: int,
    type: ScalarType,
    cotangents: Sequence[Atom],
    partials: Sequence[Mapping[Any, Atom]],
) -> Atom | None:
    """Add Σₘ ȳₘ · ∂yₘ/∂(slot), in the input's type; None if every term is statically zero."""
    total: Atom | None = None
    for cotangent, row in zip(cotangents, partials, strict=True):
        partial = row.get(slot)
        if partial is not None and not is_zero(partial):
            seed = builder.convert(cotangent, partial.type)
            term = builder.convert(builder.op("mul_zeros", seed, partial), type)
            total = term if total is None else builder.op("add", total, term)
    return total
