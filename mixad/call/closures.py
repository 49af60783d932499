"""Captures of a function: copies of functions whose captured values no longer change.

A function that runs again later must find what it found first. Cells of closures are built anew, so
that it finds neither a loop variable that has moved on nor a traced value whose transform is over.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

from mixad import pytree
from mixad.backends.arrays import Array, is_array
from mixad.call.signature import TransformedFunction
from mixad.scalar.parse.code import globals_read
from mixad.tape.tracer import Tracer

__all__ = ["captured_values", "freeze", "substitute"]


def freeze(f: Any) -> Any:
    """Return a copy of a function with its present closure and the containers in it."""
    return _Copy(lambda value: value, anew=True).replace_in(f)


def captured_values(f: Any) -> tuple[list[Tracer], list[Array]]:
    """Return the traced values that a function captures, and the arrays that it reads, each once.

    Arrays include those that it finds under a global name.
    """
    found: dict[int, Any] = {}

    def note(value: Any) -> Any:
        return found.setdefault(id(value), value)

    _Copy(note).replace_in(f)
    tracers = [value for value in found.values() if isinstance(value, Tracer)]
    return tracers, [value for value in found.values() if not isinstance(value, Tracer)]


def substitute(f: Any, values: Mapping[int, Any]) -> Any:
    """Return a copy of a function with values in place of captured tracers, by their ids."""
    return _Copy(lambda value: values.get(id(value), value)).replace_in(f)


class _Copy:
    """One copy of a structure; an object in it is copied once, so functions may capture themselves.

    ``swap`` replaces tracers and arrays. ``anew`` copies lists, dictionaries and what holds traced
    values even if nothing in them changes: later additions are not in the copy.
    """

    def __init__(self, swap: Callable[[Any], Any], *, anew: bool = False) -> None:
        self._swap = swap
        self._anew = anew
        self._known: dict[int, Any] = {}

    def replace_in(self, value: Any) -> Any:
        """Return a value with replaced tracers and arrays; the value itself if there are none."""
        if isinstance(value, Tracer):
            return self._swap(value)
        if id(value) in self._known:
            return self._known[id(value)]
        if type(value) is FunctionType:
            return self._function(value)
        if type(value) is TransformedFunction:
            f = self.replace_in(value.transformed)
            return value if f is value.transformed else value.of(f)
        if type(value) is MethodType:
            return MethodType(self.replace_in(value.__func__), self.replace_in(value.__self__))
        if type(value) is functools.partial:
            arguments = self.replace_in(value.args), self.replace_in(value.keywords)
            return functools.partial(self.replace_in(value.func), *arguments[0], **arguments[1])
        return self._container(value)

    def _container(self, value: Any) -> Any:
        leaves, structure = pytree.flatten(value)
        if structure is pytree.LEAF:
            return self._swap(value) if is_array(value) else value
        copies = [self.replace_in(leaf) for leaf in leaves]
        changed = any(new is not leaf for new, leaf in zip(copies, leaves, strict=True))
        if changed or (self._anew and any(isinstance(leaf, Tracer) for leaf in leaves)):
            copied = pytree.unflatten(structure, copies)
        elif self._anew and isinstance(value, (list, dict)):
            copied = copy.copy(value)
        else:
            return value
        self._known[id(value)] = copied  # a container under two names is one in the copy
        return copied

    def _function(self, function: FunctionType) -> FunctionType:
        cells = function.__closure__ or ()
        closure = tuple([CellType() if self._anew or _may_change(c) else c for c in cells])
        scope = self._scope(function)
        twin = FunctionType(function.__code__, scope, function.__name__, None, closure or None)
        self._known[id(function)] = twin
        twin.__defaults__ = self.replace_in(function.__defaults__)
        twin.__kwdefaults__ = self.replace_in(function.__kwdefaults__)
        twin.__qualname__ = function.__qualname__
        twin.__dict__.update(function.__dict__)
        for new, old in zip(closure, cells, strict=True):
            if new is not old and not _is_empty(old):
                new.cell_contents = self.replace_in(old.cell_contents)
        return twin

    def _scope(self, function: FunctionType) -> dict[str, Any]:
        """Return the globals of a function, a copy if arrays in them are replaced."""
        scope = function.__globals__
        arrays = {
            name: scope[name]
            for name in globals_read(function.__code__)
            if is_array(scope.get(name))
        }
        swapped = {name: self._swap(array) for name, array in arrays.items()}
        is_same = all(swapped[name] is array for name, array in arrays.items())
        return scope if is_same else {**scope, **swapped}


def _may_change(cell: CellType) -> bool:
    """Whether a cell may hold something to replace.

    A number is the function's own, which may count.
    """
    return not _is_empty(cell) and not isinstance(cell.cell_contents, (int, float, complex, str))


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a name that is not bound yet
        return True
    return False
