"""A driver for the CUDA backend that compiles its texts with a C++ compiler and runs them here."""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import shutil
import subprocess
import tempfile
import threading
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.offline import H200
from mixad.backends.cuda import ATTRIBUTES, CudaBackend, Usage, compile_text, usage_in
from mixad.backends.hookspecs import Capability
from mixad.emit.cuda.instructions import native
from mixad.errors import BackendError
from mixad.scalar.ops import TABLE
from mixad.scalar.types import F32, F64, STORED_TYPES, ScalarType

HEADER = Path(__file__).with_name("cuda_emulator.hpp")
SCHEDULER = HEADER.with_suffix(".cpp")
FLAGS = ("-std=c++17", "-O0", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC",
         "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-unused-variable",
         "-Wno-unused-but-set-variable", "-Wno-tautological-compare")  # fmt: skip
ALIGNMENT = 16


UNTESTED: dict[str, tuple[ScalarType, ...]] = {
    **{op.name: (F32, F64) for op in TABLE if op.lowering == "libm"},
    **{op.name: (F32,) for op in TABLE if native(op.name, F32)},
    "bounded_reciprocal": (F32,),
}
"""Ops that a device computes by functions or instructions of CUDA's own, and the emulator by libm
or a division: what it says of their digits holds here only.  `tests/gpu` compares them first."""


@functools.cache
def compiler() -> str:
    """Return the C++ compiler, or skip the test."""
    return shutil.which("g++") or pytest.skip("no g++, which the emulator of CUDA needs")


@functools.cache
def folder() -> str:
    """Return where everything compiled is until the process ends."""
    made = tempfile.mkdtemp(prefix="mixad-emulator-")
    atexit.register(shutil.rmtree, made)
    return made


