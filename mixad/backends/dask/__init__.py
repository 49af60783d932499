"""The Dask backend: kernels on the blocks of lazy arrays, compiled where blocks are."""

from __future__ import annotations

from collections.abc import Sequence

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.scalar.types import ALL_TYPES

__all__ = ["mixad_backends"]


def _load() -> Backend:
    import dask.array  # noqa: F401  # raises where it is not installed

    from mixad.backends.dask.backend import DaskBackend

    return DaskBackend()


@hookimpl
def mixad_backends() -> Sequence[BackendSpec]:
    """Return the spec of the Dask backend."""
    dtypes = frozenset(type.dtype.name for type in ALL_TYPES)
    capability = Capability(("dask",), ("cpu",), dtypes, native=True)
    return [
        BackendSpec(
            "dask", API_VERSION, capability, _load, "try python -m pip install 'dask[array]'"
        )
    ]
