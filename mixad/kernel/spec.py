"""What an emitter sees of a kernel, and what one launch adds to it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from mixad.scalar.ir import Load, Program, Update, UpdateKind, walk_statements
from mixad.scalar.types import ScalarType

__all__ = ["Indexed", "KernelSpec", "Launch", "Operand", "Output", "OutputRequest", "Part",
           "PartLayout", "Step"]  # fmt: skip

Step = Literal["zero", "unit", "any", "row", "column", "tile"]
"""How an operand moves along the innermost axis: not at all, by one element, or by a stride.  Of a
folded axis (`mixad.kernel.folding`) also in no such way: it is copied for each row ("column" if it
moves along the first axis of a row only), or, where it is the same in all rows of a tile, for each
tile."""


class Part(NamedTuple):
    """A box of a larger array.

    Attributes
    ----------
    whole : tuple of int
        Shape of the array.
    starts : tuple of int
        Where the box begins, for each axis.
    """

    whole: tuple[int, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True)
class OutputRequest:
    """One wanted array: a result of a pass, stored, or summed to a smaller shape.

    Attributes
    ----------
    pass_index, result : int
        Which pass, and which of its outputs.
    shape : tuple of int or None
        None: one value per element of the broadcast shape.  Else a shape that broadcasts to it:
        values are summed over the axes that it lacks or has with extent 1.  Of an accumulator its
        own shape, which is any.
    part : Part or None
        Of a stored result: the array is zero but for a box of the broadcast shape, which has the
        values.  Only for backends that say so (`mixad.backends.execute.writes_parts`).
    beside : tuple of (int, int)
        Of a stored result: passes and results, of the same type, that the array has beside it,
        along a last axis of its own.  Only for backends that say so
        (`mixad.backends.execute.stores_beside`).
    """

    pass_index: int
    result: int
    shape: tuple[int, ...] | None = None
    part: Part | None = None
    beside: tuple[tuple[int, int], ...] = ()

    @property
    def side_by_side(self) -> tuple[tuple[int, int], ...]:
        """Passes and results along the array's last axis; empty if it has no such axis."""
        return ((self.pass_index, self.result), *self.beside) if self.beside else ()


@dataclass(frozen=True)
class Operand:
    """How a kernel reads one lane param."""

    type: ScalarType
    step: Step


@dataclass(frozen=True)
class Indexed:
    """An array param: the program itself says which elements it reads."""

    type: ScalarType
    rank: int


@dataclass(frozen=True)
class Output:
    """How a kernel writes one result.

    Attributes
    ----------
    type : ScalarType
        Type of the elements.
    source : tuple of int
        Pass, and position among its outputs.
    reduced : tuple of bool
        For each axis of the loop nest, whether the result is summed over it.
    is_part : bool
        Whether it is written into a part of a larger array.
    segments : tuple of bool
        For each of the axes that a folded row is made of, whether the result is summed over it in
        every row; empty if it is not summed there, or over all of them.
    beside : tuple of (int, int)
        Sources of what is stored beside it, along a last axis of its array.
    accumulated : int or None
        Axes of the array, if it is an accumulator; else None.
    update : str
        How an accumulator's elements are changed.
    """

    type: ScalarType
    source: tuple[int, int]
    reduced: tuple[bool, ...]
    is_part: bool = False
    segments: tuple[bool, ...] = ()
    beside: tuple[tuple[int, int], ...] = ()
    accumulated: int | None = None
    update: UpdateKind = "add"

    @property
    def sources(self) -> tuple[tuple[int, int], ...]:
        """Passes and results that an element of it is made of."""
        return (self.source, *self.beside)

    @property
    def is_changed(self) -> bool:
        """Whether it is an accumulator that is not written: elements may change the same place."""
        return self.accumulated is not None and self.update != "write"

    @property
    def is_stored(self) -> bool:
        """Whether it has a value for each element."""
        return self.accumulated is None and not any(self.reduced) and not self.segments


