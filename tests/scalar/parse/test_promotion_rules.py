"""Result types are those of the base library."""

import itertools
import operator

import numpy as np
import pytest
from parse_compiled import from_source, parsed, run

from mixad.errors import KernelTypeError
from mixad.scalar.parse import Argument, intrinsics
from mixad.scalar.parse.library import LIBRARY
from mixad.scalar.promotion_rules import NUMPY_RULES, STRICT_RULES, TORCH_RULES
from mixad.scalar.types import (
    ALL_TYPES,
    BOOL,
    F16,
    F32,
    F64,
    I16,
    I32,
    I64,
    U8,
    U64,
    type_of_dtype,
)

OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "<": operator.lt,
    "==": operator.eq, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
FUNCTIONS = {
    symbol: from_source(f"def f(x, y):\n    return x {symbol} y\n") for symbol in OPERATORS
}
WEAK = {"2": 2, "2.5": 2.5}
TYPES = (*ALL_TYPES, F16)


def numpy_type(function, *values):
    with np.errstate(all="ignore"):
        try:
            return type_of_dtype(function(*values).dtype)
        except TypeError:
            return None


@pytest.mark.rows("symbol", OPERATORS)
def test_result_types_of_operators_are_numpys(symbol):
    for a, b in itertools.product(TYPES, repeat=2):
        expected = numpy_type(OPERATORS[symbol], np.ones(1, a.dtype), np.ones(1, b.dtype))
        try:
            got = parsed(FUNCTIONS[symbol], a, b)[0].program.outputs[0].type
        except KernelTypeError:
            # what NumPy refuses, arithmetic of two booleans, comparisons that lose digits
            refused = expected is None or a == b == BOOL or {a.kind, b.kind} == {"int", "uint"}
            assert refused, (symbol, a, b)
        else:
            assert got == expected, (symbol, a, b)


@pytest.mark.rows("symbol", ["+", "-", "*", "/", "//", "%", "<", "=="])
@pytest.mark.rows("literal", WEAK)
def test_literals_adopt_the_other_type_as_in_numpy(symbol, literal):
    function = from_source(f"def f(x):\n    return x {symbol} {literal}\n")
    for a in TYPES:
        expected = numpy_type(OPERATORS[symbol], np.ones(1, a.dtype), WEAK[literal])
        assert parsed(function, a)[0].program.outputs[0].type == expected, (symbol, a)


@pytest.mark.parametrize("name", ["sin", "exp", "sqrt"])
def test_functions_of_integers_give_numpys_float(name):
    function = from_source(f"import numpy as np\ndef f(x):\n    return np.{name}(x)\n")
    for a in TYPES:
        expected = numpy_type(getattr(np, name), np.ones(1, a.dtype))
        assert parsed(function, a)[0].program.outputs[0].type == expected


UFUNCS = [
    name
    for name, f in vars(np).items()
    if isinstance(f, np.ufunc) and (f in intrinsics._KNOWN or f in LIBRARY)
]


def is_refused_on_purpose(name, types, expected):
    """Arithmetic of booleans, u64 compared with signed, integers' reciprocal."""
    kinds = {t.kind for t in types}
    return (
        expected is None
        or kinds == {"bool"}
        or ({"int", "uint"} == kinds and U64 in types and name in COMPARISONS)
        or (name == "reciprocal" and "float" not in kinds)
    )


COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


@pytest.mark.rows("name", UFUNCS)
def test_functions_of_numpy_give_numpys_types(name):
    numpy = getattr(np, name)
    letters = "xyz"[: numpy.nin]
    text = f"def f({', '.join(letters)}):\n    return np.{name}({', '.join(letters)})\n"
    function = from_source(f"import numpy as np\n{text}")
    for types in itertools.product(TYPES, repeat=numpy.nin):
        expected = numpy_type(numpy, *(np.ones(1, t.dtype) for t in types))
        try:
            got = parsed(function, *types)[0].program.outputs[0].type
        except KernelTypeError:
            assert is_refused_on_purpose(name, types, expected), types
        else:
            assert got == expected, types


