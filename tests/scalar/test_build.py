"""What the builder simplifies computes the same bits, and what it shares is equal."""

import itertools

import numpy as np
import pytest

from mixad.scalar.build import Builder
from mixad.scalar.generate import EXACT_OPS, random_program, special_values
from mixad.scalar.interpret import apply, interpret
from mixad.scalar.ir import ArrayType, Const, Equation, If, Line, Load, Var, walk_statements
from mixad.scalar.ops import BY_NAME
from mixad.scalar.simplify import without_dead_code
from mixad.scalar.types import BOOL, F32, F64, I8, I32, U8, ScalarType
from mixad.scalar.verify import VerificationError, result_type, verify
from mixad.testing import random_arguments, same_bits

TYPES = (BOOL, I8, U8, F32)  # the narrow ones: what holds for them is written for all widths
FEWER_VALUES = 9
NUMBER_OF_PROGRAMS = 150


def takes(name, type):
    types = (BOOL, type, type) if name == "where" else (type,) * BY_NAME[name].arity
    try:
        result_type(name, types, stated=type)
    except VerificationError:
        return False
    return True


def argument_types(name, type):
    return (BOOL, type, type) if name == "where" else (type,) * BY_NAME[name].arity


SIGNATURES = [(n, t) for n in EXACT_OPS for t in TYPES if takes(n, t)]
UNARY = [n for n in EXACT_OPS if BY_NAME[n].arity == 1]


