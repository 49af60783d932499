"""Special functions: on plain numbers, and inside kernels, against mpmath."""

import functools
import inspect
import math
import pydoc
import tomllib
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpydoc.validate import validate

import mixad
from mixad import special
from mixad.errors import KernelTypeError
from mixad.scalar.interpret import interpret
from mixad.scalar.ops import BY_NAME
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.types import F64

OPS = [name for name in special.__all__ if hasattr(getattr(special, name), "__mixad_op__")]
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
CHECKS = set(PROJECT["tool"]["numpydoc_validation"]["checks"])
DERIVED = {
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "leaky_relu": lambda x: x if x > 0 else x / 100,
    "softsign": lambda x: x / (1 + abs(x)),
    "logit": lambda x: mpmath.log(x / (1 - x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sinc": lambda x: mpmath.sincpi(x),
    "xlogy": lambda x, y: x * mpmath.log(y) if x else 0,
    "xlog1py": lambda x, y: x * mpmath.log(1 + y) if x else 0,
    "log_sigmoid": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "ndtr": lambda x: mpmath.ncdf(x),
    "cosm1": lambda x: mpmath.cos(x) - 1,
    "exp10": lambda x: mpmath.mpf(10) ** x,
    "exprel": lambda x: mpmath.expm1(x) / x if x else 1,
    "entr": lambda x: -x * mpmath.log(x) if x else 0,
    "rel_entr": lambda x, y: x * mpmath.log(x / y) if x else 0,
    "kl_div": lambda x, y: (x * mpmath.log(x / y) if x else 0) - x + y,
    "huber": lambda d, r: r * r / 2 if abs(r) <= d else d * (abs(r) - d / 2),
    "pseudo_huber": lambda d, r: d * (mpmath.sqrt(d * d + r * r) - d),
    "ndtri": lambda p: -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p),
    "normcdf": lambda x: mpmath.ncdf(x),
    "normcdfinv": lambda p: -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p),
    "i0": lambda x: mpmath.besseli(0, x), "i1": lambda x: mpmath.besseli(1, x),
    "i0e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x),
    "i1e": lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x),
    "j0": mpmath.j0, "j1": mpmath.j1,
    "y0": lambda x: mpmath.bessely(0, x), "y1": lambda x: mpmath.bessely(1, x),
    "ellipk": mpmath.ellipk, "ellipe": mpmath.ellipe,
    "ellipkm1": lambda p: mpmath.ellipk(1 - p),
    "beta": mpmath.beta, "betaln": lambda a, b: mpmath.log(abs(mpmath.beta(a, b))),
    "exp1": mpmath.e1, "expi": mpmath.ei, "expn": mpmath.expint,
    "zeta": mpmath.zeta,
    "gammainc": lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
    "gammaincc": lambda a, x: mpmath.gammainc(a, x, regularized=True),
    "abs2": lambda x: x * x,
    "select": lambda c, x, y: x if c else y,
    "log1pexp": lambda x: mpmath.log1p(mpmath.exp(x)),
    "log1mexp": lambda x: mpmath.log(-mpmath.expm1(x)),
    "logsubexp": lambda x, y: y + mpmath.log(mpmath.expm1(x - y)),
    "gelu_tanh": lambda x: x / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (
        x + mpmath.mpf(0.044715) * x**3))),
    "hardtanh": lambda x: min(max(x, -1), 1),
    "sec": mpmath.sec, "csc": mpmath.csc, "cot": mpmath.cot,
    "deg2rad": mpmath.radians, "rad2deg": mpmath.degrees,
    "sind": lambda x: mpmath.sinpi(x / 180), "cosd": lambda x: mpmath.cospi(x / 180),
    "tand": lambda x: mpmath.sinpi(x / 180) / mpmath.cospi(x / 180),
    "secd": lambda x: 1 / mpmath.cospi(x / 180), "cscd": lambda x: 1 / mpmath.sinpi(x / 180),
    "cotd": lambda x: mpmath.cospi(x / 180) / mpmath.sinpi(x / 180),
    "asind": lambda x: mpmath.degrees(mpmath.asin(x)),
    "acosd": lambda x: mpmath.degrees(mpmath.acos(x)),
    "atand": lambda x: mpmath.degrees(mpmath.atan(x)),
    "sinpi": mpmath.sinpi, "cospi": mpmath.cospi,
    "tanpi": lambda x: mpmath.sinpi(x) / mpmath.cospi(x),
}  # fmt: skip
POINTS = (-30.0, -2.5, -0.5, 0.0, 0.25, 0.75, 1.0, 3.0, 30.0)
_TURNS = (-720.5, -90.0, -30.0, 0.25, 1.0, 45.0, 60.0, 1e7)
DOMAINS = {
    **dict.fromkeys(("csc", "cot", "cscd", "cotd", "secd", "tand"), (-30.0, -0.5, 0.25, 45.0, 1e7)),
    **dict.fromkeys(("sind", "cosd"), _TURNS),
    **dict.fromkeys(("sinpi", "cospi"), (-30.0, -2.5, -0.125, 0.0, 0.25, 0.7, 1e7)),
    "tanpi": (-30.0, -0.125, 0.25, 0.7, 1e7),
    **dict.fromkeys(("asind", "acosd"), (-1.0, -0.3, 0.0, 0.25, 1.0)),
    **dict.fromkeys(("ndtri", "normcdfinv"), (1e-12, 0.25, 0.5, 0.9)),
    "log1mexp": (-30.0, -1.0, -0.5, -1e-9),
    "logsubexp": (0.76, 1.0, 3.0, 30.0),
    "logit": (0.25, 0.75, 1e-9),
    "exprel": (-1e300, -30.0, -1.5, -0.5, 0.0, 5e-324, 1e-9, 1.25, 1.5, 30.0, 45.0, 716.0),
    "rsqrt": (0.25, 3.0),
    "y0": (5e-324, 0.25, 1.0, 7.5, 30.0),
    "y1": (1e-300, 0.25, 1.0, 7.5, 30.0),
    **dict.fromkeys(("ellipk", "ellipe"), (-1e300, -30.0, -6.5, -0.5, 0.0, 0.25, 0.875, 0.9999999)),
    "ellipkm1": (1e-20, 0.125, 0.75, 1.0, 8.0, 30.0),
    **dict.fromkeys(("beta", "betaln"), (-30.3, -2.5, -0.5, 1e-20, 0.25, 1.0, 3.0, 30.0, 3e5)),
    "exp1": (1e-300, 0.25, 1.0, 3.0, 30.0),
    "expi": (-30.0, -2.5, -0.5, 1e-300, 0.25, 0.75, 3.0, 30.0, 50.0, 713.0),
    "expn": (0.0, 1.0, 2.0, 7.0, 30.0),
    "zeta": (-21.5, -4.0, -0.5, 0.0, 1e-20, 0.25, 0.75, 1.5, 3.0, 30.0, 120.0),
    **dict.fromkeys(("gammainc", "gammaincc"), (1e-20, 0.25, 0.75, 1.0, 3.0, 30.0)),
    "xlogy": (0.0, 0.25),
    "xlog1py": (0.0, 3.0),
    **dict.fromkeys(("entr", "rel_entr", "kl_div", "huber", "pseudo_huber"), (0.0, 0.25, 0.7, 3.0)),
}


