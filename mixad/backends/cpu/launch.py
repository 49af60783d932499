"""Launches of CPU kernels: addresses filled in, results allocated, sums of tiles added up."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends.array_memory import address_of
from mixad.backends.arrays import library_met
from mixad.backends.cpu import buffers, workers
from mixad.backends.cpu.steps import narrow_block, sum_block
from mixad.backends.hookspecs import LaunchBlock, Written
from mixad.kernel.arguments import ArgumentBlock
from mixad.kernel.binding import Binding, Packing, Result, pack_double
from mixad.kernel.boxes import Box, without
from mixad.kernel.spec import Launch
from mixad.kernel.tiling import GANG, padded_columns
from mixad.scalar.narrow import to_memory
from mixad.scalar.types import F32, F64, ScalarType
from mixad.scalar.updates import OPS, neutral

if TYPE_CHECKING:
    from mixad.backends.cpu.backend import CpuKernel

__all__ = ["Run", "allocate", "finish", "prepare_block",
           "prepare_boxes", "prepare_launch", "prepare_repeated", "tree_sum"]  # fmt: skip

_Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]

_LINE = 64
"""Bytes of a cache line, on which streamed results begin."""

_SHORT = 1 << 16
"""Vector instructions that take some 10 microseconds: as long as it takes to tell other threads,
and to read what these have written from their caches."""

_PASS = 16
"""Vector instructions that take as long as reading and writing a gang of elements."""

_NOTHING = np.zeros(1, np.float64)
"""What an empty array's address is, so that a kernel can read an element before it is refused."""

_QUIET = array("i", (0, 0))
"""The flags of kernels that end by themselves and read nothing outside: nobody writes to them."""


def prepare_launch(kernel: CpuKernel, launch: Launch, binding: Binding) -> Run:
    """Return what runs a kernel on the arguments of a launch, over new results.

    Everything is done that does not depend on values.  Several threads may call it at once: each
    call fills a block of words of its own.
    """
    block = binding.words
    _set_flags(block, _QUIET)
    for k, at in binding.arrays:
        if _is_empty(launch, k):
            block[at] = address_of(_NOTHING)
    arrays = tuple([(k, at) for k, at in binding.arrays if not _is_empty(launch, k)])
    uniforms = binding.uniforms
    outputs = tuple([_output(kernel, binding, result) for result in binding.outputs])
    finishes = any(finish is not None for _, _, _, finish in outputs)
    is_direct = _is_direct(kernel, launch, binding)
    call, ndarray, has_numpy_types = kernel.call, np.ndarray, kernel.has_numpy_types

    def run(arguments: Sequence[Any]) -> tuple[Any, ...]:
        words, results = block[:], []
        others: list[Any] = []  # arrays of other libraries, and what keeps their elements
        for k, at in arrays:
            array = arguments[k]
            words[at] = address_of(array) if type(array) is ndarray else _address(array, others)
        for k, at, pack in uniforms:
            words[at] = pack(arguments[k])
        for at, make, first, _ in outputs:
            memory = make()
            words[at] = address_of(memory) + first
            results.append(memory)
        if is_direct:
            call(words.buffer_info()[0], 0, binding.tiles)
        else:
            _run_on_workers(kernel, launch, words, binding.tiles)
        if finishes:
            results = list(map(_finished, outputs, results))
        if others or not has_numpy_types:
            return _wrapped(kernel, results, others[0] if others else arguments[arrays[0][0]])
        return tuple(results)

    return run


