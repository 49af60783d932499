"""Lists as arrays, where NumPy takes them: nested, of traced values, arrays and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from array_api_compat import device as device_of

from mixad.backends.arrays import NUMPY, is_array
from mixad.namespace.data_types import of_one_type
from mixad.namespace.elementwise import array_beside, is_strong
from mixad.namespace.joining import stack
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer

__all__ = ["arrays_of", "first_traced", "from_lists", "stack_nested"]

_LISTS = (list, tuple)


def first_traced(x: Any) -> Tracer | None:
    """Return the first traced value in nested lists."""
    if isinstance(x, Tracer):
        return x
    return _first_of(x) if isinstance(x, _LISTS) else None


def _first_of(values: Iterable[Any]) -> Tracer | None:
    return next((found for found in map(first_traced, values) if found is not None), None)


def from_lists(x: Any, like: Any) -> Any:
    """Return nested lists as an array (see `stack_nested`), other values unchanged."""
    return stack_nested(x, like) if isinstance(x, _LISTS) else x


def stack_nested(x: Any, like: Any) -> Any:
    """Return nested lists as an array of the library and on the device of another."""
    if isinstance(x, Tracer) or is_array(x):
        return x
    library = library_of_value(like)
    if not isinstance(x, _LISTS):
        # NumPy's numbers are arrays of their own types beside others; the standard has floats.
        number = x if library is NUMPY or isinstance(x, complex) else float(x)
        return library.xp.asarray(number, device=device_of(like))
    if library is NUMPY and first_traced(x) is None:
        return np.asarray(x)
    if not x:
        return library.xp.zeros((0,), device=device_of(like))
    if all(isinstance(each, (bool, np.bool_)) for each in x):
        return library.xp.asarray([bool(each) for each in x], device=device_of(like))
    return stack(of_one_type("asarray", [stack_nested(each, like) for each in x]))


def arrays_of(*operands: Any) -> list[Any]:
    """Return operands of a NumPy function as arrays, numbers and lists included."""
    arrays = [x for x in operands if (isinstance(x, Tracer) or is_array(x)) and is_strong(x)]
    own = [x for x in arrays if not isinstance(x, np.generic)]
    like = max(own, key=lambda x: isinstance(x, Tracer)) if own else first_traced(operands)
    return [array_beside(from_lists(x, like), like) for x in operands]
