"""Statements in the order of their heights: the same values, chains that take turns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixad.kernel.order import order_by_height
from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import Equation, If, walk_statements
from mixad.scalar.types import BOOL, F64
from mixad.scalar.verify import verify
from mixad.testing import Recipe, programs, random_arguments, same_bits

EXAMPLES = 200
ELEMENTS = 4
LENGTH = 6


def ops(block):
    return [s.op for s in block.statements if isinstance(s, Equation)]


def chain(b, op, x, length=LENGTH):
    """Add operations that each wait for the one before."""
    for _ in range(length):
        x = b.op(op, x, b.const(3.0, F64))
    return x


def lane(b, name):
    return b.param(name, F64)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(Recipe(statements=6, depth=4, iterations=2, arrays=True)), st.integers(0, 2**20))
def test_ordered_program_computes_the_same_bits(program, seed):
    ordered = verify(order_by_height(program))
    assert sorted(map(type_and_op, walk_statements(ordered.body))) == sorted(
        map(type_and_op, walk_statements(program.body))
    )
    arguments = random_arguments(program, seed, ELEMENTS)
    for i in range(ELEMENTS):
        pairs = zip(arguments, program.params, strict=True)
        element = [a[i] if p.kind == "lane" else a for a, p in pairs]
        expected, got = interpret(program, element), interpret(ordered, element)
        assert all(same_bits(a, b) for a, b in zip(expected, got, strict=True)), str(program)


def type_and_op(statement):
    return type(statement).__name__, getattr(statement, "op", "")


def test_chains_that_do_not_meet_take_turns():
    b = Builder("two")
    results = [chain(b, op, lane(b, op)) for op in ("add", "mul")]
    assert ops(order_by_height(b.finish(results)).body) == ["add", "mul"] * LENGTH


def test_what_the_end_waits_for_longest_comes_first():
    b = Builder("uneven")
    short = chain(b, "add", lane(b, "x"), 2)
    long = chain(b, "mul", lane(b, "y"), 5)
    ordered = ops(order_by_height(b.finish([short, long])).body)
    assert ordered == ["mul", "mul", "mul", "add", "mul", "add", "mul"]


def test_a_division_is_begun_before_a_sum():
    b = Builder("quotient")
    x, y = lane(b, "x"), lane(b, "y")
    sum_, quotient = b.op("add", x, y), b.op("div", x, y)
    assert ops(order_by_height(b.finish([sum_, quotient])).body) == ["div", "add"]


def test_a_value_needed_last_is_computed_late():
    b = Builder("late")
    early = b.op("abs", lane(b, "x"))
    out = b.op("sub", chain(b, "mul", lane(b, "y")), early)
    before = ["mul"] * (LENGTH - 1)
    assert ops(order_by_height(b.finish([out])).body) == [*before, "abs", "mul", "sub"]


def test_blocks_are_ordered_inside_and_wait_for_what_they_read():
    b = Builder("guarded")
    c, x, y = b.param("c", BOOL), lane(b, "x"), lane(b, "y")
    seed = b.op("abs", x)

    def side():
        return [chain(b, "add", seed), chain(b, "mul", y)]

    outs = b.if_(c, side, lambda: [x, y])
    before, guard = order_by_height(b.finish(outs)).body.statements
    assert isinstance(guard, If)
    assert before.op == "abs"
    assert ops(guard.then) == ["add", "mul"] * LENGTH
