"""Distributions: a table of scalar programs, at standardized numbers within the support.

Each is at z = (x - loc) / scale, or k = x - loc, and takes parameters of shape as SciPy names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mixad.scipy.programs.incomplete_beta import (
    betainc,
    fraction,
    log_betainc,
    log_odds,
    log_power,
)
from mixad.scipy.programs.roots import newton, smallest_whole
from mixad.special import (
    atan2,
    ceil,
    cospi,
    erfc,
    erfcx,
    exp,
    expm1,
    floor,
    gammainc,
    gammaincc,
    isinf,
    lgamma,
    log,
    log1mexp,
    log1p,
    log_sigmoid,
    logit,
    ndtr,
    ndtri,
    nextafter,
    pow,
    sigmoid,
    sinpi,
    sqrt,
    xlog1py,
    xlogy,
)
from mixad.special.beta_function import betaln_of_positive
from mixad.special.calling import Number, with_partials

__all__ = ["FAMILIES", "Family"]

_Program = Callable[..., Any]


@dataclass(frozen=True)
class Family:
    """A distribution.

    Programs take a number within the support, or a probability, and the shapes. `mass_at_end` is
    the probability of a discrete one at 0, for the end of a shape's range: it has derivatives
    there, and its logarithm none.
    """

    what: str  # its name in words
    shapes: tuple[str, ...]  # parameters, in SciPy's names and order
    support: tuple[float, float | None]  # least and largest number; None: the first shape
    log_density: _Program
    log_cdf: _Program
    cdf: _Program
    sf: _Program
    ppf: _Program
    is_discrete: bool = False  # whole numbers only
    is_valid: _Program = lambda a, b: a > 0 and b > 0
    mass_at_end: _Program = lambda k, *shapes: 0.0


_LOG_ROOT_TWO_PI = math.log(2 * math.pi) / 2
_WHOLE = (-math.inf, math.inf)
_POSITIVE = (0.0, math.inf)


# -- normal ----------------------------------------------------------------------------------------


def _normal_log_density(z: Number) -> Number:
    return -0.5 * z * z - _LOG_ROOT_TWO_PI


def _log_ndtr(z: Number) -> Number:
    """Return log Φ(z), without underflow."""
    if z < -1:
        return log(0.5 * erfcx(z * (-1 / math.sqrt(2)))) - 0.5 * z * z
    return log1p(-0.5 * erfc(z * (1 / math.sqrt(2))))


def _lognormal_log_density(z: Number, s: Number) -> Number:
    if z == 0:
        return -math.inf
    w = log(z) / s
    return -0.5 * w * w - log(s) - log(z) - _LOG_ROOT_TWO_PI


# -- exponential and its like ----------------------------------------------------------------------


def _laplace_cdf(z: Number) -> Number:
    return 0.5 * exp(z) if z < 0 else 1 - 0.5 * exp(-z)


def _laplace_log_cdf(z: Number) -> Number:
    return z - math.log(2) if z < 0 else log1p(-0.5 * exp(-z))


def _laplace_ppf(q: Number) -> Number:
    return log(2 * q) if q < 0.5 else -log(2 * (1 - q))


def _logistic_log_density(z: Number) -> Number:
    return log_sigmoid(z) + log_sigmoid(-z)


def _weibull_log_cdf(z: Number, c: Number) -> Number:
    w = c * log(z)
    return w if w < -40 else log1mexp(-pow(z, c))  # where the power may underflow


def _weibull_log_density(z: Number, c: Number) -> Number:
    return log(c) + xlogy(c - 1, z) - pow(z, c)


# -- Cauchy ----------------------------------------------------------------------------------------


def _cauchy_log_density(z: Number) -> Number:
    if abs(z) > 1e8:  # whose square may overflow
        return -2 * log(abs(z)) - math.log(math.pi)
    return -log1p(z * z) - math.log(math.pi)


def _cauchy_cdf(z: Number) -> Number:
    return atan2(1.0, -z) * (1 / math.pi)


def _cauchy_log_cdf(z: Number) -> Number:
    return log(_cauchy_cdf(z)) if z < 0 else log1p(-_cauchy_cdf(-z))


# -- gamma and chi-squared -------------------------------------------------------------------------


def _gamma_log_density(z: Number, a: Number) -> Number:
    return xlogy(a - 1, z) - z - lgamma(a)


def _least_of_all_digits(x: Number) -> Number:
    """Return a bound above which numbers of another's type are far from underflow."""
    epsilon = nextafter(1 + 0 * x, 2.0) - 1
    return nextafter(0 * x, 1.0) / epsilon / epsilon / epsilon