@functools.cache
def emulator(flags: tuple[str, ...]) -> tuple[Path, Path]:
    """Return the header, beside what g++ keeps of reading it with these flags, and the library."""
    here = Path(tempfile.mkdtemp(dir=folder()))
    header, library = Path(shutil.copy(HEADER, here)), here / "emulator.so"
    command = [compiler(), *FLAGS, *flags]
    subprocess.run([*command, "-w", "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    subprocess.run([*command, SCHEDULER, "-o", library], check=True)
    return header, library


def built(text: str, flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Compile C++ after the emulator's header, and load it."""
    with tempfile.NamedTemporaryFile("w", suffix=".cu", dir=folder(), delete=False) as source:
        source.write(text)
    target = f"{source.name}.so"
    header, library = emulator(flags)
    command = [compiler(), *FLAGS, *flags, "-include", header, "-x", "c++", source.name,
               "-x", "none", library, "-o", target]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(done.stderr)
    assert not done.stderr, done.stderr
    return ctypes.CDLL(target)


@dataclass
class _Text:
    """A module that is asked for; compiled, with all that are, when one is first launched."""

    text: str
    entries: Sequence[str]
    number: int
    loaded: ctypes.CDLL | None = None

    @property
    def named_apart(self) -> str:
        """The text in a namespace of its own, its kernels under names of their own."""
        defines = "".join(f"#define {e} {self.symbol(e)}\n" for e in self.entries)
        undefines = "".join(f"#undef {e}\n" for e in self.entries)
        emulated = "".join(f"EMULATED({self.symbol(e)})\n" for e in self.entries)
        inside = f"{self.text}\n{undefines}{emulated}"
        return f"{defines}namespace text_{self.number} {{\n{inside}}}\n"

    def symbol(self, entry: str) -> str:
        return f"{entry}_{self.number}"


class EmulatedDriver:
    """NumPy arrays as a device; every launch draws another order of blocks and threads.

    Parameters
    ----------
    blocks : int
        Most blocks of a grid: fewer than there are tiles, so that blocks take several.
    flags : sequence of str
        More for the compiler.
    """

    def __init__(self, blocks: int = 3, flags: Sequence[str] = ()) -> None:
        self.blocks = blocks
        self.flags = flags
        self.captures = False
        self.used = Usage(registers=32, local=0, shared=0)
        self.launches: list[tuple[str, int, tuple[int, int]]] = []
        self._seeds = itertools.count(1)
        self._numbers = itertools.count()
        self._waiting: list[_Text] = []
        self._lock = threading.Lock()  # shared memory of the emulator is one for all launches

    def device(self, array: np.ndarray) -> Hashable:
        return "emulated"

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        memory = np.full(count + ALIGNMENT, 0xFF, np.uint8)  # garbage: as a float, nan
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + count].view(dtype).reshape(shape)

    def zeros(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> np.ndarray:
        memory = EmulatedDriver.empty(self, shape, dtype, device)
        memory[...] = 0
        return memory

    def attribute(self, number: int, device: Hashable) -> int:
        return H200[number]

    def is_capturing(self, device: Hashable) -> bool:
        return self.captures

    def usage(self, function: Any, device: Hashable) -> Usage:
        return self.used

    def compile(self, text: str, entries: Sequence[str], device: Hashable) -> Mapping[str, Any]:
        asked = _Text(text, entries, next(self._numbers))
        self._waiting.append(asked)
        return {entry: (asked, entry) for entry in entries}

    def prepare_launch(self, *prepared: Any) -> Callable[[array[int]], None]:
        return functools.partial(self.launch, *prepared)

    def launch(
        self,
        function: tuple[_Text, str],
        blocks: int,
        threads: tuple[int, int],
        device: Hashable,
        words: array[int],
    ) -> None:
        text, entry = function
        blocks = min(blocks, self.blocks)
        address = ctypes.c_void_p(words.buffer_info()[0])
        with self._lock:
            if text.loaded is None:
                self._load()
            run = getattr(text.loaded, f"run_{text.symbol(entry)}")
            run.restype = ctypes.c_char_p
            self.launches.append((entry, blocks, threads))
            error = run(address, blocks, *threads, ctypes.c_uint64(next(self._seeds)))
        if error:
            raise BackendError(error.decode())

    def _load(self) -> None:
        asked, self._waiting = self._waiting, []
        loaded = built("".join(t.named_apart for t in asked), self.flags)
        for text in asked:
            text.loaded = loaded


class DryDriver(EmulatedDriver):
    """Keeps the texts of kernels and runs none: results are zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> np.ndarray:
        return self.zeros(shape, dtype, device)

    def compile(self, text: str, entries: Sequence[str], device: Hashable) -> Mapping[str, Any]:
        self.texts.append(text)
        return dict.fromkeys(entries)

    def launch(self, function: Any, *rest: Any) -> None:
        pass


class CompilingDriver(DryDriver):
    """Compiles kernels for a device that need not be there, and runs none.

    Parameters
    ----------
    architecture : str
        Of the device.
    """

    def __init__(self, architecture: str) -> None:
        super().__init__()
        self.architecture = architecture

    def compile(self, text: str, entries: Sequence[str], device: Hashable) -> Mapping[str, Any]:
        super().compile(text, entries, device)
        return usage_in(compile_text(text, self.architecture).cubin)

    def attribute(self, number: int, device: Hashable) -> int:
        major, minor = self.architecture[3:-1], self.architecture[-1]
        named = {ATTRIBUTES["major"]: int(major), ATTRIBUTES["minor"]: int(minor)}
        return named.get(number, H200[number])

    def usage(self, function: Usage, device: Hashable) -> Usage:
        return function


def _has_nvrtc() -> bool:
    try:
        compile_text("", "sm_80")
    except BackendError as error:
        if "NVRTC is not installed" in str(error):
            return False
        raise
    return True


needs_nvrtc = pytest.mark.skipif(
    not _has_nvrtc(), reason="NVRTC is not installed: python -m pip install -e .[test-cuda]"
)


CAPABILITY = Capability(
    ("numpy",),
    ("cpu",),
    frozenset(t.dtype_name for t in STORED_TYPES),
    native=True,
    writes_parts=True,
    stores_beside=True,
    accumulates=frozenset({"add", "min", "max", "write"}),
)
"""What the emulated backend can do."""


def emulated(**options: Any) -> CudaBackend:
    """Return a backend of its own."""
    return CudaBackend("emulated", EmulatedDriver(**options))
