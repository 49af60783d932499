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
    if x < 0 and y == mp.floor(y):  # the derivative with respect to y is undefined
        first, second = y * x ** int(y - 1), y * (y - 1) * x ** int(y - 2)
        return x ** int(y), (first, mp.nan), (second, mp.nan, mp.nan)
    value, log = mp.power(x, y), mp.log(x)
    first = (y * value / x, value * log)
    return value, first, (y * (y - 1) * value / x**2, value / x * (1 + y * log), value * log**2)


def _mul_pow(x: mpf, y: mpf, z: mpf) -> Jet:
    value, (dy, dz), (dyy, dyz, dzz) = _pow(y, z)
    return x * value, (value, x * dy, x * dz), (0, dy, dz, x * dyy, x * dyz, x * dzz)


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


def _entr(x: mpf) -> tuple[Any, Any, Any]:
    return -x * mp.log(x), -1 - mp.log(x), -1 / x


def _rel_entr(x: mpf, y: mpf) -> Jet:
    log = mp.log(x / y)
    return x * log, (1 + log, -x / y), (1 / x, -1 / y, x / y**2)


def _kl_div(x: mpf, y: mpf) -> Jet:
    value, (dx, _), second = _rel_entr(x, y)
    return value - x + y, (dx - 1, (y - x) / y), second


def _larger_of_them(x: mpf, y: mpf) -> Jet:
    return max(x, y), (0, 0), (0, 0, 0)


def _pseudo_huber(d: mpf, r: mpf) -> Jet:
    h = mp.hypot(d, r)
    rest = r**2 / (h + d)
    second = (-(rest**2) * (2 * h + d) / h**3, r**3 / h**3, d**3 / h**3)
    return d * rest, (rest**2 / h, d * r / h), second


def _xlog1py(x: mpf, y: mpf) -> Jet:
    _, _, (_, mixed, bend) = _xlogy(x, 1 + y)
    return x * mp.log1p(y), (mp.log1p(y), x / (1 + y)), (0, mixed, bend)


def _sec(x: mpf) -> tuple[Any, Any, Any]:
    s, t = mp.sec(x), mp.tan(x)
    return s, s * t, s * (2 * t**2 + 1)


def _csc(x: mpf) -> tuple[Any, Any, Any]:
    s, t = mp.csc(x), mp.cot(x)
    return s, -s * t, s * (2 * t**2 + 1)


def _cot(x: mpf) -> tuple[Any, Any, Any]:
    first = -(mp.csc(x) ** 2)
    return mp.cot(x), first, -2 * mp.cot(x) * first


def _turned(
    f: Callable[[mpf], Any], partner: Callable[[mpf], Any], unit: Callable[[], Any]
) -> Callable[[mpf], tuple[Any, Any, Any]]:
    """Sine or cosine of an angle in half turns over ``unit``; ``partner`` is the derivative."""

    def jet(x: mpf) -> tuple[Any, Any, Any]:
        t, c = x / unit(), mp.pi / unit()
        return f(t), c * partner(t), -c * c * f(t)

    return jet


def _tangent(unit: Callable[[], Any]) -> Callable[[mpf], tuple[Any, Any, Any]]:
    def jet(x: mpf) -> tuple[Any, Any, Any]:
        t, c = x / unit(), mp.pi / unit()
        value = mp.sinpi(t) / mp.cospi(t)
        first = c / mp.cospi(t) ** 2
        return value, first, 2 * c * value * first

    return jet


def _minus_sinpi(x: mpf) -> Any:
    return -mp.sinpi(x)


def _degrees_in_half_turn() -> mpf:
    return mpf(180)


def _one() -> mpf:
    return mpf(1)


def _gelu_tanh(x: mpf) -> tuple[Any, Any, Any]:
    k, c = 2 * mp.sqrt(2 / mp.pi), mpf(0.044715)
    u, du, ddu = k * (x + c * x**3), k * (1 + 3 * c * x**2), 6 * k * c * x
    s, s1, s2 = _sigmoid(u)
    return x * s, s + x * s1 * du, 2 * s1 * du + x * (s2 * du**2 + s1 * ddu)


