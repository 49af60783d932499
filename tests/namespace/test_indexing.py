"""Indexing by what NumPy takes; adjoints of repeated indices add."""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_strict
import numpy as np
import pytest
from derivatives import HAS_JAX, against_jax, check
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, basic_indices, integer_array_indices

import mixad
from mixad.errors import TracerError

EXAMPLES = 150

HAS_TORCH = importlib.util.find_spec("torch") is not None

X = np.random.default_rng(3).normal(size=(3, 4, 2))
MASK = X[..., 0] > 0
ROWS = np.asarray([2, 0, 2, -1])

KEYS = {
    "rows": ROWS,
    "list": [0, 0, 1],
    "pairs": (ROWS, np.asarray([0, 1, 0, 3])),
    "outer": (ROWS[:, None], np.asarray([[0, 1]])),
    "row and slice": (ROWS, slice(None, None, 2)),
    "apart": (ROWS, slice(None), np.asarray([1, 0, 1, 1])),
    "apart by a number": (0, slice(1, None), np.asarray([1, 0])),
    "after an ellipsis": (..., ROWS, 1),
    "with a new axis": (None, ROWS, None, slice(0, 1)),
    "mask": MASK,
    "mask of a row": (slice(None), MASK[0]),
    "mask of all": X > 0.3,
    "mask and number": (MASK, 1),
    "truth": True,
    "falsehood": False,
    "empty": np.asarray([], dtype=int),
    "no rows": np.zeros(3, dtype=bool),
    "slices": (slice(None, None, -1), ..., None, slice(1, 0)),
    "scalar": np.asarray(2),
}


@pytest.mark.rows("name", KEYS)
def test_numpys_ways_of_indexing(name: str) -> None:
    compare(KEYS[name], X)


def compare(key: Any, x: Any) -> None:
    """Compare with the sum of one-hot arrays: independent of every rule."""
    want = x[key]
    weights = np.cos(np.arange(want.size)).reshape(want.shape)

    def loss(x: Any) -> Any:
        found = x[key]
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        return (found**2 * weights).sum() + 0.0 * x.sum()

    value, gradient = mixad.value_and_grad(loss)(x)
    terms = want**2 * weights
    np.testing.assert_allclose(value, terms.sum(), rtol=0, atol=1e-13 * abs(terms).sum())
    expected = np.zeros_like(x)
    np.add.at(expected, key, 2 * want * weights)
    np.testing.assert_allclose(gradient, expected, rtol=1e-13, atol=1e-14)
    diagonal = mixad.grad(lambda x: mixad.grad(loss)(x).sum())(x)
    np.add.at(expected := np.zeros_like(x), key, 2 * weights)
    np.testing.assert_allclose(diagonal, expected, rtol=1e-13, atol=1e-14)


@st.composite
def keys(draw: Any) -> Any:
    shape = draw(st.sampled_from([(4,), (2, 3), (3, 1, 2), (2, 2, 2, 3)]))
    kind = draw(st.sampled_from(["basic", "integers", "mask", "mixed"]))
    if kind == "basic":
        return shape, draw(basic_indices(shape, allow_newaxis=True))
    if kind == "integers":
        return shape, draw(integer_array_indices(shape))
    if kind == "mask":
        return shape, draw(arrays(bool, shape[: draw(st.integers(1, len(shape)))]))
    each = []
    for length in shape:
        part = draw(st.sampled_from(["array", "slice", "number"]))
        number = st.integers(-length, length - 1)
        if part == "array":
            each.append(draw(arrays(np.int64, (3,), elements=number)))
        else:
            each.append(slice(draw(number), None) if part == "slice" else draw(number))
    return shape, tuple(each)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(keys(), st.integers(0, 9))
def test_any_key(drawn: Any, seed: int) -> None:
    shape, key = drawn
    compare(key, np.random.default_rng(seed).normal(size=shape))


