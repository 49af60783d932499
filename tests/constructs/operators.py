"""Associative operators, what they are step by step in NumPy, and what derivatives are there."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixad

RNG = np.random.default_rng(0)


class Case(NamedTuple):
    """An operator of mixad's language, and the same of whole arrays of any library.

    ``op`` is made of what it captures; ``step(xp, a, b, captured)`` takes and returns tuples of
    arrays; ``draw(rng, shape)`` returns arrays of elements, for which products stay near 1.
    """

    op: Callable[[Any], Any]
    step: Callable[..., tuple[Any, ...]]
    draw: Callable[..., tuple[Any, ...]]
    signature: str | None = None
    captured: Any = None


def element(leaves):
    """Return a number, or a tuple of several."""
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


def leaves_of(found):
    return found if isinstance(found, tuple) else (found,)


def matrices(n):
    def product(a, b):
        out = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                for k in range(n):
                    out[i, j] = out[i, j] + a[i, k] * b[k, j]
        return out

    def step(xp, a, b, _):
        return ((a[0][..., :, :, None] * b[0][..., None, :, :]).sum(-2),)

    def draw(rng, shape):
        return (np.eye(n) + rng.standard_normal((*shape, n, n)) * 0.05,)

    return Case(lambda _: product, step, draw, f"({n},{n})")


def argmax(a, b):
    (x, i), (y, j) = a, b
    if x >= y:
        return x, i
    return y, j


def signed(a, b):
    if a < 0.0:
        return -(-a * b)
    return a * b


def log_sum(a, b):
    m = max(a[0], b[0])
    return m, a[1] * np.exp(a[0] - m) + b[1] * np.exp(b[0] - m)


def log_sum_step(xp, a, b, _):
    m = xp.maximum(a[0], b[0])
    return m, a[1] * xp.exp(a[0] - m) + b[1] * xp.exp(b[0] - m)


def min_plus(a, b):
    return min(a[0], a[1] + b[0]), a[1] + b[1]


def by_table(table):
    return lambda a, b: (a[0] + b[0] + table[a[1]] * a[0] * b[0], max(a[1], b[1]))


def by_table_step(xp, a, b, table):
    return a[0] + b[0] + table[a[1]] * a[0] * b[0], xp.maximum(a[1], b[1])


def numbers(scale, middle=0.0, count=1):
    return lambda rng, shape: tuple(
        middle + rng.standard_normal(shape) * scale for _ in range(count)
    )


def counted(rng, shape):
    return rng.standard_normal(shape), np.broadcast_to(np.arange(shape[-1]), shape).copy()


def placed(rng, shape):
    """Each row has one place of the table."""
    places = np.zeros(shape, int) + np.arange(math.prod(shape[1:])).reshape(shape[1:]) % 3
    return rng.standard_normal(shape) * 0.1, places


def affine(a, b):
    """Return x -> b(a(x)), of maps that are pairs (offset, slope)."""
    return b[0] + b[1] * a[0], a[1] * b[1]


def permuted(a, b):
    """Return a at b, of permutations of four numbers."""
    return pick(a, b[0]), pick(a, b[1]), pick(a, b[2]), pick(a, b[3])


def pick(a, k):
    if k == 0:
        return a[0]
    if k == 1:
        return a[1]
    return a[2] if k == 2 else a[3]


CASES = {
    "product": Case(
        lambda _: lambda a, b: a * b, lambda xp, a, b, _: (a[0] * b[0],), numbers(0.1, 1.0)
    ),
    "a*b+a+b": Case(
        lambda _: lambda a, b: a * b + a + b,
        lambda xp, a, b, _: (a[0] * b[0] + a[0] + b[0],),
        numbers(0.1),
    ),
    "sum": Case(lambda _: lambda a, b: a + b, lambda xp, a, b, _: (a[0] + b[0],), numbers(0.1)),
    "min": Case(lambda _: min, lambda xp, a, b, _: (xp.minimum(a[0], b[0]),), numbers(1.0)),
    "max": Case(lambda _: max, lambda xp, a, b, _: (xp.maximum(a[0], b[0]),), numbers(1.0)),
    "logaddexp": Case(
        lambda _: np.logaddexp, lambda xp, a, b, _: (xp.logaddexp(a[0], b[0]),), numbers(1.0)
    ),
    "affine": Case(
        lambda _: affine,
        lambda xp, a, b, _: affine(a, b),
        lambda rng, shape: numbers(1.0)(rng, shape) + numbers(0.1, 0.9)(rng, shape),
    ),
    "2x2": matrices(2),
    "3x3": matrices(3),
    "5x5": matrices(5),
    "min-plus": Case(
        lambda _: min_plus,
        lambda xp, a, b, _: (xp.minimum(a[0], a[1] + b[0]), a[1] + b[1]),
        numbers(0.1, 0.0, 2),
    ),
    "log sum": Case(lambda _: log_sum, log_sum_step, numbers(0.3, 1.0, 2)),
    "argmax": Case(
        lambda _: argmax,
        lambda xp, a, b, _: tuple(xp.where(a[0] >= b[0], x, y) for x, y in zip(a, b, strict=True)),
        counted,
    ),
    "branches": Case(
        lambda _: signed,
        lambda xp, a, b, _: (a[0] * b[0],),
        lambda rng, shape: (rng.choice([-1.0, 1.0], shape) * (1.0 + numbers(0.1)(rng, shape)[0]),),
    ),
    "a captured number": Case(
        lambda c: lambda a, b: a + b + c * a * b,
        lambda xp, a, b, c: (a[0] + b[0] + c * a[0] * b[0],),
        numbers(0.1),
        captured=np.float64(0.7),
    ),
    "an indexed table": Case(
        by_table, by_table_step, placed, captured=np.array([0.3, -0.8, 1.2])
    ),
}  # fmt: skip

SLOW = "2x2 3x3 5x5".split()
SLOW_IN_RUNS = {name for name in CASES if name not in ("product", "a*b+a+b", "sum", "branches")}
"""Cases whose derivatives take long to compile; if there are several runs."""

ROWS = [
    pytest.param(CASES[name], (n, 3), id=f"{name}, {n}", marks=[pytest.mark.slow] * is_slow)
    for name in CASES
    for n in (5, 241)
    for is_slow in [name in SLOW or (n > 120 and name in SLOW_IN_RUNS)]
]
"""Cases with shapes of one run of elements and of several."""


def prefixes(case, leaves, captured=None):
    """Return all combinations along the first axis, one after another, in longer floats."""
    leaves = [long(leaf) for leaf in leaves]
    totals = [tuple(leaf[0] for leaf in leaves)]
    for at in range(1, len(leaves[0])):
        totals.append(case.step(np, totals[-1], tuple(leaf[at] for leaf in leaves), captured))
    return tuple(np.stack(each) for each in zip(*totals, strict=True))


def long(array):
    array = np.asarray(array)
    return array.astype(np.longdouble) if array.dtype.kind == "f" else array


def floats_of(leaves):
    return [leaf for leaf in leaves if leaf.dtype.kind == "f"]


def close(one, other, tolerance=1e-12):
    """Compare arrays beside the largest number."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape
    both = np.isfinite(one.astype(float)) | np.isfinite(other.astype(float))
    error = np.abs(long(one) - long(other))[both].max(initial=0.0)
    assert error <= tolerance * (1.0 + np.abs(other[both]).max(initial=0.0)), error
    np.testing.assert_array_equal(one[~both], other[~both])


