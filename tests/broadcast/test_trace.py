"""Traces of one element, beside partials derived by hand and beside `duals` there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixad
from mixad import special
from mixad.errors import KernelGradientError, KernelIndexError, ZeroDerivativeWarning


def steps_of(trace, text):
    """Return the steps of the lines with a text."""
    return [step for step in trace.steps if text in step.line.text]


@mixad.broadcast
def wave(x, y):
    z = x * y
    return z * math.sin(x)


def test_each_equation_has_its_value_and_partials():
    x, y = 0.7, 3.0
    trace = wave.trace(np.asarray([0.0, x]), np.full((4, 1), y), at=(-1, 1))
    product, sine, result = trace.steps
    assert (product.text, sine.text, result.text) == (
        "%2 = mul x, y",
        "%3 = sin x",
        "%4 = mul %2, %3",
    )
    expected = [
        (x * y, y, x),
        (math.sin(x), math.cos(x), None),
        (x * y * math.sin(x), y * math.sin(x) + x * y * math.cos(x), x * math.sin(x)),
    ]
    for step, (value, by_x, by_y) in zip(trace.steps, expected, strict=True):
        np.testing.assert_allclose(step.dual.primal, value, rtol=1e-15)
        np.testing.assert_allclose(step.dual.partials["x"], by_x, rtol=1e-15)
        assert ("y" in step.dual.partials) == (by_y is not None)
        assert by_y is None or math.isclose(step.dual.partials["y"], by_y, rel_tol=1e-15)
    assert trace.returned == (result.dual,)
    assert (trace.function, trace.index, trace.wrt) == ("wave", (3, 1), ("x", "y"))
    assert trace.inputs == {"x": x, "y": y}


@mixad.broadcast
def halved(x, y):
    while x > 1.0:
        x = 0.5 * x
    if x < y:
        return y * y
    return x * x


def test_turns_of_a_loop_are_shown_and_the_branch_that_is_taken():
    trace = halved.trace(np.asarray([0.1, 6.0]), 0.5, at=1)
    iterations = steps_of(trace, "x = 0.5 * x")
    assert [step.iterations for step in iterations] == [(1,), (2,), (3,)]
    assert [step.dual.primal for step in iterations] == [3.0, 1.5, 0.75]
    assert [step.dual.partials["x"] for step in iterations] == [0.5, 0.25, 0.125]
    assert not steps_of(trace, "y * y")
    assert trace.returned[0].partials == {"x": 2 * 0.75 * 0.125}
    other = halved.trace(np.asarray([0.1, 6.0]), 0.5, at=0)
    assert not steps_of(other, "x = 0.5 * x")
    assert other.returned[0].primal == 0.25


def test_turns_of_loops_in_loops_are_told_apart():
    @mixad.broadcast
    def nested(x):
        total = x
        for i in range(int(x)):
            for j in range(i + 1):
                total = total + x * j
        return total

    iterations = [step.iterations for step in steps_of(nested.trace(3.5), "total + x * j")]
    assert sorted(set(iterations)) == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]


@mixad.broadcast
def mean_anomaly(mean, e):
    E = mean
    step = 1.0
    while abs(step) > 1e-12:
        step = (E - e * np.sin(E) - mean) / (1.0 - e * np.cos(E))
        E = E - step
    return E


def test_a_solution_by_newtons_method_has_the_derivative_of_an_implicit_function():
    trace = mean_anomaly.trace(np.linspace(0.5, 2.0, 4), 0.3, at=2, wrt=("mean", "e"))
    (solved,) = trace.returned
    E = solved.primal
    assert math.isclose(E - 0.3 * math.sin(E), 1.5, rel_tol=1e-14)
    slope = 1 / (1 - 0.3 * math.cos(E))
    np.testing.assert_allclose(solved.partials["mean"], slope, rtol=1e-12)
    np.testing.assert_allclose(solved.partials["e"], math.sin(E) * slope, rtol=1e-12)


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Spring:
    rest: Any
    end: Pair


POINTS = np.arange(6.0).reshape(3, 2)
TABLE = np.asarray([0.5, -2.0, 4.0])
RATE = 1.25


@mixad.scalar_rule(lambda out, x: 2 * x)
def square(x):
    return x * x


def gathered(points: mixad.Array, i, x):
    return points[i, 0] * x + points[i, 1]


@mixad.broadcast(loops="implicit")
def root(a):
    x = a
    while abs(x * x - a) > 1e-14 * a:
        x = 0.5 * (x + a / x)
    return x


def first_moment(v, x):
    total = 0.0
    for k in range(3):
        total += v[k] * x**k
    return total


def flushed(z, c, f):
    if z == 1.0:
        return special.sigmoid(f)
    return special.sigmoid(f) * c


GRID = np.linspace(0.2, 1.9, 4)
AGREE: dict[str, tuple[Any, tuple[Any, ...], int | tuple[int, ...]]] = {
    "branches": (flushed, (np.asarray([1.0, 0.0]), 0.3 * np.ones(2), np.full((3, 2), 0.2)), (2, 1)),
    "gammainc": (lambda x: special.gammainc(1.5, x), (GRID,), 3),
    "a quotient at its singularity": (lambda x: np.sqrt(x) * x, (np.zeros(2),), 0),
    "an infinite partial": (lambda x: np.sqrt(x), (np.zeros(2),), 1),
    "half precision": (lambda x: np.exp(x) * x + 1.0, (GRID.astype("f2"),), 2),
    "single precision": (lambda x, y: x / y - np.tanh(x), (GRID.astype("f4"), 3.0), 1),
    "a captured array read by index": (lambda i, x: TABLE[i] * x, (np.asarray([2, 1]), 3.0), 1),
    "an array argument": (gathered, (POINTS, np.asarray([0, -1]), GRID[:2]), 1),
    "fixed-point": (root, (np.asarray([2.0, 9.0]),), 1),
    "vectors": (first_moment, (np.arange(6.0).reshape(2, 3), GRID[:2]), 1),
    "a rule of one's own": (lambda x: square(x) * RATE, (GRID,), 2),
    "structures": (lambda s: s.rest * s.end.b - s.end.a, (Spring(GRID, Pair(2.0, GRID)),), 1),
    "several results": (lambda x, n: (x * n, n + 1, x > 1.0), (GRID, np.arange(4)), 3),
    "numbers alone": (lambda x: x * x, (3.0,), ()),
}  # fmt: skip
"""Functions with arguments and an element."""


@pytest.mark.rows("name", AGREE, slow="fixed-point gammainc vectors")
def test_results_are_those_of_duals_at_the_element(name):
    function, arguments, at = AGREE[name]
    options = {"signature": "(n),()->()"} if name == "vectors" else {}
    is_kernel = isinstance(function, mixad.BroadcastFunction)
    kernel = function if is_kernel else mixad.broadcast(**options)(function)
    trace = kernel.trace(*arguments, at=at)
    expected = kernel.duals(*arguments)
    chunks = expected if isinstance(expected, tuple) else (expected,)
    tolerance = 4 * float(np.finfo(chunks[0].primal.dtype).eps)
    for got, chunk in zip(trace.returned, chunks, strict=True):
        np.testing.assert_allclose(got.primal, chunk.primal[at], rtol=tolerance)
        for partial_name, partial in chunk.partials.items():
            wanted = np.atleast_1d(partial[at])
            names = [partial_name] if partial_name in trace.wrt else parts(trace, partial_name)
            own = [got.partials.get(each, 0.0) for each in names]
            np.testing.assert_allclose(own, wanted, rtol=tolerance)


def parts(trace, name):
    """Return the names of a vector's elements."""
    return [each for each in trace.wrt if each.startswith(f"{name}[")]


