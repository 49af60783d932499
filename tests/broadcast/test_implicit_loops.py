"""Convergence loops differentiated where they end, against solutions of 50 digits.

The reference knows neither the loops nor the implicit function theorem: mpmath finds the roots, and
differentiates finding them by differences of high order in 50 digits.
"""

from __future__ import annotations

import linecache
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest

import mixad
from mixad.errors import KernelGradientError
from mixad.scalar.build import Builder
from mixad.scalar.elimination import solve_system
from mixad.scalar.expression import Term
from mixad.scalar.implicit import dependent_groups
from mixad.scalar.interpret import interpret
from mixad.scalar.types import F64


@mixad.broadcast(loops="implicit")
def anomaly(M, e):
    E = M
    step = 1.0
    while abs(step) > 1e-9:
        step = (E - e * np.sin(E) - M) / (1.0 - e * np.cos(E))
        E = E - step
    return E


@mixad.broadcast(loops="implicit")
def square_root(a, _):
    """Newton's method, left by `break` before the step is taken."""
    x = 1.0
    for _ in range(60):
        step = (x * x - a) / (2.0 * x)
        if abs(step) < 1e-11:
            break
        x = x - step
    return x


@mixad.broadcast(loops="implicit")
def returned_root(a, b):
    """The same, left by `return`."""
    x = 1.0
    for _ in range(60):
        step = (x * x * x + b * x - a) / (3.0 * x * x + b)
        if abs(step) < 1e-11:
            return x
        x = x - step
    return math.nan


@mixad.broadcast(loops="implicit")
def contraction(a, b):
    x, old = 0.5, 2.0
    while abs(x - old) > 1e-12:
        old = x
        x = math.cos(a * x) * b
    return x


@mixad.broadcast(loops="implicit")
def pair(a, b):
    x, y, moved = 0.5, 0.5, 1.0
    while moved > 1e-13:
        u, v = 0.3 * math.cos(a * y), 0.4 * math.sin(x + b)
        moved = abs(u - x) + abs(v - y)
        x, y = u, v
    return x


@mixad.broadcast(loops="implicit")
def triple(a, b):
    x, y, z, moved = 0.0, 0.0, 0.0, 1.0
    while moved > 1e-13:
        u = 0.2 * math.cos(y + a * z)
        v = 0.3 * math.sin(x * b + z)
        w = 0.25 * math.exp(-x * y) + 0.1 * a
        moved = max(abs(u - x), abs(v - y), abs(w - z))
        x, y, z = u, v, w
    return x + 2.0 * z


@mixad.broadcast(loops="implicit")
def implied_volatility(price, strike):
    """Newton's method inside a bracket that closes, for a call at spot 1, time 1, no interest."""
    low, high = 1e-3, 4.0
    vol = 0.5
    for _ in range(100):
        d1 = -math.log(strike) / vol + 0.5 * vol
        d2 = d1 - vol
        value = 0.5 * (math.erfc(-d1 / math.sqrt(2)) - strike * math.erfc(-d2 / math.sqrt(2)))
        if value > price:
            high = vol
        else:
            low = vol
        vega = math.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
        new = vol - (value - price) / vega
        if not (low <= new <= high):
            new = 0.5 * (low + high)
        if abs(new - vol) < 1e-12:
            break
        vol = new
    return vol


@mixad.broadcast(loops="implicit")
def nested(a, b):
    """A fixed point whose step has a Newton iteration inside."""
    x, old = 1.0, 0.0
    while abs(x - old) > 1e-13:
        old = x
        y, step = 1.0, 1.0
        while abs(step) > 1e-11:
            step = (y * y - (a + b * x)) / (2.0 * y)
            y = y - step
        x = 0.5 * y + 0.1
    return x


@mixad.broadcast(loops="implicit")
def damped(a, b):
    """Left at a small residual, with a damping that only the iterations read."""
    x, damping = 1.0, 0.5
    while True:
        residual = x * x * x + b * x - a
        if abs(residual) < 1e-13:
            return x
        x = x - damping * residual / (3.0 * x * x + b)
        damping = min(1.0, 2.0 * damping)


@mixad.broadcast(loops="implicit")
def secant(a, b):
    x0, x1 = 1.0, 2.0
    f0 = x0 * x0 * x0 + b * x0 - a
    for _ in range(50):
        f1 = x1 * x1 * x1 + b * x1 - a
        if abs(f1) < 1e-9:
            break
        x2 = x1 - f1 * (x1 - x0) / (f1 - f0)
        x0, x1, f0 = x1, x2, f1
    return x1


