"""Gradients of small arrays by strands are those by nodes, bit for bit, whatever a program does."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.execute import Kernel
from mixad.errors import TracerError
from mixad.tape import on_nodes, plan_steps, segments, states
from mixad.tape.plan import Plan
from mixad.tape.strand_plan import make_plan
from mixad.transforms import gradients, strand_calls, strand_history

EXAMPLES = 150

X = np.linspace(0.5, 2.0, 4)
Y = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
TABLE = np.array([1.0, 2.0, 3.0, 4.0])
SQUARE = np.linspace(-1.0, 1.0, 64).reshape(16, 4)

fold = mixad.broadcast(lambda x: x * x if x > 0.5 else -x)
blend = mixad.broadcast(lambda x, y: x / (2.0 + y * y))
both = mixad.broadcast(lambda x, y: (x * y, math.sin(x) + y))
captured = mixad.broadcast(lambda x: x * TABLE + 1.0)
distance = mixad.broadcast(
    lambda a, b: math.sqrt((a[0] - b[0]) ** 2 + a[1] * b[2] + 4.0), signature="(n),(n)->()"
)
turned_by = mixad.broadcast(
    lambda a, angle: (a[0] * math.cos(angle) - a[1], a[0] + a[1] * math.sin(angle)),
    signature="(2),()->(2)",
)


class Point(NamedTuple):
    x: Any
    y: Any


moved = mixad.broadcast(lambda p, d: Point(p.x + d * p.y, p.y - d * p.x * p.x))
just_one = mixad.broadcast(lambda x: (x * x,))


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that were run to compute a gradient."""
    runs: list[Plan] = []
    run = strand_calls.StrandCall.run

    def counted(self: Any) -> Any:
        if self._plan is not None or self._strand.ends:
            runs.append(self._plan)
        return run(self)

    monkeypatch.setattr(strand_calls.StrandCall, "run", counted)
    return runs


