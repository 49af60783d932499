"""Loops over tables: written out where an item must be known, loops in the program otherwise."""

import numpy as np
import pytest
from parse_compiled import from_source, op_names, parsed, run

import mixad

TOTAL = """
def f(x):
    s = 0.0
    for i in range({0}):
        s += T[i] * x
    return s
"""
SEARCH = """
def f(x):
    s = 0.0
    for i in range({0}):
        if x < T[i]:
            break
        s += T[i]
    else:
        s = -1.0
    return s
"""
POSITION = """
def f(x):
    for i in range({0}):
        if x < T[i]:
            return i + x
    return -1.0
"""
NESTED = """
def f(x):
    s = 0.0
    for i in range({0}):
        for j in range({1}):
            s += T[{2}] * (x + i)
    return s
"""


def looping(text, table, *counts):
    """Return a function of constant ranges: with captured bounds nothing is written out."""
    return from_source(text.format(*counts), T=table)


def nested(table, rows, columns):
    return looping(NESTED, table, rows, columns, "i][j" if isinstance(table, tuple) else "i, j")


def size(function):
    return len(op_names(parsed(function)[0].program))


@pytest.mark.rows("count", [0, 1, 3, 16, 17, 60, 61, 250, 257], slow="16 17 60 61 250 257")
@pytest.mark.rows("text", [TOTAL, SEARCH, POSITION], ids=["total", "search", "position"])
@pytest.mark.parametrize("kind", [tuple, np.asarray], ids=["tuple", "array"])
def test_a_loop_over_a_table_gives_what_python_gives(text, kind, count):
    table = kind([(k * 7 % 10 + k) / 7.0 for k in range(300)])
    function = looping(text, table, count)
    for x in (20.0, 1e3):
        assert run(function, x) == pytest.approx(function(x), rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (4, 5), (16, 16), (24, 24)])
def test_nested_loops_over_tables_give_what_python_gives(rows, columns):
    rng = np.random.default_rng(0)
    array = rng.uniform(size=(rows, columns))
    table = tuple(map(tuple, array.tolist()))
    for function in (nested(table, rows, columns), nested(array, rows, columns)):
        assert run(function, 0.5) == pytest.approx(function(0.5), rel=1e-12)


def test_what_is_written_out_of_arrays_is_bounded():
    array = np.ones((40, 40))
    assert size(looping(TOTAL, array[0], 16)) > 2 * 16 > size(looping(TOTAL, array[0], 17))
    sizes = [size(nested(array, n, n)) for n in (5, 12, 24, 40)]
    assert max(sizes) < 100
    assert sizes[2] == sizes[3]


@pytest.mark.slow
def test_what_is_written_out_of_tuples_is_bounded():
    for n in (4, 16, 17, 40):
        assert size(nested(((1.0,) * n,) * n, n, n)) < 6 * 256


def test_tables_of_functions_are_called_one_after_the_other():
    steps = (np.sin, np.cos, lambda t: t * t) * 5

    def f(x):
        for i in range(15):
            x = steps[i](x)
        return x

    assert run(f, 0.25) == pytest.approx(f(0.25), rel=1e-13)


def test_a_table_that_the_loop_makes_is_known_in_it():
    def f(x):
        s = 0.0
        for i in range(3):
            row = (x, np.sin, 2.0)
            s += row[i](x) if i == 1 else row[i]
        return s

    assert run(f, 0.5) == pytest.approx(f(0.5))


def test_gradients_of_loops_over_tables():
    array = np.linspace(0.5, 1.5, 40)
    x = np.asarray([0.5, 2.0])
    for count in (16, 17, 40):
        kernel = mixad.broadcast(looping(TOTAL, array, count))
        gradient = mixad.grad(lambda x, kernel=kernel: kernel(x).sum())(x)
        np.testing.assert_allclose(gradient, np.full(2, array[:count].sum()), rtol=1e-13)


LONG = """
def f(x):
    for i in range({0}, 2**63 - 1):
        y = i - T[0]
        if i > T[i % 3] - 1e30:
            break
    return x + y
"""


@pytest.mark.parametrize("start", ["-(2**63)", "0", "1 + 1"])
def test_ranges_may_be_longer_than_python_counts(start):
    f = looping(LONG, np.ones(3), start)
    assert run(f, 2.0) == f(2.0)