def _gelu_tanh_scale(x: mpf) -> Jet:
    """The largest terms, and what an error in the argument of the exponential makes of them."""
    k, c = 2 * mp.sqrt(2 / mp.pi), mpf(0.044715)
    u, du = k * (x + c * x**3), k * (1 + 3 * c * x**2)
    s, s1, _ = _sigmoid(u)
    first, second = max(s, abs(x * s1 * du)), max(s1 * du, abs(x * s1 * du**2))
    return x * s * (1 + abs(u) * (1 - s)), (first * (1 + abs(u)),), (second * (1 + abs(u)),)


def _log1mexp(x: mpf) -> tuple[Any, Any, Any]:
    r = 1 / mp.expm1(-x)
    return mp.log(-mp.expm1(x)), -r, -r * (1 + r)


def _exprel(x: mpf) -> tuple[Any, Any, Any]:
    """By the power series near 0, where terms of the closed forms cancel: 60 are enough below 1."""
    if abs(x) >= 1:
        value = mp.expm1(x) / x
        first = (mp.exp(x) - value) / x
        return value, first, (mp.exp(x) - 2 * first) / x
    terms = [1 / mp.factorial(k + 1) for k in range(60)]
    return tuple(mp.fsum(a * x**k for k, a in enumerate(_derived(terms, n))) for n in range(3))


def _logsubexp(x: mpf, y: mpf) -> Jet:
    value, first, second = _log1mexp(y - x)
    return x + value, (1 - first, first), (second, -second, second)


def _logsubexp_scale(x: mpf, y: mpf) -> Jet:
    _, (_, first), (second, _, _) = _logsubexp(x, y)
    gap = 1 + abs(x - y)
    return max(abs(x), abs(y)), (0, first * gap), (second * gap,) * 3


def _ierfcx_values(n: int, count: int, x: mpf) -> list[mpf]:
    """exp(x²) times repeated integrals of erfc, of orders n, n + 1, …: DLMF 7.18.7."""
    values = [2 / mp.sqrt(mp.pi), mp.exp(x * x) * mp.erfc(x)]
    for k in range(1, n + count):
        values.append((values[-2] - 2 * x * values[-1]) / (2 * k))
    return values[n + 1 :]


def _ierfcx(n: mpf, x: mpf) -> Jet:
    value, first, second = _ierfcx_values(int(n), 3, x)
    return value, (-2 * (n + 1) * first,), (4 * (n + 1) * (n + 2) * second,)


def _erfcx(x: mpf) -> tuple[Any, Any, Any]:
    value, (first,), (second,) = _ierfcx(mpf(0), x)
    return value, first, second


_NOT_REAL = (mp.mpc(0, 1),) * 3


def _erfinv(x: mpf) -> tuple[Any, Any, Any]:
    if not -1 < x < 1:
        return _NOT_REAL
    value = mp.erfinv(x)
    first = mp.sqrt(mp.pi) / 2 * mp.exp(value**2)
    return value, first, 2 * value * first**2


def _erfcinv(x: mpf) -> tuple[Any, Any, Any]:
    if not 0 < x < 2:
        return _NOT_REAL
    if x > 1:
        value, first, second = _erfcinv(2 - x)
        return -value, first, -second
    value = mp.erfinv(1 - x) if x > 0.1 else mp.sqrt(-mp.log(x))
    for _ in range(12):  # Newton's method for the logarithm
        step = (mp.log(mp.erfc(value)) - mp.log(x)) * mp.erfc(value)
        step *= -mp.sqrt(mp.pi) / 2 * mp.exp(value**2)
        value -= step
    first = -mp.sqrt(mp.pi) / 2 * mp.exp(value**2)
    return value, first, 2 * value * first**2


