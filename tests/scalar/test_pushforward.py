"""The pushforward on structured programs: against differences in many digits, and in kernels."""

import math
import random
from itertools import product

import numpy as np
import pytest
from mpmath import mp, mpf

from mixad.backends.execute import execute
from mixad.errors import KernelGradientError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.dual import MAX_PARTIALS, DualChunk
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import ArrayType, Line
from mixad.scalar.pushforward import pushforward, pushforward_along
from mixad.scalar.types import BOOL, F32, F64, I32
from mixad.scalar.verify import verify
from mixad.testing import (
    ALL_OPS,
    Recipe,
    as_python_source,
    random_arguments,
    random_program,
    same_bits,
)
from tools.precise import OPS, evaluate, gradient, hessian

PROGRAMS = 240
KERNEL_PROGRAMS = 25
ELEMENTS = 37
LEAST_ACTIVE = 0.05
"""Least share of derivatives that are not zero, for the comparison to mean something."""
MAX_UNDEFINED = 0.2
"""Most derivatives that are not compared, beside each that is."""
AGREEMENT = mpf(10) ** -18

WITH_KERNEL = Recipe(
    ops=tuple(name for name in ALL_OPS if name not in ("polygamma", "ierfcx")),  # refused
    types=(F32, F64, I32),
    statements=7,
    depth=2,
    params=3,
    uniforms=False,
)
SMOOTH = Recipe(ops=OPS, types=(F64,), statements=10, depth=2, params=3, outputs=2)


# -- random programs -------------------------------------------------------------------------------


def point(program, seed):
    source = random.Random(seed)
    draw = {"float": lambda: mpf(source.uniform(-2, 2)), "int": lambda: source.randint(-3, 5)}
    return [draw.get(p.var.type.kind, lambda: source.random() < 0.5)() for p in program.params]


def float_params(program):
    return [i for i, p in enumerate(program.params) if p.var.type.is_float]


def float_outputs(program):
    return [m for m, atom in enumerate(program.outputs) if atom.type.is_float]


def twice(program, wrt):
    """Return what computes first and second partials, as a function of a point."""
    once = pushforward(program, wrt)
    again = pushforward(verify(once.program), wrt)
    verify(again.program)

    def partials(arguments):
        values, _ = evaluate(again.program, arguments)
        chunks = [
            {k: again.outputs[position] for k, position in output.partials.items()}
            for output in once.outputs
        ]
        slots = range(len(wrt))
        first = [[at(values, c, k, None) for k in slots] for c in chunks]
        second = [[[at(values, c, k, j) for j in slots] for k in slots] for c in chunks]
        return first, second

    return partials


def at(values, chunk, k, j):
    """The partial along slot k, or its partial along slot j; 0 where there is no entry."""
    if k not in chunk:
        return mpf(0)
    if j is None:
        return values[chunk[k].primal]
    return values[chunk[k].partials[j]] if j in chunk[k].partials else mpf(0)


@pytest.mark.slow
def test_first_and_second_partials_of_random_programs_are_those_of_differences():
    active = compared = undefined = too_large = 0
    for seed in range(PROGRAMS):
        program = random_program(seed, SMOOTH)
        wrt, arguments = float_params(program), point(program, seed)
        first, second = twice(program, wrt)(arguments)
        exact = gradient(program, arguments, wrt), hessian(program, arguments, wrt)
        for m, k in product(float_outputs(program), range(len(wrt))):
            pairs = [(first[m][k], exact[0][m][k])]
            pairs += zip(second[m][k], exact[1][m][k], strict=True)
            for got, wanted in pairs:
                if mp.isnan(wanted):  # undefined there, or too large to be compared
                    undefined += 1
                    continue
                if mp.isnan(got) and abs(wanted) > 1e9:  # what it is made of is larger still
                    too_large += 1
                    continue
                close = abs(got - wanted) <= AGREEMENT * (1 + abs(wanted))
                assert close, f"{got}, not {wanted}\n{as_python_source(program, arguments)}"
                compared += 1
                active += wanted != 0
    assert too_large < compared / 100
    assert active > LEAST_ACTIVE * compared > 0
    assert undefined <= MAX_UNDEFINED * compared, (undefined, compared)


