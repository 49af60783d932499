"""What a kernel computes at one element, equation by equation."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from mixad.backends.audit import Elements
from mixad.backends.checks import check_arguments, one_place
from mixad.backends.execute import broadcast_shape
from mixad.backends.out_of_bounds import outside_error
from mixad.errors import KernelGradientError, KernelIndexError
from mixad.scalar.dual import MAX_PARTIALS, DualChunk
from mixad.scalar.interpret import OutsideError
from mixad.scalar.ir import Line, Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.scalar.simplify import without_sums
from mixad.scalar.trace import Step, run_duals
from mixad.tape.kernel_call import kernel_values

__all__ = ["Trace", "trace_call"]

Row = tuple[str, DualChunk[Any]]


@dataclass(frozen=True, eq=False)
class Trace:
    """What a kernel computes at one element, with partials: by the interpreter, on NumPy scalars.

    Attributes
    ----------
    function : str
        Its name.
    index : tuple of int
        Which element of the broadcast shape.
    wrt : tuple of str
        Names of the inputs that partials are with respect to.
    inputs : dict
        Values by the names of the inputs, whole arrays of those that are read by index.
    steps : tuple of Step
        Equations in the order in which they are computed, of the branches that are taken and of
        each iteration of loops: ``line``, ``iterations``, ``text``, ``dual``.
    returned : tuple of DualChunk
        What the function returns at this element; a complex number is two, vectors and structures
        are their numbers.
    """

    function: str
    index: tuple[int, ...]
    wrt: tuple[str, ...]
    inputs: dict[str, Any]
    steps: tuple[Step, ...]
    returned: tuple[DualChunk[Any], ...]

    def __str__(self) -> str:
        numbers = {name: value for name, value in self.inputs.items() if np.ndim(value) == 0}
        rows = [
            (name, DualChunk(value, dict.fromkeys({name} & {*self.wrt}, 1.0)))
            for name, value in numbers.items()
        ]
        blocks = [(self._head, rows), *self._blocks()]
        blocks.append(("returns", [(f"[{i}]", dual) for i, dual in enumerate(self.returned)]))
        return "\n".join(_table(blocks, self.wrt))

    @property
    def _head(self) -> str:
        where = f" at [{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.function}{where}"

    def _blocks(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the user's lines as they run, each with what it computes.

        For a function of mixad's own that is the last equation.
        """
        for (line, iterations), steps in groupby(
            self.steps, lambda s: (s.line.users, s.iterations)
        ):
            rows: list[Row] = []
            for is_inside, group in groupby(steps, lambda s: s.line.call is not None):
                own = [(step.text, step.dual) for step in group]
                left_out = [(f"... {len(own) - 1} steps", DualChunk(""))] if len(own) > 1 else []
                rows += [*left_out, own[-1]] if is_inside else own
            iteration = f"  # iteration {'.'.join(map(str, iterations))}" if iterations else ""
            yield f"{self._file(line)}line {line.shown}{iteration}", rows

    def _file(self, line: Line) -> str:
        is_first = line.filename == self.steps[0].line.users.filename
        return "" if is_first else f"{Path(line.filename).name} "


def _table(blocks: Sequence[tuple[str, Sequence[Row]]], wrt: Sequence[str]) -> Iterator[str]:
    """Yield lines: titles, then the rows of each, of a text, a value and partials."""
    spelled = [
        (title, [(f"  {text}", *_cells(dual, wrt)) for text, dual in rows])
        for title, rows in blocks
    ]
    cells = [("", "value", *(f"d/d{name}" for name in wrt))]
    widths = [
        max(map(len, column))
        for column in zip(*cells, *(row for _, rows in spelled for row in rows), strict=True)
    ]
    for number, (title, rows) in enumerate(spelled):
        heading = _join_cells((title, *cells[0][1:]), widths) if number == 0 else title
        yield heading.rstrip()
        for row in rows:
            yield _join_cells(row, widths).rstrip()


def _join_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])


def _cells(dual: DualChunk[Any], wrt: Sequence[str]) -> list[str]:
    return [_number(dual.primal), *(_number(dual.partials.get(name, "")) for name in wrt)]


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if isinstance(value, float | np.floating) else str(value)


def trace_call(
    program: Program, values: Sequence[Any], wrt: Sequence[int], at: Any, first: Line
) -> Trace:
    """Trace a call at the element ``at``; ``first`` is the first line of the function.

    ``values`` are plain arrays and numbers, one per param; ``wrt`` are params.
    """
    if len(wrt) > MAX_PARTIALS:
        raise KernelGradientError(
            f"{program.name}: a trace with respect to {len(wrt)} inputs shows at most "
            f"{MAX_PARTIALS} partials",
            hint="name fewer in wrt",
        )
    if program.has_named_loops:
        warn_of_decided_results(program, tuple(wrt), tuple(range(len(program.outputs))))
    check_arguments(program, values)
    arguments = kernel_values(program, values)
    kinds = [p.kind for p in program.params]
    one_place([a for a, kind in zip(arguments, kinds, strict=True) if kind != "uniform"])
    shape = broadcast_shape(program, [tuple(getattr(a, "shape", ())) for a in arguments])
    index = _index(program.name, at, shape)
    places = [np.asarray([i]) for i in index]
    own = Elements.of(without_sums(program), arguments, places, 1).numbers(0)
    try:
        steps, returned = run_duals(program, own, wrt, first)
    except OutsideError as error:
        raise outside_error(program, f", element {index}" if shape else "", error) from None
    names = [p.name for p in program.params]
    return Trace(
        program.name,
        index,
        tuple(names[i] for i in wrt),
        dict(zip(names, own, strict=True)),
        tuple(steps),
        tuple(returned),
    )


def _index(name: str, at: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element, counted from the start; KernelIndexError if there is none."""
    try:
        index = tuple(map(operator.index, at if isinstance(at, tuple) else (at,)))
    except TypeError:
        index = None
    if (
        index is None
        or len(index) != len(shape)
        or not all(-n <= i < n for i, n in zip(index, shape, strict=True))
    ):
        last = ", ".join(str(n - 1) for n in shape)
        hint = f"pass at=({last}{',' * (len(shape) == 1)}) for the last element"
        raise KernelIndexError(
            f"{name}: at={at!r} is no element of the broadcast shape {shape}",
            hint=hint if math.prod(shape) else "pass arrays with elements",
        )
    return tuple(i % n for i, n in zip(index, shape, strict=True))
