"""Random programs are well formed, end, and cover what they are meant to cover."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings

from mixad.scalar.generate import (
    ALL_OPS,
    EXACT_OPS,
    OF_DERIVATIVES,
    Recipe,
    SeededChoices,
    random_program,
    special_values,
)
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import Equation, If, Load, While, walk_statements
from mixad.scalar.ops import TABLE
from mixad.scalar.types import ALL_TYPES, F32, F64
from mixad.scalar.verify import verify
from mixad.testing import programs, random_arguments

EXAMPLES_WHILE_SHRINKING = 2000

NUMBER_OF_PROGRAMS = 600
NUMBER_OF_EXAMPLES = 50


def statements(recipe=None, count=NUMBER_OF_PROGRAMS):
    for seed in range(count):
        yield from walk_statements(random_program(seed, recipe).body)


def test_the_same_seed_gives_the_same_program():
    assert [random_program(7).token for _ in range(3)] == [random_program(7).token] * 3
    assert random_program(SeededChoices(7)) == random_program(7)


@pytest.mark.slow
def test_random_programs_cover_every_op_statement_and_type():
    equations = [s for s in statements() if isinstance(s, Equation)]
    kinds = Counter(type(s) for s in statements())
    assert {s.op for s in equations} == set(ALL_OPS) == {op.name for op in TABLE} - OF_DERIVATIVES
    assert {s.out.type for s in equations} == set(ALL_TYPES)
    assert min(kinds[If], kinds[While]) > NUMBER_OF_PROGRAMS / 4


@pytest.mark.slow
def test_random_programs_nest_branches_and_loops_in_each_other():
    nested = {
        (type(s), type(inner))
        for s in statements()
        if isinstance(s, If | While)
        for block in ((s.then, s.orelse) if isinstance(s, If) else (s.cond, s.body))
        for inner in walk_statements(block)
    }
    assert {(a, b) for a in (If, While) for b in (If, While)} <= nested


@pytest.mark.slow
def test_random_programs_have_several_outputs_and_both_kinds_of_params():
    made = [random_program(seed) for seed in range(NUMBER_OF_PROGRAMS)]
    assert {len(p.outputs) for p in made} == {1, 2, 3, 4, 5, 6}
    assert {param.kind for p in made for param in p.params} == {"lane", "uniform"}


def test_a_recipe_is_kept_to():
    recipe = Recipe(ops=("add", "lt"), types=(F64,), depth=0, params=1, uniforms=False)
    allowed = {"add", "lt", "convert"}  # conversions bring values together
    for seed in range(100):
        program = random_program(seed, recipe)
        assert [p.kind for p in program.params] == ["lane"]
        assert all(isinstance(s, Equation) for s in program.body.statements)
        assert {s.op for s in program.body.statements} <= allowed


def test_exact_recipes_hold_no_inexact_op():
    for statement in statements(Recipe(ops=EXACT_OPS), 200):
        assert not isinstance(statement, Equation) or statement.op in EXACT_OPS


def test_array_params_are_loaded_from_inside_their_extents():
    recipe = Recipe(arrays=True)
    assert any(isinstance(s, Load) for s in statements(recipe, 50))
    for seed in range(50):
        program = random_program(seed, recipe)
        columns = random_arguments(program, seed, count=4)
        for k in range(4):
            pairs = zip(program.params, columns, strict=True)
            interpret(
                program, [c[k] if p.kind == "lane" else c for p, c in pairs], max_iterations=9
            )


@pytest.mark.slow
def test_loops_end_for_all_arguments():
    for seed in range(NUMBER_OF_PROGRAMS):
        program = random_program(seed)
        columns = random_arguments(program, seed, count=1)
        pairs = zip(program.params, columns, strict=True)
        args = [c[0] if p.kind == "lane" else c for p, c in pairs]
        interpret(program, args, max_iterations=Recipe().iterations)


@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_special_values_are_values_of_their_type(type):
    for value in special_values(type):
        stored = type.dtype.type(value).item()
        assert stored == value or (stored != stored and value != value)


@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_special_values_hold_the_edges_of_floats(type):
    info = np.finfo(type.dtype)
    edges = {info.max, info.min, info.tiny, info.smallest_subnormal, np.inf, -np.inf}
    assert {float(e) for e in edges} <= set(special_values(type))


@pytest.mark.slow
@given(programs())
@settings(max_examples=NUMBER_OF_EXAMPLES, suppress_health_check=list(HealthCheck))
def test_hypothesis_makes_well_formed_programs(program):
    assert verify(program) is program


@pytest.mark.slow
def test_hypothesis_shrinks_failing_programs():
    """Find a program with a loop: what is left of it is little more than that."""
    found = find(
        programs(),
        lambda p: any(isinstance(s, While) for s in walk_statements(p.body)),
        settings=settings(
            max_examples=EXAMPLES_WHILE_SHRINKING, suppress_health_check=list(HealthCheck)
        ),
    )
    assert len(list(walk_statements(found.body))) <= 10
