"""Derivatives of any order, by any nesting of transforms, through kernels with loops: mpmath knows.

mpmath runs the very function that is compiled, on numbers of fifty digits, and takes differences.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import MixadError

EXAMPLES = 120
X = np.asarray([0.3, 0.8, 1.3, 1.9])
Y = np.asarray([1.1, 0.7, 0.45, 1.6])


# -- kernels ---------------------------------------------------------------------------------------


def straight(x, y):
    return math.sin(x * y) * math.exp(-x) + x / (1.0 + y * y)


def branching(x, y):
    if x < y:
        return x * x * y - math.cos(y)
    return math.exp(x - y) * y


def counted(x, y):
    z = x
    for k in range(4):
        z = math.sin(z) + y * z / (k + 1.0)
    return z


def newton(x, y):
    """Return a root of z³ + y z = x, to which elements take different numbers of steps."""
    z = 1.0 + x
    step = 1.0
    while abs(step) > 1e-7:
        step = (z * z * z + y * z - x) / (3.0 * z * z + y)
        z = z - step
    return z


def left_early(x, y):
    total = 0.0 * x
    term = y
    for k in range(12):
        if k == 2:
            continue
        term = term * x / (k + 1.0)
        total = total + term
        if total > 1.5:
            break
    return total * y


def nested_loops(x, y):
    z = x
    k = 0
    while k < 3 and z < 2.0:
        for _ in range(2):
            z = z + 0.25 * math.sin(z * y)
        k += 1
    return z * z


def several(x, y):
    return math.sin(x) * y, x * x * y


def combined(x, y):
    """Both outputs of `several`, as mpmath computes them."""
    a, b = several(x, y)
    return a * b


KERNELS = [straight, branching, counted, newton, left_early, nested_loops]
OPTIONS: list[dict[str, Any]] = [
    {}, {"placement": "forward"}, {"chunk": 1}, {"placement": "forward", "chunk": 1},
]  # fmt: skip


def exact(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel's function over mpmath's numbers."""
    names = {**f.__globals__, "math": mpmath.mp}
    if f is combined:
        names["several"] = exact(several)
    return types.FunctionType(f.__code__, names)


