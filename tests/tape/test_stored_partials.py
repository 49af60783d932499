"""Partials with the primal: what is computed when, what is held, and that gradients are right."""

from __future__ import annotations

import functools
import gc
import itertools
import math
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import mixad
from mixad.backends.execute import Kernel
from mixad.errors import KernelGradientError
from mixad.kernel.options import KernelOptions
from mixad.scalar.build import Builder
from mixad.scalar.ir import Const, Program, walk_statements
from mixad.scalar.types import F32, F64
from mixad.special import digamma, polygamma, sin
from mixad.tape.apply import apply_program
from mixad.tape.cell import Cell
from mixad.tape.fusion import value_of
from mixad.tape.kernel_node import KernelNode, Partials
from mixad.tape.partials_plan import plan_forward
from mixad.testing import Recipe, random_arguments, random_program

from .conftest import program

EXAMPLES = 60

FORWARD = KernelOptions(placement="forward")
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(0.5, 2, (2, 4))


@mixad.broadcast(placement="forward")
def wave(x: float, y: float) -> float:
    if x > y:
        return math.sin(x) * y
    return math.exp(x * y)


def wave_gradient(x: Any, y: Any) -> Any:
    """∂/∂x and ∂/∂y of `wave`, by hand."""
    above = x > y
    e = np.exp(x * y)
    return np.where(above, np.cos(x) * y, y * e), np.where(above, np.sin(x), x * e)


def wave_hessian(x: Any, y: Any) -> Any:
    """∂²/∂x², ∂²/∂x∂y, ∂²/∂y²."""
    above, e = x > y, np.exp(x * y)
    return (
        np.where(above, -np.sin(x) * y, y * y * e),
        np.where(above, np.cos(x), (1 + x * y) * e),
        np.where(above, 0.0, x * x * e),
    )


def test_the_gradient_is_that_of_the_formula() -> None:
    dx, dy = mixad.grad(lambda x, y: wave(x, y).sum(), (0, 1))(X, Y)
    ex, ey = wave_gradient(X, Y)
    np.testing.assert_allclose(dx, ex, rtol=1e-14)
    np.testing.assert_allclose(dy, ey, rtol=1e-14)


def test_one_kernel_makes_value_and_partials_one_more_the_gradients(launches: list[Any]) -> None:
    value, (dx, dy) = mixad.value_and_vjp(lambda x, y: wave(x, y), (X, Y), np.ones(4))
    assert len(launches) == 2
    (dual, stored), (contraction, requests) = launches
    assert len(dual) == 1
    assert len(stored) == 3  # the value, two partials
    assert len(contraction[0].params) == 3  # two partials, the cotangent
    assert len(requests) == 2
    np.testing.assert_allclose(value, np.where(X > Y, np.sin(X) * Y, np.exp(X * Y)), rtol=1e-14)
    np.testing.assert_allclose([dx, dy], wave_gradient(X, Y), rtol=1e-14)


@pytest.mark.usefixtures("fresh")
def test_a_value_that_is_used_brings_its_partials_along(launches: list[Any]) -> None:
    w = RNG.uniform(-1, 1, (4, 2))
    dx = mixad.grad(lambda x, y: (wave(x, y) @ w).sum())(X, Y)
    assert len(launches) == 2
    np.testing.assert_allclose(dx, wave_gradient(X, Y)[0] * w.sum(1), rtol=1e-13)


@pytest.mark.usefixtures("fresh")
def test_a_value_that_nobody_holds_is_not_stored(launches: list[Any]) -> None:
    mixad.grad(lambda x, y: wave(x, y).sum(), (0, 1))(X, Y)
    [(_, stored), _] = launches
    assert [(r.result, r.shape) for r in stored] == [(1, None), (2, None)]  # the partials


@pytest.mark.usefixtures("fresh")
def test_no_partials_are_stored_that_no_cotangent_reaches(launches: list[Any]) -> None:
    gradient, aux = mixad.grad(lambda x: ((x * x).sum(), wave(x, Y)), has_aux=True)(X)
    np.testing.assert_array_equal(gradient, 2 * X)
    np.testing.assert_allclose(aux, np.where(X > Y, np.sin(X) * Y, np.exp(X * Y)), rtol=1e-14)
    assert sum(len(requests) for _, requests in launches) == 2


