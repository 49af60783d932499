"""Arrays that are written to, one assignment after the other, until someone asks for them.

Each assignment makes a traced array stand for a new value. The first assignment copies the array;
the next ones write into the copy as long as nothing else holds its cell. So this cell is pending:
whoever reads it asks it for the array first, and from then on nothing writes to the array.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from mixad.backends.arrays import Array, library_met
from mixad.config import CheckMode
from mixad.tape.cell import Cell, Kind

if TYPE_CHECKING:
    from mixad.tape.tracer import Tracer

__all__ = ["Buffer", "buffer_of", "copied", "written_array"]


class Buffer:
    """What holds the array of one pending cell; nobody else holds the array.

    `check` says how closely the array is watched for changes once someone has seen it.
    """

    __slots__ = ("array", "check")

    def __init__(self, array: Array, check: CheckMode) -> None:
        self.array = array
        self.check = check

    def wait(self, kind: Kind, device: object) -> Cell:
        """Return the cell, whose value is the array as it is when someone asks for it."""
        return Cell(tuple(self.array.shape), kind, device, pending=self)

    def hand_over(self, cell: Cell) -> None:
        """Hand the array over: nothing writes to it from now on."""
        cell.fill(self.array, self.check)


def buffer_of(cell: Cell) -> Array | None:
    """Return the array of a cell if it may still be written to; callers must not retain it."""
    return cell.pending.array if isinstance(cell.pending, Buffer) else None


def copied(array: Array) -> Array:
    """Return a copy of an array; nothing else holds it."""
    return library_met(array).xp.asarray(array, copy=True)


def written_array(tracer: Tracer, check: CheckMode) -> Array:
    """Return a tracer's array to write to; only the tracer's new cell has it.

    It is copied if anything else holds the old cell: what was recorded, or another name of the
    value.
    """
    cell = tracer.cell
    kind, device, pending = cell.kind, cell.device, cell.pending
    if isinstance(pending, Buffer):
        tracer.cell = Buffer(pending.array, check).wait(kind, device)
        held = weakref.ref(cell)
        del cell
        left = held()
        if left is None:
            return pending.array
        cell = left
    array = copied(cell.array)
    tracer.cell = Buffer(array, check).wait(kind, device)
    return array
