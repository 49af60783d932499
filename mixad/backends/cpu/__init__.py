"""The default backend: SIMD kernels for the CPU through llvmlite."""

from __future__ import annotations

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl

__all__ = ["mixad_backends"]


def _load() -> Backend:
    from mixad.backends.cpu.backend import CpuBackend  # llvmlite is imported with the first kernel

    return CpuBackend()


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the CPU backend.

    Returns
    -------
    list of BackendSpec
        One.
    """
    dtypes = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64"
    capability = Capability(
        array_modules=("numpy", "array_api_strict", "torch"),
        devices=("cpu",),
        dtypes=frozenset(dtypes.split()),
        native=True,
    )
    return [BackendSpec("cpu", API_VERSION, capability, _load, "pip install llvmlite")]
