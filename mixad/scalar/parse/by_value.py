"""Functions in pickles: by name where the name can be imported, else by value.

By value, a function is the text of the statement around it and the values that it reads from
outside.  The text is compiled where it is unpickled, so that the parser finds there what it found
here: the user's file and line.  Nothing of the text runs before the function is called.
"""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import sys
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from mixad.errors import KernelSyntaxError, KernelTypeError, MixadError
from mixad.scalar.parse.code import SentCode, compile_sent, globals_read
from mixad.scalar.parse.info import sent_code
from mixad.scalar.parse.whole_arrays import Array, annotated_parameters

__all__ = ["PickledFunction", "by_value", "helpers_by_value"]

_Reduced = tuple[Any, ...]


class PickledFunction:
    """What stands for a function of the user: pickled as functions are, or by what made it."""

    def __reduce__(self) -> str | _Reduced:
        if _has_name(self):
            return str(vars(self)["__qualname__"])
        return self._reduce()

    def _reduce(self) -> _Reduced:
        """Return what makes an equal one, as ``__reduce__`` does."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, as the user's function is."""
        raise NotImplementedError

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind to an instance, as functions do; pickles of methods have nothing but their name."""
        if instance is None:
            return self
        is_of_class = getattr(type(instance), getattr(self, "__name__", ""), None) is self
        return (MethodType if is_of_class else functools.partial)(self, instance)

    def __copy__(self) -> PickledFunction:
        return self

    def __deepcopy__(self, memo: Any) -> PickledFunction:
        return self


def by_value(value: Any) -> Any:
    """Return what is pickled in place of a value, so that functions in it are pickled by value."""
    kind = type(value)
    if kind is FunctionType:
        return value if _has_name(value) else _of_function(value)
    if kind is MethodType and not _has_name(value.__func__):
        return _Call(_method, by_value(value.__func__), value.__self__)
    if kind is staticmethod:
        return _Call(staticmethod, by_value(value.__func__))
    if kind is functools._lru_cache_wrapper and not _has_name(value):
        return _Call(_apply_lru_cache, by_value(value.__wrapped__), value.cache_parameters())
    if isinstance(value, ModuleType) and _is_importable(value.__name__, value):
        return _Call(importlib.import_module, value.__name__)
    if kind is functools.partial:
        return _Call(_partial, *map(by_value, (value.func, value.args, value.keywords)))
    if kind is tuple or hasattr(kind, "_make"):
        return _of_tuple(value)
    if kind in _CONTAINERS:
        return _of_container(value)
    return value


_CONTAINERS = (list, dict, set, frozenset)


def _of_tuple(value: Any) -> Any:
    items = tuple(map(by_value, value))
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return items if type(value) is tuple else value._make(items)


class _Container:
    """What is unpickled as a list, a dictionary or a set.

    One for each of these, as for functions: a pickle has it once, and it may hold itself.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> _Reduced:
        kind = type(self.value)
        if kind is list:
            return kind, (), None, map(by_value, self.value)
        if kind is dict:
            pairs = ((by_value(key), by_value(item)) for key, item in self.value.items())
            return kind, (), None, None, pairs
        return kind, (list(map(by_value, self.value)),)


_STAND_INS: weakref.WeakValueDictionary[int, _Container] = weakref.WeakValueDictionary()


def _of_container(value: Any) -> Any:
    """Return what is pickled in place of a container; itself, if it holds nothing of the kind."""
    for held in _contained_values(value, set()):
        if type(held) is functools.partial or by_value(held) is not held:
            return _STAND_INS.setdefault(id(value), _Container(value))
    return value