def prepare_repeated(
    kernel: CpuKernel,
    launch: Launch,
    binding: Binding,
    reads: Sequence[int],
    writes: Sequence[int],
    fixed: Mapping[int, _Array],
) -> Callable[[list[Any]], None] | None:
    """Return what runs a kernel on registers, by one thread at a time.

    None if it must be asked each time where its results go.  ``reads`` and ``writes`` are the
    registers of arguments and results; the caller keeps what ``fixed`` has for some: their
    addresses are filled in once.
    """
    if not _is_plain(kernel, launch, binding):
        return None
    words, results = binding.words[:], list(zip(writes, binding.outputs, strict=True))
    made = [(register, result) for register, result in results if register not in fixed]
    outputs = [(register, _output(kernel, binding, result).make) for register, result in made]
    places = [(reads[k], at) for k, at in binding.arrays]
    places += [(register, result.position) for register, result in results]
    for register, at in places:
        if register in fixed:
            words[at] = address_of(fixed[register])
    arrays = tuple([(register, at) for register, at in places if register not in fixed])
    numbers, uniforms = _numbers(reads, binding)
    doubles = memoryview(words).cast("B").cast("d")
    address, call = words.buffer_info()[0], kernel.call

    def run(registers: list[Any]) -> None:
        for register, make in outputs:
            registers[register] = make()
        for register, at in arrays:
            words[at] = address_of(registers[register])
        for register, at in numbers:
            doubles[at] = registers[register]
        for register, at, pack in uniforms:
            words[at] = pack(registers[register])
        call(address, 0, binding.tiles)

    return run


def _is_plain(kernel: CpuKernel, launch: Launch, binding: Binding) -> bool:
    """Whether a kernel runs at once, and leaves its results as they are to be."""
    is_left_whole = binding.axes is None and all(r.is_left_whole for r in binding.outputs)
    is_plain = is_left_whole and kernel.has_numpy_types and not kernel.spec.streaming
    return is_plain and _is_direct(kernel, launch, binding)


def prepare_block(
    kernel: CpuKernel, launch: Launch, binding: Binding, firsts: Sequence[int] | None = None
) -> LaunchBlock | None:
    """Return a launch whose words are filled in once; None if it cannot be run so.

    ``firsts`` are of a box: how many bytes of each argument come before it.
    """
    is_plain = kernel.has_numpy_types and not kernel.spec.streaming
    is_whole = firsts is not None or binding.axes is None
    if not (is_plain and is_whole and binding.tiles and _is_direct(kernel, launch, binding)):
        return None
    finished = _written if firsts is None else _part
    written = list(map(finished, binding.outputs))
    writes = tuple([each for each in written if each is not None])
    if len(writes) < len(written):
        return None
    reads = tuple([(k, at, 0 if firsts is None else firsts[k]) for k, at in binding.arrays])
    words = binding.words[:]
    _set_flags(words, _QUIET)
    return LaunchBlock(kernel.address, words, binding.tiles, reads, binding.uniforms, writes)


def _part(result: Result) -> Written | None:
    """Return where a part of an array goes."""
    return Written(result.position, 0, (), result.first * result.held.dtype.itemsize)


def _written(result: Result) -> Written | None:
    """Return where a result goes and what finishes it; None if Python is to do that."""
    if result.part is not None or result.is_accumulated:
        return None
    shape, size = list(result.memory), result.held.dtype.itemsize
    if result.summed is None:
        is_final = result.memory == result.final
        return Written(result.position, math.prod(shape) * size) if is_final else None
    padded = padded_columns(shape[-1]) if result.is_summed_by_columns else shape[-1]
    finish, room = list[tuple[bool, LaunchBlock]](), math.prod((*shape[:-1], padded)) * size
    shape[-1] = padded
    if padded != result.memory[-1] and math.prod(shape[:-1]) > shape[-2]:
        return None  # there would be gaps between blocks of rows
    axes = [(axis, shape[axis]) for axis in result.summed]
    finish += _sums(shape, axes)
    if result.columns:
        shape = [*shape[:-1], *[extent for extent, _ in result.columns]]
        first = len(result.memory) - 1
        columns = enumerate(result.columns, first)
        finish += _sums(shape, [(axis, extent) for axis, (extent, is_sum) in columns if is_sum])
    if finish and result.held != F64:
        return None
    if result.held != result.type:
        if (result.held, result.type) != (F64, F32):
            return None
        finish.append((False, narrow_block(math.prod(result.final))))
    return Written(result.position, room, tuple(finish))


