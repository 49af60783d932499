"""Value and gradients of a function of elements, by mixad, torch, torch.compile and JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mixad
from benchmarks.gpu.device import Device
from benchmarks.gpu.work import Contender, Made
from benchmarks.peers.harness import UnavailableError


@dataclass(frozen=True)
class Elementwise:
    """A function, its inputs and a cotangent.

    Attributes
    ----------
    kernel : callable
        Of scalars, as a user of mixad writes it.
    by_arrays : callable
        Of a namespace of arrays (``torch`` or ``jax.numpy``) and the arrays; None: no peers.
    constants, active : sequence of ndarray
        What is not differentiated, which comes first, and what is.
    cotangent : ndarray
        Of the result.
    """

    kernel: Callable[..., Any]
    by_arrays: Callable[..., Any] | None
    constants: Sequence[NDArray]
    active: Sequence[NDArray]
    cotangent: NDArray

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return self.cotangent.shape

    @property
    def bytes_moved(self) -> int:
        """Every input and the cotangent once, the value and every gradient once."""
        read = (*self.constants, *self.active, self.cotangent)
        return sum(x.nbytes for x in (*read, *self.active)) + self.cotangent.nbytes

    def on(self, device: Device) -> tuple[list[Any], list[Any], Any]:
        """Return constants, active inputs and cotangent on a device."""
        put = device.put
        return [put(x) for x in self.constants], [put(x) for x in self.active], put(self.cotangent)


def contenders(e: Elementwise) -> Mapping[str, Contender]:
    """Return all that can do the work, mixad first."""
    found = {"mixad": Contender(partial(by_mixad, e))}
    if e.by_arrays is not None:
        found |= {
            "torch.compile": Contender(partial(by_torch, e, compiled=True)),
            "JAX jit": Contender(partial(by_jax, e), "batch"),
            "PyTorch eager": Contender(partial(by_torch, e, compiled=False)),
        }
    found["copy of the bytes"] = Contender(partial(copied, e.bytes_moved), is_checked=False)
    return found


def value_and_gradients(result: tuple[Any, Sequence[Any]]) -> list[Any]:
    """Return the arrays in ``(value, gradients)``."""
    value, gradients = result
    return [value, *gradients]


def by_mixad(e: Elementwise, device: Device, **options: Any) -> Made:
    constants, active, cotangent = e.on(device)
    kernel = mixad.broadcast(**options)(e.kernel)

    def of_active(*arrays):
        return kernel(*constants, *arrays)

    return Made(lambda: mixad.value_and_vjp(of_active, active, cotangent), value_and_gradients)


def by_torch(e: Elementwise, device: Device, compiled: bool) -> Made:
    torch = importlib.import_module("torch")
    constants, active, cotangent = e.on(device)
    function = partial(e.by_arrays, torch)
    if compiled:
        torch.compiler.reset()
        function = torch.compile(function, dynamic=False)

    def call():
        tracked = [x.detach().requires_grad_() for x in active]
        value = function(*constants, *tracked)
        return value.detach(), torch.autograd.grad(value, tracked, cotangent)

    return Made(call, value_and_gradients)


def by_jax(e: Elementwise, device: Device) -> Made:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    if jax.devices()[0].platform != device.platform:
        raise UnavailableError(f"JAX runs on {jax.devices()[0].platform} here")

    @jax.jit
    def value_and_vjp(constants, active, cotangent):
        value, pullback = jax.vjp(partial(e.by_arrays, jax.numpy, *constants), *active)
        return value, pullback(cotangent)

    arguments = [
        [jax.numpy.asarray(x) for x in e.constants],
        [jax.numpy.asarray(x) for x in e.active],
        jax.numpy.asarray(e.cotangent),
    ]
    last = []

    def call():
        last[:] = [value_and_vjp(*arguments)]
        return last[0]

    return Made(call, value_and_gradients, lambda: jax.block_until_ready(last), np.asarray)


def copied(moved: int, device: Device) -> Made:
    """Move so many bytes: half are read, half written."""
    source, target = device.zeros(moved // 8), device.zeros(moved // 8)
    return Made(lambda: device.copy(source, target), lambda result: [])