def in_kernel(function, *values):
    source = read_function(function)
    snapshot = source.snapshot()
    parsed = parse(source, [Argument(F64)] * len(values), snapshot)
    numbers = [np.float64(v) for v in values]
    return interpret(parsed.program, (*numbers, *snapshot.values(parsed)))[0]


def test_every_function_is_an_op_or_derived():
    missing = set(special.__all__) - set(OPS) - set(DERIVED)
    assert not missing, f"{missing}: add the formula in mpmath to DERIVED, the points to DOMAINS"
    assert set(OPS) | set(DERIVED) == set(special.__all__)
    assert set(OPS) <= set(BY_NAME)


COVERED = (
    "abs2 rsqrt cbrt fma copysign ldexp select exp2 exp10 logsubexp log1pexp log1mexp logit sec "
    "csc cot sind cosd tand secd cscd cotd asind acosd atand deg2rad rad2deg sinpi cospi tanpi "
    "sinc sigmoid relu leaky_relu elu silu gelu gelu_tanh softplus softsign hardtanh xlogy "
    "xlog1py erf erfc erfcx erfinv erfcinv gamma lgamma digamma trigamma j0 j1 y0 y1 i0 i1 "
    "normcdf normcdfinv polygamma beta exp1 expi expn ellipk ellipe zeta gammainc gammaincc"
).split()
"""What is promised beside the functions of the array API standard."""


