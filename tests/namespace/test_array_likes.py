"""Lists of traced values, arrays and numbers where NumPy takes arrays, as far as it asks them."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
from derivatives import parts_of

import mixad
from mixad.errors import TracerError
from mixad.tape.constant import is_constant

X = np.asarray([0.3, -0.5, 0.9])

SEEN: dict[str, Any] = {
    "stack": lambda x: np.stack([x, [1.0, 2.0, 3.0], x * x]),
    "stack of numbers": lambda x: np.stack([x[0], 2.0, 1, True, np.float32(3)]),
    "stack of lists": lambda x: np.stack([[[x[0], 1], [2, x[1]]], np.outer(x, x)[1:, 1:]], 1),
    "concatenate": lambda x: np.concatenate([x, [1.0, x[2]], [2], np.arange(2)]),
    "vstack": lambda x: np.vstack((x, (1.0, 2.0, x[0]))),
    "hstack": lambda x: np.hstack([x * x, 1.0, [2.0, 3]]),
    "dstack": lambda x: np.dstack([x, [1.0, 2.0, 3.0]]),
    "column_stack": lambda x: np.column_stack([x, [x[0], 2.0, x[1]]]),
    "append": lambda x: np.append(x, [x[0], 2.0]),
    "block": lambda x: np.block([[x, x * x], [np.ones(3), x]]),
    "block of vectors": lambda x: np.block([x, 1.0, x * x]),
    "block of numbers": lambda x: np.block([[x[0], 1.0], [2.0, x[1] * x[1]]]),
    "block without lists": lambda x: np.block(x) ** 2,
    "block of matrices": lambda x: np.block([[np.outer(x, x), np.ones((3, 2))], [np.ones((1, 5))]]),
    "meshgrid": lambda x: [g * g for g in np.meshgrid(x, [1.0, 2.0], x[0])],
    "meshgrid by matrix": lambda x: [g * g for g in np.meshgrid(x, x[:2], indexing="ij")],
    "dot": lambda x: np.dot(x, [1.0, 2.0, 3.0]) * np.dot([1, 2, 3], x),
    "dot of lists": lambda x: np.dot([[x[0], 1.0, 2.0], [x[1], x[2], 3.0]], x),
    "dot method": lambda x: x.dot([[1.0], [2.0], [x[0]]]) + x.dot(2.0)[0],
    "matmul": lambda x: np.matmul([[x[0], 1.0, 2.0]], x) + [1.0, 2.0, 3.0] @ x,
    "@": lambda x: x @ [x[0], 1.0, 2] + (x[0], 1.0, 2) @ x,
    "cross": lambda x: np.cross([x[0], 0.0, 1.0], x) + np.cross(x, [1.0, 2.0, 3.0]),
    "outer": lambda x: np.outer([x[0], 1.0], x) + np.outer(x, [1.0, 2.0, 3.0])[:2],
    "inner": lambda x: np.inner(x, [1.0, 2.0, 3.0]) * np.inner([x[0], x[1], 1.0], x),
    "kron": lambda x: np.kron(x, [1.0, 2.0]),
    "vecdot": lambda x: np.vecdot(x, [1.0, 2.0, 3.0]),
    "matvec": lambda x: np.matvec([[x[0], 1.0, 2.0], [x[1], x[2], 3.0]], x) * np.matvec(
        np.outer(x, x)[:2], [1, 2, 3]),
    "vecmat": lambda x: np.vecmat([x[0], 1.0, 2.0], np.outer(x, x)) * np.vecmat(
        x, [[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
    "tensordot": lambda x: np.tensordot(x, [[1.0], [2.0], [x[0]]], 1),
    "einsum": lambda x: np.einsum("i,j", x, [x[0], 1.0]) * np.einsum(x, [0], [x[1], 2.0, 3.0], [0]),
    "einsum of plain lists": lambda x: np.einsum("i,i", [1, 2, 3], x) * np.einsum(
        x, [0], [[1.0, 2.0, 3.0]], [1, 0]),
    "broadcast_arrays": lambda x: [2.0 * a for a in np.broadcast_arrays([1, 2, 3], x, x[0])],
    "solve": lambda x: np.linalg.solve([[x[0], 1.0], [2.0, x[1]]], x[:2]),
    "solve for a list": lambda x: np.linalg.solve(np.diag(x), [1.0, x[0], 2.0]),
    "where": lambda x: np.where([True, False, True], x, [1.0, 2.0, x[0]]),
    "select": lambda x: np.select([X > 0.5, X > 0], [x * x, [1.0, x[0], x[1]]], x - 3.0),
    "clip": lambda x: np.clip(x, [-1.0, x[2] - 1.0, 0.0], 0.5),
    "maximum": lambda x: np.maximum([x[1], x[0], 0.0], x),
    "ufunc of a list": lambda x: np.hypot([1.0, x[0], x[1]], x),
    "operators": lambda x: [x[0], 1.0, 2.0] * x - (1.0, x[1], 2) / (2.0 + x) + x ** [1.0, 2.0, 3.0],
    "comparisons": lambda x: x * (x >= [x[2], -1.0, x[0]]),
    "linspace": lambda x: np.linspace(x, [1.0, x[0], 2.0], 4),
    "diff": lambda x: np.diff(x, prepend=[x[2], 1.0]),
    "array": lambda x: np.array([x, [1, 2, 3], (x[0], 2.0, x[1])], like=x),
    "array of another type": lambda x: np.array([x[0], 1], "f8", like=x) ** 2,
    "array of an array": lambda x: np.array(x, like=x) ** 2,
    "full": lambda x: np.full((2, 3), x[0] * x[1], like=x) + np.full(3, x * x, like=x),
    "asarray": lambda x: np.asarray([x[0], 1], like=x) * np.asarray(x[1:], like=x) ** 2,
    "asanyarray": lambda x: np.asanyarray(x, "f8", like=x) * np.ascontiguousarray(x, like=x),
    "zeros": lambda x: np.zeros((2, 3), "f4", like=x) + x,
    "ones and empty": lambda x: np.ones(3, like=x) * x + np.empty((0, 3), like=x).sum(),
    "eye": lambda x: (np.eye(3, k=1, like=x) + np.identity(3, like=x) + np.tri(3, like=x)) @ x,
    "arange": lambda x: np.arange(3, like=x) * x + np.full(3, 2, like=x),
    "array of numbers": lambda x: np.array([1, 2, 3], like=x) * x + np.asarray([1.0], like=x),
    "sort": lambda x: np.sort(x, kind="stable") * np.sort(x, None, "heapsort"),
    "gradient": lambda x: np.gradient(x, np.int64(2)) + np.gradient(x, np.float32(2)),
    "full_like": lambda x: np.full_like(x, x[0] * x[1]),
}  # fmt: skip


@pytest.mark.rows("dtype", ["f4", "f8"])
@pytest.mark.rows("name", SEEN)
def test_values_shapes_and_types_are_those_of_numpy(name: str, dtype: str) -> None:
    x = X.astype(dtype)
    value, _ = mixad.vjp(SEEN[name], x)
    wanted = parts_of(SEEN[name](x))
    for found, want in zip(parts_of(value), wanted, strict=True):
        tolerance = 1e-5 if dtype == "f4" else 1e-14
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


@pytest.mark.rows("name", SEEN, slow=["meshgrid", "meshgrid by matrix", "operators", "outer"])
def test_derivatives_are_those_of_differences(name: str) -> None:
    mixad.check_grads(lambda x: [p * p for p in parts_of(SEEN[name](x))], (X,), order=2)


def test_values_of_several_transforms_stand_beside_each_other() -> None:
    def inner(y: Any) -> Any:
        def innermost(z: Any) -> Any:
            row = np.stack([y * z, [1.0, z[0], y[1]], z])
            return np.dot(row, [y[0], 1.0, z[2]]).sum()

        return mixad.grad(innermost)(y * y).sum()

    x, v = X, np.asarray([1.0, 2.0, -1.0])
    slope, step = mixad.jvp(mixad.grad(inner), (x,), (v,))[1], 1e-6
    ends = mixad.grad(inner)(x + step * v), mixad.grad(inner)(x - step * v)
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-8)


def test_arrays_like_a_traced_one_take_traced_values() -> None:
    def f(x: Any) -> Any:
        out = np.zeros(3, like=x)
        assert is_constant(out)
        assert is_constant(np.ones(2, like=out))
        out[1] = x[0] * x[1]
        return (out * np.arange(3, like=x)).sum()

    np.testing.assert_array_equal(mixad.grad(f)(X), [X[1], X[0], 0.0])


def test_kinds_of_sorting_are_those_of_numpy() -> None:
    for options in ({"kind": "bubble"}, {"kind": "stable", "stable": True}):
        with pytest.raises(ValueError, match="kind"):
            mixad.grad(lambda x, options=options: np.sort(x, **options).sum())(X)


def test_numbers_that_are_differentiated_are_joined() -> None:
    def length(a: Any, b: Any) -> Any:
        return np.linalg.norm(np.stack([a, b, 12.0]))

    found = mixad.value_and_grad(length, argnums=(0, 1))(3.0, 4.0)
    np.testing.assert_allclose((found[0], *found[1]), (13.0, 3 / 13, 4 / 13))


def test_functions_of_numpy_take_lists_of_what_another_library_has() -> None:
    xp, x = mixad.namespace_of(array_api_strict), array_api_strict.asarray(X)
    found = mixad.grad(lambda x: xp.sum(xp.asarray([x[0], x[1] * x[1], 2]) ** 2))(x)
    np.testing.assert_allclose(np.from_dlpack(found), [0.6, 4 * X[1] ** 3, 0.0])
    found = mixad.grad(lambda x: np.sum(np.stack([x, [1.0, x[0], 3]]) * np.dot(x, [1, 2, 3])))(x)
    assert type(found) is type(x)
    slope = (X.sum() + X[0] + 4) * np.asarray([1, 2, 3]) + X @ [1, 2, 3] * np.asarray([2, 1, 1])
    np.testing.assert_allclose(np.from_dlpack(found), slope)
    with pytest.raises(TypeError, match="multiply sequence"):
        mixad.grad(lambda x: xp.sum(x * [1.0, 2.0, 3.0]))(x)


UNSEEN: dict[str, Any] = {
    "mean": lambda x: np.mean([x, x]),
    "sum": lambda x: np.sum([x[0], 2.0]),
    "exp": lambda x: np.exp([x[0], x[1]]),
    "array": lambda x: np.array([x, x]),
    "full": lambda x: np.full(3, x[0]),
    "dot": lambda x: np.dot([x[0], x[1]], [1.0, 2.0]),
    "r_": lambda x: np.r_[x, 1.0],
    "c_": lambda x: np.c_[x, x],
}


@pytest.mark.rows("name", UNSEEN)
def test_lists_that_numpy_does_not_ask_are_refused_with_what_to_write(name: str) -> None:
    with pytest.raises(TracerError, match=r"np\.stack\(\[x, y\]\) .*np\.concatenate .*np\.r_"):
        mixad.grad(lambda x: UNSEEN[name](x).sum())(X)


RAGGED: dict[str, Any] = {
    "lists": lambda x: np.stack([x, [x[0], 1.0]]),
    "nested": lambda x: np.dot([[x[0], 1.0], 2.0], x),
    "depths": lambda x: np.block([[x], x]),
}


@pytest.mark.parametrize("name", RAGGED)
def test_lists_of_different_lengths_are_refused_as_numpy_does(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        RAGGED[name](X)
    with pytest.raises(ValueError, match=r"shape|depths"):
        mixad.grad(lambda x: RAGGED[name](x).sum())(X)
