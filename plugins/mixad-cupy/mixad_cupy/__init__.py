"""The mixad backend for CuPy arrays: registered, and refusing with the reason until it has kernels.

Importing this module imports no CuPy; asking the registry for the backend does.
"""

from __future__ import annotations

import importlib
from typing import Any

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.errors import BackendError

__all__ = ["mixad_backends"]

_CAPABILITY = Capability(
    array_modules=("cupy",),
    devices=("cuda",),
    dtypes=frozenset({"bool", "int32", "int64", "float32", "float64"}),
    native=True,
)


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the backend ``cupy``.

    Returns
    -------
    list of BackendSpec
        One spec.
    """
    return [
        BackendSpec(
            name="cupy",
            api_version=API_VERSION,
            capability=_CAPABILITY,
            load=_load,
            install_hint='try python -m pip install "mixad-cupy[cuda13x]", or [cuda12x]',
        )
    ]


def _load() -> Backend:
    cupy = _import_cupy()
    _require_device(cupy)
    raise BackendError("mixad-cupy has no kernels in this version")


def _import_cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise BackendError(f"cupy cannot be imported ({error})") from error


def _require_device(cupy: Any) -> None:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        # CuPy's own exception type cannot be named without its compiled part.
        raise BackendError(f"there is no usable CUDA device ({error})") from error
    if count == 0:
        raise BackendError("there is no CUDA device")
