"""The backward pass: order, accumulation, depth, levels."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.tape import backward
from mixad.tape.gradient_plan import GradientPlan
from mixad.transforms import gradients

X = np.asarray([0.5, -1.5])


def test_cotangents_of_a_value_used_twice_add() -> None:
    def f(x: Any) -> Any:
        y = x * 3.0
        return (y * y + y).sum()

    np.testing.assert_allclose(mixad.grad(f)(X), 18 * X + 3)


def test_the_same_argument_twice() -> None:
    np.testing.assert_array_equal(mixad.grad(lambda x: (x - x).sum())(X), [0.0, 0.0])
    np.testing.assert_array_equal(mixad.grad(lambda x: (x * x).sum())(X), 2 * X)


@pytest.mark.slow
def test_ten_thousand_operations_need_no_recursion() -> None:
    def f(x: Any) -> Any:
        for _ in range(10_000):
            x = x + 1e-4
        return (x * x).sum()

    np.testing.assert_allclose(mixad.grad(f)(X), 2 * (X + 1), rtol=1e-9)


def test_a_diamond_is_visited_once_per_node() -> None:
    def f(x: Any) -> Any:
        for _ in range(60):  # 2⁶⁰ paths
            x = x + x
        return x.sum()

    np.testing.assert_array_equal(mixad.grad(f)(X), [2.0**60, 2.0**60])


def test_nodes_are_freed_on_the_way() -> None:
    held: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def f(x: Any) -> Any:
        for _ in range(20):
            x = x * x * 0.5
            bool(x[0] > 0)  # run now
            held.append(weakref.ref(x.cell))
        return x.sum()

    launch = GradientPlan.arrays

    def watched(self: Any, *args: Any) -> Any:
        alive.append(sum(ref() is not None for ref in held))
        return launch(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradientPlan, "arrays", watched)
        patch.setattr(gradients, "open_strand", lambda *given: None)
        for _ in range(2):  # planned, and remembered
            held.clear()
            alive.clear()
            mixad.grad(f)(X)
            assert alive == sorted(alive, reverse=True)
            assert alive[-1] < alive[0] - 15


def test_perturbations_are_not_confused() -> None:
    assert mixad.grad(lambda x: x * mixad.grad(lambda y: x + y)(1.0))(1.0) == 1.0


def test_an_inner_gradient_that_depends_on_the_outer_variable() -> None:
    # d/dx [x · d/dy (x y²)] at y = x is d/dx (x · 2 x²) = 6 x²
    assert mixad.grad(lambda x: x * mixad.grad(lambda y: x * y * y)(x))(3.0) == 54.0


@pytest.mark.parametrize(("order", "expected"), [(1, 80.0), (2, 160.0), (3, 240.0), (4, 240.0)])
def test_derivatives_of_x_to_the_fifth(order: int, expected: float) -> None:
    f: Any = lambda x: x * x * x * x * x  # noqa: E731
    for _ in range(order):
        f = mixad.grad(f)
    assert f(2.0) == expected


def test_a_closure_over_an_outer_tracer_through_three_levels() -> None:
    def f(x: Any) -> Any:
        return mixad.grad(lambda y: mixad.grad(lambda z: x * y * z * z)(y) * x)(x)

    # ∂z = 2xyz at z=y: 2xy²; times x: 2x²y²; ∂y: 4x²y at y=x: 4x³; d/dx: 12x²
    assert f(2.0) == 32.0
    assert mixad.grad(f)(2.0) == 48.0


def test_a_hessian_from_nested_gradients() -> None:
    def rosenbrock(x: Any) -> Any:
        return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()

    point = np.asarray([-1.2, 1.0])
    rows = [mixad.grad(lambda x, i=i: mixad.grad(rosenbrock)(x)[i])(point) for i in range(2)]
    expected = [[1200 * 1.44 - 400 + 2, 480.0], [480.0, 200.0]]
    np.testing.assert_allclose(rows, expected, rtol=1e-13)


def test_threads_do_not_see_each_other() -> None:
    results: dict[int, float] = {}

    def work(n: int) -> None:
        f: Any = lambda x: x**2 * float(n)  # noqa: E731
        results[n] = [float(mixad.grad(mixad.grad(f))(1.0)) for _ in range(30)][-1]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: 2.0 * n for n in range(4)}


def test_cotangents_that_the_user_holds_are_not_added_into() -> None:
    rng = np.random.default_rng(3)
    x, m, g = rng.random((4, 4)), rng.random((4, 4)), rng.random((4, 4))
    before = g.copy()
    _, pullback = mixad.vjp(lambda x: x + x @ m + (x * 1.0).reshape(4, 4), x)
    first = pullback(g)[0]
    np.testing.assert_array_equal(g, before)
    np.testing.assert_allclose(first, 2 * g + g @ m.T, rtol=1e-14)
    np.testing.assert_array_equal(pullback(g)[0], first)


def test_large_cotangents_are_added_in_the_memory_of_one_of_them() -> None:
    size = 512
    rng = np.random.default_rng(4)
    x, factors = rng.random((size, size)), [rng.random((size, 3)) for _ in range(8)]
    made: list[int] = []
    together = backward.together

    def seen(*given: Any) -> Any:
        found = together(*given)
        made.append(found.value.__array_interface__["data"][0])
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backward, "together", seen)
        patched.setattr(gradients, "open_strand", lambda *given: None)
        gradient = mixad.grad(lambda x: sum((x @ f).sum() for f in factors))(x)
    np.testing.assert_allclose(gradient, np.tile(sum(factors).sum(axis=1), (size, 1)), rtol=1e-12)
    assert len(made) == len(factors) - 1
    assert len(set(made)) == 1


def test_values_are_let_go_of_when_they_have_been_read(monkeypatch):
    monkeypatch.setattr(gradients, "open_strand", lambda *given: None)

    def f(x):
        y = x
        for _ in range(10):
            y = np.cumsum(np.sin(y)) * 1e-3 * x
        return y.sum()

    x = np.random.default_rng(0).uniform(0.2, 1.0, (1 << 18) + 8)
    mixad.grad(f)(x)
    gc.collect()
    tracemalloc.start()
    mixad.grad(f)(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10.5 * x.nbytes  # ten sums; the first that is read makes room for its cotangent
