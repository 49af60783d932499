"""Kernels that read arrays at computed indices, or compute them: a table, positions, particles in
cells, a sparse matrix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import mixad


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


def shares(x, cells):
    """Return the two cells of a ring that share a particle, and how much of it each has."""
    k = int(x)
    w = x - k
    return k, (k + 1) % cells, 1.0 - w, w


def row_product(
    values: mixad.Array, columns: mixad.Array, starts: mixad.Array, vector: mixad.Array, row
):
    """Multiply a row of a sparse matrix by a vector."""
    total = 0.0
    for k in range(starts[row], starts[row + 1]):
        total += values[k] * vector[columns[k]]
    return total


def atoms(side: int, cutoff: float, rng: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
    """Return atoms on a jittered grid, and all pairs that are closer than a number of spacings."""
    axes = np.meshgrid(*[np.arange(side, dtype=float)] * 3, indexing="ij")
    pos = 1.1 * np.stack(axes, -1).reshape(-1, 3)
    pos += 0.05 * rng.random(pos.shape)
    near = [
        np.flatnonzero(((pos[a] - pos[a + 1 :]) ** 2).sum(1) < (cutoff * 1.1) ** 2) + a + 1
        for a in range(len(pos))
    ]
    first = np.repeat(np.arange(len(pos)), list(map(len, near)))
    return pos, first.astype(np.int32), np.concatenate(near).astype(np.int32)
