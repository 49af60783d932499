"""NVRTC without an array library: what a text compiles to, for devices that need not be there.

Kernels that are launched are compiled by their driver; this is for reading what comes of them.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mixad.errors import BackendError

__all__ = ["OPTIONS", "Code", "compiled"]

OPTIONS = ("--std=c++17", "--fmad=false")
"""How kernels are compiled: no contraction, no fast maths."""

_WHEELS = {"nvidia.cu13": "libnvrtc.so.13", "nvidia.cuda_nvrtc": "libnvrtc.so.12"}
"""Packages that wheels of NVRTC install, and the library in each."""


@dataclass(frozen=True)
class Code:
    """What a module compiles to.

    Attributes
    ----------
    ptx : str
        NVIDIA's assembler for no device in particular.
    cubin : bytes
        Machine code.
    log : str
        What the compiler said.
    """

    ptx: str
    cubin: bytes
    log: str


def compiled(text: str, architecture: str, options: Sequence[str] = ()) -> Code:
    """Compile CUDA C++ that includes nothing.

    Parameters
    ----------
    text : str
        A module.
    architecture : str
        Such as ``"sm_90"``.
    options : sequence of str
        Besides `OPTIONS`.

    Returns
    -------
    Code
        For that architecture.

    Raises
    ------
    BackendError
        If NVRTC is not installed, or does not compile the text; then with its log.
    """
    library, program = _library(), ctypes.c_void_p()
    source = (text.encode(), b"mixad.cu", 0, None, None)
    _check(library.nvrtcCreateProgram(ctypes.byref(program), *source), "nvrtcCreateProgram")
    try:
        given = [o.encode() for o in (f"--gpu-architecture={architecture}", *OPTIONS, *options)]
        array = (ctypes.c_char_p * len(given))(*given)
        status = library.nvrtcCompileProgram(program, len(given), array)
        log = _result(program, "ProgramLog").decode(errors="replace")
        if status:
            raise BackendError(f"NVRTC does not compile a kernel:\n{log}")
        return Code(_result(program, "PTX").decode(), _result(program, "CUBIN"), log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _result(program: ctypes.c_void_p, what: str) -> bytes:
    """Return one of the texts of a program, without the zero at its end."""
    size = ctypes.c_size_t()
    _check(getattr(_library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(_library(), f"nvrtcGet{what}")(program, buffer), what)
    return buffer.raw if what == "CUBIN" else buffer.raw.rstrip(b"\0")


def _check(status: int, what: str) -> None:
    if status:
        raise BackendError(f"NVRTC: {what} fails with status {status}")


@cache
def _library() -> ctypes.CDLL:
    """Return NVRTC: of a wheel, or where the system's loader finds it."""
    for name in _names():
        try:
            return ctypes.CDLL(name)
        except OSError:  # not there, or for another system: the next one
            continue
    raise BackendError(
        "NVRTC is not installed: python -m pip install nvidia-cuda-nvrtc-cu12, or put the CUDA "
        "toolkit's libnvrtc.so on the loader's path"
    )


def _names() -> Iterator[str]:
    for package, name in _WHEELS.items():
        parent = package.partition(".")[0]
        found = importlib.util.find_spec(package) if importlib.util.find_spec(parent) else None
        for folder in found.submodule_search_locations or () if found else ():
            yield str(Path(folder, "lib", name))
    yield from _WHEELS.values()
