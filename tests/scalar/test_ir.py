"""What programs are as data: equality, tokens, walks, and how they are shown."""

import math

import pytest

from mixad.scalar.build import Builder
from mixad.scalar.generate import random_program
from mixad.scalar.ir import (
    ArrayType,
    Block,
    Const,
    Equation,
    If,
    Line,
    Load,
    Param,
    Program,
    Update,
    Var,
    While,
    nested_blocks,
    read_atoms,
    walk_statements,
    written_vars,
)
from mixad.scalar.types import BOOL, F32, F64, I32, I64

NUMBER_OF_PROGRAMS = 300


def adding(**changes):
    """Return a small program; keyword arguments replace one of its parts."""
    parts = {"op": "add", "type": F64, "kind": "lane", "constant": 1.0, "name": "f", "first": 0}
    parts |= changes
    x = Var(parts["first"], parts["type"])
    out = Var(parts["first"] + 1, parts["type"])
    equation = Equation(out, parts["op"], (x, Const(parts["constant"], parts["type"])))
    param = Param(parts.get("param", "x"), x, parts["kind"])
    return Program(parts["name"], (param,), Block((equation,), (out,)))


def test_constants_are_equal_when_type_and_bits_are():
    assert Const(1.0, F64) == Const(1.0, F64)
    assert Const(math.nan, F64) == Const(math.nan, F64)
    assert hash(Const(1.0, F64)) == hash(Const(1.0, F64))
    assert Const(1.0, F64) != Const(1.0, F32)
    assert Const(1, I32) != Const(1, I64)
    assert Const(0.0, F64) != Const(-0.0, F64)
    assert Const(0.0, F64) != 0.0


@pytest.mark.parametrize("changes", [{"name": "g"}, {"param": "y"}, {"first": 40}], ids=str)
def test_token_ignores_names_and_numbers_of_variables(changes):
    assert adding(**changes).token == adding().token


@pytest.mark.parametrize(
    "changes",
    [{"op": "sub"}, {"type": F32}, {"kind": "uniform"}, {"constant": 2.0}, {"constant": -1.0}],
    ids=str,
)
def test_token_tells_apart_what_computes_something_else(changes):
    assert adding(**changes).token != adding().token


def test_token_tells_zeros_of_either_sign_apart():
    assert adding(constant=0.0).token != adding(constant=-0.0).token


def test_token_ignores_lines_and_so_does_equality():
    x, out = Var(0, F64), Var(1, F64)
    programs = [
        Program("f", (Param("x", x),), Block((Equation(out, "neg", (x,), line),), (out,)))
        for line in (None, Line("f.py", 3, "return -x"))
    ]
    assert programs[0].token == programs[1].token
    assert programs[0] == programs[1]


def test_token_depends_on_which_block_a_statement_is_in():
    def program(*, inside):
        b = Builder("f")
        c, x = b.param("c", BOOL), b.param("x", F64)
        if inside:
            (y,) = b.if_(c, lambda: [b.op("exp", x)], lambda: [x])
        else:
            e = b.op("exp", x)
            (y,) = b.add_if(c, Block((), (e,)), Block((), (x,)), None)
        return b.finish([y])

    assert program(inside=True).token != program(inside=False).token


def test_token_depends_on_array_types():
    def program(rank):
        b = Builder("f")
        b.array_param("a", ArrayType(F64, rank))
        return b.finish([b.const(1.0, F64)])

    assert program(1).token != program(2).token


@pytest.mark.slow
def test_different_random_programs_have_different_tokens():
    made = {random_program(seed) for seed in range(NUMBER_OF_PROGRAMS)}
    assert len({p.token for p in made}) == len(made)


A = Var(9, F64)
X, Y, Z, C = Var(0, F64), Var(1, F64), Var(2, F64), Var(3, BOOL)
I = Var(4, I32)  # noqa: E741
EMPTY = Block((), ())


@pytest.mark.parametrize(
    ("statement", "reads", "writes", "blocks"),
    [
        (Equation(Z, "add", (X, Y)), (X, Y), (Z,), ()),
        (If((Z,), C, Block((), (X,)), Block((), (Y,))), (C,), (Z,), ((X,), (Y,))),
        (While((Z,), (Y,), (X,), Block((), (C,)), Block((), (Y,))), (X,), (Z,), ((C,), (Y,))),
        (Load(Z, A, (I,)), (I,), (Z,), ()),
        (Update(A, (I,), X), (I, X), (), ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_statement_tells_what_it_reads_writes_and_holds(statement, reads, writes, blocks):
    assert read_atoms(statement) == reads
    assert written_vars(statement) == writes
    assert tuple(b.results for b in nested_blocks(statement)) == blocks


def test_walk_visits_outer_statements_before_inner_ones():
    inner = Equation(Y, "neg", (X,))
    outer = If((Z,), C, Block((inner,), (Y,)), Block((), (X,)))
    last = Equation(Var(7, F64), "neg", (Z,))
    assert list(walk_statements(Block((outer, last), ()))) == [outer, inner, last]


def test_a_program_is_shown_with_types_blocks_and_lines():
    b = Builder("clip")
    x, n, a = b.param("x", F32), b.param("n", I32, "uniform"), b.array_param("a", ArrayType(F32, 1))
    sums = b.accumulator("sums", ArrayType(F32, 1))
    b.line = Line("clip.py", 3, "    while n < 4:")
    n2, y = b.while_(
        [n, x],
        lambda n, y: b.op("lt", n, b.const(4, I32)),
        lambda n, y: [b.op("add", n, b.const(1, I32)), b.op("mul", y, b.load(a, n))],
    )
    b.line = Line("clip.py", 5, "    return -y if y < 0 else y")
    (z,) = b.if_(b.op("lt", y, b.const(0.0, F32)), lambda: [b.op("neg", y)], lambda: [y])
    b.update(sums, n2, value=z)
    assert str(b.finish([z, b.const(-0.5, F32)])) == CLIP


CLIP = """\
program clip(%0 x: f32 lane, %1 n: i32 uniform, %2 a: f32[:] array)
  %3 sums: f32[:] add
  # 3: while n < 4:
  %10, %11 = while %4, %5 from %1, %0
    # 3: while n < 4:
    %6:bool = lt %4, 4:i32
    test %6
  do
    # 3: while n < 4:
    %7:i32 = add %4, 1:i32
    %8:f32 = load %2[%4]
    %9:f32 = mul %5, %8
    next %7, %9
  # 5: return -y if y < 0 else y
  %12:bool = lt %11, 0:f32
  %14 = if %12
    # 5: return -y if y < 0 else y
    %13:f32 = neg %11
    then %13
  else
    then %11
  update %3[%10] by %14
  return %14, -0.5:f32"""
