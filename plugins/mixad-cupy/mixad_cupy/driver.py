"""CUDA for CuPy arrays: its memory pool, its raw modules, its current stream."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cupy
import numpy as np

from mixad.backends.cuda import Usage, machine_code
from mixad.backends.object_cache import digest

__all__ = ["CupyDriver"]


class CupyDriver:
    """What a `mixad.backends.cuda.CudaBackend` asks of CuPy; a device is its number."""

    def device(self, array: cupy.ndarray) -> int:
        """Return the device of an array."""
        return array.device.id

    def attribute(self, number: int, device: int) -> int:
        """Return what CUDA says of a device."""
        return int(cupy.cuda.runtime.deviceGetAttribute(number, device))

    def is_capturing(self, device: int) -> bool:
        """Whether CuPy's current stream is recorded for a graph."""
        with cupy.cuda.Device(device):
            return bool(cupy.cuda.get_current_stream().is_capturing())

    def address(self, array: cupy.ndarray) -> int:
        """Return the address of the first element."""
        return array.data.ptr

    def empty(self, shape: tuple[int, ...], dtype: Any, device: int) -> cupy.ndarray:
        """Return new memory of CuPy's pool."""
        with cupy.cuda.Device(device):
            return cupy.empty(shape, dtype)

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

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: tuple[int, int],
        words: array[int],
        device: int,
    ) -> None:
        """Launch on CuPy's current stream."""
        with cupy.cuda.Device(device):
            function((blocks,), threads, (np.frombuffer(words, _structure(len(words))),))


@cache
def _structure(words: int) -> np.dtype[Any]:
    """Return the type of a structure of so many words."""
    return np.dtype([("word", np.int64, (words,))])
