"""Distributions have SciPy's values, mpmath's in the tails, and the derivatives of differences."""

import importlib.util
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from checks import check_values

import mixad
from mixad.errors import MixadError, TracerError
from mixad.scipy import stats
from mixad.scipy.programs.families import FAMILIES

pytest.importorskip("scipy")

import scipy.stats

SHAPES = {"a": 2.3, "b": 1.7, "df": 3.5, "dfn": 4.0, "dfd": 6.5, "s": 0.7, "c": 1.8, "p": 0.3,
          "mu": 3.4, "n": 7.0}  # fmt: skip
ANYWHERE = np.asarray([-30.0, -2, -0.5, 0, 0.01, 0.3, 0.5, 0.9, 1, 1.5, 3, 20, 200, np.nan])
INSIDE = np.asarray([0.02, 0.2, 0.48, 0.55, 0.7, 0.95, 0.99])  # probabilities
PROBABILITIES = np.asarray([-0.1, 0, 1e-12, 0.01, 0.2, 0.5, 0.52, 0.7, 0.95, 1 - 1e-9, 1, 1.1])
COUNTS = np.asarray([-2.0, -1, 0, 0.5, 1, 2, 3, 6, 7, 8, 30, np.nan])
LONG = {"beta", "binom", "chi2", "f", "gamma", "nbinom", "poisson", "t"}
"""Families whose programs take half a second to compile."""
COUNTED = {
    "poisson": [
        ((0.5, np.inf), np.inf),
        ((0.5, 1e16), 1e16),
        ((np.float32(0.5), np.float32(3e7)), 3e7),
    ],
    "binom": [((0.5, np.inf, 0.3), np.inf), ((0.5, 1e17, 0.3), 3e16)],
    "nbinom": [((0.5, np.inf, 0.3), np.inf)],
}
"""Arguments of quantiles, and what these are."""
HAS_TORCH = importlib.util.find_spec("torch") is not None


def methods(name: str) -> list[str]:
    first = ["logpmf", "pmf"] if FAMILIES[name].is_discrete else ["logpdf", "pdf"]
    return [*first, "logcdf", "cdf", "sf", "ppf"]


FUNCTIONS = [
    pytest.param(name, method, marks=[pytest.mark.slow] * (name in LONG))
    for name in FAMILIES
    for method in methods(name)
]


def shapes_of(name: str) -> list[float]:
    return [SHAPES[shape] for shape in FAMILIES[name].shapes]


def place_of(name: str) -> list[float]:
    return [2.0] if FAMILIES[name].is_discrete else [0.1, 1.3]


def call(module: Any, name: str, method: str) -> Callable[..., Any]:
    return getattr(getattr(module, name), method)


def test_there_are_the_twenty_most_used() -> None:
    assert len(FAMILIES) == 20
    assert stats.__all__ == sorted(FAMILIES)
    for name, family in FAMILIES.items():
        scipys = getattr(scipy.stats, name)
        assert (
            family.shapes
            == tuple((scipys.shapes or "").replace(" ", "").split(","))[: scipys.numargs]
        )
        assert repr(getattr(stats, name)) == f"<mixad.scipy.stats.{name}>"


@pytest.mark.parametrize(("name", "method"), FUNCTIONS)
def test_values_are_scipys(name: str, method: str) -> None:
    discrete = FAMILIES[name].is_discrete
    x = PROBABILITIES if method == "ppf" else COUNTS + 2 if discrete else ANYWHERE
    found = call(stats, name, method)(x, *shapes_of(name), *place_of(name))
    with np.errstate(all="ignore"):
        wanted = call(scipy.stats, name, method)(x, *shapes_of(name), *place_of(name))
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-18)


def differences(function: Callable[[float], Any], step: Any) -> Any:
    """Return the slope at 0 of a function, exactly for polynomials of degree four."""
    near, far = (function(s * step) - function(-s * step) for s in (1, 2))
    return (8 * near - far) / (12 * step)


