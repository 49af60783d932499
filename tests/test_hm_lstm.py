"""The main job: the cell update of a hierarchical multiscale LSTM, and its gradient.

Independent sources: formulas derived by hand in NumPy f64, central differences, PyTorch, JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest

import mixad
from mixad.kernel.options import Strategy
from mixad.special import sigmoid, tanh

ROWS, COLUMNS = 37, 51  # neither a multiple of a vector, nor equal: a transposed index is seen
ACTIVE = ("c", "f", "i", "g")
NAMES = ("z", "zb", *ACTIVE)
LAYOUTS = {"row": (ROWS, 1), "column": (COLUMNS,), "full": (ROWS, COLUMNS)}
MAX_ULP = {np.float32: 8.0, np.float64: 16.0}  # three or four roundings, products of ≤ 4-ulp ops
CHUNKS = range(1, 11)


dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
layouts = pytest.mark.parametrize("layout", LAYOUTS)


@mixad.broadcast
def cell_update(z, zb, c, f, i, g):
    if z == 1.0:  # FLUSH
        return sigmoid(i) * tanh(g)
    elif zb == 0.0:  # COPY
        return c
    return sigmoid(f) * c + sigmoid(i) * tanh(g)  # UPDATE


@dataclass(frozen=True)
class Inputs:
    """Six arrays and a cotangent."""

    z: Any
    zb: Any
    c: Any
    f: Any
    i: Any
    g: Any
    cotangent: Any

    @property
    def all(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in NAMES)

    @property
    def gates(self) -> tuple[Any, ...]:
        return self.all[2:]


def inputs(layout: str, dtype: Any, *, spread: float = 3.0) -> Inputs:
    rng = np.random.default_rng(len(layout))
    z, zb = rng.integers(0, 2, (2, *LAYOUTS[layout])).astype(dtype)
    gates = rng.uniform(-spread, spread, (5, ROWS, COLUMNS)).astype(dtype)
    return Inputs(z, zb, *gates)


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class ByHand:
    """Value and partials by formulas on paper, in f64."""

    value: Any
    partials: dict[str, Any]

    @classmethod
    def at(cls, z: Any, zb: Any, c: Any, f: Any, i: Any, g: Any) -> ByHand:
        flush = z == 1
        copy = ~flush & (zb == 0)
        update = ~flush & ~copy
        c, f, i, g = (x.astype(np.float64) for x in (c, f, i, g))
        sf, si, tg = logistic(f), logistic(i), np.tanh(g)
        dsf, dsi, dtg = sf * logistic(-f), si * logistic(-i), 1 / np.cosh(g) ** 2
        zero = np.zeros_like(c)
        mixed = [flush, copy, update]
        value = np.select(mixed, [si * tg, c, sf * c + si * tg])
        partials = {
            "c": np.select(mixed, [zero, zero + 1, sf]),
            "f": np.select(mixed, [zero, zero, dsf * c]),
            "i": np.select(mixed, [dsi * tg, zero, dsi * tg]),
            "g": np.select(mixed, [si * dtg, zero, si * dtg]),
        }
        return cls(value, partials)


def ulps(got: Any, want: Any, scale: Any = None) -> float:
    """Largest distance in units in the last place of ``scale``, by default of ``want``."""
    assert got.shape == want.shape
    unit = np.spacing(np.abs(want if scale is None else scale).astype(got.dtype)).astype(np.float64)
    return float((np.abs(got.astype(np.float64) - want) / unit).max())


def test_inputs_take_each_branch_and_differ_between_neighbours() -> None:
    for layout in LAYOUTS:
        data = inputs(layout, np.float64)
        branch = np.where(data.z == 1, 0, np.where(data.zb == 0, 1, 2))
        assert set(branch.ravel()) == {0, 1, 2}


@layouts
@dtypes
def test_value_is_that_of_the_formula(layout: str, dtype: Any) -> None:
    data = inputs(layout, dtype)
    got, want = cell_update(*data.all), ByHand.at(*data.all).value
    assert got.dtype == dtype
    products = np.abs(data.c) + 1  # terms of the sum, which may cancel
    assert ulps(got, want, products) <= MAX_ULP[dtype]


@layouts
@dtypes
def test_gradients_are_those_of_the_formulas(layout: str, dtype: Any) -> None:
    data = inputs(layout, dtype)
    hand = ByHand.at(*data.all)
    value, gradients = mixad.value_and_vjp(
        lambda c, f, i, g: cell_update(data.z, data.zb, c, f, i, g), data.gates, data.cotangent
    )
    np.testing.assert_array_equal(value, cell_update(*data.all))
    for name, got in zip(ACTIVE, gradients, strict=True):
        assert got.dtype == dtype
        assert got.shape == (ROWS, COLUMNS)
        want = hand.partials[name] * data.cotangent.astype(np.float64)
        assert ulps(got, want) <= MAX_ULP[dtype], name


@layouts
@dtypes
def test_duals_are_the_partials_of_the_formulas(layout: str, dtype: Any) -> None:
    data = inputs(layout, dtype)
    hand = ByHand.at(*data.all)
    duals = cell_update.duals(*data.all, wrt=ACTIVE)
    np.testing.assert_array_equal(duals.primal, cell_update(*data.all))
    assert list(duals.partials) == list(ACTIVE)
    for name, got in duals.partials.items():
        assert got.dtype == dtype
        assert ulps(got, hand.partials[name]) <= MAX_ULP[dtype], name


@layouts
@dtypes
def test_gradients_keep_their_digits_where_gates_saturate(layout: str, dtype: Any) -> None:
    data = inputs(layout, dtype, spread=40.0)
    hand = ByHand.at(*data.all)
    duals = cell_update.duals(*data.all, wrt=ACTIVE)
    for name, got in duals.partials.items():
        assert ulps(got, hand.partials[name]) <= 4 * MAX_ULP[dtype], name


@layouts
@dtypes
def test_all_six_inputs_active_give_the_same_primal_bit_for_bit(layout: str, dtype: Any) -> None:
    data = inputs(layout, dtype)
    plain = cell_update(*data.all)
    for wrt in (ACTIVE, NAMES):
        np.testing.assert_array_equal(cell_update.duals(*data.all, wrt=wrt).primal, plain)
    value, gradients = mixad.value_and_vjp(cell_update, data.all, data.cotangent)
    np.testing.assert_array_equal(value, plain)
    for flag, gradient in zip(data.all[:2], gradients[:2], strict=True):
        np.testing.assert_array_equal(gradient, np.zeros_like(flag))  # only compared
    value, _ = mixad.vjp(cell_update, *data.all)
    np.testing.assert_array_equal(value, plain)


def gradients_with(data: Inputs, **options: Any) -> Sequence[Any]:
    function = cell_update.with_options(**options)
    value, gradients = mixad.value_and_vjp(function, data.all, data.cotangent)
    np.testing.assert_array_equal(value, cell_update(*data.all))
    return gradients


@pytest.mark.slow
@layouts
@dtypes
def test_chunks_give_equal_gradients(layout: str, dtype: Any) -> None:
    data = inputs(layout, dtype)
    whole = gradients_with(data)
    for chunk in CHUNKS:
        for name, got, want in zip(NAMES, gradients_with(data, chunk=chunk), whole, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{name}, chunk {chunk}")


@layouts
def test_placements_give_equal_gradients(layout: str) -> None:
    data = inputs(layout, np.float64)
    whole = gradients_with(data)
    for placement in ("auto", "forward", "reverse"):
        for got, want in zip(gradients_with(data, placement=placement), whole, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-15, atol=0)


@layouts
@pytest.mark.rows("strategy", get_args(Strategy))
def test_strategies_give_equal_gradients(layout: str, strategy: str) -> None:
    data = inputs(layout, np.float64)
    explained = cell_update.with_options(strategy=strategy).explain(*data.all, wrt=ACTIVE)
    assert explained.strategy == ("reverse" if strategy == "reverse" else "forward")
    whole = gradients_with(data)
    for got, want in zip(gradients_with(data, strategy=strategy), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14, atol=0)


@layouts
def test_gradient_of_a_sum_value_and_gradient_and_vjp_agree(layout: str) -> None:
    data = inputs(layout, np.float64)

    def loss(c: Any, f: Any, i: Any, g: Any) -> Any:
        return cell_update(data.z, data.zb, c, f, i, g).sum()

    partials = ByHand.at(*data.all).partials
    by_grad = mixad.grad(loss, argnums=(0, 1, 2, 3))(*data.gates)
    value, with_value = mixad.value_and_grad(loss, argnums=(0, 1, 2, 3))(*data.gates)
    _, pullback = mixad.vjp(loss, *data.gates)
    np.testing.assert_allclose(value, ByHand.at(*data.all).value.sum(), rtol=1e-13)
    for name, *got in zip(ACTIVE, by_grad, with_value, pullback(np.asarray(1.0)), strict=True):
        for gradient in got:
            np.testing.assert_allclose(gradient, partials[name], rtol=1e-13, atol=0)


@layouts
def test_cell_inside_a_larger_program(layout: str) -> None:
    data = inputs(layout, np.float64)
    W = np.random.default_rng(1).uniform(-1, 1, (COLUMNS, 5))

    def loss(c: Any, f: Any, i: Any, g: Any) -> Any:
        return ((cell_update(data.z, data.zb, c, f, i, g) @ W) ** 2).sum()

    hand = ByHand.at(*data.all)
    cotangent = 2 * (hand.value @ W) @ W.T
    gradients = mixad.grad(loss, argnums=(0, 1, 2, 3))(*data.gates)
    for name, got in zip(ACTIVE, gradients, strict=True):
        np.testing.assert_allclose(got, cotangent * hand.partials[name], rtol=1e-11, atol=1e-13)


@layouts
def test_broadcast_gates_get_summed_gradients(layout: str) -> None:
    data = inputs(layout, np.float64)
    f_row, g_column = data.f[:, :1].copy(), data.g[0].copy()
    partials = ByHand.at(
        data.z,
        data.zb,
        data.c,
        np.broadcast_to(f_row, data.c.shape),
        data.i,
        np.broadcast_to(g_column, data.c.shape),
    ).partials
    _, (df, dg) = mixad.value_and_vjp(
        lambda f, g: cell_update(data.z, data.zb, data.c, f, data.i, g),
        (f_row, g_column),
        data.cotangent,
    )
    assert df.shape == f_row.shape
    assert dg.shape == g_column.shape
    by_hand = {name: partials[name] * data.cotangent for name in "fg"}
    np.testing.assert_allclose(df, by_hand["f"].sum(1, keepdims=True), rtol=1e-11, atol=1e-16)
    np.testing.assert_allclose(dg, by_hand["g"].sum(0), rtol=1e-11, atol=1e-16)


@layouts
def test_second_derivative_is_that_of_central_differences(layout: str) -> None:
    data = inputs(layout, np.float64, spread=1.5)
    step = 1e-5

    def total(*gates: Any) -> Any:
        return (cell_update(data.z, data.zb, *gates) * data.cotangent).sum()

    def slope_along(gates: Sequence[Any], v: Sequence[Any]) -> Any:
        gradients = mixad.grad(total, argnums=(0, 1, 2, 3))(*gates)
        return sum(((g * w).sum() for g, w in zip(gradients, v, strict=True)), start=0.0)

    rng = np.random.default_rng(2)
    v = rng.uniform(-1, 1, (4, ROWS, COLUMNS))
    got = mixad.grad(lambda *gates: slope_along(gates, v), argnums=(0, 1, 2, 3))(*data.gates)
    there = mixad.grad(total, argnums=(0, 1, 2, 3))(
        *(x + step * w for x, w in zip(data.gates, v, strict=True))
    )
    back = mixad.grad(total, argnums=(0, 1, 2, 3))(
        *(x - step * w for x, w in zip(data.gates, v, strict=True))
    )
    for name, hvp, plus, minus in zip(ACTIVE, got, there, back, strict=True):
        np.testing.assert_allclose(
            hvp, (plus - minus) / (2 * step), rtol=1e-6, atol=1e-8, err_msg=name
        )


def test_second_derivative_is_that_of_the_formula() -> None:
    data = inputs("full", np.float64)

    def first_sum(g: Any) -> Any:
        return mixad.grad(lambda g: cell_update(data.z, data.zb, data.c, data.f, data.i, g).sum())(
            g
        ).sum()

    copied = (data.z != 1) & (data.zb == 0)
    t = np.tanh(data.g)
    want = np.where(copied, 0, logistic(data.i) * -2 * t * (1 - t * t))
    np.testing.assert_allclose(mixad.grad(first_sum)(data.g), want, rtol=1e-11, atol=1e-15)


@layouts
@dtypes
def test_partials_are_those_of_pytorch(layout: str, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    data = inputs(layout, dtype)
    z, zb = (torch.from_numpy(x) for x in data.all[:2])
    c, f, i, g = gates = [torch.from_numpy(x.copy()).requires_grad_() for x in data.gates]
    written = torch.sigmoid(i) * torch.tanh(g)
    update = torch.sigmoid(f) * c + written
    value = torch.where(z == 1, written, torch.where(zb == 0, c, update))
    wanted = torch.autograd.grad(value, gates, torch.from_numpy(data.cotangent))
    got_value, got = mixad.value_and_vjp(
        lambda *gates: cell_update(data.z, data.zb, *gates), data.gates, data.cotangent
    )
    close = {"rtol": 50 * np.finfo(dtype).eps, "atol": 4 * np.finfo(dtype).eps}
    np.testing.assert_allclose(got_value, value.detach().numpy(), **close)
    for name, a, b in zip(ACTIVE, got, wanted, strict=True):
        np.testing.assert_allclose(a, b.numpy(), err_msg=name, **close)


@layouts
def test_partials_are_those_of_jax(layout: str) -> None:
    jax = pytest.importorskip("jax")
    data = inputs(layout, np.float32)

    def cell(z: Any, zb: Any, c: Any, f: Any, i: Any, g: Any) -> Any:
        written = jax.nn.sigmoid(i) * jax.numpy.tanh(g)
        return jax.numpy.where(
            z == 1, written, jax.numpy.where(zb == 0, c, jax.nn.sigmoid(f) * c + written)
        )

    value, pullback = jax.vjp(lambda *gates: cell(data.z, data.zb, *gates), *data.gates)
    got_value, got = mixad.value_and_vjp(
        lambda *gates: cell_update(data.z, data.zb, *gates), data.gates, data.cotangent
    )
    close = {"rtol": 1e-5, "atol": 1e-6}  # its 1 - tanh² has lost digits
    np.testing.assert_allclose(got_value, value, **close)
    for name, a, b in zip(ACTIVE, got, pullback(jax.numpy.asarray(data.cotangent)), strict=True):
        np.testing.assert_allclose(a, b, err_msg=name, **close)


@pytest.mark.parametrize(("z", "zb"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_plain_numbers_give_the_number(z: float, zb: float) -> None:
    c, f, i, g = 0.25, -0.5, 1.5, 0.75
    got = cell_update(z, zb, c, f, i, g)
    assert type(got) is float
    want = ByHand.at(*map(np.asarray, (z, zb, c, f, i, g))).value
    assert got == pytest.approx(float(want), rel=1e-15)
