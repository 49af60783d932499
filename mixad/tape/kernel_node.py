"""The kernel node: a program at every element of broadcast arrays, recorded, not yet run.

A node knows what to compute and from what. Its results are made when someone asks for one, in
one kernel with pending nodes that it can be fused with (`mixad.tape.materialize`), or in the
backward pass together with the gradients (`mixad.tape.backward`). It holds its results weakly: what
nobody holds any more is not computed, or not stored.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import is_not
from typing import Any, NamedTuple, TypeAlias

from mixad.backends.arrays import Library, is_scalar, library_of
from mixad.errors import KernelTypeError, TracerError
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.types import F64
from mixad.tape.cell import Cell
from mixad.tape.fusion import value_of
from mixad.tape.kernel_call import KernelCall, Shape
from mixad.tape.node import Result, Rule, Shaped, apply_rule, common_library, lazily
from mixad.tape.partials_plan import PartialsPlan
from mixad.tape.tracer import (
    Level,
    Origin,
    Tracer,
    check_levels,
    journal_of,
    kept,
    locked,
    origin_outside,
)

__all__ = ["KernelNode", "Partials", "moved", "record"]


class Argument(NamedTuple):
    """An argument of a kernel's node: as the node holds it, and where it came from."""

    held: Any
    parent: Origin | None
    tracer_type: type[Tracer]

    @property
    def source(self) -> Any:
        """A cell, a guarded array or a number."""
        if type(self.held) is not Origin:
            return self.held
        producer: KernelNode = self.held.node  # type: ignore[assignment]  # it was pending
        return producer.cell(self.held.output)

    def seen_outside(self, level: Level) -> Any:
        """Return it as the transforms around a level see it."""
        traced = self.traced_outside(level)
        return value_of(self.source) if traced is None else traced

    def traced_outside(self, level: Level) -> Tracer | None:
        """Return it as the transforms around a level trace it; None if none does."""
        if self.parent is not None:
            levels = self.parent.levels
            if len(levels) > 1 or level not in levels:
                around = frozenset([each for each in levels if each.alive and each is not level])
                if around:
                    origin = origin_outside(self.parent, level)._replace(levels=around)
                    return self.tracer_type(self.source, origin)
        return None


class Partials(NamedTuple):
    """Partials that have been made with results.

    `arrays` are what the passes of the plan store, perhaps watched; None for what is no partial.
    """

    plan: PartialsPlan
    arrays: Sequence[Any]


