"""The interpreter against plain Python, NumPy's scalars, and mpmath."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from mixad.scalar.build import Builder
from mixad.scalar.evaluate import DEFINITIONS
from mixad.scalar.generate import special_values
from mixad.scalar.interpret import (
    EXACT,
    FUNCTIONS,
    IterationLimitError,
    apply,
    interpret,
    is_exact,
)
from mixad.scalar.ir import ArrayType
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.types import (
    ALL_TYPES,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
)
from mixad.testing import same_bits

FLOATS = (F32, F64)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)

# -- control flow ----------------------------------------------------------------------------------


def collatz():
    """Build: how many steps n takes to reach 1, and the largest value on the way."""
    b = Builder("collatz")
    n = b.param("n", I64)
    one, two, three = (b.const(k, I64) for k in (1, 2, 3))

    def iteration(n, steps, most):
        odd = b.op("eq", b.op("and", n, one), one)
        (n,) = b.if_(
            odd,
            lambda: [b.op("add", b.op("mul", n, three), one)],
            lambda: [b.op("floordiv", n, two)],
        )
        return [n, b.op("add", steps, one), b.op("maximum", most, n)]

    _, steps, most = b.while_(
        [n, b.const(0, I64), n], lambda n, steps, most: b.op("ne", n, one), iteration
    )
    return b.finish([steps, most])


def collatz_in_python(n):
    steps, most = 0, n
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps, most = steps + 1, max(most, n)
    return steps, most


@pytest.mark.rows("n", [1, 2, 7, 27, 97, 871])
def test_a_loop_with_a_branch_does_what_python_does(n):
    assert interpret(collatz(), [n]) == collatz_in_python(n)


def grid_sum():
    """Build: the sum of i*j over i < n, j < i, and whether it was more than 100."""
    b = Builder("grid_sum")
    n = b.param("n", I32)
    zero, one = b.const(0, I32), b.const(1, I32)

    def row(i, total):
        _, total = b.while_(
            [zero, total],
            lambda j, total: b.op("lt", j, i),
            lambda j, total: [b.op("add", j, one), b.op("add", total, b.op("mul", i, j))],
        )
        return [b.op("add", i, one), total]

    _, total = b.while_([zero, zero], lambda i, total: b.op("lt", i, n), row)
    return b.finish([total, b.op("gt", total, b.const(100, I32))])


@pytest.mark.rows("n", [-1, 0, 1, 2, 6, 9])
def test_nested_loops_do_what_python_does(n):
    total = sum(i * j for i in range(n) for j in range(i))
    assert interpret(grid_sum(), [n]) == (total, total > 100)


def test_carries_are_replaced_all_at_once():
    b = Builder("fibonacci")
    n = b.param("n", I64)
    one = b.const(1, I64)
    _, x, _ = b.while_(
        [n, b.const(0, I64), one],
        lambda n, x, y: b.op("gt", n, b.const(0, I64)),
        lambda n, x, y: [b.op("sub", n, one), y, b.op("add", x, y)],
    )
    fibonacci = b.finish([x])
    assert [interpret(fibonacci, [n])[0] for n in range(10)] == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]


def test_only_the_branch_that_is_taken_runs():
    b = Builder("f")
    a, c = b.array_param("a", ArrayType(F64, 1)), b.param("c", BOOL)
    beyond = b.const(99, I32)
    (y,) = b.if_(c, lambda: [b.load(a, beyond)], lambda: [b.const(1.0, F64)])
    program = b.finish([y])
    assert interpret(program, [np.zeros(2), False]) == (1.0,)
    with pytest.raises(IndexError, match="outside an array of shape"):
        interpret(program, [np.zeros(2), True])


def test_a_loop_without_end_is_stopped_where_a_limit_is_given():
    b = Builder("forever")
    x = b.param("x", F64)
    (y,) = b.while_([x], lambda x: b.const(True, BOOL), lambda x: [b.op("neg", x)])
    with pytest.raises(IterationLimitError, match="more than 10 iterations"):
        interpret(b.finish([y]), [1.0], max_iterations=10)


def test_as_many_turns_as_the_limit_are_allowed():
    assert interpret(collatz(), [27], max_iterations=111)[0] == 111
    with pytest.raises(IterationLimitError):
        interpret(collatz(), [27], max_iterations=110)


# -- arguments, arrays, watching -------------------------------------------------------------------


@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_arguments_and_results_are_of_the_programs_types(type):
    b = Builder("identity")
    (result,) = interpret(b.finish([b.param("x", type)]), [1])
    assert result.dtype == type.dtype
    assert isinstance(result, np.generic)


def test_loads_take_indices_of_every_integer_type():
    for type in INTEGERS:
        b = Builder("f")
        a, i, j = b.array_param("a", ArrayType(F32, 2)), b.param("i", type), b.param("j", I32)
        program = b.finish([b.load(a, i, j)])
        array = np.arange(6, dtype="f4").reshape(2, 3)
        assert interpret(program, [array, 1, 2]) == (5.0,)


@pytest.mark.parametrize("index", [-3, -1, 0, 2])
def test_negative_indices_count_from_the_end(index):
    b = Builder("f")
    a, i = b.array_param("a", ArrayType(F32, 1)), b.param("i", I64)
    array = np.arange(3, dtype="f4")
    assert interpret(b.finish([b.load(a, i)]), [array, index]) == (array[index],)


@pytest.mark.parametrize("index", [-4, 3, 2**40, -(2**40)])
def test_an_index_outside_the_array_is_refused(index):
    b = Builder("f")
    a, i = b.array_param("a", ArrayType(F32, 1)), b.param("i", I64)
    with pytest.raises(IndexError):
        interpret(b.finish([b.load(a, i)]), [np.zeros(3, "f4"), index])


def test_accumulate_adds_in_place_with_the_types_arithmetic():
    b = Builder("f")
    x, a = b.param("x", U8), b.accumulator("a", ArrayType(U8, 1))
    b.update(a, b.const(1, I32), value=x)
    b.update(a, b.const(1, I32), value=x)
    array = np.array([7, 250], "u1")
    assert interpret(b.finish([x, a]), [4, array]) == (4, array)
    np.testing.assert_array_equal(array, [7, 2])


@pytest.mark.parametrize("array", [np.zeros(3, "f8"), np.zeros((3, 1), "f4")], ids=str)
def test_an_array_of_another_type_is_refused(array):
    b = Builder("f")
    a = b.array_param("a", ArrayType(F32, 1))
    with pytest.raises(TypeError, match="argument 'a' is an array of"):
        interpret(b.finish([b.load(a, b.const(0, I32))]), [array])


def test_a_watcher_sees_results_and_replaces_them():
    b = Builder("f")
    x = b.param("x", F64)
    program = b.finish([b.op("neg", b.op("mul", x, x))])
    seen = []

    def watch(equation, result):
        seen.append((equation.op, result))
        return result + 1 if equation.op == "mul" else result

    assert interpret(program, [3.0], watch=watch) == (-10.0,)
    assert seen == [("mul", 9.0), ("neg", -10.0)]


# -- ops -------------------------------------------------------------------------------------------


def test_zeros_of_either_sign_have_results_of_their_own():
    digamma = [FUNCTIONS["digamma"](np.float64(x)) for x in (0.0, -0.0, 0.0)]
    assert digamma == [-np.inf, np.inf, -np.inf]  # results are kept, by the bits of arguments


def test_every_op_has_a_definition():
    defined = {*DEFINITIONS, "convert", "bitcast", *FUNCTIONS}
    assert defined == {op.name for op in TABLE}
    for op in TABLE:
        assert (op.lowering == "instruction") == (op.name not in FUNCTIONS)
    assert set(FUNCTIONS) >= EXACT


@pytest.mark.rows(
    "name", sorted({op.name for op in TABLE} - {"where"}), slow="ierfcx mul_pow polygamma"
)
def test_no_op_raises_or_warns_whatever_its_arguments(name):
    """Warnings are errors in this suite."""
    op = BY_NAME[name]
    types = INTEGERS if op.domain in ("integer", "bits") else FLOATS
    for type in types:
        out = BOOL if op.result == "bool" else type
        values = [type.dtype.type(v) for v in special_values(type)]
        for args in itertools.product(values[:: op.arity], repeat=op.arity):
            assert apply(name, args, out).dtype == out.dtype


def wrapped(value, type):
    """Reduce a Python integer to a type's range (two's complement)."""
    span = 1 << type.bits
    value %= span
    return value - span if type.kind == "int" and value >= span // 2 else value


def towards_zero(quotient):
    return int(quotient)


IN_PYTHON = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y if y else 0,
    "mod": lambda x, y: x % y if y else 0,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "minimum": min,
    "maximum": max,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "powi": lambda x, y: x**y if y >= 0 else towards_zero(mpmath.mpf(x) ** y if x else 0),
    "neg": lambda x: -x,
    "abs": abs,
    "not": lambda x: ~x,
    "sign": lambda x: (x > 0) - (x < 0),
}


@pytest.mark.rows("name", IN_PYTHON)
@pytest.mark.rows("type", INTEGERS, ids=str)
def test_integer_ops_are_pythons_reduced_to_the_width(name, type):
    op = BY_NAME[name]
    out = BOOL if op.result == "bool" else type
    values = [v for v in special_values(type) if name != "powi" or abs(v) < 200]
    for args in itertools.product(values, repeat=op.arity):
        got = apply(name, tuple(map(type.dtype.type, args)), out)
        expected = IN_PYTHON[name](*args)
        assert got == (expected if out == BOOL else wrapped(expected, type)), args


@pytest.mark.rows("type", INTEGERS, ids=str)
def test_shifts_beyond_the_width_are_defined(type):
    for x, count in itertools.product(special_values(type), special_values(type)):
        args = (type.dtype.type(x), type.dtype.type(count))
        inside = 0 <= count < type.bits
        assert apply("shl", args, type) == (wrapped(x << count, type) if inside else 0)
        assert apply("shr", args, type) == x >> (count if inside else type.bits)


@pytest.mark.rows("source", FLOATS, ids=str)
@pytest.mark.rows("target", INTEGERS, ids=str)
def test_floats_convert_to_integers_towards_zero_and_stop_at_the_range(source, target):
    limits = np.iinfo(target.dtype)
    for value in (*special_values(source), 0.99, -0.99, 126.5, -128.5, 255.5):
        x = source.dtype.type(value)
        if math.isnan(x):
            expected = 0
        elif math.isinf(x):
            expected = limits.max if x > 0 else limits.min
        else:
            expected = min(max(math.trunc(float(x)), limits.min), limits.max)
        assert int(apply("convert", (x,), target)) == expected, x


@pytest.mark.rows("source", ALL_TYPES, ids=str)
def test_conversions_to_bool_ask_whether_it_is_zero(source):
    for value in special_values(source):
        assert apply("convert", (source.dtype.type(value),), BOOL) == (value != 0)


@pytest.mark.rows("source", INTEGERS, ids=str)
@pytest.mark.rows("target", INTEGERS, ids=str)
def test_integers_convert_by_wrapping(source, target):
    for value in special_values(source):
        got = apply("convert", (source.dtype.type(value),), target)
        assert got == wrapped(value, target)


@pytest.mark.rows(
    ("type", "args", "expected"),
    [
        (F32, (1 + 2.0**-12, 1 + 2.0**-12, -(1 + 2.0**-11)), 2.0**-24),
        (F64, (1 + 2.0**-30, 1 - 2.0**-30, -1.0), -(2.0**-60)),
        (F64, (1e308, 10.0, -math.inf), -math.inf),
        (F64, (1e308, 10.0, -1e308), math.inf),
        (F64, (0.0, -1.0, 0.0), 0.0),
        (F64, (0.0, -1.0, -0.0), -0.0),
        (F64, (math.inf, 0.0, 1.0), math.nan),
        (F64, (5e-324, 0.5, 0.0), 0.0),
        (F64, (5e-324, 0.75, 0.0), 5e-324),
        (F32, (2.0**-149, 0.75, 0.0), 2.0**-149),
    ],
)
def test_fma_rounds_once(type, args, expected):
    got = apply("fma", tuple(map(type.dtype.type, args)), type)
    assert same_bits(got, type.dtype.type(expected))


@pytest.mark.parametrize(("type", "digits"), [(F32, 24), (F64, 53)])
def test_fma_is_the_rounded_exact_value(type, digits):
    """mpmath rounds the exact product and sum: an independent definition."""
    rng = np.random.default_rng(3)
    for _ in range(2000):
        draws = rng.normal(size=3) * 2.0 ** rng.integers(-20, 20, 3)
        x, y, z = (type.dtype.type(v) for v in draws)
        with mpmath.workprec(300):
            exact = mpmath.mpf(float(x)) * float(y) + float(z)
        with mpmath.workprec(digits):
            assert float(apply("fma", (x, y, z), type)) == float(+exact)


ULPS = {F32: 0.51, F64: 4.0}
"""How far inexact ops may be from the true value: f32 ones are rounded from double precision."""

GAMMA_ULPS = 10.0
"""Python's gamma, by Lanczos' formula, is that accurate in double precision."""


def _ierfcx(n, x):
    """The integral from 0 to infinity of sⁿ exp(-s² - 2xs), times 2/(√π n!)."""
    found = mpmath.quad(lambda s: s**n * mpmath.exp(-s * s - 2 * x * s), [0, 1, 3, mpmath.inf])
    return 2 * found / (mpmath.sqrt(mpmath.pi) * mpmath.factorial(n))


TRUE_VALUES = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.mpf(2) ** x, "expm1": mpmath.expm1,
    "log": mpmath.log, "log2": lambda x: mpmath.log(x, 2), "log10": mpmath.log10,
    "log1p": mpmath.log1p, "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "logistic_density": lambda x: 1 / (2 * mpmath.cosh(x / 2)) ** 2,
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "tanh": mpmath.tanh,
    "asin": mpmath.asin, "acos": mpmath.acos, "atan": mpmath.atan, "sinh": mpmath.sinh,
    "cosh": mpmath.cosh, "asinh": mpmath.asinh, "acosh": mpmath.acosh, "atanh": mpmath.atanh,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), "erf": mpmath.erf,
    "erfc": mpmath.erfc, "gamma": mpmath.gamma, "digamma": mpmath.digamma,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "trigamma": lambda x: mpmath.polygamma(1, x),
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x), "erfinv": mpmath.erfinv,
    "erfcinv": lambda q: mpmath.erfinv(1 - q), "ierfcx": _ierfcx,
    "polygamma": lambda n, x: mpmath.polygamma(int(n), x), "pow": mpmath.power,
    "mul_pow": lambda x, y, z: x * mpmath.power(y, z),
    "pow_log": lambda x, y: mpmath.power(x, y) * mpmath.log(x),
    "direction_cosine": lambda x, y: x / mpmath.hypot(x, y),
    "circle_inversion": lambda x, y: x / (x * x + y * y),
    "atan2": mpmath.atan2, "hypot": mpmath.hypot,
    "logaddexp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
}  # fmt: skip
POSITIVE = {"log", "log2", "log10", "pow", "mul_pow", "pow_log", "gamma", "lgamma", "digamma",
            "trigamma", "polygamma", "atan2"}  # fmt: skip
DOMAINS = {
    "erfcx": (-5, 30),
    "erfinv": (-0.99, 0.99),
    "erfcinv": (0.01, 1.99),
    "ierfcx": (0, 4),
    "log1p": (-0.9, 30),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-0.99, 0.99),
    "acosh": (1, 30),
}
ACCURATE_IN_ABSOLUTE_TERMS = {"lgamma", "digamma", "logaddexp"}  # near their roots


def test_every_inexact_op_has_a_true_value():
    assert {op.name for op in TABLE if not is_exact(op.name)} == set(TRUE_VALUES)


@pytest.mark.rows("name", TRUE_VALUES, slow="ierfcx polygamma mul_pow")
@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_inexact_ops_are_accurate(name, type):
    low, high = DOMAINS.get(name, (0.01 if name in POSITIVE else -12, 12))
    allowed = GAMMA_ULPS if (name, type) == ("gamma", F64) else ULPS[type]
    rng = np.random.default_rng(5)
    rows = rng.uniform(low, high, (60, BY_NAME[name].arity)).astype(type.dtype)
    if name in ("polygamma", "ierfcx"):
        rows[:, 0] = np.floor(rows[:, 0])
    for row in rows:
        args = tuple(row)
        got = apply(name, args, type)
        with mpmath.workprec(200):
            true = TRUE_VALUES[name](*map(mpmath.mpf, map(float, args)))
            scale = max(abs(true), 1) if name in ACCURATE_IN_ABSOLUTE_TERMS else abs(true)
            unit = float(np.spacing(type.dtype.type(float(scale))))
            assert abs(float(got) - true) <= allowed * unit, args


@pytest.mark.rows(
    ("name", "args", "expected"),
    [
        ("gamma", (0.0,), math.inf), ("gamma", (-0.0,), -math.inf), ("gamma", (-2.0,), math.nan),
        ("gamma", (500.0,), math.inf), ("gamma", (-math.inf,), math.nan),
        ("lgamma", (-2.0,), math.inf), ("lgamma", (0.0,), math.inf),
        ("lgamma", (math.inf,), math.inf), ("lgamma", (-math.inf,), math.inf),
        ("log", (0.0,), -math.inf), ("log", (-1.0,), math.nan), ("log1p", (-1.0,), -math.inf),
        ("sqrt", (-1.0,), math.nan), ("sqrt", (-0.0,), -0.0), ("div", (1.0, 0.0), math.inf),
        ("div", (0.0, 0.0), math.nan), ("pow", (0.0, 0.0), 1.0), ("pow", (-8.0, 1 / 3), math.nan),
        ("pow", (math.nan, 0.0), 1.0), ("pow", (-math.inf, 0.5), math.inf),
        ("pow", (-0.0, 0.5), 0.0), ("exp", (1000.0,), math.inf), ("asin", (2.0,), math.nan),
        ("logaddexp", (-math.inf, -math.inf), -math.inf), ("hypot", (math.inf, math.nan), math.inf),
        ("sigmoid", (-1000.0,), 0.0), ("sigmoid", (1000.0,), 1.0),
        ("sigmoid", (math.nan,), math.nan), ("logistic_density", (-1000.0,), 0.0),
        ("minimum", (0.0, -0.0), 0.0), ("minimum", (-0.0, 0.0), -0.0),
        ("maximum", (math.nan, 1.0), math.nan), ("maximum", (1.0, math.nan), math.nan),
        ("relu", (-0.0,), 0.0), ("relu", (math.inf,), math.inf), ("relu", (-math.inf,), 0.0),
        ("relu", (math.nan,), math.nan), ("sign", (-0.0,), 0.0), ("sign", (math.nan,), math.nan),
        ("mul_zero", (0.0, math.inf), 0.0), ("mul_zero", (-0.0, math.nan), 0.0),
        ("mul_zero", (2.0, math.inf), math.inf), ("div_zero", (0.0, 0.0), 0.0),
        ("div_zero", (-0.0, math.nan), 0.0), ("div_zero", (2.0, 0.0), math.inf),
        ("rint", (2.5,), 2.0), ("rint", (-0.5,), -0.0),
        ("mod", (-1.0, 3.0), 2.0), ("mod", (-1.0, math.inf), math.inf), ("fmod", (-1.0, 3.0), -1.0),
        ("floordiv", (-1.0, 3.0), -1.0), ("floordiv", (1.0, 0.0), math.inf),
        ("nextafter", (0.0, 1.0), 5e-324), ("nextafter", (1.0, math.nan), math.nan),
        ("copysign", (1.0, -0.0), -1.0),
    ],
)  # fmt: skip
def test_special_cases(name, args, expected):
    got = apply(name, tuple(map(np.float64, args)), F64)
    assert same_bits(got, np.float64(expected))


def test_bits_of_narrow_floats_are_those_of_memory():
    b = Builder("next")
    x = b.param("x", F16)
    bits = b.op("bitcast", x, type=U16)
    after = b.op("bitcast", b.op("add", bits, b.const(1, U16)), type=F16)
    program = b.finish([bits, after, b.op("nextafter", x, b.const(9.0, F16))])
    for value in np.asarray([0.5, 1.0, 6e-8], "f2"):
        got, one, two = interpret(program, [value])
        assert got == value.view("u2")
        assert one == two == np.nextafter(value, np.float16(9))


def test_mod_of_floats_has_pythons_sign():
    for x, y in itertools.product((-7.5, -1.0, 0.5, 7.5), (-2.0, 2.0, 0.75)):
        args = (np.float64(x), np.float64(y))
        assert apply("mod", args, F64) == x % y
        assert apply("floordiv", args, F64) == x // y