def _gamma_log_cdf(z: Number, a: Number) -> Number:
    value = gammainc(a, z)
    if value > 0.5:
        return log1p(-gammaincc(a, z))
    if value > _least_of_all_digits(z):
        return log(value)
    # DLMF 8.11.4, far below the mean, where the first factor underflows
    total, term, k = 1.0 + 0 * z, 1.0 + 0 * z, 1
    while total + k * k * term > total:
        term = term * (z / (a + k))
        total = total + term
        k += 1
    return a * log(z) - z - lgamma(a + 1) + log(total)


def _gamma_ppf(q: Number, a: Number) -> Number:
    """log P and log Q are concave functions of log z; steps begin where P, or Q, is less.

    P(a, z) is at most zᵃ / Γ(a + 1).  Of Q: Boucheron, Lugosi and Massart, "Concentration
    inequalities" (2013), section 2.4.
    """
    t, size = -log1p(-q), lgamma(a)
    low, high = (log(q) + log(a) + size) / a, log(a + sqrt(2 * a * t) + t)
    if low < -40:  # where P is that
        return exp(low)
    return exp(newton(low if q < 0.9 else high, _gamma_excess, a, size, q))


def _gamma_excess(u: Number, a: Number, size: Number, q: Number) -> Number:
    """Return log P or log Q less its target, over its derivative by u = log z."""
    z = exp(u)
    value = _gamma_log_cdf(z, a) if q < 0.9 else log(gammaincc(a, z))
    slope = exp(a * u - z - size - value)
    return (value - log(q)) / slope if q < 0.9 else (log1p(-q) - value) / slope


def _chi2_log_density(z: Number, df: Number) -> Number:
    return _gamma_log_density(0.5 * z, 0.5 * df) - math.log(2)


# -- beta, F and Student's t -----------------------------------------------------------------------


def _beta_log_density(z: Number, a: Number, b: Number) -> Number:
    return xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln_of_positive(a, b)


def _f_log_density(z: Number, dfn: Number, dfd: Number) -> Number:
    ratio = dfn / dfd
    a, b = 0.5 * dfn, 0.5 * dfd
    whole = log(z) + log(ratio) if z > 1e20 / ratio else log1p(ratio * z)
    return a * log(ratio) + xlogy(a - 1, z) - (a + b) * whole - betaln_of_positive(a, b)


def _shares(z: Number, dfn: Number, dfd: Number) -> tuple[Number, Number]:
    if z > 1e9 * (dfd / dfn):  # where a product may overflow
        w = dfd / dfn / z
        return 1 / (1 + w), w / (1 + w)
    whole = dfn * z + dfd
    return dfn * z / whole, dfd / whole


def _f_cdf(z: Number, dfn: Number, dfd: Number) -> Number:
    x, y = _shares(z, dfn, dfd)
    return betainc(0.5 * dfn, 0.5 * dfd, x, y)


def _f_sf(z: Number, dfn: Number, dfd: Number) -> Number:
    x, y = _shares(z, dfn, dfd)
    return betainc(0.5 * dfd, 0.5 * dfn, y, x)


def _f_log_cdf(z: Number, dfn: Number, dfd: Number) -> Number:
    x, y = _shares(z, dfn, dfd)
    return log_betainc(0.5 * dfn, 0.5 * dfd, x, y)


def _t_log_density(z: Number, df: Number) -> Number:
    if isinf(df):
        return _normal_log_density(z)
    half = 0.5 * df
    far = 2 * log(abs(z)) - log(df) if abs(z) > 1e15 * df else log1p(z * z / df)
    return -betaln_of_positive(0.5, half) - 0.5 * log(df) - (half + 0.5) * far


