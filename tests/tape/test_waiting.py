"""Values of rules that wait until someone asks for them."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad

X = np.random.default_rng(0).uniform(0.5, 1.5, (4, 6))


@pytest.fixture
def zeros(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes that `numpy.zeros` has been asked for, scalars left out."""
    made: list[Any] = []
    make = np.zeros

    def counted(shape: Any, *args: Any, **kwargs: Any) -> Any:
        if shape != ():
            made.append(shape)
        return make(shape, *args, **kwargs)

    monkeypatch.setattr(np, "zeros", counted)
    return made


def rosenbrock(x: Any) -> Any:
    a, b = x[:-1], x[1:]
    return (100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2).sum()


def rosenbrock_hessian(x: Any) -> Any:
    hessian = np.zeros((len(x), len(x)))
    for i in range(len(x) - 1):
        hessian[i, i] += 1200 * x[i] ** 2 - 400 * x[i + 1] + 2
        hessian[i + 1, i + 1] += 200
        hessian[i, i + 1] = hessian[i + 1, i] = -400 * x[i]
    return hessian


def test_a_gradient_that_only_its_own_derivative_needs_is_not_put_together(
    zeros: list[Any],
) -> None:
    x, v = X[0], X[1]
    found = mixad.grad(lambda x: (mixad.grad(rosenbrock)(x) * v).sum())(x)
    assert not zeros  # a kernel wrote the first part where it belongs, the second was added
    np.testing.assert_allclose(found, rosenbrock_hessian(x) @ v, rtol=1e-12)


def test_a_hessian_product_in_forward_mode_does_not_put_the_gradient_together(
    zeros: list[Any],
) -> None:
    x, v = X[0], X[1]
    mixad.hvp(rosenbrock, (x,), (v,))  # a plan is made beside
    zeros.clear()
    found = mixad.hvp(rosenbrock, (x,), (v,))
    assert len(zeros) == 2  # for the parts of the tangent
    np.testing.assert_allclose(found, rosenbrock_hessian(x) @ v, rtol=1e-12)


@pytest.mark.slow
def test_chains_of_waiting_values_need_no_recursion() -> None:
    def f(x: Any) -> Any:
        for _ in range(2000):
            x = (x * 1.0001).reshape((3, 8)).T.reshape((4, 6))
        return (x * x).sum()

    np.testing.assert_allclose(mixad.grad(f)(X), 2 * X * 1.0001**4000, rtol=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [lambda y: y.reshape((5, 5)), lambda y: y[7], lambda y: y[:, :, 0]],
    ids=["reshape", "index", "dimensions"],
)
def test_what_cannot_be_is_refused_when_it_is_recorded(wrong: Any) -> None:
    later = []

    def f(x: Any) -> Any:
        y = x * 2.0  # pending
        wrong(y)
        later.append(True)
        return y.sum()

    with pytest.raises((ValueError, IndexError)):
        mixad.grad(f)(X)
    assert not later


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=lambda xp: xp.__name__)
def test_values_that_waited_are_those_of_the_library(xp: Any) -> None:
    seen = []

    def f(x: Any) -> Any:
        y = (x * 2.0)[1:, ::2]
        z = xp.reshape(y, (-1,)) if xp is np else y
        seen.append(mixad.stop_gradient(z))
        seen.append(mixad.stop_gradient((x + 1.0)[0, 0]))
        return (z * z).sum()

    gradient = mixad.grad(f)(xp.asarray(X))
    expected = np.zeros_like(X)
    expected[1:, ::2] = 8 * X[1:, ::2]
    np.testing.assert_allclose(np.asarray(gradient), expected, rtol=1e-14)
    part, one = (np.asarray(s) for s in seen)
    np.testing.assert_array_equal(part.ravel(), (2 * X[1:, ::2]).ravel())
    assert one.shape == ()
    assert one == X[0, 0] + 1


def test_what_is_looked_at_is_what_is_differentiated() -> None:
    def f(x: Any) -> Any:
        y = (x * x).reshape((-1,))
        first = y[0]
        if first > 0:  # y is made
            y = y * 3.0
        return (y[1:] * y[:-1]).sum() + first

    flat = X.ravel()
    squares = flat**2
    expected = np.zeros(24)
    expected[1:] += 9 * squares[:-1]
    expected[:-1] += 9 * squares[1:]
    expected *= 2 * flat
    expected[0] += 2 * flat[0]
    np.testing.assert_allclose(mixad.grad(f)(X), expected.reshape(X.shape), rtol=1e-12)


def test_an_array_that_changes_before_a_waiting_value_is_made_is_found() -> None:
    x = X.copy()

    def f(t: Any) -> Any:
        y = (t * 2.0).reshape((-1,))
        x[0, 0] = 9.0
        return y.sum()

    with pytest.raises(mixad.errors.TracerError, match="changed in place"):
        mixad.grad(lambda t: f(t) * mixad.stop_gradient(f(t)))(x)
