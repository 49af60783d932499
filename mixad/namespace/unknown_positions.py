"""Positions that indices select which are known in a step of a loop only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from mixad.backends.arrays import NUMPY
from mixad.namespace.manipulation import reshape
from mixad.scalar.build import Builder
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.ir import Atom
from mixad.scalar.types import BOOL, I64, U64, ScalarType
from mixad.tape.core_kernel import CoreKernel, OverCores
from mixad.tape.tracer import Tracer
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["positions_selected"]


def positions_selected(shape: tuple[int, ...], key: tuple[Any, ...]) -> Any:
    """Return the positions that a key selects in an array of NumPy; None if they are not a sum.

    They are one of what is known, and of each traced index times how many elements come before the
    next along its axis.  An index outside raises IndexError.
    """
    key = tuple([np.asarray(k) if isinstance(k, list) else k for k in key])
    indices = [k for k in key if isinstance(k, Tracer)]
    if not indices or not all(map(_is_index, key)):
        return None
    given = [k for k in key if k is not None and k is not Ellipsis]
    if len(given) > len(shape):
        return None
    at = key.index(Ellipsis) if any(k is Ellipsis for k in key) else len(key)
    missing = [slice(None)] * (len(shape) - len(given))
    every = (*key[:at], *missing, *[k for k in key[at:] if k is not Ellipsis])
    axes = [k for k in every if k is not None]
    traced = tuple([axis for axis, k in enumerate(axes) if isinstance(k, Tracer)])
    if any(shape[axis] == 0 for axis in traced):
        return None
    sources = [getattr(each, "source", each) for each in indices]
    whole = np.arange(math.prod(shape)).reshape(shape)
    if any(getattr(k, "shape", ()) for k in given):
        place = _place_of_arrays(every)
        if place is None or (at < len(key) and not missing):
            return None
        zeros = [np.zeros(k.shape, np.int64) if isinstance(k, Tracer) else k for k in every]
        base, count = whole[tuple(zeros)], max(len(getattr(k, "shape", ())) for k in given)
        behind = base.ndim - place - count
        sources = [reshape(each, (*each.shape, *[1] * behind)) for each in sources]
    else:
        base = whole[(*[0 if isinstance(k, Tracer) else k for k in key], ...)]
    lengths = tuple([shape[axis] for axis in traced])
    strides = tuple([math.prod(shape[axis + 1 :]) for axis in traced])
    static = {"lengths": lengths, "strides": strides, "axes": traced}
    base = np.ascontiguousarray(base).reshape(base.shape)
    return apply_values_rule(_POSITIONS, base, *sources, **static)[0]


def _place_of_arrays(key: Sequence[Any]) -> int | None:
    """Return before which axis of the result those of arrays are; None beside new axes.

    They are where the arrays are if nothing is between these, else they come first.
    """
    if any(k is None for k in key):
        return None
    places = [at for at, k in enumerate(key) if not isinstance(k, slice)]
    return places[0] if places[-1] - places[0] < len(places) else 0


def _is_index(key: Any) -> bool:
    """Whether a part of a key is known, or a traced whole number."""
    if isinstance(key, Tracer):
        return key.kind.library is NUMPY and key.kind.type.is_integer
    if type(key) is np.ndarray:
        return key.dtype.kind in "iu"
    is_number = isinstance(key, (int, np.integer)) and not isinstance(key, bool)
    return is_number or key is None or key is Ellipsis or isinstance(key, slice)


def _sum_positions(
    xp: Any,
    base: Any,
    *indices: Any,
    lengths: Sequence[int],
    strides: Sequence[int],
    axes: Sequence[int],
) -> tuple[Any]:
    """Return positions, or raise what NumPy does of an index that is outside."""
    for index, length, stride, axis in zip(indices, lengths, strides, axes, strict=True):
        outside = index[(index < -length) | (index >= length)]
        if outside.size:
            first = outside.reshape(-1)[0]
            raise IndexError(f"index {first} is out of bounds for axis {axis} with size {length}")
        wide = index.astype(np.int64)
        base = base + np.where(wide < 0, wide + length, wide) * stride
    return (base,)


def _kernel(
    base: Any, *indices: Any, lengths: tuple[int, ...], strides: tuple[int, ...], axes: Any
) -> CoreKernel | None:
    if not all(type(each) is np.ndarray and each.dtype.isnative for each in (base, *indices)):
        return None
    types = tuple([element_type_of(each.dtype) for each in indices])
    if U64 in types:  # which 64 bits with a sign do not hold
        return None
    found = _positions(types, lengths, strides)
    return found if found.is_served else None


@cache
def _positions(
    types: tuple[ScalarType, ...], lengths: tuple[int, ...], strides: tuple[int, ...]
) -> CoreKernel:
    b = Builder("positions")
    found: Atom = b.param("base", I64)
    params = [b.param(f"i{k}", type) for k, type in enumerate(types)]
    fails: Atom = b.param("fails", BOOL)
    zero = b.const(0, I64)
    for param, length, stride in zip(params, lengths, strides, strict=True):
        index, own = b.convert(param, I64), b.const(length, I64)
        wrapped = b.op("where", b.op("lt", index, zero), b.op("add", index, own), index)
        is_outside = b.op("or", b.op("lt", wrapped, zero), b.op("ge", wrapped, own))
        fails = b.op("or", fails, is_outside)
        inside = b.op("where", is_outside, zero, wrapped)  # so that later steps read nothing else
        found = b.op("add", found, b.op("mul", inside, b.const(stride, I64)))
    cores = ((),) * (1 + len(types))
    return CoreKernel(b.finish([found, fails]), cores, ((),))


_POSITIONS = ValuesRule("indexing", OverCores(_kernel, _sum_positions), ())
