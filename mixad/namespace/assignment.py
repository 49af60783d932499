"""Assignment: ``x[key] = value``, ``x += value`` and ``np.add.at(x, key, value)``.

They let a traced array stand for a new array.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mixad.backends.arrays import NUMPY, Array, is_array, is_scalar, is_writeable, library_of
from mixad.errors import KernelShapeError, KernelTypeError, TracerError
from mixad.namespace.array_likes import first_traced
from mixad.namespace.creation import asarray
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import where
from mixad.namespace.indexing import (
    added_at,
    basic_axes,
    basic_key,
    gather,
    getitem,
    is_selection,
    part_of,
    positions_of,
    select_elements,
    written_at,
)
from mixad.namespace.joining import broadcast_to
from mixad.namespace.manipulation import reshape
from mixad.namespace.unknown_positions import positions_selected
from mixad.tape.buffer import buffer_of
from mixad.tape.constant import constant, unwrapped
from mixad.tape.memory import (
    array_as,
    is_part_written_back,
    is_written_back,
    noted_array,
    restore,
    share,
)
from mixad.tape.node import Rule, apply_rule, common_library, mixture
from mixad.tape.operations import call_of
from mixad.tape.states import SMALL
from mixad.tape.tracer import NotRecordedError, Tracer, check_alive, check_written, primal_value
from mixad.tape.writing import Write, rebind, write

__all__ = ["CHANGES_AT", "broadcasts", "change_at", "replace", "setitem", "strand_of_write"]

if TYPE_CHECKING:
    from mixad.tape.strand import Strand

_Key = tuple[Any, ...]


def setitem(x: Tracer, key: Any, value: Any) -> None:
    """Write ``x[key] = value``; ``x`` stands for the new array from now on.

    Writing costs what the slice costs, and so does the derivative; strands copy where `_is_copied`.
    The value takes the dtype of ``x``; of equal positions one is written last, as in the library.
    """
    check_written(x)
    if any(
        isinstance(primal_value(k), Tracer) for k in (key if isinstance(key, tuple) else (key,))
    ):
        _write_at_unknown(x, key, value)
        return
    is_back = _is_back(x, key, value)
    if is_back and x.strand is not None:
        x.strand.restore(x)
    elif is_back:
        restore(x)
    strand = strand_of_write(x, key, value)
    if strand is not None:
        _record(strand, x, key, value)
    else:
        own = _own_key(key)
        part, fitting = _part_and_value(x, own, value)
        write(_SETITEM, x, fitting, key=own, winners=_winners(x, own, part))
    if is_back:
        _view_again(value, x, key)


def _write_at_unknown(x: Tracer, key: Any, value: Any) -> None:
    """Write at unknown indices, in the body of a loop."""
    keys = key if isinstance(key, tuple) else (key,)
    unknown: Any = next(primal_value(k) for k in keys if isinstance(primal_value(k), Tracer))
    strand = x.strand or unknown.strand
    if not strand.may_write(x, constant(value) if is_array(value) else value):
        raise NotRecordedError("a write to what is not of the body")
    mask = primal_value(key)
    if isinstance(mask, Tracer) and mask.dtype == bool and mask.shape == x.shape:
        if not np.shape(value):
            _stand_for(strand, x, where(mask, _as_array(value, x), x))
            return
        raise NotRecordedError("a mask that selects what is written")
    is_numpys = x.library is NUMPY
    found = positions_selected(tuple(x.shape), keys) if is_numpys else None
    positions = select_elements(positions_of(x), key) if found is None else found
    value = _value_at(x, tuple(positions.shape), value)
    are_distinct = found is not None and not any(
        getattr(primal_value(k), "shape", ()) for k in keys
    )
    _stand_for(strand, x, written_at(x, value, positions, are_distinct=are_distinct))


def _value_at(x: Tracer, shape: tuple[int, ...], value: Any) -> Any:
    """Return a value in the dtype of an array, and in the shape of positions in it."""
    if isinstance(value, Tracer):
        return _fitting(x, None, shape, value)
    found = x.library.xp.empty(shape, dtype=x.dtype, device=x.device)
    found[...] = value
    return found


_MAX_COPIED = 1 << 18
"""Elements of an array that is copied at each write if much of it is written."""

_MAX_TIMES = 512
"""How many times larger than the written slice it may be."""


_MAX_IN_STEP = 1 << 12
"""Elements that steps of a loop write one by one: of more, all others are copied quickly."""


def _is_copied(x: Tracer, key: Any) -> bool:
    """Whether a write copies the array, and so is an operation."""
    size = math.prod(x.shape)
    if size <= SMALL or size > _MAX_COPIED:
        return size <= SMALL
    return bool(_part_of(x, key).size * _MAX_TIMES >= size)


def _part_of(x: Tracer, key: Any) -> Any:
    """Return an array of the shape of ``x[key]``; an empty one if NumPy has no such key."""
    try:
        return np.broadcast_to(np.empty(()), x.shape)[key]
    except (IndexError, TypeError, ValueError):
        return np.empty(0)


def _selects(key: Any) -> bool:
    """Whether there are arrays in a key."""
    return any(map(is_selection, key if isinstance(key, tuple) else (key,)))


def strand_of_write(x: Tracer, key: Any, value: Any) -> Strand | None:
    """Return the strand that records a write of a value; None if nodes do it."""
    strand: Strand | None = x.strand if x.strand is not None else getattr(value, "strand", None)
    if strand is None or not (_is_copied(x, key) and strand.may_write(x, value)):
        return None
    if _selects(key) and not _part_of(x, key).size:
        return None
    is_array_like = isinstance(value, Tracer) or is_scalar(value) or is_array(value)
    return strand if is_array_like and (x.strand is not None or x.dtype == value.dtype) else None


def _is_back(x: Tracer, key: Any, value: Any) -> bool:
    """Whether a value is a slice that was changed in place: ``x[key] += 1``."""
    if x.state is not None or not isinstance(value, Tracer):
        return False
    own = _own_key(key)
    if any(map(is_selection, own)):
        return False
    if value.state is not None and x.strand is not None:
        part = call_of(type(value), type(value), part_of, operator.getitem, (x, key), {})
        return part is not None and is_part_written_back(x, part[0], value)
    return is_written_back(x, own, value)


def _view_again(value: Tracer, x: Tracer, key: Any) -> None:
    """Let a slice of an array that was written back be a view of it, as before."""
    strand = x.strand
    if strand is not None and strand.may_write(value, x):
        strand.rebind(value, strand.call(part_of, operator.getitem, (x, key), {}))
    if value.state is None:
        share(value, x, _own_key(key))


def _record(strand: Strand, x: Tracer, key: Any, value: Any) -> None:
    """Write by an operation that copies the array; ``x`` stands for its result.

    In the body of a loop steps write into the array itself.
    """
    part = _part_of(x, key) if strand.level.unknown is not None and x.library is NUMPY else None
    if x.shape and part is not None and 0 < part.size <= _MAX_IN_STEP:
        positions = np.arange(math.prod(x.shape)).reshape(x.shape)[(*_own_key(key), ...)].copy()
        value = _value_at(x, tuple(positions.shape), value)
        result = written_at(x, value, positions, are_distinct=not _selects(key))
    elif x.shape and _selects(key):
        result = _set_selected(x, _own_key(key), value)
    else:
        given = unwrapped(x), key, _as_array(value, x)
        result = strand.call(_copy_with_value, operator.setitem, given, {})
    _stand_for(strand, x, result)


def _stand_for(strand: Strand, x: Tracer, result: Tracer) -> None:
    """Let an array stand for the result of a write."""
    if strand.is_recording(result):
        strand.rebind(x, result)
    else:
        rebind(x, result)


def _as_array(value: Any, x: Tracer) -> Any:
    """Return a number as an array like a traced one; other values unchanged."""
    if not is_scalar(value):
        return value
    return x.library.asarray(value, x.kind.type, x.device)


def _copy_with_value(function: Any, args: Any, kwargs: Any) -> Any:
    """Return a copy of an array with a value at a key."""
    x, key, value = args
    key = _own_key(key)
    tracer = constant(x) if is_array(x) else x
    part, value = _part_and_value(tracer, key, value)
    given = _as_array(value, tracer)
    result = apply_rule(_ASSIGNED, x, given, key=key, winners=_winners(tracer, key, part))
    return noted_array(result) if x.shape else array_as(result, x)


def _set_selected(tracer: Tracer, key: _Key, value: Any) -> Any:
    """Return an array with a value where a key of arrays selects elements.

    Each element looks up its new value, if any: of equal positions the one that the library writes
    last.
    """
    xp, x = tracer.library.xp, unwrapped(tracer)
    numbers = positions_of(tracer) * 0
    shape = tuple(numbers[key].shape)
    count = math.prod(shape)
    numbers[key] = xp.reshape(xp.arange(1, count + 1, device=tracer.device), shape)
    if isinstance(value, Tracer):
        given = _fitting(tracer, key, shape, value)
    else:
        given = xp.empty(shape, dtype=tracer.dtype, device=tracer.device)
        given[...] = value
    return where(numbers > 0, gather(given, xp.where(numbers > 0, numbers - 1, 0)), x)


def change_at(ufunc: Any, x: Tracer, key: Any, value: Any) -> None:
    """Write ``ufunc.at(x, key, value)`` for a ufunc of `CHANGES_AT`.

    Of equal positions all count.  Parameters and errors are those of `setitem`.
    """
    check_written(x)
    key = _own_key(key)
    strand = strand_of_write(x, key, value)
    if strand is not None and x.shape:
        _stand_for(strand, x, _update_at(ufunc, x, key, value))
        return
    part, value = _part_and_value(x, key, value)
    if not isinstance(value, Tracer):  # NumPy 2.4 reads beyond the end of what is to be broadcast
        xp = x.library.xp
        value = xp.broadcast_to(xp.asarray(value), part.shape)
    write(CHANGES_AT[ufunc], x, value, key=key)


def replace(x: Tracer, symbol: str, result: Tracer) -> Tracer:
    """Let ``x`` stand for the result of ``x symbol= y``, or of ``x.method_()``; return it.

    It must have the same shape, and a dtype that the library converts to that of ``x``.
    """
    check_written(x)
    if result.shape != x.shape:
        written, hint = _write_of(symbol)
        raise KernelShapeError(
            f"{written} with x of shape {x.shape} would have shape {result.shape}", hint=hint
        )
    if result.dtype != x.dtype:
        if not _is_cast_in_place(result, x):
            written, hint = _write_of(symbol)
            raise KernelTypeError(
                f"{written} with x of dtype {x.dtype} would have dtype {result.dtype}", hint=hint
            )
        result = astype(result, x.dtype)
    rebind(x, array_as(result, x))
    return x


def _write_of(symbol: str) -> tuple[str, str]:
    """Return the notation of an in-place write, and what to write instead."""
    if symbol.endswith("_"):
        return f"x.{symbol}()", f"write x = x.{symbol[:-1]}()"
    return f"x {symbol}= y", f"write x = x {symbol} y"


def _is_cast_in_place(result: Tracer, x: Tracer) -> bool:
    """Whether a library converts the result of ``x += y``: not to integers, nor complex to real."""
    name = x.library.name
    is_wide = x.kind.type.is_complex or not result.kind.type.is_complex
    return name in ("numpy", "cupy", "dask", "torch") and x.kind.type.is_inexact and is_wide


def _own_key(key: Any) -> _Key:
    """Return a key as a tuple that nobody else can change."""
    keys = key if isinstance(key, tuple) else (key,)
    return tuple(
        [
            _own(primal_value(k)) if is_selection(primal_value(k)) else basic_key(primal_value(k))
            for k in keys
        ]
    )


def _own(key: Any) -> Any:
    if isinstance(key, list):
        return np.asarray(key) if key else np.asarray(key, dtype=np.intp)
    return library_of(key).xp.asarray(key, copy=True) if is_array(key) else key


def _part_and_value(x: Tracer, key: _Key, value: Any) -> tuple[Array, Any]:
    """Return the elements to write to, and the value in their dtype and shape."""
    check_alive(x)
    part = _array_of(x)[key]
    if not isinstance(value, Tracer) and first_traced(value) is not None:
        value = asarray(value)
    if not isinstance(value, Tracer):
        if is_array(value) and library_of(value).is_lazy and not x.library.is_lazy:
            raise mixture("assignment", x.library, library_of(value))
        return part, x.library.with_plain_blocks(value)
    return part, _fitting(x, key, part.shape, value)


def _array_of(x: Tracer) -> Array:
    """Return the array of a tracer, without retaining it."""
    array = buffer_of(x.cell)
    if array is None:
        array = x.cell.array
    if x.weak or not (is_writeable(array) or isinstance(array, np.ndarray)):
        kind = "numbers" if x.weak else f"arrays of {x.library.name}"
        raise TracerError(
            f"{kind} cannot be written to (x[key] = value): make the new array from its "
            "parts, with where(), concat() or stack()"
        )
    return array


def _fitting(x: Tracer, key: _Key | None, shape: Sequence[int], value: Tracer) -> Any:
    """Return a value in the dtype of ``x`` and the shape of the slice to write.

    Without a key both are of the body of a loop.
    """
    xp = common_library("assignment", (x, value)).xp
    if value.kind.type.is_complex and not x.kind.type.is_complex:
        raise KernelTypeError(
            f"x[key] = y with x of dtype {x.dtype} and y of dtype {value.dtype} would lose the "
            "imaginary part",
            hint="take a part first: y.real, y.imag, abs(y)",
        )
    extra = max(value.ndim - len(shape), 0)
    if value.dtype != x.dtype or extra or not broadcasts(value.shape, shape):
        own = shape if key is None else x.shape
        scratch = xp.empty(tuple(own), dtype=x.dtype, device=x.device)
        given = primal_value(value) if key is not None else xp.zeros(value.shape, dtype=value.dtype)
        _write_key(scratch, given, key or (...,), None)  # raises what the library raises
        value = astype(value, x.dtype)  # plain for integers
    return broadcast_to(reshape(value, value.shape[extra:]) if extra else value, tuple(shape))


def broadcasts(given: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether an array of one shape is broadcast to another."""
    pairs = zip(reversed(given), reversed(shape), strict=False)
    return len(given) <= len(shape) and all(own in (1, length) for own, length in pairs)


