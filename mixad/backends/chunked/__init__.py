"""The backends of lazy arrays: kernels on their blocks, compiled where blocks are."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.scalar.types import ALL_TYPES

__all__ = ["mixad_backends"]

_INSTALLED = {"dask": ("dask.array", "dask[array]"), "cubed": ("cubed", "cubed")}
"""By library, the module of its arrays, and what installs it."""


def _load(name: str) -> Backend:
    importlib.import_module(_INSTALLED[name][0])  # raises where it is not installed

    from mixad.backends.chunked.backend import ChunkedBackend

    return ChunkedBackend(name)


@hookimpl
def mixad_backends() -> Sequence[BackendSpec]:
    """Return a spec for each library of lazy arrays."""
    dtypes = frozenset(type.dtype.name for type in ALL_TYPES)
    return [
        BackendSpec(
            name,
            API_VERSION,
            Capability((name,), ("cpu",), dtypes, native=True),
            partial(_load, name),
            f"try python -m pip install '{package}'",
        )
        for name, (_, package) in _INSTALLED.items()
    ]
