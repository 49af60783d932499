"""Complex numbers in kernels, against NumPy, mpmath, differences, JAX and torch."""

from __future__ import annotations

import cmath
import importlib.util
import itertools
import math
import operator
import warnings
from typing import Any, NamedTuple

import complex_kernels as kernels
import mpmath
import numpy as np
import pytest

import mixad
from mixad.errors import KernelGradientError, KernelTypeError, TracerError

HAS_JAX = importlib.util.find_spec("jax") is not None
EPSILON = 2.0**-52
RNG = np.random.default_rng(3)


def drawn(*shape: int, scale: float = 1.0) -> Any:
    return scale * (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape))


Z, W = drawn(40), drawn(40)
X = RNG.standard_normal(40)


def parted(z: Any) -> Any:
    """Return numbers as their parts, which compare with signs of zeros and infinities."""
    return np.asarray(z)[..., None].view(np.asarray(z).real.dtype)


def assert_same_bits(got: Any, want: Any) -> None:
    a, b = parted(got), parted(want)
    np.testing.assert_array_equal(a, b)
    numbers = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(a)[numbers], np.signbit(b)[numbers])


# -- arithmetic ------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e308, 5e-324]
GRID = [complex(a, b) for a in SPECIAL for b in SPECIAL]
PAIRS = np.array(list(itertools.product(GRID, GRID)))


def wide(count: int) -> Any:
    return drawn(count) * 10.0 ** RNG.integers(-200, 200, count)


@pytest.mark.rows("name", kernels.OPERATORS)
@pytest.mark.rows("dtype", ["complex64", "complex128"])
def test_operators_of_two_complex_numbers_have_the_bits_of_numpys_scalars(
    name: str, dtype: str
) -> None:
    numbers = np.concatenate([PAIRS, np.stack([wide(500), wide(500)], 1)])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = numbers.astype(dtype).T.copy()
        compute = getattr(operator, {"div": "truediv"}.get(name, name))
        want = np.array([compute(x, y) for x, y in zip(a, b, strict=True)])
    got = kernels.OPERATORS[name](a, b)
    assert got.dtype == dtype
    assert_same_bits(got, want)


@pytest.mark.rows("exponent", [0, 1, 2, 3, 5, 8, 13, 99, -1, -2, -7])
def test_small_whole_powers_have_the_bits_of_numpys_scalars(exponent: int) -> None:
    kernel = WHOLE_POWERS[exponent]
    assert_same_bits(kernel(Z), np.array([z**exponent for z in Z]))


WHOLE_POWERS = {
    0: mixad.broadcast(lambda z: z**0), 1: mixad.broadcast(lambda z: z**1),
    2: mixad.broadcast(lambda z: z**2), 3: mixad.broadcast(lambda z: z**3),
    5: mixad.broadcast(lambda z: z**5), 8: mixad.broadcast(lambda z: z**8),
    13: mixad.broadcast(lambda z: z**13), 99: mixad.broadcast(lambda z: z**99),
    -1: mixad.broadcast(lambda z: z**-1), -2: mixad.broadcast(lambda z: z**-2),
    -7: mixad.broadcast(lambda z: z**-7),
}  # fmt: skip


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_a_real_operand_gives_numpys_bits_where_no_zero_is_made_up(name: str) -> None:
    compute = getattr(operator, name)
    for a, b in ((Z, X), (X, Z)):
        want = np.array([compute(x, y) for x, y in zip(a, b, strict=True)])
        assert_same_bits(kernels.OPERATORS[name](a, b), want)


def test_a_real_operand_has_no_imaginary_part() -> None:
    z = np.array([complex(math.inf, -0.0), complex(2.0, -0.0)])
    assert_same_bits(kernels.mul(z, 3.0), [complex(math.inf, -0.0), complex(6.0, -0.0)])
    assert_same_bits(kernels.mul(0.5, z), [complex(math.inf, -0.0), complex(1.0, -0.0)])
    assert_same_bits(kernels.add(z, 1.0), [complex(math.inf, -0.0), complex(3.0, -0.0)])
    assert_same_bits(kernels.sub(1.0, z), [complex(-math.inf, 0.0), complex(-1.0, 0.0)])
    assert_same_bits(kernels.div(z, 3.0), [complex(math.inf, -0.0), complex(2.0 / 3.0, -0.0)])


def test_a_quotient_by_a_real_number_is_rounded_once_in_each_part() -> None:
    want = [complex(z.real / x, z.imag / x) for z, x in zip(Z, X, strict=True)]
    assert_same_bits(kernels.div(Z, X), want)


def test_a_real_number_by_a_complex_one_is_what_numpy_gives() -> None:
    want = np.array([x / z for x, z in zip(X, Z, strict=True)])
    assert_same_bits(kernels.div(X, Z), want)


