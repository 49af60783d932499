"""Kernels on CUDA devices, for plugins: all but what an array library does in its own way.

A plugin gives a `Driver`, some calls of its library and of CUDA, and gets a backend:
``CudaBackend("cupy", driver)``.  Which text a launch needs depends on how its arrays are aligned,
so texts are compiled when first launched, once for each device.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mixad.backends.arrays import Array, Library, library_of
from mixad.emit.cuda import (
    THREADS,
    Dialect,
    accumulator,
    emit_axis_sum,
    emit_kernel,
    entries,
    for_threads,
)
from mixad.errors import BackendError
from mixad.kernel.arguments import ArgumentBlock
from mixad.kernel.binding import Binding, Result, bind
from mixad.kernel.spec import KernelSpec, Launch, Operand
from mixad.kernel.tiling import BLOCK
from mixad.scalar.types import I32, ScalarType

__all__ = ["CudaBackend", "CudaBound", "CudaKernel", "Driver", "Function"]

Function: TypeAlias = Any
"""A kernel that is loaded, as a driver knows it."""

_ALIGNED = 16
"""Bytes that a thread loads or stores at once, at most."""

_MOST_BLOCKS = (1 << 31) - 1

_WIDE = 1 << 31
"""So many elements of a row, rows or tiles are counted in 64 bits."""


class Driver(Protocol):
    """What a plugin supplies: memory, compiler and launches of one array library."""

    def device(self, array: Array) -> Hashable:
        """Return the device of an array."""
        ...

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> Array:
        """Return a new contiguous array, aligned to 16 bytes at least."""
        ...

    def compile(
        self, text: str, entries: Sequence[str], device: Hashable
    ) -> Mapping[str, Function]:
        """Compile CUDA C++ for a device and load it.

        Parameters
        ----------
        text : str
            A module that includes nothing; ``--std=c++17 --fmad=false``, no fast maths.
        entries : sequence of str
            Symbols of its kernels.
        device : hashable
            What `device` returned.

        Returns
        -------
        mapping
            The kernels.

        Raises
        ------
        BackendError
            With the compiler's log.
        """
        ...

    def launch(
        self,
        function: Function,
        blocks: int,
        threads: tuple[int, int],
        words: array[int],
        device: Hashable,
    ) -> None:
        """Launch a kernel on the device's current stream, asked for at every call.

        Parameters
        ----------
        function : Function
            What `compile` returned.
        blocks : int
            Blocks of the grid, which has one axis.
        threads : tuple of int
            Threads of a block along x and y.
        words : array of int64
            Its only argument, a structure of so many words.
        device : hashable
            Where it was compiled for.
        """
        ...


class CudaKernel:
    """A kernel whose texts are compiled when a launch first needs them.

    Parameters
    ----------
    spec : KernelSpec
        As it was planned.
    driver : Driver
        What compiles.
    """

    def __init__(self, spec: KernelSpec, driver: Driver) -> None:
        self.spec = spec
        self._lowered = for_threads(spec)
        self._driver = driver
        self._loaded: dict[tuple[Dialect, Hashable], tuple[Function, ...]] = {}
        self._lock = threading.Lock()

    def text(self, dialect: Dialect) -> str:
        """Return the CUDA C++ for a dialect."""
        return emit_kernel(self._lowered, dialect)

    def functions(self, dialect: Dialect, device: Hashable) -> tuple[Function, ...]:
        """Return what is launched on a device, pass by pass."""
        key = dialect, device
        if key not in self._loaded:
            with self._lock:
                if key not in self._loaded:
                    symbols = entries(self.spec)
                    loaded = self._driver.compile(self.text(dialect), symbols, device)
                    self._loaded[key] = tuple(loaded[s] for s in symbols)
        return self._loaded[key]


@dataclass(frozen=True)
class CudaBound:
    """A kernel with everything done that does not depend on the data.

    Attributes
    ----------
    kernel : CudaKernel
        What is launched.
    launch : Launch
        Its shapes and strides.
    binding : Binding
        The block of words.
    vector : int
        Neighbours that a thread may load at once if the addresses allow it.
    wide : bool
        Whether elements of a row, rows and tiles are counted in 64 bits.
    packed : tuple of int
        Positions in ``binding.arrays`` of the arrays that are loaded in packs.
    """

    kernel: CudaKernel
    launch: Launch
    binding: Binding
    vector: int
    wide: bool
    packed: tuple[int, ...]

    def dialect(self, addresses: Sequence[int]) -> Dialect:
        """Return the text's dialect for arrays that begin at these addresses."""
        vector = self.vector
        if vector > 1 and any(addresses[k] % _ALIGNED for k in self.packed):
            vector = 1
        return Dialect(vector, self.wide)


