"""The current values of everything a function reads from outside, and the key of what they mean.

Taken at every call, so it does little: names were resolved to cells, globals and attributes when
the function was read.  The key has the *types* of captured scalars (their values are arguments of
the compiled function), the values of constants, the code of functions, and of other objects only
which of them are the same: programs that are remembered by keys keep no captured object alive.
"""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import itertools
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Any, cast

import numpy as np

from mixad.errors import KernelOverflowError, KernelSyntaxError, KernelTypeError
from mixad.scalar.parse.argument import PYTHON_SCALARS, Argument
from mixad.scalar.parse.info import (
    MISSING,
    FunctionInfo,
    Missing,
    function_info,
    is_constant,
    op_name,
    rule_of,
    unwrap_callable,
)
from mixad.scalar.parse.names import Path
from mixad.scalar.parse.other_libraries import StandIn, stand_in
from mixad.scalar.parse.unsupported_calls import is_foreign, is_transform, wrapping
from mixad.scalar.parse.whole_arrays import annotated_parameters
from mixad.scalar.types import BF16, COMPLEX_TYPES, STORED_TYPES

__all__ = ["Address", "Describe", "FunctionSource", "Identity", "Snapshot", "is_sequence",
           "plain_number", "read_function", "scalar_argument"]  # fmt: skip

Describe = Callable[[Any], Argument | None]

# Which function's list of values, which of its values, then indices into nested tuples.
Address = tuple[int, ...]

_SCALARS: dict[type, tuple[str, Argument]] = {
    **{kind: (f"Python {kind.__name__}", a) for kind, a in PYTHON_SCALARS.items()},
    **{
        t.dtype.type: (t.name, Argument(t, kind="uniform"))
        for t in (*STORED_TYPES, *COMPLEX_TYPES)
        if t != BF16
    },
}
"""For each type of scalars, what stands for it in keys, and what the parser is told."""
_NUMBERS = (bool, int, float, complex, np.generic)
_BY_IDENTITY = (
    types.BuiltinFunctionType,
    np.ufunc,
    type(np.where),  # NumPy's functions that are no ufuncs
    type(None),
    Missing,
)
_BY_VALUE = (str, Enum)
"""Types of objects that are compared when a function is compiled."""
_HOLDERS = (types.ModuleType, type)
"""Types of what functions read attributes of; it is compared by identity."""


def scalar_argument(value: object) -> Argument | None:
    """Return the type information of a Python or NumPy scalar, or None for anything else."""
    found = _SCALARS.get(type(value))
    return found[1] if found else None


def plain_number(value: Any) -> Any:
    """Return a NumPy scalar as the Python number that adapts to arrays, anything else as it is."""
    argument = scalar_argument(value)
    if argument is None or not isinstance(value, np.generic):
        return value
    return _CONVERSIONS[argument.type.kind](value)


_CONVERSIONS = {"bool": bool, "int": int, "uint": int, "float": float, "complex": complex}


