"""Linear algebra: derivatives against differences and JAX; what has none is refused."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest
from derivatives import HAS_JAX, against_jax, check, check_single, check_values
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import TracerError
from mixad.namespace.decompositions import cholesky

EXAMPLES = 60

HAS_TORCH = importlib.util.find_spec("torch") is not None

RNG = np.random.default_rng(11)
A = RNG.normal(size=(3, 3))
B = RNG.normal(size=(2, 4, 4))
TALL = RNG.normal(size=(2, 4, 3))
WIDE = RNG.normal(size=(3, 5))
V = RNG.normal(size=3)
W = RNG.normal(size=(2, 3))


def symmetric(xp: Any, x: Any) -> Any:
    return x + xp.matrix_transpose(x)


def positive(xp: Any, x: Any) -> Any:
    return xp.matmul(x, xp.matrix_transpose(x)) + xp.eye(x.shape[-1], dtype=xp.float64)


def of_eigh(xp: Any, x: Any) -> Any:
    w, v = xp.linalg.eigh(symmetric(xp, x))
    return [w**2, v * v * xp.expand_dims(w, axis=-2)]  # what does not depend on signs


def of_svd(xp: Any, x: Any) -> Any:
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    k = s.shape[-1] - 1
    last = u[..., :, k:] * vh[..., k:, :]
    return [s**2, u * u, vh * vh * xp.expand_dims(s, axis=-1), last]


def of_qr(xp: Any, x: Any) -> Any:
    q, r = xp.linalg.qr(x)
    return [q * q, r * r, q[..., :, :1] * r[..., :1, :]]


CASES: dict[str, tuple[Any, ...]] = {
    "matmul": (lambda xp, x, y: xp.matmul(x, y) ** 2, B, B[0]),
    "matmul of vectors": (
        lambda xp, x, y: [xp.matmul(x, x) * xp.matmul(y, x), xp.matmul(x, y) ** 2], V, A),
    "tensordot": (lambda xp, x, y: xp.tensordot(x, y) ** 2, TALL, RNG.normal(size=(4, 3, 2))),
    "tensordot over axes": (
        lambda xp, x, y: xp.tensordot(x, y, axes=((0, -1), (1, 0))) ** 2,
        TALL, RNG.normal(size=(3, 2, 2))),
    "outer product": (lambda xp, x, y: xp.tensordot(x, y, axes=0) ** 2, V, W),
    "vecdot": (lambda xp, x, y: xp.vecdot(x, y) ** 2 * xp.linalg.vecdot(y, y), W, V),
    "vecdot along an axis": (lambda xp, x, y: xp.vecdot(x, y, axis=-2) ** 2, TALL, TALL[0]),
    "outer": (lambda xp, x, y: xp.linalg.outer(x, y) ** 2, V, W[:, 0]),
    "cross": (lambda xp, x, y: xp.linalg.cross(x, y) ** 2, W, W + 1.0),
    "cross along an axis": (lambda xp, x, y: xp.linalg.cross(x, y, axis=-2) ** 2,
                            TALL[:, :3, :2], TALL[:, 1:, 1:]),
    "diagonal": (lambda xp, x: xp.linalg.diagonal(x, offset=-1) ** 2, TALL),
    "trace": (lambda xp, x: xp.linalg.trace(x) ** 2 * xp.linalg.trace(x, offset=1), TALL),
    "inv": (lambda xp, x: xp.linalg.inv(x), B),
    "solve": (lambda xp, x, y: xp.linalg.solve(x, y), B, B[0]),
    "solve for a vector": (lambda xp, x, y: xp.linalg.solve(x, y) ** 2, A, V),
    "det": (lambda xp, x: xp.linalg.det(x), B),
    "slogdet": (lambda xp, x: xp.linalg.slogdet(x)[1], B),
    "matrix_power": (lambda xp, x: [xp.linalg.matrix_power(x, n) for n in (1, 2, 5, -2)], A),
    "cholesky": (lambda xp, x: xp.linalg.cholesky(positive(xp, x)), B),
    "cholesky, upper": (lambda xp, x: xp.linalg.cholesky(positive(xp, x), upper=True) ** 2, A),
    "qr of square": (of_qr, B),
    "qr of tall": (of_qr, TALL),
    "qr of wide": (of_qr, WIDE),
    "eigh": (of_eigh, B),
    "eigvalsh": (lambda xp, x: xp.linalg.eigvalsh(symmetric(xp, x)) ** 2, A),
    "svd of square": (of_svd, B),
    "svd of tall": (of_svd, TALL),
    "svd of wide": (of_svd, WIDE),
    "svdvals": (lambda xp, x: xp.linalg.svdvals(x) ** 3, TALL),
    "pinv of tall": (lambda xp, x: xp.linalg.pinv(x), TALL),
    "pinv of wide": (lambda xp, x: xp.linalg.pinv(x), WIDE),
    "vector_norm": (
        lambda xp, x: [xp.linalg.vector_norm(x), xp.linalg.vector_norm(x, axis=(0, -1)),
                       xp.linalg.vector_norm(x, axis=1, keepdims=True)], TALL),
    "vector_norm of order": (
        lambda xp, x: [xp.linalg.vector_norm(x, axis=-1, ord=p)
                       for p in (1, 3, 2.5, -1, 0, math.inf, -math.inf)], TALL),
    "matrix_norm": (
        lambda xp, x: [xp.linalg.matrix_norm(x, ord=p)
                       for p in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)], TALL),
    "matrix_norm keeps": (
        lambda xp, x: [xp.linalg.matrix_norm(x, keepdims=True, ord=p) for p in ("fro", 2)], WIDE),
}  # fmt: skip


@pytest.mark.rows(
    "name",
    CASES,
    slow=[
        "eigh",
        "matrix_norm",
        "svd of square",
        "svd of tall",
        "svd of wide",
        "vecdot",
        "vector_norm of order",
    ],
)
def test_derivatives_agree_with_differences(name: str) -> None:
    check(*CASES[name], tolerance=1e-5)


@pytest.mark.rows("name", CASES)
def test_float32_stays_float32(name: str) -> None:
    check_single(*CASES[name])


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.rows("name", CASES)
def test_derivatives_agree_with_those_of_jax(name: str) -> None:
    against_jax(*CASES[name], tolerance=1e-7)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    st.integers(1, 4), st.integers(1, 4), st.sampled_from([(), (2,), (1, 2)]), st.integers(0, 99)
)
def test_decompositions_of_any_shape(rows: int, columns: int, batch: Any, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(*batch, rows, columns))
    x += 2 * np.eye(rows, columns) * np.arange(1, columns + 1)  # values apart from each other

    def f(xp: Any, x: Any) -> Any:
        return [*of_qr(xp, x), xp.linalg.svdvals(x), xp.linalg.pinv(x)]

    check(f, x, tolerance=1e-4, second=False)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3)])
def test_linear_algebra_without_elements(shape: tuple[int, ...]) -> None:
    def f(xp: Any, x: Any) -> Any:
        parts = [xp.linalg.inv(x), xp.linalg.det(x), xp.matmul(x, x), xp.linalg.trace(x)]
        return [*parts, xp.linalg.eigvalsh(x), *xp.linalg.svd(x), *xp.linalg.qr(x)]

    check_values(f, np.ones(shape))


def gradient(f: Any, x: Any) -> Any:
    return mixad.grad(lambda x: f(x.__array_namespace__(), x))(np.asarray(x, dtype="f8"))


def test_gradients_with_respect_to_symmetric_matrices_are_symmetric() -> None:
    x = positive(np, A)
    for f in (
        lambda xp, x: (xp.linalg.cholesky(x) * A).sum(),
        lambda xp, x: (xp.linalg.eigh(x)[1] * A).sum(),
        lambda xp, x: (xp.linalg.eigvalsh(x) * V).sum(),
    ):
        found = gradient(f, x)
        np.testing.assert_allclose(found, found.T, rtol=1e-13)


OF_SYMMETRIC = {
    "cholesky": lambda x: np.linalg.cholesky(x),
    "cholesky, upper": lambda x: np.linalg.cholesky(x, upper=True),
    "eigh": lambda x: np.linalg.eigh(x)[0],
    "eigh, upper": lambda x: np.linalg.eigh(x, UPLO="U")[1] ** 2,
    "eigvalsh": lambda x: np.linalg.eigvalsh(x),
    "eigvalsh, upper": lambda x: np.linalg.eigvalsh(x, UPLO="U"),
}
ROUNDED = 1.0 + np.asarray([[0.0, 4e-16, 0.0], [0.0, 0.0, -4e-16], [0.0, 0.0, 0.0]])
HERMITIAN = positive(np, A) + 0.5j * (A - A.T)
UNEVEN = {
    "one half": (np.tril(positive(np, A)), "not symmetric: .* pass \\(x \\+ x.mT\\) / 2"),
    "a little more than rounding": (positive(np, A) + 1e-12 * A, "not symmetric"),
    "one of a batch": (np.stack([positive(np, A), 9 * np.eye(3) + A]), "not symmetric"),
    "complex, symmetric": (positive(np, A) + 0.1j, "not Hermitian: .* x.conj\\(\\).mT\\) / 2"),
    "complex, with a complex diagonal": (HERMITIAN + 0.1j * np.eye(3), "not Hermitian"),
}


@pytest.mark.rows("matrix", UNEVEN)
@pytest.mark.rows("name", OF_SYMMETRIC)
def test_what_reads_one_triangle_refuses_matrices_whose_triangles_differ(
    name: str, matrix: str
) -> None:
    (x, message), f = UNEVEN[matrix], OF_SYMMETRIC[name]
    f(x)  # NumPy does not mind
    what = name.partition(",")[0]
    with pytest.raises(TracerError, match=rf"{what}\(\) of a matrix that .* {message}"):
        mixad.grad(lambda x: abs(f(x)).sum())(x)
    with pytest.raises(TracerError, match=what):
        mixad.jvp(f, (x,), (x,))


@pytest.mark.rows("x", [positive(np, A), positive(np, A) * ROUNDED, HERMITIAN])
@pytest.mark.rows("name", OF_SYMMETRIC)
def test_of_symmetric_matrices_derivatives_are_those_along_symmetric_ones(
    name: str, x: Any
) -> None:
    f = OF_SYMMETRIC[name]
    f = (lambda x, g=f: abs(g(x)) ** 2) if np.iscomplexobj(x) else f
    weights = np.cos(np.arange(f(x).size)).reshape(f(x).shape)
    value, slope = mixad.value_and_grad(lambda x: (f(x) * weights).sum())(x)
    np.testing.assert_allclose(value, (f(x) * weights).sum(), rtol=1e-13)
    np.testing.assert_allclose(slope, slope.conj().T, rtol=1e-12)
    step = A + 1j * A[::-1] if np.iscomplexobj(x) else A
    step = 1e-6 * (step + step.conj().T)
    change = ((f(x + step) - f(x - step)) * weights).sum() / 2
    np.testing.assert_allclose(np.vdot(slope, step).real, change, rtol=1e-6)


def test_the_upper_factor_is_that_of_the_upper_triangle() -> None:
    """Of what is not being differentiated, whose triangles may differ."""
    x = np.triu(positive(np, A))

    def f(y: Any) -> Any:
        return y * np.linalg.cholesky(y.__array_namespace__().asarray(x), upper=True)

    found, _ = mixad.vjp(f, np.ones((3, 3)))
    np.testing.assert_array_equal(found, np.linalg.cholesky(x, upper=True))
    np.testing.assert_allclose(cholesky(x, upper=True), found, rtol=1e-13)


def test_what_treats_repeated_eigenvalues_alike_has_a_derivative() -> None:
    x = np.diag([2.0, 2.0, 3.0])
    found = gradient(lambda xp, x: (xp.linalg.eigvalsh(x) ** 3).sum(), x)
    np.testing.assert_allclose(found, np.diag([12.0, 12.0, 27.0]), atol=1e-12)
    found = gradient(lambda xp, x: xp.linalg.svdvals(x).sum(), x)
    np.testing.assert_allclose(found, np.eye(3), atol=1e-12)
    found = gradient(lambda xp, x: (xp.linalg.eigh(x)[1][:, 2] ** 2 * V).sum(), x)
    np.testing.assert_allclose(found, np.zeros((3, 3)), atol=1e-12)


REPEATED = {
    "an eigenvalue": lambda xp, x: xp.linalg.eigvalsh(x)[0],
    "an eigenvector": lambda xp, x: (xp.linalg.eigh(x).eigenvectors[:, 0] ** 2).sum(),
    "a singular value": lambda xp, x: xp.linalg.svdvals(x)[2],
    "a left vector": lambda xp, x: (xp.linalg.svd(x).U[:, 1] * V).sum(),
    "a right vector": lambda xp, x: (xp.linalg.svd(x).Vh[1, :] * V).sum(),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_tells_repeated_values_apart_is_refused(name: str) -> None:
    with pytest.raises(TracerError, match="repeated values"):
        gradient(REPEATED[name], np.diag([2.0, 2.0, 3.0]))


def test_each_matrix_of_a_batch_is_looked_at_by_itself() -> None:
    x = np.stack([np.diag([2.0, 2.0]), np.diag([1.0, 5.0])])
    scale = np.asarray([[1e-12, 2e-12], [1.0, 1.0]])
    with pytest.raises(TracerError, match="repeated values"):
        gradient(lambda xp, x: (xp.linalg.eigvalsh(x) * scale).sum(), x)
    np.testing.assert_allclose(
        gradient(lambda xp, x: (xp.linalg.eigvalsh(x) * scale[:, :1]).sum(), x),
        scale[:, :1, None] * np.eye(2),
        atol=1e-30,
    )


@pytest.mark.parametrize("name", REPEATED)
def test_tangents_at_repeated_values_are_refused(name: str) -> None:
    def f(x: Any) -> Any:
        return REPEATED[name](x.__array_namespace__(), x)

    with pytest.raises(TracerError, match="repeated values"):
        mixad.jvp(f, (np.diag([2.0, 2.0, 3.0]),), (A,))


def test_a_second_derivative_where_a_cotangent_vanishes_is_refused() -> None:
    """What vanishes here does not next to it."""

    def slope(weights: Any) -> Any:
        def loss(x: Any) -> Any:
            return (np.linalg.eigh(x)[1] * weights).sum() + 0.0 * x.sum()

        return (mixad.grad(loss)(np.eye(3)) * A).sum()

    with pytest.raises(TracerError, match="repeated values"):
        mixad.grad(slope)(np.zeros((3, 3)))


def test_a_second_derivative_at_repeated_eigenvalues_is_refused() -> None:
    def slope(x: Any) -> Any:
        cubes = mixad.grad(lambda x: (np.linalg.eigvalsh(x) ** 3).sum())
        return (cubes(x) * A).sum()

    with pytest.raises(TracerError, match="repeated values"):
        mixad.grad(slope)(np.eye(3))


def test_powers_of_16_bit_floats_do_not_overflow_in_norms() -> None:
    x = np.asarray([30.0, -50.0, 40.0], np.float16)
    xp = mixad.namespace_of(np)
    found, slope = mixad.value_and_grad(lambda x: xp.linalg.vector_norm(x, ord=3))(x)
    exact = np.sum(np.abs(x.astype(float)) ** 3) ** (1 / 3)
    assert found == np.float16(exact)
    np.testing.assert_array_equal(slope, (np.sign(x) * (x / exact) ** 2.0).astype(np.float16))


def test_norms_at_zero_have_derivative_zero() -> None:
    for order in (1, 2, 3, math.inf):
        found = gradient(lambda xp, x, p=order: xp.linalg.vector_norm(x, ord=p), np.zeros(3))
        np.testing.assert_array_equal(found, np.zeros(3))
    found = gradient(lambda xp, x: xp.linalg.matrix_norm(x, ord="nuc"), np.zeros((2, 3)))
    np.testing.assert_array_equal(found, np.zeros((2, 3)))


def test_the_zeroth_power_is_constant() -> None:
    found = gradient(lambda xp, x: (xp.linalg.matrix_power(x, 0) @ x).sum(), A)
    np.testing.assert_array_equal(found, np.ones((3, 3)))


ADJUGATES = {
    "of rank n - 1": (np.diag([1.0, 2.0, 0.0]), np.diag([0.0, 0.0, 2.0])),
    "of a permuted one": (np.diag([1.0, 2.0, 0.0])[[2, 0, 1]], np.diag([0.0, 0.0, 2.0])[[2, 0, 1]]),
    "of rank n - 2": (np.diag([3.0, 0.0, 0.0]), np.zeros((3, 3))),
    "of a batch": (np.stack([np.diag([0.0, 4.0]), [[1.0, 2.0], [3.0, 4.0]]]),
                   np.stack([np.diag([4.0, 0.0]), [[4.0, -3.0], [-2.0, 1.0]]])),
    "complex": (np.diag([1j, 2.0, 0.0]), np.diag([0.0, 0.0, -2j])),
}  # fmt: skip


@pytest.mark.parametrize("name", ADJUGATES)
def test_determinants_of_singular_matrices_have_the_adjugate_as_derivative(name: str) -> None:
    x, want = ADJUGATES[name]
    found = mixad.grad(lambda x: np.linalg.det(x).real.sum())(x)
    np.testing.assert_allclose(found, want, atol=1e-15)


def test_tangents_of_determinants_of_singular_matrices() -> None:
    x = np.diag([1.0, 2.0, 0.0])
    assert mixad.jvp(np.linalg.det, (x,), (A,))[1] == pytest.approx(2.0 * A[2, 2], rel=1e-14)


def test_the_sign_of_a_determinant_is_a_plain_array() -> None:
    def loss(x: Any) -> Any:
        sign, logarithm = np.linalg.slogdet(x)
        assert isinstance(sign, (np.ndarray, np.floating))
        return sign * logarithm

    sign = np.linalg.slogdet(A)[0]
    np.testing.assert_allclose(mixad.grad(loss)(A), sign * np.linalg.inv(A).T)


SINGULAR = np.asarray([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])


@pytest.mark.rows(
    ("f", "x", "error"),
    [
        (lambda xp, x: xp.linalg.inv(x).sum(), np.zeros((2, 2)), np.linalg.LinAlgError),
        (lambda xp, x: xp.linalg.slogdet(x)[1], np.zeros((2, 2)), TracerError),
        (lambda xp, x: xp.linalg.qr(x).R.sum(), np.diag([1.0, 0.0]), TracerError),
        (lambda xp, x: xp.linalg.inv(x).sum(), TALL, np.linalg.LinAlgError),
        (lambda xp, x: xp.linalg.cholesky(-x).sum(), np.eye(2), np.linalg.LinAlgError),
        (lambda xp, x: xp.linalg.pinv(x).sum(), SINGULAR, TracerError),
        (lambda xp, x: xp.linalg.svd(x)[0].sum(), TALL, TracerError),
        (lambda xp, x: xp.linalg.svd(x, full_matrices=False)[0].sum(), SINGULAR, TracerError),
        (lambda xp, x: xp.linalg.qr(x, mode="complete")[0].sum(), TALL, TracerError),
        (lambda xp, x: xp.linalg.qr(x, mode="r"), TALL, ValueError),
        (lambda xp, x: xp.linalg.matrix_norm(x, ord=3).sum(), TALL, ValueError),
        (lambda xp, x: xp.linalg.eig(x)[0].sum(), A, TracerError),
        (lambda xp, x: xp.fft.rfft(x), V, TracerError),
        (lambda xp, x: xp.linalg.cross(x, x).sum(), np.ones(4), ValueError),
        (lambda xp, x: xp.linalg.outer(x, x).sum(), A, ValueError),
        (lambda xp, x: xp.vecdot(x, x[:1]).sum(), V, ValueError),
        (lambda xp, x: xp.tensordot(x, x, axes=1).sum(), WIDE, ValueError),
        (lambda xp, x: xp.linalg.matrix_power(x, 0.5).sum(), A, TypeError),
    ],
)  # fmt: skip
def test_what_has_no_derivative_is_refused(f: Any, x: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        gradient(f, x)


def test_numpys_functions_of_linear_algebra() -> None:
    def f(xp: Any, x: Any) -> Any:
        parts = [np.linalg.solve(x, V), np.linalg.norm(x), np.linalg.norm(x, axis=0)]
        parts += [np.linalg.norm(x, 1), np.linalg.norm(x, np.inf, axis=(1, 0)), np.dot(x, V)]
        parts += [np.linalg.norm(x[0], 3), x.dot(A) @ x, np.dot(2.0, x), np.linalg.inv(x)]
        parts += [np.linalg.norm(x, p, (1, 0), keepdims=True) for p in ("fro", "nuc", 1, -np.inf)]
        parts += [np.linalg.norm(x[None] * B[:, :3, :3], 2, (0, 2), keepdims=True)]
        return [*parts, np.tensordot(x, A, 1), np.linalg.norm(x[0, :], 2, keepdims=True)]

    found: list[Any] = []
    mixad.grad(lambda x: sum(p.sum() for p in found.append(f(np, x)) or found[-1]))(A)
    slope = mixad.grad(lambda x: sum((p**2).sum() for p in f(np, x)))(A)
    step = 1e-6 * np.cos(np.arange(9.0)).reshape(3, 3)
    above, below = (sum((p**2).sum() for p in f(np, A + s * step)) for s in (1, -1))
    np.testing.assert_allclose(np.vdot(slope, step), (above - below) / 2, rtol=1e-6)
    for norm in (lambda x: np.linalg.norm(x, 3), lambda x: np.linalg.norm(x[None], 1)):
        with pytest.raises((ValueError, TracerError), match="norm"):
            mixad.grad(lambda x, norm=norm: norm(x).sum())(A)


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_torchs_functions_of_linear_algebra() -> None:
    import torch

    linalg = torch.linalg

    def loss(x: Any) -> Any:
        s = x @ x.mT + torch.eye(3, dtype=torch.float64)
        w, v = linalg.eigh(s)
        q, r = linalg.qr(x)
        u, sigma, vh = linalg.svd(x, full_matrices=False)
        total = (linalg.inv(x) ** 2).sum() + linalg.det(x) + linalg.slogdet(s)[1]
        total = total + (linalg.solve(x, s) ** 2).sum() + linalg.cholesky(s).sum()
        total = total + (w * (v**2)[0]).sum() + (q**2 * r).sum() + linalg.svdvals(x).sum()
        return total + (u * vh.mT * sigma).sum() + linalg.eigvalsh(s).amax() + torch.dot(x[0], x[1])

    x = torch.from_numpy(A).requires_grad_()
    (want,) = torch.autograd.grad(loss(x), x)
    torch.testing.assert_close(mixad.grad(loss)(x.detach()), want, rtol=1e-9, atol=1e-9)
