"""Small matrices in kernels: against mpmath, complex differences, and what NumPy refuses."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.linalg import LinAlgError

import mixad
from mixad.namespace import small_matrices
from mixad.namespace.decompositions import cholesky
from mixad.namespace.determinants import det, slogdet
from mixad.namespace.solving import inv, solve

RNG = np.random.default_rng(5)
SIDES = (1, 2, 3, 4, 5, 6)
ULPS = 16
"""Units in the last place, times the condition number and the side, that are lost at most."""


def matrices(n, *batch, condition=10.0, dtype=np.float64):
    """Return matrices with a condition number."""
    sizes = np.geomspace(1.0, 1.0 / condition, n)
    one, other = (np.linalg.qr(RNG.normal(size=(*batch, n, n)))[0] for _ in range(2))
    return ((one * sizes) @ other).astype(dtype)


def positive(n, *batch, condition=10.0, dtype=np.float64):
    sizes = np.geomspace(1.0, 1.0 / condition, n)
    one = np.linalg.qr(RNG.normal(size=(*batch, n, n)))[0]
    found = ((one * sizes) @ np.swapaxes(one, -1, -2)).astype(dtype)
    return (found + np.swapaxes(found, -1, -2)) / 2


def exactly(function, *arrays):
    """Return what a function of mpmath's matrices gives, in 60 digits, then rounded."""
    with mpmath.workdps(60):
        found = function(*[mpmath.matrix(a.astype(float).tolist()) for a in arrays])
        if not isinstance(found, mpmath.matrix):
            return float(found)
        return np.array([[float(x) for x in row] for row in found.tolist()])


def served(*arrays):
    """Return arrays that a kernel is there for."""
    kernel = small_matrices.inverse(arrays[0])
    assert kernel is not None
    return arrays


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("condition", [3.0, 1e4])
@pytest.mark.parametrize("n", SIDES)
def test_values_lose_few_units_times_the_condition(n, condition, dtype):
    limit = ULPS * n * condition * np.finfo(dtype).eps
    (x,), b = served(matrices(n, condition=condition, dtype=dtype)), RNG.normal(size=(n, 2))
    found, wanted = inv(x), exactly(lambda x: x**-1, x)
    assert found.dtype == dtype
    assert np.abs(found - wanted).max() <= limit * np.abs(wanted).max()
    b = b.astype(dtype)
    wanted = exactly(lambda x, b: mpmath.inverse(x) * b, x, b)
    assert np.abs(solve(x, b) - wanted).max() <= limit * np.abs(wanted).max()
    wanted = exactly(mpmath.det, x)
    assert abs(det(x) - wanted) <= limit * abs(wanted)
    sign, size = slogdet(x)
    assert sign == np.sign(wanted)
    assert abs(size - np.log(abs(wanted))) <= limit
    spd = positive(n, condition=condition, dtype=dtype)
    wanted = exactly(mpmath.cholesky, spd)
    assert np.abs(cholesky(spd) - wanted).max() <= limit


@pytest.mark.parametrize("n", SIDES)
def test_residuals_are_no_larger_than_those_of_the_library(n):
    x, b = matrices(n, 300, condition=1e6), RNG.normal(size=(300, n, 1))
    own = np.abs(x @ solve(x, b) - b).max(axis=(-2, -1))
    other = np.abs(x @ np.linalg.solve(x, b) - b).max(axis=(-2, -1))
    assert np.median(own) <= 2.0 * np.median(other) + 1e-16
    assert own.max() <= 8.0 * other.max() + 1e-16


