"""Rolled arrays are not made where kernels alone read them: derivatives against complex steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.tape import plan_steps
from mixad.tape.entries import Evaluated, Launched
from mixad.tape.journal import Noted, RuleEquation
from mixad.tape.planner import Planner

EXAMPLES = 60

pytestmark = pytest.mark.usefixtures("fresh")

U = np.random.default_rng(0).normal(size=(5, 7))
V = np.random.default_rng(1).normal(size=(5, 7))
roll = np.roll


@pytest.fixture
def rolled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shifts of arrays that plans have made."""
    made: list[Any] = []
    own = plan_steps.rolled

    def counted(array: Any, shifts: Any) -> Any:
        made.append(shifts)
        return own(array, shifts)

    monkeypatch.setattr(plan_steps, "rolled", counted)
    return made


def check(f: Callable[..., Any], *arrays: Any, places: int = 4) -> None:
    """Compare gradients, also of further calls, with complex steps at some places."""
    gradients = mixad.grad(f, argnums=tuple(range(len(arrays))))
    found = [gradients(*arrays) for _ in range(4)][-1]
    rng = np.random.default_rng(2)
    for k, array in enumerate(arrays):
        for place in rng.integers(0, array.size, places):
            moved = [np.array(a, dtype=complex, order="C") for a in arrays]
            moved[k].reshape(-1)[place] += 1e-30j
            expected = f(*moved).imag / 1e-30
            np.testing.assert_allclose(found[k].reshape(-1)[place], expected, rtol=1e-9, atol=1e-9)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "flattened": lambda u, v: (roll(u, 1) * v).sum(),
    "along axes": lambda u, v: (roll(u, (1, 2), (0, 1)) * v * roll(u, -3, 1)).sum(),
    "twice along one": lambda u, v: (roll(u, (1, 2), (0, 0)) * v).sum(),
    "by one number": lambda u, v: (roll(u, 1, (0, 1)) * v).sum(),
    "rolled again": lambda u, v: (roll(roll(u, 1, 0), -2, 1) * v + roll(roll(u, 1, 0), 2, 0)).sum(),
    "of a sum": lambda u, v: (roll(u + roll(v, 1, 0), 1, 0) * u).sum(),
    "of a product": lambda u, v: (np.sin(roll(u * v, 1, 1)) * roll(v, 1, 0)).sum(),
    "read by a rule": lambda u, v: (roll(u, 1, 0) @ v.T + (roll(u, 1, 0) * v).sum()).sum(),
    "returned views": lambda u, v: (roll(u, 1, 0)[1:] * v[1:] * roll(v, 1, 1)[:-1]).sum(),
    "beside a row": lambda u, v: (np.exp(roll(u, 1, 0) * v[0]) * u).sum(),
    "by whole turns": lambda u, v: (roll(u, 5, 0) * v + roll(u, -14, 1)).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_programs(name: str) -> None:
    check(PROGRAMS[name], U, V)
    check(PROGRAMS[name], np.asfortranarray(U), V[:, ::-1])


C = np.random.default_rng(3).normal(size=(3, 2))
M = np.random.default_rng(4).normal(size=(2, 3))


def test_sums_that_kernels_leave_in_another_order() -> None:
    def loop(x: Any) -> Any:
        for _ in range(40):
            s = roll(np.sin(x), 1, 1)
            x = (s.T * M).T + roll(s, 1, 0) * C + 0.1 * x
        return (x * C).sum()

    def sums(b: Any) -> Any:
        s = roll(b, 1, 0)
        total = ((s.T * M).T).sum() + (np.sin(roll(s, 1, 1)) * C).sum()
        return total + sum((roll(b, (k, 1), (0, 1)) * C).sum() for k in (1, 2))

    for f in (loop, sums):
        gradient = mixad.grad(f)
        for k in range(4):
            x = C * (1.0 + k) - k
            expected = [f(x + 1e-30j * unit).imag / 1e-30 for unit in np.eye(6).reshape(6, 3, 2)]
            np.testing.assert_allclose(gradient(x).ravel(), expected, rtol=1e-9, atol=1e-12)


def test_many_shifts_of_a_large_array_beside_others() -> None:
    def f(b: Any) -> Any:
        c, total = np.cumsum(b[:, ::-1], 0), 0.0
        for k in range(1, 10):
            total = total + roll(b, (k, 5 * k), (0, 1))
        return (c * total + total).sum()

    check(f, np.random.default_rng(0).normal(size=(100, 100)))


def wave(u: Any) -> Any:
    before = now = u
    for _ in range(30):
        around = roll(now, 1, 0) + roll(now, -1, 0) + roll(now, 1, 1) + roll(now, -1, 1)
        before, now = now, 2.0 * now - before + 0.2 * (around - 4.0 * now)
    return (now * V).sum()


def test_a_loop_makes_no_rolled_array(rolled: list[Any]) -> None:
    gradient = mixad.grad(wave)
    check(wave, U)
    rolled.clear()
    gradient(U)
    assert len(rolled) < 10  # of 240: what a sum reads


def test_of_a_turn_is_stored_what_another_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[int] = []

    def counted(self: Planner, *given: Any, **options: Any) -> Any:
        entries = plan(self, *given, **options)
        stored.extend(len(e.results) for e in entries if isinstance(e, Launched))
        return entries

    plan = Planner.plan
    monkeypatch.setattr(Planner, "plan", counted)
    mixad.grad(wave)(U)
    assert len(stored) > 6
    assert set(stored) == {1}


def test_nothing_is_computed_that_nobody_reads() -> None:
    equations = [
        RuleEquation(cast("Any", None), {}, (read,), (False,), (), (made,), ((3,),), waits=False)
        for read, made in ((0, -1), (-1, -2), (-1, -3))
    ]
    noted = Noted(equations, [], {}, 3, [])

    def entries(*wanted: int) -> list[Any]:
        return Planner(noted, is_reverse=False, fuses=True, beside=U).plan(
            [], wanted, of_number=False
        )

    assert entries(-3) == [
        Evaluated(cast("Any", None), {}, *((r,), (m,))) for r, m in ((0, -1), (-1, -3))
    ]
    assert entries() == []


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_random_loops(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    shift = st.tuples(st.sampled_from("ab"), st.integers(-6, 6), st.sampled_from((0, 1, (0, 1))))
    terms = data.draw(st.lists(shift, min_size=1, max_size=4))
    turns = data.draw(st.integers(1, 40))

    def loop(a: Any, b: Any) -> Any:
        for _ in range(turns):
            total = 0.1 * a
            for name, by, axis in terms:
                total = total + 0.1 * np.sin(roll(a if name == "a" else b, by, axis))
            a, b = total, 0.5 * b + 0.1 * total * roll(b, 1, 0)
        return (a * b + roll(a, 1, 1)).sum()

    rng = np.random.default_rng(0)
    check(loop, rng.normal(size=shape), rng.normal(size=shape), places=2)
