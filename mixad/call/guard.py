"""Whether a function would read the same from outside as it did: asked at every call.

A snapshot resolves everything that a function and its helpers read, and takes microseconds. A guard
repeats the reads alone and compares the results: objects by identity, numbers and arrays by their
descriptions, so that a number may have another value.
"""

from __future__ import annotations

import builtins
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mixad.backends.arrays import NUMBERS, describe_array, describe_number
from mixad.scalar.parse import Parsed, Snapshot
from mixad.scalar.parse.info import MISSING
from mixad.scalar.parse.names import Path
from mixad.scalar.parse.other_libraries import stand_in
from mixad.scalar.parse.snapshot import Address

__all__ = ["Guard", "guard_of"]

_UNCHANGING = NUMBERS | {
    types.ModuleType, type, types.BuiltinFunctionType, np.ufunc, str, type(None), type(MISSING)
}  # fmt: skip
"""Types whose objects never change and hold nothing of the user's."""

_NOTHING = object()


class _Object(NamedTuple):
    """What must be the same: how it is read, which attributes, and what identifies it.

    That is the object itself where it holds nothing of the user's, else a function.
    """

    read: Callable[[], Any]
    attributes: Path
    same: Any
    is_same: Callable[[Any], bool] | None


class _Value(NamedTuple):
    """A number or an array: how it is read, its description, and the captures that it goes to."""

    read: Callable[[], Any]
    attributes: Path
    description: Hashable
    places: list[int]


class Guard:
    """A check that what a program's function reads from outside is unchanged; it keeps none alive.

    ``objects`` must be the same, ``values`` must have the same description and are put into their
    places among the ``captures`` of the program.
    """

    __slots__ = ("_captures", "_objects", "_values")

    def __init__(
        self, objects: Sequence[_Object], values: Sequence[_Value], captures: Sequence[Any]
    ) -> None:
        self._objects = tuple(objects)
        self._values = tuple(values)
        self._captures = list(captures)
        for value in values:
            for place in value.places:
                self._captures[place] = None

    def captures(self) -> Sequence[Any] | None:
        """Return the current values of the captures; None if the program may be another."""
        captures = self._captures[:]
        try:
            for read, attributes, same, is_same in self._objects:
                value = read()
                for attribute in attributes:
                    value = getattr(value, attribute, MISSING)
                if value is not same and (is_same is None or not is_same(value)):
                    return None
            for read, attributes, description, places in self._values:
                value = read()
                for attribute in attributes:
                    value = getattr(value, attribute, MISSING)
                if _describe(value) != description:
                    return None
                for place in places:
                    captures[place] = value
        except ValueError:  # a cell that is not filled any more
            return None
        return captures


def guard_of(snapshot: Snapshot, parsed: Parsed) -> Guard | None:
    """Return the guard of a program that was parsed of a snapshot.

    None if one object may mean another thing later: lists, callable objects, contents of tuples and
    helpers' defaults, other libraries' arrays, attributes of arguments, parts of complex numbers.
    """
    captures = parsed.captures
    if snapshot.attributes or any(c.part or c.positions or c.elements for c in captures):
        return None
    if not all(_has_unchanging_defaults(source.function) for source in snapshot.sources[1:]):
        return None  # of the first one, prepared calls take no defaults
    objects: list[_Object] = []
    values: list[_Value] = []
    described = set()
    for address, read, attributes in _reads(snapshot):
        if read is None:
            return None
        value = snapshot.value(address)
        description = None if address in snapshot.constants else _describe(value)
        if description is not None:
            places = [place for place, c in enumerate(captures) if c.address == address]
            values.append(_Value(read, attributes, description, places))
            described.add(address)
            continue
        if _is_unchanging(value):
            objects.append(_Object(read, attributes, value, None))
            continue
        is_same = _comparison(value, address in snapshot.functions)
        if is_same is None:
            return None
        objects.append(_Object(read, attributes, _NOTHING, is_same))
    if not described.issuperset(snapshot.arguments) or any(len(a) > 2 for a in snapshot.functions):
        return None
    for index in snapshot.rules.values():
        rule = snapshot.sources[index].function
        is_same = _comparison_of_function(rule)
        objects.append(_Object(partial(_itself, rule), (), _NOTHING, is_same))
    return Guard(objects, values, snapshot.values(parsed))


