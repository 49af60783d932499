"""What the tests of the inlined functions compare with: mpmath, errors in ulp, and the points.

``tools/measure_accuracy.py`` uses the same to write the accuracy page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import native_loop
import numpy as np
from mpmath import mp, mpf

from mixad.scalar.math import program_of
from mixad.scalar.types import F32, F64, ScalarType

PRECISION = 140  # bits; f64 needs 53, and pow loses 12 of them
FLOATS = (F32, F64)
NEIGHBOURS = 4  # floats on either side of a breakpoint
MAX_ULP = {F32: 2.0, F64: 4.0}

Reference = Callable[..., mpf]


@dataclass(frozen=True)
class Claim:
    """What is claimed of one op.

    Attributes
    ----------
    exact : callable
        The function in mpmath.
    points : callable
        ``points(type, count, rng)``: arrays of arguments.
    scale : callable or None
        The magnitude whose ulp counts, given result and arguments, where it is not the result's.
    note : str
        For the accuracy page.
    """

    exact: Reference
    points: Callable[[ScalarType, int, np.random.Generator], tuple[np.ndarray, ...]]
    scale: Callable[..., mpf] | None = None
    note: str = ""


# -- errors --------------------------------------------------------------------------------------


def ulp_errors(name: str, type: ScalarType, arguments: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the error of an op's program at each point, in units in the last place."""
    got = native_loop.run(program_of(name, type), *arguments)
    claim = CLAIMS[name]
    with mp.workprec(PRECISION):
        rows = zip(got.tolist(), *(a.tolist() for a in arguments), strict=True)
        return np.array([_error(claim, type, g, tuple(map(mpf, args))) for g, *args in rows])


def _error(claim: Claim, type: ScalarType, got: float, args: tuple[mpf, ...]) -> float:
    want = claim.exact(*args)
    size = claim.scale(want, *args) if claim.scale else want
    if np.isnan(got):
        return np.inf
    if np.isinf(got):  # stands for the number that follows the largest finite one
        got = mpf(np.sign(got)) * mpf(2) ** (int(np.finfo(type.dtype).maxexp))
        if abs(want) > abs(got):
            return 0.0
    return float(abs(mpf(got) - want) / _ulp(size, type))


def _ulp(value: mpf, type: ScalarType) -> mpf:
    """Return the distance of the floats around a number (Goldberg; denormals count as they are)."""
    info = np.finfo(type.dtype)
    exponent = int(info.minexp) if value == 0 else max(mp.frexp(value)[1] - 1, int(info.minexp))
    return mpf(2) ** (min(exponent, int(info.maxexp) - 1) - int(info.nmant))


# -- points --------------------------------------------------------------------------------------


def around(values: list[float], type: ScalarType) -> np.ndarray:
    """Return the floats next to given numbers, the numbers included."""
    dtype = type.dtype
    with np.errstate(over="ignore"):
        centre = np.asarray(values, dtype)
    found = [centre]
    for direction in (-np.inf, np.inf):
        step = centre
        for _ in range(NEIGHBOURS):
            with np.errstate(over="ignore"):
                step = np.nextafter(step, dtype.type(direction))
            found.append(step)
    return np.concatenate(found)


