"""Derivatives of determinants near and at singular matrices, against 60 digits."""

from __future__ import annotations

import functools
import importlib
import operator
from typing import Any

import mpmath
import numpy as np
import pytest
from derivatives import HAS_JAX, OTHERS, in_double

import mixad

SIZES = [(n, lost) for n in range(1, 7) for lost in (1, 2) if lost <= n]


def exact(x: Any, *directions: Any) -> Any:
    """Return the derivative of det along directions: of each row, or as much of a direction.

    Sums of products, one row after the other, by the columns and the directions that are used.
    """
    with mpmath.workdps(60):
        sums = {(0, 0): mpmath.mpf(1)}
        for row in range(len(x)):
            found: dict[tuple[int, int], Any] = {}
            for (columns, used), value in sums.items():
                sources = [(used, x)]
                sources += [
                    (used | 1 << k, e) for k, e in enumerate(directions) if not used >> k & 1
                ]
                for column in (c for c in range(len(x)) if not columns >> c & 1):
                    sign = -1 if (columns >> column).bit_count() % 2 else 1
                    for now, source in sources:
                        key, element = (
                            (columns | 1 << column, now),
                            mpmath.mpmathify(source[row, column].item()),
                        )
                        found[key] = found.get(key, 0) + sign * value * element
            sums = found
        return complex(sums.get(((1 << len(x)) - 1, (1 << len(directions)) - 1), 0))


def nearly_singular(n: int, lost: int, eps: float, *, is_complex: bool = False) -> Any:
    rng = np.random.default_rng(10 * n + lost)
    drawn = rng.integers(-8, 9, (4, n, n)) / 8
    left, right = drawn[0] + 1j * drawn[2], drawn[1] + 1j * drawn[3]
    kept = np.asarray([1.0] * (n - lost) + [eps] * lost)
    x: Any = (left if is_complex else drawn[0]) * kept @ (right if is_complex else drawn[1])
    return x


def directions(x: Any, count: int) -> Any:
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((2, count, *x.shape))
    return drawn[0] + 1j * drawn[1] if np.iscomplexobj(x) else drawn[0]


def derivatives(xp: Any, x: Any, along: Any) -> list[Any]:
    """Return the first, second and third derivative of the sum of determinants along directions."""
    first, second, third = along
    gradient = mixad.grad(lambda x: xp.sum(xp.linalg.det(x)))

    def slope(x: Any) -> Any:
        return xp.sum(gradient(x) * first)

    def curvature(x: Any) -> Any:
        return mixad.jvp(slope, (x,), (second,))[1]

    return [slope(x), curvature(x), xp.sum(mixad.grad(curvature)(x) * third)]


@pytest.mark.rows("eps", [1e-9, 1e-12, 1e-14, 0.0])
@pytest.mark.rows(("n", "lost"), SIZES)
def test_three_derivatives_keep_their_digits(n: int, lost: int, eps: float) -> None:
    x = nearly_singular(n, lost, eps)
    along = directions(x, 3)
    found = derivatives(np, x, along)
    for order, got in enumerate(found, start=1):
        want = exact(x, *along[:order]).real
        assert got == pytest.approx(want, rel=1e-12, abs=1e-14)
    if n > lost == 2:
        assert abs(found[1]) > 1e-3


@pytest.mark.rows("eps", [1e-9, 1e-14, 0.0])
@pytest.mark.rows(("n", "lost"), [(2, 1), (3, 1), (3, 2), (5, 2)])
def test_two_derivatives_of_complex_matrices(n: int, lost: int, eps: float) -> None:
    """The gradient of the real part is the conjugate of the holomorphic derivative."""
    x = nearly_singular(n, lost, eps, is_complex=True)
    first, second = directions(x, 2)
    gradient = mixad.grad(lambda x: np.linalg.det(x).real)
    value, tangent = mixad.jvp(gradient, (x,), (second,))
    np.testing.assert_allclose((np.conj(value) * first).sum(), exact(x, first), 1e-12, 1e-14)
    want = exact(x, first, second)
    np.testing.assert_allclose((np.conj(tangent) * first).sum(), want, 1e-12, 1e-14)
    back = mixad.grad(lambda x: (np.conj(gradient(x)) * first).sum().real)(x)
    np.testing.assert_allclose((np.conj(back) * second).sum(), want, 1e-12, 1e-14)


