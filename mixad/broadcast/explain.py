"""What a call runs and why: for people, and for tests that gate on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixad.backends import registry
from mixad.backends.arrays import is_number
from mixad.backends.execute import broadcast_shape
from mixad.backends.faults import PluginCall
from mixad.backends.protocols import DeviceFunction, OnDevice
from mixad.broadcast.planned import PlannedKernel, planned_call
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program
from mixad.tape.fusion import FusedProgram
from mixad.tape.save_partials import cheaper_plan
from mixad.tape.states import SMALL

__all__ = ["Explanation", "explain_call"]


@dataclass(frozen=True)
class Explanation:
    """What the kernel for values and gradients of a call is: the one of `mixad.value_and_vjp`.

    With ``placement="forward"`` there are two, one that stores values and partials and one that
    multiplies by the cotangents: figures are of both, ``loops`` and ``cache_key`` of the first.

    Attributes
    ----------
    backend : str
        Name of the backend.
    reason : str
        Why that one.
    strategy : str
        How partials are computed: ``"forward"``, by dual numbers, or ``"reverse"``.
    chunks : tuple of int
        Number of gradients in each pass.
    placement : str
        When partials are computed: ``"reverse"``, in the backward pass, or ``"forward"``, with
        the primal.
    vjp_placement : str
        The same where the value is needed before its cotangent is known, as by `mixad.vjp`:
        ``"forward"`` if partials are stored with it, ``"reverse"`` if the pullback evaluates the
        call again, as it does where the result, and the arguments together, which are arrays of
        NumPy or tensors on the CPU, have at most 16,384 elements.
    static_zeros : tuple of str
        Inputs whose gradient is zero whatever the values are.
    shape : tuple of int
        The broadcast shape.
    loops : tuple of int
        Extents of the loop nest after merging axes.
    bytes_read, bytes_written : int
        What must be moved at least: every element of each argument that is read, and of each
        result, once.  Of an array that is indexed, at most one element for each of the result.
    flops : int
        Floating-point operations, with all branches, as if every loop made 8 iterations
        (`mixad.kernel.cost.flops`).
    cache_key : str
        Digest that the compiled kernel is kept under.
    cached : bool
        Whether this process had compiled it, or read it from the disk, before this was asked.
    functions : tuple of DeviceFunction
        On a CUDA device, what each pass uses there; the kernel is compiled for that.
    bandwidth : float or None
        On a CUDA device, how many bytes a second its memory moves at most.
    """

    backend: str
    reason: str
    strategy: str
    chunks: tuple[int, ...]
    placement: str
    vjp_placement: str
    static_zeros: tuple[str, ...]
    shape: tuple[int, ...]
    loops: tuple[int, ...]
    bytes_read: int
    bytes_written: int
    flops: int
    cache_key: str
    cached: bool
    functions: tuple[DeviceFunction, ...] = ()
    bandwidth: float | None = None

    @property
    def expected_seconds(self) -> float | None:
        """Seconds that moving `floor_bytes` takes at `bandwidth`; None where that is not known."""
        return None if self.bandwidth is None else self.floor_bytes / self.bandwidth

    @property
    def floor_bytes(self) -> int:
        """Bytes that any implementation must move: the kernel's floor at copy bandwidth."""
        return self.bytes_read + self.bytes_written

    def __str__(self) -> str:
        chunks = " + ".join(map(str, self.chunks)) or "none"
        state = "cached" if self.cached else "new in this process"
        rows = {
            "backend": f"{self.backend} ({self.reason})",
            "strategy": f"{self.strategy}, {_COUNTED[self.strategy]} per pass: {chunks}",
            "placement": f"{self.placement}; {self.vjp_placement} where the value is needed first",
            "static zeros": ", ".join(self.static_zeros) or "none",
            "shape": f"{self.shape}, loops over {' x '.join(map(str, self.loops))}",
            "moves": f"{_scale_unit(self.bytes_read, 'B')} read, "
            f"{_scale_unit(self.bytes_written, 'B')} written",
            "floor": f"{_scale_unit(self.floor_bytes, 'B')} at the bandwidth of a copy",
            "arithmetic": f"{_scale_unit(self.flops, 'flop')}, {self._intensity:.2g} per byte",
            "kernel": f"{self.cache_key[:16]}, {state}",
        }
        lines = [f"{name + ':':<14}{text}" for name, text in rows.items()]
        texts = map(_describe_function, self.functions)
        lines += [f"{f'pass {k}:':<14}{text}" for k, text in enumerate(texts)]
        if self.expected_seconds is not None:
            expected = f"{1e6 * self.expected_seconds:.3g} µs"
            at = f"{_scale_unit(int(self.bandwidth or 0), 'B/s')}, the bandwidth of the memory"
            lines.append(f"{'expected:':<14}{expected} at {at}")
        return "\n".join(lines)

    @property
    def _intensity(self) -> float:
        return self.flops / self.floor_bytes if self.floor_bytes else 0.0


