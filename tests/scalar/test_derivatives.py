"""Value, first and second derivative of every op: against mpmath, and at special points.

What is promised, op by op, is in `tools.derivative_cases`; errors are in units in the last place.
"""

import math
from dataclasses import replace
from itertools import product

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from mixad import special
from mixad.backends.execute import execute
from mixad.errors import KernelGradientError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import walk_statements
from mixad.scalar.math import expand
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.pushforward import pushforward
from tools.derivative_cases import CASES, DIGITS
from tools.measure_derivatives import (
    DTYPES,
    ORDERS,
    derivatives,
    differentiable,
    expected,
    measure,
    program_of,
    program_of_op,
    ulps,
)

POINTS = 60
"""Random points of each kind, beside the edge points."""
SEED = 7
MODERATE = [(0.3, 0.7, 1.1), (1.7, 0.4, -0.6), (2.6, -1.3, 0.2), (-0.45, 2.0, 0.9)]
NOT_BY_DIFFERENCES = (
    "where",
    "convert",
    "nextafter",
    "floordiv",
    "mod",
    "fmod",
    "polygamma",
    "ldexp",
    "ierfcx",
)
"""Ops whose closed form does not follow mpf arguments that are no floats."""
NAN, INF, PI = math.nan, math.inf, math.pi

DIFFERENTIABLE = [op.name for op in TABLE if op.partials or op.tangent]
DEEPEST = 3
"""Derivatives that are there wherever the first is."""
PUBLIC = [n for n in special.__all__ if n not in BY_NAME or n in DIFFERENTIABLE]
MADE_OF_OPS = [
    "sinc", "xlogy", "xlog1py", "sec", "csc", "cot", "sind", "cosd", "tand", "sinpi", "cospi",
    "tanpi", "log1mexp", "logsubexp", "gelu_tanh", "ndtri", "entr", "rel_entr",
    "kl_div", "pseudo_huber",
    "i0", "i1", "i0e", "i1e", "j0", "j1", "y0", "y1",
    "ellipk", "ellipkm1", "ellipe", "betaln", "beta", "exp1", "expi",
    "exprel",
]  # fmt: skip
"""Functions whose derivatives take care, though rules of ops make them."""

# -- ordinary and edge points ----------------------------------------------------------------------


def test_every_differentiable_op_has_a_case():
    assert {*CASES} == {*DIFFERENTIABLE, *MADE_OF_OPS}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.rows(
    "name",
    CASES,
    slow="beta betaln digamma ellipe ellipk ellipkm1 erfcinv j0 j1 lgamma ndtri polygamma sinc "
    "tanpi trigamma y0 y1",
)
def test_errors_stay_below_what_is_promised(name, dtype):
    bound = CASES[name].bound(dtype)
    for order, worst in zip(ORDERS, measure(name, dtype, POINTS, SEED), strict=True):
        assert worst.ulp <= getattr(bound, order), f"{order}: {worst}"


WITHOUT_ENDS = {
    "minimum", "maximum",  # equal arguments, where the closed form takes one side
    "ldexp", "polygamma", "ierfcx",  # whole numbers only
    "floordiv", "mod", "fmod",  # quotients of more digits than mpmath is given
    "mul_pow",  # its derivative, the second of a power, multiplies x·z first
    "beta",  # a product of gammas, whose logarithms cancel
    "erfc", "erfcx",  # mpmath overflows
    "convert", "digamma", "trigamma",
}  # fmt: skip
FAR = "sind cosd tand beta betaln j0 j1 y0 y1 i0 i1 ellipk ellipkm1 ellipe".split()
"""Whose closed forms cancel there: in large angles, in powers of the smallest numbers."""
SECOND_AT_ENDS = (
    "sqrt log log2 log10 log1p pow hypot atan2 xlogy xlog1py entr rel_entr kl_div pseudo_huber "
    "exp expm1 exprel sigmoid tanh asinh atan logaddexp"
).split()
"""What has second derivatives that nothing in between keeps from being right there, too."""


def ends_of_the_range(dtype):
    """Return numbers near 0, near the largest one, and where squares and fourth powers end."""
    info = np.finfo(dtype)
    tiny, most = float(info.tiny), float(info.max)
    sizes = [float(info.smallest_subnormal), tiny / 16, tiny, 8 * tiny, most**-0.5, most**-0.25,
             1e-5, 0.5, 1.0, 3.0, 1e5, most**0.25, most**0.5, most / 8, most]  # fmt: skip
    return [*sizes, *(-s for s in sizes)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.rows("name", [n for n in CASES if n not in WITHOUT_ENDS])
def test_derivatives_at_the_ends_of_the_range(name, dtype):
    """Where value and derivatives are normal numbers, nothing in between leaves the range."""
    case = CASES[name]
    rows = product(np.array(ends_of_the_range(dtype), dtype).tolist(), repeat=len(case.arguments))
    rows = [r for r in rows if case.domain is None or case.domain(*map(mpf, r))]
    compared = assert_right_where_normal(name, dtype, rows, 2 if name in SECOND_AT_ENDS else 1)
    assert compared or name in ("rint", "floor", "ceil", "trunc", "sign", "acosh")


def assert_right_where_normal(name, dtype, rows, order):
    """Compare derivatives up to an order, where they are normal numbers; return how many."""
    case = CASES[name]
    value, *found = derivatives(name, [np.array(c, dtype) for c in zip(*rows, strict=True)])
    orders = found[:order]
    least, most = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    compared = 0
    with mp.workdps(DIGITS + 400 if name in FAR else DIGITS):
        for k, row in enumerate(rows):
            exact = expected(case, row)
            if not isinstance(exact[0][0], mpf | int) or not np.isfinite(value[0][k]):
                continue
            scales = expected(replace(case, jet=case.scale), row) if case.scale else exact
            for order, wanted, scale in zip(orders, exact[1:], scales[1:], strict=False):
                for got, e, s in zip(order, wanted, scale, strict=True):
                    if least <= abs(e) <= most:
                        compared += 1
                        assert ulps(float(got[k]), e, dtype, s) <= 64, (row, float(got[k]), e)
    return compared


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["pow", "pow_log"])
def test_derivatives_of_powers_that_have_lost_digits(name, dtype):
    """Powers around the smallest normal number, of any base, whose derivatives are larger."""
    rng, least = np.random.default_rng(SEED), math.log(np.finfo(dtype).tiny)
    x = np.concatenate([10 ** rng.uniform(-8, 8, 60), 1 + rng.uniform(-1e-3, 1e-3, 20)])
    x = np.repeat(x.astype(dtype), 3)
    below = rng.uniform(-5, 40 if dtype.itemsize == 8 else 20, x.size)
    y = ((least - below) / np.log(x.astype("f8"))).astype(dtype)
    assert_right_where_normal(name, dtype, list(zip(x.tolist(), y.tolist(), strict=True)), 2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "order"), [("beta", 1), ("betaln", 2)])
