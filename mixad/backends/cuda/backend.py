"""The backend for CUDA devices: what launches need besides the kernel, and what becomes of results.

Which text a launch needs depends on how its arrays are aligned, so texts are compiled when first
launched, once for each device.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from mixad.backends.arrays import Array, Library, library_of
from mixad.backends.cuda.bound import (
    PAIR_WORDS,
    CudaBound,
    DeviceRun,
    bind_launch,
    changed_outputs,
    threads_of,
)
from mixad.backends.cuda.device import Device, read_device
from mixad.backends.cuda.driver import Driver, Function, PreparedLaunch
from mixad.backends.cuda.kernel import CudaKernel
from mixad.backends.protocols import DeviceFunction
from mixad.emit.cuda import Dialect, axis_sum, emit_axis_sum, emit_segments, segment_blocks
from mixad.errors import BackendError, TracerError
from mixad.kernel.arguments import ArgumentLayout
from mixad.kernel.binding import ArgumentBlock, Result
from mixad.kernel.spec import KernelSpec, Launch
from mixad.kernel.tiling import Tiling
from mixad.scalar.ir import UpdateKind
from mixad.scalar.types import I32, I64, ScalarType
from mixad.scalar.updates import neutral

__all__ = ["BLOCKS_EACH", "LEAST", "LEAST_RUN", "CudaBackend"]

_MAX_BLOCKS = (1 << 31) - 1

BLOCKS_EACH, LEAST_RUN, LEAST = 4, 4, 1024
"""Of sums: blocks for each multiprocessor; rows and elements of a block at least."""


class CudaBackend:
    """Kernels compiled from CUDA C++ by a driver, for the arrays of one library."""

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.driver = driver
        self._kernels: dict[tuple[str, Hashable], Function] = {}
        self._devices: dict[Hashable, Device] = {}

    def emit(self, spec: KernelSpec) -> str:
        """Return the text for arrays whose addresses nothing is known of."""
        return CudaKernel(spec, self.driver).text(Dialect())

    def compile(self, spec: KernelSpec) -> CudaKernel:
        """Return a kernel; its texts are compiled when a launch first needs them."""
        return CudaKernel(spec, self.driver)

    def bind(self, executable: CudaKernel, launch: Launch) -> CudaBound:
        """Return a kernel with the argument block of a launch."""
        return bind_launch(executable, launch)

    def moved(self, bound: CudaBound, launch: Launch) -> CudaBound:
        """Return the kernel with the argument block of a launch that writes parts elsewhere."""
        return bound.moved(launch)

    def launch(self, bound: CudaBound, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run a kernel over new results, on the current stream."""
        if bound.first is None:
            raise BackendError(f"backend {self.name!r} is given no array: pass scalars as arrays")
        first = arguments[bound.first]
        device = self.driver.device(first)
        run = bound.runs.get(device)
        if run is None:
            run = bound.runs[device] = self._prepare(bound, library_of(first), device)
        return run(bound, arguments)

    def _prepare(self, bound: CudaBound, library: Library, device: Hashable) -> DeviceRun:
        """Return what runs a kernel on a device; each call fills a block of words of its own."""
        block, address = bound.block, self.driver.address
        template, arrays, uniforms = block.words, block.arrays, block.uniforms
        is_empty, is_finished = not block.tiles, block.is_finished
        indexes, outputs = bound.launch.may_be_outside, self._outputs(block, library, device)
        launch_all = self._launch_indexed if indexes else self._launch_passes
        is_plain = bound.elements > 0 and not indexes
        packed, rows_misaligned = bound.packed, int(not bound.rows_aligned)
        launches = bound.launches.setdefault(device, {})

        def run(bound: CudaBound, arguments: Sequence[Any]) -> tuple[Any, ...]:
            words, results = template[:], []
            for k, at in arrays:
                words[at] = address(arguments[k])
            for k, at, pack in uniforms:
                words[at] = pack(arguments[k])
            for make, at, before in outputs:
                memory = make()
                words[at] = address(memory) + before
                results.append(memory)
            if is_empty:
                return self._finish_outputs(block, results, library, device)
            misaligned = rows_misaligned
            for at, mask in packed:
                misaligned |= words[at] & mask
            is_aligned = not misaligned
            prepared = launches.get(is_aligned) or self.compile_launches(bound, device, is_aligned)
            if is_plain:
                for launch in prepared:
                    launch(words)
            else:
                launch_all(bound, prepared, words, library, device)
            if is_finished:
                return tuple(results)
            return self._finish_outputs(block, results, library, device)

        return run

    def _outputs(
        self, block: ArgumentBlock, library: Library, device: Hashable
    ) -> list[tuple[Callable[[], Array], int, int]]:
        """Return how each output is made, the word of its address, and the bytes before that."""
        outputs: list[tuple[Callable[[], Array], int, int]] = []
        for o in block.outputs:
            is_whole = block.tiles and o.part is None
            # Where the kernel does not write, zeros are wanted.
            make = self.driver.empty if is_whole else self.driver.zeros
            memory = partial(make, o.memory, library.dtype_of(o.held), device)
            if o.update in ("min", "max") and not is_whole:
                memory = partial(_fill, library.xp, memory, neutral(o.update, o.held))
            outputs.append((memory, o.position, o.first * o.type.itemsize))
        return outputs

    def compile_launches(
        self, bound: CudaBound, device: Hashable, is_aligned: bool
    ) -> tuple[PreparedLaunch, ...]:
        """Return what launches each pass on a device, compiled when it is first asked for."""
        self._check_may_load(device)
        dialect = self.dialect(bound, device, is_aligned)
        launches = self.launches(bound, dialect, device)
        bound.launches.setdefault(device, {})[is_aligned] = launches
        return launches

    def launches(
        self, bound: CudaBound, dialect: Dialect, device: Hashable
    ) -> tuple[PreparedLaunch, ...]:
        """Return what launches each pass by the text of a dialect."""
        threads = threads_of(bound.launch.extents[-1], dialect.vector, dialect.threads)
        blocks, prepare = min(bound.blocks, _MAX_BLOCKS), self.driver.prepare_launch
        functions = bound.kernel.functions(dialect, device)
        return tuple([prepare(function, blocks, threads, device) for function in functions])

    def device_text(self, spec: KernelSpec, bound: CudaBound, array: Array) -> str:
        """Return the text that a device is given where packs are aligned."""
        dialect = self.dialect(bound, self.driver.device(array), is_aligned=True)
        return CudaKernel(spec, self.driver).text(dialect)

    def device_functions(self, bound: CudaBound, array: Array) -> tuple[DeviceFunction, ...]:
        """Return what each pass uses on a device where packs are aligned."""
        device = self.driver.device(array)
        dialect, described = (
            self.dialect(bound, device, is_aligned=True),
            self.describe_device(device),
        )
        return tuple(
            DeviceFunction(
                **asdict(used),
                neighbours=dialect.vector,
                threads=dialect.threads,
                occupancy=described.occupancy(used, dialect.threads),
            )
            for used in bound.kernel.usages(dialect, device)
        )

    def tiling(self, array: Array) -> Tiling:
        """Return how sums over rows are cut: so that several blocks are on each multiprocessor."""
        processors = self.describe_device(self.driver.device(array)).processors
        blocks = BLOCKS_EACH * processors
        return Tiling(blocks, LEAST_RUN, LEAST, slabs=blocks)

    def architecture(self, array: Array) -> str:
        """Return what compilers call the device of an array."""
        return self.describe_device(self.driver.device(array)).architecture

    def bandwidth(self, array: Array) -> float:
        """Return how many bytes a second the device of an array moves at most."""
        return self.describe_device(self.driver.device(array)).bandwidth

    def dialect(self, bound: CudaBound, device: Hashable, is_aligned: bool) -> Dialect:
        """Return the dialect of the text that is launched on a device."""
        described = self.describe_device(device)
        shape = bound.kernel.shape(bound.widest, bound.wide, bound.elements, device, described)
        return bound.dialect(shape, is_aligned)

    def describe_device(self, device: Hashable) -> Device:
        """Return what a device has, asked for once."""
        if device not in self._devices:
            self._devices[device] = read_device(partial(self.driver.attribute, device=device))
        return self._devices[device]

    def _check_may_load(self, device: Hashable) -> None:
        """Refuse to load a kernel into a graph: CUDA would end the capture."""
        if self.driver.is_capturing(device):
            raise TracerError(
                "a kernel is launched for the first time on arrays of this layout and alignment "
                "while a graph is captured, and loading it cannot be a part of the graph: call "
                "the function once before the capture"
            )

    def _launch_indexed(
        self,
        bound: CudaBound,
        launches: Sequence[PreparedLaunch],
        words: array[int],
        library: Library,
        device: Hashable,
    ) -> None:
        """Launch a kernel that notes in a word which array it indexes outside, and read that."""
        if self.driver.is_capturing(device):
            raise TracerError(
                "a kernel that indexes arrays cannot be captured in a graph: whether an index is "
                "outside is asked after every launch"
            )
        outside = self.driver.zeros((1,), library.dtype_of(I32), device)
        words[ArgumentLayout.OUTSIDE] = self.driver.address(outside)
        self._launch_passes(bound, launches, words, library, device)
        if noted := int(outside[0]):  # waits for the kernel
            raise IndexError(f"argument {noted - 1} is indexed outside its extents")

    def _launch_passes(
        self,
        bound: CudaBound,
        launches: Sequence[PreparedLaunch],
        words: array[int],
        library: Library,
        device: Hashable,
    ) -> None:
        """Launch every pass."""
        for number, launch in enumerate(launches):
            if not bound.elements and (changed := changed_outputs(bound.launch, number)):
                self._launch_pairs(bound, changed, launch, words, library, device)
            else:
                launch(words)

    def _launch_pairs(
        self,
        bound: CudaBound,
        changed: Sequence[int],
        launch: PreparedLaunch,
        words: array[int],
        library: Library,
        device: Hashable,
    ) -> None:
        """Launch a pass that leaves pairs of elements and values, and combine these.

        Once to count the pairs of each element of the broadcast, once to store them.
        """
        if self.driver.is_capturing(device):
            raise TracerError(
                "a kernel that changes a large array at indices cannot be captured in a graph: how "
                "many changes there are is asked while it runs"
            )
        xp, address, type = library.xp, self.driver.address, library.dtype_of(I64)
        counts = self.driver.empty((math.prod(bound.launch.shape),), type, device)
        words[-PAIR_WORDS:] = array("q", [address(counts), 0, 0, 0])
        launch(words)
        starts = xp.cumulative_sum(counts, axis=0, include_initial=True)
        count = int(starts[-1])  # waits for the kernel
        elements, values = (self.driver.empty((count,), type, device) for _ in range(2))
        words[-PAIR_WORDS:] = array("q", [address(a) for a in (counts, starts, elements, values)])
        launch(words)
        order = xp.argsort(elements, stable=True)
        elements, values = xp.take(elements, order, axis=0), xp.take(values, order, axis=0)
        pairs, first = [address(elements), address(values), count], 0
        for output in (bound.block.outputs[k] for k in changed):
            size, update = math.prod(output.final), output.update or "add"
            own = array("q", [words[output.position], *pairs, first, size])
            entry = f"mixad_segments_{update}_{output.held}"
            kernel = self._kernel(entry, partial(emit_segments, update, output.held), device)
            blocks, threads = segment_blocks(size)
            self.driver.prepare_launch(kernel, min(blocks, _MAX_BLOCKS), (threads, 1), device)(own)
            first += size

    def _finish_outputs(
        self, block: ArgumentBlock, results: Sequence[Array], library: Library, device: Hashable
    ) -> tuple[Array, ...]:
        """Return the outputs from what the kernel left."""
        xp, outputs = library.xp, []
        for output, memory in zip(block.outputs, results, strict=True):
            if output.summed is not None:
                memory = self._sum_tiles(output, memory, library, device)
            if block.axes is not None and not output.is_accumulated:
                inside = range(len(block.axes), len(output.memory))  # of results side by side
                memory = xp.permute_dims(memory, (*block.axes, *inside))
            outputs.append(xp.reshape(memory, output.final))
        return tuple(outputs)

    def _sum_tiles(
        self, output: Result, memory: Array, library: Library, device: Hashable
    ) -> Array:
        """Return the sum of what the tiles left, in the type of the output."""
        shape = list(output.memory)
        for axis in output.summed or ():
            update = output.update or "add"
            memory = self.sum_along(shape, axis, output.held, memory, library, device, update)
            shape[axis] = 1
        memory = library.xp.reshape(memory, output.shape)
        return library.xp.astype(memory, library.dtype_of(output.type), copy=False)

    def sum_along(
        self,
        shape: Sequence[int],
        axis: int,
        type: ScalarType,
        memory: Array,
        library: Library,
        device: Hashable,
        update: UpdateKind = "add",
    ) -> Array:
        """Return contiguous values of a shape summed along an axis, by a launch for each level.

        Or their minima or maxima.
        """
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        count = shape[axis]
        while count > 1:
            cut = axis_sum(outer, count, inner)
            sums = self.driver.empty((outer * cut.runs * inner,), library.dtype_of(type), device)
            addresses = self.driver.address(sums), self.driver.address(memory)
            words = array("q", [*addresses, outer, count, inner, cut.run, cut.runs])
            blocks = min(cut.blocks, _MAX_BLOCKS)
            entry = f"mixad_axis_{update}_{type}"
            kernel = self._kernel(entry, partial(emit_axis_sum, update, type), device)
            self.driver.prepare_launch(kernel, blocks, cut.threads, device)(words)
            memory, count = sums, cut.runs
        return memory

    def _kernel(self, entry: str, emit: Callable[[str], str], device: Hashable) -> Function:
        """Return a kernel that is beside those of programs, by what its text is of its entry."""
        if (entry, device) not in self._kernels:
            self._check_may_load(device)
            compiled = self.driver.compile(emit(entry), [entry], device)
            self._kernels[entry, device] = compiled[entry]
        return self._kernels[entry, device]


def _fill(xp: Any, make: Callable[[], Array], value: bool | int | float) -> Array:
    return xp.full_like(make(), value)