@pytest.mark.parametrize(("name", "method"), FUNCTIONS)
def test_derivatives_are_those_of_differences(name: str, method: str) -> None:
    """With respect to the number, shapes, location and scale, of what is not a whole number.

    Where programs are long, location and scale, by which all are the same, are left out.
    """
    family, shapes, place = FAMILIES[name], shapes_of(name), place_of(name)
    reference = call(scipy.stats, name, method)
    if method == "ppf":
        x = INSIDE
    elif family.is_discrete:
        x = np.arange(1.0, 2.0 if name == "bernoulli" else 6.0) + place[0]
    else:
        x = scipy.stats.__dict__[name].ppf(INSIDE, *shapes, *place)
    arguments = [x, *map(np.float64, (*shapes, *place))]
    smooth = range(1 + len(shapes) if name in LONG else len(arguments))
    if family.is_discrete:
        if method == "ppf":
            smooth = range(0)  # whole numbers
        else:
            smooth = [1 + i for i, shape in enumerate(family.shapes) if shape != "n"]
    weights = np.cos(np.arange(x.size))

    def weighted(*values: Any) -> Any:
        given = list(arguments)
        for at, value in zip(smooth, values, strict=True):
            given[at] = value
        return (call(stats, name, method)(*given) * weights).sum()

    if not smooth:
        at_all = tuple(range(1 + len(shapes)))
        found = mixad.grad(
            lambda *v: (call(stats, name, method)(*v) * weights).sum(), argnums=at_all
        )(*arguments[: 1 + len(shapes)])
        assert not any(map(np.any, found))
        return
    starts = [arguments[at] for at in smooth]
    found = mixad.grad(weighted, argnums=tuple(range(len(starts))))(*starts)
    for at, gradient in zip(smooth, found, strict=True):
        # Steps that stay in the support, and on one side of the middle, where some have a kink.
        step = 1e-4 * (np.minimum(x, 1 - x) * 3 if method == "ppf" and not at else 1.0)

        def moved(s: Any, at: int = at) -> Any:
            return reference(*[a + s if i == at else a for i, a in enumerate(arguments)])

        slopes = differences(moved, step) * weights
        wanted = slopes if at == 0 else slopes.sum()
        np.testing.assert_allclose(gradient, wanted, rtol=2e-5, atol=1e-7)


# -- tails -----------------------------------------------------------------------------------------


def exact(value: Any) -> Any:
    return mpmath.mpf(value)


def slope(function: Callable[..., Any], arguments: list[Any], at: int) -> float:
    """Return a difference quotient whose error is below the digits of floats."""
    step = (abs(arguments[at]) or 1) * exact("1e-20")
    ends = [[a + s * step * (i == at) for i, a in enumerate(arguments)] for s in (1, -1)]
    return float((function(*ends[0]) - function(*ends[1])) / (2 * step))


def beta_share(a: Any, b: Any, x: Any) -> Any:
    """DLMF 8.17.8, whose terms are positive."""
    if x > exact("0.9"):
        return 1 - beta_share(b, a, 1 - x)
    total = term = exact(1)
    k = 0
    while term > total * mpmath.eps:
        term *= (a + b + k) / (a + 1 + k) * x
        total += term
        k += 1
    factor = mpmath.gammaprod([a + b], [a + 1, b])
    return x**a * (1 - x) ** b * factor * total


def gamma_below(a: Any, z: Any) -> Any:
    """DLMF 8.5.1; mpmath's own does not end for some arguments."""
    return z**a * mpmath.exp(-z) * mpmath.hyp1f1(1, a + 1, z) / mpmath.gamma(a + 1)


def gamma_above(a: Any, z: Any) -> Any:
    return mpmath.gammainc(a, z, mpmath.inf) / mpmath.gamma(a)


def t_tail(z: Any, df: Any) -> Any:
    return beta_share(df / 2, exact(1) / 2, df / (df + z * z)) / 2


