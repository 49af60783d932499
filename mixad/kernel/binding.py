"""A launch as a block of words: layouts fill it in once, addresses and scalars at every call."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from mixad.errors import KernelTypeError
from mixad.kernel.arguments import ArgumentLayout
from mixad.kernel.folding import partial_sum_shape
from mixad.kernel.spec import Indexed, Launch, Operand, Output, SubBoxLayout
from mixad.kernel.tiling import accumulator as sum_in_arrays
from mixad.kernel.tiling import (
    combine_of,
    is_left_whole,
    partial_shape,
    slab_tiles,
    tile_blocks,
    tile_count,
    tile_runs,
)
from mixad.scalar.ir import UpdateKind
from mixad.scalar.narrow import round_to_type
from mixad.scalar.types import ScalarType

__all__ = ["ArgumentBlock", "Packing", "Result", "bind", "pack_double", "packing_of"]

Packing: TypeAlias = Callable[[Any], int]

_PACKING = {
    "float32": struct.Struct("<fxxxx"),
    "float64": struct.Struct("<d"),
    "bool": struct.Struct("<?xxxxxxx"),
    **{f"int{bits}": struct.Struct("<q") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": struct.Struct("<Q") for bits in (8, 16, 32, 64)},
}
_UNPACK = struct.Struct("<q").unpack


@dataclass(frozen=True)
class Result:
    """One output of a launch; its memory has the axes in the order of the loops.

    The last axis of the memory may be made of several, some of which are summed last: `columns` has
    the extent of each, and whether it is. An accumulator's memory begins with neutral values, one
    copy for each slab, unless `update` is "write".
    """

    position: int  # of its address in the argument block
    held: ScalarType  # type of its memory: the output's if stored, else that of sums
    memory: tuple[int, ...]
    summed: tuple[int, ...] | None  # axes of the memory still to sum; None if stored
    shape: tuple[int, ...]  # in the order of the loops, summed axes of extent 1
    final: tuple[int, ...]  # the requested shape
    type: ScalarType  # of the output
    part: SubBoxLayout | None = None  # the slice written, if not all
    is_summed_by_columns: bool = False  # each run of rows leaves a row of sums
    columns: tuple[tuple[int, bool], ...] = ()
    update: UpdateKind | None = None  # of an accumulator

    @property
    def is_accumulated(self) -> bool:
        """Whether it is an accumulator: its axes are not those of the loops."""
        return self.update is not None

    @property
    def first(self) -> int:
        """The number of elements of its memory before the first that is written."""
        at = 0
        if self.part is not None:
            for extent, start in zip(self.part.whole, self.part.starts, strict=True):
                at = at * extent + start
        return at

    @property
    def is_finished(self) -> bool:
        """Whether the kernel writes the output itself, up to the order of the axes."""
        return self.summed is None and self.memory == self.final

    @property
    def is_left_whole(self) -> bool:
        """Whether the kernel writes the elements of the output, in its type and order."""
        if self.part is not None or self.is_summed_by_columns or self.columns:
            return False
        if self.is_accumulated:
            return False
        if self.summed is None:
            return self.memory == self.final
        nothing_left = all(self.memory[axis] == 1 for axis in self.summed)
        return nothing_left and self.held == self.type and not self.type.is_narrow


@dataclass(frozen=True)
class ArgumentBlock:
    """The words of a launch (`mixad.kernel.arguments.ArgumentLayout`) with gaps.

    The gaps are addresses and scalars.
    """

    words: array[int]
    tiles: int  # or slabs, for accumulators; 0 if the shape is empty
    axes: tuple[int, ...] | None  # permutation to the caller's order; None if equal
    arrays: tuple[tuple[int, int], ...]  # param, position of its address
    uniforms: tuple[tuple[int, int, Packing], ...]  # param, position of its bits, packing
    outputs: tuple[Result, ...]  # how each is allocated and finished
    is_finished: bool  # whether the kernel writes the outputs themselves

    def move_slices(self, launch: Launch) -> ArgumentBlock:
        """Return the block of a launch that writes other slices: no word differs."""
        pairs = zip(self.outputs, launch.parts, strict=True)
        outputs = tuple([o if part is None else replace(o, part=part) for o, part in pairs])
        return replace(self, outputs=outputs)


def bind(launch: Launch, accumulator: Callable[[ScalarType], ScalarType]) -> ArgumentBlock:
    """Fill an argument block with all that the layouts decide.

    ``accumulator`` returns the type of sums for that of an output.
    """
    spec, layout = launch.spec, ArgumentLayout(launch.spec)
    program = spec.passes[0]
    words = array("q", bytes(8 * layout.words))
    _fill_loops(words, layout, launch)
    arrays, uniforms = [], []
    for k, operand in enumerate(spec.operands):
        if operand is None:
            param = program.params[k]
            packing = packing_of(param.var.type, f"{program.name}: argument {param.name!r}")
            uniforms.append((k, layout.params[k], packing))
            continue
        arrays.append((k, layout.params[k]))
        if isinstance(operand, Indexed):
            _fill_indexed(words, layout, launch, k)
        else:
            _fill_strides(words, layout, launch, k, operand)
    for k, part in enumerate(launch.parts):
        for axis, stride in enumerate(part.strides[:-1] if part else ()):
            words[layout.part_stride(k, axis)] = stride
    if spec.accumulates:
        words[layout.tiles], words[layout.slab] = tile_count(launch), slab_tiles(launch)
    for k, output in enumerate(spec.outputs):
        for axis in range(output.accumulated or 0):
            words[layout.accumulator_extent(k, axis)] = launch.results[k][axis]
    order = launch.order
    axes = None if order == tuple(range(len(order))) else tuple(map(order.index, sorted(order)))
    outputs = tuple(_result(launch, k, at, accumulator) for k, at in enumerate(layout.outputs))
    return ArgumentBlock(
        words=words,
        tiles=-(-tile_count(launch) // slab_tiles(launch))
        if spec.accumulates
        else tile_count(launch),
        axes=axes,
        arrays=tuple(arrays),
        uniforms=tuple(uniforms),
        outputs=outputs,
        is_finished=axes is None and all(o.is_finished for o in outputs),
    )


def _result(
    launch: Launch, index: int, position: int, accumulator: Callable[[ScalarType], ScalarType]
) -> Result:
    """Return how one output is allocated and finished."""
    output = launch.spec.outputs[index]
    if output.is_stored:
        final, part = launch.results[index], launch.parts[index]
        stored = tuple(launch.shape[a] for a in launch.order) if part is None else part.whole
        stored += (len(output.sources),) if output.beside else ()
        return Result(position, output.type, stored, None, stored, final, output.type, part)
    if output.accumulated is not None and output.update == "write":
        final = launch.results[index]
        return Result(position, output.type, final, None, final, final, output.type, update="write")
    if output.accumulated is not None:
        final, slabs = launch.results[index], -(-tile_count(launch) // slab_tiles(launch))
        copies = (max(1, slabs), *final)
        held = sum_in_arrays(output.type)
        return Result(position, held, copies, (0,), final, final, output.type, update=output.update)
    padded = (1,) * (len(launch.shape) - len(launch.results[index])) + launch.results[index]
    shape = tuple(padded[a] for a in launch.order)
    memory, summed, columns = _partial_sum_shape(launch, index, output)
    if 0 in launch.shape:  # nothing runs: the sums are zeros of their own shape
        memory, summed, columns = shape, (), ()
    return Result(
        position=position,
        held=output.type if is_left_whole(output) else accumulator(output.type),
        memory=memory,
        summed=tuple(axis for axis, is_sum in enumerate(summed) if is_sum),
        shape=shape,
        final=launch.results[index],
        type=output.type,
        is_summed_by_columns=combine_of(output.reduced) == "columns" and 0 not in launch.shape,
        columns=columns,
    )


def _partial_sum_shape(
    launch: Launch, index: int, output: Output
) -> tuple[tuple[int, ...], tuple[bool, ...], tuple[tuple[int, bool], ...]]:
    """Return the shape that tiles leave of a sum, its axes still to sum, and its columns."""
    if launch.fold is None:
        shape = partial_shape(launch.extents, launch.rows, output.reduced)
        return shape, output.reduced, ()
    fold = launch.fold
    columns = tuple(zip(fold.axes, fold.columns[index], strict=False))
    return *partial_sum_shape(fold, index, launch.rows), columns


def _fill_loops(words: array[int], layout: ArgumentLayout, launch: Launch) -> None:
    loops, fold = launch.loops, launch.fold
    words[layout.EXTENT] = loops[-1]
    words[layout.BLOCKS] = tile_blocks(launch)
    words[layout.ROWS] = launch.rows
    words[layout.RUNS] = tile_runs(launch)
    for axis, extent in enumerate(loops[:-1]):
        words[layout.OUTER_EXTENTS + axis] = extent
    if fold is not None:
        words[layout.length] = fold.length
        for axis, extent in enumerate(fold.axes):
            words[layout.folded_extents + axis] = extent


def _fill_strides(
    words: array[int], layout: ArgumentLayout, launch: Launch, k: int, operand: Operand
) -> None:
    fold = launch.fold
    strides = launch.strides[k] if fold is None else fold.strides[k]
    assert strides is not None
    for axis, stride in enumerate(strides[:-1]):
        words[layout.outer_stride(k, axis)] = stride
    if operand.step == "any":
        words[layout.inner_stride(k)] = strides[-1]
    for axis, stride in enumerate((fold and fold.copy_strides[k]) or ()):
        words[layout.inner_stride(k) + axis] = stride


def _fill_indexed(words: array[int], layout: ArgumentLayout, launch: Launch, k: int) -> None:
    indexed = launch.indexed[k]
    assert indexed is not None
    for axis, (extent, stride) in enumerate(zip(*indexed, strict=True)):
        words[layout.indexed_extent(k, axis)] = extent
        words[layout.indexed_stride(k, axis)] = stride


def packing_of(type: ScalarType, what: str) -> Packing:
    """Return what makes of a number the 64-bit word that kernels read it from.

    KernelTypeError, which says what the number is, if the type does not hold it.
    """
    if type.is_narrow:  # as memory would hold it, in the type that it is computed in
        wide = packing_of(type.arithmetic, what)
        return lambda value: wide(round_to_type(value, type).item())
    pack = _PACKING[type.dtype.name].pack
    if type.dtype.name == "float64":
        return pack_double
    if not type.is_integer:
        return partial(_pack_float, pack)

    def pack_value(value: Any) -> int:
        try:
            word: int = _UNPACK(pack(int(value)))[0]
        except struct.error:
            raise KernelTypeError(
                f"{what} is {value}, which {type.dtype} does not hold",
                hint=f"pass {'np.uint64 of it, or ' if 0 < value < 1 << 64 else ''}a float",
            ) from None
        return word

    return pack_value


def _pack_float(pack: Callable[[Any], bytes], value: Any) -> int:
    try:
        word: int = _UNPACK(pack(value))[0]
    except OverflowError:  # beyond float32: infinite, as NumPy converts it
        word = _UNPACK(pack(math.copysign(math.inf, value)))[0]
    return word


pack_double: Packing = partial(_pack_float, _PACKING["float64"].pack)
"""Makes a word of a float64."""
