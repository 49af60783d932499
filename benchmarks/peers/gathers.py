"""Kernels that read arrays at computed indices: values, and cotangents for a given one.

Interpolation in a table, Lennard-Jones forces, deposition of particles in cells, and a product with
a sparse matrix.  Expected values and cotangents are NumPy's, by formulas derived by hand; "by hand"
is a loop that takes one element after another, compiled by Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels.gathers import atoms, between, energy, row_product, shares
from benchmarks.peers import libraries
from benchmarks.peers.constructs import arrays
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (1_000_000,)
"""Particles, and rows of the matrix: a quarter of the points, and some 360 for each atom."""

TOLERANCE = Tolerance(relative=1e-9, scaled=1e-9)
TABLE, CELLS = 1001, 256
CUTOFF = 2.22
"""Spacings up to which atoms make a pair: some 43,000 pairs of 14³ atoms."""

BY_HAND = "Numba, by hand"
Maker = Callable[[], tuple[Call, Unpack]]


@dataclass(frozen=True)
class Problem:
    """Arrays that are differentiated, the cotangent of what a function makes of them, and what
    these are: the value, then cotangents.

    Functions take the constants after the arrays.
    """

    arrays: tuple[NDArray, ...]
    cotangent: NDArray
    value: NDArray
    cotangents: tuple[NDArray, ...]
    constants: tuple[NDArray, ...] = ()

    def contender(self, make: Maker, is_gradient: bool) -> Contender:
        return Contender(make, [self.value, *(self.cotangents if is_gradient else ())])


def mixad(p: Problem, function: Callable[..., Any], is_gradient: bool) -> tuple[Call, Unpack]:
    import mixad

    def of_arrays(*active):
        return function(*active, *p.constants)

    if is_gradient:
        return lambda: mixad.value_and_vjp(of_arrays, p.arrays, p.cotangent), arrays
    return lambda: of_arrays(*p.arrays), arrays


def jax_jit(p: Problem, function: Callable[..., Any], is_gradient: bool) -> tuple[Call, Unpack]:
    """Return a function of JAX and of arrays, compiled; nothing that it reads is known before."""
    jax = libraries.jax()

    def both(active, g, constants):
        found, pull = jax.vjp(lambda *active: function(jax, *active, *constants), *active)
        return found, pull(g)

    def value(active, _, constants):
        return function(jax, *active, *constants)

    call = jax.jit(both if is_gradient else value)
    arguments = jax.tree.map(jax.numpy.asarray, (p.arrays, p.cotangent, p.constants))
    return lambda: jax.block_until_ready(call(*arguments)), arrays


def numba_by_hand(
    p: Problem, make: Callable[..., Any], *helpers: Callable[..., Any]
) -> tuple[Call, Unpack]:
    """Return a loop over elements that calls functions of one."""
    njit = libraries.numba().njit(error_model="numpy")
    function = make(njit, *map(njit, helpers))
    return lambda: function(*p.arrays, *p.constants), arrays


def _case(
    title: str,
    p: Problem,
    makers: Mapping[str, tuple[Maker, bool]],
    comparisons: Sequence[tuple[str, str, float | None]],
) -> Case:
    """Return a case; of each contender it is known whether it gives cotangents, too."""
    return Case(
        "gathers",
        title,
        {who: p.contender(make, is_gradient) for who, (make, is_gradient) in makers.items()},
        [
            Comparison(subject, against, None if limit is None else Target(limit))
            for subject, against, limit in comparisons
        ],
        TOLERANCE,
        keeps=(0,),
    )


def _ours_and_jax(
    p: Problem, ours: Callable[..., Any], theirs: Callable[..., Any]
) -> dict[str, tuple[Maker, bool]]:
    """Return values alone, and values and cotangents, of mixad and JAX."""
    return {
        f"{who}{', gradient' if is_gradient else ''}": (
            partial(make, p, function, is_gradient),
            is_gradient,
        )
        for who, make, function in (("mixad", mixad, ours), ("JAX", jax_jit, theirs))
        for is_gradient in (False, True)
    }


# -- interpolation ---------------------------------------------------------------------------------


def interpolate_by_hand(njit, between):
    @njit
    def interpolated(table, x):
        out = np.empty_like(x)
        for k in range(x.size):
            out[k] = between(table, x[k])
        return out

    return interpolated


def interpolate_in_jax(jax, table, x):
    k = x.astype(int)
    w = x - k
    return table[k] * (1.0 - w) + table[k + 1] * w


def interpolation(points: int, rng: np.random.Generator) -> Case:
    import mixad as ad

    table, x, g = rng.random(TABLE), rng.random(points) * (TABLE - 1.1), rng.normal(size=points)
    k = x.astype(int)
    w, slope = x - k, table[k + 1] - table[k]
    of_table = np.bincount(k, g * (1.0 - w), TABLE) + np.bincount(k + 1, g * w, TABLE)
    p = Problem((table, x), g, table[k] + slope * w, (of_table, g * slope))
    line = ad.broadcast(lambda a, b, w: a * (1.0 - w) + b * w)

    def gathered(table, x):
        k = np.floor(x).astype(int)
        return line(table[k], table[k + 1], x - k)

    outside = "mixad, gathered before, gradient"
    return _case(
        f"interpolation in a table of {TABLE:,} numbers, {points:,} points",
        p,
        {
            **_ours_and_jax(p, ad.broadcast(between), interpolate_in_jax),
            outside: (partial(mixad, p, gathered, True), True),
            BY_HAND: (partial(numba_by_hand, p, interpolate_by_hand, between), False),
        },
        [
            ("mixad", BY_HAND, 1.1),
            ("mixad, gradient", "mixad", 2.0),
            ("mixad, gradient", "JAX, gradient", 0.25),
            ("mixad, gradient", outside, 0.2),
        ],
    )


# -- forces ----------------------------------------------------------------------------------------


def forces_by_hand(njit):
    @njit
    def both(pos, first, second):
        total, of_pos = 0.0, np.zeros_like(pos)
        for k in range(first.size):
            i, j = first[k], second[k]
            x, y, z = pos[i, 0] - pos[j, 0], pos[i, 1] - pos[j, 1], pos[i, 2] - pos[j, 2]
            r2 = x * x + y * y + z * z
            s = 1.0 / (r2 * r2 * r2)
            total += 4.0 * (s * s - s)
            f = 24.0 * (s - 2.0 * s * s) / r2
            of_pos[i, 0] += f * x
            of_pos[i, 1] += f * y
            of_pos[i, 2] += f * z
            of_pos[j, 0] -= f * x
            of_pos[j, 1] -= f * y
            of_pos[j, 2] -= f * z
        return total, of_pos

    return both


def lennard_jones(side: int, rng: np.random.Generator) -> Case:
    import mixad as ad

    pos, first, second = atoms(side, CUTOFF, rng)
    d = pos[first] - pos[second]
    r2 = (d * d).sum(1)
    of_d = (24.0 * (r2**-4 - 2.0 * r2**-7))[:, None] * d
    of_pos = np.zeros_like(pos)
    np.add.at(of_pos, first, of_d)
    np.subtract.at(of_pos, second, of_d)
    total = (4.0 * (r2**-6 - r2**-3)).sum()
    p = Problem((pos,), np.ones(()), total, (of_pos,), (first, second))
    kernel = ad.broadcast(energy)

    def ours(pos, first, second):
        return kernel(pos, first, second).sum()

    def theirs(jax, pos, first, second):
        d = pos[first] - pos[second]
        s = 1.0 / (d * d).sum(1) ** 3
        return (4.0 * (s * s - s)).sum()

    return _case(
        f"Lennard-Jones, {len(pos):,} atoms, {len(first):,} pairs, energy and forces",
        p,
        {
            "mixad": (partial(mixad, p, ours, True), True),
            "JAX": (partial(jax_jit, p, theirs, True), True),
            BY_HAND: (partial(numba_by_hand, p, forces_by_hand), True),
        },
        [("mixad", "JAX", 0.25), ("mixad", BY_HAND, 1.3)],
    )


# -- particles in cells ----------------------------------------------------------------------------


def deposit(kernel, x):
    """Return how much of particles each cell of a ring has."""
    import mixad as ad

    k, after, left, right = kernel(x, CELLS)
    density = ad.reduce_by_index(np.add, np.zeros(CELLS), k, left)
    return ad.reduce_by_index(np.add, density, after, right)


def deposit_in_jax(jax, x):
    k = x.astype(int)
    w = x - k
    return jax.numpy.zeros(CELLS).at[k].add(1.0 - w).at[(k + 1) % CELLS].add(w)


def deposit_by_hand(njit, shares):
    @njit
    def deposited(x):
        density = np.zeros(CELLS)
        for i in range(x.size):
            k, after, left, right = shares(x[i], CELLS)
            density[k] += left
            density[after] += right
        return density

    return deposited


def particles(n: int, rng: np.random.Generator) -> Case:
    import mixad as ad

    x, g = rng.random(n) * CELLS, rng.normal(size=CELLS)
    k = x.astype(int)
    w, after = x - k, (k + 1) % CELLS
    density = np.bincount(k, 1.0 - w, CELLS) + np.bincount(after, w, CELLS)
    p = Problem((x,), g, density, (g[after] - g[k],))
    return _case(
        f"particles in cells, {n:,} in {CELLS}",
        p,
        {
            **_ours_and_jax(p, partial(deposit, ad.broadcast(shares)), deposit_in_jax),
            BY_HAND: (partial(numba_by_hand, p, deposit_by_hand, shares), False),
        },
        [
            ("mixad", "JAX", 0.6),
            ("mixad, gradient", "JAX, gradient", 0.6),
            ("mixad", BY_HAND, None),
        ],
    )


# -- sparse matrices -------------------------------------------------------------------------------


def sparse_product(n: int, rng: np.random.Generator) -> Case:
    """Return a product with the matrix of a stencil of seven points in a periodic box."""
    import mixad as ad

    side = max(2, round(n ** (1 / 3)))
    around = np.array([-side * side, -side, -1, 0, 1, side, side * side])
    columns = ((np.arange(n)[:, None] + around) % n).astype(np.int32).reshape(-1)
    starts = np.arange(0, 7 * n + 1, 7, dtype=np.int32)
    rows = np.arange(n, dtype=np.int32)
    values, v, g = rng.normal(size=7 * n), rng.normal(size=n), rng.normal(size=n)
    row_of = np.repeat(rows, 7)
    value = (values * v[columns]).reshape(n, 7).sum(1)
    of_v = np.bincount(columns, values * g[row_of], n)
    of_values = g[row_of] * v[columns]
    p = Problem((values, v), g, value, (of_values, of_v), (columns, starts, rows, row_of))
    kernel = ad.broadcast(row_product)

    def ours(values, v, columns, starts, rows, _):
        return kernel(values, columns, starts, v, rows)

    def theirs(jax, values, v, columns, _, __, row_of):
        each = values * v[columns]
        return jax.ops.segment_sum(each, row_of, n, indices_are_sorted=True)

    def scipy_sparse():
        from scipy import sparse

        matrix = sparse.csr_array((values, columns, starts), (n, n))
        return lambda: matrix @ v, arrays

    return _case(
        f"sparse matrix of {n:,} rows × 7 by a vector",
        p,
        {**_ours_and_jax(p, ours, theirs), "scipy.sparse": (scipy_sparse, False)},
        [
            ("mixad", "scipy.sparse", 1.1),
            ("mixad, gradient", "mixad", 3.0),
            ("mixad, gradient", "JAX, gradient", None),
        ],
    )


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield every program for each size."""
    for n in sizes:
        rng = np.random.default_rng(seed)
        yield interpolation(4 * n, rng)
        yield lennard_jones(max(3, round(0.14 * n ** (1 / 3))), rng)
        yield particles(n, rng)
        yield sparse_product(n, rng)
