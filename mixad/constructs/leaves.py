"""The leaves of constructs' arguments and results: arrays and traced values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mixad.backends.arrays import is_array, is_number, library_of
from mixad.constructs.block_programs import Operator
from mixad.errors import KernelIndexError, TracerError
from mixad.namespace.array_methods import copy_array
from mixad.namespace.joining import stack
from mixad.namespace.manipulation import reshape
from mixad.scalar.dtypes import element_type_of
from mixad.tape.cell import kind_of
from mixad.tape.constant import unwrapped
from mixad.tape.node import Result
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["copy_leaf", "join_numbers", "leaf_of", "reshape_leaf", "result_of", "returned_leaf",
           "split_elements"]  # fmt: skip


def leaf_of(value: Any, what: str) -> Any:
    """Return a leaf of a loop's argument as an array or a traced value."""
    value = unwrapped(value)
    if isinstance(value, Tracer) or (is_array(value) and not isinstance(value, np.generic)):
        return value
    if is_number(value) or isinstance(value, np.generic):
        return np.asarray(value)
    raise TracerError(
        f"{what} contains a {type(value).__name__}: pass arrays and numbers, and let "
        "the function capture what else it reads"
    )


def copy_leaf(leaf: Any) -> Any:
    """Return an array or a traced value that shares no memory with the user's."""
    return (
        copy_array(leaf)
        if isinstance(leaf, Tracer)
        else library_of(leaf).xp.asarray(leaf, copy=True)
    )


def reshape_leaf(x: Any, shape: tuple[int, ...]) -> Any:
    """Return an array or a traced value in another shape."""
    if type(x) is np.ndarray:
        return x.reshape(shape)
    return reshape(x, shape) if isinstance(x, Tracer) else library_of(x).xp.reshape(x, shape)


def returned_leaf(value: Any) -> Any:
    """Return a result; one that is no float has no derivative."""
    if not isinstance(value, Tracer) or value.kind.type.is_inexact:
        return value
    return primal_value(value)


def result_of(value: Any) -> Result:
    """Return the description of an array or a traced value, without its elements."""
    if isinstance(value, Tracer):
        return Result(value.shape, value.kind, value.device)
    kind = kind_of(element_type_of(value.dtype), library_of(value))
    return Result(tuple(value.shape), kind, getattr(value, "device", None))


def without_element(error: KernelIndexError, hint: str | None = None) -> KernelIndexError:
    """Return a kernel's error without the number of the element, which is not the user's."""
    message = re.sub(r", element \([^)]*\)", "", error.message)
    return KernelIndexError(message, location=error.location, hint=hint or error.hint)


def split_elements(operator: Operator, leaves: Mapping[int, Any]) -> list[Any]:
    """Return an array for each number of elements, from some of their arrays."""
    return [
        leaves[leaf][(..., *index)] if index else leaves[leaf]
        for leaf, index in operator.places
        if leaf in leaves
    ]


def join_numbers(operator: Operator, numbers: Sequence[Any]) -> list[Any]:
    """Return the arrays of elements from an array for each of their numbers."""
    left, leaves = iter(numbers), []
    for core in operator.cores:
        own = [next(left) for _ in range(math.prod(core))]
        whole = stack(own, axis=-1) if core else own[0]
        leaves.append(reshape_leaf(whole, (*whole.shape[:-1], *core)) if core else whole)
    return leaves