def test_what_is_promised_is_there():
    assert {*COVERED} <= {*special.__all__}


@pytest.mark.rows("name", OPS)
def test_ops_take_as_many_arguments_as_the_table_says(name):
    assert len(inspect.signature(getattr(special, name)).parameters) == BY_NAME[name].arity
    assert BY_NAME[name].doc in getattr(special, name).__doc__


@pytest.mark.rows("name", special.__all__)
def test_help_is_complete(name):
    function = getattr(special, name)
    assert (function.__name__, function.__module__) == (name, "mixad.special")
    signature = inspect.signature(function)
    assert set(function.__annotations__) == {*signature.parameters, "return"}
    assert all(p.annotation == "Number" for p in signature.parameters.values())
    errors = {code for code, _ in validate(f"mixad.special.{name}")["errors"]}
    assert not errors & CHECKS
    shown = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert f"\n{name}(" in shown
    assert all(f"{parameter} : number" in shown for parameter in signature.parameters)


def test_star_import_gives_functions_only():
    assert all(inspect.isfunction(getattr(special, name)) for name in special.__all__)
    assert special.__all__ == sorted(set(special.__all__))


def test_parameters_with_defaults_are_said_to_be_optional():
    assert "alpha : number, optional\n    Argument, 1.0 by default." in special.elu.__doc__


@pytest.mark.rows("name", DERIVED)
def test_derived_functions_agree_with_mpmath_outside_and_inside_kernels(name):
    function = getattr(special, name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    for x in DOMAINS.get(name, POINTS):
        values = (x, 0.75, -0.25)[: len(required)]
        with mpmath.workdps(40):
            expected = float(DERIVED[name](*map(mpmath.mpf, values)))
        assert function(*values) == pytest.approx(expected, rel=1e-14, abs=2e-16)
        if len(required) == len(inspect.signature(function).parameters):
            assert in_kernel(function, *values) == function(*values)


WITHOUT_DERIVATIVE = {"expn": ("n",), "select": ("condition",)}
"""Parameters that are a whole number, or a condition."""


def assert_as_on_the_cpu(name, backend):
    """Compare values and partials of a derived function on a backend with the CPU's."""
    function = getattr(special, name)
    signature = inspect.signature(function).parameters
    required = [p for p, entry in signature.items() if entry.default is entry.empty]
    x = np.asarray(DOMAINS.get(name, POINTS))
    points = [x, *(np.full(x.shape, v) for v in (0.75, -0.25))][: len(required)]
    wrt = [p for p in required if p not in WITHOUT_DERIVATIVE.get(name, ())]
    kernel = mixad.broadcast(function if len(required) > 1 else lambda x: function(x))
    wrt = wrt if len(required) > 1 else ["x"]
    got, want = (kernel.with_options(backend=b).duals(*points, wrt=wrt) for b in (backend, "cpu"))
    np.testing.assert_allclose(got.primal, want.primal, rtol=1e-13, atol=1e-300)
    for parameter in wrt:
        here, there = got.partials[parameter], want.partials[parameter]
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-13, err_msg=parameter)


@pytest.mark.rows("name", DERIVED, slow="beta betaln ellipkm1 gammainc gammaincc zeta")
def test_derived_functions_are_the_same_on_the_reference_backend(name):
    assert_as_on_the_cpu(name, "reference")


def test_python_numbers_give_python_numbers():
    assert type(special.sigmoid(0.5)) is float
    assert type(special.tanh(1)) is float
    assert type(special.isnan(1.0)) is bool
    assert special.where(True, 1, 2.5) == 1.0


def test_numpy_scalars_keep_their_type():
    assert special.exp(np.float32(1)).dtype == np.float32
    assert special.pow(np.float32(2), 3) == np.float32(8)


def test_nothing_raises_for_numbers():
    assert special.log(0.0) == -math.inf
    assert math.isnan(special.sqrt(-1.0))


def test_arrays_and_text_are_refused():
    with pytest.raises(KernelTypeError, match="takes numbers, got ndarray"):
        special.tanh(np.ones(3))
    with pytest.raises(KernelTypeError, match="takes 1 arguments"):
        special.tanh(1.0, 2.0)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("name", "log"), [("xlogy", np.log), ("xlog1py", np.log1p)])
