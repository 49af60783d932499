"""What a call of kernels with traced arguments leaves behind, whichever node it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

from mixad.backends.arrays import Library
from mixad.backends.execute import Kernel, broadcast_shape, kernel_for
from mixad.errors import KernelGradientError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program
from mixad.scalar.types import F64, ScalarType
from mixad.tape.cell import Cell, PendingCall
from mixad.tape.node import Node, Rule, apply_rule, common_library
from mixad.tape.tracer import Level, Origin, Tracer, check_mode, kept, levels_of

__all__ = ["KernelCall", "Recording", "Shape", "lane_shapes"]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class KernelCall:
    """What is computed at every element, and what becomes of the results; made once, used often.

    Attributes
    ----------
    passes : tuple of Program
        With the same params.
    outputs : tuple of OutputRequest
        The wanted arrays; of one pass, no result twice.
    """

    passes: tuple[Program, ...]
    outputs: tuple[OutputRequest, ...]

    @staticmethod
    def storing(*passes: Program) -> KernelCall:
        """Return the call that stores every output of some programs."""
        return _storing(passes, passes[0].origin if passes else "")

    @cached_property
    def kernel(self) -> Kernel:
        """What runs it."""
        return kernel_for(self.passes, self.outputs)

    @cached_property
    def types(self) -> tuple[ScalarType, ...]:
        """Type of each output."""
        return tuple(self.passes[r.pass_index].outputs[r.result].type for r in self.outputs)

    @cached_property
    def results(self) -> tuple[tuple[int, ...], ...]:
        """For each pass, which of its outputs are wanted."""
        return tuple(
            tuple(r.result for r in self.outputs if r.pass_index == at)
            for at in range(len(self.passes))
        )


# Of equal programs, each has errors and warnings of its own: the origin is in the key.
@lru_cache(maxsize=4096)
def _storing(passes: tuple[Program, ...], origin: str) -> KernelCall:
    outputs = (OutputRequest(at, i) for at, p in enumerate(passes) for i in range(len(p.outputs)))
    return KernelCall(passes, tuple(outputs))


class Recording(NamedTuple):
    """The arguments of one call, and what its results have in common.

    Attributes
    ----------
    arguments : tuple
        Tracers, held arrays and numbers, of one library.
    parents : tuple of (Origin or None)
        Where the arguments came from; None for those that are not traced.
    levels : frozenset of Level
        What the results depend on.
    library : Library
        Of the results.
    device : object
        Of the results, as the library names it.
    shape : tuple of int
        The broadcast shape.
    shapes : tuple of tuple
        Shapes of the arguments; empty for those that are no lanes.
    weak : bool
        Whether all arguments began as Python numbers.
    kind : type
        Class of the tracers.
    """

    arguments: tuple[Any, ...]
    parents: tuple[Origin | None, ...]
    levels: frozenset[Level]
    library: Library
    device: Any
    shape: Shape
    shapes: tuple[Shape, ...]
    weak: bool
    kind: type[Tracer]

    @classmethod
    def of(cls, program: Program, arguments: Sequence[Any], tracers: list[Tracer]) -> Recording:
        """Return what is recorded of a program's call; what cannot be is refused here."""
        arrays = [a for a in arguments if hasattr(a, "shape") and not _is_weak(a)]
        library = common_library(program.name, arrays or tracers)
        device = next((a.device for a in arrays if hasattr(a, "device")), tracers[0].device)
        arguments = tuple([_moved(a, library, device) for a in arguments])
        shapes = lane_shapes(program, arguments)
        levels = levels_of(tracers)
        return cls(
            tuple([kept(a, levels) for a in arguments]),
            tuple([a.origin if isinstance(a, Tracer) else None for a in arguments]),
            levels,
            library,
            device,
            broadcast_shape(program, shapes),
            shapes,
            weak=not arrays,
            kind=type(tracers[0]),
        )

    @property
    def active(self) -> tuple[int, ...]:
        """Indices of the arguments that are traced."""
        return tuple([i for i, parent in enumerate(self.parents) if parent is not None])

    def pending(self, call: KernelCall, backend: str | None) -> tuple[PendingCall, list[Cell]]:
        """Return the pending call that makes a call's outputs, and their cells."""
        values = [a.cell if isinstance(a, Tracer) else a for a in self.arguments]
        pending = PendingCall(call.passes, values, backend, check_mode(self.levels))
        cells = []
        for request, type in zip(call.outputs, call.types, strict=True):
            shape = self.shape if request.shape is None else request.shape
            cell = Cell(shape, type, self.library, self.device, weak=self.weak)
            pending.add(cell, request)
            cells.append(cell)
        return pending, cells

    def traced(self, cell: Cell, node: Node, index: int) -> Tracer:
        """Return a result: output ``index`` of a node."""
        return self.kind(cell, Origin(node, index, self.levels))


def lane_shapes(program: Program, arguments: Sequence[Any]) -> tuple[Shape, ...]:
    """Return the shapes of the arguments that are broadcast, and () for the others."""
    shapes: list[Shape] = []
    for param, argument in zip(program.params, arguments, strict=True):
        if param.kind == "lane":
            shapes.append(tuple(argument.shape))
        elif param.kind == "array" and isinstance(argument, Tracer):
            raise KernelGradientError(
                f"{program.name}: the gradient of the array {param.name!r}, which is indexed "
                "inside the function, is not available yet",
                hint=f"pass mixad.stop_gradient({param.name}), or pass its elements as arguments",
            )
        else:
            shapes.append(())
    return tuple(shapes)


def _moved(argument: Any, library: Library, device: Any) -> Any:
    """Return what was a Python number as a 0-d array of the library beside it."""
    if _is_weak(argument) and argument.cell.library is not library:
        return _move(argument, (argument.cell.library, None), (library, device))
    return argument


def _move(x: Any, source: _Place, target: _Place) -> Any:
    return apply_rule(_MOVE, x, source=source, target=target)


_Place: TypeAlias = tuple[Library, Any]  # with the device
_MOVE = Rule(
    "a Python number",
    lambda xp, x, source, target: target[0].asarray(float(x), F64, target[1]),
    (lambda g, x, source, target: _move(g, target, source),),
)


def _is_weak(argument: Any) -> bool:
    return isinstance(argument, Tracer) and argument.cell.weak
