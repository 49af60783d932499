"""Backward passes of calls one after another that do the same, or differ in little."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixad
from mixad.errors import TracerError, ZeroDerivativeWarning

X = np.asarray([0.5, -1.5, 0.25])
Y = np.asarray([2.0, 0.75, -0.5])


def twice(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what a call gives that is planned, and one after it."""
    return run(), run()


@mixad.broadcast
def product(a: float, b: float) -> float:
    return a * b


@mixad.broadcast
def both(a: float, b: float) -> tuple[float, float]:
    return a * b, a + 2.0 * b


# A statement: what is computed from which earlier values (by their positions, modulo their count).
STATEMENTS = st.tuples(
    st.sampled_from(
        ["add", "mul", "product", "both", "sum", "row", "reshape", "force", "captured"]
    ),
    st.integers(0, 30),
    st.integers(0, 30),
)


def carry_out(
    statements: Sequence[tuple[str, int, int]], inputs: Sequence[Any], held: Sequence[Any]
) -> Any:
    values: list[Any] = list(inputs)
    for what, i, j in statements:
        a, b = values[i % len(values)], values[j % len(values)]
        if what == "add":
            values.append(0.5 * a + b)
        elif what == "mul":
            values.append(a * b * 0.5)
        elif what == "product":
            values.append(product(a, b))
        elif what == "both":
            values += both(a, b)
        elif what == "sum":
            values.append(a.sum() * 0.25)
        elif what == "row":
            values.append(a + b.sum(axis=0, keepdims=True) if b.shape else a)
        elif what == "reshape":
            values.append(a.reshape((-1,)).sum() + b)
        elif what == "force":
            # No sum of these numbers is 1/3: differences do not cross the jump.
            values.append(a * float(mixad.stop_gradient(b).sum() > 1 / 3))
        else:
            values.append(product(a, held[j % len(held)]))
    return sum((v * v).sum() for v in values[-2:])


@pytest.mark.slow
@given(
    st.lists(STATEMENTS, min_size=1, max_size=8),
    st.lists(st.sampled_from([X, Y, Y.copy()]), min_size=1, max_size=3),
    st.booleans(),
)
def test_later_calls_give_what_the_first_one_gives(
    statements: list[tuple[str, int, int]], held: list[Any], same: bool
) -> None:
    def loss(x: Any, y: Any) -> Any:
        return carry_out(statements, (x, y), held)

    def gradients() -> Any:
        return mixad.value_and_grad(loss, argnums=(0, 1))(X, X if same else Y)

    value, expected = gradients()  # perhaps with the plan of another example
    for each, found in twice(gradients):
        np.testing.assert_array_equal(each, value)
        np.testing.assert_array_equal(found, expected)
    step = 1e-7
    for n, gradient in enumerate(expected):
        nudged = [X.copy(), (X if same else Y).copy()]
        nudged[n] = nudged[n] + step * np.asarray([1.0, -2.0, 0.5])
        slope = (carry_out(statements, nudged, held) - value) / step
        assert slope == pytest.approx(
            gradient @ [1.0, -2.0, 0.5], rel=1e-4, abs=1e-4 * max(1, abs(value))
        )


def test_an_array_read_twice_is_not_taken_for_two() -> None:
    def gradient(a: Any, b: Any) -> Any:
        return mixad.grad(lambda x: (product(x, a) + product(x, b)).sum())(X)

    for a, b in ((Y, Y), (Y, X), (X, Y), (X, X)):
        np.testing.assert_array_equal(gradient(a, b), a + b)


def test_a_value_used_twice_is_not_taken_for_two_equal_ones() -> None:
    def once(x: Any) -> Any:
        y = x * 2.0
        return (y * y).sum()

    def twice(x: Any) -> Any:
        return ((x * 2.0) * (x * 3.0)).sum()

    for f, expected in ((once, 8.0), (twice, 12.0), (once, 8.0)):
        np.testing.assert_array_equal(mixad.grad(f)(X), expected * X)


def test_results_that_are_held_are_made() -> None:
    def run() -> Any:
        held = []

        def f(x: Any) -> Any:
            y = product(x, Y)
            held.append(y)
            return (y * y).sum(), y

        (value, aux), gradient = mixad.value_and_grad(f, has_aux=True)(X)
        return value, aux, gradient

    for value, aux, gradient in twice(run):
        assert value == pytest.approx(((X * Y) ** 2).sum())
        np.testing.assert_array_equal(aux, X * Y)
        np.testing.assert_allclose(gradient, 2 * X * Y * Y)


