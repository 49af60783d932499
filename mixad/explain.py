"""What a call runs and why: for people, and for tests that gate on it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
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
from mixad.scalar.pullback import even_chunks
from mixad.scalar.pushforward import pushforward
from mixad.scalar.types import ScalarType
from mixad.tape.forward_plan import plan_contraction, plan_forward
from mixad.tape.kernel_call import KernelCall, kernel_values
from mixad.tape.pullback_plan import PullbackPlan, plan_pullback

__all__ = ["Explanation", "explain_kernel", "kernel_source"]

STAGES = ("program", "pushforward", "pullback", "llvm", "asm")


@dataclass(frozen=True)
class Explanation:
    """What the kernel for values and gradients of a call is.

    With ``placement="forward"`` there are two, one that stores values and partials and one that
    multiplies by the cotangents: figures are of both, ``loops`` and ``cache_key`` of the first.

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
        When partials are computed: ``"reverse"``, in the backward pass, or ``"forward"``, with
        the primal.
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
    planned = _planned(program, values, wrt, options)
    launch = planned.kernels[0].launch
    return Explanation(
        backend=planned.kernels[0].backend.name,
        reason="asked for" if options.backend else "best for these arrays",
        strategy="forward",
        chunks=planned.chunks,
        placement="forward" if options.placement == "forward" else "reverse",
        static_zeros=tuple(program.params[i].name for i in planned.zeros),
        shape=launch.shape,
        loops=launch.extents,
        bytes_read=sum(kernel.bytes_read for kernel in planned.kernels),
        bytes_written=sum(kernel.bytes_written for kernel in planned.kernels),
        operations=sum(kernel.operations for kernel in planned.kernels),
        cache_key=launch.spec.token,
        cached=all(kernel.cached for kernel in planned.kernels),
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
        chunks = even_chunks(len(wrt), options.chunk or MAX_PARTIALS)
        duals = (pushforward(program, [wrt[slot] for slot in slots]) for slots in chunks)
        return "\n\n".join(str(dual.program) for dual in duals)
    planned = _planned(program, values, wrt, options)
    if stage == "pullback":
        return "\n\n".join(map(str, planned.kernels[-1].passes))
    backend = planned.kernels[0].backend
    emit = backend.emit if stage == "llvm" else getattr(backend, "assembly", None)
    if emit is None:
        raise ValueError(f"the backend {backend.name!r} has no stage {stage!r}")
    return "\n\n".join(emit(kernel.launch.spec) for kernel in planned.kernels)


@dataclass(frozen=True)
class _Kernel:
    """One kernel, planned and compiled for some arguments."""

    passes: tuple[Program, ...]
    arguments: tuple[Any, ...]
    launch: Launch
    backend: Any
    cached: bool

    @classmethod
    def of(
        cls,
        passes: tuple[Program, ...],
        requests: Iterable[OutputRequest],
        values: Sequence[Any],
        options: KernelOptions,
    ) -> _Kernel:
        kernel = kernel_for(passes, tuple(requests))
        arguments = kernel_values(passes[0], values)
        cached = kernel.is_prepared(arguments, options.backend)
        prepared = kernel.prepared(arguments, options.backend)
        return cls(passes, arguments, prepared.launch, prepared.backend, cached)

    @property
    def operations(self) -> int:
        """Arithmetic per element."""
        return sum(block_cost(expand(p).body) for p in self.passes)

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


@dataclass(frozen=True)
class _Planned:
    """The kernels that make values and gradients, in order."""

    kernels: tuple[_Kernel, ...]
    chunks: tuple[int, ...]
    zeros: tuple[int, ...]


def _planned(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> _Planned:
    """Plan and compile what `mixad.value_and_vjp` of the function would run.

    Cotangents are of the broadcast shape.
    """
    call = _Call(program, tuple(values), tuple(wrt), options)
    return call.forward() if options.placement == "forward" else call.reverse()


@dataclass(frozen=True)
class _Call:
    """A call, and which of its gradients are wanted."""

    program: Program
    values: tuple[Any, ...]
    wrt: tuple[int, ...]
    options: KernelOptions

    def reverse(self) -> _Planned:
        """One kernel makes everything; the program itself where all gradients are zero."""
        plan = plan_pullback(self.program, self.wrt, self.floats, self.options, with_primals=True)
        places = [place for place in plan.gradients if place is not None]
        if not places:
            return _Planned((self.storing(self.program),), (), self.wrt)
        given = [*self.values, *self.cotangents()]
        requests = [*(OutputRequest(*place) for place in plan.primals), *self.requests(plan)]
        kernel = _Kernel.of(plan.passes, requests, [given[i] for i in plan.kept], self.options)
        chunks = tuple(Counter(at for at, _ in places).values())
        return _Planned((kernel,), chunks, self.zeros(plan))

    def forward(self) -> _Planned:
        """One kernel makes values and partials, one more contracts them with the cotangents."""
        dual = plan_forward(self.program, self.wrt, self.options)
        contraction = plan_contraction(dual, self.wrt, self.floats)
        kernels = [self.storing(*dual.passes)]
        if contraction.passes:
            stored = self.arrays(out.type for p in dual.passes for out in p.outputs)
            given = [*self.values, *stored, *self.cotangents()]
            kept = [given[i] for i in contraction.kept]
            requests = self.requests(contraction)
            kernels.append(_Kernel.of(contraction.passes, requests, kept, self.options))
        active = {i for row in dual.partials for i in row}
        slots = even_chunks(len(self.wrt), self.options.chunk or MAX_PARTIALS)
        chunks = (sum(self.wrt[slot] in active for slot in chunk) for chunk in slots)
        return _Planned(tuple(kernels), tuple(filter(None, chunks)), self.zeros(contraction))

    def storing(self, *passes: Program) -> _Kernel:
        """Return the kernel that stores all outputs of some programs."""
        call = KernelCall.storing(*passes)
        return _Kernel.of(call.passes, call.outputs, self.values, self.options)

    def requests(self, plan: PullbackPlan) -> list[OutputRequest]:
        """Ask for each gradient in the shape of its argument."""
        own = (self.shapes[i] for i in self.wrt)
        return [
            OutputRequest(*place, None if shape == self.shape else shape)
            for shape, place in zip(own, plan.gradients, strict=True)
            if place is not None
        ]

    def zeros(self, plan: PullbackPlan) -> tuple[int, ...]:
        """Return the params whose gradients are statically zero."""
        return tuple(i for i, at in zip(self.wrt, plan.gradients, strict=True) if at is None)

    def cotangents(self) -> list[Any]:
        """Return an array like each output of floats."""
        return self.arrays(self.program.outputs[m].type for m in self.floats)

    def arrays(self, types: Iterable[ScalarType]) -> list[Any]:
        """Return arrays of the broadcast shape; nothing is written to their memory."""
        library = next((library_of(v) for v in self.values if hasattr(v, "shape")), NUMPY)
        return [library.xp.empty(self.shape, dtype=library.dtype_of(type)) for type in types]

    @property
    def floats(self) -> tuple[int, ...]:
        return tuple(m for m, out in enumerate(self.program.outputs) if out.type.is_float)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(getattr(v, "shape", ())) for v in self.values]

    @property
    def shape(self) -> tuple[int, ...]:
        return broadcast_shape(self.program, self.shapes)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
