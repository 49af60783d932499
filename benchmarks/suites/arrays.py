"""Arrays for each backend, and how to wait until its device is done."""

from __future__ import annotations

import importlib

from mixad.backends import registry
from mixad.errors import BackendError

BACKENDS = ("reference", "cpu", "cupy", "torch")


def require(backend):
    """Raise what asv shows as n/a, unless the backend can serve here."""
    try:
        registry.backend(backend)
    except BackendError as error:
        raise NotImplementedError(str(error)) from error


def on_device(backend, array):
    """Return a NumPy array as an array of the library and device that a backend is for."""
    if backend == "cupy":
        return importlib.import_module("cupy").asarray(array)
    if backend == "torch":
        return importlib.import_module("torch").as_tensor(array, device="cuda")
    return array


def synchronize(backend):
    """Wait for the device; kernels on the CPU have returned when they are done."""
    if backend == "cupy":
        importlib.import_module("cupy").cuda.get_current_stream().synchronize()
    elif backend == "torch":
        importlib.import_module("torch").cuda.synchronize()
