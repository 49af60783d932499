"""Kernels that read arrays at computed indices: values, and gradients that add to these arrays."""

from __future__ import annotations

import numpy as np

import mixad

from .arrays import BACKENDS, on_device, require, synchronize


def between(table: mixad.Array, x):
    """Interpolate in a table."""
    k = int(x)
    w = x - k
    return table[k] * (1.0 - w) + table[k + 1] * w


def energy(pos: mixad.Array, i, j):
    """Return the Lennard-Jones energy of a pair of atoms."""
    x = pos[i, 0] - pos[j, 0]
    y = pos[i, 1] - pos[j, 1]
    z = pos[i, 2] - pos[j, 2]
    r2 = x * x + y * y + z * z
    s = 1.0 / (r2 * r2 * r2)
    return 4.0 * (s * s - s)


def row_product(
    values: mixad.Array, columns: mixad.Array, starts: mixad.Array, vector: mixad.Array, row
):
    """Multiply a row of a sparse matrix by a vector."""
    total = 0.0
    for k in range(starts[row], starts[row + 1]):
        total += values[k] * vector[columns[k]]
    return total


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
        rng = np.random.default_rng(0)
        axes = np.meshgrid(*[np.arange(side, dtype=float)] * 3, indexing="ij")
        pos = 1.1 * np.stack(axes, -1).reshape(-1, 3)
        pos += 0.05 * rng.random(pos.shape)
        near = [
            np.flatnonzero(((pos[a] - pos[a + 1 :]) ** 2).sum(1) < (2.2 * 1.1) ** 2) + a + 1
            for a in range(len(pos))
        ]
        first = np.repeat(np.arange(len(pos)), list(map(len, near)))
        return energy, (pos, first.astype(np.int32), np.concatenate(near).astype(np.int32)), (0,)


class SparseProduct(_Gathers):
    """Sparse rows of 5 to 14 numbers by a vector: a loop that adds up what it reads."""

    params = (BACKENDS, (2_000, 200_000))
    param_names = ("backend", "rows")

    def made(self, rows):
        rng = np.random.default_rng(0)
        starts = np.concatenate([[0], np.cumsum(rng.integers(5, 15, rows))])
        columns, values = rng.integers(0, rows, starts[-1]), rng.random(starts[-1])
        return row_product, (values, columns, starts, rng.random(rows), np.arange(rows)), (0, 3)
