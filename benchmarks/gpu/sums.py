"""Sums of products of two arrays over rows, over columns and over both, beside copying the bytes.

They are what a kernel leaves of the gradient of an input that was broadcast: a bias, a scale.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.device import Device
from benchmarks.gpu.elementwise import copied
from benchmarks.gpu.work import Contender, Made, Work, sampled
from benchmarks.peers.harness import Tolerance
from mixad.backends.execute import kernel_for
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.types import F32

SHAPES = ((1024, 1024), (8192, 8192), (1 << 20, 64))
SUMMED = {"over rows": 0, "over columns": 1, "over both": None}
OF_COPY = 1 / 0.8  # of measured copy bandwidth, where arrays are larger than caches
IN_CACHE = 1 << 24  # bytes


def works(scale: float, seed: int) -> Iterator[Work]:
    """Yield each sum of each shape."""
    for rows, columns in SHAPES:
        shape = (max(8, int(rows * scale)), max(8, int(columns * scale)))
        rng = np.random.default_rng(seed)
        x, y = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
        moved = x.nbytes + y.nbytes
        for name, axis in SUMMED.items():
            # What rounding may leave of n terms of about 1, in float32.
            terms = x.size if axis is None else shape[axis]
            yield Work(
                "sums",
                f"{shape[0]} × {shape[1]}, {name}",
                {
                    "mixad": Contender(partial(by_mixad, x, y, axis)),
                    "torch.compile": Contender(partial(by_torch, x, y, axis, compiled=True)),
                    "PyTorch eager": Contender(partial(by_torch, x, y, axis, compiled=False)),
                    "copy of the bytes": Contender(partial(copied, moved), is_checked=False),
                },
                lambda x=x, y=y, axis=axis: [sampled((x.astype("f8") * y).sum(axis).reshape(-1))],
                moved,
                Tolerance(1e-5, 3e-6 * terms**0.5),
                {"copy of the bytes": OF_COPY} if moved > IN_CACHE else {},
            )


def by_mixad(x: NDArray, y: NDArray, axis: int | None, device: Device) -> Made:
    b = Builder("product")
    program = b.finish([b.op("mul", b.param("x", F32), b.param("y", F32))])
    shape = tuple(1 if axis in (k, None) else n for k, n in enumerate(x.shape))
    kernel = kernel_for((program,), (OutputRequest(0, 0, shape),))
    arrays = [device.put(x), device.put(y)]
    return Made(lambda: kernel(arrays), list)


def by_torch(x: NDArray, y: NDArray, axis: int | None, device: Device, compiled: bool) -> Made:
    torch = importlib.import_module("torch")
    x, y = device.put(x), device.put(y)

    def summed(x, y):
        return (x * y).sum() if axis is None else (x * y).sum(axis)

    if compiled:
        torch.compiler.reset()
        summed = torch.compile(summed, dynamic=False)
    return Made(lambda: summed(x, y), lambda result: [result])
