"""Blocks of a Jacobian, one for each leaf of the value and of the arguments, in either mode.

The Jacobian of a function of N elements into M has N columns, of which forward mode gives up to ten
in one pass, and M rows, of which reverse mode gives one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

from mixad.backends.arrays import is_array, library_of
from mixad.namespace.data_types import astype
from mixad.namespace.joining import stack
from mixad.namespace.manipulation import reshape
from mixad.scalar.dual import MAX_PARTIALS
from mixad.tape.backward import backward
from mixad.tape.cell import Cell
from mixad.tape.kernel_node import moved
from mixad.tape.tracer import Level, Tracer, journal_of
from mixad.transforms.inner_calls import InnerForward
from mixad.transforms.inside import Inside, as_results
from mixad.transforms.lifting import Outputs, in_structures
from mixad.transforms.recorded_calls import Recorded
from mixad.transforms.returning import as_given, constant_around, own_cotangent, unwrap_shared
from mixad.transforms.strand_calls import CallRequest

__all__ = ["InnerJacobian", "Mode", "blocks_of"]

Mode: TypeAlias = Literal["auto", "forward", "reverse"]

_MAX_PASSES = 32
"""Most passes that are one operation of an outer recording: a plan has the steps of each."""


class InnerJacobian(InnerForward):
    """A Jacobian inside of a recording, as one operation; its results are the blocks.

    The mode is what is asked for.
    """

    def _find_inside(self, outputs: Outputs, asked: CallRequest) -> None:
        """Record the call with the outer strand."""
        is_complex = any(self._strand.has(t) and t.kind.type.is_complex for t in outputs.leaves)
        if is_complex or _passes(self._shapes(), outputs, asked.given) > _MAX_PASSES:
            self._strand.is_left = True
        else:
            super()._find_inside(outputs, asked)

    def _computation(
        self, outputs: Outputs, asked: CallRequest
    ) -> tuple[Callable[..., Any], Sequence[Any]]:
        is_forward = _is_forward(self._shapes(), outputs, asked.given)
        return _by_columns if is_forward else _by_rows, []

    def _derivatives(self, found: list[Any]) -> list[Any]:
        count = len(self._states)
        rows = [found[at : at + count] for at in range(0, len(found), count)]
        return [in_structures(row, self._structures) for row in rows]

    def _shapes(self) -> list[tuple[int, ...]]:
        return [state.shape for state in self._states]


def _by_columns(call: Inside, *operands: Any) -> Any:
    """Return blocks by forward passes, and the other wanted values."""
    return _found(call, operands, "forward")


def _by_rows(call: Inside, *operands: Any) -> Any:
    """Return blocks by backward passes, and the other wanted values."""
    return _found(call, operands, "reverse")


def _found(call: Inside, operands: Sequence[Any], mode: Mode) -> Any:
    with Level(call.name, is_reverse=mode == "reverse") as level:
        inputs, outputs, wanted = call.replay(level, operands)
    blocks = blocks_of(Recorded(level, inputs, outputs), mode)
    return as_results([*chain(*blocks), *[unwrap_shared(leaf, level) for leaf in wanted]])


def blocks_of(function: Recorded, mode: Mode) -> list[list[Any]]:
    """Return, for each leaf of the value, its blocks as the caller gets them."""
    inputs, outputs = function.inputs, function.outputs
    is_forward = _is_forward([cell.shape for cell in inputs.cells], outputs, mode)
    blocks = _columns(function) if is_forward else _rows(function)
    around = outputs.around(function.level)
    return [
        [as_given(*end, around) for end in zip(row, inputs.cells, inputs.kinds, strict=True)]
        for row in blocks
    ]


def _is_forward(inputs: Sequence[tuple[int, ...]], outputs: Outputs, mode: Mode) -> bool:
    count = sum(math.prod(_shape(leaf)) for leaf in outputs.leaves)
    return mode == "forward" or (mode == "auto" and sum(map(math.prod, inputs)) <= count)


def _passes(inputs: Sequence[tuple[int, ...]], outputs: Outputs, mode: Mode) -> int:
    if _is_forward(inputs, outputs, mode):
        return sum(-(-math.prod(shape) // MAX_PARTIALS) for shape in inputs)
    return sum(math.prod(_shape(leaf)) for leaf in outputs.leaves)


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(getattr(leaf, "shape", ()))


def _rows(function: Recorded) -> list[list[Any]]:
    """Return the blocks of the Jacobian by backward passes, one for each element of the value."""
    level, inputs, found = function.level, function.inputs, []
    around = function.outputs.around(level)
    for leaf in function.outputs.leaves:
        rows: list[list[Any]] = []
        if isinstance(leaf, Tracer) and level in leaf.origin.levels:
            is_noted = journal_of(leaf.origin.levels) is not None
            for unit in _units(leaf.cell, leaf):
                if is_noted:  # then what is made of it is, too
                    unit = constant_around(unit, around)
                cotangents = backward(level, [(leaf.origin, unit)], inputs.nodes)
                rows.append(
                    [own_cotangent(*pair) for pair in zip(inputs.cells, cotangents, strict=True)]
                )
        columns = zip(*rows, strict=True) if rows else [()] * len(inputs.cells)
        pairs = zip(columns, inputs.cells, strict=True)
        found.append([_block(parts, 0, leaf, cell) for parts, cell in pairs])
    return found


def _columns(function: Recorded) -> list[list[Any]]:
    """Return the blocks of the Jacobian by forward passes, one for up to ten elements."""
    leaves, cells = function.outputs.leaves, function.inputs.cells
    found: list[list[Any]] = [[] for _ in leaves]
    for at, cell in enumerate(cells):
        columns = list(_tangents(function, at))
        for k, leaf in enumerate(leaves):
            parts = [column[k] for column in columns] if isinstance(leaf, Tracer) else []
            found[k].append(_block(parts, -1, leaf, cell))
    return found


def _tangents(function: Recorded, at: int) -> Iterator[list[Any]]:
    """Return the tangents of the value along each element of one leaf of the arguments."""
    cells, outputs = function.inputs.cells, function.outputs
    around = outputs.around(function.level)
    size = math.prod(cells[at].shape)
    passes = -(-size // MAX_PARTIALS)
    traced = next((leaf for leaf in outputs.leaves if isinstance(leaf, Tracer)), None)
    units = _units(cells[at], traced)  # made pass by pass: all together they are a square
    for turn in range(passes):
        chunk = list(islice(units, (turn + 1) * size // passes - turn * size // passes))
        if around:  # so what is done with them is noted there
            chunk = [constant_around(unit, around) for unit in chunk]
        carried = function.carried(
            [[unit if i == at else None for i in range(len(cells))] for unit in chunk]
        )
        yield from (carried.along(k) for k in range(len(chunk)))


def _units(cell: Cell, traced: Tracer | None) -> Iterator[Any]:
    """Yield, for each element of a value, the array that is one there and zero elsewhere.

    A traced value gets the same arrays in each call.
    """
    journal = None if traced is None else journal_of(traced.levels)
    xp, dtype = cell.library.xp, cell.library.dtype_of(cell.type)
    size = math.prod(cell.shape)
    for k in range(size):
        row = xp.reshape(xp.astype(xp.arange(size, device=cell.device) == k, dtype), (1, size))
        unit = xp.reshape(row, cell.shape)
        if journal is not None:
            journal.know(unit)
        yield unit


def _block(parts: Sequence[Any], axis: int, leaf: Any, cell: Cell) -> Any:
    """Return rows or columns as one array, zeros if there are none.

    The array has the kind of the input, whose cell is given; the output's kind where the input is a
    Python number.
    """
    like = leaf.cell if cell.kind.weak and isinstance(leaf, Tracer) else cell
    xp, dtype = like.library.xp, like.library.dtype_of(like.type)
    shape = (*_shape(leaf), *cell.shape)
    if not parts:
        return xp.zeros(shape, dtype=dtype, device=like.device)
    arrays = [part if _shape(part) else _array(part, like) for part in parts]
    is_own = len(arrays) == 1 and not isinstance(arrays[0], Tracer)  # it may be a unit vector
    block = reshape(arrays[0] if is_own else stack(arrays, axis=axis), shape)
    return block if block.dtype == dtype else astype(block, dtype)


def _array(number: Any, like: Cell) -> Any:
    """Return a number as a 0-d array of the kind of a value."""
    if isinstance(number, Tracer):
        return moved(number, like.library, like.device)
    if is_array(number) and library_of(number).is_lazy:  # the derivative by a number beside it
        return number
    return like.library.asarray(float(number), like.type, like.device)