def any_floats(type: ScalarType, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return floats of random bits: all exponents are equally likely, denormals included."""
    bits = rng.integers(0, 1 << type.bits, count, dtype=np.uint64)
    return bits.astype(f"u{type.itemsize}").view(type.dtype)


def powers_of_two(type: ScalarType) -> list[float]:
    """Return the powers of two of a type, the denormal ones included."""
    info = np.finfo(type.dtype)
    lowest = int(info.minexp) - int(info.nmant)
    return [2.0**e for e in range(lowest, int(info.maxexp))]


def unary(
    low: float, high: float, *breakpoints: float, dense: tuple[float, ...] = (1.0,)
) -> Callable:
    """Return the points of a function of one argument: whole range, ordinary, and edges.

    ``dense`` are the standard deviations of the ordinary points.
    """

    def points(type: ScalarType, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        normal = rng.standard_normal(count) * rng.choice(dense, count)
        uniform = rng.uniform(max(low, -800.0), min(high, 800.0), count)
        ordinary = np.concatenate([normal, uniform, 1 + 0.1 * normal]).astype(type.dtype)
        edges = around([*breakpoints, *(-b for b in breakpoints), *powers_of_two(type)], type)
        x = np.concatenate([ordinary, any_floats(type, count, rng), edges])
        return (x[np.isfinite(x) & (x >= low) & (x <= high)],)

    return points


_HARD_ANGLES = (6381956970095103 * 2.0**797, 16367173 * 2.0**72)  # nearest to multiples of π/2


def angles(type: ScalarType, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return angles of all sizes, and the floats nearest to multiples of π/4."""
    general = unary(-np.inf, np.inf, 2.0**17, 2.0**30, *_HARD_ANGLES, dense=(1.0, 1e2, 1e5, 1e9))
    largest = 120 if type == F32 else 1000
    with mp.workprec(1200):
        whole = [
            int(2.0 ** rng.uniform(0, 53)) << int(rng.integers(0, largest - 53))
            for _ in range(count // 20)
        ]
        whole += range(1, 100)
        multiples = [float(n * mp.pi / 4) for n in whole]
    x = np.concatenate([*general(type, count, rng), around(multiples, type)])
    return (x[np.isfinite(x)],)


def powers(type: ScalarType, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return bases and exponents whose powers are mostly finite, and negative bases."""
    limit = 100.0 if type == F32 else 745.0
    x = np.abs(any_floats(type, count, rng))
    near = (1 + rng.standard_normal(count) * 2.0 ** rng.uniform(-50, -1, count)).astype(type.dtype)
    x = np.concatenate([x, np.abs(near), np.exp(rng.standard_normal(count)).astype(type.dtype)])
    x = x[np.isfinite(x) & (x > 0) & (x != 1)]
    with np.errstate(over="ignore"):
        y = (rng.uniform(-limit, limit, len(x)) / np.log(x.astype("f8"))).astype(type.dtype)
    small = rng.integers(-40, 40, count).astype(type.dtype)
    base = (rng.standard_normal(count) * 3).astype(type.dtype)
    x, y = np.concatenate([x, base]), np.concatenate([y, small])
    keep = np.isfinite(y) & (x != 0)
    return x[keep], y[keep]


def products_of_powers(
    type: ScalarType, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Return factors, bases and exponents; products are finite where many powers are not."""
    limit = 88.0 if type == F32 else 709.0
    sizes = np.exp(rng.uniform(-1.1 * limit, limit, (2, count)))
    near = 1 + rng.standard_normal(count) * 2.0 ** rng.uniform(-20, -1, count)
    factors = (sizes[0] * rng.choice([-1, 1], count)).astype(type.dtype)
    x, y = np.tile(factors, 2), np.concatenate([sizes[1], np.abs(near)]).astype(type.dtype)
    keep = (x != 0) & (y != 1) & (y > 0)
    x, y = x[keep], y[keep]
    size = rng.uniform(-1.05 * limit, 1.01 * limit, len(x))
    with np.errstate(over="ignore"):
        z = ((size - np.log(np.abs(x.astype("f8")))) / np.log(y.astype("f8"))).astype(type.dtype)
    negative = (np.full_like(y, -0.3), np.floor(np.minimum(np.abs(z), 40)))
    kept = np.isfinite(z)
    return tuple(
        np.concatenate([a[kept], b]) for a, b in ((x, x), (y, negative[0]), (z, negative[1]))
    )


def positive_powers(
    type: ScalarType, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Return bases and exponents of powers that do not overflow."""
    x, y = powers(type, count, rng)
    with np.errstate(over="ignore", invalid="ignore"):
        size = y * np.log(x.astype("f8"))
    keep = (x > 0) & (size < (87.0 if type == F32 else 708.0))
    return x[keep], y[keep]


def pairs_of_any_size(
    type: ScalarType, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Return numbers of any size, and beside each one of a similar size and any other."""
    x, y = any_floats(type, count, rng), any_floats(type, count, rng)
    with np.errstate(over="ignore", invalid="ignore"):
        similar = (x * np.exp(rng.standard_normal(count) * 3)).astype(type.dtype)
    x, y = np.tile(x, 2), np.concatenate([similar, y])
    keep = np.isfinite(x) & np.isfinite(y) & (x != 0)
    return x[keep], y[keep]


def pairs(type: ScalarType, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return pairs that are near, far, and of any size."""
    x = (rng.standard_normal(count) * 30).astype(type.dtype)
    y = (x + rng.standard_normal(count) * rng.choice([0.0, 0.1, 3.0, 30.0], count)).astype(
        type.dtype
    )
    a, b = any_floats(type, count, rng), any_floats(type, count, rng)
    x, y = np.concatenate([x, a]), np.concatenate([y, b])
    keep = np.isfinite(x) & np.isfinite(y)
    return x[keep], y[keep]


def off_poles(low: float, high: float) -> Callable:
    """Return points of the polygamma functions: no poles, nor sizes that are slow in mpmath."""
    general = unary(low, high, 1.4616321449683623, 2.0, 8.0, 0.5, dense=(1.0, 10.0))

    def points(type: ScalarType, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        (x,) = general(type, count, rng)
        return (x[((x > 0) | (x != np.rint(x))) & (np.abs(x) > 1e-30)],)

    return points


def whole_orders(most: int) -> Callable:
    """Return points of polygamma: small orders mostly, and the arguments of `off_poles`."""
    general = off_poles(-50, 1e15)

    def points(type: ScalarType, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        (x,) = general(type, count // 4, rng)
        low = rng.integers(0, 7, len(x))
        n = np.where(rng.random(len(x)) < 0.8, low, rng.integers(0, most + 1, len(x)))
        return n.astype(type.dtype), x

    return points


def some(of_one: Callable, orders: int = 0, poles: tuple[float, ...] = ()) -> Callable:
    """Return a part of the points of a function of one argument, for references that take time.

    Before them whole numbers below ``orders``, if there are any; ``poles`` are left out.
    """

    def points(type: ScalarType, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        (x,) = of_one(type, count // 2, rng)
        x = rng.permutation(x[~np.isin(x, poles)])[:count]
        return (rng.integers(0, orders, len(x)).astype(type.dtype), x) if orders else (x,)

    return points


# -- references ----------------------------------------------------------------------------------


def _sigmoid(x: mpf) -> mpf:
    e = mp.exp(-abs(x))
    return 1 / (1 + e) if x >= 0 else e / (1 + e)


def _power(x: mpf, y: mpf) -> mpf:
    sign = -1 if x < 0 and int(y) % 2 else 1
    return sign * mp.exp(y * mp.log(abs(x)))


def _logaddexp(x: mpf, y: mpf) -> mpf:
    return max(x, y) + mp.log1p(mp.exp(-abs(x - y)))


def _logaddexp_scale(out: mpf, x: mpf, y: mpf) -> mpf:
    """The larger term of max + log1p(exp(min - max)), or the result."""
    return max(abs(out), abs(max(x, y)), abs(out - max(x, y)))


def _digamma_scale(out: mpf, x: mpf) -> mpf:
    """The largest term of the reflection ψ(x) = ψ(1 - x) - π cot πx."""
    if x >= 0:
        return out
    mirrored = mp.digamma(1 - x)
    return max(abs(out), abs(mirrored), abs(mirrored - out))


def _polygamma_scale(out: mpf, n: mpf, x: mpf) -> mpf:
    """For x < 0 the sum of the terms' magnitudes: ``n! Σ |x + k|^-(n+1)``, k = 0, 1, …"""
    if n == 0:
        return _digamma_scale(out, x)
    if x >= 0:
        return out
    fraction = x - mp.floor(x)
    above, below, beyond = (abs(mp.psi(int(n), y)) for y in (fraction, 1 - fraction, 1 - x))
    return above + below - beyond


def _tanh(x: mpf) -> mpf:
    e = mp.expm1(-2 * abs(x))
    return mp.sign(x) * -e / (2 + e)


def _ierfcx(n: mpf, x: mpf) -> mpf:
    """Forwards, in as many digits as get lost."""
    with mp.workdps(mp.dps + 20 * (2 + int(n))):
        before, now = 2 / mp.sqrt(mp.pi), mp.exp(x * x) * mp.erfc(x)
        for k in range(1, int(n) + 1):
            before, now = now, (before - 2 * x * now) / (2 * k)
        return now


def _erfcinv(q: mpf) -> mpf:
    """By Newton's method for the logarithm of erfc."""
    if q >= 0.5:
        return mp.erfinv(1 - q)
    x = mp.sqrt(-mp.log(q))
    for _ in range(12):
        found = mp.erfc(x)
        x += (mp.log(found) - mp.log(q)) * found * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
    return x


_EXP_EDGES = (88.72283935546875, 87.33654022216797, 103.97208404541016, 709.782712893384,
              708.3964185322641, 745.1332191019411, 0.34657359027997264,
              1.0397207708399179)  # fmt: skip
_LOG_EDGES = (0.7071067811865476, 1.4142135623730951, 1.0, 3.4028234663852886e38,
              1.7976931348623157e308)  # fmt: skip
_POSITIVE = 5e-324

CLAIMS: dict[str, Claim] = {
    "exp": Claim(mp.exp, unary(-800, 800, *_EXP_EDGES, dense=(0.1, 1, 30))),
    "exp2": Claim(lambda x: mp.power(2, x),
                  unary(-1200, 1200, 128, 149, 150, 126, 1024, 1074, 1075, 0.5, 1.5,
                        dense=(0.1, 1, 30))),
    "expm1": Claim(mp.expm1, unary(-800, 800, *_EXP_EDGES, 20, 40, dense=(0.01, 0.5, 1, 30))),
    "log": Claim(mp.log, unary(_POSITIVE, np.inf, *_LOG_EDGES)),
    "log2": Claim(lambda x: mp.log(x, 2), unary(_POSITIVE, np.inf, *_LOG_EDGES)),
    "log10": Claim(mp.log10, unary(_POSITIVE, np.inf, *_LOG_EDGES, 10.0, 100.0, 1000.0, 1e10)),
    "log1p": Claim(mp.log1p, unary(-0.9999999999999999, np.inf, *_LOG_EDGES, 0.41421356237309515,
                                   0.2928932188134524, 2.0**46, 2.0**104, dense=(0.01, 0.3, 1))),
    "sin": Claim(mp.sin, angles),
    "cos": Claim(mp.cos, angles),
    "tanh": Claim(_tanh, unary(-np.inf, np.inf, 0.625, dense=(0.1, 0.5, 1, 10))),
    "sigmoid": Claim(_sigmoid, unary(-np.inf, np.inf, *_EXP_EDGES, dense=(0.1, 1, 10))),
    "logistic_density": Claim(lambda x: _sigmoid(x) * _sigmoid(-x),
                              unary(-np.inf, np.inf, *_EXP_EDGES, dense=(0.1, 1, 10)),
                              lambda out, x: _sigmoid(-abs(x)),
                              "in ulp of its smaller factor, sigmoid(-\\|x\\|)"),
    "erf": Claim(mp.erf, unary(-30, 30, 1.0, 4.0, 6.0, 3.9192059040069580, 5.921587195794507,
                               dense=(0.1, 0.5, 1, 3))),
    "erfcx": Claim(lambda x: mp.exp(x * x) * mp.erfc(x),
                   some(unary(-26, 1e8, 3.75, dense=(0.1, 1, 3)))),
    "ierfcx": Claim(_ierfcx,
                    some(unary(-10, 1e8, 0.75, dense=(0.1, 1, 3)), orders=3),
                    None, "orders 0 to 2"),
    "erfinv": Claim(mp.erfinv, some(unary(-1, 1, 0.5, 0.9990345, dense=(0.1, 0.3)), poles=(-1, 1))),
    "erfcinv": Claim(_erfcinv, some(unary(0, 2, 0.5, 1, dense=(0.1, 0.3)), poles=(0, 2))),
    "pow": Claim(_power, powers),
    "mul_pow": Claim(lambda x, y, z: x * _power(y, z), products_of_powers),
    "pow_log": Claim(lambda x, y: _power(x, y) * mp.log(x), positive_powers, None,
                     "of powers that do not overflow; two roundings more, 2.1 ulp in all"),
    "direction_cosine": Claim(lambda x, y: x / mp.hypot(x, y), pairs_of_any_size),
    "circle_inversion": Claim(lambda x, y: x / (x * x + y * y), pairs_of_any_size),
    "logaddexp": Claim(_logaddexp, pairs, _logaddexp_scale,
                       "in ulp of the largest of the result, max(x, y) and their difference"),
    "digamma": Claim(mp.digamma, off_poles(-50, 1e15), _digamma_scale,
                     "for x < 0 in ulp of the largest of ψ(x), ψ(1 - x), π cot πx"),
    "trigamma": Claim(lambda x: mp.psi(1, x), off_poles(-50, 1e15)),
    "polygamma": Claim(lambda n, x: mp.psi(int(n), x), whole_orders(30), _polygamma_scale,
                       "orders 0 to 30; for x < 0 in ulp of n! Σ \\|x + k\\|^-(n+1)"),
}  # fmt: skip


def worst(name: str, type: ScalarType, count: int, seed: int) -> tuple[float, tuple[float, ...]]:
    """Return the largest error of an op's program and the point where it was met."""
    arguments = CLAIMS[name].points(type, count, np.random.default_rng(seed))
    errors = ulp_errors(name, type, arguments)
    at = int(np.argmax(errors))
    return float(errors[at]), tuple(a[at].item() for a in arguments)
