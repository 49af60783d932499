"""Tangents by strands: as by nodes, and central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.tape import locks
from mixad.transforms import inner_calls, strand_calls

from .test_inner_strands import bits, by_nodes
from .test_strands import EXAMPLES, close, programs

A = np.linspace(0.2, 1.5, 5)
B = np.arange(1.0, 11.0) / 7.0
SQUARE = np.random.default_rng(0).normal(size=(5, 5))

step = mixad.broadcast(lambda x, y: x * y * y if x > 0.5 else x - y)

pytestmark = pytest.mark.usefixtures("fresh")


PROGRAMS: dict[str, Callable[..., Any]] = {
    "an array": lambda x, y: np.sin(x) * y + np.exp(-x),
    "a number": lambda x, y: (x * y * y).sum(),
    "a kernel": lambda x, y: step(x, y).sum() * step(x, x),
    "a product of matrices": lambda x, y: SQUARE @ x * y,
    "an array from outside": lambda x, y: (x * A * y + A).sum(),
    "parts": lambda x, y: (x[1:] * y[:-1]).sum() * x[0],
    "joined": lambda x, y: np.concatenate([x, y * x]) ** 2,
    "several values": lambda x, y: {"sum": x.sum() + y, "product": (x * y, -y)},
    "a gradient": lambda x, y: mixad.grad(lambda z: (z * z * y).sum())(x),
    "a tangent": lambda x, y: mixad.jvp(lambda z: z * z * y, (x,), (y,))[1],
}
LOOPS: dict[str, Callable[..., Any]] = {"segments": lambda x, y: turned(x, y, A, 10)}
OTHERS: dict[str, Callable[..., Any]] = {
    "an argument": lambda x, y: x,
    "a branch": lambda x, y: x * y if x.sum() > 0.0 else x - y,
    "a constant": lambda x, y: np.ones(3),
    "a constant beside": lambda x, y: (x * y, 2.0),
}


def turned(x: Any, y: Any, table: Any, turns: int) -> Any:
    for i in range(turns):
        x = np.sin(x) * table + 0.1 * i * y
    return x


def directions(x: Any) -> tuple[Any, Any]:
    return np.cos(3 * x).astype(x.dtype), np.sin(2 * x).astype(x.dtype)


@pytest.mark.filterwarnings("ignore:.*does not depend")
@pytest.mark.parametrize(
    "name", [*PROGRAMS, *OTHERS, *[pytest.param(name, marks=pytest.mark.slow) for name in LOOPS]]
)
def test_tangents_have_the_bits_of_nodes(name: str, runs: list[type]) -> None:
    f = (PROGRAMS | LOOPS | OTHERS)[name]
    for x, y in ((A, A + 1.0), (0.7 * A, A), (A.astype("f4"), A.astype("f4")), (A, A), (-A, A)):
        given = f, (x, y), directions(x)
        assert bits(mixad.jvp(*given)) == bits(by_nodes(mixad.jvp, *given))
    if name not in OTHERS:
        assert {strand_calls.StrandCall, inner_calls.InnerForward} <= set(runs)
    v, w = directions(A)
    ends = [mixad.pytree.leaves(f(A + eps * v, A + 1.0 + eps * w)) for eps in (1e-6, -1e-6)]
    _, tangent = mixad.jvp(f, (A, A + 1.0), (v, w))
    for high, low, found in zip(*ends, mixad.pytree.leaves(tangent), strict=True):
        difference = (np.asarray(high) - low) / 2e-6
        np.testing.assert_allclose(found, difference, rtol=1e-7, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*does not depend")
@pytest.mark.parametrize(
    "name", [*PROGRAMS, *[pytest.param(name, marks=pytest.mark.slow) for name in LOOPS]]
)
def test_hessian_products_have_the_bits_of_nodes(name: str, runs: list[type]) -> None:
    loss = lambda x, y: sum(  # noqa: E731
        np.sum(leaf * leaf) for leaf in mixad.pytree.leaves((PROGRAMS | LOOPS)[name](x, y))
    )
    for x, y in ((A, A + 1.0), (0.7 * A, A), (A, A), (A.astype("f4"), A.astype("f4"))):
        given = loss, (x, y), directions(x)
        assert bits(mixad.hvp(*given)) == bits(by_nodes(mixad.hvp, *given))
    assert inner_calls.InnerForward in runs
    (v, w), gradient = directions(A), mixad.grad(loss, (0, 1))
    ends = [gradient(A + eps * v, A + 1.0 + eps * w) for eps in (1e-6, -1e-6)]
    for high, low, found in zip(*ends, mixad.hvp(loss, (A, A + 1.0), (v, w)), strict=True):
        np.testing.assert_allclose(found, (high - low) / 2e-6, rtol=1e-6, atol=1e-6)


def test_one_array_in_several_places_is_told_from_several() -> None:
    """Plans come of a first call in which primals and tangents share memory."""
    pool = [A, B[:5], B[2:7], B[5:], np.cos(A)]
    for f in (PROGRAMS["parts"], PROGRAMS["a kernel"], PROGRAMS["a product of matrices"]):
        for k in range(len(pool)):
            x, y, v, w = pool[0], *[pool[k * at % len(pool)] for at in (1, 2, 3)]
            given = f, (x, y), (v, w)
            assert bits(mixad.jvp(*given)) == bits(by_nodes(mixad.jvp, *given))


def test_tangents_are_the_callers_own() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        return x, x[1:], x.reshape(5, 1), y, y[1:], np.broadcast_to(x.sum(), (5,))

    for _ in range(3):
        v = np.ones(5)
        _, tangents = mixad.jvp(f, (A,), (v,))
        for tangent in tangents:
            tangent += 1.0
        np.testing.assert_array_equal(v, np.ones(5))
        for tangent, expected in zip(tangents, (2.0, 2.0, 2.0, 3.0, 3.0, 6.0), strict=True):
            np.testing.assert_array_equal(tangent, expected)


def test_what_the_function_closes_over_is_differentiated_around() -> None:
    call = mixad.grad(lambda w: mixad.jvp(lambda x: (x * w * w).sum(), (A,), (B[:5],))[1])
    for w in (A, 0.5 * A, A):
        np.testing.assert_allclose(call(w), 2.0 * w * B[:5], rtol=1e-14)


def test_an_array_that_the_function_changes_is_refused() -> None:
    def f(x: Any) -> Any:
        y = x * table
        table[0] = 7.0
        return y.sum()

    for _ in range(3):
        table = np.ones(5)
        with pytest.raises(mixad.errors.TracerError, match="changed in place"):
            mixad.jvp(f, (A,), (A,))
        np.testing.assert_array_equal(table, np.ones(5))


def test_the_recording_around_asks_for_no_derivative() -> None:
    """What has a derivative and no second one has a tangent: a norm that is 0, a rule's own."""

    @mixad.scalar_rule(lambda x: (None,))
    def slope(x: float) -> float:
        return x

    @mixad.scalar_rule(lambda x: slope(x))
    def half(x: float) -> float:
        return 0.5 * x * x

    f = mixad.broadcast(lambda x: half(x) + 1.0)
    for _ in range(3):
        _, tangent = mixad.jvp(lambda x: np.linalg.norm(x) + x.sum(), (np.zeros(5),), (A,))
        np.testing.assert_allclose(tangent, A.sum())
        _, tangent = mixad.jvp(f, (A,), (A,))
        np.testing.assert_allclose(tangent, A * A)
        with pytest.raises(mixad.errors.KernelGradientError):
            mixad.grad(lambda x: mixad.jvp(f, (x,), (A,))[1].sum())(A)