def by_nodes(transform: Any, f: Any, *args: Any) -> Any:
    """Return what a transform gives where no strand is opened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "open_strand", lambda *given: None)
        return outcome(transform, f, *args)


def outcome(transform: Any, f: Any, *args: Any) -> Any:
    """Return bits and types of a result, or an error."""
    try:
        found = transform(f, tuple(range(len(args))))(*args)
    except Exception as error:
        return type(error), str(error)
    flat = found if transform is mixad.grad else (found[0], *found[1])
    return [(type(a), a.dtype, a.shape, a.tobytes()) for a in flat]


# -- programs of every kind ------------------------------------------------------------------------

KNOWN: dict[str, Callable[..., Any]] = {
    "operators": lambda x, y: (2.0 * x + x * y - y / 3.0 - 1).sum(),
    "functions": lambda x, y: (np.sin(x) * np.exp(-y) + np.maximum(x, y) + abs(y)).sum(),
    "arrays from outside": lambda x, y: (x * TABLE + TABLE / (y + 3.0) + TABLE[::-1] * x).sum(),
    "kernels": lambda x, y: (fold(x) * blend(x, y) + captured(y)).sum(),
    "a sum that is read": lambda x, y: ((x - x.sum()) * y).sum(),
    "an unused argument": lambda x, y: (x * x).sum(),
    "values that nothing reads": lambda x, y: [np.exp(y), (x * y).sum()][1],
    "one value twice": lambda x, y: (lambda z: (z * z + np.multiply(z, z)).sum())(x + y),
    "indexing": lambda x, y: (x[1:] * y[0, :3]).sum(),
    "a matrix product": lambda x, y: (y @ x).sum(),
    "powers": lambda x, y: (x**2 + y**3 + 2.0**x).sum(),
    "shapes": lambda x, y: (x * y).reshape(-1).sum() / x.size * len(y),
    "means": lambda x, y: np.mean(x * y) + (x + y).mean(axis=0).sum(),
}
KNOWN |= {
    "kernels of vectors": lambda x, y: (distance(y, x) * distance(x, y * x)).sum(),
    "kernels that return vectors": lambda x, y: (turned_by(y[:, :2], x[:3]) * y[:, 1:3]).sum(),
    "kernels of structures": lambda x, y: (lambda p: (p.x * p.y).sum())(moved(Point(x, y), 0.5)),
    "a kernel that returns a tuple of one": lambda x, y: (just_one(x)[0] * y).sum(),
    "sums in place": lambda x, y: summed_up([x[0], (x * y).sum(), y[1, 2] * x[1]]),
    "kernels with several results": lambda x, y: (lambda a, b: (a * x + b).sum() + (b * b).sum())(
        *both(x, y)
    ),
    "a layer": lambda x, y: ((np.tanh(SQUARE @ y.T + x[:3]) @ y) ** 2).sum(),
    "views of views": lambda x, y: (y.T[1:][:, ::2].reshape(-1) * x[0]).sum(),
    "a loop over elements": lambda x, y: sum(x[i] * y[0, i] for i in range(len(x))),
    "joined": lambda x, y: (np.concatenate([x, y[1]]) * np.stack([x, y[0]]).reshape(-1)).sum(),
    "a softmax": lambda x, y: (lambda e: np.log(e / e.sum(axis=1, keepdims=True))[:, 0].sum())(
        np.exp(y * x - (y * x).max(axis=1, keepdims=True))
    ),
    "determinants": lambda x, y: np.linalg.det(y @ y.T + np.eye(3)) * np.linalg.norm(x),
    "parts of one array": lambda x, y: ((x[1:] - x[:-1] ** 2) ** 2 + x[1:] * y[0, 1:]).sum(),
    "numbers of NumPy": lambda x, y: (np.float64(2.0) * x + y * np.float32(0.5)).sum(),
    "options": lambda x, y: np.var(y, axis=0, ddof=1).sum() + np.clip(x, 0.6, 1.7).prod(),
    "methods": lambda x, y: y.ravel().dot(y.reshape(12)) + x.cumsum().mean() + y.T.sum(),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "decompositions": lambda x, y: np.linalg.solve(y @ y.T + np.eye(3), y @ x).sum(),
    "stop_gradient": lambda x, y: (mixad.stop_gradient(x * y) * x).sum(),
    "a branch": lambda x, y: (x * y if (x * y).sum() > 0 else x + y).sum(),
    "a loop until": lambda x, y: until(x, y),
    "writing to a result": lambda x, y: written(x * 1.0, y),
    "writing to a view": lambda x, y: written_view(x * 1.0, y),
    "writing to what has a view": lambda x, y: written_whole(x * 1.0, y),
    "in-place operators": lambda x, y: in_place(x * 2.0, y),
    "a checkpoint": lambda x, y: mixad.checkpoint(lambda a: np.sin(a) * a)(x * y).sum(),
    "a gradient inside": lambda x, y: (mixad.grad(lambda a: (a * a * y[0]).sum())(x) * x).sum(),
    "a refusal": lambda x, y: float((x * y).sum()),
    "no number": lambda x, y: x * y,
    "nothing of the arguments": lambda x, y: np.ones(()),
    "complex numbers": lambda x, y: ((x + 1j * y) * (x - 1j * y)).real.sum(),
}


def summed_up(numbers: Any) -> Any:
    total = 0.0
    for number in numbers:
        total += number
        total *= 1.5
    return total


def until(x: Any, y: Any) -> Any:
    while (x * x).sum() < 100.0:
        x = x * 1.5 + 0.1
    return (x * y).sum()


def written(x: Any, y: Any) -> Any:
    z = x + 1.0
    x[1] = z[0] * 2.0
    return (x * y + z).sum()


def written_view(x: Any, y: Any) -> Any:
    view = x[1:]
    view += 1.0
    return (x * y).sum()


def written_whole(x: Any, y: Any) -> Any:
    view = x[1:]
    x[1] = y[0, 0]
    return (view * view).sum()


def in_place(x: Any, y: Any) -> Any:
    z = x
    x += y[0]
    x *= 3.0
    return (x * z + y).sum()


@pytest.mark.filterwarnings("ignore:.*does not depend")
@pytest.mark.parametrize("name", [*KNOWN, *OTHERS])
@pytest.mark.parametrize("transform", [mixad.grad, mixad.value_and_grad])
def test_gradients_by_strands_have_the_bits_of_those_by_nodes(transform: Any, name: str) -> None:
    f = (KNOWN | OTHERS)[name]
    for dtype in ("f8", "f4", "f8"):
        for scale in (1.0, 1.0, -0.7, 0.0):
            args = [(scale * a).astype(dtype) for a in (X, Y)]
            assert outcome(transform, f, *args) == by_nodes(transform, f, *args)


@pytest.mark.parametrize("name", KNOWN)
def test_the_second_call_follows_the_plan_of_the_first(name: str, taken: list[Any]) -> None:
    gradient = mixad.grad(KNOWN[name], (0, 1))
    gradient(X, Y)
    assert taken == []
    gradient(X + 1.0, Y)
    gradient(X, Y - 0.5)
    assert len(taken) == 2


def test_with_full_checks_a_known_gradient_is_compared_with_the_one_by_nodes(
    monkeypatch: pytest.MonkeyPatch, taken: list[Any]
) -> None:
    monkeypatch.setenv("MIXAD_CHECK", "full")
    gradient = mixad.grad(lambda x: (np.sin(x) * x).sum())
    for _ in range(3):
        np.testing.assert_allclose(gradient(X), np.cos(X) * X + np.sin(X), rtol=1e-15)
    assert taken == []
    zeros = (np.zeros(4), True)
    monkeypatch.setattr(Plan, "run", lambda self, *given, warns: ([], [zeros]))
    with pytest.raises(AssertionError, match="a known gradient is another one"):
        gradient(X)


def test_equal_programs_share_a_plan_and_different_ones_do_not(taken: list[Any]) -> None:
    for factor in (2.0, 3.0, -1.0):
        found = mixad.grad(lambda x: (x * factor).sum())(X)  # noqa: B023
        np.testing.assert_array_equal(found, np.full(4, factor))
    assert len(taken) == 2
    for f, expected in (
        (lambda x: (x * 2).sum(), 2.0),  # another type of number
        (lambda x: (2.0 * x).sum(), 2.0),  # another order
        (lambda x: (x * TABLE).sum(), TABLE),
        (lambda x: (x + 2.0).sum(), 1.0),
        (lambda x: (x * 2.0 * x).sum(), 4.0 * X),
    ):
        np.testing.assert_array_equal(mixad.grad(f)(X), np.broadcast_to(expected, 4))
    assert len(taken) == 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x, p, q: (blend(x * p, p) * captured(x) + np.where(p > 2.0, p, q) * x).sum(),
        lambda x, p, q: (mixad.broadcast(weighed)(x, p, q)).sum(),
        lambda x, p, q: (np.stack([x, p, q]) * x).sum() + np.tensordot(x, p, 1),
        lambda x, p, q: (mixad.grad(lambda y: (weighed_twice(y, p, q) * y).sum())(x) * x).sum(),
    ],
)
def test_one_array_in_two_places_is_told_from_two(f: Any, taken: list[Any]) -> None:
    ones, threes = np.ones(4), np.full(4, 3.0)
    gradient = mixad.grad(f)
    for p, q in ((ones, ones), (ones, ones), (ones, threes), (threes, ones), (threes, threes)) * 2:
        expected = by_nodes(mixad.grad, lambda x, p=p, q=q: f(x, p, q), X)
        np.testing.assert_array_equal(gradient(X, p, q).tobytes(), expected[0][3])
    assert taken


@pytest.mark.parametrize(
    "f",
    [
        lambda x, p, q: (x * x * q).sum() + np.dot(x * 1.0, p),
        lambda x, p, q: (x * x * q).sum() + np.dot(np.stack([x, 2.0 * x]), p).sum(),
        lambda x, p, q: np.dot(x * x, q) + np.dot(x * 1.0, p),
        lambda x, p, q: np.dot(x * x, p) + (x * q).sum(),
    ],
)
def test_arrays_that_share_memory_in_one_call_need_not_in_others(f: Any) -> None:
    gradient, base = mixad.grad(f), np.arange(1.0, 5.0)
    others = np.full(4, 7.0), np.linspace(-1.0, 1.0, 4)
    for p, q in ((base, base[:]), (base[:], base), (base, others[0]), others, (X, X[:])) * 2:
        expected = by_nodes(mixad.grad, lambda x, p=p, q=q: f(x, p, q), X)
        np.testing.assert_array_equal(gradient(X, p, q).tobytes(), expected[0][3])


def weighed(x: Any, p: Any, q: Any) -> Any:
    return x * x * p + q * x


weighed_twice = mixad.broadcast(weighed)


@pytest.mark.parametrize("power", [np.power, np.float_power])
def test_exponents_that_libraries_treat_apart_are_told_apart(power: Any) -> None:
    for exponent in (0.5, 3.0, 2.0, -0.5, 3.0, 0.5):
        f = lambda x: power(x, exponent).sum()  # noqa: B023, E731
        assert outcome(mixad.value_and_grad, f, X) == by_nodes(mixad.value_and_grad, f, X)


@pytest.mark.slow
def test_layouts_types_and_identities_are_told_apart() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        return (x * a + b * x * x).sum()

    arrays = [TABLE, TABLE[::-1], TABLE.astype("f4"), TABLE.astype(int), TABLE > 2,
              np.arange(16.0).reshape(4, 4).T, np.ones(1), np.asarray(2.0)]  # fmt: skip
    gradient = mixad.grad(f)
    for _ in range(2):
        for a in arrays:
            for b in arrays:
                shape = np.broadcast_shapes(X.shape, a.shape, b.shape)
                full = np.broadcast_to(a + 2.0 * b * X, shape)
                expected = full if full.ndim == 1 else full.sum(axis=0)
                np.testing.assert_allclose(gradient(X, a, b), expected, rtol=1e-12)


STEPS: list[Callable[..., Any]] = [
    lambda p, q, n, flag: p * q,
    lambda p, q, n, flag: p + TABLE,
    lambda p, q, n, flag: TABLE - q,
    lambda p, q, n, flag: np.tanh(p),
    lambda p, q, n, flag: np.arctan2(p, q),
    lambda p, q, n, flag: p * n,
    lambda p, q, n, flag: n - q,
    lambda p, q, n, flag: fold(p),
    lambda p, q, n, flag: blend(p, q),
    lambda p, q, n, flag: (p if flag else q) * 2.0,
    lambda p, q, n, flag: p.sum() * q,
    lambda p, q, n, flag: abs(-p),
    lambda p, q, n, flag: p[..., 1:] * q[..., :-1].sum(),
    lambda p, q, n, flag: np.mean(p * q) + p,
    lambda p, q, n, flag: p.sum(axis=-1, keepdims=True) * n,
    lambda p, q, n, flag: np.tanh(p @ p.T) if p.ndim == 2 else p @ q.T,
    lambda p, q, n, flag: np.sqrt(p**2 + 1.0) ** n,
    lambda p, q, n, flag: p[..., ::-1].reshape(-1)[: p.size],
    lambda p, q, n, flag: np.concatenate([p, p * n], axis=-1)[..., ::2],
    lambda p, q, n, flag: np.exp(np.sin(p) * np.cos(p) + np.log1p(p * p)) @ SQUARE[: p.shape[-1]],
]


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any, Any, bool], Any]:
    """Draw a program over two arrays: operations on values so far, of which the last is summed."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 30), st.integers(0, 30),
                      st.sampled_from([2.0, 3, 0.5, -1])),
            min_size=1, max_size=10,
        )
    )  # fmt: skip

    def run(x: Any, y: Any, flag: bool) -> Any:
        values = [x, y]
        for step, a, b, number in steps:
            p, q = values[a % len(values)], values[b % len(values)]
            values.append(STEPS[step](p, q, number, flag))
        return values[-1].sum()

    return run


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    programs(),
    st.lists(st.booleans(), min_size=2, max_size=4),
    st.sampled_from(["f2", "f4", "f8"]),
)
def test_random_programs_have_the_same_bits_however_often_they_came(
    f: Any, flags: list[bool], dtype: str
) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    for flag in flags:
        for transform in (mixad.grad, mixad.value_and_grad):
            g = lambda a, b: f(a, b, flag)  # noqa: B023, E731
            assert outcome(transform, g, x, y) == by_nodes(transform, g, x, y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not depend")
@settings(max_examples=EXAMPLES)
@given(programs(), st.booleans(), st.sampled_from(["f4", "f8"]))
def test_random_programs_inside_of_others_agree_with_nodes(f: Any, flag: bool, dtype: str) -> None:
    """Values that the function lets go of may be stored in one and computed again in the other."""
    x, y = X.astype(dtype), Y.astype(dtype)
    inside = mixad.grad(lambda a, b: f(a, b, flag), (0, 1))
    g = lambda a, b: sum([(each * each).sum() for each in inside(a, b)])  # noqa: E731
    first = outcome(mixad.grad, g, x, y)
    assert close(first, by_nodes(mixad.grad, g, x, y))
    for _ in range(2):
        assert outcome(mixad.grad, g, x, y) == first


def test_a_function_that_does_something_new_at_each_call_is_given_no_strand_in_the_end(
    opened: list[Any],
) -> None:
    gradient = mixad.grad(lambda x: (x * x).sum())
    for length in range(1, 30):
        np.testing.assert_array_equal(gradient(np.ones(length)), 2.0 * np.ones(length))
    assert len(opened) == strand_history._MAX_NEW + strand_history._MAX_LEFT


# -- segments --------------------------------------------------------------------------------------


def close(found: Any, expected: Any) -> bool:
    """Whether outcomes agree but for rounding of the largest of them, or of the arguments."""
    if len(found) != len(expected) or isinstance(expected, tuple):
        return bool(found == expected)
    largest = max([np.abs(np.frombuffer(b, d)).max(initial=1) for _, d, _, b in expected])
    for (kind, dtype, shape, own), (*others, other) in zip(found, expected, strict=True):
        assert [kind, dtype, shape] == others
        a, b = np.frombuffer(own, dtype), np.frombuffer(other, dtype)
        tolerance = 1e-4 if dtype == np.float32 else 1e-10
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * largest)
    return True


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not depend")
@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("name", [*KNOWN, *OTHERS])
def test_programs_in_segments_agree_with_nodes(
    name: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_MIN_LENGTH", length)
    monkeypatch.setattr(states, "_MAX_LENGTH", length)
    f = (KNOWN | OTHERS)[name]
    for dtype, scale in (("f8", 1.0), ("f4", 1.0), ("f8", 1.0), ("f8", -0.7)):
        args = [(scale * a).astype(dtype) for a in (X, Y)]
        for transform in (mixad.grad, mixad.value_and_grad):
            assert close(outcome(transform, f, *args), by_nodes(transform, f, *args))


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(), st.sampled_from([1, 2, 3, 5]), st.sampled_from(["f4", "f8"]))
def test_random_programs_in_segments_agree_with_nodes(f: Any, length: int, dtype: str) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    g = lambda a, b: f(a, b, True)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "_MIN_LENGTH", length)
        patch.setattr(states, "_MAX_LENGTH", length)
        states.forget()
        strand_history._HISTORIES.clear()
        expected = by_nodes(mixad.value_and_grad, g, x, y)
        first = outcome(mixad.value_and_grad, g, x, y)
        assert close(first, expected)
        assert outcome(mixad.value_and_grad, g, x, y) == first
        expected = by_nodes(mixad.grad, g, x, y)
        for _ in range(2):  # computes values that no gradient reads once at most
            assert close(outcome(mixad.grad, g, x, y), expected)


