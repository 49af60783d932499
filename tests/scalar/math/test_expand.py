"""Inlining: nothing is left that needs a program, and common work is done once."""

import pytest

from mixad.scalar.build import Builder
from mixad.scalar.expression import Term, call
from mixad.scalar.ir import ArrayType, Equation, If, Line, walk_statements
from mixad.scalar.math import PROGRAMS, expand
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import F32, F64, I32
from mixad.scalar.verify import verify


def built(formula, type=F32, names="x"):
    """Return the program of a formula over terms."""
    b = Builder("f")
    return b.finish([t.atom for t in formula(*(Term(b, b.param(n, type)) for n in names))])


def count(program, op):
    return sum(isinstance(s, Equation) and s.op == op for s in walk_statements(program.body))


@pytest.mark.rows("name", PROGRAMS)
def test_only_instructions_and_libm_are_left(name):
    names = "xyz"[: BY_NAME[name].arity]
    for type in (I32,) if BY_NAME[name].domain == "integer" else (F32, F64):
        program = verify(expand(built(lambda *t, n=name: [call(n, *t)], type, names)))
        left = {s.op for s in walk_statements(program.body) if isinstance(s, Equation)}
        assert not left & set(PROGRAMS)


def test_tanh_and_all_of_the_logistic_function_cost_one_exponential_and_one_division():
    def gates(x):
        twice = 2 * x
        both = call("sigmoid", twice) * call("sigmoid", -twice)
        return [call("tanh", x), both, call("logistic_density", twice)]

    program = expand(built(gates))
    assert count(program, "bounded_reciprocal") == 1
    assert count(program, "shl") == 1  # one 2ᵏ, so one exponential


@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_sine_and_cosine_share_their_reduction(type):
    program = expand(built(lambda x: [call("sin", x), call("cos", x)], type))
    assert sum(isinstance(s, If) for s in walk_statements(program.body)) == 1
    assert count(program, "fma") == count(expand(built(lambda x: [call("sin", x)], type)), "fma")


def test_reductions_of_different_arguments_stay_apart():
    program = verify(expand(built(lambda x, y: [call("sin", x), call("sin", y)], F32, "xy")))
    assert sum(isinstance(s, If) for s in program.body.statements) == 2


def test_an_if_inside_a_branch_is_not_used_outside():
    def formula(x):
        inner = x.builder.if_((x > 0).atom, lambda: [call("sin", x).atom], lambda: [x.atom])
        return [Term(x.builder, inner[0]), call("sin", x)]

    verify(expand(built(formula)))


def test_branches_that_accumulate_are_not_merged():
    b = Builder("f")
    x, a = b.param("x", F64), b.accumulator("a", ArrayType(F64, 1))

    def scattered():
        b.update(a, b.const(0, I32), value=x)
        return [x]

    for _ in range(2):
        b.if_(b.op("lt", x, b.const(0.0, F64)), scattered, lambda: [x])
    program = expand(verify(b.finish([x, a])))
    assert sum(isinstance(s, If) for s in program.body.statements) == 2


def test_params_keep_their_kinds_and_equations_their_lines():
    b = Builder("f")
    x, u = b.param("x", F64), b.param("u", F64, "uniform")
    a = b.array_param("a", ArrayType(F64, 1))
    b.line = Line("user.py", 3, "y = exp(a[0])")
    y = b.op("exp", b.load(a, b.const(0, I32)))
    program = verify(expand(b.finish([b.op("mul", b.op("mul", x, u), y)])))
    assert [p.kind for p in program.params] == ["lane", "uniform", "array"]
    assert {s.line.number for s in walk_statements(program.body)} == {3}


def test_expanding_again_changes_nothing():
    program = expand(built(lambda x: [call("erf", x), call("digamma", x)], F64))
    assert expand(program).token == program.token
