"""`np.add.at` and `np.subtract.at`: NumPy's values, and derivatives of what was added."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_indexing import KEYS, keys

import mixad
from mixad.errors import TracerError

EXAMPLES = 100
SIGNS = {np.add: 1.0, np.subtract: -1.0}
X = np.random.default_rng(7).normal(size=(3, 4, 2))


def added(ufunc: Any, x: Any, key: Any, value: Any) -> Any:
    y = x * 1
    if isinstance(x, np.ndarray):  # NumPy 2.4 reads beyond the end of what is to be broadcast
        value = np.broadcast_to(value, np.shape(x[key]))
    assert ufunc.at(y, key, value) is None
    return y


def compare(ufunc: Any, x: Any, key: Any, value: Any) -> None:
    """Compare with NumPy's own results: the derivative is what it makes of the tangents."""
    want = added(ufunc, x, key, value)
    weights = np.cos(np.arange(x.size)).reshape(x.shape)

    def loss(x: Any, value: Any) -> Any:
        found = added(ufunc, x, key, value)
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        return (found**2 * weights).sum() + 0.0 * (x.sum() + value.sum())

    found, gradients = mixad.value_and_grad(loss, argnums=(0, 1))(x, value)
    np.testing.assert_allclose(found, (want**2 * weights).sum(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradients[0], 2 * want * weights, rtol=1e-13)
    for at in np.ndindex(value.shape):
        unit = np.zeros(value.shape)
        unit[at] = 1.0
        moved = added(ufunc, np.zeros_like(x), key, unit)
        np.testing.assert_allclose(gradients[1][at], (2 * want * weights * moved).sum(), atol=1e-12)
    tangents = np.sin(1 + x), np.cos(value)
    moved = added(ufunc, tangents[0], key, tangents[1])
    slope = mixad.jvp(lambda *a: added(ufunc, *a[:1], key, *a[1:]), (x, value), tangents)[1]
    np.testing.assert_array_equal(slope, moved)
    curvature = mixad.jvp(mixad.grad(loss), (x, value), tangents)[1]
    np.testing.assert_allclose(curvature, 2 * weights * moved, rtol=1e-13)


@pytest.mark.rows("ufunc", SIGNS)
@pytest.mark.rows("name", KEYS)
def test_numpys_ways_of_adding(name: str, ufunc: Any) -> None:
    part = X[KEYS[name]]
    compare(ufunc, X, KEYS[name], np.sin(np.arange(part.size)).reshape(part.shape))


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(keys(), st.integers(0, 9), st.data())
def test_any_key_and_value(drawn: Any, seed: int, data: Any) -> None:
    shape, key = drawn
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    own = tuple(data.draw(st.sampled_from([1, n])) for n in np.shape(x[key]))
    own = own[data.draw(st.integers(0, len(own))) :]
    compare(np.add, x, key, rng.normal(size=own))


@pytest.mark.slow
@pytest.mark.parametrize("ufunc", SIGNS)
def test_numbers_lists_and_constants_are_added(ufunc: Any) -> None:
    def f(x: Any) -> Any:
        y = x * x
        ufunc.at(y, [0, 1, 0], 2.0)
        ufunc.at(y, 1, [1, 2, 3, 4])
        ufunc.at(y, np.s_[1:, 0], x[0, 0])
        ufunc.at(y, (slice(None), [0, 0]), [x[0, 1], 3.0])
        ufunc.at(y, [2, 2], np.ones_like(x[0]))
        return np.sin(y)

    x = X[..., 0].copy()
    np.testing.assert_allclose(mixad.vjp(f, x)[0], f(x), rtol=1e-15)
    mixad.check_grads(f, (x,), order=2)


@pytest.mark.slow
@pytest.mark.parametrize("make", [np.zeros_like, lambda x: np.full(3, 2.0, like=x)])
def test_made_arrays_take_traced_values(make: Any) -> None:
    def f(x: Any) -> Any:
        out = make(x[:3])
        np.add.at(out, [0, 2, 2], 1.0)
        for k in range(3):
            np.add.at(out, [k, 0, 2, 2], x * out[k])
        return out**2

    x = np.arange(1.0, 5.0)
    np.testing.assert_allclose(mixad.vjp(f, x)[0], f(x), rtol=1e-15)
    mixad.check_grads(f, (x,), order=2)


def test_what_was_recorded_of_a_made_array_stays() -> None:
    """NumPy adds to read-only arrays, too: the array is of a size that is compared by samples."""

    def f(x: Any) -> Any:
        out = np.zeros_like(x) + 2.0
        y = x * x * out
        np.add.at(out, [7], 5.0)
        return (y * out).sum()

    x = 1.0 + np.arange(5000.0)
    want = 8.0 * x
    want[7] = 4.0 * x[7] * 7.0
    np.testing.assert_allclose(mixad.grad(f)(x), want, rtol=1e-15)


def test_dtypes_are_converted_as_numpy_converts_them() -> None:
    def f(x: Any, v: Any) -> Any:
        return added(np.add, x, np.asarray([0, 0, 1]), v)

    for kinds in (("f4", "f8"), ("f8", "f4"), ("c8", "f8"), ("c16", "c8")):
        x, v = (np.ones(3, dtype=kind) for kind in kinds)
        value, pullback = mixad.vjp(f, x, v)
        np.testing.assert_array_equal(value, f(x, v), strict=True)
        assert [g.dtype for g in pullback(value)] == [x.dtype, v.dtype]


@pytest.mark.parametrize(
    ("x", "key", "value"),
    [
        (np.ones(3), [3], np.ones(1)),
        (np.ones(3), [0, 1], np.ones(3)),
        (np.ones(3), [0.5], np.ones(1)),
        (np.ones((2, 3)), (0, 0, 0), np.ones(1)),
    ],
)
def test_errors_are_those_of_numpy(x: Any, key: Any, value: Any) -> None:
    with pytest.raises((IndexError, ValueError)) as theirs:
        added(np.add, x, key, value)
    with pytest.raises(type(theirs.value)):
        mixad.vjp(lambda x: added(np.add, x, key, value), x)
    with pytest.raises(type(theirs.value)):
        mixad.vjp(lambda v: added(np.add, x + 0.0 * v[0], key, v), value)


def test_what_is_not_added_is_refused() -> None:
    with pytest.raises(mixad.errors.KernelTypeError, match="imaginary"):
        mixad.vjp(lambda v: added(np.add, v.real * 1, [0], v), 1j * np.ones(1))
    with pytest.raises(TracerError, match=r"np\.add\.at.*zeros_like"):
        mixad.grad(lambda x: np.add.at(np.zeros(3), [0, 1, 1], x))(np.ones(3))
    with pytest.raises(TracerError, match=r"numpy\.divide\.at\(\)"):
        mixad.grad(lambda x: np.divide.at(x * 1, [0], x[:1]))(np.ones(3))
    with pytest.raises(TracerError, match=r"numpy\.negative\.at\(\)"):
        mixad.grad(lambda x: np.negative.at(x * 1, [0]))(np.ones(3))
    x = array_api_strict.ones(3)
    with pytest.raises(TracerError, match=r"numpy\.add\.at\(\)"):
        mixad.grad(lambda x: np.add.at(x * 1, [0], x[:1]))(x)


@pytest.mark.rows("view", [lambda y: y[1], lambda y: y.T, lambda y: y.reshape(-1),
                                  lambda y: np.ravel(y), lambda y: y[1:]])  # fmt: skip
@pytest.mark.rows("is_base_changed", [True, False])
@pytest.mark.rows("is_first", [True, False])
def test_what_was_recorded_of_shared_memory_stays(
    view: Any, is_base_changed: bool, is_first: bool
) -> None:
    """Of either name of the memory, and whether the view is older than what was recorded."""

    def f(x: Any) -> Any:
        y = np.zeros((100, 100), like=x) + 1.0
        early = view(y) if is_first else None
        part = view(y) if is_base_changed and early is None else early
        total = ((part if is_base_changed else y) * x[0]).sum()
        changed = y if is_base_changed else view(y) if early is None else early
        np.add.at(changed, [1, 1], 1.0)
        return total + 0.0 * x[0] * changed.sum()

    size = view(np.ones((100, 100))).size if is_base_changed else 10_000
    np.testing.assert_array_equal(mixad.grad(f)(np.ones(3)), [size, 0.0, 0.0])


def test_an_empty_list_of_positions_adds_nothing() -> None:
    compare(np.add, X, [], np.zeros((0, 4, 2)))
