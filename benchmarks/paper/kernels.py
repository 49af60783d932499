"""Kernels apart from the calls that lead to them: the paper's own one, and mixad's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mixad
from benchmarks.offline import bound_to, device_functions
from mixad.backends.execute import Kernel, kernel_for
from mixad.backends.protocols import DeviceFunction
from mixad.broadcast.planned import PlannedKernel, planned_call
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Program
from mixad.scalar.pushforward import pushforward


def program_of(function: mixad.BroadcastFunction, arguments: Sequence[Any]) -> Program:
    """Return the typed program of a function for some arrays."""
    return function._parse(tuple(arguments), {})[0].program


def partials_kernel(program: Program, wrt: Sequence[int]) -> Kernel:
    """Return the kernel that writes partials and nothing else, as the paper's does.

    There is no primal, no cotangent and no sum: what is active is read, and as much is written.
    """
    passes, requests = [], []
    for at, slots in enumerate(even_chunks(len(wrt), MAX_PARTIALS)):
        dual = pushforward(program, [wrt[slot] for slot in slots])
        (output,) = dual.outputs
        passes.append(dual.program)
        requests += [OutputRequest(at, output.partials[k]) for k in range(len(slots))]
    return kernel_for(tuple(passes), tuple(requests))


def gradient_kernel(
    program: Program, arguments: Sequence[Any], wrt: Sequence[int], **options: Any
) -> PlannedKernel:
    """Return the kernel that `mixad.value_and_vjp` runs."""
    (kernel,) = planned_call(program, arguments, wrt, KernelOptions(**options)).kernels
    return kernel


def launch_of(
    kernel: PlannedKernel, program: Program, arguments: Sequence[Any], cotangent: Any
) -> Callable[[], Any]:
    """Return the launch of a kernel of value and gradients, without the tape before it."""
    named = {p.name: a for p, a in zip(program.params, arguments, strict=True)}
    named["cotangent 0"] = cotangent
    given = [named[p.name] for p in kernel.passes[0].params]
    return lambda: kernel.backend.launch(kernel.bound, given)


def compiled_gradient(kernel: PlannedKernel) -> tuple[DeviceFunction, ...]:
    """Return what the passes of a kernel use, compiled for a CUDA device."""
    return device_functions(bound_to(kernel.passes, kernel.unfolded))


def compiled_partials(kernel: Kernel, arguments: Sequence[Any]) -> tuple[DeviceFunction, ...]:
    """Return the same for the kernel of partials."""
    return device_functions(bound_to(kernel.passes, kernel.plan_unfolded(arguments)))
