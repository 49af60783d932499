"""`BroadcastFunction.export`: kernels as files that need neither Python nor mixad."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.compiler import relocatable_object
from mixad.backends.cpu.host import named_host
from mixad.backends.cpu.symbols import is_vector_function, read_symbols
from mixad.backends.cuda.bound import are_rows_aligned, widest_of
from mixad.backends.nvrtc import OPTIONS
from mixad.emit.cuda import THREADS, accumulator
from mixad.emit.llvm.text import ENTRY
from mixad.errors import BackendError, ConfigurationError
from mixad.export import c_text, cuda_text
from mixad.export.files import write_folder
from mixad.export.kernels import Argument, Call, Function, functions_of, identifier
from mixad.export.variants import Variant, variant_for, variants_of
from mixad.kernel.binding import bind
from mixad.version import __version__

__all__ = ["Export", "export_call"]


@dataclass(frozen=True)
class Export:
    """What `BroadcastFunction.export` has written.

    Attributes
    ----------
    folder : Path
        Where it is.
    files : tuple of str
        Their names there.
    symbols : tuple of str
        The functions that a program calls.
    command : str
        What links them to a shared library, or compiles them, in that folder.
    library : Path or None
        The shared library, where there was a linker.
    """

    folder: Path
    files: tuple[str, ...]
    symbols: tuple[str, ...]
    command: str
    library: Path | None

    def __str__(self) -> str:
        made = ", ".join(self.files)
        linked = "built by" if self.library else "to be built, there, by"
        return (
            f"{self.folder}: {made}\nfunctions: {', '.join(self.symbols)}\n{linked}: {self.command}"
        )


def export_call(
    call: Call,
    folder: str | os.PathLike[str],
    what: Sequence[str],
    target: str,
    cpu: str,
    *,
    dynamic: bool,
    name: str | None,
) -> Export:
    """Write the functions that are asked for of a call.

    Parameters
    ----------
    call : Call
        Of a kernel, with the example's arguments.
    folder : str or path
        Where the files go.
    what, target, cpu, dynamic, name : str or bool
        As `BroadcastFunction.export` has them.

    Returns
    -------
    Export
        What was written.
    """
    if target not in _TARGETS:
        raise ConfigurationError(
            f"target must be one of {', '.join(map(repr, _TARGETS))}, not {target!r}"
        )
    named = identifier(call.name) if name is None else name
    if named != identifier(named):
        raise ConfigurationError(f"name={named!r} is no name in C; write {identifier(named)!r}")
    functions = functions_of(call, (what,) if isinstance(what, str) else what)
    fill = _TARGETS[target](call, named, functions, cpu, dynamic=dynamic)
    where = Path(folder).absolute()
    record = write_folder(where, fill)
    library = record["library"]
    if library is None and target == "c":
        print(
            f"no C compiler is found; what makes a shared library, in {where}: {record['command']}"
        )
    return Export(
        where,
        tuple(record["files"]),
        tuple(record["symbols"]),
        record["command"],
        None if library is None else where / library,
    )


# -- C ---------------------------------------------------------------------------------------------


def _for_the_cpu(
    call: Call, name: str, functions: Sequence[Function], cpu: str, *, dynamic: bool
) -> Callable[[Path], dict[str, Any]]:
    """Return what writes an export for the CPU, compiled before anything is written."""
    host = named_host(cpu)
    variants = [_variants(f, folds=True, dynamic=dynamic) for f in functions]
    symbols = [
        [f"{name}_{f.what}_kernel_{k}" for k in range(len(own))]
        for f, own in zip(functions, variants, strict=True)
    ]
    backend, texts = CpuBackend(host), []
    for own, named in zip(variants, symbols, strict=True):
        for variant, symbol in zip(own, named, strict=True):
            entry = f"define void @{ENTRY}("
            texts.append(
                backend.emit(variant.spec).replace(entry, f"define hidden void @{symbol}(")
            )
    code = relocatable_object(texts, host)
    needed = read_symbols(code).undefined
    libraries = ["-lm", *(["-lmvec"] if any(map(is_vector_function, needed)) else [])]
    words = c_text.plan_words(functions, variants)
    text = c_text.source(name, functions, variants, symbols, dynamic=dynamic)
    command, library = _linking(name, libraries)

    def fill(folder: Path) -> dict[str, Any]:
        (folder / f"{name}.o").write_bytes(code)
        (folder / f"{name}.h").write_text(c_text.header(name, functions, words), "utf-8")
        (folder / f"{name}.c").write_text(text, "utf-8")
        files = [f"{name}.o", f"{name}.h", f"{name}.c"]
        linked = shutil.which(command[0]) is not None
        if linked:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BackendError(f"export: {' '.join(command)} fails:\n{done.stderr}")
            files.append(library)
        return {
            **_record(call, name, "c", functions, dynamic=dynamic),
            "cpu": cpu,
            "triple": host.triple,
            "instructions": host.cpu,
            "vector_bits": host.vector_bits,
            "convention": "that of C; one thread, unless the caller shares out tiles",
            "files": [*files, "export.json"],
            "symbols": _symbols(name, functions),
            "needs": sorted(needed),
            "libraries": libraries,
            "command": " ".join(command),
            "library": library if linked else None,
        }

    return fill


_SUFFIXES = MappingProxyType({"darwin": ".dylib", "win32": ".dll"})


def _linking(name: str, libraries: Sequence[str]) -> tuple[list[str], str]:
    """Return the command that makes a shared library, and the file that it makes."""
    found = filter(shutil.which, ("cc", "gcc", "clang"))
    library = f"{name}{_SUFFIXES.get(sys.platform, '.so')}"  # libm.so would be taken for libm
    return [next(found, "cc"), "-O2", "-shared", "-fPIC", "-o", library, f"{name}.c", f"{name}.o",
            *libraries], library  # fmt: skip


def _variants(function: Function, *, folds: bool, dynamic: bool) -> tuple[Variant, ...]:
    """Return the kernels of a function: one for the example's extents and strides, or all."""
    launch = function.launch(folds=folds)
    axes = len(launch.shape)
    orders = dict.fromkeys([tuple(range(axes)), launch.order])
    variants = variants_of(function, orders, folds=folds)
    return variants if dynamic else (variant_for(variants, launch),)


