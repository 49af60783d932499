"""Which element read outside an array, found after the fact: kernels only note that one did.

The kernel runs again on halves of the element range, about twice the work of the first run in all;
then the interpreter runs the one element that is left and meets the index itself. Where it cannot,
or gives up, the error names all lines that read at a computed index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mixad.backends.arrays import device_name, library_of
from mixad.errors import KernelIndexError
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.interpret import IterationLimitError, OutsideError, interpret
from mixad.scalar.ir import Load, Program, Update, walk_statements
from mixad.scalar.narrow import from_memory
from mixad.scalar.widen import widen_program

__all__ = ["locate", "outside_error"]

Raises: TypeAlias = Callable[[Sequence[Any]], bool]
"""Whether a kernel reads outside an array for some arguments."""

_MAX_ITERATIONS = 100_000
"""Of a loop, when one element is interpreted."""

_SUGGESTION = "read it under an `if`, or clip the index"


def locate(
    program: Program,
    arguments: Sequence[Any],
    accumulators: Sequence[tuple[int, ...]],
    shape: tuple[int, ...],
    raises: Raises,
) -> KernelIndexError:
    """Return the error for a program that has read, or added, outside an array.

    ``accumulators`` are the shapes of those among its outputs; ``raises`` runs the kernel on some
    of the elements.
    """
    element, own = _first(program, arguments, shape, raises)
    program = widen_program(program)
    found = _interpret_element(program, own, accumulators)
    where = f", element {element}" if shape else ""
    if found is None:
        return _possible_error(program, where)
    return outside_error(program, where, found)


def outside_error(program: Program, where: str, found: OutsideError) -> KernelIndexError:
    """Return the error with the index that the interpreter met."""
    name = _array(program, found.load)
    index = found.index[0] if len(found.index) == 1 else found.index
    message = f"{program.name}{where}: index {index} is outside {name!r} of shape {found.shape}"
    line = found.load.line
    return KernelIndexError(message, location=line.place if line else None, hint=_SUGGESTION)


def _possible_error(program: Program, where: str) -> KernelIndexError:
    """Return the error for an unknown index: it names the lines that may have read it."""
    loads = [s for s in walk_statements(program.body) if isinstance(s, Load | Update)]
    names = " or ".join(dict.fromkeys(repr(_array(program, s)) for s in loads))
    lines = list(dict.fromkeys(s.line for s in loads if s.line is not None))
    numbers = " or ".join(str(line.number) for line in lines)
    also = f" (read on line {numbers})" if len(lines) > 1 else ""
    message = f"{program.name}{where}: an index is outside {names}{also}"
    return KernelIndexError(message, location=lines[0].place if lines else None, hint=_SUGGESTION)


def _array(program: Program, load: Load | Update) -> str:
    """Return the name of the array that is read."""
    arrays = (*program.params, *program.accumulators)
    return next(p.name for p in arrays if p.var == load.array)


def _first(
    program: Program, arguments: Sequence[Any], shape: tuple[int, ...], raises: Raises
) -> tuple[tuple[int, ...], list[Any]]:
    """Return the first element that reads outside, and its arguments."""
    own, element = list(arguments), []
    for axis, extent in enumerate(shape, -len(shape)):
        start, end = 0, extent
        while end - start > 1:
            half = (end - start) // 2
            first = _part(program, own, axis, slice(0, half))
            if raises(first):
                own, end = first, start + half
            else:
                own, start = _part(program, own, axis, slice(half, None)), start + half
        element.append(start)
    return tuple(element), own


def _part(program: Program, arguments: Sequence[Any], axis: int, part: slice) -> list[Any]:
    """Return a slice of the lanes along an axis, counted from the last one (-1)."""
    after = (slice(None),) * (-axis - 1)
    return [
        a[(..., part, *after)]
        if p.kind == "lane" and len(a.shape) >= -axis and a.shape[axis] != 1
        else a
        for p, a in zip(program.params, arguments, strict=True)
    ]


def _interpret_element(
    program: Program, arguments: Sequence[Any], accumulators: Sequence[tuple[int, ...]]
) -> OutsideError | None:
    """Run one element; None if the interpreter cannot, or its arithmetic takes another branch."""
    arrays = [a for a, p in zip(arguments, program.params, strict=True) if p.kind != "uniform"]
    if any(device_name(a) != "cpu" for a in arrays):
        return None
    values = [
        a if p.kind == "uniform" else _numpy(a, one=p.kind == "lane")
        for a, p in zip(arguments, program.params, strict=True)
    ]
    added = [program.accumulator(m) for m in range(len(program.outputs))]
    zeros = {
        a.var: np.zeros(shape, a.var.type.dtype)
        for a, shape in zip((a for a in added if a is not None), accumulators, strict=True)
    }
    values += [zeros[a.var] for a in program.accumulators]
    try:
        interpret(program, values, max_iterations=_MAX_ITERATIONS)
    except OutsideError as found:
        return found
    except IterationLimitError:
        return None
    return None


def _numpy(array: Any, *, one: bool) -> Any:
    view, type = library_of(array).numpy_view(array), scalar_type_of(array.dtype)
    if type.is_narrow:
        view = from_memory(view, type)
    return view.reshape(())[()] if one else view