def _describe(value: Any) -> Hashable:
    """Return what decides which programs serve a NumPy array or a number; None for others."""
    return describe_array(value) if type(value) is np.ndarray else describe_number(value)


def _comparison(value: Any, is_called: bool) -> Callable[[Any], bool] | None:
    """Return a check that an object is the one that was there; None if there is no check."""
    kind = type(value)
    if kind is types.FunctionType:
        return _comparison_of_function(value)
    if kind is types.MethodType:
        return _comparison_of_method(value)
    is_read_only = "__mixad_function__" in vars(kind) or stand_in(value) is not None
    if (is_called and not is_read_only) or isinstance(value, (list, dict, set, tuple)):
        return None
    found = _weakly(value)
    return None if found is None else lambda other: other is found()


def _is_unchanging(value: Any) -> bool:
    return all(map(_is_unchanging, value)) if type(value) is tuple else type(value) in _UNCHANGING


def _has_unchanging_defaults(function: types.FunctionType) -> bool:
    """Whether the defaults of a function mean the same while they are the same objects."""
    return not function.__kwdefaults__ and _is_unchanging(function.__defaults__ or ())


def _comparison_of_function(function: types.FunctionType) -> Callable[[Any], bool]:
    found, code, defaults = weakref.ref(function), function.__code__, function.__defaults__

    def is_same(other: Any) -> bool:
        same: bool = other is found()
        return same and other.__code__ is code and other.__defaults__ is defaults

    return is_same


def _comparison_of_method(method: types.MethodType) -> Callable[[Any], bool] | None:
    """Python binds a method anew at each read."""
    instance = _weakly(method.__self__)
    function = method.__func__
    if instance is None or not isinstance(function, types.FunctionType):
        return None
    is_same_function = _comparison_of_function(function)

    def is_same(other: Any) -> bool:
        is_method = type(other) is types.MethodType
        return is_method and other.__self__ is instance() and is_same_function(other.__func__)

    return is_same


def _weakly(value: Any) -> Callable[[], Any] | None:
    """Return a weak reference to an object; None if its class allows none."""
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def _reads(snapshot: Snapshot) -> Iterator[tuple[Address, Callable[[], Any] | None, Path]]:
    """Yield where each value of a snapshot is, how its root is read, and which attributes of it.

    Globals of mixad's own functions do not change. Callers hold helpers.
    """
    for i, source in enumerate(snapshot.sources):
        getters = () if snapshot.is_refused(source) else source.info.getters
        for j, (where, attributes) in enumerate(getters):
            if where is None:
                instance = source.instance
                read = partial(_itself, instance) if i == 0 else _weakly(instance)
                yield (i, j), read, attributes
            elif isinstance(where, int):
                yield (i, j), _read_cell(source.function, where, is_helper=i > 0), attributes
            elif not source.info.is_ours:
                yield (i, j), _read_global(source.function.__globals__, where), attributes


def _read_cell(function: types.FunctionType, index: int, *, is_helper: bool) -> Callable[[], Any]:
    if is_helper:
        found = weakref.ref(function)
        return lambda: found().__closure__[index].cell_contents  # type: ignore[union-attr,index]
    return partial(getattr, (function.__closure__ or ())[index], "cell_contents")


def _read_global(names: dict[str, Any], name: str) -> Callable[[], Any]:
    if name in names:
        return partial(names.get, name, MISSING)
    return lambda: names.get(name, getattr(builtins, name, MISSING))


def _itself(value: Any) -> Any:
    return value
