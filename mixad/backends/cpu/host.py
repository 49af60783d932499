"""The machine: its instruction set and vector maths, and how many cores we may use."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import platform
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

import llvmlite
import llvmlite.binding as llvm

from mixad import config
from mixad.backends.cpu.container import core_quota
from mixad.errors import BackendError
from mixad.version import __version__

__all__ = [
    "LLVM_LOCK",
    "VECTOR_FUNCTIONS",
    "Host",
    "VectorFunction",
    "address_of",
    "detect",
    "usable_cpus",
]

LLVM_LOCK = threading.RLock()
"""Held during all use of LLVM: its parts are not thread safe, and llvmlite locks single calls only.

A fork waits for it too, or the child of a process that was compiling would never compile.
"""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LLVM_LOCK.acquire,
        after_in_parent=LLVM_LOCK.release,
        after_in_child=LLVM_LOCK.release,
    )

VECTOR_FUNCTIONS = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp10 exp2 expm1 hypot "
    "log log10 log1p log2 pow sin sinh tan tanh"
).split()
"""The functions of libmvec that kernels may call; glibc before 2.35 has six of them."""

_ARITY = {"atan2": 2, "hypot": 2, "pow": 2}

# The vector ABI's letter for a width, and a generic CPU of that width: with it, one machine
# compiles and runs kernels as an older one would.
_X86_WIDTHS = {128: ("b", "x86-64-v2"), 256: ("d", "x86-64-v3"), 512: ("e", "x86-64-v4")}
_AVX512 = ("avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd")

_SCALAR_MATHS = {"linux": "libm.so.6", "darwin": "libSystem.B.dylib", "win32": "ucrtbase.dll"}
_VECTOR_MATHS = "libmvec.so.1"


@dataclass(frozen=True)
class VectorFunction:
    """One function of libmvec."""

    symbol: str  # such as "_ZGVdN8v_expf"
    lanes: int  # values in a vector
    arity: int  # vectors that it takes


@dataclass(frozen=True)
class Host:
    """The machine that kernels are compiled for."""

    cpu: str  # LLVM's name of it
    features: str  # LLVM's string, "+avx2,-avx512f,…"
    vector_bits: int  # of a register: 128, 256 or 512
    vector_library: str | None  # None if there is none that kernels can call
    triple: str  # LLVM's target triple

    @property
    def has_half(self) -> bool:
        """Whether it has instructions between float16 and float32: all of AArch64, x86 by F16C."""
        is_arm = self.triple.startswith(("aarch64", "arm64"))
        return is_arm or "+f16c" in self.features.split(",")

    def fingerprint(self) -> str:
        """Return what object code depends on besides its source: part of a cache key."""
        parts = (
            self.triple,
            self.cpu,
            self.features,
            str(self.vector_bits),
            llvmlite.__version__,
            ".".join(map(str, llvm.llvm_version_info)),
            __version__,
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def vector_function(self, name: str, element_bits: int) -> VectorFunction | None:
        """Return the vector form of a libm function, in this host's width, by C's name for doubles.

        None where the library has no such symbol: call libm for each lane instead.
        """
        if self.vector_library is None or name not in VECTOR_FUNCTIONS:
            return None
        letter, _ = _X86_WIDTHS[self.vector_bits]
        lanes = self.vector_bits // element_bits
        arity = _ARITY.get(name, 1)
        suffix = "f" if element_bits == 32 else ""
        symbol = f"_ZGV{letter}N{lanes}{'v' * arity}_{name}{suffix}"
        return VectorFunction(symbol, lanes, arity) if address_of(symbol) else None

    def with_vector_bits(self, bits: int) -> Host:
        """Return this host as a generic x86-64 machine with registers of 128, 256 or 512 bits.

        BackendError if it does not have them.
        """
        if bits == self.vector_bits:
            return self
        if bits not in _X86_WIDTHS or bits > self.vector_bits or not _is_x86():
            raise BackendError(
                f"cannot compile for {bits}-bit vectors: this host ({self.cpu}) runs "
                f"{self.vector_bits}-bit ones; use that width"
            )
        return replace(self, cpu=_X86_WIDTHS[bits][1], features="", vector_bits=bits)


def named_host(cpu: str) -> Host:
    """Return a machine to compile for: ``"native"``, this one, or a generic one of its kind.

    It need not run here.  BackendError for names that are not known.
    """
    host = detect()
    generic = (
        {name: bits for bits, (_, name) in _X86_WIDTHS.items()}
        if _is_x86()
        else {"generic": host.vector_bits}
    )
    if cpu == "native":
        return host
    if cpu not in generic:
        known = ", ".join(map(repr, ["native", *generic]))
        raise BackendError(f"cpu={cpu!r} is not known on this kind of machine; name one of {known}")
    return replace(host, cpu=cpu, features="", vector_bits=generic[cpu])


@functools.cache
def detect() -> Host:
    """Return the machine that this process runs on; it is examined once."""
    with LLVM_LOCK:
        return _detect()


@functools.cache
def address_of(symbol: str) -> int | None:
    """Return where a function of the process or of a loaded library is; None if there is none."""
    with LLVM_LOCK:
        address: int | None = llvm.address_of_symbol(symbol)
    return address


def _detect() -> Host:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _load_library(_SCALAR_MATHS.get(sys.platform))
    features = llvm.get_host_cpu_features()
    return Host(
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bits=_vector_bits(features),
        vector_library=_vector_library(),
        triple=llvm.get_process_triple(),
    )


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _vector_bits(features: Mapping[str, bool]) -> int:
    if all(features.get(name, False) for name in _AVX512):
        return 512
    return 256 if features.get("avx2", False) else 128


def _load_library(name: str | None) -> bool:
    if name is None:
        return False
    try:
        llvm.load_library_permanently(name)
    except RuntimeError:
        return False
    return True


def _vector_library() -> str | None:
    # On other CPUs libmvec has a calling convention of its own, untested here.
    if sys.platform == "linux" and _is_x86() and _load_library(_VECTOR_MATHS):
        return _VECTOR_MATHS
    return None


def usable_cpus() -> int:
    """Return how many threads a kernel may use, now.

    That is ``MIXAD_NUM_THREADS`` where it is set, else the cores that the process may run on, up to
    the quota of its control groups.
    """
    threads = config.NUM_THREADS.read()
    if config.NUM_THREADS.is_set():
        return threads
    quota = core_quota()
    return threads if quota is None else max(1, min(threads, math.ceil(quota)))