FUNCTIONS = {
    "inv": (np.linalg.inv, matrices),
    "solve": (lambda x: np.linalg.solve(x, x + 1.0), matrices),
    "solve for a vector": (lambda x: np.linalg.solve(x, x[:, 0] ** 2), matrices),
    "det": (np.linalg.det, matrices),
    "slogdet": (lambda x: np.linalg.slogdet(x)[1], matrices),
    "cholesky": (np.linalg.cholesky, positive),
}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_differences_in_the_complex_plane(name, n):
    f, drawn = FUNCTIONS[name]
    x, along = drawn(n), RNG.normal(size=(n, n))
    along = along + along.T if name == "cholesky" else along
    if name == "slogdet":
        wanted = np.trace(np.linalg.solve(x, along))
    elif name == "cholesky":  # NumPy's reads real parts of diagonals only: differences of reals
        wanted = (f(x + 1e-6 * along) - f(x - 1e-6 * along)) / 2e-6
    else:
        wanted = f(x + 1e-30j * along).imag / 1e-30
    weights = RNG.normal(size=np.shape(wanted))
    value, tangent = mixad.jvp(f, (x,), (along,))
    np.testing.assert_allclose(value, f(x), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(tangent, wanted, rtol=1e-7, atol=1e-7)
    gradient = mixad.grad(lambda x: (f(x) * weights).sum())(x)
    np.testing.assert_allclose((gradient * along).sum(), (wanted * weights).sum(), rtol=1e-6)


def test_hessians_of_small_matrices_are_those_of_differences():
    x, along = matrices(3), RNG.normal(size=(3, 3))

    def f(x):
        return (np.linalg.inv(x) ** 2).sum() + np.linalg.slogdet(x)[1] ** 2

    gradient = mixad.grad(f)
    wanted = (gradient(x + 1e-6 * along) - gradient(x - 1e-6 * along)) / 2e-6
    np.testing.assert_allclose(mixad.hvp(f, (x,), (along,)), wanted, rtol=1e-6)


SINGULAR = [
    [[0.0]],
    [[1.0, 2.0], [2.0, 4.0]],
    [[0.0, 1.0], [0.0, 3.0]],
    [[0.0, 1.0], [np.nan, 3.0]],
    [[1.0, 2.0, 3.0], [4.0, 4.0, 4.0], [1.0, 2.0, 3.0]],
    np.zeros((6, 6)),
]


@pytest.mark.parametrize("x", SINGULAR, ids=range(len(SINGULAR)))
def test_singular_matrices_are_those_of_numpy(x):
    (x,) = served(np.asarray(x))
    batch = np.stack([np.eye(len(x)), x, np.eye(len(x))])
    for each in (x, batch):
        for f in (np.linalg.inv, lambda x: np.linalg.solve(x, x)):
            with pytest.raises(LinAlgError, match="Singular matrix"):
                f(each)
            with pytest.raises(LinAlgError, match="Singular matrix"):
                mixad.grad(lambda x, f=f: f(x).sum())(each)
    with np.errstate(all="ignore"):
        assert det(x) == np.linalg.det(x) == 0.0
        assert tuple(slogdet(x)) == tuple(np.linalg.slogdet(x)) == (0.0, -np.inf)


def test_matrices_that_are_not_positive_definite_are_refused_as_by_numpy():
    for x in ([[0.0]], [[1.0, 2.0], [2.0, 1.0]], [[4.0, 2.0], [2.0, 1.0]]):
        x = np.asarray(x)
        for f in (np.linalg.cholesky, cholesky, mixad.grad(lambda x: np.linalg.cholesky(x).sum())):
            with pytest.raises(LinAlgError, match="not positive definite"):
                f(x)


def test_one_triangle_is_read():
    x = positive(4)
    lower = np.where(np.tri(4) != 0, x, np.nan)
    np.testing.assert_array_equal(cholesky(lower), cholesky(x))


RANGES = ([1e200, 1e200, 1e-300], [1e-200, 1e-200, 1e300], [1e200, -1e150], [1e-200, 1e-200])


def test_determinants_whose_partial_products_leave_the_range_are_kept():
    for sizes in RANGES:
        x = np.diag(sizes)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(det(x), np.linalg.det(x), rtol=1e-12)
        sign, size = slogdet(x)
        assert sign == np.prod(np.sign(sizes))
        np.testing.assert_allclose(size, np.log(np.abs(sizes)).sum(), rtol=1e-14)


def test_nan_and_inf_stay_in_their_matrix():
    x = matrices(3, 5)
    wanted = inv(x)
    spoilt = x.copy()
    spoilt[2, 1, 1], spoilt[3, 0, 2] = np.nan, np.inf
    found = inv(spoilt)
    np.testing.assert_array_equal(found[[0, 1, 4]], wanted[[0, 1, 4]])
    assert np.isnan(found[2]).any()
    assert np.isnan(cholesky(np.array([[np.nan]])))
    x = np.array([[np.inf, 1.0], [1.0, 1.0]])
    np.testing.assert_array_equal(inv(x), np.linalg.inv(x))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_layouts_and_batches_change_no_bit(n):
    x = RNG.normal(size=(3, 2, n, n))
    layouts = {
        "in order": x,
        "transposed": np.swapaxes(np.ascontiguousarray(np.swapaxes(x, -1, -2)), -1, -2),
        "batch last": np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0),
        "backwards": np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1],
        "with gaps": np.repeat(x, 2, axis=-1)[..., ::2],
    }
    one_by_one = np.stack([[inv(m) for m in row] for row in x])
    for each in layouts.values():
        np.testing.assert_array_equal(each, x)
        np.testing.assert_array_equal(inv(each), one_by_one)
        np.testing.assert_array_equal(det(each), np.array([[det(m) for m in row] for row in x]))
    right = RNG.normal(size=(2, n, 3))
    found = solve(x, right)
    assert found.shape == (3, 2, n, 3)
    for at in np.ndindex(3, 2):
        np.testing.assert_array_equal(found[at], solve(x[at], right[at[1]]))
    np.testing.assert_array_equal(solve(x[0, 0], right)[1], solve(x[0, 0], right[1]))


def test_large_other_and_empty_matrices_are_left_to_the_library():
    others = np.eye(7), np.eye(2, dtype=complex), np.empty((0, 2, 2)), np.empty((0, 0))
    others = *others, np.eye(2, 3), np.eye(2, dtype=np.float16), np.eye(2, dtype=">f8")
    assert all(small_matrices.inverse(x) is None for x in others)
    assert small_matrices.solution(np.eye(2), np.ones((2, 40))) is None
    assert small_matrices.solution(np.eye(2), np.ones((2, 2), np.float32)) is None
    np.testing.assert_array_equal(solve(np.eye(2), np.ones((2, 40))), np.ones((2, 40)))
    with pytest.raises(ValueError, match=r"solve.*mismatch|core dimension"):
        solve(np.eye(2), np.ones((3, 1)))


def test_a_traced_value_has_the_bits_of_a_plain_one():
    x, b = matrices(4), RNG.normal(size=(4, 2))
    np.testing.assert_array_equal(mixad.jvp(np.linalg.inv, (x,), (x,))[0], inv(x))
    np.testing.assert_array_equal(mixad.jvp(np.linalg.solve, (x, b), (x, b))[0], solve(x, b))
    np.testing.assert_array_equal(mixad.jvp(np.linalg.det, (x,), (x,))[0], det(x))
