"""What the tests of array functions share: derivatives checked against others' and differences."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import math
import operator
from collections.abc import Sequence
from typing import Any

import array_api_strict
import numpy as np

import mixad

HAS_JAX = importlib.util.find_spec("jax") is not None
OTHERS = [array_api_strict]
if importlib.util.find_spec("torch") is not None:
    OTHERS.append(importlib.import_module("torch"))
if HAS_JAX:
    OTHERS.append(importlib.import_module("jax.numpy"))


def in_double(library: Any) -> contextlib.AbstractContextManager[Any]:
    """Return where a library has types of 64 bits: JAX lacks them until it is asked for them."""
    if library.__name__ != "jax.numpy":
        return contextlib.nullcontext()
    return importlib.import_module("jax").enable_x64(True)


def check(
    f: Any,
    *arrays: Any,
    tolerance: float = 1e-6,
    second: bool = True,
    others: Sequence[Any] = tuple(OTHERS),
) -> None:
    """Check value, gradient and a second derivative of ``f(xp, *arrays)`` in float64.

    Values are compared with NumPy's, derivatives in both modes with finite differences along a
    direction (the second one of reverse mode, and of forward mode over reverse), and
    gradients and second derivatives over NumPy with those over other libraries: array-api-strict
    and, where they are installed, torch and JAX.
    """
    arrays = tuple(np.asarray(a, dtype="f8") for a in arrays)
    check_values(f, *arrays, others=others)
    loss = functools.partial(weighted, f, mixad.namespace_of(np))
    places = tuple(range(len(arrays)))
    gradient = mixad.grad(loss, argnums=places)
    along = [np.cos(1.0 + np.arange(a.size)).reshape(a.shape) for a in arrays]
    slope = sum(np.vdot(g, v) for g, v in zip(gradient(*arrays), along, strict=True))
    plain = functools.partial(weighted, f, np)
    assert close(slope, difference(plain, arrays, along), tolerance)
    assert close(mixad.jvp(loss, arrays, along)[1], slope, 1e-9)
    if not second:
        return

    def steepness(*arrays: Any) -> Any:
        return sum((g * v).sum() for g, v in zip(gradient(*arrays), along, strict=True))

    around = [np.sin(2.0 + 3 * np.arange(a.size)).reshape(a.shape) for a in arrays]
    curvature = mixad.grad(lambda *a: steepness(*a) + 0.0 * sum(b.sum() for b in a), places)
    found = sum(np.vdot(g, v) for g, v in zip(curvature(*arrays), around, strict=True))
    assert close(found, difference(steepness, arrays, around), tolerance)
    assert close(mixad.jvp(steepness, arrays, around)[1], found, 1e-8)
    for library in others:
        with in_double(library):
            assert close(_curvature_over(library, f, arrays, along, around), found, 1e-8)


def _curvature_over(library: Any, f: Any, arrays: Any, along: Any, around: Any) -> float:
    """Return the second derivative along two directions that another library's arrays give."""
    given, along, around = ([library.asarray(a) for a in each] for each in (arrays, along, around))
    loss = functools.partial(weighted, f, mixad.namespace_of(library))
    places, xp = tuple(range(len(given))), mixad.namespace_of(library)

    def steepness(*arrays: Any) -> Any:
        gradients = mixad.grad(loss, argnums=places)(*arrays)
        terms = [xp.sum(g * v) for g, v in zip(gradients, along, strict=True)]
        return functools.reduce(operator.add, terms)

    return float(mixad.jvp(steepness, given, around)[1])


def check_values(f: Any, *arrays: Any, others: Sequence[Any] = tuple(OTHERS)) -> None:
    """Compare values, shapes and dtypes with NumPy's, and gradients over several libraries."""
    want = parts_of(f(np, *arrays))
    seen: list[Any] = []

    def loss(*arrays: Any) -> Any:
        seen[:] = parts_of(f(mixad.namespace_of(np), *arrays))
        return weighted(f, mixad.namespace_of(np), *arrays)

    places = tuple(range(len(arrays)))
    gradients = mixad.grad(loss, argnums=places)(*arrays)
    assert len(want) == len(seen)
    for w, s in zip(want, seen, strict=True):
        assert (np.shape(w), w.dtype) == (s.shape, s.dtype)
    for g, a in zip(gradients, arrays, strict=True):
        assert (g.shape, g.dtype) == (a.shape, a.dtype)
    for library in others:
        with in_double(library):
            given = [library.asarray(a) for a in arrays]
            loss_over = functools.partial(weighted, f, mixad.namespace_of(library))
            for g, other in zip(gradients, mixad.grad(loss_over, places)(*given), strict=True):
                np.testing.assert_allclose(np.from_dlpack(other), g, rtol=1e-9, atol=1e-12)
    value = mixad.value_and_grad(loss)(*arrays)[0]
    np.testing.assert_allclose(value, weighted(f, np, *arrays), rtol=1e-12, atol=1e-12)


