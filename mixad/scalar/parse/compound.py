"""Values made of several numbers at the two ends of a program, which knows numbers only.

An argument may be a structure, or an array whose last axes are taken apart: each number becomes a
param, named as the user would spell it.  A result is put together from outputs again.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mixad.errors import KernelError
from mixad.pytree import LEAF, Structure
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.parse.argument import Argument, Described
from mixad.scalar.parse.complex_arithmetic import in_common_type
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.values.array import Array
from mixad.scalar.parse.values.captured import Indexed
from mixad.scalar.parse.values.complex import number_of_parts, types_of_parts
from mixad.scalar.parse.values.object import Object
from mixad.scalar.parse.values.record import named_tuple, record
from mixad.scalar.parse.values.sequence import Tuple
from mixad.scalar.parse.values.value import Number, Scalar, Value, describe_kind
from mixad.scalar.types import I64, ScalarType

__all__ = ["Leaf", "Returned", "argument_value", "complex_places", "leaves_of", "names_in",
           "suffixes", "take_apart_result"]  # fmt: skip


class Leaf(NamedTuple):
    """An array or number among the arguments: its name, its first param, the axes taken apart.

    It has ``size`` params, two for each complex number.
    """

    name: str
    first: int
    core: tuple[int, ...]
    size: int
    is_complex: bool

    @property
    def params(self) -> range:
        """The params that are its elements."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True)
class Returned:
    """What a function returns, in terms of the outputs of its program.

    Each place of the structure has a core: the last axes of an array that several outputs make up.
    """

    structure: Structure
    cores: tuple[tuple[int, ...], ...]

    def pair_outputs(
        self, outputs: Sequence[Any]
    ) -> Iterator[tuple[tuple[int, ...], Sequence[Any]]]:
        """Yield the core of each place, and what there is for its outputs."""
        at = 0
        for core in self.cores:
            count = math.prod(core)
            yield core, outputs[at : at + count]
            at += count


# -- arguments -------------------------------------------------------------------------------------


def argument_value(builder: Builder, name: str, described: Described) -> Value:
    """Return the value of a parameter, each of whose numbers becomes a param of the program."""
    if isinstance(described, Argument):
        return _of_argument(builder, name, described)
    leaves = iter(described.leaves)
    return _of_structure(builder, name, described.structure, leaves, bool(described.core))


def _of_argument(builder: Builder, name: str, argument: Argument) -> Value:
    if argument.kind == "array":
        return _of_whole(builder, name, argument)
    if not argument.core:
        return _of_number(builder, name, argument)
    part = replace(argument, core=argument.core[1:])
    count = argument.core[0]
    return Array(tuple([_of_argument(builder, f"{name}[{i}]", part) for i in range(count)]))


def _of_number(builder: Builder, name: str, argument: Argument) -> Number:
    """Return a number as a param; a complex one as two."""
    types = _types_of_parts(name, argument).items()
    atoms = [builder.param(part, type_, argument.kind) for part, type_ in types]
    return number_of_parts([Scalar(atom, argument.weak) for atom in atoms])


def _types_of_parts(name: str, argument: Argument) -> dict[str, ScalarType]:
    types = types_of_parts(argument.type).items()
    return {f"{name}.{part}" if part else name: type_ for part, type_ in types}


def _of_whole(builder: Builder, name: str, argument: Argument) -> Indexed:
    """Return an array that is read by index as a param, or two, and its places as others."""
    arrays = [
        builder.array_param(part, ArrayType(type_, argument.rank))
        for part, type_ in _types_of_parts(name, argument).items()
    ]
    lead = [builder.param(f"axis {axis} of {name}", I64) for axis in range(argument.batch or 0)]
    return Indexed(name, argument, tuple(arrays), tuple(lead))


def _of_structure(
    builder: Builder,
    name: str,
    structure: Structure,
    leaves: Iterator[Argument],
    is_array: bool,
) -> Value:
    if structure.kind is None:
        return _of_argument(builder, name, next(leaves))
    if structure.kind is type(None):
        return Object(None)
    items = tuple(
        [
            _of_structure(builder, name + suffix, child, leaves, is_array)
            for suffix, child in zip(suffixes(structure), structure.children, strict=True)
        ]
    )
    return Array(items) if is_array else _whole(structure, items)


def suffixes(structure: Structure) -> list[str]:
    """Return what is written after a value's name to get at each of its parts."""
    kind: Any = structure.kind
    if kind in (None, type(None), tuple, list):
        return [f"[{i}]" for i in range(len(structure.children))]
    return [f".{name}" for name in (structure.static[0] if structure.static else kind._fields)]


def names_in(name: str, structure: Structure) -> list[str]:
    """Return what the leaves of a structure are called, that of the whole given."""
    if structure.kind is None:
        return [name]
    pairs = zip(suffixes(structure), structure.children, strict=True)
    return [found for suffix, child in pairs for found in names_in(name + suffix, child)]


def _whole(structure: Structure, items: tuple[Value, ...]) -> Value:
    kind = structure.kind
    assert kind is not None
    if kind is tuple:
        return Tuple(items)
    if issubclass(kind, tuple):
        return named_tuple(items, kind)
    names, static = structure.static
    return record(items, kind, names, static)


