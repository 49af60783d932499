"""What makes the pending results that a backward pass reads, as steps like the others.

Which nodes make a value, and what else they make, is found by a walk that takes longer than a
small kernel.  It depends on the trace alone, so what it finds is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mixad.kernel.options import KernelOptions
from mixad.tape.cell import Cell
from mixad.tape.kernel_call import KernelCall
from mixad.tape.making import Making, makings
from mixad.tape.schedule import KernelStep, Pass, Place
from mixad.tape.trace import Trace
from mixad.tape.tracer import Level

__all__ = ["MakeStep", "make_steps"]


@dataclass(frozen=True, eq=False, slots=True)
class MakeStep:
    """One kernel: results that later steps read, and those that someone holds on the way to them.

    Attributes
    ----------
    call : KernelCall
        What it computes.
    arguments : tuple of Place
        What it takes: arguments of nodes.
    results : tuple of Place
        What the arrays are: outputs of nodes.
    options : KernelOptions
        The user's overrides.
    """

    call: KernelCall
    arguments: tuple[Place, ...]
    results: tuple[Place, ...]
    options: KernelOptions

    def run(self, under_way: Pass) -> None:
        """Launch the kernel, unless another thread has made the results meanwhile."""
        nodes, level = under_way.nodes, under_way.level
        with level.lock:
            cells = [nodes[number].keep(output) for number, output in self.results]
            if not any(cell.pending for cell in cells):
                return
            read = [under_way.argument(place) for place in self.arguments]
            arrays = self.call.arrays(read, self.options)
            for cell, array in zip(cells, arrays, strict=True):
                if cell.pending is not None:
                    cell.fill(array, level.check)
            if level.journal is not None:
                places = [(nodes[number], index) for number, index in self.arguments]
                level.journal.launched(self.call, self.options, places, cells)


def make_steps(level: Level, trace: Trace, step: KernelStep) -> Iterator[MakeStep]:
    """Yield the steps that make what a step reads; each is taken before the next is asked for.

    What is no step is made here, and will be when it is read: by a rule, or with partials.

    Parameters
    ----------
    level : Level
        The transform's.
    trace : Trace
        Of no other transform.
    step : KernelStep
        What comes next.
    """
    with level.lock:
        for number, index in step.waiting:  # what is held is made with what it is fused with
            trace.nodes[number].source(index).hold()
    for place in step.arguments:
        if not isinstance(place, int):  # else a cotangent
            number, index = place
            source = trace.nodes[number].source(index)
            if type(source) is Cell:
                yield from _steps(level, trace, source)


def _steps(level: Level, trace: Trace, cell: Cell) -> Iterator[MakeStep]:
    """Yield the steps that make a value, if it is pending."""
    with level.lock:
        pending = cell.pending
        cell.hold()
    runs = iter(()) if pending is None else makings(pending)
    while True:
        with level.lock:
            run = next(runs, None)
            if run is None:
                return
            step = _step(trace, run)
            if step is None:
                run()
        if step is not None:
            yield step


def _step(trace: Trace, run: Callable[[], None]) -> MakeStep | None:
    """Return what makes some results as a step; None if it cannot be one."""
    if not isinstance(run, Making):
        return None
    alone = run.alone()
    if alone is None or not all(map(trace.has, run.members)):
        return None
    numbers = [trace.numbers[id(node)] for node in run.members]
    return MakeStep(
        alone.call,
        tuple([(numbers[at], index) for at, index in alone.read]),
        tuple([(numbers[at], output) for at, output in alone.made]),
        alone.options,
    )