@pytest.mark.usefixtures("fresh")
def test_sums_so_far_are_not_computed_where_no_gradient_reads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[int] = []
    run = Plan.run

    def counted(self: Plan, slots: Any, cotangents: Any, **options: Any) -> Any:
        runs.append(len(cotangents))
        return run(self, slots, cotangents, **options)

    monkeypatch.setattr(Plan, "run", counted)
    k = np.arange(1.0, 41.0)
    f = lambda x: sum((np.sin(n * x) * np.cos(x / n)).sum() for n in k)  # noqa: E731
    expected = sum(n * np.cos(n * X) * np.cos(X / n) - np.sin(n * X) * np.sin(X / n) / n for n in k)
    for _ in range(3):
        runs.clear()
        np.testing.assert_allclose(mixad.grad(f)(X), expected, rtol=1e-12)
    assert len(runs) > 2  # segments
    assert 0 not in runs  # none computes values alone
    value, gradient = mixad.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


LOOPS: dict[str, Callable[..., Any]] = {
    "a recurrence": lambda x, y, n: turned(lambda i, a: np.sin(a) * x + 0.1 * i, x, n).sum(),
    "two carries": lambda x, y, n: sum(
        turned(lambda i, c: (c[1] * x, c[0] + np.tanh(c[1])), (x, x + y[0]), n)
    ).sum(),
    "data of each turn": lambda x, y, n: turned(
        lambda i, a: a * x / (1.0 + a * a) + SERIES[i], x, n
    ).sum(),
    "a sum over turns": lambda x, y, n: turned(
        lambda i, c: (np.cos(c[0]) * x, c[1] + (c[0] * y).sum()), (x, 0.0), n
    )[1],
    "matrix products": lambda x, y, n: turned(
        lambda i, a: np.tanh(SQUARE[:4] @ a + x) * 0.9, x, n
    ).sum(),
    "kernels with two carries": lambda x, y, n: sum(
        turned(lambda i, c: both(np.tanh(c[1]), np.sin(c[0]) * x), (x, x), n)
    ).sum(),
    "a kernel": lambda x, y, n: turned(lambda i, a: blend(fold(a), x), x, n).sum(),
    "a number as carry": lambda x, y, n: turned(lambda i, a: (x * a).sum() / (1.0 + a * a), 1.0, n),
}
SERIES = np.sin(np.arange(1000.0))[:, None] * np.ones(4)


