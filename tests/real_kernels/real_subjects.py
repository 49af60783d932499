"""The kernels of real programs, with inputs to try them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats

import mixad
from benchmarks.kernels import (
    bundle,
    chemistry,
    eigenvalues,
    escape,
    huber,
    lambert,
    state,
    volatility,
)

__all__ = ["COUNT", "RNG", "SUBJECTS", "Subject", "drawn_bundle", "drawn_cells", "drawn_gas",
           "drawn_matrices", "drawn_points", "drawn_quotes"]  # fmt: skip

COUNT = 60
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Subject:
    """A kernel and some inputs of it.

    ``arguments`` are arrays, and numbers that are not differentiated; ``single`` is the largest
    difference that float32 may make, relative to the largest value or partial; None where it may
    take other turns.
    """

    function: Callable[..., Any]
    arguments: Sequence[Any]
    single: float | None = 1e-4

    @property
    def active(self) -> list[int]:
        return [k for k, a in enumerate(self.arguments) if isinstance(a, np.ndarray)]

    @property
    def kernel(self) -> Any:
        return mixad.broadcast(self.function)

    @property
    def wrt(self) -> list[str]:
        code = self.function.__code__
        return [code.co_varnames[k] for k in self.active]


def drawn_bundle(count: int) -> list[np.ndarray]:
    """Return the inputs of some observations, the observed point among them."""
    inputs = [*RNG.uniform(-0.4, 0.4, (3, count)), *RNG.uniform(-0.5, 0.5, (3, count))]
    inputs += [RNG.uniform(500, 600, count), *RNG.uniform(-5, 5, (2, count))]
    inputs += [*RNG.uniform(-0.05, 0.05, (2, count)), *RNG.uniform(-1, 1, (2, count))]
    inputs += [RNG.uniform(4, 8, count), RNG.uniform(0.5, 1.5, count)]
    return [*inputs, *RNG.uniform(-50, 50, (2, count))]


def drawn_quotes(count: int) -> list[np.ndarray]:
    """Return prices, spots, strikes, times, and the volatilities that made the prices."""
    spot, strike = 100.0 * np.exp(0.1 * RNG.standard_normal((2, count)))
    time, sigma = RNG.uniform(0.5, 2.0, count), RNG.uniform(0.15, 0.6, count)
    return [price_by_scipy(spot, strike, time, sigma), spot, strike, time, sigma]


def price_by_scipy(spot, strike, time, sigma):
    root = sigma * np.sqrt(time)
    d1 = (np.log(spot / strike) + 0.5 * root**2) / root
    return spot * scipy.stats.norm.cdf(d1) - strike * scipy.stats.norm.cdf(d1 - root)


def drawn_gas(count: int) -> list[np.ndarray]:
    """Return pressures, temperatures above the critical one, and two parameters."""
    p, T = RNG.uniform(5.0, 250.0, count), RNG.uniform(320.0, 420.0, count)
    return [p, T, RNG.uniform(60.0, 70.0, count), RNG.uniform(0.028, 0.031, count)]


def drawn_cells(count: int) -> list[np.ndarray]:
    """Return four concentrations, three rates, a time."""
    found = [RNG.uniform(0.5, 1.0, count), RNG.uniform(1.0, 3.0, count)]
    found += [RNG.uniform(0.0, 0.2, count), RNG.uniform(0.0, 0.1, count)]
    found += [RNG.uniform(low, high, count) for low, high in ((1, 9), (0.2, 1), (0.3, 2))]
    return [*found, RNG.uniform(0.5, 3.0, count)]


def drawn_matrices(count: int) -> np.ndarray:
    """Return the six entries of symmetric matrices, with eigenvalues that are well apart."""
    q = np.linalg.qr(RNG.standard_normal((count, 3, 3)))[0]
    apart = np.array([3.0, 1.0, -2.0]) + RNG.uniform(-0.4, 0.4, (count, 3))
    full = np.einsum("nij,nj,nkj->nik", q, apart, q)
    return full[:, [0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]].T.copy()


def drawn_points(count: int) -> list[np.ndarray]:
    """Return points of the plane, some of which never escape."""
    angle, size = RNG.uniform(0, 2 * np.pi, count), RNG.uniform(0.1, 2.5, count)
    return [size * np.cos(angle) - 0.5, size * np.sin(angle)]


SUBJECTS = {
    "bundle": Subject(bundle.residual, drawn_bundle(COUNT)),
    "price": Subject(volatility.call_price, drawn_quotes(COUNT)[1:]),
    "implied volatility": Subject(volatility.implied, drawn_quotes(COUNT)[:4], None),
    "density": Subject(state.density, drawn_gas(COUNT), None),
    "escape": Subject(escape.escape, [*drawn_points(COUNT), 60], None),
    "lambert": Subject(lambert.lambert_w, [RNG.uniform(-0.36, 20.0, COUNT)]),
    "huber": Subject(huber.huber, [RNG.uniform(-3, 3, COUNT), RNG.uniform(0.5, 2, COUNT)]),
    "chemistry": Subject(chemistry.after, [*drawn_cells(COUNT), 1e-5], None),
    "eigenvalues": Subject(eigenvalues.eigenvalues, [*drawn_matrices(COUNT)], 1e-3),
}
