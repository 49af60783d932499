"""Filters and convolutions have SciPy's values, and the derivatives of differences of them."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from checks import check_gradient, check_values

import mixad
import mixad.scipy
from mixad.errors import TracerError
from mixad.scipy import signal

pytest.importorskip("scipy")

import scipy.signal

R = np.random.default_rng(0)
MODES = ("full", "same", "valid")
HAS_TORCH = importlib.util.find_spec("torch") is not None


# -- filters ---------------------------------------------------------------------------------------


COEFFICIENTS = {
    "recursive": ([0.1, 0.2, 0.3], [1.0, -0.5, 0.2]),
    "not normal": ([0.1, 0.2], [2.0, -0.5, 0.2, 0.1]),
    "of averages": ([0.3, 0.2, 0.5], [2.0]),
    "of one number": ([0.3], [0.5]),
}


@pytest.mark.parametrize("name", COEFFICIENTS)
@pytest.mark.parametrize(("shape", "axis"), [((9,), -1), ((4, 5), 0), ((2, 6, 3), 1)])
def test_lfilter_has_scipys_values(name: str, shape: tuple[int, ...], axis: int) -> None:
    b, a = map(np.asarray, COEFFICIENTS[name])
    x = R.normal(size=shape)
    check_values("signal.lfilter", b, a, x, axis)
    state = list(shape)
    state[axis] = max(len(a), len(b)) - 1
    check_values("signal.lfilter", b, a, x, axis, R.normal(size=state))


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_lfilter_has_gradients_of_coefficients_data_and_state(name: str) -> None:
    b, a = map(np.asarray, COEFFICIENTS[name])
    order = max(len(a), len(b)) - 1
    check_gradient("signal.lfilter", b, a, R.normal(size=(2, 7)), -1, R.normal(size=(2, order)))
    check_gradient("signal.lfilter", b, a, R.normal(size=7))


def test_lfilter_broadcasts_a_state_as_scipy_does() -> None:
    b, a = map(np.asarray, COEFFICIENTS["recursive"])
    check_values("signal.lfilter", b, a, R.normal(size=(3, 5)), -1, R.normal(size=(1, 2)))


def test_lfilter_has_second_derivatives() -> None:
    """Of y₂ = x₂ - a₁ x₁ + a₁² x₀ the second one by a₁ is 2 x₀."""
    x = R.normal(size=3)

    def last(a: np.ndarray) -> np.ndarray:
        return signal.lfilter([1.0], a, x)[2]

    curvature = mixad.hessian(last)(np.asarray([1.0, 0.4]))
    np.testing.assert_allclose(curvature[1, 1], 2 * x[0], rtol=1e-12)


def test_lfilter_keeps_float32_and_takes_whole_numbers() -> None:
    b, a = (np.asarray(c, np.float32) for c in COEFFICIENTS["recursive"])
    check_values("signal.lfilter", b, a, np.ones(5, np.float32), rtol=1e-6)
    whole = signal.lfilter([1, 2], [1, 1], np.arange(5))  # which SciPy refuses
    np.testing.assert_array_equal(
        whole, scipy.signal.lfilter([1.0, 2.0], [1.0, 1.0], np.arange(5.0))
    )
    check_values("signal.lfilter", b, a, np.zeros((2, 0)))


def test_lfilter_of_complex_numbers_has_scipys_values() -> None:
    b, a = map(np.asarray, COEFFICIENTS["recursive"])
    check_values("signal.lfilter", b, a * (1 + 0.1j), R.normal(size=5) + 1j * R.normal(size=5))


@pytest.mark.parametrize(
    ("b", "a", "x", "zi", "message"),
    [
        ([], [1.0], [1.0], None, "b has shape"),
        ([1.0], [[1.0]], [1.0], None, "a has shape"),
        ([1.0], [1.0], 1.0, None, "no axis"),
        ([1.0, 2.0], [1.0], [1.0], [1.0, 2.0], r"pass one of \(1,\)"),
    ],
)
def test_lfilter_names_what_is_wrong(b, a, x, zi, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        signal.lfilter(np.asarray(b), a, x, zi=zi)


# -- convolutions ----------------------------------------------------------------------------------


SHAPES = [((7,), (3,)), ((3,), (6,)), ((5,), (5,)), ((6, 5), (2, 3)), ((4, 3, 2), (2, 2, 2))]


@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["direct", "fft", "auto"])
def test_convolutions_have_scipys_values(name: str, shapes, mode: str, method: str) -> None:
    first, second = (R.normal(size=shape) for shape in shapes)
    check_values(f"signal.{name}", first, second, mode, method)


@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("shapes", [SHAPES[0], SHAPES[1], SHAPES[3]])
@pytest.mark.parametrize(("mode", "method"), [(m, d) for m in MODES for d in ("direct", "fft")])
def test_convolutions_have_gradients(name: str, shapes, mode: str, method: str) -> None:
    first, second = (R.normal(size=shape) for shape in shapes)
    check_gradient(f"signal.{name}", first, second, mode, method)


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_whole_and_complex_numbers_are_convolved(name: str) -> None:
    check_values(f"signal.{name}", np.arange(5), np.arange(3))
    check_values(f"signal.{name}", np.arange(5), np.arange(3), "full", "fft")
    z = R.normal(size=5) + 1j * R.normal(size=5)
    for method in ("direct", "fft"):
        check_values(f"signal.{name}", R.normal(size=7), z[:3], "same", method)
        check_values(f"signal.{name}", z, z[:2], "full", method)


@pytest.mark.parametrize("mode", MODES)
def test_fftconvolve_has_scipys_values_and_gradients(mode: str) -> None:
    for shapes in SHAPES:
        check_values("signal.fftconvolve", *(R.normal(size=s) for s in shapes), mode)
    rows = R.normal(size=(3, 6)), R.normal(size=(1, 4))
    check_values("signal.fftconvolve", *rows, mode, axes=1)
    check_gradient("signal.fftconvolve", *rows, mode, axes=[-1])


def test_long_arrays_are_convolved_by_transforms() -> None:
    first, second = R.normal(size=2000), R.normal(size=signal.MAX_SUMMANDS + 1)
    check_values("signal.convolve", first, second, rtol=1e-11)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: signal.convolve(np.ones(3), np.ones((2, 2))), "in1 has 1 axes, in2 2"),
        (lambda: signal.convolve(np.ones(3), np.ones(2), "half"), "mode is 'full'"),
        (lambda: signal.correlate(np.ones(3), np.ones(2), method="slow"), "method is 'auto'"),
        (lambda: signal.fftconvolve(np.ones((3, 1)), np.ones((1, 3)), "valid"), "at least as long"),
        (lambda: signal.convolve(np.ones(0), np.ones(2)), "no elements"),
    ],
)
def test_convolutions_name_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# -- tensors ---------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_tensors_go_in_and_come_out() -> None:
    import torch

    x, h = R.normal(size=(4, 6)), R.normal(size=(2, 3))
    for method in ("direct", "fft"):
        found = signal.convolve(torch.asarray(x), torch.asarray(h), method=method)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found, scipy.signal.convolve(x, h), rtol=1e-12, atol=1e-12)
    b, a = COEFFICIENTS["recursive"]
    narrow = torch.asarray(x, dtype=torch.float32)
    filtered = signal.lfilter(b, a, narrow)
    assert filtered.dtype == torch.float32
    np.testing.assert_allclose(filtered, scipy.signal.lfilter(b, a, x), rtol=1e-4, atol=1e-6)

    def loss(x):
        return (signal.lfilter(b, a, x) ** 2).sum()

    wanted = mixad.grad(loss)(x)
    found = mixad.grad(loss)(torch.asarray(x))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_refusals_name_the_counterpart() -> None:
    with pytest.raises(TracerError, match=r"use mixad\.scipy\.signal\.lfilter, or say"):
        mixad.grad(lambda x: scipy.signal.lfilter([1.0], [1.0, 0.5], x).sum())(np.ones(3))


@pytest.mark.slow
def test_the_package_is_imported_when_it_is_asked_for() -> None:
    code = "import sys, mixad; assert 'mixad.scipy' not in sys.modules; mixad.scipy.signal.lfilter"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_axes_of_fftconvolve_are_those_of_the_arrays() -> None:
    x, y = R.normal(size=(2, 3)), R.normal(size=(2, 3))
    own = signal.fftconvolve(x, y, axes=np.int64(-1))
    np.testing.assert_allclose(own, scipy.signal.fftconvolve(x, y, axes=-1), rtol=1e-12)
    assert signal.fftconvolve(np.float64(2), np.float64(3)) == 6.0
    for axes in ([5], [1, 1], 2):
        with pytest.raises(ValueError, match="axis"):
            signal.fftconvolve(x, y, axes=axes)
    with pytest.raises(ValueError, match="repeat in1"):
        signal.fftconvolve(np.ones((1, 5, 3)), np.ones((4, 2, 3)), mode="same", axes=1)
