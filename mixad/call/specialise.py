"""A scalar function specialised to some types of values: one program, and its kernel call."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends.arrays import (
    DESCRIPTIONS,
    NUMPY,
    Library,
    default_dtypes,
    describe_number,
    is_array,
    own_library,
)
from mixad.backends.execute import Kernel, Run
from mixad.backends.fifo_cache import FifoCache
from mixad.backends.integrations import load_integrations
from mixad.backends.unsupported_arrays import arrays_of
from mixad.call.arguments import (
    Form,
    array_of_numbers,
    elements_of,
    forms_of,
    is_structured,
    output_cores,
    stored_whole,
)
from mixad.call.guard import Guard, guard_of
from mixad.errors import ConfigurationError, KernelTypeError, TracerError
from mixad.scalar.core_dimensions import read_signature
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.parse import (
    PARTS,
    PYTHON_SCALARS,
    Argument,
    Described,
    FunctionSource,
    Parsed,
    Snapshot,
    Structured,
    check_limits,
    parse,
    plain_number,
    read_function,
)
from mixad.scalar.parse.compound import names_in
from mixad.scalar.parse.frame import Capture
from mixad.scalar.parse.snapshot import Address
from mixad.tape.complex_parts import split_complex
from mixad.tape.kernel_call import KernelCall
from mixad.tape.operations import Operation
from mixad.tape.tracer import Tracer

__all__ = ["PreparedCall", "Specialisation", "Specialiser"]

_MAX_CALLS = 64
"""Descriptions of arguments for which one function caches its calls."""

_MAX_PROGRAMS = 256
"""Combinations of types for which one function caches programs without long tuples."""

_NUMBERS_OF_ONE = 128
"""So many numbers count as one program more: programs that read longer tuples and lists from
outside store where each of their numbers is."""


_SEQUENCES = frozenset({list, tuple})
"""Types of arguments that stand for arrays."""


def describe(value: Any) -> Argument | None:
    """Return a value's description for the parser; None if it is neither array nor number."""
    weak = PYTHON_SCALARS.get(type(value))
    if weak is not None:
        return weak
    if isinstance(value, Tracer) and value.kind.weak:
        return Argument(value.kind.type, weak=True, kind="uniform")
    if isinstance(value, np.generic):
        return Argument(element_type_of(value.dtype), kind="uniform")
    if not isinstance(value, Tracer) and not is_array(value):
        return None
    return _array(_library(value), value.dtype, len(value.shape))


def _library(value: Any) -> Library:
    """Return the library of an array or a tracer; what follows an array is checked later."""
    return value.kind.library if isinstance(value, Tracer) else own_library(value)


@cache
def _array(library: Library, dtype: Any, rank: int) -> Argument:
    typed = library.rules.array(element_type_of(dtype), rank)
    return Argument(*typed, kind="lane", rank=rank, library=library)


def _kind(value: Any) -> object:
    """Return the part of a value that its program depends on, quick to find and to hash."""
    kind = type(value)
    if kind is np.ndarray:
        return value.dtype
    if kind in PYTHON_SCALARS:
        return kind
    if isinstance(value, Tracer):
        return (value.kind, not value.shape)
    return (kind, getattr(value, "dtype", None), not getattr(value, "ndim", 0))


def _describe_other(value: Any) -> Hashable:
    """Return what of an argument that is no array decides the program and its launch.

    None if that takes more than a look at the type.
    """
    if isinstance(value, Tracer):
        kind = value.kind
        world = None if kind.library is NUMPY else default_dtypes()
        return (kind, not value.shape, world)
    return describe_number(value)


@dataclass(frozen=True, slots=True)
class Specialisation:
    """The program for some types of arguments and captures, and the call that applies it.

    `whole` stores elements of small arrays in the result side by side, where there are such.
    `plain` says that NumPy scalars stand beside another library's arrays, as plain numbers.
    """

    parsed: Parsed
    call: KernelCall
    plain: bool
    whole: Kernel | None = None


@dataclass(slots=True)
class PreparedCall:
    """A function called with arguments of some descriptions.

    `run` runs the program where nothing else is to be done: no derivative, no number or array to
    convert, no library that follows or watches it (`describe_array`). `finish` makes the function's
    result of the outputs; None if they are that.
    """

    found: Specialisation  # its program
    forms: tuple[Form, ...] = ()  # of arguments; empty if none is taken apart
    guard: Guard | None = None  # None if only a snapshot tells
    operation: Operation | None = None  # recorded in a strand
    run: Run | None = None
    finish: Callable[[Sequence[Any], tuple[Any, ...]], Any] | None = None
    # By the description of the cotangent, what gives value and cotangents by one launch; False if
    # nothing does, True if it is not known: see `mixad.broadcast.direct_pullback`.
    pulled: dict[Hashable, Callable[[Sequence[Any]], Any] | bool] = field(default_factory=dict)


