"""Sums over every combination of three axes, in the value and in the gradient."""

from __future__ import annotations

import itertools

import numpy as np

import mixad

from .arrays import BACKENDS, on_device, require, require_for_operators, synchronize

SHAPES = {"128 x 64 x 128": (128, 64, 128), "8192 x 32 x 4": (8192, 32, 4)}
AXES = {
    " ".join(map(str, axes)) or "none": axes
    for count in range(4)
    for axes in itertools.combinations(range(3), count)
}


def drawn(backend, *shapes):
    """Return an array of each shape for a backend."""
    rng = np.random.default_rng(0)
    return [on_device(backend, rng.random(shape, dtype=np.float32)) for shape in shapes]


def without(shape, axes):
    """Return a shape with extents of 1 along some axes."""
    return tuple([1 if axis in axes else extent for axis, extent in enumerate(shape)])


def product(x, y):
    return x * y + x


class Gradient:
    """Value and gradients where one factor was broadcast: its gradient is summed over the axes."""

    params = (BACKENDS, tuple(SHAPES), tuple(AXES))
    param_names = ("backend", "shape", "axes")

    def setup(self, backend, shape, axes):
        require(backend)
        full = SHAPES[shape]
        x, y, self.cotangent = drawn(backend, full, without(full, AXES[axes]), full)
        self.primals = x, y
        self.kernel = mixad.broadcast(product, backend=backend)
        self.time_gradient(backend, shape, axes)

    def time_gradient(self, backend, shape, axes):
        mixad.value_and_vjp(self.kernel, self.primals, self.cotangent)
        synchronize(backend)


class Value:
    """A sum over the axes, and the gradients of what is summed: the cotangent is broadcast."""

    params = (BACKENDS, tuple(SHAPES), tuple(name for name in AXES if AXES[name]))
    param_names = ("backend", "shape", "axes")

    def setup(self, backend, shape, axes):
        require_for_operators(backend)
        full, summed = SHAPES[shape], AXES[axes]
        x, y, cotangent = drawn(backend, full, full, without(full, summed))
        self.primals, self.cotangent = (x, y), cotangent.squeeze(summed)
        self.sum = lambda x, y: (x * y + x).sum(summed)
        self.time_sum(backend, shape, axes)

    def time_sum(self, backend, shape, axes):
        mixad.value_and_vjp(self.sum, self.primals, self.cotangent)
        synchronize(backend)