@pytest.mark.rows("seed", range(KERNEL_PROGRAMS), slow="7")
def test_primal_outputs_of_dual_programs_have_the_primal_programs_bits(seed):
    """Of special values too: both take the same branches."""
    program = random_program(seed, WITH_KERNEL)
    arguments = random_arguments(program, seed, ELEMENTS)
    wrt = float_params(program)
    once = pushforward(program, wrt)
    both = pushforward(once.program, wrt)
    primal = run(program, arguments)
    for dual in (once, both):
        values = run(dual.program, arguments)
        for k, expected in enumerate(primal):
            assert same_bits(values[dual.outputs[k].primal], expected).all()


def run(program, arguments):
    requests = tuple(OutputRequest(0, k) for k in range(len(program.outputs)))
    return execute((program,), requests, arguments, "cpu")


# -- programs with known derivatives, as kernels ---------------------------------------------------


def partials_of(program, wrt, arguments):
    """Run a dual program; a list of {slot: array} per output."""
    dual = pushforward(program, wrt)
    values = run(dual.program, arguments)
    return [{k: values[p] for k, p in output.partials.items()} for output in dual.outputs]


def second_partials_of(program, arguments):
    """Return ∂f/∂x and ∂²f/∂x² of a program with one active param (the first) and output."""
    once = pushforward(program, [0])
    again = pushforward(once.program, [0])
    values = run(again.program, arguments)
    chunk = again.outputs[once.outputs[0].partials[0]]
    return values[chunk.primal], values[chunk.partials[0]]


def whole_power(kind="lane"):
    """x to the n by multiplying n times."""
    b = Builder("power")
    x, n = b.param("x", F64, kind), b.param("n", I32)
    one = b.const(1, I32)
    _, power = b.while_(
        [b.const(0, I32), b.const(1.0, F64)],
        lambda k, _: b.op("lt", k, n),
        lambda k, p: [b.op("add", k, one), b.op("mul", p, x)],
    )
    return b.finish([power])


def test_a_loop_whose_turns_differ_from_lane_to_lane():
    x, n = np.linspace(-2, 2, ELEMENTS), np.arange(ELEMENTS, dtype="i4") % 7
    first, second = second_partials_of(whole_power(), [x, n])
    m = n.astype("f8")
    np.testing.assert_allclose(first, m * x ** np.maximum(m - 1, 0), rtol=1e-14)
    np.testing.assert_allclose(second, m * (m - 1) * x ** np.maximum(m - 2, 0), rtol=1e-14)


def test_a_uniform_param_can_be_active():
    n = np.arange(7, dtype="i4")
    program = whole_power("uniform")
    ((partials,),) = [partials_of(program, [0], [1.5, n])]
    np.testing.assert_allclose(partials[0], n * 1.5 ** (n - 1.0), rtol=1e-15)
    assert pushforward(program, [0]).program.params[0].kind == "uniform"


def test_newtons_iteration_with_an_early_exit_converges_in_its_derivatives():
    """The square root, until an iteration changes less than a tolerance (a flag ends the loop)."""
    b = Builder("newton")
    x = b.param("x", F64)
    half, small = b.const(0.5, F64), b.const(1e-12, F64)

    def iteration(root, running):
        better = b.op("mul", half, b.op("add", root, b.op("div", x, root)))
        change = b.op("abs", b.op("sub", better, root))
        return [better, b.op("gt", change, b.op("mul", small, better))]

    root, _ = b.while_([x, b.const(True, BOOL)], lambda root, running: running, iteration)
    x = np.geomspace(2, 2e3, ELEMENTS)  # at 1 it stops at once; f″ lags
    first, second = second_partials_of(b.finish([root]), [x])
    np.testing.assert_allclose(first, 0.5 / np.sqrt(x), rtol=1e-12)
    np.testing.assert_allclose(second, -0.25 / x**1.5, rtol=1e-10)


