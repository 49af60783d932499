"""Duals of one element as they are computed, beside the pushforward that is written and run."""

from __future__ import annotations

import numpy as np
import pytest

from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import Line
from mixad.scalar.ops import BY_NAME
from mixad.scalar.pushforward import pushforward
from mixad.scalar.trace import run_duals
from mixad.scalar.types import F16, F32, F64, I32
from mixad.testing import ALL_OPS, Recipe, as_python_source, random_arguments, random_program

PROGRAMS = 150
FIRST = Line("program.py", 1, "def generated():")
OPS = tuple(name for name in ALL_OPS if None not in BY_NAME[name].partials)
RECIPES = {
    "wide": Recipe(ops=OPS, types=(F32, F64, I32), depth=2, arrays=True),
    "narrow": Recipe(ops=OPS, types=(F16, F32), depth=2),
}


def same(got, want):
    """Whether numbers are of one dtype and equal; nan is nan."""
    got, want = np.asarray(got), np.asarray(want)
    return got.dtype == want.dtype and np.array_equal(got, want, equal_nan=got.dtype.kind == "f")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_values_and_partials_are_those_of_the_written_pushforward(recipe):
    compared = 0
    for seed in range(PROGRAMS):
        program = random_program(seed, RECIPES[recipe])
        floats = (i for i, p in enumerate(program.params) if p.var.type.is_float and not p.array)
        wrt = list(floats)[:MAX_PARTIALS]
        with np.errstate(over="ignore"):  # of what is drawn in 16 bits
            drawn = zip(program.params, random_arguments(program, seed, 1), strict=True)
        arguments = [a[0] if p.kind == "lane" else a for p, a in drawn]
        dual = pushforward(program, wrt)
        expected = interpret(dual.program, arguments)
        _, found = run_duals(program, arguments, wrt, FIRST)
        shown = as_python_source(program, arguments)
        for chunk, places in zip(found, dual.outputs, strict=True):
            assert same(chunk.primal, expected[places.primal]), shown
            for slot, place in places.partials.items():
                name = program.params[wrt[slot]].name
                assert same(chunk.partials[name], expected[place]), shown
                compared += 1
    assert compared > PROGRAMS