TAILS: dict[str, tuple[Callable[..., Any], list[tuple[float, ...]]]] = {
    "norm.logcdf": (lambda z: mpmath.log(mpmath.ncdf(z)), [(-40.0,), (-1.0,), (0.3,), (9.0,)]),
    "norm.sf": (lambda z: mpmath.ncdf(-z), [(30.0,), (5.0,)]),
    "cauchy.cdf": (lambda z: mpmath.acot(-z) / mpmath.pi, [(-1e15,), (-3.0,)]),
    "logistic.logcdf": (lambda z: -mpmath.log1p(mpmath.exp(-z)), [(-800.0,), (40.0,)]),
    "expon.logcdf": (lambda z: mpmath.log(-mpmath.expm1(-z)), [(1e-200,), (30.0,)]),
    "gumbel_r.sf": (lambda z: -mpmath.expm1(-mpmath.exp(-z)), [(50.0,)]),
    "pareto.logcdf": (lambda z, b: mpmath.log1p(-(z**-b)), [(1.0 + 2.0**-40, 2.3), (1e9, 2.3)]),
    "gamma.sf": (lambda z, a: gamma_above(a, z), [(600.0, 2.3), (150.0, 100.0)]),
    "gamma.logcdf": (
        lambda z, a: mpmath.log(gamma_below(a, z)),
        [(1e-250, 2.3), (1e-3, 200.0), (2.0, 2.3), (20.0, 2.3)],
    ),
    "beta.logcdf": (
        lambda x, a, b: mpmath.log(beta_share(a, b, x)),
        [(1e-250, 2.3, 1.7), (0.01, 500.0, 300.0), (0.6, 2.3, 1.7)],
    ),
    "beta.sf": (lambda x, a, b: beta_share(b, a, 1 - x), [(1 - 2.0**-40, 2.3, 5.0)]),
    "beta.cdf": (lambda x, a, b: beta_share(a, b, x), [(0.49, 3000.0, 3000.0), (0.3, 0.01, 40.0)]),
    "t.cdf": (t_tail, [(-1e12, 3.5), (-30.0, 3.5), (-3.0, 1e3), (-1e-3, 3.5)]),
    "f.sf": (
        lambda z, m, n: beta_share(n / 2, m / 2, n / (n + m * z)),
        [(1e8, 4.0, 6.5), (1e-8, 4.0, 6.5)],
    ),
    "binom.sf": (
        lambda k, n, p: beta_share(k + 1, n - k, p),
        [(60.0, 100.0, 0.01), (900.0, 1000.0, 0.3)],
    ),
    "poisson.sf": (lambda k, mu: gamma_below(k + 1, mu), [(100.0, 3.4), (2000.0, 1000.0)]),
    "nbinom.logcdf": (
        lambda k, n, p: mpmath.log(beta_share(n, k + 1, p)),
        [(1.0, 400.0, 0.01), (60.0, 7.0, 0.3)],
    ),
}
"""What functions are, and points at which others cancel, underflow or overflow."""


@pytest.mark.slow
@pytest.mark.parametrize("function", TAILS)
def test_values_and_derivatives_keep_their_digits_in_the_tails(function: str) -> None:
    """By the number and by shapes; only relative errors count."""
    formula, points = TAILS[function]
    name, _, method = function.partition(".")
    own, first = call(stats, name, method), 1 if FAMILIES[name].is_discrete else 0
    for point in points:
        places = [at for at in range(first, len(point)) if not (name == "binom" and at == 1)]
        with mpmath.workdps(80):
            arguments = list(map(exact, point))
            wanted = float(formula(*arguments))
            slopes = [slope(formula, arguments, at) for at in places]
        np.testing.assert_allclose(own(*point), wanted, rtol=2e-11)
        found = mixad.grad(own, argnums=tuple(places))(*point)
        np.testing.assert_allclose(found, slopes, rtol=2e-9)