def test_nested_loops_with_carries_that_depend_on_each_other():
    """a <- b, b <- a·x, in a loop in a loop; the chain is as long as the loops go on."""
    b = Builder("nested")
    x, n = b.param("x", F64), b.param("n", I32)
    one = b.const(1, I32)

    def loop(limit, inits, body):
        test = lambda k, *_: b.op("lt", k, limit)  # noqa: E731
        iteration = lambda k, *rest: [b.op("add", k, one), *body(*rest)]  # noqa: E731
        return b.while_([b.const(0, I32), *inits], test, iteration)[1:]

    unit = b.const(1.0, F64)
    swap = lambda p, q: [q, b.op("mul", p, x)]  # noqa: E731
    p, q = loop(b.const(3, I32), [unit, unit], lambda p, q: loop(n, [p, q], swap))
    x, n = np.linspace(0.5, 1.5, ELEMENTS), np.arange(ELEMENTS, dtype="i4") % 5
    exponent = (3 * n) // 2  # p gains a factor every second iteration
    found = partials_of(b.finish([p, q]), [0], [x, n])
    np.testing.assert_allclose(found[0][0], exponent * x ** (exponent - 1.0), rtol=1e-14)
    exponent = (3 * n + 1) // 2
    np.testing.assert_allclose(found[1][0], exponent * x ** (exponent - 1.0), rtol=1e-14)


def test_a_branch_that_returns_a_constant_has_zero_partials():
    b = Builder("f")
    x = b.param("x", F64)
    (y,) = b.if_(
        b.op("eq", x, b.const(1.0, F64)), lambda: [b.const(1.0, F64)], lambda: [b.op("mul", x, x)]
    )
    x = np.array([0.0, 1.0, 2.0])
    first, second = second_partials_of(b.finish([y]), [x])
    np.testing.assert_array_equal(first, [0.0, 0.0, 4.0])
    np.testing.assert_array_equal(second, [2.0, 0.0, 2.0])


@pytest.mark.parametrize("branch", ["where", "if"])
def test_the_branch_not_taken_spoils_neither_derivative(branch):
    b = Builder("f")
    x = b.param("x", F64)
    positive, zero = b.op("gt", x, b.const(0.0, F64)), b.const(0.0, F64)
    root = lambda: b.op("mul", b.op("sqrt", x), b.op("log", x))  # noqa: E731
    if branch == "where":
        y = b.op("where", positive, root(), zero)
    else:
        (y,) = b.if_(positive, lambda: [root()], lambda: [zero])
    x = np.array([-1.0, 0.0, -math.inf, math.nan, 4.0])
    first, second = second_partials_of(b.finish([y]), [x])
    np.testing.assert_array_equal(first[:4], np.zeros(4))
    np.testing.assert_array_equal(second[:4], np.zeros(4))
    np.testing.assert_allclose(first[4], (math.log(4) / 2 + 1) / 2, rtol=1e-15)


@pytest.mark.parametrize("name", ["sqrt", "log", "cbrt"])
def test_a_zero_tangent_stays_zero_where_a_partial_is_infinite(name):
    """op(u) with u = x where y > 0, else the constant 0: its derivatives there are zero, all."""
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    zero = b.const(0.0, F64)
    u = b.op("where", b.op("gt", y, zero), x, zero)
    program = b.finish([b.op("mul", y, b.op(name, u))])
    once = pushforward(program, [0, 1])
    again = pushforward(once.program, [0, 1])
    values = run(again.program, [np.array([2.0]), np.array([-1.0])])
    dx, dy = (again.outputs[once.outputs[0].partials[k]] for k in (0, 1))
    assert values[dx.primal] == 0
    assert values[dx.partials[0]] == values[dx.partials[1]] == values[dy.partials[0]] == 0


def test_mixed_second_partials_at_a_singular_point_do_not_depend_on_the_order():
    """sqrt(x + u) at 0, where u is dynamically constant: ∂x is infinite, ∂u is zero."""
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    zero = b.const(0.0, F64)
    u = b.op("where", b.op("gt", y, zero), y, zero)
    program = b.finish([b.op("sqrt", b.op("add", x, u))])
    once = pushforward(program, [0, 1])
    again = pushforward(once.program, [0, 1])
    values = run(again.program, [np.array([0.0]), np.array([-1.0])])
    dx, dy = (again.outputs[once.outputs[0].partials[k]] for k in (0, 1))
    assert values[dx.primal] == math.inf
    assert values[dx.partials[0]] == -math.inf
    assert values[dy.primal] == values[dy.partials[1]] == 0
    assert values[dx.partials[1]] == values[dy.partials[0]] == 0


