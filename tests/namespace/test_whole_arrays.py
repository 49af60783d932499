"""Functions of whole arrays: shapes, orders, sums, products, selections."""

from __future__ import annotations

import gc
import importlib
import time
from typing import Any

import numpy as np
import pytest
from derivatives import HAS_JAX, against_jax, check, check_single, check_values
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

import mixad
from mixad.tape.constant import is_constant

EXAMPLES = 25

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=(3, 4))
V = RNG.normal(size=5)
T = RNG.normal(size=(2, 1, 3))
MASK = X > 0.2

CASES: dict[str, tuple[Any, ...]] = {
    "clip": (lambda xp, x: xp.clip(x, -0.5, 0.5) + xp.clip(x, max=0.1) * xp.clip(x, min=-1), X),
    "clip by arrays": (lambda xp, x, y: xp.clip(x, y, y + 0.5), X, Y),
    "reciprocal": (lambda xp, x: xp.reciprocal(x) * xp.positive(x) ** 2, X),
    "where": (lambda xp, x, y: xp.where(xp.asarray(MASK), x * y, xp.exp(y)), X, Y),
    "where broadcasts": (lambda xp, x, y: xp.where(xp.asarray(MASK), x[:, :1], y[0, :]), X, Y),
    "where of numbers": (lambda xp, x: xp.where(x > 0, x * x, 0.5) * xp.where(x < 0, 1.0, x), X),
    "broadcast_to": (lambda xp, x: xp.broadcast_to(x, (4, 2, 5, 3)) ** 2, T),
    "broadcast_arrays": (lambda xp, x, y: xp.broadcast_arrays(x, x * y[0, 0, 0], y), T, T),
    "concat": (lambda xp, x, y: xp.concat([x * y, y, x], axis=-1), X, Y),
    "concat flat": (lambda xp, x, y: xp.concat((x, y * y), axis=None), X, V),
    "concat one": (lambda xp, x: xp.concat([x * x]), X),
    "stack": (lambda xp, x, y: xp.stack([x * y, y], axis=1) * xp.stack((y, x), axis=-2), X, Y),
    "unstack": (lambda xp, x: [p * p for p in xp.unstack(x)] + [xp.unstack(x, axis=1)[2]], X),
    "unstack, some": (lambda xp, x: xp.unstack(x)[0] ** 3, X),
    "expand_dims": (lambda xp, x: xp.expand_dims(x, axis=1) * xp.expand_dims(x, axis=-1), V),
    "squeeze": (lambda xp, x: xp.squeeze(x, axis=1) * xp.squeeze(x * x, axis=(-2,)), T),
    "flip": (lambda xp, x: xp.flip(x) * xp.flip(x, axis=0) * xp.flip(x, axis=(1, -2)), X),
    "moveaxis": (lambda xp, x: xp.moveaxis(x, (0, -1), (-1, 1)) * xp.moveaxis(x, 0, 2)[0, ...], T),
    "permute_dims": (lambda xp, x: xp.permute_dims(x, (2, 0, 1)) ** 3, T),
    "roll": (lambda xp, x: xp.roll(x, 2) * xp.roll(x, -1, axis=1) * xp.roll(x, (1, 3), axis=(0, 1)),
             X),
    "repeat": (lambda xp, x: [xp.repeat(x, 2) ** 2, xp.repeat(x, 3, axis=0) ** 2], X),
    "repeat by array": (lambda xp, x: xp.repeat(x * x, xp.asarray([2, 0, 1]), axis=0), X),
    "tile": (lambda xp, x: [xp.tile(x, (2,)) ** 2, xp.tile(x, (2, 1, 3)) ** 2], X),
    "tril, triu": (lambda xp, x: xp.tril(x * x, k=-1) * xp.tril(x) + xp.triu(x * x, k=1), X),
    "full": (lambda xp, x: xp.full((2, 3), x[0] * x[1]) * xp.full_like(x[:3], xp.sin(x[2])), V),
    "asarray": (lambda xp, x: xp.asarray([[x[0], 2.0], [x[1] * x[2], x[0]]]) ** 2, V),
    "meshgrid": (lambda xp, x, y: [a * a for a in xp.meshgrid(x, y, x[:2])], V, V[:3]),
    "meshgrid ij": (lambda xp, x, y: [a * a for a in xp.meshgrid(x, y, indexing="ij")], V, V[:3]),
    "diff": (lambda xp, x: xp.diff(x, n=2) ** 2 * xp.diff(x, axis=0, n=1)[:, 1:3].sum(), X),
    "diff between": (lambda xp, x: xp.diff(x, prepend=x[:, :1] ** 2, append=x[:, :2]) ** 2, X),
    "max": (lambda xp, x: [xp.max(x), xp.max(x, axis=0) ** 2, xp.max(x, axis=1, keepdims=True)], X),
    "min": (lambda xp, x: [xp.min(x) ** 2, xp.min(x, axis=-1), xp.min(x, axis=(0, 1))], X),
    "prod": (lambda xp, x: [xp.prod(x), xp.prod(x, axis=1, keepdims=True), xp.prod(x, axis=(0, 1))],
             X),
    "prod of axes": (lambda xp, x: xp.prod(x, axis=(0, 2)) * xp.prod(x, axis=-1)[:, 0].sum(), T),
    "sum, mean": (lambda xp, x: xp.sum(x**2, axis=0) * xp.mean(x, axis=0) * xp.sum(x), X),
    "var, std": (lambda xp, x: [xp.var(x, axis=0), xp.std(x, axis=1, correction=1), xp.var(x)], X),
    "cumulative_sum": (lambda xp, x: xp.cumulative_sum(x, axis=0) ** 2, X),
    "cumulative_sum from 0": (lambda xp, x: xp.cumulative_sum(x, include_initial=True) ** 2, V),
    "cumulative_prod": (lambda xp, x: xp.cumulative_prod(x, axis=1), X),
    "cumulative_prod from 1": (lambda xp, x: xp.cumulative_prod(x, include_initial=True) ** 2, V),
    "sort": (lambda xp, x: xp.sort(x) ** 2 + xp.sort(x, axis=0, stable=False), X),
    "linspace": (
        lambda xp, x: [xp.linspace(x[0], x[1], 5) ** 2, xp.linspace(0.5, x[2], 4, endpoint=False)],
        V),
    "fftshift": (
        lambda xp, x: [xp.fft.fftshift(x) * xp.fft.ifftshift(x, axes=(0,)),
                       xp.fft.fftshift(x, axes=1) * x], X[:, :3]),
    "take": (lambda xp, x: xp.take(x, xp.asarray([2, 0, 2]), axis=1) ** 2, X),
    "take of a vector": (lambda xp, x: xp.take(x, xp.asarray([4, 0, 4]), axis=0) ** 2, V),
    "take_along_axis": (
        lambda xp, x: xp.take_along_axis(x, xp.asarray([[1], [0], [1]]), axis=1) ** 2, X),
}  # fmt: skip