class KernelNode:
    """One program over broadcast arguments, and the arrays that are wanted of its results.

    `siblings` are the passes of one call, this node among them, which are not fused with others;
    those that are live are computed together. A call of one pass has none. Once `partials` have
    been made with the results, the node is that of the whole kernel.
    """

    __slots__ = (
        "__weakref__",
        "_first",
        "_further",
        "_kept",
        "arguments",
        "call",
        "device",
        "levels",
        "library",
        "options",
        "outputs",
        "parents",
        "partials",
        "shape",
        "siblings",
        "tracer_type",
        "uses",
        "weak",
    )  # fmt: skip
    name = "kernel"

    def __init__(
        self,
        call: KernelCall,
        arguments: tuple[Any, ...],
        parents: tuple[Origin | None, ...],
        shape: Shape,
        levels: frozenset[Level],
        library: Library,
        device: Any,
        weak: bool,
        tracer_type: type[Tracer],
        options: KernelOptions,
    ) -> None:
        self.call = call  # of one pass
        # By param: `Origin` if it was pending, cell, guarded array or number; `Shaped` once over.
        self.arguments = arguments
        self.parents = parents  # where the arguments came from; None if not traced
        self.shape = shape  # the broadcast shape
        self.levels = levels  # what the results depend on
        self.library = library  # of the results, as is the device
        self.device = device
        self.weak = weak  # whether all arguments began as Python numbers
        self.tracer_type = tracer_type
        self.options = options
        self.outputs = call.outputs  # and the sums that are asked for later
        self.siblings: tuple[weakref.ref[KernelNode], ...] = ()
        self.uses = 0  # how many nodes have been recorded that read a pending result
        self.partials: Partials | None = None
        self._first: weakref.ref[Cell] | None = None  # the cell of output 0, most nodes' only one
        self._further: dict[int, weakref.ref[Cell]] = _NOTHING
        self._kept: dict[int, Cell] = {}

    def live_cell(self, output: int) -> Cell | None:
        """Return the cell of an output; None if nobody holds it."""
        found = self._further.get(output) if output else self._first
        return None if found is None else found()

    def cell(self, output: int) -> Cell:
        """Return the cell of an output, which may be pending; where threads share it, locked."""
        cell = self.live_cell(output)
        if cell is None:
            request = self.outputs[output]
            shape = self.shape if request.shape is None else request.shape
            kind = self.call.kind(request.result, self.library, self.weak)
            cell = Cell(shape, kind, self.device, self, output)
            if not output:
                self._first = weakref.ref(cell)
            else:
                if self._further is _NOTHING:
                    self._further = {}
                self._further[output] = weakref.ref(cell)
        return cell

    def traced(self, output: int) -> Tracer:
        """Return an output as a tracer."""
        return self.tracer_type(self.cell(output), Origin(self, output, self.levels))

    def is_materialized(self, output: int) -> bool:
        """Whether the array of an output is there."""
        cell = self.live_cell(output)
        return cell is not None and cell.pending is None

    def argument(self, index: int) -> Argument:
        """Return an argument without the others, which the node holds."""
        return Argument(self.arguments[index], self.parents[index], self.tracer_type)

    def source(self, index: int) -> Any:
        """Return an argument: a cell, a guarded array or a number."""
        return self.argument(index).source

    def traced_outside(self, index: int, level: Level) -> Tracer | None:
        """Return an argument as the transforms around a level trace it; None if none does."""
        return self.argument(index).traced_outside(level)

    def live(self) -> list[tuple[int, Cell, OutputRequest]]:
        """Return the pending outputs that are live: index, cell, what is wanted."""
        found = []
        for output, request in enumerate(self.outputs):
            cell = self.live_cell(output)
            if cell is not None and cell.pending is not None:
                found.append((output, cell, request))
        return found

    def store(
        self,
        partials: Partials,
        arguments: Sequence[Any],
        parents: Sequence[Origin | None],
        results: Sequence[int],
    ) -> None:
        """Become the node of the kernel that made partials: its arguments, and which results.

        Cotangents go back through the partials: the node lets go of other arguments. Results stay
        if pending nodes read them: they cannot be made again.
        """
        self.partials = partials
        self.call = KernelCall.storing(partials.plan.program)
        read = partials.plan.read
        self.arguments = tuple([a if i in read else _form(a) for i, a in enumerate(arguments)])
        self.parents = tuple(parents)
        self.outputs = tuple(
            [OutputRequest(0, at, r.shape) for r, at in zip(self.outputs, results, strict=True)]
        )
        for output in range(len(self.outputs)) if self.uses else ():
            cell = self.live_cell(output)
            if cell is not None:
                self._kept[output] = cell

    @property
    def results(self) -> list[Result]:
        """What the outputs are."""
        return [
            Result(
                self.shape if request.shape is None else request.shape,
                self.call.kind(request.result, self.library, self.weak),
                self.device,
            )
            for request in self.outputs
        ]

    def keep(self, output: int) -> Cell:
        """Return the cell of an output, held for as long as the node is: others will read it."""
        cell = self._kept.get(output)
        if cell is None:
            cell = self._kept[output] = self.cell(output)
        return cell

    def total(self, cell: Cell, shape: Shape) -> Cell | None:
        """Add the output that is the one of a cell, summed to a shape; return its cell.

        None if the cell is of a sum already.
        """
        with locked(self.levels):
            summed = self.outputs[cell.output]
            if summed.shape is not None:
                return None
            for at, known in enumerate(self.outputs):
                if known.result == summed.result and known.shape == shape:
                    return self.cell(at)
            self.outputs = (*self.outputs, _summed(summed.result, shape))
            journal = journal_of(self.levels)
            if journal is not None:
                journal.summed(self)
            return self.cell(len(self.outputs) - 1)


_NOTHING: dict[int, weakref.ref[Cell]] = {}
"""For nodes with one output; replaced, never changed. Python's garbage collector walks all that a
long tape holds, several times while it grows: one container less for each node is worth it."""


def _form(source: Any) -> Any:
    """Return the form of an argument that is not read any more."""
    return Shaped(source.shape, source.kind.type.dtype) if type(source) is Cell else source


@lru_cache(maxsize=1024)
def _summed(result: int, shape: Shape) -> OutputRequest:
    return OutputRequest(0, result, shape)


