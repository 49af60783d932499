"""NVRTC without an array library: what a text compiles to, for devices that need not be there."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mixad.backends import object_cache
from mixad.errors import BackendError

__all__ = ["OPTIONS", "Code", "compile_text", "machine_code"]

OPTIONS = ("--std=c++17", "--fmad=false")
"""Options of the compiler: no contraction, no fast maths."""


@dataclass(frozen=True)
class Code:
    """What a module compiles to."""

    ptx: str  # NVIDIA's assembler for no device in particular
    cubin: bytes  # machine code; none for an architecture such as "compute_90"
    log: str  # what the compiler said


def compile_text(text: str, architecture: str, options: Sequence[str] = ()) -> Code:
    """Compile CUDA C++ that includes nothing for an architecture, such as ``"sm_90"``.

    BackendError without NVRTC, or with its log.
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
        cubin = _result(program, "CUBIN") if architecture.startswith("sm_") else b""
        return Code(_result(program, "PTX").decode(), cubin, log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def machine_code(text: str, architecture: str) -> bytes:
    """Return what a device loads of CUDA C++ that includes nothing, from the disk if it is there.

    For a device that NVRTC does not know yet it is PTX, which the device's driver compiles.  What
    is on the disk needs no NVRTC.
    """
    folder, key = object_cache.default(), ("nvrtc", architecture, *OPTIONS, _without_lines(text))
    used = folder.load(_LAST_USED)
    version = _version() if used is None or _is_installed() else used.decode()
    code = folder.load(object_cache.digest(*key, version))
    if code is None:
        code = _compile_cubin(architecture, text)
        folder.store(object_cache.digest(*key, version), code)
        if used != version.encode():
            folder.store(_LAST_USED, version.encode())
    return code


_LAST_USED = object_cache.digest("the version of NVRTC that was last used")


def _without_lines(text: str) -> str:
    """Return a text without the user's lines and their places, which the code has nothing of."""
    own = (line for line in text.splitlines() if not line.lstrip().startswith(("//", "#line ")))
    return "\n".join(own)


def _compile_cubin(architecture: str, text: str) -> bytes:
    wanted, known = int(architecture.removeprefix("sm_")), _architectures()
    if wanted in known:
        return compile_text(text, architecture).cubin
    newest = max((a for a in known if a < wanted), default=wanted)
    return compile_text(text, f"compute_{newest}").ptx.encode() + b"\0"


def _architectures() -> list[int]:
    """Return the compute capabilities that NVRTC compiles for, such as 90."""
    count = ctypes.c_int()
    _check(_library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    found = (ctypes.c_int * count.value)()
    _check(_library().nvrtcGetSupportedArchs(found), "nvrtcGetSupportedArchs")
    return list(found)


def _is_installed() -> bool:
    try:
        return bool(_library())
    except BackendError:
        return False


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
