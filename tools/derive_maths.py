"""Derive the polynomials of `mixad.scalar.math` and `mixad.special`, and write their tables.

Run from the repository root::

    python tools/derive_maths.py          # rewrite the two files named coefficients.py
    python tools/derive_maths.py --check  # fail if it would change; print the errors reached

Each polynomial is fitted in high precision (mpmath) by weighted least squares on Chebyshev nodes,
which comes within a small factor of the minimax polynomial (Trefethen, *Approximation Theory and
Approximation Practice*, 2013, ch. 10, 16).  Its coefficients are then rounded to the float type one
after another, lowest power first, and the rest is fitted again after each: the later coefficients
make up for what rounding an earlier one lost (Muller, *Elementary Functions*, 3rd ed., §3.8).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import mpmath
from mpmath import mp, mpf

DIGITS = 60
TARGET = Path(__file__).parents[1] / "mixad" / "scalar" / "math" / "coefficients.py"
SPECIAL_TARGET = Path(__file__).parents[1] / "mixad" / "special" / "coefficients.py"
CHECK_POINTS = 1000
FEWER_POINTS = 100  # for functions that take time
NODES_PER_COEFFICIENT = 6

mp.dps = DIGITS

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """One polynomial: what it approximates, where, and how an error in it counts.

    Attributes
    ----------
    name : str
        Name of the table in `mixad.scalar.math.coefficients`.
    doc : str
        The formula, for the reader of the table.
    target : callable
        The function that the polynomial stands for.
    weight : callable
        Factor that turns an error of the polynomial into a relative error of the op.
    low, high : float
        The interval.
    terms : dict
        Number of coefficients by type, ``"f32"`` and ``"f64"``.
    """

    name: str
    doc: str
    target: Function
    weight: Function
    low: float
    high: float
    terms: dict[str, int]


def _half_ln2() -> mpf:
    return mp.ln(2) / 2 * mpf("1.0001")  # k = rint(x/ln 2) is rounded before it is exact


def _odd_log(z: mpf) -> mpf:
    """(2 atanh(s) - 2s) / s³ over z = s²."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / s**3


def _odd_log_tail(z: mpf) -> mpf:
    """(2 atanh(s) - 2s - 2s³/3) / s⁵ over z = s²."""
    return (_odd_log(z) - mpf(2) / 3) / z


@cache
def _digamma_root() -> mpf:
    return mp.findroot(mp.digamma, mpf("1.4616321449683623"))


def _digamma_tail(w: mpf) -> mpf:
    """(ln x - 1/(2x) - ψ(x)) x² over w = 1/x²."""
    x = 1 / mp.sqrt(w)
    return (mp.ln(x) - 1 / (2 * x) - mp.digamma(x)) / w


def _trigamma_tail(w: mpf) -> mpf:
    """(ψ′(x) - 1/x - 1/(2x²)) x³ over w = 1/x²."""
    x = 1 / mp.sqrt(w)
    return (mp.polygamma(1, x) - 1 / x - w / 2) * x**3


def _erfcx(t: mpf) -> mpf:
    return mp.exp(t * t) * mp.erfc(t)


def _erfcx_scaled(t: mpf) -> mpf:
    """(1 + 2x) exp(x²) erfc(x) over t = (x - 3.75)/(x + 3.75)."""
    x = mpf("3.75") * (1 + t) / (1 - t)
    return (1 + 2 * x) * _erfcx(x)


def _erfinv_central(w: mpf) -> mpf:
    """erfinv(y)/y over w = -log(1 - y²)."""
    y = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(y) / y


@cache
def _erfinv_tail(s: mpf) -> mpf:
    """erfinv(y)/s - 1 over s = √-log(1 - y²), by Newton's method for log erfc(x)."""
    x = s * mpf("0.9") if s < 3 else s - mpf("0.6") * mp.ln(s) / s
    step = mpf(1)
    while abs(step) > mpf(10) ** (3 - DIGITS):
        q = mp.erfc(x)
        slope = -2 / mp.sqrt(mp.pi) * mp.exp(-x * x) * (1 / q - 1 / (2 - q))
        step = (mp.ln(q * (2 - q)) + s * s) / slope
        x -= step
    return x / s - 1


