"""Transforms whose kernels are CUDA C++ that the emulator runs, against the CPU's and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cuda_functions import anomaly, cell_update

import mixad
from mixad.backends import registry

pytestmark = pytest.mark.slow  # every kernel is compiled by g++

ON_CUDA = {"backend": "emulated"}


@mixad.broadcast
def weighed(w, x, y):
    return w * x * y * y


def cell_inputs(shape, control_shape, dtype):
    rng = np.random.default_rng(0)
    control = rng.integers(0, 2, (2, *control_shape)).astype(dtype)
    return control, [rng.uniform(-2, 2, shape).astype(dtype) for _ in range(5)]


@pytest.mark.rows("dtype", [np.float32, np.float64])
@pytest.mark.rows("control_shape", [(40, 1), (64,), (40, 64)])
def test_value_and_gradients_of_the_cell_are_those_of_the_cpu(control_shape, dtype):
    (z, zb), (*states, cotangent) = cell_inputs((40, 64), control_shape, dtype)
    cell = cell_update.with_options(**ON_CUDA)
    got = mixad.value_and_vjp(lambda *s: cell(z, zb, *s), states, cotangent)
    want = mixad.value_and_vjp(lambda *s: cell_update(z, zb, *s), states, cotangent)
    np.testing.assert_array_equal(got[0], want[0])  # the same maths, op by op: the same bits
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("placement", ["forward", "reverse"])
def test_gradients_are_summed_to_the_shapes_of_their_arguments(placement):
    rng = np.random.default_rng(1)
    w, x, y = (rng.random(shape) for shape in ((50, 70), (70,), (50, 1)))
    kernel = weighed.with_options(placement=placement, **ON_CUDA)
    gw, gx, gy = mixad.grad(lambda *a: kernel(*a).sum(), (0, 1, 2))(w, x, y)
    np.testing.assert_allclose(gw, np.broadcast_to(x * y * y, w.shape), rtol=1e-14)
    np.testing.assert_allclose(gx, (w * y * y).sum(axis=0), rtol=1e-14)
    np.testing.assert_allclose(gy, 2 * (w * x * y).sum(axis=1, keepdims=True), rtol=1e-13)


def test_second_derivatives_through_a_loop_are_those_of_the_cpu():
    mean, eccentricity = np.linspace(0.1, 3.0, 37), np.asarray(0.4)
    kernel = anomaly.with_options(**ON_CUDA)

    def curvature(k):
        first = mixad.grad(lambda m: k(m, eccentricity).sum())
        return mixad.grad(lambda m: (first(m) * first(m)).sum())(mean)

    np.testing.assert_allclose(curvature(kernel), curvature(anomaly), rtol=1e-12)


def test_a_loop_differentiated_where_it_ends_is_that_of_the_cpu():
    mean, eccentricity = np.linspace(0.1, 3.0, 37), np.full(37, 0.4)
    implicit = anomaly.with_options(loops="implicit")

    def curvature(k):
        first = mixad.grad(lambda m: (k(m, eccentricity) * k(m, eccentricity)).sum())
        return mixad.grad(lambda m: (first(m) * first(m)).sum())(mean)

    got = curvature(implicit.with_options(**ON_CUDA))
    np.testing.assert_allclose(got, curvature(implicit), rtol=1e-12)
    np.testing.assert_allclose(got, curvature(anomaly), rtol=1e-9)


@pytest.mark.parametrize(("strategy", "passes"), [("forward", 2), ("auto", 1)])
def test_many_inputs_take_a_function_for_each_pass_and_one_in_reverse(strategy, passes):
    arguments = [np.linspace(0.5, 1.0, 8) + k / 16 for k in range(13)]

    def product(x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12):
        return x0 * x1 * x2 * x3 * x4 * x5 * x6 * x7 * x8 * x9 * x10 * x11 * x12

    kernel = mixad.broadcast(product).with_options(strategy=strategy, **ON_CUDA)
    driver = registry.default_registry().backend("emulated").driver
    before = len(driver.launches)
    gradients = mixad.grad(lambda *a: kernel(*a).sum(), tuple(range(13)))(*arguments)
    launched = [entry for entry, _, _ in driver.launches[before:]]
    assert launched.count("mixad_pass_0") == 1
    assert launched.count("mixad_pass_1") == passes - 1
    whole = np.prod(arguments, axis=0)
    for gradient, argument in zip(gradients, arguments, strict=True):
        np.testing.assert_allclose(gradient, whole / argument, rtol=1e-13)


def test_an_index_outside_is_refused_with_its_line():
    table = np.arange(5.0)

    def looked_up(k, x):
        return table[k] * x

    kernel = mixad.broadcast(looked_up).with_options(**ON_CUDA)
    indices = np.asarray([0, 4, -5])
    np.testing.assert_array_equal(kernel(indices, np.ones(3)), table[indices])
    with pytest.raises(mixad.errors.KernelIndexError, match=r"table\[k\] \* x"):
        kernel(np.asarray([0, 5]), np.ones(2))


def test_a_loop_that_leaves_an_array_ends_with_its_line():
    table = np.arange(5.0)

    def sought(x):
        k = 0
        while table[k] < x:
            k += 1
        while k * x < 1.0:  # no end for an element that has left it with k of 0
            k = 2 * k
        return table[k] * x

    kernel = mixad.broadcast(sought).with_options(**ON_CUDA)
    x = np.asarray([0.5, 3.5, 1.0])
    np.testing.assert_array_equal(kernel(x), [1.0, 14.0, 1.0])
    for call in (kernel, mixad.grad(lambda x: kernel(x).sum())):
        with pytest.raises(mixad.errors.KernelIndexError, match="while table"):
            call(np.asarray([0.5, 4.5, 1.0]))


def test_empty_arrays_launch_nothing():
    driver = registry.default_registry().backend("emulated").driver
    before = len(driver.launches)
    kernel = weighed.with_options(**ON_CUDA)
    gradients = mixad.grad(lambda *a: kernel(*a).sum(), (0, 1))(
        np.ones((0, 3)), np.ones(3), np.ones((1, 1))
    )
    assert len(driver.launches) == before
    assert gradients[0].shape == (0, 3)
    np.testing.assert_array_equal(gradients[1], np.zeros(3))


@mixad.broadcast(signature="(2,2),(2)->(2)")
def transformed(matrix, vector):
    out = [0.0, 0.0]
    for i in range(2):
        for j in range(2):
            out[i] += matrix[i, j] * np.tanh(vector[j])
    return out


def test_vectors_and_their_gradients_are_those_of_the_cpu():
    rng = np.random.default_rng(3)
    matrix, vector = rng.normal(size=(65, 2, 2)), rng.normal(size=(65, 2))
    on_cuda = transformed.with_options(**ON_CUDA)
    np.testing.assert_array_equal(on_cuda(matrix, vector), transformed(matrix, vector))
    got, want = (
        mixad.grad(lambda *a, k=k: (k(*a) ** 2).sum(), (0, 1))(matrix, vector)
        for k in (on_cuda, transformed)
    )
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@mixad.broadcast
def bent(x, y):
    n = 0
    while x > 1.0:
        x = 0.5 * x
        n += 1
    return max(x, y) * n + (abs(y) if x < 0.625 else y)


def test_kinks_are_those_of_the_cpu():
    x, y = np.linspace(0.1, 8.0, 159)[:, None], np.linspace(-1.0, 1.0, 9)
    got, want = (k.kinks(x, y, tolerance=0.01) for k in (bent.with_options(**ON_CUDA), bent))
    assert str(got) == str(want)
    assert {kink.kind for kink in got.kinks} == {"trip count", "tie", "branch"}
    for a, b in zip(got.kinks, want.kinks, strict=True):
        np.testing.assert_array_equal(a.indices, b.indices)
        np.testing.assert_array_equal(a.margins, b.margins)


def test_an_audit_finds_nothing(monkeypatch):
    monkeypatch.setenv("MIXAD_AUDIT", "1")
    x, y = np.linspace(0.1, 2.9, 12)[:, None], np.linspace(-1.0, 1.0, 5)
    audited = mixad.broadcast(lambda x, y: math.tanh(x) * y if x > y else x * y, **ON_CUDA)
    mixad.value_and_vjp(audited, (x, y), np.ones((12, 5)))
    mixad.value_and_vjp(audited, (x.astype("f2"), y.astype("f2")), np.ones((12, 5), "f2"))
    transformed.with_options(**ON_CUDA)(np.ones((3, 2, 2)), np.ones((3, 2)))
