"""Each way of being malformed is refused; what the builder makes is not."""

import pytest

from mixad.scalar.ir import (
    ArrayType,
    Block,
    Const,
    Equation,
    If,
    Load,
    Param,
    Program,
    Update,
    Var,
    While,
)
from mixad.scalar.ops import TABLE
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64, I32, U8, U32, U64
from mixad.scalar.verify import VerificationError, result_type, verify

X, Y, C, N = Var(0, F64), Var(1, F64), Var(2, BOOL), Var(3, I32)
A = Var(4, F64)
P, Q, R, T = Var(10, F64), Var(11, F64), Var(12, F64), Var(13, BOOL)
TWO = Const(2.0, F64)
S = Var(30, F64)
PARAMS = (
    Param("x", X),
    Param("y", Y),
    Param("c", C),
    Param("n", N),
    Param("a", A, "array", ArrayType(F64, 1)),
)


def program(*statements, results=(), params=PARAMS):
    return Program("f", params, Block(tuple(statements), tuple(results)))


def adding(*statements):
    """Return a program that adds to an array, which it returns."""
    added = Param("sums", S, "array", ArrayType(F64, 1))
    return Program("f", PARAMS, Block(statements, (S,)), (added,))


def neg(out, arg):
    return Equation(out, "neg", (arg,))


def loop(**changes):
    """Return ``while true: p = p`` with parts replaced."""
    parts = {
        "outs": (Q,),
        "carries": (P,),
        "inits": (X,),
        "cond": Block((), (C,)),
        "body": Block((), (P,)),
    }
    return While(**(parts | changes))


WELL_FORMED = {
    "equation": program(neg(P, X), results=[P]),
    "constants": program(Equation(P, "add", (TWO, TWO)), results=[P, TWO]),
    "if": program(If((P,), C, Block((neg(Q, X),), (Q,)), Block((), (Y,))), results=[P]),
    "outer variable in nested block": program(
        neg(P, X), If((Q,), C, Block((neg(R, P),), (R,)), Block((), (P,))), results=[Q]
    ),
    "while": program(loop(), results=[Q]),
    "load": program(Load(P, A, (N,)), results=[P]),
    "update": adding(Update(S, (N,), X)),
    "convert": program(Equation(Var(20, U8), "convert", (X,))),
    "bitcast": program(Equation(Var(20, U64), "bitcast", (X,))),
    "no results": program(),
}


@pytest.mark.rows("name", WELL_FORMED)
def test_well_formed_programs_pass_unchanged(name):
    assert verify(WELL_FORMED[name]) is WELL_FORMED[name]


