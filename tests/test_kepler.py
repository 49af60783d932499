"""Kepler's equation: a `while` loop with an exit of its own in every lane, and its derivatives.

E − e sin E = M; implicit differentiation gives dE/dM = 1 / (1 − e cos E) and
dE/de = sin E / (1 − e cos E).
"""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import mixad

ELEMENTS = 10_007  # no multiple of a vector, more than one tile
MAX_ECCENTRIC = 0.95
EXACT_POINTS = 25
DIFFERENCE_STEP = 1e-5


@mixad.broadcast
def eccentric_anomaly(M, e):
    """Newton's iteration until steps are small."""
    E = M if e < 0.8 else math.pi
    while True:
        step = (E - e * math.sin(E) - M) / (1 - e * math.cos(E))
        E -= step
        if abs(step) <= 1e-10:
            break
    return E


@mixad.broadcast
def eccentric_anomaly_for(M, e):
    """The same by `for` and early `return`."""
    E = M if e < 0.8 else math.pi
    for _ in range(100):
        step = (E - e * math.sin(E) - M) / (1 - e * math.cos(E))
        E = E - step
        if abs(step) <= 1e-10:
            return E
    return math.nan


def orbits(count: int = ELEMENTS) -> tuple[Any, Any, Any]:
    """Return mean anomalies, eccentricities, and weights."""
    rng = np.random.default_rng(0)
    M = rng.uniform(0, 2 * math.pi, count)
    e = rng.uniform(0, MAX_ECCENTRIC, count)
    return M, e, rng.uniform(-1, 1, count)


def newton_in_numpy(M: Any, e: Any) -> Any:
    """Return E by masked NumPy: every lane takes as many steps as it needs."""
    E = np.where(e < 0.8, M, math.pi)
    left = np.ones(M.shape, bool)
    while left.any():
        step = (E - e * np.sin(E) - M) / (1 - e * np.cos(E))
        E = np.where(left, E - step, E)
        left &= ~(np.abs(step) <= 1e-10)
    return E


@pytest.mark.parametrize("solve", [eccentric_anomaly, eccentric_anomaly_for])
def test_solution_satisfies_the_equation(solve: Any) -> None:
    M, e, _ = orbits()
    E = solve(M, e)
    assert np.abs(E - e * np.sin(E) - M).max() < 1e-13
    np.testing.assert_allclose(E, newton_in_numpy(M, e), rtol=1e-13, atol=1e-13)


def test_solution_is_that_of_mpmath() -> None:
    M, e, _ = orbits(EXACT_POINTS)
    got = eccentric_anomaly(M, e)
    with mpmath.workdps(40):
        for at in range(EXACT_POINTS):
            m, k = mpmath.mpf(float(M[at])), mpmath.mpf(float(e[at]))
            root = mpmath.findroot(lambda E: E - k * mpmath.sin(E) - m, float(got[at]))  # noqa: B023
            conditioning = 1 / (1 - float(e[at]) * math.cos(float(root)))
            assert got[at] == pytest.approx(float(root), rel=1e-14 * conditioning, abs=1e-14)


@pytest.mark.parametrize("solve", [eccentric_anomaly, eccentric_anomaly_for])
def test_derivatives_are_the_implicit_ones(solve: Any) -> None:
    M, e, weights = orbits()
    E, (dM, de) = mixad.value_and_vjp(solve, (M, e), weights)
    np.testing.assert_array_equal(E, solve(M, e))
    slope = 1 / (1 - e * np.cos(E))
    np.testing.assert_allclose(dM, weights * slope, rtol=1e-11)
    np.testing.assert_allclose(de, weights * np.sin(E) * slope, rtol=1e-11, atol=1e-13)


def test_gradient_of_the_weighted_sum() -> None:
    M, e, weights = orbits()

    def loss(M: Any, e: Any) -> Any:
        return (weights * eccentric_anomaly(M, e)).sum()

    value, (dM, de) = mixad.value_and_grad(loss, argnums=(0, 1))(M, e)
    E = newton_in_numpy(M, e)
    assert value == pytest.approx((weights * E).sum(), rel=1e-12)
    slope = 1 / (1 - e * np.cos(E))
    np.testing.assert_allclose(dM, weights * slope, rtol=1e-11)
    np.testing.assert_allclose(de, weights * np.sin(E) * slope, rtol=1e-11, atol=1e-13)


