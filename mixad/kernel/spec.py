"""The spec of a kernel, which emitters see, and the launches of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from mixad.scalar.ir import Load, Program, Update, UpdateKind, walk_statements
from mixad.scalar.types import ScalarType

__all__ = ["Indexed", "KernelSpec", "Launch", "Operand", "Output", "OutputRequest", "StrideKind",
           "SubBox", "SubBoxLayout"]  # fmt: skip

StrideKind = Literal["zero", "unit", "any", "row", "column", "tile"]
"""How an operand moves along the innermost axis: not at all, by one element, or by a stride. Along
a folded axis (`mixad.kernel.folding`) it may do neither: it is copied for each row ("column" if it
moves along the first axis of a row only), or for each tile if all rows of a tile have the same."""


class SubBox(NamedTuple):
    """A box of a larger array."""

    whole: tuple[int, ...]  # shape of the array
    starts: tuple[int, ...]  # where the box begins, for each axis


@dataclass(frozen=True)
class OutputRequest:
    """One wanted array: a result of a pass, stored, or summed to a smaller shape.

    `shape` None has one value for each element; else values are summed over the axes that it lacks
    or has with extent 1; an accumulator has any shape. `part` is the box of a stored array that has
    the values, zero elsewhere (`mixad.backends.execute.writes_parts`). `beside` are passes and
    results, of the same type, that a stored array has along a last axis of its own
    (`mixad.backends.hookspecs.Capability.stores_beside`).
    """

    pass_index: int  # which pass
    result: int  # which of its outputs
    shape: tuple[int, ...] | None = None
    part: SubBox | None = None
    beside: tuple[tuple[int, int], ...] = ()

    @property
    def side_by_side(self) -> tuple[tuple[int, int], ...]:
        """Passes and results along the array's last axis; empty if it has no such axis."""
        return ((self.pass_index, self.result), *self.beside) if self.beside else ()


@dataclass(frozen=True)
class Operand:
    """How a kernel reads one lane param."""

    type: ScalarType
    step: StrideKind


@dataclass(frozen=True)
class Indexed:
    """An array param: the program itself computes which elements it reads."""

    type: ScalarType
    rank: int


@dataclass(frozen=True)
class Output:
    """How a kernel writes one result.

    `segments` says over which of the axes that make a folded row the result is summed in every row;
    empty if over none or all of them.
    """

    type: ScalarType
    source: tuple[int, int]  # pass, and position among its outputs
    reduced: tuple[bool, ...]  # for each axis of the nest, whether it is summed
    is_part: bool = False  # whether it is written into a slice
    segments: tuple[bool, ...] = ()
    beside: tuple[tuple[int, int], ...] = ()  # sources along a last axis of the array
    accumulated: int | None = None  # axes of an accumulator; else None
    update: UpdateKind = "add"  # how an accumulator changes

    @property
    def sources(self) -> tuple[tuple[int, int], ...]:
        """Passes and results that make one element of it."""
        return (self.source, *self.beside)

    @property
    def is_changed(self) -> bool:
        """Whether it is an accumulator that is not written: lanes may change the same element."""
        return self.accumulated is not None and self.update != "write"

    @property
    def is_stored(self) -> bool:
        """Whether it has a value for each element."""
        return self.accumulated is None and not any(self.reduced) and not self.segments


