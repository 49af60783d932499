"""Array libraries: dtypes, strides, memory shared with NumPy, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest

from mixad.backends.arrays import (
    NUMPY,
    device_name,
    is_array,
    is_scalar,
    layout_of,
    library_of,
    strides_of,
)
from mixad.errors import KernelTypeError, TracerError
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.types import ALL_TYPES, F32, F64


def libraries() -> list[Any]:
    found = [np, array_api_strict]
    try:
        import torch  # optional and heavy
    except ImportError:
        return found
    return [*found, torch]


@pytest.fixture(params=libraries(), ids=lambda xp: xp.__name__)
def xp(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_an_array_has_the_library_of_its_type(xp: Any) -> None:
    array = xp.zeros((2, 3))
    library = library_of(array)
    assert library.name == xp.__name__
    assert library is library_of(xp.ones(4))
    assert device_name(array) == "cpu"
    assert is_array(array)
    assert not is_scalar(array)


@pytest.mark.rows("scalar_type", ALL_TYPES, ids=str)
def test_dtypes_go_both_ways(xp: Any, scalar_type: Any) -> None:
    library = library_of(xp.zeros(1))
    dtype = library.dtype_of(scalar_type)
    assert dtype == getattr(xp, scalar_type.dtype.name)
    assert scalar_type_of(dtype) == scalar_type
    assert library.asarray(1, scalar_type).dtype == dtype


def test_strides_are_in_bytes(xp: Any) -> None:
    array = xp.zeros((4, 3), dtype=xp.float32)
    assert layout_of(array).strides == (12, 4)
    assert layout_of(array.T).strides == (4, 12)
    assert layout_of(array[1:, :2]).shape == (3, 2)
    assert layout_of(array[::2, :]).strides == (24, 4)
    assert layout_of(array).type == F32


def test_memory_is_shared_not_copied(xp: Any) -> None:
    array = xp.zeros(3)
    library = library_of(array)
    library.numpy_view(array)[1] = 7.0
    assert float(array[1]) == 7.0
    result = np.zeros(2)
    wrapped = library.wrap_memory(result, F64, array)
    assert type(wrapped) is type(array)
    result[0] = 5.0
    assert float(wrapped[0]) == 5.0


def test_numpy_is_its_own_namespace(tmp_path: Path) -> None:
    assert NUMPY.xp is np
    assert library_of(np.float32(1)) is NUMPY
    assert library_of(np.memmap(tmp_path / "x", shape=2, mode="w+")) is NUMPY


def test_a_python_number_is_no_array_and_a_numpy_scalar_is() -> None:
    assert is_scalar(2.0)
    assert not is_scalar(np.float64(2))  # a subclass of float
    assert is_array(np.float64(2))
    assert not is_array(2.0)
    assert not is_array([1.0])
    assert not is_array(np.float32)  # the type


@pytest.mark.parametrize("array", [np.ma.zeros(2), np.zeros((1, 1)).view(np.matrix)])
def test_arrays_that_multiply_otherwise_are_refused(array: Any) -> None:
    with pytest.raises(KernelTypeError, match=r"numpy\.(asarray|ma\.filled)"):
        library_of(array)


@pytest.mark.torch
def test_a_tensor_that_requires_grad_is_refused_each_time() -> None:
    torch = pytest.importorskip("torch")
    for _ in range(2):
        with pytest.raises(TracerError, match=r"detach\(\)"):
            library_of(torch.ones(2, requires_grad=True))
    library_of(torch.ones(2))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own
def test_a_dual_tensor_is_refused_and_its_primal_is_not() -> None:
    torch = pytest.importorskip("torch")
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        with pytest.raises(TracerError, match=r"dual.*\.primal.*mixad\.jvp"):
            library_of(dual)
        library_of(forward_ad.unpack_dual(dual).primal)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own
@pytest.mark.rows("transform", ["grad", "jvp", "vjp", "vmap", "jacfwd", "hessian"])
def test_a_tensor_that_torch_func_wraps_is_refused(transform: str) -> None:
    torch = pytest.importorskip("torch")

    def f(x: Any) -> Any:
        library_of(x)
        return x.sum()

    x = torch.ones(2)
    apply = getattr(torch.func, transform)
    use = {"jvp": lambda: apply(f, (x,), (x,)), "vjp": lambda: apply(f, x)}
    with pytest.raises(TracerError, match=r"torch\.func.*mixad\.grad.*mixad-torch"):
        use.get(transform, lambda: apply(f)(x))()


@pytest.mark.torch
def test_a_tensor_whose_memory_is_the_negative_is_seen_with_its_sign() -> None:
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)
    lazy = z.conj().imag
    assert lazy.is_neg()
    view = library_of(lazy).numpy_view(lazy)
    np.testing.assert_array_equal(view, [-2.0, 4.0])
    assert strides_of(lazy) == view.strides


@pytest.mark.slow
def test_numpy_s_compatible_namespace_is_never_imported() -> None:
    code = (
        "import sys, numpy as np, mixad\n"
        "mixad.grad(lambda x: (x * x).sum())(np.ones(3))\n"
        "slow = {'array_api_compat.numpy', 'numpy.f2py', 'torch'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
