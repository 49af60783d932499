"""CUDA for CuPy arrays: its memory pool, its raw modules, its current stream."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cupy
import numpy as np

from mixad.backends.cuda import Usage, machine_code
from mixad.backends.object_cache import digest

__all__ = ["CupyDriver"]

_current_device = cupy.cuda.runtime.getDevice
"""Returns the current device, in a fraction of the time that entering it takes."""


class CupyDriver:
    """What a `mixad.backends.cuda.CudaBackend` asks of CuPy; a device is its number."""

    # These are called for each array of a launch, so they are functions in C.
    device = staticmethod(attrgetter("device.id"))
    address = staticmethod(attrgetter("data.ptr"))

    def attribute(self, number: int, device: int) -> int:
        """Return what CUDA says of a device."""
        return int(cupy.cuda.runtime.deviceGetAttribute(number, device))

    def is_capturing(self, device: int) -> bool:
        """Whether CuPy's current stream is recorded for a graph."""
        with cupy.cuda.Device(device):
            return bool(cupy.cuda.get_current_stream().is_capturing())

    def empty(self, shape: tuple[int, ...], dtype: Any, device: int) -> cupy.ndarray:
        """Return new memory of CuPy's pool."""
        if _current_device() == device:
            return cupy.ndarray(shape, dtype)
        with cupy.cuda.Device(device):
            return cupy.ndarray(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any, device: int) -> cupy.ndarray:
        """Return memory of CuPy's pool, set to zero on the current stream."""
        with cupy.cuda.Device(device):
            return cupy.zeros(shape, dtype)

    def compile(self, text: str, entries: Sequence[str], device: int) -> Mapping[str, Any]:
        """Compile for a device, or take what is kept on disk, and load it.

        CuPy is given machine code: what it compiles itself takes subnormal float32 for zero.
        """
        current = cupy.cuda.Device(device)
        cubin = machine_code(text, f"sm_{current.compute_capability}")
        with current, TemporaryDirectory(prefix="mixad-") as folder:
            path = Path(folder, digest(cubin))  # by which CuPy remembers what it has loaded
            path.write_bytes(cubin)
            module = cupy.RawModule(path=str(path))
            return {entry: module.get_function(entry) for entry in entries}  # which loads it

    def usage(self, function: Any, device: int) -> Usage:
        """Return what a kernel uses of a multiprocessor."""
        with cupy.cuda.Device(device):
            return Usage(function.num_regs, function.local_size_bytes, function.shared_size_bytes)

    def prepare_launch(
        self, function: Any, blocks: int, threads: tuple[int, int], device: int
    ) -> Callable[[array[int]], None]:
        """Return what launches on CuPy's current stream."""
        grid = (blocks,)

        def launch(words: array[int]) -> None:
            arguments = (np.frombuffer(words, _structure(len(words))),)
            if _current_device() == device:
                function(grid, threads, arguments)
                return
            with cupy.cuda.Device(device):
                function(grid, threads, arguments)

        return launch


@cache
def _structure(words: int) -> np.dtype[Any]:
    """Return the type of so many words, which CuPy passes by value.

    It has no fields: NumPy takes twice as long to tell where an array with fields begins.
    """
    return np.dtype((np.void, 8 * words))
