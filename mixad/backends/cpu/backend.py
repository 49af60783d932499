"""Kernels on the CPU: emitted, compiled or fetched from the disk, launched over the tiles."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mixad.backends.cpu import buffers, compiler
from mixad.backends.cpu.cache_size import cache_bytes
from mixad.backends.cpu.code_version import CODE_VERSION
from mixad.backends.cpu.host import VECTOR_FUNCTIONS, Host, detect, usable_cpus
from mixad.backends.cpu.launch import (
    Run,
    prepare_block,
    prepare_boxes,
    prepare_launch,
    prepare_repeated,
)
from mixad.backends.cpu.steps import (
    add_at_block,
    move_block,
    take_block,
    take_steps,
    write_at_block,
)
from mixad.backends.object_cache import default
from mixad.backends.protocols import LaunchBlock
from mixad.config import show_bytes
from mixad.emit.llvm.text import ENTRY, GANG, Dialect
from mixad.kernel.binding import ArgumentBlock, bind
from mixad.kernel.cost import block_cost
from mixad.kernel.spec import KernelSpec, Launch
from mixad.kernel.tiling import accumulator
from mixad.scalar.ir import Program, While, walk_statements
from mixad.scalar.math import PROGRAMS
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import ScalarType

__all__ = ["CpuBackend", "CpuKernel", "PreparedKernel"]

_TELLING_FEATURES = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "neon", "sve", "sve2")


@dataclass(frozen=True)
class CpuKernel:
    """A compiled kernel; it takes bits where NumPy lacks one of its types."""

    module: compiler.Module
    spec: KernelSpec
    address: int
    may_not_end: bool
    has_numpy_types: bool
    types: tuple[ScalarType, ...]

    @cached_property
    def call(self) -> Callable[[int, int, int], None]:
        """Its function, of the block's address and the tiles."""
        return compiler.KERNEL_PROTOTYPE(self.address)

    @cached_property
    def cost(self) -> int:
        """The cost of one element, as `mixad.kernel.cost` counts."""
        return sum(block_cost(program.body) for program in self.spec.passes)


@dataclass(frozen=True)
class PreparedKernel:
    """A compiled kernel with the argument block of a launch, and the function that runs it."""

    kernel: CpuKernel
    launch: Launch
    block: ArgumentBlock
    run: Run