@mixad.broadcast(loops="implicit")
def horner(a, b):
    """A step with a counted loop inside."""
    x, moved = 0.3, 1.0
    while moved > 1e-15:
        total = 0.0
        for i in range(4):
            total = total * x + 0.3 * a / (i + 1)
        new = 0.2 * total + 0.1 * b
        moved = abs(new - x)
        x = new
    return x


def call_price(vol, strike):
    d1 = -mpmath.log(strike) / vol + vol / 2
    return mpmath.ncdf(d1) - strike * mpmath.ncdf(d1 - vol)


def root_of(*equations, start):
    """Return the function of (a, b) that finds the first unknown of equations f(x..., a, b) = 0."""

    def root(a, b):
        if len(equations) == 1:
            return mpmath.findroot(lambda x: equations[0](x, a, b), start[0])
        system = [lambda *x, f=f: f(*x, a, b) for f in equations]
        return mpmath.findroot(system, start)[0]

    return root


def of_triple(a, b):
    system = [
        lambda x, y, z: x - 0.2 * mpmath.cos(y + a * z),
        lambda x, y, z: y - 0.3 * mpmath.sin(x * b + z),
        lambda x, y, z: z - 0.25 * mpmath.exp(-x * y) - 0.1 * a,
    ]
    x, _, z = mpmath.findroot(system, (0.2, 0.1, 0.3))
    return x + 2 * z


