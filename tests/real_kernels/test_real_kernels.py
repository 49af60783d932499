"""Kernels of real programs: values and derivatives against PyTorch, SciPy and formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats
import torch_oracle
from real_subjects import (
    COUNT,
    RNG,
    SUBJECTS,
    drawn_bundle,
    drawn_cells,
    drawn_gas,
    drawn_matrices,
    drawn_points,
    drawn_quotes,
)

import mixad
from benchmarks.kernels import (
    bundle,
    chemistry,
    eigenvalues,
    escape,
    huber,
    lambert,
    state,
    volatility,
)
from mixad.errors import KernelIndexError

ALL = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)


def block(found: Any) -> np.ndarray:
    """Return a Jacobian with an axis of outputs, also where there is one output."""
    return found if found.ndim == 3 else found[:, None, :]


def planes(value: Any) -> np.ndarray:
    """Return values as an array whose last axis is of the outputs."""
    return np.stack(value if isinstance(value, tuple) else (value,), axis=-1)


# --- every kernel


@ALL
def test_values_and_partials_are_those_of_pytorch_on_the_same_text(subject):
    values, jacobian = torch_oracle.values_and_jacobian(
        subject.function, subject.arguments, subject.active
    )
    found, partials = subject.kernel.value_and_jacobian(*subject.arguments, wrt=subject.wrt)
    np.testing.assert_allclose(planes(found), values, rtol=1e-11, atol=1e-12 * abs(values).max())
    size = abs(jacobian).max(axis=0)
    assert (abs(block(partials) - jacobian) <= 1e-9 * abs(jacobian) + 1e-10 * size).all()


@pytest.mark.slow
@ALL
def test_gradients_of_a_weighted_sum_contract_the_jacobian(subject):
    active = [subject.arguments[k] for k in subject.active]

    def values(*arrays):
        given = list(subject.arguments)
        for k, a in zip(subject.active, arrays, strict=True):
            given[k] = a
        return subject.kernel(*given)

    found = subject.kernel(*subject.arguments)
    weights = [RNG.standard_normal(COUNT) for _ in range(planes(found).shape[-1])]
    cotangent = tuple(weights) if isinstance(found, tuple) else weights[0]
    _, gradients = mixad.value_and_vjp(values, active, cotangent)
    jacobian = block(subject.kernel.jacobian(*subject.arguments, wrt=subject.wrt))
    wanted = np.einsum("mp,pmn->np", weights, jacobian)
    np.testing.assert_allclose(gradients, wanted, rtol=1e-9, atol=1e-10 * abs(wanted).max())


@pytest.mark.slow
@ALL
def test_strided_and_reversed_inputs_give_the_same_bits(subject):
    spread = [
        np.stack([a, a + 1.0], axis=1)[::-1, 0] if isinstance(a, np.ndarray) else a
        for a in subject.arguments
    ]
    own = subject.kernel.jacobian(*subject.arguments, wrt=subject.wrt)
    np.testing.assert_array_equal(subject.kernel.jacobian(*spread, wrt=subject.wrt), own[::-1])


@pytest.mark.slow
@ALL
def test_empty_inputs_give_empty_results(subject):
    empty = [a[:0] if isinstance(a, np.ndarray) else a for a in subject.arguments]
    value, jacobian = subject.kernel.value_and_jacobian(*empty, wrt=subject.wrt)
    outputs = planes(value).shape[-1]
    assert planes(value).shape == (0, outputs)
    assert block(jacobian).shape == (0, outputs, len(subject.wrt))


@pytest.mark.parametrize("name", [n for n, s in SUBJECTS.items() if s.single is not None])
def test_float32_is_close_to_float64(name):
    subject = SUBJECTS[name]
    single = [a.astype("f4") if isinstance(a, np.ndarray) else a for a in subject.arguments]
    double = [a.astype("f8") if isinstance(a, np.ndarray) else a for a in single]
    found = subject.kernel.value_and_jacobian(*single, wrt=subject.wrt)
    wanted = subject.kernel.value_and_jacobian(*double, wrt=subject.wrt)
    for got, want in zip(
        (planes(found[0]), block(found[1])), (planes(wanted[0]), block(wanted[1])), strict=True
    ):
        assert got.dtype == np.float32
        assert (abs(got - want) <= subject.single * abs(want).max(axis=0)).all()


@ALL
def test_the_reference_backend_agrees(subject):
    few = [a[:20] if isinstance(a, np.ndarray) else a for a in subject.arguments]
    slow = subject.kernel.with_options(backend="reference")
    np.testing.assert_allclose(
        slow.jacobian(*few, wrt=subject.wrt),
        subject.kernel.jacobian(*few, wrt=subject.wrt),
        rtol=1e-10,
        atol=1e-10,
    )


# --- bundle adjustment


def test_bundle_without_rotation_is_finite_and_continuous():
    inputs = [a[:5].copy() for a in drawn_bundle(5)]
    for k in range(3):
        inputs[k][:] = 0.0
    near = [a.copy() for a in inputs]
    near[0][:] = 1e-7
    kernel = mixad.broadcast(bundle.residual)
    at_zero = kernel.jacobian(*inputs, wrt=bundle.INPUTS)
    assert np.isfinite(at_zero).all()
    beside = kernel.jacobian(*near, wrt=bundle.INPUTS)
    np.testing.assert_allclose(at_zero, beside, rtol=1e-4, atol=1e-3)


def scene(count: int) -> tuple[Any, ...]:
    """Return cameras, points, weights, and of each observation who sees what, and where."""
    inputs = drawn_bundle(max(count, 12))
    cameras = np.stack([a[:7] for a in inputs[: bundle.CAMERA]], axis=1)
    points = np.stack([a[:12] for a in inputs[bundle.CAMERA : bundle.CAMERA + 3]], axis=1)
    who, what = RNG.integers(0, 7, count), RNG.integers(0, 12, count)
    weights, seen = RNG.uniform(0.5, 1.5, count), RNG.uniform(-50, 50, (2, count))
    return cameras, points, weights, who, what, seen


@pytest.mark.slow
def test_gathered_blocks_are_those_of_inputs_gathered_before():
    cameras, points, weights, who, what, seen = scene(301)
    kernel = bundle.gathered(cameras, points, weights)
    zeros = [0.0] * len(bundle.INPUTS)
    found = kernel.jacobian(who, what, np.arange(301), *seen, *zeros, wrt=bundle.INPUTS)
    assert found.shape == (301, 2, 15)
    inputs = [*cameras[who].T, *points[what].T, weights, *seen]
    wanted = mixad.broadcast(bundle.residual).jacobian(*inputs, wrt=bundle.INPUTS)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12 * abs(wanted).max())


@pytest.mark.slow
def test_an_observation_of_a_point_that_is_not_there_is_refused():
    cameras, points, weights, who, what, seen = scene(20)
    what[3] = 12
    kernel = bundle.gathered(cameras, points, weights)
    with pytest.raises(KernelIndexError, match=r"points\[point, 0\]|points"):
        kernel.jacobian(who, what, np.arange(20), *seen, *[0.0] * 15, wrt=bundle.INPUTS)


# --- implied volatility


def test_implied_volatility_is_what_made_the_price_and_its_derivatives_the_implicit_ones():
    price, spot, strike, time, sigma = drawn_quotes(500)
    wrt = ("price", "spot", "strike", "time")
    found, jacobian = mixad.broadcast(volatility.implied).value_and_jacobian(
        price, spot, strike, time, wrt=wrt
    )
    np.testing.assert_allclose(found, sigma, rtol=1e-9)
    greeks = mixad.broadcast(volatility.call_price).jacobian(spot, strike, time, sigma)
    wanted = np.concatenate([np.ones((500, 1)), -greeks[:, :3]], axis=1) / greeks[:, 3:]
    np.testing.assert_allclose(jacobian, wanted, rtol=1e-6, atol=1e-9)


def test_greeks_are_the_closed_forms():
    _, spot, strike, time, sigma = drawn_quotes(500)
    found = mixad.broadcast(volatility.call_price).jacobian(spot, strike, time, sigma)
    root = sigma * np.sqrt(time)
    d1 = (np.log(spot / strike) + 0.5 * root**2) / root
    vega = spot * np.sqrt(time) * scipy.stats.norm.pdf(d1)
    wanted = [scipy.stats.norm.cdf(d1), -scipy.stats.norm.cdf(d1 - root), vega * sigma / (2 * time)]
    np.testing.assert_allclose(found, np.stack([*wanted, vega], axis=1), rtol=1e-9, atol=1e-12)


def test_prices_that_no_volatility_gives_end_at_the_bracket():
    # below the intrinsic value, and above the spot: forty turns, and no nan
    found = mixad.broadcast(volatility.implied)(np.array([1.0, 130.0]), 120.0, 100.0, 1.0)
    np.testing.assert_allclose(found, [0.001, 4.0], rtol=1e-6)


# --- equation of state


def test_density_is_the_root_that_brentq_finds():
    p, T, a, b = drawn_gas(80)
    wanted = [
        scipy.optimize.brentq(lambda rho, x=x: state.pressure(rho, *x[1:]) - x[0], 1e-9, 0.9 / x[3])
        for x in zip(p, T, a, b, strict=True)
    ]
    np.testing.assert_allclose(mixad.broadcast(state.density)(p, T, a, b), wanted, rtol=1e-9)


def test_derivatives_of_the_density_are_those_of_the_implicit_function():
    p, T, a, b = drawn_gas(80)
    rho, found = mixad.broadcast(state.density).value_and_jacobian(p, T, a, b)
    at = mixad.broadcast(state.pressure).jacobian(rho, T, a, b)
    wanted = np.concatenate([np.ones((80, 1)), -at[:, 1:]], axis=1) / at[:, :1]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    np.testing.assert_allclose(at[:, 0], mixad.broadcast(state.slope)(rho, T, a, b), rtol=1e-10)


def test_carrying_partials_through_the_solver_gives_the_same():
    p, T, a, b = drawn_gas(80)
    by_theorem = mixad.broadcast(state.density).jacobian(p, T, a, b)
    by_turns = mixad.broadcast(state.solved).jacobian(p, T, a, b)
    np.testing.assert_allclose(by_turns, by_theorem, rtol=1e-5)


# --- escape


def test_distance_estimate_is_that_of_the_derivative_carried_by_hand():
    re, im = drawn_points(2000)
    D = mixad.broadcast(escape.escape).duals(re, im, 60, wrt=("re", "im"))[1]
    found = np.hypot(D.partials["re"], D.partials["im"])
    z, dz, wanted = np.zeros(2000, complex), np.zeros(2000, complex), np.zeros(2000)
    inside = np.ones(2000, bool)
    for _ in range(60):
        dz = np.where(inside, 2.0 * z * dz + 1.0, dz)
        z = np.where(inside, z * z + (re + 1j * im), z)
        left = inside & (abs(z) ** 2 > 1e6)
        wanted[left] = abs(dz[left]) / abs(z[left])
        inside &= ~left
    assert 200 < inside.sum() < 1800
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    np.testing.assert_array_equal(found == 0.0, inside)


def test_distance_estimate_brackets_the_distance_to_the_tip_of_the_antenna():
    # The set meets the real axis from -2 to 1/4; Koebe: d/2 <= 2 |z| log |z| / |z'| <= 2 d or so.
    away = np.array([1e-3, 1e-2, 0.1, 0.5])
    D = mixad.broadcast(escape.escape).duals(-2.0 - away, np.zeros(4), 500, wrt=("re", "im"))[1]
    estimate = D.primal / np.hypot(D.partials["re"], D.partials["im"])
    assert ((0.25 * away < estimate) & (estimate < 2.0 * away)).all()


# --- Lambert's W


def test_lambert_w_is_scipys_with_its_closed_derivative():
    x = np.concatenate([np.linspace(-0.367, 3.0, 500), np.geomspace(1e-300, 1e300, 400), [0.0]])
    w, slope = mixad.broadcast(lambert.lambert_w).value_and_jacobian(x)
    wanted = scipy.special.lambertw(x).real
    conditioning = 1.0 / abs(1.0 + wanted)
    assert (abs(w - wanted) <= 1e-14 * (1.0 + conditioning) * abs(wanted) + 1e-300).all()
    closed = np.exp(-wanted) / (1.0 + wanted)
    np.testing.assert_allclose(slope[:, 0], closed, rtol=1e-9)


def test_lambert_w_at_and_below_its_branch_point():
    kernel = mixad.broadcast(lambert.lambert_w)
    x = -np.exp(-1.0) + np.array([1e-12, 1e-10, 1e-8, 1e-6])
    np.testing.assert_allclose(kernel(x), scipy.special.lambertw(x).real, rtol=1e-7)
    slope = kernel.jacobian(x)[:, 0]
    np.testing.assert_allclose(slope, 1.0 / (x + np.exp(kernel(x))), rtol=1e-3)
    assert np.isnan(kernel(np.array([-0.4, -1e300, np.nan]))).all()


# --- Huber's loss


def test_huber_and_its_derivatives_are_those_of_their_formulas():
    r, delta = np.meshgrid(np.linspace(-4, 4, 81), [0.5, 1.0, 2.0])
    value, found = mixad.broadcast(huber.huber).value_and_jacobian(r, delta)
    np.testing.assert_allclose(value, scipy.special.huber(delta, r), rtol=1e-15)
    np.testing.assert_array_equal(found[..., 0], np.clip(r, -delta, delta))
    np.testing.assert_allclose(found[..., 1], np.maximum(abs(r) - delta, 0.0), rtol=1e-15)


def test_huber_tells_its_kinks():
    report = mixad.broadcast(huber.huber).kinks(np.array([-1.0, 0.2, 1.0, 3.0]), 1.0, wrt="r")
    (branch,) = [kink for kink in report.kinks if kink.kind == "branch"]
    assert [list(axis) for axis in branch.indices] == [[0, 2]]


# --- chemistry


def by_solve_ivp(cell: Sequence[float]) -> np.ndarray:
    """Return four concentrations and their partials by the eight inputs: sensitivity equations."""
    *start, k1, k2, k3, time = cell
    stoichiometry = np.array([[-1, 1, 1], [-1, 1, 0], [1, -1, -1], [0, 0, 1.0]])

    def slope(_, y):
        (e, s, c, _), J = y[:4], y[4:].reshape(4, 7)
        own = np.array([[k1 * s, k1 * e, 0, 0], [0, 0, k2, 0], [0, 0, k3, 0.0]]) @ J
        own[0, 4] += e * s
        own[1, 5] += c
        own[2, 6] += c
        flux = np.array([k1 * e * s, k2 * c, k3 * c])
        return np.concatenate([stoichiometry @ flux, (stoichiometry @ own).ravel()])

    first = np.concatenate([start, np.eye(4, 7).ravel()])
    y = scipy.integrate.solve_ivp(slope, (0, time), first, rtol=1e-11, atol=1e-12).y[:, -1]
    by_time = slope(0.0, y)[:4]
    return np.column_stack([y[:4], y[4:].reshape(4, 7), by_time])


@pytest.mark.slow
def test_chemistry_follows_the_sensitivity_equations_to_its_tolerance():
    cells = drawn_cells(20)
    wanted = np.array([by_solve_ivp(cell) for cell in zip(*cells, strict=True)])
    value, jacobian = mixad.broadcast(chemistry.after).value_and_jacobian(*cells, 1e-9)
    np.testing.assert_allclose(planes(value), wanted[..., 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(jacobian, wanted[..., 1:], rtol=0, atol=1e-5)


def test_chemistry_conserves_enzyme_and_substrate():
    e, s, c, p, *rest = drawn_cells(200)
    found = mixad.broadcast(chemistry.after)(e, s, c, p, *rest, 1e-3)
    np.testing.assert_allclose(found[0] + found[2], e + c, rtol=1e-14)
    np.testing.assert_allclose(found[1] + found[2] + found[3], s + c + p, rtol=1e-14)


def test_chemistry_at_rest_stays_there():
    zero = np.zeros(3)
    found = mixad.broadcast(chemistry.after)(zero, zero + 1, zero, zero, 1.0, 1.0, 1.0, 2.0, 1e-6)
    np.testing.assert_array_equal(np.stack(found), [zero, zero + 1, zero, zero])


# --- eigenvalues


def full(entries: np.ndarray) -> np.ndarray:
    """Return symmetric matrices from their six entries."""
    return np.moveaxis(entries[np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])], -1, 0)


def test_eigenvalues_are_those_of_numpy_and_their_derivatives_vv():
    entries = drawn_matrices(500)
    value, found = mixad.broadcast(eigenvalues.eigenvalues).value_and_jacobian(*entries)
    wanted, vectors = np.linalg.eigh(full(entries))
    np.testing.assert_allclose(planes(value), wanted[:, ::-1], rtol=1e-12, atol=1e-12)
    rows, columns = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2])
    twice = np.where(rows == columns, 1.0, 2.0)[:, None]
    products = np.swapaxes(vectors[:, rows] * vectors[:, columns] * twice, 1, 2)[:, ::-1]
    np.testing.assert_allclose(found, products, rtol=1e-9, atol=1e-10)


def test_eigenvalues_that_are_equal():
    entries = np.array([[2.0, 0, 0, 2, 0, 2], [3, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]]).T
    value, found = mixad.broadcast(eigenvalues.eigenvalues).value_and_jacobian(*entries)
    np.testing.assert_allclose(planes(value), [[2, 2, 2], [3, 1, 1], [0, 0, 0]], atol=1e-7)
    third = np.array([1, 0, 0, 1, 0, 1]) / 3
    np.testing.assert_allclose(found[0], [third] * 3, atol=1e-15)


def test_sum_of_eigenvalues_is_the_trace_and_its_gradient_the_identity():
    entries = drawn_matrices(100)
    kernel = mixad.broadcast(eigenvalues.eigenvalues)
    total = lambda *a: sum(kernel(*a)).sum()  # noqa: E731
    gradients = mixad.grad(total, argnums=tuple(range(6)))(*entries)
    wanted = np.array([1, 0, 0, 1, 0, 1.0])[:, None] * np.ones(100)
    np.testing.assert_allclose(gradients, wanted, atol=1e-12)


def test_nan_stays_nan_and_spoils_no_neighbour():
    x = np.linspace(0.0, 5.0, 40)
    x[7] = math.nan
    w, slope = mixad.broadcast(lambert.lambert_w).value_and_jacobian(x)
    assert np.isnan(w[7])
    assert np.isfinite(np.delete(w, 7)).all()
    assert np.isfinite(np.delete(slope, 7, axis=0)).all()