PLANS: dict[str, tuple[Callable[..., Any], int, int, list[dict[int, Any]]]] = {
    # outputs, number of params, stored arrays, where each partial is
    "sums have constant partials": (lambda b, x, y: b.op("sub", x, y), 2, 1, [{0: 1.0, 1: -1.0}]),
    "partials of a product are its factors": (
        lambda b, x, y: b.op("mul", x, y), 2, 1, [{0: 1, 1: 0}]),
    "exp is its own partial": (lambda b, x: b.op("exp", x), 1, 1, [{0: 1}]),
    "zeros do not exist": (lambda b, x, y: (b.op("floor", x), y), 2, 2, [{}, {1: 1.0}]),
    "equal partials are stored once": (
        lambda b, x, y: b.op("sin", b.op("add", x, y)), 2, 2, [{0: 3, 1: 3}]),
    "what is no float has none": (
        lambda b, x: (b.op("isnan", x), b.op("exp", x)), 1, 2, [{}, {0: 2}]),
}  # fmt: skip


@pytest.mark.rows("what", PLANS)
def test_only_what_exists_nowhere_else_is_stored(what: str) -> None:
    build, count, stored, places = PLANS[what]
    plan = plan_forward(program(build, count=count), tuple(range(count)), FORWARD)
    assert sum(len(p.outputs) for p in plan.passes) == stored
    found = [
        {n: at.value if isinstance(at, Const) else at for n, at in row.items()}
        for row in plan.partials
    ]
    assert found == places


@pytest.mark.usefixtures("nodes")
def test_arguments_are_let_go_and_partials_after_use() -> None:
    """Reverse mode holds the inputs of every node; stored partials replace them."""
    cells: list[weakref.ref[Cell]] = []
    root = program(lambda b, x: b.op("sin", b.op("mul", x, x)), count=1)

    def f(x: Any) -> Any:
        for _ in range(10):
            x = apply_program(root, (x,), FORWARD)[0]
            cells.append(weakref.ref(x.cell))
            bool(x[0] > 0)  # run now
        held.append(sum(ref() is not None for ref in cells))
        return x.sum()

    held: list[int] = []
    gc.disable()
    try:
        mixad.grad(f)(X)
        assert held == [1]  # the last value only: no node holds an intermediate
        assert not any(ref() for ref in cells)
    finally:
        gc.enable()