CASES = {
    "kepler": (
        anomaly,
        root_of(lambda E, M, e: E - e * mpmath.sin(E) - M, start=[1.0]),
        (0.9, 0.3),
    ),
    "square root": (square_root, lambda a, b: mpmath.sqrt(a), (3.0, 1.0)),
    "returned": (returned_root, root_of(lambda x, a, b: x**3 + b * x - a, start=[1.0]), (2.0, 0.7)),
    "contraction": (
        contraction,
        root_of(lambda x, a, b: x - b * mpmath.cos(a * x), start=[0.5]),
        (0.8, 0.6),
    ),
    "pair": (
        pair,
        root_of(
            lambda x, y, a, b: x - mpmath.mpf("0.3") * mpmath.cos(a * y),
            lambda x, y, a, b: y - mpmath.mpf("0.4") * mpmath.sin(x + b),
            start=(0.3, 0.3),
        ),
        (1.1, 0.4),
    ),
    "triple": (triple, of_triple, (0.9, 1.2)),
    "volatility": (
        implied_volatility,
        root_of(lambda v, price, strike: call_price(v, strike) - price, start=[0.4]),
        (0.16, 1.05),
    ),
    "damped": (damped, root_of(lambda x, a, b: x**3 + b * x - a, start=[1.0]), (2.0, 0.7)),
    "horner": (
        horner,
        root_of(
            lambda x, a, b: (
                x
                - mpmath.mpf("0.06") * a * (x**3 + x**2 / 2 + x / 3 + mpmath.mpf(1) / 4)
                - b / mpmath.mpf(10)
            ),
            start=[0.2],
        ),
        (0.9, 1.2),
    ),
    "nested": (
        nested,
        root_of(lambda x, a, b: x - mpmath.sqrt(a + b * x) / 2 - mpmath.mpf("0.1"), start=[1.0]),
        (2.0, 0.6),
    ),
}
ORDERS = [(1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]


def derivatives(kernel, point):
    """Return value, first and second derivatives in the order of `ORDERS`."""
    v = np.asarray(point)
    g = mixad.grad(lambda v: kernel(v[0], v[1]))(v)
    h = mixad.hessian(lambda v: kernel(v[0], v[1]))(v)
    return [kernel(*point), g[0], g[1], h[0, 0], h[0, 1], h[1, 1]]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.rows("name", CASES, slow="triple pair returned volatility kepler contraction")
def test_derivatives_are_those_of_the_solution(name, backend):
    kernel, solution, point = CASES[name]
    got = derivatives(kernel.with_options(backend=backend), point)
    with mpmath.workdps(50):
        exact = [mpmath.mpf(p) for p in point]
        want = [solution(*exact), *(mpmath.diff(solution, exact, n) for n in ORDERS)]
    np.testing.assert_allclose(got, [float(w) for w in want], rtol=2e-9, atol=1e-10)


@pytest.mark.rows("name", CASES, slow="triple pair")
def test_values_are_those_of_the_loop_as_it_is(name):
    kernel, _, (a, b) = CASES[name]
    a, b = (p * np.linspace(0.9, 1.1, 37) for p in (a, b))
    values, gradients = mixad.value_and_vjp(kernel, (a, b), np.ones(37))
    np.testing.assert_array_equal(values, kernel.with_options(loops="unrolled")(a, b))
    assert np.isfinite(gradients).all()


@pytest.mark.slow
def test_a_lagging_iteration_has_the_derivative_of_its_limit():
    """Dual numbers in every iteration lag an iteration behind the value; here both are as good."""

    def slow(a):
        x, old = 0.0, 1.0
        while abs(x - old) > 1e-7:
            old = x
            x = 0.9 * x + math.sin(a)
        return x

    a = np.linspace(0.1, 1.0, 5)
    want = np.cos(a) / 0.1

    def error(**options):
        found = mixad.broadcast(slow).with_options(**options).duals(a).partials["a"]
        return np.abs(found - want).max()

    assert error(loops="implicit") < 1e-13
    assert error(loops="unrolled") > 1e-8


def test_newtons_method_that_begins_at_the_solution():
    """One iteration is made: enough for one derivative, not for two."""

    @mixad.broadcast(loops="implicit")
    def root(a):
        x, step = 1.0, 1.0
        while abs(step) > 1e-11:
            step = (x * x - a) / (2.0 * x)
            x = x - step
        return x

    assert mixad.grad(root)(1.0) == 0.5
    assert mixad.grad(mixad.grad(root))(1.0) == -0.25
    assert mixad.grad(mixad.grad(root.with_options(loops="unrolled")))(1.0) != -0.25


def test_the_secant_method_is_as_exact_as_where_it_stops():
    a, b = np.linspace(1.6, 2.5, 5), np.linspace(0.5, 0.9, 5)
    D = secant.duals(a, b)
    slope = 3 * D.primal**2 + b
    np.testing.assert_allclose(D.partials["a"], 1 / slope, rtol=1e-5)
    np.testing.assert_allclose(D.partials["b"], -D.primal / slope, rtol=1e-5)


def test_float32_keeps_its_digits():
    M = np.linspace(0.1, 3.0, 50, dtype="f4")
    e = np.full(50, 0.3, "f4")

    @mixad.broadcast(loops="implicit")
    def coarse(M, e):
        E, step = M, 1.0
        while abs(step) > 1e-5:
            step = (E - e * np.sin(E) - M) / (1.0 - e * np.cos(E))
            E = E - step
        return E

    E = coarse(M, e).astype("f8")
    D = coarse.duals(M, e)
    assert D.partials["M"].dtype == np.float32
    np.testing.assert_allclose(D.partials["M"], 1 / (1 - 0.3 * np.cos(E)), rtol=2e-6)


@pytest.mark.slow
def test_more_seeds_and_carries_than_one_chunk_holds():
    """Ten inputs and three carries: the step is evaluated in two passes."""

    @mixad.broadcast(loops="implicit")
    def many(p0, p1, p2, p3, p4, p5, p6, p7, p8, p9):
        x, y, z, moved = 0.1, 0.1, 0.1, 1.0
        while moved > 1e-14:
            u = 0.1 * math.cos(p0 * y + p1 * z + p2)
            v = 0.1 * math.sin(p3 * x + p4 * z + p5)
            w = 0.1 * math.cos(p6 * x + p7 * y + p8) + 0.1 * p9
            moved = abs(u - x) + abs(v - y) + abs(w - z)
            x, y, z = u, v, w
        return x + y * z

    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1.5, (10, 7))
    got = many.duals(*p).partials
    want = many.with_options(loops="unrolled").duals(*p).partials
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-9, atol=1e-15)


def test_several_results_of_a_loop_have_their_own_derivatives():
    @mixad.broadcast(loops="implicit")
    def solve(a):
        x, n, old = 1.0, 0, 0.0
        while abs(x - old) > 1e-10:
            old = x
            x = 0.5 * (x + a / x)
            n += 1
        return x, old, n

    a = np.asarray([2.0, 3.0])
    x, old, n = solve.duals(a)
    np.testing.assert_allclose(x.partials["a"], 0.5 / np.sqrt(a), rtol=1e-14)
    np.testing.assert_allclose(old.partials["a"], 0.5 / np.sqrt(a), rtol=1e-14)
    assert not n.partials


