"""Generated programs with branches, loops and gathers: what the interpreter says."""

from __future__ import annotations

import numpy as np
import pytest

from mixad.conformance.subject import Subject
from mixad.scalar.ir import Program
from mixad.testing import (
    ALL_OPS,
    EXACT_OPS,
    Recipe,
    expected_outputs,
    random_arguments,
    random_program,
)

PROGRAMS = 40
"""Of exact ops, and as many of all."""
BATCH = 10
COUNT = 37
"""Elements of an argument: no multiple of any vector width."""
MAX_UNDETERMINED = 0.1


def programs(subject: Subject, kind: str, batch: int) -> list[tuple[int, Program]]:
    """Return the programs of a batch that have a lane, with their seeds."""
    numbers = tuple(t for t in subject.types if not t.is_narrow)
    ops = EXACT_OPS if kind == "exact" else ALL_OPS
    number = BATCH * subject.examples
    seeds = range(batch * number, (batch + 1) * number)
    made = [
        (seed, random_program(seed, Recipe(ops=ops, types=numbers, arrays=seed % 4 == 3)))
        for seed in seeds
    ]
    return [(seed, p) for seed, p in made if any(param.kind == "lane" for param in p.params)]


@pytest.mark.parametrize("batch", range(PROGRAMS // BATCH))
@pytest.mark.parametrize("kind", ["exact", "all"])
def test_generated_programs_are_what_the_interpreter_computes(
    subject: Subject, kind: str, batch: int
) -> None:
    """Exact programs to the bit; others where comparisons are determined."""
    undetermined = []
    for seed, program in programs(subject, kind, batch):
        if not all(atom.type in subject.types for atom in program.outputs):
            continue
        arguments = random_arguments(program, seed, COUNT)
        expected = expected_outputs(program, arguments)
        spread = [
            np.repeat(a, 2)[::2] if p.kind == "lane" and seed % 3 == 0 else a
            for p, a in zip(program.params, arguments, strict=True)
        ]
        subject.check(expected, subject.run(program, spread))
        undetermined.append(expected.discarded)
    assert undetermined, "no program ran"
    assert np.mean(undetermined) <= (0 if kind == "exact" else MAX_UNDETERMINED)