# -- derivatives -----------------------------------------------------------------------------------


def curved(ys, weights):
    """Return a number that depends on all floats, not linearly."""
    return sum((w * y * (1.0 + y)).sum() for y, w in zip(ys, weights, strict=True))


class Derivatives:
    """Checks of a function, ``loss``, that has the derivatives of another, ``by_steps``.

    Of arrays ``given``, ``along`` them and in an ``other`` direction.
    """

    def check_first(self, tolerance=1e-10):
        which = tuple(range(len(self.given)))
        wanted = slope(self.by_steps, self.given, self.along, 1e-5)
        gradients = mixad.grad(self.loss, argnums=which)(*self.given)
        close(inner(gradients, self.along), wanted, tolerance)
        close(mixad.jvp(self.loss, tuple(self.given), tuple(self.along))[1], wanted, tolerance)

    def check_second(self, tolerance=1e-7):
        which = tuple(range(len(self.given)))
        wanted = slope(
            lambda *x: slope(self.by_steps, x, self.along, 1e-4), self.given, self.other, 1e-4
        )
        found = mixad.hvp(self.loss, tuple(self.given), tuple(self.along))
        close(inner(leaves_of(found), self.other), wanted, tolerance)

        def slope_of_loss(*given):
            return inner(mixad.grad(self.loss, argnums=which)(*given), self.along)

        found = mixad.grad(slope_of_loss, argnums=which)(*self.given)
        close(inner(found, self.other), wanted, tolerance)


