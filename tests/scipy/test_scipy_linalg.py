"""Linear algebra and special functions of arrays: SciPy's values, derivatives of differences."""

import importlib.util
import math

import mpmath
import numpy as np
import pytest
from checks import check_gradient, check_values, ours, scipys

import mixad
from mixad.errors import TracerError
from mixad.scipy import linalg, special

pytest.importorskip("scipy")

import scipy.linalg
import scipy.special

R = np.random.default_rng(0)
A = R.normal(size=(3, 3)) + 3 * np.eye(3)
S = A @ A.T
H = S + 1j * (A - A.T)
B = R.normal(size=(3, 2))
V = R.normal(size=3)
TALL = R.normal(size=(5, 3))
HAS_TORCH = importlib.util.find_spec("torch") is not None


CALLS = {
    "solve": [
        ("linalg.solve", (A, B), {}),
        ("linalg.solve", (A, V), {"transposed": True}),
        ("linalg.solve", (A, V), {"assume_a": "upper triangular"}),
        ("linalg.solve", (A, B), {"assume_a": "lower triangular", "transposed": True}),
        ("linalg.solve", (S, V), {"assume_a": "pos"}),
        ("linalg.solve", (S, V), {"assume_a": "sym", "lower": True}),
    ],
    "triangular": [
        ("linalg.solve_triangular", (A, B), {"lower": lower, "trans": trans, "unit_diagonal": unit})
        for lower, trans, unit in [
            (False, 0, False),
            (True, 1, True),
            (True, "N", False),
            (False, "C", True),
        ]
    ],
    "inv": [("linalg.inv", (A,), {})],
    "det": [("linalg.det", (A,), {})],
    "singular values": [("linalg.svd", (TALL,), {"compute_uv": False})],
    "expm": [("linalg.expm", (size * A,), {}) for size in (0.001, 0.03, 0.1, 0.3, 1.0, 2.0)],
    "expm of several": [("linalg.expm", (np.stack([A, 0.1 * A]),), {})],
    "multigammaln": [("special.multigammaln", (np.asarray([2.3, 40.0]), 4), {})],
    "logsumexp": [
        ("special.logsumexp", (1000 + B,), {}),
        ("special.logsumexp", (B, 0), {"keepdims": True}),
        ("special.logsumexp", (B, (0, 1), np.asarray([2.0, 0.5])), {}),
        ("special.logsumexp", (B, 1, np.abs(B)), {"return_sign": False}),
    ],
}


@pytest.mark.parametrize(
    ("name", "at"), [(name, at) for name, calls in CALLS.items() for at in range(len(calls))]
)
def test_values_and_gradients_are_scipys(name: str, at: int) -> None:
    called, args, options = CALLS[name][at]
    check_values(called, *args, **options)
    check_gradient(called, *args, tolerance=1e-5, **options)


def test_exponentials_of_large_matrices_keep_their_digits() -> None:
    """Where SciPy's loses four more."""
    with mpmath.workdps(50):
        wanted = mpmath.expm(mpmath.matrix((4 * A).tolist())).tolist()
    np.testing.assert_allclose(linalg.expm(4 * A), np.asarray(wanted, float), rtol=1e-13)


def test_one_triangle_is_read_of_what_is_symmetric() -> None:
    for lower in (False, True):
        check_values("linalg.solve", A, B, lower, assume_a="sym")
        check_gradient("linalg.solve", A, B, lower, assume_a="sym")
    check_values("linalg.solve", A + 1j * B[:, :1], V, assume_a="her")


@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_factors_are_scipys_and_their_gradients_symmetric(lower: bool) -> None:
    check_values("linalg.cholesky", S, lower)
    check_values("linalg.cholesky", H, lower)
    gradient = mixad.grad(lambda a: linalg.cholesky(a, lower)[0, 0])(S)
    wanted = np.zeros((3, 3))
    wanted[0, 0] = 0.5 / math.sqrt(S[0, 0])
    np.testing.assert_allclose(gradient, wanted, atol=1e-15)
    factor = np.asarray(linalg.cholesky(S, lower))
    check_values("linalg.cho_solve", (factor, lower), B)
    np.testing.assert_allclose(S @ linalg.cho_solve((factor, lower), B), B, atol=1e-12)
    h = linalg.cholesky(H, lower)
    np.testing.assert_allclose(H @ linalg.cho_solve((h, lower), V), V, atol=1e-12)


