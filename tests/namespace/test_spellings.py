"""Functions of NumPy and torch on values that are differentiated: answered or refused by name."""

from __future__ import annotations

import functools
import importlib.util
import operator
import re
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad import pytree
from mixad.errors import MixadError, TracerError
from mixad.namespace.common_spellings import COMMON
from mixad.namespace.names import FUNCTIONS
from mixad.namespace.spellings import NUMPY
from mixad.namespace.torch_spellings import TORCH

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

X = np.asarray([[0.3, 0.55, 0.8], [0.9, 0.35, 0.6]])
ABOVE_ONE = ("acosh", "arccosh")
NOT_ELEMENTWISE = (
    "sum mean reshape transpose matrix_transpose permute astype matmul positive modf "
    "unique_all unique_counts unique_inverse unique_values".split()
)


def operands(spelling: Any, name: str) -> int:
    """Return how many arrays an elementwise function takes."""
    found = spelling.functions[name]
    return len(found.parameters[: found.nameless or found.by_place])


def of_two(spelling: Any, name: str) -> bool:
    return operands(spelling, name) == 2


def elementwise_names(spelling: Any) -> list[str]:
    """Return the names of those that libraries have in common."""
    common = {f.evaluate for f in COMMON.values()} | {spelling.functions["conj"].evaluate}
    with_options = ("add", "sub", "subtract", "div", "divide", "true_divide", "reciprocal", "cbrt")
    found = (
        n for n, f in spelling.functions.items() if f.evaluate in common or n in with_options
        or f.evaluate.__qualname__.startswith("unary.")
    )  # fmt: skip
    return sorted(n for n in found if n not in NOT_ELEMENTWISE and "linalg" not in n)


def points(name: str) -> Any:
    return X + 1.1 if name in ABOVE_ONE else X


# -- names of the standard that the libraries have too ---------------------------------------------

ASK_NOBODY = set(
    "__array_namespace_info__ arange asarray broadcast_shapes empty eye fft.fftfreq fft.rfftfreq "
    "finfo from_dlpack iinfo isdtype ones zeros".split()
)
"""Functions that take no arrays, or make arrays of what they take without asking it."""

OF_NUMBERS_IN_TORCH = set("full linspace".split())
"""Refused: their dtype is torch's default one, whatever the dtypes of their arguments are."""


def lacking(spelling: Any, names_there: Any) -> set[str]:
    """Return the names of the standard that a library has and its table has not."""
    known = spelling.functions.keys() | spelling.constant
    return {
        name
        for name in FUNCTIONS - ASK_NOBODY
        if (there := names_there(name)) is not None and there not in known
    }


def test_numpys_functions_of_the_standard_are_in_its_table() -> None:
    def there(name: str) -> str | None:
        function = functools.reduce(lambda m, n: getattr(m, n, None), name.split("."), np)
        return None if function is None else NUMPY.name_of(function)

    assert lacking(NUMPY, there) == set()


@pytest.mark.torch
@needs_torch
def test_torchs_functions_of_the_standard_are_in_its_table() -> None:
    import torch

    def there(name: str) -> str | None:
        function = functools.reduce(lambda m, n: getattr(m, n, None), name.split("."), torch)
        return None if function is None else TORCH.name_of(function)

    assert lacking(TORCH, there) == OF_NUMBERS_IN_TORCH | {"can_cast"}  # which takes dtypes only


GIVE_NO_FLOATS = {
    "isin": lambda xp, x: xp.isin(x, x[1:]),
    "result_type": lambda xp, x: xp.result_type(x, x),
    "searchsorted": lambda xp, x: xp.searchsorted(x, x[1:]),
    "linalg.matrix_rank": lambda xp, x: xp.linalg.matrix_rank(x[:, None] * x),
}


@pytest.mark.rows("name", GIVE_NO_FLOATS)
@pytest.mark.rows("library", [
    "numpy", pytest.param("torch", marks=[pytest.mark.torch, needs_torch])
])  # fmt: skip
def test_functions_that_give_no_floats_get_the_values(name: str, library: str) -> None:
    xp, call, found = importlib.import_module(library), GIVE_NO_FLOATS[name], []
    x = xp.asarray([0.5, 1.5, 2.5])

    def loss(x: Any) -> Any:
        found.append(call(xp, x))
        return x.sum()

    mixad.grad(loss)(x)
    want = call(xp, x)
    assert type(found[0]) is type(want)
    np.testing.assert_array_equal(found[0], want)