def leaves_of(parameters: Sequence[str], arguments: Sequence[Described]) -> tuple[Leaf, ...]:
    """Return what arrays and numbers the arguments of a function are made of."""
    found: list[Leaf] = []

    def add(name: str, core: tuple[int, ...], numbers: Sequence[Argument]) -> None:
        first = found[-1].params.stop if found else 0
        size = sum(map(_params, numbers))
        is_complex = any(a.type.is_complex for a in numbers)
        found.append(Leaf(name, first, core, size, is_complex))

    for name, described in zip(parameters, arguments, strict=True):
        if described.core or isinstance(described, Argument):
            add(name, described.core, described.leaves)
        else:
            names_of_leaves = names_in(name, described.structure)
            for leaf, argument in zip(names_of_leaves, described.leaves, strict=True):
                add(leaf, argument.core, (argument,))
    return tuple(found)


def _params(argument: Argument) -> int:
    """Return how many params an argument has."""
    return math.prod(argument.core) * (2 if argument.type.is_complex else 1) + (argument.batch or 0)


def complex_places(arguments: Sequence[Described]) -> tuple[int, ...]:
    """Return which of the numbers that the arguments are made of are complex."""
    are_complex = [
        is_complex
        for described in arguments
        for a in described.leaves
        for is_complex in (*[a.type.is_complex] * math.prod(a.core), *[False] * (a.batch or 0))
    ]
    return tuple(i for i, is_complex in enumerate(are_complex) if is_complex)


# -- results ---------------------------------------------------------------------------------------


def take_apart_result(
    frame: Frame, value: Value, place: ast.expr, cores: Sequence[tuple[int, ...]] | None
) -> tuple[Returned | None, list[Number]]:
    """Return how a result is made up, and its numbers.

    None stands for a number and for a flat tuple of them.  ``cores`` are those of the function's
    results if it has a signature.
    """
    taker = _Results(frame, place, [], [])
    if cores is None:
        structure = taker.plain(value)
    elif len(cores) == 1:
        structure = taker.of_core(value, cores[0])
    else:
        structure = taker.several(value, cores)
    if not taker.numbers:
        raise frame.type_error(place, "a kernel without a result", "return a number")
    is_flat = structure.kind in (None, tuple) and all(c == LEAF for c in structure.children)
    if is_flat and not any(taker.cores):
        return None, taker.numbers
    return Returned(structure, tuple(taker.cores)), taker.numbers


@dataclass
class _Results:
    """Takes a result apart: ``cores`` of its places, and its numbers."""

    frame: Frame
    place: ast.expr
    cores: list[tuple[int, ...]]
    numbers: list[Number]

    def plain(self, value: Value) -> Structure:
        """Return the structure of a result; a tuple in a tuple would be flat in other libraries."""
        if type(value) is Tuple and any(type(v) is Tuple for v in value.items):
            raise self.frame.type_error(
                self.place,
                "a kernel returns a number or a flat tuple of numbers, this tuple holds a tuple",
                "return (a, b, c)",
            )
        return self.structure(value)

    def structure(self, value: Value) -> Structure:
        """Return the structure of a value, whose numbers are noted."""
        if isinstance(value, Array):
            raise self.error(
                f"the result is {describe_kind(value)}, and the kernel has no signature",
                'return tuple(...), or say mixad.broadcast(signature="(n)->(n)")',
            )
        if value.is_object(None):
            return Structure(type(None))
        found = value.structure()
        if found is None:
            self.cores.append(())
            self.numbers.append(value.number(self.frame, self.place))
            return LEAF
        return Structure(*found, tuple(map(self.structure, value.parts())))

    def several(self, value: Value, cores: Sequence[tuple[int, ...]]) -> Structure:
        """Return the structure of a tuple of results with cores."""
        items = value.elements()
        if items is None or len(items) != len(cores):
            raise self.error(
                f"the signature has {len(cores)} results, the function returns "
                f"{describe_kind(value)}",
                "return a tuple of so many, or change the signature",
            )
        pairs = zip(items, cores, strict=True)
        return Structure(tuple, (), tuple(self.of_core(v, core) for v, core in pairs))

    def of_core(self, value: Value, core: tuple[int, ...]) -> Structure:
        """Return the structure of one result with a core."""
        if not core and isinstance(value, Array):
            raise self.error(
                f"the signature has a number as a result, the function returns "
                f"{describe_kind(value)}",
                "return a number, or give the result a core: (n)->(n)",
            )
        if not core:
            return self.structure(value)
        self.cores.append(core)
        self.numbers += in_common_type(self.frame, self.place, self.elements(value, core, core))
        return LEAF

    def elements(self, value: Value, core: tuple[int, ...], whole: tuple[int, ...]) -> list[Number]:
        """Return the numbers of a small array."""
        if not core:
            return [value.number(self.frame, self.place)]
        items = value.elements()
        if items is None or len(items) != core[0]:
            raise self.error(
                f"the signature has a result of shape {whole}, the function returns "
                f"{describe_kind(value)} where {core[0]} are needed",
                "return so many, or change the signature",
            )
        return [e for item in items for e in self.elements(item, core[1:], whole)]

    def error(self, message: str, hint: str) -> KernelError:
        """Return an error at the function's last line."""
        return self.frame.type_error(self.place, message, hint)