def _sums(shape: list[int], axes: Sequence[tuple[int, int]]) -> list[tuple[bool, LaunchBlock]]:
    """Return what adds up along axes in place; their extents in the shape become 1."""
    found = []
    for axis, extent in axes:
        if extent > 1:
            after, before = math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
            found.append((True, sum_block(extent, after, before)))
            shape[axis] = 1
    return found


def prepare_boxes(
    kernel: CpuKernel,
    boxes: Sequence[tuple[Launch, Binding, Sequence[int]]],
    shape: tuple[int, ...],
    reads: Sequence[int],
    writes: Sequence[int],
    fixed: Mapping[int, _Array],
) -> Callable[[list[Any]], None]:
    """Return what runs a kernel over boxes of arrays, by one thread at a time.

    Of each box there are launch, binding, and how many bytes of each argument come before it;
    results are parts of arrays of a shape.
    """
    binding = boxes[0][1]
    outputs = [
        (register, _allocator(shape, result.held.dtype, aligned=False))
        for register, result in zip(writes, binding.outputs, strict=True)
        if register not in fixed
    ]
    numbers, uniforms = _numbers(reads, binding)
    arrays = (*[reads[k] for k, _ in binding.arrays], *writes)
    launches = [_box(kernel, *box) for box in boxes]
    call, run_on_workers = kernel.call, partial(workers.run, kernel.address)

    def run(registers: list[Any]) -> None:
        for register, make in outputs:
            registers[register] = make()
        addresses = [address_of(registers[register]) for register in arrays]
        for words, doubles, block, tiles, is_short, places in launches:
            for (at, first), address in zip(places, addresses):  # noqa: B905 (takes time)
                words[at] = address + first
            for register, at in numbers:
                doubles[at] = registers[register]
            for register, at, pack in uniforms:
                words[at] = pack(registers[register])
            if is_short:
                call(block, 0, tiles)
            else:
                run_on_workers(block, tiles)

    return run


class _BoxLaunch(NamedTuple):
    """Words of a launch over a box, also as numbers; their address; how many tiles there are, and
    whether they are run at once; where the address of each array goes, and how many bytes of it
    come before."""

    words: array[int]
    doubles: memoryview[float]
    block: int
    tiles: int
    is_short: bool
    places: tuple[tuple[int, int], ...]


def _box(kernel: CpuKernel, launch: Launch, binding: Binding, firsts: Sequence[int]) -> _BoxLaunch:
    words = binding.words[:]
    places = [(at, firsts[k]) for k, at in binding.arrays]
    places += [(r.position, r.first * r.held.dtype.itemsize) for r in binding.outputs]
    doubles = memoryview(words).cast("B").cast("d")
    is_short = _is_direct(kernel, launch, binding)
    address = words.buffer_info()[0]
    return _BoxLaunch(words, doubles, address, binding.tiles, is_short, tuple(places))


def _numbers(
    reads: Sequence[int], binding: Binding
) -> tuple[list[tuple[int, int]], list[tuple[int, int, Packing]]]:
    """Return the registers of numbers and where they go: float64 as they are, others packed."""
    doubles = [(reads[k], at) for k, at, pack in binding.uniforms if pack is pack_double]
    others = [(reads[k], at, pack) for k, at, pack in binding.uniforms if pack is not pack_double]
    return doubles, others


def _is_direct(kernel: CpuKernel, launch: Launch, binding: Binding) -> bool:
    """Whether a kernel runs at once, in the thread that calls it, without anything to watch."""
    is_short = binding.tiles == 1 or _is_short(kernel, launch)
    is_safe = not (kernel.may_not_end or launch.may_be_outside)
    return binding.tiles > 0 and is_short and is_safe