class Problem(Derivatives):
    """A case with elements, what a construct makes of them, and the same step by step.

    ``run(op, xs, **options)`` is the construct along the first axis, ``after`` what it gives of all
    prefixes.
    """

    def __init__(self, case, shape, run, after, seed=0):
        rng = np.random.default_rng(seed)
        self.case, self.run, self.after = case, run, after
        self.leaves = case.draw(rng, shape)
        self.is_float = [leaf.dtype.kind == "f" for leaf in self.leaves]
        self.given = [*floats_of(self.leaves)]
        if case.captured is not None:
            self.given.append(case.captured)
        self.weights = [rng.standard_normal(y.shape) for y in floats_of(self.expected())]
        self.along, self.other = (
            [rng.standard_normal(np.shape(x)) for x in self.given] for _ in range(2)
        )

    def expected(self):
        return tuple(self.after(y) for y in prefixes(self.case, self.leaves, self.case.captured))

    def found(self):
        return self.run_on(self.leaves, self.case.captured)

    def run_on(self, leaves, captured):
        op, signature = self.case.op(captured), self.case.signature
        return leaves_of(self.run(op, element(leaves), signature=signature))

    def _taken_apart(self, given):
        given = list(given)
        captured = given.pop() if self.case.captured is not None else None
        return [
            given.pop(0) if f else x for x, f in zip(self.leaves, self.is_float, strict=True)
        ], captured

    def loss(self, *given):
        ys = self.run_on(*self._taken_apart(given))
        return curved([y for y, f in zip(ys, self.is_float, strict=True) if f], self.weights)

    def by_steps(self, *given):
        leaves, captured = self._taken_apart(given)
        ys = prefixes(self.case, leaves, captured)
        return curved(
            [self.after(y) for y, f in zip(ys, self.is_float, strict=True) if f], self.weights
        )


def slope(f, given, along, step):
    """Return the derivative of a function of longer floats along a direction, by differences."""
    given, along = [long(x) for x in given], [long(d) for d in along]

    def at(t):
        return f(*[x + t * np.longdouble(step) * d for x, d in zip(given, along, strict=True)])

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * np.longdouble(step))


def inner(xs, ys):
    return sum((x * y).sum() for x, y in zip(xs, ys, strict=True))


def check_transposed(f, given, rng, tolerance=1e-11):
    """Check ⟨ȳ, J ẋ⟩ = ⟨Jᵀ ȳ, ẋ⟩."""
    along = tuple(rng.standard_normal(np.shape(x)) for x in given)
    ys, moved = mixad.jvp(f, tuple(given), along)
    cotangents = [rng.standard_normal(np.shape(y)) for y in leaves_of(ys)]
    _, pull = mixad.vjp(f, *given)
    found = inner(leaves_of(pull(element(cotangents))), along)
    close(found, inner(cotangents, leaves_of(moved)), tolerance)


def check_with_jax(jax, construct, reference, given, along):
    """Compare values, gradients and second derivatives with those of functions of JAX."""
    gradient = jax.grad(reference, tuple(range(len(given))))

    def second(given, along):
        return jax.jvp(gradient, given, along)[1]

    with jax.enable_x64(True):
        arrays, along = (tuple(map(jax.numpy.asarray, each)) for each in (given, along))
        wanted = (
            jax.jit(reference)(*arrays),
            jax.jit(gradient)(*arrays),
            jax.jit(second)(arrays, along),
        )
        wanted = jax.tree.map(np.asarray, wanted)
    along = tuple(map(np.asarray, along))
    close(construct(*given), wanted[0], 1e-11)
    found = mixad.grad(construct, argnums=tuple(range(len(given))))(*given)
    for one, other in zip(found, wanted[1], strict=True):
        close(one, other, 1e-10)
    found = leaves_of(mixad.hvp(construct, tuple(given), along))
    for one, other in zip(found, wanted[2], strict=True):
        close(one, other, 1e-9)


# -- arrays and bits -------------------------------------------------------------------------------

LAYOUTS = {
    "in order": lambda x: x.copy(),
    "Fortran's": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda x: x[::-1, ..., ::-1].copy()[::-1, ..., ::-1],
    "read-only": lambda x: np.broadcast_to(x.copy(), x.shape),
    "permuted": lambda x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0),
    "not aligned to 64 bytes": lambda x: np.concatenate([[0.0], x.ravel()])[1:].reshape(x.shape),
}


def bits_by_threads(folder, body):
    """Return what a script prints, of arrays in hexadecimal, with 1, 2 and 7 threads."""
    script = folder / "bits.py"
    script.write_text(
        "import numpy as np, mixad\n"
        "def show(*arrays):\n"
        "    print(*[np.asarray(a).tobytes().hex() for a in arrays])\n" + body
    )
    return [
        subprocess.check_output(
            [sys.executable, str(script)],
            text=True,
            env={**os.environ, "MIXAD_NUM_THREADS": threads},
        )
        for threads in ("1", "2", "7")
    ]
