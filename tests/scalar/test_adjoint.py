"""Reverse accumulation: against dual numbers, differences in many digits, and known derivatives."""

import math
import random

import numpy as np
import pytest
from mpmath import mp, mpf

from mixad.backends.execute import execute
from mixad.errors import KernelGradientError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.adjoint import active_loop, adjoint_block
from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import ArrayType, Line, walk_statements
from mixad.scalar.ops import BY_NAME
from mixad.scalar.pullback import pullback, reverse_pullback
from mixad.scalar.pushforward import pushforward
from mixad.scalar.simplify import without_dead_code
from mixad.scalar.types import BF16, F16, F32, F64, I32
from mixad.scalar.verify import verify
from mixad.testing import ALL_OPS, Recipe, as_python_source, random_program
from tools.precise import DIGITS, OPS, evaluate, gradient

PROGRAMS = 400
SECOND_ORDER_PROGRAMS = 120
SPECIAL_PROGRAMS = 1000
AGREEMENT = mpf(10) ** -18

SMOOTH = Recipe(ops=OPS, types=(F64,), statements=14, depth=2, params=4, outputs=3)
SMALL = Recipe(ops=OPS, types=(F64,), statements=7, depth=1, params=3, outputs=2)
MIXED = Recipe(
    ops=tuple(name for name in ALL_OPS if None not in BY_NAME[name].partials),  # refused
    types=(F64, F32, I32),
    statements=12,
    depth=2,
)

STEEP_POINTS = (0.0, 1.0, -1.0, 0.5, 2.0)
"""Where partials of many ops are zero or infinite."""


# -- random programs -------------------------------------------------------------------------------


def programs(count, recipe):
    """Yield programs that reverse accumulation goes through, and what is differentiated."""
    for seed in range(count):
        program = random_program(seed, recipe)
        wrt = [i for i, p in enumerate(program.params) if p.var.type.is_float]
        chosen = [m for m, atom in enumerate(program.outputs) if atom.type.is_float]
        if wrt and chosen and active_loop(program, wrt) is None:
            yield seed, program, wrt, chosen


def point(source, program, floats):
    return [
        mpf(floats(source)) if p.var.type.is_float else source.randint(0, 1) for p in program.params
    ]


def in_many_digits(passes, arguments):
    """Return the gradients of some passes, zeros filled in."""
    found = []
    for chunk_pass in passes:
        values, _ = evaluate(verify(chunk_pass.program), arguments)
        found += [mpf(0) if k is None else values[k] for k in chunk_pass.gradients]
    return found


def shown(program, arguments):
    """Return a program with the arguments that are its own, to run it."""
    return as_python_source(program, arguments[: len(program.params)])


