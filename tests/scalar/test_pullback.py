"""The pullback: chunks, cotangents, and what is zero."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from mixad.backends.execute import execute
from mixad.errors import KernelGradientError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Line
from mixad.scalar.pullback import pullback
from mixad.scalar.pushforward import pushforward
from mixad.scalar.types import F32, F64, I32
from mixad.scalar.verify import verify
from mixad.testing import Recipe, as_python_source, random_program
from tools.precise import DIGITS, OPS, evaluate, gradient

PROGRAMS = 120
AGREEMENT = mpf(10) ** -18
ELEMENTS = 37
INPUTS = 11

STEEP = [("sqrt", 0), ("log", 0), ("cbrt", 0), ("asin", 1), ("acosh", 1), ("atanh", 1),
         ("sqrt", -1), ("exp", math.inf), ("sin", math.inf), ("exp", math.nan)]  # fmt: skip
"""Ops and points whose partial is infinite or nan."""

SMOOTH = Recipe(ops=OPS, types=(F64,), statements=10, depth=2, params=4, outputs=3)


def run(chunk_pass, arguments):
    """Run a pass: gradients (None where statically zero) and primals."""
    program = chunk_pass.program
    requests = tuple(OutputRequest(0, k) for k in range(len(program.outputs)))
    values = execute((program,), requests, arguments, "cpu") if requests else ()
    gradients = [None if k is None else values[k] for k in chunk_pass.gradients]
    return gradients, [values[k] for k in chunk_pass.primals]


# -- chunks ----------------------------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(1, MAX_PARTIALS))
def test_chunks_are_few_even_and_cover_everything_in_order(count, limit):
    chunks = even_chunks(count, limit)
    assert [slot for chunk in chunks for slot in chunk] == list(range(count))
    assert len(chunks) == math.ceil(count / limit)
    sizes = [len(c) for c in chunks]
    assert not sizes or (max(sizes) <= limit and max(sizes) - min(sizes) <= 1)


def test_eleven_inputs_take_chunks_of_six_and_five():
    program = product_of_tanh(INPUTS, F32)
    passes = pullback(program, range(INPUTS), [0])
    assert [len(p.gradients) for p in passes] == [6, 5]


def product_of_tanh(count, type):
    """Π tanh(|xᵢ - ½|), with branches: the arity test of the paper."""
    b = Builder("product")
    half, total = b.const(0.5, type), b.const(1.0, type)
    for x in [b.param(f"x{i}", type) for i in range(count)]:
        (sign,) = b.if_(b.op("gt", x, half), lambda x=x: [x], lambda x=x: [b.op("neg", x)])
        total = b.op("mul", total, b.op("tanh", sign))
    return b.finish([total])


@pytest.mark.slow
@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_gradients_have_the_same_bits_for_every_chunk_size(type):
    rng = np.random.default_rng(3)
    arguments = list(rng.uniform(-1, 1, (INPUTS + 1, ELEMENTS)).astype(type.dtype))
    program = product_of_tanh(INPUTS, type)

    def gradients(chunk):
        passes = pullback(program, range(INPUTS), [0], chunk=chunk)
        return np.array([g for p in passes for g in run(p, arguments)[0]])

    whole = gradients(MAX_PARTIALS)
    for chunk in range(1, MAX_PARTIALS):
        np.testing.assert_array_equal(gradients(chunk), whole)
    *x, cotangent = (a.astype("f8") for a in arguments)
    factors = np.tanh(np.where(np.array(x) > 0.5, x, np.negative(x)))
    others = np.array([np.prod(np.delete(factors, k, 0), 0) for k in range(INPUTS)])
    slopes = np.where(np.array(x) > 0.5, 1, -1) * (1 - factors**2)
    tolerance = 40 * np.finfo(type.dtype).eps
    np.testing.assert_allclose(whole, others * slopes * cotangent, rtol=tolerance)


@pytest.mark.parametrize("chunk", [0, MAX_PARTIALS + 1, -1])
def test_a_chunk_size_out_of_range_is_refused(chunk):
    with pytest.raises(ValueError, match=f"chunk must be from 1 to 10, not {chunk}"):
        pullback(product_of_tanh(1, F32), [0], [0], chunk=chunk)


def test_no_inputs_take_no_pass():
    assert pullback(product_of_tanh(2, F32), [], [0]) == ()


# -- contraction -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_gradients_of_random_programs_are_cotangents_times_differences():
    compared = 0
    for seed in range(PROGRAMS):
        source = random.Random(seed)
        program = random_program(seed, SMOOTH)
        wrt = [i for i, p in enumerate(program.params) if p.var.type.is_float]
        chosen = [m for m, atom in enumerate(program.outputs) if atom.type.is_float]
        arguments = [
            mpf(source.uniform(-2, 2)) if i in wrt else source.randint(0, 1)
            for i in range(len(program.params))
        ]
        cotangents = [mpf(source.choice((-2, 0, 0.5, 1, 3))) for _ in chosen]
        units = [at for at, cotangent in enumerate(cotangents) if cotangent == 1]
        read = [mpf("nan") if at in units else c for at, c in enumerate(cotangents)]
        jacobian = gradient(program, arguments, wrt)
        got = gradients_at(program, wrt, chosen, units, [*arguments, *read])
        for k, value in enumerate(got):
            rows = zip(cotangents, (jacobian[m][k] for m in chosen), strict=True)
            with mp.workdps(DIGITS):
                wanted = mp.fsum(c * d for c, d in rows if c)  # a zero cotangent takes no part
            if not mp.isnan(wanted):
                close = abs(value - wanted) <= AGREEMENT * (1 + abs(wanted))
                assert close, f"{value}, not {wanted}\n{as_python_source(program, arguments)}"
                compared += wanted != 0
    assert compared > PROGRAMS / 6


def gradients_at(program, wrt, chosen, units, arguments):
    """Evaluate a pullback in chunks of two, in many digits."""
    found = []
    for chunk_pass in pullback(program, wrt, chosen, chunk=2, units=units):
        values, _ = evaluate(verify(chunk_pass.program), arguments)
        found += [mpf(0) if k is None else values[k] for k in chunk_pass.gradients]
    return found


def polar():
    """Two outputs that share two inputs, and a third that has none of its own."""
    b = Builder("polar")
    x, y, z = (b.param(name, F64) for name in "xyz")
    return b.finish([b.op("hypot", x, y), b.op("atan2", y, x), b.op("floor", z)])


def test_outputs_without_cotangent_take_no_part():
    x, y, z = np.array([3.0]), np.array([4.0]), np.array([0.5])
    (only_angle,) = pullback(polar(), [0, 1, 2], [1])
    (dx, dy, dz), _ = run(only_angle, [x, y, z, np.array([2.0])])
    np.testing.assert_allclose([dx, dy], [[-8 / 25], [6 / 25]], rtol=1e-15)
    assert dz is None
    assert [p.name for p in only_angle.program.params] == ["x", "y", "z", "cotangent 1"]


def test_cotangents_come_in_the_order_in_which_they_are_chosen():
    x, y, z = np.array([3.0]), np.array([4.0]), np.array([0.5])
    (swapped,) = pullback(polar(), [0], [1, 0])
    (dx,), _ = run(swapped, [x, y, z, np.array([0.0]), np.array([10.0])])
    np.testing.assert_allclose(dx, 6.0, rtol=1e-15)


def test_no_cotangent_means_no_gradient():
    (empty,) = pullback(polar(), [0, 1], [])
    assert empty.gradients == (None, None)
    assert empty.program.outputs == ()


@pytest.mark.rows("type", [F32, F64], ids=str)
@pytest.mark.rows(("name", "x"), STEEP)
def test_a_zero_cotangent_gives_a_zero_gradient_whatever_the_partial_is(name, x, type):
    b = Builder("f")
    program = b.finish([b.op(name, b.param("x", type))])
    (only,) = pullback(program, [0], [0])
    (dx,), _ = run(only, [np.full(2, x, type.dtype), np.array([0, 1], type.dtype)])
    assert dx[0] == 0
    assert not np.isfinite(dx[1])


# -- primals ---------------------------------------------------------------------------------------


def test_primals_come_with_the_first_pass_and_have_the_programs_own_bits():
    program = product_of_tanh(INPUTS, F32)
    rng = np.random.default_rng(5)
    arguments = list(rng.uniform(-1, 1, (INPUTS, ELEMENTS)).astype("f4"))
    first, second = pullback(program, range(INPUTS), [0], with_primals=True)
    assert (first.primals, second.primals) == ((0,), ())
    cotangent = np.ones(ELEMENTS, "f4")
    (value,) = execute((program,), (OutputRequest(0, 0),), arguments, "cpu")
    _, (primal,) = run(first, [*arguments, cotangent])
    np.testing.assert_array_equal(primal, value)
    plain = pullback(program, range(INPUTS), [0])
    for with_primals, without in zip((first, second), plain, strict=True):
        found, expected = (run(p, [*arguments, cotangent])[0] for p in (with_primals, without))
        np.testing.assert_array_equal(found, expected)


# -- again -----------------------------------------------------------------------------------------


def test_a_pullback_can_be_differentiated():
    """(x, ȳ) → ȳ f'(x) with f = x³ in a loop: its partials are ȳ f'' and f'."""
    b = Builder("cube")
    x = b.param("x", F64)
    _, power = b.while_(
        [b.const(0, I32), b.const(1.0, F64)],
        lambda k, _: b.op("lt", k, b.const(3, I32)),
        lambda k, p: [b.op("add", k, b.const(1, I32)), b.op("mul", p, x)],
    )
    (only,) = pullback(b.finish([power]), [0], [0])
    dual = pushforward(only.program, [0, 1])
    partials = dual.outputs[only.gradients[0]].partials
    values = run_all(dual.program, [np.array([2.0, -1.0]), np.array([3.0, 0.5])])
    np.testing.assert_array_equal(values[partials[0]], [36.0, -3.0])
    np.testing.assert_array_equal(values[partials[1]], [12.0, 3.0])


def test_the_strong_zero_of_a_cotangent_holds_two_derivatives_deep():
    """ȳ·(1/2√x) at x = 0: with ȳ = 0, constant zero along x, and infinitely steep along ȳ."""
    b = Builder("root")
    (only,) = pullback(b.finish([b.op("sqrt", b.param("x", F64))]), [0], [0])
    dual = pushforward(only.program, [0, 1])
    partials = dual.outputs[only.gradients[0]].partials
    values = run_all(dual.program, [np.zeros(1), np.zeros(1)])
    assert values[only.gradients[0]] == 0
    assert values[partials[0]] == 0
    assert values[partials[1]] == math.inf


def run_all(program, arguments):
    requests = tuple(OutputRequest(0, k) for k in range(len(program.outputs)))
    return execute((program,), requests, arguments, "cpu")


# -- refusals --------------------------------------------------------------------------------------


def test_an_op_without_derivative_is_refused_with_the_users_line():
    b = Builder("f")
    x = b.param("x", F64)
    b.line = Line("model.py", 3, "    return polygamma(x, 2)\n")
    program = b.finish([b.op("polygamma", x, b.const(2.0, F64))])
    with pytest.raises(KernelGradientError, match="polygamma") as refusal:
        pullback(program, [0], [0])
    assert (refusal.value.location.filename, refusal.value.location.line) == ("model.py", 3)


def test_a_gradient_of_an_integer_is_refused():
    b = Builder("f")
    n = b.param("n", I32)
    with pytest.raises(ValueError, match="'n' of type i32 cannot carry a derivative"):
        pullback(b.finish([b.convert(n, F64)]), [0], [0])