def values_of(type: ScalarType, most=None):
    values = [type.dtype.type(v) for v in special_values(type)]
    return values if most is None else values[:: -(-len(values) // most)]


def stated(name, type):
    return type if BY_NAME[name].result == "stated" else None


def out_type(name, type):
    return result_type(name, argument_types(name, type), stated(name, type))


def same(name, got, expected):
    # The builder lets a strong zero have either sign: see the test of mul_zero below.
    if name in ("mul_zero", "mul_zeros") and got == 0:
        return expected == 0
    return same_bits(got, expected)


def built(name, type, constants):
    """Build one op; arguments are variables where ``constants`` has None."""
    b = Builder(name)
    types = argument_types(name, type)
    variables = [b.param("xyz"[k], t) for k, t in enumerate(types)]
    pairs = zip(variables, constants, strict=True)
    atoms = [v if c is None else b.const(c.item(), v.type) for v, c in pairs]
    return b.finish([b.op(name, *atoms, type=stated(name, type))])


@pytest.mark.rows(("name", "type"), SIGNATURES, ids=str)
def test_ops_with_constants_compute_the_same_bits(name, type):
    types = argument_types(name, type)
    most = FEWER_VALUES if len(types) == 3 else None
    tables = [values_of(t, most) for t in types]
    for constants in itertools.product(*([None, *table] for table in tables)):
        program = built(name, type, constants)
        choices = (t if c is None else [c] for c, t in zip(constants, tables, strict=True))
        for args in itertools.product(*choices):
            expected = apply(name, args, out_type(name, type))
            got = interpret(program, args)[0]
            assert same(name, got, expected), (str(program), args, got, expected)


@pytest.mark.rows(("name", "type"), SIGNATURES, ids=str)
def test_ops_of_one_variable_twice_compute_the_same_bits(name, type):
    types = argument_types(name, type)
    b = Builder(name)
    c, x = b.param("c", BOOL), b.param("x", type)
    atoms = [c, x, x] if name == "where" else [x] * len(types)
    program = b.finish([b.op(name, *atoms, type=stated(name, type))])
    for flag, value in itertools.product(values_of(BOOL), values_of(type)):
        args = (flag, value, value) if name == "where" else (value,) * len(types)
        expected = apply(name, args, out_type(name, type))
        assert same(name, interpret(program, [flag, value])[0], expected)


@pytest.mark.rows(("name", "type"), SIGNATURES, ids=str, slow="fma-f32")
def test_ops_of_ops_compute_the_same_bits(name, type):
    for inner in UNARY:
        if not takes(inner, type) or out_type(inner, type) != type:
            continue
        for position in range(len(argument_types(name, type))):
            check_nested(name, inner, position, type)


def check_nested(name, inner, position, type):
    types = argument_types(name, type)
    if types[position] != type:
        return
    b = Builder(name)
    atoms = [b.param("xyz"[k], t) for k, t in enumerate(types)]
    atoms[position] = b.op(inner, atoms[position], type=stated(inner, type))
    program = b.finish([b.op(name, *atoms, type=stated(name, type))])
    most = FEWER_VALUES if len(types) > 1 else None
    for args in itertools.product(*(values_of(t, most) for t in types)):
        inside = apply(inner, (args[position],), type)
        expected = apply(
            name, (*args[:position], inside, *args[position + 1 :]), out_type(name, type)
        )
        got = interpret(program, args)[0]
        assert same(name, got, expected), (str(program), args, got, expected)


def statements_of(type, build):
    """Return how many statements a builder function makes, and its result as text."""
    b = Builder("f")
    x, y = b.param("x", type), b.param("y", type)
    result = build(b, x, y)
    program = b.finish([result])
    return len(program.body.statements), str(result)


IDENTITIES = {
    "x * 1": (F64, lambda b, x, y: b.op("mul", x, b.const(1, F64)), "%0"),
    "1 * x": (F64, lambda b, x, y: b.op("mul", b.const(1, F64), x), "%0"),
    "x / 1": (F64, lambda b, x, y: b.op("div", x, b.const(1, F64)), "%0"),
    "x - 0": (F64, lambda b, x, y: b.op("sub", x, b.const(0.0, F64)), "%0"),
    "i + 0": (I32, lambda b, x, y: b.op("add", b.const(0, I32), x), "%0"),
    "i - 0": (I32, lambda b, x, y: b.op("sub", x, b.const(0, I32)), "%0"),
    "c and true": (BOOL, lambda b, x, y: b.op("and", x, b.const(True, BOOL)), "%0"),
    "c and false": (BOOL, lambda b, x, y: b.op("and", x, b.const(False, BOOL)), "False:bool"),
    "c or false": (BOOL, lambda b, x, y: b.op("or", b.const(False, BOOL), x), "%0"),
    "c or true": (BOOL, lambda b, x, y: b.op("or", b.const(True, BOOL), x), "True:bool"),
    "where(true)": (F64, lambda b, x, y: b.op("where", b.const(True, BOOL), x, y), "%0"),
    "where(false)": (F64, lambda b, x, y: b.op("where", b.const(False, BOOL), x, y), "%1"),
    "where(c, c, c)": (BOOL, lambda b, x, y: b.op("where", x, y, y), "%1"),
    "convert to itself": (F64, lambda b, x, y: b.convert(x, F64), "%0"),
    "constants": (F64, lambda b, x, y: b.op("add", b.const(1, F64), b.const(2, F64)), "3:f64"),
}


@pytest.mark.rows("name", IDENTITIES)
def test_identities_leave_no_statement(name):
    type, build, result = IDENTITIES[name]
    assert statements_of(type, build) == (0, result)


@pytest.mark.rows(
    "build",
    [
        lambda b, x, y: b.op("add", x, b.const(0.0, F64)),  # -0.0 + 0.0 is 0.0
        lambda b, x, y: b.op("mul", x, b.const(0.0, F64)),  # inf * 0 is nan
        lambda b, x, y: b.op("sub", x, x),  # inf - inf is nan
        lambda b, x, y: b.op("div", x, x),  # 0 / 0 is nan
        lambda b, x, y: b.op("eq", x, x),  # nan == nan is false
        lambda b, x, y: b.op("sub", x, b.const(-0.0, F64)),  # -0.0 - -0.0 is 0.0
    ],
)
def test_what_is_no_identity_for_floats_stays(build):
    assert statements_of(F64, build)[0] == 1


@pytest.mark.parametrize("name", ["neg", "not"])
def test_inverse_of_inverse_is_the_variable(name):
    b = Builder("f")
    x = b.param("x", I32)
    assert b.op(name, b.op(name, x)) is x


@pytest.mark.parametrize("mirrored", [False, True])
def test_choosing_one_value_for_two_reasons_is_one_selection(mirrored):
    """where(p, x, where(q, y, x)) and where(p, x, where(q, x, y))."""
    b = Builder("f")
    p, q = (b.param(name, BOOL) for name in "pq")
    x, y = (b.param(name, F64) for name in "xy")
    first, second = (x, y) if mirrored else (y, x)
    out = b.op("where", p, x, b.op("where", q, first, second))
    program = without_dead_code(b.finish([out]))
    assert [s.op for s in walk_statements(program.body)].count("where") == 1
    for flags in itertools.product((False, True), repeat=2):
        expected = 1.0 if flags[0] or flags[1] == mirrored else 2.0
        assert interpret(program, [*map(np.bool_, flags), 1.0, 2.0]) == (expected,)


def test_mul_zero_by_a_finite_constant_is_a_plain_product():
    """Its zero may get the other sign then: where a zero is multiplied by a negative number."""
    b = Builder("f")
    x = b.param("x", F64)
    product = b.finish([b.op("mul_zero", x, b.const(-2.0, F64))])
    assert [s.op for s in walk_statements(product.body)] == ["mul"]


def test_mul_zero_by_a_constant_that_is_not_finite_stays():
    b = Builder("f")
    x = b.param("x", F64)
    product = b.finish([b.op("mul_zero", x, b.const(np.inf, F64))])
    assert interpret(product, [0.0]) == (0.0,)
    assert interpret(product, [2.0]) == (np.inf,)


def test_mul_zeros_by_a_constant_has_no_more_strong_zeros_than_it_needs():
    b = Builder("f")
    x = b.param("x", F64)
    outputs = [b.op("mul_zeros", x, b.const(c, F64)) for c in (0.0, 3.0, np.inf)]
    product = b.finish(outputs)
    assert product.outputs[0] == Const(0.0, F64)
    assert [s.op for s in walk_statements(product.body)] == ["mul", "mul_zero"]
    assert interpret(product, [0.0]) == (0.0, 0.0, 0.0)
    assert interpret(product, [-2.0]) == (0.0, -6.0, -np.inf)


def test_equal_equations_become_one():
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    assert b.op("add", x, y) is b.op("add", y, x)
    assert b.op("sub", x, y) is not b.op("sub", y, x)
    assert b.op("exp", x) is b.op("exp", x)
    zeros = [b.op("copysign", x, b.const(z, F64)) for z in (0.0, -0.0)]
    assert zeros[0] is not zeros[1]
    assert b.convert(x, F32) is not b.convert(x, I32)


def test_what_a_branch_computed_is_not_known_after_it():
    b = Builder("f")
    c, x = b.param("c", BOOL), b.param("x", F64)
    inner = []
    b.if_(c, lambda: inner.append(b.op("exp", x)) or inner, lambda: [x])
    assert b.op("exp", x) is not inner[0]
    verify(b.finish([b.op("exp", x)]))


def test_what_was_computed_before_a_branch_is_known_inside():
    b = Builder("f")
    c, x = b.param("c", BOOL), b.param("x", F64)
    outer = b.op("exp", x)
    (y,) = b.if_(c, lambda: [b.op("neg", b.op("exp", x))], lambda: [x])
    assert y.type == F64
    assert [type(s).__name__ for s in b.finish([y]).body.statements] == ["Equation", "If"]
    assert outer is b.op("exp", x)


def test_reads_of_one_element_are_one():
    b = Builder("f")
    a, n = b.array_param("a", ArrayType(F64, 1)), b.param("n", I32)
    assert b.load(a, n) is b.load(a, n)
    assert b.load(a, n) is not b.load(a, b.const(0, I32))


def test_reads_in_two_branches_are_two():
    b = Builder("f")
    a, n = b.array_param("a", ArrayType(F64, 1)), b.param("n", I32)
    b.if_(b.op("gt", n, b.const(0, I32)), lambda: [b.load(a, n)], lambda: [b.load(a, n)])
    assert len({s.out for s in walk_statements(b.finish([n]).body) if isinstance(s, Load)}) == 2


def test_constant_condition_builds_only_the_branch_that_runs():
    b = Builder("f")
    x = b.param("x", F64)
    results = b.if_(b.const(False, BOOL), lambda: [b.op("exp", x)], lambda: [b.op("neg", x)])
    assert [s.op for s in b.finish(results).body.statements] == ["neg"]


def test_branches_without_statements_become_a_selection():
    b = Builder("f")
    c, x = b.param("c", BOOL), b.param("x", F64)
    (y,) = b.if_(c, lambda: [x], lambda: [b.const(0.0, F64)])
    assert isinstance(b.finish([y]).body.statements[0], Equation)


def test_branches_with_statements_stay_branches():
    b = Builder("f")
    c, x = b.param("c", BOOL), b.param("x", F64)
    (y,) = b.if_(c, lambda: [b.op("exp", x)], lambda: [x])
    assert isinstance(b.finish([y]).body.statements[0], If)


@pytest.mark.rows(
    ("value", "type", "stored"),
    [(300, U8, 44), (-1, U8, 255), (128, I8, -128), (0.1, F32, float(np.float32(0.1))),
     (1e300, F32, np.inf), (2, BOOL, True), (2.9, I32, 2)],
)  # fmt: skip
def test_constants_are_rounded_or_wrapped_to_their_type(value, type, stored):
    assert Builder("f").const(value, type) == Const(stored, type)


def test_equations_carry_the_line_they_come_from():
    b = Builder("f")
    x = b.param("x", F64)
    b.line = Line("f.py", 2, "y = exp(x)")
    b.op("exp", x)
    assert b.finish([x]).body.statements[0].line.number == 2


def test_an_open_block_cannot_be_finished():
    b = Builder("f")
    with pytest.raises(VerificationError, match="nested block is open"):
        b.block(lambda: b.finish([]).outputs)


def test_indexing_something_else_than_an_array_param_is_refused():
    b = Builder("f")
    x, n = b.param("x", F64), b.param("n", I32)
    with pytest.raises(VerificationError):
        verify(b.finish([b.load(x, n)]))


@pytest.mark.slow
def test_inlined_programs_compute_what_they_did():
    """Copying simplifies again: the copy is well formed and gives the same bits."""
    for seed in range(NUMBER_OF_PROGRAMS):
        program = random_program(seed)
        b = Builder("copy")
        params = [b.param(p.name, p.var.type, p.kind) for p in program.params]
        copy = verify(b.finish(b.inline(program, params)))
        columns = random_arguments(program, seed, count=3)
        for k in range(3):
            pairs = zip(program.params, columns, strict=True)
            args = [c[k] if p.kind == "lane" else c for p, c in pairs]
            results = zip(interpret(program, args), interpret(copy, args), strict=True)
            assert all(same_bits(x, y) for x, y in results)


def test_inlining_replaces_params_by_any_atom():
    inner = Builder("square")
    x = inner.param("x", F64)
    square = inner.finish([inner.op("mul", x, x)])
    b = Builder("f")
    y = b.param("y", F64)
    (four,) = b.inline(square, [b.const(2.0, F64)])
    (result,) = b.inline(square, [y])
    assert four == Const(4.0, F64)
    assert isinstance(result, Var)
