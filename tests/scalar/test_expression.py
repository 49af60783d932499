"""Terms with operators, and the expression strings of the op table."""

import math

import pytest
from mpmath import mp

from mixad.scalar.build import Builder
from mixad.scalar.expression import CONSTANTS, Term, call, emit, expression
from mixad.scalar.interpret import interpret
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.types import BOOL, F32, F64, I32
from mixad.scalar.verify import verify

NAMES = ("x", "y", "z", "out", "dx", "dy", "dz")
STRINGS = sorted({s for op in TABLE for s in (*op.partials, op.tangent) if s is not None})


def value_of(text, type=F64, **values):
    """Emit an expression over params and interpret it."""
    b = Builder("e")
    names = {n: b.param(n, type) for n in values}
    program = verify(b.finish([emit(b, text, names, type)]))
    return interpret(program, [type.dtype.type(v) for v in values.values()])[0].item()


@pytest.mark.rows("type", [F32, F64], ids=str)
@pytest.mark.rows("text", STRINGS)
def test_every_derivative_of_the_table_is_an_expression_of_table_ops(text, type):
    b = Builder("e")
    names = {n: b.param(n, type) for n in NAMES}
    if text == BY_NAME["where"].tangent:
        names["x"] = b.param("condition", BOOL)
    result = emit(b, text, names, type)
    assert result.type == type
    verify(b.finish([result]))


@pytest.mark.rows("text", [op.array for op in TABLE if op.array], ids=str)
def test_array_expressions_parse_with_the_same_grammar(text):
    assert expression(text).names <= {"x", "y", "z"}


@pytest.mark.rows(
    ("text", "expected"),
    [
        ("x + y * 2", 11.0),
        ("-(x / y) / y", -3.0 / 16.0),
        ("where((x == 3) & (y >= 5), x, -1)", -1.0),
        ("where(x < y, 1, 0)", 1.0),
        ("0.5 * (x + y)", 3.5),
        ("PI * TWO_OVER_SQRT_PI * HALF_SQRT_PI * LN2 * LOG2E * LOG10E", None),
    ],
)
def test_expression_has_the_value_of_the_formula(text, expected):
    if expected is None:
        expected = math.prod(CONSTANTS.values())
        assert value_of(text, x=3.0, y=4.0) == pytest.approx(expected, rel=1e-15)
    else:
        assert value_of(text, x=3.0, y=4.0) == expected


@pytest.mark.rows("name", CONSTANTS)
def test_constants_are_correctly_rounded(name):
    with mp.workprec(100):
        exact = {
            "LN2": mp.log(2),
            "LOG2E": 1 / mp.log(2),
            "LOG10E": 1 / mp.log(10),
            "TWO_OVER_SQRT_PI": 2 / mp.sqrt(mp.pi),
            "HALF_SQRT_PI": mp.sqrt(mp.pi) / 2,
            "PI": +mp.pi,
        }
    assert float(exact[name]) == CONSTANTS[name]


def test_static_partials_are_numbers():
    assert [expression(t).number for t in ("0", "1", "-1", "x", "0.5 * x")] == [
        0,
        1,
        -1,
        None,
        None,
    ]


@pytest.mark.rows(
    "text", ["x ** 2", "x if y else z", "x.y", "f(x, k=1)", "x < y < z", "[x]", "'x'"]
)
def test_text_outside_the_grammar_is_refused(text):
    with pytest.raises(ValueError, match=r"outside the grammar|no operator"):
        expression(text)


def test_numbers_take_the_type_of_the_other_operand():
    b = Builder("t")
    x, n = Term(b, b.param("x", F32)), Term(b, b.param("n", I32))
    assert (2 * x + 1).type == F32
    assert ((n << 3) | 1).type == I32
    assert (x < 2).type == BOOL
    assert call("where", x < 2, 1, x).type == F32
    assert call("where", x < 2, 1, 0, type=I32).type == I32


def test_every_operator_is_its_op():
    b = Builder("t")
    n, m = Term(b, b.param("n", I32)), Term(b, b.param("m", I32))
    x = Term(b, b.param("x", F32))
    results = [n + m, n - m, n * m, -n, n & m, n | m, n ^ m, ~n, n << m, n >> m, n == m, n != m,
               n < m, n <= m, n > m, n >= m, 1 - n, x / 2, 2 / x, abs(x)]  # fmt: skip
    program = verify(b.finish([r.atom for r in results]))
    assert [s.op for s in program.body.statements] == [
        "add", "sub", "mul", "neg", "and", "or", "xor", "not", "shl", "shr", "eq", "ne",
        "lt", "le", "gt", "ge", "sub", "div", "div", "abs",
    ]  # fmt: skip


def test_terms_have_no_truth_value():
    b = Builder("t")
    x = Term(b, b.param("x", F32))
    with pytest.raises(TypeError, match="use where"):
        bool(x > 0)


def test_numbers_alone_need_a_type():
    b = Builder("t")
    x = Term(b, b.param("x", F32))
    with pytest.raises(TypeError, match="needs type="):
        call("where", x > 0, 1, 0)
