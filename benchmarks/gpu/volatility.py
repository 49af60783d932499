"""Implied volatility of Black and Scholes' calls by safeguarded Newton steps, 10⁷ elements.

The gradient has a closed form: with vega = ∂price/∂σ, ∂σ/∂price = 1/vega and, for any other input,
∂σ/∂x = −(∂price/∂x)/vega, at the solution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.gpu.elementwise import Elementwise, contenders
from benchmarks.gpu.work import Work, sampled
from benchmarks.kernels.volatility import implied
from benchmarks.peers.harness import Tolerance

COUNT = 10**7
STEPS = 12  # of those that cannot leave a loop early


def by_arrays(xp, price, spot, strike, time):
    """Return the volatility after a fixed number of Newton steps."""
    erf = xp.erf if hasattr(xp, "erf") else jax_erf()
    sigma = 0.3 + 0 * price
    for _ in range(STEPS):
        root = sigma * xp.sqrt(time)
        d1 = (xp.log(spot / strike) + 0.5 * root * root) / root
        value = spot * (0.5 + 0.5 * erf(d1 * 0.7071067811865476))
        value = value - strike * (0.5 + 0.5 * erf((d1 - root) * 0.7071067811865476))
        vega = spot * xp.sqrt(time) * 0.3989422804014327 * xp.exp(-0.5 * d1 * d1)
        sigma = sigma - (value - price) / vega
    return sigma


def jax_erf():
    from jax.scipy.special import erf

    return erf


def black_scholes(spot, strike, time, sigma):
    """Return price and its derivatives by spot, strike, time and sigma, in closed form."""
    erf = np.vectorize(math.erf)
    root = sigma * np.sqrt(time)
    d1 = (np.log(spot / strike) + 0.5 * root * root) / root
    n1, n2 = (0.5 + 0.5 * erf(d / math.sqrt(2)) for d in (d1, d1 - root))
    vega = spot * np.sqrt(time) * np.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
    return spot * n1 - strike * n2, n1, -n2, vega * sigma / (2 * time), vega


def problem(count: int, seed: int) -> tuple[Elementwise, np.ndarray]:
    """Draw prices, and the volatilities that they are of."""
    rng = np.random.default_rng(seed)
    spot, strike = 100 * np.exp(0.1 * rng.standard_normal((2, count)))
    time, sigma = rng.uniform(0.5, 2.0, count), rng.uniform(0.15, 0.6, count)
    cotangent = rng.standard_normal(count)
    price = np.empty(count)
    for part in np.array_split(np.arange(count), max(1, count // 10**6)):
        price[part] = black_scholes(spot[part], strike[part], time[part], sigma[part])[0]
    return Elementwise(implied, by_arrays, (), (price, spot, strike, time), cotangent), sigma


def works(scale: float, seed: int) -> Iterator[Work]:
    """Yield the one problem."""
    count = max(1000, int(COUNT * scale * scale))
    e, sigma = problem(count, seed)

    def expected() -> list[np.ndarray]:
        at = [sampled(x) for x in (*e.active[1:], sigma)]
        w = sampled(e.cotangent)
        _, by_spot, by_strike, by_time, vega = black_scholes(*at)
        return [at[3], w / vega, *(-w * d / vega for d in (by_spot, by_strike, by_time))]

    tolerance = Tolerance(1e-6, 1e-7)
    title = f"{count:,} elements, float64"
    yield Work("implied volatility", title, contenders(e), expected, e.bytes_moved, tolerance)