def test_a_complex_number_has_partials_by_its_parts():
    squared = mixad.broadcast(lambda z: z * z)
    real, imag = squared.trace(np.asarray([0.0j, 2.0 + 1.0j]), at=1).returned
    assert (real.primal, imag.primal) == (3.0, 4.0)
    # Cauchy and Riemann: 2 z = 4 + 2i
    assert dict(real.partials) == {"z.real": 4.0, "z.imag": -2.0}
    assert dict(imag.partials) == {"z.real": 2.0, "z.imag": 4.0}


def test_a_captured_number_is_named_in_wrt():
    scaled = mixad.broadcast(lambda x: x * RATE)
    assert scaled.trace(np.asarray([3.0]), at=0, wrt="RATE").returned[0].partials == {"RATE": 3.0}


def test_a_method_is_traced_with_its_instance():
    class Model:
        rate = 2.0

        @mixad.broadcast
        def scaled(self, x):
            return self.rate * x * x

    assert Model().scaled.trace(np.asarray([3.0]), at=0).returned[0].partials == {"x": 12.0}


def test_traced_values_are_looked_at_inside_of_a_gradient():
    seen = []

    def loss(x):
        seen.append(wave.trace(x, 2.0, at=0, wrt="x").returned[0].partials["x"])
        return wave(x, 2.0).sum()

    gradient = mixad.grad(loss)(np.asarray([0.5]))
    assert seen == [pytest.approx(2 * math.sin(0.5) + math.cos(0.5), rel=1e-15)]
    np.testing.assert_allclose(gradient, seen, rtol=1e-15)


def test_steps_in_a_function_of_mixad_have_the_users_line_and_are_shown_by_the_last():
    trace = mixad.broadcast(lambda p: 2.0 * special.ndtri(p)).trace(np.asarray([0.9]), at=0)
    inside = [step for step in trace.steps if step.line.call is not None]
    assert len(inside) > 1
    assert {step.line.users.text for step in inside} == {trace.steps[-1].line.text}
    shown = str(trace)
    assert f"... {len(inside) - 1} steps" in shown
    assert inside[-1].text in shown
    assert inside[0].text not in shown


def test_a_result_that_comparisons_alone_decide_is_warned_of():
    @mixad.broadcast
    def bisected(a):
        low, high = 0.0, 4.0
        while high - low > 1e-3:
            middle = 0.5 * (low + high)
            if middle * middle < a:
                low = middle
            else:
                high = middle
        return low

    with pytest.warns(ZeroDerivativeWarning, match="low"):
        bisected.trace(np.asarray([2.0]), at=0)


@pytest.mark.parametrize("at", [(), 4, -5, (0, 0), 1.0, "x"])
def test_an_element_that_is_not_there_is_refused(at):
    with pytest.raises(KernelIndexError, match=r"is no element of the broadcast shape \(4,\)"):
        wave.trace(GRID, 1.0, at=at)


def test_an_index_outside_an_array_is_told_with_its_line():
    looked_up = mixad.broadcast(lambda i: TABLE[i])
    with pytest.raises(KernelIndexError, match=r"element \(1,\): index 7 is outside 'TABLE'") as e:
        looked_up.trace(np.asarray([1, 7]), at=1)
    assert "lambda i: TABLE[i]" in str(e.value)
    assert looked_up.trace(np.asarray([1, 7]), at=0).returned[0].primal == -2.0


def test_more_partials_than_a_chunk_carries_are_refused():
    total = mixad.broadcast(lambda v: sum(v), signature="(n)->()")
    with pytest.raises(KernelGradientError, match="with respect to 11 inputs"):
        total.trace(np.ones((2, 11)), at=0)
    assert len(total.trace(np.ones((2, 11)), at=0, wrt=("v[0]", "v[1]")).wrt) == 2
