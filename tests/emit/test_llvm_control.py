"""Conditions and loops of kernels do what the interpreter does, whoever agrees on them.

Each program runs with its arguments moving along the innermost axis (masks) and standing still
(branches), and with every mixture of the two.
"""

import itertools

import numpy as np
import pytest
from kernel_runner import WIDTHS, run

from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import Block, Const, Equation, If, Param, Program, Var, While
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64, I32
from mixad.scalar.verify import verify
from mixad.testing import same_bits

ROWS, COLUMNS = 5, 19  # along the rows arguments stand still; a gang and a remainder move


def layouts(arguments):
    """Yield the arguments with every mixture of moving and standing still along the columns."""
    for still in itertools.product([False, True], repeat=len(arguments)):
        yield tuple(a[:, :1] if s else a for a, s in zip(arguments, still, strict=True))


def assert_as_interpreted(program, arguments, bits=WIDTHS[-1]):
    verify(program)
    for given in layouts(arguments):
        whole = [np.broadcast_to(a, (ROWS, COLUMNS)) for a in given]
        shape = np.broadcast_shapes(*(a.shape for a in given))
        outputs = run(program, given, bits)
        for at in np.ndindex(shape):
            expected = interpret(program, [a[at] for a in whole])
            for wanted, got in zip(expected, outputs, strict=True):
                assert got.shape == shape
                assert same_bits(wanted, got[at]), f"at {at}: {got[at]!r}, not {wanted!r}"


def small_integers(seed, low=0, high=6):
    return np.random.default_rng(seed).integers(low, high, (ROWS, COLUMNS), dtype="i4")


def doubles(seed):
    return np.random.default_rng(seed).normal(size=(ROWS, COLUMNS))


def booleans(seed):
    return np.random.default_rng(seed).random((ROWS, COLUMNS)) < 0.5


def counting(b, bound, *carries, turn):
    """Build a loop that counts to a bound; return what its other carries become."""
    _, *outs = b.while_(
        [b.const(0, I32), *carries],
        lambda i, *_: b.op("lt", i, bound),
        lambda i, *inner: (b.op("add", i, b.const(1, I32)), *turn(i, *inner)),
    )
    return outs


def test_loop():
    b = Builder("loop")
    n, x = b.param("n", I32), b.param("x", F64)
    outs = counting(b, n, x, turn=lambda i, t: [b.op("mul", t, b.op("add", x, b.convert(i, F64)))])
    assert_as_interpreted(b.finish(outs), [small_integers(0), doubles(1)])


@pytest.mark.slow
@pytest.mark.parametrize("bits", WIDTHS)
def test_nested_loops(bits):
    b = Builder("nested")
    n, m, x = b.param("n", I32), b.param("m", I32), b.param("x", F64)

    def outer(i, total):
        bound = b.op("minimum", b.op("add", i, m), b.const(5, I32))
        return counting(b, bound, total, turn=lambda j, t: [b.op("add", b.op("mul", t, x), x)])

    program = b.finish(counting(b, n, x, turn=outer))
    assert_as_interpreted(program, [small_integers(0), small_integers(1), doubles(2)], bits)


def test_loop_that_is_left_by_a_flag():
    """As the parser spells ``break``: a carry says whether to go on."""
    b = Builder("flag")
    n, x = b.param("n", I32), b.param("x", F64)
    one = b.const(1, I32)

    def turn(i, going, total):
        stops = b.op("gt", total, b.const(4.0, F64))
        (more,) = b.if_(stops, lambda: [total], lambda: [b.op("add", b.op("mul", total, total), x)])
        return [b.op("add", i, one), b.op("not", stops), more]

    outs = b.while_(
        [b.const(0, I32), b.const(True, BOOL), x],
        lambda i, going, _: b.op("and", going, b.op("lt", i, n)),
        turn,
    )
    assert_as_interpreted(b.finish(outs), [small_integers(0), doubles(1)])


def test_loop_carries_values_of_all_types():
    """Every turn passes the carries of a type on to each other, so each must keep its place."""
    b = Builder("types")
    n = b.param("n", I32)
    pairs = [(b.const(1, t), b.convert(n, t)) for t in ALL_TYPES]
    outs = counting(
        b, n, *itertools.chain(*pairs),
        turn=lambda i, *c: [x for pair in zip(c[1::2], c[::2], strict=True) for x in pair],
    )  # fmt: skip
    assert_as_interpreted(b.finish(outs), [small_integers(0)])