class Identity:
    """Compares an object by identity and keeps it alive, so that its id is not used again.

    For code, ops and members of enumerations, which hold nothing of a call.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, eq=False, slots=True)
class FunctionSource:
    """A function that can be parsed."""

    function: types.FunctionType
    info: FunctionInfo
    instance: Any = MISSING  # what a bound method is bound to
    rule: FunctionSource | None = None  # what computes its partial derivatives
    standing: StandIn | None = None  # the function of a library that it is compiled for
    whole: frozenset[str] = frozenset()  # parameters that are annotated as `mixad.Array`

    def snapshot(self, describe: Describe | None = None) -> Snapshot:
        """Read the current values of all free names of the function and of its helpers.

        ``describe`` returns the type of an array or a tracer, None for other objects.
        """
        return _Taker(Snapshot([self]), describe).run()

    @property
    def name(self) -> str:
        """The function's name."""
        return self.info.name

    def read(self) -> list[Any]:
        """Return the current values of the names that the function reads from outside."""
        function = self.function
        closure, names = function.__closure__ or (), function.__globals__
        values = []
        for where, attributes in self.info.getters:
            value = self._root(where, closure, names)
            for attribute in attributes:
                value = getattr(value, attribute, MISSING)
            values.append(value)
        if function.__defaults__:
            values.extend(function.__defaults__)
        if function.__kwdefaults__:
            values.extend(function.__kwdefaults__.values())
        return values

    def default_index(self, parameter: str) -> int | None:
        """Return where in `read` a parameter's default value is, or None if it has none."""
        function = self.function
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        positional = names[len(names) - len(function.__defaults__ or ()) :]
        defaults = [*positional, *(function.__kwdefaults__ or ())]
        if parameter not in defaults:
            return None
        return len(self.info.paths) + defaults.index(parameter)

    def without_attribute(self, index: int) -> tuple[Path, Any] | None:
        """Return which part of a path has no such attribute, and the value there.

        None if the path's first name has no value.
        """
        if index >= len(self.info.getters):
            return None
        function, path = self.function, self.info.paths[index]
        where, attributes = self.info.getters[index]
        value = self._root(where, function.__closure__ or (), function.__globals__)
        for count, attribute in enumerate(attributes, 1):
            if not hasattr(value, attribute):
                return None if value is MISSING else (path[:count], value)
            value = getattr(value, attribute)
        return None

    def in_module(self, index: int) -> bool:
        """Whether a path is an attribute of a module."""
        function = self.function
        root = self._root(
            self.info.getters[index][0], function.__closure__ or (), function.__globals__
        )
        return isinstance(root, types.ModuleType)

    def _root(
        self, where: int | str | None, closure: tuple[Any, ...], names: dict[str, Any]
    ) -> Any:
        if type(where) is str:
            found = names.get(where, MISSING)
            return getattr(builtins, where, MISSING) if found is MISSING else found
        if where is None:
            return self.instance
        try:
            return closure[where].cell_contents  # type: ignore[index]
        except ValueError:  # a cell that is not filled yet
            return MISSING

    def bind(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
        """Return one value per parameter, defaults filled in; raise TypeError where Python does."""
        by_position = not keywords and not self.function.__code__.co_kwonlyargcount
        if by_position and len(arguments) == len(self.parameters):
            return arguments
        self.info.refuse_variadic()
        signature = inspect.signature(self.function, follow_wrapped=False)
        skipped = () if self.instance is MISSING else (self.instance,)
        bound = signature.bind(*skipped, *arguments, **keywords)
        bound.apply_defaults()
        return tuple(bound.arguments.values())[len(skipped) :]

    @property
    def needs_instance(self) -> bool:
        """Whether the function may be a method that is not bound: ``A.f``, a property's."""
        return self.info.inside is not None and self.instance is MISSING

    def takes_instance(self, value: object) -> bool:
        """Whether a value is an instance of the class around the function, or that class.

        Class methods get the class: since Python 3.13 `classmethod` calls what it decorates with
        it, where it had asked that to bind it.
        """
        kinds = (*type(value).__mro__, *(value.__mro__ if isinstance(value, type) else ()))
        return any(kind.__name__ == self.info.inside for kind in kinds)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters; those of a bound method without the first."""
        names = self.info.parameters
        return names if self.instance is MISSING else names[1:]


def read_function(function: Any) -> FunctionSource:
    """Find the source of a function and prove that it is the function's.

    That is a ``def``, a lambda, a bound method, an object whose class has a plain ``__call__``, or
    what `functools.lru_cache` or `mixad.broadcast` made of one of these; others are refused.
    """
    found = unwrap_callable(function)
    if found is None:
        is_wrapper = stand_in(function) is None  # NumPy's own say that they wrap one
        message, hint = (wrapping(repr(function), function) if is_wrapper else None) or (
            f"{function!r} is not a Python function, so it has no source to compile",
            "wrap the call in a function of your own",
        )
        raise KernelSyntaxError(message, hint=hint)
    plain, instance = found
    info = function_info(plain.__code__, instance is not MISSING)
    rule = rule_of(function)
    ruled = None if rule is None else read_function(rule)
    return FunctionSource(plain, info, instance, ruled, whole=annotated_parameters(plain))


@dataclass
class Snapshot:
    """Values read from outside by a function and by the functions it calls.

    Equal keys parse to equal programs.  ``attributes`` are the addresses of what may be read from
    modules and objects that functions get as arguments, by the object's id and the attributes: they
    are at the end of the row in which the object is.
    """

    sources: list[FunctionSource]  # the function, then its helpers in order of discovery
    rows: list[Sequence[Any]] = field(default_factory=list)  # values of each function's paths
    key: tuple[Hashable, ...] = ()
    arguments: dict[Address, Argument] = field(default_factory=dict)  # captured arrays, tracers
    functions: dict[Address, int] = field(default_factory=dict)  # the source of each helper
    rules: dict[int, int] = field(default_factory=dict)  # the source of the rule of a source
    constants: set[Address] = field(default_factory=set)  # of modules; our tuples of numbers
    tables: set[Address] = field(default_factory=set)  # long tuples and lists of numbers
    attributes: dict[tuple[int, Path], Address] = field(default_factory=dict)

    def is_refused(self, source: FunctionSource) -> bool:
        """Whether a function is one of mixad's own that a user's kernel cannot call."""
        own = is_transform(source.function)
        return own and not is_transform(self.sources[0].function)

    def value(self, address: Address) -> Any:
        """Return the value at an address."""
        value = self.rows[address[0]]
        for index in address[1:]:
            value = value[index]
        return value

    def integers(self, needed: Mapping[Address, float]) -> tuple[int | None, ...]:
        """Return the values of some integers in tuples, None for what is beyond a size."""
        values = [(self.value(address), most) for address, most in needed.items()]
        return tuple([value if abs(int(value)) <= most else None for value, most in values])

    @property
    def tabulated(self) -> int:
        """How many numbers the long tuples and lists have together."""
        return sum(_count(self.value(address)) for address in self.tables)

    def values(self, parsed: Any) -> tuple[Any, ...]:
        """Return the values that a parsed program's captures have in this snapshot, in order."""
        return tuple([self._capture_value(capture) for capture in parsed.captures])

    def _capture_value(self, capture: Any) -> Any:
        if capture.positions:
            return np.arange(capture.positions, dtype=np.int64)
        if not capture.elements:
            return self.value(capture.address)
        numbers = [self.value(address) for address in capture.elements]
        try:
            array = np.array(numbers, capture.type.dtype)
        except OverflowError as error:
            raise KernelOverflowError(
                f"{capture.name!r}, a value from outside, holds an integer that does not fit "
                f"{capture.type.dtype}",
                hint="make its numbers floats",
            ) from error
        return getattr(array, capture.part) if capture.part else array

    def with_plain_numbers(self) -> Snapshot:
        """Return the snapshot with NumPy's scalars as Python numbers, which adapt to arrays."""
        return replace(self, rows=[[_plain(value) for value in row] for row in self.rows])


_MAX_ITEMS = 64
"""Numbers in a tuple that are parameters: with more of them, a launch takes long to fill."""
_MAX_NESTED = 32
"""Tuples and lists in one another; a list that holds itself has no end."""


def is_sequence(value: object) -> bool:
    """Whether a value from outside is known item by item: a tuple, a named one, or a list."""
    return isinstance(value, tuple) or type(value) is list


def _holds_sequences(value: Sequence[Any]) -> bool:
    """Whether an item is one: asked of the types, which are few."""
    return any(kind is list or issubclass(kind, tuple) for kind in set(map(type, value)))


def _count(value: Sequence[Any], depth: int = 0) -> int:
    """Return how many items there are in a tuple or a list, and in those in it."""
    if depth > _MAX_NESTED:
        raise KernelTypeError(
            f"a {type(value).__name__} holds itself, or {_MAX_NESTED} others in one another",
            hint="give what the kernel reads of it a name of its own",
        )
    return len(value) + sum([_count(v, depth + 1) for v in value if is_sequence(v)])


def _plain(value: Any) -> Any:
    if not is_sequence(value):
        return plain_number(value)
    kind: Any = type(value)
    items = map(_plain, value)
    return (
        kind._make(items) if hasattr(kind, "_fields") else (list if kind is list else tuple)(items)
    )


class _Taker:
    def __init__(self, snapshot: Snapshot, describe: Describe | None) -> None:
        self.snapshot = snapshot
        self.describe = describe
        self.indices: dict[tuple[int, int, int | None, int | None], int] = {}
        self.objects: dict[int, int] = {}
        self.holders: dict[int, tuple[int, Any]] = {}
        self.copies: dict[int, tuple[list[Any], list[Any]]] = {}
        self.read: set[Address] = set()

    def run(self) -> Snapshot:
        parts = [self.key_of_rule(self.snapshot.sources[0], 0), *self.parts_from(0)]
        while self.holders:
            known = len(self.snapshot.sources)
            parts += self.attributes()
            if len(self.snapshot.sources) == known:
                break
            parts += self.parts_from(known)
        self.snapshot.key = tuple(parts)
        return self.snapshot

    def parts_from(self, start: int) -> list[Hashable]:
        """Read what functions read from outside; return their part of the key."""
        parts: list[Hashable] = []
        for i, source in islice(enumerate(self.snapshot.sources), start, None):  # grows on the way
            is_refused = self.snapshot.is_refused(source)
            values = [] if is_refused else source.read()
            self.snapshot.rows.append(values)
            if is_refused:
                continue
            for j, value in enumerate(values):
                known = _SCALARS.get(type(value))
                if not known and is_sequence(value):
                    value = values[j] = self.with_copies(value)
                parts.append(known[0] if known else self.key_of(value, (i, j)))
            for j in source.info.constants:
                if source.in_module(j):
                    self.snapshot.constants.add((i, j))
                    parts.append(repr(values[j]))
        return parts

    def hold(self, value: Any, address: Address) -> None:
        """Note a module or an object that may be an argument of a function.

        What is read from one is none: chains of objects may have no end.
        """
        if len(address) == 2 and address not in self.read:
            self.holders.setdefault(id(value), (address[0], value))

    def attributes(self) -> list[Hashable]:
        """Read what functions may read from the modules and objects that they get as arguments."""
        parts: list[Hashable] = []
        read = itertools.filterfalse(self.snapshot.is_refused, self.snapshot.sources)
        paths = {p: None for source in read for p in source.info.local_paths}
        for number, (row, holder) in self.holders.items():
            for path in paths:
                if (number, path) not in self.snapshot.attributes:
                    parts.append(self.attribute(row, holder, path))
        return parts

    def attribute(self, row: int, holder: Any, path: Path) -> Hashable:
        """Read one attribute; return its part of the key."""
        value = holder
        for name in path:
            value = getattr(value, name, MISSING)
        value = self.with_copies(value)
        values = cast("list[Any]", self.snapshot.rows[row])
        address = row, len(values)
        values.append(value)
        self.snapshot.attributes[id(holder), path] = address
        self.read.add(address)
        known = _SCALARS.get(type(value))
        if known and type(holder) is types.ModuleType and is_constant(path):
            self.snapshot.constants.add(address)
            return repr(value)
        return known[0] if known else self.key_of(value, address)

    def with_copies(self, value: Any, depth: int = 0) -> Any:
        """Return a value with a copy of each list in it: a call sees one version of it.

        Another thread may change it meanwhile.  Whoever reads it gets the same copy.
        """
        if not is_sequence(value) or depth > _MAX_NESTED:
            return value
        if type(value) is list:
            if id(value) not in self.copies:
                copy = list(value)
                self.copies[id(value)] = (value, copy)
                if _holds_sequences(copy):
                    copy[:] = [self.with_copies(item, depth + 1) for item in copy]
            return self.copies[id(value)][1]
        if not _holds_sequences(value):
            return value
        items = [self.with_copies(item, depth + 1) for item in value]
        return value._make(items) if hasattr(value, "_fields") else tuple(items)

    def key_of(self, value: Any, address: Address) -> Hashable:
        kind = type(value)
        if is_sequence(value):
            return self.key_of_sequence(value, address)
        if kind is str:
            return (str, value)
        if kind in _HOLDERS:
            self.hold(value, address)
            return cast(Hashable, value)
        standing = stand_in(value)
        if standing is not None:
            return self.key_of_stand_in(value, standing, address)
        if kind in _BY_IDENTITY:
            return cast(Hashable, value)
        if kind is types.FunctionType:
            return self.key_of_function(value, address)
        if self.describe is not None:
            argument = self.describe(value)
            if argument is not None:
                self.snapshot.arguments[address] = argument
                return argument
        if unwrap_callable(value) is not None:
            return self.key_of_function(value, address)
        by_value = isinstance(value, _BY_VALUE)
        return Identity(value) if by_value else self.key_of_object(value, address)

    def key_of_object(self, value: Any, address: Address) -> Hashable:
        """Number what is not compiled in the order of discovery: it is asked only if it is another.

        The snapshot holds all values, so no id is used twice.
        """
        self.hold(value, address)
        return (object, self.objects.setdefault(id(value), len(self.objects)))

    def key_of_sequence(self, value: Sequence[Any], address: Address) -> Hashable:
        if len(address) == 2:
            self.sort_in(value, address)
        known = {} if address[:2] in self.snapshot.constants else _SCALARS
        items = tuple(
            [
                known[type(v)][0]
                if type(v) in known
                else (type(v), repr(v))
                if isinstance(v, _NUMBERS)
                else self.key_of(v, (*address, k))
                for k, v in enumerate(value)
            ]
        )
        is_plain = isinstance(value, tuple) and not hasattr(value, "_fields")
        return items if is_plain else (type(value), items)

    def sort_in(self, value: Sequence[Any], address: Address) -> None:
        """Note what the numbers in a tuple or a list are: as a rule, each is a parameter."""
        if self.snapshot.sources[address[0]].info.is_ours:
            self.snapshot.constants.add(address)
        elif _count(value) > _MAX_ITEMS:
            self.snapshot.tables.add(address)

    def key_of_stand_in(self, value: Any, standing: StandIn, address: Address) -> Hashable:
        """Read what is compiled for a library's function; an op is found where it is called."""
        if op_name(standing.function) is not None:
            return Identity(value)
        source = replace(read_function(standing.function), standing=standing)
        return (Identity(value), self.key_of_source(source, address))

    def key_of_function(self, value: Any, address: Address) -> Hashable:
        if op_name(value) is not None or value is dataclasses.replace:  # compiled, not read
            return Identity(value)
        if is_foreign(value):  # refused where it is called: it reads what is no concern of ours
            return self.key_of_object(value, address)
        try:
            source = read_function(value)
        except KernelSyntaxError:  # refused, with its reason, where it is called
            return self.key_of_object(value, address)
        return self.key_of_source(source, address)

    def key_of_source(self, source: FunctionSource, address: Address) -> Hashable:
        index = self.snapshot.functions[address] = self.index_of(source)
        # What a method reads from its object is in the key as everything that functions read is.
        key = (Identity(source.function.__code__), source.instance is not MISSING, index)
        return (*key, self.key_of_rule(source, index))

    def index_of(self, source: FunctionSource) -> int:
        """Return where a function is among the sources; one with another rule is another."""
        rule = None if source.rule is None else id(source.rule.function)
        theirs = None if source.standing is None else id(source.standing.theirs)
        which = (id(source.function), id(source.instance), rule, theirs)
        index = self.indices.get(which)
        if index is None:
            index = self.indices[which] = len(self.snapshot.sources)
            self.snapshot.sources.append(source)
        return index

    def key_of_rule(self, source: FunctionSource, index: int) -> Hashable:
        """Read the rule of a function beside it; return its part of the key."""
        if source.rule is None:
            return None
        place = self.snapshot.rules[index] = self.index_of(source.rule)
        return (Identity(source.rule.function.__code__), place)
