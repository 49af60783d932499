"""Densities and distribution functions, of NumPy's functions and SciPy's ufuncs."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special
from scipy import stats as scipy_stats

from autograd.scipy.stats import multivariate_normal

__all__ = ["beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"]


def _family(logpdf: Any, **functions: Any) -> Any:
    """Return a distribution, given the logarithm of its density."""

    def pdf(*args: Any) -> Any:
        return np.exp(logpdf(*args))

    return SimpleNamespace(pdf=pdf, pmf=pdf, logpdf=logpdf, logpmf=logpdf, **functions)


def _norm(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)


def _t(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    z = (x - loc) / scale
    norm = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - 0.5 * np.log(np.pi * df)
    return norm - np.log(scale) - (df + 1) / 2 * np.log1p(z**2 / df)


def _beta(x: Any, a: Any, b: Any) -> Any:
    return special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b)


def _gamma(x: Any, a: Any) -> Any:
    return special.xlogy(a - 1, x) - x - special.gammaln(a)


def _chi2(x: Any, df: Any) -> Any:
    return _gamma(x / 2, np.float64(df) / 2) - np.log(2.0)


def _poisson(k: Any, mu: Any) -> Any:
    return special.xlogy(k, mu) - mu - special.gammaln(k + 1)


def _dirichlet(x: Any, alpha: Any) -> Any:
    norm = special.gammaln(np.sum(alpha)) - np.sum(special.gammaln(alpha))
    return norm + np.sum((alpha - 1) * np.log(x))


norm = _family(
    _norm,
    cdf=lambda x, loc=0.0, scale=1.0: special.ndtr((x - loc) / scale),
    sf=lambda x, loc=0.0, scale=1.0: special.ndtr((loc - x) / scale),
    logcdf=lambda x, loc=0.0, scale=1.0: special.log_ndtr((x - loc) / scale),
    logsf=lambda x, loc=0.0, scale=1.0: special.log_ndtr((loc - x) / scale),
)
t = _family(
    _t,
    cdf=lambda x, df, loc=0.0, scale=1.0: special.stdtr(df, (x - loc) / scale),
    logcdf=lambda x, df, loc=0.0, scale=1.0: np.log(special.stdtr(df, (x - loc) / scale)),
)
beta = _family(_beta, cdf=lambda x, a, b: special.betainc(a, b, x))
gamma = _family(_gamma, cdf=lambda x, a: special.gammainc(a, x))
chi2 = _family(_chi2, cdf=lambda x, df: special.chdtr(df, x))
poisson = _family(_poisson, cdf=lambda k, mu: special.gammaincc(np.floor(k) + 1, mu))
dirichlet = _family(_dirichlet, rvs=scipy_stats.dirichlet.rvs)
