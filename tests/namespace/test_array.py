"""Tracers beside NumPy: operators are theirs, functions that would lose the derivative refused."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import TracerError

A = np.asarray([[1.5, 2.0], [3.0, 0.5]])
X = np.asarray([0.5, 2.0])


@pytest.mark.rows(
    ("apply", "slope"),
    [
        (operator.add, lambda a, x: np.ones_like(a)),
        (operator.sub, lambda a, x: -np.ones_like(a)),
        (operator.mul, lambda a, x: a),
        (operator.truediv, lambda a, x: -a / x**2),
        (operator.floordiv, lambda a, x: np.zeros_like(a)),
        (operator.mod, lambda a, x: -np.floor(a / x)),
        (operator.pow, lambda a, x: a**x * np.log(a)),
        (operator.matmul, lambda a, x: a),
    ],
)
@pytest.mark.rows("function", [False, True], ids=["operator", "ufunc"])
def test_numpy_array_on_the_left(apply: Any, slope: Any, function: bool) -> None:
    names = {"sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
             "floordiv": "floor_divide"}  # fmt: skip
    name = apply.__name__
    used = getattr(np, names.get(name, name)) if function else apply
    value, (gradient,) = mixad.value_and_vjp(lambda x: used(A, x), (X,), 1.0)
    np.testing.assert_allclose(value, apply(A, X), rtol=1e-14)
    np.testing.assert_allclose(gradient, slope(A, X).sum(0), rtol=1e-13)


@pytest.mark.parametrize("left", [np.float64(3.0), np.asarray(3.0), np.float32(3.0)])
def test_numpy_scalar_on_the_left(left: Any) -> None:
    np.testing.assert_allclose(mixad.grad(lambda x: (left / x).sum())(X), -3.0 / X**2)
    np.testing.assert_allclose(mixad.grad(lambda x: (left - x).sum())(X), [-1.0, -1.0])


@pytest.mark.rows(
    "compare",
    [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne],
)
def test_numpy_array_on_the_left_of_a_comparison(compare: Any) -> None:
    left = np.asarray([0.5, 1.0])

    def f(x: Any) -> Any:
        found = compare(left, x)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, compare(left, X))
        return x.sum()

    mixad.grad(f)(X)


@pytest.mark.parametrize(
    ("f", "match"),
    [
        (lambda x: np.spacing(x), r"numpy\.spacing\(\) of .*mixad\.broadcast"),
        (
            lambda x: np.subtract.reduceat(x, [0]),
            r"numpy\.subtract\.reduceat\(\) of .*mixad\.broadcast",
        ),
        (lambda x: np.add(X, x, dtype="f4"), r"numpy\.add\(\) .* no argument 'dtype'"),
        (lambda x: np.add(X, X, out=x), "out="),
        (lambda x: operator.iadd(np.zeros(2), x), r"total = total \+ x"),
    ],
)
def test_ufuncs_that_would_lose_the_derivative_are_refused(f: Any, match: str) -> None:
    with pytest.raises(TracerError, match=match):
        mixad.grad(lambda x: f(x).sum())(X)


@pytest.mark.parametrize("name", ["partition", "choose", "sort"])
def test_missing_method_says_what_to_do(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"{name}.*stop_gradient\(x\)\.{name}"):
        mixad.grad(lambda x: getattr(x, name))(X)


def test_unknown_attribute_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        mixad.grad(lambda x: x.colour)(X)
    mixad.grad(lambda x: x.sum() if not hasattr(x, "choose") else x)(X)