def _winners(x: Tracer, key: _Key, part: Array) -> Array | None:
    """Return which elements of a value stay where positions are repeated; None if none are.

    The library writes the elements' numbers and reads them again. Elements outside of the key are
    not looked at.
    """
    if not any(is_array(k) and "int" in str(k.dtype) and k.ndim for k in key):
        return None
    xp = x.library.xp
    size = math.prod(part.shape)
    numbers = xp.reshape(xp.arange(size, device=x.device), tuple(part.shape))
    whole = xp.empty(x.shape, dtype=numbers.dtype, device=x.device)
    whole[key] = numbers
    stays = whole[key] == numbers
    return stays if x.library.is_lazy or not bool(xp.all(stays)) else None


def _write_key(array: Array, value: Any, key: _Key, winners: Array | None) -> None:
    if not any(k is None for k in key) or library_of(array).name in _NEW_AXES:
        array[key] = value
        return
    axes = basic_axes(key)
    if is_array(value):
        xp = library_of(array).xp
        value = xp.reshape(xp.broadcast_to(value, array[key].shape), array[axes].shape)
    array[axes] = value


_NEW_AXES = ("numpy", "torch", "cupy")
"""Libraries that assign to keys with new axes; the standard does not."""


def _part(g: Any, key: _Key, winners: Array | None = None) -> Any:
    """Return the cotangent of the value, which is that of its elements that stay."""
    if not isinstance(g, Tracer):
        return _of_winners(library_of(g).xp.asarray(g[key], copy=True), winners)
    return _of_winners(getitem(g, key), winners)