def turned(step: Any, carry: Any, n: int) -> Any:
    for i in range(n):
        carry = step(i, carry)
    return carry


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_loops_in_python_are_a_few_segments_however_long_they_are(name: str) -> None:
    f = LOOPS[name]
    gradients = [
        outcome(mixad.value_and_grad, lambda x, y, n=n: f(x, y, n), X, Y)
        for n in (40, 41, 200, 201, 40)
    ]
    assert gradients[0] == gradients[-1]
    known = states._known.states, states._known.plans
    assert known[1] <= 24
    found = outcome(mixad.value_and_grad, lambda x, y: f(x, y, 400), X, Y)
    assert states._known.plans <= known[1] + 2
    for n, each in zip((40, 41, 200, 201, 400), [*gradients[:4], found], strict=True):
        assert close(each, by_nodes(mixad.value_and_grad, lambda x, y, n=n: f(x, y, n), X, Y))


def test_what_a_segment_computes_of_numbers_is_a_few_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn of a Kalman filter has 17 operations; their values and cotangents are read in turn."""
    made: list[Plan] = []

    def counted(*args: Any, **options: Any) -> Any:
        found = make_plan(*args, **options)
        assert found is not None
        made.append(found[0])
        return found

    monkeypatch.setattr(segments, "make_plan", counted)
    ys = np.cos(np.arange(60.0)).tolist()

    def loss(p: Any) -> Any:
        a, q, r = p[0], p[1], p[2]
        m, P, total = 0.0 * a, 1.0 + 0.0 * a, 0.0 * a
        for y in ys:
            m, P = a * m, P * a * a + q
            S, e = P + r, y - m
            total = total - 0.5 * (e * e / S + np.log(S))
            K = P / S
            m, P = m + K * e, (1.0 - K) * P
        return total

    p = np.asarray([0.9, 0.5, 0.3])
    steps = [loss(p + 1e-30j * unit).imag / 1e-30 for unit in np.eye(3)]
    np.testing.assert_allclose(mixad.grad(loss)(p), steps, rtol=1e-12)
    assert sum(len(plan.makers) for plan in made) < 30


def test_arithmetic_of_numbers_has_the_same_bits_by_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_steps, "_OFTEN", 2)
    kernels: list[Any] = []
    prepared = Kernel.prepare_launch

    def counted(self: Kernel, *args: Any) -> Any:
        kernels.append(self)
        return prepared(self, *args)

    monkeypatch.setattr(Kernel, "prepare_launch", counted)
    f = lambda x, y: (x * x).sum() - 0.5 * (y / 3.0).sum()  # noqa: E731
    found = [outcome(mixad.value_and_grad, f, X, Y) for _ in range(6)]
    assert found == [found[0]] * 6
    before = len(kernels)
    assert before > 0
    assert outcome(mixad.value_and_grad, f, X, Y) == found[0]
    assert len(kernels) == before


def test_arrays_among_options_are_told_by_content_and_not_kept() -> None:
    indices, mask = np.array([0, 1, 2]), np.array([True, False, True, True])
    picked = mixad.grad(lambda x: (x * x)[indices].sum())
    chosen = mixad.grad(lambda x: (np.where(mask, x, x * x) * x[mask].sum()).sum())
    picked(X)
    expected = chosen(X)
    for array in (indices, mask):
        array[:] = 3
    indices, mask = np.array([0, 1, 2]), np.array([True, False, True, True])
    np.testing.assert_array_equal(picked(np.arange(1.0, 6.0)), [2.0, 4.0, 6.0, 0.0, 0.0])
    np.testing.assert_array_equal(chosen(X), expected)
    kept = weakref.ref(indices)
    indices = mask
    gc.collect()
    assert kept() is None


@pytest.mark.slow
def test_arrays_that_loops_read_can_be_written_to_afterwards() -> None:
    a = np.arange(1.0, 5.0)
    for n in (40, 60, 61):
        mixad.grad(lambda x, n=n: turned(lambda i, y: np.sin(y) * a + x, x, n).sum())(X)
        assert a.flags.writeable


def test_errors_that_depend_on_elements_are_raised_where_they_can_be_caught() -> None:
    def f(x: Any) -> Any:
        try:
            return np.linalg.inv(x).sum()
        except np.linalg.LinAlgError:
            return (x * 7.0).sum()

    for scale in (2.0, 3.0, 0.0):
        x = scale * np.eye(3)
        assert outcome(mixad.grad, f, x) == by_nodes(mixad.grad, f, x)


@pytest.mark.slow
def test_segments_tell_layouts_of_what_comes_in() -> None:
    def f(x: Any) -> Any:
        a = turned(lambda i, a: np.sin(a) * x + 0.1, x * 1.0, 40)
        return (a * x).sum()

    y = np.repeat(Y, 2, axis=1)
    for x in (
        Y,
        np.asfortranarray(Y),
        Y[::-1],
        y[:, ::2],
        Y.T.copy().T,
        np.asfortranarray(Y)[:, ::-1],
    ):
        expected = by_nodes(mixad.grad, f, x)
        for _ in range(2):
            assert close(outcome(mixad.grad, f, x), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LOOPS if "kernel" not in name])
def test_loops_in_python_agree_with_complex_steps(name: str) -> None:
    """Im f(x + ih) / h: NumPy computes it, to all digits."""
    f, h = LOOPS[name], 1e-30
    gradient = mixad.grad(lambda x, y: f(x, y, 70))
    for x in (X, X * 0.7):
        steps = [np.imag(f(x + 1j * h * unit, Y, 70)) / h for unit in np.eye(4)]
        np.testing.assert_allclose(gradient(x, Y), steps, rtol=1e-10, atol=1e-13)


@pytest.mark.slow
def test_what_is_cut_depends_on_the_recording_alone() -> None:
    """What a process has run before, and how often, changes no bit."""
    f = LOOPS["two carries"]
    alone = outcome(mixad.grad, lambda x, y: f(x, y, 100), X, Y)
    states.forget()
    for n in (33, 7, 250, 99):
        outcome(mixad.grad, lambda x, y, n=n: f(x, y, n), X, Y)
    for _ in range(3):
        assert outcome(mixad.grad, lambda x, y: f(x, y, 100), X, Y) == alone


BY_VALUES: list[Callable[..., Any]] = [
    lambda x: np.interp(x, np.arange(4.0), np.arange(4.0) ** 2).sum(),
    lambda x: np.median(x) * x[0],
    lambda x: np.quantile(x, 0.3) + np.percentile(x, 40, method="lower"),
    lambda x: np.where(x > 1.0, x * x, x).sum(),
    lambda x: np.sort(x)[1] * np.partition(x, 2)[:2].sum(),
    lambda x: np.max(x) * np.min(x) + np.abs(x).max() * np.ptp(x),
    lambda x: np.prod(x) + np.cumsum(x)[2] * np.cumprod(x)[1],
    lambda x: np.unique(x).sum() * np.diff(x).var(),
    lambda x: np.argmax(x) * x[0] + np.sign(x).sum() * x[1],
    lambda x: (np.round(x) * x).sum() + np.floor(x).sum() * x[0],
    lambda x: np.modf(x)[0].sum() + np.fmod(x, 0.7).sum() + (x % 0.7).sum(),
    lambda x: x[x > 1.0].sum() + np.compress([True, False, True, True], x).sum(),
    lambda x: np.searchsorted(np.arange(3.0), x).sum() * x[0],
    lambda x: np.take(x, [0, 2]).prod() + x[np.array([3, 1, 1])].sum(),
    lambda x: np.histogram(x)[0].sum() + np.nanmean(x) * x[1],
    lambda x: np.clip(x, 0.5, 2.0).sum() * np.linalg.norm(x) + np.cov(x, x[::-1])[0, 1],
    lambda x: np.linalg.det(np.outer(x, x) + np.diag(x)) + np.linalg.slogdet(np.diag(x))[1],
    lambda x: x.astype(int).sum() * x[0] + x.astype(np.float32).sum(),
]
"""Functions whose derivatives depend on where elements are, or on how they compare."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("index", range(len(BY_VALUES)))
def test_what_depends_on_elements_is_computed_from_those_of_each_call(index: int) -> None:
    f = BY_VALUES[index]
    x = np.array([0.3, 1.7, 2.2, 0.9])
    for each in (x, x, x[::-1].copy(), x + 1.3, x * 0.5, x[[1, 0, 3, 2]], x - 1.1, x):
        expected = by_nodes(mixad.value_and_grad, f, each)
        assert outcome(mixad.value_and_grad, f, each) == expected