def _is_short(kernel: CpuKernel, launch: Launch) -> bool:
    """Whether other threads would take longer to be told than the launch takes."""
    gangs = math.prod(launch.extents) // GANG
    return gangs * (kernel.cost + _PASS) <= _SHORT


def _run_on_workers(kernel: CpuKernel, launch: Launch, words: array[int], tiles: int) -> None:
    """Run all tiles on the workers of this process, and raise what a kernel noted."""
    if tiles == 0:
        return
    flags = array("i", (0, 0))
    stop = _set_flags(words, flags)
    workers.run(kernel.address, words.buffer_info()[0], tiles, stop if kernel.may_not_end else None)
    if flags[1]:
        raise IndexError(_outside(flags[1] - 1, launch))


def _set_flags(words: array[int], flags: array[int]) -> int:
    """Tell a kernel which two flags to look at and to write to; return the first one's address."""
    address = flags.buffer_info()[0]
    words[ArgumentBlock.STOP] = address
    words[ArgumentBlock.OUTSIDE] = address + flags.itemsize
    return address


def _wrapped(kernel: CpuKernel, results: Sequence[_Array], like: Any) -> tuple[Any, ...]:
    """Return results as arrays of the library of an argument."""
    return tuple(map(library_met(like).wrapped, results, kernel.types, repeat(like)))


def _output(kernel: CpuKernel, binding: Binding, result: Result) -> _Output:
    """Return how one output is allocated and finished."""
    dtype, aligned = result.held.dtype, kernel.spec.streaming
    if result.is_accumulated and result.summed is not None:
        make: Callable[[], _Array] = partial(_initial_memory, result)
    elif not binding.tiles:
        make = partial(np.zeros, result.memory, dtype)
    elif binding.axes is None and result.is_left_whole:
        return _Output(result.position, _allocator(result.final, dtype, aligned))
    else:
        make = partial(allocate, result, aligned)
    needs_finish = binding.axes is not None or not result.is_finished
    finishes = partial(finish, result, axes=binding.axes) if needs_finish else None
    return _Output(result.position, make, result.first * dtype.itemsize, finishes)


class _Output(NamedTuple):
    """Where the address of an output goes, what makes its memory, where it begins in that, and what
    makes the output of it; None if that is the memory."""

    position: int
    make: Callable[[], _Array]
    first: int = 0
    finish: Callable[[_Array], _Array] | None = None


def _finished(output: _Output, memory: _Array) -> _Array:
    return memory if output.finish is None else output.finish(memory)


def _is_empty(launch: Launch, param: int) -> bool:
    """Whether an array that is read by index has no element."""
    layout = launch.indexed[param]
    return layout is not None and 0 in layout[0]


def _address(array: Any, others: list[Any]) -> int:
    """Return where an array of another library begins; note it, and what keeps its elements."""
    library = library_met(array)
    others.append(array)
    found = library.memory.address(array)
    if found is None:  # its elements are elsewhere, or have yet to be computed
        others.append(library.numpy_view(array))
        found = address_of(others[-1])
    return found


def _outside(array: int, launch: Launch) -> str:
    """Return the message for an array: the index of a param, or of an output after the params."""
    passes, output = launch.spec.passes, array - len(launch.indexed)
    if output < 0:
        layout, name = launch.indexed[array], passes[0].params[array].name
        assert layout is not None
        shape = layout[0]
    else:
        at, result = launch.spec.outputs[output].source
        added, shape = passes[at].accumulator(result), launch.results[output]
        assert added is not None
        name = added.name
    return f"{passes[0].name}: {name!r} of shape {shape} is indexed outside its extents"


def _initial_memory(result: Result) -> _Array:
    """Return what an accumulator begins as, with an element behind an array that has none: lanes
    without a place of their own change the first by what changes nothing."""
    count, dtype = math.prod(result.memory), result.held.dtype
    if result.update == "add":  # pages that nothing is added to are not touched
        memory = np.zeros(max(1, count), dtype)
    else:
        memory = np.full(max(1, count), neutral(result.update or "add", result.held), dtype)
    return memory[:count].reshape(result.memory)


