"""Π tanh(±xᵢ) of 1 … 24 inputs, all active: throughput, registers and occupancy (§5 of the paper).

Registers are those of the kernels that mixad would launch on a CUDA device, compiled by NVRTC; no
device is needed for them.  Beyond ten inputs dual numbers take several passes, and mixad may choose
reverse accumulation in registers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import mixad
from benchmarks.gpu import arity
from benchmarks.gpu.device import Device
from benchmarks.gpu.elementwise import Elementwise, by_mixad
from benchmarks.paper.cases import Case, Way
from benchmarks.paper.cell import by_partials, copy_here
from benchmarks.paper.kernels import (
    compiled_gradient,
    compiled_partials,
    gradient_kernel,
    launch_of,
    partials_kernel,
    program_of,
)
from benchmarks.peers.harness import Tolerance
from mixad.backends.protocols import DeviceFunction
from mixad.errors import BackendError
from mixad.scalar.dual import MAX_PARTIALS

SIDE = 2048
GRADIENTS = "value and gradients"
DUALS = "value and gradients, dual numbers"
PARTIALS = "partials only"
COPY = "copy of the bytes"
COMPILED_FOR = (64, 2048)  # rows and their length: what is compiled depends on how these divide


def cases(
    scale: float, seed: int, device: Device, counts: Sequence[int] = arity.ARITIES
) -> Iterator[Case]:
    """Yield one case with all arities; the inputs of fewer are the first ones of more."""
    side = max(8, int(SIDE * scale))
    rng = np.random.default_rng(seed)
    xs = [rng.random((side, side), dtype=np.float32) for _ in range(max(counts))]
    cotangent = rng.standard_normal((side, side), dtype=np.float32)
    ways: dict[str, Way] = {}
    for count in counts:
        e = Elementwise(arity.product_of(count), None, (), xs[:count], cotangent)
        ways |= {f"{name}, N = {count}": way for name, way in of_count(e).items()}
    yield Case("arity", f"{side}²", ways, Tolerance(2e-5, 4e-6))


def of_count(e: Elementwise) -> Mapping[str, Way]:
    """Return the kernels of one number of inputs."""
    found = {
        f"mixad, {GRADIENTS}": gradients_of(e),
        f"mixad, {PARTIALS}": Way(
            partial(by_partials, e),
            partial(expected_partials, e),
            is_kernel=True,
            bytes_moved=2 * len(e.active) * e.cotangent.nbytes,
            facts=partial(facts, e, PARTIALS, partials_of),
        ),
        COPY: Way(
            partial(copy_here, e.bytes_moved),
            is_kernel=True,
            bytes_moved=e.bytes_moved,
            facts=lambda: {"N": len(e.active), "kind": COPY},
        ),
    }
    if len(e.active) > MAX_PARTIALS:
        found[f"mixad, {DUALS}"] = gradients_of(e, strategy="forward")
    return found


def gradients_of(e: Elementwise, **options: Any) -> Way:
    """Return the kernel of value and gradients, with a strategy or as mixad chooses."""
    kind = DUALS if options else GRADIENTS
    return Way(
        partial(by_mixad, e, **options),
        partial(arity.expected, e),
        alone=partial(alone, e, **options),
        bytes_moved=e.bytes_moved,
        facts=partial(facts, e, kind, partial(functions_of_gradients, **options)),
    )


def alone(e: Elementwise, device: Device, **options: Any) -> Callable[[], Any]:
    """Return the launch of that kernel."""
    _, active, cotangent = e.on(device)
    program = program_of(mixad.broadcast(e.kernel), active)
    kernel = gradient_kernel(program, active, range(len(active)), **options)
    return launch_of(kernel, program, active, cotangent)


def expected_partials(e: Elementwise) -> list[np.ndarray]:
    """Return the gradients for a cotangent of ones."""
    ones = np.broadcast_to(np.float32(1), e.shape)
    return arity.expected(replace(e, cotangent=ones))[1:]


# -- what the compiler makes of them ---------------------------------------------------------------


def facts(
    e: Elementwise, kind: str, functions: Callable[[Elementwise], Sequence[DeviceFunction]]
) -> Mapping[str, Any]:
    """Return the number of inputs, and what each pass uses; or why that is not known."""
    told: dict[str, Any] = {"N": len(e.active), "kind": kind}
    try:
        used = functions(e)
    except BackendError as absent:
        return told | {"registers": str(absent).partition(":")[0]}
    return told | {
        "registers": [f.registers for f in used],
        "local": [f.local for f in used],
        "occupancy": [round(f.occupancy, 3) for f in used],
        "neighbours": [f.neighbours for f in used],
    }


def arguments_of(e: Elementwise) -> list[np.ndarray]:
    """Return arrays on the host to plan with."""
    return [np.ones(COMPILED_FOR, np.float32) for _ in e.active]


def functions_of_gradients(e: Elementwise, **options: Any) -> Sequence[DeviceFunction]:
    arguments = arguments_of(e)
    program = program_of(mixad.broadcast(e.kernel), arguments)
    return compiled_gradient(gradient_kernel(program, arguments, range(len(arguments)), **options))


def partials_of(e: Elementwise) -> Sequence[DeviceFunction]:
    arguments = arguments_of(e)
    program = program_of(mixad.broadcast(e.kernel), arguments)
    return compiled_partials(partials_kernel(program, range(len(arguments))), arguments)
