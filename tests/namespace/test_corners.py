"""Second derivatives where norms are 0: nan, never a number; first ones stay 0."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from derivatives import OTHERS

import mixad
from mixad.errors import TracerError

V = np.asarray([1.0, 2.0])
LIBRARIES = pytest.mark.parametrize("library", [np, *OTHERS], ids=lambda xp: xp.__name__)


def vector(xp: Any, x: Any, **options: Any) -> Any:
    return xp.linalg.vector_norm(x, **options)


NORMS = {
    "vector": vector,
    "of order 3": functools.partial(vector, ord=3),
    "along an axis": lambda xp, x: xp.sum(vector(xp, x[None, :] * xp.ones((2, 1)), axis=1)),
    "matrix": lambda xp, x: xp.linalg.matrix_norm(x[:, None] * xp.ones((1, 2))),
    "nuclear": lambda xp, x: sum(
        xp.linalg.matrix_norm(x[i : i + 1, None], ord="nuc") for i in (0, 1)
    ),
    "std": lambda xp, x: xp.std(x),
}
POWERS = {"itself": lambda n: n, "squared": lambda n: n * n}


@LIBRARIES
@pytest.mark.rows("power", POWERS)
@pytest.mark.rows("name", NORMS)
def test_where_a_norm_is_0_it_has_no_second_derivative(name: str, power: str, library: Any) -> None:
    xp = mixad.namespace_of(library)
    x, v = library.asarray(np.zeros(2)), library.asarray(V)

    def f(x: Any) -> Any:
        return POWERS[power](NORMS[name](xp, x))

    def slope(x: Any) -> Any:
        return mixad.jvp(f, (x,), (v,))[1]

    gradient = mixad.grad(f)
    np.testing.assert_array_equal(np.asarray(gradient(x)), np.zeros(2))
    assert float(slope(x)) == 0
    seconds = [
        mixad.jvp(gradient, (x,), (v,)),
        (gradient(x), mixad.grad(lambda x: xp.sum(gradient(x) * v))(x)),
    ]
    for first, second in seconds:
        assert np.all(np.asarray(first) == 0)  # the value that is differentiated is the same
        assert np.all(np.isnan(np.asarray(second)))
    for second in (mixad.grad(slope), lambda x: mixad.jvp(slope, (x,), (v,))):
        with pytest.raises(TracerError, match="take the gradient first"):
            second(x)


@pytest.mark.slow
def test_only_what_touches_the_corner_is_nan() -> None:
    """The energy of a chain of springs, of which one has no length; exact elsewhere."""

    def energy(p: Any) -> Any:
        return (np.linalg.norm(p[1:] - p[:-1], axis=1) ** 2).sum()

    found = mixad.hessian(energy)(np.asarray([[0.0, 0], [0, 0], [1, 0]])).reshape(6, 6)
    chain = np.asarray([[2.0, -2, 0], [-2, 4, -2], [0, -2, 2]])
    want = np.kron(chain, np.eye(2))
    want[:4, :4] = np.nan
    np.testing.assert_allclose(found, want, atol=1e-14)


@pytest.mark.slow
def test_what_the_program_does_not_use_has_second_derivatives() -> None:
    """Of a choice by a constant mask, and of a norm beside others: the cotangent is 0 always."""

    def masked(x: Any) -> Any:
        lengths = np.linalg.norm(x, axis=1)
        return np.where(np.asarray([False, True]), lengths, 0.0).sum()

    x = np.asarray([[0.0, 0.0], [3.0, 4.0]])
    found = mixad.hessian(masked)(x)
    want = np.zeros((2, 2, 2, 2))
    want[1, :, 1] = (np.eye(2) - np.outer(x[1], x[1]) / 25) / 5
    np.testing.assert_allclose(found, want, atol=1e-14)

    xp, a = mixad.namespace_of(np), np.diag([1.0, 0.0])
    found = mixad.hvp(lambda a: xp.linalg.matrix_norm(a, ord=2), (a,), (np.ones((2, 2)),))
    step = 1e-4
    slopes = [
        mixad.grad(lambda a: xp.linalg.matrix_norm(a, ord=2))(a + s * np.ones((2, 2)))
        for s in (step, -step)
    ]
    np.testing.assert_allclose(found, (slopes[0] - slopes[1]) / (2 * step), atol=1e-6)


def test_singular_values_that_vanish_have_no_second_derivative() -> None:
    xp = mixad.namespace_of(np)
    matrices = np.stack([np.diag([1.0, 0.0]), np.diag([2.0, 1.0])])

    def f(a: Any) -> Any:
        return (xp.linalg.svdvals(a) ** 2).sum()  # as (a * a).sum(), whose gradient is 2 a

    np.testing.assert_allclose(mixad.grad(f)(matrices), 2 * matrices, atol=1e-14)
    found = mixad.hvp(f, (matrices,), (np.ones((2, 2, 2)),))
    assert np.all(np.isnan(found[0]))
    np.testing.assert_allclose(found[1], 2.0, rtol=1e-12)


def test_branches_that_are_not_taken_have_zero_derivatives_of_every_order() -> None:
    kernel = mixad.broadcast(lambda x: x**0.5 if x > 0 else 0.0)
    x = np.asarray([0.0, 4.0])
    for f in (kernel, lambda x: np.where(x > 0, np.sqrt(x), 0.0)):
        for power, want in ((1, -1 / 32), (2, 0.0)):
            found = mixad.hvp(lambda x, f=f, p=power: (f(x) ** p).sum(), (x,), (np.ones(2),))
            np.testing.assert_allclose(found, [0.0, want], atol=1e-15)


def test_the_deviation_of_one_element_is_0_everywhere() -> None:
    x = np.asarray([[1.0, 2.0]])
    hessian = mixad.hessian(lambda x: (np.std(x, axis=0) + 3.0 * x[0] ** 2).sum())(x)
    np.testing.assert_array_equal(hessian.reshape(2, 2), 6.0 * np.eye(2))