def test_derivatives_of_the_beta_function_of_small_and_large_arguments(name, order, dtype):
    rng, digits = np.random.default_rng(SEED), math.log10(np.finfo(dtype).max)
    sizes = digits * rng.uniform([-0.45, 0.1], [-0.1, 0.95], (40, 2))  # one small, one large
    if name == "betaln":
        sizes[20:] = digits * rng.uniform(0.5, 0.95, (20, 1)) + rng.uniform(-1, 1, (20, 2))
    rows = rng.permuted(10**sizes, axis=1).astype(dtype).tolist()
    assert assert_right_where_normal(name, dtype, rows, order) >= 40


@pytest.mark.rows(
    "name", [n for n in CASES if n not in NOT_BY_DIFFERENCES], slow="y0 y1 betaln beta"
)
def test_closed_forms_are_derivatives_of_the_value(name):
    """The references themselves, against mpmath's numerical differentiation."""
    case = CASES[name]
    rows = [tuple(map(mpf, row[: len(case.arguments)])) for row in MODERATE]
    rows = [r for r in rows if isinstance(case.jet(*r)[0], mpf | int)]  # where it is real
    assert rows
    with mp.workdps(DIGITS):
        for row in rows:
            _, first, second = case.jet(*row)
            assert_numerically_equal(case, row, first, 1)
            assert_numerically_equal(case, row, second, 2)


def assert_numerically_equal(case, row, exact, order):
    count = len(row)
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    for which, e in zip([(i,) for i in range(count)] if order == 1 else pairs, exact, strict=False):
        if mp.isnan(e):  # undefined, as the derivative of (-2)³ with respect to the exponent
            continue
        orders = tuple(which.count(i) for i in range(count))
        found = mpmath.diff(lambda *a: case.jet(*a)[0], row, orders)
        assert abs(found - e) <= mpf(10) ** -20 * (1 + abs(e)), (row, which)


@pytest.mark.rows("name", sorted({*DIFFERENTIABLE, *PUBLIC}), slow="gammainc gammaincc beta betaln")
def test_three_derivatives_exist_wherever_one_does(name):
    """DESIGN.md, invariant 4: two derivatives deep works everywhere one does; three as well."""
    program = program_of(name, np.dtype("f8"))
    wrt = differentiable(name, len(program.params))
    for _ in range(DEEPEST):
        dual = pushforward(program, wrt)
        program = dual.program
    assert len(program.outputs) >= 1


def test_the_derivative_with_respect_to_an_order_is_refused():
    with pytest.raises(KernelGradientError, match="polygamma with respect to its argument 1"):
        pushforward(program_of_op("polygamma", np.dtype("f8")), [0])


def test_only_whole_numbers_have_no_derivative():
    without = [(op.name, i) for op in TABLE for i, p in enumerate(op.partials) if p is None]
    assert without == [("ldexp", 1), ("ierfcx", 0), ("polygamma", 0)]


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("gamma", mp.gamma),
        ("lgamma", lambda x: mp.log(abs(mp.gamma(x)))),
        ("digamma", mp.digamma),
        ("trigamma", lambda x: mp.psi(1, x)),
    ],
)
def test_third_derivatives_of_the_gamma_functions(name, exact):
    x = np.array([0.3, 1.0, 1.4616, 2.5, 9.25, 40.0, -0.7, -3.2])
    program, wanted = program_of(name, x.dtype), 0
    for _ in range(3):
        dual = pushforward(program, [0])
        program, wanted = dual.program, dual.outputs[wanted].partials[0]
    (got,) = execute((program,), (OutputRequest(0, wanted),), (x,), "cpu")
    with mp.workdps(DIGITS):
        third = [float(mpmath.diff(exact, mpf(t), 3)) for t in x.tolist()]
    np.testing.assert_allclose(got, third, rtol=1e-14)


def test_an_error_of_two_ulp_is_seen():
    one = np.float32(1)
    two_further = np.nextafter(np.nextafter(one, one + 1), one + 1)
    assert ulps(float(two_further), mpf(1), one.dtype) == 2
    assert ulps(float(two_further), mpf(1), one.dtype, scale=mpf(8)) == 0.25
    assert ulps(NAN, mpf(1), one.dtype) == ulps(INF, mpf(1), one.dtype) == INF
    assert ulps(INF, mpf(10) ** 39, one.dtype) == ulps(2.0**-149, mpf(2) ** -149, one.dtype) == 0