POWERS = {
    "complex": (W, W), "a real number": (2.5, 2.5), "an integer": (12, 12),
    "a negative integer": (-3, -3), "a negative number": (-1.5, -1.5),
}  # fmt: skip


@pytest.mark.parametrize("kind", POWERS)
def test_powers_known_at_run_time(kind: str) -> None:
    given, exponent = POWERS[kind]
    np.testing.assert_allclose(kernels.power(Z, given), Z**exponent, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [-7, -3, -2, -1, 0, 1, 2, 5])
def test_whole_powers_known_at_run_time_have_numpys_bits(exponent: int) -> None:
    draw = np.random.default_rng(0)
    z = draw.normal(size=200) + 1j * draw.normal(size=200)
    found = mixad.broadcast(lambda z, n: z**n)(z, exponent)
    # Squares and reciprocals of arrays, as one exponent asks for, have fused products on some CPUs.
    np.testing.assert_array_equal(found, np.power(z, np.full(z.shape, exponent)))


def test_real_numbers_to_complex_powers() -> None:
    np.testing.assert_allclose(kernels.power(X, Z), (X + 0j) ** Z, rtol=1e-13)
    np.testing.assert_allclose(kernels.power(2.0, Z), 2.0**Z, rtol=1e-13)


@pytest.mark.rows(
    ("exponent", "value", "slope"),
    [(0.0, 1, 0), (1.0, 0, 1), (2.0, 0, 0), (2.5, 0, 0), (1, 0, 1), (2, 0, 0), (0, 1, 0),
     (1 + 0j, 0, 1), (2 + 1j, 0, 0), (0j, 1, 0)],
)  # fmt: skip
def test_powers_of_zero_have_their_first_derivative(exponent: Any, value: Any, slope: Any) -> None:
    found, pullback = mixad.vjp(lambda z: kernels.power(z, exponent), np.zeros(1, complex))
    assert found == value
    assert pullback(np.ones(1, complex))[0] == slope


FAR_POWERS = {
    0.5: mixad.broadcast(lambda z: z**0.5), 1.5: mixad.broadcast(lambda z: z**1.5),
    2.5: mixad.broadcast(lambda z: z**2.5), -2.5: mixad.broadcast(lambda z: z**-2.5),
    1.5 + 0.5j: mixad.broadcast(lambda z: z ** (1.5 + 0.5j)), -2: mixad.broadcast(lambda z: z**-2),
    -3: mixad.broadcast(lambda z: z**-3), -5: mixad.broadcast(lambda z: z**-5),
    -10: mixad.broadcast(lambda z: z**-10), 3: mixad.broadcast(lambda z: z**3),
}  # fmt: skip


def far_points(dtype: str) -> Any:
    """Return normal numbers of all sizes that a type has, in all directions and on the axes."""
    limits = np.finfo(dtype)
    sizes = 10.0 ** np.linspace(math.log10(limits.tiny) + 1, math.log10(limits.max) - 1, 25)
    angles = np.exp(1j * np.array([0.3, 0.8, 1.2, 2.0, 3.0, -0.7, -2.5]))
    turns = np.concatenate([angles, [1, 1j, -1j, -1]])
    return (sizes[:, None] * turns).astype(dtype).ravel()


def tangents_and_pulled(f: Any, z: Any) -> list[Any]:
    """Return the derivative of a function as tangents of 1 and i, and as what these pull back."""
    ones, i = np.ones_like(z), z.dtype.type(1j)
    _, pullback = mixad.vjp(f, z)
    with np.errstate(all="ignore"):
        return [
            mixad.jvp(f, (z,), (ones,))[1], mixad.jvp(f, (z,), (i * ones,))[1] / i,
            np.conj(pullback(ones)[0]), np.conj(pullback(i * ones)[0] / i),
        ]  # fmt: skip


def assert_right_in_range(f: Any, derivative: Any, z: Any, tolerance: float) -> None:
    """Compare a derivative with mpmath wherever the type can hold it."""
    limits = np.finfo(z.dtype)
    with mpmath.workdps(40):
        want = [derivative(mpmath.mpc(float(x.real), float(x.imag))) for x in z]
        for found in tangents_and_pulled(f, z):
            for x, got, exact in zip(z, found, want, strict=True):
                if abs(exact) < 0.7 * float(limits.max):
                    error = abs(mpmath.mpc(complex(got)) - exact)
                    most = tolerance * float(limits.eps) * abs(exact) + 4 * float(
                        limits.smallest_subnormal
                    )
                    assert error < most, (x, got, exact)


