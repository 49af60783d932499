"""Methods and attributes of traced arrays: those of the library, spelled as it spells them."""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_strict
import numpy as np
import pytest
from derivatives import parts_of

import mixad
from mixad.namespace.spellings import NUMPY, STANDARD
from mixad.namespace.torch_methods import TORCH_METHODS
from mixad.namespace.torch_spellings import TORCH

HAS_TORCH = importlib.util.find_spec("torch") is not None
RNG = np.random.default_rng(5)
X, S = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 4))
MASK = RNG.random(size=(3, 4)) > 0.4

NUMPYS: dict[str, Any] = {
    "T": lambda x: x.T**2,
    "astype": lambda x: x.astype("f8", copy=False) * x.astype(np.float64),
    "clip": lambda x: [x.clip(0.1) * x.clip(-0.2, 0.3), x.clip(max=S[:3]) ** 2,
                       x.clip(min=0.0, max=[[1.0]]) * x],
    "compress": lambda x: [x.compress([True, False, True], 0) ** 2,
                           x.compress(MASK[0], axis=1) ** 2],
    "conj": lambda x: x.conj() * x,
    "conjugate": lambda x: x.conjugate() * x,
    "copy": lambda x: x.copy() * x.copy("F"),
    "cumprod": lambda x: [x.cumprod(), x.cumprod(1), x.cumprod(axis=0, dtype="f8")],
    "cumsum": lambda x: [x.cumsum() ** 2, x.cumsum(-1) ** 2],
    "device": lambda x: x**2 if x.device == "cpu" else x,
    "diagonal": lambda x: [x.diagonal() ** 2, x.diagonal(1) ** 2,
                           x.diagonal(axis1=1, axis2=0) ** 2],
    "dot": lambda x: [x.dot(S), x.dot(x.T), x.dot([1.0, 2.0, 3.0, 4.0]) ** 2],
    "dtype": lambda x: x**2 if x.dtype == np.float64 else x,
    "flatten": lambda x: [x.flatten() ** 2, x[0].flatten("C") ** 2, x.flatten("F") ** 2],
    "imag": lambda x: x.imag * x,
    "itemsize": lambda x: x.itemsize * x * x,
    "mT": lambda x: x.mT @ x,
    "max": lambda x: [x.max() ** 2, x.max(0) ** 2, x.max(axis=1, keepdims=True) * x,
                      x.max(initial=0.3), x.max(0, initial=0.1, where=MASK) ** 2,
                      (x * x).max(0, initial=0.1, where=MASK, keepdims=True)],
    "mean": lambda x: [x.mean() ** 2, x.mean(0) ** 2, x.mean((0, 1), keepdims=True) * x,
                       x.mean(where=MASK) ** 2, x.mean(1, where=[True, False, True, True]) ** 2],
    "min": lambda x: [x.min() ** 2, x.min(-1) ** 2, x.min(1, initial=-0.2, where=MASK)],
    "nbytes": lambda x: x.nbytes * x * x,
    "ndim": lambda x: x.ndim * x * x,
    "prod": lambda x: [x.prod(), x.prod(0), x.prod(axis=1, keepdims=True),
                       x.prod(where=MASK), x.prod(0, initial=x[0, 0] * 2, where=MASK)],
    "ravel": lambda x: [x.ravel() ** 2, x.ravel("C") ** 2, x.ravel("F") ** 2],
    "real": lambda x: x.real * x,
    "repeat": lambda x: [x.repeat(2) ** 2, x.repeat([1, 0, 2], axis=0) ** 2, x.repeat(2, 1) ** 2],
    "reshape": lambda x: [x.reshape(4, 3) ** 2, x.reshape((2, -1)) ** 2, x.reshape(-1) ** 2,
                          x.reshape(4, 3, order="F") ** 2, x.T.reshape((2, -1), order="F") ** 2],
    "round": lambda x: [x.round() * x, x.round(2) * x, (99 * x).round(decimals=-1) * x],
    "shape": lambda x: x.shape[0] * x * x,
    "size": lambda x: x.size * x * x,
    "squeeze": lambda x: [x[None].squeeze() ** 2, x[:, None].squeeze(1) ** 2],
    "std": lambda x: [x.std(), x.std(0), x.std(axis=1, ddof=1, keepdims=True)],
    "sum": lambda x: [x.sum() ** 2, x.sum(0) ** 2, x.sum((0, 1)) ** 2,
                      x.sum(-1, keepdims=True) * x, x.sum(where=MASK) ** 2,
                      x.sum(0, initial=x[1, 0], where=MASK) ** 2],
    "swapaxes": lambda x: x.swapaxes(0, -1) @ x,
    "take": lambda x: [x.take([3, 0, 3]) ** 2, x.take(1, axis=0) ** 2, x.take([[0, 2]], 1) ** 2],
    "to_device": lambda x: x.to_device("cpu") ** 2,
    "trace": lambda x: [x.trace() ** 2, x.trace(1) ** 2],
    "transpose": lambda x: [x.transpose() @ x, x.transpose(1, 0) @ x, x.transpose((1, 0)) @ x],
    "var": lambda x: [x.var(), x.var(0, ddof=1), x.var(axis=(0, 1))],
}  # fmt: skip
"""What traced NumPy arrays have, with the arguments that NumPy's take."""