# -- what may go wrong around a recording ----------------------------------------------------------


def test_arrays_that_change_are_seen_by_a_known_program() -> None:
    constant = np.arange(4.0)
    gradient = mixad.grad(lambda x: (x * x * constant).sum())
    for _ in range(3):
        np.testing.assert_array_equal(gradient(X), 2 * X * constant)
    constant[1] = 7.0
    np.testing.assert_array_equal(gradient(X), 2 * X * constant)

    def changes(x: Any) -> Any:
        total = (x * x * constant).sum()
        constant[0] = 5.0
        return total

    for _ in range(3):
        with pytest.raises((ValueError, TracerError), match=r"read-only|changed in place"):
            mixad.grad(changes)(X)
    memory = bytearray(np.arange(4.0).tobytes())
    unlocked = np.frombuffer(memory)  # of memory that NumPy cannot lock

    def hidden(x: Any) -> Any:
        total = (x * x * unlocked).sum()
        np.frombuffer(memory).setflags(write=False)
        memory[:8] = np.float64(switch[0]).tobytes()
        return total

    switch = [0.0]
    for _ in range(3):
        np.testing.assert_array_equal(mixad.grad(hidden)(X), 2 * X * unlocked)
    switch[0] = 9.0
    with pytest.raises(TracerError, match="changed in place"):
        mixad.grad(hidden)(X)