@pytest.mark.rows("exponent", FAR_POWERS)
@pytest.mark.rows("dtype", ["complex64", "complex128"])
def test_derivatives_of_powers_are_right_wherever_they_can_be_stored(
    exponent: Any, dtype: str
) -> None:
    tolerance = 3000 if isinstance(exponent, complex) else 100  # the angle has many turns
    assert_right_in_range(
        FAR_POWERS[exponent],
        lambda z: exponent * mpmath.power(z, exponent - 1),
        far_points(dtype),
        tolerance,
    )


@pytest.mark.rows("exponent", [2, 5, -1, -4, -7, 1.5, -0.5, 2.5 - 1j])
@pytest.mark.rows("dtype", ["complex64", "complex128"])
def test_derivatives_of_powers_known_at_run_time_are_right_wherever_they_can_be_stored(
    exponent: Any, dtype: str
) -> None:
    assert_right_in_range(
        lambda z: kernels.power(z, exponent),
        lambda z: exponent * mpmath.power(z, exponent - 1),
        far_points(dtype),
        6000 if isinstance(exponent, complex) else 100,
    )


@pytest.mark.rows("exponent", [1.5, 2.5, -2.5, 1.5 + 0.5j, -2, -5])
@pytest.mark.rows("dtype", ["complex64", "complex128"])
def test_second_derivatives_of_powers_are_right_wherever_they_can_be_stored(
    exponent: Any, dtype: str
) -> None:
    assert_right_in_range(
        lambda z: mixad.jvp(FAR_POWERS[exponent], (z,), (np.ones_like(z),))[1],
        lambda z: exponent * (exponent - 1) * mpmath.power(z, exponent - 2),
        far_points(dtype),
        6000 if isinstance(exponent, complex) else 200,
    )


@pytest.mark.rows("dtype", ["complex64", "complex128"])
def test_derivatives_in_a_power_are_right_wherever_they_can_be_stored(dtype: str) -> None:
    z = far_points(dtype)
    z = z[abs(z) != 1]
    for exponent in (0.75, 0.5 + 0.25j, -0.75 + 0j):
        w = np.full(z.shape, exponent, dtype if isinstance(exponent, complex) else z.real.dtype)
        found = mixad.jvp(lambda w: kernels.power(z, w), (w,), (np.ones_like(w),))[1]
        for x, got in zip(z, found, strict=True):
            base = mpmath.mpc(float(x.real), float(x.imag))
            exact = mpmath.power(base, exponent) * mpmath.log(base)
            error = abs(mpmath.mpc(complex(got)) - exact)
            assert error < 3000 * float(np.finfo(dtype).eps) * abs(exact), (x, got, exact)


def test_powers_keep_the_sign_of_a_zero() -> None:
    z = np.array([complex(4, 0.0), complex(4, -0.0), complex(-4, 0.0), complex(-4, -0.0)])
    got = FAR_POWERS[2.5](z)
    assert_same_bits(got[:2], [complex(32, 0.0), complex(32, -0.0)])
    assert_same_bits(got[2], got[3].conj())


# -- functions -------------------------------------------------------------------------------------

POINTS = np.concatenate(
    [drawn(60) * np.array([s, 1])[k] for k in (0, 1) for s in (1e-8, 1e-3, 1.0, 5.0)]
    + [s * np.array([1, -1, 1j, -1j, 1 - 0j]) for s in (1e-300, 1e-10, 0.5, 1.0, 2.0, 20.0)]
    + [np.conj([-2.0 + 0j, -0.5 + 0j, 0.5j]), 1 + drawn(30, scale=1e-8)]
    + [np.exp(1j * RNG.uniform(-3, 3, 60))]
)

MP: dict[str, tuple[Any, Any]] = {
    "exp": (mpmath.exp, mpmath.exp),
    "exp2": (lambda z: mpmath.power(2, z), lambda z: mpmath.power(2, z) * mpmath.log(2)),
    "expm1": (lambda z: mpmath.exp(z) - 1, mpmath.exp),
    "log": (mpmath.log, lambda z: 1 / z),
    "log2": (lambda z: mpmath.log(z) / mpmath.log(2), lambda z: 1 / z / mpmath.log(2)),
    "log10": (lambda z: mpmath.log(z) / mpmath.log(10), lambda z: 1 / z / mpmath.log(10)),
    "log1p": (lambda z: mpmath.log(1 + z), lambda z: 1 / (1 + z)),
    "sqrt": (mpmath.sqrt, lambda z: 0.5 / mpmath.sqrt(z)),
    "sin": (mpmath.sin, mpmath.cos),
    "cos": (mpmath.cos, lambda z: -mpmath.sin(z)),
    "tan": (mpmath.tan, lambda z: 1 / mpmath.cos(z) ** 2),
    "sinh": (mpmath.sinh, mpmath.cosh),
    "cosh": (mpmath.cosh, mpmath.sinh),
    "tanh": (mpmath.tanh, lambda z: 1 / mpmath.cosh(z) ** 2),
}


