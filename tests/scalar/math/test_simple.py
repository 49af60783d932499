"""The programs that are exact: selections, classification, neighbours, integer powers."""

import native_loop
import numpy as np
import pytest
from ulp_reference import FLOATS, any_floats

from mixad.scalar.math import program_of
from mixad.scalar.types import I8, I32, I64, U8, U64

RANDOM_POINTS = 5000
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 5e-324, 3.4028235e38,
           1.1754944e-38, 2.2250738585072014e-308, 1.7976931348623157e308]  # fmt: skip


@pytest.fixture(params=FLOATS, ids=str)
def floats(request):
    """All pairs of special values, and pairs of random bits."""
    type = request.param
    with np.errstate(over="ignore"):
        special = np.array(SPECIAL, type.dtype)
    rng = np.random.default_rng(7)
    x, y = (any_floats(type, RANDOM_POINTS, rng) for _ in range(2))
    grid = [g.ravel() for g in np.meshgrid(special, special)]
    return type, np.concatenate([grid[0], x, x]), np.concatenate([grid[1], y, x])


@pytest.mark.rows("name", ["isnan", "isinf", "isfinite", "sign"])
def test_classification_is_numpys(name, floats):
    type, x, _ = floats
    np.testing.assert_array_equal(native_loop.run(program_of(name, type), x), getattr(np, name)(x))


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extremes_spread_nan(name, floats):
    type, x, y = floats
    np.testing.assert_array_equal(
        native_loop.run(program_of(name, type), x, y), getattr(np, name)(x, y)
    )


def test_neighbours_have_the_bits_of_numpys(floats):
    type, x, y = floats
    got = native_loop.run(program_of("nextafter", type), x, y)
    with np.errstate(all="ignore"):
        want = np.nextafter(x, y)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    keep = ~np.isnan(want)
    bits = f"u{type.itemsize}"
    np.testing.assert_array_equal(got[keep].view(bits), want[keep].view(bits))


def test_powers_of_two_are_applied_with_one_rounding(floats):
    type, x, _ = floats
    n = np.random.default_rng(8).integers(-2300, 2300, len(x))
    n[::2] = n[::2] // 16
    n[:6] = [0, 1, -1, 10**6, -(10**6), 127]
    got = native_loop.run(program_of("ldexp", type), x, n.astype(type.dtype))
    with np.errstate(all="ignore"):
        want = np.ldexp(x, n)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(
        np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)]
    )


@pytest.mark.parametrize("type", [I8, I32, I64, U8, U64], ids=str)
def test_integer_extremes_and_signs_are_numpys(type):
    limits = np.iinfo(type.dtype)
    values = np.array([limits.min, limits.min + 1, 0, 1, 2, limits.max], type.dtype)
    x, y = (g.ravel() for g in np.meshgrid(values, values))
    for name in ("minimum", "maximum"):
        np.testing.assert_array_equal(
            native_loop.run(program_of(name, type), x, y), getattr(np, name)(x, y)
        )
    np.testing.assert_array_equal(native_loop.run(program_of("sign", type), x), np.sign(x))


def _wrapping_power(x, y, type):
    if y < 0:
        return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
    return np.array(pow(x, y, 1 << type.bits), np.uint64).astype(type.dtype).item()


@pytest.mark.parametrize("type", [I8, I32, I64, U8, U64], ids=str)
def test_integer_powers_wrap_and_negative_ones_give_zero(type):
    limits = np.iinfo(type.dtype)
    values = [
        v for v in (*range(-7, 8), 15, 31, 63, 100, limits.min, limits.max) if v >= limits.min
    ]
    x, y = (
        g.ravel() for g in np.meshgrid(np.array(values, type.dtype), np.array(values, type.dtype))
    )
    want = [_wrapping_power(a, b, type) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_array_equal(native_loop.run(program_of("powi", type), x, y), want)
