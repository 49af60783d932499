"""The backend for CUDA devices: what launches need besides the kernel, and what becomes of results.

Which text a launch needs depends on how its arrays are aligned, so texts are compiled when first
launched, once for each device.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from mixad.backends.arrays import Array, Library, library_of
from mixad.backends.cuda.bound import CudaBound, MadeOutput, Place, Ready, bound_to, threads_of
from mixad.backends.cuda.device import Device, described
from mixad.backends.cuda.driver import Driver, Function
from mixad.backends.cuda.kernel import CudaKernel
from mixad.backends.hookspecs import DeviceFunction
from mixad.emit.cuda import Dialect, axis_sum, emit_axis_sum
from mixad.errors import BackendError, TracerError
from mixad.kernel.arguments import ArgumentBlock
from mixad.kernel.binding import Binding, Result
from mixad.kernel.spec import KernelSpec, Launch
from mixad.kernel.tiling import Tiling
from mixad.scalar.types import I32, ScalarType

__all__ = ["CudaBackend"]

_MAX_BLOCKS = (1 << 31) - 1

_BLOCKS_EACH, _LEAST_RUN, _LEAST = 4, 4, 1024
"""Of sums: blocks for each multiprocessor; rows and elements of a block at least."""


class CudaBackend:
    """Kernels compiled from CUDA C++ for the arrays of one library.

    Parameters
    ----------
    name : str
        Of the backend.
    driver : Driver
        The library's part.

    Attributes
    ----------
    writes_parts : bool
        True: a result may be a part of a larger array.
    stores_beside : bool
        True: several results of an element may be side by side in one.
    """

    writes_parts = True
    stores_beside = True

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.driver = driver
        self._sums: dict[tuple[ScalarType, Hashable], Function] = {}
        self._devices: dict[Hashable, Device] = {}

    def emit(self, spec: KernelSpec) -> str:
        """Return the text for arrays whose addresses nothing is known of."""
        return CudaKernel(spec, self.driver).text(Dialect())

    def compile(self, spec: KernelSpec) -> CudaKernel:
        """Return a kernel; its texts are compiled when a launch first needs them."""
        return CudaKernel(spec, self.driver)

    def bind(self, executable: CudaKernel, launch: Launch) -> CudaBound:
        """Return a kernel with the argument block of a launch."""
        return bound_to(executable, launch)

    def moved(self, bound: CudaBound, launch: Launch) -> CudaBound:
        """Return the kernel with the argument block of a launch that writes parts elsewhere."""
        return bound.moved(launch)

    def launch(self, bound: CudaBound, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run a kernel over new results, on the current stream."""
        binding, driver = bound.binding, self.driver
        if not binding.arrays:
            raise BackendError(f"backend {self.name!r} is given no array: pass scalars as arrays")
        first = arguments[binding.arrays[0][0]]
        device = driver.device(first)
        place = bound.places.get(device) or self._placed(bound, first, device)
        words, addresses, results = binding.words[:], [], []
        for k, at in binding.arrays:
            words[at] = address = driver.address(arguments[k])
            addresses.append(address)
        for k, at, pack in binding.uniforms:
            words[at] = pack(arguments[k])
        for make, shape, dtype, at, before in place.outputs:
            memory = make(shape, dtype, device)
            words[at] = driver.address(memory) + before
            results.append(memory)
        if binding.tiles:
            outside = self._outside(bound, words, place.library, device)
            ready = self.ready(bound, device, bound.is_aligned(addresses))
            for function in ready.functions:
                driver.launch(function, place.blocks, ready.threads, words, device)
            if outside is not None and (noted := int(outside[0])):  # waits for the kernel
                raise IndexError(f"argument {noted - 1} is indexed outside its extents")
        if binding.is_finished:
            return tuple(results)
        return self._finished(binding, results, place.library, device)

    def _placed(self, bound: CudaBound, array: Array, device: Hashable) -> Place:
        """Return what launches on a device need beside functions, found once."""
        library, binding = library_of(array), bound.binding
        outputs = tuple(
            MadeOutput(
                # Where the kernel does not write, zeros are wanted.
                self.driver.empty if binding.tiles and o.part is None else self.driver.zeros,
                o.memory,
                library.dtype_of(o.held),
                o.position,
                o.first * o.type.itemsize,
            )
            for o in binding.outputs
        )
        blocks = min(binding.tiles, _MAX_BLOCKS)
        found = bound.places[device] = Place(library, outputs, blocks)
        return found

    def ready(self, bound: CudaBound, device: Hashable, is_aligned: bool) -> Ready:
        """Return what is launched on a device, compiled when it is first asked for."""
        key = device, is_aligned
        found = bound.ready.get(key)
        if found is None:
            self._check_may_load(device)
            dialect = self.dialect(bound, device, is_aligned)
            functions = bound.kernel.functions(dialect, device)
            threads = threads_of(bound.launch.extents[-1], dialect.vector, dialect.threads)
            found = bound.ready[key] = Ready(functions, threads)
        return found

    def device_text(self, spec: KernelSpec, bound: CudaBound, array: Array) -> str:
        """Return the text that a device is given where packs are aligned."""
        dialect = self.dialect(bound, self.driver.device(array), is_aligned=True)
        return CudaKernel(spec, self.driver).text(dialect)

    def device_functions(self, bound: CudaBound, array: Array) -> tuple[DeviceFunction, ...]:
        """Return what each pass uses on a device where packs are aligned."""
        device = self.driver.device(array)
        dialect, described = self.dialect(bound, device, is_aligned=True), self.described(device)
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
        processors = self.described(self.driver.device(array)).processors
        return Tiling(_BLOCKS_EACH * processors, _LEAST_RUN, _LEAST)

    def architecture(self, array: Array) -> str:
        """Return what compilers call the device of an array."""
        return self.described(self.driver.device(array)).architecture

    def bandwidth(self, array: Array) -> float:
        """Return how many bytes a second the device of an array moves at most."""
        return self.described(self.driver.device(array)).bandwidth

    def dialect(self, bound: CudaBound, device: Hashable, is_aligned: bool) -> Dialect:
        """Return the dialect of the text that is launched on a device."""
        described = self.described(device)
        shape = bound.kernel.shape(bound.widest, bound.wide, device, described)
        return bound.dialect(shape, is_aligned)

    def described(self, device: Hashable) -> Device:
        """Return what a device has, asked for once."""
        if device not in self._devices:
            self._devices[device] = described(partial(self.driver.attribute, device=device))
        return self._devices[device]

    def _check_may_load(self, device: Hashable) -> None:
        """Refuse to load a kernel into a graph: CUDA would end the capture."""
        if self.driver.is_capturing(device):
            raise TracerError(
                "a kernel is launched for the first time on arrays of this layout and alignment "
                "while a graph is captured, and loading it cannot be a part of the graph: call "
                "the function once before the capture"
            )

    def _outside(
        self, bound: CudaBound, words: array[int], library: Library, device: Hashable
    ) -> Array | None:
        """Return the word in which a kernel notes an index outside; None if it indexes nothing."""
        if not any(bound.launch.indexed):
            return None
        if self.driver.is_capturing(device):
            raise TracerError(
                "a kernel that indexes arrays cannot be captured in a graph: whether an index is "
                "outside is asked after every launch"
            )
        noted = self.driver.zeros((1,), library.dtype_of(I32), device)
        words[ArgumentBlock.OUTSIDE] = self.driver.address(noted)
        return noted

    def _finished(
        self, binding: Binding, results: Sequence[Array], library: Library, device: Hashable
    ) -> tuple[Array, ...]:
        """Return the outputs from what the kernel left."""
        xp, outputs = library.xp, []
        for output, memory in zip(binding.outputs, results, strict=True):
            if output.summed is not None:
                memory = self._summed(output, memory, library, device)
            if binding.axes is not None:
                inside = range(len(binding.axes), len(output.memory))  # of results side by side
                memory = xp.permute_dims(memory, (*binding.axes, *inside))
            outputs.append(xp.reshape(memory, output.final))
        return tuple(outputs)

    def _summed(self, output: Result, memory: Array, library: Library, device: Hashable) -> Array:
        """Return the sum of what the tiles left, in the type of the output."""
        shape = list(output.memory)
        for axis in output.summed or ():
            memory = self.sum_along(shape, axis, output.held, memory, library, device)
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
    ) -> Array:
        """Return contiguous values of a shape summed along an axis, by a launch for each level."""
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        count = shape[axis]
        while count > 1:
            cut = axis_sum(outer, count, inner)
            sums = self.driver.empty((outer * cut.runs * inner,), library.dtype_of(type), device)
            addresses = self.driver.address(sums), self.driver.address(memory)
            words = array("q", [*addresses, outer, count, inner, cut.run, cut.runs])
            blocks = min(cut.blocks, _MAX_BLOCKS)
            self.driver.launch(self._sum(type, device), blocks, cut.threads, words, device)
            memory, count = sums, cut.runs
        return memory

    def _sum(self, type: ScalarType, device: Hashable) -> Function:
        """Return the kernel that sums along an axis."""
        found = self._sums.get((type, device))
        if found is None:
            self._check_may_load(device)
            entry = f"mixad_axis_sum_{type}"
            found = self.driver.compile(emit_axis_sum(type, entry), [entry], device)[entry]
            self._sums[type, device] = found
        return found
