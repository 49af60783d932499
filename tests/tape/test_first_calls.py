"""The first call of a function is recorded as later ones are, and gives the same bits."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import ZeroDerivativeWarning

from .test_inner_strands import by_nodes

pytestmark = pytest.mark.usefixtures("fresh")

DRAW = np.random.default_rng(4)
X, A = DRAW.normal(size=6), DRAW.normal(size=(6, 6))


@mixad.broadcast
def bisection(a: float) -> float:
    low, high = 0.0, 10.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        if middle * middle > a:
            high = middle
        else:
            low = middle
    return low * a


@mixad.checkpoint
def layer(x: Any) -> Any:
    return np.tanh(A @ x)


def branching(x: Any) -> Any:
    for k in range(4):
        x = np.sin(x) if x[k] > 0 else x * x[k]
    return (x * x).sum()


def renamed(x: Any) -> Any:
    y = x * 1.5
    z = y
    z *= x
    z -= 0.5
    return (y * z).sum()


def differences(f: Callable[[Any], Any], x: Any) -> Any:
    """Return the gradient by central differences of NumPy's own results."""
    steps = 1e-6 * np.eye(x.size)
    return np.array([(float(f(x + h)) - float(f(x - h))) / 2e-6 for h in steps])


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "elements in order": lambda x: (np.sort(x * x)[1:] * x[:-1]).sum(),
    "a median": lambda x: np.median(x) * np.exp(x).sum(),
    "determinants": lambda x: np.linalg.slogdet(np.outer(x, x) + 3 * np.eye(6))[1] * x[0],
    "a solution": lambda x: np.linalg.solve(A @ A.T + np.eye(6), x * x).sum(),
    "a root of a matrix": lambda x: np.linalg.cholesky(np.outer(x, x) + np.eye(6)).sum(),
    "an interpolation": lambda x: np.interp(x, np.linspace(-3, 3, 7), np.arange(7.0) ** 2).sum(),
    "branches": branching,
    "layers": lambda x: (layer(layer(x)) ** 2).sum(),
    "two names": renamed,
    "a loop": lambda x: sum(np.sin(k * x).sum() for k in range(40)),
    "a matrix product": lambda x: np.tanh(A @ (x * x)) @ x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_calls_give_the_bits_of_later_ones(name: str) -> None:
    f = PROGRAMS[name]
    slope = differences(f, X.copy())
    np.testing.assert_allclose(mixad.grad(f)(X.copy()), slope, rtol=1e-6, atol=1e-7)
    for call in (
        lambda x: mixad.value_and_grad(f)(x),
        lambda x: (mixad.vjp(f, x)[0], mixad.vjp(f, x)[1](2.0)),
        lambda x: mixad.jvp(f, (x,), (x + 1.0,)),
        lambda x: mixad.hvp(f, (x,), (x + 1.0,)),
    ):
        found = [mixad.pytree.leaves(call(X)) for _ in range(5)]
        for later in found[1:]:
            for own, first in zip(later, found[0], strict=True):
                np.testing.assert_array_equal(own, first)
        expected = mixad.pytree.leaves(by_nodes(call, X))
        for own, other in zip(found[0], expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)


def test_no_kernel_is_launched_while_a_function_is_recorded(launches: list[Any]) -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        y = A @ np.diag(np.exp(x)) + np.eye(6)
        z = np.cumsum(np.tanh(y) @ x)
        seen.append(len(launches))
        return (z * z).sum()

    gradient = mixad.grad(f)(X)
    assert seen == [0]
    assert launches
    np.testing.assert_allclose(gradient, differences(f, X), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: mixad.grad(lambda x: f(x).sum())(X * X),
        lambda f: mixad.jvp(f, (X * X,), (X,)),
        lambda f: mixad.hvp(lambda x: f(x).sum(), (X * X,), (X,)),
        lambda f: mixad.grad(lambda x: mixad.jvp(f, (x,), (X,))[1].sum())(X * X),
        lambda f: mixad.grad(lambda x: mixad.grad(lambda y: f(y).sum())(x).sum())(X * X),
    ],
)
def test_each_call_warns_as_on_nodes(call: Callable[[Any], Any]) -> None:
    def count() -> int:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            call(bisection)
        return sum(issubclass(each.category, ZeroDerivativeWarning) for each in told)

    expected = by_nodes(count)
    assert expected > 0
    assert [count() for _ in range(4)] == [expected] * 4


