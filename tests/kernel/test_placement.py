"""The choice between storing partials and evaluating a program again."""

from dataclasses import replace

from mixad.kernel.placement import Work, forward_pays


def work(primal: int, dual: int, inputs: float, active: float, stored: int) -> Work:
    return Work(primal, dual, dual, inputs, 1, active, stored, stored)


def test_what_memory_bounds_is_evaluated_again() -> None:
    assert not forward_pays(work(70, 120, inputs=4, active=4, stored=4))
    assert not forward_pays(work(10, 20, inputs=1, active=1, stored=1))


def test_what_arithmetic_bounds_is_evaluated_once() -> None:
    assert forward_pays(work(500, 700, inputs=1, active=1, stored=1))
    assert forward_pays(work(2000, 4000, inputs=4, active=4, stored=4))


def test_many_partials_cost_more_than_one_evaluation() -> None:
    assert forward_pays(work(200, 400, inputs=2, active=1, stored=1))
    assert not forward_pays(work(200, 600, inputs=10, active=10, stored=10))


def test_partials_that_reverse_accumulation_makes_at_less_cost_are_not_stored() -> None:
    stored = work(2000, 6000, inputs=24, active=24, stored=24)
    assert forward_pays(stored)
    assert not forward_pays(replace(stored, backward=2500))


def test_gradients_of_what_is_broadcast_are_not_moved() -> None:
    """A share of an array is moved each time, the partials are whole arrays."""
    assert forward_pays(work(110, 150, inputs=3, active=3, stored=3)) is False
    assert forward_pays(work(110, 150, inputs=0.01, active=0.01, stored=4)) is False
    assert forward_pays(work(110, 150, inputs=0.01, active=0.01, stored=1)) is True