def _allocator(shape: tuple[int, ...], dtype: np.dtype[Any], aligned: bool) -> Callable[[], _Array]:
    """Return what makes an array, without asking the pool for a small one."""
    if aligned or math.prod(shape) * dtype.itemsize >= buffers.SMALLEST:
        return partial(buffers.empty, shape, dtype, aligned=aligned)
    return partial(np.empty, shape, dtype)


def allocate(result: Result, aligned: bool) -> np.ndarray[Any, Any]:
    """Return the memory of an output, zero where the kernel does not write.

    If it is to be aligned, the first element that is written begins a line of the cache.
    """
    dtype, part = result.held.dtype, result.part
    if result.is_summed_by_columns:
        *outer, extent = result.memory
        return buffers.empty((*outer, padded_columns(extent)), dtype)[..., :extent]
    if part is None:
        return buffers.empty(result.memory, dtype, aligned=aligned)
    lead = -result.first % (_LINE // dtype.itemsize)
    flat = buffers.empty((lead + math.prod(result.memory),), dtype, aligned=aligned)
    whole = flat[lead:].reshape(result.memory)
    written = Box(part.starts, part.extents)
    for box in without(Box((0,) * len(part.whole), part.whole), written):
        whole[box.slices] = 0
    return whole


def finish(
    result: Result, memory: np.ndarray[Any, Any], axes: tuple[int, ...] | None
) -> np.ndarray[Any, Any]:
    """Return an output from what the kernel left.

    The axes are the permutation from the order of the loops to the caller's.
    """
    if result.summed is not None:
        combine = getattr(np, OPS[result.update or "add"])
        for axis in result.summed:
            if memory.shape[axis] > 1:
                memory = tree_sum(memory, axis, combine)
        memory = _summed_columns(result, memory)
        sums = np.ascontiguousarray(_rounded(memory, result.type)).reshape(result.shape)
        # An array that is handed out does not keep the copies of all slabs.
        memory = sums.copy() if result.is_accumulated and result.memory[0] > 1 else sums
    if axes is not None and not result.is_accumulated:
        memory = memory.transpose((*axes, *range(len(axes), memory.ndim)))
    return memory if memory.shape == result.final else memory.reshape(result.final)


def _summed_columns(result: Result, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what is left once the axes are summed that are within the last one of the memory."""
    if not result.columns:
        return memory
    first = memory.ndim - 1
    memory = memory.reshape(*memory.shape[:-1], *(extent for extent, _ in result.columns))
    for axis, (_, is_sum) in enumerate(result.columns, first):
        if is_sum:
            memory = tree_sum(memory, axis)
    return memory


def _rounded(sums: np.ndarray[Any, Any], type: ScalarType) -> np.ndarray[Any, Any]:
    """Return sums in the type of the output."""
    if type.is_narrow:
        return to_memory(sums, type)
    if sums.dtype == type.dtype:
        return sums
    with np.errstate(all="ignore"):
        return sums.astype(type.dtype)


def tree_sum(
    values: np.ndarray[Any, Any], axis: int, combine: np.ufunc = np.add
) -> np.ndarray[Any, Any]:
    """Sum along an axis by a binary tree that depends on nothing but the extent.

    The axis is kept with extent 1.  ``values`` may be overwritten.  These are few partial sums, in
    `mixad.kernel.tiling.accumulator`'s type, not the elements, for which the reference backend has
    `mixad.emit.array_run.sum_by_halves`: the two agree up to rounding only.
    """
    values = np.moveaxis(values, axis, 0)
    count = len(values)
    with np.errstate(all="ignore"):
        while count > 1:
            half = count // 2
            combine(values[:half], values[count - half : count], out=values[:half])
            count -= half
    return np.moveaxis(values[:1], 0, axis)
