"""The kernels that make a call's values and gradients, as `mixad.value_and_vjp` runs them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import array_api_compat
import numpy as np

from mixad.backends.arrays import is_array, library_of
from mixad.backends.execute import broadcast_shape, kernel_for
from mixad.backends.protocols import Backend, Bound
from mixad.kernel.cost import flops
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import Indexed, Launch, OutputRequest
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Program
from mixad.scalar.math import expand
from mixad.scalar.simplify import read_params
from mixad.scalar.types import ScalarType
from mixad.tape.kernel_call import kernel_values
from mixad.tape.partials_plan import PartialsPlan, plan_contraction, plan_forward
from mixad.tape.pullback_plan import PullbackPlan, plan_pullback

__all__ = ["LaunchPlan", "PlannedKernel", "planned_call"]


@dataclass(frozen=True)
class PlannedKernel:
    """One kernel, planned and compiled for some arguments."""

    passes: tuple[Program, ...]  # with the function's own names and lines
    launch: Launch
    unfolded: Launch  # the launch without folded rows; `launch` itself where it folds none
    backend: Backend
    bound: Bound
    results: tuple[str, ...]  # each output in words
    cached: bool  # whether it was compiled before this plan
    like: Any  # an array of its library and device

    @property
    def flops(self) -> int:
        """Floating-point operations of a launch, counted as by `mixad.kernel.cost.flops`."""
        return self._elements * sum(flops(expand(p).body) for p in self.passes)

    @property
    def bytes_read(self) -> int:
        """Bytes that the programs read, each element of an argument once."""
        read = sorted({k for p in self.passes for k in read_params(p)})
        return sum(map(self._bytes_of_param, read))

    @property
    def bytes_written(self) -> int:
        """Bytes of the results, each once."""
        made = zip(self.launch.results, self.launch.spec.outputs, strict=True)
        return sum(output.type.itemsize * math.prod(shape) for shape, output in made)

    @property
    def _elements(self) -> int:
        return math.prod(self.launch.extents)

    def _bytes_of_param(self, k: int) -> int:
        operand = self.launch.spec.operands[k]
        if operand is None or self._elements == 0:
            return 0
        if isinstance(operand, Indexed):
            return operand.type.itemsize * min(self._elements, math.prod(self._indexed_shape(k)))
        walked = zip(self.launch.extents, self.launch.strides[k] or (), strict=True)
        return operand.type.itemsize * math.prod(extent for extent, stride in walked if stride)

    def _indexed_shape(self, k: int) -> tuple[int, ...]:
        layout = self.launch.indexed[k]
        return () if layout is None else layout[0]


@dataclass(frozen=True)
class LaunchPlan:
    """The kernels that make values and gradients, in order.

    There are two if partials are computed with the primal.
    """

    kernels: tuple[PlannedKernel, ...]
    strategy: Literal["forward", "reverse"]
    chunks: tuple[int, ...]
    zeros: tuple[int, ...]
    library: str


def planned_call(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> LaunchPlan:
    """Plan and compile the kernels that `mixad.value_and_vjp` of a call would run."""
    call = _Call(program, tuple(values), tuple(wrt), options)
    return call.forward() if options.placement == "forward" else call.reverse()


@dataclass(frozen=True)
class _Call:
    """A call, and the params whose gradients are wanted; cotangents have the broadcast shape."""

    program: Program
    values: tuple[Any, ...]
    wrt: tuple[int, ...]
    options: KernelOptions

    def reverse(self) -> LaunchPlan:
        """One kernel makes everything; the program itself where all gradients are zero."""
        plan = plan_pullback(
            self.program, self.wrt, self.floats, self.options.mode, with_primals=True
        )
        places = [place for place in plan.gradients if place is not None]
        if not places:
            return self.plan_call([self.storing(self.program)], plan.strategy, (), self.wrt)
        given = [*self.values, *self.cotangents()]
        requests = [*(OutputRequest(*place) for place in plan.primals), *self.requests(plan)]
        results = (*self.outputs, *self.gradients(plan))
        kernel = self.kernel(plan.passes, requests, [given[i] for i in plan.kept], results)
        chunks = tuple(Counter(at for at, _ in places).values())
        return self.plan_call([kernel], plan.strategy, chunks, self.zeros(plan))

    def forward(self) -> LaunchPlan:
        """One kernel makes values and partials, one more contracts them with the cotangents."""
        dual = plan_forward(self.program, self.wrt, self.options)
        contraction = plan_contraction(dual, self.wrt, self.floats)
        kernels = [self.storing(*dual.passes)]
        if contraction.passes:
            stored = self.arrays(out.type for p in dual.passes for out in p.outputs)
            given = [*self.values, *stored, *self.cotangents()]
            kept = [given[i] for i in contraction.kept]
            requests, results = self.requests(contraction), self.gradients(contraction)
            kernels.append(self.kernel(contraction.passes, requests, kept, results))
        return self.plan_call(kernels, "forward", self.chunks(dual), self.zeros(contraction))

    def plan_call(
        self,
        kernels: Sequence[PlannedKernel],
        strategy: Literal["forward", "reverse"],
        chunks: tuple[int, ...],
        zeros: tuple[int, ...],
    ) -> LaunchPlan:
        return LaunchPlan(tuple(kernels), strategy, chunks, zeros, library_of(self.like).name)

    def chunks(self, dual: PartialsPlan) -> tuple[int, ...]:
        """Return the number of partials of each pass; passes without any are left out."""
        active = {i for row in dual.partials for i in row}
        slots = even_chunks(len(self.wrt), self.options.chunk or MAX_PARTIALS)
        counts = (sum(self.wrt[slot] in active for slot in chunk) for chunk in slots)
        return tuple(filter(None, counts))

    def storing(self, *passes: Program) -> PlannedKernel:
        """Return the kernel that stores all outputs of some programs, the own ones first."""
        places = [(at, k) for at, p in enumerate(passes) for k in range(len(p.outputs))]
        results = (*self.outputs, *["a partial"] * (len(places) - len(self.outputs)))
        return self.kernel(passes, [OutputRequest(*at) for at in places], self.values, results)

    def kernel(
        self,
        passes: tuple[Program, ...],
        requests: Iterable[OutputRequest],
        values: Sequence[Any],
        results: tuple[str, ...],
    ) -> PlannedKernel:
        """Plan and compile one kernel."""
        kernel = kernel_for(passes, tuple(requests))
        arguments = kernel_values(passes[0], values)
        cached = kernel.is_compiled(arguments, self.options.backend)
        prepared = kernel.prepare_launch(arguments, self.options.backend)
        is_folded = prepared.launch.fold is not None
        return PlannedKernel(
            passes=passes,
            launch=prepared.launch,
            unfolded=(
                kernel.plan_unfolded(arguments, self.options.backend)
                if is_folded
                else prepared.launch
            ),
            backend=prepared.backend,
            bound=prepared.bound,
            results=results,
            cached=cached,
            like=self.like,
        )

    def requests(self, plan: PullbackPlan) -> list[OutputRequest]:
        """Return requests for each gradient in the shape of its argument."""
        own = (self.shapes[i] for i in self.wrt)
        return [
            OutputRequest(*place, None if shape == self.shape else shape)
            for shape, place in zip(own, plan.gradients, strict=True)
            if place is not None
        ]

    def zeros(self, plan: PullbackPlan) -> tuple[int, ...]:
        """Return the params whose gradients are statically zero."""
        return tuple(i for i, at in zip(self.wrt, plan.gradients, strict=True) if at is None)

    def gradients(self, plan: PullbackPlan) -> tuple[str, ...]:
        """Return the gradients in words."""
        names = (self.program.params[i].name for i in self.wrt)
        found = zip(names, plan.gradients, strict=True)
        return tuple(f"gradient of {name}" for name, at in found if at is not None)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f"output {m}" for m in range(len(self.program.outputs)))

    def cotangents(self) -> list[Any]:
        """Return an array like each output of floats."""
        return self.arrays(self.program.outputs[m].type for m in self.floats)

    def arrays(self, types: Iterable[ScalarType]) -> list[Any]:
        """Return arrays of the broadcast shape; nothing is written to their memory."""
        library, device = library_of(self.like), array_api_compat.device(self.like)
        return [
            library.xp.empty(self.shape, dtype=library.dtype_of(type), device=device)
            for type in types
        ]

    @property
    def like(self) -> Any:
        """An array of the results' library and device."""
        arrays = (v for v in self.values if is_array(v) and not isinstance(v, np.generic))
        return next(arrays, np.empty(0))

    @property
    def floats(self) -> tuple[int, ...]:
        return tuple(m for m, out in enumerate(self.program.outputs) if out.type.is_float)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(getattr(v, "shape", ())) for v in self.values]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return broadcast_shape(self.program, self.shapes)
