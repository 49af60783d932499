"""How one library spells the namespace: names and parameters of its functions, bound to ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mixad import pytree
from mixad.errors import TracerError
from mixad.namespace.array_likes import first_traced, from_lists, stacked
from mixad.tape.memory import noted
from mixad.tape.tracer import plain

__all__ = ["OfOperands", "SpelledFunction", "Spelling", "Variadic", "function_of", "missing"]


@dataclass(frozen=True)
class SpelledFunction:
    """A function of the namespace, as a library calls it.

    Attributes
    ----------
    evaluate : callable
        The function.
    parameters : tuple of str
        Those of the library's function in order.
    renamed : mapping
        Their names here, where they differ and the library's others do not go by the same name.
    """

    evaluate: Callable[..., Any]
    parameters: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns; results that share memory with arguments know it."""
        result = self.evaluate(*args, **kwargs)
        return noted(self.evaluate, result, (*args, *kwargs.values()))

    @cached_property
    def taken(self) -> frozenset[str]:
        """Names of the namespace function's own parameters."""
        return frozenset(inspect.signature(self.evaluate).parameters)

    @cached_property
    def arrays(self) -> frozenset[str]:
        """Names of its own parameters that are arrays: NumPy takes lists for them."""
        return self.taken & _ARRAYS

    @cached_property
    def direct(self) -> int:
        """How many arguments by position are, in this order, the first of the function's own."""
        own = inspect.signature(self.evaluate).parameters.values()
        names = [p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        theirs = [self.renamed.get(name, name) for name in self.parameters]
        pairs = enumerate(zip(names, theirs, strict=False))
        return next((at for at, (a, b) in pairs if a != b), min(len(names), len(theirs)))


class OfOperands(SpelledFunction):
    """A function that takes operands by position only: those that come by name, in their order."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        return self.evaluate(*args, *kwargs.values())

    @cached_property
    def taken(self) -> frozenset[str]:
        """Names of all parameters."""
        return frozenset(self.parameters)

    @cached_property
    def arrays(self) -> frozenset[str]:
        """Names of all parameters."""
        return self.taken

    @cached_property
    def direct(self) -> int:
        """How many arguments may come by position: all."""
        return len(self.parameters)


class Variadic(SpelledFunction):
    """A function of any number of operands by position; its parameters are options by name."""

    @cached_property
    def arrays(self) -> frozenset[str]:
        """None: operands come by position."""
        return frozenset()


_ARRAYS = frozenset(
    "a append aweights b condition dx fill_value fweights max min p points prepend start stop "
    "values weights where x y".split()
)
"""What parameters are called that are arrays."""

_SEQUENCES = {"arrays": stacked, "choicelist": from_lists, "condlist": from_lists}
"""What parameters are called that are sequences of arrays, and what makes arrays of lists there.

Numbers are arrays among arrays that are joined; among choices they adapt to those beside them.
"""

_LISTS = (list, tuple)


def function_of(evaluate: Callable[..., Any], parameters: str | None = None) -> SpelledFunction:
    """Return a function with a library's parameters, ``"theirs=ours same"``; or with its own."""
    if parameters is None:
        code = evaluate.__code__  # a signature takes ten times as long, and all are made on import
        count = code.co_argcount + code.co_kwonlyargcount
        return SpelledFunction(evaluate, code.co_varnames[:count])
    pairs = [each.partition("=")[::2] for each in parameters.split()]
    renamed = {theirs: ours for theirs, ours in pairs if ours}
    return SpelledFunction(evaluate, tuple(theirs for theirs, _ in pairs), renamed)


@dataclass(frozen=True)
class Spelling:
    """How one library spells the namespace.

    Attributes
    ----------
    library : str
        Its name.
    name_of : callable
        The name under which the table has a function of the library; None where the function is
        not the one of that name: libraries have others, such as ``numpy.emath.sqrt``, which gives
        complex numbers.
    functions : mapping
        By the library's names.
    renamed : mapping
        The namespace's names of the library's parameters, where they differ.
    constant : frozenset of str
        Functions whose results are no floats, or depend on shapes only: their derivative is zero,
        so they are given the values.
    no_methods : frozenset of str
        Functions that do something else where they are called as methods of arrays.
    takes_lists : bool
        Whether functions take nested lists for arrays.
    methods : mapping
        What methods of arrays do that functions of their names do not, or not with these arguments.
    is_method : callable
        Whether a function of the library is a method of its arrays.
    """

    library: str
    name_of: Callable[[Any], str | None]
    functions: Mapping[str, SpelledFunction]
    renamed: Mapping[str, str] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()
    no_methods: frozenset[str] = frozenset()
    takes_lists: bool = False
    methods: Mapping[str, SpelledFunction] = field(default_factory=dict)
    is_method: Callable[[Any], bool] = lambda function: False

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what a function of the library returns, recorded.

        Raises
        ------
        TracerError
            If the namespace has no such function yet, or it lacks an argument that was given.
        """
        name = self.name_of(function)
        found = None if name is None or name in self.constant else self._named(name, function)
        if found is not None and not kwargs and self._is_direct(found, args):
            return found(*args)
        if name is not None and name in self.constant:
            return function(*pytree.tree_map(plain, args), **pytree.tree_map(plain, dict(kwargs)))
        return self.call_found(f"{_public_name(function, self.library)}()", found, args, kwargs)

    def call_found(
        self, called: str, found: SpelledFunction | None, args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """Return what a function of the table returns; None is one that it lacks."""
        if found is None:
            raise TracerError(missing(called))
        if isinstance(found, Variadic):
            return found(*self._operands(args), **self._bound(called, found, (), kwargs))
        return found(**self._bound(called, found, args, kwargs))

    def _named(self, name: str, function: Any) -> SpelledFunction | None:
        """Return what a function of the library of that name is here."""
        if name in self.methods and self.is_method(function):
            return self.methods[name]
        return self.functions.get(name)

    def has_method(self, name: str) -> bool:
        """Whether the table has what a method of arrays does."""
        is_function = name in self.functions and name not in self.no_methods
        return name in self.methods or is_function

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what a method of an array returns; ``args`` begin with the array."""
        found = self.methods.get(name) or self.functions[name]
        array, *rest = args
        if found.parameters[1:2] in _SEVERAL and rest and isinstance(rest[0], (int, np.integer)):
            args = (array, tuple(rest))
        if isinstance(found, Variadic):
            return found(*args, **self._bound(f"{name}()", found, (), kwargs))
        if not kwargs and self._is_direct(found, args):
            return found(*args)
        return found(**self._bound(f"{name}()", found, args, kwargs))

    def _is_direct(self, found: SpelledFunction, args: tuple[Any, ...]) -> bool:
        """Whether a function of the namespace takes these arguments as they are."""
        if len(args) > found.direct:
            return False
        return not (self.takes_lists and any(type(a) in _LISTS for a in args))

    def _operands(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return operands with arrays in place of lists of what is traced: others are labels."""
        like = first_traced(args) if self.takes_lists else None
        if like is None:
            return args
        return tuple(a if first_traced(a) is None else from_lists(a, like) for a in args)

    def _bound(
        self, called: str, found: SpelledFunction, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments under the namespace's names; those that say nothing are left out."""
        if len(args) > len(found.parameters):
            raise TracerError(
                f"{called} takes at most {len(found.parameters)} positional arguments here, "
                f"{len(args)} were given: leave out the last ones, or say mixad.stop_gradient(x) "
                "if no derivative is meant"
            )
        bound = {}
        for name, value in (*zip(found.parameters, args, strict=False), *kwargs.items()):
            own = self._own_name(found, name)
            if own in found.taken:
                bound[own] = value
            elif not _is_default(name, value):
                raise TracerError(self._untaken(called, found, name))
        return self._without_lists(found, bound) if self.takes_lists else bound

    def _without_lists(self, found: SpelledFunction, bound: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with arrays in place of lists that stand for arrays."""
        given = [name for name, value in bound.items() if isinstance(value, _LISTS)]
        like = first_traced(tuple(bound.values())) if given else None
        if like is None:
            return bound
        for name in given:
            if name in found.arrays:
                bound[name] = from_lists(bound[name], like)
            elif name in _SEQUENCES:
                bound[name] = [_SEQUENCES[name](each, like) for each in bound[name]]
        return bound

    def _own_name(self, found: SpelledFunction, name: str) -> str:
        if name in found.renamed or name in found.taken:
            return found.renamed.get(name, name)
        return self.renamed.get(name, name)

    def _untaken(self, called: str, found: SpelledFunction, name: str) -> str:
        options = [
            p for p in found.parameters if self._own_name(found, p) in found.taken - {"x", "y"}
        ]
        takes = f"it takes {', '.join(options)}" if options else "it takes no options"
        return (
            f"{called} of a value that is being differentiated has no argument {name!r}: {takes}; "
            f"{_INSTEAD_OF_ARGUMENT.get(name, 'leave it out')}, or say mixad.stop_gradient(x) if "
            "no derivative is meant"
        )


_SEVERAL = (("shape",), ("axes",), ("dims",), ("size",))
"""What methods take as several numbers too."""

_DEFAULTS = {
    "inplace": False, "decimals": 0, "order": "C", "_stacklevel": 3, "norm_type": 2.0,
    "compute_mode": "use_mm_for_euclid_dist_if_necessary", "scale_grad_by_freq": False,
    "sparse": False, "non_blocking": False, "subok": False, "writeable": False,
}  # fmt: skip
"""What arguments that are not taken may be given as; others as None."""

_INSTEAD_OF_ARGUMENT = {
    "out": "use the result that it returns",
    "where": "select the elements first, x[mask]",
    "initial": "combine it with the result",
    "order": "permute the axes first",
    "dtype": "convert the arguments first",
    "dim": "write axis=",
    "keepdim": "write keepdims=",
    "inplace": "use the result that it returns",
}


def _is_default(name: str, value: Any) -> bool:
    """Whether an argument that is not taken says nothing."""
    if value is None or value is np._NoValue:
        return True
    return name in _DEFAULTS and isinstance(value, (int, float, str)) and value == _DEFAULTS[name]


def missing(called: str) -> str:
    """Return why a function is refused, and what to write instead."""
    return (
        f"{called} of a value that is being differentiated is not available yet: write it with "
        "operators, indexing, sum, mean, reshape, matmul, functions of one element such as exp, or "
        "a function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative "
        "is meant"
    )


def _public_name(function: Any, library: str) -> str:
    """Return what users call a function; methods of torch's tensors do not tell where they are.

    Its compiled functions are ``torch._C._linalg.linalg_solve``, the public ones without.
    """
    module, name = getattr(function, "__module__", None) or library, function.__name__
    package, _, part = module.partition("._C._")
    if not part:
        return f"{module}.{name}"
    public = "nn.functional" if part == "nn" else part
    return f"{package}.{public}.{name.removeprefix('_').removeprefix(f'{part}_')}"