def _t_part(z: Number, df: Number) -> tuple[bool, Number]:
    """Return True and log P(t < -abs(z)), or False and P(0 < t < z): the latter near 0 alone."""
    a = 0.5 * df
    if abs(z) > 1e9 * max(df, 1.0):  # whose square may overflow
        far = a * (log(df) - 2 * log(abs(z))) - betaln_of_positive(0.5, a)
        return True, far - log(df)
    whole = df + z * z
    x, y = df / whole, z / whole * z
    is_tail, beta = y * (a + 2.5) >= 1.5, betaln_of_positive(0.5, a)
    c, d, u = (a, 0.5, x) if is_tail else (0.5, a, y)
    factor = fraction(c, d, u)
    if is_tail:
        return True, log_power(a, 0.5, x, y) - beta + log(factor / df)
    return False, z / sqrt(whole) * exp(a * log1p(-y) - beta) * factor


def _t_cdf(z: Number, df: Number) -> Number:
    if isinf(df):
        return ndtr(z)
    is_tail, part = _t_part(z, df)
    if not is_tail:
        return 0.5 + part
    return exp(part) if z < 0 else 1 - exp(part)


def _t_log_cdf(z: Number, df: Number) -> Number:
    if isinf(df):
        return _log_ndtr(z)
    is_tail, part = _t_part(z, df)
    if not is_tail:
        return log(0.5 + part) if z < 0 else log1p(part - 0.5)
    return part if z < 0 else log1p(-exp(part))


def _t_ppf(q: Number, df: Number) -> Number:
    if isinf(df):
        return ndtri(q)
    if abs(q - 0.5) < 1e-9:  # where the density is all but a constant
        return (q - 0.5) * (sqrt(df) * exp(betaln_of_positive(0.5, 0.5 * df)))
    tail = q if q < 0.5 else 1 - q
    size = exp(0.5 * (log(df) - log_odds(0.5 * df, 0.5, 2 * tail, 1 - 2 * tail)))
    return -size if q < 0.5 else size


# -- discrete --------------------------------------------------------------------------------------


def _bernoulli_cdf(k: Number, p: Number) -> Number:
    return 1 - p if k < 1 else 1.0 + 0 * p


def _bernoulli_sf(k: Number, p: Number) -> Number:
    return p if k < 1 else 0.0 * p


def _binom_log_density(k: Number, n: Number, p: Number) -> Number:
    return xlogy(k, p) + xlog1py(n - k, -p) - log(n + 1) - betaln_of_positive(n - k + 1, k + 1)


def _binom_mass_at_end(k: Number, n: Number, p: Number) -> Number:
    """Powers are those of n p, so that the other factor does not overflow."""
    q = 1 - p
    few, small, large = (k, p, q) if p < 0.5 else (n - k, q, p)
    size = -log(n + 1) - betaln_of_positive(n - k + 1, k + 1) - few * log(n)
    return exp(size) * pow(n * small, few) * pow(large, n - few)


def _binom_cdf(k: Number, n: Number, p: Number) -> Number:
    return 1.0 + 0 * p if k >= n else betainc(n - k, k + 1, 1 - p, p)


def _binom_sf(k: Number, n: Number, p: Number) -> Number:
    return 0.0 * p if k >= n else betainc(k + 1, n - k, p, 1 - p)


@with_partials(lambda q, n, p: (0.0, 0.0, 0.0))
def _binom_ppf(q: Number, n: Number, p: Number) -> Number:
    return smallest_whole(_binom_cdf, q, n, p, floor(n * p))


def _poisson_log_cdf(k: Number, mu: Number) -> Number:
    value = gammaincc(k + 1, mu)
    if value >= 0.5:
        return log1p(-gammainc(k + 1, mu))
    if value > _least_of_all_digits(mu):
        return log(value)
    # the sum of probabilities from the largest on, where it underflows
    total, term, j = 1.0 + 0 * mu, 1.0 + 0 * mu, 0.0
    while j < k and total + (j + 1) * (j + 1) * term > total:
        term = term * ((k - j) / mu)
        total = total + term
        j += 1
    return k * log(mu) - lgamma(k + 1) - mu + log(total)


def _poisson_cdf(k: Number, mu: Number, b: Number = 0.0) -> Number:
    return gammaincc(k + 1, mu)


@with_partials(lambda q, mu: (0.0, 0.0))
def _poisson_ppf(q: Number, mu: Number) -> Number:
    return smallest_whole(_poisson_cdf, q, mu, 0.0, floor(mu))


