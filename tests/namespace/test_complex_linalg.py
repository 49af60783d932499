"""Linear algebra of complex matrices, and eigenvalues of any: derivatives, and what has none."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest
from complex_derivatives import check_complex, check_values, complex_against_jax
from derivatives import HAS_JAX
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import TracerError

EXAMPLES = 40

HAS_TORCH = importlib.util.find_spec("torch") is not None

RNG = np.random.default_rng(11)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


A, B = drawn(3, 3), drawn(2, 3, 3)
TALL, WIDE = drawn(2, 4, 3), drawn(3, 5)
V, W = drawn(3), drawn(2, 3)
X = RNG.normal(size=(3, 3))


def adjoint(xp: Any, x: Any) -> Any:
    return xp.conj(xp.matrix_transpose(x))


def hermitian(xp: Any, x: Any) -> Any:
    return x + adjoint(xp, x)


def positive(xp: Any, x: Any) -> Any:
    return xp.matmul(x, adjoint(xp, x)) + xp.eye(x.shape[-1], dtype=xp.complex128)


def of_eigh(xp: Any, x: Any) -> Any:
    w, v = xp.linalg.eigh(hermitian(xp, x))
    first = v[..., :, :1]
    return [w**2, xp.abs(v) ** 2 * xp.expand_dims(w, axis=-2), first @ adjoint(xp, first)]


def of_svd(xp: Any, x: Any) -> Any:
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    k = s.shape[-1] - 1
    pair = u[..., :, k:] * vh[..., k:, :]
    return [s**2, xp.abs(u) ** 2, xp.abs(vh) ** 2 * xp.expand_dims(s, axis=-1), pair]


def in_order(xp: Any, w: Any, v: Any) -> Any:
    """Return eigenvalues and vectors in an order that all libraries agree on."""
    order = xp.argsort(xp.real(w) + 0.1 * xp.imag(w))
    return xp.take(w, order), xp.take(v, order, axis=1)


def eig(xp: Any, x: Any) -> Any:
    """Return eigenvalues and vectors; JAX differentiates them if it is asked to."""
    if xp.__name__ != "jax.numpy":
        return xp.linalg.eig(x)
    from jax.lax.linalg import eig as of_jax

    return of_jax(x, compute_left_eigenvectors=False, enable_eigvec_derivs=True)


def of_eig(xp: Any, x: Any) -> Any:
    """Return what does not depend on phases; eigenvectors have length 1."""
    w, v = in_order(xp, *eig(xp, x))
    first = v[:, :1]
    return [w, w**2 * 1j, xp.abs(v), first @ adjoint(xp, first)]


def of_eigvals(xp: Any, x: Any) -> Any:
    w = xp.linalg.eigvals(x) if xp.__name__ != "jax.numpy" else eig(xp, x)[0]
    return xp.take(w, xp.argsort(xp.real(w) + 0.1 * xp.imag(w))) ** 2 * (1 + 1j)


CASES: dict[str, tuple[Any, ...]] = {
    "matmul": (lambda xp, x, y: xp.matmul(x, y) ** 2, B, A),
    "matmul of real and complex": (
        lambda xp, x, y: [xp.matmul(x, y), xp.matmul(y, x)], X, A),
    "matmul of vectors": (lambda xp, x, y: [xp.matmul(x, x) * xp.matmul(y, x), x @ y], V, A),
    "tensordot": (lambda xp, x, y: xp.tensordot(x, y) ** 2, TALL, drawn(4, 3, 2)),
    "vecdot": (lambda xp, x, y: xp.vecdot(x, y) ** 2 * xp.linalg.vecdot(y, y), W, V),
    "vecdot of real and complex": (
        lambda xp, x, y: [xp.vecdot(x, y), xp.vecdot(y, x)], W.real.copy(), V),
    "outer": (lambda xp, x, y: xp.linalg.outer(x, y) ** 2, V, W[:, 0]),
    "cross": (lambda xp, x, y: xp.linalg.cross(x, y) ** 2, W, W + 1j),
    "diagonal, trace": (lambda xp, x: [xp.linalg.diagonal(x, offset=-1) ** 2,
                                       xp.linalg.trace(x) ** 2], TALL),
    "inv": (lambda xp, x: xp.linalg.inv(x), B),
    "solve": (lambda xp, x, y: xp.linalg.solve(x, y), B, A),
    "solve for a real vector": (lambda xp, x, y: xp.linalg.solve(x, y) ** 2, A, V.real.copy()),
    "det": (lambda xp, x: xp.linalg.det(x), B),
    "slogdet": (lambda xp, x: [*xp.linalg.slogdet(x)], B),
    "sign of det": (lambda xp, x: xp.linalg.slogdet(x)[0] ** 2, A),
    "logarithm of det": (lambda xp, x: xp.linalg.slogdet(x)[1], B),
    "matrix_power": (lambda xp, x: [xp.linalg.matrix_power(x, n) for n in (1, 2, 3, -2)], A),
    "cholesky": (lambda xp, x: xp.linalg.cholesky(positive(xp, x)), B),
    "cholesky, upper": (lambda xp, x: xp.linalg.cholesky(positive(xp, x), upper=True) ** 2, A),
    "qr of square": (lambda xp, x: [*xp.linalg.qr(x)], B),
    "qr of tall": (lambda xp, x: [*xp.linalg.qr(x)], TALL),
    "qr of wide": (lambda xp, x: [*xp.linalg.qr(x)], WIDE),
    "eigh": (of_eigh, B),
    "eigvalsh": (lambda xp, x: xp.linalg.eigvalsh(hermitian(xp, x)) ** 2, A),
    "svd of square": (of_svd, B),
    "svd of tall": (of_svd, TALL),
    "svd of wide": (of_svd, WIDE),
    "left vectors": (lambda xp, x: xp.abs(xp.linalg.svd(x, full_matrices=False)[0]), TALL),
    "right vectors": (lambda xp, x: xp.abs(xp.linalg.svd(x, full_matrices=False)[2]), TALL),
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
}  # fmt: skip

ROTATING = np.asarray([[0.3, 1.0, 0.2], [-1.5, 0.1, 0.4], [0.2, 0.3, 2.0]])
GROWING = np.asarray([[0.3, 1.0, 0.2], [1.5, 0.1, 0.4], [0.2, 0.3, 2.0]])

OF_EIG: dict[str, tuple[Any, ...]] = {
    "eig": (of_eig, A),
    "eigvals": (of_eigvals, A),
    "eig of a real matrix": (of_eig, ROTATING),
    "eigvals of a real matrix": (of_eigvals, ROTATING),
}


@pytest.mark.rows(
    "name",
    CASES,
    slow=[
        "eigh",
        "matrix_norm",
        "svd of square",
        "svd of tall",
        "svd of wide",
        "svdvals",
        "vector_norm of order",
    ],
)
def test_derivatives_agree_with_differences(name: str) -> None:
    check_complex(*CASES[name], tolerance=1e-5)


@pytest.mark.parametrize("name", OF_EIG)
def test_derivatives_of_eig_agree_with_differences(name: str) -> None:
    check_complex(*OF_EIG[name], tolerance=1e-5)


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.rows("name", CASES)
def test_derivatives_agree_with_those_of_jax(name: str) -> None:
    complex_against_jax(*CASES[name], tolerance=1e-7)


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.parametrize("name", sorted(OF_EIG))
def test_derivatives_of_eig_agree_with_those_of_jax(name: str) -> None:
    complex_against_jax(*OF_EIG[name], tolerance=1e-7)


@pytest.mark.slow
def test_real_eigenvalues_are_real_in_numpy() -> None:
    def f(x: Any) -> Any:
        w, v = np.linalg.eig(x)
        assert w.dtype == v.dtype == np.float64
        return w, v * v

    mixad.check_grads(f, (GROWING,), rtol=1e-5)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([(), (2,)]), st.integers(0, 99))
def test_decompositions_of_any_shape(rows: int, columns: int, batch: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(*batch, rows, columns)) + 1j * rng.normal(size=(*batch, rows, columns))
    x += 2 * np.eye(rows, columns) * np.arange(1, columns + 1)  # values apart from each other

    def f(xp: Any, x: Any) -> Any:
        return [*xp.linalg.qr(x), xp.linalg.svdvals(x), xp.linalg.pinv(x)]

    check_complex(f, x, tolerance=1e-4, second=False)


def test_linear_algebra_without_elements() -> None:
    def f(xp: Any, x: Any) -> Any:
        parts = [xp.linalg.inv(x), xp.linalg.det(x), xp.matmul(x, x), xp.linalg.eigvalsh(x)]
        return [*parts, *xp.linalg.eigh(x), *xp.linalg.svd(x), *xp.linalg.qr(x)]

    check_values(f, np.ones((0, 3, 3), complex))


def test_gradients_with_respect_to_hermitian_matrices_are_hermitian() -> None:
    x = positive(np, A)
    for f in (
        lambda x: abs(np.linalg.cholesky(x) * A).sum(),
        lambda x: (abs(np.linalg.eigh(x)[1]) * X).sum(),
        lambda x: (np.linalg.eigvalsh(x) * X[0]).sum(),
    ):
        found = mixad.grad(f)(x)
        np.testing.assert_allclose(found, found.conj().T, rtol=1e-12)


PHASES = {
    "eigh": lambda x: np.linalg.eigh(x)[1].imag[0, 1],
    "eig": lambda x: np.linalg.eig(x)[1].imag[0, 1],
    "left": lambda x: np.linalg.svd(x)[0].imag[0, 1],
    "right": lambda x: np.linalg.svd(x)[2].imag[0, 1],
    "both, as if they had two": lambda x: (
        np.linalg.svd(x)[0] * np.conj(np.linalg.svd(x)[2]).T
    ).imag[0, 1],
}


@pytest.mark.parametrize("name", PHASES)
def test_what_depends_on_phases_is_refused(name: str) -> None:
    turned = np.exp(1j * np.arange(3.0))
    x = hermitian(np, A) * turned[:, None] / turned
    if name.startswith("e"):
        x = (x + x.conj().T) / 2
    with pytest.raises(TracerError, match=r"depends on their phases"):
        mixad.grad(PHASES[name])(x)


def test_repeated_eigenvalues_of_eig_are_refused() -> None:
    for x in (np.eye(2), np.asarray([[1.0, 1.0], [0.0, 1.0]])):
        for f in (lambda x: np.linalg.eigvals(x).sum(), lambda x: (np.linalg.eig(x)[1] ** 2).sum()):
            with pytest.raises(TracerError, match=r"eig\(\) of a matrix with repeated.*eigh\(\)"):
                mixad.grad(f)(x)


def test_vectors_of_a_singular_complex_matrix_are_refused() -> None:
    x = np.outer(V, V[:2].conj())[:2] * 1.0
    with pytest.raises(TracerError, match="without full rank"):
        mixad.grad(lambda x: (abs(np.linalg.svd(x)[0]) ** 2)[0, 0])(x)


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_qr_of_torch_has_the_gradient_that_torch_has() -> None:
    import torch

    def loss(x: Any) -> Any:
        q, r = torch.linalg.qr(x)
        weights = torch.asarray(drawn_again(q.shape)), torch.asarray(drawn_again(r.shape))
        return sum((part * weight).real.sum() for part, weight in zip((q, r), weights, strict=True))

    for x in (A, TALL):
        theirs = torch.asarray(x).requires_grad_(True)
        loss(theirs).backward()
        mine = mixad.grad(loss)(torch.asarray(x))
        np.testing.assert_allclose(mine.numpy(), theirs.grad.numpy(), rtol=1e-10)


def drawn_again(shape: Any) -> Any:
    rng = np.random.default_rng(1)
    return rng.normal(size=tuple(shape)) + 1j * rng.normal(size=tuple(shape))


def test_forward_mode_refuses_what_depends_on_phases_as_reverse_mode_does() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 3, 3)) + 1j * rng.standard_normal((2, 3, 3))
    x, t = a + a.conj().T, b + b.conj().T

    def vectors(x: Any) -> Any:
        return np.linalg.eigh(x)[1]

    def projector(x: Any) -> Any:
        v = vectors(x)[:, :1]
        return v @ np.conj(v.T)

    _, tangent = mixad.jvp(projector, (x,), (t,))
    step = 1e-6
    difference = (projector(x + step * t) - projector(x - step * t)) / (2 * step)
    np.testing.assert_allclose(tangent, difference, atol=1e-8)
    for choice in (vectors, lambda x: np.imag(vectors(x)).sum(), lambda x: vectors(x) * 2.0):
        with pytest.raises(TracerError, match="depends on their phases"):
            mixad.jvp(choice, (x,), (t,))
