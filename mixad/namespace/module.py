"""The namespace of the standard over one library, as traced arrays and users get it."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from mixad.backends.arrays import NUMPY, Library, is_array, library_of
from mixad.errors import TracerError
from mixad.namespace.array_likes import first_traced
from mixad.namespace.elementwise import as_numpy_gives
from mixad.namespace.names import ATTRIBUTES, FUNCTIONS, VERSIONS
from mixad.namespace.scipy_functions import SCIPY
from mixad.namespace.special import SPECIAL
from mixad.namespace.spelling import missing, refusal_of_mixture
from mixad.namespace.spellings import STANDARD
from mixad.tape.constant import constants, derived, unwrapped
from mixad.tape.memory import noted
from mixad.tape.tracer import Tracer, primal_value
from mixad.tracebacks import short_traceback

__all__ = ["Namespace", "namespace_of", "namespace_over", "replace_tracers"]


class Namespace:
    """The functions of the array API standard over one library; there is one object for each.

    They take traced arrays and those of the library. Where nothing is traced, the library computes
    at once, and results are constants: arrays of this namespace without derivatives. ``extension``
    is "linalg", "fft", or empty for the main namespace.
    """

    __array_api_version__ = VERSIONS[-1]

    def __init__(self, library: Library, extension: str = "") -> None:
        self._library = library
        self._prefix = f"{extension}." if extension else ""
        xp = importlib.import_module(_SPELLED.get(library.name, library.xp.__name__))
        self._base = getattr(xp, extension) if extension else xp
        self.__name__ = ".".join(filter(None, ("mixad", library.name, extension)))

    def __getattr__(self, name: str) -> Any:
        found = self._make_function(name)
        self.__dict__[name] = found
        return found

    def _make_function(self, name: str) -> Any:
        full = self._prefix + name
        if full in FUNCTIONS:
            called, base = f"{self.__name__}.{name}", self._own(name)
            if name == "can_cast":  # of an array its dtype counts: Dask would compute the array
                base = _of_dtype(base)
            return _function(self._library, called, full, base)
        if not self._prefix and name in ATTRIBUTES:
            return getattr(self._base, name)
        if not self._prefix and name in _EXTENSIONS:
            return Namespace(self._library, name)
        if not self._prefix and name == "special":
            return Special(self._library)
        raise AttributeError(f"{self.__name__} has no attribute {name!r}", name=name, obj=self)

    def _own(self, name: str) -> Any:
        """Return the library's function, or ours, which takes its arrays too, if it has none."""
        recorded = STANDARD.functions.get(self._prefix + name)
        is_another = self._library.is_lazy and name == "cholesky"  # Dask's is the upper factor
        if recorded is None or (hasattr(self._base, name) and not is_another):
            return getattr(self._base, name)
        return recorded.evaluate

    def __dir__(self) -> list[str]:
        mine = {n.removeprefix(self._prefix) for n in FUNCTIONS if n.startswith(self._prefix)}
        names = {n for n in mine if "." not in n}
        return sorted(names if self._prefix else names | ATTRIBUTES | _EXTENSIONS | {"special"})

    def __repr__(self) -> str:
        return f"<namespace {self.__name__}>"

    def __deepcopy__(self, memo: Any) -> Namespace:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _import_namespace, (self._library.xp.__name__, self._prefix.rstrip("."))


_EXTENSIONS = frozenset(("linalg", "fft"))

_SPELLED = {"numpy": "array_api_compat.numpy"}
"""Modules with the standard's names, of libraries that have others; loaded when asked for."""


class Special:
    """The extension of the namespace that SciPy looks for: special functions by SciPy's names.

    They take traced arrays, those of the library and Python numbers.
    """

    def __init__(self, library: Library) -> None:
        self.__name__ = f"mixad.{library.name}.special"
        self._functions = SPECIAL | SCIPY if library is NUMPY else SPECIAL

    def __getattr__(self, name: str) -> Any:
        if name not in self._functions:
            raise AttributeError(f"{self.__name__} has no attribute {name!r}", name=name, obj=self)
        evaluate = self._functions[name].evaluate

        def function(*operands: Any) -> Any:
            return constants(evaluate(*map(unwrapped, operands)))

        function.__name__ = function.__qualname__ = name
        function.__doc__ = evaluate.__doc__
        self.__dict__[name] = function
        return function

    def __dir__(self) -> list[str]:
        return sorted(self._functions)

    def __repr__(self) -> str:
        return f"<namespace {self.__name__}>"