CONSTANT: dict[str, Any] = {
    "all": lambda x: x.all(0),
    "any": lambda x: x.any(axis=1, keepdims=True),
    "argmax": lambda x: [x.argmax(), x.argmax(1)],
    "argmin": lambda x: x.argmin(axis=0),
    "argpartition": lambda x: x.argpartition(1),
    "argsort": lambda x: x.argsort(axis=0),
    "nonzero": lambda x: x.nonzero(),
    "searchsorted": lambda x: x.ravel().searchsorted([0.0, 1.0]),
}
"""What has no derivative: plain arrays."""

REFUSED = (
    "base byteswap choose ctypes data dump dumps flags flat getfield item partition put "
    "resize setfield setflags sort strides tobytes tofile tolist view"
).split()


def is_given(array_class: type, name: str) -> bool:
    return not name.startswith("_") and hasattr(array_class, name)


def test_every_method_of_numpys_arrays_is_there_or_refused() -> None:
    own = {name for name in dir(np.ndarray) if not name.startswith("_")}
    assert own == {*NUMPYS, *CONSTANT, *REFUSED, "fill"}


@pytest.mark.rows("name", NUMPYS, slow="clip cumprod max mean min prod round std sum var")
def test_methods_of_numpys_arrays_do_what_numpys_do(name: str) -> None:
    function = NUMPYS[name]
    value, _ = mixad.vjp(function, X)
    for found, wanted in zip(parts_of(value), parts_of(function(X)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13, strict=True)
    mixad.check_grads(lambda x: [p * x.sum() for p in parts_of(function(x))], (X,), order=2)


@pytest.mark.rows("name", CONSTANT)
def test_methods_without_a_derivative_give_plain_arrays(name: str) -> None:
    def loss(x: Any) -> Any:
        for found, wanted in zip(
            parts_of(CONSTANT[name](x)), parts_of(CONSTANT[name](X)), strict=True
        ):
            assert type(found) is type(wanted)
            np.testing.assert_array_equal(found, wanted, strict=True)
        return x.sum()

    mixad.grad(loss)(X)


@pytest.mark.rows("name", REFUSED)
def test_other_methods_are_refused_with_what_to_do(name: str) -> None:
    with pytest.raises((AttributeError, TypeError), match=r"use |stop_gradient\(x\)"):
        mixad.grad(lambda x: getattr(x, name)())(X)


def test_filling_an_array_writes_to_all_elements() -> None:
    def loss(x: Any) -> Any:
        y = x * x
        view = y.copy()
        y.fill(x[0, 0])
        view.fill(3.0)
        return (y * view * x).sum()

    y, wanted = X[0, 0], np.zeros_like(X)
    wanted[0, 0] = 3 * X.sum()
    np.testing.assert_allclose(mixad.grad(loss)(X), wanted + 3 * y)


def test_a_copy_is_not_changed_with_the_array_and_a_view_is_retired() -> None:
    def loss(x: Any) -> Any:
        y = x * 1.0
        copies = y.copy(), y.flatten()
        y[0, 0] = 0.0
        return (copies[0] * y).sum() + copies[1].sum()

    wanted = 2 * X + 1
    wanted[0, 0] = 1.0
    np.testing.assert_allclose(mixad.grad(loss)(X), wanted)


@pytest.mark.rows("method", ["clip", "cumsum", "repeat", "std", "squeeze", "take"])
def test_methods_are_spelled_as_the_library_spells_them(method: str) -> None:
    with pytest.raises(TypeError, match=r"no argument|positional"):
        mixad.grad(lambda x: getattr(x, method)(dim=0))(X)


NAMES = sorted({*NUMPY.functions, *NUMPY.methods, *STANDARD.functions, *TORCH.functions,
                *TORCH_METHODS, *NUMPY.constant, *TORCH.constant})  # fmt: skip


@pytest.mark.parametrize("library", ["numpy", "strict", "torch"])
def test_traced_arrays_have_no_method_that_arrays_of_their_library_lack(library: str) -> None:
    if library == "torch":
        pytest.importorskip("torch")
        import torch

        x: Any = torch.ones(2, 2)
    else:
        x = np.ones((2, 2)) if library == "numpy" else array_api_strict.ones((2, 2))
    always = {"reshape", "sum", "mean", "astype", "shape", "size", "real", "imag"}
    names = [name for name in NAMES if "." not in name and name not in always]

    def loss(x: Any) -> Any:
        found.extend(name for name in names if hasattr(x, name))
        return 1.0 * x.__array_namespace__().sum(x)

    found: list[str] = []
    mixad.grad(loss)(x)
    assert [name for name in found if not hasattr(x, name)] == []
    assert len(found) > {"numpy": 20, "strict": 0, "torch": 150}[library]