@dataclass(frozen=True)
class KernelSpec:
    """The static part of a kernel: hashable, independent of extents and addresses.

    `streaming` says that results are too large to be read from the cache again: stores may bypass
    it. `is_split` says that the last outer axis goes from row to row of the folded axes; the last
    of these rows may be shorter then.
    """

    passes: tuple[Program, ...]  # same params; run in turn over each block
    operands: tuple[Operand | Indexed | None, ...]  # one per param; None is a uniform
    outputs: tuple[Output, ...]  # in the order of the results
    rank: int  # merged axes, at least 1; the last is the innermost
    streaming: bool = False
    folded: int = 0  # axes that make a row (`mixad.kernel.folding`)
    is_split: bool = False

    @property
    def accumulates(self) -> bool:
        """Whether an output is an accumulator that is added to: tiles run in slabs.

        See `mixad.kernel.tiling`.
        """
        return any(o.is_changed for o in self.outputs)

    @cached_property
    def checks_indices(self) -> bool:
        """Whether some computed indices are not known to be inside."""
        statements = (s for program in self.passes for s in walk_statements(program.body))
        return any(isinstance(s, Load | Update) and not s.is_inside for s in statements)

    @property
    def varying_params(self) -> tuple[int, ...]:
        """Indices of the params that differ from lane to lane along the innermost axis."""
        return tuple(
            k for k, o in enumerate(self.operands) if isinstance(o, Operand) and o.step != "zero"
        )

    @cached_property
    def token(self) -> str:
        """A digest of everything on which emitted code depends."""
        rest = (self.operands, self.outputs, self.rank, self.streaming, self.folded, self.is_split)
        return hashlib.sha256(repr(([p.token for p in self.passes], rest)).encode()).hexdigest()


class SubBoxLayout(NamedTuple):
    """Where a launch writes a slice of a larger array, contiguous in the order of the loops.

    The axes of shape and box are those before they were merged.
    """

    whole: tuple[int, ...]  # shape of the array
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]  # bytes between neighbours along each merged axis


@dataclass(frozen=True)
class Fold:
    """The innermost axes of a loop nest as one (`mixad.kernel.folding`).

    `copy_strides` are along `axes`, for lane params that do not lie in memory as a row does and so
    are copied. `segments` and `columns` say, for outputs that sum some of `axes` and keep others,
    which are summed in every row, or from the sums over rows that tiles leave; else they are empty.
    See `KernelSpec.is_split`.
    """

    axes: tuple[int, ...]  # extents of those that make a row, outermost first
    length: int  # elements of all folded axes
    is_split: bool
    extents: tuple[int, ...]  # of the remaining nest; the last is a row's
    strides: tuple[tuple[int, ...] | None, ...]  # of each lane param along these
    copy_strides: tuple[tuple[int, ...] | None, ...]
    summed: tuple[tuple[bool, ...], ...]  # by output, axes of the nest; the last if all axes
    segments: tuple[tuple[bool, ...], ...]
    columns: tuple[tuple[bool, ...], ...]
    steps: tuple[tuple[int, ...], ...]  # strides of arrays whose slices are written


@dataclass(frozen=True)
class Launch:
    """One kernel over one loop nest.

    Strides are in bytes, along the merged axes, for lane params; None for others.
    """

    spec: KernelSpec
    shape: tuple[int, ...]  # the broadcast shape
    order: tuple[int, ...]  # axes of shape, outermost loop first
    extents: tuple[int, ...]  # of the merged axes, outermost first
    fold: Fold | None  # the loop nest, if its innermost axes are one
    rows: int  # neighbours along the last outer axis that make a tile
    strides: tuple[tuple[int, ...] | None, ...]
    indexed: tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, ...]
    results: tuple[tuple[int, ...], ...]  # shape of each output
    parts: tuple[SubBoxLayout | None, ...]  # the slice of each output; None is all
    slabs: int = 1  # most slabs of tiles, for accumulators

    @property
    def may_be_outside(self) -> bool:
        """Whether an index may be outside of an array that the kernel reads or changes."""
        return self.spec.checks_indices

    @property
    def loops(self) -> tuple[int, ...]:
        """Extents of the loop nest, outermost first."""
        return self.extents if self.fold is None else self.fold.extents

    def move_slices(self, starts: Sequence[tuple[int, ...] | None]) -> Launch:
        """Return the launch that writes its slices at other starts."""
        parts = [
            part if part is None or at is None
            else part._replace(starts=tuple(at[axis] for axis in self.order))
            for part, at in zip(self.parts, starts, strict=True)
        ]  # fmt: skip
        return replace(self, parts=tuple(parts))
