"""What a function captures: copies of functions that captured values no longer change.

A function that runs again later must find what it found first.  Cells of closures are taken apart
and built anew, so that neither a loop variable that has moved on nor a traced value whose
transform is over is what it finds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

from mixad import pytree
from mixad.tape.tracer import Tracer

__all__ = ["captured_tracers", "frozen", "substituted"]


def frozen(f: Any) -> Any:
    """Return a copy of a function whose closure is as it is now."""
    return _Copy(lambda tracer: tracer).of(f)


def captured_tracers(f: Any) -> list[Tracer]:
    """Return the traced values that a function captures, each once."""
    found: dict[int, Tracer] = {}

    def noted(tracer: Tracer) -> Tracer:
        return found.setdefault(id(tracer), tracer)

    _Copy(noted).of(f)
    return list(found.values())


def substituted(f: Any, values: Mapping[int, Any]) -> Any:
    """Return a copy of a function with values in place of captured tracers, by their ids."""
    return _Copy(lambda tracer: values[id(tracer)]).of(f)


class _Copy:
    """One copy; what it has copied is not copied again, so functions may capture themselves."""

    def __init__(self, swap: Callable[[Tracer], Any]) -> None:
        self._swap = swap
        self._known: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return a value with traced values in it exchanged; the same one if there are none."""
        if isinstance(value, Tracer):
            return self._swap(value)
        if id(value) in self._known:
            return self._known[id(value)]
        if type(value) is FunctionType:
            return self._function(value)
        if type(value) is MethodType:
            return MethodType(self.of(value.__func__), self.of(value.__self__))
        if type(value) is functools.partial:
            arguments = self.of(value.args), self.of(value.keywords)
            return functools.partial(self.of(value.func), *arguments[0], **arguments[1])
        leaves, structure = pytree.flatten(value)
        copies = [value] if structure is pytree.LEAF else [self.of(leaf) for leaf in leaves]
        changed = any(copy is not leaf for copy, leaf in zip(copies, leaves, strict=True))
        return pytree.unflatten(structure, copies) if changed else value

    def _function(self, function: FunctionType) -> FunctionType:
        closure = tuple(CellType() for _ in function.__closure__ or ())
        copy = FunctionType(
            function.__code__, function.__globals__, function.__name__, None, closure or None
        )
        self._known[id(function)] = copy
        copy.__defaults__ = self.of(function.__defaults__)
        copy.__kwdefaults__ = self.of(function.__kwdefaults__)
        copy.__qualname__ = function.__qualname__
        copy.__dict__.update(function.__dict__)
        for new, old in zip(closure, function.__closure__ or (), strict=True):
            if not _is_empty(old):
                new.cell_contents = self.of(old.cell_contents)
        return copy


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a name that is not bound yet
        return True
    return False
