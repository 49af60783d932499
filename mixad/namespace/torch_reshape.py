"""Torch's functions that move elements, beside the standard's, by torch's names.

torch moves the positions of elements, and one gather moves them: see `mixad.namespace.indexing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mixad.namespace.data_types import astype, of_one_type
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.indexing import gather, getitem, part_along, positions_of, scatter_add
from mixad.namespace.joining import broadcast_arrays, concat, meshgrid
from mixad.namespace.manipulation import moveaxis, normalized_axes, permute_dims, reshape, squeeze
from mixad.namespace.numpy_rearrange import (
    array_split,
    at_least,
    column_stack,
    diag,
    dstack,
    fliplr,
    flipud,
    hstack,
    ravel,
    rot90,
    swapaxes,
    vstack,
)
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.tape.memory import gives_views, share
from mixad.tape.node import library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["TORCH_MOVES"]

Axis = int | Sequence[int] | None


def _gather_elements(x: Any, axis: int, index: Any) -> Any:
    """Return, for each index, the element there along an axis, at the same place along others."""
    return gather(x, positions_of(x).gather(axis, primal_value(index)))


def _take_along_dim(x: Any, indices: Any, axis: int | None = None) -> Any:
    return gather(x, positions_of(x).take_along_dim(primal_value(indices), axis))


def _scatter_add(x: Any, axis: int, index: Any, src: Any) -> Any:
    part = getitem(src, tuple(slice(n) for n in index.shape))
    return _add_at(x, positions_of(x).gather(axis, primal_value(index)), part)


def _index_add(x: Any, axis: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    at = positions_of(x).index_select(axis, primal_value(index))
    return _add_at(x, at, elementwise("mul", source, alpha))


def _add_at(x: Any, positions: Any, values: Any) -> Any:
    return elementwise("add", x, scatter_add(values, tuple(x.shape), positions))


def _replace_elements(write: Callable[..., Any], x: Any, values: Any, *places: Any) -> Any:
    """Return a tensor with some elements replaced.

    torch writes the elements' positions, those of ``values`` numbered after those of ``x``: what it
    writes last stays, and every way of writing is one gather.
    """
    shape = tuple(values.shape) if hasattr(values, "shape") else ()
    if not hasattr(values, "shape"):
        values = library_of_value(x).xp.full((1,), values, dtype=x.dtype, device=x.device)
    x, values = of_one_type(write.__name__, (x, values))
    here = positions_of(x)
    there = positions_of(values) + here.numel()
    both = concat([reshape(x, -1), reshape(values, -1)])
    return gather(
        both, write(here, *map(primal_value, places), there if shape else there.reshape(()))
    )


def _scatter(x: Any, axis: int, index: Any, src: Any) -> Any:
    def scatter(here: Any, index: Any, there: Any) -> Any:
        if not there.ndim:
            there = there.expand(tuple(index.shape))
        return here.scatter(axis, index, there)

    return _replace_elements(scatter, x, src, index)


def _cat(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Return joined tensors; those of shape ``(0,)`` go with any other."""
    arrays = of_one_type("cat", tuple(arrays))
    return concat([x for x in arrays if tuple(x.shape) != (0,)] or arrays, axis=axis)


def _index_select(x: Any, axis: int, index: Any) -> Any:
    return gather(x, positions_of(x).index_select(axis, primal_value(index)))


def _index_copy(x: Any, axis: int, index: Any, source: Any) -> Any:
    def index_copy(here: Any, index: Any, there: Any) -> Any:
        return here.index_copy(axis, index, there)

    return _replace_elements(index_copy, x, source, index)


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    def masked_scatter(here: Any, mask: Any, there: Any) -> Any:
        return here.masked_scatter(mask, there)

    return _replace_elements(masked_scatter, x, source, mask)


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    value = value if not hasattr(value, "shape") else astype(value, x.dtype, copy=False)
    return where(primal_value(mask), value, x)


def _index_fill(x: Any, axis: int, index: Any, value: Any) -> Any:
    nowhere = library_of_value(x).xp.zeros(tuple(x.shape), dtype=bool, device=x.device)
    return _masked_fill(x, nowhere.index_fill(axis, index, True), value)


def _masked_select(x: Any, mask: Any) -> Any:
    return gather(x, positions_of(x).masked_select(primal_value(mask)))


def _take(x: Any, index: Any) -> Any:
    return gather(x, positions_of(x).take(primal_value(index)))


@gives_views
def _narrow(x: Any, axis: int, start: int, length: int) -> Any:
    (axis,) = normalized_axes(axis, x.ndim)
    size, first = x.shape[axis], int(start)
    if not -size <= first <= size:
        raise IndexError(f"narrow() got start {first} along an axis of length {size}")
    first += size if first < 0 else 0
    if not 0 <= length <= size - first:
        raise ValueError(
            f"narrow() got length {length}: from {first} on, {size - first} elements are there"
        )
    return part_along(x, axis, first, first + length)


@gives_views
def _select(x: Any, axis: int, index: int) -> Any:
    (axis,) = normalized_axes(axis, x.ndim)
    return getitem(x, (*[slice(None)] * axis, index, ...))


@gives_views
def _squeeze(x: Any, axis: Axis = None) -> Any:
    """Return ``x`` without those of some axes that have length 1."""
    axes = normalized_axes(axis, x.ndim) if x.ndim else ()
    return squeeze(x, tuple(a for a in axes if x.shape[a] == 1))


@gives_views
def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if not x.ndim:
        return reshape(x, (1,))
    (first,), (last,) = normalized_axes(start_dim, x.ndim), normalized_axes(end_dim, x.ndim)
    if first > last:
        raise ValueError(f"flatten() got start_dim {start_dim} behind end_dim {end_dim}")
    inside = math.prod(x.shape[first : last + 1])
    return reshape(x, (*x.shape[:first], inside, *x.shape[last + 1 :]))


