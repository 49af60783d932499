"""Gradients of numbers, whose cotangent kernels do not read, among passes with other cotangents.

That a cotangent is 1 is part of what is planned and remembered: of one function, in any order, both
kinds of passes are asked for, over each library, and compared with differences of the same program
by hand, in NumPy.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad

EXAMPLES = 20
X = np.asarray([0.5, -1.5, 0.25])
Y = np.asarray([2.0, 0.75, -0.5])
ALONG = np.asarray([1.0, -2.0, 0.5])
KINK = 1 / 3
"""No sum of products of the numbers above: differences do not cross it."""


def importing(name: str, *marks: Any) -> Any:
    missing = importlib.util.find_spec(name.partition(".")[0]) is None
    return pytest.param(name, marks=[*marks, pytest.mark.skipif(missing, reason="not installed")])


LIBRARIES = [
    "numpy",
    "array_api_strict",
    importing("torch", pytest.mark.torch),
    importing("jax.numpy"),
]


def in_double(library: Any) -> contextlib.AbstractContextManager[Any]:
    if library.__name__ != "jax.numpy":
        return contextlib.nullcontext()
    return importlib.import_module("jax").enable_x64(True)


def as_numpy(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, (float, np.generic)) else np.from_dlpack(value)


# -- programs, with mixad and by hand ------------------------------------------------------------


@mixad.broadcast
def product(a: float, b: float) -> float:
    return a * b


@mixad.broadcast
def both(a: float, b: float) -> tuple[float, float]:
    return a * b, a + 2.0 * b


def is_above(number: Any) -> bool:
    return float(mixad.stop_gradient(number)) > KINK


@mixad.custom_vjp
def bent(number: Any) -> Any:
    return number if is_above(number) else 2.0 * number - KINK


# The cotangent is handed on as it is, or another one: which of both, a trace does not tell.
bent.defvjp(
    lambda x: (bent.f(x), is_above(x)),
    lambda is_straight, g: (g if is_straight else 2.0 * g,),
)


class Ours:
    """What programs are made of, traced."""

    product, both, bent = staticmethod(product), staticmethod(both), staticmethod(bent)

    @staticmethod
    def again(xp: Any, a: Any, b: Any) -> Any:
        return mixad.checkpoint(lambda a, b: xp.sin(a) * b)(a, b)

    @staticmethod
    def slope(xp: Any, a: Any, b: Any) -> Any:
        return mixad.grad(lambda z: xp.sum(z * z * b) + 0.5 * xp.sum(z))(a)

    @staticmethod
    def pulled(xp: Any, a: Any, b: Any) -> Any:
        value, pullback = mixad.vjp(lambda z: xp.sum(z * z * b), a)
        return pullback(value)[0]


class ByHand:
    """The same, of plain arrays."""

    product = staticmethod(lambda a, b: a * b)
    both = staticmethod(lambda a, b: (a * b, a + 2.0 * b))
    bent = staticmethod(lambda x: x if x > KINK else 2.0 * x - KINK)
    again = staticmethod(lambda xp, a, b: np.sin(a) * b)

    @staticmethod
    def slope(xp: Any, a: Any, b: Any) -> Any:
        return summed(2.0 * a * b, np.shape(a)) + 0.5

    @staticmethod
    def pulled(xp: Any, a: Any, b: Any) -> Any:
        return np.sum(a * a * b) * summed(2.0 * a * b, np.shape(a))


def summed(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum an array with at most one axis to the shape of what was broadcast to it."""
    return array if np.shape(array) == shape else np.sum(array).reshape(shape)


WHAT = ["add", "product", "both", "sum", "captured", "bent", "again", "slope", "pulled", "view"]
STATEMENTS = st.tuples(st.sampled_from(WHAT), st.integers(0, 30), st.integers(0, 30))
"""What is computed from which earlier values (by their positions, modulo their count)."""


def carried_out(
    of: Any, xp: Any, statements: Sequence[tuple[str, int, int]], x: Any, y: Any, held: Any
) -> list[Any]:
    # Traced, both of them: array_api_strict leaves nothing to the right operand.
    values: list[Any] = [x, 0.0 * x + y]
    for what, i, j in statements:
        a, b = values[i % len(values)], values[j % len(values)]
        if what == "add":
            values.append(0.5 * a - b)
        elif what == "product":
            values.append(0.5 * of.product(a, b))
        elif what == "both":
            values += of.both(a, b)
        elif what == "sum":
            values.append(0.25 * xp.sum(a))
        elif what == "captured":
            values.append(of.product(a, held))
        elif what == "bent":
            values.append(of.bent(0.5 * xp.sum(a)) + b)
        elif what == "view":
            values.append(0.5 * xp.reshape(a, (-1,))[:1] + b)
        else:
            values.append(0.25 * getattr(of, what)(xp, a, b))
    return values


LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda of, xp, v: xp.sum(v),
    "squares": lambda of, xp, v: xp.sum(v * v),
    "mean": lambda of, xp, v: xp.mean(v * v),
    "twice": lambda of, xp, v: (lambda s: s + s)(xp.sum(v)),
    "kernel": lambda of, xp, v: of.both(xp.sum(v), xp.sum(v * v))[1],
    "rule": lambda of, xp, v: of.bent(xp.sum(v)),
    "element": lambda of, xp, v: xp.reshape(v, (-1,))[0],
}
CALLS = [
    *[(what, 1.0) for what in ("grad", "value and grad", "aux", "jvp", "vjp", "value and vjp")],
    ("vjp", -2.5),
    ("vjp", 0.0),
    ("value and vjp", -2.5),
]
"""How a derivative is asked for, and with which cotangent."""


def called(what: str, f: Any, x: Any, c: Any, along: Any) -> tuple[float, Any]:
    """Return the cotangent that a pass began with, and the gradient."""
    if what == "vjp":
        return float(c), mixad.vjp(f, x)[1](c)[0]
    if what == "value and vjp":
        return float(c), mixad.value_and_vjp(f, (x,), c)[1][0]
    if what == "value and grad":
        return 1.0, mixad.value_and_grad(f)(x)[1]
    if what == "aux":
        return 1.0, mixad.grad(lambda x: (f(x), x * x), has_aux=True)(x)[0]
    if what == "jvp":
        return 1.0, mixad.jvp(mixad.grad(f), (x,), (along,))[0]
    return 1.0, mixad.grad(f)(x)


def check(
    name: str,
    statements: Sequence[tuple[str, int, int]],
    loss: str,
    calls: Sequence[tuple[str, float]],
) -> None:
    """Compare what calls give, one after the other, with each other and with differences."""

    def by_hand(x: Any) -> Any:
        return LOSSES[loss](ByHand, np, carried_out(ByHand, np, statements, x, Y, Y)[-1])

    step = 1e-6
    slope = (by_hand(X + step * ALONG) - by_hand(X - step * ALONG)) / (2 * step)
    library = importlib.import_module(name)
    with in_double(library):
        x, y, held, along = (library.asarray(a.copy()) for a in (X, Y, Y, ALONG))
        xp = mixad.namespace_of(library)

        def ours(x: Any) -> Any:
            return LOSSES[loss](Ours, xp, carried_out(Ours, xp, statements, x, y, held)[-1])

        found = [
            called(what, ours, x, library.asarray(c, dtype=library.float64), along)
            for what, c in calls
        ]
        gradients = [(c, as_numpy(gradient)) for c, gradient in found]
    scale = max(1.0, abs(slope), *(np.abs(g).max() for _, g in gradients))
    for c, gradient in gradients:
        assert gradient @ ALONG == pytest.approx(c * slope, rel=1e-5, abs=1e-5 * scale)
        for other, beside in gradients:
            np.testing.assert_allclose(other * gradient, c * beside, atol=1e-12 * scale)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.rows("loss", LOSSES)
def test_each_kind_of_pass_after_each_other(loss: str, name: str) -> None:
    for first in (0, 3, 6):
        for calls in (CALLS[first:] + CALLS[:first], CALLS[::-1]):
            check(name, [("product", 0, 1)], loss, calls)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not depend on the arguments:UserWarning")
@pytest.mark.parametrize("name", LIBRARIES)
@settings(max_examples=EXAMPLES)
@given(
    st.lists(STATEMENTS, min_size=1, max_size=6),
    st.sampled_from(sorted(LOSSES)),
    st.permutations(CALLS),
)
def test_passes_of_random_programs_in_any_order(
    name: str, statements: list[tuple[str, int, int]], loss: str, calls: list[tuple[str, float]]
) -> None:
    check(name, statements, loss, calls)


@pytest.mark.rows("dtype", ["float16", "float32", "float64"])
@pytest.mark.rows("loss", [
    lambda x: (x * x * x).sum(),
    lambda x: (x * x).mean(),
    lambda x: x * x * x,
    lambda x: product(x, x),
    lambda x: x,
])  # fmt: skip
def test_numbers_of_every_width(loss: Any, dtype: str) -> None:
    for x in (np.asarray(1.5, dtype), np.dtype(dtype).type(1.5)):
        (want,) = mixad.vjp(loss, x)[1](x.dtype.type(1.0))
        (times,) = mixad.vjp(loss, x)[1](x.dtype.type(-4.0))
        for found in (mixad.grad(loss)(x), mixad.value_and_grad(loss)(x)[1]):
            assert type(found) is type(x)
            assert found.dtype == x.dtype
            assert found == want
            assert -4.0 * found == times


@pytest.mark.parametrize("name", LIBRARIES[:3])
def test_a_gradient_equal_to_an_argument_shares_no_memory_with_it(name: str) -> None:
    library = importlib.import_module(name)
    xp = mixad.namespace_of(library)
    for kernel in (product, lambda a, b: both(a, b)[0]):
        x, y = library.asarray(X.copy()), library.asarray(Y.copy())
        found = mixad.grad(lambda x, y, kernel=kernel: xp.sum(kernel(x, y)))(x, y)
        np.testing.assert_array_equal(as_numpy(found), Y)
        found[0] = 9.0
        np.testing.assert_array_equal(as_numpy(y), Y)
