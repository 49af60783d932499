"""Partials that mixad stores by itself, where a dear value is needed before its cotangent."""

from __future__ import annotations

import math
from math import tanh
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.errors import KernelGradientError

RNG = np.random.default_rng(5)
X, Y, W = RNG.uniform(0.2, 0.8, (3, 64))


@mixad.broadcast
def dear(x: float, y: float) -> float:
    z = x
    for _ in range(12):
        z = z - (z - y * math.sin(z) - x) / (1.0 - y * math.cos(z))
    return z


@mixad.broadcast
def dear_pair(x: float, y: float) -> tuple[float, float]:
    z = x
    for _ in range(12):
        z = z - (z - y * math.sin(z) - x) / (1.0 - y * math.cos(z))
    return z, math.exp(z) * y


@mixad.broadcast
def line(x: float, y: float) -> float:
    z = math.sin(math.exp(math.cos(x * y)) + math.sin(math.tanh(x)))
    z = math.sin(math.exp(math.cos(z)) + math.sin(math.tanh(z)))
    return math.sin(math.exp(math.cos(z)) + math.sin(math.tanh(z * y)))


@mixad.broadcast
def cheap(x: float, y: float) -> float:
    return x * y + x


@mixad.broadcast
def wide(a, b, c, d, e, f, g, h, i, j, k, m):  # type: ignore[no-untyped-def]
    if a > 0.5:
        return (tanh(a) + tanh(b) + tanh(c) + tanh(d) + tanh(e) + tanh(f)) + (
            tanh(g) + tanh(h) + tanh(i) + tanh(j) + tanh(k) + tanh(m)
        )
    return (tanh(a) * tanh(b) * tanh(c) * tanh(d) * tanh(e) * tanh(f)) * (
        tanh(g) * tanh(h) * tanh(i) * tanh(j) * tanh(k) * tanh(m)
    )