def fits() -> tuple[Fit, ...]:
    """Return the list of polynomials."""
    quarter = mp.pi / 4 * mpf("1.001")
    root = mp.sqrt(2)
    s2 = ((root - 1) / (root + 1)) ** 2
    return (
        Fit("EXP", "(exp(r) - 1 - r)/r² over r, |r| <= ln(2)/2",
            lambda r: (mp.expm1(r) - r) / r**2, lambda r: r,
            -_half_ln2(), _half_ln2(), {"f32": 5, "f64": 10}),
        Fit("EXP2", "(2^r - 1)/r over r, |r| <= 1/2",
            lambda r: mp.expm1(r * mp.ln(2)) / r, lambda r: r,
            mpf("-0.5"), mpf("0.5"), {"f32": 6, "f64": 11}),
        Fit("LOG", "(log(1 + f) - f + f²/2)/f³ over f, √½ - 1 <= f <= √2 - 1",
            lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: f * f,
            1 / root - 1, root - 1, {"f32": 8}),
        Fit("LOG_ODD", "(2 atanh(s) - 2s)/s³ over z = s², s = f/(2 + f)",
            _odd_log, lambda z: z, mpf(0), s2, {"f64": 7}),
        Fit("LOG_ODD_TAIL", "(2 atanh(s) - 2s - 2s³/3)/s⁵ over z = s², s = f/(2 + f)",
            _odd_log_tail, lambda z: z**2, mpf(0), s2, {"f32": 4, "f64": 8}),
        Fit("SIN", "(sin(r) - r)/r³ over z = r², |r| <= π/4",
            lambda z: (mp.sin(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3, lambda z: z,
            mpf(0), quarter**2, {"f32": 3, "f64": 6}),
        Fit("COS", "(cos(r) - 1 + r²/2)/r⁴ over z = r², |r| <= π/4",
            lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, lambda z: z**2,
            mpf(0), quarter**2, {"f32": 3, "f64": 6}),
        Fit("TANH", "(tanh(x) - x)/x³ over z = x², |x| <= 5/8",
            lambda z: (mp.tanh(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3, lambda z: z,
            mpf(0), mpf("0.625") ** 2, {"f32": 5, "f64": 11}),
        Fit("ERF", "erf(x)/x - 1 over z = x², |x| <= 1",
            lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, lambda z: mpf(1),
            mpf(0), mpf(1), {"f32": 7, "f64": 13}),
        Fit("ERFCX", "exp(t²) erfc(t) over t, 1 <= t <= 4",
            _erfcx, lambda t: mp.exp(-t * t), mpf(1), mpf(4), {"f32": 9}),
        Fit("ERFCX", "exp(t²) erfc(t) over t, 1 <= t <= 6",
            _erfcx, lambda t: mp.exp(-t * t), mpf(1), mpf(6), {"f64": 21}),
        Fit("ERFCX_SCALED", "(1 + 2x) exp(x²) erfc(x) - 1 over t = (x - 3.75)/(x + 3.75), x >= 0",
            lambda t: _erfcx_scaled(t) - 1, lambda t: 1 / _erfcx_scaled(t),
            mpf(-1), mpf(1), {"f64": 27}),
        Fit("ERFINV_CENTRAL", "erfinv(y)/y over w - 3.125, w = -log(1 - y²), w <= 6.25",
            lambda u: _erfinv_central(u + mpf("3.125")),
            lambda u: 1 / _erfinv_central(u + mpf("3.125")),
            mpf("-3.125"), mpf("3.125"), {"f64": 26}),
        Fit("ERFINV_MIDDLE", "erfinv(y)/s - 1 over s - 3.25, s = √w, 2.5 <= s <= 4",
            lambda u: _erfinv_tail(u + mpf("3.25")), lambda u: 1,
            mpf("-0.75"), mpf("0.75"), {"f64": 20}),
        Fit("ERFINV_FAR", "erfinv(y)/s - 1 over s - 6, 4 <= s <= 8",
            lambda u: _erfinv_tail(u + 6), lambda u: 1, mpf(-2), mpf(2), {"f64": 25}),
        Fit("ERFINV_LAST", "erfinv(y)/s - 1 over u = (s - 15)/(s + 15), 8 <= s <= 28",
            lambda u: _erfinv_tail(15 * (1 + u) / (1 - u)), lambda u: 1,
            mpf(-7) / 23, mpf(13) / 43, {"f64": 25}),
        Fit("DIGAMMA", "ψ(x)/(x - x₀) over x - 3/2, 1 <= x <= 2, ψ(x₀) = 0",
            lambda u: mp.digamma(u + 1.5) / (u + 1.5 - _digamma_root()), lambda u: mpf(1),
            mpf("-0.5"), mpf("0.5"), {"f64": 23}),
        Fit("DIGAMMA_TAIL", "(ln(x) - 1/(2x) - ψ(x)) x² over w = 1/x², x >= 8",
            _digamma_tail, lambda w: w, mpf("1e-8"), mpf(1) / 64, {"f64": 8}),
        Fit("TRIGAMMA_TAIL", "(ψ′(x) - 1/x - 1/(2x²)) x³ over w = 1/x², x >= 8",
            _trigamma_tail, lambda w: w, mpf("1e-8"), mpf(1) / 64, {"f64": 9}),
    )  # fmt: skip


# -- of functions that are plain Python -----------------------------------------------------------

SPLIT = mpf(8)
"""Where the Bessel functions change from series to what their asymptotic expansions tend to."""


def _near(u: mpf) -> mpf:
    """x over u = x²/32 - 1."""
    return SPLIT * mp.sqrt((1 + u) / 2)


def _inverse(u: mpf) -> mpf:
    """x over u = 16/x - 1."""
    return 2 * SPLIT / (1 + u)


def _inverse_square(u: mpf) -> mpf:
    """x over u = 128/x² - 1."""
    return SPLIT * mp.sqrt(2 / (1 + u))


def _regular_y(n: int, x: mpf) -> mpf:
    """What is left of Yₙ without its logarithm and its pole, divided by xⁿ (DLMF 10.8.1)."""
    rest = mp.bessely(n, x) - 2 / mp.pi * mp.log(x / 2) * mp.besselj(n, x)
    return rest if n == 0 else (rest + 2 / (mp.pi * x)) / x


@cache
def _modulated(n: int, x: mpf) -> tuple[mpf, mpf]:
    """P and x·Q of Jₙ = √(2/πx) (P cos χ - Q sin χ), Yₙ = … (P sin χ + Q cos χ), DLMF 10.17."""
    angle = x - (2 * n + 1) * mp.pi / 4
    c, s, scale = mp.cos(angle), mp.sin(angle), mp.sqrt(mp.pi * x / 2)
    j, y = mp.besselj(n, x), mp.bessely(n, x)
    return scale * (j * c + y * s), scale * (y * c - j * s) * x


def _exponentially_scaled(n: int, x: mpf) -> mpf:
    return mp.exp(-x) * mp.besseli(n, x)


def special_fits() -> tuple[Fit, ...]:
    """Return the list of polynomials whose derivatives are taken, too: a few terms more each."""

    def fit(name: str, doc: str, target: Function, terms: int) -> Fit:
        return Fit(name, doc, target, lambda u: mpf(1), mpf(-1), mpf(1), {"f64": terms})

    def bessel(n: int) -> tuple[Fit, ...]:
        x_n = "/x" * n
        regular = f"(Y{n}(x) - 2/π log(x/2) J{n}(x){' + 2/(πx)' * n}){x_n}"
        return (
            fit(f"I{n}E_FAR", f"√x exp(-x) I{n}(x) over u = 16/x - 1, x >= 8",
                lambda u: _exponentially_scaled(n, _inverse(u)) * mp.sqrt(_inverse(u)), 32),
            fit(f"J{n}_NEAR", f"J{n}(x){x_n} over u = x²/32 - 1, x <= 8",
                lambda u: mp.besselj(n, _near(u)) / _near(u) ** n, 20),
            fit(f"Y{n}_NEAR", f"{regular} over u = x²/32 - 1, x <= 8",
                lambda u: _regular_y(n, _near(u)), 20),
            fit(f"P{n}", f"P of J{n} and Y{n} over u = 128/x² - 1, x >= 8",
                lambda u: _modulated(n, _inverse_square(u))[0], 18),
            fit(f"Q{n}", f"Q·x of J{n} and Y{n} over u = 128/x² - 1, x >= 8",
                lambda u: _modulated(n, _inverse_square(u))[1], 18),
        )  # fmt: skip

    return (
        *bessel(0),
        *bessel(1),
    )  # fmt: skip


# -- fitting -------------------------------------------------------------------------------------


def chebyshev_nodes(low: mpf, high: mpf, count: int) -> list[mpf]:
    """Return the Chebyshev nodes of an interval; its ends are not among them."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]


def least_squares(
    nodes: list[mpf], values: list[mpf], weights: list[mpf], powers: range
) -> list[mpf]:
    """Return the coefficients of ``powers`` with the least weighted mean square error."""
    rows = [[w * x**p for p in powers] for x, w in zip(nodes, weights, strict=True)]
    right = [w * v for v, w in zip(values, weights, strict=True)]
    normal = mp.matrix(len(powers))
    load = mp.matrix(len(powers), 1)
    for i in range(len(powers)):
        load[i] = mp.fdot((row[i], r) for row, r in zip(rows, right, strict=True))
        for j in range(i + 1):
            normal[i, j] = normal[j, i] = mp.fdot((row[i], row[j]) for row in rows)
    return list(mp.lu_solve(normal, load))


def rounded(value: mpf, type: str) -> float:
    """Round to the nearest float of a type."""
    return mpf_to_float32(value) if type == "f32" else float(value)


def mpf_to_float32(value: mpf) -> float:
    """Round to the nearest float32 without rounding twice."""
    with mp.workprec(24):
        return float(+value)


def derive(fit: Fit, type: str) -> tuple[float, ...]:
    """Return the rounded coefficients of a polynomial, lowest power first."""
    count = fit.terms[type]
    nodes = chebyshev_nodes(fit.low, fit.high, NODES_PER_COEFFICIENT * count)
    values = [fit.target(x) for x in nodes]
    weights = [fit.weight(x) for x in nodes]
    found: list[float] = []
    for power in range(count):
        rest = least_squares(nodes, values, weights, range(power, count))
        found.append(rounded(rest[0], type))
        values = [v - found[-1] * x**power for v, x in zip(values, nodes, strict=True)]
    return tuple(found)


def interpolated(fit: Fit) -> tuple[float, ...]:
    """Return the rounded coefficients of the polynomial through a function at Chebyshev nodes.

    None makes up for what rounding another lost: derivatives are better, values a little worse.
    """
    count = fit.terms["f64"]
    nodes = chebyshev_nodes(fit.low, fit.high, count)
    powers = mp.matrix([[x**p for p in range(count)] for x in nodes])
    values = mp.matrix([fit.target(x) for x in nodes])
    return tuple(map(float, mp.lu_solve(powers, values)))


def weighted_error(fit: Fit, coefficients: Iterable[float], count: int = CHECK_POINTS) -> mpf:
    """Return the largest weighted error of a polynomial over a dense grid of its interval."""
    rising = tuple(coefficients)
    step = (fit.high - fit.low) / count
    points = (fit.low + step * (i + mpf("0.5")) for i in range(count))
    return max(
        abs((mp.fsum(c * x**i for i, c in enumerate(rising)) - fit.target(x)) * fit.weight(x))
        for x in points
    )


# -- constants -----------------------------------------------------------------------------------


def split(value: mpf, widths: tuple[int, ...]) -> tuple[float, ...]:
    """Return a constant as a sum of floats with the given numbers of significant bits."""
    parts = []
    for width in widths:
        with mp.workprec(width):
            part = +value
        parts.append(float(part))
        value -= part
    return tuple(parts)


def constants(type: str) -> dict[str, tuple[str, tuple[float, ...]]]:
    """Return the split constants of a type: name to explanation and parts."""
    bits, exponent = {"f32": (24, 9), "f64": (53, 12)}[type]
    short = bits - exponent
    return {
        "LN2": (f"ln 2: {short} bits, so that k·LN2[0] is exact, then the rest",
                split(mp.ln(2), (short, bits))),
        "LOG10_2": (f"log10 2: {short} bits, then the rest",
                    split(mp.log10(2), (short, bits))),
        "LOG2_E": ("log2 e", split(1 / mp.ln(2), (bits, bits))),
        "LOG10_E": ("log10 e", split(1 / mp.ln(10), (bits, bits))),
        "HALF_PI": ("π/2", split(mp.pi / 2, (bits, bits, bits))),
        "PI": ("π", split(mp.pi, (bits, bits))),
        "PI_SQUARED": ("π²", split(mp.pi**2, (bits, bits))),
        "TWO_THIRDS": ("2/3", split(mpf(2) / 3, (bits, bits))),
        "DIGAMMA_ROOT": ("the positive root of ψ", split(_digamma_root(), (bits, bits))),
        "POLYGAMMA_TAIL": ("B₂ⱼ/(2j)!, j = 1, 2, …",
                           tuple(rounded(mp.bernoulli(2 * j) / mp.factorial(2 * j), type)
                                 for j in range(1, 11))),
    }  # fmt: skip


def two_over_pi_words(bits: int, words: int) -> tuple[int, ...]:
    """Return the first binary digits of 2/π as unsigned words, most significant first."""
    with mp.workprec(bits * words + 64):
        digits = int(mp.floor(2 / mp.pi * mpf(2) ** (bits * words)))
    return tuple((digits >> (bits * (words - 1 - i))) & ((1 << bits) - 1) for i in range(words))


def special_constants() -> dict[str, tuple[str, tuple[float, ...]]]:
    """Return tables of `mixad.special` that are known exactly, highest power first."""
    terms = [(-1) ** k * (mp.zeta(k) - 1) / k for k in range(2, 28)]
    return {
        "LGAMMA1P": ("(log Γ(1 + a) + log(1 + a))/a by powers of a, |a| <= 1/2; A&S 6.1.33",
                     tuple(map(float, reversed([1 - mp.euler, *terms])))),
    }  # fmt: skip


def temme(count: int, terms: int) -> tuple[tuple[float, ...], ...]:
    """Return the power series of c_k(η) of DLMF 8.12.9, the last k and the highest power first."""
    alpha = [Fraction(0), Fraction(1)]  # DLMF 8.12.11 and 12, in rational numbers
    for n in range(2, terms + 2 * count + 2):
        products = sum((j * alpha[j] * alpha[n - j + 1] for j in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - products) / (n + 1))
    first = [Fraction(-1, 3), *((n + 2) * alpha[n + 2] for n in range(1, terms + 2 * count - 1))]
    rows = [first]
    for k in range(1, count):
        gamma = (-1) ** k * math.prod(range(1, 2 * k + 2, 2)) * alpha[2 * k + 1]
        row = rows[-1]
        rows.append([gamma * first[n] + (n + 2) * row[n + 2] for n in range(len(row) - 2)])
    return tuple(tuple(map(float, reversed(row[:terms]))) for row in reversed(rows))


# -- the table -----------------------------------------------------------------------------------

HEADER = '''"""Coefficients of polynomials and split constants; written by `tools/derive_maths.py`.

Polynomials are listed lowest power first.  "error" is the largest weighted error on a dense grid:
what the polynomial adds to the relative error of the op, before rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["F32", "F64", "TWO_OVER_PI_32", "TWO_OVER_PI_64"]

'''


def render() -> str:
    """Return the text of the coefficient module."""
    parts = [HEADER]
    for type in ("f32", "f64"):
        rows = [f"{type.upper()}: Mapping[str, tuple[float, ...]] = MappingProxyType({{\n"]
        for fit in fits():
            if type in fit.terms:
                found = derive(fit, type)
                error = mpmath.nstr(mp.log(weighted_error(fit, found), 2), 3)
                rows.append(_entry(fit.name, f"{fit.doc}; error 2^{error}", found))
        rows += [_entry(name, doc, values) for name, (doc, values) in constants(type).items()]
        parts.append("".join([*rows, "})  # fmt: skip\n\n"]))
    words = (_words(bits, two_over_pi_words(bits, count)) for bits, count in ((32, 8), (64, 20)))
    return "".join([*parts, "\n".join(words)])


SPECIAL_HEADER = '''"""Coefficients of polynomials; written by `tools/derive_maths.py`.

Polynomials are listed highest power first.  "error" is the largest error on a dense grid.
"""
'''


def render_special() -> str:
    """Return the text of the coefficient module of `mixad.special`."""
    parts = [SPECIAL_HEADER]
    for fit in special_fits():
        found = interpolated(fit)
        error = mpmath.nstr(mp.log(weighted_error(fit, found, FEWER_POINTS), 2), 3)
        body = "".join(f"    {v!r},\n" for v in reversed(found))
        parts.append(f"# {fit.doc}; error 2^{error}\n{fit.name} = (\n{body})\n")
    for name, (doc, values) in special_constants().items():
        body = "".join(f"    {v!r},\n" for v in values)
        parts.append(f"# {doc}\n{name} = (\n{body})\n")
    rows = "".join(
        "    (\n" + "".join(f"        {v!r},\n" for v in row) + "    ),\n" for row in temme(8, 18)
    )
    parts.append(f"# c_k(η) of DLMF 8.12.9, from the last k on\nTEMME = (\n{rows})\n")
    return "\n".join(parts)


def _entry(name: str, doc: str, values: Iterable[float]) -> str:
    body = "".join(f"        {v!r},\n" for v in values)
    return f'    # {doc}\n    "{name}": (\n{body}    ),\n'


def _words(bits: int, values: Iterable[int]) -> str:
    body = "".join(f"    0x{v:X},\n" for v in values)
    return f"# First digits of 2/π in words of {bits} bits.\nTWO_OVER_PI_{bits} = (\n{body})\n"


def main() -> int:
    """Write the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the table would change")
    arguments = parser.parse_args()
    texts = {TARGET: render(), SPECIAL_TARGET: render_special()}
    if not arguments.check:
        for target, text in texts.items():
            target.write_text(text, encoding="utf-8")
        return 0
    differing = [t for t, text in texts.items() if t.read_text(encoding="utf-8") != text]
    for target in differing:
        print(f"{target} differs from what this script derives")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
