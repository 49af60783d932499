"""Complex arrays: elementwise functions, sums, what moves elements, and what is refused."""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_strict
import mpmath
import numpy as np
import pytest
from complex_derivatives import check_complex, check_values, complex_against_jax
from derivatives import HAS_JAX
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import KernelTypeError, TracerError

EXAMPLES_OF_OPERATORS = 60
EXAMPLES_OF_SUMS = 40

HAS_TORCH = importlib.util.find_spec("torch") is not None

RNG = np.random.default_rng(5)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


Z = drawn(2, 3)
W = drawn(3)
X = RNG.normal(size=(2, 3))
POSITIVE = np.abs(RNG.normal(size=3)) + 0.5

UNARY = (
    "abs acos acosh asin asinh atan atanh conj cos cosh exp expm1 imag log log10 log1p log2 "
    "negative positive real reciprocal sign sin sinh sqrt square tan tanh"
).split()
CASES: dict[str, tuple[Any, ...]] = {
    **{n: (lambda xp, z, n=n: getattr(xp, n)(z), Z) for n in UNARY},
    "round": (lambda xp, z: xp.round(z) * z, Z),
    "add": (lambda xp, z, w: xp.add(z, w) * z, Z, W),
    "subtract": (lambda xp, z, w: xp.subtract(z, w) * w, Z, W),
    "multiply": (lambda xp, z, w: z * w, Z, W),
    "divide": (lambda xp, z, w: z / w, Z, W),
    "pow": (lambda xp, z, w: z**w, Z, W),
    "powers of numbers": (lambda xp, z: [z**2, z**3, z**-1, z**0.5, z ** (1 + 2j)], Z),
    "numbers to powers": (lambda xp, z: [2.0**z, (1 + 2j) ** z], Z),
    "numbers": (lambda xp, z: [2 * z - 1j, 1j / z, z / (1 + 2j), 1 - z], Z),
    "real and complex": (lambda xp, x, z: [x * z, x - z, z / x, z + x, x / z], X, W),
    "real to complex powers": (lambda xp, x, z: [x**z, z**x], POSITIVE, W),
    "a real array and complex numbers": (lambda xp, x: [x * 1j, 1j - x, x / 2j], X),
    "equal": (lambda xp, z: xp.where(z == z, z * z, 2.0), Z),
    "where": (lambda xp, z, w: xp.where(xp.real(z) > 0, z * z, w), Z, W),
    "where of real ones": (lambda xp, z, x: xp.where(xp.real(z) > 0, z * z, x), Z, X),
    "where of numbers": (lambda xp, z: [xp.where(xp.imag(z) > 0, z, 1j),
                                        xp.where(xp.imag(z) > 0, 2.0, z)], Z),
    "astype": (lambda xp, x, z: [xp.astype(x * x, xp.complex128) * z,
                                 xp.astype(xp.astype(z, xp.complex128), xp.complex128) ** 2],
               X, Z),
    "sum": (lambda xp, z: [xp.sum(z) ** 2, xp.sum(z, axis=0) ** 2,
                           xp.sum(z, axis=-1, keepdims=True) * z], Z),
    "sum of real ones": (lambda xp, x: xp.sum(x * x, axis=0, dtype=xp.complex128) * 1j, X),
    "mean": (lambda xp, z: [xp.mean(z) ** 2, xp.mean(z, axis=1) ** 3], Z),
    "prod": (lambda xp, z: [xp.prod(z), xp.prod(z, axis=0), xp.prod(z, axis=1, keepdims=True)], Z),
    "cumulative_sum": (lambda xp, z: xp.cumulative_sum(z, axis=1) ** 2, Z),
    "cumulative_prod": (lambda xp, z: xp.cumulative_prod(z, axis=1, include_initial=True), Z),
    "diff": (lambda xp, z: xp.diff(z, axis=1) ** 2, Z),
    "views": (lambda xp, z: [xp.reshape(z, (3, 2)) ** 2, z.T**2, xp.flip(z, axis=0) * z,
                             xp.broadcast_to(z[0, :], (2, 3)) * z], Z),
    "joining": (lambda xp, z, w: [xp.concat([z, xp.reshape(w, (1, 3))]) ** 2,
                                  xp.stack([w, w * w], axis=1) ** 2,
                                  xp.repeat(z, 2, axis=0) ** 2, xp.tile(w, 2) ** 2], Z, W),
    "joining real and complex": (
        lambda xp, x, z: xp.concat([x, z]) ** 2 * xp.concat([z, x]), X, Z),
    "indexing": (lambda xp, z: [z[0, ...] ** 2, z[:, 1:] ** 2, z[..., 0] * z[..., 0],
                                xp.take(z, xp.asarray([0, 2, 0]), axis=1) ** 2], Z),
    "triangles": (lambda xp, z: [xp.tril(z) ** 2, xp.triu(z, k=1) ** 2], Z),
    "roll": (lambda xp, z: xp.roll(z, 1, axis=1) * z, Z),
    "unstack": (lambda xp, z: [part * part for part in xp.unstack(z)], Z),
    "full": (lambda xp, z: xp.full((2,), xp.sum(z)) ** 2, Z),
    "meshgrid": (lambda xp, z, w: [a * b for a, b in [xp.meshgrid(z, w)]], W, W * 2),
}  # fmt: skip


