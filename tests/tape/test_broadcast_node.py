"""A program on the tape: gradients through hand-built programs, however arguments broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import mixad
from mixad.errors import KernelGradientError, KernelTypeError
from mixad.kernel.options import KernelOptions
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import BOOL, F32, F64
from mixad.tape.apply import apply_program
from mixad.tape.broadcasting import sum_to

from .conftest import program

EXAMPLES = 60
EXAMPLES_OF_SECOND_ORDER = 30


def _product_plus_sine(b: Builder, x: Any, y: Any) -> Any:
    return b.op("add", b.op("mul", x, y), b.op("sin", x))


PRODUCT_PLUS_SINE = program(_product_plus_sine, count=2)  # x y + sin x
ROTATION = program(
    lambda b, x, y: (b.op("mul", x, b.op("cos", y)), b.op("mul", x, b.op("sin", y))), count=2
)
TWICE_OR_SQUARE = program(
    lambda b, x: b.if_(
        b.op("gt", x, b.const(0.0, F64)),
        lambda: [b.op("add", x, x)],
        lambda: [b.op("mul", x, x)],
    ),
    count=1,
)


def apply(p: Any, *arguments: Any, **options: Any) -> Any:
    outputs = apply_program(p, arguments, KernelOptions(**options))
    return outputs[0] if len(outputs) == 1 else outputs


def test_without_tracers_the_kernel_runs_at_once(launches: list[Any]) -> None:
    x = np.asarray([0.5, 2.0])
    value = apply(PRODUCT_PLUS_SINE, x, np.asarray(3.0))
    assert isinstance(value, np.ndarray)
    assert len(launches) == 1
    np.testing.assert_allclose(value, x * 3 + np.sin(x), rtol=1e-15)


def test_gradient_of_a_hand_built_program() -> None:
    x, y = np.asarray([0.5, 2.0, -1.0]), np.asarray([1.0, 3.0, -2.0])
    dx, dy = mixad.grad(lambda x, y: apply(PRODUCT_PLUS_SINE, x, y).sum(), (0, 1))(x, y)
    np.testing.assert_allclose(dx, y + np.cos(x), rtol=1e-14)
    np.testing.assert_allclose(dy, x, rtol=0)


@pytest.mark.slow
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4, min_side=0), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_gradients_are_summed_over_broadcast_axes(shapes: Any, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = (rng.uniform(-2, 2, shape) for shape in shapes.input_shapes)
    weights = rng.uniform(-1, 1, shapes.result_shape)
    value, (dx, dy) = mixad.value_and_vjp(
        lambda x, y: apply(PRODUCT_PLUS_SINE, x, y), (x, y), weights
    )
    np.testing.assert_allclose(value, x * y + np.sin(x), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(dx, _unbroadcast(weights * (y + np.cos(x)), x.shape), atol=1e-12)
    np.testing.assert_allclose(dy, _unbroadcast(weights * x, y.shape), atol=1e-12)
    assert dx.shape == x.shape
    assert dy.shape == y.shape


@pytest.mark.slow
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3, min_side=0), st.data())
@settings(max_examples=EXAMPLES_OF_SECOND_ORDER, deadline=None)
def test_second_derivatives_through_broadcasting(shapes: Any, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = (rng.uniform(-2, 2, shape) for shape in shapes.input_shapes)
    v = rng.uniform(-1, 1, x.shape)

    def directional(x: Any, y: Any) -> Any:  # Σ v · ∂/∂x Σ (x y + sin x) = Σ v (y + cos x)
        return (mixad.grad(lambda x: apply(PRODUCT_PLUS_SINE, x, y).sum())(x) * v).sum()

    dx, dy = mixad.grad(directional, (0, 1))(x, y)
    full = np.broadcast_shapes(x.shape, y.shape)
    expected = _unbroadcast(np.broadcast_to(-v * np.sin(x), full), x.shape)
    np.testing.assert_allclose(dx, expected, atol=1e-12)
    np.testing.assert_allclose(dy, _unbroadcast(np.broadcast_to(v, full), y.shape), atol=1e-12)


def test_each_branch_has_its_own_gradient() -> None:
    x = np.asarray([3.0, -3.0, 0.0])
    np.testing.assert_array_equal(
        mixad.grad(lambda x: apply(TWICE_OR_SQUARE, x).sum())(x), [2.0, -6.0, 0.0]
    )


def test_several_outputs_each_take_their_cotangent() -> None:
    r, t = np.asarray([2.0, 3.0]), np.asarray([0.3, -0.4])

    def f(r: Any, t: Any) -> Any:
        x, y = apply(ROTATION, r, t)
        return x * 5 + y * 7

    _, (dr, dt) = mixad.value_and_vjp(f, (r, t), np.ones(2))
    np.testing.assert_allclose(dr, 5 * np.cos(t) + 7 * np.sin(t), rtol=1e-13)
    np.testing.assert_allclose(dt, r * (-5 * np.sin(t) + 7 * np.cos(t)), rtol=1e-13)


def test_an_output_that_is_not_used_costs_no_gradient(launches: list[Any]) -> None:
    t = np.asarray([0.3, -0.4])
    dt = mixad.grad(lambda t: apply(ROTATION, np.asarray(2.0), t)[0].sum())(t)
    np.testing.assert_allclose(dt, -2 * np.sin(t), rtol=1e-13)
    assert len(launches) == 1
    assert len(launches[0][0][0].params) == 2  # the arguments; the one cotangent is 1


@pytest.mark.parametrize("chunk", [1, 4, 10])
def test_more_inputs_than_a_chunk_take_several_passes(chunk: int, launches: list[Any]) -> None:
    def build(b: Builder, *xs: Any) -> Any:
        out = xs[0]
        for x in xs[1:]:
            out = b.op("mul", out, x)
        return out

    xs = np.random.default_rng(0).uniform(1, 2, (13, 5))
    product = program(build, count=13)
    gradients = mixad.grad(lambda *xs: apply(product, *xs, chunk=chunk).sum(), tuple(range(13)))(
        *xs
    )
    assert len(launches) == 1
    assert len(launches[0][0]) == -(-13 // chunk)
    for x, dx in zip(xs, gradients, strict=True):
        np.testing.assert_allclose(dx, np.prod(xs, axis=0) / x, rtol=1e-12)


def test_second_derivative_of_several_passes() -> None:
    product = program(lambda b, x, y: b.op("mul", b.op("mul", x, x), y), count=2)  # x² y
    x, y = np.asarray([1.5, 2.0]), np.asarray([3.0, -1.0])

    def inner(x: Any, y: Any) -> Any:
        dx, dy = mixad.grad(lambda x, y: apply(product, x, y, chunk=1).sum(), (0, 1))(x, y)
        return (dx * dy).sum()  # 2 x³ y

    dx, dy = mixad.grad(inner, (0, 1))(x, y)
    np.testing.assert_allclose(dx, 6 * x**2 * y)
    np.testing.assert_allclose(dy, 2 * x**3)


def test_mixed_precision_gradients_have_the_type_of_their_input() -> None:
    mixed = program(lambda b, x, y: b.op("mul", b.convert(x, F64), y), count=2, types=(F32, F64))
    x, y = np.asarray([1.5, 2.0], "f4"), np.asarray([3.0, -1.0])
    dx, dy = mixad.grad(lambda x, y: apply(mixed, x, y).sum(), (0, 1))(x, y)
    assert dx.dtype == np.float32
    assert dy.dtype == np.float64
    np.testing.assert_array_equal(dx, y.astype("f4"))
    np.testing.assert_array_equal(dy, x)


def test_outputs_that_are_no_floats_are_plain_arrays() -> None:
    sign = program(lambda b, x: (b.op("gt", x, b.const(0.0, F64)), b.op("mul", x, x)), count=1)
    assert sign.outputs[0].type == BOOL
    seen = []

    def f(x: Any) -> Any:
        positive, squared = apply(sign, x)
        seen.append(positive)
        return squared.sum()

    np.testing.assert_array_equal(mixad.grad(f)(np.asarray([2.0, -3.0])), [4.0, -6.0])
    assert type(seen[0]) is np.ndarray
    assert seen[0].tolist() == [True, False]


def test_uniform_params_take_numbers_and_traced_numbers() -> None:
    builder = Builder("scale")
    x, s = builder.param("x", F64), builder.param("s", F64, "uniform")
    scale = builder.finish([builder.op("mul", x, s)])
    x = np.asarray([1.0, 2.0])
    np.testing.assert_array_equal(mixad.grad(lambda x: apply(scale, x, 3.0).sum())(x), [3, 3])
    assert mixad.grad(lambda s: apply(scale, x, s).sum())(3.0) == 3.0


def test_zero_cotangent_gives_zero_gradient_at_a_singularity() -> None:
    root = program(lambda b, x: b.op("sqrt", x), count=1)
    _, (dx,) = mixad.value_and_vjp(
        lambda x: apply(root, x), (np.asarray([0.0, 4.0]),), np.asarray([0.0, 1.0])
    )
    np.testing.assert_array_equal(dx, [0.0, 0.25])


def test_the_gradient_of_an_indexed_array_is_added_up() -> None:
    builder = Builder("lookup")
    i = builder.param("i", F64)
    table = builder.array_param("table", ArrayType(F64, 1))
    at = builder.convert(i, mixad.scalar.types.I64)
    lookup = builder.finish([builder.load(table, at)])
    grad = mixad.grad(lambda t: apply(lookup, np.asarray([0.0, 2.0, 2.0]), t).sum())(np.ones(4))
    np.testing.assert_array_equal(grad, [1, 0, 2, 0])


def test_a_derivative_that_is_missing_is_refused_when_recorded() -> None:
    third = program(lambda b, x: b.op("polygamma", x, x), count=1)
    recorded = []

    def f(x: Any) -> Any:
        apply(third, x)
        recorded.append(True)
        return x.sum()

    with pytest.raises(KernelGradientError, match="polygamma"):
        mixad.grad(f)(np.ones(2))
    assert not recorded


def test_shapes_that_do_not_broadcast_are_refused_when_recorded() -> None:
    with pytest.raises((ValueError, KernelTypeError), match="broadcast"):
        mixad.grad(lambda x: apply(PRODUCT_PLUS_SINE, x, np.ones(2)).sum())(np.ones(3))


def test_sum_to_a_shape_without_leading_axes() -> None:
    x = np.random.default_rng(0).random((4, 3, 2))
    np.testing.assert_allclose(sum_to(x, (3, 1)), x.sum(axis=(0, 2)).reshape(3, 1))
    assert sum_to(x, (4, 3, 2)) is x


def _unbroadcast(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    lead = array.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and array.shape[i + lead] != 1
    )
    return array.sum(axis=axes).reshape(shape)
