"""Infinities, zeros with their signs, nan, and arguments whose results are exact."""

from math import inf, nan

import native_loop
import numpy as np
import pytest
from ulp_reference import FLOATS, any_floats, powers_of_two

from mixad.scalar.math import program_of
from mixad.scalar.types import F32, F64

WHOLE_BASES = range(1, 200)
WHOLE_EXPONENTS = range(6)
RANDOM_POINTS = 100_000

UNARY = {
    "exp": [(-inf, 0.0), (inf, inf), (0.0, 1.0), (-0.0, 1.0), (1e4, inf), (-1e4, 0.0)],
    "exp2": [(-inf, 0.0), (inf, inf), (0.0, 1.0), (-0.0, 1.0), (1e5, inf), (-1e5, 0.0),
             (10.0, 1024.0)],
    "expm1": [(-inf, -1.0), (inf, inf), (0.0, 0.0), (-0.0, -0.0), (1e4, inf), (-1e4, -1.0)],
    "log": [(0.0, -inf), (-0.0, -inf), (inf, inf), (-inf, nan), (-1.0, nan), (1.0, 0.0)],
    "log2": [(0.0, -inf), (-0.0, -inf), (inf, inf), (-inf, nan), (-1.0, nan), (1.0, 0.0)],
    "log10": [(0.0, -inf), (-0.0, -inf), (inf, inf), (-inf, nan), (-1.0, nan), (1.0, 0.0),
              (10.0, 1.0)],
    "log1p": [(-1.0, -inf), (inf, inf), (-inf, nan), (-2.0, nan), (0.0, 0.0), (-0.0, -0.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (inf, nan), (-inf, nan)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (50.0, 1.0), (-3e38, -1.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (inf, 1.0), (-inf, 0.0), (3e38, 1.0), (-3e38, 0.0)],
    "logistic_density": [(0.0, 0.25), (-0.0, 0.25), (inf, 0.0), (-inf, 0.0), (-3e38, 0.0)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (3e38, 1.0), (-10.0, -1.0)],
    "erfcx": [(0.0, 1.0), (-0.0, 1.0), (inf, 0.0), (-inf, inf), (-30.0, inf)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, inf), (-1.0, -inf), (1.5, nan), (-inf, nan)],
    "erfcinv": [(0.0, inf), (-0.0, inf), (1.0, 0.0), (2.0, -inf), (-0.5, nan), (inf, nan)],
    "digamma": [(0.0, -inf), (-0.0, inf), (inf, inf), (-inf, nan), (-1.0, nan), (-3e38, nan)],
    "trigamma": [(0.0, inf), (-0.0, inf), (inf, 0.0), (-inf, nan), (-1.0, inf)],
    "relu": [(0.0, 0.0), (-0.0, 0.0), (-2.0, 0.0), (2.0, 2.0), (inf, inf), (-inf, 0.0)],
    "sign": [(0.0, 0.0), (-0.0, 0.0), (-2.0, -1.0), (1e-40, 1.0), (inf, 1.0), (-inf, -1.0)],
}  # fmt: skip

# C23, F.10.4.4, in its order
POW = [
    (0.0, -3.0, inf), (-0.0, -3.0, -inf), (0.0, -2.0, inf), (-0.0, -2.0, inf), (-0.0, -2.5, inf),
    (0.0, -inf, inf), (-0.0, -inf, inf), (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (0.0, 2.0, 0.0),
    (-0.0, 2.0, 0.0), (-0.0, 2.5, 0.0), (-0.0, 1e30, 0.0), (-1.0, inf, 1.0), (-1.0, -inf, 1.0),
    (1.0, nan, 1.0), (1.0, inf, 1.0), (nan, 0.0, 1.0), (nan, -0.0, 1.0), (0.0, 0.0, 1.0),
    (inf, 0.0, 1.0), (-inf, -0.0, 1.0), (-2.0, 0.5, nan), (-2.0, -1.5, nan), (-1.0, 0.5, nan),
    (0.5, -inf, inf), (-0.5, -inf, inf), (2.0, -inf, 0.0), (-2.0, -inf, 0.0), (0.5, inf, 0.0),
    (-0.5, inf, 0.0), (2.0, inf, inf), (-2.0, inf, inf), (-inf, -3.0, -0.0), (-inf, -2.0, 0.0),
    (-inf, -2.5, 0.0), (-inf, 3.0, -inf), (-inf, 2.0, inf), (-inf, 2.5, inf), (inf, -1.0, 0.0),
    (inf, 0.5, inf), (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, -1.0, -0.5), (10.0, 400.0, inf),
    (-10.0, 401.0, -inf), (10.0, -401.0, 0.0), (-10.0, -401.0, -0.0), (nan, 1.0, nan),
    (2.0, nan, nan), (-1.0, nan, nan), (-inf, nan, nan), (0.0, nan, nan), (nan, nan, nan),
    (nan, inf, nan), (nan, -2.0, nan), (1.5, 3e38, inf), (1.5, -3e38, 0.0),
]  # fmt: skip

BINARY = {
    "pow": POW,
    "logaddexp": [(-inf, -inf, -inf), (inf, inf, inf), (inf, -inf, inf), (-inf, 2.0, 2.0),
                  (3.0, -inf, 3.0), (3e38, -3e38, 3e38), (nan, 1.0, nan), (1.0, nan, nan),
                  (nan, -inf, nan), (nan, inf, nan)],
    "polygamma": [
        (0.0, 0.0, -inf), (0.0, -0.0, inf), (0.0, inf, inf), (0.0, -inf, nan), (0.0, -1.0, nan),
        (1.0, 0.0, inf), (1.0, -0.0, inf), (1.0, inf, 0.0), (1.0, -inf, nan), (1.0, -1.0, inf),
        (2.0, 0.0, -inf), (2.0, -0.0, inf), (2.0, inf, -0.0), (2.0, -inf, nan), (2.0, -1.0, nan),
        (2.0, -40.0, nan), (2.0, -1e30, nan), (3.0, -40.0, inf), (3.0, -1e30, inf),
        (3.0, 1e-300, inf), (4.0, 1e-300, -inf), (4.0, -1e-300, inf),
        (100.0, 1e30, -0.0), (100.0, inf, -0.0), (99.0, -3.0, inf), (101.0, 2.0, nan),
        (-1.0, 2.0, nan), (1.5, 2.0, nan), (inf, 2.0, nan), (nan, 2.0, nan), (2.0, nan, nan),
        (0.0, nan, nan)],
    "pow_log": [(0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, -1.0, -inf), (1.0, 7.0, 0.0),
                (inf, 2.0, inf), (inf, -2.0, 0.0), (-2.0, 3.0, nan), (nan, 0.0, nan)],
    "direction_cosine": [
        (0.0, 0.0, 0.0), (2.0, 0.0, 1.0), (-2.0, -0.0, -1.0), (1e-45, 0.0, 1.0),
        (-3e38, 1e-45, -1.0), (3.0, -4.0, 0.6),
        (inf, 2.0, 1.0), (-inf, 0.0, -1.0), (2.0, inf, 0.0), (inf, inf, nan), (nan, 1.0, nan),
        (0.0, nan, nan)],
    "circle_inversion": [
        (0.0, 0.0, 0.0), (-0.0, 2.0, -0.0), (2.0, -0.0, 0.5), (1.0, -2.0, 0.2),
        (3e38, 1e-45, 1 / 3e38), (inf, 2.0, 0.0), (2.0, -inf, 0.0), (inf, inf, 0.0),
        (nan, 1.0, nan), (0.0, nan, nan)],
    "div_zero": [(0.0, 0.0, 0.0), (-0.0, nan, 0.0), (0.0, inf, 0.0), (2.0, 0.0, inf),
                 (-6.0, 2.0, -3.0), (nan, 1.0, nan), (inf, inf, nan)],
    "mul_zero": [(0.0, inf, 0.0), (-0.0, nan, 0.0), (0.0, 5.0, 0.0), (2.0, 0.0, 0.0),
                 (2.0, inf, inf), (nan, 0.0, nan), (inf, 0.0, nan)],
    "mul_zeros": [(0.0, inf, 0.0), (-0.0, nan, 0.0), (0.0, 5.0, 0.0), (2.0, 0.0, 0.0),
                  (2.0, inf, inf), (nan, 0.0, 0.0), (inf, -0.0, 0.0), (nan, 2.0, nan)],
}  # fmt: skip

TERNARY = {
    "mul_pow": [(0.0, 0.0, -1.0, 0.0), (-0.0, 2.0, inf, 0.0), (0.0, 2.0, nan, 0.0),
                (2.0, 3.0, 2.0, 18.0), (-2.0, -3.0, 3.0, 54.0), (3.0, 0.0, 0.0, 3.0),
                (3.0, nan, 0.0, 3.0), (-3.0, 1.0, nan, -3.0), (3.0, -1.0, inf, 3.0),
                (-2.0, 0.0, 2.0, -0.0), (2.0, -0.0, 3.0, -0.0), (2.0, 0.0, -1.0, inf),
                (2.0, -0.0, -1.0, -inf), (-2.0, 0.5, 3e38, -0.0), (2.0, inf, -1.0, 0.0),
                (2.0, -2.0, 0.5, nan), (inf, 2.0, 3.0, inf), (-inf, 2.0, -1.0, -inf),
                (inf, 0.0, 1.0, nan), (inf, inf, -1.0, nan), (-inf, inf, 1.0, -inf),
                (inf, 1.0, 5.0, inf), (nan, 2.0, 1.0, nan), (2.0, nan, 1.0, nan),
                (2.0, 3.0, nan, nan), (2.0, 1e-30, 11.0, 0.0), (2.0, 1e-30, -11.0, inf)],
}  # fmt: skip


def assert_same(got, want):
    """Equal values, equal signs of zero, nan where nan."""
    np.testing.assert_array_equal(got, want)
    signed = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[signed]), np.signbit(want[signed]))


