"""Jacobians, Hessians and products with them: by hand, against differences, inside transforms."""

from __future__ import annotations

import importlib.util
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.backends.execute import Kernel
from mixad.errors import TracerError
from mixad.special import tanh
from mixad.tape.strand_plan import _PlanMaker

HAS_TORCH = importlib.util.find_spec("torch") is not None
X = np.asarray([0.5, -1.5, 0.25])
M = np.asarray([[0.5, 1.0, -1.0], [2.0, 0.5, 0.25]])
JACOBIANS = [mixad.jacfwd, mixad.jacrev, mixad.jacobian]


@mixad.broadcast
def product(a, b):
    return a * b


def differences(f: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    """Return the Jacobian of a function of one array by central differences."""
    columns = []
    for k in range(x.size):
        nudge = step * np.eye(1, x.size, k).reshape(x.shape)
        columns.append((np.asarray(f(x + nudge)) - np.asarray(f(x - nudge))) / (2 * step))
    return np.stack(columns, axis=-1).reshape(*columns[0].shape, *x.shape)


FUNCTIONS = {
    "vector to vector": lambda x: np.tanh(x) * x.sum(),
    "vector to matrix": lambda x: M * x,
    "vector to number": lambda x: (x * x * x).sum(),
    "matrix product": lambda x: M @ x,
    "kernel": lambda x: product(x, M),
    "parts": lambda x: x[1:] * x[0],
    "linear": lambda x: 3.0 * x,
    "one element": lambda x: x[:1] * x[1:2],
}


@pytest.mark.rows("jacobian", JACOBIANS)
@pytest.mark.rows("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_jacobians_are_the_limits_of_differences(f: Any, jacobian: Any) -> None:
    found = jacobian(f)(X)
    expected = differences(f, X)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_shapes_are_those_of_the_value_and_then_of_the_argument(jacobian: Any) -> None:
    x = np.arange(1.0, 25.0).reshape(2, 3, 4)
    found = jacobian(lambda x: (x * x).sum(axis=1))(x)
    assert found.shape == (2, 4, 2, 3, 4)
    expected = np.einsum("ai,bk,ijk->abijk", np.eye(2), np.eye(4), 2 * x)
    np.testing.assert_allclose(found, expected)


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_trees_of_values_and_arguments(jacobian: Any) -> None:
    def f(p: Any, y: Any, scale: Any) -> Any:
        return Pair(p["a"] * y, {"s": p["b"] * scale, "k": 2.0})

    found = jacobian(f, argnums=(0, -1))({"a": X, "b": 3.0, "none": None}, X, 2.0)
    assert type(found) is Pair
    (by_p, by_scale), right = found
    assert list(by_p) == ["a", "b", "none"]
    np.testing.assert_array_equal(by_p["a"], np.diag(X))
    np.testing.assert_array_equal(by_p["b"], np.zeros(3))
    np.testing.assert_array_equal(by_scale, np.zeros(3))
    assert right["s"][0]["b"] == 2.0
    assert right["s"][1] == 3.0
    assert type(right["s"][1]) is float
    np.testing.assert_array_equal(right["s"][0]["a"], np.zeros(3))
    assert (right["k"][0]["b"], right["k"][1]) == (0.0, 0.0)


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_numbers_and_arrays_without_axes(jacobian: Any) -> None:
    def square(x: Any) -> Any:
        return x * x

    assert jacobian(square)(3.0) == 6.0
    assert type(jacobian(square)(3.0)) is float
    assert jacobian(square)(np.float32(3.0)).dtype == np.float32
    assert jacobian(square)(np.asarray(3.0)).shape == ()
    np.testing.assert_array_equal(jacobian(lambda x: x * X)(3.0), X)
    np.testing.assert_array_equal(jacobian(square, argnums=(0,))(X)[0], np.diag(2 * X))


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_the_dtype_is_the_argument_s(jacobian: Any) -> None:
    x = X.astype("f4")
    assert jacobian(lambda x: x * X)(x).dtype == np.float32
    assert jacobian(lambda x: x.astype("f4") * x.astype("f4"))(X).dtype == np.float64
    np.testing.assert_allclose(jacobian(lambda x: x * X)(x), np.diag(X))


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_arrays_without_elements(jacobian: Any) -> None:
    none = np.zeros((0, 2))
    assert jacobian(lambda x: x * x)(none).shape == (0, 2, 0, 2)
    assert jacobian(lambda x: x.sum())(none).shape == (0, 2)
    assert jacobian(lambda x: none * x)(1.0).shape == (0, 2)


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_aux_and_keyword_arguments(jacobian: Any) -> None:
    f = jacobian(lambda x, *, power: (x**power, {"power": power, "x": x}), has_aux=True)
    found, aux = f(X, power=3)
    np.testing.assert_allclose(found, np.diag(3 * X**2))
    assert aux["power"] == 3
    np.testing.assert_array_equal(aux["x"], X)


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_a_function_that_depends_on_nothing_is_warned_of(jacobian: Any) -> None:
    with pytest.warns(UserWarning, match="does not depend") as caught:
        found = jacobian(lambda x: M)(X)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(found, np.zeros((2, 3, 3)))


@pytest.mark.rows("inner", JACOBIANS)
@pytest.mark.rows("outer", JACOBIANS)
def test_jacobians_of_jacobians(outer: Any, inner: Any) -> None:
    f = lambda x: np.tanh(M @ x)  # noqa: E731
    found = outer(inner(f))(X)
    assert found.shape == (2, 3, 3)
    np.testing.assert_allclose(found, differences(inner(f), X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_inside_of_gradients(jacobian: Any) -> None:
    def sensitivity(x: Any) -> Any:
        rows = jacobian(lambda y: product(y, y) * x)(x)  # diag(2 x²)
        return (rows * rows).sum()

    np.testing.assert_allclose(mixad.grad(sensitivity)(X), 16 * X**3)
    np.testing.assert_allclose(mixad.grad(lambda x: jacobian(lambda y: 2.0 * y)(x).sum())(X), 0 * X)


def test_auto_is_forward_for_as_many_inputs_as_outputs() -> None:
    def kernels_of(f: Any, x: Any) -> int:
        return len(counted(lambda: mixad.jacobian(f)(x)))

    wide = lambda x: product(x[:1], np.ones(40)) * 2.0  # noqa: E731
    assert kernels_of(wide, X) < len(counted(lambda: mixad.jacrev(wide)(X)))
    tall = lambda x: product(x, x).sum()  # noqa: E731
    assert kernels_of(tall, np.ones(100)) == len(counted(lambda: mixad.jacrev(tall)(np.ones(100))))
    assert kernels_of(tall, np.ones(100)) < len(counted(lambda: mixad.jacfwd(tall)(np.ones(100))))


def counted(run: Callable[[], Any]) -> list[Any]:
    made: list[Any] = []
    call, prepare = Kernel.__call__, _PlanMaker._prepared

    def prepared(self: _PlanMaker, kernel: Kernel, arrays: Any, options: Any) -> Any:
        found = prepare(self, kernel, arrays, options)
        if found is not None:
            made.append(kernel)
        return found

    def counting(self: Kernel, arguments: Any, backend: Any = None) -> Any:
        made.append(self)
        return call(self, arguments, backend)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "__call__", counting)
        patch.setattr(_PlanMaker, "_prepared", prepared)
        run()
    return made


@pytest.mark.parametrize(("size", "passes"), [(3, 1), (10, 1), (11, 2), (25, 3)])
def test_ten_columns_are_one_kernel(size: int, passes: int) -> None:
    f = mixad.broadcast(lambda x: tanh(x) * x)
    assert len(counted(lambda: mixad.jacfwd(f)(np.ones(size)))) <= passes
    x = np.linspace(0, 1, size)
    slope = np.tanh(x) + x / np.cosh(x) ** 2
    np.testing.assert_allclose(mixad.jacfwd(f)(x), np.diag(slope), rtol=1e-14)


# -- Hessians --------------------------------------------------------------------------------------


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def rosenbrock_hessian(x: Any) -> Any:
    """By hand: Moré, Garbow and Hillstrom 1981."""
    found = np.diag(np.append(1200 * x[:-1] ** 2 - 400 * x[1:] + 2, 0.0))
    found += np.diag(np.append(0.0, np.full(x.size - 1, 200.0)))
    return found + np.diag(-400 * x[:-1], 1) + np.diag(-400 * x[:-1], -1)


@pytest.mark.slow
def test_hessian_of_rosenbrock_s_function() -> None:
    for size in (2, 3, 12):
        x = np.linspace(-1.2, 1.0, size)
        np.testing.assert_allclose(mixad.hessian(rosenbrock)(x), rosenbrock_hessian(x), atol=1e-10)
        v = np.cos(np.arange(size))
        product = mixad.hvp(rosenbrock, (x,), (v,))
        np.testing.assert_allclose(product, rosenbrock_hessian(x) @ v, atol=1e-9)


def test_hessian_of_several_arguments() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x * x).sum() * y["s"]

    by_x, by_y = mixad.hessian(f, argnums=(0, 1))(X, {"s": 2.0})
    np.testing.assert_allclose(by_x[0], 4 * np.eye(3))
    np.testing.assert_allclose(by_x[1]["s"], 2 * X)
    np.testing.assert_allclose(by_y["s"][0], 2 * X)
    assert by_y["s"][1]["s"] == 0.0


def test_hessian_vector_products_of_trees() -> None:
    def f(p: Any, s: Any) -> Any:
        return (p["x"] ** 3).sum() * s

    by_p, by_s = mixad.hvp(f, ({"x": X}, 2.0), ({"x": M[0]}, 0.5))
    np.testing.assert_allclose(by_p["x"], 12 * X * M[0] + 0.5 * 3 * X**2)
    assert by_s == pytest.approx((3 * X**2 * M[0]).sum())


def test_hessian_with_aux() -> None:
    found, aux = mixad.hessian(lambda x: ((x**3).sum(), x * 2), has_aux=True)(X)
    np.testing.assert_allclose(found, np.diag(6 * X))
    np.testing.assert_array_equal(aux, 2 * X)


def test_hessian_of_a_linear_function_is_zero_without_a_warning() -> None:
    np.testing.assert_array_equal(mixad.hessian(lambda x: x.sum())(X), np.zeros((3, 3)))


def test_third_derivatives() -> None:
    found = mixad.jacobian(mixad.hessian(lambda x: (x**4).sum()))(X)
    expected = np.zeros((3, 3, 3))
    expected[range(3), range(3), range(3)] = 24 * X
    np.testing.assert_allclose(found, expected)


# -- libraries -------------------------------------------------------------------------------------


def arrays_of_torch(values: Any) -> Any:
    import torch

    return torch.asarray(values)


LIBRARIES = [
    pytest.param(array_api_strict.asarray, id="array_api_strict"),
    pytest.param(
        arrays_of_torch,
        marks=[pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="no torch here")],
        id="torch",
    ),
]


@pytest.mark.rows("array", LIBRARIES)
@pytest.mark.rows("transform", [*JACOBIANS, mixad.hessian])
def test_other_libraries_give_their_own_arrays(transform: Any, array: Any) -> None:
    found = transform(lambda x: product(x, x) * x.sum())(array(X))
    assert type(found) is type(array(X))
    expected = transform(lambda x: product(x, x) * x.sum())(X)
    np.testing.assert_allclose(np.asarray(np.from_dlpack(found)), expected)
    of_a_number = transform(lambda s: (s * array(X)) * s)(2.0)
    assert type(of_a_number) is type(array(X))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [*JACOBIANS, mixad.hessian])
def test_arguments_without_derivatives_are_refused_by_the_transform_s_name(transform: Any) -> None:
    name = transform.__name__
    with pytest.raises(TracerError, match=f"mixad.{name}.*int64"):
        transform(lambda x: x * 2.0)(np.arange(3))
    with pytest.raises(TracerError, match=f"mixad.{name}: argnums"):
        transform(lambda x: x * 2.0, argnums=1)(X)
    with pytest.raises(TracerError, match=f"mixad.{name}: f is a float"):
        transform(3.0)


@pytest.mark.slow
def test_jacobian_of_one_number_takes_memory_for_ten_directions() -> None:
    """Not for all of them, which are a square: 32 MB of 2000 elements."""
    gradient = mixad.jacfwd(lambda x: (x * x).sum())
    x = np.linspace(0.0, 1.0, 2000)
    np.testing.assert_allclose(gradient(x), 2 * x)
    tracemalloc.start()
    try:
        gradient(x)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