def test_comparisons_look_at_primals_only():
    """The cell of the HM-LSTM with all six inputs active: same primal, no partials for z and zb."""
    program = hm_lstm_cell()
    rng = np.random.default_rng(0)
    z, zb = rng.integers(0, 2, (2, 64)).astype("f4")
    arguments = [z, zb, *rng.random((4, 64), dtype="f4")]
    dual = pushforward(program, range(6))
    values = run(dual.program, arguments)
    np.testing.assert_array_equal(values[dual.outputs[0].primal], run(program, arguments)[0])
    assert dual.outputs[0].slots == (2, 3, 4, 5)
    assert pushforward(program, [0, 1]).outputs[0].slots == ()
    c, f, i, g = (a.astype("f8") for a in arguments[2:])
    flush, copy = z == 1, (z == 0) & (zb == 0)
    sigmoid = lambda t: 1 / (1 + np.exp(-t))  # noqa: E731
    slope = lambda t: sigmoid(t) * sigmoid(-t)  # noqa: E731
    update = ~flush & ~copy
    exact = {
        2: np.where(copy, 1, update * sigmoid(f)),
        3: update * slope(f) * c,
        4: ~copy * slope(i) * np.tanh(g),
        5: ~copy * sigmoid(i) / np.cosh(g) ** 2,
    }
    for slot, expected in exact.items():
        got = values[dual.outputs[0].partials[slot]]
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


def hm_lstm_cell():
    b = Builder("cell_update")
    z, zb, c, f, i, g = (b.param(name, F32) for name in ("z", "zb", "c", "f", "i", "g"))
    gated = lambda: b.op("mul", b.op("sigmoid", i), b.op("tanh", g))  # noqa: E731
    kept = lambda: b.op("mul", b.op("sigmoid", f), c)  # noqa: E731
    (out,) = b.if_(
        b.op("eq", z, b.const(1.0, F32)),
        lambda: [gated()],
        lambda: b.if_(
            b.op("eq", zb, b.const(0.0, F32)),
            lambda: [c],
            lambda: [b.op("add", kept(), gated())],
        ),
    )
    return b.finish([out])


def test_nested_derivatives_do_not_confuse_perturbations():
    """d/dx [x · d/dy (x + y)] is 1."""
    b = Builder("sum")
    x, y = b.param("x", F64), b.param("y", F64)
    inner = pushforward(b.finish([b.op("add", x, y)]), [1])
    b = Builder("outer")
    x = b.param("x", F64)
    values = b.inline(inner.program, [x, x])
    outer = b.finish([b.op("mul", x, values[inner.outputs[0].partials[0]])])
    ((partials,),) = [partials_of(outer, [0], [np.array([1.0, 5.0])])]
    np.testing.assert_array_equal(partials[0], [1.0, 1.0])


def test_values_loaded_from_an_array_are_constants():
    b = Builder("f")
    x, table = b.param("x", F64), b.array_param("table", ArrayType(F64, 1))
    loaded = b.load(table, b.const(1, I32))
    dual = pushforward(b.finish([b.op("mul", x, loaded), loaded]), [0])
    assert [o.slots for o in dual.outputs] == [(0,), ()]
    values = interpret(dual.program, [3.0, np.array([5.0, 7.0])])
    assert values[dual.outputs[0].partials[0]] == 7.0


# -- sparsity --------------------------------------------------------------------------------------


def test_what_is_statically_zero_has_no_entry():
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    whole = b.convert(b.convert(x, I32), F64)
    outputs = [
        b.op("mul", b.op("floor", x), y),
        b.op("mul", whole, y),
        b.op("lt", x, y),
        b.const(3.0, F64),
        b.op("sub", x, x),  # zero, but not by the rules of the ops
        x,
    ]
    dual = pushforward(b.finish(outputs), [0, 1])
    assert [o.slots for o in dual.outputs] == [(1,), (1,), (), (), (0,), (0,)]


