"""Small matrices in steps of loops: run by a backend, with the bits and the errors of Python's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.linalg import LinAlgError

import mixad
from mixad.constructs import loop as loops
from mixad.errors import TracerError

RNG = np.random.default_rng(3)
EYE = np.eye(3)


def drawn(*shape):
    return RNG.normal(size=shape)


def spd(c):
    return c * c.T + 4.0 * np.eye(3, dtype=c.dtype)


def regular(c):
    return c + 3.0 * np.eye(3, dtype=c.dtype)


STEPS = {
    "inv": lambda c, x: np.linalg.inv(regular(c + x)),
    "solve": lambda c, x: np.linalg.solve(regular(c), x),
    "solve for a vector": lambda c, x: x * np.linalg.solve(regular(c), x.sum(0)),
    "slogdet": lambda c, x: 0.1 * c + x * np.linalg.slogdet(regular(c))[1],
    "det": lambda c, x: 0.1 * c + 0.01 * x * np.linalg.det(regular(c)),
    "cholesky": lambda c, x: 0.1 * x + np.linalg.cholesky(spd(c)),
}


def by_python(f, init, xs):
    """Return what a loop gives, by a loop of Python over traced values."""
    ys = []
    for x in xs:
        init, y = f(init, x)
        ys.append(y)
    return init, np.stack(ys)


def loss(scan, step, init, xs):
    last, ys = scan(lambda c, x: (step(c, x), (c * x).sum()), init, xs)
    return (last * last).sum() + (ys * ys).sum()


@pytest.fixture
def natively(monkeypatch):
    def refuse(*_):
        raise AssertionError("Python takes the steps")

    monkeypatch.setattr(loops, "_run_by_python", refuse)


@pytest.mark.parametrize("name", STEPS)
def test_a_loop_has_the_bits_of_the_loop_in_python(name):
    init, xs, step = drawn(3, 3), drawn(9, 3, 3), STEPS[name]
    found = mixad.jvp(lambda c: loss(mixad.scan, step, c, xs), (init,), (init,))[0]
    wanted = mixad.jvp(lambda c: loss(by_python, step, c, xs), (init,), (init,))[0]
    assert found == wanted


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_a_backend_have_the_bits_of_steps_of_python(name, dtype, monkeypatch):
    init, xs, step = drawn(3, 3).astype(dtype), drawn(9, 3, 3).astype(dtype), STEPS[name]

    def run():
        made = mixad.scan(lambda c, x: (step(c, x),) * 2, init, xs)
        return *made, *mixad.grad(lambda *a: loss(mixad.scan, step, *a), argnums=(0, 1))(init, xs)

    found = run()
    monkeypatch.setattr(loops, "_run_natively", lambda *_: False)
    for one, other in zip(found, run(), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", STEPS)
def test_gradients_of_steps_are_run_by_a_backend(name, natively):
    init, xs, step = drawn(3, 3), drawn(9, 3, 3), STEPS[name]
    found = mixad.grad(lambda *a: loss(mixad.scan, step, *a), argnums=(0, 1))(init, xs)
    wanted = mixad.grad(lambda *a: loss(by_python, step, *a), argnums=(0, 1))(init, xs)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", STEPS)
def test_gradients_of_loops_are_those_of_differences(name):
    init, xs, along, step = drawn(3, 3), drawn(6, 3, 3), drawn(3, 3), STEPS[name]

    def f(c):  # of plain arrays: NumPy's own functions
        return loss(by_python, step, c, xs)

    wanted = (f(init + 1e-6 * along) - f(init - 1e-6 * along)) / 2e-6
    found = (mixad.grad(lambda c: loss(mixad.scan, step, c, xs))(init) * along).sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_singular_matrix_in_a_step_raises_what_numpy_raises():
    xs = np.stack([EYE] * 5 + [np.ones((3, 3))] + [EYE] * 5)

    def f(xs):
        return mixad.scan(lambda c, x: (c + np.linalg.inv(x), None), EYE, xs)[0].sum()

    for call in (f, mixad.grad(f)):
        with pytest.raises(LinAlgError, match="Singular matrix"):
            call(xs)
    found, _ = mixad.scan(lambda c, x: (c + np.linalg.inv(x), None), EYE, xs[6:])
    np.testing.assert_array_equal(found, 6 * EYE)


def test_the_error_is_that_of_the_first_step_that_fails():
    """A singular matrix leaves inf and nan behind, which have no factor in the steps after."""

    def step(c, x):
        c = np.linalg.inv(c * x)
        return np.linalg.cholesky(c + EYE) + 2.0 * EYE, None

    xs = np.ones(40)
    xs[20] = 0.0
    with pytest.raises(LinAlgError, match="Singular matrix"):
        mixad.scan(step, EYE, xs)


def test_matrices_that_are_not_symmetric_are_refused_in_steps():
    xs = np.stack([EYE] * 5)
    xs[3, 0, 1] = 0.5

    def f(xs):
        return mixad.scan(lambda c, x: (c + np.linalg.cholesky(x), None), EYE, xs)[0].sum()

    with pytest.raises(TracerError, match=r"cholesky.*not symmetric"):
        mixad.grad(f)(xs)


def test_slogdet_of_a_singular_matrix_in_a_step_has_no_derivative():
    xs = np.stack([EYE] * 4 + [np.ones((3, 3))] + [EYE] * 4)

    def f(xs):
        return mixad.scan(lambda c, x: (c + np.linalg.slogdet(x)[1], None), 0.0, xs)[0]

    assert f(xs) == -np.inf
    with pytest.raises(TracerError, match=r"slogdet.*singular"):
        mixad.grad(f)(xs)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_gradients_of_determinants_of_singular_matrices_are_cofactors(n):
    xs = RNG.integers(-3, 4, (5, n, n)).astype(float)
    xs[:, -1] = xs[:, 0] * np.array([0.0, 1.0, 2.0, -1.0, 0.0])[:, None] if n > 1 else 0.0

    def f(xs):
        return mixad.scan(lambda c, x: (c + np.linalg.det(x + c * x), None), 0.0, xs)[0]

    def cofactor(x, i, j):
        return (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1))

    wanted = [[[cofactor(x, i, j) for j in range(n)] for i in range(n)] for x in xs]
    wanted = wanted if n > 1 else np.ones_like(xs)
    np.testing.assert_allclose(mixad.grad(f)(xs), wanted, atol=1e-12)


def test_a_loop_without_an_end_stops_once_a_matrix_is_singular():
    def step(c):
        return np.linalg.inv(c) * 0.0

    with pytest.raises(LinAlgError, match="Singular matrix"):
        mixad.while_loop(lambda c: ~(c.sum() > 1e9), step, EYE)


def test_batches_of_matrices_are_steps_of_a_backend(natively):
    init, xs, along = drawn(4, 2, 2), drawn(7, 2, 2), drawn(7, 2, 2)

    def step(c, x):
        c = np.linalg.inv(c + x @ c + 9.0 * np.eye(2)) @ x
        return c, c * c

    def f(xs):
        return mixad.scan(step, init, xs)[1].sum()

    wanted = (f(xs + 1e-5 * along) - f(xs - 1e-5 * along)) / 2e-5
    np.testing.assert_allclose((mixad.grad(f)(xs) * along).sum(), wanted, rtol=1e-6)
