"""Arrays for each backend, and how to wait until its device is done."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass

from mixad.backends import registry
from mixad.config import BACKEND_ALLOW
from mixad.errors import BackendError

BACKENDS = ("reference", "cpu", "cupy", "torch")
LIBRARIES = {"reference": "numpy", "cpu": "numpy", "cupy": "cupy", "torch": "torch"}


def require(backend):
    """Raise what asv shows as n/a, unless the backend can serve here."""
    try:
        registry.backend(backend)
    except BackendError as error:
        raise NotImplementedError(str(error)) from error


def require_for_operators(backend):
    """Have operators and functions of arrays, which name no backend, use one.

    On NumPy's arrays they would never use the interpreter. asv starts a process for each
    combination of parameters, and mixad reads the variable when it first looks for a backend.
    """
    if backend == "reference":
        os.environ[BACKEND_ALLOW.name] = backend
    require(backend)


def library(backend):
    """Return the library whose arrays a backend is given."""
    return importlib.import_module(LIBRARIES[backend])


def on_device(backend, array):
    """Return a NumPy array as an array of the library and device that a backend is for."""
    if backend == "cupy":
        return library(backend).asarray(array)
    if backend == "torch":
        return library(backend).as_tensor(array, device="cuda")
    return array


def synchronize(backend):
    """Wait for the device; kernels on the CPU have returned when they are done."""
    if backend == "cupy":
        library(backend).cuda.get_current_stream().synchronize()
    elif backend == "torch":
        library(backend).cuda.synchronize()


@dataclass(frozen=True)
class Place:
    """Where a backend has its arrays: what contenders of `benchmarks.gpu` are made on."""

    backend: str

    def put(self, array):
        return on_device(self.backend, array)
