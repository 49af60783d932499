"""NumPy's functions of Python numbers give NumPy's scalars, whose dtypes count beside arrays."""

import math
import warnings

import numpy as np
import pytest

import mixad
from mixad import special
from mixad.errors import KernelError

DTYPES = ("int8", "int64", "uint64", "float32", "float64")
NUMBERS = {"float": 0.75, "int": 2, "bool": True}
ONE = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsinh sinh cosh tanh sqrt cbrt square abs "
    "absolute fabs sign negative positive floor ceil trunc rint round fix degrees radians deg2rad "
    "rad2deg sinc isnan isinf isfinite signbit logical_not reciprocal"
).split()
TWO = (
    "add subtract multiply divide power float_power maximum minimum fmin fmax hypot arctan2 "
    "logaddexp logaddexp2 copysign fmod mod remainder floor_divide heaviside nextafter less "
    "greater_equal equal not_equal logical_and logical_or isclose"
).split()


def of_one(name):
    function = getattr(np, name)
    return lambda n, x: function(n)


def of_two(name, beside):
    function = getattr(np, name)
    return (lambda n, x: function(n, x)) if beside else (lambda n, x: function(n, n))


FUNCTIONS = {
    **{name: of_one(name) for name in ONE},
    **{f"{name}(n, n)": of_two(name, False) for name in TWO},
    **{f"{name}(n, x)": of_two(name, True) for name in TWO},
    "clip(n, x, None)": lambda n, x: np.clip(n, x, None),
    "clip(n, None, x)": lambda n, x: np.clip(n, None, x),
    "clip(x, n, None)": lambda n, x: np.clip(x, n, None),
    "clip(n, n, n)": lambda n, x: np.clip(n, n, n),
    "where(c, n, n)": lambda n, x: np.where(x > 0, n, n),
    "where(c, n, x)": lambda n, x: np.where(x > 0, n, x),
    "operators": lambda n, x: n * n + 1,
}


def dtype_of(function, *args):
    """Return the dtype of a result, None where it is refused."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return np.asarray(function(*args)).dtype
        except (TypeError, ValueError, OverflowError, KernelError):
            return None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.rows("kind", NUMBERS)
@pytest.mark.rows("name", FUNCTIONS)
def test_result_types_are_those_of_numpy(name, kind, dtype):
    function, n, x = FUNCTIONS[name], NUMBERS[kind], np.ones(2, dtype)
    expected = dtype_of(lambda x: function(n, x) * x, x)
    captured = dtype_of(mixad.broadcast(lambda x: function(n, x) * x, backend="reference"), x)
    given = dtype_of(mixad.broadcast(lambda n, x: function(n, x) * x, backend="reference"), n, x)
    assert captured == given
    assert captured in (expected, None)
    if kind == "float" and x.dtype.kind == "f":
        assert captured is not None


# -- traced Python floats, outside of kernels ------------------------------------------------------

X = np.ones(3, "f4")
TRACED = {
    "exp": lambda s: (np.exp(s) * X).sum(),
    "square": lambda s: (np.square(s) * X).sum(),
    "positive": lambda s: (np.positive(s) * X).sum(),
    "maximum": lambda s: (np.maximum(s, 0.5) * X).sum(),
    "maximum beside": lambda s: np.maximum(s, X).sum(),
    "clip": lambda s: (np.clip(s, 0.0, 2e2) * X).sum(),
    "where": lambda s: np.where(X > 0, s, 0.0).sum(),
    "stack": lambda s: (np.stack([s, s, s]) * X).sum(),
    "sum": lambda s: (np.sum(s) * X).sum(),
    "operators": lambda s: ((s * s + 2 * s) / 3 * X).sum(),
    "abs": lambda s: (abs(s) * X).sum(),
    "namespace": lambda s: (mixad.namespace_of(np).exp(s) * X).sum(),
    "result": lambda s: np.exp(s),
}


@pytest.mark.rows("name", TRACED)
@pytest.mark.rows("s", [1.5, 100.0])
def test_values_of_traced_python_floats_have_the_type_that_numpy_gives(name, s):
    f = TRACED[name]
    with np.errstate(over="ignore"):
        expected = f(s)
    value, slope = mixad.value_and_grad(f)(s)
    assert np.asarray(value).dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert type(slope) is float
    if expected.dtype == np.float64:
        h = 1e-6 * s
        np.testing.assert_allclose(slope, (f(s + h) - f(s - h)) / (2 * h), rtol=1e-5)


@pytest.mark.rows("function", [math.exp, special.exp, special.sinc, math.degrees, abs, float])
def test_what_is_a_python_number_of_python_numbers_adapts_in_a_kernel(function):
    assert mixad.broadcast(lambda x: function(3.0) * x)(X).dtype == np.float32


# -- kernels called with Python numbers only -------------------------------------------------------


@pytest.mark.rows(
    "function",
    [
        lambda x: np.exp(x),
        lambda x: math.exp(x),
        lambda x: x * 2,
        lambda x: np.isnan(x),
        lambda x: np.float32(2) * x,
        lambda x: x > 0,
    ],
    ids=["numpy", "math", "operator", "truth", "float32", "comparison"],
)
def test_a_kernel_of_python_numbers_gives_what_the_function_does(function):
    kernel = mixad.broadcast(function)
    assert type(kernel(3.0)) is type(function(3.0))
    assert (kernel(3.0) * X).dtype == (function(3.0) * X).dtype


def test_so_does_a_kernel_of_a_traced_python_float():
    kernel = mixad.broadcast(lambda x: (np.exp(x), x * x))
    f, g = (lambda s, i=i: (kernel(s)[i] * X).sum() for i in range(2))
    assert mixad.value_and_grad(f)(1.5)[0].dtype == f(1.5).dtype == np.float64
    assert mixad.value_and_grad(g)(1.5)[0].dtype == g(1.5).dtype == np.float32