def gradients_by_hand(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The root z of z − y sin z = x, and its derivatives by the implicit function theorem."""
    z = np.asarray(dear(x, y))
    slope = 1 / (1 - y * np.cos(z))
    return z, slope, np.sin(z) * slope


@pytest.mark.usefixtures("nodes")
def test_a_dear_value_that_is_needed_first_comes_with_its_partials(launches: list[Any]) -> None:
    value, pullback = mixad.vjp(dear, X, Y)
    [(_, made)] = launches
    assert len(made) == 3  # the value, two partials
    dx, dy = pullback(W)
    assert len(launches) == 2
    (contraction,), _ = launches[1]
    assert len(contraction.params) == 3  # two partials, the cotangent
    z, zx, zy = gradients_by_hand(X, Y)
    np.testing.assert_array_equal(value, z)
    np.testing.assert_allclose(dx, zx * W, rtol=1e-12)
    np.testing.assert_allclose(dy, zy * W, rtol=1e-12)
    again, _ = pullback(2 * W)
    np.testing.assert_allclose(again, 2 * zx * W, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("f", "why"),
    [
        (cheap, "evaluating it again is free"),
        (dear.with_options(placement="reverse"), "the user has chosen"),
        (line.with_options(strategy="reverse"), "partials would be made by dual numbers"),
    ],
)
def test_other_values_come_alone(f: Any, why: str, launches: list[Any]) -> None:
    _, pullback = mixad.vjp(f, X, Y)
    [(_, made)] = launches
    assert len(made) == 1, why
    pullback(W)
    assert len(launches) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
def test_a_straight_line_is_dear_enough_where_the_user_has_not_chosen(launches: list[Any]) -> None:
    mixad.vjp(line, X, Y)
    [(_, made)] = launches
    assert len(made) == 3


def test_a_dear_loop_is_refused_in_reverse_though_its_value_is_needed_first() -> None:
    with pytest.raises(KernelGradientError, match="cannot be computed in reverse: this loop"):
        mixad.vjp(dear.with_options(strategy="reverse"), X, Y)


def test_value_and_gradient_of_a_sum_are_one_kernel_still(launches: list[Any]) -> None:
    mixad.value_and_grad(lambda x, y: dear(x, y).sum(), (0, 1))(X, Y)
    assert len(launches) == 1


def test_a_matrix_product_of_dear_values() -> None:
    def loss(x: Any, y: Any) -> Any:
        z = dear(x.reshape((8, 8)), y.reshape((8, 8)))
        return ((z @ z) * W.reshape(8, 8)).sum()

    dx, dy = mixad.grad(loss, (0, 1))(X, Y)
    z, zx, zy = (a.reshape(8, 8) for a in gradients_by_hand(X, Y))
    dz = W.reshape(8, 8) @ z.T + z.T @ W.reshape(8, 8)
    np.testing.assert_allclose(dx, (dz * zx).ravel(), rtol=1e-10)
    np.testing.assert_allclose(dy, (dz * zy).ravel(), rtol=1e-10)


def test_a_value_and_its_sum_are_both_used_and_the_chain_before_it() -> None:
    """What is fused before the dear value has consumers of its own."""

    def loss(x: Any, y: Any) -> Any:
        scaled = x * 0.5
        z = dear(scaled, y)
        total = z.sum()
        if total > 0:  # z and its sum are made now
            total = total * total
        return total + (z * W).sum() + (scaled * scaled).sum()

    dx, dy = mixad.grad(loss, (0, 1))(X, Y)
    z, zx, zy = gradients_by_hand(X * 0.5, Y)
    dz = 2 * z.sum() + W
    np.testing.assert_allclose(dx, 0.5 * dz * zx + 0.5 * X, rtol=1e-10)
    np.testing.assert_allclose(dy, dz * zy, rtol=1e-10)


def test_broadcast_arguments_and_several_results() -> None:
    row = RNG.uniform(0.2, 0.8, (1, 16))
    column = RNG.uniform(0.2, 0.8, (32, 1))
    weights = RNG.uniform(-1, 1, (2, 32, 16))
    (z, e), pullback = mixad.vjp(dear_pair, row, column)
    dx, dy = pullback((weights[0], weights[1]))
    root, zx, zy = gradients_by_hand(*np.broadcast_arrays(row, column))
    np.testing.assert_allclose(e, np.exp(root) * column, rtol=1e-12)
    dz = weights[0] + weights[1] * np.exp(root) * column
    np.testing.assert_allclose(dx, (dz * zx).sum(0, keepdims=True), rtol=1e-10)
    direct = (weights[1] * np.exp(root)).sum(1, keepdims=True)
    np.testing.assert_allclose(dy, (dz * zy).sum(1, keepdims=True) + direct, rtol=1e-10)
    np.testing.assert_array_equal(z, root)


def test_one_result_of_two_is_used() -> None:
    def loss(x: Any, y: Any) -> Any:
        z, _ = dear_pair(x, y)
        return (z * W).sum() if z.sum() > 0 else z.sum()

    def other(x: Any, y: Any) -> Any:
        z, e = dear_pair(x, y)
        return (e * W).sum() if z.sum() > 0 else z.sum()

    z, _, zy = gradients_by_hand(X, Y)
    np.testing.assert_allclose(mixad.grad(loss, 1)(X, Y), zy * W, rtol=1e-10)
    expected = (np.exp(z) * (1 + Y * zy)) * W
    np.testing.assert_allclose(mixad.grad(other, 1)(X, Y), expected, rtol=1e-10)


@pytest.mark.slow
def test_second_derivatives_through_a_value_that_was_needed() -> None:
    def gradient(x: Any) -> Any:
        value, pullback = mixad.vjp(lambda x: dear(x, Y), x)
        return pullback(value)[0]

    z, zx, _ = gradients_by_hand(X, Y)
    # d/dx (z zx) = zx² + z zxx with zxx = −y sin z zx³
    expected = zx**2 - z * Y * np.sin(z) * zx**3
    found = mixad.grad(lambda x: gradient(x).sum())(X)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(mixad.jvp(gradient, (X,), (1.0,))[1], expected, rtol=1e-9)


def test_forward_mode_stores_nothing(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        z = dear(x, Y)
        return z * 2.0 if z.sum() > 0 else z

    _, tangent = mixad.jvp(f, (X,), (W,))
    assert all(len(requests) <= 2 for _, requests in launches)
    np.testing.assert_allclose(tangent, 2 * gradients_by_hand(X, Y)[1] * W, rtol=1e-10)


@pytest.mark.slow
def test_partials_of_more_inputs_than_one_chunk_holds() -> None:
    @mixad.broadcast
    def many(
        a: float, b: float, c: float, d: float, e: float, f: float,
        g: float, h: float, i: float, j: float, k: float, m: float,
    ) -> float:  # fmt: skip
        z = a * b + c * d + e * f + g * h + i * j + k * m
        for _ in range(100):
            z = math.sin(z) + math.exp(-z * z) * math.tanh(z)
        return z

    inputs = list(RNG.uniform(0.1, 0.5, (12, 8)))
    value, pullback = mixad.vjp(many, *inputs)
    for n, gradient in enumerate(pullback(np.ones(8))):
        nudged = [x + 1e-7 * (i == n) for i, x in enumerate(inputs)]
        np.testing.assert_allclose(gradient, (many(*nudged) - value) / 1e-7, rtol=1e-4, atol=1e-5)


@mixad.broadcast
def dear_with_a_factor(a: float, b: float) -> tuple[float, float]:
    z = a
    for _ in range(40):
        z = math.sin(z) + math.exp(-z * z) * math.tanh(z)
    return z * b, z


@pytest.mark.parametrize("placement", ["auto", "forward"])
def test_a_result_that_is_a_partial_and_changes_is_found(placement: Any) -> None:
    f = dear_with_a_factor.with_options(placement=placement)
    for inputs in ((X, Y), (np.tile(X, (6000, 1)), np.tile(Y, (6000, 1)))):
        (_, z), pullback = mixad.vjp(f, *inputs)
        gradient = pullback((np.broadcast_to(W, z.shape), 0.0))[1]
        np.testing.assert_allclose(gradient, W * z, rtol=1e-14)
        z[...] = 100.0
        if z.size < 1 << 14:  # it is computed again
            np.testing.assert_array_equal(pullback((W, 0.0))[1], gradient)
        else:
            with pytest.raises(mixad.errors.TracerError, match="changed in place"):
                pullback((np.broadcast_to(W, z.shape), 0.0))


@pytest.mark.rows("placement", ["auto", "forward", "reverse"])
@pytest.mark.rows("axis", [None, 0, 1])
def test_a_value_beside_its_own_sum(placement: Any, axis: int | None) -> None:
    """The sum is another value, not one that broadcasts."""
    f = mixad.broadcast(lambda a, b: a * b).with_options(placement=placement)
    a = np.arange(6.0).reshape(2, 3) + 1
    b = np.asarray([1.0, 2.0, 3.0])

    def loss(a: Any) -> Any:
        y = f(a, b)
        return (y * y.sum(axis=axis, keepdims=True)).sum()

    y = a * b
    value, gradient = mixad.value_and_grad(loss)(a)
    total = y.sum(axis=axis, keepdims=True)
    assert value == (y * total).sum()
    np.testing.assert_allclose(gradient, 2 * total * b * np.ones_like(y), rtol=1e-14)
    _, tangent = mixad.jvp(lambda a: f(a, b).sum(axis=axis), (a,), (a,))
    np.testing.assert_allclose(tangent, y.sum(axis=axis), rtol=1e-14)


@pytest.mark.parametrize("library", [np, array_api_strict])
def test_a_traced_cotangent_beside_a_plain_one(library: Any) -> None:
    """They are added before partials are multiplied: not by the operator of the plain array."""
    x, y, w = (library.asarray(a) for a in (X, Y, W))
    (z, total), pullback = mixad.vjp(lambda x, y: ((z := dear(x, y)), z.sum()), x, y)
    slope = mixad.grad(lambda c: pullback((w, c))[0].sum())(library.asarray(1.0))
    _, zx, _ = gradients_by_hand(X, Y)
    assert float(slope) == pytest.approx(zx.sum(), rel=1e-12)
    assert float(total) == pytest.approx(np.sum(np.asarray(z)), rel=1e-12)


def test_sums_of_an_inner_transforms_input_that_is_pending_outside() -> None:
    a = np.arange(6.0).reshape(2, 3) + 1

    def outer(x: Any) -> Any:
        return mixad.grad(lambda t: (t * t.sum()).sum())(x * x).sum()

    value, gradient = mixad.value_and_grad(outer)(a)
    assert value == 12 * (a * a).sum()  # d/dt (Σt)² = 2 Σt, six times
    np.testing.assert_allclose(gradient, 24 * a, rtol=1e-14)
    _, pullback = mixad.vjp(lambda x: mixad.vjp(lambda t: t * t.sum(), x * x)[0], a)
    np.testing.assert_allclose(pullback(np.ones((2, 3)))[0], 4 * a * (a * a).sum(), rtol=1e-13)
    _, tangent = mixad.jvp(lambda x: mixad.vjp(lambda t: t.sum(), x * x)[0], (a,), (a,))
    assert tangent == 2 * (a * a).sum()


@mixad.broadcast
def horner(a):
    total = a
    for i in range(3):
        total = 0.5 * total * np.tanh(a) + i
    return total


def test_partials_are_not_stored_with_what_depends_on_the_value_they_belong_to() -> None:
    """A value beside its own sum: its node would have been its own ancestor, and lost the sum."""
    x, g = np.asarray([0.5, -1.5, 0.25]), np.asarray([1.0, -2.0, 0.5])

    def f(x: Any) -> Any:
        h = horner(x)
        return h + 0.25 * h.sum(axis=0, keepdims=True)

    _, pullback = mixad.vjp(f, x)
    step = 1e-6 * np.eye(3)
    slopes = (horner(x + step) - horner(x - step)).diagonal() / 2e-6
    np.testing.assert_allclose(pullback(g)[0], (g + 0.25 * g.sum()) * slopes, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(("strategy", "partials"), [("auto", 0), ("forward", 12)])
def test_wide_partials_are_not_stored_where_reverse_accumulation_makes_them(
    strategy: Any, partials: int, launches: list[Any]
) -> None:
    """Evaluating two passes of dual numbers again would cost more than storing them does."""
    inputs = RNG.uniform(0.2, 0.8, (12, 64))
    value, pullback = mixad.vjp(wide.with_options(strategy=strategy), *inputs)
    [(_, made)] = launches
    assert len(made) == 1 + partials
    t, is_sum = np.tanh(inputs), inputs[0] > 0.5
    np.testing.assert_allclose(value, np.where(is_sum, t.sum(0), t.prod(0)), rtol=1e-13)
    found = np.asarray(pullback(np.ones(64)))
    np.testing.assert_allclose(found, np.where(is_sum, 1, t.prod(0) / t) * (1 - t * t), rtol=1e-12)
