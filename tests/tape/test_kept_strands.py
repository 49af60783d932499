"""Pullbacks, pushforwards and Jacobians by strands: as by nodes, however often asked for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import TracerError
from mixad.tape import states
from mixad.transforms.jacobian_blocks import InnerJacobian
from mixad.transforms.kept_calls import KeptCall

from .test_forward_strands import LOOPS, PROGRAMS, A, directions
from .test_inner_strands import bits, by_nodes
from .test_strands import EXAMPLES, X, Y, close, programs

pytestmark = pytest.mark.usefixtures("fresh")

ALL = [*PROGRAMS, *[pytest.param(name, marks=pytest.mark.slow) for name in LOOPS]]


def pulled(f: Callable[..., Any], *primals: Any) -> tuple[Any, ...]:
    """Return the value of a function, and what comes back for two cotangents."""
    value, pullback = mixad.vjp(f, *primals)
    again = mixad.pytree.tree_map(lambda leaf: 0.0 * leaf + np.asarray(2.0, leaf.dtype), value)
    return value, pullback(value), pullback(again), pullback(value)


@pytest.mark.parametrize("name", ALL)
def test_pullbacks_are_those_of_nodes(name: str, runs: list[type]) -> None:
    f = (PROGRAMS | LOOPS)[name]
    for x, y in ((A, A + 1.0), (0.7 * A, A), (A.astype("f4"), A.astype("f4")), (A, A)):
        tolerance = 1e-6 if x.dtype == np.float32 else 1e-13
        found, expected = pulled(f, x, y), by_nodes(pulled, f, x, y)
        assert bits(found[0]) == bits(expected[0])
        assert bits(found[1]) == bits(found[3])
        for one, other in zip(*map(mixad.pytree.leaves, (found, expected)), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    assert KeptCall in runs


def pushed(f: Callable[..., Any], *primals: Any) -> tuple[Any, ...]:
    """Return the value of a function, and what two tangents become."""
    value, pushforward = mixad.linearize(f, *primals)
    return value, pushforward(*primals), pushforward(*directions(primals[0])), pushforward(*primals)


@pytest.mark.parametrize("name", ALL)
def test_pushforwards_are_those_of_nodes(name: str, runs: list[type]) -> None:
    f = (PROGRAMS | LOOPS)[name]
    for x, y in ((A, A + 1.0), (0.7 * A, A), (A.astype("f4"), A.astype("f4")), (A, A)):
        found, expected = pushed(f, x, y), by_nodes(pushed, f, x, y)
        assert bits(found[0]) == bits(expected[0])
        assert bits(found[1]) == bits(found[3])
        for one, other in zip(*map(mixad.pytree.leaves, (found, expected)), strict=True):
            assert one.dtype == other.dtype
            tolerance = 1e-6 if x.dtype == np.float32 else 1e-13
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    assert KeptCall in runs


def test_pushforwards_of_what_is_handed_on_and_of_constants() -> None:
    f = lambda x: (x, x[1:], x * x, 2.0, np.ones(2), x * x)  # noqa: E731
    for _ in range(4):
        x, v = A.copy(), np.cos(A)
        _, pushforward = mixad.linearize(f, x)
        x[...] = 7.0
        for scale in (1.0, 2.0):
            found = pushforward(scale * v)
            expected = scale * v, scale * v[1:], 2.0 * A * scale * v, 0.0, np.zeros(2)
            for one, other in zip(found, (*expected, expected[2]), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-14)
            for one in found:
                if isinstance(one, np.ndarray):
                    one += 5.0
        grown = mixad.grad(lambda t, push=pushforward: (push(t)[2] ** 2).sum())(v)
        np.testing.assert_allclose(grown, 8.0 * A * A * v, rtol=1e-13)


def test_functions_that_do_nothing() -> None:
    for f in (lambda x: x, lambda x: (x, x), lambda x: [x], lambda x: {"a": x}):
        for _ in range(3):
            _, pushforward = mixad.linearize(f, A)
            value, pullback = mixad.vjp(f, A)
            for leaf in mixad.pytree.leaves(pushforward(2.0 * A)):
                np.testing.assert_array_equal(leaf, 2.0 * A)
            count = len(mixad.pytree.leaves(value))
            np.testing.assert_array_equal(pullback(value)[0], count * A)


def test_numbers_that_are_others_in_each_call_make_few_plans() -> None:
    for k in range(60):
        _, pushforward = mixad.linearize(lambda x, k=float(k): np.sin(x * k) + k, A)
        np.testing.assert_allclose(pushforward(A), np.cos(A * k) * k * A, rtol=1e-12, atol=1e-13)
    assert states._known.plans < 60


@pytest.mark.parametrize("transform", [mixad.jacobian, mixad.jacrev, mixad.jacfwd])
@pytest.mark.parametrize("name", ALL)
def test_jacobians_have_the_bits_of_nodes(name: str, transform: Any, runs: list[type]) -> None:
    call = transform((PROGRAMS | LOOPS)[name], (0, 1))
    for x, y in ((A, A + 1.0), (0.7 * A, A), (A.astype("f4"), A.astype("f4")), (A, A)):
        assert bits(call(x, y)) == bits(by_nodes(call, x, y))
    assert InnerJacobian in runs


@pytest.mark.parametrize("name", ALL)
def test_hessians_have_the_bits_of_nodes(name: str, runs: list[type]) -> None:
    f = (PROGRAMS | LOOPS)[name]
    loss = lambda x: sum(np.sum(leaf * leaf) for leaf in mixad.pytree.leaves(f(x, 0.5 * x)))  # noqa: E731
    call = mixad.hessian(loss)
    for x in (A, 0.7 * A, A):
        np.testing.assert_allclose(call(x), by_nodes(call, x), rtol=1e-11, atol=1e-11)
    assert InnerJacobian in runs
    gradient = mixad.grad(loss)
    rows = [(gradient(A + 1e-6 * unit) - gradient(A - 1e-6 * unit)) / 2e-6 for unit in np.eye(5)]
    np.testing.assert_allclose(call(A), rows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transform", [mixad.jacobian, mixad.jacrev, mixad.jacfwd])
def test_jacobians_are_the_callers_own(transform: Any) -> None:
    for f in (lambda x: x, lambda x: x[:1], lambda x: x.sum(), lambda x: x[1:] * 2.0):
        expected = transform(f)(A).copy()
        for _ in range(3):
            found = transform(f)(A)
            np.testing.assert_array_equal(found, expected)
            found += 7.0


def test_aux_is_passed_on_by_all() -> None:
    f = lambda x: (x * x, {"sum": x.sum(), "name": "f"})  # noqa: E731
    for _ in range(3):
        value, pullback, aux = mixad.vjp(f, A, has_aux=True)
        np.testing.assert_array_equal(pullback(value)[0], 2.0 * A * A * A)
        _, tangent, of_jvp = mixad.jvp(f, (A,), (A,), has_aux=True)
        np.testing.assert_array_equal(tangent, 2.0 * A * A)
        _, of_jacobian = mixad.jacobian(f, has_aux=True)(A)
        for each in (aux, of_jvp, of_jacobian):
            assert each["name"] == "f"
            np.testing.assert_allclose(each["sum"], A.sum())


def test_a_pullback_is_differentiated_by_its_cotangent() -> None:
    for _ in range(3):
        _, pullback = mixad.vjp(lambda x: np.sin(x) * x, A)
        slope = np.cos(A) * A + np.sin(A)
        np.testing.assert_allclose(pullback(A)[0], slope * A, rtol=1e-14)
        found = mixad.grad(lambda g, pull=pullback: (pull(g)[0] ** 2).sum())(A)
        np.testing.assert_allclose(found, 2.0 * slope * slope * A, rtol=1e-14)


def test_threads_share_a_pullback() -> None:
    f = (PROGRAMS | LOOPS)["segments"]
    _, pullback = mixad.vjp(f, A, A + 1.0)
    expected = [pullback(k * A) for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            assert list(map(bits, pool.map(lambda k: pullback(k * A), range(8)))) == list(
                map(bits, expected)
            )


def test_values_that_are_written_to_change_no_pullback() -> None:
    def f(x: Any) -> Any:
        for _ in range(12):
            x = np.sin(x) * 1.5 + 0.1 * x
            kept.append(x)
        return x, kept[5], kept[5][1:]

    kept: list[Any] = []
    for _ in range(3):
        kept.clear()
        values, pullback = mixad.vjp(f, A)
        cotangents = tuple(np.ones_like(value) for value in values)
        expected = [g.copy() for g in pullback(cotangents)]
        for value in values:
            value[...] = 5.0
        assert bits(pullback(cotangents)) == bits(expected)


@pytest.mark.slow
@pytest.mark.parametrize("length", [5, 300, 4000])
def test_arrays_that_are_changed_change_no_pullback(length: int) -> None:
    def f(x: Any, table: Any, turns: int) -> Any:
        for _ in range(turns):
            x = np.sin(x) * table + np.exp(0.1 * x)
        return x

    for turns in (1, 40):
        for _ in range(3):
            x, table = np.linspace(0.1, 1.0, length), np.linspace(1.0, 0.5, length)
            _, pullback = mixad.vjp(partial(f, table=table, turns=turns), x)
            expected = pullback(np.ones(length))[0].copy()
            x[1] += 1.0
            table[2] += 1.0
            np.testing.assert_array_equal(pullback(np.ones(length))[0], expected)
            traced = mixad.grad(lambda g, pull=pullback: pull(g)[0].sum())(np.ones(length))
            np.testing.assert_allclose(traced, expected, rtol=1e-12, atol=1e-15)


def test_a_small_result_that_is_needed_again_is_computed_again() -> None:
    for _ in range(3):
        inverse, pullback = mixad.vjp(np.linalg.inv, np.diag([1.0, 2.0]))
        inverse[0, 0] = 7.0
        expected = [[-1.0, -0.5], [-0.5, -0.25]]
        np.testing.assert_allclose(pullback(np.ones((2, 2)))[0], expected, rtol=1e-15)


def test_large_arrays_that_are_changed_are_refused() -> None:
    x = np.linspace(0.1, 1.0, 1 << 15)
    for _ in range(3):
        _, pullback = mixad.vjp(lambda x: np.sin(x) * x, x)
        x[:] += 1.0
        with pytest.raises(TracerError, match="changed in place"):
            pullback(np.ones_like(x))


def test_a_hessian_that_is_made_anew_with_other_numbers_gives_up(opened: list[Any]) -> None:
    for k in range(60):
        mixad.hessian(lambda x, k=float(k): (np.sin(x) * k).sum() * x[0])(A)
    assert len(opened) < 100


def test_what_is_left_to_nodes_is_pulled_back_when_the_recording_is_gone() -> None:
    table = np.linspace(1.0, 2.0, 12).reshape(4, 3)
    for _ in range(4):
        value, pullback = mixad.vjp(lambda x: x * table[1:3, 0] + 1j * x * table[0, :2], A[:2])
        gc.collect()
        np.testing.assert_allclose(pullback(np.ones(2) + 0j)[0], table[1:3, 0])
        np.testing.assert_allclose(value.real, A[:2] * table[1:3, 0])


def test_errors_of_cotangents_are_those_of_nodes() -> None:
    for _ in range(3):
        _, pullback = mixad.vjp(lambda x: (x, x * x), A)
        with pytest.raises(TracerError, match="the cotangent has the structure"):
            pullback(A)
        with pytest.raises(TracerError, match="the cotangent has shape"):
            pullback((A[1:], A))


def test_values_go_as_soon_as_the_caller_lets_go_of_them() -> None:
    for _ in range(3):
        value, pullback = mixad.vjp(lambda x: np.sin(x) * x, A)
        held = weakref.ref(value)
        del value
        gc.collect()
        assert held() is None
        pullback(A)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(), st.booleans(), st.sampled_from(["f4", "f8"]))
@pytest.mark.filterwarnings("ignore:.*does not depend")
def test_pullbacks_and_jacobians_of_random_programs(f: Any, flag: bool, dtype: str) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    g = lambda a, b: f(a, b, flag) * np.sin(a)  # noqa: E731
    calls = partial(pulled, g), partial(pushed, g), mixad.jacobian(g, (0, 1))
    for call in calls:
        expected = outcome(lambda call=call: by_nodes(call, x, y))
        for _ in range(3):
            assert close(outcome(lambda call=call: call(x, y)), expected)


def outcome(call: Callable[[], Any]) -> Any:
    """Return types and bits of what a call gives, or its error."""
    try:
        with np.errstate(all="ignore"):
            return bits(call())
    except Exception as error:
        return type(error), str(error)


def test_results_that_are_one_value_are_pulled_back_together() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        return y, y.copy(), y.reshape(-1), x * 1.0

    _, pullback = mixad.vjp(f, X)
    ones = np.ones(X.shape)
    for _ in range(3):
        (found,) = pullback((ones, 2.0 * ones, 4.0 * ones, 8.0 * ones))
        np.testing.assert_allclose(found, 7.0 * np.cos(X) + 8.0, rtol=1e-14)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_copy_that_another_segment_reads_has_a_cotangent(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_MIN_LENGTH", length)
    monkeypatch.setattr(states, "_MAX_LENGTH", length)

    def f(x: Any) -> Any:
        y, same, turned = x * 1.0, x * 2.0, x
        for _ in range(6):
            y, same, turned = y * 0.9 + 0.1 * same * turned, y.copy(), y.reshape(-1)
        return (y * same + turned).sum()

    expected = [f(X + 1e-30j * unit).imag * 1e30 for unit in np.eye(len(X))]
    for _ in range(3):
        np.testing.assert_allclose(mixad.grad(f)(X), expected, rtol=1e-13)