@pytest.mark.rows("name", CASES)
def test_derivatives_agree_with_differences(name: str) -> None:
    check_complex(*CASES[name], tolerance=1e-5)


NOT_AS_JAX = {"acosh", "sign"}
"""JAX takes the other branch of acosh's derivative, and the sign of complex numbers as constant."""


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.rows("name", sorted(CASES.keys() - NOT_AS_JAX))
def test_derivatives_agree_with_those_of_jax(name: str) -> None:
    complex_against_jax(*CASES[name], tolerance=1e-8)


NOT_STRICT: dict[str, tuple[Any, ...]] = {
    "var": (lambda z: [np.var(z), np.var(z, axis=0, ddof=1), np.std(z, axis=1)], Z),
    "exp2": (np.exp2, Z),
    "angle": (lambda z: [np.angle(z), np.angle(z, deg=True)], Z),
    "attributes": (lambda z: [z.real * z.imag, z.conj() * z, np.conjugate(z.T), z.conjugate()], Z),
    "a mask": (lambda z: z[np.asarray([True, False])] ** 2, Z),
    "arrays of indices": (lambda z: z[np.asarray([0, 1, 1]), np.asarray([2, 0, 0])] ** 2, Z),
    "sort": (lambda z: np.sort(z, axis=1) ** 2 * W, Z),
    "lists": (lambda z: z * z * [1.0, 2j, 3.0], Z),
    "NumPy's numbers": (lambda z: [z * z * np.complex128(1j), np.float64(2.0) / z], Z),
}


@pytest.mark.rows("name", NOT_STRICT, slow="angle var")
def test_what_numpy_has_beyond_the_standard(name: str) -> None:
    f, z = NOT_STRICT[name]
    mixad.check_grads(lambda z: _as_tuple(f(z)), (z,), order=2, rtol=1e-5)
    for got, want in zip(mixad.vjp(lambda z: _as_tuple(f(z)), z)[0], _as_tuple(f(z)), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-13)


def _as_tuple(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, list) else (found,)


SHAPES = st.sampled_from(["", "1", "3", "0", "13", "23", "21", "203", "221", "123"])


