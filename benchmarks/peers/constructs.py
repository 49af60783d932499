"""Reductions, scans and histograms with operators of the user, and their gradients.

Numbers are near the neutral element, so that nothing becomes subnormal.  "By hand" is a loop that
takes one element after another, and one back, compiled by Numba; a copy moves the operands once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (1_000_000, 10_000_000)
BINS = (256, 10_000, 1_000_000)
TOLERANCE = Tolerance(relative=1e-7, scaled=1e-7)
WORKS = ("reduce", "reduce, gradient", "scan", "scan, pullback")


# -- operators, as mixad and JAX take them --------------------------------------------------------


def product(a, b):
    return a * b


def affine(f, g):
    """Return the map x -> shift + slope x, f first; a map is (shift, slope)."""
    return g[0] + g[1] * f[0], f[1] * g[1]


def matrix_product(a, b):
    """Return the product of two matrices, number by number."""
    out = np.zeros((len(a), len(a)))
    for i in range(len(a)):
        for j in range(len(a)):
            for k in range(len(a)):
                out[i, j] += a[i, k] * b[k, j]
    return out


def jax_matrix_product(a, b):
    return libraries.jax().numpy.matmul(a, b)


# -- by hand ---------------------------------------------------------------------------------------


@cache
def by_hand(kind: str, is_compiled: bool) -> Mapping[str, Callable[..., Any]]:
    """Return, for each of `WORKS`, a loop over elements; gradients are those of sums of results."""
    njit = libraries.numba().njit(error_model="numpy") if is_compiled else lambda function: function
    if kind == "product":
        return _products(njit)
    return _affine_maps(njit) if kind == "affine" else _matrices(njit)


def _products(njit: Any) -> Mapping[str, Callable[..., Any]]:
    @njit
    def reduce(x):
        y = x[0]
        for i in range(1, x.size):
            y = y * x[i]
        return y

    @njit
    def reduce_gradient(x, _):
        before = np.empty_like(x)
        y = 1.0
        for i in range(x.size):
            before[i] = y
            y = y * x[i]
        r = 1.0
        for i in range(x.size - 1, -1, -1):
            before[i] *= r
            r *= x[i]
        return y, before

    @njit
    def scan(x):
        out = np.empty_like(x)
        y = 1.0
        for i in range(x.size):
            y = y * x[i]
            out[i] = y
        return out

    @njit
    def scan_pullback(x, g):
        y = scan(x)
        out = np.empty_like(x)
        r = 0.0
        for i in range(x.size - 1, 0, -1):
            r += g[i]
            out[i] = y[i - 1] * r
            r *= x[i]
        out[0] = r + g[0]
        return y, out

    return dict(zip(WORKS, (reduce, reduce_gradient, scan, scan_pullback), strict=True))


def _affine_maps(njit: Any) -> Mapping[str, Callable[..., Any]]:
    @njit
    def reduce(a, b):
        p, q = a[0], b[0]
        for i in range(1, a.size):
            p, q = a[i] + b[i] * p, q * b[i]
        return p, q

    @njit
    def scan(a, b):
        ps, qs = np.empty_like(a), np.empty_like(b)
        p, q = 0.0, 1.0
        for i in range(a.size):
            p, q = a[i] + b[i] * p, q * b[i]
            ps[i], qs[i] = p, q
        return ps, qs

    @njit
    def reduce_gradient(a, b, _, __):
        of_a, of_b = scan(a, b)
        p, q = of_a[-1], of_b[-1]
        r, s = 1.0, 1.0
        for i in range(a.size - 1, 0, -1):
            of_b[i] = r * of_a[i - 1] + s * of_b[i - 1]
            of_a[i] = r
            r, s = r * b[i], s * b[i]
        of_a[0], of_b[0] = r, s
        return p, q, of_a, of_b

    @njit
    def scan_pullback(a, b, g, h):
        ps, qs = scan(a, b)
        of_a, of_b = np.empty_like(a), np.empty_like(b)
        r, s = 0.0, 0.0
        for i in range(a.size - 1, 0, -1):
            r, s = r + g[i], s + h[i]
            of_a[i] = r
            of_b[i] = r * ps[i - 1] + s * qs[i - 1]
            r, s = r * b[i], s * b[i]
        of_a[0], of_b[0] = r + g[0], s + h[0]
        return ps, qs, of_a, of_b

    return dict(zip(WORKS, (reduce, reduce_gradient, scan, scan_pullback), strict=True))


def _write_product(a: NDArray, b: NDArray, out: NDArray) -> None:
    k = a.shape[0]
    for i in range(k):
        for j in range(k):
            total = 0.0
            for m in range(k):
                total += a[i, m] * b[m, j]
            out[i, j] = total


def _matrices(njit: Any) -> Mapping[str, Callable[..., Any]]:
    times = njit(_write_product)

    @njit
    def reduce(x):
        y, other = x[0].copy(), np.empty_like(x[0])
        for i in range(1, x.shape[0]):
            times(y, x[i], other)
            y, other = other, y
        return y

    @njit
    def scan(x):
        out = np.empty_like(x)
        out[0] = x[0]
        for i in range(1, x.shape[0]):
            times(out[i - 1], x[i], out[i])
        return out

    @njit
    def back(x, y, g):
        out = np.empty_like(x)
        r, other = np.zeros_like(x[0]), np.empty_like(x[0])
        for i in range(x.shape[0] - 1, 0, -1):
            r += g[i]
            times(y[i - 1].T, r, out[i])
            times(r, x[i].T, other)
            r, other = other, r
        out[0] = r + g[0]
        return out

    @njit
    def reduce_gradient(x, _):
        y, g = scan(x), np.zeros_like(x)
        g[-1] = 1.0
        return y[-1].copy(), back(x, y, g)

    @njit
    def scan_pullback(x, g):
        y = scan(x)
        return y, back(x, y, g)

    return dict(zip(WORKS, (reduce, reduce_gradient, scan, scan_pullback), strict=True))


# -- contenders ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """An operator, elements, and cotangents of prefixes."""

    op: Callable[..., Any]
    jax_op: Callable[..., Any]
    kind: str
    leaves: tuple[NDArray, ...]
    cotangents: tuple[NDArray, ...]
    signature: str | None = None

    def expected(self, work: str) -> list[NDArray]:
        """Return what the loops by hand give, compiled where Numba is there."""
        is_compiled = importlib.util.find_spec("numba") is not None
        call, unpack = numba_by_hand(self, work, is_compiled=is_compiled)
        return unpack(call())


def arrays(found: Any) -> list[NDArray]:
    """Return the arrays of a result, whatever structure it has."""
    if isinstance(found, (tuple, list)):
        return [leaf for each in found for leaf in arrays(each)]
    return [np.asarray(found)]


def as_xs(leaves: Sequence[Any]) -> Any:
    return tuple(leaves) if len(leaves) > 1 else leaves[0]


def mixad(p: Problem, work: str) -> tuple[Call, Unpack]:
    import mixad

    def reduced(*leaves):
        return mixad.reduce(p.op, as_xs(leaves), signature=p.signature)

    def scanned(*leaves):
        return mixad.associative_scan(p.op, as_xs(leaves), signature=p.signature)

    def reduce_gradient():
        found, pull = mixad.vjp(reduced, *p.leaves)
        ones = [np.ones_like(y) for y in arrays(found)]
        return found, pull(as_xs(ones))

    def scan_pullback():
        found, pull = mixad.vjp(scanned, *p.leaves)
        return found, pull(as_xs(p.cotangents))

    calls = (lambda: reduced(*p.leaves), reduce_gradient, lambda: scanned(*p.leaves), scan_pullback)
    return dict(zip(WORKS, calls, strict=True))[work], arrays


def numba_by_hand(p: Problem, work: str, *, is_compiled: bool = True) -> tuple[Call, Unpack]:
    function = by_hand(p.kind, is_compiled)[work]
    further = p.cotangents if work in ("reduce, gradient", "scan, pullback") else ()
    return lambda: function(*p.leaves, *further), arrays


def jax_scan(p: Problem, work: str, sequential: bool) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    leaves = [jax.numpy.asarray(leaf) for leaf in p.leaves]
    cotangents = as_xs([jax.numpy.asarray(g) for g in p.cotangents])

    def step(carry, x):
        carry = p.jax_op(carry, x)
        return carry, carry

    def scanned(*leaves):
        xs = as_xs(leaves)
        if not sequential:
            return jax.lax.associative_scan(p.jax_op, xs)
        first = jax.tree.map(lambda leaf: leaf[0], xs)
        _, ys = jax.lax.scan(step, first, jax.tree.map(lambda leaf: leaf[1:], xs))
        return jax.tree.map(lambda one, rest: jax.numpy.concatenate([one[None], rest]), first, ys)

    def reduced(*leaves):
        return jax.tree.map(lambda y: y[-1], scanned(*leaves))

    def gradient(*leaves):
        found, pull = jax.vjp(reduced, *leaves)
        return found, pull(jax.tree.map(jax.numpy.ones_like, found))

    def pullback(*leaves):
        found, pull = jax.vjp(scanned, *leaves)
        return found, pull(cotangents)

    function = jax.jit(dict(zip(WORKS, (reduced, gradient, scanned, pullback), strict=True))[work])
    return lambda: jax.block_until_ready(function(*leaves)), arrays


def copy(p: Problem, work: str) -> tuple[Call, Unpack]:
    return lambda: [leaf.copy() for leaf in p.leaves], lambda _: []


CONTENDERS: Mapping[str, Callable[[Problem, str], tuple[Call, Unpack]]] = {
    "mixad": mixad,
    "Numba, by hand": numba_by_hand,
    "JAX associative_scan": partial(jax_scan, sequential=False),
    "JAX lax.scan": partial(jax_scan, sequential=True),
    "copy": copy,
}

TARGETS: Mapping[str, Mapping[str, float]] = {
    "reduce": {"Numba, by hand": 1.0},
    "reduce, gradient": {"Numba, by hand": 1.0, "copy": 4.0},
    "scan": {"Numba, by hand": 1.0, "copy": 1.5, "JAX associative_scan": 0.3},
    "scan, pullback": {
        "Numba, by hand": 1.2, "copy": 4.0, "JAX associative_scan": 0.1, "JAX lax.scan": 0.3,
    },
}  # fmt: skip


def problems(n: int, seed: int) -> Iterator[tuple[str, Problem]]:
    """Yield the operators, each with elements of so many numbers altogether."""
    rng = np.random.default_rng(seed)

    def near(value: float, *shape: int) -> NDArray:
        return value + 1e-4 * rng.standard_normal(shape)

    yield "product", Problem(product, product, "product", (near(1, n),), (near(0, n),))
    maps, cotangents = (near(0, n), near(1, n)), (near(0, n), near(0, n))
    yield "affine maps", Problem(affine, affine, "affine", maps, cotangents)
    for k in (2, 3, 5):
        count = n // k**2
        matrices = (np.eye(k) + near(0, count, k, k),)
        yield (
            f"matrices {k} × {k}",
            Problem(
                matrix_product, jax_matrix_product, "matrices", matrices, (near(0, count, k, k),),
                f"({k},{k})",
            ),
        )  # fmt: skip


# -- histograms ------------------------------------------------------------------------------------


@cache
def histograms_by_hand() -> Mapping[str, Callable[..., Any]]:
    njit = libraries.numba().njit(error_model="numpy")

    @njit
    def add(dest, indices, xs):
        out = dest.copy()
        for k in range(xs.size):
            out[indices[k]] += xs[k]
        return out

    @njit
    def largest(dest, indices, xs):
        out = dest.copy()
        for k in range(xs.size):
            if xs[k] > out[indices[k]]:
                out[indices[k]] = xs[k]
        return out

    return {"+": add, "max": largest}


def histogram(
    op: Any, name: str, who: str, arguments: tuple[NDArray, ...], g: NDArray | None
) -> tuple[Call, Unpack]:
    """Return a histogram, or that and the cotangents of elements."""
    dest, indices, xs = arguments
    if who == "Numba, by hand":
        function = histograms_by_hand()[name]
        return lambda: function(dest, indices, xs), arrays
    if who == "JAX":
        jax = libraries.jax()
        dest, indices, xs = map(jax.numpy.asarray, arguments)
        change = {"+": lambda at, v: at.add(v), "max": lambda at, v: at.max(v)}[name]
        combine = jax.jit(lambda xs: change(dest.at[indices], xs))
        both = jax.jit(lambda xs: (lambda found: (found[0], found[1](g)))(jax.vjp(combine, xs)))
        function = combine if g is None else both
        return lambda: jax.block_until_ready(function(xs)), arrays
    import mixad

    def combined(xs):
        return mixad.reduce_by_index(op, dest, indices, xs)

    def both():
        found, pull = mixad.vjp(combined, xs)
        return found, pull(g)

    return (lambda: combined(xs)) if g is None else both, arrays


def histogram_cases(n: int, seed: int) -> Iterator[Case]:
    """Yield one case for each operator and number of bins."""
    rng = np.random.default_rng(seed)
    xs = rng.standard_normal(n)
    for bins in BINS:
        arguments = np.zeros(bins), rng.integers(0, bins, n), xs
        g = rng.standard_normal(bins)
        for name, op in (("+", np.add), ("max", max)):
            make = partial(histogram, op, name, arguments=arguments)
            dest, indices, _ = arguments
            found = dest.copy()
            (np.add if name == "+" else np.maximum).at(found, indices, xs)
            is_it = np.ones(n, bool) if name == "+" else found[indices] == xs
            of_xs = np.where(is_it, g[indices], 0.0)
            yield Case(
                "constructs",
                f"histogram {name}, n = {n}, {bins} bins",
                {
                    **{
                        who: Contender(partial(make, who, g=None), [found])
                        for who in ("mixad", "Numba, by hand", "JAX")
                    },
                    **{
                        f"{who}, gradient": Contender(partial(make, who, g=g), [found, of_xs])
                        for who in ("mixad", "JAX")
                    },
                },
                [
                    Comparison("mixad", "Numba, by hand", Target(1.5 if bins > 1e5 else 1.2)),
                    Comparison("mixad, gradient", "mixad", Target(2.0)),
                    Comparison("mixad, gradient", "JAX, gradient", Target(0.3)),
                ],
                TOLERANCE,
                keeps=(0,),
            )


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size, operator and work, and the histograms of each size."""
    for n in sizes:
        for name, p in problems(n, seed):
            for work in WORKS:
                expected = p.expected(work)
                yield Case(
                    "constructs",
                    f"{work}, {name}, n = {n}",
                    {
                        who: Contender(partial(make, p, work), () if who == "copy" else expected)
                        for who, make in CONTENDERS.items()
                    },
                    [
                        Comparison(
                            "mixad",
                            peer,
                            Target(TARGETS[work][peer]) if peer in TARGETS[work] else None,
                        )
                        for peer in CONTENDERS
                        if peer != "mixad"
                    ],
                    TOLERANCE,
                    keeps=(0,),
                )
        yield from histogram_cases(n, seed)
