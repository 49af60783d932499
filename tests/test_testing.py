"""The comparison of emitters finds what it is meant to find, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from mixad.scalar.build import Builder
from mixad.scalar.interpret import IterationLimitError, interpret
from mixad.scalar.ir import Block, Equation, Program, walk_statements
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64, I32
from mixad.testing import (
    EXACT_OPS,
    Expected,
    Recipe,
    assert_agrees,
    expected_outputs,
    random_arguments,
    random_program,
    same_bits,
)

NUMBER_OF_PROGRAMS = 200
COUNT = 20
LEAST_PROGRAMS = 5
LEAST_FOUND = 0.05  # of thousands of programs, dozens then fail


def straight(*ops, type=F64):
    """Build ops of one argument, one after the other."""
    b = Builder("f")
    x = b.param("x", type)
    for op in ops:
        x = b.op(op, x)
    return b.finish([x])


def ulps_off(values, count):
    return values + values.dtype.type(count) * np.spacing(np.abs(values))


ARGUMENTS = (np.linspace(0.5, 3, 11),)


@pytest.mark.slow
def test_right_results_agree():
    for seed in range(NUMBER_OF_PROGRAMS):
        program = random_program(seed)
        expected = expected_outputs(program, random_arguments(program, seed, 3))
        assert_agrees(expected, expected.values)


def test_exact_programs_are_compared_bit_for_bit():
    expected = expected_outputs(straight("neg", "sqrt", "abs"), ARGUMENTS)
    assert all((t == 0).all() for t in expected.tolerance)
    expected = expected_outputs(straight("sqrt", "floor"), ARGUMENTS)
    with pytest.raises(AssertionError, match="bit for bit"):
        assert_agrees(expected, [ulps_off(expected.values[0], 1)])


def test_the_sign_of_zero_counts_and_nans_are_equal():
    expected = expected_outputs(straight("sqrt"), (np.array([0.0, -1.0]),))
    assert_agrees(expected, [np.array([0.0, -np.nan])])
    with pytest.raises(AssertionError, match=r"is np.float64\(-0.0\), expected np.float64\(0.0\)"):
        assert_agrees(expected, [np.array([-0.0, np.nan])])


def test_inexact_programs_may_differ_by_units_in_the_last_place():
    expected = expected_outputs(straight("exp"), ARGUMENTS)
    assert_agrees(expected, [ulps_off(expected.values[0], 8)])
    with pytest.raises(AssertionError, match="within"):
        assert_agrees(expected, [ulps_off(expected.values[0], 1000)])


def test_the_tolerance_follows_the_condition_of_the_program():
    """exp(exp(x)) amplifies an error of the inner exponential by exp(x)."""
    plain = expected_outputs(straight("exp"), (np.array([5.0]),))
    twice = expected_outputs(straight("exp", "exp"), (np.array([5.0]),))
    share = [float(e.tolerance[0][0] / e.values[0][0]) for e in (plain, twice)]
    assert share[1] > 50 * share[0]


def test_errors_that_can_cancel_are_tolerated():
    """L/(L/x) is x only if both logarithms are the same."""
    b = Builder("f")
    x = b.param("x", F64)
    y = x
    for name in ("lgamma", "lgamma"):
        (log,) = b.if_(b.op("gt", x, b.const(0.0, F64)), lambda n=name: [b.op(n, x)], lambda: [x])
        y = b.op("div", log, y)
    expected = expected_outputs(b.finish([y]), (np.array([3.3810555, 7.25]),))
    assert_agrees(expected, [ulps_off(expected.values[0], 4)])


def comparing(margin):
    """Build: is exp(x) above exp(1) + margin?"""
    b = Builder("f")
    x = b.param("x", F64)
    bound = b.const(float(np.exp(1.0)) * (1 + margin), F64)
    return b.finish([b.op("gt", b.op("exp", x), bound)])


def test_comparisons_within_the_tolerance_are_not_determined():
    x = (np.array([1.0, 2.0]),)
    assert list(expected_outputs(comparing(0.0), x).determined[0]) == [False, True]
    assert list(expected_outputs(comparing(1e-12), x).determined[0]) == [True, True]


def test_undetermined_elements_are_not_compared():
    expected = expected_outputs(comparing(0.0), (np.array([1.0, 2.0]),))
    assert expected.discarded == 0.5
    assert_agrees(expected, [~expected.values[0] | np.array([False, True])])
    with pytest.raises(AssertionError, match="element 1"):
        assert_agrees(expected, [~expected.values[0]])


def test_jumps_make_results_undetermined():
    """floor(log2(8)) is 3 or 2."""
    expected = expected_outputs(straight("log2", "floor"), (np.array([8.0, 9.0]),))
    assert list(expected.determined[0]) == [False, True]


def test_a_zero_with_the_sign_of_a_computed_nan_is_not_determined():
    """The processor or the library chooses the sign of pow(-1, 0.5)."""
    b = Builder("f")
    x = b.param("x", F64)
    zero = b.op("sub", x, x)
    program = b.finish([b.op("copysign", zero, b.op("pow", x, b.const(0.5, F64)))])
    expected = expected_outputs(program, (np.array([-1.0, 4.0]),))
    assert list(expected.determined[0]) == [False, True]


@pytest.mark.parametrize(
    "outputs",
    [[np.ones(11, "f4")], [np.ones(10)], [np.ones((11, 1))]],
    ids=["dtype", "size", "rank"],
)
def test_another_dtype_or_shape_fails(outputs):
    expected = expected_outputs(straight("sqrt"), ARGUMENTS)
    with pytest.raises(AssertionError, match="output 0 is float"):
        assert_agrees(expected, outputs)


def test_another_number_of_outputs_fails():
    expected = expected_outputs(straight("sqrt"), ARGUMENTS)
    with pytest.raises(ValueError, match="zip"):
        assert_agrees(expected, [])


def test_a_failure_shows_the_program_and_the_element():
    expected = expected_outputs(straight("neg"), ARGUMENTS)
    wrong = expected.values[0].copy()
    wrong[3] = 7
    with pytest.raises(AssertionError) as caught:
        assert_agrees(expected, [wrong])
    message = str(caught.value)
    assert message.startswith("element 3: output 0 is np.float64(7.0), expected np.float64(-1.25)")
    assert "v1 = -v0" in message
    assert message.endswith("print(program(np.float64(1.25)))")


def is_block(part):
    return isinstance(part, Block)


def replaced(block, old, new):
    """Return a block with one op in place of another, nested blocks included."""

    def statement(s):
        if isinstance(s, Equation):
            return replace(s, op=new) if s.op == old else s
        names = [
            n for n in ("then", "orelse", "cond", "body") if hasattr(getattr(s, n, 0), "statements")
        ]
        return replace(s, **{n: replaced(getattr(s, n), old, new) for n in names})

    return replace(block, statements=tuple(map(statement, block.statements)))


@pytest.mark.rows(
    ("old", "new"),
    [("add", "sub"), ("lt", "le"), ("gt", "ge"), ("floordiv", "mod"), ("minimum", "maximum"),
     ("floor", "trunc"), ("shr", "shl"), ("and", "or"), ("ceil", "rint"), ("ne", "eq")],
slow="add-sub and-or floordiv-mod gt-ge lt-le minimum-maximum ne-eq shr-shl")  # fmt: skip
def test_a_wrong_op_is_found(old, new):
    """An emitter that took one op for another would fail on many programs that show the op."""
    found = total = 0
    for seed in range(NUMBER_OF_PROGRAMS):
        program = random_program(seed, Recipe(ops=(old, *EXACT_OPS), depth=1))
        if old not in {s.op for s in walk_statements(program.body) if isinstance(s, Equation)}:
            continue
        wrong = Program(program.name, program.params, replaced(program.body, old, new))
        arguments = random_arguments(program, seed, COUNT)
        total += 1
        found += not agrees(program, wrong, arguments)
    assert total >= LEAST_PROGRAMS
    assert found >= LEAST_FOUND * total, f"{found} of {total}"


def agrees(program, other, arguments):
    expected = expected_outputs(program, arguments)
    try:
        assert_agrees(expected, expected_outputs(other, arguments).values)
    except (AssertionError, IterationLimitError):
        return False
    return True


def test_arguments_hold_special_values_and_are_the_same_for_a_seed():
    b = Builder("f")
    for type in ALL_TYPES:
        b.param("x", type)
    u = b.param("u", F32, "uniform")
    program = b.finish([u])
    first, second = (random_arguments(program, 3, 400) for _ in range(2))
    for a, c in zip(first, second, strict=True):
        assert np.all(same_bits(a, c))
    for a, type in zip(first, ALL_TYPES, strict=False):
        assert a.shape == (400,)
        assert a.dtype == type.dtype
    floats = first[ALL_TYPES.index(F64)]
    assert np.isnan(floats).any()
    assert np.isinf(floats).any()
    assert (np.signbit(floats) & (floats == 0)).any()
    assert ((np.abs(floats) < np.finfo("f8").tiny) & (floats != 0)).any()
    assert np.iinfo("i4").min in first[ALL_TYPES.index(I32)]
    assert isinstance(first[-1], np.float32)


def test_an_element_of_expectations_is_what_the_interpreter_takes():
    program = random_program(5)
    expected = expected_outputs(program, random_arguments(program, 5, 4))
    assert isinstance(expected, Expected)
    for k in range(4):
        for value, column in zip(
            interpret(program, expected.element(k)), expected.values, strict=True
        ):
            assert same_bits(value, column[min(k, len(column) - 1)])


def test_values_of_different_dtypes_are_never_the_same():
    assert not same_bits(np.float32(1), np.float64(1))
    assert not same_bits(np.zeros(2, "i4"), np.zeros(2, "u4")).any()
    assert same_bits(np.bool_(True), BOOL.dtype.type(1))
