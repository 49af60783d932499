"""Dual chunks or reverse accumulation: which is taken, and that both give the same."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest

import mixad
from mixad.kernel.options import Mode, Placement
from mixad.scalar.build import Builder
from mixad.scalar.types import F64
from mixad.tape.pullback_plan import plan_pullback

from .conftest import program

STRATEGIES = ("forward", "reverse", "auto")
COUNT = 12
RNG = np.random.default_rng(0)
XS = tuple(RNG.uniform(0.2, 1.2, (COUNT, 5)))


@mixad.broadcast
def product(a, b, c, d, e, f, g, h, i, j, k, m):
    if a > 0.6:
        return a * b * c * d * e * f * g * h * i * j * k * m
    return math.exp(a * b) / (c + d * e) + math.sqrt(f * g) * h - i * j * k * m


@mixad.broadcast
def sum_of_powers(a, b, c, d, e, f, g, h, i, j, k, n):
    total = 0.0
    for _ in range(2):
        total = total * a + a * b + c * d + e * f + g * h + i * j * k * n
    return total


def expected(xs: Any) -> list[Any]:
    """The gradients of `product`, by hand; of complex numbers, in the branches of real parts."""
    a, b, c, d, e, f, g, h, i, j, k, m = xs
    whole, low, slope, root = np.prod(xs, axis=0), c + d * e, np.exp(a * b), np.sqrt(f * g)
    small = [b * slope / low, a * slope / low, -slope / low**2, -e * slope / low**2,
             -d * slope / low**2, g * h / (2 * root), f * h / (2 * root), root, -j * k * m,
             -i * k * m, -i * j * m, -i * j * k]  # fmt: skip
    return [np.where(a.real > 0.6, whole / x, s) for x, s in zip(xs, small, strict=True)]


# -- which -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_auto_takes_reverse_beyond_one_dual_chunk() -> None:
    names = "abcdefghijkm"
    for count in range(1, COUNT + 1):
        explained = product.explain(*XS, wrt=tuple(names[:count]))
        assert explained.strategy == ("reverse" if count > 10 else "forward")
        assert explained.chunks == (count,)
    assert "strategy:     reverse, gradients per pass: 12" in str(product.explain(*XS))


@pytest.mark.slow
def test_auto_keeps_dual_numbers_through_loops_and_in_chunks_that_are_asked_for() -> None:
    assert sum_of_powers.explain(*XS).strategy == "forward"
    assert sum_of_powers.explain(*XS).chunks == (6, 6)
    chunked = product.with_options(chunk=4).explain(*XS)
    assert (chunked.strategy, chunked.chunks) == ("forward", (4, 4, 4))


@pytest.mark.parametrize(("outputs", "strategy"), [(1, "reverse"), (40, "forward")])
def test_auto_counts_outputs(outputs: int, strategy: str) -> None:
    """Of a long chain after a sum of eleven inputs: each output has a walk back along it."""

    def build(b: Builder, *xs: Any) -> list[Any]:
        chain = xs[0]
        for x in xs[1:]:
            chain = b.op("add", chain, x)
        for _ in range(20):
            chain = b.op("mul", chain, b.op("add", chain, xs[0]))
        return [b.op("mul", chain, b.const(2.0 + k, F64)) for k in range(outputs)]

    chosen = plan_pullback(
        program(build, count=11), tuple(range(11)), tuple(range(outputs)), Mode()
    )
    assert chosen.strategy == strategy


# -- what ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_are_those_by_hand(strategy: str) -> None:
    kernel = product.with_options(strategy=strategy)
    cotangent = RNG.standard_normal(5)
    _, gradients = mixad.value_and_vjp(kernel, XS, cotangent)
    for got, want in zip(gradients, expected(XS), strict=True):
        np.testing.assert_allclose(got, cotangent * want, rtol=1e-13)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_of_what_broadcasts_are_summed(strategy: str) -> None:
    kernel = product.with_options(strategy=strategy)
    xs = [x if n % 3 else x[:1] for n, x in enumerate(XS)]
    xs[4] = np.stack([XS[4], XS[5]])
    gradients = mixad.grad(lambda *xs: kernel(*xs).sum(), argnums=tuple(range(COUNT)))(*xs)
    whole = np.broadcast_arrays(*xs)
    for n, (got, want) in enumerate(zip(gradients, expected(np.array(whole)), strict=True)):
        kept = want.sum(axis=0) if n != 4 else want
        np.testing.assert_allclose(
            got, kept.sum(axis=-1, keepdims=True) if n % 3 == 0 else kept, rtol=1e-13
        )


@pytest.mark.rows(
    ("placement", "strategy"),
    [p for p in itertools.product(get_args(Placement), STRATEGIES) if p != ("forward", "reverse")],
)
def test_placements_go_with_strategies(placement: str, strategy: str) -> None:
    """All but partials with the primal, which are dual numbers (`tests/refusals`)."""
    kernel = product.with_options(strategy=strategy, placement=placement)
    _, pullback = mixad.vjp(kernel, *XS)
    for got, want in zip(pullback(np.ones(5)), expected(XS), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hessian_vector_products_forward_and_reverse_over_reverse(strategy: str) -> None:
    """Against differences of the gradients by hand, by complex steps."""
    kernel = product.with_options(strategy=strategy)
    vs = tuple(RNG.standard_normal((COUNT, 5)))
    step = 1e-30
    moved = [x + step * 1j * v for x, v in zip(XS, vs, strict=True)]
    want = [g.imag / step for g in expected(moved)]

    def loss(*xs: Any) -> Any:
        return kernel(*xs).sum()

    def along(*xs: Any) -> Any:
        gradients = mixad.grad(loss, argnums=tuple(range(COUNT)))(*xs)
        return sum((g * v).sum() for g, v in zip(gradients, vs, strict=True))

    over = mixad.jvp(mixad.grad(loss, argnums=tuple(range(COUNT))), XS, vs)[1]
    under = mixad.grad(along, argnums=tuple(range(COUNT)))(*XS)
    for forward, reverse, exact in zip(over, under, want, strict=True):
        np.testing.assert_allclose(forward, exact, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(reverse, exact, rtol=1e-11, atol=1e-12)


# -- groups ----------------------------------------------------------------------------------------


def loss_of_many(xs: Any, weight: Any) -> Any:
    """A sum over terms that read sixteen inputs, two kernels and operators between them."""
    first = product(*xs[:12])
    second = weight(xs[12] * first, xs[13]) + xs[14] * first * xs[15]
    return (second * second).sum()


def gradients_of_many(xs: Any, weight: Any) -> Any:
    argnums = tuple(range(16))
    return mixad.grad(lambda *xs: loss_of_many(xs, weight), argnums=argnums)(*xs)


MANY = tuple(RNG.uniform(0.2, 1.2, (16, 5)))
plain_weight = mixad.broadcast(lambda x, y: x * math.tanh(y))


def many_by_hand(slope: Any, weight: Any) -> list[Any]:
    """Gradients of `loss_of_many`: ``weight`` is w(y) in w(y) · x, ``slope`` its derivative."""
    first = np.where(MANY[0] > 0.6, np.prod(MANY[:12], axis=0), product(*MANY[:12]))
    p, q, r, s = MANY[12:]
    outer = 2 * (weight(q) * p * first + r * first * s)
    inner = outer * (weight(q) * p + r * s)
    return [
        *(inner * g for g in expected(MANY[:12])),
        outer * weight(q) * first, outer * slope(q) * p * first, outer * first * s,
        outer * r * first,
    ]  # fmt: skip


def test_a_group_without_loops_takes_more_inputs_than_a_dual_chunk(launches: list[Any]) -> None:
    gradients = gradients_of_many(MANY, plain_weight)
    assert len(launches) == 1
    for got, want in zip(
        gradients, many_by_hand(lambda y: 1 - np.tanh(y) ** 2, np.tanh), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@mixad.broadcast
def looped_weight(x, y):
    weight = 1.0
    for _ in range(3):
        weight = weight * y
    return x * weight


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loop_joins_no_group_that_would_need_reverse(
    strategy: str, launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "product", product.with_options(strategy=strategy))
    gradients = gradients_of_many(MANY, looped_weight)
    assert len(launches) > 1
    for got, want in zip(gradients, many_by_hand(lambda y: 3 * y * y, lambda y: y**3), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
