"""Kernels of complex numbers as CUDA C++ that the emulator runs, against the CPU's."""

from __future__ import annotations

import cmath
from typing import Any

import numpy as np
import pytest

import mixad

pytestmark = pytest.mark.slow  # every kernel is compiled by g++


@mixad.broadcast
def branches(z, w, x):
    y = np.exp(z * x) / w if z.real > w.real else cmath.sqrt(w) - x
    return y * z.conjugate(), abs(z - w)


@mixad.broadcast
def escape(c):
    z, turns = 0j, 0
    while abs(z) < 4 and turns < 30:
        z = z**2 + c
        turns += 1
    return z, turns


def drawn(dtype: str) -> Any:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((3, 40)) + 1j * rng.standard_normal((3, 40))
    return z.astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_values_and_gradients_are_those_of_the_cpu(dtype: str) -> None:
    z, w, g = drawn(dtype)
    x = z.real.copy()
    emulated = branches.with_options(backend="emulated")
    got = mixad.value_and_vjp(emulated, (z, w, x), (g, g.real.copy()))
    want = mixad.value_and_vjp(branches, (z, w, x), (g, g.real.copy()))
    precision = 1e-5 if dtype == "complex64" else 1e-13
    for a, b in zip((*got[0], *got[1]), (*want[0], *want[1]), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=precision, atol=precision)


def test_a_loop_takes_the_turns_that_it_takes_on_the_cpu() -> None:
    (c, *_) = drawn("complex128")
    emulated = escape.with_options(backend="emulated")
    for a, b in zip(emulated(c), escape(c), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    loss = [mixad.grad(lambda c, k=k: abs(k(c)[0]).sum())(c) for k in (emulated, escape)]
    np.testing.assert_allclose(*loss, rtol=1e-12)
