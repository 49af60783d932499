"""Results that leave a transform: values, gradients and tangents in the caller's form."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_jax_array

from mixad import pytree
from mixad.backends.arrays import as_array, is_array, is_number, library_of, strides_of
from mixad.namespace.array import ArrayTracer
from mixad.scalar.dtypes import is_complex_dtype
from mixad.tape.backward import Cotangent
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.cell import Cell
from mixad.tape.constant import unwrapped
from mixad.tape.kernel_node import KernelNode
from mixad.tape.memory import share, unshared
from mixad.tape.node import ConstantNode, Result
from mixad.tape.registers import as_register, may_share_memory
from mixad.tape.tracer import Level, Origin, Tracer, check_mode, primal_value, without_level

__all__ = ["as_given", "constant_around", "copy_array", "gradient", "own_cotangent", "tangent_of",
           "unshared_tangent", "unwrap_aux", "unwrap_output", "unwrap_shared",
           "without_derivative"]  # fmt: skip


def gradient(cell: Cell, cotangent: Cotangent | None, kind: type, around: frozenset[Level]) -> Any:
    """Return the gradient of an input as the caller gets it: of its shape, sharing no memory.

    ``kind`` is the type of the input: the gradient of a Python float is a Python float.
    """
    return as_given(own_cotangent(cell, cotangent), cell, kind, around)


def as_given(gradient: Any, cell: Cell, kind: type, around: frozenset[Level]) -> Any:
    """Return a gradient in the caller's form, for an input of some type."""
    if isinstance(gradient, Tracer):
        return gradient
    if around:  # that of a linear function is traced, too
        return constant_around(gradient, around, weak=cell.kind.weak and not gradient.shape)
    if library_of(gradient).is_lazy and not cell.library.is_lazy:  # that of NumPy's beside it
        return gradient
    if cell.library.is_lazy:
        return cell.library.with_plain_blocks_of(gradient, cell.array)
    if cell.kind.weak and not gradient.shape:
        return _python_number(gradient)
    was_scalar = kind is not np.ndarray and issubclass(kind, np.generic)
    return gradient[()] if was_scalar else as_array(gradient)


def constant_around(array: Any, around: frozenset[Level], *, weak: bool = False) -> Tracer:
    """Return an array as a constant for outer transforms, which may ask for its zero derivative."""
    cell = Cell.of(array, check_mode(around), weak=weak)
    node = ConstantNode(Result(cell.shape, cell.kind, cell.device))
    return ArrayTracer(cell, Origin(node, 0, around))


def tangent_of(leaf: Any, tangent: Any, level: Level, around: frozenset[Level]) -> Any:
    """Return the tangent of an output as the caller gets it; a None tangent is zero.

    ``level`` is the tangent's own; ``around`` are the outer transforms that the function's value
    depends on.
    """
    if tangent is not None:
        found = unwrap_output(tangent, level)
        # What a kernel made is the caller's own; anything else may be a view of a tangent given.
        is_own = isinstance(found, (Tracer, float, complex)) or isinstance(
            tangent.origin.node, KernelNode
        )
        return found if is_own else _number(library_of(found).xp.asarray(found, copy=True), tangent)
    if not isinstance(leaf, Tracer):
        return 0.0 * leaf if is_number(leaf) else library_of(leaf).xp.zeros_like(leaf)
    zeros = own_cotangent(leaf.cell, None)
    return (
        constant_around(zeros, around, weak=leaf.cell.kind.weak) if around else _number(zeros, leaf)
    )


def own_cotangent(cell: Cell, cotangent: Cotangent | None) -> Any:
    """Return a cotangent in the shape of its cell, as an array or tracer of its own."""
    xp = cell.library.xp
    if cotangent is None:
        dtype = cell.library.dtype_of(cell.type)
        return xp.zeros(cell.shape, dtype=dtype, device=cell.device)
    value = cotangent.value
    if isinstance(value, Tracer):  # other inputs may have the same cotangent, and the caller may
        return unshared(broadcast_to(value, cell.shape))
    if cotangent.is_own(cell.shape):
        return value
    xp = library_of(value).xp  # lazy if the value was NumPy's beside lazy arrays
    return xp.asarray(broadcast_to(value, cell.shape), copy=True)


def copy_array(array: Any) -> Any:
    """Return a copy of an array whose elements others may change; other values unchanged."""
    if isinstance(array, np.ndarray):
        return array.copy()
    if not is_array(array) or isinstance(array, (np.generic, Tracer)):
        return array
    if hasattr(array, "clone"):  # torch's, which may belong to a graph of its own
        return array.clone()
    if hasattr(array, "compute") or is_jax_array(array):  # lazy, or JAX's: they never change
        return array
    return library_of(array).xp.asarray(array, copy=True)


def unwrap_aux(aux: Any, level: Level) -> Any:
    """Return a function's aux, without tracers of the level."""
    return pytree.tree_map(lambda leaf: unwrap_shared(leaf, level), aux)


def unwrap_shared(leaf: Any, level: Level) -> Any:
    """Return a leaf of a function's result to the caller; views stay views."""
    return share(unwrap_output(leaf, level), leaf)


def unwrap_output(leaf: Any, level: Level) -> Any:
    """Return a leaf to the caller, without the level; a constant as its array."""
    leaf = unwrapped(leaf)
    value = without_level(leaf, level)
    if not isinstance(leaf, Tracer) or isinstance(value, Tracer):
        return value
    return _number(value, leaf)


def without_derivative(leaf: Any) -> Any:
    """Return the value of a leaf in the form that functions outside of transforms get."""
    leaf = unwrapped(leaf)
    return _number(primal_value(leaf), leaf) if isinstance(leaf, Tracer) else leaf


def _number(array: Any, leaf: Tracer) -> Any:
    """Return a leaf's array in the form that operations of its library return.

    NumPy's results without axes are scalars; results of Python numbers alone are Python numbers.
    """
    if leaf.weak:
        return _python_number(array)
    return array[()] if isinstance(array, np.ndarray) and not array.ndim else array


def _python_number(array: Any) -> float | complex:
    return complex(array) if is_complex_dtype(array.dtype) else float(array)


def _is_written_to(array: Any) -> bool:
    """Whether all who share an array's memory see a write to it."""
    library = library_of(array)
    return library.is_mutable and not library.is_lazy


def unshared_tangent(tangent: Any, taken: list[Any]) -> Any:
    """Return a tangent in memory that is not among ``taken``, and add it to that list.

    A tangent may be a given one or a view of it, share memory with another, or be one number in
    many places.
    """
    view = as_register(tangent)
    if type(view) is np.ndarray:
        is_repeated = 0 in view.strides or not view.flags.writeable
    elif is_array(view) and not isinstance(view, np.generic) and _is_written_to(view):
        is_repeated = 0 in strides_of(view)
    else:
        return tangent
    if is_repeated or any(may_share_memory(view, other) for other in taken):
        tangent = library_of(tangent).xp.asarray(tangent, copy=True)
    taken.append(as_register(tangent))
    return tangent
