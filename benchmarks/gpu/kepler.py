"""Kepler's equation by Newton's method, 10⁸ elements: see `benchmarks.peers.kepler`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.gpu.elementwise import Elementwise, contenders
from benchmarks.gpu.work import Work, sampled
from benchmarks.peers.harness import Tolerance
from benchmarks.peers.kepler import eccentric_anomaly, fixed_steps

COUNT = 10**8
TARGETS = {"torch.compile": 0.3}
TOLERANCES = {np.float64: Tolerance(1e-9, 1e-11), np.float32: Tolerance(2e-3, 1e-4)}


def coarse_anomaly(M, e):
    """Return E of one pair of float32, which the step of float64 would never satisfy."""
    E = M if e < 0.8 else math.pi
    step = 1.0
    turns = 0
    while abs(step) > 1e-5 and turns < 12:
        step = (E - e * math.sin(E) - M) / (1.0 - e * math.cos(E))
        E -= step
        turns += 1
    return E


KERNELS = {np.float64: eccentric_anomaly, np.float32: coarse_anomaly}


def expected(e: Elementwise) -> list[np.ndarray]:
    """Return E and its closed-form gradients at the elements that are checked."""
    M, ecc, w = (sampled(x).astype(np.float64) for x in (*e.active, e.cotangent))
    E = np.where(ecc < 0.8, M, np.pi)
    for _ in range(30):
        E = E - (E - ecc * np.sin(E) - M) / (1 - ecc * np.cos(E))
    slope = w / (1 - ecc * np.cos(E))
    return [E, slope, slope * np.sin(E)]


def problem(count: int, dtype: type, seed: int) -> Elementwise:
    """Draw the inputs; eccentricities to 0.9, so that float32 keeps its digits."""
    rng = np.random.default_rng(seed)
    M = (2 * np.pi * rng.random(count, dtype=dtype)).astype(dtype)
    e = (0.9 * rng.random(count, dtype=dtype)).astype(dtype)
    w = rng.standard_normal(count, dtype=dtype)
    return Elementwise(KERNELS[dtype], fixed_steps, (), (M, e), w)


def works(scale: float, seed: int) -> Iterator[Work]:
    """Yield float64, then float32."""
    count = max(1000, int(COUNT * scale * scale))
    for dtype in KERNELS:
        drawn = problem(count, dtype, seed)
        yield Work(
            "Kepler",
            f"{count:,} elements, {np.dtype(dtype).name}",
            contenders(drawn),
            partial(expected, drawn),
            drawn.bytes_moved,
            TOLERANCES[dtype],
            TARGETS,
        )