def test_numpys_unique_values_share_the_cotangent() -> None:
    x = np.asarray([2.0, 1.0, 2.0])
    functions = (
        np.unique_values,
        lambda x: np.unique_all(x).values,
        lambda x: np.unique_counts(x).values,
        lambda x: np.unique_inverse(x).values,
    )
    for unique in functions:
        np.testing.assert_array_equal(
            mixad.grad(lambda x: (np.sort(unique(x)) ** 2).sum())(x), [2.0, 2.0, 2.0]  # noqa: B023
        )  # fmt: skip


def test_unique_all_of_numpy_has_all_its_fields() -> None:
    x = np.asarray([2.0, 1.0, 2.0])

    def loss(x: Any) -> Any:
        found, want = np.unique_all(x), np.unique_all(mixad.stop_gradient(x))
        for field in want._fields:
            np.testing.assert_array_equal(
                mixad.stop_gradient(getattr(found, field)), getattr(want, field)
            )
        return found.values.sum()

    np.testing.assert_array_equal(mixad.grad(loss)(x), [0.5, 1.0, 0.5])


def test_operations_on_bits_are_refused_by_the_library() -> None:
    for f in (lambda x: np.bitwise_and(x, x), np.invert, lambda x: np.left_shift(x, 1)):
        with pytest.raises(TypeError, match="not supported for the input types"):
            mixad.grad(lambda x: (f(x), x.sum())[1])(np.ones(3))  # noqa: B023


@pytest.mark.torch
@needs_torch
def test_full_like_of_torch() -> None:
    import torch

    x = torch.asarray([0.5, 1.5, 2.5])
    found: list[Any] = []

    def loss(x: Any) -> Any:
        found.append(torch.full_like(x, 3, dtype=torch.float64))
        return (torch.full_like(x, x[1] ** 2) * torch.full_like(x, 2.0)).sum()

    torch.testing.assert_close(mixad.grad(loss)(x), torch.asarray([0.0, 18.0, 0.0]))
    torch.testing.assert_close(
        mixad.stop_gradient(found[0]), torch.full_like(x, 3, dtype=torch.float64)
    )


# -- elementwise -----------------------------------------------------------------------------------


@pytest.mark.rows("name", elementwise_names(NUMPY))
def test_numpys_elementwise_functions(name: str) -> None:
    function = getattr(np, name)
    x, a = points(name), np.asarray([1.7, 2.23, 0.44])
    calls = [lambda x: function(x)]
    if of_two(NUMPY, name):
        calls = [lambda x: function(x, a), lambda x: function(a, x), lambda x: function(x, 2.0)]
        calls += [lambda x: function(x, a.tolist()), lambda x: function(tuple(a), x)]
    for call in calls:
        want, found = call(x), []

        def loss(x: Any, call: Any = call, found: Any = found) -> Any:
            found.append(call(x))
            return (found[0] * np.cos(np.arange(6.0)).reshape(2, 3)).sum() + 0.0 * x.sum()

        value, gradient = mixad.value_and_grad(loss)(x)
        np.testing.assert_allclose(value, loss(x, call, []), rtol=1e-13)
        if want.dtype == bool:
            assert type(found[0]) is np.ndarray
            np.testing.assert_array_equal(found[0], want)
        else:
            differences = slopes(lambda x: loss(x, call, []), x)  # noqa: B023
            np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)


def slopes(f: Any, x: Any, step: float = 1e-6) -> Any:
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        offset = np.zeros_like(x)
        offset[index] = step
        found[index] = (f(x + offset) - f(x - offset)) / (2 * step)
    return found


