"""Cosine transforms have SciPy's values, and the derivatives of differences of them."""

import importlib.util
import itertools

import numpy as np
import pytest
from checks import check_gradient, check_values

import mixad
from mixad.scipy import fft

pytest.importorskip("scipy")

import scipy.fft

R = np.random.default_rng(0)
NAMES = ("dct", "idct")
TYPES = (1, 2, 3, 4)
NORMS = (None, "backward", "ortho", "forward")
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize(("name", "type", "norm"), list(itertools.product(NAMES, TYPES, NORMS)))
def test_values_are_scipys(name: str, type: int, norm: str | None) -> None:
    for length in (2, 5, 8):
        check_values(f"fft.{name}", R.normal(size=length), type, norm=norm)
    x = R.normal(size=(4, 3))
    for n in (3, 4, 7):
        check_values(f"fft.{name}", x, type, n, 0, norm)
    for orthogonalize in (True, False):
        check_values(f"fft.{name}", x, type, norm=norm, orthogonalize=orthogonalize)


@pytest.mark.parametrize(("name", "type", "norm"), list(itertools.product(NAMES, TYPES, NORMS[1:])))
def test_gradients_are_those_of_differences(name: str, type: int, norm: str) -> None:
    check_gradient(f"fft.{name}", R.normal(size=(2, 5)), type, norm=norm)


def test_dtypes_are_scipys() -> None:
    check_values("fft.dct", R.normal(size=5).astype(np.float32), rtol=1e-6)
    check_values("fft.dct", np.arange(5))
    check_values("fft.idct", R.normal(size=5) + 1j * R.normal(size=5))


def test_a_transform_is_its_own_second_derivative_of_a_square() -> None:
    hessian = mixad.hessian(lambda x: (fft.dct(x, norm="ortho") ** 2).sum())(R.normal(size=4))
    np.testing.assert_allclose(hessian, 2 * np.eye(4), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fft.dct(np.ones(3), 5), "type is 1, 2, 3 or 4"),
        (lambda: fft.idct(np.ones(3), norm="whole"), "norm is 'backward'"),
        (lambda: fft.dct(np.ones(1), 1), "it takes 2"),
        (lambda: fft.dct(np.ones(3), n=0), "n is at least 1"),
    ],
)
def test_errors_name_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("type", TYPES)
def test_tensors_go_in_and_come_out(type: int) -> None:
    import torch

    x = R.normal(size=(2, 5))
    found = fft.dct(torch.asarray(x), type, norm="ortho")
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, scipy.fft.dct(x, type, norm="ortho"), atol=1e-12)
