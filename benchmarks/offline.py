"""What NVRTC makes of kernels for a device that need not be there: registers and occupancy.

Kernels are compiled and nothing is launched.  The device is one H200, by what CUDA says of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn

import numpy as np

from mixad.backends.cuda import ATTRIBUTES, CudaBackend, Usage, compiled, usage_in
from mixad.backends.hookspecs import DeviceFunction
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

    def compile(self, text: str, entries: Sequence[str], device: Hashable) -> Mapping[str, Usage]:
        return usage_in(compiled(text, ARCHITECTURE).cubin)

    def usage(self, function: Usage, device: Hashable) -> Usage:
        return function

    def prepare_launch(
        self, function: Usage, blocks: int, threads: tuple[int, int], device: Hashable
    ) -> NoReturn:
        raise NotImplementedError("there is no device: kernels are compiled only")


@cache
def backend() -> CudaBackend:
    """Return the backend of all kernels that are compiled so."""
    return CudaBackend("offline", OfflineDriver())


def device_functions(
    passes: tuple[Program, ...], launch: Launch, like: np.ndarray
) -> tuple[DeviceFunction, ...]:
    """Return what each pass of a kernel uses, in the shape of blocks that mixad would choose.

    Parameters
    ----------
    passes : tuple of Program
        As they were planned, before any backend's own expansions.
    launch : Launch
        Of a backend that folds no rows: `mixad.broadcast.planned.PlannedKernel.unfolded`.
    like : ndarray
        Any of its arrays.

    Raises
    ------
    BackendError
        If NVRTC is not installed.
    """
    launch = replace(launch, spec=replace(launch.spec, passes=passes))
    bound = backend().bind(backend().compile(launch.spec), launch)
    return backend().device_functions(bound, like)
