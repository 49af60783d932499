"""What to write instead of functions that convert their arguments: SciPy's, JAX's, `statistics`'.

SciPy's make NumPy arrays of them, JAX's its own, and those of `statistics` numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from inspect import unwrap
from types import FrameType, FunctionType
from typing import Any

from mixad.namespace.spelling import LibraryBinding

__all__ = ["SIMILAR", "WITH_ARRAY_API", "asks_for_conversion", "function_called", "instead_of"]

SIMILAR = {
    "fft.dctn": "fft.dct along each axis",
    "fft.idctn": "fft.idct along each axis",
    "linalg.cho_factor": "linalg.cholesky, and cho_solve with its factor",
    "linalg.lu_solve": "linalg.solve of the matrix itself",
    "linalg.solve_banded": "linalg.solve of the whole matrix",
    "signal.convolve2d": "signal.convolve",
    "signal.correlate2d": "signal.correlate",
}
"""Functions of `mixad.scipy` that do the same under other names than SciPy's."""

_ELSEWHERE = {"integrate.trapezoid": "trapezoid"}
"""Other names in array libraries, which have the functions of linalg and fft."""

WITH_ARRAY_API = frozenset(
    f"{module}.{name}"
    for module, names in {
        "cluster.vq": "whiten",
        "constants": "convert_temperature lambda2nu nu2lambda",
        "differentiate": "derivative",
        "fft": "fht",
        "integrate": "cubature cumulative_simpson cumulative_trapezoid romb trapezoid",
        "linalg": "block_diag fiedler orthogonal_procrustes",
        "optimize": "rosen rosen_der rosen_hess rosen_hess_prod",
        "signal": "envelope fftconvolve freqs freqz gauss_spline hilbert kaiser_atten lp2bp lp2bs "
        "normalize oaconvolve resample vectorstrength",
        "signal.windows": "exponential gaussian general_cosine general_gaussian general_hamming "
        "kaiser",
        "spatial.transform": "RigidTransform Rotation",
        "special": "log_softmax logsumexp polygamma softmax zeta",
        "stats": "alexandergovern bartlett boxcox_llf chisquare circmean circstd circvar "
        "combine_pvalues describe differential_entropy directional_stats entropy "
        "epps_singleton_2samp f_oneway false_discovery_control gmean gstd gzscore hmean iqr "
        "jarque_bera kstat kstatvar kurtosis kurtosistest levene lmoment median_abs_deviation "
        "moment normaltest pearsonr pmean power_divergence quantile sem sigmaclip skew skewtest "
        "tmax tmean tmin trim_mean tsem tstd ttest_1samp ttest_ind ttest_ind_from_stats ttest_rel "
        "tvar variation yeojohnson_llf zmap zscore",
    }.items()
    for name in names.split()
)
"""Functions that take the standard's arrays if asked to when SciPy is imported."""


_STATISTICS = {
    "mean": "np.mean(x)",
    "fmean": "np.mean(x)",
    "geometric_mean": "np.exp(np.mean(np.log(x)))",
    "harmonic_mean": "1 / np.mean(1 / x)",
    "stdev": "np.std(x, ddof=1)",
    "variance": "np.var(x, ddof=1)",
    "pstdev": "np.std(x)",
    "pvariance": "np.var(x)",
    "mode": "x[np.argmax((x[:, None] == x).sum(1))]",
}
"""Functions of arrays in place of those of Python's `statistics`."""


def function_called(frame: FrameType | None) -> str | None:
    """Return the function of SciPy, JAX or `statistics` that runs; None if there is none.

    Frames of NumPy, mixad and `collections` that it called are skipped.
    """
    while frame is not None and _is_passed_over(_module(frame)):
        frame = frame.f_back
    frames = []
    while frame is not None and (_is_converting(_module(frame)) or _is_numpys(frame)):
        frames.append(frame)
        frame = frame.f_back
    if not frames:
        return None
    # The outermost one that SciPy exports: decorators are around many.
    names = (f"{name}()" for frame in reversed(frames) for name in _names(frame))
    return next(names, f"a function of {_public_module(_module(frames[-1]))}")


def _is_converting(module: str) -> bool:
    return module.partition(".")[0] in ("scipy", "statistics", "jax")


def _is_passed_over(module: str) -> bool:
    return module.partition(".")[0] in ("numpy", "mixad", "collections")