def _geom_cdf(k: Number, p: Number, b: Number = 0.0) -> Number:
    return 1 - pow(1 - p, k) if p == 1 else -expm1(k * log1p(-p))


def _geom_sf(k: Number, p: Number) -> Number:
    return pow(1 - p, k) if p == 1 else exp(k * log1p(-p))


def _geom_log_cdf(k: Number, p: Number) -> Number:
    return log1p(-pow(1 - p, k)) if p == 1 else log1mexp(k * log1p(-p))


@with_partials(lambda q, p: (0.0, 0.0))
def _geom_ppf(q: Number, p: Number) -> Number:
    k = max(ceil(log1p(-q) / log1p(-p)), 1.0)
    return k - 1 if k > 1 and _geom_cdf(k - 1, p) >= q else k


def _nbinom_log_density(k: Number, n: Number, p: Number) -> Number:
    return n * log(p) + xlog1py(k, -p) - log(n + k) - betaln_of_positive(n, k + 1)


def _nbinom_mass_at_end(k: Number, n: Number, p: Number) -> Number:
    most = max(n, 1.0)
    size = -log(n + k) - betaln_of_positive(n, k + 1) - k * log(most)
    return exp(size) * pow(p, n) * pow(most * (1 - p), k)


def _nbinom_cdf(k: Number, n: Number, p: Number) -> Number:
    return betainc(n, k + 1, p, 1 - p)


@with_partials(lambda q, n, p: (0.0, 0.0, 0.0))
def _nbinom_ppf(q: Number, n: Number, p: Number) -> Number:
    return smallest_whole(_nbinom_cdf, q, n, p, floor(n * (1 - p) / p))


# -- the table -------------------------------------------------------------------------------------