def in_mixad(f: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    if f is combined:
        both = mixad.broadcast(several).with_options(**options)

        def product(x: Any, y: Any) -> Any:
            a, b = both(x, y)
            return a * b

        return product
    return mixad.broadcast(f).with_options(**options)


# -- steps: a derivative, and what is made of it ---------------------------------------------------


def by_grad(f: Any, at: int) -> Any:
    return mixad.grad(lambda *xs: f(*xs).sum(), at)


def by_value_and_grad(f: Any, at: int) -> Any:
    return lambda *xs: mixad.value_and_grad(lambda *xs: f(*xs).sum(), at)(*xs)[1]


def by_vjp(f: Any, at: int) -> Any:
    return lambda *xs: mixad.vjp(f, *xs)[1](np.ones(X.shape))[at]


def by_value_and_vjp(f: Any, at: int) -> Any:
    return lambda *xs: mixad.value_and_vjp(f, xs, np.ones(X.shape))[1][at]


def by_mpmath(f: Any, at: int) -> Any:
    return lambda *xs: mpmath.diff(f, xs, tuple(int(k == at) for k in range(2)))


TRANSFORMS = [by_grad, by_value_and_grad, by_vjp, by_value_and_vjp]
AFTERWARDS: dict[str, Callable[..., Any]] = {
    "itself": lambda d, x, y: d,
    "times x": lambda d, x, y: d * x,
    "squared, plus y": lambda d, x, y: d * d + y,
    "over": lambda d, x, y: y / (2 + d * d),
}


def then(derivative: Any, afterwards: str) -> Any:
    return lambda x, y: AFTERWARDS[afterwards](derivative(x, y), x, y)


_step = st.tuples(st.sampled_from(TRANSFORMS), st.integers(0, 1), st.sampled_from([*AFTERWARDS]))


@pytest.mark.slow
@given(
    st.sampled_from([*KERNELS, combined]),
    st.sampled_from(OPTIONS),
    st.lists(_step, min_size=2, max_size=3),
)
@settings(max_examples=EXAMPLES)
@example(newton, {}, [(by_grad, 0, "itself"), (by_grad, 1, "itself"), (by_grad, 0, "itself")])
@example(
    nested_loops,
    {"placement": "forward"},
    [(by_vjp, 0, "times x"), (by_value_and_grad, 0, "over"), (by_value_and_vjp, 1, "itself")],
)
def test_derivatives_of_any_nesting(
    f: Callable[..., Any], options: dict[str, Any], steps: list[Any]
) -> None:
    found, expected = in_mixad(f, options), exact(f)
    for transform, at, afterwards in steps:
        found = then(transform(found, at), afterwards)
        expected = then(by_mpmath(expected, at), afterwards)
    with mpmath.workdps(50):
        want = [float(expected(mpmath.mpf(x), mpmath.mpf(y))) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(found(X, Y), want, rtol=1e-9, atol=1e-10)


@pytest.mark.rows("f", KERNELS, ids=lambda f: f.__name__)
@pytest.mark.rows("order", [2, 3])
def test_third_derivatives_through_broadcasting(f: Callable[..., Any], order: int) -> None:
    """Of a column and a row: what comes back is summed at every order."""
    x, y = X[:, None], Y[:3]
    derivative: Any = in_mixad(f, {})
    for _ in range(order):
        derivative = by_grad(derivative, 0)
    true = exact(f)
    with mpmath.workdps(50):
        want = [
            sum(float(mpmath.diff(lambda t, b=b: true(t, mpmath.mpf(b)), a, order)) for b in y)
            for a in X
        ]
    np.testing.assert_allclose(derivative(x, y)[:, 0], want, rtol=1e-9, atol=1e-10)


# -- perturbations are told apart ------------------------------------------------------------------


def test_products_of_siskind_and_pearlmutter() -> None:
    """Nesting forward-mode AD in a functional framework (2008), §3 and §4."""
    d = mixad.grad
    assert d(lambda x: x * d(lambda y: x + y)(1.0))(1.0) == 1.0
    assert d(lambda x: x * d(lambda y: x * y)(2.0))(1.0) == 2.0
    assert d(lambda x: x * d(lambda y: x * y * y)(2.0))(3.0) == 24.0
    assert d(lambda x: d(lambda y: x * x * y)(x) * d(lambda z: z * z * x)(x))(2.0) == 64.0
    with pytest.warns(UserWarning, match="does not depend"):
        assert d(lambda x: x + d(lambda y: x)(1.0))(2.0) == 1.0


def test_derivative_of_a_derivative_taken_at_a_shift() -> None:
    """Manzyuk et al., Perturbation confusion in forward AD of higher-order functions (2019), §1.

    Their D̂ = D (λu. λf. λx. f (x + u)) 0 takes derivatives; D̂ (D̂ h) is h″, and 0 if confused.
    """

    def shifted(f: Any) -> Any:
        return lambda x: mixad.grad(lambda u: f(x + u))(0.0)

    cube = mixad.broadcast(lambda x: x * x * x)
    for h in (cube, lambda x: x**3):
        assert shifted(h)(2.0) == 12.0
        assert shifted(shifted(h))(2.0) == 12.0
        assert shifted(shifted(shifted(h)))(2.0) == 6.0
        assert mixad.grad(shifted(h))(2.0) == 12.0
        assert shifted(mixad.grad(h))(2.0) == 12.0


def test_derivative_of_a_function_that_returns_a_function_is_refused() -> None:
    """Their D̂ itself: its closure would carry a perturbation out of its derivative."""
    with pytest.raises(MixadError):
        mixad.grad(lambda u: lambda f: lambda x: f(x + u))(0.0)


def test_value_that_left_its_derivative_is_not_taken_for_another_ones() -> None:
    kept: list[Any] = []

    def leaking(u: Any) -> Any:
        kept.append(u)
        return u * u

    mixad.grad(leaking)(1.0)
    with pytest.raises(MixadError):
        mixad.grad(lambda v: v * kept[0])(2.0)


def test_value_of_an_inner_derivative_is_constant_to_it_and_not_to_the_outer_one() -> None:
    def outer(x: Any) -> Any:
        seen: list[Any] = []

        def inner(y: Any) -> Any:
            seen.append(x * x)  # of the outer one alone
            return y * y * x

        return mixad.grad(inner)(x) * seen[0]  # 2x² · x²

    assert mixad.grad(outer)(2.0) == 64.0


@pytest.mark.parametrize("swapped", [False, True])
def test_derivatives_commute(swapped: bool) -> None:
    mixed = mixad.broadcast(counted)
    first, second = (1, 0) if swapped else (0, 1)
    found = by_grad(by_grad(mixed, first), second)(X, Y)
    true = exact(counted)
    with mpmath.workdps(50):
        want = [float(mpmath.diff(true, (x, y), (1, 1))) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(found, want, rtol=1e-11)


def test_a_tangent_through_a_constant_gradient_is_zero() -> None:
    def slope(x: Any) -> Any:
        constant = mixad.grad(lambda x: (x * 2.0).sum())(x)
        return (np.add(constant, 1.0) * np.ones(2)).sum() + (x * x).sum()

    value, tangent = mixad.jvp(slope, (np.ones(2),), (np.ones(2),))
    assert (value, tangent) == (8.0, 4.0)