def test_the_gradient_of_a_system_by_cholesky_is_that_of_the_solution() -> None:
    def by_factor(a):
        return linalg.cho_solve((linalg.cholesky(a), False), V).sum()

    found, wanted = mixad.grad(by_factor)(S), mixad.grad(lambda a: linalg.solve(a, V).sum())(S)
    np.testing.assert_allclose(found, (wanted + wanted.T) / 2, rtol=1e-10)


def test_singular_vectors_are_scipys() -> None:
    for options in ({}, {"full_matrices": False}):
        check_values("linalg.svd", TALL, **options)
    with pytest.raises(TracerError, match="use full_matrices=False"):
        mixad.grad(lambda a: linalg.svd(a)[0].sum())(TALL)
    # u and v change with their signs: so does a product of both.
    rebuilt = mixad.grad(lambda a: ((u := linalg.svd(a, False))[0] * u[1] @ u[2])[0, 1])(TALL)
    np.testing.assert_allclose(rebuilt, np.eye(15)[1].reshape(5, 3), atol=1e-12)


@pytest.mark.parametrize("lower", [False, True])
def test_eigenvalues_are_scipys(lower: bool) -> None:
    mass = S + np.eye(3)
    check_values("linalg.eigh", A, lower=lower, eigvals_only=True)
    check_values("linalg.eigh", A, mass, lower=lower, eigvals_only=True)
    values, vectors = linalg.eigh(H, mass + 0.1j * (A - A.T), lower=lower)
    whole = mass + 0.1j * (A - A.T)
    np.testing.assert_allclose(H @ vectors, whole @ vectors * values, atol=1e-10)
    np.testing.assert_allclose(vectors.conj().T @ whole @ vectors, np.eye(3), atol=1e-12)


def test_gradients_of_eigenvalues_are_those_of_first_order() -> None:
    """The derivative of a value is v' da v - w v' db v, for a vector of length 1 beside b."""
    mass = S + np.eye(3)
    sym = A + A.T
    values, vectors = scipy.linalg.eigh(sym, mass)
    v = vectors[:, 1]
    of_a, of_b = mixad.grad(lambda a, b: linalg.eigh(a, b)[0][1], argnums=(0, 1))(sym, mass)
    np.testing.assert_allclose((of_a + of_a.T) / 2, np.outer(v, v), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(of_b, -values[1] * np.outer(v, v), rtol=1e-9, atol=1e-12)


def test_least_squares_are_scipys() -> None:
    for a, b in [(TALL, R.normal(size=5)), (TALL, R.normal(size=(5, 2))), (TALL.T, V), (A, B)]:
        found, wanted = linalg.lstsq(a, b), scipy.linalg.lstsq(a, b)
        for own, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-12)
    deficient = np.outer(R.normal(size=4), [1.0, 2.0])
    for own, other in zip(
        linalg.lstsq(deficient, np.ones(4)), scipy.linalg.lstsq(deficient, np.ones(4)), strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-12)


def test_gradients_of_least_squares_are_those_of_differences() -> None:
    b = R.normal(size=5)

    def value(function, a, b):
        x, residues, _, s = function(a, b)
        return (x * np.arange(1.0, 4.0)).sum() + residues + s[0]

    found = mixad.grad(lambda a, b: value(linalg.lstsq, a, b), argnums=(0, 1))(TALL, b)
    for place, array in enumerate((TALL, b)):
        wanted = np.empty(array.size)
        for i in range(array.size):
            step = 1e-6 * np.eye(array.size)[i].reshape(array.shape)
            ends = [[TALL, b] for _ in range(2)]
            ends[0][place], ends[1][place] = array + step, array - step
            wanted[i] = np.diff([value(scipy.linalg.lstsq, *end) for end in ends[::-1]])[0] / 2e-6
        np.testing.assert_allclose(found[place].ravel(), wanted, rtol=1e-6, atol=1e-7)


