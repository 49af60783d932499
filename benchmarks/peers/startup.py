"""How long the first result takes: importing, and the first HM-LSTM gradient.

Every turn is a fresh process that times itself, so that starting the interpreter does not count.
The first gradient is timed from the kernel's definition to its result, after the imports: once
with empty caches, and once with the caches that a process before left. Every library's caches are
sent into a folder of the run.  The processes read byte code, as those of an installed package do:
without, Python would compile every file of a checkout that was edited, in every one of them.

``python -m benchmarks.peers.startup NAME SIZE`` is the process of a first gradient. That of an
import is `IMPORT_SCRIPT`, which has imported nothing else before its clock starts.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.peers import hm_lstm
from benchmarks.peers.harness import (
    Call,
    Case,
    Comparison,
    Contender,
    Target,
    UnavailableError,
    Unpack,
    largest_error,
    why,
)

SIZES = (1024,)
ROUNDS = 7
LIMIT = 300  # seconds that one process may take
TARGETS = {
    "import mixad": Target(0.200),  # with llvmlite
    "mixad auto, empty cache": Target(0.150),
    "mixad auto, filled cache": Target(0.020),
}
IMPORTS = (
    "mixad",
    "numpy",
    "llvmlite.binding",
    "torch",
    "jax",
    "drjit",
    "warp",
    "numba",
    "autograd",
)
NOT_WITH_MIXAD = ("torch", "cupy", "jax")
WITH_MIXAD = ("llvmlite.binding",)  # a broken one would read as a faster import
IMPORT_SCRIPT = f"""
import importlib, json, sys, time
name = sys.argv[1]
start = time.perf_counter()
try:
    importlib.import_module(name)
    answer = {{"seconds": time.perf_counter() - start}}
except ModuleNotFoundError as error:
    answer = {{"why": f"not installed ({{error.name}})"}}
brought = [m for m in {NOT_WITH_MIXAD} if name == "mixad" and m in sys.modules]
lacking = [m for m in {WITH_MIXAD} if name == "mixad" and sys.modules.get(m) is None]
if brought or lacking:
    answer = {{"why": f"imports {{brought}}, does not import {{lacking}}"}}
print(json.dumps(answer))
"""
FIRST_MODULE = ("-m", "benchmarks.peers.startup")
FIRST = {  # the implementation of hm_lstm, and what is imported before the clock starts
    "mixad auto": ("mixad", "mixad.special"),
    "mixad forward": ("mixad", "mixad.special"),
    "Dr.Jit": ("drjit", "drjit.llvm.ad"),
    "torch.compile": ("torch", "torch._dynamo"),
    "JAX jit": ("jax",),
    "PyTorch eager": ("torch",),
    "Warp (CPU, one thread)": ("warp",),
    "autograd": ("autograd", "autograd.numpy"),
}
CACHES = ("empty", "filled")
CACHE_VARIABLES = (
    "MIXAD_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "JAX_COMPILATION_CACHE_DIR",
    "WARP_CACHE_PATH",
    "XDG_CACHE_HOME",
    "HOME",  # Dr.Jit has no variable of its own
)
JAX_CACHES_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
WRITES_BYTE_CODE = {"PYTHONDONTWRITEBYTECODE": ""}  # empty is as good as unset


def first_seconds(name: str, size: int) -> float:
    """Return the seconds from the kernel's definition to the first result, checked."""
    for module in FIRST[name]:
        importlib.import_module(module)
    p = hm_lstm.problem(size, (size,), seed=0)
    start = time.perf_counter()
    call, unpack = hm_lstm.IMPLEMENTATIONS[name](p)
    result = call()
    seconds = time.perf_counter() - start
    error = largest_error(unpack(result), p.expected, hm_lstm.TOLERANCE)
    if error > 1:
        raise UnavailableError(f"wrong values: {error:.1e} × the tolerance")
    return seconds


def in_process(arguments: Sequence[str], cache: Path | None = None) -> float:
    """Run a fresh interpreter and return the seconds that it measured."""
    variables = {} if cache is None else dict.fromkeys(CACHE_VARIABLES, str(cache))
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **JAX_CACHES_ALL, **WRITES_BYTE_CODE, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    if "seconds" not in answer:
        raise UnavailableError(answer.get("why") or f"the process ended with {done.returncode}")
    return answer["seconds"]


def nothing(result: object) -> list:
    """Return the arrays to check here: none, the process has checked its own."""
    return []


def importing(name: str) -> tuple[Call, Unpack]:
    return partial(in_process, ("-c", IMPORT_SCRIPT, name)), nothing


def first_result(name: str, size: int, cache: str, folder: Path) -> tuple[Call, Unpack]:
    """Return a first gradient in a fresh process, with its library's cache empty or filled."""
    arguments = (*FIRST_MODULE, name, str(size))
    if cache == "filled":
        in_process(arguments, folder)
        return partial(in_process, arguments, folder), nothing

    def call() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            return in_process(arguments, Path(empty))

    return call, nothing


def first_contenders(size: int, folder: Path) -> Mapping[str, Contender]:
    """Return the first gradients of every library with both states of its cache."""
    found = {}
    for name in FIRST:
        for cache in CACHES:
            own = folder / f"{len(found)}"
            own.mkdir()
            make = partial(first_result, name, size, cache, own)
            found[f"{name}, {cache} cache"] = Contender(make, self_timed=True)
    return found


def case(title: str, contenders: Mapping[str, Contender], lead: int) -> Case:
    """Return a case of processes that time themselves, with the targets that are set for some."""
    comparisons = [Comparison(name, None, TARGETS[name]) for name in contenders if name in TARGETS]
    return Case("startup", title, contenders, comparisons, keeps=(0,), rounds=ROUNDS, lead=lead)


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield the imports, then one case of first gradients per size."""
    imports = {
        f"import {name}": Contender(partial(importing, name), self_timed=True) for name in IMPORTS
    }
    yield case("imports", imports, lead=1)
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            contenders = first_contenders(size, Path(folder))
            yield case(f"first HM-LSTM gradient, {size}²", contenders, lead=0)


def main() -> None:
    """Print the seconds, or why there are none, as one line of JSON."""
    name, size = sys.argv[1:]
    try:
        answer = {"seconds": first_seconds(name, int(size))}
    except Exception as error:  # the parent lists it
        answer = {"why": why(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