BRANCH = If((P,), C, Block((neg(Q, X),), (Q,)), Block((), (Y,)))
MALFORMED = {
    "params share a variable": (
        program(params=(Param("x", X), Param("y", X))),
        "two params share a variable",
    ),
    "array type without array kind": (
        program(params=(Param("x", X, "lane", ArrayType(F64, 1)),)),
        "param x of kind lane",
    ),
    "array kind without array type": (
        program(params=(Param("x", X, "array"),)),
        "param x of kind array",
    ),
    "unknown op": (program(Equation(P, "frobnicate", (X,))), "no op 'frobnicate'"),
    "too many arguments": (program(Equation(P, "neg", (X, Y))), "neg takes 1 arguments, not 2"),
    "too few arguments": (program(Equation(P, "add", (X,))), "add takes 2 arguments, not 1"),
    "condition of where": (program(Equation(P, "where", (X, X, Y))), "condition of where is f64"),
    "mixed arguments": (program(Equation(P, "add", (X, N))), "arguments of one type"),
    "mixed where": (program(Equation(P, "where", (C, X, N))), "arguments of one type"),
    "outside the domain": (program(Equation(Var(20, I32), "exp", (N,))), "exp takes float"),
    "numbers only": (program(Equation(Var(20, BOOL), "add", (C, C))), "add takes number"),
    "bits only": (program(Equation(P, "and", (X, Y))), "and takes bits"),
    "bitcast to another width": (
        program(Equation(Var(20, U32), "bitcast", (X,))),
        "bitcast from f64 to u32 changes the width",
    ),
    "type of a result": (program(Equation(Var(20, F32), "neg", (X,))), "result of neg"),
    "type of a comparison": (program(Equation(P, "lt", (X, Y))), "result of lt"),
    "never assigned": (program(neg(P, Q)), "%11:f64 is read where it is not visible"),
    "read before assigned": (program(neg(P, Q), neg(Q, X)), "%11:f64 is read"),
    "read with another type": (program(Equation(P, "neg", (Var(3, F64),))), "%3:f64 is read"),
    "result never assigned": (program(results=[P]), "%10:f64 is read"),
    "inner variable read outside": (program(BRANCH, neg(R, Q)), "%11:f64 is read"),
    "inner variable as a result": (program(BRANCH, results=[Q]), "%11:f64 is read"),
    "variable of the other branch": (
        program(If((P,), C, Block((neg(Q, X),), (Q,)), Block((), (Q,)))),
        "%11:f64 is read",
    ),
    "carry read outside": (program(loop(), results=[P]), "%10:f64 is read"),
    "variable of the test read in the body": (
        program(loop(cond=Block((neg(R, P),), (C,)), body=Block((), (R,)))),
        "%12:f64 is read",
    ),
    "output of an if read inside": (
        program(If((P,), C, Block((), (P,)), Block((), (X,)))),
        "%10:f64 is read",
    ),
    "array read as a scalar": (program(neg(P, A)), "%4:f64 is read"),
    "param assigned": (program(neg(X, Y)), "%0 is assigned twice"),
    "assigned twice": (program(neg(P, X), neg(P, Y)), "%10 is assigned twice"),
    "assigned in both branches": (
        program(If((P,), C, Block((neg(Q, X),), (Q,)), Block((neg(Q, Y),), (Q,)))),
        "%11 is assigned twice",
    ),
    "carry is assigned already": (program(neg(P, X), loop()), "%10 is assigned twice"),
    "output is a carry": (program(loop(outs=(P,))), "%10 is assigned twice"),
    "two outputs are one": (
        program(If((P, P), C, Block((), (X, Y)), Block((), (X, Y)))),
        "%10 is assigned twice",
    ),
    "condition of an if": (program(If((), X, Block((), ()), Block((), ()))), "condition: got"),
    "results of a branch": (
        program(If((P,), C, Block((), (N,)), Block((), (X,)))),
        "then-results: got",
    ),
    "number of results of a branch": (
        program(If((P,), C, Block((), (X,)), Block((), ()))),
        "else-results: got",
    ),
    "initial carries": (program(loop(inits=(N,))), "initial carries: got"),
    "number of carries": (program(loop(inits=(X, Y))), "initial carries: got"),
    "loop outputs": (program(loop(outs=(T,))), "loop outputs: got"),
    "loop test": (program(loop(cond=Block((), (X,)))), "loop test: got"),
    "loop test with two results": (program(loop(cond=Block((), (C, C)))), "loop test: got"),
    "next carries": (program(loop(body=Block((), (N,)))), "next carries: got"),
    "scalar is indexed": (program(Load(P, X, (N,))), "%0 is indexed but is no array param"),
    "number of indices": (program(Load(P, A, (N, N))), "%4 takes 1 integer indices"),
    "float index": (program(Load(P, A, (X,))), "%4 takes 1 integer indices"),
    "boolean index": (adding(Update(S, (C,), X)), "%30 takes 1 integer indices"),
    "index out of scope": (program(Load(P, A, (Var(20, I32),))), "%20:i32 is read"),
    "type of a load": (program(Load(Var(20, F32), A, (N,))), "element: got"),
    "type of an updating value": (adding(Update(S, (N,), N)), "element: got"),
    "param that is added to": (
        program(Update(A, (N,), X)),
        "%4 is changed but is no accumulator",
    ),
    "accumulator as a value": (
        adding(Equation(P, "add", (S, S))),
        "%30:f64 is read where it is not visible",
    ),
    "constant beyond its type": (program(results=[Const(300, U8)]), "300:u8 is no value of u8"),
    "constant that is not rounded": (program(results=[Const(0.1, F32)]), "is no value of f32"),
}


@pytest.mark.rows("name", MALFORMED)
def test_malformed_programs_are_refused(name):
    malformed, message = MALFORMED[name]
    with pytest.raises(VerificationError) as caught:
        verify(malformed)
    assert message in str(caught.value)


def test_conversions_need_a_stated_type():
    with pytest.raises(VerificationError, match="convert needs the type of its result"):
        result_type("convert", (F64,))


IN_DOMAIN = {
    "float": {F32, F64},
    "integer": {t for t in ALL_TYPES if t.name[0] in "iu"},
    "number": set(ALL_TYPES) - {BOOL},
    "bits": {t for t in ALL_TYPES if t.name[0] in "iub"},
    "any": set(ALL_TYPES),
}


@pytest.mark.rows("op", TABLE, ids=lambda op: op.name)
@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_every_op_takes_its_domain_and_nothing_else(op, type):
    types = (type,) * op.arity if op.name != "where" else (BOOL, type, type)
    if type in IN_DOMAIN[op.domain]:
        expected = BOOL if op.result == "bool" else type
        assert result_type(op.name, types, stated=type) == expected
    else:
        with pytest.raises(VerificationError):
            result_type(op.name, types, stated=type)