def test_the_second_derivative_of_an_exponential_is_that_of_its_series() -> None:
    """Of exp(tA) by t, twice: A² exp(tA)."""
    second = mixad.jacobian(mixad.jacobian(lambda t: linalg.expm(t * A)))(0.7)
    np.testing.assert_allclose(second, A @ A @ scipy.linalg.expm(0.7 * A), rtol=1e-10)


def test_sums_of_exponentials_know_infinite_and_negative_terms() -> None:
    a = np.asarray([0.0, -np.inf, 3.0])
    check_values("special.logsumexp", a)
    check_values("special.logsumexp", np.asarray([-np.inf, -np.inf]))
    check_values("special.logsumexp", np.asarray([np.inf, 1.0]))
    check_values("special.logsumexp", a, b=np.asarray([1.0, 2.0, -1.0]), return_sign=True)
    assert math.isnan(special.logsumexp(a, b=np.asarray([1.0, 2.0, -1.0])))
    gradient = mixad.grad(lambda a: special.logsumexp(a))(a)
    np.testing.assert_allclose(gradient, scipy.special.softmax(a), rtol=1e-12)


NAMES = ["gammaln", "expit", "xlogy", "erf"]


@pytest.mark.parametrize("name", NAMES)
def test_special_functions_of_kernels_have_scipys_names(name: str) -> None:
    count = 2 if name == "xlogy" else 1
    args = [np.linspace(1.5, 3.0, 4), np.asarray([[0.5], [2.0]])][:count]
    check_values(f"special.{name}", *args)
    check_gradient(f"special.{name}", *args)
    numbers = [1.5, 2.5][:count]
    found, wanted = ours(f"special.{name}")(*numbers), scipys(f"special.{name}")(*numbers)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    narrow = ours(f"special.{name}")(np.ones(2, np.float32) + 1, *numbers[1:])
    assert narrow.dtype == np.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linalg.solve(A, V, assume_a="banded"), "pass one of 'general'"),
        (lambda: linalg.solve_triangular(A, V, 3), "trans is 0, 1, 2"),
        (lambda: linalg.expm(V), "pass square matrices"),
        (lambda: linalg.lstsq(A, TALL), "of as many rows"),
        (lambda: special.multigammaln(1.0, 0), "d is at least 1"),
        (lambda: special.logsumexp(np.ones(2) * 1j), "real exponents"),
    ],
)
def test_errors_name_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_tensors_go_in_and_come_out() -> None:
    import torch

    a, b = torch.asarray(S), torch.asarray(B)
    results = {
        "cholesky": (a,), "solve": (a, b), "solve_triangular": (a, b), "inv": (a,), "det": (a,),
        "expm": (a / 10,), "eigh": (a,), "svd": (a,),
    }  # fmt: skip
    for name, args in results.items():
        own = getattr(linalg, name)(*args)
        other = getattr(scipy.linalg, name)(*(np.asarray(x) for x in args))
        own, other = (x[0 if name == "eigh" else 1] if isinstance(x, tuple) else x
                      for x in (own, other))  # fmt: skip
        assert isinstance(own, torch.Tensor)
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-12)
    found = special.logsumexp(b, 1)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, scipy.special.logsumexp(B, 1), rtol=1e-12)
    gradient = mixad.grad(lambda a: linalg.expm(a).sum())(a / 10)
    np.testing.assert_allclose(gradient, mixad.grad(lambda a: linalg.expm(a).sum())(S / 10))


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_cholesky_reads_one_triangle(lower: bool, dtype: str) -> None:
    a = (
        np.asarray([[4.0, 2.0 + 1j], [0.5, 5.0]])
        if dtype == "c16"
        else np.asarray([[4.0, 2.0], [0.5, 5.0]])
    )
    own = linalg.cholesky(a, lower=lower)
    np.testing.assert_allclose(own, scipy.linalg.cholesky(a, lower=lower), rtol=1e-14)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_stacked_factors_solve_for_one_vector(lower: bool, count: int) -> None:
    c = np.stack([np.eye(3) * k + np.triu(np.ones((3, 3)), 1) for k in range(1, count + 1)])
    c = np.swapaxes(c, -1, -2) if lower else c
    b = np.asarray([1.0, -2.0, 0.5])
    expected = [scipy.linalg.cho_solve((each, lower), b) for each in c]
    np.testing.assert_allclose(linalg.cho_solve((c, lower), b), expected, rtol=1e-13)