# -- loops that are not meant ----------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["counted", "stepped", "shrinking"])
def test_counted_loops_are_differentiated_turn_by_turn(kernel):
    def counted(a):
        x = 1.0
        for i in range(5):
            x = x + a * x / (i + 1)
        return x

    def stepped(a):
        x, t = 1.0, 0.0
        while t < 1.0:
            x = x - 0.125 * a * x
            t = t + 0.125
        return x

    def shrinking(a):
        x, h = 1.0, 1.0
        while h > 1e-3:
            x = x + h * a
            h = 0.5 * h
        return x

    f = locals()[kernel]
    a = np.linspace(0.1, 2.0, 5)
    got, want = (
        mixad.broadcast(f).with_options(loops=loops).duals(a) for loops in ("implicit", "unrolled")
    )
    np.testing.assert_array_equal(got.partials["a"], want.partials["a"])


def escaping(a):
    z = a
    while z < 100.0:
        z = z * z + 0.5
    return z


def product(a):
    p, n, factor = a, 1, 2.0
    while abs(factor - 1.0) > 1e-12:
        factor = 1.0 - (a / n) * 0.01**n
        p = p * factor
        n += 1
    return p


def mean_of_means(a):
    g = 1.0
    while abs(a - g) > 1e-14 * a:
        a, g = 0.5 * (a + g), math.sqrt(a * g)
    return a


def exhausted(a):
    x = 1.0
    for _ in range(3):
        old = x
        x = math.cos(0.1 * a * x)
        if abs(x - old) < 1e-12:
            break
    return x


def exhausted_in_the_test(a):
    x, old, n = 1.0, 0.0, 0
    while abs(x - old) > 1e-12 and n < 3:
        old = x
        x = math.cos(0.1 * a * x)
        n += 1
    return x


def bisected(a):
    low, high = 0.0, a + 1.0
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        if middle * middle > a:
            high = middle
        else:
            low = middle
    return low


def made_of_a_counter(a):
    y, n = 0.0, 0
    while y < 50.0:
        n += 1
        y = a * n
    return y


def made_of_a_clock(a):
    y, t = 0.0, 0.0
    while y < 50.0:
        t = t + 0.5
        y = a * t * t
    return y


def infinite(a):
    y, n = 0.0, 0
    while y < 50.0:
        n += 1
        y = a / (3 - n)
    return y


def made_of_a_flag(a):
    y, odd, total = 0.0, False, 0.0
    while total < 50.0 + y:
        odd = not odd
        y = a if odd else a * a
        total = total + 7.5
    return y


@pytest.mark.rows(
    "function",
    [escaping, product, mean_of_means, exhausted, exhausted_in_the_test, bisected,
     made_of_a_counter, made_of_a_clock, made_of_a_flag],
)  # fmt: skip
def test_what_comes_to_no_fixed_point_has_no_derivative(function):
    """Not a number, rather than a number that is no derivative."""
    a = np.asarray([2.0, 3.0, 9.0])
    assert np.isfinite(mixad.broadcast(function).duals(a).partials["a"]).all()
    assert np.isnan(mixad.broadcast(loops="implicit")(function).duals(a).partials["a"]).all()


def cooled(T, r):
    while T > 1.0:
        T = T - r * T
    return T


def relaxed(T, r):
    """The same with some inertia: two carries that depend on each other."""
    heat, flow = T, 0.0
    while heat > 1.0:
        flow = 0.5 * (flow + r * heat)
        heat = heat - flow
    return heat


def cooled_beside(T, r):
    """The same beside something large, with which it is one system."""
    A = 1e4
    while T > 1.0:
        A = 1e4 + 1e-5 * math.cos(T) * A
        T = T - r * T * (A / 1e4)
    return T


def cooled_from_infinity(T, r):
    """The same, with a start that has no size."""
    bound = math.inf
    while T > 1.0:
        T = T - r * min(T, bound)
        bound = 2.0 * T
    return T


def test_an_infinity_is_no_fixed_point():
    a = np.asarray([2.0, 3.0])
    np.testing.assert_array_equal(mixad.broadcast(infinite)(a), [math.inf, math.inf])
    assert np.isnan(mixad.broadcast(loops="implicit")(infinite).duals(a).partials["a"]).all()