def record(
    call: KernelCall,
    arguments: Sequence[Any],
    options: KernelOptions = DEFAULT_OPTIONS,
) -> tuple[KernelNode, ...]:
    """Record a call with a traced argument, a node for each pass; refuse what cannot be recorded.

    Arguments are as for `mixad.tape.apply.apply_program`.
    """
    levels, parents, shapes, strong, library, tracer = _surveyed(call, arguments)
    check_levels(levels)
    if library.is_lazy:
        beside = [
            lazily(a, library) if kind == "lane" else a
            for kind, a in zip(call.kinds, arguments, strict=True)
        ]
        if any(map(is_not, beside, arguments)):
            return record(call, beside, options)
    elif 0 < len(strong) < len(arguments) and any(_is_elsewhere(a, library) for a in arguments):
        beside = [
            moved(a, library, getattr(strong[0], "device", None))
            if _is_elsewhere(a, library)
            else a
            for a in arguments
        ]
        return record(call, beside, options)
    if _may_be_refused(call, options, levels):
        asked = [p is not None and any(q.differentiates for q in p.levels) for p in parents]
        is_reverse = any(level.is_reverse for level in levels)
        active = [
            i
            for i, is_asked in enumerate(asked)
            if is_asked and (is_reverse or not is_indexed(call, i))  # it has tangents in any case
        ]
        call.check_differentiable(tuple(active), options)
    recorded = (
        tuple([_source(call, i, a, levels) for i, a in enumerate(arguments)]),
        tuple(parents),
        call.shape(tuple(shapes)),
        levels,
        library,
        getattr(strong[0] if strong else tracer, "device", None),
        not strong,
        type(tracer),
        options,
    )
    nodes = tuple([KernelNode(part, *recorded) for part in call.parts])
    if len(nodes) > 1:
        siblings = tuple(map(weakref.ref, nodes))
        for node in nodes:
            node.siblings = siblings
    journal = journal_of(levels)
    if journal is not None:
        journal.recorded(nodes)
    return nodes


def _may_be_refused(call: KernelCall, options: KernelOptions, levels: Iterable[Level]) -> bool:
    """Whether a call may need a derivative that does not exist."""
    reads = "array" in call.kinds
    if (call.has_loops and reads) or (options.strategy == "reverse" and (call.has_loops or reads)):
        return call.lacks_derivatives or any(level.is_reverse for level in levels)
    return call.lacks_derivatives


_NO_LEVELS: frozenset[Level] = frozenset()


def _surveyed(
    call: KernelCall, arguments: Sequence[Any]
) -> tuple[frozenset[Level], list[Origin | None], list[Shape], list[Any], Library, Tracer]:
    """Look at each argument once; return levels, parents, shapes, strong ones, library, a tracer.

    A parent is None if it is not traced, a shape empty if it is no lane. Strong arguments did not
    begin as Python numbers; the library is theirs, or the one of all arguments if there are none.
    """
    levels = _NO_LEVELS
    parents: list[Origin | None] = []
    shapes: list[Shape] = []
    strong: list[Any] = []
    library: Library | None = None
    tracer: Any = None
    for kind, argument in zip(call.kinds, arguments, strict=True):
        if isinstance(argument, Tracer):
            tracer, origin, cell = argument, argument.origin, argument.cell
            parents.append(origin)
            levels = origin.levels if origin.levels >= levels else levels | origin.levels
            own = None if cell.kind.weak else cell.kind.library
            shapes.append(cell.shape if kind == "lane" else ())
        else:
            parents.append(None)
            own = None if is_scalar(argument) else _library_of(call, len(shapes), argument)
            shapes.append(tuple(argument.shape) if kind == "lane" else ())
        if own is not None:
            strong.append(argument)
            if own is not library and library is not None:
                own = common_library(call.name, strong, may_mix=True)
            library = own
    return levels, parents, shapes, strong, library or tracer.cell.kind.library, tracer


def _library_of(call: KernelCall, index: int, argument: Any) -> Library:
    """Return the library of an array; an error names the argument."""
    try:
        return library_of(argument)
    except (KernelTypeError, TracerError) as error:
        name = call.passes[0].params[index].name
        raise error.about(f"{call.name}: argument {name!r}") from None


def _source(call: KernelCall, index: int, argument: Any, levels: frozenset[Level]) -> Any:
    """Return an argument as nodes hold it.

    An array is watched; a pending value counts one more use.
    """
    if not isinstance(argument, Tracer):
        return kept(argument, levels, call, index)
    cell, node = argument.cell, argument.origin.node
    if not isinstance(node, KernelNode) or cell.pending is not node or is_indexed(call, index):
        return cell  # it is there, or is pending elsewhere, or is read as a whole
    node.uses += 1
    return argument.origin


def is_indexed(call: KernelCall, index: int) -> bool:
    """Whether a call reads an argument by index."""
    return call.kinds[index] == "array"


def _is_elsewhere(argument: Any, library: Library) -> bool:
    """Whether an argument was a Python number, and is an array of another library now."""
    if not isinstance(argument, Tracer):
        return False
    kind = argument.cell.kind
    return kind.weak and kind.library is not library


def moved(number: Tracer, library: Library, device: Any) -> Any:
    """Return what was computed from Python numbers as a 0-d array of a library, or a lazy one."""
    if number.cell.library is library or number.cell.library.is_lazy:
        return number
    return _move(number, (number.cell.library, None), (library, device))


def _move(x: Any, source: _Home, target: _Home) -> Any:
    return apply_rule(_MOVE, x, source=source, target=target)


_Home: TypeAlias = tuple[Library, Any]  # with the device
_MOVE = Rule(
    "a Python number",
    lambda xp, x, source, target: target[0].asarray(float(x), F64, target[1]),
    (lambda g, x, source, target: _move(g, target, source),),
    linear="each",
)