def namespace_of(xp: Any) -> Namespace:
    """Return the array API standard over a library, for values that are differentiated.

    Parameters
    ----------
    xp : module
        An array library: NumPy, torch, array-api-strict, a module of array-api-compat, or what
        their arrays say is theirs.

    Returns
    -------
    Namespace
        What traced arrays of that library have as ``__array_namespace__``.  Its functions give
        constants where nothing is traced: arrays of this namespace that no transform follows, which
        take traced values when they are written to, and come back from transforms as arrays of
        the library.

    Raises
    ------
    TypeError
        If ``xp`` is no array library.

    Examples
    --------
    >>> import numpy as np
    >>> xp = namespace_of(np)
    >>> import mixad
    >>> mixad.grad(lambda x: xp.sum(xp.exp(x)))(np.zeros(2))
    array([1., 1.])
    >>> xp.zeros(2)
    Constant(array([0., 0.]))
    """
    if isinstance(xp, Namespace):
        return xp
    empty = getattr(xp, "empty", None)
    sample = empty(0) if callable(empty) else None
    if not is_array(sample):
        raise TypeError(
            f"namespace_of takes an array library, {xp!r} is none: pass the module, such as numpy"
        )
    return namespace_over(library_of(sample))


def namespace_over(library: Library, version: str | None = None) -> Namespace:
    """Return the namespace over a library; ValueError if the version of the standard is unknown."""
    if version is not None and version not in VERSIONS:
        raise ValueError(
            f"version {version!r} of the array API standard is unknown: use one of {VERSIONS}"
        )
    return _namespace_of(library)


@functools.cache
def _namespace_of(library: Library) -> Namespace:
    return Namespace(library)


def _import_namespace(module: str, extension: str) -> Namespace:
    """Return a namespace that was pickled."""
    found = namespace_of(sys.modules.get(module) or importlib.import_module(module))
    return getattr(found, extension) if extension else found


def _of_dtype(base: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(base)
    def can_cast(from_: Any, to: Any) -> Any:
        given = primal_value(from_)  # NumPy's types have a `dtype` too, which is no dtype
        return base(given.dtype if is_array(given) else given, to)

    return can_cast


def _function(
    library: Library, called: str, name: str, base: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function of the namespace: the library's own, until an argument is traced."""
    recorded = STANDARD.functions.get(name)
    has_derivative = name not in STANDARD.constant

    def compute(name: str, args: Any, kwargs: Any) -> Any:
        assert recorded is not None
        try:
            result = recorded(*args, **kwargs)
        except Exception as error:
            named = refusal_of_mixture(error, lambda: f"{called}()", (*args, *kwargs.values()))
            if named is None:
                raise
            raise named from None
        return constants(as_numpy_gives(result) if library is NUMPY else result)

    @short_traceback
    def function(*args: Any, **kwargs: Any) -> Any:
        found = _tracers(args) | _tracers(kwargs.values()) if kwargs else _tracers(args)
        if not found:
            return constants(base(*args, **kwargs))
        if not (has_derivative and found & _TRACED):
            given = (*args, *kwargs.values())
            result = derived(
                base(*replace_tracers(primal_value, args), **replace_tracers(primal_value, kwargs)),
                given,
            )
            return noted(recorded.evaluate, result, given) if recorded else result
        if recorded is None:
            raise TracerError(missing(f"{called}()"))
        if found & _CONSTANT:
            args, kwargs = replace_tracers(unwrapped, args), replace_tracers(unwrapped, kwargs)
        traced = first_traced((*args, *kwargs.values()))
        strand = None if traced is None else traced.strand
        if strand is None:
            return compute(name, args, kwargs)
        return strand.call(compute, name, args, kwargs)

    function.__name__ = name.rpartition(".")[2]
    function.__qualname__ = name
    function.__doc__ = base.__doc__
    function.__wrapped__ = base  # type: ignore[attr-defined]  # whose signature it has
    return function


_CONSTANT, _TRACED = 1, 2


def _tracers(values: Iterable[Any]) -> int:
    """Return the kinds of tracers among values and in lists of them: a sum of the two above."""
    found = 0
    for value in values:
        if isinstance(value, Tracer):
            found |= _TRACED if value.levels else _CONSTANT
        elif isinstance(value, (list, tuple)):
            found |= _tracers(value)
    return found


def replace_tracers(change: Callable[[Any], Any], values: Any) -> Any:
    """Return values, and lists of them, with tracers replaced."""
    if isinstance(values, dict):
        return {name: replace_tracers(change, value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        if not _tracers(values):
            return values
        items = [replace_tracers(change, v) for v in values]
        return type(values)(*items) if hasattr(values, "_fields") else type(values)(items)
    return change(values)
