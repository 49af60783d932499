"""Which calls of transforms get a strand: those of arrays up to a size, or of values of others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np

from mixad import pytree
from mixad.backends.arrays import describe_array, device_key, library_of
from mixad.call.signature import Function
from mixad.errors import KernelTypeError, TracerError
from mixad.namespace.array import ArrayTracer
from mixad.scalar.dtypes import element_type_of, name_of_dtype
from mixad.tape.cell import kind_of
from mixad.tape.memory import is_numpy_number
from mixad.tape.states import State, initial_state, known_state
from mixad.tape.tracer import Level, Tracer
from mixad.transforms.inner_calls import InnerCall
from mixad.transforms.lifting import in_structures
from mixad.transforms.strand_calls import StrandCall, size_of
from mixad.transforms.strand_history import history_of

__all__ = ["open_strand"]

_MAX_RECORDED = 1 << 23
"""Most elements of all inputs of a strand: a plan is tried beside the first pass that it
repeats."""


def open_strand(
    level: Level,
    f: Function,
    args: Sequence[Any],
    positions: Sequence[int],
    inner: type[InnerCall] | None = InnerCall,
    outer: type[StrandCall] = StrandCall,
) -> StrandCall | None:
    """Return an ``outer`` call for arrays, an ``inner`` one for traced values; else None."""
    arrays: list[Any] = []
    structures = []
    for position in positions:
        leaves, structure = pytree.flatten(args[position])
        arrays += leaves
        structures.append(structure)
    described = tuple(map(describe_array, arrays))
    has_others = None in described
    is_inner = has_others and ArrayTracer in map(type, arrays)
    if has_others and not is_inner:
        described = tuple(map(_described, arrays))
        arrays = [np.asarray(a) if type(a) in _NUMBERS else a for a in arrays]
    kind, history = inner if is_inner else outer, history_of(f, level.name, is_inner=is_inner)
    if kind is None or not kind.takes(arrays, described):
        return None
    if history.left and history.has_left(f):
        return None
    if is_inner:
        described = _traced_described(arrays)
    key = described, level.check
    state = known_state(key)
    if state is None:
        if not described or None in described or size_of(arrays) > _MAX_RECORDED:
            return None
        if not (is_inner or _are_taken(arrays)):
            return None
        state = initial_state(key, tuple(map(_state_of, arrays, described)))
    call = kind(level, f, history, structures, arrays, state)
    call.arguments = list(args)
    for position, tree in zip(positions, in_structures(call.inputs, structures), strict=True):
        call.arguments[position] = tree
    return call


def _are_taken(arrays: Sequence[Any]) -> bool:
    """Whether strands take such arrays: floats or complex numbers of one library, on one device.

    False for arrays that their library refuses: the path without strands names them in its error.
    """
    try:
        are_of_one = len(set(map(library_of, arrays))) == 1
    except (KernelTypeError, TracerError):
        return False
    are_on_one = len({device_key(getattr(a, "device", None)) for a in arrays}) == 1
    return are_of_one and are_on_one and all(name_of_dtype(a.dtype) in _DTYPES for a in arrays)


def _described(value: Any) -> Hashable:
    """Return what distinguishes an input; for a number its type."""
    kind = type(value)
    return cast("Hashable", kind) if kind in _NUMBERS else describe_array(value)


def _state_of(value: Any, described: Hashable) -> State:
    """Return the state of an input, which may have been a number."""
    if isinstance(value, Tracer):
        return State(value.kind, value.shape, is_numpy_number(value))
    kind = kind_of(element_type_of(value.dtype), library_of(value), described is float)
    return State(kind, tuple(value.shape), described in _NUMBERS)


def _traced_described(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """Return descriptions of arguments if all are values of strands; else none."""
    found: list[Hashable] = []
    for leaf in leaves:
        strand = leaf.strand if type(leaf) is ArrayTracer else None
        if strand is None or not strand.is_recording(leaf) or not leaf.kind.type.is_float:
            return ()
        found.append((leaf.kind, leaf.shape, is_numpy_number(leaf)))
    return tuple(found)


_NUMBERS = {float, np.float64, np.float32}
_DTYPES = {"float64", "float32", "float16", "complex128", "complex64"}