def explain_call(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> Explanation:
    """Explain the kernel that computes a call's values and its gradients by some params."""
    planned = planned_call(program, values, wrt, options)
    first = planned.kernels[0]
    return Explanation(
        backend=first.backend.name,
        reason="asked for" if options.backend else _reason(first.backend.name, planned.library),
        strategy=planned.strategy,
        chunks=planned.chunks,
        placement="forward" if options.placement == "forward" else "reverse",
        vjp_placement=_vjp_placement(program, values, tuple(wrt), options),
        static_zeros=tuple(program.params[i].name for i in planned.zeros),
        shape=first.launch.shape,
        loops=first.launch.extents,
        bytes_read=sum(kernel.bytes_read for kernel in planned.kernels),
        bytes_written=sum(kernel.bytes_written for kernel in planned.kernels),
        flops=sum(kernel.flops for kernel in planned.kernels),
        cache_key=first.launch.spec.token,
        cached=all(kernel.cached for kernel in planned.kernels),
        functions=tuple(f for kernel in planned.kernels for f in _functions(kernel)),
        bandwidth=_bandwidth(first),
    )


def _vjp_placement(
    program: Program, values: Sequence[Any], wrt: tuple[int, ...], options: KernelOptions
) -> str:
    """Return the placement of a call whose value is read before its pullback runs."""
    if options.placement != "auto" or not wrt:
        return "forward" if options.placement == "forward" else "reverse"
    shapes = [tuple(getattr(value, "shape", ())) for value in values]
    lanes = [own if p.kind == "lane" else () for p, own in zip(program.params, shapes, strict=True)]
    requests = [OutputRequest(0, result) for result in range(len(program.outputs))]
    shape = broadcast_shape(program, shapes)
    is_small = max(math.prod(shape), sum(map(math.prod, shapes))) <= SMALL
    if is_small and all(map(_is_in_memory, values)):
        return "reverse"
    plan = cheaper_plan(FusedProgram(program), wrt, lanes, shape, requests, options)
    return "reverse" if plan is None else "forward"


def _is_in_memory(value: Any) -> bool:
    """Whether a value is a number, or an array in the memory of this machine."""
    return type(value) is np.ndarray or is_number(value) or getattr(value, "is_cpu", False)


def _functions(kernel: PlannedKernel) -> tuple[DeviceFunction, ...]:
    backend = kernel.backend
    if not isinstance(backend, OnDevice) or 0 in kernel.launch.shape:
        return ()
    with PluginCall(registry.plugin_of(backend.name), backend.name, "in device_functions"):
        return tuple(backend.device_functions(kernel.bound, kernel.like))


def _bandwidth(kernel: PlannedKernel) -> float | None:
    backend = kernel.backend
    if not isinstance(backend, OnDevice):
        return None
    with PluginCall(registry.plugin_of(backend.name), backend.name, "in bandwidth"):
        return float(backend.bandwidth(kernel.like)) or None


def _describe_function(function: DeviceFunction) -> str:
    local = f"{function.local} B of local memory" if function.local else "no spills"
    return (
        f"{function.registers} registers, {local}, {function.shared} B of shared memory, "
        f"{function.neighbours} elements a thread, {function.threads} threads a block, "
        f"{function.occupancy:.0%} of the threads at once"
    )


_COUNTED = {"forward": "partials", "reverse": "gradients"}
"""What each strategy counts in a pass."""


def _reason(name: str, library: str) -> str:
    """Return why a backend ranks before others: see `mixad.backends.registry.rank`."""
    (found,) = (spec for spec in registry.default_registry().specs if spec.name == name)
    made_for_it = library in found.capability.array_modules
    how = "compiles" if found.capability.native else "interprets"
    return f"made for {library}, {how}" if made_for_it else f"takes any arrays, {how}"


def _scale_unit(count: int, unit: str) -> str:
    for prefix, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {prefix}{unit}"
    return f"{count} {unit}"
