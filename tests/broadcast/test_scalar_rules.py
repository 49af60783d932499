"""`mixad.scalar_rule`: derivatives that the user gives, in kernels and outside of them."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import mixad
from mixad.errors import KernelGradientError, KernelSyntaxError, KernelTypeError
from mixad.scalar.ir import Equation, walk_statements
from mixad.scalar.math import expand
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.types import F64
from mixad.special import exp, log, sin

X = np.array([0.3, 1.0, 2.5, 7.0])
HALF = 0.5
MODES = [(b, s) for b in ("cpu", "reference") for s in ("forward", "reverse", "auto")]


@mixad.scalar_rule(lambda x, y: HALF / y)
def root(x):
    """Return the square root, by Newton's method."""
    y = 0.5 * (x + 1)
    while abs(y * y - x) > 1e-14 * x:
        y = 0.5 * (y + x / y)
    return y


@mixad.scalar_rule(lambda x: series(x))
def series(x):
    """Return the exponential function, whose rule is itself."""
    total = term = 1.0
    for n in range(1, 40):
        term = term * x / n
        total += term
    return total


@mixad.scalar_rule(lambda x: -odd(x))
def even(x):
    """Return the cosine; it and the sine are each other's derivatives."""
    return math.cos(x)


@mixad.scalar_rule(lambda x: even(x))
def odd(x):
    """Return the sine."""
    return math.sin(x)


@mixad.scalar_rule(lambda n, x: (None, math.nan if n < 1 else n * x ** (n - 1)))
def power(n, x):
    """Return x to the n, by multiplication; n may be a float."""
    result = 1.0
    k = 0
    while k < n:
        result = result * x
        k += 1
    return result


@mixad.scalar_rule(lambda x, y: (y * 100.0, x * 100.0))
def wrong(x, y):
    """Return x·y; its rule says something else, so that it is seen."""
    return x * y


def summed(f):
    return lambda *args: f(*args).sum()


def second(f):
    return mixad.grad(summed(mixad.grad(summed(f))))


@mixad.scalar_rule(lambda x, y, z, w: (y * z * w, x * z * w, x * y * w, x * y * z))
def product_of_four(x, y, z, w):
    return x * y * z * w


@pytest.mark.parametrize("strategy", ["forward", "reverse"])
def test_a_rule_may_have_many_parameters(strategy):
    kernel = mixad.broadcast(lambda x, y, z, w: product_of_four(x, y, z, w), strategy=strategy)
    given = [n * X for n in (1.0, 2.0, 3.0, 4.0)]
    found = mixad.grad(summed(kernel), argnums=(0, 1, 2, 3))(*given)
    for n, gradient in enumerate(found):
        np.testing.assert_allclose(gradient, np.prod(given, axis=0) / given[n], rtol=1e-15)
    second = mixad.jvp(mixad.grad(summed(kernel), argnums=3), given, given)[1]
    np.testing.assert_allclose(second, 3 * 6.0 * X**3, rtol=1e-15)


@mixad.scalar_rule(lambda x: HALF * (complex(x, 1.0) ** 2.5).real)
def with_complex_slope(x):
    return x


def test_a_rule_may_take_powers_of_complex_numbers_and_read_from_outside():
    kernel = mixad.broadcast(lambda x: with_complex_slope(x))
    found = mixad.grad(summed(kernel))
    np.testing.assert_allclose(found(X), 0.5 * ((X + 1j) ** 2.5).real, rtol=1e-14)
    second = 1.25 * ((X + 1j) ** 1.5).real
    np.testing.assert_allclose(mixad.grad(summed(found))(X), second, rtol=1e-14)


@pytest.mark.rows(("backend", "strategy"), MODES)
@pytest.mark.rows(
    ("f", "first", "bend"),
    [
        (lambda x: root(x), lambda x: 0.5 / np.sqrt(x), lambda x: -0.25 * x**-1.5),
        (lambda x: series(x / 2), lambda x: np.exp(x / 2) / 2, lambda x: np.exp(x / 2) / 4),
        (lambda x: even(2 * x), lambda x: -2 * np.sin(2 * x), lambda x: -4 * np.cos(2 * x)),
        (lambda x: power(3, x), lambda x: 3 * x**2, lambda x: 6 * x),
        (lambda x: root(x) * root(x) * root(x), lambda x: 1.5 * np.sqrt(x),
         lambda x: 0.75 / np.sqrt(x)),
        (lambda x: root(x) if x > 1 else series(x) * odd(x),
         lambda x: np.where(x > 1, 0.5 / np.sqrt(x), np.exp(x) * (np.sin(x) + np.cos(x))),
         lambda x: np.where(x > 1, -0.25 * x**-1.5, 2 * np.exp(x) * np.cos(x))),
    ],
    ids=["root", "itself", "each_other", "order", "product", "branches"],
)  # fmt: skip
def test_two_derivatives_are_those_of_the_rule(backend, strategy, f, first, bend):
    kernel = mixad.broadcast(f, backend=backend, strategy=strategy)
    np.testing.assert_allclose(mixad.grad(summed(kernel))(X), first(X), rtol=1e-13)
    np.testing.assert_allclose(second(kernel)(X), bend(X), rtol=1e-12)