@pytest.mark.torch
@needs_torch
@pytest.mark.rows("name", elementwise_names(TORCH))
def test_torchs_elementwise_functions_and_methods(name: str) -> None:
    import torch

    function = getattr(torch, name, None) or getattr(torch.Tensor, name)
    a = torch.tensor([1.7, 2.23, 0.44], dtype=torch.float64)
    method = operator.methodcaller
    calls = [function, method(name)]
    if of_two(TORCH, name):
        calls = [
            lambda x: function(x, a),
            lambda x: function(a, x),
            method(name, a),
            lambda x: getattr(a, name)(x),
        ]
    if name == "__floordiv__":
        calls = [lambda x: a // x]
    differentiable = "floor" not in name or name == "floor"  # torch refuses floor_divide's zero
    digits = 1e-9 if name == "digamma" else 1e-12  # torch's trigamma has no more (mpmath says)
    for call in calls:
        x = torch.from_numpy(points(name)).requires_grad_()
        weights = torch.cos(torch.arange(6.0, dtype=torch.float64)).reshape(2, 3)
        want = call(x)
        theirs = ((want if differentiable else want.detach()) * weights).sum() + 0.0 * x.sum()
        (slope,) = torch.autograd.grad(theirs, x)

        def loss(x: Any, call: Any = call, weights: Any = weights, want: Any = want) -> Any:
            got = call(x)
            assert got.dtype == want.dtype
            return (got * weights).sum() + 0.0 * x.sum()

        value, gradient = mixad.value_and_grad(loss)(x.detach())
        torch.testing.assert_close(value, theirs.detach(), rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient, slope, rtol=digits, atol=1e-15)


# -- sums and shapes -----------------------------------------------------------------------------

CALLS_OF_NUMPY = {
    "np.sum": lambda x: np.sum(x),
    "axis": lambda x: np.sum(x, axis=0),
    "numpy integer": lambda x: np.sum(x, axis=np.int64(1)),
    "axis in place": lambda x: np.sum(x, (0, 1)),
    "keepdims": lambda x: np.sum(x, axis=1, keepdims=True) * x,
    "dtype": lambda x: np.sum(x, dtype="f8") * np.sum(x, 0, np.float64),
    "no output": lambda x: np.sum(x, out=None),
    "by its name": lambda x: np.sum(a=x),
    "np.mean": lambda x: np.mean(x, axis=-1) * np.mean(x),
    "method": lambda x: x.sum(0) * x.sum(axis=0, dtype=np.float64) + x.mean(0, dtype=float),
    "reshape": lambda x: np.reshape(x, (3, 2)) * np.reshape(x, 6).reshape(3, -1),
    "copies": lambda x: x.reshape(6, copy=True) + np.reshape(x, -1, order="C", copy=None),
    "shape by name": lambda x: np.reshape(x, shape=(6,)),
    "transpose": lambda x: np.transpose(x) * np.permute_dims(x, (1, 0)) * np.matrix_transpose(x),
    "matmul": lambda x: np.matmul(x, X.T) @ np.matmul(X, np.transpose(x)),
    "matmul of lists": lambda x: np.matmul(x, X.T.tolist()) @ np.matmul(X.tolist(), x.T),
    "astype": lambda x: np.astype(x, np.float64) * x.astype("f8", copy=False),
    "ufuncs of lists are not needed": lambda x: np.add(2, x) / np.subtract(x, np.float64(3)),
    "shapes": lambda x: np.ones(np.shape(x)) * np.size(x) * x + np.ndim(x) * np.zeros_like(x),
    "choices": lambda x: x[np.argmax(x[:, 0])] * np.any(x > 0) * np.count_nonzero(x),
    "places": lambda x: (
        x[np.nanargmax(x[:, 0])] * np.digitize(x, [0.0, 1.0])
        + x[np.lexsort((x[:, 1], x[:, 0]))] * np.nanargmin(x) * ~np.isneginf(x) * ~np.isposinf(x)
    ),
}


@pytest.mark.rows("call", CALLS_OF_NUMPY.values(), ids=CALLS_OF_NUMPY.keys())
def test_numpys_functions_of_whole_arrays(call: Any) -> None:
    weights = np.cos(np.arange(np.size(call(X)))).reshape(np.shape(call(X)))
    value, gradient = mixad.value_and_grad(lambda x: np.sum(call(x) * weights))(X)
    np.testing.assert_allclose(value, np.sum(call(X) * weights), rtol=1e-14)
    differences = slopes(lambda x: np.sum(call(x) * weights), X)
    np.testing.assert_allclose(gradient, differences, rtol=1e-7, atol=1e-9)


@pytest.mark.torch
@needs_torch
def test_torchs_functions_of_whole_arrays() -> None:
    import torch

    a = torch.from_numpy(X.T.copy())

    def loss(x: Any) -> Any:
        y = torch.sum(x, 0, True) * x + torch.sum(x, dim=1, keepdim=True) - x.sum(axis=0)
        y = y * torch.mean(x, dim=(0, 1)) * x.mean(1, keepdim=True) * x.sum(dim=-1).mean()
        y = torch.matmul(y, a) + y @ a - torch.reshape(x, (3, 2)).T @ x.permute(1, 0)
        y = y + torch.permute(y, (1, 0)) * x.numel() + torch.zeros_like(y) + torch.ones(y.shape)
        assert y.dtype == torch.float64
        y = torch.nn.functional.relu(torch.add(y, 1.0, alpha=1))
        return torch.sum(y.reshape(4), dtype=torch.float64) + (2 * a).matmul(x).sum()

    x = torch.from_numpy(X).requires_grad_()
    (theirs,) = torch.autograd.grad(loss(x), x)
    torch.testing.assert_close(mixad.grad(loss)(x.detach()), theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_in_another_float_type(dtype: str) -> None:
    x = np.asarray([1e8, 1.0, -1e8], "f4")
    found = []

    def loss(x: Any) -> Any:
        found.extend([x.sum(dtype=dtype), np.mean(x, dtype=dtype)])
        return found[0]

    gradient = mixad.grad(loss)(x)
    assert gradient.dtype == np.float32
    assert [f.dtype for f in found] == [np.dtype(dtype)] * 2
    if dtype == "float64":
        assert mixad.value_and_grad(lambda x: x.sum(dtype=dtype))(x)[0] == 1.0


def test_sums_as_whole_numbers_have_no_derivative() -> None:
    def loss(x: Any) -> Any:
        count = np.sum(x, axis=0, dtype=np.int64)
        assert type(count) is np.ndarray
        np.testing.assert_array_equal(count, np.sum(X * 10, axis=0, dtype=np.int64))
        return (x * count).sum()

    mixad.grad(loss)(X * 10)
    with pytest.raises(TracerError, match=r"mean\(dtype=.*float dtype"):
        mixad.grad(lambda x: x.mean(dtype=int))(X)


# -- refused -------------------------------------------------------------------------------------

REFUSED_OF_NUMPY = {
    "polyfit": (
        lambda x: np.polyfit(x, x, 1),
        r"numpy\.polyfit\(\) of .*mixad\.broadcast.*stop_grad",
    ),
    "weights": (lambda x: np.quantile(x, 0.3, weights=x), r"numpy\.quantile\(\) .*'weights'.*axis"),
    "spacings": (
        lambda x: np.gradient(x, [0.0, 1.0]),
        r"gradient\(\) along 2 axes with 1 sp",
    ),
    "padding": (lambda x: np.pad(x, 1, "mean"), r"pad\(mode='mean'.*use one of"),
    "options": (lambda x: np.einsum("ij->", x, dtype="f4"), r"no argument 'dtype': .*convert"),
    "linalg": (lambda x: np.linalg.tensorsolve(x, X), r"numpy\.linalg\.tensorsolve\(\) of"),
    "complex": (lambda x: np.emath.sqrt(x), r"sqrt\(\) of"),
    "a number": (lambda x: np.matmul(x, 2.0), r"at least one axis"),
    "ufunc": (lambda x: np.spacing(x), r"numpy\.spacing\(\) of"),
    "reduce": (lambda x: np.subtract.reduce(x), r"numpy\.subtract\.reduce\(\) of .*sum"),
    "of a ufunc": (lambda x: np.multiply.reduceat(x, [0]), r"numpy\.multiply\.reduceat\(\) of"),
    "dtype": (lambda x: np.add(X, x, dtype="f4"), r"add\(\) .* 'dtype': .*convert"),
    "where": (lambda x: np.exp(x, where=X > 0), r"exp\(\) .* no argument 'where'.*select.*x\[mask"),
    "where of a maximum": (lambda x: x.max(where=X > 0), r"where= takes initial="),
    "out": (lambda x: np.sum(x, out=np.zeros(())), r"no argument 'out': .*result that it returns"),
    "torch's": (lambda x: x.sum(dim=0), r"'dim': it takes axis, dtype, keepdims, .*; write axis="),
    "order": (lambda x: x.reshape(6, order="A"), r"order='A'.*use 'C' or 'F'"),
    "axes of a product": (
        lambda x: np.matvec(x, X[0], axes=[(0, 1), 0, 0]),
        r"matvec\(\) .*'axes': .* no options",
    ),
    "axis of a product": (
        lambda x: np.vecmat(x[0], X.T, axis=0),
        r"vecmat\(\) .* no argument 'axis'",
    ),
    "dtype of a product": (lambda x: np.vecmat(x[0], X.T, dtype="f4"), r"'dtype': .*convert the a"),
    "out of a product": (lambda x: np.matvec(x, X[0], out=np.zeros(2)), r"out="),
    "unknown": (lambda x: x.mean(colour=1), r"mean\(\) .* no argument 'colour': it takes axis"),
    "casting": (lambda x: x.astype("f4", casting="no"), r"astype\(\) .*'casting'"),
    "too many": (lambda x: x.sum(0, None, None, True, 0, True, 8), "at most 7 .* 8 were"),
    "output": (lambda x: np.add(X, X, out=x), "out="),
    "in an array": (lambda x: operator.iadd(np.zeros(2), x), r"total = total \+ x"),
    "a dict": (lambda x: np.add(x, {}), "a dict beside a value"),
    "axis": (lambda x: np.sum(x, axis=1.0), "integer"),
    "dtype of text": (lambda x: np.sum(x, dtype="U3"), "dtype <U3"),
}


@pytest.mark.rows(("f", "match"), REFUSED_OF_NUMPY.values(), ids=REFUSED_OF_NUMPY.keys())
def test_what_numpy_has_and_mixad_lacks_is_refused(f: Any, match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        mixad.grad(lambda x: f(x).sum())(X)


REFUSED_OF_TORCH = {
    "mode": (lambda t, x, a: t.mode(x), r"torch\.mode\(\) of .*mixad\.broadcast"),
    "quantile": (lambda t, x, a: t.nanquantile(x, 0.3), r"torch\.nanquantile\(\) of"),
    "dropout": (lambda t, x, a: t.nn.functional.dropout(x), r"mask that is made outside"),
    "padding": (lambda t, x, a: t.nn.functional.pad(x, (1, 1), "circular"), r"mode='constant'"),
    "labels": (
        lambda t, x, a: t.nn.functional.cross_entropy(x, x, a[0], label_smoothing=0.1),
        r"write it as -\(weight",
    ),
    "in place": (lambda t, x, a: t.nn.functional.silu(x, True), r"'inplace'.*that it returns"),
    "bits of elements": (lambda t, x, a: x.view(t.int64), r"x\.to\(dtype\)"),
    "device": (lambda t, x, a: x.to("meta"), r"to\('meta'\).*arguments of the transform"),
    "sizes": (lambda t, x, a: x.split([1, 9]), r"sum exactly to 2"),
    "celu_": (lambda t, x, a: t.celu_(x), r"methods that end in _"),
    "add_": (lambda t, x, a: a.clone().add_(x), r"methods that end in _"),
    "+=": (lambda t, x, a: operator.iadd(a.clone(), x), r"total = total \+ x"),
    "a[0] = x": (lambda t, x, a: a.clone().__setitem__(0, x[0]), r"make the array with zeros_like"),
    "index": (lambda t, x, a: a[x], r"torch\.__getitem__\(\) of"),
    "rounding": (lambda t, x, a: t.div(x, a, rounding_mode="up"), r"'up'.*None, 'floor' or"),
    "out": (lambda t, x, a: t.sum(x, 0, out=a), r"no argument 'out'"),
    "order": (lambda t, x, a: x.sum(order=0), r"invalid combination of arguments"),
    "bits": (lambda t, x, a: a & x, r"unsupported operand type\(s\) for &"),
    "tensor": (lambda t, x, a: t.tensor(x), r"DLPack"),
    "as_tensor": (lambda t, x, a: t.as_tensor(x), r"DLPack"),
    "from_dlpack": (lambda t, x, a: t.from_dlpack(x), r"DLPack"),
    "convolution": (lambda t, x, a: t.conv1d(x[None], a[None]), r"torch\.conv1d\(\) of"),
    "special": (lambda t, x, a: t.special.airy_ai(x), r"torch\.special\.airy_ai\(\) of"),
    "of the network": (lambda t, x, a: t.nn.functional.gumbel_softmax(x), r"gumbel_softmax\(\) of"),
}


@pytest.mark.torch
@needs_torch
@pytest.mark.rows(("f", "match"), REFUSED_OF_TORCH.values(), ids=REFUSED_OF_TORCH.keys())
def test_what_torch_has_and_mixad_lacks_is_refused(f: Any, match: str) -> None:
    import torch

    a = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises((TypeError, ValueError, RuntimeError, MixadError), match=match):
        mixad.grad(lambda x: f(torch, x, a).sum())(torch.from_numpy(X))


@pytest.mark.torch
@needs_torch
@pytest.mark.parametrize("name", ["numpy", "aminmax", "renorm"])
def test_methods_of_torch_that_are_missing_say_what_to_do(name: str) -> None:
    import torch

    with pytest.raises(AttributeError, match=rf"{name}.*stop_gradient\(x\)\.{name}"):
        mixad.grad(lambda x: getattr(x, name)())(torch.ones(3))


def test_functions_of_a_strict_library_are_refused() -> None:
    with pytest.raises(AttributeError, match=r"array_api_strict do not take .*mixad\.broadcast"):
        mixad.grad(array_api_strict.sum)(array_api_strict.ones(3))
    with pytest.raises(TypeError, match="Only Array objects are allowed"):  # its own check
        mixad.grad(array_api_strict.sin)(array_api_strict.ones(3))


def test_methods_of_a_strict_library_take_what_the_standard_has() -> None:
    xp = array_api_strict
    x = xp.asarray(X)
    gradient = mixad.grad(lambda x: (x.sum(axis=0, dtype=xp.float64) * x.mean(axis=0)).sum())(x)
    want = slopes(lambda x: (x.sum(0) * x.mean(0)).sum(), X)
    np.testing.assert_allclose(np.from_dlpack(gradient), want, rtol=1e-8)
    with pytest.raises(TracerError, match=r"no argument 'initial'.*combine it with the result"):
        mixad.grad(lambda x: x.sum(initial=2.0))(x)
    with pytest.raises(TracerError, match=r"'dim': it takes axis, dtype, keepdims"):
        mixad.grad(lambda x: x.sum(dim=0))(x)


@pytest.mark.parametrize("spelling", [NUMPY, TORCH], ids=lambda s: s.library)
def test_the_guide_lists_the_functions_that_there_are(spelling: Any) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text(encoding="utf-8")
    summary = f"<summary>Functions of <code>{spelling.library}</code></summary>"
    _, _, rest = guide.partition(f"{summary}\n\n```text\n")
    listed = rest.partition("```")[0]
    own = {name for name in spelling.functions if not name.startswith("__")}
    there = sorted(own - ({"astype"} if spelling is TORCH else set()))
    missing, gone = {*there} - {*listed.split()}, {*listed.split()} - {*there}
    assert not missing | gone, f"docs/transforms.md: add {missing}, remove {gone}"
    assert listed.split() == there  # in order, each once


def test_functions_of_numpy_take_traced_values_of_every_library() -> None:
    strict = array_api_strict
    x = strict.asarray(np.asarray([0.5, 1.0]))
    gradient = mixad.grad(lambda x: np.sum(np.exp(x)))(x)
    assert type(gradient) is type(x)
    np.testing.assert_allclose(np.from_dlpack(gradient), np.exp([0.5, 1.0]))
    with pytest.raises(TypeError, match="Only Array objects"):  # as the guide says
        mixad.grad(lambda x: strict.sum(strict.exp(x)))(x)


# -- arrays of two libraries -----------------------------------------------------------------------

MIXED = array_api_strict.asarray(X)
CALLS_OF_TWO_LIBRARIES = {
    "numpy.interp()": lambda x: np.interp(x, MIXED[0, :], MIXED[0, :]),
    "numpy.cov()": lambda x: np.cov(x, MIXED),
    "numpy.corrcoef()": lambda x: np.corrcoef(x, MIXED),
    "numpy.trapezoid()": lambda x: np.trapezoid(x, MIXED),
    "numpy.gradient()": lambda x: np.gradient(x[0], MIXED[0, :]),
    "numpy.polyval()": lambda x: np.polyval(x[0], MIXED),
    "numpy.clip()": lambda x: np.clip(x, MIXED, None),
    "numpy.insert()": lambda x: np.insert(x, 0, MIXED[0, :], axis=0),
    "numpy.append()": lambda x: np.append(x, MIXED),
    "numpy.concatenate()": lambda x: np.concatenate([x, MIXED]),
    "numpy.select()": lambda x: np.select([x > 0], [MIXED], x),
    "numpy.subtract()": lambda x: np.subtract(x, MIXED),
    "numpy.outer()": lambda x: np.outer(MIXED, x),
    "numpy.linalg.solve()": lambda x: np.linalg.solve(x[:, :2], MIXED[:, 0]),
    "numpy.subtract.outer()": lambda x: np.subtract.outer(x, MIXED),
    "scipy.special.xlogy()": lambda x: pytest.importorskip("scipy.special").xlogy(x, MIXED),
    "dot()": lambda x: x.dot(MIXED[0, :]),
    "clip()": lambda x: x.clip(MIXED),
    "mixad.numpy.vecdot()": lambda x: x.__array_namespace__().vecdot(x, MIXED),
    "mixad.numpy.linalg.outer()": lambda x: x.__array_namespace__().linalg.outer(x[0], MIXED[0, :]),
}


@pytest.mark.rows(
    ("called", "call"), CALLS_OF_TWO_LIBRARIES.items(), ids=CALLS_OF_TWO_LIBRARIES.keys()
)
def test_arrays_of_two_libraries_are_refused_by_the_function_called(called: str, call: Any) -> None:
    with pytest.raises(TracerError, match=rf"^{re.escape(called)} mixes arrays of .*convert one"):
        mixad.grad(lambda x: (call(x), x.sum())[1])(X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_function_refuses_arrays_of_two_libraries_by_its_own_name() -> None:
    others, refused = {}, set()
    for name in NUMPY.functions:
        function = functools.reduce(getattr, name.split("."), np)
        for arguments in ((X, MIXED), (MIXED, X), ([X, MIXED],), (X, X, MIXED)):

            def loss(x: Any, function: Any = function, arguments: Any = arguments) -> Any:
                function(*pytree.tree_map(lambda a: x if a is X else a, arguments))
                return x.sum()

            try:
                mixad.grad(loss)(X)
            except (MixadError, TypeError, ValueError, IndexError, AttributeError) as error:
                if "mixes arrays" in str(error):
                    refused.add(name)
                    if not str(error).startswith(f"numpy.{_called(function)}() mixes"):
                        others[name] = str(error)
    assert not others
    assert len(refused) > 60


def _called(function: Any) -> str:
    """Return what NumPy calls a function, whichever name it is asked for by."""
    of = getattr(function, "__self__", None)
    if isinstance(of, np.ufunc):
        return f"{of.__name__}.{function.__name__}"
    module = "" if isinstance(function, np.ufunc) else function.__module__.removeprefix("numpy")
    return f"{module}.{function.__name__}".removeprefix(".")


def test_a_condition_that_is_none_is_refused_by_the_function_called() -> None:
    with pytest.raises(TracerError, match=r"^numpy\.select\(\) takes a condition of booleans"):
        mixad.grad(lambda x: np.select([X], [x]).sum())(X)


def test_indices_of_another_library_keep_the_error_of_the_function() -> None:
    """They may be arrays of any library, so they are not why a wrong axis is refused."""
    index = array_api_strict.asarray([0, 1])
    with pytest.raises(np.exceptions.AxisError, match="axis 7 is out of bounds"):
        mixad.grad(lambda x: np.take(x, index, axis=7).sum())(X)