@pytest.mark.usefixtures("nodes")
def test_as_many_arrays_are_held_as_there_are_partials(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []
    call = Kernel.__call__

    def counted(self: Kernel, *args: Any) -> Any:
        arrays = call(self, *args)
        made.extend(map(weakref.ref, arrays))
        return arrays

    monkeypatch.setattr(Kernel, "__call__", counted)
    steps = 5

    def f(x: Any, y: Any) -> Any:
        for _ in range(steps):
            x = wave(x, y)
            bool(x[0] > 0)
        alive.append(sum(ref() is not None for ref in made))
        return x.sum()

    alive: list[int] = []
    mixad.grad(f, (0, 1))(X * 0.1, Y * 0.1)
    assert alive == [2 * steps + 1]  # two partials a step, and the last value


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("placement", ["forward", "auto"])
def test_nothing_interleaved_is_retained(placement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partials are arrays of their own, as values are: no array of dual numbers."""
    arrays: list[Any] = []
    store = KernelNode.store

    def noted(self: KernelNode, partials: Partials, *args: Any) -> None:
        store(self, partials, *args)
        arrays.extend(value_of(array) for array in partials.arrays if array is not None)

    monkeypatch.setattr(KernelNode, "store", noted)

    @mixad.broadcast(placement=placement)
    def root(x, y):
        z = x
        for _ in range(12):
            z = z - (z - 0.1 * y * math.sin(z) - x) / (1.0 - 0.1 * y * math.cos(z))
        return z

    x, y = np.broadcast_to(X[:, None], (4, 3)), Y[:3]
    _, pullback = mixad.vjp(lambda x: root(x, y).sum() + (root(x, x) ** 2).sum(), x.copy())
    assert len(arrays) >= 2
    for at, array in enumerate(arrays):
        assert (array.shape, array.dtype, array.strides) == ((4, 3), np.float64, (24, 8))
        assert not any(np.may_share_memory(array, other) for other in arrays[:at])
    assert np.all(np.isfinite(pullback(1.0)[0]))


def test_what_partials_do_not_read_is_read_by_other_nodes() -> None:
    """A node with partials lets go of its argument, which another node of the pass needs."""
    both = mixad.broadcast(lambda a, b: sin(a) * b).with_options(placement="forward")
    x = np.linspace(0.1, 1.0, 1 << 15)
    _, pull = mixad.vjp(lambda x: both(x, np.cumsum(x * x)), x)
    later = np.cumsum(np.sin(x)[::-1])[::-1]
    want = np.cos(x) * np.cumsum(x * x) + 2 * x * later
    np.testing.assert_allclose(pull(np.ones_like(x))[0], want, rtol=1e-11)


@pytest.mark.usefixtures("nodes")
def test_partials_are_freed_as_the_backward_pass_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []
    call = Kernel.__call__

    def watched(self: Kernel, *args: Any) -> Any:
        alive.append(sum(ref() is not None for ref in made))
        arrays = call(self, *args)
        made.extend(map(weakref.ref, arrays))
        return arrays

    steps = 5

    def f(x: Any, y: Any) -> Any:
        for _ in range(steps):
            x = wave(x, y)
            bool(x[0] > 0)
        alive.clear()
        return x @ np.ones(4)

    monkeypatch.setattr(Kernel, "__call__", watched)
    gc.disable()
    try:
        mixad.grad(f, (0, 1))(X * 0.1, Y * 0.1)
    finally:
        gc.enable()
    assert alive[0] <= 2 * steps + 1
    contractions = alive[-steps + 1 :]  # after the first, which made two cotangents
    assert all(before - after >= 2 for before, after in itertools.pairwise(contractions))
    assert contractions[-1] <= 4  # both partials of the first step, and both cotangents


@pytest.mark.parametrize("count", [10, 11, 25])
def test_more_than_ten_inputs_take_several_dual_programs(count: int, launches: list[Any]) -> None:
    def build(b: Builder, *xs: Any) -> Any:
        return b.op("sin", functools.reduce(lambda out, x: b.op("mul", out, x), xs))

    xs = RNG.uniform(0.9, 1.1, (count, 6))
    sine = program(build, count=count)
    gradients = mixad.grad(
        lambda *xs: apply_program(sine, xs, FORWARD)[0].sum(), tuple(range(count))
    )(*xs)
    assert [len(passes) for passes, _ in launches] == [-(-count // 10), 1]
    product = np.prod(xs, axis=0)
    np.testing.assert_allclose(gradients, np.cos(product) * product / xs, rtol=1e-12)


@pytest.mark.slow
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4, min_side=0), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_gradients_are_summed_over_broadcast_axes(shapes: Any, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = (rng.uniform(-1, 1, shape) for shape in shapes.input_shapes)
    weights = rng.uniform(-1, 1, shapes.result_shape)
    _, gradients = mixad.value_and_vjp(lambda x, y: wave(x, y), (x, y), weights)
    for found, partial, like in zip(gradients, wave_gradient(x, y), (x, y), strict=True):
        full = np.broadcast_to(weights * partial, shapes.result_shape)
        np.testing.assert_allclose(found, _unbroadcast(full, like.shape), rtol=1e-11, atol=1e-12)
        assert found.shape == like.shape


def test_a_cotangent_that_broadcasts_meets_constant_partials() -> None:
    total = program(lambda b, x, y: b.op("add", x, y), count=2)
    x, y = np.ones((3, 1)), np.ones(4)
    dx, dy = mixad.grad(lambda x, y: apply_program(total, (x, y), FORWARD)[0].sum(), (0, 1))(x, y)
    np.testing.assert_array_equal(dx, np.full((3, 1), 4.0))
    np.testing.assert_array_equal(dy, np.full(4, 3.0))


def test_uniform_params_take_numbers_and_traced_numbers() -> None:
    scaled: Any = lambda x, s: wave(x, s).sum()  # noqa: E731
    dx, ds = mixad.grad(scaled, (0, 1))(X, 1.2)
    ex, es = wave_gradient(X, 1.2)
    np.testing.assert_allclose(dx, ex, rtol=1e-14)
    np.testing.assert_allclose(ds, es.sum(), rtol=1e-14)
    np.testing.assert_allclose(mixad.grad(scaled)(X, 1.2), ex, rtol=1e-14)


SMOOTH = ("add", "sub", "mul", "div", "neg", "sin", "tanh", "exp", "log1p", "sigmoid", "sqrt",
          "where", "lt", "minimum", "convert")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize("scalar_type", [F32, F64], ids=str)
def test_random_programs_have_the_gradients_of_reverse_placement(
    scalar_type: Any, chunk: int | None
) -> None:
    recipe = Recipe(types=(scalar_type,), ops=SMOOTH, statements=8, depth=2, uniforms=False)
    found = [_both_placements(random_program(seed, recipe), chunk) for seed in range(15)]
    compared = [pair for pairs in found for pair in pairs]
    assert len(compared) >= 10
    for forward, reverse in compared:
        finite = np.isfinite(reverse)
        np.testing.assert_array_equal(forward[~finite], reverse[~finite])
        assert forward.dtype == reverse.dtype == scalar_type.dtype
        np.testing.assert_array_almost_equal_nulp(forward[finite], reverse[finite], nulp=2)


def test_zero_cotangent_gives_zero_gradient_at_a_singularity() -> None:
    root = program(lambda b, x: b.op("sqrt", x), count=1)
    _, (dx,) = mixad.value_and_vjp(
        lambda x: apply_program(root, (x,), FORWARD)[0],
        (np.asarray([0.0, 4.0]),),
        np.asarray([0.0, 1.0]),
    )
    np.testing.assert_array_equal(dx, [0.0, 0.25])


@pytest.mark.slow
def test_several_outputs_are_contracted_together(launches: list[Any]) -> None:
    polar = mixad.broadcast(
        lambda r, t: (r * math.cos(t), r * math.sin(t), r > 1.0), placement="forward"
    )
    seen = []

    def f(r: Any, t: Any) -> Any:
        x, y, far = polar(r, t)
        seen.append(far)
        return x * 5 + y * 7

    _, (dr, dt) = mixad.value_and_vjp(f, (X, Y), np.ones(4))
    np.testing.assert_allclose(dr, 5 * np.cos(Y) + 7 * np.sin(Y), rtol=1e-13)
    np.testing.assert_allclose(dt, X * (-5 * np.sin(Y) + 7 * np.cos(Y)), rtol=1e-13)
    np.testing.assert_array_equal(seen[0], X > 1)


def test_an_output_without_a_cotangent_is_not_contracted(launches: list[Any]) -> None:
    polar = mixad.broadcast(lambda r, t: (r * math.cos(t), r * math.sin(t)), placement="forward")
    dt = mixad.grad(lambda t: polar(2.0, t)[0].sum())(Y)
    np.testing.assert_allclose(dt, -2 * np.sin(Y), rtol=1e-13)
    assert len(launches[-1][0][0].params) == 2


def test_the_pullback_of_vjp_is_called_any_number_of_times(launches: list[Any]) -> None:
    x, y = np.tile(X, 6000), np.tile(Y, 6000)  # which are not computed again
    _, pullback = mixad.vjp(wave, x, y)
    ex, ey = wave_gradient(x, y)
    for scale in (1.0, -3.0):
        dx, dy = pullback(np.full(24000, scale))
        np.testing.assert_allclose(dx, scale * ex, rtol=1e-14)
        np.testing.assert_allclose(dy, scale * ey, rtol=1e-14)
    assert len(launches) == 3


# -- derivatives of derivatives ------------------------------------------------------------------

PLACEMENTS = list(itertools.product(["forward", "reverse"], repeat=2))


@pytest.mark.parametrize(("first", "second"), PLACEMENTS)
def test_second_derivatives_in_any_mix_of_placements(first: str, second: str) -> None:
    a, b = (wave.with_options(placement=p) for p in (first, second))

    def slope(x: Any, y: Any) -> Any:  # Σ (∂ₓw + ∂ᵧw) · w
        dx, dy = mixad.grad(lambda x, y: a(x, y).sum(), (0, 1))(x, y)
        return ((dx + dy) * b(x, y)).sum()

    found = mixad.grad(slope, (0, 1))(X, Y)
    w = np.where(X > Y, np.sin(X) * Y, np.exp(X * Y))
    wx, wy = wave_gradient(X, Y)
    wxx, wxy, wyy = wave_hessian(X, Y)
    np.testing.assert_allclose(found[0], (wxx + wxy) * w + (wx + wy) * wx, rtol=1e-12)
    np.testing.assert_allclose(found[1], (wxy + wyy) * w + (wx + wy) * wy, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_any_order(order: int) -> None:
    fifth = mixad.broadcast(lambda x: x * x * x * x * x, placement="forward")
    f: Any = fifth
    for _ in range(order):
        f = mixad.grad(f)
    assert f(2.0) == math.prod(range(6 - order, 6)) * 2.0 ** (5 - order)


def test_second_derivatives_with_broadcasting_and_chunks() -> None:
    cube = mixad.broadcast(lambda x, y, z: x * x * y * z, placement="forward", chunk=1)
    x, y, z = RNG.uniform(1, 2, (3, 1)), RNG.uniform(1, 2, 4), 1.5

    def slope(x: Any, y: Any, z: Any) -> Any:  # Σᵢ (Σⱼ 2 x y z)
        return mixad.grad(lambda x: cube(x, y, z).sum())(x).sum()

    dx, dy, dz = mixad.grad(slope, (0, 1, 2))(x, y, z)
    np.testing.assert_allclose(dx, np.full((3, 1), 2 * z * y.sum()), rtol=1e-13)
    np.testing.assert_allclose(dy, np.full(4, 2 * z * x.sum()), rtol=1e-13)
    np.testing.assert_allclose(dz, 2 * x.sum() * y.sum(), rtol=1e-13)


def test_perturbations_are_not_confused() -> None:
    product = mixad.broadcast(lambda x, y: x * y * y, placement="forward")
    # d/dx [x · d/dy (x y²)] at y = x is d/dx (x · 2 x²) = 6 x²
    assert mixad.grad(lambda x: x * mixad.grad(lambda y: product(x, y))(x))(3.0) == 54.0


def test_a_level_that_does_not_reach_the_arguments_costs_nothing(launches: list[Any]) -> None:
    """Only what two transforms differentiate needs second derivatives."""
    steep = mixad.broadcast(lambda x: digamma(x), placement="forward")

    def f(s: Any) -> Any:
        return s * mixad.grad(lambda x: steep(x).sum())(X).sum()

    assert mixad.grad(f)(1.0) > 0
    programs = [p for passes, _ in launches for p in passes]
    ops = {getattr(s, "op", None) for p in programs for s in walk_statements(p.body)}
    assert "trigamma" in ops
    assert "polygamma" not in ops


def test_a_second_derivative_that_is_missing_is_refused() -> None:
    steep = mixad.broadcast(lambda n, x: polygamma(n, x), placement="forward")

    def slope(n: Any) -> Any:
        return mixad.grad(lambda x: steep(n, x).sum())(X)

    assert slope(np.ones(4)).shape == (4,)
    with pytest.raises(KernelGradientError, match="polygamma with respect to its argument 1"):
        mixad.grad(lambda n: slope(n).sum())(np.ones(4))


# -- explain and source --------------------------------------------------------------------------


def test_explain_tells_of_both_kernels() -> None:
    x, y = np.ones((2, 50, 30))
    tanh_of_sum = mixad.broadcast(lambda x, y: math.tanh(x) * y, placement="forward")
    explained = tanh_of_sum.explain(x, y)
    size = 8 * 1500
    assert explained.placement == "forward"
    assert explained.chunks == (2,)
    assert explained.bytes_read == 2 * size + 3 * size  # x, y; two partials, the cotangent
    assert explained.bytes_written == 3 * size + 2 * size  # value, two partials; two gradients
    mixad.value_and_vjp(tanh_of_sum, (x, y), np.ones((50, 30)))
    assert tanh_of_sum.explain(x, y).cached
    assert tanh_of_sum.with_options(placement="auto").explain(x, y).placement == "reverse"


def test_explain_of_zeros_and_chunks() -> None:
    steps = mixad.broadcast(lambda x, y, z: math.floor(x) * y * z, placement="forward", chunk=2)
    explained = steps.explain(X, X, X)
    assert explained.static_zeros == ("x",)
    assert explained.chunks == (1, 1)
    nothing = mixad.broadcast(lambda x: math.floor(x), placement="forward").explain(X)
    assert nothing.static_zeros == ("x",)
    assert nothing.chunks == ()


def test_the_source_of_the_pullback_is_the_contraction() -> None:
    text = wave.source(X, Y, stage="pullback")
    assert "mul_zero" in text
    assert "exp" not in text
    assert wave.source(X, Y, stage="llvm").count("define") >= 2


def _both_placements(p: Program, chunk: int | None) -> list[tuple[Any, Any]]:
    """Return the gradients of a program's float arrays by forward and by reverse placement."""
    arguments = random_arguments(p, 0, 20)
    active = [i for i, q in enumerate(p.params) if q.kind == "lane" and q.var.type.is_float]
    outputs = [m for m, out in enumerate(p.outputs) if out.type.is_float]
    if not active or not outputs:
        return []

    def gradients(placement: Any) -> Any:
        def f(*xs: Any) -> Any:
            given = dict(zip(active, xs, strict=True))
            values = [given.get(i, a) for i, a in enumerate(arguments)]
            found = apply_program(p, values, KernelOptions(placement=placement, chunk=chunk))
            return [found[m] for m in outputs]

        weights = [np.linspace(-1, 1, 20, dtype=p.outputs[m].type.dtype) for m in outputs]
        return mixad.value_and_vjp(f, [arguments[i] for i in active], weights)[1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some depend on no argument
        return list(zip(gradients("forward"), gradients("reverse"), strict=True))


def _unbroadcast(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    lead = array.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and array.shape[i + lead] != 1
    )
    return array.sum(axis=axes).reshape(shape)
