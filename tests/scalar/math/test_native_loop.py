"""The tests' compiler against the interpreter: the programs compute the same bits in both."""

import native_loop
import numpy as np
import pytest
from ulp_reference import FLOATS, any_floats

from mixad.scalar.interpret import interpret
from mixad.scalar.math import PROGRAMS, program_of
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import I32

RANDOM_POINTS = 12
ORDINARY = [0.0, -0.0, 0.3, -0.7, 1.0, 2.5, -3.25, 40.0, -1000.5, 3e5, 2e9, 1e-40, np.inf, np.nan]


def same_bits(got, want):
    """Whether values are the same bit by bit; one nan is as good as another."""
    both_nan = (got != got) & (want != want)
    return bool(np.all(both_nan | (got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}"))))


@pytest.mark.rows("name", PROGRAMS, slow="polygamma")
def test_compiled_loop_computes_what_the_interpreter_computes(name):
    rng = np.random.default_rng(11)
    for type in (I32,) if BY_NAME[name].domain == "integer" else FLOATS:
        program = program_of(name, type)
        if type.is_float:
            x = np.concatenate(
                [np.array(ORDINARY, type.dtype), any_floats(type, RANDOM_POINTS, rng)]
            )
        else:
            x = np.arange(-4, 9, dtype=type.dtype)
        arguments = [x, x[::-1].copy(), np.roll(x, 5)][: BY_NAME[name].arity]
        got = native_loop.run(program, *arguments)
        want = [interpret(program, row)[0] for row in zip(*arguments, strict=True)]
        assert same_bits(got, np.array(want, got.dtype)), (name, type)
