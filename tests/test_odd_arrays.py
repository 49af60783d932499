"""Arrays that are unusual: computed with as their library does, or refused by argument's name."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import MixadError

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

F = np.asarray([1.0, 2.0, 3.0])


@mixad.broadcast
def product(x, y):
    return x * y if x < 1e100 else y


def _entries(one: Any, odd: Any) -> dict[str, tuple[Callable[[], Any], str]]:
    """Every way in, and what a refusal must name."""
    captured = mixad.broadcast(lambda x: x * odd)
    in_x, in_y = "product: argument 'x'", "product: argument 'y'"
    return {
        "first argument": (lambda: product(odd, 2.0), in_x),
        "second argument": (lambda: product(one, odd), in_y),
        "captured": (lambda: captured(one), "a value from outside"),
        "duals": (lambda: product.duals(odd, 2.0).partials["x"], in_x),
        "grad": (lambda: mixad.grad(lambda x: (x * x).sum())(odd), "grad: argument 0"),
        "vjp": (lambda: mixad.vjp(lambda a, x: x * a, one, odd)[1](one)[1], "vjp: argument 1"),
        "beside": (lambda: mixad.grad(lambda x: (x * odd).sum())(one), ""),
        "on the left": (lambda: mixad.grad(lambda x: (odd * x).sum())(one), ""),
        "kernel": (lambda: mixad.grad(lambda x: product(x, odd).sum())(one), in_y),
        "matmul": (lambda: mixad.grad(lambda x: x @ odd)(one), ""),
        "cotangent": (lambda: mixad.value_and_vjp(lambda x: x * x, (one,), odd)[1], "cotangent"),
    }  # fmt: skip


ENTRIES = tuple(_entries(None, None))


# -- taken ---------------------------------------------------------------------------------------


def read_only(a: Any) -> Any:
    a = a.copy()
    a.flags.writeable = False
    return a


def mapped(a: Any, folder: Path) -> Any:
    memory = np.memmap(folder / "map", a.dtype, "w+", shape=a.shape)
    memory[:] = a
    return memory


def expected(one: Any, odd: Any) -> dict[str, Any]:
    return {
        "first argument": odd * 2.0, "second argument": odd * 1.0, "captured": odd * 1.0,
        "duals": odd * 0 + 2.0, "grad": 2 * odd, "vjp": one, "beside": odd, "on the left": odd,
        "kernel": odd, "matmul": odd, "cotangent": 2 * odd,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["read-only", "memory map", "mapped read-only", "strided"])
def test_numpy_arrays_of_any_memory(kind: str, tmp_path: Path) -> None:
    odd = {
        "read-only": lambda: read_only(F),
        "memory map": lambda: mapped(F, tmp_path),
        "mapped read-only": lambda: read_only(mapped(F, tmp_path)),
        "strided": lambda: np.repeat(F, 2)[::2],
    }[kind]()
    want = expected(np.ones(3), odd)
    for name, (call, _) in _entries(np.ones(3), odd).items():
        found = call()
        (found,) = found if isinstance(found, tuple) else (found,)
        assert type(found) is np.ndarray
        assert found.flags.writeable
        assert not np.shares_memory(found, odd)
        np.testing.assert_array_equal(found, want[name], err_msg=name)


def _tensors() -> dict[str, Callable[[Any], Any]]:
    return {
        "negated lazily": lambda t: (t.from_numpy(F) * 1j).conj().imag,
        "real part": lambda t: t.view_as_real(t.from_numpy(F) + 1j).select(-1, 0),
        "parameter": lambda t: t.nn.Parameter(t.from_numpy(F), requires_grad=False),
        "buffer": lambda t: t.nn.Buffer(t.from_numpy(F)),
        "expanded": lambda t: t.tensor(2.0, dtype=t.float64).expand(3),
        "of inference mode": _inferred,
        "read-only memory": lambda t: _from_read_only(t),
    }


def _inferred(torch: Any) -> Any:
    with torch.inference_mode():
        return torch.from_numpy(F) * 1.0


def _from_read_only(torch: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on tensors over read-only memory
        return torch.from_numpy(read_only(F))


@pytest.mark.torch
@needs_torch
@pytest.mark.rows("kind", _tensors())
def test_torch_tensors_of_any_memory(kind: str) -> None:
    import torch

    odd, one = _tensors()[kind](torch), torch.ones(3, dtype=torch.float64)
    want = expected(one, odd)
    for name, (call, _) in _entries(one, odd).items():
        found = call()
        (found,) = found if isinstance(found, tuple) else (found,)
        assert type(found) is torch.Tensor
        assert not found.requires_grad
        assert torch.equal(found, want[name].data), name


# -- refused -------------------------------------------------------------------------------------


class Metres(np.ndarray):
    """A subclass that means something else than its numbers."""


ODD_ARRAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (
        lambda: np.ma.masked_array(F, [0, 1, 0]),
        r"MaskedArray[^$]*filled\(x\)|conversion to a NumPy",
    ),
    "matrix": (lambda: np.matrix(F), r"matrix.*(numpy\.asarray)?"),
    "subclass": (lambda: F.view(Metres), r"Metres[^$]*numpy\.asarray"),
    "records": (lambda: np.zeros(3, "i4,f8").view(np.recarray), r"recarray[^$]*numpy\.asarray"),
    "objects": (lambda: F.astype(object), r"dtype object[^$]*float64"),
    "structure": (lambda: np.zeros(3, "i4,f8"), r"dtype \[[^$]*float64"),
    "text": (lambda: np.asarray(["a", "b", "c"]), r"dtype <U1[^$]*float64"),
    "bytes": (lambda: np.asarray([b"a", b"b", b"c"]), r"dtype \|S1[^$]*float64"),
    "new text": (lambda: np.asarray(list("abc"), np.dtypes.StringDType()), r"StringDType"),
    "big-endian": (lambda: F.astype(">f8"), r"dtype >f8[^$]*astype\('float64'\)"),
    "dates": (lambda: np.zeros(3, "M8[s]"), r"datetime64\[s\][^$]*float64"),
    "durations": (lambda: np.zeros(3, "m8[s]"), r"timedelta64\[s\][^$]*float64"),
    "long double": (lambda: F.astype("g"), r"float\d+[^$]*float64|longdouble"),
}


def test_arrays_without_memory_for_each_element_are_refused() -> None:
    odd = pytest.importorskip("sparse").COO(F)
    for entry, (call, names) in _entries(np.ones(3), odd).items():
        if entry in ("captured", "cotangent", "matmul"):
            continue
        with pytest.raises(MixadError, match=r"COO|of numpy and of sparse") as caught:
            call()
        assert names in str(caught.value), entry


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.rows("entry", ENTRIES)
@pytest.mark.rows("kind", ODD_ARRAYS)
def test_odd_numpy_arrays_are_refused(kind: str, entry: str) -> None:
    make, why = ODD_ARRAYS[kind]
    call, names = _entries(np.ones(3), make())[entry]
    with pytest.raises(MixadError, match=why if entry != "cotangent" else "cotangent") as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert names in str(caught.value)


def _subclass(torch: Any) -> Any:
    class Labelled(torch.Tensor):
        """A subclass that may do anything."""

    return torch.ones(3).as_subclass(Labelled)


def _fake(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def _masked(torch: Any) -> Any:
    return torch.masked.masked_tensor(torch.ones(3), torch.tensor([True, False, True]))


ODD_TENSORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "coo": (lambda t: t.ones(3).to_sparse(), r"sparse_coo[^$]*x\.to_dense\(\)"),
    "csr": (lambda t: t.eye(3).to_sparse_csr(), r"sparse_csr[^$]*x\.to_dense\(\)"),
    "mkldnn": (lambda t: t.ones(3).to_mkldnn(), r"mkldnn[^$]*x\.to_dense\(\)"),
    "nested": (lambda t: t.nested.nested_tensor([t.ones(3)] * 2), r"nested[^$]*to_padded_tensor"),
    "jagged": (
        lambda t: t.nested.nested_tensor([t.ones(3), t.ones(2)], layout=t.jagged),
        r"NestedTensor",
    ),
    "meta": (lambda t: t.ones(3, device="meta"), r"'meta' has a shape but no elements"),
    "quantised": (lambda t: t.quantize_per_tensor(t.ones(3), 0.1, 0, t.qint8), r"qint8"),
    "float8": (lambda t: t.ones(3).to(t.float8_e5m2), r"float8_e5m2[^$]*float32"),
    "subclass": (_subclass, r"Labelled[^$]*as_subclass\(torch\.Tensor\)"),
    "fake": (_fake, r"FakeTensor[^$]*plain tensor"),
    "masked": (_masked, r"MaskedTensor[^$]*plain tensor"),
    "requires grad": (lambda t: t.ones(3, requires_grad=True), r"detach\(\)[^$]*mixad-torch"),
}


@pytest.mark.torch
@needs_torch
@pytest.mark.filterwarnings("ignore::UserWarning")  # prototypes of torch say that they are
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.rows("compiled_before", [False, True])
@pytest.mark.rows("entry", ENTRIES)
@pytest.mark.rows("kind", ODD_TENSORS)
def test_odd_torch_tensors_are_refused(kind: str, entry: str, compiled_before: bool) -> None:
    import torch

    make, why = ODD_TENSORS[kind]
    call, names = _entries(torch.ones(3), make(torch))[entry]
    if compiled_before:
        product(torch.ones(3), torch.ones(3))
    with pytest.raises(MixadError, match=why if entry != "cotangent" else "cotangent") as caught:
        call()
    assert isinstance(caught.value, TypeError)
    of_param = kind in ("meta", "requires grad") and entry == "captured"  # told when it is read
    assert ("argument 'odd'" if of_param else names) in str(caught.value)