@pytest.mark.slow
def test_what_a_segment_reads_of_earlier_ones_is_told_from_others() -> None:
    """After the cut of a loop values of before come in: which, from inside and from around."""

    def inner(flag: bool, w: Any) -> Callable[[Any], Any]:
        def f(y: Any) -> Any:
            a, b = np.sin(y), np.cos(y)
            for _ in range(17):
                y = np.sin(y)
                y = y * w
            return y * (a if flag else b)

        return f

    for w in (0.9, B[:5]):
        for flag in (True, False, True):
            given = inner(flag, w), (A,), (A,)
            assert bits(mixad.jvp(*given)) == bits(by_nodes(mixad.jvp, *given))
    for flag in (True, False, True):
        f = lambda x: mixad.grad(lambda y: inner(flag, x * 0.5)(y).sum())(x).sum()  # noqa: B023, E731
        gradient = mixad.grad(f)
        assert bits(gradient(A)) == bits(by_nodes(gradient, A))
        differences = [(f(A + 1e-6 * u) - f(A - 1e-6 * u)) / 2e-6 for u in np.eye(5)]
        np.testing.assert_allclose(gradient(A), differences, rtol=1e-6, atol=1e-6)


@mixad.broadcast
def middle(c: float) -> float:
    """Return where x³ = c, by halving an interval."""
    low, high = 0.0, 2.0
    for _ in range(60):
        at = 0.5 * (low + high)
        if at * at * at > c:
            high = at
        else:
            low = at
    return low