def test_the_body_is_not_differentiated_and_both_parameters_count():
    kernel = mixad.broadcast(lambda x, y: wrong(x, y) + x)
    dx, dy = mixad.grad(summed(kernel), argnums=(0, 1))(X, X + 1)
    np.testing.assert_allclose(dx, 100 * (X + 1) + 1)
    np.testing.assert_allclose(dy, 100 * X)
    np.testing.assert_allclose(kernel(X, X), X * X + X)


def test_forward_mode_and_duals_use_the_rule():
    kernel = mixad.broadcast(lambda x: wrong(x, 2.0))
    value, tangent = mixad.jvp(kernel, (X,), (np.ones_like(X),))
    np.testing.assert_allclose(value, 2 * X)
    np.testing.assert_allclose(tangent, np.full_like(X, 200.0))
    np.testing.assert_allclose(kernel.duals(X).partials["x"], np.full_like(X, 200.0))


def test_a_call_in_a_loop_is_differentiated_turn_by_turn():
    def iterated(x):
        for _ in range(3):
            x = root(x) + 1
        return x

    def plain(x):
        for _ in range(3):
            x = np.sqrt(x) + 1
        return x

    found = mixad.grad(summed(mixad.broadcast(iterated)))(X)
    h = 1e-6
    np.testing.assert_allclose(found, (plain(X + h) - plain(X - h)) / (2 * h), rtol=1e-8)


