"""Kernels that read arrays at computed indices: values, and gradients that add to these arrays."""

from __future__ import annotations

import numpy as np

import mixad
from benchmarks.kernels.gathers import atoms, between, energy, row_product

from .arrays import BACKENDS, on_device, require, synchronize


class _Gathers:
    """A call and the gradient of its sum with respect to some arguments, compiled before."""

    def setup(self, backend, size):
        require(backend)
        kernel, arguments, self.argnums = self.made(size)
        self.arguments = [on_device(backend, a) for a in arguments]
        self.kernel = mixad.broadcast(kernel, backend=backend)
        self.gradient = mixad.grad(lambda *a: (self.kernel(*a) ** 2).sum(), argnums=self.argnums)
        try:
            self.time_gradient(backend, size)
        except mixad.errors.BackendError as error:
            raise NotImplementedError(str(error)) from error
        self.time_value(backend, size)

    def time_value(self, backend, size):
        self.kernel(*self.arguments)
        synchronize(backend)

    def time_gradient(self, backend, size):
        self.gradient(*self.arguments)
        synchronize(backend)


class Interpolation(_Gathers):
    """A table of 1,001 numbers at so many points; gradients of points and table."""

    params = (BACKENDS, (40_000, 4_000_000))
    param_names = ("backend", "points")

    def made(self, points):
        rng = np.random.default_rng(0)
        return between, (rng.random(1001), rng.random(points) * 999.9), (0, 1)


class LennardJones(_Gathers):
    """Forces of atoms on a jittered grid, by all pairs closer than 2.2 of its spacings."""

    params = (BACKENDS, (5, 14))
    param_names = ("backend", "side")

    def made(self, side):
        return energy, atoms(side, 2.2, np.random.default_rng(0)), (0,)


class SparseProduct(_Gathers):
    """Sparse rows of 5 to 14 numbers by a vector: a loop that adds up what it reads."""

    params = (BACKENDS, (2_000, 200_000))
    param_names = ("backend", "rows")

    def made(self, rows):
        rng = np.random.default_rng(0)
        starts = np.concatenate([[0], np.cumsum(rng.integers(5, 15, rows))])
        columns, values = rng.integers(0, rows, starts[-1]), rng.random(starts[-1])
        return row_product, (values, columns, starts, rng.random(rows), np.arange(rows)), (0, 3)
