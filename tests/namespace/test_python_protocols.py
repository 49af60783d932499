"""Tracers as Python objects: what they are to bool, len, in, copy and the like."""

from __future__ import annotations

import copy
import functools
import importlib.util
import inspect
import math
import operator
import pickle
import re
import statistics
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.errors import MixadError, TracerError
from mixad.tape.constant import is_traced

HAS_TORCH = importlib.util.find_spec("torch") is not None
X = np.asarray([0.5, -1.5, 2.0])


def inside(use: Any, x: Any = X) -> Any:
    """Return what ``use`` returns for a tracer inside of a gradient."""
    found = []
    mixad.grad(lambda x: [found.append(use(x)), x.sum()][1])(x)
    return found[0]


# -- what looks at values ------------------------------------------------------------------------


@pytest.mark.rows(
    "use",
    [
        len,
        lambda x: bool(x[0]),
        lambda x: bool(x[1] - x[1]),
        lambda x: int(x[2]),
        lambda x: int(x[1]),
        lambda x: [round(a) for a in x],
        lambda x: [f(a) for a in x for f in (math.trunc, math.floor, math.ceil)],
        lambda x: 2.0 in x,
        lambda x: 7.0 in x,
        lambda x: 2.0 in x.reshape((3, 1)),
        lambda x: X[1] in x,
        lambda x: x[0] in [1.0, 0.5],
        lambda x: [a > 0 for a in x],
        lambda x: (x == X).all(),
        lambda x: (x == [0.5, 0.0, 2.0]).tolist(),
        lambda x: (x != None).tolist(),  # noqa: E711
        lambda x: (x < x[::-1]).tolist(),
        lambda x: x[0] < 1 < x[2],
        lambda x: 1 if x[0] else 2,
        lambda x: not x[0],
        lambda x: f"{x[0]:.2f} {x[1]:>8.1e}",
        lambda x: x.ndim + x.size + len(x.shape),
    ],
)
def test_what_looks_at_values_sees_those_of_the_array(use: Any) -> None:
    found = inside(use)
    assert found == use(X)
    assert not is_traced(found)


@pytest.mark.parametrize("use", [max, min, sum, lambda x: sorted(x)[1], lambda x: x[0] and x[1]])
def test_python_functions_that_compare_and_add_keep_the_derivative(use: Any) -> None:
    kept = inside(lambda x: mixad.value_and_grad(lambda y: use(y * y))(mixad.stop_gradient(x)))
    weights = {max: [0, 0, 4], min: [1, 0, 0], sum: [1, -3, 4]}.get(use, [0, -3, 0])
    np.testing.assert_array_equal(kept[1], weights)


STATISTICS = {
    "mean": lambda x: np.mean(x),
    "fmean": lambda x: np.mean(x),
    "geometric_mean": lambda x: np.exp(np.mean(np.log(x))),
    "harmonic_mean": lambda x: 1 / np.mean(1 / x),
    "stdev": lambda x: np.std(x, ddof=1),
    "variance": lambda x: np.var(x, ddof=1),
    "pstdev": lambda x: np.std(x),
    "pvariance": lambda x: np.var(x),
    "mode": lambda x: x[np.argmax((x[:, None] == x).sum(1))],
}


@pytest.mark.rows(("name", "instead"), STATISTICS.items(), ids=STATISTICS.keys())
def test_statistics_of_python_are_refused_with_what_to_write(name: str, instead: Any) -> None:
    function, x = getattr(statistics, name), X[[0, 2]]
    for use in (function, lambda x: function(list(x)), lambda x: function(x[k] for k in (0, 1))):
        with pytest.raises(
            TracerError, match=rf"^statistics\.{name}\(\) of .* np\.stack"
        ) as caught:
            mixad.grad(use)(x)
        code = inspect.getsource(instead).partition("lambda x: ")[2].strip(",\n")
        assert f"use {code}, of a list" in str(caught.value)
    value, gradient = mixad.value_and_grad(lambda x: instead(np.stack([x[0], x[1]])))(x)
    np.testing.assert_allclose(value, function(x), rtol=1e-14)
    step = 1e-6 * np.eye(2)
    slopes = [(function(x + d) - function(x - d)) / 2e-6 for d in step]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-8)


