"""Launches of CPU kernels: addresses filled in, tiles run by this thread or by workers."""

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
from mixad.backends.cpu import workers
from mixad.backends.cpu.results import allocator, output_of, written_part, written_whole
from mixad.backends.protocols import LaunchBlock
from mixad.kernel.arguments import ArgumentLayout
from mixad.kernel.binding import ArgumentBlock, Packing, pack_double
from mixad.kernel.spec import Launch
from mixad.kernel.tiling import GANG

if TYPE_CHECKING:
    from mixad.backends.cpu.backend import CpuKernel

__all__ = ["Run", "outside_message", "prepare_block", "prepare_boxes", "prepare_launch",
           "prepare_repeated", "runs_directly"]  # fmt: skip

_Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]

_SHORT = 1 << 16
"""Vector instructions that take some 10 microseconds: as long as it takes to tell other threads,
and to read what these have written from their caches."""

_PASS = 16
"""Vector instructions that take as long as reading and writing a gang of elements."""

_NOTHING = np.zeros(1, np.float64)
"""Stands in for an empty array, so that a kernel can read an element before it is refused."""

_QUIET = array("i", (0, 0))
"""The flags of kernels that end by themselves and read nothing outside: nobody writes to them."""


def prepare_launch(kernel: CpuKernel, launch: Launch, block: ArgumentBlock) -> Run:
    """Return a function that runs a kernel on a launch's arguments and makes new results.

    All that does not depend on values is done here. Several threads may call the function at once:
    each call fills its own block of words.
    """
    template = block.words
    _set_flags(template, _QUIET)
    for k, at in block.arrays:
        if _is_empty(launch, k):
            template[at] = address_of(_NOTHING)
    arrays = tuple([(k, at) for k, at in block.arrays if not _is_empty(launch, k)])
    uniforms, aligned = block.uniforms, kernel.spec.streaming
    outputs = tuple([output_of(result, block, aligned) for result in block.outputs])
    finishes = any(finish is not None for _, _, _, finish in outputs)
    is_direct = runs_directly(kernel, launch, block)
    call, ndarray, has_numpy_types = kernel.call, np.ndarray, kernel.has_numpy_types

    def run(arguments: Sequence[Any]) -> tuple[Any, ...]:
        words, results = template[:], []
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
            call(words.buffer_info()[0], 0, block.tiles)
        else:
            _run_on_workers(kernel, launch, words, block.tiles)
        if finishes:
            results = [
                memory if each.finish is None else each.finish(memory)
                for each, memory in zip(outputs, results, strict=True)
            ]
        if others or not has_numpy_types:
            like = others[0] if others else arguments[arrays[0][0]]
            return tuple(map(library_met(like).wrap_memory, results, kernel.types, repeat(like)))
        return tuple(results)

    return run


def prepare_repeated(
    kernel: CpuKernel,
    launch: Launch,
    block: ArgumentBlock,
    reads: Sequence[int],
    writes: Sequence[int],
    fixed: Mapping[int, _Array],
) -> Callable[[list[Any]], None] | None:
    """Return a function that runs a kernel on registers, by one thread at a time.

    ``reads`` and ``writes`` are registers; the caller retains the arrays of ``fixed``, whose
    addresses are filled in once. None if each call must choose where its results go.
    """
    is_left_whole = block.axes is None and all(r.is_left_whole for r in block.outputs)
    is_plain = is_left_whole and kernel.has_numpy_types and not kernel.spec.streaming
    if not (is_plain and runs_directly(kernel, launch, block)):
        return None
    words, results = block.words[:], list(zip(writes, block.outputs, strict=True))
    made = [(register, result) for register, result in results if register not in fixed]
    outputs = [(register, output_of(result, block, False).make) for register, result in made]
    places = [(reads[k], at) for k, at in block.arrays]
    places += [(register, result.position) for register, result in results]
    for register, at in places:
        if register in fixed:
            words[at] = address_of(fixed[register])
    arrays = tuple([(register, at) for register, at in places if register not in fixed])
    numbers, uniforms = _numbers(reads, block)
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
        call(address, 0, block.tiles)

    return run


def prepare_block(
    kernel: CpuKernel, launch: Launch, block: ArgumentBlock, firsts: Sequence[int] | None = None
) -> LaunchBlock | None:
    """Return a launch whose words are filled in once; None if that is not possible.

    ``firsts`` are a box's offsets: how many bytes of each argument come before it.
    """
    is_plain = kernel.has_numpy_types and not kernel.spec.streaming
    if not (is_plain and block.tiles and runs_directly(kernel, launch, block)):
        return None
    place = partial(written_whole, axes=block.axes) if firsts is None else written_part
    written = list(map(place, block.outputs))
    writes = tuple([each for each in written if each is not None])
    if len(writes) < len(written):
        return None
    reads = tuple([(k, at, 0 if firsts is None else firsts[k]) for k, at in block.arrays])
    words = block.words[:]
    _set_flags(words, _QUIET)
    return LaunchBlock(kernel.address, words, block.tiles, reads, block.uniforms, writes)