@pytest.mark.slow
@settings(max_examples=EXAMPLES_OF_OPERATORS)
@given(SHAPES, SHAPES, st.sampled_from("+-*/"), st.booleans(), st.integers(0, 99))
def test_operators_broadcast(one: str, other: str, symbol: str, is_real: bool, seed: int) -> None:
    shapes = [tuple(map(int, s)) for s in (one, other)]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return
    rng = np.random.default_rng(seed)
    x, z = (rng.normal(size=s) + 1j * rng.normal(size=s) for s in shapes)
    f = {"+": lambda x, z: x + z, "-": lambda x, z: x - z, "*": lambda x, z: x * z,
         "/": lambda x, z: z / x}[symbol]  # fmt: skip
    check_complex(lambda xp, x, z: f(x, z) * z, x.real if is_real else x, z, tolerance=1e-4)


@pytest.mark.slow
@settings(max_examples=EXAMPLES_OF_SUMS)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.data())
def test_sums_and_products_over_any_axes(shape: list[int], data: Any) -> None:
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True).map(tuple))
    keep = data.draw(st.booleans())
    rng = np.random.default_rng(len(shape))
    z = rng.normal(size=shape) + 1j * rng.normal(size=shape)

    def f(xp: Any, z: Any) -> Any:
        total = xp.sum(z * z, axis=axes, keepdims=keep)
        return [total, xp.prod(z, axis=axes[0] if axes else 0, keepdims=keep), xp.sum(z) * total]

    check_complex(f, z, tolerance=1e-4, second=False)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_gradients_have_the_dtype_of_their_input(dtype: str) -> None:
    narrow, z = Z.astype(dtype).real.copy(), Z.astype(dtype)

    def loss(x: Any, z: Any) -> Any:
        for part in (x * z, x * 1j, 2.5 * z, np.float64(1) * z, abs(z), z.real, np.exp(z) ** 2):
            assert part.dtype == (np.ones_like(part) * 1).dtype
        assert (x * z).dtype == (z * 1j).dtype == (x * 1j).dtype == z.dtype
        assert abs(z).dtype == z.real.dtype == x.dtype
        return (x * z * 1j).real.sum()

    gx, gz = mixad.grad(loss, (0, 1))(narrow, z)
    assert (gx.dtype, gz.dtype) == (narrow.dtype, z.dtype)
    np.testing.assert_allclose(gx, (z * 1j).real, rtol=1e-6)
    np.testing.assert_allclose(gz, narrow * -1j, rtol=1e-6)


def test_the_gradient_is_what_the_real_and_imaginary_parts_have() -> None:
    """∂x + i∂y, which gradient descent subtracts: |z|² has the gradient 2z."""
    found = mixad.grad(lambda z: (abs(z) ** 2).sum())(Z)
    np.testing.assert_allclose(found, 2 * Z, rtol=1e-14)
    gx, gy = mixad.grad(lambda x, y: abs((x + 1j * y) ** 3).sum(), (0, 1))(Z.real, Z.imag)
    gz = mixad.grad(lambda z: abs(z**3).sum())(Z)
    np.testing.assert_allclose(gz, gx + 1j * gy, rtol=1e-13)


def test_python_numbers_may_be_complex() -> None:
    assert mixad.grad(lambda z: abs(z) ** 2)(1 + 2j) == 2 + 4j
    assert mixad.value_and_grad(lambda t: (t * (1 + 2j)).imag)(3.0) == (6.0, 2.0)
    value, tangent = mixad.jvp(lambda z: z * z, (1j,), (1.0,))
    assert (value, tangent) == (-1, 2j)
    assert isinstance(tangent, complex)
    narrow = Z.astype("c8")
    assert mixad.vjp(lambda t: (t * 1j) * narrow, 2.0)[0].dtype == narrow.dtype
    assert mixad.vjp(lambda t: t * narrow, 2j)[0].dtype == narrow.dtype


def test_magnitudes_and_signs_at_zero_have_derivative_zero() -> None:
    zero = np.zeros(2, complex)
    for f in (abs, np.sign):
        gradient = mixad.grad(lambda z, f=f: (f(z) * (1 + 1j)).real.sum())(zero)
        np.testing.assert_array_equal(gradient, zero)