def test_a_program_that_does_not_depend_on_the_seeds_stays_as_it_is():
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    program = b.finish([b.op("sin", y)])
    dual = pushforward(program, [0])
    assert dual.program == program
    assert dual.outputs == (DualChunk(0),)
    assert pushforward(program, []).program == program
    assert x is not y


def test_only_active_carries_gain_partials():
    dual = pushforward(whole_power(), [0])
    (loop,) = dual.program.body.statements
    assert [v.type for v in loop.carries] == [I32, F64, F64]  # counter, power, its partial


# -- limits and refusals ---------------------------------------------------------------------------


def test_a_chunk_carries_at_most_ten_partials():
    b = Builder("f")
    xs = [b.param(f"x{i}", F64) for i in range(MAX_PARTIALS + 1)]
    total = xs[0]
    for x in xs[1:]:
        total = b.op("add", total, x)
    program = b.finish([total])
    assert len(pushforward(program, range(MAX_PARTIALS)).outputs[0].partials) == MAX_PARTIALS
    with pytest.raises(ValueError, match="at most 10 partials in one chunk, not 11"):
        pushforward(program, range(MAX_PARTIALS + 1))
    with pytest.raises(ValueError, match="at most 10 partials, not 11"):
        DualChunk(0, dict.fromkeys(range(11), 0))


def test_a_dual_chunk_cannot_be_changed():
    source = {"x": 1.0}
    chunk = DualChunk(2.0, source)
    source["y"] = 3.0
    assert chunk.slots == ("x",)
    with pytest.raises(TypeError):
        chunk.partials["x"] = 0.0
    with pytest.raises(AttributeError):
        chunk.primal = 0.0


@pytest.mark.parametrize("type", [I32, BOOL])
def test_differentiation_with_respect_to_an_integer_or_boolean_is_refused(type):
    b = Builder("f")
    n = b.param("n", type)
    with pytest.raises(ValueError, match="'n'"):
        pushforward(b.finish([n]), [0])


def test_an_op_without_derivative_is_refused_with_the_users_line():
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    b.line = Line("model.py", 12, "    return x * polygamma(y, x)\n")
    program = b.finish([b.op("mul", x, b.op("polygamma", y, x))])
    with pytest.raises(KernelGradientError) as refusal:
        pushforward(program, [1])
    assert "polygamma with respect to its argument 1" in str(refusal.value)
    assert (refusal.value.location.filename, refusal.value.location.line) == ("model.py", 12)
    assert pushforward(program, [0]).outputs[0].slots == (0,)  # y is not active


def test_tangents_of_what_is_added_to_an_array_are_added_to_another():
    b = Builder("f")
    x, n = b.param("x", F64), b.param("n", I32)
    sums = b.accumulator("sums", ArrayType(F64, 1))
    b.update(sums, n, value=b.op("mul", x, x))
    dual = pushforward(b.finish([sums]), [0])
    verify(dual.program)
    zeros = np.zeros(3), np.zeros(3)
    found = interpret(dual.program, [3.0, -1, *zeros])
    (output,) = dual.outputs
    np.testing.assert_array_equal(found[output.primal], [0, 0, 9])
    np.testing.assert_array_equal(found[output.partials[0]], [0, 0, 6])


def test_tangents_of_an_array_are_read_where_the_array_is():
    b = Builder("f")
    table, n = b.array_param("table", ArrayType(F64, 1)), b.param("n", I32)
    read = b.load(table, n)
    dual = pushforward_along(b.finish([b.op("mul", read, read)]), [[0]])
    found = interpret(dual.program, [np.array([2.0, 3.0]), 1, np.array([0.0, 10.0])])
    assert found == (9, 60)


def test_an_array_has_no_partial():
    b = Builder("f")
    table = b.array_param("table", ArrayType(F64, 1))
    with pytest.raises(ValueError, match="an array has no partial: 'table'"):
        pushforward(b.finish([b.load(table, b.const(0, I32))]), [0])
