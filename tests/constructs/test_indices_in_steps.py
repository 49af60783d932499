"""Whole numbers of a step as indices: positions, elements and their adjoints by a backend."""

from __future__ import annotations

import numpy as np
import pytest

import mixad
from mixad.constructs import loop as loops

RNG = np.random.default_rng(6)
STEPS = 11

INDEXED = {
    "a row": lambda c, o, t: c * t[o],
    "a column": lambda c, o, t: c * t[:, o],
    "an element": lambda c, o, t: c + t[o, 1] * t[2, o],
    "an element of two": lambda c, o, t: c * t[o, o + 1],
    "a row and new axes": lambda c, o, t: c + t[None, o, ..., None].sum((0, 2)),
    "beside a slice backwards": lambda c, o, t: c[:2].repeat(2) * t[::-1, o],
    "of the carry": lambda c, o, t: c * c[o] + t[0],
    "several of the carry": lambda c, o, t: c[(o + np.arange(4)) % 4] * t[0],
    "take": lambda c, o, t: c * np.take(t, o, axis=1) + np.take(t, [0, 1, 2, 3]),
    "take of flat": lambda c, o, t: c * np.take(t, o),
    "what the carry says": lambda c, o, t: c + t[np.floor(np.abs(c[0]) * 3.0).astype(int) % 4],
    "the largest": lambda c, o, t: c * t[np.argmax(c)],
    "repeated positions": lambda c, o, t: c + t.reshape(-1)[o * np.ones(4, dtype=int)],
    "small integers": lambda c, o, t: c * t[o.astype(np.int8)] + t[:, o.astype(np.int32)],
}


def by_python(f, init, xs):
    ys = []
    for x in xs:
        init, y = f(init, x)
        ys.append(y)
    return init, np.stack(ys)


def loss(scan, step, indices, init, table):
    last, ys = scan(lambda c, o: (0.5 * step(c, o, table), c.sum()), init, indices)
    return (last * last).sum() + (ys * ys).sum()


def drawn(*shape):
    return RNG.normal(size=shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", INDEXED)
def test_gradients_are_those_of_the_loop_in_python(name, dtype, monkeypatch):
    monkeypatch.setattr(loops, "_run_by_python", refuse)
    step, indices = INDEXED[name], RNG.integers(-4, 3, STEPS)
    init, table = drawn(4).astype(dtype), drawn(4, 4).astype(dtype)
    given = [
        mixad.value_and_grad(lambda *a, scan=scan: loss(scan, step, indices, *a), argnums=(0, 1))(
            init, table
        )
        for scan in (mixad.scan, by_python)
    ]
    (found, gradients), (wanted, expected) = given
    limit = 1e-11 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(found, wanted, rtol=limit)
    for one, other in zip(gradients, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=limit, atol=limit)


@pytest.mark.parametrize("name", INDEXED)
def test_steps_of_a_backend_have_the_bits_of_steps_of_python(name, monkeypatch):
    step, indices, init, table = INDEXED[name], RNG.integers(-4, 3, STEPS), drawn(4), drawn(4, 4)

    def run():
        made = mixad.scan(lambda c, o: (0.5 * step(c, o, table), c), init, indices, reverse=True)
        of = mixad.grad(lambda *a: loss(mixad.scan, step, indices, *a), argnums=(0, 1))
        return *made, *of(init, table)

    found = run()
    monkeypatch.setattr(loops, "_run_natively", lambda *_: False)
    for one, other in zip(found, run(), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", INDEXED)
def test_gradients_are_those_of_differences(name):
    step, indices, init, table = INDEXED[name], RNG.integers(-4, 3, STEPS), drawn(4), drawn(4, 4)
    along = drawn(4, 4)

    def f(table):
        return loss(by_python, step, indices, init, table)

    wanted = (f(table + 1e-6 * along) - f(table - 1e-6 * along)) / 2e-6
    found = mixad.grad(lambda table: loss(mixad.scan, step, indices, init, table))(table)
    np.testing.assert_allclose((found * along).sum(), wanted, 1e-6, 1e-7)


@pytest.mark.parametrize("outside", [4, -5, 1 << 40, -(1 << 62)])
def test_an_index_outside_raises_what_numpy_raises(outside):
    table, indices = drawn(4, 4), RNG.integers(0, 4, STEPS)
    indices[7] = outside

    def f(table):
        return mixad.scan(lambda c, o: (c + table[:, o], None), np.zeros(4), indices)[0].sum()

    for call in (f, mixad.grad(f)):
        with pytest.raises(IndexError, match=rf"index {outside} is out of bounds for axis 1"):
            call(table)


def test_second_derivatives_go_through_indices():
    step, indices, init, table = INDEXED["a row"], RNG.integers(0, 4, 5), drawn(4), drawn(4, 4)
    along = drawn(4, 4)

    def f(scan):
        return lambda table: loss(scan, step, indices, init, table)

    found = mixad.hvp(f(mixad.scan), (table,), (along,))
    np.testing.assert_allclose(found, mixad.hvp(f(by_python), (table,), (along,)), 1e-10, 1e-12)


def test_an_axis_without_elements_has_none_to_index():
    table = np.zeros((0, 4))
    with pytest.raises(IndexError, match="out of bounds"):
        mixad.scan(lambda c, o: (c + table[o], None), np.zeros(4), np.arange(5))


def refuse(*_):
    raise AssertionError("Python takes the steps")