@pytest.mark.rows("name", CASES, slow=["broadcast_arrays", "var, std"])
def test_derivatives_agree_with_differences(name: str) -> None:
    check(*CASES[name])


@pytest.mark.rows("name", CASES)
def test_float32_stays_float32(name: str) -> None:
    check_single(*CASES[name])


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.rows("name", CASES)
def test_derivatives_agree_with_those_of_jax(name: str) -> None:
    against_jax(*CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("join", [np.concatenate, np.stack])
def test_joining_takes_as_long_as_there_are_arrays(join: Any) -> None:
    def seconds(count: int) -> float:
        arrays = [np.ones(2) for _ in range(count)]
        gradient = mixad.grad(lambda arrays: (join(arrays) ** 2).sum())
        gradient(arrays)
        gc.collect()
        gc.disable()  # what it takes grows with all objects there are
        try:
            started = time.thread_time()
            gradient(arrays)
            return time.thread_time() - started
        finally:
            gc.enable()

    assert min(seconds(6400) for _ in range(3)) < 60 * min(seconds(400) for _ in range(3))


@st.composite
def an_array_and_an_axis(draw: Any) -> Any:
    shape = draw(array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    x = np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape)
    return x, draw(st.integers(-len(shape), len(shape) - 1)), draw(st.booleans())


ALONG_AN_AXIS = {
    "flip": lambda xp, x, a, k: xp.flip(x, axis=a) * x,
    "roll": lambda xp, x, a, k: xp.roll(x, 5, axis=a) * x,
    "stack": lambda xp, x, a, k: xp.stack([x, x * x], axis=a),
    "concat": lambda xp, x, a, k: xp.concat([x, x * x], axis=a),
    "unstack": lambda xp, x, a, k: [p * p for p in xp.unstack(x, axis=a)],
    "expand_dims": lambda xp, x, a, k: xp.expand_dims(x * x, axis=a),
    "repeat": lambda xp, x, a, k: xp.repeat(x, 2, axis=a) ** 2,
    "moveaxis": lambda xp, x, a, k: xp.moveaxis(x, a, 0) ** 2,
    "tile": lambda xp, x, a, k: xp.tile(x, (2,) * (a % x.ndim + 1)) ** 2,
    "max": lambda xp, x, a, k: xp.max(x, axis=a, keepdims=k) ** 2,
    "min": lambda xp, x, a, k: xp.min(x, axis=a, keepdims=k) ** 2,
    "prod": lambda xp, x, a, k: xp.prod(x, axis=a, keepdims=k),
    "var": lambda xp, x, a, k: xp.var(x, axis=a, keepdims=k),
    "mean": lambda xp, x, a, k: xp.mean(x, axis=a, keepdims=k) ** 2,
    "cumulative_sum": lambda xp, x, a, k: xp.cumulative_sum(x, axis=a, include_initial=k) ** 2,
    "cumulative_prod": lambda xp, x, a, k: xp.cumulative_prod(x, axis=a, include_initial=k),
    "sort": lambda xp, x, a, k: xp.sort(x, axis=a) ** 2,
    "diff": lambda xp, x, a, k: xp.diff(x, axis=a) ** 2,
}


@pytest.mark.rows(
    "name",
    ALONG_AN_AXIS,
    slow="concat cumulative_prod cumulative_sum diff expand_dims flip max mean min moveaxis prod "
    "repeat roll stack tile unstack var",
)
@settings(max_examples=EXAMPLES)
@given(an_array_and_an_axis())
def test_any_shape_along_any_axis(name: str, drawn: Any) -> None:
    x, axis, keepdims = drawn
    check(lambda xp, x: ALONG_AN_AXIS[name](xp, x, axis, keepdims), x)


EMPTY = {
    "concat": lambda xp, x: xp.concat([x, xp.ones((2, 3), dtype=xp.float64), x]),
    "stack": lambda xp, x: xp.stack([x, x]),
    "unstack": lambda xp, x: xp.unstack(x, axis=1),
    "flip": lambda xp, x: xp.flip(x),
    "repeat": lambda xp, x: xp.repeat(x, 2, axis=1),
    "tile": lambda xp, x: xp.tile(x, (2, 2)),
    "prod": lambda xp, x: xp.prod(x, axis=0),
    "sum": lambda xp, x: xp.sum(x, axis=0),
    "cumulative_prod": lambda xp, x: xp.cumulative_prod(x, axis=0),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=0, include_initial=True),
    "sort": lambda xp, x: xp.sort(x, axis=0),
    "index": lambda xp, x: x[:, xp.asarray([0, 2])] if xp is np else x[:, 1:],
    "max": lambda xp, x: xp.max(x, axis=1),
    "where": lambda xp, x: xp.where(x > 0, x, 1.0),
}


