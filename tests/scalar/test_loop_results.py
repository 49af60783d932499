"""Loop results that inputs decide through comparisons only are warned of, and nothing else is."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import KernelGradientError, MixadWarning, ZeroDerivativeWarning

X = np.asarray([0.5, 2.0, 3.0])


def warned(function: Any, *arrays: Any, differentiate: Any = None, **options: Any) -> list[str]:
    """Return the warnings of a gradient with respect to all arguments."""
    arrays = arrays or (X,) * function.__code__.co_argcount
    kernel = mixad.broadcast(**options)(function)
    loss = differentiate or (lambda *a: kernel(*a).sum())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mixad.grad(loss, argnums=tuple(range(len(arrays))))(*arrays)
    found = [w for w in caught if issubclass(w.category, MixadWarning)]
    assert all(w.category is ZeroDerivativeWarning for w in found)
    assert all(w.filename == __file__ for w in found)
    assert all(f"line {w.lineno}:" in str(w.message) for w in found)
    return [str(w.message).removeprefix(f"{function.__name__}, line {w.lineno}: ") for w in found]


def bisection(a: Any) -> Any:
    low, high = 0.0, 10.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        if middle * middle > a:
            high = middle
        else:
            low = middle
    return low


# -- warned of -------------------------------------------------------------------------------------


def returns_from_the_loop(a: Any) -> Any:
    low, high = 0.0, 10.0
    while True:
        middle = 0.5 * (low + high)
        if high - low < 1e-10:
            return middle
        low, high = (low, middle) if middle * middle > a else (middle, high)


def steps_until_it_is_there(a: Any) -> Any:
    t = 0.0
    while t * t < a:
        t += 0.01
    return t


def integral_up_to_the_input(a: Any) -> Any:
    t, area = 0.0, 0.0
    while t < a:
        area += 0.01 * np.exp(-t)
        t += 0.01
    return area


def narrows_a_tuple(a: Any) -> Any:
    bracket = (0.0, 10.0)
    for _ in range(40):
        low, high = bracket
        middle = 0.5 * (low + high)
        bracket = (low, middle) if middle * middle > a else (middle, high)
    return 0.5 * (bracket[0] + bracket[1])


def leaves_by_a_flag(a: Any) -> Any:
    t, going = 0.0, True
    while going:
        t += 0.25
        going = t < a
    return 3.0 * t


def bisection_in_a_loop(a: Any) -> Any:
    total = 0.0
    for k in range(3):
        low, high = 0.0, 10.0
        while high - low > 1e-6:
            middle = 0.5 * (low + high)
            if middle**3 > a + k:
                high = middle
            else:
                low = middle
        total += low
    return total


def calls_bisection(a: Any) -> Any:
    return 2.0 * bisection(a) + a


def compares_with_one_of_two(a: Any, b: Any) -> Any:
    t = 0.5
    while t < a:
        t *= 1.5
    return t * b


def counts_as_a_mask(a: Any) -> Any:
    weight = 0.1
    for k in range(4):
        weight += 0.5 * (a > k)
    return weight


WARNED = {
    bisection: ("'low'", "'a'"),
    returns_from_the_loop: ("the value returned in the loop", "'a'"),
    steps_until_it_is_there: ("'t'", "'a'"),
    integral_up_to_the_input: ("'area'", "'a'"),
    narrows_a_tuple: ("'bracket'", "'a'"),
    leaves_by_a_flag: ("'t'", "'a'"),
    bisection_in_a_loop: ("'low'", "'a'"),
    calls_bisection: ("'low'", "'a'"),
    compares_with_one_of_two: ("'t'", "'a'"),
    counts_as_a_mask: ("'weight'", "'a'"),
}


@pytest.mark.rows("placement", ["reverse", "forward"])
@pytest.mark.rows("function", WARNED, ids=lambda f: f.__name__)
def test_result_decided_by_comparisons_is_warned_of_by_name(function: Any, placement: Any) -> None:
    names, inputs = WARNED[function]
    (message,) = warned(function, placement=placement)
    assert message == (
        f"{names} depends on {inputs} through the comparisons of this loop only, "
        "so the derivative is zero\n"
        "  Instead: go on from the result with one step of Newton's method, which has the "
        "derivative of the root; mixad.stop_gradient("
        f"{names[1:-1] if names.startswith(chr(39)) else '...'}) says that zero is meant"
    )


def test_each_result_of_a_loop_is_named_and_each_loop_warned_of() -> None:
    def ends(a: Any, b: Any) -> Any:
        low, high = 0.0, 10.0
        while high - low > 1e-10:
            middle = 0.5 * (low + high)
            if middle * middle > a:
                high = middle
            else:
                low = middle
        t = 0.0
        while t < b:
            t += 0.125
        return low + high * t

    first, second = warned(ends)
    assert first.startswith("'high' and 'low' depend on 'a' through")
    assert second.startswith("'t' depends on 'b' through")


def test_duals_warn_and_plain_calls_do_not() -> None:
    kernel = mixad.broadcast(bisection)
    kernel(X)
    with pytest.warns(ZeroDerivativeWarning, match="'low' depends on 'a'"):
        duals = kernel.duals(X)
    np.testing.assert_array_equal(duals.partials["a"], np.zeros(3))


def test_every_gradient_tells_python_which_shows_it_once() -> None:
    kernel = mixad.broadcast(bisection)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            mixad.grad(lambda a: kernel(a).sum())(X)
    assert len(caught) == 1


@pytest.mark.parametrize("placement", ["reverse", "forward"])
def test_each_of_two_equal_functions_is_warned_of_by_its_own_name(placement: Any) -> None:
    def first(a: Any) -> Any:
        t = 0.0625
        while t < a:
            t *= 1.25
        return t

    def second(b: Any) -> Any:
        u = 0.0625
        while u < b:
            u *= 1.25
        return u

    for function, names in ((first, "'t' depends on 'a'"), (second, "'u' depends on 'b'")):
        (message,) = warned(function, placement=placement)
        assert message.startswith(names)


def test_only_results_that_reach_what_is_differentiated_are_warned_of() -> None:
    def pair(a: Any) -> Any:
        t = 0.0
        while t < a:
            t += 0.125
        return t, a * a, t > 1.0

    kernel = mixad.broadcast(pair)
    assert warned(pair, differentiate=lambda a: kernel(a)[1].sum()) == []
    (message,) = warned(pair, differentiate=lambda a: kernel(a)[0].sum())
    assert message.startswith("'t' depends on 'a'")


def test_only_active_inputs_count() -> None:
    kernel = mixad.broadcast(compares_with_one_of_two)
    assert warned(compares_with_one_of_two, X, differentiate=lambda b: kernel(X, b).sum()) == []


def test_a_newton_step_from_a_result_taken_as_constant_has_the_derivative_of_the_root() -> None:
    def root(a: Any) -> Any:
        low = mixad.stop_gradient(bisection(a))
        return low - (low * low - a) / (2.0 * low)

    assert warned(root) == []
    kernel = mixad.broadcast(root)
    got = mixad.grad(lambda a: kernel(a).sum())(X)
    np.testing.assert_allclose(got, 0.5 / np.sqrt(X), rtol=1e-9)


# -- not warned of ---------------------------------------------------------------------------------


def has_no_loop(z: Any, zb: Any, c: Any) -> Any:
    if z == 1.0:
        return 0.5
    elif zb == 0.0:
        return c
    return 0.25 * z


def converges(mean: Any, e: Any) -> Any:
    E, d = mean, 1.0
    while abs(d) > 1e-10:
        d = (E - e * np.sin(E) - mean) / (1 - e * np.cos(E))
        E -= d
    return E


def counts(x: Any) -> Any:
    n, steps = 0, 0.0
    while x > 1.0:
        x = 0.5 * x
        n += 1
        steps += 1.0
    return x * n + steps + 0.5 * n


def branches_outside(x: Any) -> Any:
    scale = 0.3 if x > 1.0 else 0.7
    s = 0.0
    for _ in range(3):
        s += scale
    return s * x


def a_number_of_iterations(x: Any) -> Any:
    s = 0.0
    for k in range(int(x)):
        s += 0.1 * k
    return s * x


def has_a_partial_of_another_input(x: Any, y: Any) -> Any:
    s = 0.0
    for k in range(4):
        if x > k:
            s += 0.1 * y
    return s


def selects_by_the_input(x: Any) -> Any:
    best = 10.0
    for k in range(4):
        d = abs(x - 0.7 * k)
        if d < best:
            best = d
    return best


def is_read_by_comparisons_only(x: Any) -> Any:
    t = 0.0
    while t < x:
        t += 0.3
    return x if t > 1.0 else 2.0 * x


def marks(x: Any) -> Any:
    found = 0.0
    for k in range(5):
        if x > k:
            found = 1.0
    return found * x


def has_a_partial_from_the_second_iteration(x: Any) -> Any:
    step, total = 0.5, 0.1
    for _ in range(3):
        best = 0.25
        for j in range(4):
            if x > j:
                best = step
        total = total + best
        step = 0.5 * x
    return total


def is_meant(x: Any) -> Any:
    t = 0.0
    while t < x:
        t += 0.3
    return mixad.stop_gradient(t) * x


NOT_WARNED = [
    has_no_loop, converges, counts, branches_outside, a_number_of_iterations,
    has_a_partial_of_another_input, selects_by_the_input, is_read_by_comparisons_only, marks,
    has_a_partial_from_the_second_iteration, is_meant,
]  # fmt: skip


@pytest.mark.rows("function", NOT_WARNED, ids=lambda f: f.__name__)
def test_no_false_alarm(function: Any) -> None:
    assert warned(function) == []


def test_no_false_alarm_in_second_derivatives() -> None:
    def piecewise(x: Any) -> Any:
        y = 0.25 * x
        for k in range(4):
            if x > k:
                y += 0.5 * x
        return y

    kernel = mixad.broadcast(piecewise)
    slope = lambda x: mixad.grad(lambda x: kernel(x).sum())(x).sum()  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error", MixadWarning)
        got = mixad.grad(lambda x: slope(x) + (x * x).sum())(X)
    np.testing.assert_array_equal(got, 2 * X)


def test_loops_of_special_functions_are_told_at_the_users_line() -> None:
    @mixad.broadcast
    def kernel(n: float, x: float) -> float:
        y = x + 1.0
        return mixad.special.expn(n, y)

    with (
        pytest.warns(ZeroDerivativeWarning) as found,
        pytest.raises(KernelGradientError) as refused,
    ):
        kernel.duals(np.full(2, 1.5), np.full(2, 0.5), wrt=("n",))
    line = kernel.__wrapped__.__code__.co_firstlineno + 3
    assert (found[0].filename, found[0].lineno) == (__file__, line)
    assert f"line {line}:" in str(found[0].message)
    assert refused.value.location.line == line
    assert "expn(n, y)" in str(refused.value)