def test_eccentricity_of_one_orbit_gets_the_summed_derivative() -> None:
    M, _, weights = orbits()
    e = np.asarray(0.3)
    _, (de,) = mixad.value_and_vjp(lambda e: eccentric_anomaly(M, e), (e,), weights)
    E = newton_in_numpy(M, np.full(M.shape, 0.3))
    assert de.shape == ()
    assert de == pytest.approx((weights * np.sin(E) / (1 - e * np.cos(E))).sum(), rel=1e-11)


def test_second_derivatives() -> None:
    M, e, _ = orbits(200)
    slope_sum = lambda M, e: mixad.grad(lambda M: eccentric_anomaly(M, e).sum())(M).sum()  # noqa: E731
    dMM, dMe = mixad.grad(slope_sum, argnums=(0, 1))(M, e)
    E = newton_in_numpy(M, e)
    d = 1 - e * np.cos(E)
    np.testing.assert_allclose(dMM, -e * np.sin(E) / d**3, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(dMe, (np.cos(E) - e) / d**3, rtol=1e-8, atol=1e-9)


def test_f32_solution_and_derivatives_are_close_to_f64() -> None:
    @mixad.broadcast
    def in_f32(M, e):
        E = M
        for _ in range(12):
            E -= (E - e * math.sin(E) - M) / (1 - e * math.cos(E))
        return E

    M, e, weights = (x.astype(np.float32) for x in orbits(500))
    e *= np.float32(0.8)
    E, (dM, de) = mixad.value_and_vjp(in_f32, (M, e), weights)
    assert (E.dtype, dM.dtype, de.dtype) == (np.float32,) * 3
    exact = newton_in_numpy(M.astype(np.float64), e.astype(np.float64))
    slope = 1 / (1 - e * np.cos(exact))
    np.testing.assert_allclose(E, exact, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(dM, weights * slope, rtol=1e-3, atol=1e-4)


def test_lane_that_never_runs_beside_lanes_that_do() -> None:
    # e = 0 converges at once; its neighbours go on for up to a dozen steps.
    M = np.linspace(0.1, 6.0, 32)
    e = np.where(np.arange(32) % 2, 0.0, 0.94)
    E, (dM, _) = mixad.value_and_vjp(eccentric_anomaly, (M, e), np.ones(32))
    np.testing.assert_array_equal(E[1::2], M[1::2])
    np.testing.assert_array_equal(dM[1::2], np.ones(16))


def test_partials_are_those_of_pytorch_on_unrolled_steps() -> None:
    torch = pytest.importorskip("torch")
    M, e, weights = (torch.from_numpy(x) for x in orbits(300))
    M.requires_grad_()
    e.requires_grad_()
    E = torch.where(e < 0.8, M, torch.full_like(M, math.pi))
    for _ in range(15):
        E = E - (E - e * torch.sin(E) - M) / (1 - e * torch.cos(E))
    wanted = torch.autograd.grad((weights * E).sum(), (M, e))
    _, got = mixad.value_and_vjp(eccentric_anomaly, (M.detach(), e.detach()), weights)
    for a, b in zip(got, wanted, strict=True):
        assert isinstance(a, torch.Tensor)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_first_kernel_of_the_documentation_ends_in_both_precisions(dtype, tmp_path):
    page = Path(__file__).parents[1] / "docs" / "kernels.md"
    if not page.exists():
        pytest.skip("the documentation is in the repository only")
    (tmp_path / "first.py").write_text(page.read_text("utf-8").split("```")[1].partition("\n")[2])
    kepler = runpy.run_path(str(tmp_path / "first.py"))["kepler"]
    mean, e = np.linspace(0.0, 6.0, 200, dtype=dtype), np.dtype(dtype).type(0.3)
    E = kepler(mean, e)
    assert E.dtype == mean.dtype
    tolerance = 4 * np.finfo(dtype).eps * 6 + 1e-10 * (dtype == "f8")
    np.testing.assert_allclose(E - e * np.sin(E), mean, rtol=0, atol=tolerance)
