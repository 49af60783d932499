"""What a scalar function is for some types of values: one program, and the kernel of its values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from mixad.backends.arrays import (
    NUMPY,
    Library,
    is_array,
    own_library,
    scalar_type_of,
    torch_default,
)
from mixad.backends.integrations import load_integrations
from mixad.errors import KernelTypeError, TracerError
from mixad.scalar.parse import (
    PYTHON_SCALARS,
    Argument,
    FunctionSource,
    Parsed,
    Snapshot,
    check_limits,
    parse,
    plain_number,
    read_function,
)
from mixad.scalar.types import I64
from mixad.tape.kernel_call import KernelCall
from mixad.tape.tracer import Tracer

__all__ = ["Specialisation", "Specialiser"]

_MOST_PROGRAMS = 256
"""Combinations of types that one function remembers its programs for."""


def describe(value: Any) -> Argument | None:
    """Return what the parser must know of a value; None for what is neither array nor number.

    Parameters
    ----------
    value : object
        An argument or a captured value: a Python or NumPy scalar, an array, a tracer.

    Returns
    -------
    Argument or None
        Type, and whether it varies over the broadcast.
    """
    weak = PYTHON_SCALARS.get(type(value))
    if weak is not None:
        return weak
    if isinstance(value, Tracer) and value.cell.weak:
        return Argument(value.cell.type, weak=True, kind="uniform")
    if isinstance(value, np.generic):
        return Argument(scalar_type_of(value.dtype), kind="uniform")
    if not isinstance(value, Tracer) and not is_array(value):
        return None
    return _array(_library(value), value.dtype, len(value.shape))


def _library(value: Any) -> Library:
    """Return the library of an array or a tracer; what follows an array is asked later."""
    return value.cell.library if isinstance(value, Tracer) else own_library(value)


@cache
def _array(library: Library, dtype: Any, rank: int) -> Argument:
    typed = library.rules.array(scalar_type_of(dtype), rank)
    return Argument(*typed, kind="lane", rank=rank, library=library)


def _kind(value: Any) -> object:
    """Return what the program for a value depends on: found and hashed in no time."""
    kind = type(value)
    if kind is np.ndarray:
        return value.dtype
    if kind in PYTHON_SCALARS:
        return kind
    if isinstance(value, Tracer):
        return (value.cell.kind, not value.cell.shape)
    return (kind, getattr(value, "dtype", None), not getattr(value, "ndim", 0))


@dataclass(frozen=True, slots=True)
class Specialisation:
    """The program for some types of arguments and captures, and the call that applies it.

    Attributes
    ----------
    parsed : Parsed
        The program.
    call : KernelCall
        The call.
    plain : bool
        Whether NumPy scalars are beside arrays of another library, where they are plain numbers,
        as they are for operators.
    """

    parsed: Parsed
    call: KernelCall
    plain: bool


_PROGRAMS: dict[int, dict[object, Specialisation]] = {}


def _programs_of(code: CodeType) -> dict[object, Specialisation]:
    """Return the programs of some code, by what they depend on.

    They are shared by all functions with that code, such as the bound methods of a class or a
    lambda that is made again at every call: what tells these apart is in the keys.
    """
    programs = _PROGRAMS.get(id(code))
    if programs is None:
        programs = _PROGRAMS[id(code)] = {}
        weakref.finalize(code, _PROGRAMS.pop, id(code), None)
    return programs


class Specialiser:
    """Specialises one function to the types of the values that it is called with.

    Parameters
    ----------
    function : callable
        A plain Python function of scalars.
    implicit : bool
        Whether its convergence loops are differentiated by the implicit function theorem.
    """

    def __init__(self, function: Callable[..., Any], *, implicit: bool = False) -> None:
        self._implicit = implicit
        self.source: FunctionSource = read_function(function)
        self._known = _programs_of(self.source.function.__code__)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Specialisation, Any]:
        """Return what the function is for the types of these arguments, and all values it takes."""
        try:
            values = self.source.bind(args, kwargs)
        except TypeError as error:
            raise TypeError(f"{self.source.name}() {error}") from None
        try:
            snapshot = self.source.snapshot(describe)
        except (KernelTypeError, TracerError) as error:
            raise error.about(f"{self.source.name}: a value from outside") from None
        key = (*map(_kind, values), snapshot.key, torch_default(), self._implicit)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_PROGRAMS:
                self._known.clear()
            found = self._known[key] = self._specialise(values, snapshot)
        values = (*values, *snapshot.values(found.parsed))
        if found.plain:
            values = tuple(map(plain_number, values))
        if found.parsed.limits:
            check_limits(found.parsed, values)
        if found.parsed.positions:
            values = _in_one_library(values, found.parsed.positions)
        return found, values

    def _specialise(self, values: Sequence[Any], snapshot: Snapshot) -> Specialisation:
        load_integrations()
        arguments = self._all_described(values)
        library = _library_of([*arguments, *snapshot.arguments.values()])
        plain = not library.rules.numpy_scalars
        if plain:
            arguments = self._all_described(tuple(map(plain_number, values)))
            snapshot = snapshot.with_plain_numbers()
        parsed = parse(self.source, arguments, snapshot, library.rules, implicit=self._implicit)
        return Specialisation(parsed, KernelCall.storing(parsed.program), plain)

    def _all_described(self, values: Sequence[Any]) -> tuple[Argument, ...]:
        return tuple(map(self._described, self.source.parameters, values))

    def _described(self, name: str, value: Any) -> Argument:
        try:
            argument = describe(value)
        except (KernelTypeError, TracerError) as error:
            raise error.about(f"{self.source.name}: argument {name!r}") from None
        if argument is None:
            raise KernelTypeError(
                f"{self.source.name}: argument {name!r} is a {type(value).__name__}",
                hint="pass an array, a tracer or a number",
            )
        return argument


_NUMPY = (np.ndarray, np.generic)


def _in_one_library(values: Sequence[Any], positions: frozenset[int]) -> tuple[Any, ...]:
    """Return values with the positions in tuples as arrays of the library of the others."""
    arrays = (v for v in values if hasattr(v, "shape") and not isinstance(v, _NUMPY))
    beside = next((v for v in arrays if not isinstance(v, Tracer) or not v.cell.weak), None)
    if beside is None or _library(beside).xp is np:
        return tuple(values)
    placed = _library(beside).asarray
    return tuple(
        placed(v, I64, beside.device) if i in positions else v for i, v in enumerate(values)
    )


def _library_of(described: Sequence[Argument]) -> Library:
    """Return the library of the first array: a call with arrays of several is refused later."""
    return next((a.library for a in described if isinstance(a.library, Library)), NUMPY)