@pytest.mark.slow
def test_loop_in_a_condition_in_a_loop():
    b = Builder("condition")
    n, m, x = b.param("n", I32), b.param("m", I32), b.param("x", F64)

    def outer(i, total):
        odd = b.op("eq", b.op("mod", b.op("add", i, m), b.const(2, I32)), b.const(1, I32))

        def inner():
            return counting(b, i, total, turn=lambda j, t: [b.op("sub", b.op("mul", t, t), x)])

        return b.if_(odd, inner, lambda: [b.op("tan", total)])

    (out,) = counting(b, n, x, turn=outer)
    near = b.op("lt", b.op("abs", out), b.const(1e3, F64))  # not the last digits of tan
    assert_as_interpreted(b.finish([near]), [small_integers(0), small_integers(1), doubles(2)])


def test_condition_whose_sides_are_values_from_outside():
    b = Builder("outside")
    c, x, y = b.param("c", BOOL), b.param("x", F64), b.param("y", F64)
    outs = [Var(10 + k, F64) for k in range(4)]
    zero = Const(0.0, F64)
    s = If(tuple(outs), c, Block((), (x, y, x, zero)), Block((), (y, x, x, zero)))
    program = Program("outside", b.finish([]).params, Block((s,), tuple(outs)))
    assert_as_interpreted(program, [booleans(0), doubles(1), doubles(2)])


def test_dear_sides_are_not_entered_for_nothing():
    """Both sides cost library calls: each has a branch of its own, and yields what it should."""
    b = Builder("dear")
    c, x = b.param("c", BOOL), b.param("x", F64)
    (out,) = b.if_(c, lambda: [b.op("fmod", x, b.const(0.75, F64))], lambda: [b.op("hypot", x, x)])
    program = b.finish([b.op("lt", out, b.const(0.5, F64))])
    assert_as_interpreted(program, [booleans(0), doubles(1)])
    assert_as_interpreted(program, [np.zeros((ROWS, COLUMNS), bool), doubles(1)])


# -- programs that the builder would have simplified, or that users seldom write -------------------


def hand_made(statements, results, *types):
    """Return a program whose params are the variables 0, 1, … of these types."""
    params = tuple(Param(f"x{k}", Var(k, t)) for k, t in enumerate(types))
    return Program("by hand", params, Block(tuple(statements), tuple(results)))


def test_constant_conditions():
    out = Var(5, F64)
    s = If((out,), Const(True, BOOL), Block((), (Var(0, F64),)), Block((), (Const(1.0, F64),)))
    assert_as_interpreted(hand_made([s], [out], F64), [doubles(0)])


def test_loop_that_carries_nothing():
    """Its test can hold nowhere, or it would not end; it is not the same in all lanes to LLVM."""
    never = Var(5, BOOL)
    test = Block((Equation(never, "lt", (Var(0, I32), Const(0, I32))),), (never,))
    loop = While((), (), (), test, Block((), ()))
    assert_as_interpreted(hand_made([loop], [Var(0, I32)], I32), [small_integers(0)])


def test_lanes_that_are_switched_off_keep_no_loop_alive():
    """They would count for ever."""
    b = Builder("alive")
    enters, bound = b.param("enters", BOOL), b.param("bound", F64)

    def count():
        return b.while_(
            [b.const(0.0, F64)],
            lambda i: b.op("ne", i, bound),
            lambda i: [b.op("add", i, b.const(1.0, F64))],
        )

    program = b.finish(b.if_(enters, count, lambda: [bound]))
    enters = booleans(0)
    bounds = np.where(enters, small_integers(1), np.nan)
    (got,) = run(program, [enters, bounds])
    np.testing.assert_array_equal(got, bounds)


def test_uniform_loop_that_no_lane_enters_does_not_hang():
    """It would not end; whether lanes enter differs between them, and none does."""
    going, flag = Var(5, BOOL), Var(6, BOOL)
    loop = While((flag,), (going,), (Var(1, BOOL),), Block((), (going,)), Block((), (going,)))
    out = Var(8, BOOL)
    s = If((out,), Var(0, BOOL), Block((loop,), (flag,)), Block((), (Const(False, BOOL),)))
    program = hand_made([s], [out], BOOL, BOOL)
    enters = np.zeros((1, COLUMNS), bool)
    (got,) = run(program, [enters, np.ones((1, 1), bool)])
    assert not got.any()


def test_outputs_that_are_params_and_constants():
    program = hand_made(
        [], [Var(1, I32), Var(0, F64), Var(0, F64), Const(-0.0, F64), Const(True, BOOL)], F64, I32
    )
    assert_as_interpreted(program, [doubles(0), small_integers(1)])


def test_params_that_nothing_reads():
    assert_as_interpreted(
        hand_made([], [Const(2.5, F32)], F64, I32), [doubles(0), small_integers(1)]
    )
