"""Whole numbers and flags of a step: what is done with them, without Python between steps."""

from __future__ import annotations

import numpy as np
import pytest

import mixad

RNG = np.random.default_rng(21)
STEPS = 11
TABLE, NUMBERS, FLAGS = RNG.normal(size=(5, 4)), RNG.integers(-5, 5, 40), RNG.random(40) < 0.5

OPERATIONS = {
    "astype of floats": lambda c, o, t, k, f: c + t[(np.abs(c[0]) * 3.0).astype(int) % 5],
    "astype of floor": lambda c, o, t, k, f: c * t[np.floor(c[:2] * 2.0).astype(np.int16)].sum(0),
    "astype of numbers": lambda c, o, t, k, f: c * t[o.astype(np.int8) % 5] + o.astype(float),
    "astype to flags": lambda c, o, t, k, f: np.where(o.astype(bool), c, t[0]),
    "flags as numbers": lambda c, o, t, k, f: c * t[(c > 0.1).astype(int)][:, 0],
    "argmax": lambda c, o, t, k, f: c * t[np.argmax(c)],
    "argmin of a matrix": lambda c, o, t, k, f: c + t[np.argmin(t * c[0]) % 5],
    "argmax along an axis": lambda c, o, t, k, f: c + t[:, 0][np.argmax(t * c, axis=1)[:4]],
    "argmax of numbers": lambda c, o, t, k, f: c + t[(k[:5] - o).argmax() - o % 4],
    "beside a number of NumPy": lambda c, o, t, k, f: c + t[np.int64(3) - o % 4],
    "argmax of flags": lambda c, o, t, k, f: c * t[np.argmax(c > 0.0)],
    "an element of numbers": lambda c, o, t, k, f: c + t[k[o]],
    "elements of numbers": lambda c, o, t, k, f: c * t[k[o + np.arange(4)], np.arange(4)],
    "an element of flags": lambda c, o, t, k, f: np.where(f[o], c, 0.5 * c + t[0]),
    "rows and columns": lambda c, o, t, k, f: c + t[:, (o + np.arange(3)) % 4].sum() + t[o % 5],
    "pairs": lambda c, o, t, k, f: c + t[(o + np.arange(4)) % 5, [3, 0, 0, 1]],
    "a column of pairs": lambda c, o, t, k, f: c * t[o % 5 + np.zeros((2, 1), int), [[0, 1]]].sum(),
    "choices": lambda c, o, t, k, f: c + t[np.where(o > 3, o % 5, -1)],
    "the smaller": lambda c, o, t, k, f: c + t[np.minimum(o, 3)] * t[np.maximum(o, 4) % 5],
    "in bounds": lambda c, o, t, k, f: c + t[np.clip(o, 1, 3)] * t[abs(o - 5) % 5],
    "divided": lambda c, o, t, k, f: c + t[o // 3] * t[-(o % 5)],
    "all and any": lambda c, o, t, k, f: (
        np.where(np.any(c > 0.5), c, 0.1) + np.all(c > -1.0) * t[1]
    ),
    "a count": lambda c, o, t, k, f: (
        c + np.sum(c > 0.2) * t[np.count_nonzero(c < t[:4], axis=1) % 5, 0]
    ),
}


def by_python(f, init, xs):
    ys = []
    for x in xs:
        init, y = f(init, x)
        ys.append(y)
    return init, np.stack(ys)


def loss(scan, operation, init, table):
    numbers, flags = NUMBERS.copy(), FLAGS.copy()

    def step(c, o):
        return 0.5 * operation(c, o, table, numbers, flags), c.sum()

    last, ys = scan(step, init, np.arange(STEPS))
    return (last * last).sum() + (ys * ys).sum()


@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_gradients_are_those_of_the_loop_in_python(name, native):
    init, operation = RNG.normal(size=4), OPERATIONS[name]

    def of(scan):
        f = lambda *a: loss(scan, operation, *a)  # noqa: E731
        return *mixad.value_and_grad(f, argnums=(0, 1))(init, TABLE), f(init, TABLE)

    (value, gradients, plain), (wanted, expected, _) = of(mixad.scan), of(by_python)
    np.testing.assert_allclose([value, plain], wanted, rtol=1e-12)
    for one, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


CARRIES = {
    "argmax": lambda x, k: np.argmax(x * k) + k,
    "argmin with nan": lambda x, k: k + np.argmin(np.where(x > 0.3, np.nan, x)),
    "to small numbers": lambda x, k: k + (x[0] * 20.0).astype(k.dtype),
    "to numbers without sign": lambda x, k: k + abs(x[1] * 9.0).astype(np.uint8).astype(k.dtype),
    "wrapping": lambda x, k: (k * 1000 + 77).astype(np.int16).astype(k.dtype) - np.sum(x > 0),
    "from flags": lambda x, k: np.where(np.any(x > 1.0), k, k + 1) // 2,
}


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("name", CARRIES)
def test_counters_are_those_of_numpy(name, dtype, native):
    operation, xs = CARRIES[name], RNG.normal(size=(STEPS, 6))

    def step(k, x):
        k = operation(x, k).astype(dtype)
        return k, k

    last, ys = mixad.scan(step, dtype(3), xs)
    wanted, expected = by_python(step, dtype(3), xs)
    assert last.dtype == ys.dtype == dtype
    np.testing.assert_array_equal(last, wanted)
    np.testing.assert_array_equal(ys, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30, -200.0, 128.0])
def test_what_a_type_does_not_have_is_as_in_numpy(value):
    """Also what it warns of: Python takes the steps."""
    xs = np.linspace(0.0, 100.0, STEPS)
    xs[7] = value

    def step(k, x):
        k = k + x.astype(np.int8).astype(np.int64)
        return k, k

    with np.errstate(invalid="ignore"):
        last, ys = mixad.scan(step, np.int64(0), xs)
        wanted, expected = by_python(step, np.int64(0), xs)
    np.testing.assert_array_equal(ys, expected)
    assert last == wanted


def test_the_most_likely_path():
    """Back-pointers are whole numbers that steps write, and others read (Viterbi's algorithm)."""
    log, start, seen = RNG.normal(size=(3, 3)), RNG.normal(size=3), RNG.normal(size=(20, 3))

    def forward(c, x):
        i, score, back = c
        every = score[:, None] + log
        back[i] = np.argmax(every.T, axis=1)
        return (i + 1, np.max(every, axis=0) + x, back), None

    def backward(state, back):
        return back[state], state

    def path(scan, copy):
        (_, score, back), _ = scan(forward, (np.asarray(0), start, np.zeros((20, 3), int)), seen)
        return scan(backward, np.argmax(score), copy(back)[::-1].copy())[1]

    def in_python(f, c, xs):
        ys = []
        for x in xs:
            c, y = f(c, x)
            ys.append(y)
        return c, ys

    np.testing.assert_array_equal(path(mixad.scan, np.copy), path(in_python, np.copy))
