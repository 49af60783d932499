"""Set functions: equal elements share the cotangent of the one that stands for them evenly."""

from __future__ import annotations

from typing import Any, NamedTuple

from array_api_compat import device

from mixad.backends.arrays import Array, library_of
from mixad.namespace.elementwise import convert
from mixad.namespace.indexing import gather, scatter_add
from mixad.scalar.dtypes import element_type_of
from mixad.tape.node import Rule, apply_rule
from mixad.tape.tracer import primal_value

__all__ = ["unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """Each value, its first place, the value of each element by number, and counts."""

    values: Any
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Each value, and how often it occurs."""

    values: Any
    counts: Array


class UniqueInverse(NamedTuple):
    """Each value, and the value of each element by number."""

    values: Any
    inverse_indices: Array


def unique_all(x: Any) -> UniqueAll:
    """Return each value once, with its first place, the elements' numbers and counts."""
    values, indices, inverse, counts = library_of(primal_value(x)).xp.unique_all(primal_value(x))
    return UniqueAll(_record_unique(x, values, inverse), indices, inverse, counts)


def unique_counts(x: Any) -> UniqueCounts:
    """Return each value once, with how often it occurs."""
    xp = library_of(primal_value(x)).xp
    values, inverse = unique_inverse(x)
    ones = xp.ones(inverse.shape, dtype=inverse.dtype, device=device(x))
    return UniqueCounts(values, scatter_add(ones, tuple(values.shape), inverse))


def unique_inverse(x: Any) -> UniqueInverse:
    """Return each value once, with the number of the value of each element."""
    values, inverse = library_of(primal_value(x)).xp.unique_inverse(primal_value(x))
    return UniqueInverse(_record_unique(x, values, inverse), inverse)


def unique_values(x: Any) -> Any:
    """Return each value once."""
    return unique_inverse(x).values


def _record_unique(x: Any, values: Array, inverse: Array) -> Any:
    return apply_rule(_UNIQUE, x, values=values, inverse=inverse)


def _share_cotangent(g: Any, x: Any, values: Array, inverse: Array) -> Any:
    type = element_type_of(values.dtype)
    if type.is_narrow:  # 16 bits do not count many equal elements
        wide = type.arithmetic
        return convert(_share_cotangent(convert(g, wide), x, convert(values, wide), inverse), type)
    xp = library_of(values).xp
    ones = xp.ones(inverse.shape, dtype=values.dtype, device=device(values))
    return gather(g / scatter_add(ones, tuple(values.shape), inverse), inverse)


_UNIQUE = Rule(
    "unique_values", lambda xp, x, values, inverse: values, (_share_cotangent,), fresh=True
)
