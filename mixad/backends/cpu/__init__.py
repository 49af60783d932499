"""The default backend: SIMD kernels for the CPU through llvmlite."""

from __future__ import annotations

import contextlib
import importlib
from typing import get_args

from mixad.backends.cpu.cache_size import cache_bytes
from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.scalar.ir import UpdateKind

__all__ = ["mixad_backends"]


# The first kernel should not wait for llvmlite, so it is imported with mixad. Where it is missing
# or broken, whatever it raises, the other backends serve all the same, and `_load` fails again and
# is reported.
with contextlib.suppress(Exception):
    importlib.import_module("mixad.backends.cpu.backend")


def _load() -> Backend:
    from mixad.backends.cpu.backend import CpuBackend

    return CpuBackend()


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the CPU backend."""
    dtypes = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 "
    dtypes += "bfloat16 float32 float64"
    capability = Capability(
        array_modules=("numpy", "array_api_strict", "torch", "jax"),
        devices=("cpu",),
        dtypes=frozenset(dtypes.split()),
        native=True,
        cache_bytes=cache_bytes(),
        folds=True,
        writes_parts=True,
        stores_beside=True,
        accumulates=frozenset(get_args(UpdateKind)),
    )
    return [BackendSpec("cpu", API_VERSION, capability, _load, "pip install llvmlite")]
