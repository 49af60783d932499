"""Calls of SciPy's public functions that differentiate, and what they are checked with.

A call is Python over the modules of SciPy, ``xp``, the namespace of the arrays, and the arrays of
`ARGUMENTS`; it is differentiated with respect to all arrays that it names.  Run as a program with
``SCIPY_ARRAY_API=1``, this prints how far gradients are from central differences.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from typing import Any

import numpy as np
import with_objects

import mixad

CALLS = {
    "special, compiled into one kernel": """
        special.beta(p, q)
        special.betaln(p, q)
        special.cbrt(p)
        special.cosdg(30 * x)
        special.cosm1(x)
        special.cotdg(30 * p)
        special.digamma(p)
        special.ellipe(u)
        special.ellipk(u)
        special.ellipkm1(p)
        special.entr(p)
        special.erf(x)
        special.erfc(x)
        special.erfcinv(u)
        special.erfinv(u)
        special.exp1(p)
        special.exp10(x)
        special.exp2(x)
        special.expi(p)
        special.expit(x)
        special.expm1(x)
        special.expn(2, p)
        special.exprel(x)
        special.gamma(p)
        special.gammainc(p, q)
        special.gammaincc(p, q)
        special.gammaln(p)
        special.huber(a, x)
        special.i0(x)
        special.i0e(x)
        special.i1(x)
        special.i1e(x)
        special.j0(x)
        special.j1(x)
        special.kl_div(p, q)
        special.log1p(p)
        special.log_expit(x)
        special.logit(u)
        special.ndtr(x)
        special.ndtri(u)
        special.polygamma(1, p)
        special.pseudo_huber(b, x)
        special.psi(p)
        special.rel_entr(p, q)
        special.sinc(x)
        special.sindg(30 * x)
        special.softplus(x)
        special.tandg(30 * x)
        special.xlog1py(p, q)
        special.xlogy(p, q)
        special.y0(p)
        special.y1(p)
        special.zeta(p + 1.5, q)
    """,
    "special, computed by SciPy": """
        special.betainc(1.3, 2.2, u)
        special.betaincc(1.3, 2.2, u)
        special.betaincinv(1.3, 2.2, u)
        special.boxcox(p, 0.3)
        special.boxcox1p(p, 0.0)
        special.chdtr(3, p)
        special.chdtrc(3, p)
        special.chdtri(3, u)
        special.fdtr(2, 5, p)
        special.fdtrc(2, 5, p)
        special.fdtri(2, 5, u)
        special.gammainccinv(1.5, u)
        special.gammaincinv(1.5, u)
        special.gammasgn(x) * x
        special.hyp0f1(1.5, x)
        special.hyp1f1(1.5, 2.2, x)
        special.hyp2f1(1.5, 2.2, 3.1, u)
        special.inv_boxcox(u, 0.3)
        special.inv_boxcox1p(u, 0.3)
        special.iv(1.5, p)
        special.ive(1.5, p)
        special.jv(1.5, p)
        special.k0(p)
        special.k1(p)
        special.kv(1.5, p)
        special.kve(1.5, p)
        special.log_ndtr(x)
        special.loggamma(p)
        special.radian(x, y, p)
        special.rgamma(p)
        special.stdtr(3, x)
        special.stdtrit(3, u)
        special.yn(2, p)
        special.yv(1.5, p)
    """,
    "special, of whole arrays": """
        special.log_softmax(x, axis=0)
        special.logsumexp(x, axis=1)
        special.logsumexp(x, b=p)
        special.softmax(x, axis=1)
    """,
    "stats": """
        stats.alexandergovern(v, w).statistic
        stats.bartlett(x, y, axis=1).pvalue
        stats.boxcox_llf(0.3, p, axis=1)
        stats.chisquare(p, axis=1).pvalue
        stats.chisquare(p, axis=1).statistic
        stats.circmean(x, axis=1)
        stats.circstd(x, axis=1)
        stats.circvar(x, axis=1)
        stats.combine_pvalues(u, axis=1).pvalue
        stats.combine_pvalues(u, axis=1, method="pearson").statistic
        stats.combine_pvalues(u, axis=1, method="stouffer").statistic
        stats.describe(x, axis=1).skewness
        stats.differential_entropy(x, axis=1)
        stats.differential_entropy(x, axis=1, method="ebrahimi")
        stats.differential_entropy(x, axis=1, method="van es")
        stats.directional_stats(n3).mean_direction
        stats.directional_stats(n3).mean_resultant_length
        stats.entropy(p, axis=1)
        stats.entropy(p, q, axis=1)
        stats.epps_singleton_2samp(x, y, axis=1).statistic
        stats.false_discovery_control(u, axis=1)
        stats.gmean(p, axis=0, weights=q)
        stats.gstd(p, axis=1)
        stats.gzscore(p, axis=1)
        stats.hmean(p, weights=q)
        stats.iqr(x, axis=1)
        stats.jarque_bera(x, axis=1).pvalue
        stats.jarque_bera(x, axis=1).statistic
        stats.kstat(v, 4)
        stats.kstatvar(v, 2)
        stats.kurtosis(x, axis=1)
        stats.kurtosis(x, axis=1, bias=False, fisher=False)
        stats.kurtosistest(x, axis=1).pvalue
        stats.kurtosistest(x, axis=1).statistic
        stats.lmoment(x, order=3, axis=1)
        stats.median_abs_deviation(x, axis=1)
        stats.moment(x, order=3, axis=1, center=0.3)
        stats.normaltest(x, axis=1).pvalue
        stats.normaltest(x, axis=1).statistic
        stats.pmean(p, -1.5, weights=q)
        stats.power_divergence(p, axis=1, lambda_="log-likelihood").statistic
        stats.quantile(x, 0.3, axis=1)
        stats.quantile(x, 0.3, axis=1, method="median_unbiased")
        stats.sem(x, axis=1)
        stats.sigmaclip(v, 2, 2).clipped
        stats.skew(x, axis=1)
        stats.skew(x, axis=1, bias=False)
        stats.skewtest(x, axis=1).pvalue
        stats.skewtest(x, axis=1).statistic
        stats.tmax(x, axis=1)
        stats.tmean(v, (-0.9, 1.5))
        stats.tmean(x, axis=1)
        stats.tmin(x, axis=1)
        stats.trim_mean(x, 0.1, axis=1)
        stats.tsem(x, axis=1)
        stats.tstd(x, axis=1)
        stats.tvar(v, (-0.9, 1.5))
        stats.variation(p, axis=1, ddof=1)
        stats.yeojohnson_llf(0.4, x, axis=1)
        stats.zmap(x, y, axis=1)
        stats.zscore(x, axis=1)
    """,
    "stats, by special functions that SciPy computes": """
        stats.combine_pvalues(u, axis=1, method="mudholkar_george").statistic
        stats.combine_pvalues(u, axis=1, method="tippett").statistic
        stats.f_oneway(x, y, axis=1).pvalue
        stats.f_oneway(x, y, axis=1).statistic
        stats.levene(x, y, axis=1).statistic
        stats.pearsonr(x, y, axis=1).pvalue
        stats.pearsonr(x, y, axis=1).statistic
        stats.ttest_1samp(x, 0.2, axis=1).pvalue
        stats.ttest_1samp(x, 0.2, axis=1).statistic
        stats.ttest_ind(x, y, axis=1).pvalue
        stats.ttest_ind(x, y, axis=1, equal_var=False).statistic
        stats.ttest_ind_from_stats(a, b, 10, b + a, a + b, 12).statistic
        stats.ttest_rel(x, y, axis=1).pvalue
    """,
    "integrate": """
        integrate.cubature(waves, 0 * a[None], b[None], args=(a,)).estimate
        integrate.cumulative_simpson(v, x=z)
        integrate.cumulative_simpson(x, dx=b, axis=1)
        integrate.cumulative_trapezoid(x, y, axis=1, initial=0)
        integrate.romb(s, dx=0.1)
        integrate.trapezoid(v, z)
    """,
    "optimize, differentiate, signal, cluster, linalg": """
        cluster.vq.whiten(n3)
        differentiate.derivative(lambda t, a: xp.sin(a * t), b, args=(a,)).df
        linalg.block_diag(n3, n4)
        linalg.fiedler(v)
        linalg.orthogonal_procrustes(n3, n4[:, :3])[0]
        optimize.rosen(n3)
        optimize.rosen_der(v)
        optimize.rosen_hess(v)
        optimize.rosen_hess_prod(v, w)
        signal.envelope(v)
        signal.fftconvolve(v, w)
        signal.freqs(v, w, worN=8)[1].real
        signal.freqz(v, worN=8)[1].imag
        signal.gauss_spline(v, 3)
        signal.hilbert(v).imag
        signal.kaiser_atten(5, a)
        signal.lp2bp(k[:3], k[3:6], b, a)[0]
        signal.lp2bs(k[:3], k[3:6], b, a)[1]
        signal.normalize(k, k)[0]
        signal.oaconvolve(v, w)
        signal.resample(v, 12)
        signal.vectorstrength(v, b)[0]
        signal.windows.exponential(7, None, b, xp=xp)
        signal.windows.gaussian(7, b, xp=xp)
        signal.windows.general_cosine(7, k)
        signal.windows.general_gaussian(7, b, a, xp=xp)
        signal.windows.general_hamming(7, a, xp=xp)
        signal.windows.kaiser(7, b, xp=xp)
    """,
    "spatial": """
        (spatial.transform.Rotation.from_quat(n4) ** 2).as_quat()
        spatial.transform.RigidTransform.from_exp_coords(n6).apply(n3)
        spatial.transform.RigidTransform.from_exp_coords(n6).as_dual_quat()
        spatial.transform.RigidTransform.from_exp_coords(n6).as_exp_coords()
        spatial.transform.RigidTransform.from_exp_coords(n6).as_matrix()
        spatial.transform.RigidTransform.from_exp_coords(n6).inv().as_matrix()
        spatial.transform.RigidTransform.from_translation(n3).as_matrix()
        spatial.transform.Rotation.from_euler("xyz", n3).as_matrix()
        spatial.transform.Rotation.from_mrp(n3).as_quat()
        spatial.transform.Rotation.from_quat(n4).apply(n3)
        spatial.transform.Rotation.from_quat(n4).as_euler("xyz")
        spatial.transform.Rotation.from_quat(n4).as_matrix()
        spatial.transform.Rotation.from_quat(n4).as_mrp()
        spatial.transform.Rotation.from_quat(n4).as_rotvec()
        spatial.transform.Rotation.from_quat(n4).inv().as_quat()
        spatial.transform.Rotation.from_quat(n4).magnitude()
        spatial.transform.Rotation.from_rotvec(n3).as_matrix()
        spatial.transform.Rotation.from_rotvec(n3).mean().as_matrix()
    """,
    "constants, fft": """
        constants.convert_temperature(p, "F", "R")
        constants.lambda2nu(p)
        constants.nu2lambda(p)
        fft.fft(v).real
        fft.fftn(x).real
        fft.fftshift(v)
        fft.fht(v, 0.1, 0.3)
        fft.hfft(v)
        fft.ifft(v).imag
        fft.ifftshift(v)
        fft.irfft(v)
        fft.rfft(v).imag
        fft.rfft2(x).imag
    """,
}
"""By family, one a line."""


NUMPY_ONLY = (
    CALLS["special, computed by SciPy"] + CALLS["stats, by special functions that SciPy computes"]
)
"""What SciPy computes of NumPy arrays alone is refused for others."""

NOT_OF_TENSORS = ("special.chdtr(3, p)", "special.chdtrc(3, p)")
"""Where SciPy hands a number to functions of torch that take tensors only, traced or not."""

_RANDOM = np.random.default_rng(0)

ARGUMENTS = {
    "a": np.array(0.7),
    "b": np.array(1.6),
    "v": _RANDOM.normal(size=9),
    "w": _RANDOM.normal(size=9),
    "k": _RANDOM.uniform(0.5, 3, 9),
    "s": _RANDOM.normal(size=9),
    "z": np.sort(_RANDOM.uniform(0, 3, 9)),
    "x": _RANDOM.normal(size=(3, 9)),
    "y": _RANDOM.normal(size=(3, 9)),
    "p": _RANDOM.uniform(0.5, 3, (3, 9)),
    "q": _RANDOM.uniform(0.5, 3, (3, 9)),
    "u": _RANDOM.uniform(0.1, 0.9, (3, 9)),
    "n3": _RANDOM.normal(size=(5, 3)),
    "n4": _RANDOM.normal(size=(5, 4)),
    "n6": _RANDOM.normal(size=(5, 6)),
}
"""Of any sign; `k`, `p`, `q` are positive, `u` are probabilities, `z` grows."""

STEP = 1e-5
TOLERANCE = 1e-6  # of differences: the step's square, and rounding errors divided by it


def calls() -> list[str]:
    """Return all calls, in the order of the table."""
    return [line.strip() for family in CALLS.values() for line in family.strip().splitlines()]


def waves(t: Any, a: Any) -> Any:
    """An integrand: both arguments are arrays, one of them traced."""
    return a.__array_namespace__().sin(t[:, 0] * a)


class Call:
    """A call of SciPy's functions, as a number that can be differentiated."""

    def __init__(self, text: str) -> None:
        self.code = compile(text, text, "eval")
        self.names = [name for name in self.code.co_names if name in ARGUMENTS]
        self.arguments = [ARGUMENTS[name] for name in self.names]
        shape = np.shape(self.result(np, *self.arguments))
        self.weights = np.random.default_rng(1).uniform(0.5, 1.5, shape)

    def result(self, xp: Any, *arguments: Any) -> Any:
        """Return what SciPy returns for arrays in place of those of `ARGUMENTS`."""
        known = {**MODULES, "waves": waves, "xp": xp}
        return eval(self.code, known | dict(zip(self.names, arguments, strict=True)))

    def loss(self, xp: Any, *arguments: Any) -> Any:
        """Return the weighted sum of the result."""
        return xp.sum(self.result(xp, *arguments) * xp.asarray(self.weights))

    def differences(self) -> list[Any]:
        """Return the gradient by central differences, of SciPy on NumPy arrays."""
        return [self._differences(k) for k in range(len(self.arguments))]

    def _differences(self, k: int) -> Any:
        gradient = np.empty(self.arguments[k].shape)
        for index in np.ndindex(gradient.shape):
            values = []
            for step in (STEP, -STEP):
                moved = [x.copy() for x in self.arguments]
                moved[k][index] += step
                values.append(self.loss(np, *moved))
            gradient[index] = (values[0] - values[1]) / (2 * STEP)
        return gradient


