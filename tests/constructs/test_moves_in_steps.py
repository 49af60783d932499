"""Elements that are moved in steps of loops: copies by a backend, with the bits of NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import mixad
from mixad.constructs import loop as loops
from mixad.tape.moves import runs_of

RNG = np.random.default_rng(4)


def drawn(*shape):
    return RNG.normal(size=shape)


STEPS = {
    "a number": lambda c, x: c * c[1] + x[0],
    "numbers beside one another": lambda c, x: np.stack([c[1], x[0], c[3] * x[2], c[0]]),
    "stack along the last axis": lambda c, x: np.stack([c, x], axis=-1).sum(1),
    "concatenate": lambda c, x: np.concatenate([c[2:], x[:1], np.sin(c[:1])]),
    "concatenate columns": lambda c, x: np.concatenate(
        [c.reshape(2, 2), x.reshape(2, 2)], axis=1
    ).sum(0)[[0, 1, 3, 2]],
    "hstack": lambda c, x: np.hstack([c[0], x[1:3], c[1]]),
    "slices with steps": lambda c, x: np.concatenate([c[::2], x[1::2]]),
    "backwards": lambda c, x: 0.5 * c[::-1] + np.flip(x),
    "whole numbers": lambda c, x: c[[3, 1, 1, 0]] * x,
    "a mask": lambda c, x: np.concatenate([c[np.array([True, False, True, False])], x[:2]]),
    "triangles": lambda c, x: (np.tril(np.outer(c, x)) + np.triu(np.outer(x, c), 1)).sum(0),
    "in another order": lambda c, x: c.reshape(2, 2).T.reshape(4) + x,
    "repeated": lambda c, x: np.repeat(c[:2], 2) - np.tile(x[2:], 2),
    "padded": lambda c, x: np.pad(c[1:], (1, 0)) + x,
    "rolled": lambda c, x: np.roll(c, 1) * np.roll(x.reshape(2, 2), 1, axis=1).reshape(4),
    "a diagonal": lambda c, x: np.diagonal(np.outer(c, x)) + np.trace(np.outer(c, x)),
    "taken": lambda c, x: np.take(c, [2, 2, 0, 1]) * x,
    "taken along an axis": lambda c, x: np.take_along_axis(c, np.array([3, 0, 0, 1]), 0) + x,
    "split": lambda c, x: np.concatenate(np.split(c, 2)[::-1]) + x,
    "a part of a part": lambda c, x: np.stack([c[1:][1:][0] * x[::-1][0]] * 4),
}


def by_python(f, init, xs):
    ys = []
    for x in xs:
        init, y = f(init, x)
        ys.append(y)
    return init, np.stack(ys)


def loss(scan, step, init, xs):
    last, ys = scan(lambda c, x: (0.5 * step(c, x), (c * x).sum()), init, xs)
    return (last * last).sum() + (ys * ys).sum()


@pytest.fixture
def natively(monkeypatch):
    def refuse(*_):
        raise AssertionError("Python takes the steps")

    monkeypatch.setattr(loops, "_run_by_python", refuse)


@pytest.mark.parametrize("name", STEPS)
def test_steps_and_their_gradients_are_run_by_a_backend(name, natively):
    init, xs, step = drawn(4), drawn(7, 4), STEPS[name]
    found = mixad.value_and_grad(lambda *a: loss(mixad.scan, step, *a), argnums=(0, 1))(init, xs)
    wanted = mixad.value_and_grad(lambda *a: loss(by_python, step, *a), argnums=(0, 1))(init, xs)
    assert found[0] == wanted[0]
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_a_backend_have_the_bits_of_steps_of_python(name, dtype, monkeypatch):
    init, xs, step = drawn(4).astype(dtype), drawn(9, 4).astype(dtype), STEPS[name]

    def run():
        made = mixad.scan(lambda c, x: (0.5 * step(c, x), step(c, x)), init, xs, reverse=True)
        return *made, *mixad.grad(lambda *a: loss(mixad.scan, step, *a), argnums=(0, 1))(init, xs)

    found = run()
    monkeypatch.setattr(loops, "_run_natively", lambda *_: False)
    for one, other in zip(found, run(), strict=True):
        assert one.dtype == dtype
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_those_of_differences(name):
    init, xs, along, step = drawn(4), drawn(6, 4), drawn(4), STEPS[name]

    def f(c):
        return loss(by_python, step, c, xs)

    wanted = (f(init + 1e-6 * along) - f(init - 1e-6 * along)) / 2e-6
    found = mixad.grad(lambda c: loss(mixad.scan, step, c, xs))(init)
    np.testing.assert_allclose((found * along).sum(), wanted, 1e-6, 1e-8)


def test_complex_numbers_are_moved_as_in_python():
    def step(c, o):
        moved = np.concatenate([c[1:] * 1j, c[:1]]) * 0.5 + np.tril(np.outer(c, c)).sum(0) + c[o]
        return np.tanh(abs(c)) * moved, None

    def f(scan):
        return lambda c: (abs(scan(step, c, np.array([0, -1, 2, 0, 1]))[0]) ** 2).sum()

    def in_python(step, c, xs):
        for x in xs:
            c, _ = step(c, x)
        return c, None

    init = drawn(3) + 1j * drawn(3)
    found, wanted = (mixad.value_and_grad(f(scan))(init) for scan in (mixad.scan, in_python))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, np.int16, np.uint8, bool])
def test_elements_of_every_size_are_moved_as_in_python(dtype, monkeypatch):
    init = (np.array([3, 0, 2]).astype(dtype), drawn(3))

    def step(c, o):
        return (c[0][[2, 0, 1]], c[1] * 0.5 + c[0] * 1.0 + c[0][o]), None

    def run():
        return mixad.scan(step, init, np.array([0, 1, 2, -1, 0]))[0]

    found = run()
    monkeypatch.setattr(loops, "_run_natively", lambda *_: False)
    for one, other in zip(found, run(), strict=True):
        assert one.tobytes() == other.tobytes()


def test_carries_that_change_places_are_not_overwritten(natively):
    def step(c, _):
        return (c[1], c[0], 1.0 * c[2][::-1]), None

    last = drawn(3)
    found, _ = mixad.scan(step, (1.0, 2.0, last), None, 7)
    assert found[:2] == (2.0, 1.0)
    np.testing.assert_array_equal(found[2], last[::-1])


def test_runs_are_found_and_zeros_among_them():
    x, y = drawn(2, 3), drawn(1, 3)

    def evaluate(x, y):
        return np.concatenate([x[:, ::-1], y, np.zeros((1, 3), x.dtype)])

    runs = runs_of(evaluate, [x, y], [0, 1], evaluate(x, y))
    turned = [(0, 8 * at, 8 * k, 8) for k, at in enumerate((2, 1, 0, 5, 4, 3))]
    assert runs == [*turned, (1, 0, 48, 24), (-1, 0, 72, 24)]
    assert runs_of(lambda x: x.T.copy(), [drawn(40, 40)], [0], drawn(40, 40)) is None
    assert runs_of(np.copy, [drawn(1 << 17)], [0], drawn(1 << 17)) is None