def _ndtri(x: mpf) -> tuple[Any, Any, Any]:
    root = -mp.sqrt(2)
    value, first, second = _erfcinv(2 * x)
    return root * value, 2 * root * first, 4 * root * second


def _bessel(function: Callable[[int, mpf], Any], sign: int, n: int) -> Callable[[mpf], Any]:
    """J, Y (sign -1) or I (sign 1) of order 0 or 1, by recurrences (DLMF 10.6 and 10.29)."""

    def jet(x: mpf) -> tuple[Any, Any, Any]:
        zero, one = function(0, x), function(1, x)
        two = sign * (zero - 2 * one / x)
        three = sign * (one - 4 * two / x)
        if n == 0:
            return zero, sign * one, sign * (zero + sign * two) / 2
        return one, (zero + sign * two) / 2, (3 * sign * one + three) / 4

    return jet


_I0, _I1 = (_bessel(mp.besseli, 1, n) for n in (0, 1))
_J0, _J1 = (_bessel(mp.besselj, -1, n) for n in (0, 1))
_Y0, _Y1 = (_bessel(mp.bessely, -1, n) for n in (0, 1))


def _scaled_bessel(bessel: Callable[[mpf], Any]) -> Callable[[mpf], Any]:
    """exp(-|x|) times a function."""

    def jet(x: mpf) -> tuple[Any, Any, Any]:
        (value, first, second), sign, scale = bessel(x), mp.sign(x), mp.exp(-abs(x))
        first, second = first - sign * value, second - 2 * sign * first + value
        return scale * value, scale * first, scale * second

    return jet


def _ellipk(m: mpf) -> tuple[Any, Any, Any]:
    """DLMF 19.4.1 and 19.4.8 in terms of m."""
    k, e = mp.ellipk(m), mp.ellipe(m)
    first = (e - (1 - m) * k) / (2 * m * (1 - m))
    return k, first, (k / 4 - (1 - 2 * m) * first) / (m * (1 - m))


def _ellipkm1(p: mpf) -> tuple[Any, Any, Any]:
    value, first, second = _ellipk(1 - p)
    return value, -first, second


def _ellipe(m: mpf) -> tuple[Any, Any, Any]:
    """DLMF 19.4.2 and 19.4.9 in terms of m."""
    k, e = mp.ellipk(m), mp.ellipe(m)
    first = (e - k) / (2 * m)
    return e, first, -(e + 4 * (1 - m) * first) / (4 * m * (1 - m))


def _betaln(a: mpf, b: mpf) -> Jet:
    value = mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)
    first = tuple(mp.psi(0, x) - mp.psi(0, a + b) for x in (a, b))
    joint = mp.psi(1, a + b)
    return value, first, (mp.psi(1, a) - joint, -joint, mp.psi(1, b) - joint)


def _betaln_scale(a: mpf, b: mpf) -> Jet:
    return max(1, abs(mp.loggamma(min(a, b)))), (0, 0), (0, 0, 0)


def _beta(a: mpf, b: mpf) -> Jet:
    value, (da, db), (daa, dab, dbb) = _betaln(a, b)
    value = mp.exp(value)
    second = (da * da + daa, da * db + dab, db * db + dbb)
    return value, (value * da, value * db), tuple(value * s for s in second)


def _beta_scale(a: mpf, b: mpf) -> Jet:
    log, (da, db), (daa, dab, dbb) = _betaln(a, b)
    scale = mp.exp(log) * (1 + abs(log))
    second = (da * da + daa, da * db - dab, db * db + dbb)
    return scale, (scale * da, scale * db), tuple(scale * s for s in second)


def _expi(x: mpf) -> tuple[Any, Any, Any]:
    first = mp.exp(x) / x
    return mp.ei(x), first, first * (1 - 1 / x)


def _exp1(x: mpf) -> tuple[Any, Any, Any]:
    first = -mp.exp(-x) / x
    return mp.e1(x), first, -first * (1 + 1 / x)