# -- special points --------------------------------------------------------------------------------

Z = (0.0, 0.0, 0.0, 0.0)
ZETA_3, ZETA_5 = float(mp.zeta(3)), float(mp.zeta(5))
DEGREE = PI / 180
ANY = None
"""In a row: not defined, so anything."""

SPECIAL = {  # op: (arguments, value, first derivatives, second derivatives)
    "add": [
        ((INF, 1.0), INF, (1, 1), Z),
        ((INF, -INF), NAN, (1, 1), Z),
        ((NAN, 1.0), NAN, (1, 1), Z),
    ],
    "sub": [((INF, 1.0), INF, (1, -1), Z), ((INF, INF), NAN, (1, -1), Z)],
    "mul": [
        ((0.0, INF), NAN, (INF, 0), (0, 1, 1, 0)),
        ((0.0, 2.0), 0, (2, 0), (0, 1, 1, 0)),
        ((NAN, 1.0), NAN, (1, NAN), (0, 1, 1, 0)),
    ],
    "neg": [((0.0,), 0, (-1,), (0,)), ((-INF,), INF, (-1,), (0,)), ((NAN,), NAN, (-1,), (0,))],
    "floordiv": [
        ((5.5, 2.0), 2, (0, 0), Z),
        ((4.0, 2.0), 2, (0, 0), Z),
        ((-1.0, 3.0), -1, (0, 0), Z),
        ((-1.0, INF), -1, (0, 0), Z),
        ((1.0, 0.0), INF, (0, 0), Z),
        ((NAN, 1.0), NAN, (0, 0), Z),
    ],
    "floor": [
        ((-0.5,), -1, (0,), (0,)),
        ((2.0,), 2, (0,), (0,)),
        ((INF,), INF, (0,), (0,)),
        ((NAN,), NAN, (0,), (0,)),
    ],
    "ceil": [
        ((-0.5,), 0, (0,), (0,)),
        ((2.0,), 2, (0,), (0,)),
        ((INF,), INF, (0,), (0,)),
        ((NAN,), NAN, (0,), (0,)),
    ],
    "trunc": [
        ((-1.5,), -1, (0,), (0,)),
        ((2.0,), 2, (0,), (0,)),
        ((-INF,), -INF, (0,), (0,)),
        ((NAN,), NAN, (0,), (0,)),
    ],
    "rint": [
        ((0.5,), 0, (0,), (0,)),
        ((1.5,), 2, (0,), (0,)),
        ((-INF,), -INF, (0,), (0,)),
        ((NAN,), NAN, (0,), (0,)),
    ],
    "nextafter": [
        ((1.0, 1.0), 1, (1, 0), Z),
        ((INF, INF), INF, (1, 0), Z),
        ((1.0, NAN), NAN, (1, 0), Z),
    ],
    "convert": [
        ((0.5,), 0.5, (1,), (0,)),
        ((INF,), INF, (1,), (0,)),
        ((NAN,), NAN, (1,), (0,)),
    ],
    "digamma": [
        ((0.0,), -INF, (INF,), (-INF,)),
        ((-0.0,), INF, (INF,), (INF,)),
        ((-1.0,), NAN, (INF,), (NAN,)),
        ((1.0,), -np.euler_gamma, (PI**2 / 6,), (-2 * ZETA_3,)),
        ((INF,), INF, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "trigamma": [
        ((0.0,), INF, (-INF,), (INF,)),
        ((-1.0,), INF, (NAN,), (INF,)),
        ((1.0,), PI**2 / 6, (-2 * ZETA_3,), (PI**4 / 15,)),
        ((INF,), 0, (0,), (0,)),
        ((-INF,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "polygamma": [
        ((0.0, 1.0), -np.euler_gamma, (PI**2 / 6,), (-2 * ZETA_3,)),
        ((2.0, 1.0), -2 * ZETA_3, (PI**4 / 15,), (-24 * ZETA_5,)),
        ((2.0, 0.0), -INF, (INF,), (-INF,)),
        ((2.0, -0.0), INF, (INF,), (INF,)),
        ((3.0, -2.0), INF, (NAN,), (INF,)),
        ((4.0, INF), 0, (0,), (0,)),
        ((1.5, 1.0), NAN, (NAN,), (NAN,)),
        ((2.0, NAN), NAN, (NAN,), (NAN,)),
    ],
    "abs": [
        ((0.0,), 0, (0,), (0,)),
        ((-0.0,), 0, (0,), (0,)),
        ((-INF,), INF, (-1,), (0,)),
        ((NAN,), NAN, (NAN,), (0,)),
    ],
    "sign": [((0.0,), 0, (0,), (0,)), ((NAN,), NAN, (0,), (0,))],
    "sqrt": [
        ((0.0,), 0, (INF,), (-INF,)),
        ((INF,), INF, (0,), (0,)),
        ((-1.0,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "cbrt": [
        ((0.0,), 0, (INF,), (ANY,)),  # second: -inf from the right, inf from the left
        ((INF,), INF, (0,), (0,)),
        ((-INF,), -INF, (0,), (0,)),
        ((-8.0,), -2, (1 / 12,), (1 / 144,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "exp": [
        ((0.0,), 1, (1,), (1,)),
        ((-INF,), 0, (0,), (0,)),
        ((INF,), INF, (INF,), (INF,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "exp2": [((-INF,), 0, (0,), (0,)), ((INF,), INF, (INF,), (INF,))],
    "expm1": [((0.0,), 0, (1,), (1,)), ((-INF,), -1, (0,), (0,)), ((INF,), INF, (INF,), (INF,))],
    "log": [
        ((0.0,), -INF, (INF,), (-INF,)),
        ((1.0,), 0, (1,), (-1,)),
        ((INF,), INF, (0,), (0,)),
        ((-1.0,), NAN, (ANY,), (ANY,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "log2": [((0.0,), -INF, (INF,), (-INF,)), ((INF,), INF, (0,), (0,))],
    "log10": [((0.0,), -INF, (INF,), (-INF,)), ((INF,), INF, (0,), (0,))],
    "log1p": [
        ((-1.0,), -INF, (INF,), (-INF,)),
        ((0.0,), 0, (1,), (-1,)),
        ((INF,), INF, (0,), (0,)),
    ],
    "sigmoid": [
        ((0.0,), 0.5, (0.25,), (0,)),
        ((INF,), 1, (0,), (0,)),
        ((-INF,), 0, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "logistic_density": [
        ((0.0,), 0.25, (0,), (-0.125,)),
        ((INF,), 0, (0,), (0,)),
        ((-INF,), 0, (0,), (0,)),
    ],
    "tanh": [((0.0,), 0, (1,), (0,)), ((INF,), 1, (0,), (0,)), ((-INF,), -1, (0,), (0,))],
    "relu": [((0.0,), 0, (0,), (0,)), ((-0.0,), 0, (0,), (0,)), ((INF,), INF, (1,), (0,))],
    "sin": [((0.0,), 0, (1,), (0,)), ((INF,), NAN, (NAN,), (NAN,))],
    "cos": [((0.0,), 1, (0,), (-1,)), ((INF,), NAN, (NAN,), (NAN,))],
    "tan": [((0.0,), 0, (1,), (0,)), ((INF,), NAN, (NAN,), (NAN,))],
    "asin": [
        ((1.0,), PI / 2, (INF,), (INF,)),
        ((-1.0,), -PI / 2, (INF,), (-INF,)),
        ((2.0,), NAN, (NAN,), (NAN,)),
    ],
    "acos": [
        ((1.0,), 0, (-INF,), (-INF,)),
        ((-1.0,), PI, (-INF,), (INF,)),
        ((2.0,), NAN, (NAN,), (NAN,)),
    ],
    "atan": [
        ((0.0,), 0, (1,), (0,)),
        ((INF,), PI / 2, (0,), (0,)),
        ((-INF,), -PI / 2, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "asinh": [
        ((0.0,), 0, (1,), (0,)),
        ((INF,), INF, (0,), (0,)),
        ((-INF,), -INF, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "acosh": [
        ((1.0,), 0, (INF,), (-INF,)),
        ((INF,), INF, (0,), (0,)),
        ((-INF,), NAN, (NAN,), (NAN,)),
        ((0.5,), NAN, (NAN,), (NAN,)),
    ],
    "atanh": [
        ((1.0,), INF, (INF,), (INF,)),
        ((-1.0,), -INF, (INF,), (-INF,)),
        ((0.0,), 0, (1,), (0,)),
    ],
    "sinh": [((0.0,), 0, (1,), (0,)), ((-INF,), -INF, (INF,), (-INF,))],
    "cosh": [((0.0,), 1, (0,), (1,)), ((-INF,), INF, (-INF,), (INF,))],
    "erf": [
        ((INF,), 1, (0,), (0,)),
        ((-INF,), -1, (0,), (0,)),
        ((2e38,), 1, (0,), (0,)),
        ((1e30,), 1, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "erfc": [((INF,), 0, (0,), (0,)), ((-INF,), 2, (0,), (0,)), ((1e30,), 0, (0,), (0,))],
    "gamma": [((0.0,), INF, (-INF,), (INF,)), ((INF,), INF, (INF,), (INF,))],
    "lgamma": [
        ((0.0,), INF, (-INF,), (INF,)),
        ((INF,), INF, (INF,), (0,)),
        ((-2.0,), INF, (NAN,), (INF,)),
    ],
    "div": [
        ((1.0, 0.0), INF, (INF, -INF), (0, -INF, -INF, INF)),
        ((0.0, 2.0), 0, (0.5, 0), (0, -0.25, -0.25, 0)),
        ((1.0, INF), 0, (0, 0), Z),
        ((0.0, 0.0), NAN, (INF, NAN), (0, ANY, ANY, NAN)),
        ((0.0, 1e-45), 0, (ANY, 0), ANY),
        ((NAN, 1.0), NAN, (1, NAN), (0, -1, -1, NAN)),
    ],
    "div_zero": [
        ((0.0, 0.0), 0, (INF, 0), (0, -INF, ANY, 0)),
        ((0.0, NAN), 0, (NAN, 0), ANY),
        ((1.0, 0.0), INF, (INF, -INF), (0, -INF, -INF, INF)),
        ((1.0, INF), 0, (0, 0), Z),
        ((6.0, 2.0), 3, (0.5, -1.5), (0, -0.25, -0.25, 1.5)),
    ],
    "mod": [
        ((5.5, 2.0), 1.5, (1, -2), Z),
        ((-1.0, 3.0), 2, (1, 1), Z),
        ((4.0, 2.0), 0, (1, -2), Z),
        ((1.0, INF), 1, (1, 0), Z),
        ((1.0, 0.0), NAN, (1, ANY), Z),
    ],
    "fmod": [
        ((-5.5, 2.0), -1.5, (1, 2), Z),
        ((1.0, INF), 1, (1, 0), Z),
        ((4.0, 2.0), 0, (1, -2), Z),
    ],
    "minimum": [
        ((2.0, 2.0), 2, (0.5, 0.5), Z),
        ((0.0, -0.0), 0, (0.5, 0.5), Z),
        ((INF, INF), INF, (0.5, 0.5), Z),
        ((-INF, 1.0), -INF, (1, 0), Z),
        ((1.0, NAN), NAN, (ANY, ANY), Z),
    ],
    "maximum": [
        ((2.0, 2.0), 2, (0.5, 0.5), Z),
        ((-0.0, 0.0), 0, (0.5, 0.5), Z),
        ((-INF, -INF), -INF, (0.5, 0.5), Z),
        ((-INF, 1.0), 1, (0, 1), Z),
        ((NAN, 1.0), NAN, (ANY, ANY), Z),
    ],
    "copysign": [
        ((2.0, -3.0), -2, (-1, 0), Z),
        ((-2.0, -0.0), -2, (1, 0), Z),
        ((0.0, -1.0), 0, (-1, 0), Z),  # where x is 0, the sign of y, whatever that of the zero
        ((-0.0, 1.0), 0, (1, 0), Z),
        ((-0.0, -0.0), 0, (-1, 0), Z),
        ((INF, -1.0), -INF, (-1, 0), Z),
    ],
    "where": [
        ((1.0, 2.0, NAN), 2, (1, 0), Z),
        ((0.0, INF, 3.0), 3, (0, 1), Z),
        ((0.0, 1.0, NAN), NAN, (0, 1), Z),
    ],
    "logaddexp": [
        ((-INF, -INF), -INF, (0.5, 0.5), Z),
        ((INF, INF), INF, (0.5, 0.5), Z),
        ((0.0, 0.0), math.log(2), (0.5, 0.5), (0.25, -0.25, -0.25, 0.25)),
        ((INF, -INF), INF, (1, 0), Z),
        ((-INF, 1.0), 1, (0, 1), Z),
        ((NAN, 1.0), NAN, (NAN, NAN), (NAN,) * 4),
    ],
    "pow": [
        ((0.0, 0.0), 1, (0, 0), ANY),
        ((0.0, 1.0), 0, (1, 0), ANY),
        ((0.0, 2.0), 0, (0, 0), (2, 0, 0, 0)),
        ((0.0, 3.0), 0, (0, 0), Z),
        ((0.0, 0.5), 0, (INF, 0), ANY),
        ((0.0, -1.0), INF, (-INF, -INF), (INF,) * 4),
        ((-2.0, 3.0), -8, (12, NAN), (-12, NAN, NAN, NAN)),
        ((4.0, 0.0), 1, (0, math.log(4)), (0, 0.25, 0.25, math.log(4) ** 2)),
        (
            (4.0, 1.0),
            4,
            (1, 4 * math.log(4)),
            (0, 1 + math.log(4), 1 + math.log(4), 4 * math.log(4) ** 2),
        ),
        ((INF, -1.0), 0, (0, 0), Z),
        ((INF, 2.0), INF, (INF, INF), ANY),
        ((NAN, 0.0), 1, (0, NAN), ANY),
        ((1e-20, 2.0), ANY, (2e-20, ANY), (2, ANY, ANY, ANY)),
    ],
    "mul_pow": [
        ((0.0, 0.0, -1.0), 0, (INF, 0, 0), ANY),
        ((2.0, 0.0, 0.0), 2, (1, 0, 0), ANY),
        ((2.0, 0.0, 2.0), 0, (0, 0, 0), ANY),
        ((2.0, 4.0, 1.0), 8, (4, 2, 8 * math.log(4)), ANY),
        ((-3.0, -2.0, 3.0), 24, (-8, -36, NAN), ANY),
        ((2.0, INF, -1.0), 0, (0, 0, 0), ANY),
        ((NAN, 2.0, 1.0), NAN, (2, NAN, NAN), ANY),
    ],
    "pow_log": [
        ((0.0, 0.0), 0, ANY, ANY),
        ((0.0, 1.0), 0, (-INF, 0), ANY),
        ((0.0, 2.0), 0, (0, 0), ANY),
        ((0.0, -1.0), -INF, (INF, INF), ANY),
        ((4.0, 0.0), math.log(4), (0.25, math.log(4) ** 2), ANY),
        ((INF, -1.0), 0, (0, 0), ANY),
        ((-2.0, 3.0), NAN, (NAN, NAN), ANY),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
    ],
    "direction_cosine": [
        ((0.0, 0.0), 0, (0, 0), ANY),
        ((3.0, -4.0), 0.6, (0.128, 0.096), (-0.04608, -0.00256, -0.00256, 0.02208)),
        ((1.0, INF), 0, (0, 0), ANY),
        ((-INF, 1.0), -1, (0, 0), ANY),
        ((INF, INF), NAN, ANY, ANY),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
    ],
    "circle_inversion": [
        ((0.0, 0.0), 0, (0, 0), ANY),
        ((2.0, 0.0), 0.5, (-0.25, 0), (0.25, 0, 0, -0.25)),
        ((0.0, 0.5), 0, (4, 0), (0, -16, -16, 0)),
        ((1.0, INF), 0, (0, 0), Z),
        ((-INF, INF), 0, (0, 0), Z),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
    ],
    "hypot": [
        ((0.0, 0.0), 0, (0, 0), Z),
        ((3.0, -4.0), 5, (0.6, -0.8), (0.128, 0.096, 0.096, 0.072)),
        ((1.0, INF), INF, (0, 1), Z),
        ((-INF, 1.0), INF, (-1, 0), Z),
        ((INF, INF), INF, (ANY, ANY), ANY),
        ((NAN, 1.0), NAN, (NAN, NAN), (NAN,) * 4),
    ],
    "atan2": [
        ((0.0, 0.0), 0, (0, 0), Z),
        ((0.0, 1.0), 0, (1, 0), (0, -1, -1, 0)),
        ((0.0, -1.0), PI, (-1, 0), (0, -1, -1, 0)),
        ((1.0, INF), 0, (0, 0), Z),
        ((INF, INF), PI / 4, (0, 0), Z),
    ],
    "fma": [((0.0, 2.0, 1.0), 1, (2, 0, 1), (0, 1, 0, 1, 0, 0, 0, 0, 0))],
    "mul_zero": [((0.0, INF), 0, (INF, 0), (0, 1, 1, 0)), ((0.0, NAN), 0, (NAN, 0), (0, 1, 1, 0))],
    "sinc": [
        ((0.0,), 1, (0,), (-(PI**2) / 3,)),
        ((-0.0,), 1, (0,), (-(PI**2) / 3,)),
        ((1e-30,), 1, (ANY,), (-(PI**2) / 3,)),
        ((1.0,), 0, (-1,), (2,)),
        ((-2.0,), 0, (-0.5,), (-0.5,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "xlogy": [
        ((0.0, 3.0), 0, (math.log(3), 0), (0, 1 / 3, 1 / 3, 0)),
        ((0.0, 0.0), 0, (-INF, 0), (0, INF, INF, 0)),
        ((0.0, INF), 0, (INF, 0), (0, 0, 0, 0)),
        ((2.0, 1.0), 0, (0, 2), (0, 1, 1, -2)),
        ((0.0, NAN), NAN, (NAN, 0), (0, ANY, ANY, 0)),
    ],
    "xlog1py": [
        ((0.0, 3.0), 0, (math.log(4), 0), (0, 0.25, 0.25, 0)),
        ((0.0, -1.0), 0, (-INF, 0), (0, INF, INF, 0)),
        ((2.0, 0.0), 0, (0, 2), (0, 1, 1, -2)),
        ((0.0, NAN), NAN, (NAN, 0), (0, ANY, ANY, 0)),
    ],
    "entr": [
        ((0.0,), 0, (INF,), (-INF,)),
        ((1.0,), 0, (-1,), (-1,)),
        ((-1.0,), -INF, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "rel_entr": [
        ((0.0, 3.0), 0, (-INF, 0), (INF, -1 / 3, -1 / 3, 0)),
        ((2.0, 2.0), 0, (1, -1), (0.5, -0.5, -0.5, 0.5)),
        ((0.0, 0.0), 0, ANY, ANY),
        ((2.0, 0.0), INF, (0, 0), Z),
        ((-2.0, 1.0), INF, (0, 0), Z),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
    ],
    "kl_div": [
        ((0.0, 3.0), 3, (-INF, 1), (INF, -1 / 3, -1 / 3, 0)),
        ((2.0, 2.0), 0, (0, 0), (0.5, -0.5, -0.5, 0.5)),
        ((0.0, 0.0), 0, (ANY, 1), ANY),
        ((2.0, 0.0), INF, (0, 0), Z),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
    ],
    "pseudo_huber": [
        ((0.0, 0.0), 0, (0, 0), Z),
        ((2.0, 0.0), 0, (0, 0), (0, 0, 0, 1)),
        ((0.0, -2.0), 0, (2, 0), (-2, -1, -1, 0)),
        ((3.0, 4.0), 6, (0.8, 2.4), (-0.416, 0.512, 0.512, 0.216)),
        ((2.0, INF), INF, (INF, 2), ANY),
        ((-1.0, 1.0), INF, (0, 0), Z),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
    ],
    "erfcx": [
        ((0.0,), 1, (-2 / math.sqrt(PI),), (2,)),
        ((INF,), 0, (0,), (0,)),
        ((-INF,), INF, (-INF,), (INF,)),
        ((-30.0,), INF, (-INF,), (INF,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "ierfcx": [
        ((1.0, 0.0), 1 / math.sqrt(PI), (-1,), (4 / math.sqrt(PI),)),
        ((2.0, INF), 0, (0,), (0,)),
        ((1.0, -INF), INF, (-INF,), (INF,)),
        ((1.5, 1.0), NAN, (NAN,), (NAN,)),
        ((0.0, NAN), NAN, (NAN,), (NAN,)),
    ],
    "erfinv": [
        ((0.0,), 0, (math.sqrt(PI) / 2,), (0,)),
        ((1.0,), INF, (INF,), (INF,)),
        ((-1.0,), -INF, (INF,), (-INF,)),
        ((1.5,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "erfcinv": [
        ((1.0,), 0, (-math.sqrt(PI) / 2,), (0,)),
        ((0.0,), INF, (-INF,), (INF,)),
        ((2.0,), -INF, (-INF,), (-INF,)),
        ((-0.5,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "ndtri": [
        ((0.5,), 0, (math.sqrt(2 * PI),), (0,)),
        ((0.0,), -INF, (INF,), (-INF,)),
        ((1.0,), INF, (INF,), (INF,)),
        ((-1.0,), NAN, (NAN,), (NAN,)),
    ],
    "i0": [
        ((0.0,), 1, (0,), (0.5,)),
        ((INF,), INF, (INF,), (INF,)),
        ((-INF,), INF, (-INF,), (INF,)),
        ((-1000.0,), INF, (-INF,), (INF,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "i1": [
        ((0.0,), 0, (0.5,), (0,)),
        ((INF,), INF, (INF,), (INF,)),
        ((-1000.0,), -INF, (INF,), (-INF,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "i0e": [
        ((0.0,), 1, (0,), ANY),
        ((INF,), 0, (0,), (0,)),
        ((-INF,), 0, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "i1e": [
        ((0.0,), 0, (0.5,), ANY),
        ((INF,), 0, (0,), (0,)),
        ((-INF,), 0, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "j0": [
        ((0.0,), 1, (0,), (-0.5,)),
        ((INF,), 0, (0,), (0,)),
        ((-INF,), 0, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "j1": [
        ((0.0,), 0, (0.5,), (0,)),
        ((-INF,), 0, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    **dict.fromkeys(
        ("y0", "y1"),
        (
            ((0.0,), -INF, (INF,), (-INF,)),
            ((-0.0,), -INF, ANY, ANY),
            ((-1.0,), NAN, (NAN,), (NAN,)),
            ((-INF,), NAN, (NAN,), (NAN,)),
            ((INF,), 0, (0,), (0,)),
            ((NAN,), NAN, (NAN,), (NAN,)),
        ),
    ),
    "ellipk": [
        ((0.0,), PI / 2, (PI / 8,), (9 * PI / 64,)),
        ((1.0,), INF, (INF,), (INF,)),
        ((-INF,), 0, (0,), (0,)),
        ((1.5,), NAN, (NAN,), (NAN,)),
        ((INF,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "ellipkm1": [
        ((1.0,), PI / 2, (-PI / 8,), (9 * PI / 64,)),
        ((0.0,), INF, (-INF,), (INF,)),
        ((INF,), 0, (0,), (0,)),
        ((-0.5,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "ellipe": [
        ((0.0,), PI / 2, (-PI / 8,), (-3 * PI / 64,)),
        ((1.0,), 1, (-INF,), (-INF,)),
        ((-INF,), INF, (0,), (0,)),
        ((1.5,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "betaln": [
        ((1.0, 1.0), ANY, (-1, -1), (1, 1 - PI**2 / 6, 1 - PI**2 / 6, 1)),
        ((0.0, 2.0), INF, (-INF, 0), (INF, ANY, ANY, 0)),
        ((INF, 2.0), -INF, ANY, ANY),
        ((-1.0, 1.5), INF, ANY, ANY),
        ((-2.0, 1.0), NAN, ANY, ANY),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
        ((1.0, NAN), NAN, (NAN, NAN), ANY),
    ],
    "beta": [
        ((1.0, 1.0), 1, (-1, -1), ANY),
        ((0.0, 2.0), INF, (-INF, ANY), ANY),
        ((INF, 2.0), 0, ANY, ANY),
        ((-0.5, 0.5), 0, ANY, ANY),
        ((-1.0, 1.5), INF, ANY, ANY),
        ((-2.0, 1.0), NAN, ANY, ANY),
        ((NAN, 1.0), NAN, (NAN, NAN), ANY),
        ((-NAN, -1.5), NAN, (NAN, NAN), ANY),
    ],
    "exp1": [
        ((0.0,), INF, (-INF,), (INF,)),
        ((INF,), 0, (0,), (0,)),
        ((-1.0,), NAN, ANY, ANY),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "expi": [
        ((0.0,), -INF, (INF,), (-INF,)),
        ((INF,), INF, (INF,), (INF,)),
        ((-INF,), 0, (0,), (0,)),
        ((1000.0,), INF, (INF,), (INF,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "ldexp": [
        ((1.5, 3.0), 12, (8,), (0,)),
        ((1.0, 2000.0), INF, (INF,), (0,)),
        ((INF, -5.0), INF, (1 / 32,), (0,)),
        ((NAN, 1.0), NAN, (2,), (0,)),
    ],
    "sec": [((0.0,), 1, (0,), (1,)), ((INF,), NAN, (NAN,), (NAN,))],
    "csc": [((0.0,), INF, (-INF,), (INF,)), ((INF,), NAN, (NAN,), (NAN,))],
    "cot": [((0.0,), INF, (-INF,), ANY), ((INF,), NAN, (NAN,), (NAN,))],
    "sind": [
        ((0.0,), 0, (DEGREE,), (0,)),
        ((90.0,), 1, (0,), (-(DEGREE**2),)),
        ((-180.0,), 0, (-DEGREE,), (0,)),
        ((270.0,), -1, (0,), (DEGREE**2,)),
        ((360.0 * 2**40,), 0, (DEGREE,), (0,)),
        ((INF,), NAN, (NAN,), (NAN,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "cosd": [
        ((0.0,), 1, (0,), (-(DEGREE**2),)),
        ((90.0,), 0, (-DEGREE,), (0,)),
        ((180.0,), -1, (0,), (DEGREE**2,)),
        ((-90.0,), 0, (DEGREE,), (0,)),
        ((INF,), NAN, (NAN,), (NAN,)),
    ],
    "tand": [
        ((180.0,), 0, (DEGREE,), (0,)),
        ((90.0,), INF, (INF,), ANY),
        ((270.0,), -INF, (INF,), ANY),
        ((INF,), NAN, (NAN,), (NAN,)),
    ],
    "sinpi": [
        ((0.5,), 1, (0,), (-(PI**2),)),
        ((-1.0,), 0, (-PI,), (0,)),
        ((1.5,), -1, (0,), (PI**2,)),
        ((1e30,), 0, (PI,), (0,)),
        ((INF,), NAN, (NAN,), (NAN,)),
    ],
    "cospi": [
        ((0.5,), 0, (-PI,), (0,)),
        ((1.0,), -1, (0,), (PI**2,)),
        ((1e30,), 1, (0,), (-(PI**2),)),
        ((-INF,), NAN, (NAN,), (NAN,)),
    ],
    "tanpi": [
        ((1.0,), 0, (PI,), (0,)),
        ((0.5,), INF, (INF,), ANY),
        ((1.5,), -INF, (INF,), ANY),
        ((INF,), NAN, (NAN,), (NAN,)),
    ],
    "log1mexp": [
        ((0.0,), -INF, (-INF,), (-INF,)),
        ((-INF,), 0, (0,), (0,)),
        ((1.0,), NAN, ANY, ANY),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "logsubexp": [
        ((1.0, 1.0), -INF, (INF, -INF), (-INF, INF, INF, -INF)),
        ((1.0, -INF), 1, (1, 0), Z),
        ((INF, 1.0), INF, (1, 0), Z),
        ((-INF, -INF), -INF, (1, 0), Z),
        ((0.0, 1.0), NAN, ANY, ANY),
        ((NAN, 1.0), NAN, (NAN, NAN), (NAN,) * 4),
    ],
    "exprel": [
        ((0.0,), 1, (0.5,), (1 / 3,)),
        ((-0.0,), 1, (0.5,), (1 / 3,)),
        ((1e-30,), 1, (0.5,), (1 / 3,)),
        ((1000.0,), INF, (INF,), (INF,)),
        ((INF,), INF, (INF,), (INF,)),
        ((-INF,), 0, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "gelu_tanh": [
        ((0.0,), 0, (0.5,), (math.sqrt(2 / PI),)),
        ((INF,), INF, (1,), (0,)),
        ((-INF,), 0, (0,), (0,)),
        ((-1e30,), 0, (0,), (0,)),
        ((NAN,), NAN, (NAN,), (NAN,)),
    ],
    "mul_zeros": [((0.0, INF), 0, (INF, 0), (0, 1, 1, 0)), ((NAN, 0.0), 0, (0, NAN), (0, 1, 1, 0))],
}


@pytest.mark.rows("dtype", DTYPES, ids=str)
@pytest.mark.rows("name", SPECIAL, slow="beta betaln")
def test_special_points_have_the_stated_derivatives(name, dtype):
    rows = SPECIAL[name]
    columns = [np.array(c, dtype) for c in zip(*(row[0] for row in rows), strict=True)]
    value, first, second = derivatives(name, columns)
    for k, (arguments, *stated) in enumerate(rows):
        found = ([value[0][k]], [f[k] for f in first], [s[k] for s in second])
        wanted = ((stated[0],), *stated[1:])
        for order, got, want in zip(ORDERS, found, wanted, strict=True):
            if want is not ANY:
                assert agree(got, want, dtype), f"{name}{arguments}, {order}: {got}, not {want}"


def agree(got, want, dtype):
    tolerance = 8 * np.finfo(dtype).eps
    return all(
        w is ANY or (math.isnan(w) and np.isnan(g)) or g == w or abs(g - w) <= tolerance * abs(w)
        for g, w in zip(got, want, strict=True)
    )


def test_every_differentiable_op_has_special_points():
    assert {*SPECIAL} == {*CASES}


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_derivatives_of_sigmoid_and_tanh_cost_one_exponential_and_one_division(name):
    program = program_of_op(name, np.dtype("f4"))
    for _ in range(3):
        program = pushforward(program, [0]).program
        ops = [getattr(s, "op", None) for s in walk_statements(expand(program).body)]
        assert (ops.count("shl"), ops.count("bounded_reciprocal")) == (1, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_second_derivatives_of_sigmoid_and_tanh_keep_their_digits_near_zero(dtype):
    x = np.array([1e-8, -1e-12, 1e-30], dtype)
    for name, slope in (("tanh", -2.0), ("sigmoid", -0.125)):
        _, _, (second,) = derivatives(name, [x])
        np.testing.assert_allclose(second / x, slope, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_third_derivative_of_sinc_keeps_its_digits(dtype):
    x = np.array([0.0, 1e-12, 1e-3, 0.2, 0.49999, 0.5, 0.50001, 0.9, 1.0, 3.3, -0.25, -7.5], dtype)
    program, wanted = program_of("sinc", dtype), 0
    for _ in range(3):
        dual = pushforward(program, [0])
        program, wanted = dual.program, dual.outputs[wanted].partials[0]
    (got,) = execute((program,), (OutputRequest(0, wanted),), (x,), "cpu")
    with mp.workdps(DIGITS):
        exact = [mpmath.diff(mpmath.sincpi, mpf(t), 3) for t in x.tolist()]
    for g, e, t in zip(got, exact, x.tolist(), strict=True):
        assert ulps(float(g), e, dtype, PI**2 / t if abs(t) >= 0.5 else 0) <= 30, t


# -- one argument active at a time -----------------------------------------------------------------


def test_power_of_a_negative_base_has_a_derivative_where_the_exponent_is_not_active():
    x, y = np.array([-2.0, -2.0, -3.0]), np.array([3.0, 2.0, 0.0])
    dual = pushforward(program_of_op("pow", x.dtype), [0])
    assert "log" not in {getattr(s, "op", None) for s in dual.program.body.statements}
    _, first, _ = derivatives("pow", [x, y])
    np.testing.assert_array_equal(first[0], [12.0, -4.0, 0.0])


@pytest.mark.rows("name", [op.name for op in TABLE if op.partials])
def test_a_static_zero_partial_has_no_entry(name):
    op = BY_NAME[name]
    wrt = [i for i in range(op.arity) if op.partials[i] is not None]
    if wrt:
        (dual,) = pushforward(program_of_op(name, np.dtype("f4")), wrt).outputs
        assert {*dual.partials} == {k for k, i in enumerate(wrt) if op.partials[i] != "0"}