def test_gradient_of_xlogy_is_the_logarithm_where_x_is_zero(name, log, backend):
    kernel = mixad.broadcast(getattr(special, name), backend=backend)
    x, y = np.array([0.0, 0.0, 2.0]), np.array([3.0, 0.5, 1.5])
    dx, dy = mixad.grad(lambda x, y: kernel(x, y).sum(), argnums=(0, 1))(x, y)
    np.testing.assert_allclose(dx, log(y), rtol=1e-15)
    slope = 1 / y if name == "xlogy" else 1 / (1 + y)
    np.testing.assert_allclose(dy, x * slope, rtol=1e-15)
    mixed = mixad.grad(lambda y: mixad.grad(lambda x: kernel(x, y).sum())(x).sum())(y)
    np.testing.assert_allclose(mixed, slope, rtol=1e-15)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("function", [special.sinc, np.sinc], ids=["special", "numpy"])
def test_second_derivative_of_sinc_at_zero(function, backend):
    kernel = mixad.broadcast(lambda x: function(x), backend=backend)
    x = np.array([0.0, 1e-9, 1.0])
    second = mixad.grad(lambda x: mixad.grad(lambda x: kernel(x).sum())(x).sum())(x)
    np.testing.assert_allclose(second, [-(np.pi**2) / 3, -(np.pi**2) / 3, 2.0], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_derivative_of_softsign_keeps_its_digits(dtype):
    x = np.asarray([-1e12, -1e4, -3.0, -1.0, -0.3, 0.0, 1e-9, 0.7, 1.0, 2.5, 1e6, np.inf], dtype)
    got = mixad.broadcast(special.softsign).duals(x)
    wide, epsilon = np.abs(x.astype("f8")), np.finfo(dtype).eps
    np.testing.assert_allclose(got.primal[:-1], x[:-1] / (1 + wide[:-1]), rtol=2 * epsilon)
    np.testing.assert_allclose(got.partials["x"], (1 + wide) ** -2, rtol=6 * epsilon)
    assert got.primal[-1] == 1.0


def test_a_function_that_wraps_one_is_compiled_as_what_it_is():
    @functools.wraps(special.exp)
    def exp_up_to_one(x):
        return special.exp(min(x, 1.0))

    np.testing.assert_allclose(mixad.broadcast(exp_up_to_one)(np.asarray([0.5, 3.0])),
                               np.exp([0.5, 1.0]))  # fmt: skip


WHOLE = {
    "beta": (3, 12), "betaln": (2, 5), "gammainc": (9, 300), "gammaincc": (9, 400), "zeta": (3, 2),
    "expn": (3, 2), "exp1": (2,), "expi": (3,), "ellipk": (0,), "ellipe": (-2,), "ellipkm1": (1,),
}  # fmt: skip


@pytest.mark.rows("name", WHOLE, slow="beta betaln exp1")
def test_whole_numbers_are_taken_as_floats(name):
    function, values = getattr(special, name), WHOLE[name]
    floats = function(*map(float, values))
    assert function(*values) == floats
    assert mixad.broadcast(function)(*map(np.asarray, values)) == pytest.approx(floats, rel=1e-14)


@pytest.mark.slow
def test_series_are_no_equations_in_kernels_with_implicit_loops():
    kernel = mixad.broadcast(
        lambda a, x: special.gammainc(a, x) + special.exp1(x), loops="implicit"
    )
    a, x = np.array([2.0, 2.0]), np.array([1.5, 9.0])
    dx = mixad.grad(lambda x: kernel(a, x).sum())(x)
    np.testing.assert_allclose(dx, x * np.exp(-x) - np.exp(-x) / x, rtol=1e-13)


def test_second_derivative_of_ellipkm1_just_below_overflow() -> None:
    """It is 1/2p² but for the last digits, half of what would not be a float32."""
    p = np.float32(4.165e-20)
    kernel = mixad.broadcast(lambda p: special.ellipkm1(p))
    second = mixad.grad(mixad.grad(kernel))(p)
    np.testing.assert_allclose(second, 0.5 / float(p) ** 2, rtol=1e-5)