def test_rules_of_the_user_are_called_once_a_call() -> None:
    called: list[str] = []

    @mixad.custom_vjp
    def square(x: Any) -> Any:
        return x * x

    def forward(x: Any) -> Any:
        called.append("fwd")
        return x * x, x

    def backward(x: Any, g: Any) -> Any:
        called.append("bwd")
        return (2 * x * g,)

    square.defvjp(forward, backward)

    def f(x: Any) -> Any:
        called.append("f")
        return (square(x) * x).sum()

    for _ in range(4):
        called.clear()
        np.testing.assert_allclose(mixad.grad(f)(X), 3 * X * X)
        assert called == ["f", "fwd", "bwd"]


def test_numbers_without_axes_that_are_written_to_stay_arrays() -> None:
    """NumPy's ``x *= 2`` changes an array without axes under all its names; of a number it does
    not."""

    def f(x: Any) -> Any:
        y = x
        y *= x
        y -= 0.5
        return y + x

    for given, expected in ((np.array(2.0), 8.0), (np.float64(2.0), 5.0), (2.0, 5.0)):
        for _ in range(4):
            assert mixad.grad(f)(given.copy() if hasattr(given, "copy") else given) == expected


def test_what_cannot_be_decomposed_raises_and_what_can_does_not() -> None:
    def f(x: Any) -> Any:
        return np.linalg.cholesky(A @ np.diag(x) @ A.T).sum()

    positive = np.abs(X) + 1.0
    for _ in range(3):
        with pytest.raises(np.linalg.LinAlgError):
            mixad.grad(f)(-positive)
    found = [mixad.grad(f)(positive) for _ in range(3)]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_allclose(found[0], differences(f, positive), rtol=1e-6, atol=1e-7)


def test_an_error_that_the_function_catches_is_no_end() -> None:
    def f(x: Any) -> Any:
        try:
            y = np.linalg.inv(np.zeros((6, 6)) * x)
        except np.linalg.LinAlgError:
            y = A
        return (y @ (x * x)).sum()

    for _ in range(4):
        np.testing.assert_allclose(mixad.grad(f)(X), 2 * X * A.sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("begin", [lambda x: x, lambda x: np.sort(x), lambda x: x * 2.0])
def test_copies_are_known_wherever_they_are_made(
    begin: Callable[[Any], Any], runs: list[type]
) -> None:
    def f(x: Any) -> Any:
        y = begin(x)
        z = y.copy() if y[0] < 9 else y
        z[0] = 2.0
        return (np.real(z) * y).sum()

    for _ in range(3):
        np.testing.assert_allclose(mixad.grad(f)(X), differences(f, X), rtol=1e-6, atol=1e-7)
    assert len(runs) == 3


def test_what_was_done_to_foresee_is_let_go_of_before_nodes_do_it() -> None:
    """Large arrays that an operation looks at are left to nodes."""
    x = np.linspace(1.0, 2.0, 400_000)
    call = mixad.grad(lambda x: (np.sort(x.reshape(4, 100, -1), axis=1) ** 2).sum())
    mixad.grad(lambda x: (np.sort(x) ** 2).sum())(x[:800].copy())  # what is imported then
    tracemalloc.start()
    try:
        peaks = []
        for _ in range(4):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            call(x)
            peaks.append((tracemalloc.get_traced_memory()[1] - before) / x.nbytes)
    finally:
        tracemalloc.stop()
    assert max(peaks) < 5.0
