"""Fourier transforms: derivatives against differences and JAX, lengths, axes, scaling."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from complex_derivatives import check_complex, complex_against_jax
from derivatives import HAS_JAX
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad

EXAMPLES = 80

HAS_TORCH = importlib.util.find_spec("torch") is not None

RNG = np.random.default_rng(3)
ALONG_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
ALONG_SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
OF_REAL = ("rfft", "ihfft", "rfftn")
NORMS = ("backward", "ortho", "forward")


def drawn(name: str, shape: Any) -> Any:
    x = RNG.normal(size=shape)
    return x if name in OF_REAL else x + 1j * RNG.normal(size=shape)


@pytest.mark.rows("norm", NORMS)
@pytest.mark.rows("n", [None, 1, 2, 3, 4, 5, 7])
@pytest.mark.rows("name", ALONG_ONE)
def test_transforms_along_one_axis(name: str, n: int | None, norm: str) -> None:
    def f(xp: Any, x: Any) -> Any:
        return getattr(xp.fft, name)(x, n=n, axis=0, norm=norm) ** 2

    x = drawn(name, (4, 2))
    check_complex(f, x, tolerance=1e-5)
    if HAS_JAX:
        complex_against_jax(f, x)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from(ALONG_SEVERAL),
    st.lists(st.integers(2, 4), min_size=1, max_size=3),
    st.sampled_from(NORMS),
    st.data(),
)
def test_transforms_along_several_axes(name: str, shape: list[int], norm: str, data: Any) -> None:
    places = st.lists(st.sampled_from(range(-len(shape), len(shape))), min_size=1, max_size=3)
    axes = data.draw(places.filter(lambda a: len({k % len(shape) for k in a}) == len(a)))
    sizes = st.lists(st.integers(2, 5), min_size=len(axes), max_size=len(axes))
    s = data.draw(st.none() | sizes)

    def f(xp: Any, x: Any) -> Any:
        transform = getattr(xp.fft, name)
        return transform(x, s=s, axes=tuple(axes), norm=norm) ** 2

    check_complex(f, drawn(name, shape), tolerance=1e-4, second=False)


SEVERAL: dict[str, tuple[Any, ...]] = {
    "all axes": (lambda xp, x: xp.fft.fftn(x) ** 2, drawn("fftn", (2, 3))),
    "back": (lambda xp, x: xp.fft.ifftn(xp.fft.fftn(x) ** 2), drawn("fftn", (2, 3))),
    "real, all axes": (lambda xp, x: xp.fft.rfftn(x) ** 2, drawn("rfftn", (3, 4))),
    "real and back": (
        lambda xp, x: xp.fft.irfftn(xp.fft.rfftn(x) ** 2, s=(3, 4), axes=(0, 1)),
        drawn("rfftn", (3, 4))),
    "to an odd length": (
        lambda xp, x: xp.fft.irfftn(x, s=(3, 5), axes=(0, 1)) ** 2, drawn("irfftn", (3, 3))),
    "a convolution": (
        lambda xp, x, y: xp.fft.irfft(xp.fft.rfft(x, n=9) * xp.fft.rfft(y, n=9), n=9),
        drawn("rfft", 5), drawn("rfft", 5)),
    "shifts": (lambda xp, x: xp.fft.fftshift(x) * xp.fft.ifftshift(x, axes=0) ** 2,
               drawn("fft", (3, 4))),
}  # fmt: skip


@pytest.mark.rows("name", SEVERAL)
def test_compositions(name: str) -> None:
    check_complex(*SEVERAL[name], tolerance=1e-5)
    if HAS_JAX:
        complex_against_jax(*SEVERAL[name])


def test_dtypes_are_those_of_numpy() -> None:
    x = drawn("rfft", (4, 6)).astype("f4")
    for name in (*ALONG_ONE, *ALONG_SEVERAL):
        given = x if name in OF_REAL else x + 1j * x
        value, pullback = mixad.vjp(getattr(np.fft, name), given)
        want = getattr(np.fft, name)(given)
        assert value.dtype == want.dtype
        np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)
        assert pullback(value)[0].dtype == given.dtype


def test_numpy_transforms_real_numbers_too() -> None:
    x = drawn("rfft", (3, 4))
    for name in ("fft", "ifft", "fftn", "ifftn"):
        transform = getattr(np.fft, name)
        mixad.check_grads(lambda x, f=transform: f(x) ** 2, (x,), rtol=1e-5)
        gradient = mixad.grad(lambda x, f=transform: abs(f(x) ** 2).sum())(x)
        assert gradient.dtype == x.dtype


def test_frequencies_are_the_librarys() -> None:
    xp = mixad.namespace_of(np)
    np.testing.assert_array_equal(xp.fft.fftfreq(5, d=0.5), np.fft.fftfreq(5, d=0.5))
    np.testing.assert_array_equal(xp.fft.rfftfreq(6), np.fft.rfftfreq(6))


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda x: np.fft.fft(x, norm="both"), ValueError),
        (lambda x: np.fft.fft(x, axis=2), IndexError),
        (lambda x: np.fft.fftn(x, s=(2,), axes=(0, 1)), ValueError),
    ],
)
def test_wrong_arguments_are_refused(f: Any, error: Any) -> None:
    with pytest.raises(error):
        f(np.ones((2, 3)))
    with pytest.raises(error):
        mixad.vjp(f, np.ones((2, 3)))


def test_transforms_of_arrays_without_elements() -> None:
    gradient = mixad.grad(lambda x: abs(np.fft.fft(x, axis=1)).sum())(np.ones((0, 3), complex))
    assert gradient.shape == (0, 3)


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_functions_of_torch() -> None:
    import torch

    def loss(x: Any) -> Any:
        spectrum = torch.fft.rfft(x, n=8, dim=0, norm="ortho")
        both = torch.fft.fftn(spectrum, s=(4, 3), dim=(0, 1))
        shifted = torch.fft.fftshift(torch.fft.ifft(both, dim=1), dim=0)
        return (abs(shifted) ** 3).sum() + torch.fft.irfft(spectrum**2, n=5, dim=0).sum()

    x = drawn("rfft", (6, 3))
    theirs = torch.asarray(x).requires_grad_(True)
    loss(theirs).backward()
    mine = mixad.grad(loss)(torch.asarray(x))
    np.testing.assert_allclose(mine.numpy(), theirs.grad.numpy(), rtol=1e-12, atol=1e-12)
