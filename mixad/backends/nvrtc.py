"""NVRTC without an array library: what a text compiles to, for devices that need not be there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from mixad.backends import object_cache
from mixad.errors import BackendError

__all__ = ["OPTIONS", "Code", "compiled", "kept_machine_code", "machine_code"]

OPTIONS = ("--std=c++17", "--fmad=false")
"""How kernels are compiled: no contraction, no fast maths."""


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


def machine_code(text: str, architecture: str) -> bytes:
    """Return the machine code of CUDA C++ that includes nothing, from the disk if it is there.

    Parameters
    ----------
    text : str
        A module.
    architecture : str
        Such as ``"sm_90"``.

    Raises
    ------
    BackendError
        As of `compiled`.
    """
    return kept_machine_code(
        _version(), architecture, text, lambda: compiled(text, architecture).cubin
    )


def kept_machine_code(
    version: str, architecture: str, text: str, compile: Callable[[], bytes]
) -> bytes:
    """Return what a text has been compiled to before, by any process, or compile and keep it.

    Parameters
    ----------
    version : str
        Of NVRTC.
    architecture, text : str
        As of `machine_code`.
    compile : callable
        Returns the machine code, compiled with `OPTIONS`.
    """
    key = object_cache.digest("nvrtc", version, architecture, *OPTIONS, text)
    folder = object_cache.default()
    cubin = folder.load(key)
    if cubin is None:
        cubin = compile()
        folder.store(key, cubin)
    return cubin


def _version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return f"{major.value}.{minor.value}"


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
    """Return NVRTC, of a wheel or of the CUDA toolkit: whichever NVIDIA's own search finds.

    That search also loads what NVRTC loads by name, which the loader would not find in a wheel.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        raise BackendError(
            "NVRTC is not installed: python -m pip install cuda-pathfinder nvidia-cuda-nvrtc-cu12 "
            "(the first finds the second, or that of a CUDA toolkit)"
        ) from error
    try:
        found = load_nvidia_dynamic_lib("nvrtc")
    except RuntimeError as error:  # not there, or for another system: the search says which
        raise BackendError(
            "NVRTC is not installed: python -m pip install nvidia-cuda-nvrtc-cu12, or name the "
            f"folder of the CUDA toolkit in CUDA_HOME ({error})"
        ) from error
    return ctypes.CDLL(found.abs_path)
