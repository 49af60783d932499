"""The type that an operation on arrays is carried out in, as their library defines it."""

from __future__ import annotations

from collections.abc import Sequence

from mixad.backends.arrays import Library
from mixad.errors import KernelTypeError
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import ScalarType

__all__ = ["promoted_type"]


def promoted_type(library: Library, what: str, operands: Sequence[Typed]) -> ScalarType:
    """Return the type in which an operation on values of these types is computed.

    KernelTypeError if the library does not mix these types.
    """
    if what == "sub" and library.name == "torch" and any(typed.type.is_bool for typed in operands):
        raise KernelTypeError(
            "torch subtracts no booleans from numbers, and no numbers from booleans",
            hint="convert them: x - y.to(x.dtype), x - 1.0",
        )
    joined = operands[0]
    for other in operands[1:]:
        found = library.rules.join(joined, other)
        if found is None:
            raise KernelTypeError(
                f"{what} of {joined} and {other} is refused by {library.name}",
                hint="convert one of them: x.astype(dtype)",
            )
        joined = found
    return joined.type
