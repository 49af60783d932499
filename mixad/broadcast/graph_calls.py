"""Calls that become part of another system's graph, which names a kernel by a number."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Protocol

from mixad.errors import TracerError
from mixad.scalar.parse import Parsed

__all__ = ["call_in_graph", "register_bound", "register_kernel"]


class Kernel(Protocol):
    """A decorated function, which can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function at every element."""

    def _parse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Parsed, Any]:
        """Return the program for these arguments and the values of its params."""


_NUMBERS = itertools.count()
_KERNELS: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()


_BOUND: dict[tuple[int, int], int] = {}
"""The number of a bound function, by that of the function and the id of the object."""


def register_kernel(kernel: Kernel) -> int:
    """Return the number by which graphs name this function while it lives."""
    number = next(_NUMBERS)
    _KERNELS[number] = kernel
    return number


def register_bound(kernel: Kernel, unbound: int, instance: object) -> int:
    """Return the number of a function that is bound to an object: always the same.

    Python binds a method anew at each call, and a compiled graph has to find it again.
    """
    key = unbound, id(instance)
    number = _BOUND.get(key)
    if number is None:
        number = next(_NUMBERS)
        try:
            weakref.finalize(instance, _BOUND.pop, key, None).atexit = False
            _BOUND[key] = number
        except TypeError:  # nobody tells when the id is another object's
            pass
    _KERNELS[number] = kernel
    return number


def call_in_graph(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call that becomes part of a graph, which runs again and again.

    ``number`` is the one that an integration's ``trace`` got. TracerError if the function reads a
    value from outside: the graph would not see that it changes.
    """
    kernel = _KERNELS[number]
    parsed, _ = kernel._parse(args, kwargs)
    if parsed.captures:
        names = ", ".join(dict.fromkeys(repr(c.name) for c in parsed.captures))
        raise TracerError(
            f"{parsed.program.name} reads {names} from outside, and a compiled graph would not see "
            f"other values later: pass {names} as arguments"
        )
    return kernel(*args, **kwargs)
