"""A chain of twelve elementwise operations and its sum, in float32: value and gradient.

Every operation reads what the one before made, three of them an earlier value too. What must move
is the input and its gradient; libraries that do not fuse move some forty arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import losses
from benchmarks.peers.harness import Case, Comparison, Target, Tolerance

SIZES = (10_000_000,)
CHECKED = 61
TOLERANCE = Tolerance(relative=1e-4, scaled=1e-5)  # the value is a sum of 10⁷ float32 terms
TARGETS = {
    "torch.compile": Target(0.25),
    "JAX jit": Target(0.12),
    "autograd": Target(0.05),
    "copy of the bytes": Target(2.5),
    "copy of the bytes, PyTorch": Target(2.5),
}


def terms(xp, x):
    """Return the chain's last value."""
    a = xp.sin(x)
    b = a * x
    c = b + 0.5
    d = xp.tanh(c)
    e = d * d
    f = e + 1.0
    g = xp.sqrt(f)
    h = x / g
    i = -h
    j = xp.exp(i)
    k = j * d
    return k - a


def chain(xp, x):
    """Return their sum."""
    return terms(xp, x).sum()


def value_and_slope(x: NDArray) -> tuple[NDArray, NDArray]:
    """Return the terms of the sum and their derivatives, by hand, in float64."""
    x = x.astype(np.float64)
    a, a_x = np.sin(x), np.cos(x)
    d = np.tanh(a * x + 0.5)
    d_x = (1 - d * d) * (a_x * x + a)
    g = np.sqrt(d * d + 1)
    g_x = d * d_x / g
    j = np.exp(-x / g)
    j_x = -j * (1 / g - x * g_x / (g * g))
    return j * d - a, j_x * d + j * d_x - a_x


def problem(size: int, seed: int) -> losses.Problem:
    """Draw the input of one case."""
    x = np.random.default_rng(seed).uniform(-2, 2, size).astype(np.float32)
    value = sum(value_and_slope(part)[0].sum() for part in np.array_split(x, 16))
    slope = value_and_slope(x[::CHECKED])[1]
    return losses.Problem(chain, (x,), (np.asarray(value), slope), losses.every(CHECKED))


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size."""
    for size in sizes:
        p = problem(size, seed)
        others = {
            "Dr.Jit": partial(losses.drjit, terms=terms),
            losses.WARP: partial(losses.warp_cpu, kernel="chain", extents=(size,)),
        }
        yield Case(
            "chain12",
            f"n = {size:,}",
            losses.contenders(p, {"mixad": losses.mixad}, others),
            [Comparison("mixad", peer, TARGETS.get(peer)) for peer in (*losses.PEERS, *others)],
            TOLERANCE,
        )
