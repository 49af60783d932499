"""What the tests of complex arrays share: derivatives against differences, JAX and libraries.

The gradient of a real loss is ∂x + i∂y; the inner product is that of real and imaginary parts.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
from derivatives import OTHERS, close, compiled_by_jax, difference, in_double, parts_of

import mixad


def check_complex(f: Any, *arrays: Any, tolerance: float = 1e-6, second: bool = True) -> None:
    """Check values and two derivatives of ``f(xp, *arrays)``, real and complex in 64 bits a part.

    Gradients and tangents are compared with central differences along directions with a real and
    an imaginary part, second derivatives in reverse mode and forward over reverse; values with
    NumPy's, gradients over NumPy with those over array-api-strict, torch and JAX.
    """
    arrays = tuple(map(np.asarray, arrays))
    check_values(f, *arrays)
    loss = functools.partial(weighted, f, mixad.namespace_of(np))
    places = tuple(range(len(arrays)))
    gradient = mixad.grad(loss, argnums=places)
    along = [direction(a, 1.0) for a in arrays]
    slope = product(gradient(*arrays), along)
    want = difference(functools.partial(weighted, f, np), arrays, along)
    assert close(slope, want, tolerance)
    assert close(mixad.jvp(loss, arrays, along)[1], slope, 1e-9)
    assert close(mixad.linearize(loss, *arrays)[1](*along), slope, 1e-9)
    check_outputs(f, arrays, along)
    if not second:
        return

    def steepness(*arrays: Any) -> Any:
        return sum((np.real(g) * np.real(v) + np.imag(g) * np.imag(v)).sum()
                   for g, v in zip(gradient(*arrays), along, strict=True))  # fmt: skip

    around = [direction(a, 2.0) for a in arrays]
    curvature = mixad.grad(
        lambda *a: steepness(*a) + 0.0 * sum(np.real(b).sum() for b in a), places
    )
    found = product(curvature(*arrays), around)
    assert close(found, difference(steepness, arrays, around), tolerance)
    assert close(mixad.jvp(steepness, arrays, around)[1], found, 1e-8)
    for library in OTHERS:
        with in_double(library):
            assert close(curvature_over(library, f, arrays, along, around), found, 1e-8)


def curvature_over(library: Any, f: Any, arrays: Any, along: Any, around: Any) -> float:
    """Return the second derivative along two directions that another library's arrays give."""
    given, along, around = ([library.asarray(a) for a in each] for each in (arrays, along, around))
    places, xp = tuple(range(len(given))), mixad.namespace_of(library)
    gradient = mixad.grad(functools.partial(weighted, f, xp), argnums=places)

    def steepness(*arrays: Any) -> Any:
        pairs = zip(gradient(*arrays), along, strict=True)
        return functools.reduce(operator.add, [of_parts(xp, g, v) for g, v in pairs])

    return float(mixad.jvp(steepness, given, around)[1])


def check_outputs(f: Any, arrays: Any, along: Any) -> None:
    """Compare the tangent of each value with what cotangents of it give: ⟨v, J ẋ⟩ = ⟨Jᵀ v, ẋ⟩."""

    def own(*arrays: Any) -> Any:
        return tuple(parts_of(f(mixad.namespace_of(np), *arrays)))

    _, tangents = mixad.jvp(own, arrays, along)
    _, pullback = mixad.vjp(own, *arrays)
    cotangents = tuple(direction(np.asarray(t), 3.0) for t in tangents)
    pulled = pullback(cotangents)
    for g, a in zip(pulled, arrays, strict=True):
        assert (g.shape, g.dtype) == (a.shape, a.dtype)
    assert close(product(tangents, cotangents), product(pulled, along), 1e-9)