@pytest.mark.rows("name", ["float_power", "arctan2", "fmin", "fmod", "power", "heaviside"])
@pytest.mark.rows("literal", WEAK)
def test_functions_of_numpy_with_literals_give_numpys_types(name, literal):
    function = from_source(f"import numpy as np\ndef f(x):\n    return np.{name}(x, {literal})\n")
    for a in TYPES:
        expected = numpy_type(getattr(np, name), np.ones(1, a.dtype), WEAK[literal])
        try:
            got = parsed(function, a)[0].program.outputs[0].type
        except KernelTypeError:
            assert is_refused_on_purpose(name, (a,), expected), a
        else:
            assert got == expected, a


@pytest.mark.rows(
    ("f", "numpy"),
    [
        (lambda x, y: np.fmod(x, y), np.fmod),
        (lambda x, y: np.power(x, y), np.power),
        (lambda x, y: np.float_power(x, y), np.float_power),
        (lambda x, y: np.fmax(x, y), np.fmax),
        (lambda x, y: np.signbit(x), lambda x, y: np.signbit(x)),
        (lambda x, y: np.isfinite(x), lambda x, y: np.isfinite(x)),
    ],
    ids=["fmod", "power", "float_power", "fmax", "signbit", "isfinite"],
)
def test_functions_of_numpy_give_numpys_integers(f, numpy):
    pairs = [(7, 3), (-7, 3), (7, 2), (-7, 0), (0, 5), (127, 1), (-128, 2), (6, 3)]
    for x, y in pairs:
        with np.errstate(all="ignore"):
            expected = numpy(np.int16(x), np.int16(y))
        assert run(f, x, y, types=(I16, I16)) == expected, (x, y)


def test_torch_keeps_the_float_of_a_mixture():
    assert parsed(lambda x, y: x + y, I64, F32, rules=TORCH_RULES)[0].program.outputs[0].type == F32
    assert parsed(lambda x, y: x / y, I64, I32, rules=TORCH_RULES)[0].program.outputs[0].type == F32
    assert parsed(lambda x: x * 0.5, I16, rules=TORCH_RULES)[0].program.outputs[0].type == F32
    assert parsed(lambda x, y: x + y, U8, I32, rules=TORCH_RULES)[0].program.outputs[0].type == I32


def test_strict_takes_python_scalars_of_no_higher_kind():
    assert parsed(lambda x: x * 2 + 0.5, F32, rules=STRICT_RULES)[0].program.outputs[0].type == F32
    with pytest.raises(KernelTypeError):
        parsed(lambda x: x * 0.5, I32, rules=STRICT_RULES)
    with pytest.raises(KernelTypeError):
        parsed(lambda x, y: x + y, BOOL, I32, rules=STRICT_RULES)


@pytest.mark.parametrize(("rules", "default"), [(NUMPY_RULES, F64), (TORCH_RULES, F32)])
def test_an_all_weak_result_takes_the_default_type(rules, default):
    outputs = parsed(lambda x: (1.5, 2, True, x), F32, rules=rules)[0].program.outputs
    assert [o.type for o in outputs] == [default, I64, BOOL, F32]


def test_python_scalar_arguments_are_weak():
    weak = Argument(F64, weak=True, kind="uniform")
    result = parsed(lambda x, k: x * k, F32, weak)[0]
    assert result.program.outputs[0].type == F32
    assert [p.kind for p in result.program.params] == ["lane", "uniform"]


def test_carried_types_reach_a_fixpoint():
    def f(x, n):
        s, t, u = 0, 0, 1
        for _ in range(n):
            u = t
            t = s
            s += x
        return s, t, u

    assert [o.type for o in parsed(f, F32, I64)[0].program.outputs] == [F32] * 3


def test_conversions():
    def f(x, n):
        return np.float32(n), np.int32(x), float(n), int(x), float(x) * x, int(x) * n, bool(x)

    types = [o.type for o in parsed(f, F32, I16)[0].program.outputs]
    assert types == [F32, I32, F64, I64, F32, I16, BOOL]
