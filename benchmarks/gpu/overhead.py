"""What the host takes for a call whose kernel is compiled and whose arrays are small."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

import numpy as np

import mixad
from benchmarks.gpu.device import Device
from benchmarks.gpu.work import Contender, Made, Work
from benchmarks.peers.harness import Tolerance, UnavailableError
from mixad.backends.execute import kernel_for
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.types import F32

MOST = {"torch": 8e-6, "CuPy": 12e-6}
X = np.linspace(0.5, 1.5, 64, dtype=np.float32)


def scaled(x, y):
    return x * y


def on_torch(device: Device) -> Made:
    return Made(called(device.put(X)), list)


def on_cupy(device: Device) -> Made:
    if device.platform != "gpu":
        raise UnavailableError("CuPy has no arrays on the host")
    cupy = importlib.import_module("cupy")
    wait = cupy.cuda.get_current_stream().synchronize
    return Made(called(cupy.asarray(X)), list, wait, cupy.asnumpy)


def called(x) -> Callable[[], list]:
    kernel = mixad.broadcast(scaled)
    return lambda: [kernel(x, x)]


def launched(device: Device) -> Made:
    """Launch alone, as the tape does it."""
    b = Builder("scaled")
    program = b.finish([b.op("mul", b.param("x", F32), b.param("y", F32))])
    kernel, x = kernel_for((program,), (OutputRequest(0, 0),)), device.put(X)
    return Made(lambda: kernel((x, x)), list)


def works(scale: float, seed: int) -> Iterator[Work]:
    """Yield a launch, and a call on arrays of both libraries."""
    makes = {"launch, torch": launched, "call, torch": on_torch, "call, CuPy": on_cupy}
    for name, make in makes.items():
        yield Work(
            "overhead",
            name,
            {"mixad": Contender(make, "host")},
            lambda: [(X * X).astype(np.float64)],
            tolerance=Tolerance(1e-6, 0.0),
            targets={"seconds": MOST[name.partition(", ")[2]]},
        )