def test_a_step_count_that_carries_a_derivative_through_comparisons_stays_out():
    f = mixad.broadcast(lambda x: power(3, x))
    np.testing.assert_allclose(mixad.grad(summed(f))(X), 3 * X**2)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_types_stay(dtype):
    found = mixad.grad(summed(mixad.broadcast(lambda x: even(x) * 2)))(X.astype(dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, -2 * np.sin(X), rtol=4 * np.finfo(dtype).eps, atol=1e-3)


def test_numbers_of_several_types_meet():
    @mixad.scalar_rule(lambda x, y: (y, x))
    def product(x, y):
        return x * y

    x, y = X.astype("f4"), X[::-1].copy()
    dx, dy = mixad.grad(summed(mixad.broadcast(product)), argnums=(0, 1))(x, y)
    assert (dx.dtype, dy.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(dx, y, rtol=1e-6)
    np.testing.assert_allclose(dy, x, rtol=1e-6)


def test_outside_kernels_it_is_the_function():
    assert root(4) == pytest.approx(2.0)
    assert even(0.0) == 1.0
    assert mixad.grad(wrong)(2.0, 3.0) == 300.0
    assert root.__name__ == "root"
    assert "Newton" in root.__doc__
    np.testing.assert_allclose(root(X), np.sqrt(X))
    np.testing.assert_allclose(mixad.grad(summed(root))(X), 0.5 / np.sqrt(X))
    assert pickle.loads(pickle.dumps(root)) is root


def test_keywords_and_defaults_find_their_parameters():
    @mixad.scalar_rule(lambda x, y: (10.0, 20.0))
    def weighted(x, y=2.0):
        return x + y

    kernel = mixad.broadcast(lambda x: weighted(y=x, x=1.0) + weighted(x))
    np.testing.assert_allclose(mixad.grad(summed(kernel))(X), np.full(4, 30.0))


def test_what_a_rule_reads_from_outside_is_read_at_each_call():
    scale = 2.0

    @mixad.scalar_rule(lambda x: scale * same(x))
    def same(x):
        return x

    gradient = mixad.grad(summed(mixad.broadcast(lambda x: same(x))))
    np.testing.assert_allclose(gradient(X), 2 * X)
    assert np.all(second(mixad.broadcast(lambda x: same(x)))(X) == 4 * X)
    scale = 3.0
    np.testing.assert_allclose(gradient(X), 3 * X)


def test_the_same_function_with_another_rule_is_another_function():
    def f(x):
        return x

    kernels = [mixad.broadcast(mixad.scalar_rule(rule)(f)) for rule in (lambda x: 2, lambda x: 5)]
    found = [mixad.grad(summed(kernel))(X)[0] for kernel in (*kernels, mixad.broadcast(f))]
    assert found == [2, 5, 1]


def test_a_zero_cotangent_gives_zero_beside_an_infinite_partial():
    @mixad.scalar_rule(lambda x: math.inf)
    def steep(x):
        return x

    kernel = mixad.broadcast(lambda x, w: steep(x) * w)
    assert mixad.grad(lambda x: kernel(x, np.array([0.0, 1.0])).sum())(X[:2]).tolist() == [
        0,
        math.inf,
    ]


def test_what_runs_has_the_value_and_no_rule():
    source = read_function(lambda x: root(x) + 1)
    program = parse(source, [Argument(F64)], source.snapshot()).program
    assert any(s.op.startswith("rule") for s in equations(program))
    ran = expand(program)
    assert sum(s.op == "div" for s in equations(ran)) == 1  # the one of the body
    assert not any(s.op.startswith("rule") for s in equations(ran))


def equations(program):
    return [s for s in walk_statements(program.body) if isinstance(s, Equation)]


def test_whole_numbers_have_no_derivative():
    @mixad.scalar_rule(lambda x: x)
    def whole(x):
        return x * 2

    assert mixad.broadcast(lambda x: whole(x))(np.array([1, 2])).tolist() == [2, 4]
    found = mixad.grad(summed(mixad.broadcast(lambda x, n: x * whole(n))))(X, np.arange(4))
    np.testing.assert_allclose(found, 2 * np.arange(4))


# -- refusals --------------------------------------------------------------------------------------


def refused(kind, match, f, *args):
    with pytest.raises(kind, match=match) as caught:
        mixad.grad(summed(mixad.broadcast(f)))(*args)
    assert "test_scalar_rules.py" in str(caught.value)


def test_a_parameter_without_a_derivative_is_refused_by_name():
    refused(KernelGradientError, "of power with respect to its parameter 'n' is not available",
            lambda n, x: power(n, x), X, X)  # fmt: skip


def test_what_the_body_reads_from_outside_is_refused_when_it_is_active():
    def loss(c):
        @mixad.scalar_rule(lambda x: c * 0 + 1.0)
        def f(x):
            return x

        return mixad.broadcast(lambda x: f(x))(X).sum()

    with pytest.raises(KernelTypeError, match="a rule reads numbers from outside, and 'c' is an"):
        mixad.grad(loss)(X)

    def other(c):
        @mixad.scalar_rule(lambda x: 1.0)
        def f(x):
            return x * c

        return mixad.broadcast(lambda x: f(x))(X).sum()

    with pytest.raises(KernelGradientError, match="of f with respect to what it reads from outs"):
        mixad.grad(other)(X)


def test_rules_that_do_not_fit_are_refused():
    @mixad.scalar_rule(lambda x, y: (1.0, 2.0, 3.0))
    def three(x, y):
        return x + y

    @mixad.scalar_rule(lambda x: x > 0)
    def truth(x):
        return x

    @mixad.scalar_rule(lambda x: (1.0,))
    def pair(x):
        return x, x

    @mixad.scalar_rule(lambda g, x: (None, 1.0))
    def applied(g, x):
        return g(x)

    refused(KernelTypeError, "for each parameter: x, y; this one gives 3",
            lambda x: three(x, x), X)  # fmt: skip
    refused(KernelTypeError, "a partial derivative is a number, this one is a bool",
            lambda x: truth(x), X)  # fmt: skip
    refused(KernelTypeError, "'pair' has a rule, and returns a tuple of 2", lambda x: pair(x)[0], X)
    refused(KernelTypeError, "its parameters are numbers, 'g' is a function",
            lambda x: applied(lambda t: t, x), X)  # fmt: skip


def test_decorators_refuse_what_cannot_be_a_rule():
    with pytest.raises(KernelTypeError, match=r"scalar_rule of f: the rule takes \(x\)"):

        @mixad.scalar_rule(lambda x: 1.0)
        def f(x, y):
            return x

    with pytest.raises(KernelSyntaxError, match="not a Python function"):
        mixad.scalar_rule(math.cos)(lambda x: math.sin(x))
    with pytest.raises(mixad.errors.MixadError):
        mixad.scalar_rule(sin)(lambda x: exp(log(x)))