def compiled_by_jax(function: Any, arrays: Sequence[Any]) -> list[np.ndarray]:
    """Return what JAX gives as one program, which takes half as long as operation by operation.

    Where it looks at values, or shapes depend on them, each operation is a program.
    """
    import jax

    try:
        found = jax.jit(function)(*arrays)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        found = function(*arrays)
    return [np.asarray(each) for each in found]


def against_jax(f: Any, *arrays: Any, tolerance: float = 1e-9) -> None:
    """Compare value, gradients and a second derivative with JAX's of the same source, in x64."""
    import jax
    import jax.numpy as jnp

    arrays = tuple(np.asarray(a, dtype="f8") for a in arrays)
    places = tuple(range(len(arrays)))
    along = [np.cos(1.0 + np.arange(a.size)).reshape(a.shape) for a in arrays]

    def steepness(grad: Any, xp: Any, *arrays: Any) -> Any:
        gradients = grad(functools.partial(weighted, f, xp), places)(*arrays)
        found = sum(xp.sum(g * xp.asarray(v)) for g, v in zip(gradients, along, strict=True))
        return found + 0.0 * sum(xp.sum(a) for a in arrays)

    with jax.enable_x64(True):
        given = [jnp.asarray(a) for a in arrays]
        theirs = functools.partial(weighted, f, jnp)
        curved = functools.partial(steepness, jax.grad, jnp)
        want = compiled_by_jax(
            lambda *arrays: [
                theirs(*arrays), *jax.grad(theirs, places)(*arrays),
                *jax.grad(curved, places)(*arrays),
            ], given,
        )  # fmt: skip
    xp = mixad.namespace_of(np)
    value, gradients = mixad.value_and_grad(functools.partial(weighted, f, xp), places)(*arrays)
    found2 = mixad.grad(functools.partial(steepness, mixad.grad, xp), places)(*arrays)
    for got, each in zip((value, *gradients, *found2), want, strict=True):
        scale = max(1.0, float(np.max(np.abs(each), initial=0.0)))
        np.testing.assert_allclose(got, each, rtol=tolerance, atol=tolerance * scale)


def weighted(f: Any, xp: Any, *arrays: Any) -> Any:
    """Return the sum of all that ``f`` returns, each element with a weight of its own."""
    total = 0.0 * sum(xp.sum(a) for a in arrays)
    for number, part in enumerate(parts_of(f(xp, *arrays))):
        size = math.prod(part.shape)
        weights = np.cos(number + 0.7 * np.arange(size)).reshape(part.shape)
        total = total + xp.sum(part * xp.asarray(weights))
    return total


def parts_of(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def difference(f: Any, arrays: Any, along: Any, step: float = 1e-6) -> Any:
    ends = ([a + s * v for a, v in zip(arrays, along, strict=True)] for s in (step, -step))
    above, below = (f(*end) for end in ends)
    return (above - below) / (2 * step)


def close(found: Any, want: Any, tolerance: float) -> bool:
    return bool(abs(found - want) <= tolerance * max(1.0, abs(want)))


def check_single(f: Any, *arrays: Any) -> None:
    """Check that float32 gives the dtypes that NumPy gives, and nearly the gradients of float64."""
    wide = [np.asarray(a, dtype="f8") for a in arrays]
    narrow = [a.astype("f4") for a in wide]
    xp, places = mixad.namespace_of(np), tuple(range(len(arrays)))
    dtypes = [part.dtype for part in parts_of(f(np, *narrow))]

    def loss(*arrays: Any) -> Any:
        assert [part.dtype for part in parts_of(f(xp, *arrays))] == dtypes
        return weighted(f, xp, *arrays)

    want = mixad.grad(functools.partial(weighted, f, xp), places)(*(a.astype("f8") for a in narrow))
    for g, w in zip(mixad.grad(loss, places)(*narrow), want, strict=True):
        assert g.dtype == np.float32
        np.testing.assert_allclose(g, w, rtol=2e-2, atol=2e-3 * np.max(np.abs(w)))
