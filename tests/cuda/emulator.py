"""A driver for the CUDA backend that compiles its texts with a C++ compiler and runs them here."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mixad.backends.cuda import CudaBackend
from mixad.errors import BackendError

HEADER = Path(__file__).with_name("emulator.hpp")
COMPILER = shutil.which("g++")
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC",
         "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-variable",
         "-Wno-tautological-compare")  # fmt: skip


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mixad-emulator-")


@functools.cache
def library(text: str, entries: tuple[str, ...], extra: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Compile a text for the CPU, once."""
    whole = "\n".join([text, *(f"EMULATED({entry})" for entry in entries), ""])
    name = hashlib.sha256(repr((whole, extra)).encode()).hexdigest()[:24]
    source = Path(_folder().name) / f"{name}.cu"
    source.write_text(whole, encoding="utf-8")
    target = source.with_suffix(".so")
    command = [COMPILER, "-x", "c++", *FLAGS, *extra, "-include", str(HEADER), str(source), "-o",
               str(target)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(done.stderr)
    return ctypes.CDLL(str(target))


class EmulatedDriver:
    """NumPy arrays as a device; every launch draws another order of blocks and threads.

    Parameters
    ----------
    blocks : int
        Most blocks of a grid: fewer than there are tiles, so that blocks take several.
    offset : int
        Bytes by which new arrays are off the alignment that a device gives.
    """

    def __init__(self, blocks: int = 3) -> None:
        self.blocks = blocks
        self.launches: list[tuple[str, int, tuple[int, int]]] = []
        self._seeds = itertools.count(1)

    def device(self, array: np.ndarray) -> Hashable:
        return "cpu"

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        memory = np.full(count + 16, 0xFF, np.uint8)  # garbage: nan where it is read as a float
        start = -memory.ctypes.data % 16
        return memory[start : start + count].view(dtype).reshape(shape)

    def compile(self, text: str, entries: Sequence[str], device: Hashable) -> Mapping[str, Any]:
        loaded = library(text, tuple(entries))
        functions = {}
        for entry in entries:
            function = getattr(loaded, f"run_{entry}")
            function.restype = ctypes.c_char_p
            functions[entry] = function
        return functions

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: tuple[int, int],
        words: array[int],
        device: Hashable,
    ) -> None:
        blocks = min(blocks, self.blocks)
        self.launches.append((function.__name__, blocks, threads))
        seed = ctypes.c_uint64(next(self._seeds))
        address = ctypes.c_void_p(words.buffer_info()[0])
        error = function(address, blocks, *threads, seed)
        if error:
            raise BackendError(error.decode())


def emulated() -> CudaBackend:
    """Return a backend of its own."""
    return CudaBackend("emulated", EmulatedDriver())