FAR = np.linspace(-330, 330, 23)
SECANTS = {
    "tanh": (FAR[:, None] + 1j * np.array([-2.0, 0.0, 0.3, 1.5707963])).ravel(),
    "tan": (1j * FAR[:, None] + np.array([-2.0, 0.0, 0.3, 1.5707963])).ravel(),
    "arctan": 10.0 ** FAR[(FAR > -300) & (FAR < 300)] * np.exp(0.4j),
    "arctanh": 10.0 ** FAR[(FAR > -300) & (FAR < 300)] * np.exp(0.4j),
}
SLOPES = {
    "tanh": lambda z: 1 / mpmath.cosh(z) ** 2, "tan": lambda z: 1 / mpmath.cos(z) ** 2,
    "arctan": lambda z: 1 / (1 + z * z), "arctanh": lambda z: 1 / (1 - z * z),
}  # fmt: skip
CURVATURES = {
    "tanh": lambda z: -2 * mpmath.tanh(z) / mpmath.cosh(z) ** 2,
    "tan": lambda z: 2 * mpmath.tan(z) / mpmath.cos(z) ** 2,
}


@pytest.mark.rows("name", SECANTS)
@pytest.mark.rows("dtype", ["complex64", "complex128"])
def test_derivatives_keep_their_digits_where_they_are_small(name: str, dtype: str) -> None:
    z = SECANTS[name]
    z = z[abs(z) < 0.1 * np.finfo(dtype).max].astype(dtype)
    f, ones = getattr(np, name), np.ones_like(z)
    tangent = mixad.jvp(f, (z,), (ones,))[1]
    assert_is_exact(tangent, SLOPES[name], z)
    assert_is_exact(np.conj(mixad.vjp(f, z)[1](ones)[0]), SLOPES[name], z)
    if name in CURVATURES:
        slope = lambda z: mixad.jvp(f, (z,), (np.ones_like(z),))[1]  # noqa: E731
        assert_is_exact(mixad.jvp(slope, (z,), (ones,))[1], CURVATURES[name], z)


def assert_is_exact(found: Any, function: Any, z: Any) -> None:
    limits = np.finfo(z.dtype)
    with mpmath.workdps(40):
        for x, got in zip(z, found, strict=True):
            exact = function(mpmath.mpc(float(x.real), float(x.imag)))
            error = abs(mpmath.mpc(complex(got)) - exact)
            most = 30 * float(limits.eps) * abs(exact) + 4 * float(limits.smallest_subnormal)
            assert error <= most, (x, got, exact)


def test_a_cotangent_of_zero_gives_zero() -> None:
    for f in (np.sqrt, np.log, lambda z: 1 / z, np.reciprocal, lambda z: z**0.5):
        gradient = mixad.grad(lambda z, f=f: (f(z) * np.asarray([0.0, 1.0])).real[1:].sum())(
            np.asarray([0.0, 1.0 + 1j])
        )
        assert gradient[0] == 0
        assert abs(gradient[1]) > 0


def test_powers_at_zero() -> None:
    zero = np.zeros(1, complex)
    for power, slope in ((0, 0), (1, 1), (2, 0), (3, 0), (0j, 0)):
        found = mixad.grad(lambda z, p=power: (z**p).real.sum() + 0.0 * z.real.sum())(zero)
        np.testing.assert_array_equal(found, [slope])
    gradient = mixad.grad(lambda w: (zero**w).real.sum())(np.asarray([1 + 1j]))
    np.testing.assert_array_equal(gradient, [0])


def test_elements_can_be_written() -> None:
    def loss(z: Any, x: Any) -> Any:
        out = z * z
        out[0] = x[0] * out[1]
        out[1, 1:] = 2j
        out[:, 0] += z[:, 1]
        out *= z
        return abs(out).sum()

    check = lambda z, x: mixad.check_grads(loss, (z, x), rtol=1e-5)  # noqa: E731
    check(Z, X)
    check(Z, drawn(2, 3))
    assert mixad.value_and_grad(loss)(Z, X)[0] == pytest.approx(loss(Z, X))