class CudaBackend:
    """Kernels compiled from CUDA C++ for the arrays of one library.

    Parameters
    ----------
    name : str
        Of the backend.
    driver : Driver
        The library's part.
    """

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self.driver = driver
        self._sums: dict[tuple[ScalarType, Hashable], Function] = {}

    def emit(self, spec: KernelSpec) -> str:
        """Return the text for arrays whose addresses nothing is known of."""
        return CudaKernel(spec, self.driver).text(Dialect())

    def compile(self, spec: KernelSpec) -> CudaKernel:
        """Return a kernel; its texts are compiled when a launch first needs them."""
        return CudaKernel(spec, self.driver)

    def bind(self, executable: CudaKernel, launch: Launch) -> CudaBound:
        """Return a kernel with the argument block of a launch."""
        binding = bind(launch, accumulator)
        binding.words.append(binding.tiles)
        operands = [launch.spec.operands[k] for k, _ in binding.arrays]
        packed = tuple(
            at for at, o in enumerate(operands) if isinstance(o, Operand) and o.step == "unit"
        )
        return CudaBound(
            executable, launch, binding, _widest(launch), _is_wide(launch, binding), packed
        )

    def launch(self, bound: CudaBound, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run a kernel over new results, on the current stream."""
        binding, driver = bound.binding, self.driver
        arrays = [arguments[k] for k, _ in binding.arrays]
        if not arrays:
            raise BackendError(f"backend {self.name!r} is given no array: pass scalars as arrays")
        library, device = library_of(arrays[0]), driver.device(arrays[0])
        results = [
            driver.empty(o.memory, library.dtype_of(o.held), device) for o in binding.outputs
        ]
        if not binding.tiles:
            zeros = [library.xp.zeros_like(memory) for memory in results]
            return self._finished(binding, zeros, library, device)
        words, addresses = binding.words[:], [driver.address(a) for a in arrays]
        for address, (_, at) in zip(addresses, binding.arrays, strict=True):
            words[at] = address
        for k, at, type in binding.uniforms:
            words[at] = binding.word(k, arguments[k], type)
        for memory, output in zip(results, binding.outputs, strict=True):
            words[output.position] = driver.address(memory)
        outside = self._outside(bound, words, library, device)
        dialect = bound.dialect(addresses)
        threads = _threads(bound.launch.extents[-1], dialect.vector)
        for function in bound.kernel.functions(dialect, device):
            driver.launch(function, min(binding.tiles, _MOST_BLOCKS), threads, words, device)
        if outside is not None and (noted := int(outside[0])):  # waits for the kernel
            raise IndexError(f"argument {noted - 1} is indexed outside its extents")
        return self._finished(binding, results, library, device)

    def _outside(
        self, bound: CudaBound, words: array[int], library: Library, device: Hashable
    ) -> Array | None:
        """Return the word in which a kernel notes an index outside; None if it indexes nothing."""
        if not any(bound.launch.indexed):
            return None
        noted = self.driver.empty((1,), library.dtype_of(I32), device)
        noted[...] = 0
        words[ArgumentBlock.OUTSIDE] = self.driver.address(noted)
        return noted

    def _finished(
        self, binding: Binding, results: Sequence[Array], library: Library, device: Hashable
    ) -> tuple[Array, ...]:
        """Return the outputs from what the kernel left."""
        if binding.is_finished:
            return tuple(results)
        xp, outputs = library.xp, []
        for output, memory in zip(binding.outputs, results, strict=True):
            if output.summed is not None:
                memory = self._summed(output, memory, library, device)
            if binding.axes is not None:
                memory = xp.permute_dims(memory, binding.axes)
            outputs.append(xp.reshape(memory, output.final))
        return tuple(outputs)

    def _summed(self, output: Result, memory: Array, library: Library, device: Hashable) -> Array:
        """Return the sum of what the tiles left, in the type of the output."""
        shape = list(output.memory)
        for axis in output.summed or ():
            memory = self._along(shape, axis, output.held, memory, library, device)
            shape[axis] = 1
        memory = library.xp.reshape(memory, output.shape)
        return library.xp.astype(memory, library.dtype_of(output.type), copy=False)

    def _along(
        self,
        shape: Sequence[int],
        axis: int,
        type: ScalarType,
        memory: Array,
        library: Library,
        device: Hashable,
    ) -> Array:
        """Return contiguous values of a shape summed along an axis."""
        if shape[axis] == 1:
            return memory
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        sums = self.driver.empty((outer * inner,), library.dtype_of(type), device)
        addresses = self.driver.address(sums), self.driver.address(memory)
        words = array("q", [*addresses, outer, shape[axis], inner])
        threads = _threads(inner, 1)
        blocks = min(outer * -(-inner // threads[0]), _MOST_BLOCKS)
        self.driver.launch(self._sum(type, device), blocks, threads, words, device)
        return sums

    def _sum(self, type: ScalarType, device: Hashable) -> Function:
        """Return the kernel that sums along an axis."""
        found = self._sums.get((type, device))
        if found is None:
            entry = f"mixad_axis_sum_{type}"
            found = self.driver.compile(emit_axis_sum(type, entry), [entry], device)[entry]
            self._sums[type, device] = found
        return found


def _threads(extent: int, vector: int) -> tuple[int, int]:
    """Return a block's threads along a row and along rows, for an innermost extent."""
    needed = max(1, -(-extent // vector))
    along = min(THREADS, 1 << (needed - 1).bit_length())
    return along, THREADS // along


def _is_wide(launch: Launch, binding: Binding) -> bool:
    """Whether something that a kernel counts, up to the end of its last tile, takes 64 bits."""
    rows = math.prod(launch.extents[:-1])
    return max(launch.extents[-1] + BLOCK, rows + launch.rows, binding.tiles) >= _WIDE


def _widest(launch: Launch) -> int:
    """Return how many neighbours of a row begin on `_ALIGNED` bytes in all arrays, row by row."""
    spec, extents = launch.spec, launch.extents
    strides = [
        (operand.type, lay)
        for operand, lay in zip(spec.operands, launch.strides, strict=True)
        if isinstance(operand, Operand) and operand.step == "unit" and lay is not None
    ]
    stored = [o.type for o in spec.outputs if not any(o.reduced)]
    types = [*stored, *(type for type, _ in strides)]
    vector = min((_ALIGNED // t.itemsize for t in types), default=1)
    vector = min(vector, 4)
    fits = all(s % (vector * t.itemsize) == 0 for t, lay in strides for s in lay[:-1])
    return vector if fits and extents[-1] % vector == 0 else 1
