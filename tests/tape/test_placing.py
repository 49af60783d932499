"""Cotangents of views of one array are put together in one array, whichever way is taken."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import mixad
from mixad.tape import placing, states

EXAMPLES = 150

Key = tuple[slice, ...]


@st.composite
def shifted_keys(draw: Any) -> tuple[tuple[int, ...], list[Key]]:
    """Draw a shape, and keys of views that all have one shape: boxes, most of them, or steps."""
    rank = draw(st.integers(1, 3))
    part = [draw(st.integers(1, 9)) for _ in range(rank)]
    room = [draw(st.integers(0, 3)) for _ in range(rank)]
    shape = tuple(n + m for n, m in zip(part, room, strict=True))
    keys = []
    for _ in range(draw(st.integers(1, 4))):
        starts = [draw(st.integers(0, m)) for m in room]
        key = [slice(s, s + n) for s, n in zip(starts, part, strict=True)]
        if draw(st.integers(0, 9)) == 0:
            key = [backwards(k) for k in key]
        keys.append(tuple(key))
    return shape, keys


def backwards(key: slice) -> slice:
    return slice(key.stop - 1, key.start - 1 if key.start else None, -1)


def product(views: Sequence[Any]) -> Any:
    found = views[0]
    for view in views[1:]:
        found = found * view
    return found


class Loss:
    """The sum of ``w Π (x[key] + shift)``, with derivatives by hand, in place, by NumPy."""

    def __init__(self, shape: tuple[int, ...], keys: list[Key], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.shape, self.keys = shape, keys
        self.x, self.v = (rng.uniform(0.5, 1.5, shape) for _ in range(2))
        self.w = rng.uniform(-1.0, 1.0, self.x[keys[0]].shape)
        self.shifts = rng.uniform(-1.0, 1.0, len(keys))

    def __call__(self, x: Any) -> Any:
        shifted = [x[key] + shift for key, shift in zip(self.keys, self.shifts, strict=True)]
        return (self.w * product(shifted)).sum()

    def without(self, *left: int) -> NDArray[Any]:
        views = [self.x[key] + s for key, s in zip(self.keys, self.shifts, strict=True)]
        ones = np.ones(self.w.shape)
        return self.w * product([ones, *[v for n, v in enumerate(views) if n not in left]])

    def gradient(self) -> NDArray[Any]:
        found = np.zeros(self.shape)
        for k, key in enumerate(self.keys):
            found[key] += self.without(k)
        return found

    def product_with_hessian(self) -> NDArray[Any]:
        found = np.zeros(self.shape)
        for k, key in enumerate(self.keys):
            for n, other in enumerate(self.keys):
                if n != k:
                    found[key] += self.v[other] * self.without(k, n)
        return found


@pytest.fixture(params=["parts stored", "one kernel"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let every loop be too small for the kernel that adds up, or none."""
    kernel = request.param == "one kernel"
    monkeypatch.setattr(placing, "_FEWEST", 1 if kernel else math.inf)
    monkeypatch.setattr(placing, "_MAX_EDGE", math.inf if kernel else 8)
    states.forget()  # plans that took the other way
    return str(request.param)


def close(found: Any, expected: NDArray[Any]) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(shifted_keys(), st.integers(0, 99))
def test_gradients_through_shifted_views(drawn: Any, seed: int) -> None:
    check(Loss(*drawn, seed))


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(shifted_keys(), st.integers(0, 99))
def test_gradients_through_shifted_views_by_one_kernel(drawn: Any, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "_FEWEST", 1)
        patch.setattr(placing, "_MAX_EDGE", 1e9)
        states.forget()
        check(Loss(*drawn, seed))
    states.forget()


def check(loss: Loss) -> None:
    value, gradient = mixad.value_and_grad(loss)(loss.x)
    close(value, loss.without().sum())
    close(gradient, loss.gradient())
    if len(loss.keys) > 1:
        slope = lambda x: (mixad.grad(loss)(x) * loss.v).sum()  # noqa: E731
        close(mixad.grad(slope)(loss.x), loss.product_with_hessian())
        close(mixad.hvp(loss, (loss.x,), (loss.v,)), loss.product_with_hessian())


def neighbours(x: Any) -> Any:
    return (x[1:] - x[:-1]).sum()


