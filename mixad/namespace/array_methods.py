"""Methods of arrays without a function of the same arguments: NumPy's and all others'.

Where a method and a function of the library agree, `mixad.namespace.spellings` has the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixad.errors import TracerError
from mixad.namespace.assignment import setitem
from mixad.namespace.complex_numbers import conj
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import clip
from mixad.namespace.manipulation import reshape
from mixad.namespace.numpy_rearrange import compress
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.tape.memory import array_as, unshared

__all__ = ["METHODS", "NUMPY_METHODS", "copy_array", "to_device"]


def to_device(x: Any, device: Any, *, stream: Any = None) -> Any:
    """Return ``x`` if it is on the device; else TracerError, since nothing is moved."""
    if stream is not None or str(device) != str(x.device):
        raise TracerError(
            f"to_device({device!r}) of a value on {x.device!r} that is being differentiated is not "
            "available: move the arguments of the transform"
        )
    return x


def copy_array(x: Any, *, order: str = "C") -> Any:
    """Return a copy, in whatever order of memory."""
    return array_as(unshared(x), x)


def _flatten(x: Any, *, order: str = "C") -> Any:
    """Return a copy in one row."""
    return unshared(reshape(x, -1, order=order))


def _compress(x: Any, condition: Any, axis: int | None = None) -> Any:
    """Return the slices that a condition selects."""
    return compress(condition, x, axis)


def _fill(x: Any, value: Any) -> None:
    """Write a number to all elements."""
    setitem(x, ..., value)


METHODS: Mapping[str, BoundFunction] = {"to_device": function_of(to_device)}
"""Of arrays of every library."""

NUMPY_METHODS: Mapping[str, BoundFunction] = {
    **METHODS,
    "astype": function_of(astype, "x dtype order casting subok copy"),
    "clip": function_of(clip, "x min max out"),
    "compress": function_of(_compress, "x condition axis out"),
    "conj": function_of(conj, "x out"),
    "conjugate": function_of(conj, "x out"),
    "copy": function_of(copy_array, "x order"),
    "fill": function_of(_fill, "x value"),
    "flatten": function_of(_flatten, "x order"),
}
"""Of NumPy's arrays."""