def test_other_statistics_keep_the_derivative_or_are_refused() -> None:
    np.testing.assert_array_equal(mixad.grad(statistics.median)(X), [1.0, 0.0, 0.0])
    with pytest.raises(TracerError, match=r"covariance\(\) of .* use functions of NumPy"):
        mixad.grad(lambda x: statistics.covariance(x, x))(X)
    with pytest.raises(TracerError, match=r"multimode\(\) of .* use functions of NumPy"):
        mixad.grad(lambda x: statistics.multimode(x)[0])(X)
    with pytest.raises(TracerError, match=r"^as_integer_ratio\(\) of"):
        mixad.grad(lambda x: x[0].as_integer_ratio()[0])(X)


@pytest.mark.rows(
    "use",
    [
        lambda x: {x[0]: 1.0}[x[0]] * x[0],
        lambda x: x[0] if x[0] in {1.0} else x[1],
        lambda x: len(set(x)) * x[0],
        lambda x: functools.cache(np.sin)(x[0]),
    ],
)
def test_what_is_traced_is_no_key_what_is_constant_is_one_as_in_numpy(use: Any) -> None:
    with pytest.raises(TracerError, match=r"^hash\(\) of a value that is being differentiated"):
        mixad.grad(use)(X)
    assert mixad.grad(lambda x: x[0] * use(mixad.stop_gradient(x)))(X)[0] == use(X)
    assert mixad.grad(lambda x: x[0] * use(np.full_like(x, 2.0)))(X)[0] == use(np.full(3, 2.0))
    with pytest.raises(TypeError, match=r"unhashable type: 'numpy.ndarray'"):
        mixad.grad(lambda x: x[0] * hash(np.zeros_like(x)))(X)