def _symbols(name: str, functions: Sequence[Function]) -> list[str]:
    own = [f"{name}_{f.what}{end}" for f in functions for end in ("", "_bind")]
    return [*own, f"{name}_run", f"{name}_finish"]


# -- CUDA ------------------------------------------------------------------------------------------


def _for_cuda(
    call: Call, name: str, functions: Sequence[Function], cpu: str, *, dynamic: bool
) -> Callable[[Path], dict[str, Any]]:
    """Return what writes an export for CUDA devices."""
    if cpu != "native":
        raise ConfigurationError(f"cpu={cpu!r} says nothing of target='cuda'; leave it out")
    variants = [_variants(f, folds=False, dynamic=dynamic) for f in functions]
    vector = 1 if dynamic else min(map(_neighbours, functions))
    text = cuda_text.kernels(name, functions, variants, vector)
    symbols = cuda_text.kernel_symbols(name, functions, variants)
    words = c_text.plan_words(functions, variants)
    host = cuda_text.source(name, functions, variants, vector, dynamic=dynamic)

    def fill(folder: Path) -> dict[str, Any]:
        (folder / f"{name}.cu").write_text(text, "utf-8")
        head = cuda_text.header(name, functions, words, len(symbols))
        (folder / f"{name}.h").write_text(head, "utf-8")
        (folder / f"{name}.c").write_text(host, "utf-8")
        own = [f"{name}_{f.what}_bind" for f in functions]
        return {
            **_record(call, name, "cuda", functions, dynamic=dynamic),
            "convention": "that of C; kernels take a struct of 64-bit words, which the host fills",
            "threads": THREADS,
            "kernels": symbols,
            "files": [f"{name}.cu", f"{name}.h", f"{name}.c", "export.json"],
            "symbols": [f"{name}_load", *own, f"{name}_launch"],
            "command": " ".join(["nvcc", "-cubin", *OPTIONS, "-arch=native", f"{name}.cu"]),
            "library": None,
        }

    return fill


def _neighbours(function: Function) -> int:
    """Return how many neighbours of a row a thread has, where extents and strides are known."""
    launch = function.launch(folds=False)
    widest = widest_of(launch)
    return widest if are_rows_aligned(launch, bind(launch, accumulator), widest) else 1


# -- what is said of every export ------------------------------------------------------------------


def _record(
    call: Call, name: str, target: str, functions: Sequence[Function], *, dynamic: bool
) -> dict[str, Any]:
    """Return what `export.json` says, whatever the target is."""
    return {
        "mixad": __version__,
        "kernel": call.name,
        "name": name,
        "target": target,
        "licence": {
            "text from mixad": c_text.LICENCE,
            "copyright": "2026, mixad developers",
            "kernel": "its author's",
        },
        "dynamic": dynamic,
        "functions": [_function_record(name, f, dynamic=dynamic) for f in functions],
    }


def _extents(argument: Argument, *, dynamic: bool) -> list[int | str]:
    """Return extents, or the names of those that are alike."""
    if not dynamic:
        return list(argument.shape)
    if argument.kind == "array":
        return ["any"] * len(argument.shape)
    return c_text.axes(argument.own, len(argument.shape))


def _function_record(name: str, function: Function, *, dynamic: bool) -> dict[str, Any]:
    taken, given = c_text.names_of(function)
    arguments = [a for a in function.arguments if a.kind != "constant"]
    return {
        "what": function.what,
        "symbol": f"{name}_{function.what}",
        "arguments": [
            {
                "name": a.name,
                "c": c,
                "kind": _KINDS[a.kind],
                "dtype": a.type.dtype_name,
                "shape": _extents(a, dynamic=dynamic),
            }
            for a, c in zip(arguments, taken, strict=True)
        ],
        "results": [
            {
                "name": r.name,
                "c": c,
                "kind": "array",
                "dtype": r.type.dtype_name,
                "shape": c_text.axes(r.own, r.rank),
            }
            for r, c in zip(function.results, given, strict=True)
        ],
        "zeros": list(function.zeros),
        "constants": {
            a.name: np.asarray(a.value).item() for a in function.arguments if a.kind == "constant"
        },
    }


_KINDS = {"lane": "array", "array": "array that is read by index", "uniform": "number"}

_TARGETS: Mapping[str, Callable[..., Callable[[Path], dict[str, Any]]]] = MappingProxyType(
    {"c": _for_the_cpu, "cuda": _for_cuda}
)
