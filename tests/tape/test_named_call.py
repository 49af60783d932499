"""Calls under names: gradients of any order against formulas, and names that tell programs."""

from __future__ import annotations

import numpy as np
import pytest

from mixad import broadcast
from mixad.errors import BackendError
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.scalar.ir import Program
from mixad.tape import named_call as module
from mixad.tape.named_call import NamedCall, name_call, named_call

X = np.asarray([-1.5, 0.5, 2.0])
W = np.asarray([[3.0], [-2.0]])


def cubed(w, x):
    return w * x * x * x


def program(function, *args) -> Program:
    return broadcast(function)._parse(args, {})[0].program


@pytest.fixture
def call() -> NamedCall:
    return name_call(program(cubed, W, X), DEFAULT_OPTIONS)


def test_the_values(call):
    np.testing.assert_allclose(call.launch([W, X])[0], W * X**3)


def test_gradients_are_summed_to_shapes(call):
    pulled = call.pullback((0, 1), (0,))
    seed = np.asarray([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]])
    given = [[W, X, seed][k] for k in pulled.kept]
    results = pulled.call.launch(given, (2, 3), ((2, 1), (3,)))
    dw, dx = (results[k] for k in pulled.gradients)
    np.testing.assert_allclose(dw, (seed * X**3).sum(1, keepdims=True))
    np.testing.assert_allclose(dx, (seed * 3 * W * X**2).sum(0))


def test_a_pullback_of_a_pullback(call):
    first = call.pullback((1,), (0,))
    seed, second_seed = np.ones((2, 3)), np.asarray([1.0, -1.0, 2.0])
    values = [[W, X, seed][k] for k in first.kept]
    at = first.kept.index(1)
    second = first.call.pullback((at,), (0,))
    given = [[*values, second_seed][k] for k in second.kept]
    (got,) = second.call.launch(given, (2, 3), ((3,),))
    np.testing.assert_allclose(got, second_seed * 6 * X * W.sum())


def test_the_pushforward(call):
    pushed = call.pushforward((0, 1))
    assert pushed.tangents == (0,)
    dw, dx = np.asarray([[1.0], [0.5]]), np.asarray([2.0, -1.0, 0.25])
    (got,) = pushed.call.launch([[W, X, dw, dx][k] for k in pushed.kept])
    np.testing.assert_allclose(got, dw * X**3 + 3 * W * X**2 * dx)
    assert call.pushforward((0, 1)) is pushed


def test_a_pushforward_of_a_pullback_of_a_pushforward(call, monkeypatch):
    """By its name, and ∂/∂x of 6 w x t s where the tangent is t, the cotangent s."""
    pushed = call.pushforward((1,))
    at = [pushed.kept.index(k) for k in (1, 2)]
    pulled = pushed.call.pullback((at[0],), (0,))
    places = [pushed.kept[k] if k < len(pushed.kept) else 3 for k in pulled.kept]
    again = pulled.call.pushforward((places.index(1),))
    monkeypatch.setattr(module, "_CALLS", {call.name: call})
    assert named_call(again.call.name).program == again.call.program
    values = [W, X, np.full(3, 2.0), np.full((2, 3), 3.0)]
    given = [*[values[k] for k in places], np.asarray([1.0, 10.0, 100.0])]
    (got,) = again.call.launch([given[k] for k in again.kept], (2, 3), ((2, 3),))
    np.testing.assert_allclose(got, np.broadcast_to(6 * W * 2.0 * 3.0, (2, 3)) * given[-1])


def test_tangents_that_are_zero_have_no_call():
    call = name_call(program(lambda w, x: (w, x * x), W, X), DEFAULT_OPTIONS)
    assert call.pushforward((0,)).tangents == (0, None)
    assert call.pushforward(()).call is None


def test_a_shape_that_no_lane_has_is_filled():
    call = name_call(program(lambda w, x: w + x, W, X), DEFAULT_OPTIONS)
    (got,) = call.launch([np.ones(1), X], (2, 3), ((2, 1),))
    np.testing.assert_allclose(got, np.full((2, 1), (X + 1).sum()))


def test_static_zeros_have_no_call():
    call = name_call(program(lambda x: 1.0 if x > 0.0 else 2.0, X), DEFAULT_OPTIONS)
    pulled = call.pullback((0,), (0,))
    assert (pulled.call, pulled.kept, pulled.gradients) == (None, (), (None,))


def test_names_tell_programs_and_options_apart(call):
    assert name_call(program(cubed, W, X), DEFAULT_OPTIONS) is call
    others = [
        name_call(program(cubed, W, X), KernelOptions(chunk=1)),
        name_call(program(cubed, W.astype("f4"), X), DEFAULT_OPTIONS),
        name_call(program(lambda w, x: w * x, W, X), DEFAULT_OPTIONS),
        call.pullback((0,), (0,)).call,
        call.pullback((1,), (0,)).call,
    ]
    assert len({call.name, *[other.name for other in others]}) == 6


def test_a_pullback_is_found_by_name_in_a_process_that_did_not_make_it(call, monkeypatch):
    made = call.pullback((1,), (0,)).call.pullback((0,), (0,)).call
    root = NamedCall(call.name, call.program, call.options)
    monkeypatch.setattr(module, "_CALLS", {root.name: root})
    assert named_call(made.name) is not made
    assert named_call(made.name).program == made.program


def test_a_name_nobody_made_is_refused():
    with pytest.raises(BackendError, match="another process"):
        named_call("f 0123/0:0")


@pytest.mark.parametrize("k", [[0, 2], [2, 1, 2]])  # the last: as many as the array has elements
def test_the_gradient_of_an_indexed_array(k):
    table, k = np.asarray([2.0, 3.0, 5.0]), np.asarray(k)
    square = broadcast(lambda k: table[k] * table[k])
    call = name_call(square._parse((k,), {})[0].program, DEFAULT_OPTIONS)
    pulled = call.pullback((1,), (0,))
    seed = np.arange(1.0, len(k) + 1)
    given = [[k, table, seed][at] for at in pulled.kept]
    (got,) = pulled.call.launch(given, k.shape, (table.shape,))
    expected = np.zeros(3)
    np.add.at(expected, k, 2 * seed * table[k])
    np.testing.assert_allclose(got, expected)