class Compound(NamedTuple):
    """The forms of arguments, and the last axes of each result: see `mixad.call.arguments`."""

    forms: tuple[Form, ...]
    cores: tuple[tuple[int, ...], ...] | None

    def names(self, parameters: Sequence[str]) -> tuple[str, ...]:
        """Return the name of each array and number."""
        return tuple(
            [
                name
                for parameter, form in zip(parameters, self.forms, strict=True)
                for name in names_in(parameter, form.structure)
            ]
        )

    def group_leaves(self, leaves: Sequence[Argument]) -> list[Described]:
        """Return each argument's description for the parser, from those of arrays and numbers."""
        left = iter(leaves)
        return [self._of_form(form, left) for form in self.forms]

    def _of_form(self, form: Form, left: Iterator[Argument]) -> Described:
        if form.batch is not None:
            return replace(next(left), kind="array", batch=form.batch)
        if form.structure.kind is None:
            return replace(next(left), core=form.core)
        leaves = tuple(islice(left, form.leaf_count))
        if form.holds_arrays:
            arrays = tuple([replace(leaf, core=form.core) for leaf in leaves])
            return Structured(form.structure, arrays)
        return Structured(form.structure, leaves, form.core)


_Programs: TypeAlias = FifoCache[Specialisation | dict[Address, float]]
"""By their key: a program, or which integers from outside are compiled into it; then their values
find it."""

_PROGRAMS: dict[int, _Programs] = {}


def _programs_of(code: CodeType) -> _Programs:
    """Return the programs of some code, by what they depend on.

    All functions with that code share them, such as a class's bound methods or a lambda that is
    made again at every call; keys distinguish these.
    """
    programs = _PROGRAMS.get(id(code))
    if programs is None:
        programs = _PROGRAMS[id(code)] = FifoCache(_MAX_PROGRAMS)
        weakref.finalize(code, _PROGRAMS.pop, id(code), None)
    return programs


