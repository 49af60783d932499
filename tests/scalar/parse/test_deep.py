"""Deeply nested functions: compiled with work in proportion, or refused in time."""

import cProfile
import pstats

import numpy as np
import pytest
from parse_compiled import from_source

import mixad
from mixad.errors import KernelSyntaxError
from mixad.scalar.math import expand
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.pullback import pullback
from mixad.scalar.simplify import without_dead_code
from mixad.scalar.types import F64


def cases(count):
    returns = "".join(f"    if x < {k}: return {k} * x\n" for k in range(count))
    return from_source(f"def f(x):\n{returns}    return x\n")


def test_a_hundred_early_returns_are_compiled_and_too_many_refused():
    x = np.asarray([-1.0, 0.5, 98.5, 200.0])
    value, (dx,) = mixad.value_and_vjp(mixad.broadcast(cases(100)), (x,), np.ones(4))
    np.testing.assert_array_equal(dx, [0, 1, 99, 1])
    np.testing.assert_array_equal(value, dx * x)
    with pytest.raises(KernelSyntaxError, match="nested 120 deep here") as caught:
        mixad.broadcast(cases(200))(x)
    assert caught.value.location.line == 122


def calls_to_compile(function):
    """Return how many calls of Python it takes to compile a function and its gradient."""
    source = read_function(function)
    profile = cProfile.Profile()
    profile.enable()
    program = parse(source, [Argument(F64)], source.snapshot()).program
    for derived in (program, *(c.program for c in pullback(program, (0,), (0,)))):
        expand(without_dead_code(derived))
    profile.disable()
    return pstats.Stats(profile).total_calls


def test_compiling_nested_conditions_takes_work_in_proportion():
    calls_to_compile(cases(5))
    assert calls_to_compile(cases(80)) < 2.5 * calls_to_compile(cases(40))
