"""Compile, bind, launch: broadcasting and sums are NumPy's, the elements are C's."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mixad.emit.array_run import sum_by_halves
from mixad.errors import BackendError
from mixad.kernel.spec import KernelSpec, Launch
from mixad_example.emit import ENTRY, emit

__all__ = ["ExampleBackend"]

# IEEE arithmetic and nothing else: no contraction to fma, wrapping integers.
_FLAGS = ("-std=c11", "-O1", "-ffp-contract=off", "-fwrapv", "-shared", "-fPIC")


@dataclass(frozen=True)
class _Kernel:
    """A compiled kernel: its function keeps the library loaded."""

    spec: KernelSpec
    function: Any


class ExampleBackend:
    """Kernels in C, compiled by ``cc``."""

    name = "example"

    def __init__(self) -> None:
        found = shutil.which("cc")
        if found is None:
            raise BackendError("there is no C compiler, `cc`, in the PATH")
        self._compiler = found

    def emit(self, spec: KernelSpec) -> str:
        """Return the C text of a kernel."""
        return emit(spec)

    def compile(self, spec: KernelSpec) -> _Kernel:
        """Return a kernel ready to run."""
        with tempfile.TemporaryDirectory(prefix="mixad-example-") as folder:
            source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
            source.write_text(emit(spec), "ascii")
            command = [self._compiler, *_FLAGS, str(source), "-o", str(library), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BackendError(f"cc does not compile a kernel:\n{done.stderr}")
            function = ctypes.CDLL(str(library))[ENTRY]  # loaded: the file may go
        function.restype = ctypes.c_int64
        return _Kernel(spec, function)

    def bind(self, executable: _Kernel, launch: Launch) -> tuple[_Kernel, Launch]:
        """Return a kernel with its shapes; nothing here is worth doing before the data is there."""
        return executable, launch

    def launch(self, bound: tuple[_Kernel, Launch], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run a kernel over new arrays; ctypes lets other threads run meanwhile."""
        kernel, launch = bound
        params = kernel.spec.passes[0].params
        given = [_laid_out(p, a, launch.shape) for p, a in zip(params, arguments, strict=True)]
        extents = [np.array(a.shape, np.int64) for a in given]
        results = [np.empty(launch.shape, o.type.dtype) for o in kernel.spec.outputs]
        count = ctypes.c_int64(math.prod(launch.shape))
        outside = kernel.function(count, *map(_pointers, (given, extents, results)))
        if outside:
            name, shape = params[outside - 1].name, given[outside - 1].shape
            raise IndexError(f"{name!r} of shape {shape} is indexed outside its extents")
        pairs = zip(results, launch.results, strict=True)
        return tuple(sum_by_halves(result, shape, np) for result, shape in pairs)


def _laid_out(param: Any, argument: Any, shape: tuple[int, ...]) -> Any:
    """Return an argument as the C function reads it: contiguous, a lane one value per element."""
    array = np.asarray(argument, param.var.type.dtype)
    return np.ascontiguousarray(np.broadcast_to(array, shape) if param.kind == "lane" else array)


def _pointers(arrays: Sequence[Any]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