class Specialiser:
    """Specialises one function of scalars to the types of the values that it is called with.

    ``implicit`` differentiates convergence loops by the implicit function theorem. ``signature``
    names the last axes that are taken apart; ConfigurationError unless it has one core for each
    parameter.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        implicit: bool = False,
        signature: str | None = None,
        takes_tuples: bool = False,
    ) -> None:
        self._implicit = implicit
        self._takes_tuples = takes_tuples
        self._signature = None if signature is None else read_signature(signature)
        self.source: FunctionSource = read_function(function)
        self._known = _programs_of(self.source.function.__code__)
        self._calls: dict[tuple[Hashable, ...], PreparedCall] = {}
        parameters = enumerate(self.source.parameters)
        self._whole = tuple([i for i, name in parameters if name in self.source.whole])

    def _ranks(self, values: Sequence[Any]) -> tuple[int, ...]:
        """Return how many axes the whole-array arguments have; refuse others."""
        return tuple([self._rank(self.source.parameters[i], values[i]) for i in self._whole])

    def _rank(self, name: str, value: Any) -> int:
        is_number = isinstance(value, Tracer) and value.kind.weak
        if is_number or not (isinstance(value, Tracer) or is_array(value)) or not value.ndim:
            raise KernelTypeError(
                f"{self.source.name}: argument {name!r} is annotated as mixad.Array, and is a "
                f"{type(value).__name__}{'' if is_number else _without_axes(value)}",
                hint="pass an array with axes, or leave out the annotation",
            )
        return int(value.ndim)

    def check_signature(self) -> None:
        """Raise if the signature does not have one core for each parameter."""
        signature, parameters = self._signature, self.source.parameters
        if signature is not None and len(signature.inputs) != len(parameters):
            raise ConfigurationError(
                f"signature={signature.text!r} has {len(signature.inputs)} arguments, "
                f"{self.source.name} has {len(parameters)} parameters: write one core for each, "
                "() for a number"
            )
        for i in self._whole:
            if signature is not None and signature.inputs[i]:
                raise ConfigurationError(
                    f"signature={signature.text!r}: {parameters[i]!r} of {self.source.name} is "
                    "annotated as mixad.Array, which is passed whole, and has a core: leave out "
                    "the annotation, or write () for it"
                )

    def bind_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[PreparedCall, Any]:
        """Return the program for the types of these arguments, and all values that it takes."""
        key = self._key(args)
        call = None if kwargs else self._calls.get(key)
        if call is not None:
            captures = call.guard.captures()  # type: ignore[union-attr]
            if captures is not None:
                return call, (*(elements_of(args, call.forms) if call.forms else args), *captures)
        try:
            snapshot = self.source.snapshot(describe)
        except (KernelTypeError, TracerError) as error:
            raise error.about(f"{self.source.name}: a value from outside") from None
        call, values, is_plain = self._find_program(args, kwargs, snapshot)
        if is_plain and not (kwargs or None in key or call.found.parsed.limits):
            self._remember(key, call, snapshot)
        return call, values

    def recall(self, args: tuple[Any, ...]) -> PreparedCall | None:
        """Return what is known of a call that takes nothing but its arguments; None elsewhere."""
        call = self._calls.get(self._key(args))
        return call if call is not None and call.guard.captures() == [] else None  # type: ignore[union-attr]

    def _key(self, args: tuple[Any, ...]) -> tuple[Hashable, ...]:
        """Return what of arguments decides what the function is."""
        key = tuple([DESCRIPTIONS.get(type(arg), _describe_other)(arg) for arg in args])
        if self._signature is not None:
            key += tuple([getattr(arg, "shape", ()) for arg in args])
        if self._whole:
            key += tuple([getattr(args[i], "ndim", None) for i in self._whole if i < len(args)])
        return key

    def _find_program(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], snapshot: Snapshot
    ) -> tuple[PreparedCall, Sequence[Any], bool]:
        """Find the program by the types of all values; return whether it takes these unchanged."""
        try:
            values = self.source.bind(args, kwargs)
        except TypeError as error:
            raise TypeError(f"{self.source.name}() {error}") from None
        compound, is_all = None, len(values) == len(args)  # no parameter has its default
        if not (self._takes_tuples or _SEQUENCES.isdisjoint(map(type, values))):
            values = tuple(map(self._with_array, range(len(values)), values))
        ranks = self._ranks(values) if self._whole else ()
        is_compound = is_structured(values) or (self._takes_tuples and tuple in map(type, values))
        if self._signature is not None or is_compound:
            values, compound = self._flatten_values(values)
        key = (*map(_kind, values), snapshot.key, default_dtypes(), self._implicit, compound, ranks)
        found = self._known.get(key)
        if isinstance(found, dict):
            found = self._known.get((key, *snapshot.integers(found)))
        if not isinstance(found, Specialisation):
            found = self._specialise(values, compound, snapshot)
            self._keep(key, found, snapshot)
        if compound is not None:
            values = elements_of(values, compound.forms)
        unchanged = (*values, *snapshot.values(found.parsed))
        values = _with_parts(found.parsed, values, snapshot.values(found.parsed))
        if found.plain:
            values = tuple(map(plain_number, values))
        if found.parsed.limits:
            check_limits(found.parsed, values)
        if found.parsed.made_arrays:
            values = _in_one_library(values, found.parsed)
        is_same = len(values) == len(unchanged) and all(map(operator.is_, values, unchanged))
        is_plain = is_all and is_same
        return PreparedCall(found, () if compound is None else compound.forms), values, is_plain

    def _with_array(self, i: int, value: Any) -> Any:
        """Return an argument; a list or a tuple that has no core is an array of numbers."""
        has_core = self._signature is not None and self._signature.inputs[i : i + 1] != ((),)
        if has_core or type(value) not in _SEQUENCES:
            return value
        return array_of_numbers(
            f"{self.source.name}: argument {self.source.parameters[i]!r}", value
        )

    def _remember(self, key: tuple[Hashable, ...], call: PreparedCall, snapshot: Snapshot) -> None:
        """Cache a call whose program takes arguments and captures unchanged."""
        call.guard = guard_of(snapshot, call.found.parsed)
        if call.guard is not None:
            if len(self._calls) >= _MAX_CALLS:
                self._calls.clear()
            self._calls[key] = call

    def _keep(self, key: object, found: Specialisation, snapshot: Snapshot) -> None:
        """Cache a program, beside those for other integers where these are compiled in."""
        weight = min(1 + snapshot.tabulated // _NUMBERS_OF_ONE, _MAX_PROGRAMS)
        known, needed = self._known.get(key), dict(found.parsed.needed)
        if isinstance(known, dict):
            needed |= {at: max(most, needed.get(at, 0)) for at, most in known.items()}
        if needed:
            self._known.keep(key, weight, needed)
            key = (key, *snapshot.integers(needed))
        self._known.keep(key, weight, found)

    def _flatten_values(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], Compound]:
        """Return the arrays and numbers in arguments, and their forms."""
        self.check_signature()
        source, signature = self.source, self._signature
        leaves, forms, lengths = forms_of(
            source.name, source.parameters, values, signature, takes_tuples=self._takes_tuples
        )
        return leaves, Compound(forms, output_cores(signature, lengths))

    def _specialise(
        self, values: Sequence[Any], compound: Compound | None, snapshot: Snapshot
    ) -> Specialisation:
        load_integrations()
        arguments = self._describe_all(values, compound)
        library = _library_of([*arguments, *snapshot.arguments.values()])
        plain = not library.rules.numpy_scalars
        if plain:
            arguments = self._describe_all(tuple(map(plain_number, values)), compound)
            snapshot = snapshot.with_plain_numbers()
        parsed = parse(
            self.source,
            arguments if compound is None else compound.group_leaves(arguments),
            snapshot,
            library.rules,
            implicit=self._implicit,
            cores=None if compound is None else compound.cores,
        )
        whole = None
        if not parsed.complex_outputs:
            whole = stored_whole(parsed.program, parsed.returned)
        return Specialisation(parsed, KernelCall.storing(parsed.program), plain, whole)

    def _describe_all(
        self, values: Sequence[Any], compound: Compound | None
    ) -> tuple[Argument, ...]:
        names = self.source.parameters
        if compound is not None:
            names = compound.names(names)
        return tuple(map(self._describe, names, values))

    def _describe(self, name: str, value: Any) -> Argument:
        try:
            argument = describe(value)
        except (KernelTypeError, TracerError) as error:
            raise error.about(f"{self.source.name}: argument {name!r}") from None
        if argument is None:
            raise KernelTypeError(
                f"{self.source.name}: argument {name!r} is a {type(value).__name__}",
                hint=_in_place_of(value),
            )
        if name in self.source.whole and argument.rank:
            return replace(argument, kind="array")
        return argument


def _without_axes(value: Any) -> str:
    return " without axes" if hasattr(value, "ndim") else ""


def _in_place_of(value: Any) -> str:
    """Return what to pass in place of an object that kernels do not take."""
    if isinstance(value, str | Enum):
        return "read it from outside of the function, or from a static field of a dataclass"
    return arrays_of(value) or "pass an array, a tracer or a number"


def _with_parts(parsed: Parsed, own: Sequence[Any], captured: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values of a program's params: a complex number is two."""
    if parsed.complex_values:
        pairs = (
            split_complex(v) if i in parsed.complex_values else (v,) for i, v in enumerate(own)
        )
        own = tuple([part for pair in pairs for part in pair])
    if any(_is_split(c) for c in parsed.captures):
        found: dict[Any, Any] = {}
        for capture, value in zip(parsed.captures, captured, strict=True):
            if _is_split(capture) and capture.address not in found:
                found[capture.address] = dict(zip(PARTS, split_complex(value), strict=True))
        captured = [
            found[c.address][c.part] if _is_split(c) else v
            for c, v in zip(parsed.captures, captured, strict=True)
        ]
    return (*own, *captured)


def _is_split(capture: Capture) -> bool:
    """Whether a capture is a part of a complex value; arrays of numbers are split."""
    return bool(capture.part) and not capture.elements


_NUMPY = (np.ndarray, np.generic)


def _in_one_library(values: Sequence[Any], parsed: Parsed) -> tuple[Any, ...]:
    """Return values; arrays made for a program have the library of the others."""
    arrays = (v for v in values if hasattr(v, "shape") and not isinstance(v, _NUMPY))
    beside = next((v for v in arrays if not isinstance(v, Tracer) or not v.kind.weak), None)
    if beside is None or _library(beside).xp is np:
        return tuple(values)
    place, params = _library(beside).asarray, parsed.program.params
    return tuple(
        place(v, params[i].var.type, beside.device) if i in parsed.made_arrays else v
        for i, v in enumerate(values)
    )


def _library_of(described: Sequence[Argument]) -> Library:
    """Return the library of the first array: a call with arrays of several is refused later."""
    return next((a.library for a in described if isinstance(a.library, Library)), NUMPY)
