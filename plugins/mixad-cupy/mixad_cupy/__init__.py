"""The mixad backend for CuPy arrays.

Importing this module imports no CuPy; asking the registry for the backend does, and reports
whatever that raises together with the hint below.
"""

from __future__ import annotations

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.errors import BackendError

__all__ = ["mixad_backends"]


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the backend ``cupy``."""
    integers = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    dtypes = frozenset({"bool", "float16", "float32", "float64", *integers})
    capability = Capability(
        ("cupy",),
        ("cuda",),
        dtypes,
        native=True,
        writes_parts=True,
        stores_beside=True,
        accumulates=frozenset({"add", "min", "max", "write"}),
    )
    hint = 'try python -m pip install "mixad-cupy[cuda13x]", or [cuda12x]'
    return [BackendSpec("cupy", API_VERSION, capability, _load, hint)]


def _load() -> Backend:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() == 0:
        raise BackendError("there is no CUDA device")
    from mixad.backends.cuda import CudaBackend
    from mixad_cupy.driver import CupyDriver

    return CudaBackend("cupy", CupyDriver())