@pytest.mark.rows("function", [cooled, relaxed, cooled_beside, cooled_from_infinity])
@pytest.mark.rows("backend", ["cpu", "reference"])
def test_a_large_start_excuses_no_decay_that_has_not_arrived(function, backend):
    """What is left of 5000 is little beside it, and no solution all the same."""
    T, r = np.meshgrid([2.0, 1e3, 5e3, 1e4, 1e5, 1e6, 1e8], [0.1, 0.3, 0.5, 0.9, 0.95])
    kernel = mixad.broadcast(loops="implicit", backend=backend)(function)
    unrolled = kernel.with_options(loops="unrolled").duals(T, r).partials
    implicit = kernel.duals(T, r).partials
    for name in ("T", "r"):
        assert np.isfinite(unrolled[name]).all()
        assert np.isnan(implicit[name]).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_start_in_single_precision_excuses_no_decay_either(dtype):
    T = np.asarray([1e3, 1e5, 1e6, 1e8], dtype)
    found = mixad.broadcast(loops="implicit")(cooled).duals(T, np.full(4, 0.1, dtype)).partials
    assert np.isnan(found["T"]).all()
    assert np.isnan(found["r"]).all()


def newton_at_zero(a, b):
    x, step = 1.0, 1.0
    while abs(step) > 1e-9:
        step = (x * x * x + b * x - a) / (3.0 * x * x + b)
        x = x - step
    return x


def newton_at_zero_by_break(a, b):
    x = 1.0
    for _ in range(60):
        step = (x * x * x + b * x - a) / (3.0 * x * x + b)
        if abs(step) < 1e-11:
            break
        x = x - step
    return x


def contraction_to_zero(a, b):
    x, old = 1.0, 2.0
    while abs(x - old) > 1e-12:
        old = x
        x = x + 0.5 * (math.sin(a) - b * x)
    return x


@pytest.mark.rows("size", [0.0, 1e-300, 1e-20, 1e-12, 1e-9, 1e-6, 1e-4])
@pytest.mark.rows("function", [newton_at_zero, newton_at_zero_by_break, contraction_to_zero])
def test_solutions_at_zero_and_near_it(function, size):
    """They have no size that Newton's step could be small beside."""
    a, b = size * np.asarray([1.0, -1.0]), np.asarray([0.7, 1.5])
    D = mixad.broadcast(loops="implicit")(function).duals(a, b)
    np.testing.assert_allclose(D.primal, a / b, rtol=1e-5, atol=1e-11)
    np.testing.assert_allclose(D.partials["a"], 1 / b, rtol=1e-5)
    np.testing.assert_allclose(D.partials["b"], -a / b**2, rtol=1e-5, atol=1e-11)


@pytest.mark.slow
def test_keplers_equation_at_zero():
    e = np.linspace(0.0, 0.9, 7)

    @mixad.broadcast(loops="implicit")
    def from_afar(M, e):
        E, step = 1.0, 1.0
        while abs(step) > 1e-9:
            step = (E - e * np.sin(E) - M) / (1.0 - e * np.cos(E))
            E = E - step
        return E

    for kernel in (anomaly, from_afar):
        D = kernel.duals(np.zeros(7), e)
        np.testing.assert_allclose(D.partials["M"], 1 / (1 - e), rtol=1e-14)
        np.testing.assert_allclose(D.partials["e"], 0.0, atol=1e-9)


def bracketed(a):
    """Newton's method in a bracket; where it stops, the next iteration would move one end to it."""
    low, high = 0.0, 10.0
    x, step = 1.0, 1.0
    while abs(step) > 1e-8 * x:
        excess = x * x - a
        if excess > 0.0:
            high = x
        else:
            low = x
        newton = x - excess / (2.0 * x)
        following = newton if low <= newton <= high else 0.5 * (low + high)
        step = following - x
        x = following
    return x


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_an_end_of_a_bracket_that_is_far_away_is_of_no_account(backend):
    a = np.linspace(0.5, 60.0, 200)
    kernel = mixad.broadcast(loops="implicit", backend=backend)(bracketed)
    np.testing.assert_allclose(kernel.duals(a).partials["a"], 0.5 / np.sqrt(a), rtol=1e-14)


def test_an_end_of_a_bracket_that_is_far_away_has_no_derivative():
    def ends(a):
        low, high, x, step = 0.0, math.inf, 1.0, 1.0
        while abs(step) > 1e-8 * x:
            excess = x * x - a
            low = low if excess > 0.0 else x
            high = x if excess > 0.0 else high
            newton = x - excess / (2.0 * x)
            step = (newton if low <= newton <= high else 0.5 * (low + high)) - x
            x = x + step
        return x, low + high

    x, both = mixad.broadcast(loops="implicit")(ends).duals(np.linspace(2.0, 60.0, 20))
    np.testing.assert_allclose(x.partials["a"], 0.5 / x.primal, rtol=1e-14)
    assert np.isnan(both.partials["a"]).all()