def exact(function: Any, z: complex) -> Any:
    """Return a value at 60 digits; below a cut, where the imaginary part is -0.0, its limit."""
    with mpmath.workdps(60):
        found = function(mpmath.mpc(z.real, z.imag))
        is_below = z.imag == 0 and math.copysign(1, z.imag) < 0
        return mpmath.conj(found) if is_below else found


def worst(got: Any, function: Any, points: Any) -> float:
    """Return the largest error relative to the size of the result."""
    errors = [0.0]
    for z, found in zip(points, got, strict=True):
        want = exact(function, z)
        if abs(want) > 1e-290:
            with mpmath.workdps(60):
                errors.append(float(abs(mpmath.mpc(complex(found)) - want) / abs(want)))
    return max(errors)


def regular(name: str) -> Any:
    """Return the points at which a function has a derivative."""
    return POINTS[POINTS != -1] if name == "log1p" else POINTS


@pytest.mark.rows("name", kernels.FUNCTIONS)
def test_values_keep_their_digits(name: str) -> None:
    points = regular(name)
    got = kernels.FUNCTIONS[name](points)
    assert worst(got, MP[name][0], points) < 4 * EPSILON


@pytest.mark.rows("name", kernels.FUNCTIONS)
@pytest.mark.rows("cotangent", [1.0, 1j])
def test_derivatives_keep_their_digits_on_axes_and_cuts_too(name: str, cotangent: Any) -> None:
    points = regular(name)
    _, pullback = mixad.vjp(kernels.FUNCTIONS[name], points)
    (pulled,) = pullback(np.full(points.shape, complex(cotangent)))
    assert worst(np.conj(pulled / cotangent), MP[name][1], points) < 8 * EPSILON


@pytest.mark.rows("name", kernels.FUNCTIONS)
def test_single_precision_is_that_of_its_parts(name: str) -> None:
    points = drawn(100).astype("complex64")
    got = kernels.FUNCTIONS[name](points)
    assert got.dtype == "complex64"
    assert worst(got, MP[name][0], points.astype(complex)) < 6 * 2.0**-23


@pytest.mark.parametrize("name", ["log", "log2", "log10"])
def test_logarithms_of_infinities_are_numpys(name: str) -> None:
    points = np.array([z for z in GRID if abs(z) > 1e-300 or z == 0 or z != z])
    with np.errstate(all="ignore"):
        want = np.array([getattr(np, name)(z) for z in points])
    got = kernels.FUNCTIONS[name](points)
    np.testing.assert_allclose(parted(got), parted(want), rtol=1e-13)


@pytest.mark.rows("at", [0.0, -0.0])
@pytest.mark.rows(("function", "pole"), [(np.log, 0), (np.log2, 0), (np.log10, 0), (np.log1p, -1)])
def test_logarithms_are_infinitely_steep_at_their_pole_as_of_real_numbers(
    function: Any, pole: int, at: float
) -> None:
    kernel = mixad.broadcast(lambda x: function(x))
    z = np.asarray([complex(pole + at, at)])
    assert_same_bits(kernel(z).real, np.asarray([-math.inf]))
    steep = mixad.grad(lambda z: kernel(z).real.sum())(z)
    assert_same_bits(steep.real, mixad.grad(lambda x: kernel(x).sum())(z.real))
    assert abs(steep.real[0]) == math.inf
    assert not mixad.grad(lambda z: (0.0 * kernel(z).real).sum())(z).any()


@pytest.mark.rows("name", "exp exp2 sqrt sin cos tan sinh cosh tanh".split())
def test_overflow_beside_zero_is_what_numpy_gives(name: str) -> None:
    """One part may be infinite: that with which exponentials grow."""
    grows = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf]
    turns = [0.0, -0.0, 1.0, -2.0]
    pairs = itertools.product(turns, grows) if name in ("sin", "cos", "tan") else (
        itertools.product(grows, grows if name == "sqrt" else turns)
    )  # fmt: skip
    points = np.array([complex(*pair) for pair in pairs])
    with np.errstate(all="ignore"):
        want = np.array([getattr(np, name)(z) for z in points])
    got = kernels.FUNCTIONS[name](points)
    np.testing.assert_allclose(parted(got), parted(want), rtol=1e-14)
    np.testing.assert_array_equal(np.signbit(parted(got)), np.signbit(parted(want)))