@dataclass(frozen=True)
class KernelSpec:
    """The static part of a kernel: hashable, independent of extents and addresses.

    Attributes
    ----------
    passes : tuple of Program
        Programs with the same params, run one after another over each block of elements.
    operands : tuple of (Operand, Indexed or None)
        One per param; None for a uniform.
    outputs : tuple of Output
        In the order of the results.
    rank : int
        Axes of the loop nest after merging, at least 1; the last one is the innermost.
    streaming : bool
        Whether results are too large to be read again from the cache: stores may bypass it.
    folded : int
        Axes that a row is made of (`mixad.kernel.folding`); 0 if it is one of the nest's.
    is_split : bool
        Whether the last outer axis goes from row to row of the folded axes; the last of these may
        be shorter then.
    """

    passes: tuple[Program, ...]
    operands: tuple[Operand | Indexed | None, ...]
    outputs: tuple[Output, ...]
    rank: int
    streaming: bool = False
    folded: int = 0
    is_split: bool = False

    @property
    def accumulates(self) -> bool:
        """Whether an output is an accumulator that is not written: tiles run in slabs.

        See `mixad.kernel.tiling`.
        """
        return any(o.is_changed for o in self.outputs)

    @cached_property
    def checks_indices(self) -> bool:
        """Whether indices are computed that are not known to be inside."""
        statements = (s for program in self.passes for s in walk_statements(program.body))
        return any(isinstance(s, Load | Update) and not s.is_inside for s in statements)

    @property
    def moving(self) -> tuple[int, ...]:
        """Indices of the params that differ from lane to lane along the innermost axis."""
        return tuple(
            k for k, o in enumerate(self.operands) if isinstance(o, Operand) and o.step != "zero"
        )

    @cached_property
    def token(self) -> str:
        """A digest of everything that emitted code depends on."""
        rest = (self.operands, self.outputs, self.rank, self.streaming, self.folded, self.is_split)
        return hashlib.sha256(repr(([p.token for p in self.passes], rest)).encode()).hexdigest()


class PartLayout(NamedTuple):
    """Where a launch writes a part of a larger array, contiguous in the order of the loops.

    Attributes
    ----------
    whole, starts, extents : tuple of int
        Shape of the array, and the box; axes in the order of the loops, before they were merged.
    strides : tuple of int
        Bytes between neighbours of the array along each merged axis.
    """

    whole: tuple[int, ...]
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Fold:
    """The innermost axes of a loop nest as one (`mixad.kernel.folding`).

    Attributes
    ----------
    axes : tuple of int
        Extents of the axes that make a row, outermost first.
    length : int
        Elements of all folded axes.
    is_split : bool
        Whether the last outer axis of the nest goes from row to row of the folded axes; the last of
        these rows may be shorter.
    extents : tuple of int
        Of the loop nest that is left, outermost first; the last one is a row's.
    strides : tuple
        For each lane param, bytes between neighbours along these; else None.
    copy_strides : tuple
        For each lane param that does not lie in memory as a row does, and so is copied, bytes
        between neighbours along ``axes``; else None.
    summed : tuple of (tuple of bool)
        For each output, which axes of the nest it sums; the last one if it sums all of ``axes``.
    segments, columns : tuple of (tuple of bool)
        For each output that sums some of ``axes`` and keeps others, which: in every row, or from
        the sums over rows that tiles leave; else empty.
    steps : tuple of (tuple of int)
        Strides of the arrays that outputs are parts of.
    """

    axes: tuple[int, ...]
    length: int
    is_split: bool
    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    copy_strides: tuple[tuple[int, ...] | None, ...]
    summed: tuple[tuple[bool, ...], ...]
    segments: tuple[tuple[bool, ...], ...]
    columns: tuple[tuple[bool, ...], ...]
    steps: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Launch:
    """One kernel over one loop nest.

    Attributes
    ----------
    spec : KernelSpec
        What to run.
    shape : tuple of int
        The broadcast shape.
    order : tuple of int
        The axes of ``shape`` from the outermost loop to the innermost.
    extents : tuple of int
        Extents of the merged axes, outermost first.
    fold : Fold or None
        The loop nest, where it has the innermost of these as one.
    rows : int
        Rows of a tile: neighbours along the last outer axis that one tile goes through.
    strides : tuple
        For each lane param, bytes between neighbours along each merged axis; else None.
    indexed : tuple
        For each array param, its shape and byte strides; else None.
    results : tuple of (tuple of int)
        For each output, its shape.
    parts : tuple of (PartLayout or None)
        For each output, the part of it that is written; None: all of it.
    slabs : int
        At most so many slabs are made of the tiles, if an output is an accumulator.
    """

    spec: KernelSpec
    shape: tuple[int, ...]
    order: tuple[int, ...]
    extents: tuple[int, ...]
    fold: Fold | None
    rows: int
    strides: tuple[tuple[int, ...] | None, ...]
    indexed: tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, ...]
    results: tuple[tuple[int, ...], ...]
    parts: tuple[PartLayout | None, ...]
    slabs: int = 1

    @property
    def may_be_outside(self) -> bool:
        """Whether an index may be outside of an array that is read or changed."""
        return self.spec.checks_indices

    @property
    def loops(self) -> tuple[int, ...]:
        """Extents of the loop nest, outermost first."""
        return self.extents if self.fold is None else self.fold.extents

    def moved(self, starts: Sequence[tuple[int, ...] | None]) -> Launch:
        """Return the launch that writes its parts elsewhere: where each of them is to begin."""
        parts = [
            part if part is None or at is None
            else part._replace(starts=tuple(at[axis] for axis in self.order))
            for part, at in zip(self.parts, starts, strict=True)
        ]  # fmt: skip
        return replace(self, parts=tuple(parts))