def error(text: str, library: Any) -> float:
    """Return the largest error of a gradient, relative where derivatives are large."""
    call, xp = Call(text), mixad.namespace_of(library)
    inputs = [library.asarray(x) for x in call.arguments]
    wanted = call.differences()
    value, found = mixad.value_and_grad(
        lambda *x: call.loss(xp, *x), argnums=tuple(range(len(inputs)))
    )(*inputs)
    value_error = abs(float(value) - call.loss(np, *call.arguments)) / (1 + abs(float(value)))
    assert value_error < 1e-9, f"value {value}"
    assert max(np.max(np.abs(g)) for g in wanted) > 1e-3, "the derivative is zero"
    errors = [
        np.abs(np.asarray(g) - h) / (1 + np.abs(h)) for g, h in zip(found, wanted, strict=True)
    ]
    return float(max(map(np.max, errors)))


def outcome(text: str, library: Any) -> float | str:
    """Return the error of a gradient, or what went wrong."""
    try:
        return error(text, library)
    except Exception as failure:  # whatever it is, it is reported with the call
        return f"{type(failure).__name__}: {failure}"


MODULES: dict[str, Any] = {}

if __name__ == "__main__":
    assert os.environ["SCIPY_ARRAY_API"] == "1"
    with_objects.pytest_configure()
    warnings.simplefilter("ignore")
    for module in (
        "special stats stats integrate optimize signal signal.windows cluster.vq linalg "
        "spatial.transform constants fft differentiate"
    ).split():
        importlib.import_module(f"scipy.{module}")
        MODULES[module.partition(".")[0]] = sys.modules[f"scipy.{module.partition('.')[0]}"]
    base = importlib.import_module(sys.argv[1])
    print(json.dumps({text: outcome(text, base) for text in calls()}))
