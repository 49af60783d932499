"""Calls of kernels as data: programs, and what becomes of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from mixad.backends.arrays import Library, as_array, is_scalar, library_of
from mixad.backends.execute import Kernel, broadcast_shape, kernel_for
from mixad.kernel.cost import block_cost
from mixad.kernel.options import KernelOptions, Mode
from mixad.kernel.spec import OutputRequest
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.ir import Equation, Program, While, walk_statements
from mixad.scalar.ops import BY_NAME
from mixad.tape.cell import Kind, kind_of
from mixad.tape.pullback_plan import plan_pullback

__all__ = ["KernelCall", "Shape", "kernel_values"]

Shape: TypeAlias = tuple[int, ...]

_MAX_SHAPES = 256
"""Shapes of arguments whose broadcast shape a call remembers."""


@dataclass(frozen=True, eq=False)
class KernelCall:
    """What is computed at every element, and the wanted arrays; made once, used often."""

    passes: tuple[Program, ...]  # with the same params
    outputs: tuple[OutputRequest, ...]  # of one pass, no result twice

    @staticmethod
    def storing(*passes: Program) -> KernelCall:
        """Return the call that stores every output of some programs."""
        return _storing(passes, tuple([p.origin for p in passes]))

    @staticmethod
    def giving(program: Program, shapes: Mapping[int, Shape]) -> KernelCall:
        """Return the call that makes each output of a program; `shapes` are accumulators'."""
        if not shapes:
            return KernelCall.storing(program)
        outputs = [OutputRequest(0, k, shapes.get(k)) for k in range(len(program.outputs))]
        return KernelCall((program,), tuple(outputs))

    @cached_property
    def name(self) -> str:
        """The program's, for messages."""
        return self.passes[0].name

    def argument(self, index: int) -> str:
        """Return the name, in messages, of an argument or an array that the function captured."""
        return f"the array {self.passes[0].params[index].name!r} of {self.name}"

    @cached_property
    def kernel(self) -> Kernel:
        """What runs it."""
        return kernel_for(self.passes, self.outputs)

    def arrays(self, values: Sequence[Any], options: KernelOptions) -> tuple[Any, ...]:
        """Run it on arrays of its library; a uniform param takes a 0-d array or a number."""
        if "uniform" in self.kinds:
            values = kernel_values(self.passes[0], values)
        return self.kernel(values, options.backend)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each param: lane, uniform or array."""
        return tuple(param.kind for param in self.passes[0].params)

    @cached_property
    def may_be_outside(self) -> bool:
        """Whether an index may be outside of an array that is read or added to."""
        return "array" in self.kinds or any(program.accumulators for program in self.passes)

    @cached_property
    def gives_floats(self) -> bool:
        """Whether all outputs are floats, which can be differentiated."""
        return all(self.passes[r.pass_index].outputs[r.result].type.is_float for r in self.outputs)

    @cached_property
    def parts(self) -> tuple[KernelCall, ...]:
        """One call for each pass."""
        if len(self.passes) == 1:
            return (self,)
        return tuple(
            KernelCall(
                (program,),
                tuple(
                    OutputRequest(0, r.result, r.shape) for r in self.outputs if r.pass_index == at
                ),
            )
            for at, program in enumerate(self.passes)
        )

    @cached_property
    def operations(self) -> dict[KernelOptions, Any]:
        """The operations that strands record for the call, by the user's overrides."""
        return {}

    @cached_property
    def _kinds(self) -> dict[tuple[int, Library, bool], Kind]:
        return {}

    def kind(self, result: int, library: Library, weak: bool) -> Kind:
        """Return the kind of a result of the first pass."""
        key = (result, library, weak)
        found = self._kinds.get(key)
        if found is None:
            type = self.passes[0].outputs[result].type
            found = self._kinds[key] = kind_of(type, library, weak)
        return found

    @cached_property
    def _shapes(self) -> dict[tuple[Shape, ...], Shape]:
        return {}

    def shape(self, lanes: tuple[Shape, ...]) -> Shape:
        """Return the shape that arguments broadcast to: see `broadcast_shape`."""
        found = self._shapes.get(lanes)
        if found is None:
            found = broadcast_shape(self.passes[0], lanes)
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            self._shapes[lanes] = found
        return found

    @cached_property
    def cost(self) -> int:
        """What one element costs, as `mixad.kernel.cost` counts."""
        return sum(block_cost(program.body) for program in self.passes)

    @cached_property
    def _checked(self) -> set[tuple[tuple[int, ...], Mode]]:
        return set()

    @cached_property
    def lacks_derivatives(self) -> bool:
        """Whether the programs have ops or loops whose derivatives may be refused."""
        return any(
            (isinstance(s, Equation) and None in BY_NAME[s.op].partials)
            or (isinstance(s, While) and s.implicit)
            for program in self.passes
            for s in walk_statements(program.body)
        )

    @cached_property
    def has_loops(self) -> bool:
        """Whether there are loops; reverse accumulation does not go through all loops."""
        return any(isinstance(s, While) for p in self.passes for s in walk_statements(p.body))

    def check_differentiable(self, active: tuple[int, ...], options: KernelOptions) -> None:
        """Raise if a pullback to the `active` params needs a derivative that does not exist."""
        key = (active, options.mode)
        if key not in self._checked:
            for at, program in enumerate(self.passes):
                results = tuple(r.result for r in self.outputs if r.pass_index == at)
                floats = tuple(r for r in results if program.outputs[r].type.is_float)
                plan_pullback(program, active, floats, options.mode)
            self._checked.add(key)


# Of equal programs, each has errors and warnings of its own: their origins are in the key.
@lru_cache(maxsize=1024)
def _storing(passes: tuple[Program, ...], origins: tuple[str, ...]) -> KernelCall:
    outputs = (OutputRequest(at, i) for at, p in enumerate(passes) for i in range(len(p.outputs)))
    return KernelCall(passes, tuple(outputs))


def kernel_values(program: Program, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments as kernels take them: numbers for uniform params, arrays for the others."""
    return tuple(
        [
            _number(a) if p.kind == "uniform" else as_array(a)
            for p, a in zip(program.params, arguments, strict=True)
        ]
    )


def _number(value: Any) -> Any:
    if is_scalar(value):
        return value
    if library_of(value).is_lazy:
        return value  # a number where it is computed
    return float(value) if scalar_type_of(value.dtype).is_float else int(value)
