"""Jacobian blocks of bundle adjustment: a residual of 2 numbers of 15 inputs, 4 M observations.

The projection of ADBench: Rodrigues' rotation, a pinhole with two radial terms, weighted.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial

import numpy as np

import mixad
from benchmarks.gpu.device import Device
from benchmarks.gpu.work import Contender, Made, Work, sampled
from benchmarks.kernels.bundle import INPUTS, residual, residual_of_arrays
from benchmarks.peers.harness import Tolerance, UnavailableError

COUNT = 4_000_000
HALVES = INPUTS[:8], INPUTS[8:]  # a dual chunk carries ten partials at most
CHUNK = 250_000  # observations that torch.func is given at a time: more do not fit


def residual_kernel(r0, r1, r2, c0, c1, c2, focal, u0, v0, k1, k2, x, y, z, w):
    """Return both residuals of one observation, at (0, 0)."""
    return residual(r0, r1, r2, c0, c1, c2, focal, u0, v0, k1, k2, x, y, z, w, 0.0, 0.0)


def drawn(count: int, seed: int) -> list[np.ndarray]:
    """Draw the 15 inputs of so many observations."""
    rng = np.random.default_rng(seed)
    rotation = rng.uniform(0.05, 0.4, (3, count))
    centre = rng.uniform(-0.5, 0.5, (3, count))
    rest = [rng.uniform(500, 600, count), *rng.uniform(-5, 5, (2, count)),
            *rng.uniform(-0.05, 0.05, (2, count))]  # fmt: skip
    point = [*rng.uniform(-1, 1, (2, count)), rng.uniform(4, 8, count)]
    return [*rotation, *centre, *rest, *point, rng.uniform(0.5, 1.5, count)]


def by_complex_steps(inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return residuals and their partials, exact to rounding: Squire and Trapp, 1998."""
    step = 1e-30
    at = [sampled(x) for x in inputs]
    values = list(residual_of_arrays(np, *at))
    partials = []
    for k in range(len(at)):
        moved = [x + (1j * step if j == k else 0) for j, x in enumerate(at)]
        partials.append([r.imag / step for r in residual_of_arrays(np, *moved)])
    return values + [partials[k][m] for m in range(2) for k in range(len(at))]


def by_mixad(inputs: list[np.ndarray], device: Device, backend: str | None = None) -> Made:
    """Return residuals, and the blocks (n, 2, 15) in one array."""
    kernel = mixad.broadcast(residual_kernel, backend=backend)
    arrays = [device.put(x) for x in inputs]

    def planes(result):
        values, blocks = result
        return [*values, *planes_of(blocks)]

    return Made(lambda: kernel.value_and_jacobian(*arrays), planes)


def by_duals(inputs: list[np.ndarray], device: Device) -> Made:
    """Return an array for each partial, in two calls."""
    kernel = mixad.broadcast(residual_kernel)
    arrays = [device.put(x) for x in inputs]

    def planes(halves):
        partials = [
            both[m].partials[name]
            for m in range(2)
            for both, names in zip(halves, HALVES, strict=True)
            for name in names
        ]
        return [*(one.primal for one in halves[0]), *partials]

    return Made(lambda: [kernel.duals(*arrays, wrt=names) for names in HALVES], planes)


def by_torch_func(inputs: list[np.ndarray], device: Device) -> Made:
    torch = importlib.import_module("torch")
    stacked = device.put(np.stack(inputs, axis=1))

    def of_one(row):
        both = torch.stack(residual_of_arrays(torch, *row.unbind()))
        return both, both

    jacobian = torch.func.vmap(torch.func.jacfwd(of_one, has_aux=True), chunk_size=CHUNK)
    return Made(lambda: jacobian(stacked), unstacked)


def by_jax(inputs: list[np.ndarray], device: Device) -> Made:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    if jax.devices()[0].platform != device.platform:
        raise UnavailableError(f"JAX runs on {jax.devices()[0].platform} here")
    stacked = jax.numpy.asarray(np.stack(inputs, axis=1))

    def of_one(row):
        both = jax.numpy.stack(residual_of_arrays(jax.numpy, *row))
        return both, both

    jacobian = jax.jit(jax.vmap(jax.jacfwd(of_one, has_aux=True)))
    last = []

    def call():
        last[:] = [jacobian(stacked)]
        return last[0]

    return Made(call, unstacked, lambda: jax.block_until_ready(last), np.asarray)


def unstacked(result):
    """Return the planes in (n, 2, 15) and (n, 2)."""
    jacobian, values = result
    return [*(values[:, m] for m in range(2)), *planes_of(jacobian)]


def planes_of(blocks):
    """Return an array for each partial."""
    return [blocks[:, m, k] for m in range(2) for k in range(len(INPUTS))]


def works(scale: float, seed: int) -> Iterator[Work]:
    """Yield the one problem: all 30 partials and both residuals."""
    count = max(1000, int(COUNT * scale * scale))
    inputs = drawn(count, seed)
    yield Work(
        "bundle adjustment",
        f"{count:,} observations, float64",
        {
            "mixad": Contender(partial(by_mixad, inputs)),
            "mixad duals, an array for each": Contender(partial(by_duals, inputs)),
            "torch.func": Contender(partial(by_torch_func, inputs), "batch"),
            "JAX jit": Contender(partial(by_jax, inputs), "batch"),
        },
        partial(by_complex_steps, inputs),
        (15 + 2 + 30) * 8 * count,
        Tolerance(1e-9, 1e-11),
    )