def test_an_array_that_shrinks_is_refused_where_nothing_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MIXAD_CHECK", "off")

    def f(x: Any, shrinks: bool) -> Any:
        factors = np.arange(4.0)
        total = (x * x * factors).sum()
        if shrinks:
            factors.resize(2, refcheck=False)
        return total

    for _ in range(3):
        np.testing.assert_array_equal(mixad.grad(f)(X, False), 2 * X * np.arange(4.0))
    with pytest.raises(TracerError, match="changed in place"):
        mixad.grad(f)(X, True)


def test_tracers_that_outlive_their_transform_are_refused_by_known_programs() -> None:
    leaked: list[Any] = []

    def f(x: Any) -> Any:
        leaked.append(x * 2.0)
        return (leaked[-1] * x).sum()

    for _ in range(3):
        mixad.grad(f)(X)
    for old in leaked:
        assert old.shape == (4,)
        assert "inside=grad" in repr(old)
        for use in (lambda t: t * 2.0, lambda t: t + X, np.sin, fold, lambda t: t.sum(), bool):
            with pytest.raises(TracerError, match="used after that call has ended"):
                use(old)
        with pytest.raises(TracerError, match="used after that call has ended"):
            mixad.grad(lambda x: (x * old).sum())(X)  # noqa: B023


def test_an_exception_leaves_nothing_behind() -> None:
    def f(x: Any, fails: bool) -> Any:
        y = x * 3.0
        if fails:
            raise RuntimeError("the user's")
        return (y * x).sum()

    gradient = mixad.grad(f)
    for fails in (False, True, False, True, False):
        if fails:
            with pytest.raises(RuntimeError, match="the user's"):
                gradient(X, True)
        else:
            np.testing.assert_array_equal(gradient(X, False), 6.0 * X)


def test_a_function_that_asks_for_more_is_not_given_a_strand_again(opened: list[Any]) -> None:
    gradient = mixad.grad(lambda x: (deepcopy(x) * x).sum())
    expected = gradient(X)
    for _ in range(6):
        np.testing.assert_array_equal(gradient(X), expected)
    assert len(opened) == 2


def test_threads_on_one_recording_give_the_same_gradient() -> None:
    def f(x: Any) -> Any:
        parts: list[Any] = [None] * 4

        def work(k: int) -> None:
            for _ in range(5):
                parts[k] = (x * float(k + 1)) * x + np.sin(x)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        y = x * x
        for thread in threads:
            thread.join()
        return (parts[0] + parts[1] + parts[2] + parts[3] + y).sum()

    for _ in range(10):
        found = mixad.grad(f)(X)
        np.testing.assert_allclose(found, 2 * X * 11 + 4 * np.cos(X), rtol=1e-14)


