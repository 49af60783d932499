"""A compiled function gives what Python gives."""

import math

import parse_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parse_compiled import run

NUMBERS = st.floats(-6, 6) | st.integers(-6, 6).map(float) | st.sampled_from([0.0, -0.0, 0.5, 2.0])


def assert_same(got, expected):
    got = got if isinstance(got, tuple) else (got,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert float(g) == pytest.approx(float(e), rel=1e-12, abs=1e-13, nan_ok=True)


def python_result(function, *values):
    """What Python gives, or None where it raises what IEEE arithmetic does not."""
    try:
        return function(*values)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


@pytest.mark.rows(
    "function",
    samples.TWO_ARGUMENTS,
    ids=lambda f: f.__name__,
    slow="mathematics nested_loops kepler calls_helpers unrolled early_returns "
    "returns_in_while_true collatz for_else rounding",
)
@given(x=NUMBERS, y=NUMBERS)
def test_compiled_function_gives_what_python_gives(function, x, y):
    if function is samples.kepler:
        y = abs(y) / 7
    expected = python_result(function, x, y)
    if expected is not None and not any(map(_is_complex, _flat(expected))):
        assert_same(run(function, x, y), expected)


def _flat(value):
    return value if isinstance(value, tuple) else (value,)


def _is_complex(value):
    return isinstance(value, complex)


@given(st.tuples(*[st.sampled_from([0.0, 1.0]) | NUMBERS] * 6))
def test_cell_update_gives_what_python_gives(values):
    assert_same(run(samples.cell_update, *values), samples.cell_update(*values))


def test_division_by_zero_is_infinite():
    assert run(lambda x, y: x / y, 1.0, 0.0) == math.inf
    assert math.isnan(run(lambda x, y: x // y * 0 + x / y, 0.0, 0.0))