def _is_numpys(frame: FrameType) -> bool:
    return _module(frame).startswith("numpy")


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _public_module(name: str) -> str:
    """Return the innermost public module around one, or the module itself.

    JAX has its modules again in ``jax._src``.
    """
    parts = name.replace("._src", "", 1).split(".")
    private = next((at for at, part in enumerate(parts) if part.startswith("_")), len(parts))
    modules = (".".join(parts[:count]) for count in range(private, 0, -1))
    return next((module for module in modules if module in sys.modules), parts[0])


def _names(frame: FrameType) -> Iterator[str]:
    """Yield names by which users may call the function of a frame.

    These are its own, its object's if it is a method, and the wrapped function's for a decorator.
    """
    found = {frame.f_code.co_qualname: _module(frame)}
    values = list(map(unwrap, frame.f_locals.values()))
    for value in sorted(values, key=lambda value: not isinstance(value, FunctionType)):
        named = value if isinstance(value, FunctionType) else type(value)
        found[named.__qualname__] = named.__module__
    for name, module in found.items():
        public = _public_module(module)
        owner, *rest = name.partition(".<locals>")[0].split(".")
        shown = [each for each in rest if not each.startswith("_")]
        for path in (*_exported_objects(values, owner), f"{public}.{owner}"):
            home, _, own = path.rpartition(".")
            if _is_converting(home) and hasattr(sys.modules.get(home), own):
                yield ".".join((path, *shown))


def _exported_objects(values: Iterable[Any], owner: str) -> Iterator[str]:
    """Yield the names of modules' objects of a class, such as `scipy.stats.norm`.

    A frozen distribution, made by a call of such an object, has another class and refers to an
    object of the first.
    """
    for value in values:
        if owner in [kind.__qualname__ for kind in type(value).__mro__]:
            for each in (value, *getattr(value, "__dict__", {}).values()):
                home = _public_module(type(each).__module__)
                if _is_converting(home):
                    names = vars(sys.modules[home]).items()
                    yield from (f"{home}.{n}" for n, v in names if type(v) is type(each))


def asks_for_conversion(frame: FrameType) -> bool:
    """Whether a function of JAX asks if a value can be one of its arrays.

    Operators of its arrays ask, too, and leave other values to the operators of these.
    """
    module = _module(frame)
    return module.startswith("jax.") and not module.endswith(".array_methods")


def instead_of(called: str, library: str, spelling: LibraryBinding) -> str:
    """Return what to call instead, with the derivative that SciPy's function would lose."""
    path = called.removeprefix("a function of ").removesuffix("()")
    package, _, rest = path.partition(".")
    if package == "jax":
        return _instead_of_jax(rest, library, spelling)
    if package == "statistics":
        return f"use {_STATISTICS.get(rest, 'functions of NumPy')}, of a list x of np.stack(x)"
    name = called.removeprefix("scipy.").removesuffix("()")
    if name in SIMILAR or _has_counterpart(name):
        return f"use mixad.scipy.{SIMILAR.get(name, name)}"
    own = _ELSEWHERE.get(name, name)
    if (own != name or name.startswith(("linalg.", "fft."))) and own in spelling.functions:
        return f"use {library}.{own}"
    api = sys.modules.get("scipy._lib._array_api")
    takes_arrays = not {name, name.rpartition(".")[0]}.isdisjoint(WITH_ARRAY_API)
    if takes_arrays and not getattr(api, "SCIPY_ARRAY_API", False):
        return "set SCIPY_ARRAY_API=1 in the environment before SciPy is imported, which keeps it"
    return "give it one with mixad.custom_vjp"


def _has_counterpart(name: str) -> bool:
    """Whether `mixad.scipy`, a layer above, has a function of SciPy's name."""
    found = getattr(sys.modules["mixad"], "scipy", None)
    for part in name.split("."):
        found = getattr(found, part, None)
    return callable(found)


def _instead_of_jax(name: str, library: str, spelling: LibraryBinding) -> str:
    own = name.removeprefix("numpy.")
    if _has_counterpart(name.removeprefix("scipy.")):
        return f"use mixad.{name} in its place"
    if name in ("numpy.array", "numpy.asarray"):
        return "leave it out, and use functions of numpy"
    if own in spelling.functions:
        return f"use {library}.{own} in its place"
    if hasattr(sys.modules["mixad"], own):
        return f"use mixad.{own} in its place"
    return "take JAX's own derivative: mixad_jax.borrow(function)(x), of the plugin mixad-jax"
