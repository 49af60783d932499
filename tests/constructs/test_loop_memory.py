"""Loops that keep few carries: steps run again as the binomial schedule says."""

from functools import cache

import numpy as np
import pytest

import mixad
from mixad.constructs import loop as loops
from mixad.constructs.schedule import Schedule
from mixad.errors import TracerError

WIDTH = 10
CARRY = 8 * WIDTH


@cache
def fewest(steps, room):
    """Return how many steps run again at least: by trying all."""
    if steps == 1:
        return 0
    if room == 1:
        return steps * (steps - 1) // 2
    return min(k + fewest(steps - k, room - 1) + fewest(k, room) for k in range(1, steps))


def by_schedule(steps, room):
    """Return how many steps run again where each cut is the schedule's."""
    if steps == 1:
        return 0
    if room == 1:
        return steps * (steps - 1) // 2
    first = Schedule(room).advance(steps)
    assert 1 <= first < steps
    return first + by_schedule(steps - first, room - 1) + by_schedule(first, room)


@pytest.mark.parametrize("room", [1, 2, 3, 5, 8])
def test_no_schedule_runs_fewer_steps_again(room):
    for steps in range(1, 40):
        formula = Schedule(room).steps_again(steps)
        assert formula == fewest(steps, room) == by_schedule(steps, room)


def logistic(rate, steps, memory, **options):
    def f(c, _):
        return (rate * c * (1.0 - c), None)

    carry, _ = mixad.scan(f, np.linspace(0.1, 0.9, WIDTH), length=steps, memory=memory, **options)
    return carry.sum()


@pytest.mark.parametrize("room", [2, 3, 5, 10, 29, 30, 31])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_do_not_depend_on_memory(room, reverse):
    def run(memory):
        return mixad.value_and_grad(lambda rate: logistic(rate, 30, memory, reverse=reverse))(2.7)

    assert run(room * CARRY) == run(None)

    def hessian(memory):
        return mixad.grad(mixad.grad(lambda rate: logistic(rate, 8, memory)))(2.7)

    assert hessian(room * CARRY) == pytest.approx(hessian(None), rel=1e-13)


@pytest.mark.parametrize("room", [2, 3, 7])
def test_as_many_steps_run_again_as_the_formula_says(room, monkeypatch):
    taken = []
    step = loops.Step.__call__

    def counted(self, registers):
        taken.append(self)
        return step(self, registers)

    monkeypatch.setattr(loops, "_run_natively", lambda *_: False)
    steps = 25

    def run(memory):
        return mixad.grad(lambda rate: logistic(rate, steps, memory))(2.7)

    run((room + 1) * CARRY), run((room + 1) * CARRY)  # the second is run by a plan
    monkeypatch.setattr(loops.Step, "__call__", counted)
    run((room + 1) * CARRY)
    primal, pullback = steps, steps
    assert len(taken) == primal + Schedule(room).steps_again(steps) + pullback


def test_too_little_memory_is_refused_with_what_is_needed():
    with pytest.raises(TracerError, match="memory=160"):
        mixad.grad(lambda rate: logistic(rate, 30, 100))(2.7)


def test_carries_for_which_there_is_no_memory_are_handed_on():
    def run(x, memory):
        return mixad.scan(lambda c, _: (c * x, None), np.ones(4), length=9, memory=memory)[0]

    np.testing.assert_array_equal(run(1.5, 40), run(1.5, None))
    _, tangent = mixad.jvp(lambda x: run(x, 40), (1.5,), (1.0,))
    np.testing.assert_allclose(tangent, 9.0 * 1.5**8)


def test_memory_is_a_setting(monkeypatch):
    expected = mixad.grad(lambda rate: logistic(rate, 30, None))(2.7)
    monkeypatch.setenv("MIXAD_LOOP_MEMORY", "100")
    with pytest.raises(TracerError, match="memory=160"):
        mixad.grad(lambda rate: logistic(rate, 30, None))(2.7)
    monkeypatch.setenv("MIXAD_LOOP_MEMORY", "1k")
    assert mixad.grad(lambda rate: logistic(rate, 30, None))(2.7) == expected


def test_parts_and_results_of_stretches_come_together():
    xs = np.random.default_rng(0).standard_normal((11, WIDTH))

    def loss(xs, memory, reverse):
        def f(c, x):
            return (np.sin(c) + x, c * x)

        carry, ys = mixad.scan(f, np.ones(WIDTH), xs, memory=memory, reverse=reverse)
        return (carry * carry).sum() + (ys * ys).sum()

    for reverse in (False, True):

        def g(memory, at=reverse):
            return mixad.grad(lambda xs: loss(xs, memory, at))(xs)

        assert g(3 * CARRY).tobytes() == g(None).tobytes()
