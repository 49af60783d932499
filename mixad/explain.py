"""What a call runs and why: for people, and for tests that gate on it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixad.backends.arrays import NUMPY, library_of
from mixad.backends.execute import broadcast_shape, kernel_for
from mixad.kernel.cost import block_cost
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import Launch, OutputRequest
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Program
from mixad.scalar.math import expand
from mixad.scalar.pushforward import pushforward
from mixad.tape.cell import kernel_values
from mixad.tape.plan import PullbackPlan, plan_pullback

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
    planned = _Planned.of(program, values, wrt, options)
    plan, launch = planned.plan, planned.launch
    places = [place for place in plan.gradients if place is not None]
    return Explanation(
        backend=planned.backend.name,
        reason="asked for" if options.backend else "best for these arrays",
        strategy="forward",
        chunks=tuple(Counter(at for at, _ in places).values()),
        placement="forward" if options.placement == "forward" else "reverse",
        static_zeros=tuple(
            program.params[i].name
            for i, place in zip(wrt, plan.gradients, strict=True)
            if place is None
        ),
        shape=launch.shape,
        loops=launch.extents,
        bytes_read=planned.bytes_read,
        bytes_written=planned.bytes_written,
        operations=sum(block_cost(expand(p).body) for p in plan.passes),
        cache_key=launch.spec.token,
        cached=planned.cached,
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
    if stage == "pullback":
        return "\n\n".join(map(str, _plan(program, wrt, options).passes))
    planned = _Planned.of(program, values, wrt, options)
    backend = planned.backend
    emit = backend.emit if stage == "llvm" else getattr(backend, "assembly", None)
    if emit is None:
        raise ValueError(f"the backend {backend.name!r} has no stage {stage!r}")
    text: str = emit(planned.launch.spec)
    return text


def _chunks(wrt: Sequence[int]) -> list[Sequence[int]]:
    return [wrt[i : i + MAX_PARTIALS] for i in range(0, len(wrt), MAX_PARTIALS)]


def _plan(program: Program, wrt: Sequence[int], options: KernelOptions) -> PullbackPlan:
    """Return the plan for values and gradients; the program itself where all gradients are zero."""
    floats = tuple(m for m, out in enumerate(program.outputs) if out.type.is_float)
    plan = plan_pullback(program, tuple(wrt), floats, options, with_primals=True)
    if any(place is not None for place in plan.gradients):
        return plan
    params, results = range(len(program.params)), range(len(program.outputs))
    return PullbackPlan((program,), tuple(params), plan.gradients, tuple((0, k) for k in results))


@dataclass(frozen=True)
class _Planned:
    """The kernel that makes values and gradients, given cotangents of the broadcast shape."""

    plan: PullbackPlan
    arguments: tuple[Any, ...]
    launch: Launch
    backend: Any
    cached: bool

    @classmethod
    def of(
        cls, program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
    ) -> _Planned:
        """Plan and compile, as `mixad.value_and_vjp` of the function would."""
        plan = _plan(program, wrt, options)
        shapes = [tuple(getattr(v, "shape", ())) for v in values]
        shape = broadcast_shape(program, shapes)
        library = next((library_of(v) for v in values if hasattr(v, "shape")), NUMPY)
        cotangents = (
            library.xp.empty(shape, dtype=library.dtype_of(out.type))
            for out in program.outputs
            if out.type.is_float
        )
        given = [*values, *cotangents]
        arguments = kernel_values(plan.passes[0], [given[i] for i in plan.kept])
        gradients = (
            OutputRequest(*place, None if shapes[i] == shape else shapes[i])
            for i, place in zip(wrt, plan.gradients, strict=True)
            if place is not None
        )
        requests = (*(OutputRequest(*place) for place in plan.primals), *gradients)
        kernel = kernel_for(plan.passes, requests)
        cached = kernel.is_prepared(arguments, options.backend)
        prepared = kernel.prepared(arguments, options.backend)
        return cls(plan, arguments, prepared.launch, prepared.backend, cached)

    @property
    def bytes_read(self) -> int:
        """Bytes of each array once."""
        read = zip(self.arguments, self.launch.spec.operands, strict=True)
        return sum(o.type.itemsize * math.prod(a.shape) for a, o in read if o is not None)

    @property
    def bytes_written(self) -> int:
        """Bytes of each result once."""
        made = zip(self.launch.results, self.launch.spec.outputs, strict=True)
        return sum(output.type.itemsize * math.prod(shape) for shape, output in made)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
