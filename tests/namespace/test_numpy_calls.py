"""What NumPy's functions take besides arrays: lists, numbers, axes of numbers; over JAX too."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from derivatives import HAS_JAX, close, difference, in_double, parts_of

import mixad
from mixad.errors import TracerError

rng = np.random.default_rng(11)
X, V, Z, S, P = (rng.normal(size=shape) for shape in ((3, 4), 4, (), (3, 3), (3, 2)))

CALLS: dict[str, tuple[Any, np.ndarray[Any, Any]]] = {
    "take of a list": (lambda x: np.take(x, [0, 1]), X),
    "take of a list along an axis": (lambda x: np.take(x, [0, -1], axis=1), X),
    "take of lists in a list": (lambda x: np.take(x, [[0, 1], [1, 0]], axis=0), X),
    "take of a tuple": (lambda x: x.take((2, 0), axis=0), X),
    "take of a number": (lambda x: np.take(x, [0, 0], axis=-1), Z),
    "repeat by a list": (lambda x: np.repeat(x, [1, 2, 0, 1]), V),
    "repeat by a list along an axis": (lambda x: np.repeat(x, [2, 1, 0], axis=0), X),
    "repeat by a list of one": (lambda x: x.repeat([2]), X),
    "gradient with a list": (lambda x: np.gradient(x, [0.0, 1.0, 3.0, 4.0]), V),
    "gradient with two lists": (lambda x: np.gradient(x, [0, 2, 3], [0.0, 1.0, 3.0, 4.0]), X),
    "interp at no points": (lambda x: np.interp([], [0.0, 1.0, 2.0, 3.0], x), V),
    "average with a list": (lambda x: np.average(x, 0, [1.0, 2.0, 3.0]), X),
    "trapezoid over a list": (lambda x: np.trapezoid(x, [0.0, 1.0, 3.0, 4.0]), X),
    "cov with a number": (lambda x: np.cov(x, 2.0, bias=True), Z),
    "transpose of one axis": (lambda x: np.transpose(x, -1), V),
    "qr by mode": (lambda x: [*np.linalg.qr(x, "reduced"), np.linalg.qr(x, mode="r"),
                              *np.linalg.qr(x, mode="complete")], S),
    "fft2 of lengths": (lambda x: np.abs(np.fft.fft2(x, [4, 4])), S),
}  # fmt: skip

OF_NUMBERS: dict[str, tuple[Any, np.ndarray[Any, Any]]] = {
    **{
        f"{name} along the one axis of a number": (
            lambda x, f=f: [f(x, axis=0), f(x, axis=-1)], Z)
        for name, f in {
            "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "ptp": np.ptp,
            "cumsum": np.cumsum, "cumprod": np.cumprod, "cumulative_sum": np.cumulative_sum,
            "nansum": np.nansum, "nanmax": np.nanmax, "squeeze": np.squeeze,
        }.items()
    },
    "sum along the one axis of a number, which stays":
        (lambda x: [x.sum(0, keepdims=True), np.max(x, 0, keepdims=True)], Z),
}  # fmt: skip
"""What NumPy takes and JAX does not."""

OF_TWO: dict[str, tuple[Any, np.ndarray[Any, Any]]] = {
    "cross of two": (lambda x: np.cross(x, [[1.0, 2.0]]), P),
    "cross of two and three": (lambda x: np.cross(x, [1.0, 2.0, 3.0]), P),
    "cross of three and two": (lambda x: np.cross(x, x[:, :2], axisc=0), S),
    "cross of two along an axis": (lambda x: np.cross(x.T, P.T, axis=0), P),
    "qr(mode='full')": (lambda x: np.linalg.qr(x, mode="full"), P),
}
"""What NumPy takes and warns of: it will not take it in later versions."""


@pytest.mark.slow
def test_what_numpy_takes_has_its_values_and_derivatives() -> None:
    failures = failures_over(np, CALLS | OF_NUMBERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        failures += failures_over(np, OF_TWO)
    assert not failures, "\n".join(failures)


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_what_numpy_takes_it_takes_over_jax_too() -> None:
    import jax.numpy as jnp

    with in_double(jnp):
        failures = failures_over(jnp, CALLS)
    assert not failures, "\n".join(failures)


def failures_over(library: Any, calls: Any) -> list[str]:
    found = []
    for name, (function, x) in calls.items():
        try:
            problem = problem_of(library, function, x)
        except Exception as error:
            problem = repr(error)
        if problem:
            found.append(f"{name}: {problem}")
    return found


def problem_of(library: Any, function: Any, x: Any) -> str:
    """Return what differs from NumPy's values, or from differences of them."""
    seen: list[Any] = []

    def loss(x: Any) -> Any:
        parts = parts_of(function(x))
        seen[:] = [mixad.stop_gradient(part) for part in parts]
        return weighted(parts, library)

    along = np.cos(np.arange(x.size)).reshape(x.shape)
    gradient = np.asarray(mixad.grad(loss)(library.asarray(x)))
    parts = list(seen)
    slope = mixad.jvp(loss, (library.asarray(x),), (library.asarray(along),))[1]
    for part, value in zip(parts, parts_of(function(x)), strict=True):
        if np.shape(part) != np.shape(value) or not np.allclose(part, value):
            return f"{part}, not {value}"
    expected = difference(lambda x: weighted(parts_of(function(x))), (x,), (along,))
    if not close(np.sum(gradient * along), expected, 1e-6):
        return f"the gradient's slope is {np.sum(gradient * along)}, not {expected}"
    return "" if close(float(slope), expected, 1e-6) else f"slope {slope}, not {expected}"