def test_all_derivatives_of_repeated_indices() -> None:
    at = np.asarray([[0, 2], [2, 2]])
    check(lambda xp, x: x[xp.asarray(at), xp.asarray(at)] ** 3, X[:, :3, 0])


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_repeated_indices_as_jax_has_them() -> None:
    against_jax(lambda xp, x: [x[ROWS] ** 3, x[:, ROWS, 1] ** 2, xp.take(x, ROWS, axis=1) ** 2], X)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_many_repeats_keep_their_digits(dtype: str) -> None:
    count = 100_000  # added one by one in float32, the sum would be off by 2e-4
    terms = np.full(count, 0.1, dtype)
    gradient = mixad.grad(lambda x: (x[np.zeros(count, int)] * terms).sum())(np.ones(2, dtype))
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, [terms.sum(dtype="f8"), 0], rtol=1e-7)


def test_a_key_that_changes_later_is_not_read_again() -> None:
    key = np.asarray([0, 1, 1])

    def loss(x: Any) -> Any:
        y = x[key] * x[key]
        key[:] = 0
        return y.sum()

    np.testing.assert_array_equal(mixad.grad(loss)(np.asarray([1.0, 2.0])), [2.0, 8.0])


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_indexing_of_torch(dtype: str) -> None:
    import torch

    kind = getattr(torch, dtype)
    x = torch.from_numpy(np.round(X * 8) / 8).to(kind)
    rows, mask = torch.from_numpy(ROWS), torch.from_numpy(MASK)

    def loss(x: Any) -> Any:
        return (x[rows] * x[rows.tolist()]).sum() + (x[mask] * 2).sum() + x[:, rows, 1].sum()

    theirs = x.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(theirs), theirs)
    torch.testing.assert_close(mixad.grad(loss)(x), want)


def test_indexing_by_the_standard() -> None:
    xp = array_api_strict
    x, mask, rows = xp.asarray(X[..., 0]), xp.asarray(MASK), xp.asarray(ROWS)
    gradient = mixad.grad(lambda x: (x[mask] ** 2).sum() + x[rows, rows].sum())(x)
    expected = np.where(MASK, 2 * X[..., 0], 0.0)
    np.add.at(expected, (ROWS, ROWS), 1.0)
    np.testing.assert_allclose(np.from_dlpack(gradient), expected)


@pytest.mark.rows(
    ("key", "error"),
    [
        (np.asarray([3]), IndexError),
        (np.asarray([0.5]), IndexError),
        (np.ones(2, dtype=bool), IndexError),
        ((0, 0, 0, [0]), IndexError),
        ("rows", TracerError),
        (1.0, TracerError),
    ],
)
def test_errors_are_those_of_the_library(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        mixad.grad(lambda x: x[key].sum())(X)


def test_an_index_that_is_differentiated_is_refused() -> None:
    with pytest.raises(TracerError, match="cannot be indexed by another one"):
        mixad.grad(lambda x: x[x[0, 0, 0]].sum())(X)


def test_parts_of_one_array_add_into_one_cotangent(monkeypatch):
    """One array of zeros is written for all parts, not one for each."""
    made = []
    zeros = np.zeros
    monkeypatch.setattr(np, "zeros", lambda *a, **k: made.append(a) or zeros(*a, **k))

    def f(x):
        rows = [x[i] * (i + 1.0) for i in range(x.shape[0])]
        return sum((row * row).sum() for row in rows) + (x[None, ::-2, 1:] * x[-1, 1:]).sum()

    x = np.random.default_rng(0).uniform(-1, 1, (9, 4))
    gradient = mixad.grad(f)
    gradient(x)  # a known gradient is tried beside the first
    made.clear()
    found = gradient(x)
    expected = 2 * x * (np.arange(9.0)[:, None] + 1) ** 2
    expected[::-2, 1:] += x[-1, 1:]
    expected[-1, 1:] += x[::-2, 1:].sum(0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert sum(a[0] == x.shape for a in made) <= 1


def test_a_cotangent_that_others_hold_is_not_added_into():
    x = np.arange(1.0, 5.0)
    value, pullback = mixad.vjp(lambda x: (x, x[1:], x[0]), x)
    given = np.ones(4)
    for _ in range(2):
        (found,) = pullback((given, 2 * np.ones(3), np.asarray(3.0)))
        np.testing.assert_array_equal(found, [4.0, 3.0, 3.0, 3.0])
    np.testing.assert_array_equal(given, 1.0)
    np.testing.assert_array_equal(value[0], x)