def _expi_scale(x: mpf) -> Jet:
    return mpf(0 < x < 1), (0,), (mp.exp(x) / x,)


def _ldexp(x: mpf, n: mpf) -> Jet:
    power = mpf(2) ** n
    return x * power, (power,), (0,)


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


def _pow_log(x: mpf, y: mpf) -> Jet:
    """The derivative of the power in its exponent."""
    value, log = mp.power(x, y), mp.log(x)
    dx = value / x
    second = (dx / x * (2 * y - 1 + y * (y - 1) * log), dx * log * (2 + y * log), value * log**3)
    return value * log, (dx * (1 + y * log), value * log**2), second


def _pow_log_scale(x: mpf, y: mpf) -> Jet:
    log = abs(mp.log(x))
    dx, once, twice = mp.power(x, y - 1), 1 + abs(y) * log, 1 + (abs(y) + 1) * log
    second = (dx / x * (abs(y) + 1) * once * twice, dx * (2 + abs(y) * log) * log * twice, 0)
    return 0, (dx * once * twice, 0), second


def _direction_cosine(x: mpf, y: mpf) -> Jet:
    r, q = mp.hypot(x, y), x**2 + y**2
    second = (-3 * x * y**2 / q**2, y * (2 * x**2 - y**2) / q**2, x * (2 * y**2 - x**2) / q**2)
    return x / r, (y**2 / (r * q), -x * y / (r * q)), tuple(s / r for s in second)


def _direction_cosine_scale(x: mpf, y: mpf) -> Jet:
    q = x**2 + y**2
    return 0, (0, 0), (0, abs(y) / mp.sqrt(q) / q, abs(x) / mp.sqrt(q) / q)


def _circle_inversion(x: mpf, y: mpf) -> Jet:
    q = x**2 + y**2
    second = (2 * x * (x**2 - 3 * y**2), 2 * y * (3 * x**2 - y**2), 2 * x * (3 * y**2 - x**2))
    return x / q, ((y**2 - x**2) / q**2, -2 * x * y / q**2), tuple(s / q**3 for s in second)


def _circle_inversion_scale(x: mpf, y: mpf) -> Jet:
    q = x**2 + y**2
    larger = max(abs(x), abs(y)) / q
    return 0, (1 / q, 0), (larger / q, larger / q, larger / q)


def _pow_scale(x: mpf, y: mpf) -> Jet:
    _, (dx, _), (dxx, _, _) = _pow(x, y)
    log = abs(mp.log(x))
    once, twice = 1 + abs(y - 1) * log, 1 + (abs(y - 1) + abs(y - 2)) * log
    return 0, (dx * once, 0), (dxx * twice, mp.power(x, y - 1) * once * (1 + abs(y) * log), 0)


def _mul_pow_scale(x: mpf, y: mpf, z: mpf) -> Jet:
    _, (dy, _), (dyy, dyz, _) = _pow_scale(y, z)
    return 0, (0, x * dy, 0), (0, dy, 0, x * dyy, x * dyz, 0)


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


def _modulus(
    j: Callable[[mpf], Any], y: Callable[[mpf], Any], least: float
) -> Callable[[mpf], Jet]:
    """√(J² + Y²), and so of their derivatives, of |x| from ``least`` on; below, the result."""

    def scale(x: mpf) -> Jet:
        if abs(x) < least:
            return 0, (0,), (0,)
        value, first, second = map(mp.hypot, j(abs(x)), y(abs(x)))
        return value, (first,), (second,)

    return scale


