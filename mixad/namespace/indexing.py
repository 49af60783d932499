"""Indexing: by whole numbers, slices, ellipsis and new axes, and by arrays."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import NUMPY, Library, is_array, is_writeable, library_of
from mixad.backends.protocols import LaunchBlock, Stepping
from mixad.errors import TracerError
from mixad.kernel.spec import SubBox
from mixad.namespace.elementwise import where
from mixad.namespace.manipulation import normalized_axes, reshape
from mixad.namespace.unknown_positions import positions_selected
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.types import F32, F64
from mixad.tape.constant import unwrapped
from mixad.tape.memory import share
from mixad.tape.moves import gaps_of
from mixad.tape.node import Rule, added, apply_rule, library_of_value, shape_of_view
from mixad.tape.opaque import apply_opaque
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["added_at", "basic_axes", "basic_key", "call_on_plain", "cleared_at", "gather",
           "getitem", "is_selection", "of_positions", "part_along", "part_of", "positions_of",
           "scatter_add", "select_elements", "take", "take_along_axis", "view_key",
           "without_constants", "without_lists", "written_at"]  # fmt: skip

_Key = tuple[Any, ...]


def getitem(x: Any, key: Any) -> Any:
    """Return ``x[key]``.

    Keys are whole numbers, slices, ``...``, None, arrays of whole numbers or of booleans, and
    tuples of these; others are a TracerError, floats that are differentiated among them.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if any(map(is_selection, keys)):
        is_numpys = _library_with(x, keys) is NUMPY
        found = positions_selected(tuple(x.shape), keys) if is_numpys else None
        return gather(x, select_elements(positions_of(x, keys), key) if found is None else found)
    return apply_rule(_GETITEM, x, key=tuple(map(basic_key, keys)))


def select_elements(array: Any, key: Any) -> Any:
    """Return the elements of an array at a key; in a loop's body indices may be unknown."""
    return call_on_plain(operator.getitem, (array, key), {})


