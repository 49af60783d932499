"""CUDA's driver where there is none: the real cuda-bindings over a library that launches nothing.

What is left is the host's part of a call.  Tests let launches reach an emulator.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

from benchmarks.offline import H200

SOURCE = Path(__file__).with_suffix(".cpp")
NAME = "libcuda.so.1"

_SIZE, _INT, _UNSIGNED, _POINTER = (
    ctypes.c_ssize_t,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_void_p,
)


class Hooks(ctypes.Structure):
    """What the library asks: of an image, a kernel, a device, a launch."""

    _fields_ = (
        ("load", ctypes.CFUNCTYPE(_SIZE, _POINTER)),
        ("find", ctypes.CFUNCTYPE(_SIZE, _SIZE, ctypes.c_char_p)),
        ("function_attribute", ctypes.CFUNCTYPE(_INT, _INT, _SIZE)),
        ("device_attribute", ctypes.CFUNCTYPE(_INT, _INT)),
        ("launch", ctypes.CFUNCTYPE(_INT, _SIZE, *[_UNSIGNED] * 3, _POINTER, _POINTER)),
    )


def hooks(**given: object) -> Hooks:
    """Return hooks for one H200 on which nothing is launched, but for those that are given."""
    numbers = count(1)
    own = {
        "load": lambda image: next(numbers),
        "find": lambda module, name: next(numbers),
        "function_attribute": lambda attribute, function: 0,
        "device_attribute": H200.__getitem__,
        **given,
    }
    return Hooks(**{name: type(own[name]) for name, type in Hooks._fields_ if name in own})


@cache
def library() -> ctypes.CDLL:
    """Return the library, compiled by g++ and loaded: CUDA's driver for all of this process.

    Raises
    ------
    RuntimeError
        If there is no g++.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("a stand-in for CUDA's driver is compiled by g++, which is not here")
    folder = tempfile.mkdtemp(prefix="mixad-driver-")
    atexit.register(shutil.rmtree, folder)
    target = Path(folder, NAME)
    command = [compiler, "-O2", "-shared", "-fPIC", f"-Wl,-soname,{NAME}", SOURCE, "-o", target]
    subprocess.run([*command, "-ldl"], check=True)
    return ctypes.CDLL(str(target))


def use(given: Hooks) -> None:
    """Let the library ask hooks, from now on and for as long as the process lives."""
    _USED.append(given)
    library().stand_in(ctypes.byref(given))


_USED: list[Hooks] = []
