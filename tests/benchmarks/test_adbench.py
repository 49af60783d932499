"""ADBench's objectives: values that are published, gradients against differences and JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import mixad
from benchmarks.peers import adbench, dlstm, gmm, losses
from benchmarks.peers.harness import UnavailableError

MIXTURES = [(2, 3, 1), (3, 2, 7), (5, 4, 12)]  # d, k, n
RECURRENCES = [(2, 3, 4), (2, 9, 2)]  # layers, elements, their length


def given_file(name: str):
    try:
        return adbench.file(name)
    except UnavailableError as absent:
        pytest.skip(str(absent))


def drawn_mixture(d: int, k: int, n: int) -> adbench.Mixture:
    return adbench.draw_mixture(d, k, n, np.random.default_rng(d + k + n))


def drawn_recurrence(layers: int, c: int, b: int) -> adbench.Recurrence:
    return adbench.draw_recurrence(layers, c, b, np.random.default_rng(c))


def differences(f: Callable, arrays: tuple) -> list[np.ndarray]:
    """Return the gradients of a function by central differences."""
    step, found = 1e-6, []
    for at, array in enumerate(arrays):
        gradient = np.empty_like(array)
        for index in np.ndindex(array.shape):
            sides = []
            for h in (step, -step):
                moved = array.copy()
                moved[index] += h
                sides.append(f(*arrays[:at], moved, *arrays[at + 1 :]))
            gradient[index] = (sides[0] - sides[1]) / (2 * step)
        found.append(gradient)
    return found


def check(found, expected, rtol: float) -> None:
    for actual, wanted in zip(found, expected, strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=rtol * scale)


def test_the_mixture_has_the_published_value():
    p = adbench.read_mixture(given_file("gmm/test.txt"))
    assert float(adbench.mixture_gradients(p)[0]) == pytest.approx(8.07380408004975791, rel=1e-13)
    objective = gmm.problem(p).of(np)
    assert float(objective(*p.parameters)) == pytest.approx(8.07380408004975791, rel=1e-13)


def test_the_recurrence_has_the_published_value():
    p = adbench.read_recurrence(given_file("lstm/lstm_l2_c1024.txt"))
    assert float(adbench.recurrence_gradients(p)[0]) == pytest.approx(0.66666518, abs=5e-9)


@pytest.mark.parametrize("sizes", MIXTURES)
def test_the_gradients_by_hand_of_a_mixture_are_those_of_its_differences(sizes):
    p = drawn_mixture(*sizes)
    value, *gradients = adbench.mixture_gradients(p)
    objective = gmm.problem(p).of(np)
    assert float(objective(*p.parameters)) == pytest.approx(float(value), rel=1e-12)
    check(gradients, differences(objective, p.parameters), 1e-7)


@pytest.mark.parametrize("sizes", RECURRENCES)
def test_the_gradients_by_hand_of_a_recurrence_are_those_of_its_differences(sizes):
    p = drawn_recurrence(*sizes)
    predict = adbench.lstm_prediction(np, lambda x: 1 / (1 + np.exp(-x)))

    def objective(main, extra):
        return adbench.recurrence_objective(np, predict, main, extra, p.state, p.sequence)

    value, *gradients = adbench.recurrence_gradients(p)
    assert float(objective(*p.parameters)) == pytest.approx(float(value), rel=1e-12)
    check(gradients, differences(objective, p.parameters), 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", MIXTURES)
def test_mixad_differentiates_a_mixture(sizes):
    problem = gmm.problem(drawn_mixture(*sizes))
    call, unpack = losses.mixad(problem)
    check(unpack(call()), problem.expected, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", RECURRENCES)
@pytest.mark.parametrize("name", dlstm.OURS)
def test_mixad_differentiates_a_recurrence(name, sizes):
    problem = dlstm.problem(drawn_recurrence(*sizes))
    call, unpack = dlstm.OURS[name](problem)
    check(unpack(call()), problem.expected, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test", "1k/gmm_d2_K5", "1k/gmm_d10_K25", "1k/gmm_d64_K25"])
def test_mixad_differentiates_the_mixtures_of_adbench(name):
    problem = gmm.problem(adbench.read_mixture(given_file(f"gmm/{name}.txt")))
    call, unpack = losses.mixad(problem)
    check(unpack(call()), problem.expected, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", dlstm.OURS)
def test_mixad_differentiates_the_recurrence_of_adbench(name):
    problem = dlstm.problem(adbench.read_recurrence(given_file("lstm/lstm_l2_c1024.txt")))
    call, unpack = dlstm.OURS[name](problem)
    check(unpack(call()), problem.expected, 1e-11)


@pytest.mark.slow
def test_jax_gives_the_same_gradients_of_the_same_source():
    pytest.importorskip("jax")
    mixture, recurrence = drawn_mixture(4, 3, 9), drawn_recurrence(2, 6, 3)
    for problem, ours, theirs in (
        (gmm.problem(mixture), losses.mixad, losses.jax_jit),
        (dlstm.problem(recurrence), dlstm.OURS["mixad"], dlstm.jax_scan),
    ):
        (call, unpack), (other, unpack_other) = ours(problem), theirs(problem)
        check(unpack(call()), unpack_other(other()), 1e-11)


@pytest.mark.slow
def test_points_in_a_mixture_far_from_all_gaussians_have_finite_gradients():
    p = drawn_mixture(3, 2, 5)
    p = replace(p, x=100.0 * p.x)
    loss = gmm.problem(p).of(np)
    found = mixad.grad(loss, argnums=(0, 1, 2))(*p.parameters)
    assert all(np.isfinite(g).all() for g in found)
    check(found, adbench.mixture_gradients(p)[1:], 1e-11)
