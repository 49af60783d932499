"""Loops whose number of steps depends on elements, and choices in bodies."""

import _thread
import threading

import numpy as np
import pytest

import mixad
from mixad.errors import TracerError


def root(a):
    """Return the square root of a number, by Newton's method."""
    return mixad.while_loop(
        lambda x: abs(x * x - a) > 1e-13 * a, lambda x: 0.5 * (x + a / x), a * 1.0
    )


def test_a_root_and_its_derivatives():
    assert root(2.0) == pytest.approx(2.0**0.5, rel=1e-15)
    assert mixad.grad(root)(2.0) == pytest.approx(0.5 * 2.0**-0.5, rel=1e-14)
    assert mixad.jvp(root, (2.0,), (1.0,))[1] == pytest.approx(0.5 * 2.0**-0.5, rel=1e-14)
    second = -0.25 * 2.0**-1.5
    assert mixad.grad(mixad.grad(root))(2.0) == pytest.approx(second, rel=1e-12)
    assert mixad.hvp(root, (2.0,), (1.0,)) == pytest.approx(second, rel=1e-12)


@pytest.mark.parametrize("limit", [-1.0, 0.5, 1.5, 1e4])
def test_the_number_of_steps_depends_on_elements(limit):
    def grown(x):
        def body(state):
            return (state[0] * x, state[1] + 1)

        return mixad.while_loop(lambda state: state[0].sum() < limit, body, (x * 0.5, 0))

    value, count = grown(np.array([1.5, 2.0]))
    x, expected = np.array([1.5, 2.0]) * 0.5, 0
    while x.sum() < limit:
        x, expected = x * np.array([1.5, 2.0]), expected + 1
    assert count == expected
    assert value.tobytes() == x.tobytes()
    g = mixad.grad(lambda x: grown(x)[0].sum())(np.array([1.5, 2.0]))
    wanted = 0.5 * (count + 1) * np.array([1.5, 2.0]) ** count
    np.testing.assert_allclose(g, wanted, rtol=1e-14)


def test_memory_for_two_carries_is_enough():
    def grown(x, memory):
        last, _ = mixad.while_loop(
            lambda s: s[1] < 20, lambda s: (np.sin(s[0]) * x, s[1] + 1), (x, 0), memory=memory
        )
        return last.sum()

    x = np.array([1.1, 0.7])
    assert (
        mixad.grad(lambda x: grown(x, 48))(x).tobytes()
        == mixad.grad(lambda x: grown(x, None))(x).tobytes()
    )


def test_a_loop_inside_of_a_loop():
    def f(a):
        def inner(c, x):
            return mixad.while_loop(lambda z: z < x * a, lambda z: z * 1.5 + a, c)

        return mixad.scan(lambda c, x: (inner(c, x), c), a * 0.1, np.arange(3.0))[0]

    step = 1e-6
    slope = (f(2.0 + step) - f(2.0 - step)) / (2.0 * step)
    assert mixad.grad(f)(2.0) == pytest.approx(slope, rel=1e-8)


def test_a_loop_that_never_ends_can_be_interrupted():
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mixad.while_loop(lambda x: x > 0.0, lambda x: x + 1.0, 1.0)
    timer.join()


CHOICES = {
    "cond": lambda c, x: mixad.cond(x[0] > 0.0, lambda c: np.sin(c) + x, lambda c: c * 0.5, c),
    "of all": lambda c, x: mixad.cond((c > 0.0).any(), lambda c: c * x, lambda c: c + np.cos(x), c),
    "switch": lambda c, x: mixad.switch(
        np.argmax(x), [lambda c: np.sin(c) + x, lambda c: c * 0.5, lambda c: c * x], c
    ),
    "a choice in a choice": lambda c, x: mixad.cond(
        x[0] > 0.0,
        lambda c: mixad.cond(c[0] > 0.0, lambda c: c * c * 0.3, lambda c: c * 0.2 + x, c),
        lambda c: c * 0.5,
        c,
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_in_bodies(name):
    rng = np.random.default_rng(0)
    init, xs, along = rng.standard_normal(3), rng.standard_normal((8, 3)), rng.standard_normal(3)
    f = CHOICES[name]

    def loss(init, xs):
        return (mixad.scan(lambda c, x: (f(c, x), None), init, xs)[0] ** 2).sum()

    def expected(init, xs):
        for x in xs:
            init = f(init, x)
        return (init**2).sum()

    found, wanted = mixad.grad(loss, (0, 1))(init, xs), mixad.grad(expected, (0, 1))(init, xs)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        mixad.hvp(lambda init: loss(init, xs), (init,), (along,)),
        mixad.hvp(lambda init: expected(init, xs), (init,), (along,)),
        rtol=1e-10,
        atol=1e-13,
    )
    _, tangent = mixad.jvp(lambda init: loss(init, xs), (init,), (along,))
    np.testing.assert_allclose(tangent, (wanted[0] * along).sum(), rtol=1e-10)


def test_elsewhere_a_choice_is_an_if():
    assert mixad.cond(True, lambda x: x, None, 3.0) == 3.0
    assert mixad.switch(7, [None, lambda x: x + 1.0], 3.0) == 4.0
    assert mixad.grad(lambda x: mixad.cond(x > 0.0, lambda x: x * x, lambda x: -x, x))(3.0) == 6.0


def test_functions_that_return_different_things_are_chosen_by_python():
    f = mixad.scan(lambda c, x: (c * mixad.cond(x > 2.0, lambda: 2, lambda: 3.0), None), 1.0, XS)
    assert f[0] == 18.0
    picked = mixad.map(lambda x: mixad.cond(x > 0.0, lambda x: x, lambda x: x[None], x).sum(), XS)
    assert picked.tolist() == XS.tolist()


XS = np.array([3.0, 1.5, 2.0])


def test_what_cannot_be_chosen_from():
    with pytest.raises(TracerError, match="pass one number"):
        mixad.cond(np.array([True, False]), lambda: 1.0, lambda: 2.0)
    with pytest.raises(TracerError, match="no branches"):
        mixad.switch(0, [])
    with pytest.raises(TracerError, match="one bool"):
        mixad.while_loop(lambda x: x, lambda x: x, 1.0)
    with pytest.raises(TracerError, match="no carry"):
        mixad.while_loop(lambda x: True, lambda x: x, None)
    with pytest.raises(TracerError, match="does not depend"):
        mixad.while_loop(lambda x: np.True_, lambda x: x, 1.0)


def test_a_body_does_not_run_where_there_are_no_steps():
    zeros = np.zeros((2, 2))
    for _ in range(2):
        found = mixad.while_loop(lambda m: m[0, 0] > 0.0, np.linalg.inv, zeros)
        assert found.tolist() == zeros.tolist()
        assert found is not zeros


def test_numbers_that_are_chosen_with_adapt_to_the_dtype_beside_them():
    def step(c, x):
        return mixad.cond(x > 0.0, lambda c, by: c * by, lambda c, by: c + by, c, 2.0), c

    xs = np.asarray([1.0, -1.0, 1.0], np.float32)
    carry, _ = mixad.scan(step, np.float32(1.5) * np.ones(2, np.float32), xs)
    assert carry.dtype == np.float32
    assert carry.tolist() == [10.0, 10.0]


def test_a_choice_by_a_list_is_refused_with_its_shape():
    with pytest.raises(TracerError, match=r"shape \(2,\)"):
        mixad.switch([0, 1], [abs, abs], 1.0)