class CpuBackend:
    """Compiles kernel specs for a host, by default this machine, and launches them on its cores."""

    name = "cpu"

    def __init__(self, host: Host | None = None) -> None:
        self.host = host or detect()
        self.dialect = _dialect(self.host)

    def describe(self) -> Mapping[str, str]:
        """Return what `mixad doctor` shows of this machine."""
        host = self.host
        cache = default()
        problem = cache.problem()
        library = host.vector_library or "none found: one call of libm per element"
        features = [name for name in _TELLING_FEATURES if f"+{name}" in host.features.split(",")]
        return {
            "processor": f"{host.cpu}: {' '.join(features) or 'no feature that matters here'}",
            "vector width": f"{host.vector_bits} bits, gangs of {GANG} elements",
            "threads": str(usable_cpus()),
            "caches": f"written past if a launch moves over {show_bytes(cache_bytes())}",
            "results to come": f"at most {show_bytes(buffers.limit())} of memory kept",
            "maths inlined": ", ".join(n for n in PROGRAMS if BY_NAME[n].c is not None),
            "other maths": library,
            "kernels kept": f"no: {problem}" if problem else f"in {cache.folder}",
        }

    def emit(self, spec: KernelSpec) -> str:
        """Return the LLVM IR of a kernel."""
        # Not imported for kernels that are on the disk.
        from mixad.emit.llvm.kernel import emit_kernel
        from mixad.kernel.lower import lower_spec

        return emit_kernel(lower_spec(spec), self.dialect)

    def assembly(self, spec: KernelSpec) -> str:
        """Return the assembler text of a kernel, for people."""
        return compiler.assembly(self.emit(spec), self.host)

    def compile(self, spec: KernelSpec) -> CpuKernel:
        """Return a kernel ready to run, from the cache on disk if it is there."""
        key = f"{CODE_VERSION} {spec.token}"
        module = compiler.cached_module(key, lambda: self.emit(spec), self.host)
        return CpuKernel(
            module,
            spec,
            module.address(ENTRY),
            may_not_end=any(map(_loops, spec.passes)),
            has_numpy_types=not any(o.type.brain for o in (*spec.operands, *spec.outputs) if o),
            types=tuple(output.type for output in spec.outputs),
        )

    def bind(self, executable: CpuKernel, launch: Launch) -> PreparedKernel:
        """Return a kernel with the argument block of a launch."""
        return _prepare_kernel(executable, launch, bind(launch, accumulator))

    def launch(self, bound: PreparedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run a kernel over new results."""
        return bound.run(arguments)

    def moved(self, bound: PreparedKernel, launch: Launch) -> PreparedKernel:
        """Return the kernel with the argument block of a launch that writes other slices."""
        return _prepare_kernel(bound.kernel, launch, bound.block.move_slices(launch))

    def repeated(
        self,
        bound: PreparedKernel,
        reads: Sequence[int],
        writes: Sequence[int],
        fixed: Mapping[int, Any],
    ) -> Callable[[list[Any]], None] | None:
        """Return a function that runs a kernel on registers; ``fixed`` ones keep their arrays."""
        kernel, launch, block = bound.kernel, bound.launch, bound.block
        return prepare_repeated(kernel, launch, block, reads, writes, fixed)

    def block(
        self, bound: PreparedKernel, firsts: Sequence[int] | None = None
    ) -> LaunchBlock | None:
        """Return a launch whose words are filled in once; None for one that takes long."""
        return prepare_block(bound.kernel, bound.launch, bound.block, firsts)

    def run_block(self, kernel: int, words: array[int], tiles: int) -> None:
        """Run a launch once."""
        compiler.KERNEL_PROTOTYPE(kernel)(words.buffer_info()[0], 0, tiles)

    def move_block(
        self, sources: int, runs: Sequence[tuple[int, int, int, int]], size: int
    ) -> LaunchBlock:
        """Return what makes so many bytes of runs of others."""
        return move_block(sources, runs, size)

    def take_block(self, count: int, size: int, gaps: Sequence[int] = ()) -> LaunchBlock:
        """Return what takes so many elements at positions."""
        return take_block(count, size, gaps)

    def add_at_block(
        self, count: int, length: int, size: int, gaps: Sequence[int] = ()
    ) -> LaunchBlock:
        """Return what adds so many floats at positions."""
        return add_at_block(count, length, size, gaps)

    def write_at_block(
        self, how: str, count: int, room: int, size: int, gaps: Sequence[int] = ()
    ) -> LaunchBlock:
        """Return what changes so many elements at positions."""
        return write_at_block(how, count, room, size, gaps)

    def take_steps(
        self,
        blocks: Sequence[LaunchBlock],
        moves: Sequence[tuple[int, int, int, int]],
        first: int,
        last: int,
        flag: int = 0,
        tested: int = 0,
    ) -> int:
        """Run launches in order, step by step; return the next step."""
        return take_steps(blocks, moves, first, last, flag, tested)

    def in_boxes(
        self,
        boxes: Sequence[tuple[PreparedKernel, Sequence[int]]],
        shape: tuple[int, ...],
        reads: Sequence[int],
        writes: Sequence[int],
        fixed: Mapping[int, Any],
    ) -> Callable[[list[Any]], None] | None:
        """Return a function that runs a kernel over boxes of arrays; None if it may not end."""
        kernel = boxes[0][0].kernel
        if kernel.may_not_end:
            return None
        launches = [(bound.launch, bound.block, firsts) for bound, firsts in boxes]
        return prepare_boxes(kernel, launches, shape, reads, writes, fixed)


def _prepare_kernel(kernel: CpuKernel, launch: Launch, block: ArgumentBlock) -> PreparedKernel:
    return PreparedKernel(kernel, launch, block, prepare_launch(kernel, launch, block))


def _dialect(host: Host) -> Dialect:
    found = (host.vector_function(name, bits) for name in VECTOR_FUNCTIONS for bits in (32, 64))
    symbols = frozenset(f.symbol for f in found if f is not None)
    return Dialect(host.vector_bits, symbols, host.has_half)


def _loops(program: Program) -> bool:
    """Whether a program has a user's loop, which may not end."""
    return any(isinstance(s, While) and not s.is_short for s in walk_statements(program.body))
