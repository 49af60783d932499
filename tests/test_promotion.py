"""Types of results: what the library of the arguments gives for the same operation."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.errors import KernelTypeError

FLOATS = ("float32", "float64")
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", *FLOATS)
SHAPES = ((), (1,), (2, 1))
NUMBERS = (True, 3, 2.5)


@mixad.broadcast
def add(x, y):
    return x + y


class Numpy:
    name = "numpy"
    xp: Any = np

    def array(self, dtype: str, shape: tuple[int, ...]) -> Any:
        return self.xp.ones(shape, dtype=getattr(self.xp, dtype))

    def sum_type(self, x: Any, y: Any) -> Any:
        return np.result_type(x, y)


class Strict(Numpy):
    name = "array_api_strict"
    xp = array_api_strict

    def sum_type(self, x: Any, y: Any) -> Any:
        return (x + y).dtype


class Torch(Numpy):
    name = "torch"

    def __init__(self) -> None:
        self.xp = pytest.importorskip("torch")

    def sum_type(self, x: Any, y: Any) -> Any:
        return self.xp.result_type(x, y)


class Jax(Numpy):
    name = "jax"
    x64 = False

    def __init__(self) -> None:
        self.xp = pytest.importorskip("jax.numpy")

    def sum_type(self, x: Any, y: Any) -> Any:
        found = self.xp.add(x, y)
        is_integer = [v.dtype.kind in "ui" for v in (x, y) if hasattr(v, "dtype")]
        if all(is_integer) and len(is_integer) == 2 and found.dtype.kind == "f":
            return None  # uint64 beside signed integers: a weak float, which kernels refuse
        return found.dtype


class Jax64(Jax):
    x64 = True


_no_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
_no_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="no JAX here")
_LIBRARIES = {
    "numpy": Numpy,
    "strict": Strict,
    "torch": pytest.param(Torch, marks=[pytest.mark.torch, _no_torch]),
    "jax": pytest.param(Jax, marks=_no_jax),
    "jax of 64 bits": pytest.param(Jax64, marks=_no_jax),
}


@pytest.fixture(params=_LIBRARIES.values(), ids=_LIBRARIES)
def library(request: pytest.FixtureRequest) -> Iterator[Any]:
    found = request.param()
    if not isinstance(found, Jax):
        yield found
        return
    with importlib.import_module("jax").enable_x64(found.x64), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is not available, and will be truncated")
        yield found


def sum_type(library: Any, x: Any, y: Any) -> Any:
    """Return the dtype of ``x + y``; None where the library refuses it, or we do."""
    dtypes = [getattr(v, "dtype", "bool" if isinstance(v, bool) else None) for v in (x, y)]
    if all("bool" in str(dtype) for dtype in dtypes):
        return None  # `+` of booleans: libraries disagree, so kernels refuse it
    try:
        return library.sum_type(x, y)
    except (TypeError, RuntimeError):
        return None


def added_type(x: Any, y: Any) -> Any:
    try:
        return add(x, y).dtype
    except TypeError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_any_dtypes_and_ranks(library: Any, dtype: str) -> None:
    for other, *shapes in itertools.product(DTYPES, SHAPES, SHAPES):
        x, y = (library.array(d, s) for d, s in zip((dtype, other), shapes, strict=True))
        assert added_type(x, y) == sum_type(library, x, y), (dtype, other, shapes)


@pytest.mark.rows("number", NUMBERS, slow="True")
def test_python_numbers_beside_arrays(library: Any, number: Any) -> None:
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        x = library.array(dtype, shape)
        want = sum_type(library, x, number)
        assert added_type(x, number) == want, (dtype, shape)
        assert added_type(number, x) == want, (dtype, shape)


@pytest.mark.rows("dtype", FLOATS)
def test_values_that_are_differentiated(library: Any, dtype: str) -> None:
    """Operators and kernels, with arrays and numbers on the right."""
    others = [library.array(d, s) for d, s in itertools.product(DTYPES, SHAPES)]
    for other, shape in itertools.product((*others, *NUMBERS), SHAPES):
        x, found = library.array(dtype, shape), []

        def loss(x: Any, other: Any = other, found: Any = found) -> Any:
            sums = x + other, add(x, other)
            found += [s.dtype for s in sums]
            return sums[0].sum() + sums[1].sum()

        want = sum_type(library, x, other)
        if want is None:
            with pytest.raises(TypeError):
                mixad.grad(loss)(x)
        else:
            assert mixad.grad(loss)(x).dtype == x.dtype
            assert found == [want, want], (dtype, shape, other)


@pytest.mark.rows("dtype", DTYPES)
def test_a_python_float_that_is_differentiated(library: Any, dtype: str) -> None:
    for shape in SHAPES:
        x, found = library.array(dtype, shape), []

        def loss(s: Any, x: Any = x, found: Any = found) -> Any:
            found += [(s + x).dtype, add(s, x).dtype]
            return (s + x).sum()

        want = sum_type(library, x, 2.5)
        if want is None:
            with pytest.raises(TypeError):
                mixad.grad(loss)(2.5)
        else:
            mixad.grad(loss)(2.5)
            assert found == [want, want], (dtype, shape)


def test_captured_arrays_decide_as_arguments_do(library: Any) -> None:
    """One lambda, captures of every library in turn: the programs are not confused."""
    for dtype, shape, number in itertools.product(DTYPES, SHAPES, NUMBERS):
        for like in (library, Numpy(), Strict(), library):
            captured = like.array(dtype, shape)
            want = sum_type(like, captured, number)
            kernel = mixad.broadcast(lambda x: x + captured)  # noqa: B023  (called at once)
            if want is None:
                with pytest.raises(TypeError):
                    kernel(number)
            else:
                assert kernel(number).dtype == want, (dtype, shape, number, like.name)


def test_the_arguments_library_decides_before_a_capture_that_is_not_used() -> None:
    unused = array_api_strict.ones(3)
    kernel = mixad.broadcast(lambda x: x + (1.5 if True else unused))
    assert kernel(np.arange(3)).dtype == np.float64


@pytest.mark.torch
@_no_torch
@pytest.mark.rows("dtype", DTYPES)
def test_numpy_scalars_beside_tensors_are_plain_numbers(dtype: str) -> None:
    """As torch and our operators have it: arguments, captures, items of tuples."""
    import torch

    scalar = np.dtype(dtype).type(1)
    items = (scalar, (2, scalar))
    for other, shape in itertools.product(DTYPES, SHAPES):
        x = torch.ones(shape, dtype=getattr(torch, other))
        want = sum_type(Torch(), x, scalar.item())
        kernels = (
            lambda x: add(x, scalar),
            lambda x: add(scalar, x),
            mixad.broadcast(lambda x: x + scalar),
            mixad.broadcast(lambda x: items[1][1] + x),
        )
        for kernel in kernels:
            if want is None:
                with pytest.raises(TypeError):
                    kernel(x)
                continue
            assert kernel(x).dtype == want, other
            if other in FLOATS:
                found: list[Any] = []

                def loss(x: Any, kernel: Any = kernel, found: Any = found) -> Any:
                    found += [kernel(x).dtype, (x + scalar).dtype]
                    return kernel(x).sum()

                assert mixad.grad(loss)(x).dtype == x.dtype
                assert found == [want, want]


@pytest.mark.torch
@_no_torch
def test_numpy_scalars_beside_tensors_keep_their_values() -> None:
    import torch

    x = torch.tensor([1.0, 2.0])
    factor, kernel = np.float64(0.1), mixad.broadcast(lambda x, y: x * y)
    assert torch.equal(kernel(x, factor), x * 0.1)
    for factor in (np.float64(0.3), np.float64(0.7)):  # the program is there
        assert torch.equal(kernel(x, factor), x * float(factor))
        assert torch.equal(mixad.broadcast(lambda x: x * factor)(x), x * float(factor))  # noqa: B023
    with pytest.raises(OverflowError, match="300"):
        kernel(torch.ones(2, dtype=torch.uint8), np.int64(300))


@pytest.mark.torch
@_no_torch
def test_tensors_without_axes_are_computed_with_in_their_own_type() -> None:
    """As torch does: what has no axes is added in f64, the sum is rounded once."""
    import torch

    x = torch.ones(3, dtype=torch.float32)
    s, t = torch.tensor(1e9, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    got = mixad.broadcast(lambda x, s, t: x * (s + t - s))(x, s, t)
    assert got.dtype == torch.float32
    assert torch.equal(got, x * (s + t - s))
    condition = x > 0
    chosen = mixad.broadcast(lambda c, s, x: np.where(c, s, 0.0) * x)(condition, s, x)
    assert chosen.dtype == (torch.where(condition, s, 0.0) * x).dtype == torch.float64
    captured = mixad.broadcast(lambda x: x * (s + t - s))(x)
    assert captured.dtype == torch.float32


@pytest.mark.torch
@_no_torch
def test_the_gradient_of_a_tensor_without_axes_has_its_type() -> None:
    import torch

    x = torch.arange(3, dtype=torch.float32)
    s = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (x * s).sum().backward()
    for f in (lambda s: (x * s).sum(), lambda s: mixad.broadcast(lambda x, s: x * s)(x, s).sum()):
        gradient = mixad.grad(f)(s.detach())
        assert gradient.dtype == s.grad.dtype == torch.float64
        assert gradient == s.grad


@pytest.fixture
def torch_with_its_default():
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    yield torch
    torch.set_default_dtype(before)


@pytest.mark.torch
@pytest.mark.parametrize("change", [("float32", "float64"), ("float64", "float32")], ids="->".join)
def test_torchs_default_dtype_is_followed_when_it_changes(torch_with_its_default, change):
    torch = torch_with_its_default
    x = torch.arange(1, 5)
    of_elements = [
        lambda x: x * 0.1,
        lambda x: x / x,
        lambda x: x / 3,
        lambda x: 0.1 - x,
        lambda x: (x + 0.5) / x,
    ]
    kernels = [(f, mixad.broadcast(f)) for f in of_elements]
    captured, constant = mixad.broadcast(lambda w: x * w), mixad.broadcast(lambda x: (x, 0.5))
    for name in change:
        torch.set_default_dtype(getattr(torch, name))
        for function, kernel in kernels:
            expected = function(x)
            assert kernel(x).dtype == expected.dtype == getattr(torch, name)
            assert torch.equal(kernel(x), expected)
        assert constant(x)[1].dtype == torch.tensor(0.5).dtype
        for product in (lambda w: w * x, captured):
            value, slope = mixad.value_and_grad(lambda w: product(w).sum())(0.3)  # noqa: B023
            assert torch.equal(value, (0.3 * x).sum())
            assert value.dtype == (0.3 * x).sum().dtype
            assert slope == 10.0


@pytest.mark.torch
def test_a_default_dtype_of_torch_in_which_kernels_do_not_compute_is_refused(
    torch_with_its_default,
):
    torch = torch_with_its_default
    torch.set_default_dtype(torch.bfloat16)
    with pytest.raises(KernelTypeError, match=r"bfloat16(.|\n)*set_default_dtype"):
        mixad.broadcast(lambda x: x * 0.1)(torch.arange(3))


def test_the_square_of_booleans_is_refused_and_other_powers_are_integers() -> None:
    """Of arrays of booleans NumPy computes ``b ** 2`` as a square, which is an int8."""
    b = np.array([True, False])
    assert (b**2).dtype == np.int8
    for square in (lambda b: b**2, lambda b, n: b**n):
        given = (b, 2)[: square.__code__.co_argcount]
        with pytest.raises(KernelTypeError, match=r"`\*\*` of booleans"):
            mixad.broadcast(square)(*given)
    for power in (lambda b: b**3, lambda b: b**0, lambda b: np.power(b, 2), lambda b: int(b) ** 2):
        found = mixad.broadcast(power)(b)
        wanted = power(b) if power.__code__.co_names != ("int",) else b.astype(int) ** 2
        assert found.dtype == wanted.dtype == np.int64
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.rows("dtype", [d for d in DTYPES if d != "bool"])
def test_functions_and_quotients_of_any_dtype(library: Any, dtype: str) -> None:
    """Of integers, libraries make floats of different widths, or none."""
    x = library.array(dtype, (2,))
    for kernel, function in (
        (mixad.broadcast(lambda x: math.sin(x)), library.xp.sin),
        (mixad.broadcast(lambda x: x / x), lambda x: x / x),
    ):
        try:
            want = function(x).dtype
        except TypeError:
            with pytest.raises(TypeError):
                kernel(x)
        else:
            assert kernel(x).dtype == want