def prepare_boxes(
    kernel: CpuKernel,
    boxes: Sequence[tuple[Launch, ArgumentBlock, Sequence[int]]],
    shape: tuple[int, ...],
    reads: Sequence[int],
    writes: Sequence[int],
    fixed: Mapping[int, _Array],
) -> Callable[[list[Any]], None]:
    """Return a function that runs a kernel over boxes of arrays, by one thread at a time.

    Each box has its launch, its block, and how many bytes of each argument come before it;
    results are slices of arrays of the shape ``shape``.
    """
    block = boxes[0][1]
    outputs = [
        (register, allocator(shape, result.held.dtype, aligned=False))
        for register, result in zip(writes, block.outputs, strict=True)
        if register not in fixed
    ]
    numbers, uniforms = _numbers(reads, block)
    arrays = (*[reads[k] for k, _ in block.arrays], *writes)
    launches = [_box(kernel, *box) for box in boxes]
    call, run_on_workers = kernel.call, partial(workers.run, kernel.address)

    def run(registers: list[Any]) -> None:
        for register, make in outputs:
            registers[register] = make()
        addresses = [address_of(registers[register]) for register in arrays]
        for words, doubles, arguments, tiles, is_short, places in launches:
            for (at, first), address in zip(places, addresses):  # noqa: B905 (takes time)
                words[at] = address + first
            for register, at in numbers:
                doubles[at] = registers[register]
            for register, at, pack in uniforms:
                words[at] = pack(registers[register])
            if is_short:
                call(arguments, 0, tiles)
            else:
                run_on_workers(arguments, tiles)

    return run


class _BoxLaunch(NamedTuple):
    """A launch over a box: its words, also as numbers, and the address of both."""

    words: array[int]
    doubles: memoryview[float]
    arguments: int
    tiles: int  # in all
    is_short: bool  # whether they run at once
    places: tuple[tuple[int, int], ...]  # word of an array's address, bytes before it


def _box(
    kernel: CpuKernel, launch: Launch, block: ArgumentBlock, firsts: Sequence[int]
) -> _BoxLaunch:
    words = block.words[:]
    places = [(at, firsts[k]) for k, at in block.arrays]
    places += [(r.position, r.first * r.held.dtype.itemsize) for r in block.outputs]
    doubles = memoryview(words).cast("B").cast("d")
    is_short = runs_directly(kernel, launch, block)
    address = words.buffer_info()[0]
    return _BoxLaunch(words, doubles, address, block.tiles, is_short, tuple(places))


def _numbers(
    reads: Sequence[int], block: ArgumentBlock
) -> tuple[list[tuple[int, int]], list[tuple[int, int, Packing]]]:
    """Return the registers of numbers and where they go: float64 as they are, others packed."""
    doubles = [(reads[k], at) for k, at, pack in block.uniforms if pack is pack_double]
    others = [(reads[k], at, pack) for k, at, pack in block.uniforms if pack is not pack_double]
    return doubles, others


def runs_directly(kernel: CpuKernel, launch: Launch, block: ArgumentBlock) -> bool:
    """Whether a kernel runs at once, in the thread that calls it, without anything to watch.

    It does so where telling other threads takes longer than the launch.
    """
    gangs = math.prod(launch.extents) // GANG
    is_short = block.tiles == 1 or gangs * (kernel.cost + _PASS) <= _SHORT
    is_safe = not (kernel.may_not_end or launch.may_be_outside)
    return block.tiles > 0 and is_short and is_safe


def _run_on_workers(kernel: CpuKernel, launch: Launch, words: array[int], tiles: int) -> None:
    """Run all tiles on the workers of this process, and raise the error that a kernel noted."""
    if tiles == 0:
        return
    flags = array("i", (0, 0))
    stop = _set_flags(words, flags)
    workers.run(kernel.address, words.buffer_info()[0], tiles, stop if kernel.may_not_end else None)
    if flags[1]:
        raise IndexError(outside_message(flags[1] - 1, launch))


def _set_flags(words: array[int], flags: array[int]) -> int:
    """Set the addresses of a kernel's two flags, stop and outside; return the first one's."""
    address = flags.buffer_info()[0]
    words[ArgumentLayout.STOP] = address
    words[ArgumentLayout.OUTSIDE] = address + flags.itemsize
    return address


def _is_empty(launch: Launch, param: int) -> bool:
    """Whether an array that is read by index has no element."""
    layout = launch.indexed[param]
    return layout is not None and 0 in layout[0]


def _address(array: Any, others: list[Any]) -> int:
    """Return where another library's array begins; record that, and the owner of its elements."""
    library = library_met(array)
    others.append(array)
    found = library.memory.address(array)
    if found is None:  # its elements are elsewhere, or have yet to be computed
        others.append(library.numpy_view(array))
        found = address_of(others[-1])
    return found


def outside_message(array: int, launch: Launch) -> str:
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