def _contained_values(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield what containers, tuples and partial functions hold, in one another; these too."""
    kind = type(value)
    is_container = kind in (*_CONTAINERS, tuple) or hasattr(kind, "_make")
    if not is_container:
        yield value
    if kind is functools.partial:
        items = (value.func, value.args, value.keywords)
    elif not is_container or id(value) in seen:
        return
    else:
        seen.add(id(value))
        items = (*value.keys(), *value.values()) if kind is dict else value
    for item in items:
        yield from _contained_values(item, seen)


class _Call:
    """What is unpickled as the result of a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> _Reduced:
        return self._reduced


def _apply_lru_cache(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _method(function: Any, instance: Any) -> MethodType:
    return MethodType(function, instance)


def _partial(function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    return functools.partial(function, *arguments, **keywords)


def _submodules(values: Iterable[Any], read: set[str]) -> Iterator[str]:
    """Yield the modules that are imported and may be read of packages: ``os.path``."""
    for module in _contained_values(list(values), set()):
        if isinstance(module, ModuleType) and _is_importable(module.__name__, module):
            prefix = f"{module.__name__}."
            for found in sorted(sys.modules):
                if found.startswith(prefix) and read.issuperset(found[len(prefix) :].split(".")):
                    yield found


def _is_importable(name: Any, module: Any) -> bool:
    """Whether a module is what importing its name finds; a program's main one is not."""
    spec = getattr(module, "__spec__", None)
    if spec is None or spec.name != name or sys.modules.get(name) is not module:
        return False
    cloudpickle = sys.modules.get("cloudpickle")  # users tell it what workers cannot import
    chosen = cloudpickle.list_registry_pickle_by_value() if cloudpickle else ()
    return not any(f"{name}.".startswith(f"{each}.") for each in chosen)


def _has_name(function: Any) -> bool:
    """Whether importing what a function is called finds it, and nothing that wraps it."""
    name = getattr(function, "__module__", None)
    found: Any = sys.modules.get(name) if isinstance(name, str) else None
    if not _is_importable(name, found):
        return False
    for attribute in str(getattr(function, "__qualname__", "")).split("."):
        found = getattr(found, attribute, None)
    return found is function


# -- functions ---------------------------------------------------------------------------------


class _Function:
    """What is unpickled as a function.  One for each function, which a pickle has once."""

    def __init__(self, function: FunctionType, code: SentCode) -> None:
        self.function = function
        self.code = code

    def __reduce__(self) -> _Reduced:
        return _empty_function, (self.code,), _read(self.function), None, None, _fill


_FUNCTIONS: weakref.WeakValueDictionary[int, _Function] = weakref.WeakValueDictionary()


def _of_function(function: FunctionType) -> Any:
    """Return what is pickled in place of a function; itself, if its source cannot be read."""
    found = _FUNCTIONS.get(id(function))
    if found is None:
        try:
            found = _Function(function, sent_code(function.__code__))
        except KernelSyntaxError:
            return function
        _FUNCTIONS[id(function)] = found
    return found


def _read(function: FunctionType) -> dict[str, dict[str, Any]]:
    """Return the attributes of a function, and what it reads: by name, to be pickled."""
    code, names = function.__code__, function.__globals__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    positional, defaults = code.co_varnames[: code.co_argcount], function.__defaults__ or ()
    parts = {
        "globals": {name: names[name] for name in globals_read(code) if name in names},
        "cells": {name: value for name, cell in cells for value in _contents(cell)},
        "defaults": dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True)),
        "keywords": function.__kwdefaults__ or {},
        "annotations": dict.fromkeys(annotated_parameters(function), Array),
        "attributes": {name: getattr(function, name) for name in _ATTRIBUTES} | function.__dict__,
    }
    captured = [value for values in parts.values() for value in values.values()]
    return {
        part: {name: _check_picklable(function, name, by_value(v)) for name, v in values.items()}
        for part, values in parts.items()
    } | {"submodules": dict.fromkeys(_submodules(captured, set(_names(code))))}


_ATTRIBUTES = ("__doc__", "__module__", "__name__", "__qualname__")


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _contents(cell: CellType) -> Sequence[Any]:
    """Return what is in a cell: nothing, if the name is not bound yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _empty_function(code: SentCode) -> FunctionType:
    """Return a function that captures nothing yet."""
    compiled = compile_sent(code)
    cells = tuple(CellType() for _ in compiled.co_freevars)
    names = {"__builtins__": sys.modules["builtins"]}
    return FunctionType(compiled, names, compiled.co_name, None, cells)


def _fill(function: FunctionType, state: Mapping[str, dict[str, Any]]) -> None:
    """Give a function what it captures.

    Modules that it reads of packages are imported: which they are is the function's, for a pickle
    has once what several functions capture.
    """
    for name in state["submodules"]:
        importlib.import_module(name)
    for name, value in state["attributes"].items():
        setattr(function, name, value)
    function.__defaults__ = tuple(state["defaults"].values()) or None
    function.__kwdefaults__ = state["keywords"] or None
    function.__annotations__ = dict(state["annotations"])
    function.__globals__.update(state["globals"], __name__=function.__module__)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name, value in state["cells"].items():
        cells[name].cell_contents = value


def helpers_by_value(functions: Sequence[FunctionType]) -> tuple[Any, ...]:
    """Return what is pickled so that the parser finds functions which others pickle.

    Such as methods of a class: cloudpickle rebuilds it, without its text.
    """
    return tuple([f for f in map(by_value, functions) if type(f) is _Function])


# -- what cannot be pickled --------------------------------------------------------------------


class _Trial(pickle.Pickler):
    """Pickles an object for nothing, but what is pickled by name, or by itself later."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _BY_THEMSELVES) and value is not int:
            return int, ()
        return NotImplemented


_BY_THEMSELVES = (_Function, FunctionType, MethodType, PickledFunction, type)


def _check_picklable(function: FunctionType, name: str, value: Any) -> Any:
    """Return what a function captures; raise, with the name, where it cannot be pickled."""
    trial = _Trial(io.BytesIO(), protocol=5, buffer_callback=lambda buffer: None)
    others = (sys.modules.get(n) for n in ("cloudpickle", "joblib.externals.cloudpickle"))
    tables = [module.CloudPickler.dispatch_table for module in others if module]
    if tables:  # what they can pickle besides
        trial.dispatch_table = ChainMap(*tables)
    try:
        trial.dump(value)
    except MixadError as error:
        raise error.about(f"{function.__name__}: {name!r}, a value from outside") from None
    except Exception as error:
        raise KernelTypeError(
            f"{function.__name__} cannot be pickled: {name!r}, a value from outside, is a "
            f"{type(value).__name__} ({error})",
            hint="pass it as an argument, or define the function in a module that can be imported",
        ) from error
    return value
