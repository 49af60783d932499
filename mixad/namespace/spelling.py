"""How one library spells the namespace: names and parameters of its functions, bound to ours."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import is_array
from mixad.errors import MixadError, NoRuleError, TracerError
from mixad.namespace.array_likes import first_traced, from_lists, stack_nested
from mixad.tape.memory import noted
from mixad.tape.node import common_library
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["Binding", "BoundFunction", "LibraryBinding", "OfOperands", "function_of", "missing",
           "public_name", "refusal_of_mixture", "rename_parameters"]  # fmt: skip


@dataclass(frozen=True, eq=False)
class BoundFunction:
    """A function of the namespace under the name and parameters that a library gives it.

    `parameters` are the library's in order; empty where any number of operands come by position and
    options by their own names. `renamed` has our names for them, where these differ and no other
    parameter of the library goes by the same name.
    """

    evaluate: Callable[..., Any]
    parameters: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    by_place: int | None = None  # how many may come by position; None for all
    nameless: int = 0  # how many of the first come by position only

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; results that share memory with arguments are recorded as views."""
        result = self.evaluate(*args, **kwargs)
        return noted(self.evaluate, result, (*args, *kwargs.values()))

    def own_parameters(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the function's positional parameters in order, and all that it takes."""
        own = inspect.signature(self.evaluate).parameters.values()
        by_place = [p.name for p in own if p.kind in _BY_PLACE]
        return by_place, (*by_place, *(p.name for p in own if p.kind is p.KEYWORD_ONLY))


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class OfOperands(BoundFunction):
    """A function of operands only: positional in the library, or all its parameters."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with operands that come by name in their places."""
        return self.evaluate(*args, *(kwargs[p] for p in self.parameters if p in kwargs))

    def own_parameters(self) -> tuple[Iterable[str], Iterable[str]]:
        """Return the operands twice: they may come by position and by name."""
        operands = self.parameters[: self.nameless or None]
        return operands, operands


_ARRAYS = frozenset(
    "a append aweights b condition dx fill_value fweights max min p points prepend start stop "
    "values weights where x y".split()
)
"""Names of parameters that are arrays: NumPy takes lists for them."""

_SEQUENCES = {"arrays": stack_nested, "choicelist": from_lists, "condlist": from_lists}
"""Names of parameters that are sequences of arrays, and the converter of lists there. Numbers are
arrays among arrays that are joined; among choices they adapt to the others."""

_LISTS = (list, tuple)

_Lists = Mapping[str, Callable[[Any, Any], Any]]
"""Converters of lists to arrays beside a traced value, by our names of parameters."""


def function_of(evaluate: Callable[..., Any], parameters: str | None = None) -> BoundFunction:
    """Return a function with a library's parameters, or with its own.

    ``parameters`` reads ``"theirs=ours same"``, with ``/`` and ``*`` as in a signature.
    """
    if parameters is None:
        code = evaluate.__code__  # a signature takes ten times as long, and all are made on import
        count = code.co_argcount + code.co_kwonlyargcount
        return BoundFunction(evaluate, code.co_varnames[:count], by_place=code.co_argcount)
    return BoundFunction(evaluate, *_parse_parameters(parameters))


def rename_parameters(found: BoundFunction, parameters: str) -> BoundFunction:
    """Return a function whose first parameters have other names, in order.

    Keyword-only ones are its own, or options that are refused.
    """
    names, renamed, by_place, nameless = _parse_parameters(parameters)
    if not isinstance(found, OfOperands):
        own = (found.renamed.get(name, name) for name in found.parameters)
        pairs = zip(names[:by_place], own, strict=False)
        renamed = {theirs: ours for theirs, ours in pairs if ours not in names} | renamed
    return type(found)(found.evaluate, names, renamed, by_place, nameless)


def _parse_parameters(parameters: str) -> tuple[tuple[str, ...], dict[str, str], int | None, int]:
    """Return names in order, ours, how many may come by position, and how many must."""
    given = parameters.split()
    nameless = given.index("/") if "/" in given else 0
    given = [each for each in given if each != "/"]
    by_place = given.index("*") if "*" in given else None
    pairs = [each.partition("=")[::2] for each in given if each != "*"]
    renamed = {theirs: ours for theirs, ours in pairs if ours}
    return tuple(theirs for theirs, _ in pairs), renamed, by_place, nameless


@dataclass(frozen=True, eq=False)
class Binding:
    """How arguments of a library's function become those of the namespace's: decided once.

    `places` pairs the names of arguments that may come by position with ours, None for what is not
    taken; `names` has ours for those that may come by name. `lists` has, by our names, what makes
    arrays of lists, None where the library takes none.
    """

    found: BoundFunction
    called: Any  # the library's function, or the name of a method
    library: str
    places: tuple[tuple[str, str | None], ...]
    names: Mapping[str, str]
    direct: int  # how many positions are the same as ours
    lists: _Lists | None
    list_places: tuple[tuple[int, str], ...]  # positions of lists, our names

    @classmethod
    def of(cls, spelling: LibraryBinding, found: BoundFunction, called: Any) -> Binding:
        """Return the binding of a function of a table."""
        by_place, taken = map(tuple, found.own_parameters())

        def own_name(name: str) -> str | None:
            is_own = name in found.renamed or name in taken
            own = (found.renamed if is_own else spelling.renamed).get(name, name)
            return own if own in taken else None

        places = tuple((name, own_name(name)) for name in found.parameters[: found.by_place])
        by_place_only = {each for pair in places[: found.nameless] for each in pair}
        named = {*spelling.renamed, *taken, *found.parameters} - by_place_only
        pairs = zip(by_place, (own for _, own in places), strict=False)
        count = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        direct = min(len(by_place), len(places)) if count is None else count
        lists = _lists_among(found, taken) if spelling.takes_lists else None
        at = enumerate(own for _, own in places)
        return cls(
            found,
            called,
            spelling.library,
            places,
            {name: own for name in named if (own := own_name(name)) is not None},
            direct if found.parameters else sys.maxsize,
            lists,
            tuple((place, own) for place, own in at if own is not None and own in (lists or ())),
        )

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the function with arguments in the library's form."""
        if kwargs or len(args) > self.direct:
            args, kwargs = self.bind_arguments(args, kwargs)
        if self.lists is not None and self._has_lists(args, kwargs, self.lists):
            args, kwargs = self._with_arrays(args, kwargs, self.lists)
        try:
            return self.found(*args, **kwargs)
        except Exception as error:
            named = refusal_of_mixture(error, self._name, (*args, *kwargs.values()))
            if named is None:
                raise
            raise named from None

    def bind_arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments in the function's form, without those that are defaults."""
        bound: dict[str, Any] = {}
        if len(args) > self.direct:
            if len(args) > len(self.places):
                raise NoRuleError(self._too_many(len(args)))
            rest = zip(self.places[self.direct :], args[self.direct :], strict=False)
            for (name, own), value in rest:
                self._add(bound, name, own, value)
        for name, value in kwargs.items():
            self._add(bound, name, self.names.get(name), value)
        for name, own in self.places[: min(len(args), self.direct)]:
            if own in bound:
                raise TracerError(self._twice(name))
        return args[: self.direct], bound

    def _add(self, bound: dict[str, Any], name: str, own: str | None, value: Any) -> None:
        if own is None:
            if not _is_default(name, value):
                raise NoRuleError(self._untaken(name))
        elif own in bound:
            raise TracerError(self._twice(name))
        elif value is not np._NoValue:
            bound[own] = value

    def _has_lists(self, args: tuple[Any, ...], bound: Mapping[str, Any], lists: _Lists) -> bool:
        for place, _ in self.list_places:
            if place < len(args) and isinstance(args[place], _LISTS):
                return True
        for own, value in bound.items():
            if isinstance(value, _LISTS) and own in lists:
                return True
        return not self.places

    def _with_arrays(
        self, args: tuple[Any, ...], bound: Mapping[str, Any], lists: _Lists
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return arguments with lists replaced by arrays where they stand for these."""
        if not self.places:
            return _operands(args), bound
        like = first_traced((*args, *bound.values()))
        if like is None:
            return args, bound
        given, named = list(args), dict(bound)
        for place, own in self.list_places:
            if place < len(args) and isinstance(args[place], _LISTS):
                given[place] = lists[own](args[place], like)
        for own, value in bound.items():
            if own in lists and isinstance(value, _LISTS):
                named[own] = lists[own](value, like)
        return tuple(given), named

    def _name(self) -> str:
        called = self.called
        return f"{called if isinstance(called, str) else public_name(called, self.library)}()"

    def _twice(self, name: str) -> str:
        return f"{self._name()} got {name!r} twice, by place or by another name: leave out one"

    def _too_many(self, count: int) -> str:
        return (
            f"{self._name()} takes at most {len(self.places)} positional arguments here, "
            f"{count} were given: {_OTHERWISE}"
        )

    def _untaken(self, name: str) -> str:
        given = dict(self.places) | dict(self.names)
        options = [p for p in self.found.parameters if given.get(p) not in _OPERANDS]
        takes = f"it takes {', '.join(options)}" if options else "it takes no options"
        return (
            f"{self._name()} of a value that is being differentiated has no argument {name!r}: "
            f"{takes}; {_INSTEAD_OF_ARGUMENT.get(name, _OTHERWISE)}"
        )


def refusal_of_mixture(
    error: Exception, called: Callable[[], str], arguments: Iterable[Any]
) -> TracerError | None:
    """Return the error for arrays of several libraries, naming the function that users called.

    The library's own error names an inner function or does not know the array. None if the reason
    is another: axes and indices may be of any library.
    """
    if isinstance(error, TracerError) and error.operation:
        return error.of_call(called())
    if isinstance(error, MixadError):
        return None
    floats = [x for x in pytree.leaves(tuple(arguments)) if _is_float_array(x)]
    try:
        if floats:
            common_library(called(), floats, may_mix=True)
    except TracerError as refusal:
        return refusal
    return None


def _is_float_array(x: Any) -> bool:
    is_one = isinstance(x, Tracer) or (is_array(x) and not isinstance(x, np.generic))
    return is_one and re.search("float|complex", str(x.dtype)) is not None


def _operands(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operands with lists of traced values as arrays; other lists are labels."""
    like = first_traced(args)
    if like is None:
        return args
    return tuple(a if first_traced(a) is None else from_lists(a, like) for a in args)


def _lists_among(found: BoundFunction, taken: Iterable[str]) -> _Lists:
    """Return converters of lists to arrays, by the names of parameters that take lists."""
    is_array = frozenset(taken) if isinstance(found, OfOperands) else _ARRAYS
    arrays = {name: from_lists for name in taken if name in is_array}
    return arrays | {name: _map_values(_SEQUENCES[name]) for name in taken if name in _SEQUENCES}


def _map_values(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda values, like: [function(each, like) for each in values]


@dataclass(frozen=True)
class LibraryBinding:
    """How one library spells the namespace.

    `name_of` returns the table's name of a library's function; None for another one of such a name,
    as ``numpy.emath.sqrt``, which gives complex numbers. `constant` are functions with zero
    derivatives, whose results are no floats or depend on shapes only: they are given plain values.
    `methods` has what methods do that functions of their names do not, or not with these arguments.
    """

    library: str
    name_of: Callable[[Any], str | None]
    functions: dict[str, BoundFunction]  # by the library's names; upper layers add theirs
    renamed: Mapping[str, str] = field(default_factory=dict)  # our names of parameters
    constant: frozenset[str] = frozenset()
    no_methods: frozenset[str] = frozenset()  # methods of these names do something else
    takes_lists: bool = False  # nested lists for arrays
    methods: Mapping[str, BoundFunction] = field(default_factory=dict)
    is_method: Callable[[Any], bool] = lambda function: False
    _bindings: dict[Any, Callable[..., Any]] = field(default_factory=dict, init=False, repr=False)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the recorded result of a function of the library.

        TracerError if the namespace has no such function, or lacks a given argument.
        """
        binding = self._bindings.get(function)
        if binding is None:
            binding = self._bindings[function] = self.binding(function)
        return binding(args, kwargs)

    def takes_values(self, function: Any) -> bool:
        """Whether a library's function gets plain values: its result has no derivative."""
        return self.name_of(function) in self.constant

    def binding(self, function: Any) -> Callable[..., Any]:
        """Return the binding of a function of the library, or raise TracerError."""
        name = self.name_of(function)
        if name in self.constant:
            return lambda args, kwargs: function(
                *pytree.tree_map(primal_value, args), **pytree.tree_map(primal_value, dict(kwargs))
            )
        found = self._rule_of(function)
        if found is None:
            raise NoRuleError(self._missing(function))
        return Binding.of(self, found, function)

    def refusal_of(self, function: Any) -> NoRuleError | None:
        """Return why a library's function is refused; None if the table has it."""
        is_known = self.takes_values(function) or self._rule_of(function) is not None
        return None if is_known else NoRuleError(self._missing(function))

    def _missing(self, function: Any) -> str:
        return missing(f"{public_name(function, self.library)}()")

    def _rule_of(self, function: Any) -> BoundFunction | None:
        """Return our function for a library's, which may be a method of its arrays."""
        name = self.name_of(function)
        is_method = name in self.methods and self.is_method(function)
        functions = self.methods if is_method else self.functions
        return None if name is None else functions.get(name)

    def call_named(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a method of a library's function, as ``"add.reduce"``."""
        binding = self._bindings.get(name)
        if binding is None:
            called = f"{self.library}.{name}"
            if name not in self.functions:
                raise TracerError(missing(f"{called}()"))
            binding = self._bindings[name] = Binding.of(self, self.functions[name], called)
        return binding(args, kwargs)

    def has_method(self, name: str) -> bool:
        """Whether the table has a method of arrays."""
        is_function = name in self.functions and name not in self.no_methods
        return name in self.methods or is_function

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a method of an array; ``args`` begin with the array."""
        binding = self._bindings.get(name)
        if binding is None:
            binding = self._bindings[name] = self.method_binding(name)
        return binding(args, kwargs)

    def method_binding(self, name: str) -> Callable[..., Any]:
        """Return the binding of a method of arrays; the array is its first argument."""
        found = self.methods.get(name) or self.functions[name]
        binding = Binding.of(self, found, name)
        return _taking_several(binding) if found.parameters[1:2] in _SEVERAL else binding


_SEVERAL = (("shape",), ("axes",), ("dims",), ("size",))
"""Arguments that methods take also as several numbers."""


def _taking_several(binding: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that takes several numbers also as one tuple."""

    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if len(args) > 1 and isinstance(args[1], (int, np.integer)):
            args = (args[0], args[1:])
        return binding(args, kwargs)

    return call


_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "casting": ("same_kind", "unsafe"), "copy": (True,),
    "compute_mode": ("use_mm_for_euclid_dist_if_necessary",), "hermitian": (False,),
    "inplace": (False,), "layout": ("torch.strided",), "keepdims": (False,),
    "kind": ("introselect",), "mode": ("raise",),
    "ndmax": (0,), "ndmin": (0,), "non_blocking": (False,), "norm_type": (2.0,),
    "order": ("C", "F", "A", "K"), "overwrite_input": (False,), "pin_memory": (False,),
    "requires_grad": (False,), "retstep": (False,), "scale_grad_by_freq": (False,),
    "sparse": (False,), "sparse_grad": (False,), "subok": (False, True), "where": (True,),
    "writeable": (False,),
}  # fmt: skip
"""Values that arguments which are not taken may have; others may be None."""

_OTHERWISE = (
    "write what it does with other functions, or say mixad.stop_gradient(x) if no derivative is "
    "meant"
)

_OPERANDS = (None, "x", "y", "a", "b")
"""What a parameter that is no option is called in our functions."""

_INSTEAD_OF_ARGUMENT = {
    name: f"{instead}, or say mixad.stop_gradient(x) if no derivative is meant"
    for name, instead in {
        "out": "use the result that it returns",
        "where": "select the elements first, x[mask]",
        "initial": "combine it with the result",
        "order": "permute the axes first",
        "dtype": "convert the arguments first",
        "axis": "move the axis to the place that the function takes, moveaxis(x, axis, -1)",
        "axes": "move the axes to the places that the function takes, moveaxis(x, axes, (-2, -1))",
        "dim": "write axis=",
        "keepdim": "write keepdims=",
        "inplace": "use the result that it returns",
    }.items()
}


def _is_default(name: str, value: Any) -> bool:
    """Whether an argument that is not taken has its default."""
    if value is None or value is np._NoValue:
        return True
    defaults = _DEFAULTS.get(name, ())
    if isinstance(value, (int, float)):
        return any(type(value) is type(default) and value == default for default in defaults)
    return bool(defaults) and str(value) in defaults  # of torch's layouts the names


def missing(called: str) -> str:
    """Return why a function is refused, and what to write instead."""
    return (
        f"{called} of a value that is being differentiated is not available yet: write it with "
        "operators, indexing, sum, mean, reshape, matmul, functions of one element such as exp, or "
        "a function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative "
        "is meant"
    )


def public_name(function: Any, library: str) -> str:
    """Return the name by which users call a function.

    Compiled functions of torch are ``torch._C._linalg.linalg_solve``, without that in public;
    methods of tensors do not tell where they are.
    """
    module, name = getattr(function, "__module__", None) or library, function.__name__
    package, _, part = module.partition("._C._")
    if not part:
        return f"{module}.{name}"
    public = "nn.functional" if part == "nn" else part
    return f"{package}.{public}.{name.removeprefix('_').removeprefix(f'{part}_')}"
