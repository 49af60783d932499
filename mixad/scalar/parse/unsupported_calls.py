"""Functions that a kernel cannot call, and what to write instead."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad.scalar.names import OUR_NAMES
from mixad.scalar.parse.other_libraries import name_of_ours

__all__ = ["instead", "is_foreign", "is_of_arrays", "is_transform", "refused_of_arrays",
           "refused_transform", "unsupported_call", "wrapping"]  # fmt: skip


def unsupported_call(name: str, function: Any, call: str) -> tuple[str, str] | None:
    """Return the message and the hint for a function that is known not to work on numbers.

    None for one whose source tells more.  ``name`` is how the user spells it, ``call`` the call.
    """
    if "random" in name.split("."):
        return (
            f"`{name}`: random numbers in a kernel would differ each time it runs",
            "draw them before, and pass them as an argument",
        )
    if hasattr(getattr(function, "__self__", None), "ndim") or _is_of_traced(function):
        return _of_a_whole_array(name, call)
    if isinstance(getattr(function, "__self__", None), list):
        return (
            f"`{name}` is a method of a list from outside",
            "return the value, as one more output",
        )
    if isinstance(function, functools.partial):
        return f"`{name}` is a functools.partial", _FILLED
    if function is None:
        return f"`{name}` is None, not a function", "define the function before the call"
    if isinstance(getattr(function, "__self__", None), complex):
        return f"`{name}` is a method of a number from outside", "np.conj(z)"
    if isinstance(function, type) and issubclass(function, np.complexfloating):
        return f"`{name}`: its precision is not one of kernels", "np.complex128(z)"
    if is_of_arrays(function):
        return refused_of_arrays(name, function)
    if is_foreign(function):
        return _refused_foreign(name, function)
    return wrapping(f"`{name}`", function)


def _of_a_whole_array(name: str, call: str) -> tuple[str, str]:
    hint = f"compute it before the kernel, result = {call}, and read the result in the kernel"
    return f"`{name}` is of a whole array", hint


def _is_of_traced(function: Any) -> bool:
    """Whether a function stands for a method of a traced array, which has those of its library."""
    given = function.args if isinstance(function, functools.partial) else ()
    return any(hasattr(type(each), "__mixad_tracer__") for each in given)


def wrapping(name: str, function: Any) -> tuple[str, str] | None:
    """Return the message and the hint for an object that says which function it wraps."""
    inside = getattr(function, "__wrapped__", None)
    if inside is None or not callable(function):
        return None
    kind, inner = type(function).__name__, getattr(inside, "__name__", type(inside).__name__)
    message = f"{name} is a {kind} that wraps {inner!r}: what it does besides calling it is unknown"
    return message, f"{inner!r} itself, or a function that does what the object does"


_FILLED = "a function, or a lambda, that fills them in"


def is_of_arrays(function: Any) -> bool:
    """Whether a function is one of NumPy's, other than those of single elements."""
    if isinstance(getattr(function, "__self__", None), np.ufunc):  # np.add.reduce
        return True
    module = getattr(function, "__module__", None) or ""
    return module.split(".")[0] == "numpy" and not isinstance(function, np.ufunc | type)


def is_foreign(function: Any) -> bool:
    """Whether a function is one of a library whose functions are not read as the user's are."""
    return _library_of(function) in ("scipy", "statistics", *_OF_TENSORS)


def _library_of(function: Any) -> str:
    owner = getattr(function, "__self__", None)  # those of torch are methods of a class
    module = getattr(function, "__module__", None) or getattr(owner, "__module__", None) or ""
    return str(module).partition(".")[0]


def _refused_foreign(name: str, function: Any) -> tuple[str, str]:
    """Return the message and the hint for a function of torch, JAX, SciPy or `statistics`."""
    theirs = getattr(function, "__name__", "")
    hint = _IN_PYTHON.get(OUR_NAMES.get(theirs, theirs)) or instead(function)
    if _library_of(function) not in _OF_TENSORS:
        return f"`{name}` is not supported in a kernel", hint
    return f"`{name}` takes tensors: a kernel sees one element of each", hint


_OF_TENSORS = ("torch", "jax")
_IN_PYTHON: Mapping[str, str] = MappingProxyType({
    "abs": "abs(x)", "square": "x * x", "reciprocal": "1 / x",
    "clamp": "min(max(x, low), high)", "clip": "min(max(x, low), high)", "round": "round(x)",
    "mode": "a `for` loop over a tuple that counts with ==",
    "median": "of three numbers, max(min(x, y), min(max(x, y), z))",
})  # fmt: skip
"""Functions of those libraries that Python has, or that are short in it."""


