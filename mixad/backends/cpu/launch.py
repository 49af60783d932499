"""One launch of a kernel: what the layouts decide is filled in once, addresses at every call."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixad.emit.llvm import BLOCK, ArgumentBlock
from mixad.kernel.spec import Indexed, Launch, Operand
from mixad.scalar.types import ScalarType

__all__ = ["Binding", "bind"]

_PACKING = {"float32": "<fxxxx", "float64": "<d", "bool": "<?xxxxxxx"}
_NOTHING = np.zeros(1, np.float64)
"""What an empty array's address is, so that a kernel can read an element before it is refused."""


@dataclass(frozen=True)
class Binding:
    """A launch as an argument block with gaps for addresses and scalars.

    Attributes
    ----------
    words : array of int64
        The block (`mixad.emit.llvm.ArgumentBlock`).
    tiles : int
        How many tiles there are; 0 for an empty broadcast shape.
    shape : tuple of int
        Shape of the results in the order of the loops.
    axes : tuple of int or None
        The permutation from that order to the caller's; None if they agree.
    arrays : tuple
        Index of a param and position of its address.
    uniforms : tuple
        Index of a param, position of its bits, its type.
    outputs : tuple
        Position of an output's address, its dtype.
    """

    words: array[int]
    tiles: int
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None
    arrays: tuple[tuple[int, int], ...]
    uniforms: tuple[tuple[int, int, ScalarType], ...]
    outputs: tuple[tuple[int, np.dtype[Any]], ...]

    def filled(
        self,
        views: Sequence[np.ndarray[Any, Any]],
        arguments: Sequence[Any],
        results: Sequence[np.ndarray[Any, Any]],
        status: array[int],
    ) -> array[int]:
        """Return the block of one call.

        Parameters
        ----------
        views : sequence of ndarray
            The arrays, in the order of ``arrays``.
        arguments : sequence
            All arguments of the call, for the uniforms among them.
        results : sequence of ndarray
            Memory for the outputs.
        status : array of int32
            Two words: a request to stop, and the array that was read outside its extents.
        """
        words = self.words[:]
        address = status.buffer_info()[0]
        words[ArgumentBlock.STOP] = address
        words[ArgumentBlock.OUTSIDE] = address + status.itemsize
        for view, (_, at) in zip(views, self.arrays, strict=True):
            words[at] = (view if view.size else _NOTHING).ctypes.data
        for k, at, type in self.uniforms:
            words[at] = _bits(arguments[k], type)
        for result, (at, _) in zip(results, self.outputs, strict=True):
            words[at] = result.ctypes.data
        return words


def bind(launch: Launch) -> Binding:
    """Fill everything into an argument block that the layouts decide."""
    spec, block = launch.spec, ArgumentBlock(launch.spec)
    words = array("q", bytes(8 * block.words))
    per_row = max(1, -(-launch.extents[-1] // BLOCK))
    words[block.EXTENT] = launch.extents[-1]
    words[block.TILES_PER_ROW] = per_row
    for axis, extent in enumerate(launch.extents[:-1]):
        words[block.OUTER_EXTENTS + axis] = extent
    arrays, uniforms = [], []
    for k, operand in enumerate(spec.operands):
        if operand is None:
            uniforms.append((k, block.params[k], spec.passes[0].params[k].var.type))
            continue
        arrays.append((k, block.params[k]))
        if isinstance(operand, Indexed):
            _fill_indexed(words, block, launch, k)
        else:
            _fill_strides(words, block, launch, k, operand)
    rows = int(np.prod(launch.extents[:-1], dtype=np.int64))
    order = launch.order
    return Binding(
        words=words,
        tiles=0 if 0 in launch.shape else rows * per_row,
        shape=tuple(launch.shape[a] for a in order),
        axes=None if order == tuple(range(len(order))) else tuple(map(order.index, sorted(order))),
        arrays=tuple(arrays),
        uniforms=tuple(uniforms),
        outputs=tuple(zip(block.outputs, (o.type.dtype for o in spec.outputs), strict=True)),
    )


def _fill_strides(
    words: array[int], block: ArgumentBlock, launch: Launch, k: int, operand: Operand
) -> None:
    strides = launch.strides[k]
    assert strides is not None
    for axis, stride in enumerate(strides[:-1]):
        words[block.outer_stride(k, axis)] = stride
    if operand.step == "any":
        words[block.inner_stride(k)] = strides[-1]


def _fill_indexed(words: array[int], block: ArgumentBlock, launch: Launch, k: int) -> None:
    layout = launch.indexed[k]
    assert layout is not None
    for axis, (extent, stride) in enumerate(zip(*layout, strict=True)):
        words[block.indexed_extent(k, axis)] = extent
        words[block.indexed_stride(k, axis)] = stride


def _bits(value: Any, type: ScalarType) -> int:
    """Return a scalar as the 64-bit word that kernels read it from."""
    if type.is_integer:
        packed = struct.pack("<q" if type.kind == "int" else "<Q", int(value))
    else:
        packed = struct.pack(_PACKING[type.dtype.name], value)
    word: int = struct.unpack("<q", packed)[0]
    return word
