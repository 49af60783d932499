"""Implied volatility of Black and Scholes' calls with delta, theta and vega at it, float64.

A search by Newton's steps in a bracket, of as many turns as a quote takes; systems that compile no
such loop over arrays take `STEPS` steps for every quote, in a bracket that stays.  The Greeks are
derived by each system from the price alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels import volatility
from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Tolerance, Unpack

SIZES = (10_000_000,)
STEPS = 7  # what these quotes take at most, and one more
BRACKET = 0.05, 1.0  # where these steps stay
CHECKED = 61
TOLERANCE = Tolerance(relative=1e-7, scaled=1e-9)
HALF = 0.7071067811865476
DENSITY = 0.3989422804014327


@dataclass(frozen=True)
class Problem:
    """Quotes, and the volatilities that made them."""

    price: NDArray
    spot: NDArray
    strike: NDArray
    time: NDArray
    sigma: NDArray

    @property
    def quotes(self) -> tuple[NDArray, ...]:
        return self.price, self.spot, self.strike, self.time

    @property
    def bytes_moved(self) -> int:
        return 8 * self.price.nbytes

    def expected(self) -> tuple[NDArray, ...]:
        """Return volatility, delta, the derivative by time and vega in closed form."""
        spot, strike, time, sigma = (
            x[::CHECKED] for x in (self.spot, self.strike, self.time, self.sigma)
        )
        root = sigma * np.sqrt(time)
        d1 = (np.log(spot / strike) + 0.5 * root * root) / root
        vega = spot * np.sqrt(time) * DENSITY * np.exp(-0.5 * d1 * d1)
        return sigma, 0.5 + 0.5 * _erf(HALF * d1), vega * sigma / (2 * time), vega


_erf = np.vectorize(math.erf, otypes=[float])


def problem(size: int, seed: int) -> Problem:
    """Draw quotes."""
    import mixad

    rng = np.random.default_rng(seed)
    spot = rng.uniform(80.0, 120.0, size)
    time, sigma = rng.uniform(0.5, 2.0, size), rng.uniform(0.15, 0.6, size)
    strike = spot * np.exp(rng.uniform(-1.5, 1.5, size) * sigma * np.sqrt(time))
    return Problem(mixad.broadcast(volatility.call_price)(spot, strike, time, sigma),
                   spot, strike, time, sigma)  # fmt: skip


def checked(results: Sequence) -> list[NDArray]:
    """Return the checked elements of volatility, delta, theta and vega of any library."""
    return [np.asarray(x)[::CHECKED] for x in results]


def mixad(p: Problem) -> tuple[Call, Unpack]:
    """Return one launch: the search, then dual numbers through the price."""
    import mixad

    kernel = mixad.broadcast(volatility.with_greeks)
    names = ("by_spot", "by_time", "by_sigma")

    def unpack(chunks):
        sigma, price = chunks
        return checked([sigma.primal, *(price.partials[name] for name in names)])

    return lambda: kernel.duals(*p.quotes, 0.0, 0.0, 0.0, wrt=names), unpack


def mixad_through(p: Problem) -> tuple[Call, Unpack]:
    """Return one launch with dual numbers through the search: ∂σ/∂price is 1/vega, and so on."""
    import mixad

    kernel = mixad.broadcast(volatility.implied)

    def unpack(chunk):
        vega = 1.0 / chunk.partials["price"]
        greeks = (-chunk.partials[name] * vega for name in ("spot", "time"))
        return checked([chunk.primal, *greeks, vega])

    return lambda: kernel.duals(*p.quotes, wrt=("price", "spot", "time")), unpack


def price_of_arrays(xp, erf: Callable, spot, strike, time, sigma):
    """Return the price of calls, by the functions of a library."""
    root = sigma * xp.sqrt(time)
    d1 = (xp.log(spot / strike) + 0.5 * root * root) / root
    return spot * (0.5 + 0.5 * erf(HALF * d1)) - strike * (0.5 + 0.5 * erf(HALF * (d1 - root)))


def newton(xp, erf: Callable, price, spot, strike, time, sigma):
    """Return a volatility after a step."""
    root = sigma * xp.sqrt(time)
    d1 = (xp.log(spot / strike) + 0.5 * root * root) / root
    vega = spot * xp.sqrt(time) * DENSITY * xp.exp(-0.5 * d1 * d1)
    return sigma - (price_of_arrays(xp, erf, spot, strike, time, sigma) - price) / vega


def torch_call(p: Problem, compiled: bool) -> tuple[Call, Unpack]:
    torch = libraries.torch()
    quotes = [torch.from_numpy(x) for x in p.quotes]

    def search(price, spot, strike, time):
        sigma = 0.3 + 0.0 * price
        for _ in range(STEPS):
            sigma = newton(torch, torch.erf, price, spot, strike, time, sigma)
            sigma = torch.clip(sigma, *BRACKET)
        return sigma

    value = partial(price_of_arrays, torch, torch.erf)
    if compiled:
        search, value = (torch.compile(f, dynamic=False) for f in (search, value))

    def call():
        _, spot, strike, time = quotes
        with torch.no_grad():
            sigma = search(*quotes)
        active = [x.detach().requires_grad_() for x in (spot, time, sigma)]
        total = value(active[0], strike, active[1], active[2]).sum()
        return sigma, *torch.autograd.grad(total, active)

    return call, checked


def jax_call(p: Problem, search: Callable) -> tuple[Call, Unpack]:
    """Return a search, and the gradient of the price where it ended."""
    jax = libraries.jax()
    erf = jax.scipy.special.erf
    greeks = jax.grad(partial(price_of_arrays, jax.numpy, erf), argnums=(0, 2, 3))

    def of_one(price, spot, strike, time):
        sigma = search(jax, erf, price, spot, strike, time)
        return sigma, *greeks(spot, strike, time, sigma)

    compiled = jax.jit(jax.vmap(of_one))
    quotes = [jax.numpy.asarray(x) for x in p.quotes]
    return lambda: jax.block_until_ready(compiled(*quotes)), checked


def jax_while(jax, erf, price, spot, strike, time):
    """Return the volatility by the exact loop, bracket and all."""
    jnp = jax.numpy

    def turn(state):
        sigma, low, high, _, turns = state
        off = price_of_arrays(jnp, erf, spot, strike, time, sigma) - price
        low, high = jnp.where(off > 0.0, low, sigma), jnp.where(off > 0.0, sigma, high)
        new = newton(jnp, erf, price, spot, strike, time, sigma)
        new = jnp.where((low <= new) & (new <= high), new, 0.5 * (low + high))
        return new, low, high, off, turns + 1

    first = 0.3, 0.001, 4.0, 1.0, 0
    return jax.lax.while_loop(lambda s: (abs(s[3]) >= 1e-9) & (s[4] < 40), turn, first)[0]


def jax_fixed(jax, erf, price, spot, strike, time):
    """Return the volatility after a fixed number of steps."""
    sigma = 0.3 + 0.0 * price
    for _ in range(STEPS):
        sigma = newton(jax.numpy, erf, price, spot, strike, time, sigma)
        sigma = jax.numpy.clip(sigma, *BRACKET)
    return sigma


def jax_reverse(p: Problem) -> tuple[Call, Unpack]:
    """Return the gradient of the exact loop: JAX says why there is none."""
    jax = libraries.jax()
    erf = jax.scipy.special.erf
    gradient = jax.vmap(jax.value_and_grad(partial(jax_while, jax, erf), argnums=(0, 1, 3)))
    quotes = [jax.numpy.asarray(x) for x in p.quotes]
    return lambda: jax.block_until_ready(jax.jit(gradient)(*quotes)), checked


def numba_by_hand(p: Problem) -> tuple[Call, Unpack]:
    """Return the kernel's own text, compiled by Numba, and Greeks in closed form."""
    numba = libraries.numba()
    prange, search = numba.prange, numba.njit(volatility.implied, error_model="numpy")

    @numba.njit(parallel=True, error_model="numpy")
    def greeks(price, spot, strike, time):
        found = np.empty((4, price.size))
        for k in prange(price.size):
            sigma = search(price[k], spot[k], strike[k], time[k])
            root = sigma * math.sqrt(time[k])
            d1 = (math.log(spot[k] / strike[k]) + 0.5 * root * root) / root
            vega = spot[k] * math.sqrt(time[k]) * DENSITY * math.exp(-0.5 * d1 * d1)
            found[0, k] = sigma
            found[1, k] = 0.5 + 0.5 * math.erf(HALF * d1)
            found[2, k] = vega * sigma / (2.0 * time[k])
            found[3, k] = vega
        return found

    return lambda: greeks(*p.quotes), checked


def copy(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(p.bytes_moved)


PEERS = {
    "mixad, duals through the search": mixad_through,
    "copy of the bytes": copy,
    "Numba, Greeks by hand": numba_by_hand,
    "JAX while_loop": partial(jax_call, search=jax_while),
    "JAX while_loop, reverse": jax_reverse,
    "JAX, fixed steps": partial(jax_call, search=jax_fixed),
    "torch.compile, fixed steps": partial(torch_call, compiled=True),
    "PyTorch eager, fixed steps": partial(torch_call, compiled=False),
}


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per number of quotes."""
    for size in sizes:
        p = problem(size, seed)
        expected = p.expected()
        contenders = {"mixad": Contender(partial(mixad, p), expected)}
        for name, make in PEERS.items():
            contenders[name] = Contender(partial(make, p), () if make is copy else expected)
        comparisons = [Comparison("mixad", peer) for peer in PEERS]
        yield Case(
            "volatility",
            f"{size:,} quotes",
            contenders,
            comparisons,
            TOLERANCE,
            keeps=(0,),
            rounds=8,  # JAX takes seconds
        )