@pytest.mark.rows("name", EMPTY)
def test_arrays_without_elements(name: str) -> None:
    check_values(EMPTY[name], np.ones((0, 3)))


def test_arrays_without_axes() -> None:
    check(lambda xp, x: [xp.max(x), xp.prod(x), xp.sum(x), xp.stack([x, x * x]), xp.tile(x, (2,)),
                         xp.expand_dims(x, axis=0), xp.broadcast_to(x, (2, 2)),
                         xp.where(x > 0, x, -x)], 0.7)  # fmt: skip


def gradient(f: Any, x: Any) -> Any:
    return mixad.grad(lambda x: f(x.__array_namespace__(), x))(np.asarray(x))


def test_ties_split_evenly() -> None:
    x = [[1.0, 3.0, 3.0], [3.0, 0.0, 3.0]]
    np.testing.assert_array_equal(
        gradient(lambda xp, x: xp.max(x), x), [[0, 0.25, 0.25], [0.25, 0, 0.25]]
    )
    np.testing.assert_array_equal(
        gradient(lambda xp, x: xp.min(-x, axis=1).sum(), x), [[0, -0.5, -0.5], [-0.5, 0, -0.5]]
    )
    np.testing.assert_array_equal(gradient(lambda xp, x: xp.clip(x, 1.0, 2.0).sum(), [1.0]), [0.5])


def test_many_ties_of_16_bits_split_evenly() -> None:
    """More than the largest float16, which is 65504."""
    x = np.zeros(70_000, np.float16)
    functions = [
        lambda xp, x: xp.max(x),
        lambda xp, x: xp.min(x),
        lambda xp, x: xp.sum(xp.unique_values(x)),
    ]
    for f in functions:
        found = gradient(lambda xp, x, f=f: 3e4 * f(xp, x), x)
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, np.float16(3e4 / 70_000))


def test_unique_values() -> None:
    check(lambda xp, x: xp.sort(xp.unique_values(x)) ** 3, X)  # JAX has no gradient of these