def is_close(got, wanted):
    return got == wanted or abs(got - wanted) <= AGREEMENT * (1 + abs(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("cotangents", [(-2.0, 0.0, 0.5, 3.0), (1.0, 0.0, mp.inf, -mp.inf)])
def test_gradients_of_random_programs_are_those_of_dual_numbers(cotangents):
    """At singular points too; where those have nan these may be defined, never the reverse."""
    compared = 0
    for seed, program, wrt, chosen in programs(PROGRAMS, SMOOTH):
        source = random.Random(seed)
        arguments = point(source, program, lambda s: s.choice((*STEEP_POINTS, s.uniform(-2, 2))))
        arguments += [mpf(source.choice(cotangents)) for _ in chosen]
        duals = in_many_digits(pullback(program, wrt, chosen), arguments)
        adjoints = in_many_digits([reverse_pullback(program, wrt, chosen)], arguments)
        for got, wanted in zip(adjoints, duals, strict=True):
            if not mp.isnan(wanted):
                close = is_close(got, wanted)
                assert close, f"{got}, not {wanted}\n{shown(program, arguments)}"
                compared += wanted != 0
    assert compared > PROGRAMS / 8


@pytest.mark.slow
def test_gradients_of_random_programs_are_cotangents_times_differences():
    compared = 0
    for seed, program, wrt, chosen in programs(PROGRAMS // 2, SMOOTH):
        source = random.Random(seed)
        arguments = point(source, program, lambda s: s.uniform(-2, 2))
        cotangents = [mpf(source.choice((-2, 0, 0.5, 3))) for _ in chosen]
        jacobian = gradient(program, arguments, wrt)
        adjoints = reverse_pullback(program, wrt, chosen)
        got = in_many_digits([adjoints], [*arguments, *cotangents])
        for k, value in enumerate(got):
            rows = zip(cotangents, (jacobian[m][k] for m in chosen), strict=True)
            with mp.workdps(DIGITS):
                wanted = mp.fsum(c * d for c, d in rows if c)
            if not mp.isnan(wanted):
                close = is_close(value, wanted)
                assert close, f"{value}, not {wanted}\n{shown(program, arguments)}"
                compared += wanted != 0
    assert compared > PROGRAMS / 10


@pytest.mark.slow
@pytest.mark.parametrize("outer", ["forward", "reverse"])
def test_it_can_be_differentiated_again(outer):
    """Second derivatives are those of dual numbers twice: forward and reverse over reverse."""
    compared = 0
    for seed, program, wrt, chosen in programs(SECOND_ORDER_PROGRAMS, SMALL):
        source = random.Random(seed)
        arguments = point(source, program, lambda s: s.uniform(-2, 2))
        arguments += [mpf(source.choice((-2, 0, 0.5, 3))) for _ in chosen]
        (dual,) = pullback(program, wrt, chosen)
        adjoint = reverse_pullback(program, wrt, chosen)
        for wanted, got in zip(
            second(dual, wrt, arguments, "forward"),
            second(adjoint, wrt, arguments, outer),
            strict=True,
        ):
            if not mp.isnan(wanted):
                close = is_close(got, wanted)
                assert close, f"{got}, not {wanted}\n{shown(program, arguments)}"
                compared += wanted != 0
    assert compared > SECOND_ORDER_PROGRAMS / 4


def second(chunk_pass, wrt, arguments, strategy):
    """Return the partials of all gradients, zeros filled in, with respect to ``wrt``."""
    program = verify(without_dead_code(chunk_pass.program))
    found = []
    for k in chunk_pass.gradients:
        if k is None:
            found += [mpf(0)] * len(wrt)
        elif strategy == "forward":
            dual = pushforward(program, wrt)
            values, _ = evaluate(verify(dual.program), arguments)
            row = dual.outputs[k].partials
            found += [values[row[n]] if n in row else mpf(0) for n in range(len(wrt))]
        else:
            again = reverse_pullback(program, wrt, [k])
            found += in_many_digits([again], [*arguments, mpf(1)])
    return found


@pytest.mark.slow
def test_special_values_give_no_nan_that_dual_numbers_do_not_give():
    """In the types of the program; infinite cotangents among them."""
    compared = 0
    for seed, program, wrt, chosen in programs(SPECIAL_PROGRAMS, MIXED):
        source = random.Random(seed)
        types = [p.var.type for p in program.params] + [program.outputs[m].type for m in chosen]
        values = [
            source.choice(STEEP_POINTS) if t.is_float else source.randint(0, 2) for t in types
        ]
        for at in range(len(program.params), len(values)):
            values[at] = source.choice((*STEEP_POINTS, math.inf, -math.inf))
        arguments = [t.dtype.type(v) for t, v in zip(types, values, strict=True)]
        duals = interpreted(pullback(program, wrt, chosen), arguments)
        adjoints = interpreted([reverse_pullback(program, wrt, chosen)], arguments)
        for got, wanted in zip(adjoints, duals, strict=True):
            if not np.isnan(wanted):
                np.testing.assert_allclose(
                    got, wanted, rtol=1e-5, atol=1e-5, err_msg=shown(program, arguments)
                )
                compared += wanted != 0
    assert compared > SPECIAL_PROGRAMS / 10


def interpreted(passes, arguments):
    found = []
    with np.errstate(all="ignore"):
        for chunk_pass in passes:
            values = interpret(verify(chunk_pass.program), arguments)
            found += [0.0 if k is None else values[k] for k in chunk_pass.gradients]
    return found


# -- programs with known derivatives, as kernels ---------------------------------------------------


def gradients_of(program, arguments, wrt=None, cotangents=(1.0,)):
    """Run the reverse pullback on arrays of one element; its gradients."""
    wrt = range(len(arguments)) if wrt is None else wrt
    found = reverse_pullback(program, wrt, range(len(cotangents)))
    requests = tuple(OutputRequest(0, k) for k in range(len(found.program.outputs)))
    types = [p.var.type for p in found.program.params]
    given = [np.full(3, v, t.dtype) for v, t in zip((*arguments, *cotangents), types, strict=True)]
    values = execute((without_dead_code(found.program),), requests, given, "cpu")
    return [0.0 if k is None else values[k][0] for k in found.gradients]


def built(build, names="x", type=F64):
    """Return the program that a function of a builder and params makes."""
    b = Builder("f")
    return b.finish([build(b, *(b.param(name, type) for name in names))])


@pytest.mark.slow
def test_the_product_of_many_factors():
    """Of arity 24, all with branches, against the other factors' product."""
    xs = np.linspace(-1, 1.2, 24)
    program = product_of_tanh(24, F64)
    factors = np.tanh(np.where(xs > 0.5, xs, -xs))
    slopes = np.where(xs > 0.5, 1, -1) * (1 - factors**2)
    others = [np.prod(np.delete(factors, k)) for k in range(24)]
    np.testing.assert_allclose(gradients_of(program, xs), others * slopes, rtol=1e-14)


def product_of_tanh(count, type):
    """Π tanh(±xᵢ): the arity test of the paper."""
    b = Builder("product")
    half, total = b.const(0.5, type), b.const(1.0, type)
    for x in [b.param(f"x{i}", type) for i in range(count)]:
        (sign,) = b.if_(b.op("gt", x, half), lambda x=x: [x], lambda x=x: [b.op("neg", x)])
        total = b.op("mul", total, b.op("tanh", sign))
    return b.finish([total])


@pytest.mark.slow
def test_statements_grow_as_the_number_of_inputs():
    def statements(count):
        found = reverse_pullback(product_of_tanh(count, F32), range(count), [0])
        return len(list(walk_statements(without_dead_code(found.program).body)))

    assert statements(48) - statements(24) == 24 / 12 * (statements(24) - statements(12))


def test_values_stay_the_programs_own():
    program = product_of_tanh(11, F32)
    found = reverse_pullback(program, range(11), [0], with_primals=True)
    rng = np.random.default_rng(5)
    arguments = list(rng.uniform(-1, 1, (12, 37)).astype("f4"))
    assert found.primals == (0,)
    (value,) = execute((program,), (OutputRequest(0, 0),), arguments[:11], "cpu")
    (primal,) = execute((found.program,), (OutputRequest(0, 0),), arguments, "cpu")
    np.testing.assert_array_equal(primal, value)


CANCELLING = {
    "sqrt(|x| - x)": lambda b, x: b.op("sqrt", b.op("sub", b.op("abs", x), x)),
    "1 / (|x| - x)": lambda b, x: b.op("div", b.const(1.0, F64), b.op("sub", b.op("abs", x), x)),
    "sqrt(x² - 2x + 1)": lambda b, x: b.op(
        "sqrt",
        b.op("add", b.op("sub", b.op("mul", x, x), b.op("add", x, x)), b.const(1.0, F64)),
    ),
}


@pytest.mark.parametrize("build", CANCELLING.values(), ids=CANCELLING)
def test_paths_that_cancel_meet_before_a_singular_op(build):
    """At 1: inner partials that add up to zero; ∞ − ∞ would be nan."""
    assert gradients_of(built(build), [1.0]) == [0.0]


def test_paths_meet_before_a_singular_op_inside_of_a_branch():
    """Two values from outside, both of x, cancel inside: (|x| - 1) - (x - 1)."""

    def build(b, x):
        one = b.const(1.0, F64)
        p, q = b.op("sub", b.op("abs", x), one), b.op("sub", x, one)
        inner = lambda: b.if_(  # noqa: E731
            b.op("lt", x, b.const(50.0, F64)),
            lambda: [b.op("sqrt", b.op("sub", p, q))],
            lambda: [b.op("mul", p, q)],
        )
        return b.if_(b.op("gt", x, b.const(0.5, F64)), inner, lambda: [p])[0]

    program = built(build)
    assert gradients_of(program, [1.0]) == [0.0]
    assert gradients_of(program, [60.0]) == [118.0]
    assert gradients_of(program, [-2.0]) == [-1.0]


def test_an_infinite_cotangent_meets_the_whole_partial():
    """|x| - x is constant at 1, and may stand inside of a root in another kernel."""
    program = built(lambda b, x: b.op("sub", b.op("abs", x), x))
    assert gradients_of(program, [1.0], cotangents=[math.inf]) == [0.0]
    assert gradients_of(program, [-1.0], cotangents=[math.inf]) == [-math.inf]


@pytest.mark.rows("branch", ["where", "if"])
@pytest.mark.rows(("inner", "x"), [("exp", 800.0), ("sqrt", -1.0), ("log", 0.0)])
def test_what_is_not_chosen_spoils_nothing(branch, inner, x):
    """x · op(x) from 1 to 10, else x; exp is no singular op, and its partial overflows."""

    def build(b, x):
        inside = b.op("and", b.op("ge", x, b.const(1.0, F64)), b.op("le", x, b.const(10.0, F64)))
        dear = lambda: b.op("mul", x, b.op(inner, x))  # noqa: E731
        if branch == "where":
            return b.op("where", inside, dear(), x)
        return b.if_(inside, lambda: [dear()], lambda: [x])[0]

    assert gradients_of(built(build), [x]) == [1.0]


def test_a_value_from_before_a_branch_that_does_not_read_it():
    """exp overflows before the condition; the branch taken returns something else."""

    def build(b, x):
        large = b.op("mul", b.op("exp", x), x)
        return b.if_(
            b.op("gt", x, b.const(100.0, F64)),
            lambda: [b.op("neg", x)],
            lambda: [b.op("mul", large, x)],
        )[0]

    assert gradients_of(built(build), [800.0]) == [-1.0]


def test_a_factor_of_zero_behind_a_singular_op():
    """m · sin(log x) at x = 0, m = 0: dual numbers have a strong zero there, and so a gradient."""
    b = Builder("f")
    x, m = b.param("x", F64), b.param("m", F64)
    program = b.finish([b.op("mul", m, b.op("sin", b.op("log", x)))])
    (duals,) = pullback(program, [0], [0])
    assert interpreted([duals], [0.0, 0.0, 1.0]) == [0.0]
    assert gradients_of(program, [0.0, 0.0], wrt=[0]) == [0.0]


@pytest.mark.parametrize("depth", [1, 2])
def test_paths_inside_of_a_branch_that_meet_and_go_nowhere(depth):
    """A root of 0 · (x² + x) + 4: what stands in it has two paths from x, and no partial."""

    def build(b, x, y):
        def dear():
            still = b.op("mul", b.op("add", b.op("mul", x, x), x), b.const(0.0, F64))
            return [b.op("mul", b.op("sqrt", b.op("add", still, b.const(4.0, F64))), y)]

        inner = dear
        for _ in range(depth):
            then = inner
            inner = lambda then=then: list(  # noqa: E731
                b.if_(b.op("gt", x, y), then, lambda: [b.op("mul", x, y)])
            )
        return inner()[0]

    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    program = b.finish([build(b, x, y)])
    assert gradients_of(program, [3.0, 2.0]) == [0.0, 2.0]
    assert gradients_of(program, [2.0, 3.0]) == [3.0, 2.0]


def test_an_adjoint_has_the_wider_of_the_types_that_meet():
    """∂/∂x is 1e50 in float64; with a cotangent of 1e-30 the gradient is a float32."""
    b = Builder("f")
    x = b.param("x", F32)
    program = b.finish([b.op("mul", b.convert(x, F64), b.const(1e50, F64))])
    assert gradients_of(program, [2.0], cotangents=[1e-30]) == [np.float32(1e20)]


@pytest.mark.parametrize("type", [F16, BF16], ids=str)
def test_floats_of_16_bits(type):
    b = Builder("f")
    x, y = b.param("x", type), b.param("y", F32)
    wide = b.op("mul", b.convert(x, F32), y)
    program = b.finish([b.op("mul", wide, b.convert(b.op("tanh", x), F32))])
    (duals,) = pullback(program, [0, 1], [0])
    adjoints = reverse_pullback(program, [0, 1], [0])
    arguments = [0.75, np.float32(1.5), np.float32(2.0)]
    slope = math.tanh(0.75) + 0.75 * (1 - math.tanh(0.75) ** 2)
    for found in (duals, adjoints):
        values = interpret(found.program, arguments)
        got = [float(values[k]) for k in found.gradients]
        rounding = 2.0 ** (-8 if type.brain else -11)
        np.testing.assert_allclose(got, [3 * slope, 1.5 * math.tanh(0.75)], rtol=rounding)


def test_values_loaded_from_an_array_are_constants():
    b = Builder("f")
    x, table = b.param("x", F64), b.array_param("table", ArrayType(F64, 1))
    loaded = b.load(table, b.const(1, I32))
    found = reverse_pullback(b.finish([b.op("mul", x, loaded), loaded]), [0], [0, 1])
    values = interpret(found.program, [3.0, np.array([5.0, 7.0]), 2.0, 1.0])
    assert values[found.gradients[0]] == 14.0


def test_what_is_statically_zero_has_no_gradient():
    b = Builder("f")
    x, y, z = (b.param(name, F64) for name in "xyz")
    (masked,) = b.if_(b.op("gt", x, y), lambda: [b.op("floor", x)], lambda: [b.const(1.0, F64)])
    program = b.finish([b.op("mul", masked, z), b.op("lt", x, y), b.const(3.0, F64), z])
    found = reverse_pullback(program, [0, 1, 2], [0, 2, 3])
    assert [k is None for k in found.gradients] == [True, True, False]


# -- loops -----------------------------------------------------------------------------------------


def loop_of(line, *, is_active):
    """x to the power of n, by a loop, or x times the bits that n has."""
    b = Builder("power")
    x, n = b.param("x", F64), b.param("n", I32)
    b.line = line
    one = b.const(1, I32)
    iteration = (lambda p: b.op("mul", p, x)) if is_active else (lambda p: b.op("add", p, p))
    _, power = b.while_(
        [b.const(0, I32), b.const(1.0, F64)],
        lambda k, _: b.op("lt", k, n),
        lambda k, p: [b.op("add", k, one), iteration(p)],
    )
    return b.finish([b.op("mul", power, x)])


def test_a_loop_with_partials_is_refused_with_the_users_line():
    program = loop_of(Line("model.py", 7, "    while k < n:\n"), is_active=True)
    with pytest.raises(KernelGradientError, match="cannot be computed in reverse") as refusal:
        reverse_pullback(program, [0], [0])
    assert (refusal.value.location.filename, refusal.value.location.line) == ("model.py", 7)
    assert active_loop(program, [0]) is not None


def test_a_loop_without_partials_is_taken_along():
    program = loop_of(None, is_active=False)
    assert active_loop(program, [0]) is None
    assert gradients_of(program, [3.0, 4], wrt=[0]) == [16.0]


# -- refusals --------------------------------------------------------------------------------------


def test_an_op_without_derivative_is_refused_with_the_users_line():
    b = Builder("f")
    x, y = b.param("x", F64), b.param("y", F64)
    b.line = Line("model.py", 12, "    return x * polygamma(y, x)\n")
    program = b.finish([b.op("mul", x, b.op("polygamma", y, x))])
    with pytest.raises(KernelGradientError, match="polygamma with respect to its argument 1") as e:
        reverse_pullback(program, [1], [0])
    assert (e.value.location.filename, e.value.location.line) == ("model.py", 12)
    assert reverse_pullback(program, [0], [0]).gradients == (0,)  # y is not active


def test_arrays_have_no_partial():
    b = Builder("f")
    table, i = b.array_param("table", ArrayType(F64, 1)), b.param("i", I32)
    with pytest.raises(ValueError, match="an array has no partial: 'table'"):
        adjoint_block(Builder("f"), b.finish([b.load(table, i)]), [0], [0])


def test_differentiation_with_respect_to_an_integer_is_refused():
    b = Builder("f")
    with pytest.raises(ValueError, match="'n'"):
        reverse_pullback(b.finish([b.param("n", I32)]), [0], [0])