def test_any_and_all_look_at_both_parts() -> None:
    z = np.array([0j, 1j, 2.0, 1 + 1j])
    some = mixad.broadcast(lambda z: 1.0 if any((z, 0.0)) else -1.0)
    every = mixad.broadcast(lambda z: 1.0 if all((z, 1.0)) else -1.0)
    np.testing.assert_array_equal(some(z), [-1.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(every(z), [-1.0, 1.0, 1.0, 1.0])


@mixad.broadcast
def pieces(z):
    return abs(z), np.angle(z), cmath.phase(z), np.real(z), z.imag, np.conj(z)


def test_parts_size_and_angle() -> None:
    got = pieces(Z)
    want = abs(Z), np.angle(Z), np.angle(Z), Z.real, Z.imag, Z.conj()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=4 * EPSILON)


@mixad.broadcast
def there_and_back(z):
    r, angle = cmath.polar(z)
    return cmath.rect(r, angle), complex(z.real, imag=z.imag), complex(r), np.complex64(z)


def test_polar_and_rectangular_numbers() -> None:
    back, made, size, single = there_and_back(Z)
    np.testing.assert_allclose(back, Z, rtol=8 * EPSILON)
    assert_same_bits(made, Z)
    np.testing.assert_allclose(size, abs(Z) + 0j, rtol=4 * EPSILON)
    assert single.dtype == "complex64"
    assert_same_bits(single, Z.astype("complex64"))


@mixad.broadcast
def compared(z, w):
    return (z == w, z != w, not z, bool(z), np.isnan(z), np.isinf(z), np.isfinite(z),
            np.equal(z, 1.0), np.logical_or(z, w))  # fmt: skip


def test_comparisons_and_truth_are_numpys() -> None:
    z = np.array(GRID)
    w = np.roll(z, 1)
    w[::3] = z[::3]
    want = (z == w, z != w, ~z.astype(bool), z.astype(bool), np.isnan(z), np.isinf(z),
            np.isfinite(z), z == 1, np.logical_or(z, w))  # fmt: skip
    for a, b in zip(compared(z, w), want, strict=True):
        np.testing.assert_array_equal(a, b)


@mixad.broadcast
def spelled(z, w):
    y = z or w
    items = (z, w, 1j)
    total = sum(items)
    return (y, total, items[int(z.real > 0)], np.where(z.imag > 0, z, 2.0), -z, +z, (z * w).real,
            np.add(z, w) * np.square(w) - np.reciprocal(z), w if z.real > 0 else 1)  # fmt: skip


def test_spellings() -> None:
    right = Z.real > 0
    want = (Z, Z + W + 1j, np.where(right, W, Z), np.where(Z.imag > 0, Z, 2.0), -Z, Z, (Z * W).real,
            (Z + W) * W**2 - 1 / Z, np.where(right, W, 1))  # fmt: skip
    for a, b in zip(spelled(Z, W), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


# -- types -----------------------------------------------------------------------------------------

OTHERS = "bool int8 int32 int64 uint16 float16 float32 float64 complex64 complex128".split()


@pytest.mark.rows("other", OTHERS)
@pytest.mark.rows("dtype", ["complex64", "complex128"])
def test_types_of_results_are_numpys(dtype: str, other: str) -> None:
    a, b = np.ones(2, dtype), np.ones(2, other)
    for x, y in ((a, b), (b, a)):
        assert kernels.mul(x, y).dtype == (x * y).dtype


@pytest.mark.rows("other", OTHERS)
def test_complex_numbers_of_python_adapt(other: str) -> None:
    x = np.ones(2, other)
    assert kernels.mul(x, 1j).dtype == (x * 1j).dtype


def test_numbers_give_numbers() -> None:
    assert kernels.mul(2j, 3.0) == 6j
    assert type(kernels.mul(2j, 3.0)) is complex
    assert type(kernels.mul(2.0, 3.0)) is float
    assert type(kernels.mul(np.complex64(2j), 3.0)) is np.complex64
    assert type(kernels.exp(2j)) is np.complex128  # as np.exp of a Python number


FACTOR: Any = 2.0 + 1.0j
TABLE = drawn(5)
CONSTANTS = (1.0 + 1.0j, 2.0)


@mixad.broadcast
def captured(z, i):
    return z * FACTOR + TABLE[i] * CONSTANTS[0]


def test_captured_numbers_and_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    i = np.arange(40) % 5
    np.testing.assert_allclose(captured(Z, i), Z * FACTOR + TABLE[i] * (1 + 1j), rtol=1e-14)
    monkeypatch.setitem(globals(), "FACTOR", np.complex64(3.0))
    np.testing.assert_allclose(captured(Z, i), Z * 3 + TABLE[i] * (1 + 1j), rtol=1e-14)


def test_gradients_reach_captured_arrays() -> None:
    def loss(w: Any) -> Any:
        return mixad.broadcast(lambda z: abs(w * z) ** 2)(Z).sum()

    np.testing.assert_allclose(mixad.grad(loss)(W), 2 * W * abs(Z) ** 2, rtol=1e-13)


# -- derivatives -----------------------------------------------------------------------------------


def difference(loss: Any, z: Any, step: float = 1e-6) -> Any:
    """Return ∂x + i∂y of a loss by central differences, element by element."""
    found = np.zeros(z.shape, complex)
    for at in np.ndindex(z.shape):
        for unit in (1.0, 1j) if np.iscomplexobj(z) else (1.0,):
            there, back = z.copy(), z.copy()
            there[at] += step * unit
            back[at] -= step * unit
            found[at] += unit * (loss(there) - loss(back)) / (2 * step)
    return found if np.iscomplexobj(z) else found.real


def of_cell(z: Any) -> Any:
    y, _, size = kernels.cell(z, W[:12])
    return (abs(y) ** 2).sum() + (size * y.real).sum()


LOSSES: dict[str, tuple[Any, Any]] = {
    "branches": (of_cell, Z[:12]),
    "distance estimate": (lambda c: kernels.mandelbrot(c, 200)[1].sum(),
                          np.array([0.5 + 0.5j, -2.1 + 0.1j, 0.3 + 0.6j, 0.4 + 0.4j])),
    "newton": (lambda a: (kernels.newton_fractal(Z[:4], a) * (1 + 2j)).real.sum(),
               np.array([1.0 + 0.3j])),
    "gain": (lambda omega: kernels.gain(omega, 0.3, 1.5).sum(), np.linspace(0.2, 3.0, 7)),
    "airy": (lambda y: abs(kernels.airy_step(y, W[:5], 0.2j, 0.1 + 0.1j)[0]).sum(), Z[:5]),
    "powers": (lambda z: abs(kernels.power(z, W[:6])).sum(), Z[:6]),
    "exponents": (lambda w: kernels.power(Z[:6], w).real.sum(), W[:6]),
    "real exponents": (lambda p: kernels.power(Z[:6], p).real.sum(), X[:6]),
    "quotients": (lambda z: (kernels.div(W[:6], z) * kernels.div(z, X[:6])).imag.sum() +
                  kernels.div(X[:6], z * z).real.sum(), Z[:6]),
}  # fmt: skip


@pytest.mark.rows("name", LOSSES, slow=["branches", "powers", "real exponents"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_gradients_are_those_of_differences(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, z = LOSSES[name]
    for kernel in ("cell", "mandelbrot", "newton_fractal", "gain", "airy_step", "power", "div"):
        chosen = getattr(kernels, kernel).with_options(backend=backend)
        monkeypatch.setattr(kernels, kernel, chosen)
    gradient = mixad.grad(loss)(z)
    assert gradient.dtype == z.dtype
    np.testing.assert_allclose(gradient, difference(loss, z), rtol=2e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives_are_those_of_differences(name: str) -> None:
    loss, z = LOSSES[name]
    along = drawn(*z.shape) if np.iscomplexobj(z) else RNG.standard_normal(z.shape)
    gradient = mixad.grad(loss)
    step = 1e-5
    near, far = (gradient(z + t * along) - gradient(z - t * along) for t in (step, 2 * step))
    want = (8 * near - far) / (12 * step)
    size = abs(want).max()
    np.testing.assert_allclose(mixad.hvp(loss, (z,), (along,)), want, rtol=1e-5, atol=1e-6 * size)
    slope = mixad.jvp(loss, (z,), (along,))[1]
    np.testing.assert_allclose(slope, (gradient(z).conj() * along).real.sum(), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "placement"),
    [("forward", "forward"), ("forward", "reverse"), ("reverse", "reverse")],
)
def test_strategies_and_placements_agree(strategy: str, placement: str) -> None:
    kernel = kernels.cell.with_options(strategy=strategy, placement=placement)

    def loss(z: Any, w: Any, k: Any) -> Any:
        y, _, size = k(z, w)
        return (abs(y) * size).sum()

    got = mixad.grad(lambda z, w: loss(z, w, kernel), argnums=(0, 1))(Z, W)
    want = mixad.grad(lambda z, w: loss(z, w, kernels.cell), argnums=(0, 1))(Z, W)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.slow
def test_holomorphic_derivatives_are_those_of_functions_of_arrays() -> None:
    @mixad.broadcast
    def kernel(z, w):
        return cmath.exp(z * w) / cmath.sqrt(z) + cmath.tanh(w) ** 2

    def arrays(z: Any, w: Any) -> Any:
        return np.exp(z * w) / np.sqrt(z) + np.tanh(w) ** 2

    tangents, cotangent = (drawn(40), drawn(40)), drawn(40)
    for got, want in zip(mixad.jvp(kernel, (Z, W), tangents),
                         mixad.jvp(arrays, (Z, W), tangents), strict=True):  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-12)
    pulled = mixad.vjp(kernel, Z, W)[1](cotangent), mixad.vjp(arrays, Z, W)[1](cotangent)
    for got, want in zip(*pulled, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_gradient_of_a_broadcast_complex_number_is_summed() -> None:
    def loss(z: Any, w: Any) -> Any:
        return abs(kernels.mul(z[:, None], w)).sum()

    gz, gw = mixad.grad(loss, argnums=(0, 1))(Z[:3], W[:4])
    np.testing.assert_allclose(gz, Z[:3] / abs(Z[:3]) * abs(W[:4]).sum(), rtol=1e-13)
    np.testing.assert_allclose(gw, W[:4] / abs(W[:4]) * abs(Z[:3]).sum(), rtol=1e-13)


def test_gradient_with_respect_to_a_python_number_is_one() -> None:
    gradient = mixad.grad(lambda z: kernels.mul(z, W).real.sum())(1 + 2j)
    assert isinstance(gradient, complex)
    np.testing.assert_allclose(gradient, W.sum().conj(), rtol=1e-13)


def test_a_real_argument_has_a_real_gradient() -> None:
    gradient = mixad.grad(lambda x: kernels.mul(x, W).imag.sum())(X)
    assert gradient.dtype == "float64"
    np.testing.assert_allclose(gradient, W.imag, rtol=1e-14)


def test_infinite_cotangents_stay_in_their_part() -> None:
    """A sum re + 1j * im would make nan of them."""
    _, pullback = mixad.vjp(lambda z: kernels.add(z, 1.0), np.array([2.0 + 1j]))
    (pulled,) = pullback(np.array([complex(1.0, math.inf)]))
    assert_same_bits(pulled, [complex(1.0, math.inf)])


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="no JAX here")
@pytest.mark.parametrize("name", ["cell", "gain", "airy"])
def test_gradients_are_conjugates_of_jaxs(name: str) -> None:
    import jax
    import jax.numpy as jnp

    def cell(z: Any, w: Any) -> Any:
        y = jnp.where(z.real > w.real, jnp.exp(z) / w, abs(w))
        return y * z.conj(), abs(z) + jnp.exp(w.imag)

    def gain(omega: Any) -> Any:
        s = 1j * omega
        return abs(1 / (s * s + 0.3 * s + 1.5)) ** 2

    def airy(y: Any) -> Any:
        return abs(kernels.airy_step.__wrapped__(y, W[:5], 0.2j, 0.1 + 0.1j)[0]).sum()

    def of_cell_in_jax(z: Any) -> Any:
        y, size = cell(z, W[:12])
        return (abs(y) ** 2).sum() + (size * y.real).sum()

    losses = {"cell": of_cell_in_jax, "gain": lambda o: gain(o).sum(), "airy": airy}
    ours = {"cell": "branches"}.get(name, name)
    loss, z = LOSSES[ours]
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        want = np.conj(np.asarray(jax.grad(losses[name])(jnp.asarray(z))))
    np.testing.assert_allclose(mixad.grad(loss)(z), want, rtol=1e-11)


# -- libraries -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["array_api_strict", "torch", "dask"])
def test_library_and_dtype_are_those_of_the_arguments(name: str) -> None:
    library = pytest.importorskip("dask.array" if name == "dask" else name)
    zeros = np.array([complex(-0.0, math.inf), complex(math.inf, -0.0), 1 + 2j])
    for dtype in ("complex64", "complex128"):
        given = zeros.astype(dtype)
        z = library.from_numpy(given) if name == "torch" else library.asarray(given)
        w = z + 0
        got = kernels.add(z, w)
        assert type(got) is type(z)
        assert got.dtype == z.dtype
        with np.errstate(all="ignore"):
            assert_same_bits(as_numpy(name, got), given + as_numpy(name, w))


def as_numpy(name: str, x: Any) -> Any:
    if name == "array_api_strict":
        return np.from_dlpack(x)
    return np.asarray(x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["array_api_strict", "torch"])
def test_gradients_over_other_libraries_are_numpys(name: str) -> None:
    library = pytest.importorskip(name)
    xp = mixad.namespace_of(library)

    def loss(z: Any, w: Any, xp: Any) -> Any:
        y, _, size = kernels.cell(z, w)
        return xp.sum(xp.abs(y) * size)

    place = library.from_numpy if name == "torch" else library.asarray
    got = mixad.grad(lambda z: loss(z, place(W), xp))(place(Z))
    want = mixad.grad(lambda z: loss(z, W, mixad.namespace_of(np)))(Z)
    np.testing.assert_allclose(as_numpy(name, got), want, rtol=1e-12)


@pytest.mark.torch
def test_gradients_are_those_of_torchs_autograd() -> None:
    torch = pytest.importorskip("torch")
    z, w = torch.from_numpy(Z[:12]).requires_grad_(), torch.from_numpy(W[:12])
    y = torch.where(z.real > w.real, torch.exp(z) / w, w.abs().to(z.dtype)) * z.conj()
    ((y.abs() ** 2).sum() + ((z.abs() + w.imag.exp()) * y.real).sum()).backward()
    np.testing.assert_allclose(mixad.grad(of_cell)(Z[:12]), z.grad.numpy(), rtol=1e-12)


@pytest.mark.torch
def test_conjugated_tensors_are_read_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    z, w = torch.from_numpy(Z), torch.from_numpy(W)
    np.testing.assert_allclose(kernels.mul(z.conj(), w.conj()).numpy(), (Z * W).conj(), rtol=1e-15)


@pytest.mark.parametrize(
    "view", [lambda z: z[::-1], lambda z: z.reshape(5, 8).T, lambda z: z[::3], lambda z: z[:0]],
    ids=["reversed", "transposed", "strided", "empty"],
)  # fmt: skip
def test_views_are_read_as_they_are(view: Any) -> None:
    np.testing.assert_allclose(kernels.mul(view(Z), view(W)), view(Z) * view(W), rtol=1e-15)


def test_parts_of_an_array_are_not_copied() -> None:
    from mixad.tape.complex_parts import split_complex

    assert all(np.shares_memory(part, Z) for part in split_complex(Z))


def test_an_array_changed_before_the_pullback_is_noticed() -> None:
    w = W.copy()
    _, pullback = mixad.vjp(lambda z: kernels.mul(z, w), Z)

    def changed_and_pulled_back() -> Any:
        w[...] += 1
        return pullback(np.ones(40, complex))

    with pytest.raises((TracerError, ValueError)):
        changed_and_pulled_back()


class Pole(NamedTuple):
    """A pole of a rational function, and its residue."""

    at: Any
    residue: Any


def test_structures_and_lists_hold_complex_numbers() -> None:
    @mixad.broadcast
    def response(s, pole):
        total = [0j, 0j]
        total[0] += pole.residue / (s - pole.at)
        total[1] = pole.residue.conjugate() / (s - pole.at.conjugate())
        return Pole(sum(total), abs(total[0]))

    s, pole = 1j * X, Pole(Z, W)
    got = response(s, pole)
    terms = W / (s - Z), W.conj() / (s - Z.conj())
    np.testing.assert_allclose(got.at, sum(terms), rtol=1e-12)
    np.testing.assert_allclose(got.residue, abs(terms[0]), rtol=1e-12)
    gradient = mixad.grad(lambda pole: response(s, pole).residue.sum())(pole)
    want = terms[0] / abs(terms[0]) * (1 / (s - Z)).conj()
    np.testing.assert_allclose(gradient.residue, want, rtol=1e-12)


def test_complex_vectors_go_through_a_signature() -> None:
    @mixad.broadcast(signature="(2),(2)->(2)")
    def turned(a, b):
        return a[0] * b[0], a[1] + 1j * b[1]

    a, b = drawn(4, 2), RNG.standard_normal((4, 2))
    want = np.stack([a[:, 0] * b[:, 0], a[:, 1] + 1j * b[:, 1]], -1)
    np.testing.assert_allclose(turned(a, b), want, rtol=1e-14)
    gradient = mixad.grad(lambda a: abs(turned(a, b)).sum())(a)
    want = np.stack([np.sign(want[:, 0]) * b[:, 0], np.sign(want[:, 1])], -1)
    np.testing.assert_allclose(gradient, want, rtol=1e-13)


# -- what is said of them --------------------------------------------------------------------------


def test_nothing_here_has_a_kink() -> None:
    near = np.array([1 + 1j, 1 - 1j, 2j, 0.5 + 0j, -1.0 + 0j])
    for kernel in kernels.FUNCTIONS.values():
        assert not kernel.kinks(near)
    assert not kernels.div.kinks(near, near)


def test_wrt_names_both_parts() -> None:
    text = kernels.mul.source(Z, X, stage="pullback", wrt="a")
    assert "gradient of a.real, gradient of a.imag" in text
    assert kernels.mul.explain(Z, W).chunks == (4,)


def test_duals_of_real_parameters_and_results_are_there() -> None:
    @mixad.broadcast
    def size(z, x):
        return abs(z * x)

    duals = size.duals(Z, X, wrt="x")
    np.testing.assert_allclose(duals.partials["x"], abs(Z) * np.sign(X), rtol=1e-13)
    partials = size.duals(Z, 1.0, wrt=("z.real", "z.imag")).partials
    np.testing.assert_allclose(partials["z.imag"], Z.imag / abs(Z), rtol=1e-13)
    with pytest.raises(KernelGradientError, match="with respect to 'z', which is complex"):
        size.duals(Z, X)


def test_other_precisions_are_refused() -> None:
    with pytest.raises(KernelTypeError, match="kernels do not compute in dtype"):
        kernels.mul(Z.astype("clongdouble"), 1.0)
