"""The type that an operation on arrays is carried out in, as their library defines it."""

from __future__ import annotations

from collections.abc import Sequence

from mixad.backends.arrays import Library
from mixad.errors import KernelTypeError
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import ScalarType

__all__ = ["promoted"]


def promoted(library: Library, what: str, operands: Sequence[tuple[Typed, int]]) -> ScalarType:
    """Return the type that an operation on values of these types and ranks is carried out in.

    torch lets an array of rank 0 decide only where its kind is higher (bool, whole numbers,
    floats); the other libraries look at dtypes alone.

    Parameters
    ----------
    library : Library
        Of the arrays.
    what : str
        The operation, for messages.
    operands : sequence of (Typed, int)
        Types and ranks.

    Raises
    ------
    KernelTypeError
        If the library does not mix these types.
    """
    ranked = [t for t, rank in operands if rank > 0 and not t.weak]
    if library.name == "torch" and ranked:
        highest = max(_kind_rank(t.type) for t in ranked)
        deciding = [t for t, _ in operands if t in ranked or _kind_rank(t.type) > highest]
        return _joined(library, what, deciding)
    return _joined(library, what, [t for t, _ in operands])


def _joined(library: Library, what: str, types: Sequence[Typed]) -> ScalarType:
    joined = types[0]
    for other in types[1:]:
        found = library.rules.join(joined, other)
        if found is None:
            raise KernelTypeError(f"{what} of {joined} and {other} is refused by {library.name}")
        joined = found
    return joined.type


def _kind_rank(type: ScalarType) -> int:
    return 2 if type.is_float else 1 if type.is_integer else 0
