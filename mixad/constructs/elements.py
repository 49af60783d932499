"""Elements that are combined by operators: numbers, or what is at one place of several arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixad import pytree
from mixad.backends.arrays import Library
from mixad.constructs.leaves import leaf_of, result_of
from mixad.errors import KernelShapeError, KernelTypeError
from mixad.namespace.data_types import astype
from mixad.scalar.types import F32
from mixad.tape.cell import Kind
from mixad.tape.node import Result, common_library

__all__ = ["Elements", "read_elements"]


@dataclass(frozen=True)
class Elements:
    """Arrays of one shape; an element is what is at one place of all.

    Attributes
    ----------
    structure : Structure
        Of an element.
    leaves : list of array or Tracer
        The arrays; those of 16-bit floats as float32.
    results : tuple of Result
        What the user's arrays are.
    library : Library
        Of the arrays.
    """

    structure: pytree.Structure
    leaves: list[Any]
    results: tuple[Result, ...]
    library: Library

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the arrays."""
        return self.results[0].shape

    @property
    def kinds(self) -> list[Kind]:
        """What the arrays are that are combined."""
        return [result_of(leaf).kind for leaf in self.leaves]

    def restore(self, leaves: Sequence[Any]) -> Any:
        """Return arrays in the user's dtypes and structure."""
        pairs = zip(leaves, self.results, strict=True)
        restored = [
            astype(leaf, self.library.dtype_of(r.kind.type)) if r.kind.type.is_narrow else leaf
            for leaf, r in pairs
        ]
        return pytree.unflatten(self.structure, restored)


def read_elements(name: str, what: str, value: Any) -> Elements:
    """Return what a construct of some name is given as elements; ``what`` is its argument.

    Raises
    ------
    KernelTypeError
        If it is no array, tuple or record of arrays, or is complex, or in chunks.
    KernelShapeError
        If arrays have several shapes.
    """
    flat, structure = pytree.flatten(value)
    are_nested = any(child.kind for child in structure.children)
    if structure.kind in (list, dict, type(None)) or are_nested or not flat:
        raise KernelTypeError(
            f"mixad.{name}: {what} is {structure}",
            hint="pass an array, or a tuple, named tuple or dataclass of arrays",
        )
    leaves = [leaf_of(leaf, f"mixad.{name}: {what}") for leaf in flat]
    library = common_library(f"mixad.{name}", leaves)
    if library.is_lazy:
        raise KernelTypeError(
            f"mixad.{name}: arrays of {library.name}, whose elements along an axis are in chunks",
            hint="x.compute(), or combine what mixad.reduce gives for each chunk",
        )
    results = tuple(map(result_of, leaves))
    for result in results:
        if result.shape != results[0].shape:
            raise KernelShapeError(
                f"mixad.{name}: arrays of the shapes {results[0].shape} and {result.shape} in "
                f"{what}",
                hint="pass arrays of one shape: an element is what is at one place of all",
            )
        if result.kind.type.is_complex:
            raise KernelTypeError(
                f"mixad.{name}: {what} contains complex numbers",
                hint="pass a tuple of real and imaginary parts, and combine these",
            )
    wide, pairs = library.dtype_of(F32), zip(leaves, results, strict=True)
    leaves = [astype(leaf, wide) if r.kind.type.is_narrow else leaf for leaf, r in pairs]
    return Elements(structure, leaves, results, library)
