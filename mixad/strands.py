"""Which calls of transforms are given a strand: those by small arrays, or by values of others."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import describe_array
from mixad.inner_calls import InnerCall
from mixad.namespace.array import ArrayTracer
from mixad.signature import Function
from mixad.strand_calls import Arguments, StrandCall, size_of
from mixad.strand_history import has_left
from mixad.tape.memory import is_numpy_number
from mixad.tape.tracer import Level

__all__ = ["open_strand"]

_MAX_ELEMENTS = 1 << 23
"""Elements of all inputs of a strand: a plan is tried once beside the pass that it repeats."""


def open_strand(
    level: Level, f: Function, args: Sequence[Any], positions: Sequence[int]
) -> StrandCall | None:
    """Return the strand of a call whose differentiated arguments are small arrays, or traced."""
    found = _arguments(f, args, positions)
    return found and (InnerCall if found.are_traced else StrandCall)(level, f, found)


def _arguments(f: Function, args: Sequence[Any], positions: Sequence[int]) -> Arguments | None:
    """Return the arguments of a call; None unless a strand knows such."""
    if has_left(f):
        return None
    arrays: list[Any] = []
    structures = []
    for position in positions:
        leaves, structure = pytree.flatten(args[position])
        arrays += leaves
        structures.append(structure)
    is_inner = ArrayTracer in map(type, arrays)
    described = _traced_described(arrays) if is_inner else _described(arrays)
    if described is None or size_of(arrays) > _MAX_ELEMENTS:
        return None
    return Arguments(args, positions, structures, arrays, described, is_inner)


def _described(arrays: Sequence[Any]) -> tuple[Hashable, ...] | None:
    """Return descriptions of arguments; None unless strands know them.

    Then they are of one library, and in the memory of this machine.
    """
    kinds = set(map(type, arrays))
    if kinds == _NUMPY:
        taken = all(map(_is_numpys, arrays))
    else:
        taken = kinds == _tensor() and all(map(_is_torchs, arrays))
    found = tuple(map(describe_array, arrays)) if taken else (None,)
    return None if None in found else found


def _traced_described(leaves: Sequence[Any]) -> tuple[Hashable, ...] | None:
    """Return descriptions of arguments that are values of strands; None unless all are."""
    found: list[Hashable] = []
    for leaf in leaves:
        strand = leaf.strand if type(leaf) is ArrayTracer else None
        if strand is None or not strand.is_recording(leaf) or not leaf.kind.type.is_float:
            return None
        found.append((leaf.kind, leaf.shape, is_numpy_number(leaf)))
    return tuple(found)


def _is_numpys(array: Any) -> bool:
    return array.ndim > 0 and array.dtype in _DTYPES


def _is_torchs(tensor: Any) -> bool:
    return tensor.is_cpu and str(tensor.dtype) in _TORCH_DTYPES


_NUMPY = {np.ndarray}
_DTYPES = (np.dtype(np.float64), np.dtype(np.float32))
_TORCH_DTYPES = ("torch.float64", "torch.float32")


def _tensor() -> set[type]:
    """Return the type of torch's tensors, if that has been imported."""
    torch = sys.modules.get("torch")
    return set() if torch is None else {torch.Tensor}