def _of_winners(part: Any, winners: Array | None) -> Any:
    return part if winners is None else where(winners, part, 0.0)


def _erase(g: Any, key: _Key, winners: Array | None) -> None:
    if isinstance(g, Tracer):
        write(_SETITEM, g, 0.0, key=key, winners=winners)
    else:
        _write_key(g, 0.0, key, winners)


_SETITEM = Write("assignment", _write_key, _part, _erase)


def _with_value(xp: Any, x: Any, value: Any, key: _Key, winners: Array | None) -> Any:
    whole = xp.asarray(x, copy=True)
    _write_key(whole, value, key, winners)
    return whole


def _without_part(g: Any, x: Any, value: Any, key: _Key, winners: Array | None) -> Any:
    return apply_rule(_CLEARED, g, key=key, winners=winners)


_ASSIGNED = Rule(
    "assignment",
    _with_value,
    (_without_part, lambda g, x, value, key, winners: _part(g, key, winners)),
    fresh=True,
    linear="all",
)

_CLEARED = Rule(
    "assignment of zero",
    lambda xp, x, key, winners: _with_value(xp, x, 0.0, key, winners),
    (lambda g, x, key, winners: _without_part(g, x, None, key, winners),),
    fresh=True,
    linear="each",
)


def _add_at(array: Array, value: Any, key: _Key) -> None:
    np.add.at(array, key, value)


def _subtract_at(array: Array, value: Any, key: _Key) -> None:
    np.subtract.at(array, key, value)


def _negative_part(g: Any, key: _Key) -> Any:
    return -_part(g, key)


def _same_cotangent(g: Any, key: _Key) -> None:
    """Return the cotangent of the array that is added to: it is that of the sum."""


def _update_at(ufunc: Any, x: Tracer, key: _Key, value: Any) -> Any:
    """Return an array with the elements at a key changed by a value, in its order."""
    at = positions_of(x)[key]
    if isinstance(value, Tracer):
        value = _fitting(x, key, at.shape, value)
    else:
        value = np.broadcast_to(np.asarray(value), at.shape)
    return added_at(unwrapped(x), value, at, subtracts=ufunc is np.subtract)


CHANGES_AT: Mapping[Any, Write] = {
    np.add: Write("numpy.add.at", _add_at, _part, _same_cotangent),
    np.subtract: Write("numpy.subtract.at", _subtract_at, _negative_part, _same_cotangent),
}
"""The ufuncs with a derivative there."""