@gives_views
def _unflatten(x: Any, axis: int, sizes: Sequence[int]) -> Any:
    (axis,) = normalized_axes(axis, x.ndim)
    count = -math.prod(sizes)
    lengths = [x.shape[axis] // count if n == -1 and count else n for n in sizes]
    return reshape(x, (*x.shape[:axis], *lengths, *x.shape[axis + 1 :]))


@gives_views
def _transpose_matrix(x: Any) -> Any:
    """Return a matrix transposed, a vector as it is."""
    return permute_dims(x)


@gives_views
def _chunk(x: Any, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    length = x.shape[normalized_axes(axis, x.ndim)[0]]
    return _split(x, max(-(-length // chunks), 1), axis)


@gives_views
def _split(x: Any, split_size: int | Sequence[int], axis: int = 0) -> tuple[Any, ...]:
    (axis,) = normalized_axes(axis, x.ndim)
    length = x.shape[axis]
    if isinstance(split_size, int):
        if split_size < (1 if length else 0):
            raise ValueError(f"split() of {length} elements into parts of {split_size}")
        starts = list(range(0, max(length, 1), max(split_size, 1)))
        ends = [min(start + split_size, length) for start in starts]
    else:
        ends = [sum(split_size[: at + 1]) for at in range(len(split_size))]
        starts = [0, *ends[:-1]]
        if sum(split_size) != length or min(split_size, default=0) < 0:
            raise ValueError(f"split() of {length} elements into parts of {list(split_size)}")
    return tuple(part_along(x, axis, s, e) for s, e in zip(starts, ends, strict=True))


@gives_views
def _tensor_split(x: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Any, ...]:
    return tuple(array_split(x, indices_or_sections, axis))


def _meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Any, ...]:
    """Return views of the tensors, in the shape of the grid."""
    given = _one_sequence(tensors)
    return tuple(map(share, meshgrid(*given, indexing=indexing or "ij"), given))


def _one_sequence(tensors: Sequence[Any]) -> Sequence[Any]:
    """Return several arguments, also if they come as one sequence."""
    is_sequence = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    return tensors[0] if is_sequence else tensors


def _broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    return broadcast_arrays(*_one_sequence(tensors))


def _at_least(ndim: int) -> Callable[..., Any]:
    def reshape_all(*tensors: Any) -> Any:
        return at_least(ndim)(*_one_sequence(tensors))

    return reshape_all


def _diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Return matrices in two axes with vectors as a diagonal; zeros beside it."""
    places = (positions_of(x) + 1).diag_embed(offset, dim1, dim2)
    return where(places != 0, gather(x, (places - 1).clamp(min=0)), 0.0)


TORCH_MOVES: Mapping[str, BoundFunction] = {
    "diag_embed": function_of(_diag_embed, "input offset dim1 dim2"),
    "gather": function_of(_gather_elements, "input dim index * sparse_grad"),
    "scatter": function_of(_scatter, "input dim index src * value=src reduce"),
    "scatter_add": function_of(_scatter_add, "input dim index src"),
    "index_add": function_of(_index_add, "input dim index source * alpha"),
    "index_copy": function_of(_index_copy, "input dim index source"),
    **dict.fromkeys(("cat", "concat", "concatenate"), function_of(_cat, "tensors=arrays dim")),
    "index_select": function_of(_index_select, "input dim index"),
    "index_fill": function_of(_index_fill, "input dim index value"),
    "masked_fill": function_of(_masked_fill, "input mask value"),
    "masked_scatter": function_of(_masked_scatter, "input mask source"),
    "masked_select": function_of(_masked_select, "input mask"),
    "take": function_of(_take, "input index"),
    "take_along_dim": function_of(_take_along_dim, "input indices dim"),
    "narrow": function_of(_narrow, "input dim start length"),
    "select": function_of(_select, "input dim index"),
    "squeeze": function_of(_squeeze, "input dim"),
    "flatten": function_of(_flatten, "input start_dim end_dim"),
    "unflatten": function_of(_unflatten, "input dim sizes"),
    "ravel": function_of(ravel, "input"),
    "t": function_of(_transpose_matrix, "input"),
    **dict.fromkeys(
        ("transpose", "swapdims"), function_of(swapaxes, "input dim0=axis1 dim1=axis2")
    ),
    "swapaxes": function_of(swapaxes, "input axis0=axis1 axis1=axis2"),
    "moveaxis": function_of(moveaxis, "input source destination"),
    "chunk": function_of(_chunk, "input chunks dim"),
    "split": function_of(_split, "tensor=x split_size_or_sections=split_size dim"),
    "tensor_split": function_of(
        _tensor_split,
        "input sections=indices_or_sections dim * indices=indices_or_sections "
        "tensor_indices_or_sections=indices_or_sections",
    ),
    "hstack": function_of(hstack, "tensors=arrays"),
    **dict.fromkeys(("vstack", "row_stack"), function_of(vstack, "tensors=arrays")),
    "dstack": function_of(dstack, "tensors=arrays"),
    "column_stack": function_of(column_stack, "tensors=arrays"),
    "fliplr": function_of(fliplr, "input"),
    "flipud": function_of(flipud, "input"),
    "rot90": function_of(rot90, "input k dims=axes"),
    "diag": function_of(diag, "input diagonal=k"),
    "meshgrid": BoundFunction(_meshgrid, ()),
    "broadcast_tensors": BoundFunction(_broadcast_tensors, ()),
    **{f"atleast_{n}d": BoundFunction(_at_least(n), ()) for n in (1, 2, 3)},
}