def test_results_that_comparisons_decide_are_warned_of_in_each_call() -> None:
    for _ in range(4):
        with pytest.warns(UserWarning, match="bisect|compar|decide"):
            mixad.jvp(middle, (A,), (A,))


def test_a_transform_that_leaves_its_strand_does_not_count_for_others(runs: list[type]) -> None:
    f = lambda x: (x * x).sum() if x.sum() > 0.0 else x.sum()  # noqa: E731
    for _ in range(4):
        mixad.hvp(f, (A,), (A,))
    runs.clear()
    for _ in range(3):
        np.testing.assert_array_equal(mixad.grad(f)(A), 2.0 * A)
    assert runs


def test_what_is_no_array_is_refused_by_name() -> None:
    class Shaped:
        shape = (5,)

    with pytest.raises(mixad.errors.TracerError, match="mixad"):
        mixad.jvp(lambda x: x, (Shaped(),), (Shaped(),))


def test_nothing_stays_locked() -> None:
    for _ in range(3):
        mixad.hvp(lambda x: (SQUARE @ x * x).sum(), (A,), (A,))
        assert not locks._LOCKED


def test_arguments_without_arrays_have_zero_derivatives() -> None:
    with pytest.warns(UserWarning, match="does not depend"):
        assert mixad.grad(lambda tree: 1.0)(()) == ()
    with pytest.warns(UserWarning, match="does not depend"):
        assert mixad.jvp(lambda tree: 1.0, ((),), ((),)) == (1.0, 0.0)


def outcome(call: Callable[[], Any]) -> Any:
    """Return types and bits of what a call gives, or the kind of its error."""
    try:
        return [(type(a), a.dtype, a.shape, a.tobytes()) for a in mixad.pytree.leaves(call())]
    except Exception as error:  # of whatever kind: nodes raise the same
        return type(error), ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not depend")
@settings(max_examples=EXAMPLES)
@given(programs(), st.booleans(), st.sampled_from(["f4", "f8"]))
def test_random_programs_agree_with_nodes(f: Any, flag: bool, dtype: str) -> None:
    x = np.linspace(-0.9, 1.1, 4).astype(dtype)
    given = (x, x[::-1].copy()), directions(x)
    g = lambda a, b: f(a, b, flag)  # noqa: E731
    for transform in (mixad.jvp, mixad.hvp):
        call = lambda: transform(g, *given)  # noqa: B023, E731
        first = outcome(call)
        assert close(first, by_nodes(outcome, call))
        for _ in range(2):
            assert outcome(call) == first
