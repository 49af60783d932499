"""What a call runs and why: for people, and for tests that gate on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixad.backends.execute import kernel_for
from mixad.kernel.cost import block_cost
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import Launch, OutputRequest
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Program
from mixad.scalar.math import expand
from mixad.scalar.pullback import ChunkPass, pullback
from mixad.scalar.pushforward import pushforward

__all__ = ["Explanation", "explain_kernel", "kernel_source"]

STAGES = ("program", "pushforward", "pullback", "llvm", "asm")


@dataclass(frozen=True)
class Explanation:
    """What the kernel for values and gradients of a call is.

    Attributes
    ----------
    backend : str
        Name of the backend.
    reason : str
        Why that one.
    strategy : str
        How derivatives are computed.
    chunks : tuple of int
        Number of partials in each pass.
    placement : str
        When partials are computed.
    static_zeros : tuple of str
        Inputs whose gradient is zero whatever the values are.
    shape : tuple of int
        The broadcast shape.
    loops : tuple of int
        Extents of the loop nest after merging axes.
    bytes_read, bytes_written : int
        What the kernel must move at least: each input and each result once.
    operations : int
        Arithmetic per element, a division or library call counted as several (`mixad.kernel.cost`).
    cache_key : str
        Digest that the compiled kernel is kept under.
    cached : bool
        Whether it was compiled before this was asked.
    """

    backend: str
    reason: str
    strategy: str
    chunks: tuple[int, ...]
    placement: str
    static_zeros: tuple[str, ...]
    shape: tuple[int, ...]
    loops: tuple[int, ...]
    bytes_read: int
    bytes_written: int
    operations: int
    cache_key: str
    cached: bool

    @property
    def floor_bytes(self) -> int:
        """Bytes that any implementation must move: the kernel's floor at copy bandwidth."""
        return self.bytes_read + self.bytes_written

    def __str__(self) -> str:
        chunks = " + ".join(map(str, self.chunks)) or "none"
        rows = {
            "backend": f"{self.backend} ({self.reason})",
            "strategy": f"{self.strategy}, partials per pass: {chunks}",
            "placement": self.placement,
            "static zeros": ", ".join(self.static_zeros) or "none",
            "shape": f"{self.shape}, loops over {' x '.join(map(str, self.loops))}",
            "moves": f"{_bytes(self.bytes_read)} read, {_bytes(self.bytes_written)} written",
            "operations": f"{self.operations} per element",
            "kernel": f"{self.cache_key[:16]}, {'cached' if self.cached else 'compiled now'}",
        }
        return "\n".join(f"{name + ':':<14}{text}" for name, text in rows.items())


def explain_kernel(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> Explanation:
    """Explain the kernel that computes a program's values and gradients.

    Parameters
    ----------
    program : Program
        What is called.
    values : sequence
        One per param.
    wrt : sequence of int
        Params to differentiate with respect to.
    options : KernelOptions
        The function's overrides.
    """
    passes = _passes(program, wrt, options)
    launch, backend, cached = _prepared(passes, program, values, options)
    extent = math.prod(launch.shape)
    zeros = [
        program.params[i].name
        for i, position in zip(wrt, [g for p in passes for g in p.gradients], strict=True)
        if position is None
    ]
    return Explanation(
        backend=backend.name,
        reason="asked for" if options.backend else "best for these arrays",
        strategy="forward",
        chunks=tuple(len(p.gradients) for p in passes if p.gradients),
        placement="reverse" if options.placement == "auto" else options.placement,
        static_zeros=tuple(zeros),
        shape=launch.shape,
        loops=launch.extents,
        bytes_read=_bytes_read(launch, values),
        bytes_written=extent * sum(o.type.itemsize for o in launch.spec.outputs),
        operations=sum(block_cost(expand(p.program).body) for p in passes),
        cache_key=launch.spec.token,
        cached=cached,
    )


def kernel_source(
    program: Program,
    values: Sequence[Any],
    wrt: Sequence[int],
    options: KernelOptions,
    stage: str,
) -> str:
    """Return one stage of the way from a program to its kernel for values and gradients.

    Parameters
    ----------
    program : Program
        What is called.
    values : sequence
        One per param.
    wrt : sequence of int
        Params to differentiate with respect to.
    options : KernelOptions
        The function's overrides.
    stage : str
        One of `STAGES`.

    Raises
    ------
    ValueError
        If there is no such stage.
    """
    if stage not in STAGES:
        raise ValueError(f"stage must be one of {', '.join(map(repr, STAGES))}, not {stage!r}")
    if stage == "program":
        return str(program)
    if stage == "pushforward":
        return "\n\n".join(str(pushforward(program, chunk).program) for chunk in _chunks(wrt))
    passes = _passes(program, wrt, options)
    if stage == "pullback":
        return "\n\n".join(str(p.program) for p in passes)
    launch, backend, _ = _prepared(passes, program, values, options)
    emit = backend.emit if stage == "llvm" else backend.assembly
    text: str = emit(launch.spec)
    return text


def _chunks(wrt: Sequence[int]) -> list[Sequence[int]]:
    return [wrt[i : i + MAX_PARTIALS] for i in range(0, len(wrt), MAX_PARTIALS)]


def _passes(
    program: Program, wrt: Sequence[int], options: KernelOptions
) -> tuple[ChunkPass, ...]:
    """Return the passes for values and gradients; the program itself where nothing is active."""
    outputs = [m for m, out in enumerate(program.outputs) if out.type.is_float]
    if not wrt or not outputs:
        return (ChunkPass(program, (), tuple(range(len(program.outputs)))),)
    chunk = options.chunk or MAX_PARTIALS
    return pullback(program, wrt, outputs, chunk=chunk, with_primals=True)


def _prepared(
    passes: Sequence[ChunkPass], program: Program, values: Sequence[Any], options: KernelOptions
) -> tuple[Launch, Any, bool]:
    """Return the launch for some values, its backend, and whether it was compiled before."""
    requests = tuple(
        OutputRequest(i, k)
        for i, p in enumerate(passes)
        for k in (*p.primals, *(g for g in p.gradients if g is not None))
    )
    kernel = kernel_for(tuple(p.program for p in passes), requests)
    extra = len(passes[0].program.params) - len(program.params)
    like = next(v for v in values if hasattr(v, "dtype")) if extra else None
    arguments = (*values, *[like] * extra)
    cached = kernel.is_prepared(arguments, options.backend)
    prepared = kernel.prepared(arguments, options.backend)
    return prepared.launch, prepared.backend, cached


def _bytes_read(launch: Launch, values: Sequence[Any]) -> int:
    """Bytes of each array argument once, and of each cotangent over the broadcast shape."""
    total = 0
    for k, operand in enumerate(launch.spec.operands):
        if operand is not None:
            shape = values[k].shape if k < len(values) else launch.shape
            total += operand.type.itemsize * math.prod(shape)
    return total


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