def test_a_sum_that_is_read_where_its_terms_are() -> None:
    def shares(x: Any) -> Any:
        y = product(x, Y)
        return (X * (y / y.sum())).sum()

    y = X * Y
    for found in twice(lambda: mixad.grad(shares)(X)):
        np.testing.assert_allclose(found, Y * (X - (X * y).sum() / y.sum()) / y.sum())


def summed_to(shape: tuple[int, ...], array: Any) -> Any:
    padded = (1,) * (array.ndim - len(shape)) + shape
    axes = tuple(i for i, n in enumerate(padded) if n == 1)
    return array.sum(axis=axes, keepdims=True).reshape(shape)


def test_the_same_program_over_other_shapes_and_dtypes() -> None:
    gradient = mixad.grad(lambda x, y: (x * y + x).sum(), argnums=(0, 1))
    for x, y in (
        (X, Y),
        (X.reshape(3, 1), Y),
        (X, Y.reshape(3, 1)),
        (X[:1], Y),
        (X.astype("f4"), Y.astype("f4")),
        (X, Y),
    ):
        gx, gy = gradient(x, y)
        np.testing.assert_allclose(gx, summed_to(x.shape, (y + 1) * np.ones_like(x)), rtol=1e-6)
        np.testing.assert_allclose(gy, summed_to(y.shape, x * np.ones_like(y)), rtol=1e-6)
        assert gx.dtype == x.dtype


@mixad.broadcast
def beside_each(x: float, a: float, b: float) -> tuple[float, float]:
    return x * a, x * b


def test_arrays_that_are_read_beside_may_have_other_shapes() -> None:
    """The sum is made first, of as few arrays as give the kernel its shape."""
    x, long, short = np.asarray([0.5]), Y, np.asarray([3.0])
    for a, b in [(long, short), (short, long), (long, long), (long, short)]:

        def loss(x: Any, a: Any = a, b: Any = b) -> Any:
            y = beside_each(x, a, b)[0]
            return (X * y * y.sum()).sum()

        ones = np.ones(3)
        expected = 2 * x * (X * (a * ones)).sum() * (a * ones).sum()
        np.testing.assert_allclose(mixad.grad(loss)(x), expected, rtol=1e-14)


def test_what_was_changed_is_found_by_later_calls() -> None:
    def run(changed: bool) -> Any:
        a = Y.copy()

        def f(x: Any) -> Any:
            y = product(x, a).sum()
            if changed:
                a[0] = 9.0
            return y

        return mixad.grad(f)(X)

    run(False)
    with pytest.raises(TracerError, match="changed in place"):
        run(True)


def test_warnings_of_loop_results_are_repeated() -> None:
    @mixad.broadcast
    def root(c: float) -> float:
        low, high = 0.0, 4.0
        for _ in range(20):
            middle = 0.5 * (low + high)
            if middle * middle < c:
                low = middle
            else:
                high = middle
        return low

    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mixad.grad(lambda c: root(c).sum())(np.asarray([2.0]))
        assert [w.category for w in caught] == [ZeroDerivativeWarning]


@pytest.mark.rows(
    "loss",
    [
        lambda x: product(x, Y).sum(),
        lambda x: (np.sin(x) * x).sum() + x.sum(),
        lambda x: x.sum(),
        lambda x: (x * 3.0).sum(),
        lambda x: (x * 3.0).sum() - 2.0 * (x * Y).sum(),
        lambda x: (lambda s: s * s + s)((x * x).sum()),
        lambda x: np.mean(x * Y),
        lambda x: sum(value.sum() for value in both(x, Y * x)),
    ],
)
def test_gradients_are_those_of_a_cotangent_that_happens_to_be_one(loss: Any) -> None:
    (want,) = mixad.vjp(loss, X)[1](np.asarray(1.0))
    for found in twice(lambda: mixad.grad(loss)(X)):
        np.testing.assert_allclose(found, want, rtol=1e-15)


@pytest.mark.usefixtures("fresh")
def test_kernels_do_not_read_a_cotangent_that_is_known_to_be_one(launches: list[Any]) -> None:
    mixad.value_and_grad(lambda x: product(x, Y).sum())(X)
    _, pullback = mixad.vjp(lambda x: product(x, Y).sum(), X)
    pullback(np.asarray(1.0))
    names = [[param.name for param in passes[0].params] for passes, _ in launches]
    reads = [any("cotangent" in name for name in each) for each in names]
    assert reads[0] is False
    assert reads[-1] is True
