"""CUDA for CuPy arrays: its memory pool, its raw modules, its current stream."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np

from mixad.errors import BackendError

__all__ = ["CupyDriver"]

OPTIONS = ("--std=c++17", "--fmad=false")


class CupyDriver:
    """What a `mixad.backends.cuda.CudaBackend` asks of CuPy; a device is its number."""

    def device(self, array: cupy.ndarray) -> int:
        """Return the device of an array."""
        return array.device.id

    def address(self, array: cupy.ndarray) -> int:
        """Return the address of the first element."""
        return array.data.ptr

    def empty(self, shape: tuple[int, ...], dtype: Any, device: int) -> cupy.ndarray:
        """Return new memory of CuPy's pool."""
        with cupy.cuda.Device(device):
            return cupy.empty(shape, dtype)

    def compile(self, text: str, entries: Sequence[str], device: int) -> Mapping[str, Any]:
        """Compile for a device; CuPy keeps what it has compiled on disk."""
        with cupy.cuda.Device(device):
            module = cupy.RawModule(code=text, options=OPTIONS)
            try:
                module.compile()
            except cupy.cuda.compiler.CompileException as error:
                raise BackendError(f"NVRTC does not compile a kernel:\n{error}") from error
            return {entry: module.get_function(entry) for entry in entries}

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: tuple[int, int],
        words: array[int],
        device: int,
    ) -> None:
        """Launch on CuPy's current stream."""
        structure = np.dtype([("word", np.int64, (len(words),))])
        with cupy.cuda.Device(device):
            function((blocks,), threads, (np.frombuffer(words, structure),))
