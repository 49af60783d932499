"""What a launch is made of: hand-over to threads, memory for results, stores, plans; on x y + x."""

from __future__ import annotations

import itertools

import numpy as np

from mixad.backends import registry
from mixad.backends.arrays import layout_of
from mixad.backends.cpu import buffers
from mixad.backends.execute import Kernel
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.kernel.tiling import BLOCK
from mixad.scalar.build import Builder
from mixad.scalar.types import F32

from .arrays import BACKENDS, on_device, require, synchronize

STORED = (OutputRequest(0, 0),)


def product_and_sum():
    """Return the program x y + x, in float32."""
    builder = Builder("product_and_sum")
    x, y = (builder.param(name, F32) for name in "xy")
    return builder.finish([builder.op("add", builder.op("mul", x, y), x)])


def operands(backend, *shape):
    """Return two arrays for a backend."""
    rng = np.random.default_rng(0)
    return [on_device(backend, rng.random(shape, dtype=np.float32)) for _ in range(2)]


class HandOver:
    """A call over so many tiles, of which one is run by the caller alone.

    Two tiles take what one takes and the hand-over to a second thread.
    """

    params = (BACKENDS, (1, 2, 8, 64))
    param_names = ("backend", "tiles")

    def setup(self, backend, tiles):
        require(backend)
        self.arrays = operands(backend, tiles * BLOCK)
        self.kernel = Kernel((product_and_sum(),), STORED)
        self.time_call(backend, tiles)

    def time_call(self, backend, tiles):
        self.kernel(self.arrays, backend)
        synchronize(backend)


class Memory:
    """A call whose result is of the memory of the last one, or of pages new to the process."""

    params = (BACKENDS, (1 << 20, 1 << 24), ("the pool", "new pages"))
    param_names = ("backend", "elements", "memory of")

    def setup(self, backend, elements, memory):
        require(backend)
        if memory == "new pages" and backend != "cpu":
            raise NotImplementedError("only the CPU backend has a pool that can be emptied")
        self.arrays = operands(backend, elements)
        self.kernel = Kernel((product_and_sum(),), STORED)
        self.time_call(backend, elements, memory)

    def time_call(self, backend, elements, memory):
        if memory == "new pages":
            buffers.clear()
        self.kernel(self.arrays, backend)
        synchronize(backend)


class Stores:
    """A launch that stores past the cache or into it, whatever the rule would choose."""

    params = (BACKENDS, (1 << 16, 1 << 20, 1 << 24), ("past the cache", "into the cache"))
    param_names = ("backend", "elements", "stores")

    def setup(self, backend, elements, stores):
        require(backend)
        self.backend, self.arrays = registry.backend(backend), operands(backend, elements)
        cache_bytes = 0 if stores == "past the cache" else 1 << 60
        layouts = [layout_of(a) for a in self.arrays]
        launch = plan((product_and_sum(),), STORED, layouts, (elements,), cache_bytes)
        self.bound = self.backend.bind(self.backend.compile(launch.spec), launch)
        self.time_launch(backend, elements, stores)

    def time_launch(self, backend, elements, stores):
        self.backend.launch(self.bound, self.arrays)
        synchronize(backend)


class ShortRows:
    """A call over rows of few elements, beside an array of as many, of a row, or of a column."""

    params = (BACKENDS, (3, 10), ("elements", "row", "column"))
    param_names = ("backend", "columns", "beside")

    def setup(self, backend, columns, beside):
        require(backend)
        rows = 3_000_000 // columns
        shapes = {"elements": (rows, columns), "row": (columns,), "column": (rows, 1)}
        self.arrays = [
            *operands(backend, rows, columns)[:1],
            *operands(backend, *shapes[beside])[:1],
        ]
        self.kernel = Kernel((product_and_sum(),), STORED)
        self.time_call(backend, columns, beside)

    def time_call(self, backend, columns, beside):
        self.kernel(self.arrays, backend)
        synchronize(backend)


class Plans:
    """A call over few elements: of a layout that the kernel knows, or of one that it must plan."""

    params = (BACKENDS, ("known", "new"))
    param_names = ("backend", "layout")

    def setup(self, backend, layout):
        require(backend)
        program = product_and_sum()
        self.kernel = Kernel((program,), STORED)
        extents = range(1, 2) if layout == "known" else range(1, 2000)  # more than it remembers
        whole = operands(backend, len(extents))
        self.arrays = itertools.cycle([[a[:n] for a in whole] for n in extents])
        for _ in extents:
            self.time_call(backend, layout)

    def time_call(self, backend, layout):
        self.kernel(next(self.arrays), backend)
        synchronize(backend)
