"""Inside a transform functions have the values that they have outside, at special values too."""

from __future__ import annotations

import functools
import importlib.util
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.namespace.spellings import NUMPY

pytestmark = pytest.mark.filterwarnings("ignore:.*does not depend on:UserWarning")
"""Of comparisons."""

HAS_TORCH = importlib.util.find_spec("torch") is not None

VALUES = [
    -np.inf, np.inf, np.nan, -0.0, 0.0, -1.0, 1.0, -2.0, 2.0, -0.5, 0.5, 3.0, -8.0, 7.3, -7.3,
    170.6, 1e5, 1e17, 1e-310, -1e-310, 1e-40, 5e-8, 1e-200, 1e300, -1e300
]  # fmt: skip
"""Infinities, zeros, nan; subnormal and large ones of each format; whole numbers and halves."""

OPERATORS = {
    name: getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow neg pos abs".split()
} | {"divmod": divmod}
OF_ONE = {"neg", "pos", "abs"}

UNSURE_OF_SIGN = frozenset(
    "maximum minimum fmax fmin clip clamp clamp_min clamp_max nextafter".split()
)
"""Of two zeros, libraries choose either, by the instructions at hand."""


@functools.cache
def _pairs() -> tuple[np.ndarray, np.ndarray]:
    first, second = np.meshgrid(VALUES, VALUES, indexing="ij")
    return first.ravel(), second.ravel()


def _check(function: Callable[..., Any], arrays: tuple[Any, ...], has_sign: bool = True) -> None:
    with np.errstate(all="ignore"):
        want = function(*arrays)
        got = mixad.vjp(function, *arrays)[0]
    several = isinstance(want, tuple)
    for g, w in zip(got, want, strict=True) if several else [(got, want)]:
        assert g.dtype == w.dtype
        _compare(np.asarray(g), np.asarray(w), has_sign)


