"""Arrays on devices: how devices are told apart, and numbers that come to be there."""

from __future__ import annotations

from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import mixad
from mixad.backends.arrays import device_key, device_name, library_of
from mixad.scalar.types import BOOL, F32

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


@pytest.mark.parametrize("device", ["CPU_DEVICE", "device1"])
def test_numbers_come_to_be_where_they_are_needed(device: str) -> None:
    there = Device(device)
    library = library_of(strict.asarray(0.0))
    for value, type in ((1.5, F32), (True, BOOL), (2.0, None)):
        made = library.asarray(value, type, there)
        assert (made.device, made.shape, made.dtype) == (
            there, (), strict.asarray(value, dtype=type and library.dtype_of(type)).dtype,
        )  # fmt: skip
        assert made == strict.asarray(value, dtype=made.dtype, device=there)


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