@pytest.mark.rows(
    "use",
    [
        lambda x: x - [1.0, 2.0, 3.0],
        lambda x: [1.0, 2.0, 3.0] - x,
        lambda x: x * (2, 3, 4),
        lambda x: x @ [1.0, 2.0, 3.0],
        lambda x: [[1.0, 2.0, 3.0]] @ x,
        lambda x: x ** [2.0, 3.0, 4.0],
        lambda x: divmod(x, 0.7)[1] * divmod(x, 0.7)[0],
        lambda x: divmod([0.7, 2.0, 4.1], x)[1],
    ],
)
def test_lists_and_pairs_of_python_are_taken_as_numpy_takes_them(use: Any) -> None:
    step = 1e-6
    value, gradient = mixad.value_and_grad(lambda x: use(x).sum())(X)
    assert value == use(X).sum()
    for at in range(3):
        ends = [use(X + sign * step * np.eye(3)[at]).sum() for sign in (1, -1)]
        np.testing.assert_allclose(gradient[at], (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_size_of_a_tensor_is_a_method() -> None:
    import torch

    x = torch.ones(2, 3)
    for use in (lambda x: x.size(), lambda x: x.size(0), lambda x: x.size(dim=-1)):
        assert inside(use, x) == use(x)


INSTEAD = {
    "t": "x.T",
    "flatten": "x.reshape(-1)",
    "dim": "x.ndim",
    "ndimension": "x.ndim",
    "clone": "x * 1",
    "copy": "x * 1",
    "contiguous": "x",
    "nelement": "x.size",
}


@pytest.mark.rows("name", INSTEAD)
def test_methods_are_those_of_the_library_others_say_what_does_the_same(name: str) -> None:
    arrays = [np.arange(6.0).reshape(2, 3), array_api_strict.ones((2, 3))]
    if HAS_TORCH:
        import torch

        arrays.append(torch.arange(6.0).reshape(2, 3))
    for x in arrays:
        if hasattr(x, name):
            found = inside(lambda x: mixad.stop_gradient(getattr(x, name)()), x)
            np.testing.assert_array_equal(found, getattr(x, name)())
        else:
            with pytest.raises(AttributeError, match=f"use {re.escape(INSTEAD[name])}"):
                inside(lambda x: getattr(x, name), x)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_methods_that_change_a_tensor_are_refused_as_that() -> None:
    import torch

    with pytest.raises(AttributeError, match=r"'normal_'.*use x \+= y and the like"):
        inside(lambda x: x.normal_, torch.ones(3))


def test_equal_to_what_is_no_number_is_what_the_library_says() -> None:
    assert not inside(lambda x: x == "text").any()
    assert inside(lambda x: x != object()).all()


@pytest.mark.rows(
    ("use", "error", "match"),
    [
        (bool, ValueError, "ambiguous"),
        (lambda x: len(x.sum()), TypeError, r"len\(\) of a 0-d array"),
        (lambda x: iter(x.sum()), TypeError, "iteration over a 0-d array"),
        (hash, TracerError, r"^hash\(\) of a value"),
        (lambda x: {x[0]: 1}, TracerError, r"^hash\(\) of a value"),
        (lambda x: [1, 2, 3][x[2]], TypeError, "integers or slices"),
        (lambda x: range(x[2]), TypeError, "integer"),
        (lambda x: X[x[2]], TypeError, "conversion to a NumPy array"),
        (lambda x: f"{x:.2f}", TypeError, "format"),
        (lambda x: x < None, TypeError, "not supported"),
        (lambda x: x + "text", TypeError, "unsupported operand"),
        (lambda x: x + None, TypeError, "unsupported operand"),
        (lambda x: x * [None, 2.0, 3.0], TypeError, "dtype object"),
        (lambda x: round(x[0], 2), TypeError, r"round\(\) to digits"),
        (round, TypeError, "scalar"),
        (lambda x: ~x, TypeError, "bad operand"),
        (lambda x: x & 1, TypeError, "unsupported operand"),
        (lambda x: x @ 2.0, TypeError, "unsupported operand"),
        (lambda x: x[5], IndexError, "out of bounds"),
        (lambda x: x[0, 0], IndexError, "too many indices"),
        (lambda x: setattr(x, "shape", (3, 1)), AttributeError, "shape"),
        (memoryview, TypeError, "bytes-like"),
    ],
)
def test_what_arrays_refuse_tracers_refuse(use: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        inside(use)


# -- what would lose the derivative --------------------------------------------------------------

LEAKS = {
    "float": (lambda x: float(x[0]), r"float\(\)"),
    "complex": (lambda x: complex(x[0]), r"complex\(\)"),
    "item": (lambda x: x[0].item(), r"item\(\)"),
    "tolist": (lambda x: x.tolist(), r"tolist\(\)"),
    "math": (lambda x: math.sin(x[0]), r"np\.exp\(x\) for math\.exp\(x\)"),
    "percent": (lambda x: "%f" % x[0], r"float\(\)"),  # noqa: UP031
    "array": (np.asarray, "conversion to a NumPy array"),
    "array of objects": (lambda x: np.asarray(x, dtype=object), "conversion to a NumPy array"),
    "array of a list": (lambda x: np.asarray([x[0], x[1]]), "conversion to a NumPy array"),
    "numpy scalar": (lambda x: np.float64(x[0]), "conversion to a NumPy array"),
    "fill": (lambda x: np.full(3, x[0]), "conversion|NumPy array|float"),
    "dlpack": (np.from_dlpack, "DLPack"),
    "strict": (array_api_strict.asarray, "conversion to a NumPy array"),
    "pickle": (pickle.dumps, "pickling"),
}


@pytest.mark.rows(("leak", "match"), LEAKS.values(), ids=LEAKS.keys())
def test_what_would_lose_the_derivative_is_refused(leak: Any, match: str) -> None:
    with pytest.raises(TracerError, match=rf"{match}[^$]*stop_gradient\(x\)"):
        inside(leak)


@pytest.mark.parametrize("at", [0, (1, 2), slice(0, 1), ...])
def test_writing_into_an_array_of_numpy_is_refused_as_what_it_is(at: Any) -> None:
    def loss(x: Any) -> Any:
        out = np.zeros((3, 3) if isinstance(at, tuple) else 3)
        out[at] = x[0]
        return x.sum()

    with pytest.raises(TracerError, match="would lose its derivative"):
        mixad.grad(loss)(X)
    with pytest.raises(ValueError, match=r"^mine$"):  # others pass as they are
        mixad.grad(lambda x: _raise(ValueError("mine")))(X)


def _raise(error: Exception) -> Any:
    raise error


def test_copies_carry_the_derivative() -> None:
    for copied in (copy.copy, copy.deepcopy, lambda x: copy.deepcopy({"x": [x]})["x"][0]):
        gradient = mixad.grad(lambda x, copied=copied: (copied(x) * x).sum())(X)
        np.testing.assert_array_equal(gradient, 2 * X)


def test_a_model_that_is_copied_is_differentiated() -> None:
    def loss(weights: Any) -> Any:
        other = copy.deepcopy(weights)
        return (weights["w"] * other["w"]).sum() + other["b"]

    gradient = mixad.grad(loss)({"w": X, "b": 1.0})
    np.testing.assert_array_equal(gradient["w"], 2 * X)
    assert gradient["b"] == 1.0


# -- in place ------------------------------------------------------------------------------------

IN_PLACE = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv,
    "//": operator.ifloordiv, "%": operator.imod, "**": operator.ipow, "@": operator.imatmul,
}  # fmt: skip


@pytest.mark.rows("symbol", IN_PLACE)
def test_arrays_are_changed_under_all_their_names(symbol: str) -> None:
    y = np.eye(3) + 0.5 if symbol == "@" else 0.25 * X + 1.0

    def f(x: Any) -> Any:
        z = x * 1.0 + 2.0
        other = z
        z = IN_PLACE[symbol](z, y)
        return (other * z).sum()

    value, gradient = mixad.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-14)
    steps = 1e-6 * np.eye(3)
    want = [(f(X + s) - f(X - s)) / 2e-6 for s in steps]
    np.testing.assert_allclose(gradient, want, rtol=1e-6, atol=1e-7)


@pytest.mark.rows("symbol", [s for s in IN_PLACE if s != "@"])
def test_numbers_are_bound_anew(symbol: str) -> None:
    def f(x: Any) -> Any:
        total = y = x * 1.5
        total = IN_PLACE[symbol](total, x)
        return total * y  # `y` keeps its value, as NumPy's scalars do

    for x in (1.75, np.float64(1.75)):
        value, gradient = mixad.value_and_grad(f)(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-15)
        np.testing.assert_allclose(gradient, (f(x + 1e-7) - f(x - 1e-7)) / 2e-7, rtol=1e-6)


def test_a_sum_is_accumulated_in_a_loop() -> None:
    def loss(x: Any) -> Any:
        total = 0
        for row in x:
            total += row * row
        return total

    np.testing.assert_array_equal(mixad.grad(loss)(X), 2 * X)
    strict = array_api_strict.asarray(X)
    np.testing.assert_array_equal(np.from_dlpack(mixad.grad(loss)(strict)), 2 * X)


def test_a_0d_array_of_another_library_is_changed_under_all_its_names() -> None:
    def loss(x: Any) -> Any:
        total = first = x[0] * 2.0
        total += x[1]
        return total * first  # (2 x0 + x1)^2

    gradient = mixad.grad(loss)(array_api_strict.asarray(X))
    total = 2 * X[0] + X[1]
    np.testing.assert_array_equal(np.from_dlpack(gradient), [4 * total, 2 * total, 0])


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_numbers_in_place_are_what_torch_computes() -> None:
    import torch

    def loss(x: Any) -> Any:
        total = x.sum()
        for row in x:
            total += row * row
            total *= 1.0 + row
        return total

    x = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
    value, gradient = mixad.value_and_grad(loss)(x)
    x.requires_grad_()
    want = loss(x)
    (slope,) = torch.autograd.grad(want, x)
    torch.testing.assert_close(value, want.detach())
    torch.testing.assert_close(gradient, slope)

    def aliased(x: Any) -> Any:
        total = first = x.sum()
        total *= x[0]
        return total + first

    s, first = x.detach().sum(), x.detach()[0]  # the value is twice their product
    torch.testing.assert_close(mixad.grad(aliased)(x.detach())[0], 2 * (first + s))
    for change in (
        lambda a, x: operator.iadd(a, x),
        lambda a, x: a.mul_(x),
        lambda a, x: a[0].copy_(x[0]),
        lambda a, x: a.__setitem__(slice(2), x[:2]),
    ):
        with pytest.raises(
            MixadError, match="would lose its derivative: make the array with zeros_like"
        ):
            inside(lambda x, change=change: change(torch.ones(3, dtype=x.dtype), x), x.detach())