def columns(rows, type):
    with np.errstate(over="ignore"):
        return [np.array(c, type.dtype) for c in zip(*rows, strict=True)]


@pytest.mark.rows("type", FLOATS, ids=str)
@pytest.mark.rows("name", UNARY)
def test_special_values_of_one_argument(name, type):
    x, want = columns([*UNARY[name], (nan, nan)], type)
    assert_same(native_loop.run(program_of(name, type), x), want)


@pytest.mark.rows("type", FLOATS, ids=str)
@pytest.mark.rows("name", BINARY)
def test_special_values_of_two_arguments(name, type):
    x, y, want = columns(BINARY[name], type)
    assert_same(native_loop.run(program_of(name, type), x, y), want)


@pytest.mark.rows("type", FLOATS, ids=str)
@pytest.mark.rows("name", TERNARY)
def test_special_values_of_three_arguments(name, type):
    x, y, z, want = columns(TERNARY[name], type)
    assert_same(native_loop.run(program_of(name, type), x, y, z), want)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_whole_powers_of_whole_numbers_are_exact(type):
    rows = [
        (x, y, x**y)
        for x in WHOLE_BASES
        for y in WHOLE_EXPONENTS
        if x**y < 2 ** (np.finfo(type.dtype).nmant + 1)
    ]
    x, y, want = columns(rows, type)
    assert_same(native_loop.run(program_of("pow", type), x, y), want)
    one = np.ones_like(x)
    assert_same(native_loop.run(program_of("mul_pow", type), one, x, y), want)
    assert_same(native_loop.run(program_of("mul_pow", type), x, x, y - one), want)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_powers_of_two_are_exact_both_ways(type):
    powers = np.array(powers_of_two(type), type.dtype)
    exponents = np.log2(powers.astype(np.longdouble)).astype(type.dtype)
    assert_same(native_loop.run(program_of("exp2", type), exponents), powers)
    assert_same(native_loop.run(program_of("log2", type), powers), exponents)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_first_power_is_exact(type):
    x = any_floats(type, RANDOM_POINTS, np.random.default_rng(3))
    x = x[np.isfinite(x)]
    assert_same(native_loop.run(program_of("pow", type), x, np.ones_like(x)), x)


def test_quiet_nans_with_any_payload_stay_nan():
    payloads = np.arange(1, 1 << 22, 4099, dtype=np.uint32)
    x = (payloads | np.uint32(0x7FC00000)).view(np.float32)
    wide = (payloads.astype(np.uint64) | np.uint64(0x7FF8000000000000)).view(np.float64)
    for name in UNARY:
        assert np.isnan(native_loop.run(program_of(name, F32), x)).all(), name
        assert np.isnan(native_loop.run(program_of(name, F64), wide)).all(), name