@pytest.mark.rows("order", ["C", "F"])
@pytest.mark.rows("library", OTHERS, ids=operator.attrgetter("__name__"))
def test_every_library_keeps_the_digits(library: Any, order: str) -> None:
    with in_double(library):
        for eps in (1e-12, 0.0):
            x = nearly_singular(4, 1, eps)
            along = directions(x, 3)
            given = library.asarray(x.T if order == "F" else x)
            found = derivatives(
                mixad.namespace_of(library),
                given.T if order == "F" else given,
                [library.asarray(a) for a in along],
            )
            for number, got in enumerate(found, start=1):
                assert float(got) == pytest.approx(exact(x, *along[:number]).real, rel=1e-12)


@pytest.mark.parametrize("library", OTHERS, ids=operator.attrgetter("__name__"))
def test_small_matrices_of_every_library(library: Any) -> None:
    xp = mixad.namespace_of(library)
    with in_double(library):
        for n in (1, 2, 3):
            x = nearly_singular(n, 1, 1e-12)
            found = mixad.grad(xp.linalg.det)(library.asarray(x))
            (e,) = directions(x, 1)
            assert (np.from_dlpack(found) * e).sum() == pytest.approx(exact(x, e).real, rel=1e-12)


def test_rows_and_columns_in_other_units_keep_their_digits() -> None:
    units = 10.0 ** np.asarray([8, -8, 0, 3])
    x = units[:, None] * np.random.default_rng(3).standard_normal((4, 4)) * units[::-1]
    hessian = mixad.hessian(np.linalg.det)(x)
    one = np.eye(16).reshape(16, 4, 4)
    for i, j in ((0, 5), (3, 9), (6, 12), (1, 15)):
        got = hessian.reshape(16, 16)[i, j]
        assert got == pytest.approx(exact(x, one[i], one[j]).real, rel=1e-12)


@pytest.mark.filterwarnings("ignore:invalid value encountered in det")
def test_each_matrix_of_a_batch_is_on_its_own() -> None:
    parts = [nearly_singular(4, 1, 0.0), nearly_singular(4, 2, 0.0), nearly_singular(4, 1, 1.0)]
    x = np.stack([*parts, np.full((4, 4), np.nan)]).reshape(2, 2, 4, 4)
    along = np.broadcast_to(directions(parts[0], 1)[0], x.shape)
    gradient = mixad.grad(lambda x: np.linalg.det(x).sum())
    found = np.stack(mixad.jvp(gradient, (x,), (along,))).reshape(2, 4, 4, 4)
    for number, part in enumerate(parts):
        want = mixad.jvp(mixad.grad(np.linalg.det), (part,), (along[0, 0],))
        np.testing.assert_allclose(found[:, number], np.stack(want), rtol=1e-12, atol=1e-14)
    assert np.isnan(found[:, 3]).all()


@pytest.mark.filterwarnings("ignore:overflow encountered in det")
def test_determinants_that_overflow_or_vanish_have_cofactors() -> None:
    for sizes in ([1e200, 1e107, 1e3], [1e-200, 1e-106, 1e-5]):
        cofactors = mixad.grad(np.linalg.det)(np.diag(sizes))
        others = [functools.reduce(operator.mul, sizes[:i] + sizes[i + 1 :]) for i in range(3)]
        np.testing.assert_allclose(cofactors, np.diag(others), rtol=1e-15)


def test_empty_matrices_have_two_derivatives() -> None:
    x = np.zeros((2, 0, 0))
    gradient, tangent = mixad.jvp(mixad.grad(lambda x: np.linalg.det(x).sum()), (x,), (x,))
    assert gradient.shape == tangent.shape == x.shape


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_jax_without_types_of_64_bits_has_two_derivatives() -> None:
    """JAX warns where it is asked for types that it lacks."""
    jnp = importlib.import_module("jax.numpy")
    x = jnp.asarray([[2.0, 1], [3, 4]], dtype=jnp.float32)
    hessian = mixad.hessian(mixad.namespace_of(jnp).linalg.det)(x)
    assert hessian.dtype == jnp.float32
    np.testing.assert_array_equal(np.reshape(hessian, (4, 4)), np.diag([1.0, -1, -1, 1])[::-1])