FAMILIES = {
    "bernoulli": Family(
        "Bernoulli", ("p",), (0.0, 1.0),
        lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p),
        lambda k, p: log1p(-p) if k < 1 else 0.0 * p,
        _bernoulli_cdf, _bernoulli_sf,
        lambda q, p: 0.0 * q if q <= 1 - p else 1.0 + 0.0 * q,
        True, lambda p, b: 0 <= p <= 1,
        lambda k, p: p if k == 1 else 1 - p,
    ),
    "beta": Family(
        "beta", ("a", "b"), (0.0, 1.0), _beta_log_density,
        lambda z, a, b: log_betainc(a, b, z, 1 - z),
        lambda z, a, b: betainc(a, b, z, 1 - z),
        lambda z, a, b: betainc(b, a, 1 - z, z),
        lambda q, a, b: sigmoid(log_odds(a, b, q, 1 - q)),
    ),
    "binom": Family(
        "binomial", ("n", "p"), (0.0, None), _binom_log_density,
        lambda k, n, p: log_betainc(n - k, k + 1, 1 - p, p),
        _binom_cdf, _binom_sf, _binom_ppf,
        True, lambda n, p: n >= 0 and floor(n) == n and 0 <= p <= 1,
        _binom_mass_at_end,
    ),
    "cauchy": Family(
        "Cauchy", (), _WHOLE, _cauchy_log_density, _cauchy_log_cdf, _cauchy_cdf,
        lambda z: _cauchy_cdf(-z),
        lambda q: -cospi(q) / sinpi(q),
    ),
    "chi2": Family(
        "chi-squared", ("df",), _POSITIVE, _chi2_log_density,
        lambda z, df: _gamma_log_cdf(0.5 * z, 0.5 * df),
        lambda z, df: gammainc(0.5 * df, 0.5 * z),
        lambda z, df: gammaincc(0.5 * df, 0.5 * z),
        lambda q, df: 2 * _gamma_ppf(q, 0.5 * df),
    ),
    "expon": Family(
        "exponential", (), _POSITIVE,
        lambda z: -z,
        lambda z: log1mexp(-z),
        lambda z: -expm1(-z),
        lambda z: exp(-z),
        lambda q: -log1p(-q),
    ),
    "f": Family(
        "F", ("dfn", "dfd"), _POSITIVE, _f_log_density, _f_log_cdf, _f_cdf, _f_sf,
        lambda q, dfn, dfd: exp(log_odds(0.5 * dfn, 0.5 * dfd, q, 1 - q)) * (dfd / dfn),
    ),
    "gamma": Family(
        "gamma", ("a",), _POSITIVE, _gamma_log_density, _gamma_log_cdf,
        lambda z, a: gammainc(a, z),
        lambda z, a: gammaincc(a, z),
        _gamma_ppf,
    ),
    "geom": Family(
        "geometric", ("p",), (1.0, math.inf),
        lambda k, p: log(p) + xlog1py(k - 1, -p),
        _geom_log_cdf, _geom_cdf, _geom_sf, _geom_ppf,
        True, lambda p, b: 0 < p <= 1,
        lambda k, p: p * pow(1 - p, k - 1),
    ),
    "gumbel_r": Family(
        "right-skewed Gumbel", (), _WHOLE,
        lambda z: -z - exp(-z),
        lambda z: -exp(-z),
        lambda z: exp(-exp(-z)),
        lambda z: -expm1(-exp(-z)),
        lambda q: -log(-log(q)),
    ),
    "laplace": Family(
        "Laplace", (), _WHOLE,
        lambda z: -abs(z) - math.log(2),
        _laplace_log_cdf, _laplace_cdf,
        lambda z: _laplace_cdf(-z),
        _laplace_ppf,
    ),
    "logistic": Family(
        "logistic", (), _WHOLE, _logistic_log_density,
        lambda z: log_sigmoid(z),
        lambda z: sigmoid(z),
        lambda z: sigmoid(-z),
        lambda q: logit(q),
    ),
    "lognorm": Family(
        "log-normal", ("s",), _POSITIVE, _lognormal_log_density,
        lambda z, s: _log_ndtr(log(z) / s),
        lambda z, s: ndtr(log(z) / s),
        lambda z, s: ndtr(-log(z) / s),
        lambda q, s: exp(s * ndtri(q)),
    ),
    "nbinom": Family(
        "negative binomial", ("n", "p"), _POSITIVE, _nbinom_log_density,
        lambda k, n, p: log_betainc(n, k + 1, p, 1 - p),
        _nbinom_cdf,
        lambda k, n, p: betainc(k + 1, n, 1 - p, p),
        _nbinom_ppf, True, lambda n, p: n > 0 and 0 < p <= 1, _nbinom_mass_at_end,
    ),
    "norm": Family(
        "normal", (), _WHOLE, _normal_log_density, _log_ndtr,
        lambda z: ndtr(z),
        lambda z: ndtr(-z),
        lambda q: ndtri(q),
    ),
    "pareto": Family(
        "Pareto", ("b",), (1.0, math.inf),
        lambda z, b: log(b) - (b + 1) * log(z),
        lambda z, b: log1mexp(-b * log(z)),
        lambda z, b: -expm1(-b * log(z)),
        lambda z, b: pow(z, -b),
        lambda q, b: exp(-log1p(-q) / b),
    ),
    "poisson": Family(
        "Poisson", ("mu",), _POSITIVE,
        lambda k, mu: xlogy(k, mu) - lgamma(k + 1) - mu,
        _poisson_log_cdf,
        _poisson_cdf,
        lambda k, mu: gammainc(k + 1, mu),
        _poisson_ppf, True, lambda mu, b: mu >= 0,
        lambda k, mu: exp(-lgamma(k + 1) - mu) * pow(mu, k),
    ),
    "t": Family(
        "Student's t", ("df",), _WHOLE, _t_log_density, _t_log_cdf, _t_cdf,
        lambda z, df: _t_cdf(-z, df),
        _t_ppf,
    ),
    "uniform": Family(
        "uniform", (), (0.0, 1.0),
        lambda z: 0.0 * z,
        lambda z: log(z),
        lambda z: 1.0 * z,
        lambda z: 1 - z,
        lambda q: 1.0 * q,
    ),
    "weibull_min": Family(
        "Weibull", ("c",), _POSITIVE, _weibull_log_density,
        _weibull_log_cdf,
        lambda z, c: -expm1(-pow(z, c)),
        lambda z, c: exp(-pow(z, c)),
        lambda q, c: pow(-log1p(-q), 1 / c),
    ),
}  # fmt: skip
"""By SciPy's names."""
