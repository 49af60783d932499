"""What the host takes for calls over torch, without a device: ``python -m benchmarks.host_time``.

cuda-bindings and NVRTC are real, CUDA's driver is `benchmarks.stand_in`'s, which launches nothing,
and tensors are the host's: so memory costs what it costs there.  Printed is the fastest of many
short rounds, and how many of torch's own products of two tensors of 64 numbers that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

from benchmarks import stand_in
from mixad.backends import registry
from mixad.backends.cuda import CudaBackend
from mixad.backends.hookspecs import API_VERSION, BackendSpec, IntegrationSpec, hookimpl
from mixad.tape import registers, segments

BARS = {"call": 8, "value_and_vjp": 20, "torch's autograd": 25}
"""Microseconds that are wanted."""

ROUNDS, CALLS, WARM = 2000, 3, 8


class Plugin:
    """Serves tensors of the host as if they were a device's."""

    @hookimpl
    def mixad_backends(self) -> list[BackendSpec]:
        import mixad_torch

        (own,) = mixad_torch.mixad_backends()
        capability = replace(own.capability, devices=("cpu",))
        return [BackendSpec("torch-stand-in", API_VERSION, capability, made_backend, "")]

    @hookimpl
    def mixad_integrations(self) -> list[IntegrationSpec]:
        return [IntegrationSpec("torch", API_VERSION, "torch", integration)]


def made_backend() -> CudaBackend:
    from mixad_torch.driver import TorchDriver

    return CudaBackend("torch-stand-in", TorchDriver())


def integration() -> Any:
    from mixad_torch.autograd import TorchIntegration

    return TorchIntegration()


@contextmanager
def tensors_of_the_host() -> Iterator[None]:
    """Let torch have one device, which is the host, and CUDA's driver be the stand-in."""
    import torch
    from cuda.bindings import driver

    stand_in.use(stand_in.hooks(function_attribute=lambda attribute, function: 40))
    alone = registry.Registry([registry.PluginSource("stand-in", "benchmarks", Plugin)])
    allocators, device_of = torch._C._dynamo.guards, driver.cuDeviceGet
    patches: list[tuple[Any, str, Any]] = [
        (driver, "cuDeviceGet", lambda index: device_of(index or 0)),
        (allocators, "_empty_strided_cuda", allocators._empty_strided_cpu),
        (torch._C, "_cuda_getCurrentRawStream", lambda index: 0),
        (torch._C, "_cuda_getDevice", lambda: None),  # as tensors of the host say
        (torch.cuda, "get_device_capability", lambda device: (9, 0)),
        (torch.cuda, "is_current_stream_capturing", lambda: False),
        (torch.cuda, "device", lambda device: nullcontext()),
        (torch.Tensor, "is_cpu", property(lambda tensor: False)),
        (registry, "default_registry", lambda: alone),
        (registers, "_are_numpys", lambda library, device: False),
        (segments, "_ONES", {}),
    ]
    for patch in (mock.patch.object(*one, create=True) for one in patches):
        patch.start()
    try:
        yield
    finally:
        mock.patch.stopall()


def calls() -> dict[str, Callable[[], Any]]:
    """Return what is measured, torch's own product first."""
    import torch

    import mixad
    from benchmarks.gpu.overhead import scaled

    kernel = mixad.broadcast(scaled)
    x = torch.linspace(0.5, 1.5, 64)
    y, followed = x.clone(), x.clone().requires_grad_()
    gradient = mixad.grad(lambda a: (a * a + a).sum())
    return {
        "torch's x * y": lambda: x * y,
        "call": lambda: kernel(x, y),
        "value_and_vjp": lambda: mixad.value_and_vjp(kernel, (x, y), x),
        "gradient of a sum": lambda: gradient(x),
        "torch's autograd": lambda: torch.autograd.grad(kernel(followed, y), followed, y),
        "torch's autograd, torch's x * y": lambda: torch.autograd.grad(followed * y, followed, y),
    }


def fastest(call: Callable[[], Any]) -> float:
    """Return the microseconds of a call once it is known."""
    import torch
    from mixad_torch import driver

    zeros = lambda shape, strides, dtype: torch.zeros(shape, dtype=dtype)  # noqa: E731
    with mock.patch.object(driver, "_empty_strided", zeros):  # what launches leave is compared
        for _ in range(WARM):
            call()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return 1e6 * best


def main() -> None:
    """Print what each call takes."""
    with tensors_of_the_host():
        unit = 0.0
        for name, call in calls().items():
            found = fastest(call)
            unit = unit or found
            bar = f", wanted {BARS[name]}" if name in BARS else ""
            print(f"{name}: {found:.1f} µs{bar}; {found / unit:.1f} products")


if __name__ == "__main__":
    main()
