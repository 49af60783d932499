"""Arrays on devices: how devices are told apart, and numbers that come to be there."""

from __future__ import annotations

import math
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import mixad
from mixad.backends.arrays import Library, device_key, device_name, library_of
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.types import F32

Device = type(strict.asarray(0.0).device)


@mixad.broadcast
def gated(x: Any, y: Any) -> Any:
    return x * y * y if x > 0.0 else y


def curvature(x: Any) -> Any:
    """Return a sum of kernels and operators; for an index that library hashes devices itself."""
    total = gated(x, 2.0 - x)
    for _ in range(3):
        total = total * 0.5 + gated(total, x)
    return (total * total).sum()


@pytest.fixture
def _devices_do_not_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the strict library's devices what CuPy's are."""
    monkeypatch.setattr(Device, "__hash__", None)


@pytest.mark.usefixtures("_devices_do_not_hash")
def test_devices_that_do_not_hash_are_told_apart_all_the_same() -> None:
    one, other = (strict.asarray([1.0], device=Device(name)) for name in ("CPU_DEVICE", "device1"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(one.device)
    assert device_key(one.device) != device_key(other.device)
    assert device_key(one.device) == device_key(strict.asarray([2.0]).device)


@pytest.mark.usefixtures("_devices_do_not_hash")
@pytest.mark.parametrize(
    "transform",
    [
        mixad.grad,
        lambda f: lambda x: mixad.grad(lambda x: mixad.grad(f)(x).sum())(x),
        lambda f: lambda x: mixad.hvp(f, (x,), (x,)),
        lambda f: lambda x: mixad.jvp(f, (x,), (x,))[1],
        lambda f: lambda x: mixad.linearize(f, x)[1](x),
    ],
    ids=["grad", "second", "hvp", "jvp", "linearize"],
)
def test_transforms_need_no_devices_that_hash(transform: Any) -> None:
    x = np.asarray([0.5, -0.25, 1.5, 2.0])
    for _ in range(2):  # the second time from what is remembered
        got = transform(curvature)(strict.asarray(x))
    np.testing.assert_allclose(np.asarray(got), transform(curvature)(x), rtol=1e-12)


def test_a_device_of_cupy_is_named_as_torch_names_it() -> None:
    class Device:
        id = 1

    Device.__module__ = "cupy.cuda.device"

    class Array:
        __module__ = "cupy"
        device = Device()

    assert device_name(Array()) == "cuda:1"


@pytest.mark.rows("name", "bool float16 bfloat16 float32 float64 complex64 int8".split())
def test_numbers_become_what_torch_makes_of_them(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    library, type = library_of(torch.zeros(1)), element_type_of(dtype)
    numbers: list[Any] = [0, 1, -1, True]
    if name != "int8":
        numbers += [-0.0, 0.1, 1e300, -3.5e38, 1e39, 7e4, 2**70, math.inf, -math.inf, math.nan]
        numbers += np.random.default_rng(0).standard_normal(200).tolist()
    if name == "complex64":
        numbers += [1j, 0.1 - 1e300j, complex(math.nan, 2.0)]
    for value in numbers:
        found, wanted = library.asarray(value, type), torch.asarray(value, dtype=dtype)
        assert (found.dtype, found.shape) == (wanted.dtype, ())
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        assert repr(found) == repr(wanted), value  # which tells -0.0 from 0.0


def test_a_device_of_cupy_is_entered_for_a_number() -> None:
    """Its `full` makes arrays on the current device, whatever it is told."""
    entered: list[Any] = []

    class Device:
        def __enter__(self) -> None:
            entered.append(self)

        def __exit__(self, *error: object) -> None:
            entered.remove(self)

    class Namespace:
        def full(self, shape: Any, value: Any, *, dtype: Any, device: Any) -> Any:
            return np.full(shape, value, dtype), list(entered)

    device = Device()
    made, where = Library("cupy", Namespace(), {F32: np.float32}).asarray(0.5, F32, device)
    assert (made.dtype, made.item(), where) == (np.float32, 0.5, [device])


def test_nothing_is_copied_from_the_host_for_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device such a copy waits, and cannot be captured in a graph."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64)
    z = torch.complex(x, x.flip(0))

    def refused(name: str) -> Any:
        def copied(*args: Any, **options: Any) -> Any:
            raise AssertionError(f"torch.{name}{args} copies from the host")

        return copied

    for name in ("asarray", "tensor", "as_tensor"):
        monkeypatch.setattr(torch, name, refused(name))
        monkeypatch.setattr(library_of(x).xp, name, refused(name), raising=False)

    def f(x: Any) -> Any:
        return (torch.where(x > 0.0, 2.0 * x, 1.0) * gated(x, x)).sum()

    for _ in range(2):
        value, gradient = mixad.value_and_grad(f)(x)
        assert gradient.shape == x.shape
        mixad.hvp(f, (x,), (x,))
        mixad.vjp(f, x)[1](1.0)
        mixad.grad(lambda z: (2.0 * z * z).real.sum())(z)
        mixad.jacobian(lambda x: gated(x, 3.0 * x))(x)
        mixad.grad(lambda x: torch.maximum(x, 0.5 * x).sum())(x)
    assert value == f(x)
