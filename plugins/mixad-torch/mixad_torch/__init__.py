"""The mixad backend for CUDA tensors of PyTorch: registered, refusing until it has kernels.

Importing this module imports no torch; asking the registry for the backend does.
"""

from __future__ import annotations

import importlib
from typing import Any

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.errors import BackendError

__all__ = ["mixad_backends"]

_CAPABILITY = Capability(
    array_modules=("torch",),
    devices=("cuda",),
    dtypes=frozenset({"bool", "int32", "int64", "float32", "float64"}),
    native=True,
)


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the backend ``torch``.

    Returns
    -------
    list of BackendSpec
        One spec.
    """
    return [
        BackendSpec(
            name="torch",
            api_version=API_VERSION,
            capability=_CAPABILITY,
            load=_load,
            install_hint="it needs a CUDA device and a build of torch for it",
        )
    ]


def _load() -> Backend:
    torch = _import_torch()
    if not torch.cuda.is_available():
        raise BackendError(f"torch {torch.__version__} finds no CUDA device")
    raise BackendError("mixad-torch has no kernels in this version")


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise BackendError(f"torch cannot be imported ({error})") from error
