"""Programs that look at values while they are recorded: what is looked at is computed there."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import TracerError
from mixad.tape import states
from mixad.transforms import gradients

EXAMPLES = 100

X = np.linspace(0.5, 2.0, 4)
Y = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
WEIGHTS = np.linspace(0.1, 0.4, 4)


pytestmark = pytest.mark.usefixtures("fresh")


def by_nodes(call: Callable[..., Any], *args: Any) -> Any:
    """Return what a call gives where no strand is opened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "open_strand", lambda *given: None)
        return call(*args)


def flat(found: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in mixad.pytree.leaves(found)]


def assert_close(found: Any, expected: Any) -> None:
    """Compare trees of arrays: segments round sums another way than nodes do."""
    for a, b in zip(flat(found), flat(expected), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        tolerance = 64 * float(np.finfo(np.result_type(a.dtype, "f4")).eps)
        scale = np.abs(b).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def branch(x: Any, y: Any) -> Any:
    return (x * y if (x * y).sum() > 0 else x + y).sum()


def until(x: Any, y: Any) -> Any:
    while (x * x).sum() < 100.0:
        x = x * 1.5 + 0.1
    return (x * y).sum()


def halved(x: Any, y: Any) -> Any:
    """Halve the step until the value is smaller: a line search."""
    step, direction = 1.0, 2.0 * x
    while ((x - step * direction) ** 2).sum() >= 0.5 * (x * x).sum():
        step *= 0.5
    return ((x - step * direction) * y).sum()


def largest(x: Any, y: Any) -> Any:
    z = x * y[0]
    return z[np.argmax(z)] * 2.0 + x[int(np.argmin(np.cos(x)))]


LOOKING: dict[str, Callable[..., Any]] = {
    "a branch": branch,
    "a loop until": until,
    "a line search": halved,
    "an index": largest,
    "where of an argument": lambda x, y: np.where(x > 1.0, x * y, -x).sum(),
    "where of a result": lambda x, y: (lambda z: np.where(z > 0, z * x, 0.1 * z).sum())(x * y),
    "a mask as a factor": lambda x, y: (np.sin(y) * (np.sin(y) > 0.2) * x).sum(),
    "elements of a mask": lambda x, y: (x * x)[x > 1.0].sum() + y.sum(),
    "finite": lambda x, y: x.sum() if np.isfinite(np.log(x)).all() else (x * y).sum(),
    "a choice by NumPy": lambda x, y: np.where(np.greater(y, x), y, x).sum() * np.size(x),
    "stop_gradient": lambda x, y: (mixad.stop_gradient(x * y) * x).sum(),
    "formatting": lambda x, y: x.sum() * len(f"{(x * 3.0).sum():.1f}") * len(str(y.sum())) / 1e2,
    "weights from outside": lambda x, y: (
        np.where(x > WEIGHTS.mean(), x * WEIGHTS, x).sum() + np.dot(y, WEIGHTS).sum()
    ),
}


@pytest.mark.parametrize("name", LOOKING)
def test_values_are_looked_at_without_nodes(name: str, runs: list[Any]) -> None:
    f = LOOKING[name]
    call = mixad.value_and_grad(f, (0, 1))
    for scale in (1.0, 1.0, -0.7, 1.0, 1.3):
        args = scale * X, Y + 0.3 * scale
        assert_close(call(*args), by_nodes(call, *args))
    assert len(runs) >= 2  # another mask is another program


@pytest.mark.parametrize("name", LOOKING)
def test_bits_depend_on_no_call_before(name: str) -> None:
    call = mixad.value_and_grad(LOOKING[name], (0, 1))
    first = [a.tobytes() for a in flat(call(X, Y))]
    for _ in range(3):
        call(1.1 * X, Y)
        assert [a.tobytes() for a in flat(call(X, Y))] == first


def test_each_call_sees_its_own_values() -> None:
    def f(x: Any) -> Any:
        y = (x * x).sum()
        return 3.0 * y if y > 1.0 else -y

    gradient = mixad.grad(f)
    for x in (np.full(2, 0.1), np.full(2, 2.0), np.full(2, 0.2), np.full(2, 3.0)) * 3:
        expected = 6.0 * x if (x * x).sum() > 1.0 else -2.0 * x
        np.testing.assert_array_equal(gradient(x), expected)


def test_a_loop_with_branches_is_a_few_plans_however_long_it_is() -> None:
    def f(x: Any, n: int) -> Any:
        for i in range(n):
            x = np.sin(x) * 1.5 if x.sum() > 1.0 else x * x + 0.1 * i
        return x.sum()

    gradient = mixad.grad(f)
    for n in (20, 21, 60):
        found = gradient(X, n)
        assert_close(found, by_nodes(gradient, X, n))
    assert states._known.plans <= 16


def test_derivatives_agree_with_complex_steps() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for k in range(12):
            y = np.sin(x * (k + 1.0))
            total = total + (y * y).sum() if y.real.sum() > 0 else total - np.exp(y).sum()
        return total

    exact = [f(X + 1e-30j * unit).imag / 1e-30 for unit in np.eye(4)]
    for _ in range(3):
        np.testing.assert_allclose(mixad.grad(f)(X), exact, rtol=1e-13)


def test_a_value_that_is_written_to_after_it_was_looked_at() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        if y.sum() > 0:
            y[0] = x[1]
        return (y * y).sum()

    for _ in range(4):
        np.testing.assert_array_equal(mixad.grad(f)(X), [0.0, 10.0 * X[1], 8 * X[2], 8 * X[3]])


def test_an_array_that_changes_after_it_was_looked_at_is_refused() -> None:
    table = np.ones(1000)
    view = np.frombuffer(table.data)  # whose memory is not its own, so that it is not locked

    def f(x: Any) -> Any:
        y = x * view
        if y.sum() > 0:
            table[:] = 2.0
        return (y * y).sum()

    with pytest.raises((TracerError, ValueError), match="changed in place"):
        mixad.grad(f)(np.ones(1000))


def test_errors_at_a_comparison_are_those_of_the_user() -> None:
    def f(x: Any) -> Any:
        if (x * x).sum() > 0:
            raise KeyError("mine")
        return x.sum()

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            mixad.grad(f)(X)


def test_nothing_is_kept_of_a_call() -> None:
    gradient = mixad.grad(lambda x: branch(x, Y))
    gradient(X)
    x = X.copy()
    kept = weakref.ref(x)
    gradient(x)
    del x
    gc.collect()
    assert kept() is None


# -- what is asked for -----------------------------------------------------------------------------


def layered(parameters: Any, x: Any) -> Any:
    hidden = np.tanh(x @ parameters["w"] + parameters["b"])
    return ((hidden - 0.5) ** 2).sum(), {"hidden": hidden, "given": x, "count": 3, "none": None}


PARAMETERS = {"w": np.linspace(-1.0, 1.0, 8).reshape(4, 2), "b": np.array([0.1, -0.2])}


def test_trees_are_differentiated_and_aux_comes_back(runs: list[Any]) -> None:
    for transform in (mixad.grad, mixad.value_and_grad):
        call = transform(layered, has_aux=True)
        for scale in (1.0, 0.5, 2.0):
            x = scale * Y
            found, expected = call(PARAMETERS, x), by_nodes(call, PARAMETERS, x)
            assert_close(found, expected)
            aux = found[1] if transform is mixad.grad else found[0][1]
            assert aux["given"] is x
            assert (aux["count"], aux["none"]) == (3, None)
    assert len(runs) >= 4


def test_cotangents_are_carried_back(runs: list[Any]) -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y, [np.sin(x).sum(), y.T]

    g = (Y + 1.0, [2.0, Y.T.copy()])
    for scale in (1.0, -1.0, 3.0):
        primals = (scale * X, Y)
        found = mixad.value_and_vjp(f, primals, g)
        assert_close(found, by_nodes(mixad.value_and_vjp, f, primals, g))
        assert type(found[0][1][0]) is np.float64
    assert len(runs) == 2


def test_cotangents_of_other_layouts_are_told_apart() -> None:
    f = lambda x: np.cumsum(x * 2.0, axis=0)  # noqa: E731
    for g in (np.ones((3, 4)), np.broadcast_to(2.0, (3, 4)), np.asfortranarray(Y), Y[::-1]) * 2:
        _, (found,) = mixad.value_and_vjp(f, (Y,), g)
        np.testing.assert_allclose(found, 2.0 * np.cumsum(g[::-1], axis=0)[::-1], rtol=1e-14)


def test_results_share_no_memory_with_what_is_kept(runs: list[Any]) -> None:
    call = mixad.value_and_grad(lambda x: ((x * x).sum(), x * 3.0), has_aux=True)
    first = [call(X) for _ in range(3)]
    for (_, aux), gradient in first:
        aux[:] = np.nan
        gradient[:] = np.nan
    (_, aux), gradient = call(X)
    np.testing.assert_array_equal(aux, 3.0 * X)
    np.testing.assert_array_equal(gradient, 2.0 * X)
    assert runs


@pytest.mark.slow
def test_plans_of_large_arrays_are_made_in_the_first_call(runs: list[Any]) -> None:
    x = np.linspace(0.1, 1.0, 1 << 21)
    call = mixad.value_and_grad(lambda x: np.cumsum(np.sin(x) * x).sum() / x.size)
    found = [call(x) for _ in range(4)]
    assert len(runs) == 3
    for value, gradient in found[1:]:
        assert value == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.sampled_from(["sin", "mul", "if", "where", "sum", "stop"]), min_size=1, max_size=9),
    st.floats(-2.0, 2.0),
)
def test_random_programs_that_look_agree_with_nodes(steps: list[str], threshold: float) -> None:
    def f(x: Any) -> Any:
        y = x * 1.1
        for step in steps:
            if step == "sin":
                y = np.sin(y) + x
            elif step == "mul":
                y = y * x
            elif step == "if":
                y = y * 2.0 if y.sum() > threshold else y - x
            elif step == "where":
                y = np.where(y > threshold, y, x * y)
            elif step == "sum":
                y = y / (1.0 + (y * y).sum())
            else:
                y = y * mixad.stop_gradient(y + 1.0)
        return (y * y).sum()

    call = mixad.value_and_grad(f)
    for x in (X, -X, X):
        assert_close(call(x), by_nodes(call, x))