def test_threads_with_one_known_program_do_not_mix_values() -> None:
    gradient = mixad.grad(lambda x: (np.exp(x) * x).sum())
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x = rng.normal(size=6)
            if not np.allclose(gradient(x), np.exp(x) * (x + 1), rtol=1e-12):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_known_programs_keep_no_array_and_no_function_alive() -> None:
    def used() -> list[weakref.ref[Any]]:
        constant, factor, x = np.arange(4.0), np.arange(4.0), X.copy()
        kernel = mixad.broadcast(lambda x: x * factor)

        def f(x: Any) -> Any:
            return (kernel(x) * constant).sum()

        for _ in range(3):
            mixad.grad(f)(x)
        return [weakref.ref(each) for each in (constant, factor, x, f, kernel)]

    gone = used()
    gc.collect()
    assert [each() for each in gone] == [None] * 5


def test_what_is_known_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MAX_STATES", 40)
    for length in range(1, 60):
        x = np.ones(length)
        for _ in range(2):
            np.testing.assert_array_equal(mixad.grad(lambda x: (x * 3.0).sum())(x), 3.0 * x)
        assert states._known.states <= 50


def test_an_index_outside_is_located_by_a_known_program() -> None:
    kernel = mixad.broadcast(lambda x, i: x * TABLE[i])

    def f(x: Any, last: int) -> Any:
        return kernel(x, np.array([0, 1, 2, last])).sum()

    for last in (3, 0, 9, 1):
        g = lambda x: f(x, last)  # noqa: B023, E731
        assert outcome(mixad.grad, g, X) == by_nodes(mixad.grad, g, X)


def set_element(x: Any) -> None:
    x[0] = 9.0


def set_shape(x: Any) -> None:
    x.shape = (2, 2)


def set_dtype(x: Any) -> None:
    x.dtype = np.int64


@pytest.mark.filterwarnings("ignore:Setting the .* on a NumPy array:DeprecationWarning")
@pytest.mark.parametrize("change", [set_element, set_shape, set_dtype])
@pytest.mark.parametrize("begin", [lambda x: x, lambda x: x * 2.0, lambda x: x.sum()])
@pytest.mark.parametrize("end", [lambda y: (y * y).sum(), lambda y: np.cumsum(3.0 * y).sum()])
@pytest.mark.parametrize("transform", [mixad.grad, mixad.value_and_grad])
def test_an_argument_that_is_changed_counts_as_it_came_in(
    transform: Any, end: Any, begin: Any, change: Any
) -> None:
    def f(traced: Any) -> Any:
        y = begin(traced)
        change(given[-1])
        return end(y)

    given: list[Any] = []
    for _ in range(4):
        given.append(X.copy())
        found = outcome(transform, f, given[-1])
        given.append(X.copy())
        on_nodes = by_nodes(transform, f, given[-1])
        unchanged = outcome(transform, lambda x: end(begin(x)), X.copy())
        # Nodes read what no derivative needs, and refuse what cannot be read.
        assert found == on_nodes or (type(on_nodes) is tuple and found == unchanged)


