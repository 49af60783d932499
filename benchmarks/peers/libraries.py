"""Peers' libraries, imported and set to the same number of threads as everything else.

Each function imports one library when it is asked for, so that a run of two workloads needs no
more than those two use. It raises `ImportError` or `UnavailableError` where that cannot work.
"""

from __future__ import annotations

import ctypes.util
import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import THREAD_VARIABLES
from benchmarks.peers.harness import Call, UnavailableError, Unpack

LLVM_VERSIONS = (16, 17, 18, 19, 15, 14)  # what Dr.Jit is known to work with, best first
LLVM_FOLDERS = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "local/lib")


def thread_count() -> int:
    """Return the number of threads that every contender is given."""
    return int(os.environ[THREAD_VARIABLES[0]])


def torch() -> ModuleType:
    """Import PyTorch; its compiler forgets earlier cases, so that each compiles for its shapes."""
    module = importlib.import_module("torch")
    module.set_num_threads(thread_count())
    module.compiler.reset()
    return module


def jax() -> ModuleType:
    """Import JAX with 64-bit types; its CPU client follows the affinity of the process."""
    module = importlib.import_module("jax")
    module.config.update("jax_enable_x64", True)
    return module


def warp() -> ModuleType:
    """Import Warp, quiet; kernels on its CPU device run on one thread, it has no other choice."""
    module = importlib.import_module("warp")
    module.config.log_level = module.LOG_ERROR
    return module


def numba() -> ModuleType:
    """Import Numba."""
    module = importlib.import_module("numba")
    module.set_num_threads(thread_count())
    return module


def autograd() -> ModuleType:
    """Import autograd with its NumPy wrapper."""
    importlib.import_module("autograd.numpy")
    return importlib.import_module("autograd")


def drjit() -> ModuleType:
    """Import Dr.Jit with an LLVM shared library that it can load."""
    if "DRJIT_LIBLLVM_PATH" not in os.environ and (path := find_llvm()) is not None:
        os.environ["DRJIT_LIBLLVM_PATH"] = path
    module = importlib.import_module("drjit")
    llvm = importlib.import_module("drjit.llvm.ad")
    try:
        module.eval(llvm.Float([0.0, 1.0]) + 1)
    except RuntimeError as error:
        raise UnavailableError("no LLVM shared library (set DRJIT_LIBLLVM_PATH)") from error
    module.set_thread_count(thread_count())
    return module


def find_llvm() -> str | None:
    """Return the LLVM shared library for Dr.Jit from the standard places, None if there is none."""
    if sys.platform == "win32":
        return ctypes.util.find_library("LLVM-C")
    prefixes = [Path("/usr"), Path(sys.prefix)]
    for version in LLVM_VERSIONS:
        places = [prefix / folder for prefix in prefixes for folder in LLVM_FOLDERS]
        places += [prefix / f"lib/llvm-{version}/lib" for prefix in prefixes]
        places += [prefix / f"opt/llvm@{version}/lib" for prefix in prefixes]
        for place in places:
            for pattern in (f"libLLVM-{version}.so*", f"libLLVM.so.{version}*", "libLLVM.dylib"):
                for path in sorted(place.glob(pattern)):
                    return str(path)
    return None


def copy_bytes(moved: int) -> tuple[Call, Unpack]:
    """Return a copy, on all threads, that moves so many bytes: half are read, half written.

    It writes into a buffer that exists: the least that work with this much input and output can
    take, with no page left to be mapped.
    """
    source = np.ones(moved // 8, np.float32)
    target = np.zeros_like(source)
    parts = list(
        zip(
            np.array_split(target, thread_count()),
            np.array_split(source, thread_count()),
            strict=True,
        )
    )
    pool = ThreadPoolExecutor(max(1, thread_count() - 1))

    def call() -> None:
        waiting = [pool.submit(np.copyto, *part) for part in parts[1:]]
        np.copyto(*parts[0])
        for part in waiting:
            part.result()

    return call, nothing


def copy_bytes_torch(moved: int) -> tuple[Call, Unpack]:
    """Return the same copy by PyTorch, whose workers are handed their parts sooner."""
    module = torch()
    source = module.ones(moved // 8)
    target = module.zeros_like(source)

    def call() -> None:
        target.copy_(source)

    return call, nothing


def nothing(result: object) -> list[NDArray]:
    """Return the arrays to check in the result of a copy: none."""
    return []