def _largest_before(jet: Callable[[mpf], Any]) -> Callable[[mpf], Jet]:
    """The value for the first derivative, the larger of both for the second."""

    def scale(x: mpf) -> Jet:
        value, first, _ = map(abs, jet(x))
        return 0, (value,), (max(value, first),)

    return scale


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
_NONZERO_ANGLES = either(between(-10, 10), magnitudes(1e-6, 1e6), near(math.pi / 2, math.pi))
_DEGREES = either(between(-720, 720), magnitudes(1e-6, 1e9), near(30, 45, 60))
_HALF_TURNS = either(between(-4, 4), magnitudes(1e-6, 1e6), near(0.25, 0.75))
_EXPONENTS = either(exponents(), between(-3, 3), magnitudes(1e-30, 1))
_QUANTILES = either(between(0, 2), spread(0.3, signed=False), near(1, 2, 0.5))
_BELL = either(exponents(0.5), magnitudes(1e-20, 1))
_GAMMA = either(between(-6, 30), near(1, 2, 1.4616321449683623))
_BESSEL = either(between(-20, 20), magnitudes(1e-12, 1e4), near(8, 2.404825557695773,
                 3.831705970207512))  # fmt: skip
_BESSEL_Y = either(between(0, 20), magnitudes(1e-8, 1e4, signed=False),
                   near(8, 0.8935769662791675, 2.197141326031017))  # fmt: skip
_BESSEL_I = either(between(-12, 12), magnitudes(1e-12, 80), near(8))
_BESSEL_IE = either(between(-12, 12), magnitudes(1e-12, 1e4), near(8))
_PARAMETERS = either(between(-9, 1), near(0, 1, 0.875, -7), magnitudes(1e-6, 1e12))
_COMPLEMENTS = either(between(0, 9), near(1, 0.125, 8), magnitudes(1e-30, 1e30, signed=False))
_SHAPES = either(between(0, 30), near(10, 1), magnitudes(1e-6, 1e6, signed=False))
_DECAYS = either(between(0, 60), near(1), magnitudes(1e-30, 1, signed=False))
_PROBABILITIES = either(spread(0.3, signed=False), between(0, 1), near(1))
_JUMPS = either(_AROUND, near(0.5, 1, 1.5, -0.5, -1, -1.5))

_MODULUS = "√(J² + Y²), and so of derivatives; J for |x| < 1: itself"
_BEFORE = "first: the value; second: the larger of value and first"
_EXACT, _ROUNDED = (0, 0, 0), (0.5, 0, 0)


