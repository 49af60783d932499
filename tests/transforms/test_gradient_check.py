"""check_grads finds what is wrong, and nothing else."""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.errors import TracerError

HAS_TORCH = importlib.util.find_spec("torch") is not None
X = np.asarray([0.5, -1.5, 0.25])
M = np.asarray([[0.5, 1.0, -1.0], [2.0, 0.5, 0.25]])


@mixad.broadcast
def gate(a, b):
    if a > b:
        return a * b
    return np.exp(a) - b


def model(p: Any, s: float) -> Any:
    y = gate(p["m"] @ p["x"], s) * s
    return {"y": y, "total": (y * y).sum()}, s * s


def by_rule(wrong: float, order: int) -> Any:
    """Return x³, with a derivative of some order that is wrong by a factor."""
    slope = mixad.custom_jvp(lambda x: 3.0 * x * x)
    factor = wrong if order == 2 else 1.0
    slope.defjvp(lambda p, t: (slope(*p), factor * 6.0 * p[0] * t[0]))
    cube = mixad.custom_jvp(lambda x: x * x * x)
    first = wrong if order == 1 else 1.0
    cube.defjvp(lambda p, t: (cube(*p), first * slope(p[0]) * t[0]))
    return cube


@pytest.mark.slow
def test_right_derivatives_pass() -> None:
    mixad.check_grads(model, ({"m": M, "x": X}, 0.75), order=3)
    mixad.check_grads(by_rule(1.0, 1), (X,), order=2)
    mixad.check_grads(by_rule(1.001, 2), (X,), order=1)


@pytest.mark.slow
def test_narrow_floats_have_tolerances_of_their_own() -> None:
    mixad.check_grads(lambda x, y: np.sin(x) * y, (X.astype("f4"), X.astype("f4")))


@pytest.mark.rows("modes", [("fwd",), ("rev",), ("fwd", "rev"), "fwd", ["rev"]])
@pytest.mark.rows("order", [1, 2])
def test_a_wrong_derivative_is_named(order: int, modes: Any) -> None:
    first = modes if isinstance(modes, str) else modes[0]
    named = rf"order {order} \({' of '.join([first] * order)}\): leaf 0 is .* differ by .*"
    with pytest.raises(AssertionError, match=named):
        mixad.check_grads(by_rule(1.001, order), (X,), 2, modes)


def test_values_that_are_not_finite_are_differences() -> None:
    f = mixad.custom_jvp(lambda x: x * 2.0)
    f.defjvp(lambda p, t: (f(*p), t[0] * np.nan))
    with pytest.raises(AssertionError, match="is nan"):
        mixad.check_grads(f, (X,), 1)


def test_tolerances_and_step_are_the_user_s() -> None:
    wrong = by_rule(1.001, 1)
    mixad.check_grads(wrong, (X,), 1, rtol=1e-2, atol=1e-2)
    kink = lambda x: abs(x).sum()  # noqa: E731
    mixad.check_grads(kink, (X,), 1)
    with pytest.raises(AssertionError, match="step of 5 "):
        mixad.check_grads(kink, (X,), 1, eps=5.0)


def test_arrays_without_elements() -> None:
    mixad.check_grads(lambda x: (x * x, x.sum()), (np.zeros((0, 2)),))


@pytest.mark.filterwarnings("ignore:.*does not depend")
def test_what_does_not_depend_on_the_arguments() -> None:
    mixad.check_grads(lambda x: M, (X,), 1)


def arrays_of_torch(values: Any) -> Any:
    import torch

    return torch.asarray(values)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(array_api_strict.asarray, id="array_api_strict"),
        pytest.param(
            arrays_of_torch,
            marks=[pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="no torch here")],
            id="torch",
        ),
    ],
)
def test_other_libraries(array: Any) -> None:
    f = lambda m, x: gate(m @ x, 0.5)  # noqa: E731
    mixad.check_grads(f, (array(M), array(X)))
    wrong = mixad.custom_vjp(lambda x: x * x)
    wrong.defvjp(lambda x: (x * x, x), lambda x, g: (g * x,))
    with pytest.raises(AssertionError, match=r"\(rev\)"):
        mixad.check_grads(wrong, (array(X),), 1, ("rev",))


def test_unknown_modes_and_orders_are_refused() -> None:
    with pytest.raises(TracerError, match="one of 'fwd', 'rev'"):
        mixad.check_grads(np.sin, (X,), 1, ("forward",))
    with pytest.raises(TracerError, match="order is 0"):
        mixad.check_grads(np.sin, (X,), 0)
    with pytest.raises(TracerError, match="args is a ndarray"):
        mixad.check_grads(np.sin, X)


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_another_value_where_it_is_differentiated_is_told(mode: str) -> None:
    f = mixad.custom_vjp(lambda x: 2.0 * x)
    f.defvjp(lambda x: (3.0 * x, None), lambda _, g: (2.0 * g,))
    with pytest.raises(AssertionError, match=rf"<lambda> \({mode}\): leaf 0 of the value is"):
        mixad.check_grads(f, (np.asarray([1.0, 2.0]),), modes=mode)
