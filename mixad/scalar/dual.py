"""Dual chunks: a value with its derivatives in a few directions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Generic, TypeVar

__all__ = ["MAX_PARTIALS", "DualChunk", "even_chunks"]

MAX_PARTIALS = 10
"""Most partials that one chunk carries; more inputs take several passes."""

T = TypeVar("T")


@dataclass(frozen=True)
class DualChunk(Generic[T]):
    """A primal and its partials with respect to some slots.

    ``T`` is a program variable in the transform, a float in the interpreter and an array at run
    time.  A slot without an entry has the partial zero, known without computing anything.

    Attributes
    ----------
    primal : T
        The value.
    partials : Mapping
        Slot → derivative of the value with respect to that slot; at most `MAX_PARTIALS` entries.

    Raises
    ------
    ValueError
        If there are more than `MAX_PARTIALS` partials.

    Examples
    --------
    >>> DualChunk(9.0, {"x": 6.0}).partials["x"]
    6.0
    """

    primal: T
    partials: Mapping[Hashable, T] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if len(self.partials) > MAX_PARTIALS:
            raise ValueError(
                f"a dual chunk carries at most {MAX_PARTIALS} partials, not {len(self.partials)}; "
                "differentiate in several chunks"
            )
        object.__setattr__(self, "partials", MappingProxyType(dict(self.partials)))

    @property
    def slots(self) -> tuple[Hashable, ...]:
        """The slots with a partial that is not statically zero."""
        return tuple(self.partials)


def even_chunks(count: int, limit: int = MAX_PARTIALS) -> tuple[range, ...]:
    """Split ``count`` slots into as few chunks as ``limit`` allows, as evenly as possible.

    >>> [len(chunk) for chunk in even_chunks(11)]
    [6, 5]
    >>> even_chunks(0)
    ()
    """
    chunks = -(-count // limit)
    bounds = [-(-count * i // chunks) for i in range(chunks + 1)] if chunks else [0]
    return tuple(range(a, b) for a, b in pairwise(bounds))