def _booleans(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
    return rng.integers(0, 2, count)


def _orders(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
    return rng.integers(0, 7, count)


def _small_orders(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
    return rng.integers(0, 3, count)


def _shifts(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray:
    return rng.integers(-40, 40, count)


def _no_pole(x: mpf) -> bool:
    return x > 0 or x != mp.floor(x)


def _both_positive(x: mpf, y: mpf) -> bool:
    return x > 0 and y > 0


def _below_one(m: mpf) -> bool:
    return m < 1 and m != 0


def _inside(x: mpf) -> bool:
    return abs(x) < 1


CASES: Mapping[str, Case] = MappingProxyType({
    "add": _case(_add, _AROUND, _AROUND, f32=_ROUNDED),
    "sub": _case(_sub, _AROUND, _AROUND, f32=_ROUNDED),
    "mul": _case(_mul, _HALF, _HALF, f32=_ROUNDED),
    "mul_zero": _case(_mul, _HALF, _HALF, f32=_ROUNDED),
    "mul_zeros": _case(_mul, _HALF, _HALF, f32=_ROUNDED),
    "div": _case(_div, _THIRD, _THIRD, f32=(0.5, 1.5, 2.5)),
    "div_zero": _case(_div, _THIRD, _THIRD, f32=(0.5, 1.5, 2.5)),
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
    "mul_pow": _case(_mul_pow, _AROUND, magnitudes(1e-3, 1e3, signed=False), between(-8, 8),
                     f32=(1, 3, 5), scale=_mul_pow_scale,
                     why="as pow, times x"),
    "pow_log": _case(_pow_log, magnitudes(1e-3, 1e3, signed=False), between(-8, 8),
                     f32=(4, 4, 8), scale=_pow_log_scale, why="as pow, times log x"),
    "ldexp": _case(_ldexp, _HALF, _shifts, f32=_EXACT),
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
    "direction_cosine": _case(_direction_cosine, _THIRD, _THIRD, f32=(3, 6, 12),
                              scale=_direction_cosine_scale, why="second: the larger term"),
    "circle_inversion": _case(_circle_inversion, _THIRD, _THIRD, f32=(3, 6, 12),
                              scale=_circle_inversion_scale,
                              why="first: 1/(x² + y²); second: times max(|x|, |y|)/(x² + y²)"),
    "hypot": _case(_hypot, _THIRD, _THIRD, f32=(4, 5, 10), scale=_hypot_scale,
                   why="second: 1/hypot(x, y)"),
    "cbrt": _case(_unary(_cbrt), _WIDE, f32=(4, 8, 16)),
    "erf": _case(_unary(_erf), _BELL, f32=(1, 3, 4)),
    "erfc": _case(_unary(_erfc), _BELL, f32=(4, 3, 4)),
    "erfcx": _case(_unary(_erfcx), either(_BELL, magnitudes(1e-20, 1e6), between(-2, 4)),
                   f32=(1, 2, 3), f64=(4, 5, 6)),
    "ierfcx": _case(_ierfcx, _small_orders, either(between(-3, 10), magnitudes(1e-6, 1e6)),
                    f32=(1, 2, 3), f64=(4, 8, 12)),
    "erfinv": _case(_unary(_erfinv), _UNIT, f32=(1, 3, 5), f64=(3, 8, 16), domain=_inside),
    "erfcinv": _case(_unary(_erfcinv), _QUANTILES, f32=(1, 3, 5), f64=(3, 8, 16),
                     domain=lambda x: 0 < x < 2 and x != 1),
    "ndtri": _case(_unary(_ndtri), _QUANTILES, f32=(2, 5, 8), f64=(4, 10, 20),
                   domain=lambda x: 0 < x < 1 and x != 0.5),
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
    "sec": _case(_unary(_sec), _ANGLES, f32=(3, 6, 9)),
    "csc": _case(_unary(_csc), _NONZERO_ANGLES, f32=(3, 6, 9)),
    "cot": _case(_unary(_cot), _NONZERO_ANGLES, f32=(3, 5, 8)),
    "sind": _case(_unary(_turned(mp.sinpi, mp.cospi, _degrees_in_half_turn)), _DEGREES,
                  f32=(3, 3, 4)),
    "cosd": _case(_unary(_turned(mp.cospi, _minus_sinpi, _degrees_in_half_turn)), _DEGREES,
                  f32=(3, 3, 4)),
    "tand": _case(_unary(_tangent(_degrees_in_half_turn)), _DEGREES, f32=(5, 8, 12),
                  domain=lambda x: mp.cospi(x / 180) != 0),
    "sinpi": _case(_unary(_turned(mp.sinpi, mp.cospi, _one)), _HALF_TURNS, f32=(3, 3, 4)),
    "cospi": _case(_unary(_turned(mp.cospi, _minus_sinpi, _one)), _HALF_TURNS, f32=(3, 3, 4)),
    "tanpi": _case(_unary(_tangent(_one)), _HALF_TURNS, f32=(5, 8, 12),
                   domain=lambda x: mp.cospi(x) != 0),
    "log1mexp": _case(_unary(_log1mexp), either(between(-20, 0), magnitudes(1e-20, 60)),
                      f32=(3, 5, 8), domain=lambda x: x < 0),
    "exprel": _case(_unary(_exprel), either(_EXPONENTS, between(-60, 60), near(1.5, -1.5, 40)),
                    f32=(4, 6, 12)),
    "logsubexp": _case(_logsubexp, between(-60, 60), between(-60, 60), f32=(2, 4, 6),
                       domain=lambda x, y: y < x, scale=_logsubexp_scale,
                       why="value: the larger argument; derivatives: themselves times 1 + |x - y|"),
    "gelu_tanh": _case(_unary(_gelu_tanh), either(between(-4, 7), magnitudes(1e-20, 1)),
                       f32=(4, 8, 12), scale=_gelu_tanh_scale,
                       why="the largest term, times what an error of u makes of exp(-2u)"),
    "i0": _case(_unary(_I0), _BESSEL_I, f32=(6, 6, 6)),
    "i1": _case(_unary(_I1), _BESSEL_I, f32=(5, 5, 5)),
    "i0e": _case(_unary(_scaled_bessel(_I0)), _BESSEL_IE, f32=(4, 4, 6), why=_BEFORE,
                 scale=_largest_before(_scaled_bessel(_I0))),
    "i1e": _case(_unary(_scaled_bessel(_I1)), _BESSEL_IE, f32=(4, 4, 6), why=_BEFORE,
                 scale=_largest_before(_scaled_bessel(_I1))),
    "j0": _case(_unary(_J0), _BESSEL, f32=(6, 8, 12), scale=_modulus(_J0, _Y0, 1), why=_MODULUS),
    "j1": _case(_unary(_J1), _BESSEL, f32=(8, 12, 20), scale=_modulus(_J1, _Y1, 1), why=_MODULUS),
    "y0": _case(_unary(_Y0), _BESSEL_Y, f32=(6, 10, 20), scale=_modulus(_J0, _Y0, 0),
                why=_MODULUS),
    "y1": _case(_unary(_Y1), _BESSEL_Y, f32=(8, 12, 20), scale=_modulus(_J1, _Y1, 0),
                why=_MODULUS),
    "ellipk": _case(_unary(_ellipk), _PARAMETERS, f32=(8, 12, 20), domain=_below_one),
    "ellipkm1": _case(_unary(_ellipkm1), _COMPLEMENTS, f32=(8, 12, 20), domain=lambda p: p != 1),
    "ellipe": _case(_unary(_ellipe), _PARAMETERS, f32=(8, 12, 40), domain=_below_one),
    "betaln": _case(_betaln, _SHAPES, _SHAPES, f32=(20, 20, 40), scale=_betaln_scale,
                    domain=_both_positive,
                    why="value: the larger of 1 and log Γ of the smaller argument"),
    "beta": _case(_beta, _SHAPES, _SHAPES, f32=(20, 20, 40), scale=_beta_scale,
                  why="its terms, times 1 + |log B|"),
    "exp1": _case(_unary(_exp1), _DECAYS, f32=(10, 10, 12), f64=(16, 10, 12)),
    "expi": _case(_unary(_expi), either(_EXPONENTS, near(1, 40)), f32=(20, 16, 16),
                  domain=lambda x: x != 0, scale=_expi_scale,
                  why="value for 0 < x < 1: 1; second: first"),
    "xlogy": _case(_xlogy, _THIRD, either(spread(0.3, signed=False), near(1)),
                   f32=(2, 2, 3)),
    "entr": _case(_unary(_entr), either(_POSITIVE, near(1, math.exp(-1))), f32=(2, 2, 2),
                  domain=lambda x: x > 0, scale=lambda x: (0, (mpf(1),), (0,)),
                  why="first near 1/e: 1"),
    "rel_entr": _case(_rel_entr, _PROBABILITIES, _PROBABILITIES, f32=(4, 4, 2),
                      domain=_both_positive, scale=lambda x, y: (0, (mpf(1), 0), (0, 0, 0)),
                      why="∂x near log(x/y) = -1: 1"),
    "kl_div": _case(_kl_div, _PROBABILITIES, _PROBABILITIES, f32=(4, 4, 2), domain=_both_positive,
                    scale=_larger_of_them, why="value: the larger of x and y"),
    "pseudo_huber": _case(_pseudo_huber, spread(0.3, signed=False), _THIRD, f32=(4, 8, 16),
                          domain=lambda d, r: d > 0),
    "xlog1py": _case(_xlog1py, _THIRD,
                     either(spread(0.3, signed=False), near(-1, 1)),
                     f32=(2.5, 3, 6), domain=lambda x, y: y > -1),
})  # fmt: skip