def test_it_has_no_second_derivative_either():
    kernel = mixad.broadcast(loops="implicit")(escaping)
    second = mixad.grad(mixad.grad(kernel))(2.0)
    assert math.isnan(second)


def test_the_start_does_not_matter():
    @mixad.broadcast(loops="implicit")
    def root(a, x):
        step = 1.0
        while abs(step) > 1e-11:
            step = (x * x - a) / (2.0 * x)
            x = x - step
        return x

    D = root.duals(np.asarray([2.0, 3.0]), np.asarray([1.5, 1.5]))
    np.testing.assert_array_equal(D.partials["x"], 0.0)


def test_a_sum_is_refused_with_its_line():
    @mixad.broadcast(loops="implicit")
    def exponential(x):
        term, total, n = 1.0, 1.0, 0
        while abs(term) > 1e-16:
            n += 1
            term = term * x / n
            total = total + term
        return total

    assert exponential(1.0) == pytest.approx(math.e)
    with pytest.raises(KernelGradientError, match="adds to 'total'") as caught:
        mixad.grad(exponential)(1.0)
    assert "while abs(term)" in str(caught.value)


def test_refusals_come_when_a_call_is_recorded():
    @mixad.broadcast(loops="implicit")
    def changed(a):
        x = 1.0
        while True:
            step = (x * x - a) / (2.0 * x)
            x = x - step
            if abs(step) < 1e-11:
                x = 2.0 * x
                break
        return x

    reached = []

    def loss(a):
        y = changed(a)
        reached.append(y)
        return y

    with pytest.raises(KernelGradientError, match="becomes something else"):
        mixad.grad(loss)(2.0)
    assert not reached


def test_options_name_the_two():
    with pytest.raises(ValueError, match="loops must be one of 'unrolled', 'implicit'"):
        anomaly.with_options(loops="fixed")


# -- the linear algebra ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_elimination_solves_systems_that_need_pivots(n):
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, n))
    matrix[0, 0] *= n == 1
    sides = rng.normal(size=(n, 2))
    b = Builder("system")
    terms = [Term(b, b.param(f"x{i}", F64)) for i in range(n * n + 2 * n)]
    m = [terms[n * i : n * (i + 1)] for i in range(n)]
    s = [terms[n * n + 2 * i : n * n + 2 * (i + 1)] for i in range(n)]
    found = solve_system(m, [[abs(x) for x in row] for row in m], s)
    program = b.finish([*(x.atom for row in found.columns for x in row), found.is_regular.atom])
    *got, regular = interpret(program, [*matrix.ravel(), *sides.ravel()])
    assert regular
    want = np.linalg.solve(matrix, sides)
    np.testing.assert_allclose(np.reshape(got, (n, 2)), want, rtol=1e-9)
    matrix[-1] = matrix[0] * 2 if n > 1 else 0
    *_, regular = interpret(program, [*matrix.ravel(), *sides.ravel()])
    assert not regular


def test_groups_come_after_what_they_depend_on():
    graph = {0: [1], 1: [2, 1], 2: [1, 3], 3: [], 4: [0, 4]}
    assert dependent_groups(graph) == [[3], [1, 2], [0], [4]]


SERIES = """
def exponential(x):
    term, total, n = 1.0, 1.0, 0
    while abs(term) > 1e-17 * total:
        n += 1
        term = term * x / n
        total = total + term
    return total
"""


def test_series_of_special_functions_are_differentiated_turn_by_turn(monkeypatch):
    """Which loops of theirs stop by a test is no business of the user's."""
    name = str(Path(mixad.special.__file__).with_name("series.py"))
    entry = (len(SERIES), None, SERIES.splitlines(keepends=True), name)
    monkeypatch.setitem(linecache.cache, name, entry)
    space = {}
    exec(compile(SERIES, name, "exec"), space)
    exponential = space["exponential"]

    def logarithm(a):
        x, step = 1.0, 1.0
        while abs(step) > 1e-9:
            step = (exponential(x) - a) / exponential(x)
            x = x - step
        return x

    a = np.asarray([0.5, 2.0, 3.0])
    for function, slope in ((logarithm, 1 / a), (lambda a: exponential(a), np.exp(a))):
        kernel = mixad.broadcast(function, loops="implicit")
        found = kernel.duals(a).partials["a"]
        np.testing.assert_allclose(found, slope, rtol=1e-12)
