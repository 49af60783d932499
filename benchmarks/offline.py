"""What NVRTC makes of kernels for a device that need not be there: registers, instructions.

Kernels are compiled and nothing is launched.  The device is one H200, by what CUDA says of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NoReturn

import numpy as np

from benchmarks.instructions import longest_ways
from mixad.backends.cuda import (
    ATTRIBUTES,
    CudaBackend,
    CudaBound,
    Usage,
    compile_text,
    disassemble,
    usage_in,
)
from mixad.backends.protocols import DeviceFunction
from mixad.kernel.spec import Launch
from mixad.scalar.ir import Program

ARCHITECTURE = "sm_90"
_H200 = {
    "processors": 132,
    "clock": 3_201_000,
    "bus": 6144,
    "threads": 2048,
    "major": 9,
    "minor": 0,
    "shared": 233_472,
    "registers": 65_536,
    "blocks": 32,
    "reserved": 1024,
}
H200 = {ATTRIBUTES[name]: value for name, value in _H200.items()}
"""What CUDA says of an H200, by the numbers of its attributes."""


@dataclass(frozen=True)
class Compiled:
    """A kernel: what it uses, its name, and the machine code that it is in."""

    usage: Usage
    entry: str
    cubin: bytes


class OfflineDriver:
    """Compiles kernels, reads what they use from the machine code, and launches none."""

    def device(self, array: np.ndarray) -> Hashable:
        return ARCHITECTURE

    def attribute(self, number: int, device: Hashable) -> int:
        return H200[number]

    def is_capturing(self, device: Hashable) -> bool:
        return False

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> np.ndarray:
        return np.empty(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> np.ndarray:
        return np.zeros(shape, dtype)

    def compile(
        self, text: str, entries: Sequence[str], device: Hashable
    ) -> Mapping[str, Compiled]:
        cubin = compile_text(text, ARCHITECTURE).cubin
        return {entry: Compiled(usage, entry, cubin) for entry, usage in usage_in(cubin).items()}

    def usage(self, function: Compiled, device: Hashable) -> Usage:
        return function.usage

    def prepare_launch(
        self, function: Compiled, blocks: int, threads: tuple[int, int], device: Hashable
    ) -> NoReturn:
        raise NotImplementedError("there is no device: kernels are compiled only")


@cache
def backend() -> CudaBackend:
    """Return the backend of all kernels that are compiled so."""
    return CudaBackend("offline", OfflineDriver())


def bound_to(passes: tuple[Program, ...], launch: Launch) -> CudaBound:
    """Return a kernel as the backend has it.

    Parameters
    ----------
    passes : tuple of Program
        As they were planned, before any backend's own expansions.
    launch : Launch
        Of a backend that folds no rows: `mixad.broadcast.planned.PlannedKernel.unfolded`.
    """
    launch = replace(launch, spec=replace(launch.spec, passes=passes))
    return backend().bind(backend().compile(launch.spec), launch)


def device_functions(bound: CudaBound) -> tuple[DeviceFunction, ...]:
    """Return what each pass of a kernel uses, in the shape of blocks that mixad would choose.

    Raises
    ------
    BackendError
        If NVRTC is not installed.
    """
    return backend().device_functions(bound, _ANY)


def instructions(bound: CudaBound) -> int:
    """Return how many instructions an element takes on the longest way, in all passes, rounded up.

    Raises
    ------
    BackendError
        If NVRTC or the disassembler is not installed.
    """
    dialect = backend().dialect(bound, ARCHITECTURE, is_aligned=True)
    found: tuple[Compiled, ...] = bound.kernel.functions(dialect, ARCHITECTURE)
    ways = (longest_ways(disassemble(f.cubin))[f.entry] for f in found)
    return sum(-(-way // dialect.vector) for way in ways)


_ANY = np.empty(0)
"""An array, as good as any: all are on one device."""