def check_values(f: Any, *arrays: Any) -> None:
    """Compare values, shapes and dtypes with NumPy's, and gradients over several libraries."""
    want = parts_of(f(np, *arrays))
    xp, places = mixad.namespace_of(np), tuple(range(len(arrays)))
    seen = mixad.vjp(lambda *a: tuple(parts_of(f(xp, *a))), *arrays)[0]
    for w, s in zip(want, seen, strict=True):
        assert (np.shape(w), w.dtype) == (s.shape, s.dtype)
        np.testing.assert_allclose(s, w, rtol=1e-12, atol=1e-12)
    gradients = mixad.grad(functools.partial(weighted, f, xp), places)(*arrays)
    for g, a in zip(gradients, arrays, strict=True):
        assert (g.shape, g.dtype) == (a.shape, a.dtype)
    for library in OTHERS:
        with in_double(library):
            given = [library.asarray(a) for a in arrays]
            over = functools.partial(weighted, f, mixad.namespace_of(library))
            for g, other in zip(gradients, mixad.grad(over, places)(*given), strict=True):
                scale = max(1.0, float(np.max(np.abs(g), initial=0.0)))
                np.testing.assert_allclose(as_numpy(other), g, rtol=1e-9, atol=1e-10 * scale)


def complex_against_jax(f: Any, *arrays: Any, tolerance: float = 1e-9) -> None:
    """Compare value, gradients and a second derivative with JAX's, whose gradient is ∂x - i∂y."""
    import jax
    import jax.numpy as jnp

    arrays = tuple(map(np.asarray, arrays))
    places = tuple(range(len(arrays)))
    along = [direction(a, 1.0) for a in arrays]

    def conjugate(*args: Any) -> Any:
        return lambda *arrays: tuple(jnp.conj(g) for g in jax.grad(*args)(*arrays))

    def steepness(grad: Any, xp: Any, *arrays: Any) -> Any:
        gradients = grad(functools.partial(weighted, f, xp), places)(*arrays)
        found = sum(of_parts(xp, g, xp.asarray(v)) for g, v in zip(gradients, along, strict=True))
        return found + 0.0 * sum(xp.sum(xp.real(a)) for a in arrays)

    with jax.enable_x64(True):
        given = [jnp.asarray(a) for a in arrays]
        theirs = functools.partial(weighted, f, jnp)
        curved = functools.partial(steepness, conjugate, jnp)
        want = compiled_by_jax(
            lambda *arrays: [
                theirs(*arrays), *conjugate(theirs, places)(*arrays),
                *conjugate(curved, places)(*arrays),
            ], given,
        )  # fmt: skip
    xp = mixad.namespace_of(np)
    value, gradients = mixad.value_and_grad(functools.partial(weighted, f, xp), places)(*arrays)
    found2 = mixad.grad(functools.partial(steepness, mixad.grad, xp), places)(*arrays)
    for got, each in zip((value, *gradients, *found2), want, strict=True):
        scale = max(1.0, float(np.max(np.abs(each), initial=0.0)))
        np.testing.assert_allclose(got, each, rtol=tolerance, atol=tolerance * scale)


def weighted(f: Any, xp: Any, *arrays: Any) -> Any:
    """Return the sum of the parts of all that ``f`` returns, each with a weight of its own."""
    total = 0.0 * sum(xp.sum(xp.real(a)) for a in arrays)
    for number, part in enumerate(parts_of(f(xp, *arrays))):
        weights = xp.asarray(direction(np.zeros(part.shape, _dtype(part)), 4.0 + number))
        total = total + of_parts(xp, part, weights)
    return total


def _dtype(part: Any) -> str:
    return "c16" if "complex" in str(part.dtype) else "f8"


def of_parts(xp: Any, x: Any, y: Any) -> Any:
    """Return the inner product of two arrays, complex or real."""
    if "complex" not in str(x.dtype):
        return xp.sum(x * y)
    return xp.sum(xp.real(x) * xp.real(y) + xp.imag(x) * xp.imag(y))


def product(one: Any, other: Any) -> Any:
    return sum(float(np.vdot(x, y).real) for x, y in zip(one, other, strict=True))


def direction(like: Any, phase: float) -> Any:
    """Return numbers of the shape and kind of an array; complex ones have both parts."""
    numbers = np.arange(like.size).reshape(like.shape)
    if like.dtype.kind != "c":
        return np.cos(phase + numbers)
    return np.cos(phase + numbers) + 1j * np.sin(2 * phase + 3 * numbers)


def as_numpy(array: Any) -> Any:
    return (
        np.asarray(array.resolve_conj())
        if hasattr(array, "resolve_conj")
        else np.from_dlpack(array)
    )