QUANTILES = {
    "gamma": [(1e-300, 2.3), (1e-8, 0.05), (0.6, 0.02), (1 - 1e-12, 0.3), (0.5, 1e4)],
    "beta": [(1e-300, 2.3, 1.7), (0.7, 0.02, 3.0), (1 - 1e-6, 2.0, 0.9), (0.5, 1e3, 2e3)],
    "t": [(1e-200, 3.5), (0.5 + 1e-11, 3.5), (0.5, 3.5), (0.45, 1.0), (1 - 1e-9, 200.0)],
    "f": [(1e-200, 4.0, 6.5), (1 - 1e-12, 4.0, 6.5)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTILES)
def test_quantiles_are_where_the_distribution_function_is_what_was_given(name: str) -> None:
    """By mpmath; the derivative by the probability is 1 over the density."""
    cdf = {
        "gamma": lambda z, a: gamma_below(a, z),
        "beta": lambda z, a, b: beta_share(a, b, z),
        "t": lambda z, df: t_tail(z, df) if z < 0 else 1 - t_tail(z, df),
        "f": lambda z, m, n: beta_share(m / 2, n / 2, m * z / (n + m * z)),
    }[name]
    for q, *shapes in QUANTILES[name]:
        z = getattr(stats, name).ppf(q, *shapes)
        with mpmath.workdps(80):
            arguments = [exact(float(z)), *map(exact, shapes)]
            density = slope(cdf, arguments, 0)
            moved = float(cdf(*arguments) - exact(q)) / density  # from the exact one
        assert abs(moved) <= 1e-13 * abs(z) + 1e-15
        found = mixad.grad(getattr(stats, name).ppf)(q, *shapes)
        np.testing.assert_allclose(found, 1 / density, rtol=1e-9)


@pytest.mark.slow
def test_second_derivatives_are_mpmaths() -> None:
    """Of quantiles, whose search is differentiated, by both shapes; of a cdf by a shape."""

    def log_tail(df: Any) -> Any:
        return stats.t.logcdf(-2.0, df)

    with mpmath.workdps(60):
        wanted = float(mpmath.diff(lambda df: mpmath.log(t_tail(exact(2), df)), exact(3.5), 2))

        def root(a: Any, b: Any) -> Any:
            return mpmath.findroot(lambda x: beta_share(a, b, x) - exact("0.3"), 0.4)

        a, b = exact(2.3), exact(1.7)
        hessian = [
            [float(mpmath.diff(root, (a, b), n, h=exact("1e-12"))) for n in row]
            for row in (((2, 0), (1, 1)), ((1, 1), (0, 2)))
        ]
    np.testing.assert_allclose(mixad.grad(mixad.grad(log_tail))(3.5), wanted, rtol=1e-9)
    found = mixad.hessian(lambda s: stats.beta.ppf(0.3, s[0], s[1]))(np.asarray([2.3, 1.7]))
    np.testing.assert_allclose(found, hessian, rtol=1e-8)


# -- ends of ranges, and of floats -----------------------------------------------------------------


ENDS = {
    "bernoulli": [("pmf", 1, (), 0.0, 1.0), ("pmf", 0, (), 1.0, -1.0)],
    "binom": [
        ("pmf", 1, (5,), 0.0, 5.0),
        ("pmf", 4, (5,), 1.0, -5.0),
        ("pmf", 0, (5,), 0.0, -5.0),
        ("pmf", 1000, (2000,), 0.0, 0.0),
        ("pmf", 1, (0,), 0.0, 0.0),
        ("sf", 0, (5,), 0.0, 5.0),
        ("cdf", 4, (5,), 1.0, -5.0),
        ("logcdf", 0, (5,), 0.0, -5.0),
    ],
    "poisson": [("pmf", 1, (), 0.0, 1.0), ("pmf", 2, (), 0.0, 0.0), ("sf", 0, (), 0.0, 1.0)],
    "geom": [
        ("cdf", 1, (), 1.0, 1.0),
        ("sf", 1, (), 1.0, -1.0),
        ("sf", 2, (), 1.0, 0.0),
        ("logcdf", 1, (), 1.0, 1.0),
        ("pmf", 2, (), 1.0, -1.0),
    ],
    "nbinom": [
        ("pmf", 1, (3.0,), 1.0, -3.0),
        ("pmf", 300, (1e-3,), 1.0, 0.0),
        ("cdf", 0, (1.0,), 1.0, 1.0),
        ("sf", 0, (1.0,), 1.0, -1.0),
    ],
}
"""Methods, counts, shapes, the last shape's end of its range and the derivative there."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in ENDS]
)
def test_masses_have_derivatives_at_ends_of_a_shapes_range(name: str) -> None:
    """They are polynomials of it, or nearly."""
    for method, k, shapes, end, wanted in ENDS[name]:
        own = call(stats, name, method)
        with np.errstate(all="ignore"):
            reference = call(scipy.stats, name, method)(k, *shapes, end)
        np.testing.assert_allclose(own(k, *shapes, end), reference, rtol=1e-14)
        found = mixad.grad(lambda p, own=own, k=k, shapes=shapes: own(k, *shapes, p))(end)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.slow
def test_masses_have_second_derivatives_at_ends_of_a_shapes_range() -> None:
    for method, k, wanted in (("pmf", 2, 20.0), ("sf", 0, -20.0), ("sf", 1, 20.0), ("sf", 2, 0.0)):
        own = call(stats, "binom", method)
        found = mixad.grad(mixad.grad(lambda p, own=own, k=k: own(k, 5, p)))(0.0)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


SINGLE = np.float32
POISSON_FAR = float(mpmath.log(gamma_above(mpmath.mpf(301), mpmath.mpf(1500))))
EXTREMES = {
    "t.cdf": [((1e300, 3.0), 1.0), ((-1e300, 3.0), 0.0), ((SINGLE(1e25), SINGLE(3)), 1.0),
              ((0.3, np.inf), scipy.stats.norm.cdf(0.3))],
    "t.sf": [((1e300, 3.0), 0.0), ((-1e300, 3.0), 1.0)],
    "t.logcdf": [((-1e200, 1.0), -200 * np.log(10) - np.log(np.pi)),
                 ((0.3, np.inf), scipy.stats.norm.logcdf(0.3))],
    "t.logpdf": [((0.3, np.inf), scipy.stats.norm.logpdf(0.3))],
    "t.ppf": [((0.3, np.inf), scipy.stats.norm.ppf(0.3)),
              ((SINGLE(1e-10), SINGLE(0.1)), -np.inf)],
    "poisson.logcdf": [((2, 1413.1), np.log(1 + 1413.1 + 1413.1**2 / 2) - 1413.1),
                       ((0, 1e5), -1e5),
                       ((300.0, 1500.0), POISSON_FAR),
                       ((SINGLE(1), SINGLE(300)), np.log(301) - 300)],
    "weibull_min.logcdf": [((1e-10, 50.0), -500 * np.log(10)),
                           ((SINGLE(1e-2), SINGLE(30)), -60 * np.log(10))],
    "gamma.ppf": [((1e-5, 0.001), 0.0), ((0.5, 0.01), scipy.stats.gamma.ppf(0.5, 0.01))],
    "gamma.logcdf": [((SINGLE(1e-30), SINGLE(1.5)), -103.9010152)],
    "chi2.ppf": [((0.01, 0.005), 0.0), ((SINGLE(1e-3), SINGLE(0.1)), 0.0)],
    "beta.ppf": [((1e-200, 0.5, 0.5), 0.0), ((1e-100, 0.5, 0.5), (np.pi / 2 * 1e-100) ** 2)],
    "f.ppf": [((1e-200, 1.0, 0.5), 0.0)],
    "f.cdf": [((1e308, 4.0, 6.5), 1.0), ((SINGLE(3e38), SINGLE(4), SINGLE(6)), 1.0)],
    "f.sf": [((1e308, 20.0, 0.1), scipy.stats.f.sf(1e300, 20.0, 0.1) * 1e-8**0.05)],
    "f.logpdf": [((1e308, 20.0, 0.1), scipy.stats.f.logpdf(1e300, 20.0, 0.1) - 8.4 * np.log(10))],
    "lognorm.logpdf": [((1e-300, 1e-30), -((300 * np.log(10) / 1e-30) ** 2) / 2)],
}  # fmt: skip
"""Arguments whose squares or powers overflow or underflow, and values."""

EXTREME_SLOPES = [
    ("t.logcdf", (-1e200, 1.0), 0, 1e-200),
    ("t.cdf", (1e300, 3.0), 0, 0.0),
    ("t.logpdf", (0.3, np.inf), 0, -0.3),
    ("poisson.logcdf", (1, 922.0), 1, 1 / 923 - 1),
    ("weibull_min.logcdf", (1e-10, 50.0), 0, 5e11),
    ("weibull_min.logcdf", (1e-10, 50.0), 1, -10 * np.log(10)),
    ("t.ppf", (SINGLE(1e-10), SINGLE(0.1)), 1, np.inf),
    ("gamma.ppf", (1e-5, 0.001), 0, 0.0),
    ("beta.ppf", (1e-100, 0.5, 0.5), 0, np.pi**2 / 2 * 1e-100),
    ("lognorm.logpdf", (1e-300, 1.0), 0, (300 * np.log(10) - 1) * 1e300),
]


@pytest.mark.slow
@pytest.mark.parametrize("function", EXTREMES)
def test_values_where_powers_leave_the_range_of_floats(function: str) -> None:
    for arguments, wanted in EXTREMES[function]:
        found = call(stats, *function.split("."))(*arguments)
        rtol = 1e-6 if isinstance(arguments[0], np.float32) else 1e-11
        np.testing.assert_allclose(found, wanted, rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "arguments", "at", "wanted"), EXTREME_SLOPES)
def test_derivatives_where_powers_leave_the_range_of_floats(
    function: str, arguments: tuple[float, ...], at: int, wanted: float
) -> None:
    found = mixad.grad(call(stats, *function.split(".")), argnums=at)(*arguments)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)


# -- arguments -------------------------------------------------------------------------------------


def test_arguments_have_scipys_names_and_defaults() -> None:
    x = np.linspace(-1.0, 2.0, 5)
    check_values("stats.norm.logpdf", x)
    check_values("stats.norm.cdf", x, scale=2.0, loc=0.5)
    check_values("stats.weibull_min.pdf", [0.5, 1.5], c=1.3)
    narrow = stats.expon.sf(x.astype(np.float32))  # of which SciPy makes float64
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, scipy.stats.expon.sf(x), rtol=1e-6)
    check_values("stats.lognorm.ppf", np.asarray([[0.1], [0.7]]), np.asarray([0.5, 1.5]), 0, 2)
    check_values("stats.geom.logpmf", np.arange(4), 0.3, loc=1)
    assert stats.norm.cdf(0.0) == 0.5
    with pytest.raises(TypeError, match="'b'"):
        stats.pareto.logpdf(x)


def test_a_log_likelihood_is_one_kernel() -> None:
    x = np.linspace(-2.0, 2.0, 9)
    shown = str(mixad.tape(lambda m, s: stats.norm.logpdf(x, m, s).sum())(0.1, 1.3))
    assert shown.count("= kernel(") == 1


def test_parameters_that_are_none_give_nan() -> None:
    for wrong in (stats.norm.pdf(0.0, 0, -1.0), stats.pareto.cdf(2.0, -1.0),
                  stats.geom.logpmf(1.0, 1.5), stats.norm.ppf(1.5)):  # fmt: skip
        assert np.isnan(wrong)


def test_outside_of_the_support_derivatives_are_zero() -> None:
    gradient = mixad.grad(lambda x: stats.expon.pdf(x).sum())(np.asarray([-1.0, 2.0]))
    np.testing.assert_allclose(gradient, [0.0, -np.exp(-2.0)], rtol=1e-14)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in sorted(COUNTED)])
def test_quantiles_of_counts_end_where_floats_are_far_apart(name: str) -> None:
    for call_of_it, wanted in COUNTED[name]:
        np.testing.assert_allclose(getattr(stats, name).ppf(*call_of_it), wanted, rtol=1e-7)


def test_whole_numbers_are_converted_before_they_are_subtracted() -> None:
    assert_allclose = np.testing.assert_allclose
    assert_allclose(stats.norm.logpdf(np.uint8(3), loc=5), -2.9189385332046727)
    assert_allclose(stats.norm.cdf(np.uint32([3]), 5), [0.022750131948179198])
    assert_allclose(stats.norm.logpdf(np.int8([1, 2]), 200), [-19801.41893853, -19602.91893853])
    assert stats.geom.cdf(np.uint8(3), 0.5, 5) == 0.0
    assert stats.uniform.cdf(True, np.uint8(2)) == 0.0
    narrow = stats.norm.logpdf(np.uint8([3]), np.float32([5.0]))
    assert narrow.dtype == np.float32
    assert_allclose(narrow, -2.9189386, rtol=1e-6)
    assert mixad.grad(lambda m: stats.norm.logpdf(np.uint8(3), m))(5.0) == -2.0


def test_the_number_may_come_by_name() -> None:
    assert stats.norm.pdf(x=1) == stats.norm.pdf(1.0)
    assert stats.norm.ppf(q=0.5) == 0.0
    assert stats.geom.pmf(k=2, p=0.5) == 0.25


def test_refusals_name_the_counterpart() -> None:
    for x in (np.ones(3), np.float64(1.0)):
        with pytest.raises(TracerError, match=r"use mixad\.scipy\.stats\.norm\.logpdf, or say"):
            mixad.grad(lambda x: np.sum(scipy.stats.norm.logpdf(x)))(x)


def test_refusals_of_jaxs_functions_name_the_counterpart() -> None:
    norm = pytest.importorskip("jax.scipy.stats").norm
    with pytest.raises(MixadError, match=r"use mixad\.scipy\.stats\.norm\.logpdf in its place"):
        mixad.grad(lambda x: norm.logpdf(x).sum())(np.ones(3))


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_tensors_go_in_and_come_out() -> None:
    import torch

    x = torch.linspace(-2, 2, 7, dtype=torch.float64)
    found = stats.norm.logcdf(x, 0.1, 2.0)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, scipy.stats.norm.logcdf(np.asarray(x), 0.1, 2.0), rtol=1e-13)
    gradient = mixad.grad(lambda x: stats.norm.logpdf(x).sum())(x)
    assert isinstance(gradient, torch.Tensor)
    np.testing.assert_allclose(gradient, -x)


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_lists_and_whole_numbers_adapt_to_tensors() -> None:
    import torch

    found = stats.norm.pdf(torch.ones(2), [0.0, 1.0])
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, scipy.stats.norm.pdf(1.0, [0.0, 1.0]), rtol=1e-6)
    counts = torch.tensor([3], dtype=torch.uint8)
    for loc, dtype in ((5, torch.float32), (torch.tensor([5.0]).double(), torch.float64)):
        found = stats.norm.logpdf(counts, loc)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, -2.9189385, rtol=1e-6)
