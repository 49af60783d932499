"""What registers hold: views of arrays of any library, and which arrays may share memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.tape import segments
from mixad.tape.plan import Plan
from mixad.tape.registers import have_same_bits, may_share_memory, strided_view_in

xp = mixad.namespace_of(np)
WHOLE = np.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize("key", [np.s_[1:], np.s_[::2, ::-1], np.s_[:, 2:3]], ids=str)
def test_a_view_is_found_again_in_another_array_of_the_layout(key: Any) -> None:
    strided = strided_view_in(WHOLE[key], WHOLE)
    assert strided is not None
    other = WHOLE + 100.0
    np.testing.assert_array_equal(strided.of(other), other[key])
    assert np.shares_memory(strided.of(other), other)


def test_views_beyond_an_array_or_in_one_with_gaps_are_none() -> None:
    assert strided_view_in(WHOLE, WHOLE[1:]) is None
    assert strided_view_in(WHOLE[:2, 1:2], WHOLE[:, 1:]) is None
    assert strided_view_in(WHOLE[:0], WHOLE) is None
    strict = array_api_strict.asarray(WHOLE)  # tells no addresses
    assert strided_view_in(strict[1:, ...], strict) is None


def test_arrays_share_memory_by_their_addresses_where_libraries_tell_them() -> None:
    assert may_share_memory(WHOLE[::-1], WHOLE[:1])
    assert not may_share_memory(WHOLE[:2], WHOLE[2:])
    assert not may_share_memory(WHOLE[0, 0], WHOLE)
    assert not may_share_memory(1.0, WHOLE)
    strict = array_api_strict.asarray(WHOLE)
    assert may_share_memory(strict, array_api_strict.asarray(WHOLE + 1.0))  # nobody knows
    assert not may_share_memory(strict, WHOLE + 1.0)


@pytest.mark.parametrize("convert", [np.asarray, array_api_strict.asarray])
def test_bits_are_compared_with_signs_of_zeros(convert: Callable[..., Any]) -> None:
    assert have_same_bits(convert([0.0, np.nan]), convert([0.0, np.nan]))
    assert not have_same_bits(convert([0.0]), convert([-0.0]))
    assert not have_same_bits(convert([0.0]), convert([[0.0]]))


PROGRAMS: dict[str, Callable[..., Any]] = {
    "operators": lambda x, y: xp.sum(2.0 * x + xp.sin(x) * y - y / 3.0),
    "a rule": lambda x, y: xp.sum(xp.cumulative_sum(x * x)) + xp.sum(xp.std(y, axis=1)),
    "a branch": lambda x, y: xp.sum(x * y) if xp.sum(x * y) > 0 else xp.sum(x + y),
    "indices": lambda x, y: xp.sum(y[1:, ::2]) * x[-1],
}


@pytest.mark.parametrize("device", ["CPU_DEVICE", "device1"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_a_library_are_planned_and_those_of_numpys(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    own, where = Plan.run, array_api_strict.Device(device)
    put = lambda a: array_api_strict.asarray(a, device=where)  # noqa: E731
    mixad.grad(lambda x: xp.sum(x))(put(np.ones(2)))  # strands know a library once it is met

    def run(plan: Plan, *args: Any, **options: Any) -> Any:
        plans.append(plan)
        return own(plan, *args, **options)

    def make(*args: Any, **options: Any) -> Any:
        found = make_plan(*args, **options)
        plans.append(found[0])
        return found

    make_plan = segments.make_plan
    monkeypatch.setattr(Plan, "run", run)
    monkeypatch.setattr(segments, "make_plan", make)
    gradient = mixad.grad(PROGRAMS[name], (0, 1))
    x, y = np.linspace(0.5, 2.0, 4), np.linspace(-1.0, 1.0, 12).reshape(3, 4)
    for scale in (1.0, -0.7, 1.3):
        args = scale * x, scale * y
        plans.clear()
        found = gradient(*map(put, args))
        assert plans
        for mine, other in zip(found, gradient(*args), strict=True):
            assert mine.device == where
            np.testing.assert_allclose(np.from_dlpack(mine), other, rtol=1e-14, atol=1e-15)


def test_gradients_are_on_the_device_of_their_argument() -> None:
    """Arguments on several devices have no strand: it has one."""
    here, there = (array_api_strict.Device(name) for name in ("CPU_DEVICE", "device1"))
    x = array_api_strict.asarray([1.0, 2.0], device=here)
    y = array_api_strict.asarray([3.0, 4.0], device=there)
    for _ in range(3):
        gx, gy = mixad.grad(lambda x, y: xp.sum(x * x), (0, 1))(x, y)
        assert (gx.device, gy.device) == (here, there)


def test_tangents_share_no_memory_with_one_another() -> None:
    x = array_api_strict.asarray([1.0, 2.0])
    _, pushforward = mixad.linearize(lambda x: xp.broadcast_to(xp.sum(x), (3,)), x)
    for _ in range(3):
        tangent = pushforward(x)
        assert np.asarray(tangent).tolist() == [3.0, 3.0, 3.0]
        tangent[0] = 99.0
        assert np.asarray(tangent).tolist() == [99.0, 3.0, 3.0]


def test_a_rule_of_the_user_may_write_to_its_cotangent() -> None:
    """Strict arrays cannot be locked, so the rule is handed copies."""

    @mixad.custom_vjp
    def square(u: Any) -> Any:
        return u * u

    def bwd(u: Any, g: Any) -> Any:
        found = 2.0 * u * g
        g *= 3.0
        return (found,)

    square.defvjp(lambda u: (u * u, u), bwd)
    x, one = array_api_strict.asarray(0.7), array_api_strict.asarray([1.0, 1.0])
    for _ in range(4):
        assert float(mixad.grad(square)(x)) == 1.4
    assert np.asarray(mixad.grad(lambda x: xp.sum(x))(one)).tolist() == [1.0, 1.0]