@pytest.mark.parametrize("bound", ["_MAX_STATES", "_MAX_PLANS"])
def test_what_follows_one_beginning_has_a_bound(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(states, bound, 40)
    x = np.ones(1)
    for length in range(1, 60):
        factors = np.ones(length)
        for _ in range(2):
            found = mixad.grad(lambda x, c: (x * c).sum())(x, factors)
            np.testing.assert_array_equal(found, [float(length)])
        known = states._known
        assert (known.states if bound == "_MAX_STATES" else known.plans) <= 50


def test_what_cannot_be_repeated_on_nodes_is_refused_whenever_it_is_asked_for() -> None:
    memory = bytearray(np.arange(4.0).tobytes())
    unlocked = np.frombuffer(memory)  # of memory that NumPy cannot lock
    errors: list[Exception] = []

    def f(x: Any) -> Any:
        y = x * unlocked
        memory[:8] = np.float64(switch[0]).tobytes()
        for _ in range(2):
            try:
                mixad.stop_gradient(y)
            except TracerError as error:
                errors.append(error)
        return (y * 2.0).sum()

    switch = [0.0]
    mixad.grad(f)(X)
    strand_history._HISTORIES.clear()
    switch[0] = 9.0
    with pytest.raises(TracerError, match="changed in place"):
        mixad.grad(f)(X)
    assert len(errors) == 2


def test_an_interrupted_repetition_on_nodes_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, turns = on_nodes._computed, [2]

    def interrupted(*args: Any) -> Any:
        turns[0] -= 1
        if not turns[0]:
            raise KeyboardInterrupt
        return original(*args)

    def f(x: Any) -> Any:
        y = x * 2.0
        z = y * x
        if turns[0] < 2:
            return z.sum()
        with pytest.raises(KeyboardInterrupt):
            z * [1.0, 2.0, 3.0, 4.0]  # which strands do not know
        y *= 5.0
        return (z + y).sum()

    turns[0] = 0
    mixad.grad(f)(X)
    turns[0] = 2
    monkeypatch.setattr(on_nodes, "_computed", interrupted)
    np.testing.assert_array_equal(mixad.grad(f)(X), 4.0 * X + 10.0)


def test_a_thread_waits_for_nodes_that_another_one_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    original, begun, found = on_nodes._computed, threading.Event(), []

    def slow(*args: Any) -> Any:
        begun.set()
        time.sleep(0.02)
        return original(*args)

    def f(x: Any) -> Any:
        y = x * 2.0

        def work() -> None:
            begun.wait(5)
            found.append(y[0])

        thread = threading.Thread(target=work)
        thread.start()
        z = y[1:]
        begun.set()
        thread.join()
        return z.sum() + found[-1]

    mixad.grad(f)(X)
    strand_history._HISTORIES.clear()
    begun.clear()
    monkeypatch.setattr(on_nodes, "_computed", slow)
    np.testing.assert_array_equal(mixad.grad(f)(X), np.full(4, 2.0))


def repeated(x: Any, y: Any) -> Any:
    total = 0.0
    for t in range(40):
        x = np.sin(x) * y[0] + y[1]
        total = total + x[t % 4] * x[0]
    return total + (x * x).sum()


@pytest.mark.parametrize("f", [pytest.param(repeated, marks=pytest.mark.slow), KNOWN["a softmax"]])
def test_threads_follow_one_plan_at_once(f: Any) -> None:
    gradient = mixad.value_and_grad(f, argnums=(0, 1))
    given = [(X + 0.1 * k, Y - 0.1 * k) for k in range(12)]
    expected = [gradient(*each) for each in given]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as executor:
            for _ in range(5):
                found = executor.map(lambda each: gradient(*each), given)
                for (value, gradients), (own_value, own) in zip(found, expected, strict=True):
                    assert value == own_value
                    np.testing.assert_array_equal(gradients[0], own[0])
                    np.testing.assert_array_equal(gradients[1], own[1])
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("f", [repeated, KNOWN["a softmax"], lambda x, y: (x * y[0]).sum()])
def test_what_is_returned_is_in_no_memory_that_a_plan_keeps(f: Any) -> None:
    gradient = mixad.value_and_grad(f, argnums=(0, 1))
    for _ in range(2):
        gradient(X, Y)
    value, gradients = gradient(X, Y)
    copies = [np.array(each) for each in (value, *gradients)]
    gradient(X - 0.3, Y + 0.3)
    for own, copy in zip((value, *gradients), copies, strict=True):
        np.testing.assert_array_equal(own, copy)


def test_tracers_of_a_function_that_failed_are_refused() -> None:
    leaked: list[Any] = []

    def f(x: Any, fails: bool) -> Any:
        leaked.append(x * 3.0)
        if fails:
            raise RuntimeError("the user's")
        return (leaked[-1] * 2.0).sum()

    mixad.grad(f)(X, False)
    with pytest.raises(RuntimeError):
        mixad.grad(f)(X, True)
    with pytest.raises(TracerError, match="used after that call has ended"):
        leaked[-1] * 2.0
    assert leaked[-1].strand._alive == []


def test_recordings_that_begin_alike_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MAX_STATES", 40)
    monkeypatch.setattr(states, "_MAX_PLANS", 6)

    def f(x: Any, bits: int) -> Any:
        for k in range(6):
            x = x * 2.0 if bits >> k & 1 else x + 1.0
        return x.sum()

    for bits in range(64):
        found = mixad.grad(f)(X, bits)
        np.testing.assert_array_equal(found, np.full(4, 2.0 ** bits.bit_count()))
        assert states._known.states <= 50
        assert states._known.plans <= 7


NUMBERS = [0.5, 0.5, 0.5, 2.5, 3.0, 3, 3, 2, -0.5]
UFUNCS = sorted(
    {u.__name__ for u in vars(np).values() if isinstance(u, np.ufunc) and (u.nin, u.nout) == (2, 1)}
)


@pytest.mark.rows("name", UFUNCS)
@pytest.mark.filterwarnings("ignore:.*does not depend")
def test_functions_of_numpy_see_which_number_is_beside_an_array(name: str) -> None:
    function = getattr(np, name)

    def f(x: Any, number: Any) -> Any:
        return (function(x, number) * x).sum()

    gradient = partial(outcome_of, mixad.grad(f))
    found = [gradient(X, number) for number in NUMBERS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "open_strand", lambda *given: None)
        assert found == [gradient(X, number) for number in NUMBERS]


def outcome_of(function: Any, *args: Any) -> Any:
    """Return the numbers of a result as text, which tells nan from others, or an error."""
    try:
        return repr(function(*args))
    except Exception as error:
        return type(error), str(error)


# -- what is long and new --------------------------------------------------------------------------


def branched(x: Any, bits: Any) -> Any:
    state = x
    for bit in bits:
        state = np.sin(state) * x + 0.1 if bit else state * 0.9 - x * x * 0.05
        state = state + x * 0.01
    return (state * state).sum()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of texts that are compiled."""
    found: list[int] = []
    original = CpuBackend.emit

    def emit(self: CpuBackend, spec: Any) -> str:
        text = original(self, spec)
        found.append(len(text))
        return text

    monkeypatch.setattr(CpuBackend, "emit", emit)
    return found


@pytest.mark.slow
def test_long_programs_that_are_new_compile_nothing_once_their_operations_are_known(
    compiled: list[int],
) -> None:
    states.forget()
    random = np.random.default_rng(1)
    for _ in range(2):
        mixad.grad(branched)(X, random.integers(0, 2, 40))
    compiled.clear()
    for _ in range(4):
        bits = random.integers(0, 2, 40)
        found = mixad.grad(branched)(X, bits)
        assert compiled == []
        steps = 1e-6 * np.eye(4)
        differences = [branched(X + h, bits) - branched(X - h, bits) for h in steps]
        np.testing.assert_allclose(found, np.array(differences) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [1, 30])
def test_what_is_not_fused_has_the_same_bits_in_each_call_and_is_planned_at_the_third(
    repeats: int, taken: list[Any]
) -> None:
    states.forget()
    bits = np.tile([1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0], repeats)
    gradient, results, plans = mixad.value_and_grad(branched), [], []
    for _ in range(5):
        value, found = gradient(X, bits)
        results.append((value, *found))
        plans.append(len(taken))
    assert results == results[:1] * 5
    assert plans == ([0, 1, 2, 3, 4] if repeats == 1 else [1, 2, 3, 4, 5])


@pytest.mark.slow
def test_long_programs_are_fused_where_their_arrays_are_large(compiled: list[int]) -> None:
    bits = [k % 3 for k in range(30)]
    for size, fused in ((8, False), (20_000, True)):
        states.forget()
        compiled.clear()
        mixad.grad(branched)(np.linspace(0.1, 0.9, size), bits)
        assert (max(compiled, default=0) > 100_000) == fused