def _compare(got: np.ndarray, want: np.ndarray, has_sign: bool) -> None:
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want)
        return
    limits = np.finfo(want.dtype)
    np.testing.assert_allclose(
        got, want, rtol=1024 * float(limits.eps), atol=4 * float(limits.smallest_subnormal)
    )
    if has_sign:
        zero = want == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def _cast(values: Any, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


UFUNCS = [
    name
    for name in NUMPY.functions
    if isinstance(getattr(np, name, None), np.ufunc) and getattr(np, name).signature is None
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.rows("name", UFUNCS)
def test_a_function_of_numpy_has_its_values_at_special_ones(name: str, dtype: str) -> None:
    function = getattr(np, name)
    if name == "logaddexp2" and dtype == "f2":
        pytest.skip("NumPy computes it in 16 bits, which lose a thousandth")
    arrays = _pairs() if function.nin == 2 else (VALUES,)
    _check(function, tuple(_cast(a, dtype) for a in arrays), name not in UNSURE_OF_SIGN)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.rows("name", OPERATORS)
def test_an_operator_of_numpy_has_its_values_at_special_ones(name: str, dtype: str) -> None:
    arrays = (VALUES,) if name in OF_ONE else _pairs()
    _check(OPERATORS[name], tuple(_cast(a, dtype) for a in arrays))


EXPONENTS = [
    0.5, -0.5, 2, 2.0, -1, -1.0, 0, 0.0, 1, 1.0, 3, -3.0, 1.5, 0.25, True, np.inf, -np.inf, np.nan,
    np.float64(0.5), np.float32(0.5), np.float64(-0.5), np.int64(2), np.array(0.5), np.array([0.5]),
    np.array(0.5, "f4"), np.array([[0.5]]), np.array(2.0), np.array([-1.0]),
]  # fmt: skip

POWERS: dict[str, Callable[..., Any]] = {
    "x ** n": operator.pow,
    "x **= n": lambda x, n: operator.ipow(x * 1, n),
    "np.power(x, n)": np.power,
    "n ** x": lambda x, n: n**x,
}


def _bases(dtype: str) -> list[Any]:
    with np.errstate(all="ignore"):
        many = np.asarray(VALUES).astype(dtype)
    zero, inf = np.array(-0.0, dtype), np.array(-np.inf, dtype)
    return [many, zero, inf, zero[()], inf[()], zero[None], inf[None, None]]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.rows("called", POWERS)
def test_numpys_powers_of_one_exponent_are_roots_where_numpy_takes_them(
    called: str, dtype: str
) -> None:
    for base in _bases(dtype):
        for exponent in EXPONENTS:
            if called == "x **= n" and np.ndim(exponent) and np.size(base) == 1:
                continue  # by the layout of what the result is written to
            if called == "x **= n" and np.ndim(exponent) > np.ndim(base):
                continue  # there is no place for the result
            _check(lambda x, n=exponent: POWERS[called](x, n), (base,))


@pytest.mark.parametrize("shape", [(), (1,), None])
def test_a_root_by_a_traced_exponent_is_one_and_has_the_derivative_of_a_power(shape: Any) -> None:
    x, half = np.array([-np.inf, -0.0, 4.0, 9.0]), 0.5 if shape is None else np.full(shape, 0.5)
    _check(operator.pow, (x, half))
    gradient = mixad.grad(lambda n: (x[2:] ** n).sum())(half)
    np.testing.assert_allclose(np.sum(gradient), (x[2:] ** 0.5 * np.log(x[2:])).sum(), rtol=1e-14)


if HAS_TORCH:
    import torch

    from mixad.namespace.common_spellings import COMMON
    from mixad.namespace.spellings import torch_spelling
    from mixad.namespace.torch_activations import TORCH_ACTIVATIONS
    from mixad.namespace.torch_elementwise import TORCH_ELEMENTWISE

    TORCH_FUNCTIONS: dict[str, Callable[..., Any]] = {
        **{name: getattr(torch, name, None) for name in (*COMMON, *TORCH_ELEMENTWISE)},
        **{
            f"special_{name}": getattr(torch.special, name, None)
            for name in (n.removeprefix("special_") for n in TORCH_ELEMENTWISE)
        },
        **{f"nn.{name}": getattr(torch.nn.functional, name, None) for name in TORCH_ACTIVATIONS},
    }
    TORCH_FUNCTIONS = {
        name: function
        for name, function in TORCH_FUNCTIONS.items()
        if function is not None
        and name.replace("nn.", "nn.functional.") in torch_spelling().functions
    }
else:
    TORCH_FUNCTIONS = {}

OTHERS = frozenset(
    "matmul complex polygamma special_polygamma nn._threshold nn.glu nn.softmax nn.softmin "
    "nn.log_softmax".split()
)
"""Functions that are not of one element, or not of floats only."""

TORCH_IS_LESS_EXACT = {
    **dict.fromkeys(
        ("i0", "special_i0", "special_i1", "special_modified_bessel_i0",
         "special_modified_bessel_i1", "special_zeta", "nn.softsign", "nn.hardswish"),
        "nan of infinity",
    ),
    **dict.fromkeys(
        ("special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1",
         "special_ndtr", "special_gammainc", "special_gammaincc", "sinc", "special_sinc",
         "logaddexp2", "nn.gelu"),
        "fewer digits",
    ),
    "fmod": "x - trunc(x / y) * y, which overflows",
    "remainder": "so has the sign of zero of another rule",
    "special_i1e": "0.0 of -0.0",
    "special_ndtri": "0.0 of -0.0",
    "special_entr": "0.0 of 0.0",
    "nn.softshrink": "0.0 of -0.0",
    **dict.fromkeys(("relu", "nn.relu", "nn.relu6"), "-0.0 of -0.0"),
}  # fmt: skip
"""Where torch's values are not taken for exact; the rest has the same ones."""


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.rows("name", sorted(TORCH_FUNCTIONS.keys() - TORCH_IS_LESS_EXACT.keys() - OTHERS))
def test_a_function_of_torch_has_its_values_at_special_ones(name: str, dtype: str) -> None:
    function = TORCH_FUNCTIONS[name]
    try:
        function(torch.ones(1))
    except (TypeError, ValueError, RuntimeError):  # it takes two
        arrays: tuple[Any, ...] = _pairs()
    else:
        arrays = (VALUES,)
    tensors = tuple(torch.tensor(a, dtype=torch.float64).to(getattr(torch, dtype)) for a in arrays)
    _check(function, tensors, name not in UNSURE_OF_SIGN)


def _in_numpy(x: Any) -> np.ndarray:
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_torchs_powers_of_a_half_are_roots_where_torch_takes_them(dtype: str) -> None:
    x = torch.tensor([-np.inf, -0.0, 0.0, np.inf, np.nan, 4.0], dtype=getattr(torch, dtype))
    for exponent in (0.5, -0.5, 2.0, -1.0, -2.0, 1.5, torch.tensor(0.5)):
        for base in (x, x[0], x[1]):
            for power in (operator.pow, torch.pow, lambda x, n: x.pow(n)):
                want = power(base, exponent)
                traced = mixad.vjp(power, base, exponent)[0]
                constant = mixad.vjp(lambda x, n=exponent, power=power: power(x, n), base)[0]
                for got in (traced, constant):
                    _compare(_in_numpy(got), _in_numpy(want), has_sign=True)