def weighted(parts: Any, library: Any = np) -> Any:
    found: Any = 0.0
    for number, part in enumerate(parts):
        weights = np.cos(number + 0.7 * np.arange(np.prod(part.shape, dtype=int)))
        found = found + np.sum(part * library.asarray(weights.reshape(part.shape)))
    return found


def test_modes_of_qr_are_those_of_numpy() -> None:
    for mode in ("full", "f"):
        with pytest.warns(DeprecationWarning, match="deprecated"):
            mixad.grad(lambda x, mode=mode: np.linalg.qr(x, mode=mode).R.sum())(P)
    for mode in ("economic", "e"):
        with (pytest.warns(DeprecationWarning, match="deprecated"),
              pytest.raises(TracerError, match=f"mode='{mode}'")):  # fmt: skip
            mixad.grad(lambda x, mode=mode: np.linalg.qr(x, mode=mode).sum())(P)
    with pytest.raises(TracerError, match="mode='raw'"):
        mixad.grad(lambda x: np.linalg.qr(x, mode="raw")[1].sum())(P)
    with pytest.raises(ValueError, match="Unrecognized mode 'wide'"):
        mixad.grad(lambda x: np.linalg.qr(x, mode="wide")[1].sum())(P)


def test_cross_of_two_warns_as_numpy_does() -> None:
    with pytest.warns(DeprecationWarning, match="2-dimensional vectors"):
        mixad.grad(lambda x: np.cross(x, x[::-1]).sum())(P)
    with pytest.raises(ValueError, match="incompatible dimensions"):
        mixad.grad(lambda x: np.cross(x, x).sum())(X)


def test_numbers_have_an_axis_where_they_come_by_name_too() -> None:
    calls = (lambda x: np.sum(a=x, axis=0), lambda x: np.cumsum(a=x, axis=-1)[0],
             lambda x: np.max(a=x, axis=0))  # fmt: skip
    for call in calls:
        assert mixad.value_and_grad(call)(3.0) == (3.0, 1.0)


def test_an_axis_that_numpy_has_not_is_refused_in_its_words() -> None:
    calls = (lambda x: np.sum(x, axis=1), lambda x: np.mean(x, axis=0), lambda x: np.flip(x, 0))
    for call in calls:
        with pytest.raises(np.exceptions.AxisError, match="out of bounds for array of dimension 0"):
            mixad.grad(call)(Z)