def test_a_view_of_the_real_part_does_not_follow_writes() -> None:
    def loss(z: Any) -> Any:
        w = z * 1
        part = w.real
        part[0] = 0.0
        return abs(w).sum()

    with pytest.raises(TracerError, match="shares memory"):
        mixad.grad(loss)(Z)


@pytest.mark.rows(
    ("f", "match"),
    [
        (lambda z: z.astype(float), r"astype\(float64\).*imaginary part"),
        (lambda z: z.astype(int), r"astype\(int64\).*imaginary part"),
        (lambda z: np.maximum(z, 1.0), "maximum of complex numbers"),
        (lambda z: np.max(z), "max of complex numbers"),
        (lambda z: np.floor(z), "floor of complex numbers"),
        (lambda z: z // 2, "floordiv of complex numbers"),
        (lambda z: z % 2, "mod of complex numbers"),
        (lambda z: np.clip(z, 0, 1), "maximum of complex numbers"),
        (lambda z: np.hypot(z, 1.0), "hypot of complex numbers"),
        (lambda z: mixad.namespace_of(np).special.sinc(z), "sinc of complex numbers"),
        (lambda z: mixad.grad(lambda x: (x * z).sum())(X), "returned a complex number.*abs"),
    ],
)
def test_what_complex_numbers_do_not_have_is_refused(f: Any, match: str) -> None:
    with pytest.raises((KernelTypeError, TracerError), match=match):
        mixad.grad(lambda z: abs(f(z)).sum())(Z)


def test_a_real_array_does_not_take_complex_numbers() -> None:
    def write(x: Any) -> Any:
        x = x * 1
        x[0] = x[1] * 1j
        return x.sum()

    def add(x: Any) -> Any:
        x = x * 1
        x += x * 1j
        return x.sum()

    for f in (write, add):
        with pytest.raises(TypeError):
            mixad.grad(f)(X)


def test_a_complex_loss_has_no_gradient() -> None:
    for transform in (mixad.grad, mixad.value_and_grad):
        with pytest.raises(TracerError, match=r"returned a complex number.*\.real.*mixad\.vjp"):
            transform(lambda z: z.sum())(Z)
        with pytest.raises(TracerError, match="returned a complex number"):
            transform(lambda x: x.sum() * 1j)(X)


def test_jacobians_of_complex_functions_are_refused() -> None:
    for transform in (mixad.jacobian, mixad.jacfwd, mixad.jacrev, mixad.hessian):
        with pytest.raises(TracerError, match=r"complex numbers.*real and imaginary parts"):
            transform(lambda z: abs(z).sum())(Z)
    with pytest.raises(TracerError, match="complex numbers"):
        mixad.jacrev(lambda x: x * 1j)(X)


def test_hessian_products_are_those_of_the_parts() -> None:
    def f(z: Any) -> Any:
        return (abs(z) ** 4).sum() + (z**3).real.sum()

    def of_parts(both: Any) -> Any:
        return f(both[0] + 1j * both[1])

    v = drawn(2, 3)
    both = mixad.hvp(of_parts, (np.stack([Z.real, Z.imag]),), (np.stack([v.real, v.imag]),))
    np.testing.assert_allclose(mixad.hvp(f, (Z,), (v,)), both[0] + 1j * both[1], rtol=1e-12)


def test_custom_rules_and_checkpoints_take_complex_numbers() -> None:
    @mixad.custom_vjp
    def square(z: Any) -> Any:
        return z * z

    square.defvjp(lambda z: (z * z, z), lambda z, g: (2 * g * np.conj(z),))
    for f in (square, mixad.checkpoint(lambda z: z * z)):
        mixad.check_grads(lambda z, f=f: np.sin(f(z)), (Z,), modes=("rev",), order=2, rtol=1e-5)


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_functions_and_methods_of_torch() -> None:
    import torch

    z = torch.asarray(Z)

    def loss(z: Any) -> Any:
        parts = torch.abs(torch.conj(z) * z.real) + torch.angle(z) * torch.imag(z)
        return (parts + (z.conj() * torch.exp(z)).imag).sum()

    mine = mixad.grad(loss)(z)
    theirs = z.clone().requires_grad_(True)
    loss(theirs).backward()
    np.testing.assert_allclose(mine.numpy(), theirs.grad.numpy(), rtol=1e-12)
    mine.numpy()  # no bits of conjugation are left


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_tensors_marked_as_conjugates_are_read_as_they_are() -> None:
    import torch

    z = torch.asarray(Z).conj()
    np.testing.assert_allclose(mixad.grad(lambda z: (abs(z) ** 2).sum())(z).numpy(), 2 * Z.conj())
    x = z.imag
    np.testing.assert_allclose(mixad.grad(lambda x: (x * x * z).imag.sum())(x).numpy(),
                               2 * Z.conj().imag ** 2, rtol=1e-13)  # fmt: skip


def test_arrays_of_the_standard_refuse_what_it_does_not_mix() -> None:
    x, z = array_api_strict.arange(3), array_api_strict.asarray(W)
    with pytest.raises(TypeError):
        mixad.grad(lambda z: abs(x * z).sum())(z)


def test_what_makes_arrays_of_traced_numbers() -> None:
    xp = mixad.namespace_of(np)
    for f in (
        lambda z: xp.linspace(z[0], z[1], 5) ** 2,
        lambda z: xp.asarray([z[0], 1j, 2.0, abs(z[1])]) ** 2,
        lambda z: xp.full_like(xp.ones(2, dtype=z.dtype), z[2]) ** 2,
    ):
        mixad.check_grads(f, (W,), rtol=1e-5)
    mixad.check_grads(lambda x: xp.asarray([x[0], 1j]) ** 2, (W.real.copy(),), rtol=1e-5)


def test_equal_complex_elements_share_a_cotangent() -> None:
    xp, z = mixad.namespace_of(np), np.asarray([1 + 2j, 3j, 1 + 2j])
    gradient = mixad.grad(lambda z: (abs(xp.unique_values(z)) ** 2).sum())(z)
    np.testing.assert_allclose(gradient, z * [1, 2, 1])


def test_whole_numbers_beside_complex_ones() -> None:
    whole = np.arange(3)
    mixad.check_grads(lambda z: (whole * z * (whole > 0)) ** 2, (W,), rtol=1e-5)


def test_a_tape_and_texts_show_complex_numbers() -> None:
    shown = str(mixad.tape(lambda z: abs(z * z).sum())(W))
    assert "@1 c128[3] = multiply(@0)" in shown
    texts: list[str] = []
    mixad.grad(lambda z: (texts.append(f"{z:.1f}"), z.real)[1])(1 + 2j)
    assert texts == ["1.0+2.0j"]


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_arrays_of_jax() -> None:
    import jax
    import jax.numpy as jnp

    def loss(z: Any) -> Any:
        return (abs(np.exp(z) * z.imag) ** 2).sum()

    with jax.enable_x64(True):
        mine, theirs = mixad.grad(loss)(jnp.asarray(Z)), jax.grad(
            lambda z: (abs(jnp.exp(z) * z.imag) ** 2).sum()
        )(jnp.asarray(Z))  # fmt: skip
        assert isinstance(mine, jax.Array)
        np.testing.assert_allclose(mine, np.conj(theirs), rtol=1e-12)


def test_complex_arrays_without_elements() -> None:
    def f(xp: Any, z: Any) -> Any:
        return [z * z, xp.sum(z, axis=0), xp.prod(z), xp.concat([z, z]), abs(z)]

    check_values(f, np.zeros((0, 3), complex))
