"""The traps of FACTS §3 that concern kernels: one claim for each, named after the trap."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixad
from mixad import special
from mixad.errors import KernelError, KernelSyntaxError, TracerError

EPS = np.finfo(np.float64).eps
INF, NAN = math.inf, math.nan
LONG_SUM = 10_000_000  # a sequential f32 sum of as many ones-and-a-bit has lost its digits
STEPS_TO_CONVERGE = 60


def partials(function: Any, *arguments: Any) -> list[Any]:
    """Return value and partials at each element, by the gradient and by duals, found to agree."""
    arrays = [np.asarray(a, dtype=np.float64) for a in arguments]
    kernel = mixad.broadcast(function)
    value, gradients = mixad.value_and_vjp(kernel, arrays, np.ones(arrays[0].shape))
    duals = kernel.duals(*arrays)
    np.testing.assert_array_equal(duals.primal, value)
    for partial, gradient in zip(duals.partials.values(), gradients, strict=True):
        np.testing.assert_array_equal(partial, gradient)
    return [value, *gradients]


def gradient(function: Any, *arguments: Any, cotangent: Any = None) -> Any:
    """Return the gradient with respect to the first argument."""
    first, *rest = (np.asarray(a, dtype=np.float64) for a in arguments)
    kernel = mixad.broadcast(function)
    ones = np.ones(first.shape) if cotangent is None else np.asarray(cotangent, dtype=np.float64)
    return mixad.value_and_vjp(lambda x: kernel(x, *rest), (first,), ones)[1][0]


def assert_ulps(got: Any, want: Any, most: float = 4) -> None:
    want = np.asarray(want, dtype=np.float64)
    assert (np.abs(got - want) <= most * np.spacing(np.abs(want))).all(), (got, want)


# -- control flow ------------------------------------------------------------------------------


def test_comparisons_look_at_primals_only() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y if x > y else x + y

    value, dx, dy = partials(f, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(value, [3, 4, 6])
    np.testing.assert_array_equal(dx, [1, 1, 2])
    np.testing.assert_array_equal(dy, [1, 1, 3])


def test_derivative_is_that_of_the_branch_taken() -> None:
    value, dx = partials(lambda x: 1.0 if x == 1 else x**2, [1.0, 3.0])
    np.testing.assert_array_equal(value, [1, 9])
    np.testing.assert_array_equal(dx, [0, 6])


def test_branch_that_returns_a_constant_has_zero_partials() -> None:
    def f(x: Any, y: Any) -> Any:
        if x > 0:
            return x * y
        return 7

    value, dx, dy = partials(f, [2.0, -2.0], [3.0, 3.0])
    np.testing.assert_array_equal(value, [6, 7])
    np.testing.assert_array_equal(dx, [3, 0])
    np.testing.assert_array_equal(dy, [2, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_branches_are_promoted_to_one_type(dtype: Any) -> None:
    f = mixad.broadcast(lambda x: x if x > 0 else 0)
    got = f(np.asarray([1.5, -1.0], dtype))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, [1.5, 0])


def test_strong_branches_of_two_types_are_promoted_as_the_library_does() -> None:
    f = mixad.broadcast(lambda x, n: x if x > 0 else n)
    assert f(np.ones(2, np.float32), np.ones(2, np.int32)).dtype == np.float64
    assert f(np.ones(2, np.float32), np.ones(2, np.int16)).dtype == np.float32


@pytest.mark.parametrize(
    "f",
    [
        lambda x: special.where(x > 0, special.log(x), 0.0),
        lambda x: np.where(x > 0, np.log(x), 0.0),
        lambda x: math.log(x) if x > 0 else 0.0,
    ],
    ids=["special.where", "np.where", "if"],
)
def test_no_nan_from_the_branch_not_taken(f: Any) -> None:
    value, dx = partials(f, [0.0, 2.0, -1.0])
    assert_ulps(value, [0, math.log(2), 0])
    np.testing.assert_array_equal(dx, [0, 0.5, 0])


def test_no_nan_from_the_branch_not_taken_in_second_derivatives() -> None:
    f = mixad.broadcast(lambda x: special.sqrt(x) if x > 0 else 0.0)
    first = lambda x: mixad.grad(lambda x: f(x).sum())(x).sum()  # noqa: E731
    np.testing.assert_array_equal(mixad.grad(first)(np.asarray([0.0, 4.0])), [0, -1 / 32])


def test_loop_that_runs_a_different_number_of_times_in_each_lane() -> None:
    def power(x: Any, n: Any) -> Any:
        p = 1.0
        for _ in range(int(n)):
            p *= x
        return p

    x, n = np.linspace(0.5, 2.0, 40), np.arange(40.0) % 7
    kernel = mixad.broadcast(power)
    value, (dx,) = mixad.value_and_vjp(lambda x: kernel(x, n), (x,), np.ones(40))
    np.testing.assert_allclose(value, x**n, rtol=1e-14)
    np.testing.assert_allclose(dx, n * x ** (n - 1), rtol=1e-14)


LARGEST, LEAST = 2**63 - 1, -(2**63)
RANGES_AT_THE_EDGE = [
    (LARGEST - 5, LARGEST, 2), (LARGEST - 1, LARGEST, LARGEST), (LEAST, LARGEST, LARGEST),
    (LEAST, LARGEST, 2**62), (LEAST + 5, LEAST, -2), (LARGEST, LEAST, LEAST),
    (LARGEST, LEAST, -(2**62)), (LARGEST - 2, LARGEST, 1), (LEAST + 2, LEAST, -1), (5, 3, LARGEST),
    (0, -1, LEAST), (-1, LEAST, LEAST),
]  # fmt: skip


def runs(start: Any, stop: Any, step: Any) -> Any:
    turns, last = 0, -7
    for i in range(start, stop, step):
        turns += 1
        last = i
        if turns > 100:
            break
    return turns, last


@pytest.mark.rows("bounds", RANGES_AT_THE_EDGE)
def test_range_ends_where_the_next_step_would_overflow(bounds: tuple[int, int, int]) -> None:
    start, stop, step = bounds
    kernel = mixad.broadcast(runs)
    assert kernel(*bounds) == runs(*bounds)  # one number for all lanes
    got = kernel(*(np.asarray([b]) for b in bounds))
    assert tuple(g.item() for g in got) == runs(*bounds)
    two = {2: lambda a, b: runs(a, b, 2), -2: lambda a, b: runs(a, b, -2)}.get(step)
    if two is not None:  # a literal step
        assert mixad.broadcast(two)(start, stop) == runs(*bounds)


def test_an_inactive_lane_computes_nothing_that_is_seen() -> None:
    def f(n: Any, d: Any) -> Any:
        return n // d if d != 0 else -1

    n = np.arange(-20, 20)
    d = np.tile([0, 3, -4, 1], 10)
    want = np.where(d != 0, n // np.where(d != 0, d, 1), -1)
    np.testing.assert_array_equal(mixad.broadcast(f)(n, d), want)


# -- zeros -------------------------------------------------------------------------------------


def test_zero_cotangent_gives_zero_gradient_at_a_singularity() -> None:
    x = [0.0, 0.0, 4.0]
    got = gradient(lambda x: special.sqrt(x), x, cotangent=[0, 1, 1])
    np.testing.assert_array_equal(got, [0, INF, 0.25])


@pytest.mark.rows("name", ["sqrt", "log", "cbrt", "asin", "acosh", "atanh"])
def test_masking_the_result_masks_the_gradient(name: str) -> None:
    op = getattr(special, name)
    kernel = mixad.broadcast(lambda x: op(x))
    singular = {"asin": 1.0, "acosh": 1.0, "atanh": 1.0}.get(name, 0.0)
    x = np.asarray([singular, 0.5 if name != "acosh" else 2.0])
    for keep in (0.0, -0.0):
        mask = np.asarray([keep, 1.0])
        dx = mixad.grad(lambda x: (mask * kernel(x))[1:].sum())(x)  # noqa: B023
        assert dx[0] == 0
        assert np.isfinite(dx[1])


def test_statically_zero_partial_never_multiplies() -> None:
    # x does not depend on y: infinite x must not meet 0 as inf · 0
    _, dx, dy = partials(lambda x, y: x * 2.0 + y, [INF, 1.0], [1.0, 1.0])
    np.testing.assert_array_equal(dx, [2, 2])
    np.testing.assert_array_equal(dy, [1, 1])


def test_floor_of_an_infinite_product_has_zero_derivative() -> None:
    np.testing.assert_array_equal(
        gradient(lambda x: special.floor(x * 1e300), [1e300, 2.5]), [0, 0]
    )


# -- single functions --------------------------------------------------------------------------


def test_abs_at_zero_has_derivative_zero() -> None:
    np.testing.assert_array_equal(gradient(lambda x: abs(x), [0.0, -0.0, 2.0, -2.0]), [0, 0, 1, -1])
    assert np.isnan(gradient(lambda x: abs(x), [NAN]))


@pytest.mark.rows(
    ("larger", "f"),
    [
        (True, lambda x, y: max(x, y)),
        (True, lambda x, y: special.maximum(x, y)),
        (True, lambda x, y: np.maximum(x, y)),
        (False, lambda x, y: min(x, y)),
        (False, lambda x, y: special.minimum(x, y)),
        (False, lambda x, y: np.minimum(x, y)),
    ],
)
def test_ties_of_max_and_min_share_the_derivative(larger: bool, f: Any) -> None:
    _, dx, dy = partials(f, [1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    of_larger, of_smaller = (1, 0) if larger else (0, 1)
    np.testing.assert_array_equal(dx, [0.5, of_smaller, of_larger])
    np.testing.assert_array_equal(dy, [0.5, of_larger, of_smaller])


POWERS = {
    "x**y": lambda x, y: x**y,
    "pow": lambda x, y: pow(x, y),
    "special.pow": lambda x, y: special.pow(x, y),
}


@pytest.mark.parametrize("f", POWERS.values(), ids=POWERS)
def test_powers_at_the_edges(f: Any) -> None:
    #          0⁰   0²  (-2)³  2³
    value, dx, dy = partials(f, [0.0, 0.0, -2.0, 2.0], [0.0, 2.0, 3.0, 3.0])
    np.testing.assert_array_equal(value, [1, 0, -8, 8])
    np.testing.assert_array_equal(dx, [0, 0, 12, 12])
    np.testing.assert_array_equal(dy[:2], [0, 0])
    assert np.isnan(dy[2])  # x < 0: no real derivative
    assert_ulps(dy[3], 8 * math.log(2))


@pytest.mark.rows("exponent", [0, 1, 2, 3, 7, -1, -2, 0.0, 1.0, 2.0, 3.0, 0.5, -0.5])
def test_constant_exponents_need_no_logarithm(exponent: float) -> None:
    kernel = mixad.broadcast(lambda x: x**exponent)  # captured: a runtime number
    x = np.asarray([0.0, -2.0, 3.0])
    value, (dx,) = mixad.value_and_vjp(kernel, (x,), np.ones(3))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(value, x**exponent, rtol=4 * EPS)
        factor = 0.0 if exponent == 0 else exponent * x ** (exponent - 1)
    np.testing.assert_allclose(dx, np.broadcast_to(factor, (3,)), rtol=4 * EPS)


def test_literal_exponents_need_no_logarithm() -> None:
    x = [0.0, -2.0, 3.0]
    np.testing.assert_array_equal(gradient(lambda x: x**1, x), [1, 1, 1])
    np.testing.assert_array_equal(gradient(lambda x: x**2, x), [0, -4, 6])
    np.testing.assert_array_equal(gradient(lambda x: x**3.0, x), [0, 12, 27])


@pytest.mark.parametrize("f", [lambda x, y: x % y, lambda x, y: np.mod(x, y)], ids=["%", "np.mod"])
def test_remainder_has_python_signs_and_almost_everywhere_derivatives(f: Any) -> None:
    x, y = np.asarray([7.0, -7.0, 7.0, -7.0, 7.5]), np.asarray([3.0, 3.0, -3.0, -3.0, 2.0])
    value, dx, dy = partials(f, x, y)
    np.testing.assert_array_equal(value, [a % b for a, b in zip(x, y, strict=True)])
    np.testing.assert_array_equal(dx, np.ones(5))
    np.testing.assert_array_equal(dy, -np.floor(x / y))


REMAINDER_EDGES = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 0.1, 5e-324, 1e308, -1e308, INF, -INF, NAN]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainder_and_floor_division_are_those_of_numpy_at_edges(dtype: Any) -> None:
    with np.errstate(over="ignore"):
        edges = np.asarray(REMAINDER_EDGES).astype(dtype)
    x, y = edges[:, None], edges
    with np.errstate(all="ignore"):
        quotient, remainder = x // y, x % y
    got = mixad.broadcast(lambda x, y: (x // y, x % y))(x, y)
    np.testing.assert_array_equal(got[0], quotient)
    np.testing.assert_array_equal(got[1], remainder)
    np.testing.assert_array_equal(
        np.signbit(got[1])[remainder == 0], np.signbit(remainder)[remainder == 0]
    )


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "rint", "sign"])
def test_steps_have_derivative_zero(name: str) -> None:
    op = getattr(special, name)
    np.testing.assert_array_equal(gradient(lambda x: op(x), [-1.5, -0.0, 0.5, 2.0]), np.zeros(4))


def test_round_goes_to_even_as_python_does() -> None:
    x = np.asarray([0.5, 1.5, 2.5, -0.5, -1.5, 2.6])
    np.testing.assert_array_equal(mixad.broadcast(lambda x: round(x))(x), [round(v) for v in x])


def exact(f: Callable[[Any], Any], x: float) -> float:
    with mpmath.workdps(60):
        return float(f(mpmath.mpf(x)))


@pytest.mark.rows("x", [-700.0, -40.0, -20.0, -1.0, 0.0, 1e-9, 20.0, 40.0, 300.0])
def test_tails_of_tanh_and_sigmoid_keep_their_digits(x: float) -> None:
    got = gradient(lambda x: special.tanh(x), [x])[0]
    want = exact(lambda x: 1 / mpmath.cosh(x) ** 2, x)
    assert got == pytest.approx(want, rel=16 * EPS, abs=0), "tanh"
    got = gradient(lambda x: special.sigmoid(x), [x])[0]
    want = exact(lambda x: mpmath.exp(-abs(x)) / (1 + mpmath.exp(-abs(x))) ** 2, x)
    assert got == pytest.approx(want, rel=16 * EPS, abs=0), "sigmoid"


CLOSE_TO_ONE = [0.9, 0.999987654321, -0.999987654321, 0.99999999123, 1 - 1e-15, -1 + 1e-15]
NEAR_THE_EDGE = {
    "asin": (lambda x: 1 / mpmath.sqrt((1 - x) * (1 + x)), CLOSE_TO_ONE),
    "acos": (lambda x: -1 / mpmath.sqrt((1 - x) * (1 + x)), CLOSE_TO_ONE),
    "atanh": (lambda x: 1 / ((1 - x) * (1 + x)), CLOSE_TO_ONE),
    "acosh": (
        lambda x: 1 / (mpmath.sqrt(x - 1) * mpmath.sqrt(x + 1)),
        [1.0000123456789, 1.0000000087, 1 + 1e-15, 2.5, 1e200],
    ),
    "asinh": (lambda x: 1 / mpmath.sqrt(1 + x * x), [0.3, 1e200, -1e200, 1e-200]),
    "atan": (lambda x: 1 / (1 + x * x), [0.3, 1e200, 1e150, 1e-200]),
}


@pytest.mark.rows("name", NEAR_THE_EDGE)
def test_inverse_functions_keep_their_digits_at_the_edge(name: str) -> None:
    formula, points = NEAR_THE_EDGE[name]
    op = getattr(special, name)
    got = gradient(lambda x: op(x), points)
    for x, value in zip(points, got, strict=True):
        assert value == pytest.approx(exact(formula, x), rel=8 * EPS, abs=0), x


@pytest.mark.parametrize(("x", "y"), [(1e200, 1e200), (1.0, 1e-200), (1e-200, 1e-200), (3.0, -7.0)])
def test_quotient_does_not_overflow_on_the_way_to_its_derivative(x: float, y: float) -> None:
    _, dx, dy = partials(lambda x, y: x / y, [x], [y])
    assert dx[0] == 1 / y
    assert dy[0] == pytest.approx(-(x / y) / y, rel=2 * EPS, abs=0)


def test_functions_of_two_arguments_are_defined_where_both_are_zero() -> None:
    for f in (lambda x, y: special.hypot(x, y), lambda x, y: special.atan2(x, y)):
        value, dx, dy = partials(f, [0.0], [0.0])
        assert (value, dx, dy) == (0, 0, 0)


def test_logaddexp_at_infinities() -> None:
    value, dx, dy = partials(
        lambda x, y: special.logaddexp(x, y), [-INF, 1.0, INF], [-INF, -INF, 1]
    )
    np.testing.assert_array_equal(value, [-INF, 1, INF])
    np.testing.assert_array_equal(dx[1:], [1, 1])
    np.testing.assert_array_equal(dy[1:], [0, 0])
    assert not np.isnan(dx[0] + dy[0])


# -- what is not active ------------------------------------------------------------------------


def test_integer_and_boolean_outputs_are_plain_arrays_inside_a_gradient() -> None:
    def loss(x: Any) -> Any:
        positive, whole, square = kernel(x)
        assert isinstance(positive, np.ndarray)
        assert positive.dtype == bool
        assert whole.dtype == np.int64
        return (square * positive).sum()

    kernel = mixad.broadcast(lambda x: (x > 0, int(x), x * x))
    np.testing.assert_array_equal(mixad.grad(loss)(np.asarray([2.5, -2.5])), [5, 0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.bool_])
def test_gradient_with_respect_to_integers_is_a_type_error(dtype: Any) -> None:
    kernel = mixad.broadcast(lambda x: float(x) * 2.0)
    with pytest.raises(TypeError, match=r"argument 0.*dtype.*convert it to a float"):
        mixad.grad(lambda x: kernel(x).sum())(np.ones(3, dtype))


def test_integer_inputs_beside_active_ones() -> None:
    kernel = mixad.broadcast(lambda n, x: x**n if n > 0 else x * n)
    n, x = np.asarray([3, 0, -2]), np.asarray([2.0, 5.0, 7.0])
    np.testing.assert_allclose(mixad.grad(lambda x: kernel(n, x).sum())(x), [12, 0, -2], rtol=EPS)


@pytest.mark.rows("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_wrap_at_their_dtype(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.asarray([info.max, info.min, 3], dtype)
    y = np.asarray([1, 1, 7], dtype)
    total, difference, product = mixad.broadcast(lambda x, y: (x + y, x - y, x * y))(x, y)
    for got, want in ((total, x + y), (difference, x - y), (product, x * y)):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)


MEETINGS = {
    "+": lambda x, k: x + k,
    "-": lambda x, k: k - x,
    "*=": lambda x, k: times_in_place(x, k),
    "//": lambda x, k: x // k,
    "&": lambda x, k: x & k,
    "minimum": lambda x, k: np.minimum(x, k),
}
NARROW = ["i1", "i2", "i4", "u1", "u2", "u4", "u8"]


def times_in_place(x: Any, k: Any) -> Any:
    x *= k
    return x


def outcome(function: Any, *arguments: Any) -> Any:
    """Return the dtype and elements that a function gives, or that a number does not fit."""
    try:
        result = function(*arguments)
    except OverflowError as error:
        return f"{error}".splitlines()[0].rsplit(" out of bounds for ", 1)[-1]
    return result.dtype, result.tolist()


@pytest.mark.rows("dtype", NARROW)
@pytest.mark.rows("f", MEETINGS.values(), ids=MEETINGS.keys())
def test_python_integers_that_do_not_fit_are_refused_as_by_numpy(f: Any, dtype: str) -> None:
    kernel, info = mixad.broadcast(f), np.iinfo(dtype)
    x = np.asarray([1, 2, info.max], dtype)
    captured = 0
    beside = mixad.broadcast(lambda x: f(x, captured))
    for k in (1, 100, int(info.max), int(info.min), int(info.max) + 1, int(info.min) - 1, -1):
        if k >= 2**63:
            continue
        captured = k
        with np.errstate(all="ignore"):
            want = outcome(f, x.copy(), k)
        assert outcome(kernel, x, k) == want, k
        assert outcome(beside, x) == want, k


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x, k: x + k, "x + k"),
        (lambda x, k: x if x < k else k, "x if x < k else k"),
        (lambda x, k: np.where(x < k, x, k), "np.where(x < k, x, k)"),
    ],
)
def test_python_integer_that_does_not_fit_is_named_with_its_place(f: Any, text: str) -> None:
    with pytest.raises(KernelError) as caught:
        mixad.broadcast(f)(np.ones(2, np.int8), 300)
    message = str(caught.value)
    assert message.startswith("Python integer 300, the value of 'k', out of bounds for int8\n")
    assert f"(lambda x, k: {text}," in message
    assert message.endswith("  Instead: np.int16(300), for a result that is wide enough")


def test_literal_that_does_not_fit_is_refused_in_every_place() -> None:
    for f in (
        lambda x: x + 300,
        lambda x: x if x > 0 else 300,
        lambda x: np.where(x > 0, x, 300),
        lambda x: summed(300, x),
    ):
        with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
            mixad.broadcast(f)(np.ones(2, np.int8))


TABLE_OF_TWO = np.asarray([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
WEIGHTS = (0.5, 1.5, 2.5)
PAIRS = ((1.0, 2.0), (3.0, 4.0))


def from_table(i: Any, j: Any, x: Any) -> Any:
    value = TABLE_OF_TWO[i, j]  # the line of the read
    return value * x


def from_tuple(i: Any, x: Any) -> Any:
    if x < 0:
        return -x
    return WEIGHTS[i] * x


BACKENDS = ["cpu", "reference"]


@pytest.mark.rows("backend", BACKENDS)
@pytest.mark.rows("run", ["plain", "gradient", "duals", "pending sum"])
def test_index_outside_an_array_is_named_with_its_element_and_line(backend: str, run: str) -> None:
    kernel = mixad.broadcast(backend=backend)(from_table)
    rows, columns = np.zeros((40, 1), int), np.arange(70) % 3
    x = np.ones((40, 70))
    calls: dict[str, Any] = {
        "plain": lambda: kernel(rows, columns, x),
        "gradient": lambda: mixad.grad(lambda x: kernel(rows, columns, x).sum())(x),
        "duals": lambda: kernel.duals(rows, columns, x, wrt="x"),
        "pending sum": lambda: mixad.value_and_grad(lambda x: kernel(rows, columns, x).sum())(x),
    }
    calls[run]()
    for array, at, wrong, element, index in (
        (rows, (35, 0), 2, "(35, 0)", "(2, 0)"),
        (columns, (69,), -4, "(0, 69)", "(0, -4)"),
    ):
        right, array[at] = array[at], wrong
        with pytest.raises(IndexError) as caught:
            calls[run]()
        message = str(caught.value)
        what = f"index {index} is outside 'TABLE_OF_TWO' of shape (2, 3)"
        assert message.startswith(f"from_table, element {element}: {what}")
        assert "    value = TABLE_OF_TWO[i, j]  # the line of the read\n" in message
        assert message.endswith("  Instead: read it under an `if`, or clip the index")
        array[at] = right


@pytest.mark.slow
def test_index_outside_after_very_many_turns_names_the_lines_that_read() -> None:
    """The interpreter gives up before it meets the index itself."""
    heights = np.zeros(150_000)

    @mixad.broadcast
    def above(limit: float) -> float:
        i = 0
        while heights[i] < limit:
            i += 1
        return heights[i] - limit

    with pytest.raises(IndexError) as caught:
        above(np.asarray([0.0, 1.0, -1.0]))
    message = str(caught.value)
    first = above.__wrapped__.__code__.co_firstlineno + 3
    lines = f"(read on line {first} or {first + 2})"
    assert message.startswith(f"above, element (1,): an index is outside 'heights' {lines}\n")
    assert "    while heights[i] < limit:\n" in message


@pytest.mark.parametrize("backend", BACKENDS)
def test_index_outside_a_tuple_raises_as_outside_an_array(backend: str) -> None:
    kernel = mixad.broadcast(backend=backend)(from_tuple)
    i, x = np.asarray([0, 2, -3, 1]), np.asarray([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(kernel(i, x), [0.5, 5, 1.5, 6])
    dx = mixad.grad(lambda x: kernel(i, x).sum())(x)
    np.testing.assert_array_equal(dx, [0.5, 2.5, 0.5, 1.5])
    for wrong in (3, -4):
        i[2] = wrong
        for call in (lambda: kernel(i, x), lambda: mixad.grad(lambda x: kernel(i, x).sum())(x)):
            with pytest.raises(IndexError, match=rf"\(2,\): index {wrong} is outside 'WEIGHTS' of"):
                call()
        np.testing.assert_array_equal(kernel(i, -x), x)  # read by no element


@pytest.mark.parametrize("index", [0, -1, 2, np.int8(1), np.uint64(2)])
def test_tuples_are_indexed_by_numbers_too(index: Any) -> None:
    kernel = mixad.broadcast(from_tuple)
    got = kernel(index, 2.0)
    assert got == from_tuple(index, 2.0)
    assert type(got) is (float if type(index) is int else np.float64)
    with pytest.raises(IndexError, match="from_tuple: index 5 is outside 'WEIGHTS' of"):
        kernel(5, 2.0)


def test_items_of_a_tuple_may_be_tuples_and_values_of_the_kernel() -> None:
    kernel = mixad.broadcast(lambda i, x: PAIRS[i][1] * (x, x * x)[i])
    i, x = np.asarray([0, 1, -1]), np.asarray([2.0, 3.0, 4.0])
    np.testing.assert_array_equal(kernel(i, x), [4, 36, 64])
    np.testing.assert_array_equal(mixad.grad(lambda x: kernel(i, x).sum())(x), [2, 24, 32])


@pytest.mark.parametrize(
    "f", [lambda i: WEIGHTS[i % 3], lambda i: WEIGHTS[i & 1], lambda i: WEIGHTS[i > 0]]
)
def test_an_index_that_is_inside_needs_no_check(f: Any) -> None:
    i = np.asarray([-5, 0, 7])
    kernel = mixad.broadcast(f)
    np.testing.assert_array_equal(kernel(i), [f(int(n)) for n in i])
    assert "load" not in kernel.source(i)


def summed(start: Any, x: Any) -> Any:
    for _ in range(3):
        start += x
    return start


def test_python_integers_computed_of_an_element_wrap_at_the_type_beside_them() -> None:
    kernel = mixad.broadcast(lambda x, y: x + (int(y) + 299))
    np.testing.assert_array_equal(kernel(np.asarray([1], np.int8), np.ones(1)), [1 + 300 - 256])


def test_python_integers_computed_of_others_must_fit_as_in_numpy() -> None:
    x = np.asarray([1], np.int8)
    kernel = mixad.broadcast(lambda x, k: x + (k + 1))
    np.testing.assert_array_equal(kernel(x, 99), x + 100)
    for f in (kernel, lambda x, k: x + (k + 1)):
        with pytest.raises(OverflowError, match="Python integer 300"):
            f(x, 299)


LARGE = 10**9


def test_product_of_captured_integers_does_not_wrap_beside_floats() -> None:
    kernel = mixad.broadcast(lambda t: t * (LARGE * LARGE))
    assert kernel(np.ones(1)) == [1e18]
    with pytest.raises(OverflowError, match=r"the value of 'LARGE \* LARGE \* LARGE'"):
        mixad.broadcast(lambda t: t * (LARGE * LARGE * LARGE))(np.ones(1))


@pytest.mark.rows("dtype", ["i1", "i4", "i8", "u1", "u4", "u8"])
def test_comparisons_with_python_integers_are_exact(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.asarray([info.min, 0, 1, info.max], dtype)
    kernel = mixad.broadcast(
        lambda x, k: (x < k, x <= k, x > k, x >= k, x == k, x != k, k < x, k >= x, k == x)
    )
    for k in (0, -1, 1, 300, -300, 2**31, -(2**63), 2**63 - 1):
        want = x < k, x <= k, x > k, x >= k, x == k, x != k, k < x, k >= x, k == x
        for got, expected in zip(kernel(x, k), want, strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["i1", "u1", "u8"])
def test_comparisons_with_literals_that_do_not_fit_are_known(dtype: str) -> None:
    x = np.asarray([0, 1, 100], dtype)
    f = lambda x: (x < 300, x >= -300, x == -300, x != 300, x > 300, x > -300)  # noqa: E731
    want = (x < 300, x >= -300, -300 == x, 300 != x, x > 300, -300 < x)  # noqa: SIM300
    for got, expected in zip(mixad.broadcast(f)(x), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u1", "u8"])
def test_integer_division_never_traps(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.asarray([info.min, info.max, 7, 0, info.min], dtype)
    y = np.asarray([-1 if info.min else 1, 0, 0, 0, 3]).astype(dtype)
    with np.errstate(all="ignore"):
        want = x // y, x % y
    got = mixad.broadcast(lambda x, y: (x // y, x % y))(x, y)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


# -- levels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stop_gradient_in_a_kernel_is_a_constant_of_the_same_bits(backend: str, dtype: Any) -> None:
    x = np.asarray([1.5, -0.0, INF, NAN, np.finfo(dtype).smallest_subnormal], dtype)
    kernel = mixad.broadcast(backend=backend)(lambda x: mixad.stop_gradient(x))
    assert kernel(x).tobytes() == x.tobytes()
    product = mixad.broadcast(backend=backend)(lambda x: x * mixad.stop_gradient((x, x * x))[1])
    y = np.asarray([2.0, -3.0], dtype)
    np.testing.assert_array_equal(mixad.grad(lambda y: product(y).sum())(y), y * y)
    np.testing.assert_array_equal(product.duals(y).partials["x"], y * y)
    inner = lambda y: mixad.grad(lambda y: product(y).sum())(y).sum()  # noqa: E731
    both = mixad.grad(lambda y: inner(y) + (y * y).sum())(y)
    np.testing.assert_array_equal(both, 2 * y)


def test_perturbations_are_not_confused() -> None:
    add, mul = mixad.broadcast(lambda x, y: x + y), mixad.broadcast(lambda x, y: x * y)
    inner = lambda x: mixad.grad(lambda y: add(x, y))(1.0)  # noqa: E731
    assert mixad.grad(lambda x: mul(x, inner(x)))(1.0) == 1
    x = np.asarray([1.0, 2.0])
    inner_of_arrays = lambda x: mixad.grad(lambda y: add(x, y).sum())(x)  # noqa: E731
    np.testing.assert_array_equal(mixad.grad(lambda x: mul(x, inner_of_arrays(x)).sum())(x), [1, 1])


def test_perturbations_are_not_confused_where_the_inner_derivative_depends_on_the_outer() -> None:
    mul = mixad.broadcast(lambda x, y: x * y * y)
    # d/dx [x · d/dy (x y²) at y = 3] = d/dx [x · 6 x] = 12 x
    inner = lambda x: mixad.grad(lambda y: mul(x, y))(3.0)  # noqa: E731
    assert mixad.grad(lambda x: x * inner(x))(2.0) == 24


# -- types -------------------------------------------------------------------------------------


def test_literals_and_python_scalars_are_weak_numpy_scalars_are_strong() -> None:
    x = np.ones(3, np.float32)
    kernel = mixad.broadcast(lambda x, y: 0.1 * x + y)
    assert kernel(x, 2.0).dtype == np.float32
    assert kernel(x, 2).dtype == np.float32
    assert kernel(x, np.float64(2.0)).dtype == np.float64
    assert kernel(x, np.asarray(2.0)).dtype == np.float64
    captured = 2.0
    assert mixad.broadcast(lambda x: x * captured)(x).dtype == np.float32
    captured = np.float64(2.0)
    assert mixad.broadcast(lambda x: x * captured)(x).dtype == np.float64


def test_python_scalars_stay_weak_while_they_are_differentiated() -> None:
    x = np.ones(3, np.float32)
    kernel = mixad.broadcast(lambda x, y: x * y)
    seen = []

    def loss(y: Any) -> Any:
        value = kernel(x, y)
        seen.append(value.dtype)
        return value.sum()

    assert mixad.grad(loss)(2.0) == 3
    assert seen == [np.float32]


def test_captured_python_scalars_stay_weak_while_they_are_differentiated() -> None:
    x = np.ones(3, np.float32)
    seen = []

    def loss(y: Any) -> Any:
        value = mixad.broadcast(lambda x: x * y)(x)
        seen.append(value.dtype)
        return value.sum()

    assert mixad.grad(loss)(2.0) == 3
    assert seen == [np.float32]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_has_the_dtype_of_its_input(dtype: Any) -> None:
    other = np.float64 if dtype is np.float32 else np.float32
    kernel = mixad.broadcast(lambda x, y: x * y)
    x, y = np.ones(3, dtype), np.ones(3, other)
    dx, dy = mixad.grad(lambda x, y: kernel(x, y).sum(), argnums=(0, 1))(x, y)
    assert (dx.dtype, dy.dtype) == (dtype, other)


def test_sums_of_f32_keep_their_digits() -> None:
    kernel = mixad.broadcast(lambda x, y: x * y)
    x = np.full(LONG_SUM, 0.1, np.float32)
    _, (dy,) = mixad.value_and_vjp(lambda y: kernel(x, y), (np.float32(1.0),), np.ones_like(x))
    assert dy.dtype == np.float32
    assert float(dy) == pytest.approx(float(np.float32(0.1)) * LONG_SUM, rel=1e-6)


@pytest.mark.parametrize("name", ["add", "sub"])
def test_no_contraction(name: str) -> None:
    # Where a·b + c is contracted, the rounding error of a·b remains of a·b − round(a·b).
    rng = np.random.default_rng(0)
    a, b = rng.uniform(1, 2, (2, 1000))
    c = a * b
    if name == "sub":
        got = mixad.broadcast(lambda a, b, c: a * b - c)(a, b, c)
    else:
        got = mixad.broadcast(lambda a, b, c: a * b + c)(a, b, -c)
    np.testing.assert_array_equal(got, np.zeros(1000))
    np.testing.assert_array_equal(
        mixad.broadcast(lambda a, b, c: a * b - c).duals(a, b, c).primal, np.zeros(1000)
    )


def test_no_reassociation() -> None:
    x = np.asarray([1e16, 1.0, 3.0])
    np.testing.assert_array_equal(mixad.broadcast(lambda x: (x + 1.0) - x)(x), (x + 1.0) - x)
    zero = np.asarray([-0.0, INF, NAN])
    np.testing.assert_array_equal(mixad.broadcast(lambda x: x * 0.0)(zero), [-0.0, NAN, NAN])
    assert np.signbit(mixad.broadcast(lambda x: x + -0.0)(zero))[0]
    assert not np.signbit(mixad.broadcast(lambda x: x + 0.0)(zero))[0]
    np.testing.assert_array_equal(mixad.broadcast(lambda x: x - x)(zero), [0, NAN, NAN])
    np.testing.assert_array_equal(mixad.broadcast(lambda x: x == x)(zero), [True, True, False])


@pytest.mark.rows(
    ("f", "point"),
    [
        (lambda x: 1 / x, 0.0),
        (lambda x: 1 // x, 0.0),
        (lambda x: x % 0.0, 1.0),
        (lambda x: math.sqrt(x), -1.0),
        (lambda x: math.log(x), 0.0),
        (lambda x: math.exp(x), 1e4),
        (lambda x: x**-1, 0.0),
        (lambda x: math.acos(x), 2.0),
    ],
)
def test_domain_errors_give_inf_or_nan_not_an_exception(f: Any, point: float) -> None:
    got = mixad.broadcast(f)(np.asarray([point]))[0]
    assert not np.isfinite(got)


def test_subnormals_are_not_flushed() -> None:
    for dtype in (np.float32, np.float64):
        tiny = np.finfo(dtype).smallest_subnormal
        x = np.asarray([tiny, 3 * tiny], dtype)
        np.testing.assert_array_equal(mixad.broadcast(lambda x: x + x)(x), x + x)
        np.testing.assert_array_equal(mixad.broadcast(lambda x: x > 0)(x), [True, True])


# -- refused -----------------------------------------------------------------------------------


def refused(function: Any, *arguments: Any) -> str:
    """Return the message with which a function is refused, at decoration or at the first call."""
    with pytest.raises(KernelError) as caught:
        mixad.broadcast(function)(*(arguments or (np.ones(3),)))
    assert caught.value.location is not None
    message = str(caught.value)
    assert "Instead: " in message
    return message


RNG = np.random.default_rng(0)
SEEN: list[float] = []
TABLE = {"a": 1.0}


def test_random_numbers_in_a_kernel_are_refused() -> None:
    import random

    refused(lambda x: x * random.random())
    refused(lambda x: x * RNG.random())
    refused(lambda x: x * np.random.rand())


def test_mutation_in_a_kernel_is_refused() -> None:
    def appends(x: Any) -> Any:
        SEEN.append(x)
        return x

    def assigns(x: Any) -> Any:
        TABLE["a"] = x
        return x

    def rebinds(x: Any) -> Any:
        global SEEN
        SEEN = x
        return x

    for f in (appends, assigns, rebinds):
        refused(f)
    assert SEEN == []
    assert TABLE == {"a": 1.0}


def test_side_effects_in_a_kernel_are_refused() -> None:
    refused(lambda x: print(x))
    refused(lambda x: input(x))


# -- captures ----------------------------------------------------------------------------------

SCALE = 2.0


def doubled_or_so(x: Any) -> Any:
    return x * SCALE


def calls_a_global_helper(x: Any) -> Any:
    return doubled_or_so(x) + 1.0


def test_captured_globals_are_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = mixad.broadcast(calls_a_global_helper)
    x = np.asarray([1.0, 2.0])
    np.testing.assert_array_equal(kernel(x), [3, 5])
    monkeypatch.setitem(globals(), "SCALE", 10.0)
    np.testing.assert_array_equal(kernel(x), [11, 21])
    monkeypatch.setitem(globals(), "doubled_or_so", lambda x: -x)
    np.testing.assert_array_equal(kernel(x), [0, -1])


def test_captured_cells_are_read_at_every_call() -> None:
    scale = 2.0
    kernel = mixad.broadcast(lambda x: x * scale)
    x = np.asarray([1.0, 2.0])
    np.testing.assert_array_equal(kernel(x), [2, 4])
    scale = 3.0
    np.testing.assert_array_equal(kernel(x), [3, 6])
    np.testing.assert_array_equal(mixad.grad(lambda x: kernel(x).sum())(x), [3, 3])
    scale = np.asarray([10.0, 100.0])
    np.testing.assert_array_equal(kernel(x), [10, 200])


def test_gradient_sees_the_captures_of_the_call_not_of_the_backward_pass() -> None:
    scale = 2.0
    kernel = mixad.broadcast(lambda x: x * scale)
    _, pullback = mixad.vjp(kernel, np.asarray([1.0]))
    scale = 5.0
    np.testing.assert_array_equal(pullback(np.ones(1))[0], [2])


def test_pending_call_sees_the_captures_of_the_call() -> None:
    scale = 2.0
    kernel = mixad.broadcast(lambda x: x * x * scale)

    def loss(x: Any) -> Any:
        nonlocal scale
        y = kernel(x)
        scale = 100.0
        return y.sum()

    value, (dx,) = mixad.value_and_vjp(loss, (np.asarray([3.0]),), 1.0)
    assert value == 18
    np.testing.assert_array_equal(dx, [12])


def with_hostile_text() -> Any:
    def f(x: Any) -> Any:
        y = x * 2  # */ \
        return y + count_of("*/ \\ \n unreachable")

    return f


def with_harmless_text() -> Any:
    def f(x: Any) -> Any:
        y = x * 2
        return y + count_of("")

    return f


def count_of(_: Any) -> int:
    return 3


def code_and_comments(f: Any, stage: str, backend: str) -> tuple[list[str], str]:
    kernel = mixad.broadcast(f).with_options(backend=backend)
    np.testing.assert_array_equal(kernel(np.ones(2)), [5, 5])
    lines = kernel.source(np.ones(2), stage=stage).splitlines()
    comments = [line for line in lines if line.lstrip()[:1] in (";", "#")]
    return [line for line in lines if line not in comments], "\n".join(comments)


@pytest.mark.rows(
    ("stage", "backend"),
    [("program", "cpu"), ("pushforward", "cpu"), ("pullback", "cpu"), ("llvm", "cpu"),
     ("asm", "cpu"), ("llvm", "reference")],
)  # fmt: skip
def test_user_text_cannot_escape_from_comments(stage: str, backend: str) -> None:
    code, comments = code_and_comments(with_hostile_text(), stage, backend)
    assert "unreachable" in comments
    assert code == code_and_comments(with_harmless_text(), stage, backend)[0]
    assert len(code) > 3


# -- loops that converge -----------------------------------------------------------------------


def root_by_newton(a: Any) -> Any:
    x = a
    for _ in range(STEPS_TO_CONVERGE):
        step = (x * x - a) / (2 * x)
        x -= step
        if abs(step) <= 1e-10 * x:
            break
    return x


def root_by_fixed_point(a: Any) -> Any:
    x = 1.0
    while abs(x * x - a) > 1e-10:
        x = x - 0.2 * (x * x - a)
    return x


def root_by_bisection(a: Any) -> Any:
    low, high = 0.0, 10.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        if middle * middle > a:
            high = middle
        else:
            low = middle
    return low


def test_derivative_of_newtons_iterates_has_converged() -> None:
    a = np.asarray([0.5, 2.0, 3.0])
    np.testing.assert_allclose(gradient(root_by_newton, a), 0.5 / np.sqrt(a), rtol=1e-13)
    kernel = mixad.broadcast(root_by_newton)
    second = mixad.grad(lambda a: mixad.grad(lambda a: kernel(a).sum())(a).sum())(a)
    np.testing.assert_allclose(second, -0.25 * a**-1.5, rtol=1e-12)


def test_derivative_of_a_fixed_points_iterates_lags() -> None:
    a = np.asarray([1.5, 2.0, 3.0])
    np.testing.assert_allclose(gradient(root_by_fixed_point, a), 0.5 / np.sqrt(a), rtol=1e-7)


def test_bisection_warns_by_name() -> None:
    kernel = mixad.broadcast(root_by_bisection)
    with pytest.warns(UserWarning, match="root_by_bisection.*'low' depends on 'a'"):
        got = mixad.grad(lambda a: kernel(a).sum())(np.asarray([2.0]))
    assert got == 0


# -- shapes ------------------------------------------------------------------------------------


def test_unused_input_has_zero_gradient() -> None:
    kernel = mixad.broadcast(lambda x, unused: x * x)
    x = np.asarray([1.0, 2.0])
    dx, du = mixad.grad(lambda x, u: kernel(x, u).sum(), argnums=(0, 1))(x, x)
    np.testing.assert_array_equal(dx, [2, 4])
    np.testing.assert_array_equal(du, [0, 0])


def test_result_that_depends_on_no_input_warns_and_is_zero() -> None:
    kernel = mixad.broadcast(lambda x: x * 2.0)
    with pytest.warns(UserWarning, match="does not depend"):
        got = mixad.grad(lambda x: kernel(np.ones(2)).sum())(np.ones(3))
    np.testing.assert_array_equal(got, np.zeros(3))


CONSTANT_IN_X = {
    "constant": lambda x: 1.0,
    "x**0": lambda x: x**0,
    "floor": lambda x: special.floor(x),
    "compared": lambda x: 1.0 if x > 0 else 2.0,
}


@pytest.mark.parametrize("f", CONSTANT_IN_X.values(), ids=CONSTANT_IN_X.keys())
def test_function_with_zero_gradient_keeps_its_value(f: Any) -> None:
    kernel = mixad.broadcast(f)
    x = np.asarray([1.0, 2.0, 3.0])
    want = kernel(x)
    assert want.shape == (3,)
    value, (dx,) = mixad.value_and_vjp(kernel, (x,), np.ones(3))
    assert value.shape == (3,)
    np.testing.assert_array_equal(value, want)
    np.testing.assert_array_equal(dx, np.zeros(3))
    total, dx = mixad.value_and_grad(lambda x: kernel(x).sum())(x)
    assert total == want.sum()
    np.testing.assert_array_equal(dx, np.zeros(3))


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=40))
def test_function_that_ignores_its_widest_argument_is_still_broadcast(numbers: list[float]) -> None:
    kernel = mixad.broadcast(lambda x, wide: x * x)
    wide = np.asarray(numbers)
    value, (dx,) = mixad.value_and_vjp(lambda x: kernel(x, wide), (np.asarray([3.0]),), wide)
    np.testing.assert_array_equal(value, np.full(wide.shape, 9.0))
    assert dx[0] == pytest.approx(6 * math.fsum(numbers), rel=1e-12, abs=1e-12)


def test_refused_syntax_is_also_a_syntax_error() -> None:
    with pytest.raises(SyntaxError) as caught:
        mixad.broadcast(lambda x: {x})(np.ones(3))
    assert isinstance(caught.value, KernelSyntaxError)


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: np.sqrt((x * x).sum()),
        lambda x: np.sqrt(np.mean(x**2)) * 2,
        lambda x: np.sqrt((x * x).reshape((2, 2))).sum(),
        lambda x: np.sqrt((x**2)[:2]).sum(),
        lambda x: np.sqrt((x * x).reshape((2, 2)).sum(axis=1)).sum(),
    ],
)
def test_a_zero_partial_beside_an_infinite_cotangent_from_elsewhere(norm: Any) -> None:
    x = np.zeros(4)
    np.testing.assert_array_equal(mixad.grad(norm)(x), x)
    value, tangent = mixad.jvp(norm, (x,), (np.ones(4),))
    assert (value, tangent) == (0.0, 0.0)
    x = np.asarray([0.0, 0.0, 3.0, 4.0])
    assert np.isfinite(mixad.grad(norm)(x)).all()


def test_a_partial_of_zero_beside_a_cotangent_of_nan() -> None:
    found = gradient(lambda x: x * x, [0.0, 1.0, -0.0], cotangent=[NAN, NAN, NAN])
    np.testing.assert_array_equal(found, [0.0, NAN, 0.0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_errstate_of_numpy_has_no_effect_on_kernels(backend: str) -> None:
    kernel = mixad.broadcast(backend=backend)(_one_over)
    x = np.asarray([0.0, 2.0])
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(kernel(x), [INF, 0.5])
        value, slope = mixad.value_and_grad(lambda x: (1.0 / x).sum() + np.log(x).sum())(x)
        # What the library computes itself follows it.
        with pytest.raises(FloatingPointError):
            mixad.value_and_grad(lambda x: (x @ np.asarray([INF, 1.0])).sum())(x)
    assert np.isnan(value)  # inf - inf
    np.testing.assert_array_equal(slope, [-INF + INF, -0.25 + 0.5])


def _one_over(x: Any) -> Any:
    return 1.0 / x


@pytest.mark.rows(
    ("integers", "floats"),
    [("?", "f2"), ("i1", "f2"), ("u1", "f2"), ("i2", "f4"), ("u2", "f4"), ("i4", "f8")],
)
def test_functions_of_narrow_integers_give_the_floats_that_numpy_gives(
    integers: str, floats: str
) -> None:
    x = np.ones(3, integers)
    assert np.sin(x).dtype == floats
    for f in (lambda n: math.sin(n), lambda n: 2.0 * math.sin(n), lambda n: np.sqrt(n)):
        assert mixad.broadcast(f)(x).dtype == floats
    assert mixad.broadcast(lambda n: math.sin(np.float64(n)))(x).dtype == "f8"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_of_zero_at_run_time_gives_no_turn(backend: str) -> None:
    @mixad.broadcast(backend=backend)
    def counted(a: Any, step: Any) -> Any:
        for i in range(0, 5, step):
            a = a + i
        return a

    assert counted(1.0, np.array([1, 0, 2])).tolist() == [11.0, 1.0, 7.0]
    with pytest.raises(KernelError, match="the step of range is 0"):
        mixad.broadcast(_step_of_zero)(1.0)


def _step_of_zero(a: Any) -> Any:
    for i in range(0, 5, 0):
        a = a + i
    return a


# -- values that are being differentiated ----------------------------------------------------------


def test_code_that_asks_for_the_class_of_an_array_takes_the_other_branch_inside_a_transform() -> (
    None
):
    x = np.ones(2)

    def by_class(x: Any) -> Any:
        return 2.0 * x if isinstance(x, np.ndarray) else 0.0 * x

    def by_what_it_has(x: Any) -> Any:
        return 2.0 * x if np.ndim(x) > 0 else 0.0 * x

    np.testing.assert_array_equal(by_class(x), [2.0, 2.0])
    np.testing.assert_array_equal(mixad.grad(lambda x: by_class(x).sum())(x), [0.0, 0.0])
    np.testing.assert_array_equal(mixad.grad(lambda x: by_what_it_has(x).sum())(x), [2.0, 2.0])
    assert by_what_it_has(3.0) == mixad.value_and_grad(by_what_it_has)(3.0)[0] == 0.0
    for page in ("semantics.md", "coming-from.md"):  # which say so before anything else
        text = (Path(__file__).parents[1] / "docs" / page).read_text("utf-8")
        assert (
            0 <= text.find("isinstance(x, np.ndarray)") < text.find("\n## ", text.find("\n## ") + 1)
        )


# -- what may be passed ------------------------------------------------------------------------

LISTS: dict[str, Any] = {
    "floats": [1.0, 2.5],
    "integers": [3, 4],
    "a mixture": [1, 2.5, True],
    "a tuple": (1.0, 2.0),
    "rows": [[1.0, 2.0], (3.0, 4.0)],
    "NumPy's scalars": [np.float32(1.5), np.float32(2.0)],
    "complex numbers": [1.0 + 2.0j, 3.0],
    "nothing": [],
}


@pytest.mark.rows("name", LISTS)
def test_a_kernel_takes_lists_of_numbers_as_functions_of_numpy_do(name: str) -> None:
    kernel = mixad.broadcast(lambda x, y: x * y + x)
    for y in (2.0, 3, np.asarray([[0.5], [2.0]], "f4")):
        got = kernel(LISTS[name], y)
        want = np.add(np.multiply(LISTS[name], y), LISTS[name])
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got, want)


def test_lists_of_numbers_are_taken_wherever_a_kernel_takes_arguments() -> None:
    kernel = mixad.broadcast(lambda x, y: x * y)
    assert kernel.duals([1.0, 2.0], 3.0).partials["x"].tolist() == [3.0, 3.0]
    assert kernel.jacobian([1.0, 2.0], y=[3.0, 5.0]).tolist() == [[3.0, 1.0], [5.0, 2.0]]
    assert kernel.explain([1.0, 2.0], 3.0).shape == (2,)
    assert kernel.trace([1.0, 2.0], [3.0, 5.0], at=1).returned[0].primal == 10.0
    row = mixad.broadcast(lambda v, x: v[0] * x + v[1], signature="(2),()->()")
    assert row((1.0, 2.0), [10.0, 20.0]).tolist() == [12.0, 22.0]
    gradient = mixad.grad(lambda y: kernel([1.0, 2.0], y).sum())(np.asarray([3.0, 5.0]))
    assert gradient.tolist() == [1.0, 2.0]

    def looked_up(table: mixad.Array, i: Any) -> Any:
        return table[i, 1]

    assert mixad.broadcast(looked_up)([[1.0, 2.0], [3.0, 4.0]], [1, 0]).tolist() == [4.0, 2.0]


def squares(x: Any) -> Any:
    return sum(v * v for v in x) if isinstance(x, list) else (x * x).sum()


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda x: mixad.grad(squares)(x),
    "value_and_grad": lambda x: mixad.value_and_grad(squares)(x)[1],
    "vjp": lambda x: mixad.vjp(squares, x)[1](1)[0],
    "value_and_vjp": lambda x: mixad.value_and_vjp(squares, (x,), 1)[1][0],
    "jacobian": lambda x: mixad.jacobian(squares)(x),
    "jacfwd": lambda x: mixad.jacfwd(squares)(x),
    "jacrev": lambda x: mixad.jacrev(squares)(x),
    "hvp": lambda x: mixad.hvp(lambda x: squares(x) * squares(x) / 4, (x,), (x,)),
    "jvp": lambda x: mixad.jvp(squares, (x,), (x,))[1],
    "linearize": lambda x: mixad.linearize(squares, x)[1](x),
}
"""Each returns a derivative of x · x at x: with respect to x, or along x, or of its square / 4."""


@pytest.mark.rows("name", TRANSFORMS)
def test_a_list_is_a_container_to_every_transform(name: str) -> None:
    x = np.asarray([1.0, 2.0])
    dot = float(x @ x)
    want: Any = (2 * x).tolist()
    if name in ("jvp", "linearize"):
        want = 2 * dot
    elif name == "hvp":  # the gradient is (x · x) x, its derivative along x 3 (x · x) x
        want = (3 * dot * x).tolist()
    assert TRANSFORMS[name]([1.0, 2.0]) == want
    got = TRANSFORMS[name](x)
    assert (got.tolist() if isinstance(want, list) else got) == want


@pytest.mark.rows("name", TRANSFORMS)
def test_whole_numbers_are_refused_in_one_line_by_every_transform(name: str) -> None:
    for x, instead in ([1, 2], "write 1.0"), (np.arange(3), "convert it to a float dtype"):
        with pytest.raises(TracerError, match=instead) as caught:
            TRANSFORMS[name](x)
        assert str(caught.value).count("\n") == 0
    with pytest.raises(TracerError, match=r"the whole number 3: write 3\.0"):
        mixad.grad(lambda x: x * x)(3)
