"""Programs run as CPU kernels, at any vector width that this host has."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mixad.backends.arrays import layout_of
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.kernel.plan import plan
from mixad.kernel.spec import KernelSpec, Launch, OutputRequest
from mixad.scalar.ir import Program

WIDTHS = [bits for bits in (128, 256, 512) if bits <= detect().vector_bits]


@cache
def backend_of(bits: int = WIDTHS[-1]) -> CpuBackend:
    """Return the backend that compiles for a vector width."""
    return CpuBackend(detect().with_vector_bits(bits))


def planned(program: Program, arguments: Any, **options: Any) -> Launch:
    """Return the launch that stores all outputs of a program."""
    pairs = list(zip(arguments, program.params, strict=True))
    layouts = [layout_of(np.asarray(a)) if p.kind != "uniform" else None for a, p in pairs]
    shape = np.broadcast_shapes(*(a.shape for a, p in pairs if p.kind == "lane"))
    requests = [OutputRequest(0, k) for k in range(len(program.outputs))]
    return plan(
        (program,), requests, layouts, shape, options.get("cache_bytes", 1 << 40), folds=True
    )


def spec_of(program: Program, arguments: Any) -> KernelSpec:
    """Return what an emitter sees of a program that is called with these arguments."""
    return planned(program, arguments).spec


def run(program: Program, arguments: Any, bits: int = WIDTHS[-1]) -> tuple[Any, ...]:
    """Run a program over broadcast arguments and return its outputs."""
    backend, launch = backend_of(bits), planned(program, arguments)
    return backend.launch(backend.bind(backend.compile(launch.spec), launch), arguments)
