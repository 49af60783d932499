"""What each differentiable op and its derivatives are, from outside mixad: closed forms in mpmath.

For every op: a *jet* (value, first and second derivatives, hand-derived and evaluated with `DIGITS`
digits), the points where it is measured, and the error that is promised there.
``tools/measure_derivatives.py`` measures; ``tests/scalar/test_derivatives.py`` fails for an op of
`mixad.scalar.ops.TABLE` that has no case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from mpmath import mp, mpf

__all__ = ["CASES", "DIGITS", "Bound", "Case", "Derivatives", "Jet", "points"]

DIGITS = 80
NEIGHBOURHOODS = 24
"""Distances from an edge at which a function is measured, by powers of two."""

Derivatives: TypeAlias = tuple[Any, ...]
Jet: TypeAlias = tuple[Any, Derivatives, Derivatives]
"""Value, ∂/∂xᵢ for each i, ∂²/∂xᵢ∂xⱼ for i <= j in the order of (0,0), (0,1), …, (1,1), …"""

Sampler: TypeAlias = Callable[[np.random.Generator, np.dtype[Any], int], np.ndarray]


@dataclass(frozen=True)
class Bound:
    """Largest error in ulp of the exact result: of the value, first and second derivatives."""

    value: float
    first: float
    second: float


@dataclass(frozen=True)
class Case:
    """One op.

    Attributes
    ----------
    jet : callable
        mpf arguments → `Jet`.
    arguments : tuple of samplers
        One per argument.
    f32, f64 : Bound
        What is promised on these points.
    scale : callable, optional
        mpf arguments → `Jet` of magnitudes in whose ulp errors count instead, for results that are
        differences of larger terms; 0 stands for the result itself.
    why : str
        What ``scale`` is, for the docs.
    domain : callable, optional
        mpf arguments → whether the function is measured there.
    """

    jet: Callable[..., Jet]
    arguments: tuple[Sampler, ...]
    f32: Bound
    f64: Bound
    scale: Callable[..., Jet] | None = None
    why: str = ""
    domain: Callable[..., bool] | None = None

    def bound(self, dtype: np.dtype[Any]) -> Bound:
        """Return the promise for a dtype."""
        return self.f32 if dtype.itemsize == 4 else self.f64


# -- points --------------------------------------------------------------------------------------


def between(low: float, high: float) -> Sampler:
    """Uniform numbers."""

    def sample(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
        last_digits = 1 + 2.0**-20 * rng.uniform(-1, 1, count)  # which `uniform` leaves at zero
        return rng.uniform(low, high, count) * last_digits

    return sample


def magnitudes(low: float, high: float, *, signed: bool = True) -> Sampler:
    """Numbers whose decimal exponents are uniform; infinite bounds stand for the dtype's range."""

    def sample(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
        limits = np.finfo(dtype)
        least = math.log10(max(low, float(limits.tiny)))
        most = math.log10(min(high, float(limits.max) / 2))
        size = 10.0 ** (least + (most - least) * rng.random(count))
        return size * rng.choice([-1.0, 1.0], count) if signed else size

    return sample


def spread(share: float = 1.0, *, signed: bool = True) -> Sampler:
    """Numbers of all magnitudes in the middle ``share`` of the dtype's exponents."""

    def sample(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
        most = float(np.finfo(dtype).max) ** share
        return magnitudes(1 / most, most, signed=signed)(rng, dtype, count)

    return sample


def exponents(power: float = 1.0) -> Sampler:
    """Numbers x for which exp(±|x|^(1/power)) stays inside the dtype's normal range."""

    def sample(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
        most = (0.98 * math.log(float(np.finfo(dtype).max))) ** power
        return between(-most, most)(rng, dtype, count)

    return sample


def near(*edges: float) -> Sampler:
    """Numbers at distances 2⁻ᵏ from edges, on both sides, down to the neighbouring number."""

    def sample(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
        finest = np.finfo(dtype).nmant + 1
        steps = 2.0 ** -np.linspace(3, finest, NEIGHBOURHOODS).round()
        return np.concatenate([e + s * steps * (abs(e) or 1.0) for e in edges for s in (-1, 1)])

    return sample


def either(*samplers: Sampler) -> Sampler:
    """Points of several kinds, ``count`` of each."""

    def sample(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
        return np.concatenate([s(rng, dtype, count) for s in samplers])

    return sample


def points(case: Case, dtype: np.dtype[Any], count: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return the points where a case is measured, as arrays of the dtype, one per argument.

    Parameters
    ----------
    case : Case
        The op's case.
    dtype : numpy.dtype
        float32 or float64.
    count : int
        Random points of each kind.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    tuple of numpy.ndarray
        Inside the case's domain.
    """
    rng = np.random.default_rng(seed)
    columns = [sample(rng, dtype, count) for sample in case.arguments]
    length = max(map(len, columns))
    columns = [np.resize(c, length) for c in columns]
    columns = [rng.permutation(c) if i else c for i, c in enumerate(columns)]
    arrays = [np.asarray(c).astype(dtype) for c in columns]
    if case.domain is not None:
        kept = [case.domain(*map(mpf, map(float, row))) for row in zip(*arrays, strict=True)]
        arrays = [a[kept] for a in arrays]
    return tuple(arrays)


# -- jets ----------------------------------------------------------------------------------------


def _unary(f: Callable[[mpf], tuple[Any, Any, Any]]) -> Callable[..., Jet]:
    def jet(x: mpf) -> Jet:
        value, first, second = f(x)
        return value, (first,), (second,)

    return jet


def _steps(f: Callable[[mpf], Any]) -> Callable[..., Jet]:
    """A function that is constant between its steps."""
    return lambda x: (f(x), (0,), (0,))


def _tanh(x: mpf) -> tuple[Any, Any, Any]:
    first = mp.sech(x) ** 2
    return mp.tanh(x), first, -2 * mp.tanh(x) * first


def _sigmoid(x: mpf) -> tuple[Any, Any, Any]:
    first = 1 / (4 * mp.cosh(x / 2) ** 2)
    return 1 / (1 + mp.exp(-x)), first, -first * mp.tanh(x / 2)


def _logistic_density(x: mpf) -> tuple[Any, Any, Any]:
    value, slope = 1 / (4 * mp.cosh(x / 2) ** 2), -mp.tanh(x / 2)
    return value, value * slope, value * (slope**2 - 2 * value)


def _sqrt(x: mpf) -> tuple[Any, Any, Any]:
    r = mp.sqrt(x)
    return r, 1 / (2 * r), -1 / (4 * x * r)


def _cbrt(x: mpf) -> tuple[Any, Any, Any]:
    r = mp.sign(x) * mp.cbrt(abs(x))
    return r, 1 / (3 * r**2), -2 / (9 * r**5)


def _tan(x: mpf) -> tuple[Any, Any, Any]:
    first = mp.sec(x) ** 2
    return mp.tan(x), first, 2 * mp.tan(x) * first


def _asin(x: mpf) -> tuple[Any, Any, Any]:
    q = 1 - x**2
    return mp.asin(x), 1 / mp.sqrt(q), x / mp.sqrt(q) ** 3


def _acos(x: mpf) -> tuple[Any, Any, Any]:
    _, first, second = _asin(x)
    return mp.acos(x), -first, -second


def _atan(x: mpf) -> tuple[Any, Any, Any]:
    q = 1 + x**2
    return mp.atan(x), 1 / q, -2 * x / q**2


def _asinh(x: mpf) -> tuple[Any, Any, Any]:
    q = 1 + x**2
    return mp.asinh(x), 1 / mp.sqrt(q), -x / mp.sqrt(q) ** 3


def _acosh(x: mpf) -> tuple[Any, Any, Any]:
    q = x**2 - 1
    return mp.acosh(x), 1 / mp.sqrt(q), -x / mp.sqrt(q) ** 3


def _atanh(x: mpf) -> tuple[Any, Any, Any]:
    q = 1 - x**2
    return mp.atanh(x), 1 / q, 2 * x / q**2


def _erf(x: mpf) -> tuple[Any, Any, Any]:
    first = 2 / mp.sqrt(mp.pi) * mp.exp(-(x**2))
    return mp.erf(x), first, -2 * x * first


def _erfc(x: mpf) -> tuple[Any, Any, Any]:
    _, first, second = _erf(x)
    return mp.erfc(x), -first, -second


def _gamma(x: mpf) -> tuple[Any, Any, Any]:
    g, p = mp.gamma(x), mp.psi(0, x)
    return g, g * p, g * (p**2 + mp.psi(1, x))


def _lgamma(x: mpf) -> tuple[Any, Any, Any]:
    value = mp.loggamma(x) if x > 0 else mp.log(abs(mp.gamma(x)))
    return value, mp.psi(0, x), mp.psi(1, x)


def _digamma(x: mpf) -> tuple[Any, Any, Any]:
    return mp.psi(0, x), mp.psi(1, x), mp.psi(2, x)


def _trigamma(x: mpf) -> tuple[Any, Any, Any]:
    return mp.psi(1, x), mp.psi(2, x), mp.psi(3, x)


def _polygamma(n: mpf, x: mpf) -> Jet:
    value, first, second = (mp.psi(int(n) + k, x) for k in range(3))
    return value, (first,), (second,)


def _add(x: mpf, y: mpf) -> Jet:
    return x + y, (1, 1), (0, 0, 0)


def _sub(x: mpf, y: mpf) -> Jet:
    return x - y, (1, -1), (0, 0, 0)


def _mul(x: mpf, y: mpf) -> Jet:
    return x * y, (y, x), (0, 1, 0)


def _div(x: mpf, y: mpf) -> Jet:
    return x / y, (1 / y, -x / y**2), (0, -1 / y**2, 2 * x / y**3)


def _fma(x: mpf, y: mpf, z: mpf) -> Jet:
    return x * y + z, (y, x, 1), (0, 1, 0, 0, 0, 0)


def _floordiv(x: mpf, y: mpf) -> Jet:
    return _divided(x, y)[0], (0, 0), (0, 0, 0)


def _mod(x: mpf, y: mpf) -> Jet:
    quotient, remainder = _divided(x, y)
    return remainder, (1, -quotient), (0, 0, 0)


def _fmod(x: mpf, y: mpf) -> Jet:
    quotient, remainder = _divided(abs(x), abs(y))
    return mp.sign(x) * remainder, (1, -mp.sign(x) * mp.sign(y) * quotient), (0, 0, 0)


def _divided(x: mpf, y: mpf) -> tuple[mpf, mpf]:
    """⌊x/y⌋ and the remainder, by whole numbers: no number of digits would do."""
    (a, b), (c, d) = float(x).as_integer_ratio(), float(y).as_integer_ratio()
    quotient, remainder = divmod(a * d, c * b)
    return mpf(quotient), mpf(remainder) / (b * d)


def _minimum(x: mpf, y: mpf) -> Jet:
    return min(x, y), (int(x < y), int(y < x)), (0, 0, 0)


def _maximum(x: mpf, y: mpf) -> Jet:
    return max(x, y), (int(x > y), int(y > x)), (0, 0, 0)


def _copysign(x: mpf, y: mpf) -> Jet:
    return abs(x) * mp.sign(y), (mp.sign(x) * mp.sign(y), 0), (0, 0, 0)


def _nextafter(x: mpf, y: mpf) -> Jet:
    return x, (1, 0), (0, 0, 0)


def _logaddexp(x: mpf, y: mpf) -> Jet:
    larger, gap = max(x, y), abs(x - y)
    _, _, slope = _unit_logistic(x - y)
    value = larger + mp.log1p(mp.exp(-gap))
    return value, _unit_logistic(x - y)[:2], (slope, -slope, slope)


def _unit_logistic(t: mpf) -> tuple[Any, Any, Any]:
    """σ(t), σ(-t) and σ'(t)."""
    return 1 / (1 + mp.exp(-t)), 1 / (1 + mp.exp(t)), _sigmoid(t)[1]


def _pow(x: mpf, y: mpf) -> Jet:
    if x < 0:  # y is a whole number; the derivative with respect to it is undefined
        first, second = y * x ** int(y - 1), y * (y - 1) * x ** int(y - 2)
        return x ** int(y), (first, mp.nan), (second, mp.nan, mp.nan)
    value, log = mp.power(x, y), mp.log(x)
    first = (y * value / x, value * log)
    return value, first, (y * (y - 1) * value / x**2, value / x * (1 + y * log), value * log**2)


def _atan2(x: mpf, y: mpf) -> Jet:
    q = x**2 + y**2
    second = (-2 * x * y / q**2, (x**2 - y**2) / q**2, 2 * x * y / q**2)
    return mp.atan2(x, y), (y / q, -x / q), second


def _hypot(x: mpf, y: mpf) -> Jet:
    r = mp.sqrt(x**2 + y**2)
    return r, (x / r, y / r), (y**2 / r**3, -x * y / r**3, x**2 / r**3)


def _sinc(x: mpf) -> tuple[Any, Any, Any]:
    """By the power series near 0, where terms of the closed forms cancel: 40 are enough below 1."""
    if abs(x) >= 1:
        pi, s, c = mp.pi, mp.sinpi(x), mp.cospi(x)
        first = c / x - s / (pi * x**2)
        return s / (pi * x), first, -pi * s / x - 2 * first / x
    even = [(-(mp.pi**2)) ** n / mp.factorial(2 * n + 1) for n in range(40)]
    terms = [a for c in even for a in (c, mpf(0))]
    return tuple(mp.fsum(a * x**k for k, a in enumerate(_derived(terms, n))) for n in range(3))


def _derived(coefficients: list[mpf], order: int) -> list[mpf]:
    """Coefficients of the derivative of a power series, lowest power first."""
    for _ in range(order):
        coefficients = [k * a for k, a in enumerate(coefficients)][1:]
    return coefficients


def _xlogy(x: mpf, y: mpf) -> Jet:
    return x * mp.log(y), (mp.log(y), x / y), (0, 1 / y, -x / y**2)


def _xlog1py(x: mpf, y: mpf) -> Jet:
    _, _, (_, mixed, bend) = _xlogy(x, 1 + y)
    return x * mp.log1p(y), (mp.log1p(y), x / (1 + y)), (0, mixed, bend)


def _where(c: mpf, x: mpf, y: mpf) -> Jet:
    return (x if c else y), (int(bool(c)), int(not c)), (0, 0, 0)


def _convert(x: mpf) -> Jet:
    return x, (1,), (0,)


# -- cases ---------------------------------------------------------------------------------------


# -- magnitudes of what cancels ------------------------------------------------------------------


def _logaddexp_scale(x: mpf, y: mpf) -> Jet:
    _, first, second = _logaddexp(x, y)
    gap = 1 + abs(x - y)
    return 0, tuple(f * gap for f in first), tuple(s * gap for s in second)


def _pow_scale(x: mpf, y: mpf) -> Jet:
    _, (dx, _), (dxx, _, _) = _pow(x, y)
    log = abs(mp.log(x))
    once, twice = 1 + abs(y - 1) * log, 1 + (abs(y - 1) + abs(y - 2)) * log
    return 0, (dx * once, 0), (dxx * twice, mp.power(x, y - 1) * once * (1 + abs(y) * log), 0)


def _atan2_scale(x: mpf, y: mpf) -> Jet:
    return 0, (0, 0), (1 / (x**2 + y**2),) * 3


def _hypot_scale(x: mpf, y: mpf) -> Jet:
    return 0, (0, 0), (1 / mp.hypot(x, y),) * 3


def _sinc_scale(x: mpf) -> Jet:
    return (0, (1 / x,), (mp.pi / x,)) if abs(x) >= 0.5 else (0, (0,), (0,))


def _reflected(x: mpf) -> mpf:
    """The larger term of ψ(x) = ψ(1 - x) - π cot πx, which is how it is computed for x < 0."""
    return max(abs(mp.psi(0, 1 - x)), abs(mp.pi * mp.cot(mp.pi * x))) if x < 0 else mpf(0)


def _terms(n: int, x: mpf) -> mpf:
    """n! Σ |x + k|^-(n+1) for x < 0, terms that have both signs where n is even."""
    if x >= 0:
        return mpf(0)
    if n == 0:
        return _reflected(x)
    fraction = x - mp.floor(x)
    above, below, beyond = (abs(mp.psi(n, y)) for y in (fraction, 1 - fraction, 1 - x))
    return above + below - beyond


def _polygamma_scale(n: mpf, x: mpf) -> Jet:
    value, first, second = (_terms(int(n) + k, x) for k in range(3))
    return value, (first,), (second,)


def _gamma_scale(x: mpf) -> Jet:
    return 0, (mp.gamma(x) * _reflected(x),), (0,)


# -- cases ---------------------------------------------------------------------------------------


def _case(
    jet: Callable[..., Jet],
    *arguments: Sampler,
    f32: tuple[float, float, float],
    f64: tuple[float, float, float] | None = None,
    **rest: Any,
) -> Case:
    return Case(jet, arguments, Bound(*f32), Bound(*(f64 or f32)), **rest)


_WIDE, _HALF, _THIRD = spread(), spread(0.45), spread(0.3)
_POSITIVE = spread(0.95, signed=False)
_AROUND = either(between(-4, 4), _THIRD)
_UNIT = either(between(-1, 1), near(1, -1), magnitudes(1e-20, 1))
_ANGLES = either(between(-10, 10), magnitudes(1e-6, 1e6), _WIDE, near(math.pi / 2, math.pi))
_EXPONENTS = either(exponents(), between(-3, 3), magnitudes(1e-30, 1))
_BELL = either(exponents(0.5), magnitudes(1e-20, 1))
_GAMMA = either(between(-6, 30), near(1, 2, 1.4616321449683623))
_JUMPS = either(_AROUND, near(0.5, 1, 1.5, -0.5, -1, -1.5))

_EXACT, _ROUNDED = (0, 0, 0), (0.5, 0, 0)


def _booleans(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
    return rng.integers(0, 2, count)


def _orders(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
    return rng.integers(0, 7, count)


def _no_pole(x: mpf) -> bool:
    return x > 0 or x != mp.floor(x)


def _inside(x: mpf) -> bool:
    return abs(x) < 1


CASES: Mapping[str, Case] = MappingProxyType({
    "add": _case(_add, _AROUND, _AROUND, f32=_ROUNDED),
    "sub": _case(_sub, _AROUND, _AROUND, f32=_ROUNDED),
    "mul": _case(_mul, _HALF, _HALF, f32=_ROUNDED),
    "mul_zero": _case(_mul, _HALF, _HALF, f32=_ROUNDED),
    "mul_zeros": _case(_mul, _HALF, _HALF, f32=_ROUNDED),
    "div": _case(_div, _THIRD, _THIRD, f32=(0.5, 1.5, 2.5)),
    "floordiv": _case(_floordiv, _AROUND, _AROUND, f32=(2, 0, 0)),
    "mod": _case(_mod, _AROUND, _AROUND, f32=(0.5, 2, 0)),
    "fmod": _case(_fmod, _AROUND, _AROUND, f32=(0, 2, 0)),
    "neg": _case(_unary(lambda x: (-x, -1, 0)), _WIDE, f32=_EXACT),
    "abs": _case(_unary(lambda x: (abs(x), mp.sign(x), 0)), _WIDE, f32=_EXACT),
    "sign": _case(_steps(mp.sign), _WIDE, f32=_EXACT),
    "fma": _case(_fma, _HALF, _HALF, _HALF, f32=_ROUNDED),
    "sqrt": _case(_unary(_sqrt), _POSITIVE, f32=(0.5, 1.5, 4)),
    "minimum": _case(_minimum, _AROUND, _AROUND, f32=_EXACT),
    "maximum": _case(_maximum, _AROUND, _AROUND, f32=_EXACT),
    "copysign": _case(_copysign, _AROUND, _AROUND, f32=_EXACT),
    "nextafter": _case(_nextafter, _AROUND, _AROUND, f32=(1, 0, 0)),
    "floor": _case(_steps(mp.floor), _JUMPS, f32=_EXACT),
    "ceil": _case(_steps(mp.ceil), _JUMPS, f32=_EXACT),
    "trunc": _case(_steps(lambda x: mp.sign(x) * mp.floor(abs(x))), _JUMPS, f32=_EXACT),
    "rint": _case(_steps(mp.nint), _JUMPS, f32=_EXACT),
    "where": _case(_where, _booleans, _WIDE, _WIDE, f32=_EXACT),
    "convert": _case(_convert, spread(0.1), f32=_ROUNDED),
    "exp": _case(_unary(lambda x: (mp.exp(x),) * 3), _EXPONENTS, f32=(1, 1, 1)),
    "exp2": _case(_unary(lambda x: (2**x, 2**x * mp.ln2, 2**x * mp.ln2**2)), _EXPONENTS,
                  f32=(1, 2, 3)),
    "expm1": _case(_unary(lambda x: (mp.expm1(x), mp.exp(x), mp.exp(x))), _EXPONENTS,
                   f32=(2, 1, 1)),
    "log": _case(_unary(lambda x: (mp.log(x), 1 / x, -1 / x**2)), either(_POSITIVE, near(1)),
                 f32=(1, 0.5, 1.5)),
    "log2": _case(_unary(lambda x: (mp.log(x, 2), 1 / (x * mp.ln2), -1 / (x**2 * mp.ln2))),
                  either(_POSITIVE, near(1)), f32=(1.5, 1, 2)),
    "log10": _case(_unary(lambda x: (mp.log10(x), 1 / (x * mp.ln10), -1 / (x**2 * mp.ln10))),
                   either(_POSITIVE, near(1)), f32=(1.5, 1, 2)),
    "log1p": _case(_unary(lambda x: (mp.log1p(x), 1 / (1 + x), -1 / (1 + x)**2)),
                   either(_POSITIVE, near(-1, 1), between(-1, 3)), f32=(2, 2, 4),
                   domain=lambda x: x > -1),
    "sigmoid": _case(_unary(_sigmoid), _EXPONENTS, f32=(1.5, 2.5, 6)),
    "logistic_density": _case(_unary(_logistic_density), _EXPONENTS, f32=(2.5, 4, 4),
                              scale=lambda x: (0, (0,), (_logistic_density(x)[0],)),
                              why="second: the value"),
    "relu": _case(_unary(lambda x: (max(x, 0), int(x > 0), 0)), _WIDE, f32=_EXACT),
    "logaddexp": _case(_logaddexp, between(-60, 60), between(-60, 60), f32=(1, 3, 4),
                       scale=_logaddexp_scale, why="derivatives: themselves times 1 + |x - y|"),
    "pow": _case(_pow, magnitudes(1e-3, 1e3, signed=False), between(-8, 8), f32=(1, 3, 5),
                 scale=_pow_scale,
                 why="∂x: itself times 1 + |(y - 1) log x|; second: each term likewise"),
    "sin": _case(_unary(lambda x: (mp.sin(x), mp.cos(x), -mp.sin(x))), _ANGLES,
                 f32=(1.5, 1.5, 1.5)),
    "cos": _case(_unary(lambda x: (mp.cos(x), -mp.sin(x), -mp.cos(x))), _ANGLES,
                 f32=(1.5, 1.5, 1.5)),
    "tan": _case(_unary(_tan), _ANGLES, f32=(4, 6, 9)),
    "tanh": _case(_unary(_tanh), _EXPONENTS, f32=(1.5, 3, 6)),
    "asin": _case(_unary(_asin), _UNIT, f32=(4, 2, 6), domain=_inside),
    "acos": _case(_unary(_acos), _UNIT, f32=(4, 2, 6), domain=_inside),
    "atan": _case(_unary(_atan), _WIDE, f32=(4, 2, 3)),
    "sinh": _case(_unary(lambda x: (mp.sinh(x), mp.cosh(x), mp.sinh(x))), _EXPONENTS,
                  f32=(4, 4, 4)),
    "cosh": _case(_unary(lambda x: (mp.cosh(x), mp.sinh(x), mp.cosh(x))), _EXPONENTS,
                  f32=(4, 4, 4)),
    "asinh": _case(_unary(_asinh), _WIDE, f32=(4, 4, 8)),
    "acosh": _case(_unary(_acosh), either(_POSITIVE, near(1), between(1, 3)), f32=(4, 3, 7),
                   domain=lambda x: x > 1),
    "atanh": _case(_unary(_atanh), _UNIT, f32=(4, 2, 4), domain=_inside),
    "atan2": _case(_atan2, _THIRD, _THIRD, f32=(4, 6, 16), scale=_atan2_scale,
                   why="second: 1/(x² + y²)"),
    "hypot": _case(_hypot, _THIRD, _THIRD, f32=(4, 5, 10), scale=_hypot_scale,
                   why="second: 1/hypot(x, y)"),
    "cbrt": _case(_unary(_cbrt), _WIDE, f32=(4, 8, 16)),
    "erf": _case(_unary(_erf), _BELL, f32=(1, 3, 4)),
    "erfc": _case(_unary(_erfc), _BELL, f32=(4, 3, 4)),
    "gamma": _case(_unary(_gamma), _GAMMA, f32=(8, 8, 12), domain=_no_pole, scale=_gamma_scale,
                   why="first: the larger of Γ(x)ψ(1 - x) and Γ(x)π cot πx, for x < 0"),
    "lgamma": _case(_unary(_lgamma), either(_GAMMA, _POSITIVE), f32=(8, 4, 4), domain=_no_pole,
                    scale=lambda x: (0, (_reflected(x),), (0,)),
                    why="first: the larger of ψ(1 - x) and π cot πx, for x < 0"),
    "digamma": _case(_unary(_digamma), _GAMMA, f32=(4, 4, 4), domain=_no_pole,
                     scale=lambda x: _polygamma_scale(mpf(0), x),
                     why="value: the larger of ψ(1 - x) and π cot πx; second: 2 Σ |x + k|⁻³; both "
                         "for x < 0"),
    "trigamma": _case(_unary(_trigamma), _GAMMA, f32=(4, 4, 4), domain=_no_pole,
                      scale=lambda x: _polygamma_scale(mpf(1), x),
                      why="first: 2 Σ |x + k|⁻³, for x < 0"),
    "polygamma": _case(_polygamma, _orders, _GAMMA, f32=(4, 4, 4),
                       domain=lambda n, x: _no_pole(x), scale=_polygamma_scale,
                       why="order 0: as digamma; others: n! Σ |x + k|⁻⁽ⁿ⁺¹⁾, for x < 0"),
    "sinc": _case(_unary(_sinc), either(between(-4, 4), magnitudes(1e-20, 1), _THIRD,
                                        near(0.5, 1, 2)),
                  f32=(3, 6, 12), scale=_sinc_scale,
                  why="for |x| >= 1/2: first: 1/x; second: π/x"),
    "xlogy": _case(_xlogy, _THIRD, either(spread(0.3, signed=False), near(1)),
                   f32=(2, 2, 3)),
    "xlog1py": _case(_xlog1py, _THIRD,
                     either(spread(0.3, signed=False), near(-1, 1)),
                     f32=(2.5, 3, 6), domain=lambda x, y: y > -1),
})  # fmt: skip
