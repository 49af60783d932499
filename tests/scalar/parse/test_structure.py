"""What the parser emits: no more than the function says."""

import math
import time
import timeit

import parse_samples as samples
import pytest
from parse_compiled import from_source, op_names, parsed

from mixad.scalar.ir import Equation, If, Var, While, walk_statements
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.types import F64


def loops(function, *types):
    program = parsed(function, *types)[0].program
    return [s for s in walk_statements(program.body) if isinstance(s, While)]


def test_break_at_the_end_of_a_loop_is_one_carry():
    (loop,) = loops(samples.kepler)
    assert [c.type.name for c in loop.carries] == ["f64", "bool"]
    assert loop.cond.statements == ()
    assert loop.cond.results == loop.carries[1:]
    assert all(isinstance(s, Equation) for s in loop.body.statements)
    assert [s.op for s in loop.body.statements].count("sin") == 1


def test_early_returns_are_nested_branches():
    program = parsed(samples.cell_update)[0].program
    assert op_names(program)[:2] == ["eq", "If"]
    outer = program.body.statements[-1]
    assert isinstance(outer, If)
    assert len(outer.outs) == 1
    assert isinstance(outer.orelse.statements[-1], If)


def test_only_live_names_are_carried():
    def f(x):
        s = 0.0
        for i in range(3):
            square = x * i
            s += square
        return s

    (loop,) = loops(f)
    assert len(loop.carries) == 2  # the counter and s


def test_a_loop_without_exits_has_no_flags():
    def f(x):
        while x < 10:
            x = x * 2
        return x

    (loop,) = loops(f)
    assert len(loop.carries) == 1


def test_return_in_a_loop_carries_its_result():
    def f(x):
        while True:
            x = x * 2
            if x > 10:
                return x + 1

    (loop,) = loops(f)
    assert [c.type.name for c in loop.carries] == ["f64", "f64", "bool"]


def test_common_subexpressions_and_constants_are_found():
    program = parsed(lambda x: math.sin(x * 2) + math.sin(2 * x) + math.log(2.0) * 3)[0].program
    assert op_names(program) == ["mul", "sin", "add", "add"]


@pytest.mark.rows(("text", "ops"), [
    ("x ** 2", ["mul"]), ("x ** 3", ["mul", "mul"]), ("x ** 4.0", ["mul", "mul"]), ("x ** 1", []),
    ("x ** -1", ["div"]), ("x ** 0.5", ["sqrt"]), ("x ** 2.5", ["pow"]), ("x ** 9", ["pow"]),
    ("x ** -2", ["pow"]), ("-x + x", ["sub"]), ("x if x > 0 else -x", ["gt", "If", "neg"]),
])  # fmt: skip
def test_ops_of_small_expressions(text, ops):
    assert op_names(parsed(from_source(f"def f(x):\n    return {text}\n"))[0].program) == ops


def test_lines_are_the_users():
    program = parsed(samples.kepler)[0].program
    loop = next(s for s in program.body.statements if isinstance(s, While))
    texts = {s.line.text.strip() for s in loop.body.statements}
    assert texts == {"d = (E - e * math.sin(E) - mean) / (1 - e * math.cos(E))",
                     "E -= d", "if abs(d) < TOLERANCE:", "break"}  # fmt: skip


def test_unused_captures_do_not_become_equations():
    def f(x):
        unused = math.exp(x)
        del_me = unused + samples.TOLERANCE
        return x if True else del_me

    assert op_names(parsed(f)[0].program) == []


def test_equal_functions_have_equal_tokens():
    one = parsed(lambda x, y: x * y)[0].program
    other = parsed(lambda a, b: a * b)[0].program
    assert one.token == other.token
    assert isinstance(one.outputs[0], Var)


def test_parsing_takes_milliseconds():
    source = read_function(samples.kepler)
    snapshot = source.snapshot()
    arguments = [Argument(F64)] * 2
    again = lambda: parse(source, arguments, snapshot)  # noqa: E731
    taken = timeit.repeat(again, timer=time.process_time, number=5, repeat=5)
    assert min(taken) / 5 < 4e-3  # 2 ms are meant; a loaded machine is slower