def test_equal_values_share_the_cotangent_of_one() -> None:
    x = np.asarray([[2.0, 1.0], [2.0, 5.0]])

    def loss(x: Any) -> Any:
        xp = x.__array_namespace__()
        values, indices, inverse, counts = xp.unique_all(x)
        np.testing.assert_array_equal(indices, [1, 0, 3])
        np.testing.assert_array_equal(xp.unique_inverse(x).inverse_indices, inverse)
        for found in (counts, xp.unique_counts(x).counts):
            np.testing.assert_array_equal(found, [1, 2, 1])
            assert found.dtype == np.int64
        return (values**2 * np.asarray([1.0, 10.0, 100.0])).sum()

    np.testing.assert_allclose(mixad.grad(loss)(x), [[20.0, 2.0], [20.0, 1000.0]])


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_equal_values_are_counted_by_jax_without_types_of_64_bits() -> None:
    """JAX warns where it is asked for types that it lacks."""
    jax, jnp = importlib.import_module("jax"), importlib.import_module("jax.numpy")

    def loss(x: Any) -> Any:
        values, counts = x.__array_namespace__().unique_counts(x)
        assert counts.dtype == jnp.int32
        np.testing.assert_array_equal(counts, [1, 2, 1])
        return (values * values).sum()

    with jax.enable_x64(False):  # benchmarks have it for the whole process
        found = mixad.grad(loss)(jnp.asarray([2.0, 1, 2, 5]))
    np.testing.assert_array_equal(found, [2.0, 2, 2, 10])


def test_a_nan_gets_the_whole_cotangent() -> None:
    np.testing.assert_array_equal(gradient(lambda xp, x: xp.max(x), [1.0, np.nan, 2.0]), [0, 1, 0])


@pytest.mark.parametrize("zeros", [(), (1,), (0, 3), (0, 1, 2, 3)])
def test_products_with_zeros(zeros: tuple[int, ...]) -> None:
    x = np.asarray([2.0, 3.0, 0.5, 7.0])
    x[list(zeros)] = 0.0
    check(lambda xp, x: [xp.prod(x), xp.cumulative_prod(x)], x)
    others = [np.prod(np.delete(x, i)) for i in range(4)]
    np.testing.assert_allclose(gradient(lambda xp, x: xp.prod(x), x), others)


def test_the_branch_that_is_not_taken_leaves_no_nan() -> None:
    slope = gradient(lambda xp, x: xp.where(x > 0, xp.sqrt(x), 0.0).sum(), [-1.0, 0.0, 4.0])
    np.testing.assert_array_equal(slope, [0.0, 0.0, 0.25])


def test_sorting_downwards_keeps_the_order_of_equal_elements() -> None:
    x = np.asarray([1.0, 3.0, 1.0, 2.0])
    slope = gradient(lambda xp, x: (xp.sort(x, descending=True) * np.arange(4.0)).sum(), x)
    np.testing.assert_array_equal(slope, [2.0, 0.0, 3.0, 1.0])


@pytest.mark.rows(
    ("f", "error"),
    [
        (lambda xp, x: xp.squeeze(x, axis=0), ValueError),
        (lambda xp, x: xp.concat([x, x[:, 0]]), ValueError),
        (lambda xp, x: xp.stack([x, x[:2]]), ValueError),
        (lambda xp, x: xp.moveaxis(x, (0, 1), 0), ValueError),
        (lambda xp, x: xp.flip(x, axis=2), np.exceptions.AxisError),
        (lambda xp, x: xp.cumulative_sum(x), ValueError),
        (lambda xp, x: xp.broadcast_to(x, (3, 5)), ValueError),
        (lambda xp, x: xp.where(np.ones(4), x, x), TypeError),
        (lambda xp, x: xp.max(x[:0]), ValueError),
        (lambda xp, x: xp.take(x, np.asarray([9]), axis=0), IndexError),
        (lambda xp, x: xp.diff(x, n=-1), ValueError),
        (lambda xp, x: xp.meshgrid(x, indexing="ji"), ValueError),
        (lambda xp, x: xp.asarray(x, device="elsewhere"), TypeError),
    ],
)
def test_errors_are_those_of_the_library(f: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        gradient(f, X)


def test_dtypes_promote_as_the_librarys() -> None:
    def f(xp: Any, x: Any) -> Any:
        wide, whole = xp.ones(3, dtype=xp.float64), xp.ones(3, dtype=xp.int64)
        parts = [xp.concat([x, wide]), xp.stack([x, whole]), xp.where(x > 0, x, wide)]
        return [*parts, xp.where(x > 0, x, 1.0), xp.prod(x, dtype=xp.float64), xp.max(x)]

    x = np.asarray([0.5, 1.5, 2.5], "f4")
    found = []

    def loss(x: Any) -> Any:
        found[:] = f(mixad.namespace_of(np), x)
        return sum(part.sum() for part in found)

    assert mixad.grad(loss)(x).dtype == np.float32
    assert [part.dtype for part in found] == [part.dtype for part in f(np, x)]


def test_whole_numbers_have_no_derivative() -> None:
    def loss(x: Any) -> Any:
        xp = x.__array_namespace__()
        counts = [xp.prod(x, dtype=xp.int64), xp.cumulative_sum(x, dtype=xp.int64)]
        assert all(is_constant(count) and count.dtype == np.int64 for count in counts)
        return xp.sum(x * counts[1])

    np.testing.assert_array_equal(mixad.grad(loss)(np.asarray([1.0, 2.0])), [1.0, 3.0])