def refused_of_arrays(name: str, function: Any) -> tuple[str, str]:
    """Return the message and the hint for a function of NumPy's."""
    hint = next((hint for known, hint in _OF_ELEMENTS.items() if known is function), None)
    if hint is not None:
        return f"`{name}` is not supported in a kernel", hint
    within = _OF_VECTORS.get(function, "a loop")
    return (
        f"`{name}` works on whole arrays: a kernel sees one element",
        f"call it before, or on the kernel's results; of a small array in the kernel, {within}",
    )


_OF_ELEMENTS: Mapping[Any, str] = MappingProxyType(
    {
        np.nan_to_num: "0.0 if np.isnan(x) else x, and np.clip for what is infinite",
        np.ones: "[1.0] * 3",
        np.full: "[x] * 3",
        np.empty: "np.zeros(3)",
        np.eye: "np.zeros((2, 2)), and assignments to its elements",
        np.identity: "np.zeros((2, 2)), and assignments to its elements",
    }
)
"""Functions of NumPy that nothing stands for, though a kernel may do what they do."""


_OF_VECTORS: Mapping[Any, str] = MappingProxyType(
    {np.sum: "sum(v)", np.max: "max(v)", np.min: "min(v)"}
)
"""Functions of NumPy that are builtins of Python, too."""


def is_transform(function: Any) -> bool:
    """Whether a plain function is one of mixad's own, which work on arrays and on functions.

    One that was defined with a copy of a module's names, as doctests are run, is not the module's.
    """
    module = str(function.__globals__.get("__name__", ""))
    if not module.startswith("mixad.") or module.startswith(_OF_NUMBERS):
        return False
    return vars(sys.modules[module]) is function.__globals__ if module in sys.modules else False


def refused_transform(name: str, function: Any, call: str) -> tuple[str, str]:
    """Return the message and the hint for one of mixad's own functions."""
    if function.__module__.startswith(_OF_TRACED) and "." in function.__qualname__:
        return _of_a_whole_array(name, call)
    if function.__module__ == "mixad.broadcast.function":
        hint = "call the function itself: it is compiled with the kernel"
    else:
        hint = "apply it outside, to a function that calls the kernel"
    return f"`{name}` is of mixad, for use outside kernels: a kernel cannot call it", hint


_OF_TRACED = ("mixad.namespace.", "mixad.tape.")
"""Modules of mixad with classes of traced arrays."""

_OF_NUMBERS = ("mixad.scalar.", "mixad.special", "mixad.scipy.programs.", "mixad.cli.",
               "mixad.conformance.")  # fmt: skip
"""Modules of mixad with functions of numbers."""


def instead(function: Any) -> str:
    """Return what to write for a function that nothing stands for."""
    if getattr(function, "__module__", None) in ("operator", "_operator"):
        return "the operator itself, such as a * b"
    try:
        found = _INSTEAD.get(function)
    except TypeError:  # not hashable
        found = None
    if found is None and (ours := name_of_ours(function)) is not None:
        return f"mixad.special.{ours}"
    return found or "its formula, written with operators; or its value, computed before the call"


_TYPES = "leave it out: a kernel is compiled for each combination of types"
_INSTEAD: Mapping[Any, str] = MappingProxyType({
    print: "print(f.trace(*args, at=index)) outside of a kernel f, which shows what each line "
           "computes; or return the value, as one more output",
    isinstance: _TYPES, type: _TYPES, issubclass: _TYPES,
    sorted: "use min and max", list: "use a tuple", set: "use a tuple", dict: "use names",
    map: "a `for` loop over a tuple", filter: "`if` in a `for` loop over a tuple",
    str: "return the number", getattr: "the attribute itself, such as self.rate",
    functools.partial: _FILLED, functools.reduce: "a `for` loop over a tuple",
    math.dist: "math.hypot(a - c, b - d)",
    math.fsum: "sum((x, y, z)), which rounds each sum",
    math.modf: "np.trunc(x), and x - np.trunc(x)", math.prod: "x * y * z",
    math.ulp: "np.nextafter(abs(x), math.inf) - abs(x)", math.gcd: "a `while` loop with %",
    math.factorial: "math.gamma(n + 1.0), or the number, computed before the call",
    math.comb: "the number, computed before the call",
})  # fmt: skip
