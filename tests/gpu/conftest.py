"""Arrays on a CUDA device, of each library that reaches one; where none does, skips that say so."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import plugins_here

from mixad.backends import registry


@dataclass(frozen=True)
class OnDevice:
    """A library with arrays on a CUDA device.

    Attributes
    ----------
    name : str
        Of the library and its backend.
    put, get : callable
        From NumPy to the first device and back.
    count : int
        Of devices.
    """

    name: str
    put: Callable[[Any], Any]
    get: Callable[[Any], np.ndarray]
    count: int


def torch_arrays() -> OnDevice:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} finds no CUDA device")
    return OnDevice(
        "torch",
        lambda x: torch.from_numpy(np.array(x)).cuda(),
        lambda x: x.detach().cpu().numpy(),
        torch.cuda.device_count(),
    )


def cupy_arrays() -> OnDevice:
    cupy = pytest.importorskip("cupy")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"CuPy finds no CUDA device: {error}")
    return OnDevice("cupy", cupy.asarray, cupy.asnumpy, count)


LIBRARIES = {"torch": torch_arrays, "cupy": cupy_arrays}


@pytest.fixture(params=list(LIBRARIES))
def library(request: pytest.FixtureRequest, _plugins: None) -> OnDevice:
    return LIBRARIES[request.param]()


@pytest.fixture
def device_of() -> Callable[[str], OnDevice]:
    """Return the function that skips the test where a library reaches no device."""
    return lambda name: LIBRARIES[name]()


@pytest.fixture
def torch(_plugins: None) -> Any:
    torch_arrays()
    return importlib.import_module("torch")


@pytest.fixture(scope="session")
def _plugins() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "default_registry", registry.default_registry)
        plugins_here.pytest_configure()
        yield
