"""First and second derivatives through transforms, against formulas by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.conformance.subject import Subject
from mixad.scalar.types import BOOL, F32, F64, ScalarType

TOLERANCE = {F32: 2e-5, F64: 1e-13}


@mixad.broadcast
def damped(x, y):  # type: ignore[no-untyped-def]
    """Return what is smooth on both sides of x = 0, and no more."""
    return x * x * math.exp(-y) if x > 0.0 else x * y


@mixad.broadcast
def power(x, n):  # type: ignore[no-untyped-def]
    """Return xⁿ by a loop whose length each element decides."""
    result = 1.0
    while n > 0.0:
        result = result * x
        n = n - 1.0
    return result


@mixad.broadcast
def product(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12):  # type: ignore[no-untyped-def]
    """Return the product of more inputs than one pass has partials."""
    return x0 * x1 * x2 * x3 * x4 * x5 * x6 * x7 * x8 * x9 * x10 * x11 * x12


def kernel_on_backend(subject: Subject, kernel: Any, **options: Any) -> Callable[..., Any]:
    """Return a kernel that runs on the backend under test."""
    chosen: Callable[..., Any] = kernel.with_options(backend=subject.spec.name, **options)
    return chosen


def close(subject: Subject, got: Any, wanted: Any, type: ScalarType) -> None:
    """Compare an array of the library with a NumPy array in double precision."""
    got = np.asarray(subject.arrays.to_numpy(got))
    assert (got.dtype, got.shape) == (type.dtype, wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=TOLERANCE[type], atol=TOLERANCE[type])
    subject.counts["results"] += wanted.size


def points(type: ScalarType) -> tuple[Any, Any]:
    """Return points on both sides of the branch, and values that are broadcast along them."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-2, 2, (6, 19)), rng.uniform(-1, 1, (19,))
    return x.astype(type.dtype), y.astype(type.dtype)


@pytest.mark.parametrize("placement", ["forward", "reverse"])
@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_gradients_are_those_of_the_formula(
    subject: Subject, type: ScalarType, placement: str
) -> None:
    """Of a branch, with one argument broadcast: its gradient is summed in the kernel."""
    subject.need(BOOL, type)
    x, y = points(type)
    kernel = kernel_on_backend(subject, damped, placement=placement)
    given = [subject.arrays.to_library(a) for a in (x, y)]
    value, (dx, dy) = mixad.value_and_grad(lambda *a: kernel(*a).sum(), (0, 1))(*given)
    x, y = x.astype("f8"), y.astype("f8")
    decay = np.exp(-y)
    close(subject, value, np.where(x > 0, x * x * decay, x * y).sum(), type)
    close(subject, dx, np.where(x > 0, 2 * x * decay, y + 0 * x), type)
    close(subject, dy, np.where(x > 0, -x * x * decay, x).sum(axis=0), type)


@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_second_derivatives_are_those_of_the_formula(subject: Subject, type: ScalarType) -> None:
    """The gradient of the sum of a gradient."""
    subject.need(BOOL, type)
    x, y = points(type)
    kernel = kernel_on_backend(subject, damped)

    def total_slope(x: Any, y: Any) -> Any:
        return mixad.grad(lambda x: kernel(x, y).sum())(x).sum()

    given = [subject.arrays.to_library(a) for a in (x, y)]
    dxx, dxy = mixad.grad(total_slope, (0, 1))(*given)
    x, y = x.astype("f8"), y.astype("f8")
    decay = np.exp(-y)
    close(subject, dxx, np.where(x > 0, 2 * decay, 0.0), type)
    close(subject, dxy, np.where(x > 0, -2 * x * decay, 1.0).sum(axis=0), type)


def test_loops_are_differentiated_twice(subject: Subject) -> None:
    """Each element has its own number of iterations."""
    subject.need(BOOL, F64)
    x, n = np.linspace(0.5, 1.5, 35), np.arange(35.0) % 6
    kernel = kernel_on_backend(subject, power)
    given, iterations = subject.arrays.to_library(x), subject.arrays.to_library(n)

    def slope(x: Any) -> Any:
        return mixad.grad(lambda x: kernel(x, iterations).sum())(x)

    close(subject, slope(given), n * x ** (n - 1), F64)
    curvature = mixad.grad(lambda x: slope(x).sum())(given)
    close(subject, curvature, n * (n - 1) * x ** (n - 2), F64)


def test_many_inputs_take_several_passes(subject: Subject) -> None:
    """Partials are computed in chunks, each a pass of one kernel."""
    subject.need(F64)
    x = [np.linspace(0.5, 1.0, 8) + k / 16 for k in range(13)]
    kernel = kernel_on_backend(subject, product)
    given = map(subject.arrays.to_library, x)
    gradients = mixad.grad(lambda *a: kernel(*a).sum(), tuple(range(13)))(*given)
    whole = np.prod(x, axis=0)
    for gradient, argument in zip(gradients, x, strict=True):
        close(subject, gradient, whole / argument, F64)