def squares(x: Any) -> Any:
    d = x[1:] - x[:-1]
    return (d * d).sum()


def with_itself(x: Any) -> Any:
    return squares(x) + (x * x * x).sum()


def view_of_view(x: Any) -> Any:
    return (x[1:][1:] * x[:-1][:-1]).sum()


def overwritten(x: Any) -> Any:
    y = x * 1.0
    y[2:5] = x[1:4] * x[2:5]
    return (y[1:] * y[:-1]).sum()


def one_view_twice(x: Any) -> Any:
    return (x[1:] * x[1:] * x[:-1]).sum()


def cuts(x: Any) -> Any:
    return (x[: len(x) // 2] * x[-(len(x) // 2) :]).sum()


def read_by_two(x: Any) -> Any:
    a = x[1:]
    return (a * x[:-1]).sum() + (a.reshape((-1, 1)) * x[:3]).sum()


LOSSES = [neighbours, squares, with_itself, view_of_view, overwritten, one_view_twice, cuts,
          read_by_two]  # fmt: skip


def slope_along(loss: Callable[[Any], Any], x: NDArray[Any], v: NDArray[Any]) -> complex:
    """Return the derivative along ``v`` by a complex step."""
    return loss(x + 1e-30j * v).imag / 1e-30


@pytest.mark.rows("loss", LOSSES)
def test_gradients_of_functions_that_use_views_in_other_ways(
    loss: Callable[[Any], Any], way: str
) -> None:
    x, v = np.random.default_rng(0).uniform(0.5, 1.5, (2, 11))
    gradient = mixad.grad(loss)(x)
    for unit in np.eye(11):
        assert gradient @ unit == pytest.approx(slope_along(loss, x, unit), rel=1e-12, abs=1e-12)
    step = 1e-6
    nudged = (mixad.grad(loss)(x + step * v) - mixad.grad(loss)(x - step * v)) / (2 * step)
    for product in (
        mixad.grad(lambda x: (mixad.grad(loss)(x) * v).sum())(x),
        mixad.hvp(loss, (x,), (v,)),
    ):
        np.testing.assert_allclose(product, nudged, rtol=1e-6, atol=1e-6)


def test_views_of_several_arrays_beside_what_is_broadcast(way: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 1.5, (2, 7, 8))
    row, scale = rng.uniform(0.5, 1.5, 6), np.asarray(1.5)

    def loss(x: Any, y: Any, row: Any, scale: Any) -> Any:
        return (scale * x[1:, 1:-1] * y[:-1, 2:] * (x[:-1, :-2] + row) * y[1:, :-2]).sum()

    value, gradients = mixad.value_and_grad(loss, argnums=(0, 1, 2, 3))(x, y, row, scale)
    assert value == pytest.approx(loss(x, y, row, scale))
    a, b, c, d = x[1:, 1:-1], y[:-1, 2:], x[:-1, :-2] + row, y[1:, :-2]
    by_x, by_y = np.zeros((2, 7, 8))
    by_x[1:, 1:-1] += scale * b * c * d
    by_x[:-1, :-2] += scale * a * b * d
    by_y[:-1, 2:] += scale * a * c * d
    by_y[1:, :-2] += scale * a * b * c
    by_row = (scale * a * b * d).sum(axis=0)
    for found, expected in zip(gradients, (by_x, by_y, by_row, (a * b * c * d).sum()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_equal_sums_of_parts_of_two_arrays_share_no_memory(way: str) -> None:
    x, y = np.ones((2, 6))
    by_x, by_y = mixad.grad(lambda x, y: ((x[1:] + y[1:]) ** 2).sum(), argnums=(0, 1))(x, y)
    assert not np.shares_memory(by_x, by_y)
    np.testing.assert_array_equal(by_x, [0, 4, 4, 4, 4, 4])
    np.testing.assert_array_equal(by_y, by_x)


def test_gradients_that_are_the_same_value_share_no_memory() -> None:
    x, y = np.ones((2, 6))
    by_x, by_y = mixad.grad(lambda x, y: ((x + y) ** 2).sum(), argnums=(0, 1))(x, y)
    assert not np.shares_memory(by_x, by_y)
    by_x += 1.0
    np.testing.assert_array_equal(by_y, np.full(6, 4.0))


def test_other_views_of_the_same_shape_are_not_taken_for_remembered_ones(way: str) -> None:
    x = np.arange(1.0, 7.0)
    for one, other in ((1, 0), (0, 1), (2, 0), (0, 2), (1, 1)):

        def loss(x: Any, one: int = one, other: int = other) -> Any:
            return (x[one : one + 4] * x[other : other + 4]).sum()

        expected = np.zeros(6)
        expected[one : one + 4] += x[other : other + 4]
        expected[other : other + 4] += x[one : one + 4]
        np.testing.assert_array_equal(mixad.grad(loss)(x), expected)


def test_weights_of_another_shape_are_not_taken_for_remembered_ones(way: str) -> None:
    x = np.arange(1.0, 8.0)
    for w in (np.asarray(2.0), np.arange(2.0, 8.0), np.asarray([3.0]), np.arange(3.0, 9.0)):
        expected = np.zeros(7)
        expected[1:] += w * x[:-1]
        expected[:-1] += w * x[1:]
        found = mixad.grad(lambda x, w=w: (w * x[1:] * x[:-1]).sum())(x)
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_layouts_of_any_order_and_step(way: str) -> None:
    memory = np.random.default_rng(0).uniform(0.5, 1.5, (12, 10, 8))
    for x in (memory.T, memory[::2, ::-1], memory.transpose(1, 0, 2)[:, 1::3]):
        expected = np.zeros(x.shape)
        expected[1:, :-1] += x[:-1, 1:]
        expected[:-1, 1:] += x[1:, :-1]
        found = mixad.grad(lambda x: (x[1:, :-1] * x[:-1, 1:]).sum())(x)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


LARGE = 1 << 20


def rosenbrock(x: Any) -> Any:
    a, b = x[:-1], x[1:]
    return (100.0 * (b - a * a) * (b - a * a) + (1.0 - a) * (1.0 - a)).sum()


def test_a_large_hessian_product_of_neighbours_against_its_entries() -> None:
    x, v = np.random.default_rng(0).uniform(-1.5, 1.5, (2, LARGE))
    a, b = x[:-1], x[1:]
    expected = np.zeros(LARGE)
    expected[:-1] = (1200 * a * a - 400 * b + 2) * v[:-1] - 400 * a * v[1:]
    expected[1:] += -400 * a * v[:-1] + 200.0 * v[1:]
    found = mixad.grad(lambda x: (mixad.grad(rosenbrock)(x) * v).sum())(x)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_large_stencil_in_two_dimensions() -> None:
    x = np.random.default_rng(0).uniform(-1.0, 1.0, (1027, 1040)).astype(np.float32)

    def energy(x: Any) -> Any:
        middle = x[1:-1, 1:-1]
        around = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]
        r = around - 4.0 * middle
        return (r * r).sum()

    w = x.astype(np.float64)
    r = w[2:, 1:-1] + w[:-2, 1:-1] + w[1:-1, 2:] + w[1:-1, :-2] - 4.0 * w[1:-1, 1:-1]
    expected = np.zeros(w.shape)
    for key in ((slice(2, None), slice(1, -1)), (slice(None, -2), slice(1, -1)),
                (slice(1, -1), slice(2, None)), (slice(1, -1), slice(None, -2))):  # fmt: skip
        expected[key] += 2 * r
    expected[1:-1, 1:-1] -= 8 * r
    np.testing.assert_allclose(mixad.grad(energy)(x), expected, rtol=1e-4, atol=1e-4)


SCRIPT = """
import sys
import numpy as np
import mixad
from tests.tape.test_placing import LARGE, rosenbrock
x, v = np.random.default_rng(0).uniform(-1.5, 1.5, (2, LARGE + 13))
found = mixad.grad(lambda x: (mixad.grad(rosenbrock)(x) * v).sum())(x)
sys.stdout.buffer.write(found.tobytes())
"""


@pytest.mark.slow
def test_the_bits_do_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for threads in ("1", "3"):
        monkeypatch.setenv("MIXAD_NUM_THREADS", threads)
        run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
        found.add(run.stdout)
    assert len(found) == 1
    assert len(found.pop()) == 8 * (LARGE + 13)
