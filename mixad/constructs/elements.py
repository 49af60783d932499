"""Elements that operators combine: numbers, or the numbers at one place of several arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from mixad import pytree
from mixad.backends.arrays import Library, is_scalar
from mixad.constructs.leaves import leaf_of, reshape_leaf, result_of
from mixad.errors import KernelShapeError, KernelTypeError
from mixad.namespace.assignment import broadcasts
from mixad.namespace.data_types import astype
from mixad.namespace.joining import broadcast_to
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.types import F32
from mixad.tape.cell import Kind, kind_of
from mixad.tape.node import Result, common_library
from mixad.tape.tracer import Tracer

__all__ = ["Elements", "read_elements"]


@dataclass(frozen=True, eq=False)
class Elements:
    """Arrays of one shape; the numbers at one place of all are an element.

    ``results`` describe the user's arrays, ``kinds`` what is combined: float32 for 16-bit floats.
    """

    structure: pytree.Structure
    results: tuple[Result, ...]
    kinds: tuple[Kind, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the arrays."""
        return self.results[0].shape

    @property
    def library(self) -> Library:
        """The library of the arrays."""
        return self.kinds[0].library

    @cached_property
    def are_narrow(self) -> bool:
        """Whether there are 16-bit floats among the arrays."""
        return any(result.kind.type.is_narrow for result in self.results)

    def widen(self, leaves: list[Any]) -> list[Any]:
        """Return the user's arrays in the types that are combined."""
        if not self.are_narrow:
            return leaves
        wide, pairs = self.library.dtype_of(F32), zip(leaves, self.results, strict=True)
        return [astype(leaf, wide) if r.kind.type.is_narrow else leaf for leaf, r in pairs]

    def restore(self, leaves: Sequence[Any]) -> Any:
        """Return arrays in the user's dtypes and structure."""
        if self.are_narrow:
            types = [result.kind.type for result in self.results]
            leaves = [
                astype(leaf, self.library.dtype_of(type)) if type.is_narrow else leaf
                for leaf, type in zip(leaves, types, strict=True)
            ]
        return pytree.unflatten(self.structure, leaves)

    def read_initial(
        self, name: str, value: Any, one: tuple[int, ...], whole: tuple[int, ...]
    ) -> list[Any]:
        """Return the initial arrays of an element, of the shape ``whole``.

        A value has this shape, or one that broadcasts to ``one``.
        """
        given, structure = pytree.flatten(value)
        if structure != self.structure:
            raise KernelTypeError(
                f"mixad.{name}: initial is {structure}, of elements that are {self.structure}",
                hint="pass an element like those of xs",
            )
        found = []
        for number, kind, result in zip(given, self.kinds, self.results, strict=True):
            dtype = self.library.dtype_of(kind.type)
            own = _initial_leaf(name, number, dtype, result)
            shape = tuple(own.shape)
            if shape != whole:
                if not broadcasts(shape, one):
                    raise KernelShapeError(
                        f"mixad.{name}: initial has the shape {shape}, elements beside each other "
                        f"have {one}",
                        hint="pass a number, or an array of that shape",
                    )
                own = reshape_leaf(broadcast_to(own, one), whole)
            found.append(astype(own, dtype))
        return found


def _initial_leaf(name: str, given: Any, dtype: Any, result: Result) -> Any:
    """Return one initial array of a construct, for elements of a dtype."""
    library, type = result.kind.library, result.kind.type
    wide = element_type_of(dtype)
    is_weak = is_scalar(given) or (isinstance(given, Tracer) and given.kind.weak)
    if is_scalar(given):
        number = given
        try:
            given = library.asarray(number, wide, result.device)
        except (OverflowError, ValueError):
            given = None
        is_exact = wide.is_float or (given is not None and given.item() == number)
        if not is_exact or isinstance(number, bool) != type.is_bool:
            raise KernelTypeError(
                f"mixad.{name}: initial is {number!r}, elements are {dtype}",
                hint="pass a number of that dtype, or convert the elements",
            )
    own = leaf_of(given, f"mixad.{name}: initial")
    if is_weak and wide.is_float:
        own = astype(own, dtype)
    if element_type_of(own.dtype) not in (type, wide):
        raise KernelTypeError(
            f"mixad.{name}: initial has the dtype {own.dtype}, elements have "
            f"{library.dtype_of(type)}",
            hint="pass a Python number, or convert it",
        )
    return own


def read_elements(name: str, what: str, value: Any) -> tuple[Elements, list[Any]]:
    """Return the elements in ``what``, an argument of a construct, and the arrays to combine.

    Structures of more than one level, complex numbers, chunks and unequal shapes are refused.
    """
    flat, structure = pytree.flatten(value)
    are_nested = any(child.kind for child in structure.children)
    if structure.kind in (list, dict, type(None)) or are_nested or not flat:
        raise KernelTypeError(
            f"mixad.{name}: {what} is {structure}",
            hint="pass an array, or a tuple, named tuple or dataclass of arrays",
        )
    leaves = [leaf_of(leaf, f"mixad.{name}: {what}") for leaf in flat]
    common_library(f"mixad.{name}", leaves)
    is_known = structure.kind is None or structure.kind is tuple  # others may hold the user's
    read = _read_results if is_known else _read_results.__wrapped__
    elements = read(name, what, structure, tuple(map(result_of, leaves)))
    return elements, elements.widen(leaves)


@lru_cache(maxsize=256)
def _read_results(
    name: str, what: str, structure: pytree.Structure, results: tuple[Result, ...]
) -> Elements:
    """Return what is known of elements by what the arrays are; refuse arrays that do not fit."""
    library = results[0].kind.library
    if library.is_lazy:
        raise KernelTypeError(
            f"mixad.{name}: arrays of {library.name}, whose elements along an axis are in chunks",
            hint="x.compute(), or combine what mixad.reduce gives for each chunk",
        )
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
    kinds = tuple([kind_of(F32, library) if r.kind.type.is_narrow else r.kind for r in results])
    return Elements(structure, results, kinds)
