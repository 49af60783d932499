"""Dead code: what is not read is gone, what is read stays."""

from __future__ import annotations

from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import If, While
from mixad.scalar.pullback import pullback
from mixad.scalar.simplify import read_params, without_dead_code
from mixad.scalar.types import F64, I64
from mixad.scalar.verify import verify


def test_equations_nobody_reads_are_gone_with_what_only_they_read() -> None:
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    b.op("sin", b.op("mul", x, y))
    program = without_dead_code(b.finish([b.op("add", y, y)]))
    assert [s.op for s in program.body.statements] == ["add"]
    assert read_params(program) == (1,)


def test_branches_keep_only_the_results_that_are_read() -> None:
    b = Builder("f")
    x, y, c = (b.param(n, F64) for n in "xyc")
    first, _ = b.if_(
        b.op("gt", c, b.const(0.0, F64)),
        lambda: [b.op("exp", x), b.op("sin", y)],
        lambda: [x, b.op("cos", y)],
    )
    program = verify(without_dead_code(b.finish([first])))
    branch = program.body.statements[-1]
    assert isinstance(branch, If)
    assert len(branch.outs) == 1
    assert read_params(program) == (0, 2)


def test_loops_keep_the_carries_that_decide_and_that_are_read() -> None:
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    one = b.const(1, I64)
    outs = b.while_(
        [b.const(0, I64), x, y],
        lambda i, p, q: b.op("lt", i, b.const(3, I64)),
        lambda i, p, q: [b.op("add", i, one), b.op("mul", p, p), b.op("mul", q, p)],
    )
    whole = b.finish([outs[1], outs[2]])
    b_first = b.finish([outs[1]])
    trimmed = verify(without_dead_code(b_first))
    loop = trimmed.body.statements[0]
    assert isinstance(loop, While)
    assert len(loop.carries) == 2  # the counter and p; q is gone
    assert read_params(trimmed) == (0,)
    assert interpret(trimmed, (1.5, 2.0)) == interpret(whole, (1.5, 2.0))[:1]
    assert len(without_dead_code(whole).body.statements[0].carries) == 3


def test_a_loop_that_is_not_read_is_gone() -> None:
    b = Builder("f")
    x = b.param("x", F64)
    b.while_([x], lambda p: b.op("gt", p, x), lambda p: [b.op("add", p, p)])
    assert not without_dead_code(b.finish([x])).body.statements


def test_the_pullback_of_a_product_reads_only_the_other_factor() -> None:
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    (chunk,) = pullback(b.finish([b.op("mul", x, y)]), (0,), (0,))
    assert read_params(without_dead_code(chunk.program)) == (1, 2)