def call_on_plain(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return a function's result for plain arrays, some of which a loop may not know."""
    found = (each for arg in args for each in (arg if isinstance(arg, tuple) else (arg,)))
    unknown: Any = next((each for each in found if isinstance(each, Tracer)), None)
    return function(*args, **kwargs) if unknown is None else unknown.call(function, args, kwargs)


def view_key(x: Tracer, part: Any, key: Any) -> Any:
    """Return the key of ``part = x[key]`` if that is a view, None if it is a copy.

    Arrays select copies, and so do whole numbers where NumPy returns a scalar.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if not isinstance(part, Tracer) or any(map(is_selection, keys)):
        return None
    is_number = not part.shape and x.library is NUMPY and Ellipsis not in keys
    return None if is_number else tuple(map(basic_key, keys))


def part_of(function: Any, args: Any, kwargs: Any) -> Any:
    """Return ``x[key]`` of arguments ``x`` and ``key``; record a view as one."""
    x, key = args[0], without_constants(args[1])
    part = getitem(x, key)
    found = view_key(x, part, key)
    return part if found is None else share(part, x, found)


def without_constants(key: Any) -> Any:
    """Return a key with arrays in place of constants."""
    return tuple(map(unwrapped, key)) if isinstance(key, tuple) else unwrapped(key)


def part_along(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    """Return the slice between two places along an axis."""
    (axis,) = normalized_axes(axis, x.ndim)
    return getitem(x, (*[slice(None)] * axis, slice(start, stop), ...))


def take(x: Any, indices: Any, *, axis: int | None = None) -> Any:
    """Return the slices of ``x`` at indices along an axis, of the flat array for None."""
    if axis is None:
        x, axis = reshape(x, -1), 0
    (axis,) = normalized_axes(axis, x.ndim)
    if isinstance(indices, Tracer) and library_of_value(x) is NUMPY:
        return getitem(x, (*[slice(None)] * axis, indices))
    indices = primal_value(without_lists(indices, x))
    library = _library_with(x, (indices,))
    given = positions_of(x, (indices,)), library.readable(indices)
    return gather(x, call_on_plain(library.xp.take, given, {"axis": axis}))


def without_lists(indices: Any, x: Any) -> Any:
    """Return lists of indices as an array beside ``x``: NumPy takes lists, others may not."""
    if not isinstance(indices, (list, tuple)) or library_of_value(x) is NUMPY:
        return indices
    where = x.device if isinstance(x, Tracer) else device(x)
    return library_of_value(x).xp.asarray(indices, device=where)


def take_along_axis(x: Any, indices: Any, *, axis: int = -1) -> Any:
    """Return one element of ``x`` for each index, from the same place along the other axes."""
    indices = primal_value(indices)
    library, positions = _library_with(x, (indices,)), positions_of(x, (indices,))
    if library.is_lazy:  # it has no such function
        along = partial(np.take_along_axis, axis=axis)
        shape = (*indices.shape,)
        return gather(x, library.apply_on_cpu(along, shape, positions.dtype, positions, indices))
    along = library.xp.take_along_axis
    return gather(x, call_on_plain(along, (positions, indices), {"axis": axis}))


def positions_of(x: Any, keys: Iterable[Any] = ()) -> Any:
    """Return, for each element of ``x``, how many come before it, as an array for some keys.

    A library selects these as it selects the elements: so one rule serves every way of indexing.
    """
    size, where = math.prod(x.shape), x.device if isinstance(x, Tracer) else device(x)
    xp = _library_with(x, keys).xp
    return xp.reshape(xp.arange(size, device=where), tuple(x.shape))


def _library_with(x: Any, keys: Iterable[Any]) -> Library:
    """Return the library in which keys select elements of ``x``: a lazy one if a key is lazy."""
    library = library_of_value(x)
    for key in keys:
        if is_array(key):
            library = library.mix_with(library_of(key)) or library
            if library_of(key).gathers_whole:
                raise TracerError(
                    f"arrays of {library.name} as indices would be computed: pass i.compute(), or "
                    "choose with where()"
                )
    return library


def gather(x: Any, positions: Any) -> Any:
    """Return the elements of an array at positions in it, as `positions_of` counts them.

    Nobody else may hold the positions.
    """
    library_of_value(positions)  # raises where a mask leaves open how many elements it selects
    if type(positions) is np.ndarray and not positions.flags.c_contiguous:
        positions = positions.copy(order="C")
    return apply_rule(_GATHER, x, positions)


def scatter_add(g: Any, shape: tuple[int, ...], positions: Any) -> Any:
    """Return zeros with elements added at positions: the adjoint of `gather`."""
    return apply_rule(_SCATTER_ADD, g, positions, shape=shape)


def of_positions(*_: Any, **__: Any) -> Any:
    """Return the cotangent of positions, which nobody needs."""
    raise AssertionError("positions are whole numbers")


def _take(xp: Any, x: Any, positions: Any) -> Any:
    if library_of(positions).gathers_whole:
        whole = partial(_take, np)
        return library_of(positions).apply_on_cpu(whole, positions.shape, x.dtype, x, positions)
    flat = xp.take(xp.reshape(x, (-1,)), xp.reshape(positions, (-1,)), axis=0)
    return xp.reshape(flat, positions.shape)


def _take_block(backend: Stepping, x: Any, positions: Any) -> LaunchBlock | None:
    """Return what takes elements."""
    gaps = gaps_of(x)
    if gaps is None or not _are_packed(positions):
        return None
    return backend.take_block(positions.size, x.dtype.itemsize, gaps)


def _are_packed(positions: Any) -> bool:
    """Whether positions have 64 bits, and no gaps."""
    return bool(positions.dtype == np.int64 and positions.flags.c_contiguous)


def _add_gathered(whole: Any, g: Any, x: Any, positions: Any) -> Any:
    """Add the cotangent of elements to one of their array."""
    if library_of_value(whole) is not NUMPY or element_type_of(whole.dtype).is_narrow:
        return added(whole, scatter_add(g, tuple(x.shape), positions))
    return added_at(whole, g, positions)


_GATHER = Rule(
    "indexing",
    _take,
    (lambda g, x, positions: scatter_add(g, tuple(x.shape), positions), of_positions),
    fresh=True,
    linear="each",
    positions=(1,),
    adds=_add_gathered,
    moves=True,
    block=_take_block,
)


def written_at(x: Any, value: Any, positions: Any, *, are_distinct: bool) -> Any:
    """Return an array with elements in place of those at positions; of equal ones the last stays.

    In the steps of a loop its memory is that of ``x``, if nothing reads this later; the recording
    knows what is needed to undo it.
    """
    found = apply_rule(_WRITTEN_AT, x, value, positions, are_distinct=are_distinct)
    strand = getattr(found, "strand", None)
    if strand is not None and are_distinct and isinstance(positions, Tracer):
        old = gather(x, positions)
        strand.writes[found.slot] = strand.slot_of(x), old.slot, strand.slot_of(positions)
    return found


def _with_elements(xp: Any, x: Any, value: Any, positions: Any, are_distinct: bool) -> Any:
    whole = xp.reshape(xp.asarray(x, copy=True), (-1,))
    flat, at = xp.reshape(value, (-1,)), xp.reshape(positions, (-1,))
    if not are_distinct:  # torch writes equal ones in any order
        stays = xp.reshape(_are_last(positions), (-1,))
        flat, at = flat[stays], at[stays]
    whole[at] = flat
    return xp.reshape(whole, tuple(x.shape))


def _are_last(positions: Any) -> Any:
    """Return for each position whether none of those that follow is equal."""
    library = library_of(positions)
    flat = np.asarray(positions).reshape(-1)
    _, last = np.unique(flat[::-1], return_index=True)
    stays = np.zeros(flat.shape, bool)
    stays[len(flat) - 1 - last] = True
    return library.xp.asarray(stays.reshape(tuple(positions.shape)), device=device(positions))


def _without_elements(g: Any, x: Any, value: Any, positions: Any, are_distinct: bool) -> Any:
    return cleared_at(g, positions)


def _elements_that_stay(g: Any, x: Any, value: Any, positions: Any, are_distinct: bool) -> Any:
    part = gather(g, positions)
    if are_distinct:
        return part
    return where(apply_opaque(_are_last, (positions,), {}), part, 0.0)


def _are_written_natively(x: Any, positions: Any) -> bool:
    """Whether a backend may change an array of such a layout at positions."""
    return bool(x.flags.c_contiguous and x.dtype.isnative and _are_packed(positions))


def _write_block(
    backend: Stepping, x: Any, value: Any, positions: Any, are_distinct: bool
) -> LaunchBlock | None:
    """Return what writes elements."""
    gaps = gaps_of(value)
    if gaps is None or not _are_written_natively(x, positions) or value.dtype != x.dtype:
        return None
    return backend.write_at_block("write", positions.size, x.nbytes, x.dtype.itemsize, gaps)


_WRITTEN_AT = Rule(
    "assignment",
    _with_elements,
    (_without_elements, _elements_that_stay, of_positions),
    fresh=True,
    linear="all",
    positions=(2,),
    block=_write_block,
)


def added_at(x: Any, value: Any, positions: Any, *, subtracts: bool = False) -> Any:
    """Return an array of NumPy with elements added at positions, in their order.

    In the steps of a loop its memory is that of ``x``, if nothing reads this later.
    """
    return apply_rule(_ADDED_AT, x, value, positions, subtracts=subtracts)


def _sum_at(xp: Any, x: Any, value: Any, positions: Any, subtracts: bool) -> Any:
    whole = xp.asarray(x, copy=True, order="C")
    (np.subtract if subtracts else np.add).at(whole.reshape(-1), positions, value)
    return whole


def _of_added(g: Any, x: Any, value: Any, positions: Any, subtracts: bool) -> Any:
    part = gather(g, positions)
    return -part if subtracts else part


def _add_block(
    backend: Stepping, x: Any, value: Any, positions: Any, subtracts: bool
) -> LaunchBlock | None:
    """Return what adds elements to others."""
    is_float = element_type_of(x.dtype) in (F32, F64) and value.dtype == x.dtype
    gaps = gaps_of(value)
    if gaps is None or subtracts or not (is_float and _are_written_natively(x, positions)):
        return None
    return backend.write_at_block("add", positions.size, x.nbytes, x.dtype.itemsize, gaps)


_ADDED_AT = Rule(
    "numpy.add.at",
    _sum_at,
    (lambda g, x, value, positions, subtracts: g, _of_added, of_positions),
    linear="all",
    positions=(2,),
    block=_add_block,
)


def cleared_at(x: Any, positions: Any) -> Any:
    """Return an array with zeros at positions, in its memory as `written_at` says."""
    return apply_rule(_CLEARED_AT, x, positions)


def _cleared(xp: Any, x: Any, positions: Any) -> Any:
    whole = xp.reshape(xp.asarray(x, copy=True), (-1,))
    whole[xp.reshape(positions, (-1,))] = 0
    return xp.reshape(whole, tuple(x.shape))


def _clear_block(backend: Stepping, x: Any, positions: Any) -> LaunchBlock | None:
    """Return what writes zeros."""
    if not _are_written_natively(x, positions):
        return None
    return backend.write_at_block("clear", positions.size, x.nbytes, x.dtype.itemsize)


_CLEARED_AT = Rule(
    "assignment of zero",
    _cleared,
    (lambda g, x, positions: cleared_at(g, positions), of_positions),
    fresh=True,
    linear="each",
    positions=(1,),
    block=_clear_block,
)


def _add_positions(xp: Any, g: Any, positions: Any, shape: tuple[int, ...]) -> Any:
    """Add in the order of the elements, in 64 bits for each part where the library can.

    ``add.at`` is 40 times as slow where it has to cast.
    """
    library, type = library_of(g), element_type_of(g.dtype)
    if library.gathers_whole:
        return library.apply_on_cpu(
            partial(_add_positions, np, shape=shape), shape, g.dtype, g, positions
        )
    if type.is_narrow:
        wide = xp.astype(g, library.dtype_of(type.arithmetic))
        return xp.astype(_add_positions(xp, wide, positions, shape), g.dtype)
    size, flat, at = math.prod(shape), xp.reshape(g, (-1,)), xp.reshape(positions, (-1,))
    if library.name == "torch":
        zeros = xp.zeros(size, dtype=g.dtype, device=device(g))
        return xp.reshape(zeros.index_put_((at,), flat, accumulate=True), shape)
    if library.name == "cupy":
        return xp.reshape(_sum_at_places(xp, size, flat, at), shape)
    added = library.apply_on_cpu(partial(_sum_at_places, np, size), (size,), g.dtype, flat, at)
    return xp.reshape(added, shape)


def _sum_at_places(xp: Any, size: int, weights: Any, at: Any) -> Any:
    sums = xp.zeros(size, dtype=complex if weights.dtype.kind == "c" else float)
    xp.add.at(sums, at, weights.astype(sums.dtype, copy=False))
    return sums.astype(weights.dtype, copy=False)


def _add_at_block(
    backend: Stepping, g: Any, positions: Any, shape: tuple[int, ...]
) -> LaunchBlock | None:
    """Return what adds elements to zeros."""
    gaps = gaps_of(g)
    is_float = element_type_of(g.dtype) in (F32, F64)
    if gaps is None or not is_float or not _are_packed(positions):
        return None
    return backend.add_at_block(positions.size, math.prod(shape), g.dtype.itemsize, gaps)


_SCATTER_ADD = Rule(
    "the adjoint of indexing",
    _add_positions,
    (lambda g, x, positions, shape: gather(g, positions), of_positions),
    fresh=True,
    linear="each",
    positions=(1,),
    block=_add_at_block,
)


def _add_at(whole: Any, g: Any, key: _Key) -> bool:
    if isinstance(whole, Tracer):
        whole[key] = whole[key] + g  # type: ignore[index]  # the array object is imported later
        return True
    if isinstance(g, Tracer) or not is_writeable(whole):
        return False
    axes = basic_axes(key)
    if type(whole) is np.ndarray:
        if library_of(g).is_lazy:
            return False
        whole[axes] += g.reshape(whole[axes].shape)
        return True
    if library_of(whole).is_lazy:  # parts are no views
        part = whole[axes]
        whole[axes] = part + library_of(g).xp.reshape(g, part.shape)
        return True
    part = whole[axes]
    part += library_of(g).xp.reshape(g, part.shape)
    if not part.ndim:  # of NumPy a scalar, which is no view
        whole[axes] = part
    return True


def basic_axes(key: _Key) -> _Key:
    """Return a basic key without new axes, to which the standard does not assign."""
    axes = tuple([k for k in key if k is not None])
    return axes if Ellipsis in axes else (*axes, Ellipsis)


def _view(xp: Any, x: Any, key: _Key) -> Any:
    return x[key]


def _part(own: tuple[int, ...], key: _Key) -> SubBox | None:
    """Return the box that slices without steps select; other keys select none."""
    given = [k for k in key if k is not Ellipsis]
    if not all(isinstance(k, slice) and k.step in (None, 1) for k in given):
        return None
    at = key.index(Ellipsis) if Ellipsis in key else len(key)
    slices = [*key[:at], *[slice(None)] * (len(own) - len(given)), *key[at + 1 :]]
    return SubBox(own, tuple([k.indices(n)[0] for k, n in zip(slices, own, strict=True)]))


_GETITEM = Rule(
    "indexing",
    _view,
    (lambda g, x, key: _place(g, tuple(x.shape), key),),
    fresh=True,
    linear="each",
    add_into=_add_at,
    shape=shape_of_view(_view),
    is_view=True,
    is_part=True,
    part=_part,
    moves=True,
)


def _place(g: Any, shape: tuple[int, ...], key: _Key) -> Any:
    """Return zeros of a shape with ``g`` at ``key``: the adjoint of basic indexing."""
    return apply_rule(_PLACE, g, shape=shape, key=key)


def _place_elements(xp: Any, g: Any, shape: tuple[int, ...], key: _Key) -> Any:
    axes = basic_axes(key)
    if type(g) is np.ndarray:
        whole = np.zeros(shape, g.dtype)
        whole[axes] = g.reshape(whole[axes].shape)
        return whole
    if library_of(g).gathers_whole:
        box = _box(shape, key)
        if box is not None:
            return _padded(xp, g, shape, box)
        return library_of(g).apply_on_cpu(
            partial(_place_elements, np, shape=shape, key=key), shape, g.dtype, g
        )
    whole = xp.zeros(shape, dtype=g.dtype, device=device(g))
    if not is_writeable(whole):
        return _place_by_gather(xp, g, shape, key)
    whole[axes] = xp.reshape(g, whole[axes].shape)
    return whole


def _place_by_gather(xp: Any, g: Any, shape: tuple[int, ...], key: _Key) -> Any:
    """Return what `_place_elements` does, where arrays cannot be written to: each element is looked
    up.

    Elements outside of the key look up a zero behind the last of ``g``.
    """
    size = math.prod(g.shape)
    sources = np.full(shape, size)
    sources[key] = np.arange(size).reshape(g.shape)
    zero = xp.zeros(1, dtype=g.dtype, device=device(g))
    found = xp.take(
        xp.concat([xp.reshape(g, (-1,)), zero]),
        xp.asarray(sources.reshape(-1), device=device(g)),
        axis=0,
    )
    return xp.reshape(found, shape)


def _box(shape: tuple[int, ...], key: _Key) -> list[range] | None:
    """Return what a key selects of each axis; None if there are gaps, or the order is reversed."""
    axes = [k for k in key if k is not None and k is not Ellipsis]
    at = [k for k in key if k is not None].index(Ellipsis) if Ellipsis in key else len(axes)
    axes[at:at] = [slice(None)] * (len(shape) - len(axes))
    pairs = list(zip(axes, shape, strict=True))
    found = [range(n)[k] if isinstance(k, slice) else range(n)[k:][:1] for k, n in pairs]
    return found if all(own.step == 1 for own in found) else None


def _padded(xp: Any, g: Any, shape: tuple[int, ...], box: Sequence[range]) -> Any:
    """Return zeros with ``g`` in a box of them, block by block."""
    found = xp.reshape(g, tuple(map(len, box)))
    for axis, (own, extent) in enumerate(zip(box, shape, strict=True)):
        parts = [found]
        for at, length in ((0, own.start), (2, extent - own.start - len(own))):
            if length > 0:
                edge = (*found.shape[:axis], length, *found.shape[axis + 1 :])
                parts.insert(at, xp.zeros(edge, dtype=g.dtype))
        found = side_by_side(xp, *parts, axis=axis)
    return found


def side_by_side(xp: Any, *arrays: Any, axis: int) -> Any:
    """Return arrays joined along an axis; Cubed joins wrongly what is not cut alike."""
    if hasattr(arrays[0], "chunks") and library_of(arrays[0]).gathers_whole:
        cut = max(arrays, key=lambda x: x.numblocks[axis]).chunksize[axis]
        arrays = tuple([x.rechunk({axis: max(min(cut, x.shape[axis]), 1)}) for x in arrays])
    return xp.concat(arrays, axis=axis)


_PLACE = Rule(
    "the adjoint of indexing",
    _place_elements,
    (lambda g, x, shape, key: getitem(g, key),),
    linear="each",
    shape=lambda xp, own, shape, key: shape,
    moves=True,
)


def is_selection(key: Any) -> bool:
    """Whether a key selects by an array, or by what a library takes for one."""
    if type(key) in _BASIC:
        return False
    if isinstance(key, Tracer):  # in the body of a loop
        return not key.kind.type.is_inexact
    if isinstance(key, (bool, np.bool_, list, tuple)):
        return True
    return is_array(key) and (key.ndim > 0 or "bool" in str(key.dtype))


_BASIC = frozenset((int, slice, type(None), type(...)))


def basic_key(key: Any) -> Any:
    """Return a key that selects by no array, with whole numbers of Python; else TracerError."""
    if key is None or key is Ellipsis or isinstance(key, slice):
        return key
    if not isinstance(key, bool):
        with contextlib.suppress(TypeError):
            return operator.index(key)
    is_traced = isinstance(key, Tracer)
    given = "another one" if is_traced else f"a {type(key).__name__}"
    raise TracerError(
        f"an array that is being differentiated cannot be indexed by {given}: "
        "use whole numbers, slices, ..., None, and arrays of whole numbers or booleans"
    )
