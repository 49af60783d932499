"""Folded rows (`mixad.kernel.folding`): operands copied in their order, sums of parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from mixad.emit.llvm.combine import LINE, Gang, TilePosition, Writer, element_at, plus
from mixad.emit.llvm.operands import Reader
from mixad.emit.llvm.text import Text, Value, memory_type
from mixad.kernel.spec import Operand, Output
from mixad.kernel.tiling import accumulator, is_left_whole

__all__ = ["Folded", "SegmentSum", "StagedReader"]


_VECTOR = 8
"""Elements of the vector that repeats one element; fewer than a gang, since rows are short."""

_UNROLLED = 4
"""Elements in an iteration of a loop over scalars."""


@dataclass(frozen=True)
class Folded:
    """The axes that make a row: names of i64 values."""

    length: str  # elements of all rows together
    extents: list[str]  # outermost first; the last row may have less of the first
    inner: str  # elements of all axes but the first
    longest: int  # elements of a row at most

    def row_extents(self, text: Text, position: TilePosition) -> list[str]:
        """Return the extents of the row at a position."""
        return [text.let(f"udiv i64 {position.high}, {self.inner}"), *self.extents[1:]]


class StagedReader(Reader):
    """Reads an operand that does not lie in memory as a row does, from a copy that does.

    ``strides`` are names of its strides along ``axes``, which make a row.
    """

    streams = True

    def __init__(self, text: Text, operand: Operand, strides: list[str], axes: Folded) -> None:
        super().__init__(text, operand, None)
        self.strides = strides
        self.row = text.let(
            f"alloca [{axes.longest + _VECTOR} x {memory_type(self.type, False)}], align {LINE}"
        )

    def copy_row(self, start: str, extents: Sequence[str]) -> None:
        """Copy the row that starts at a pointer; its first axis, the longest, in the inner loop."""
        first, *others = zip(
            extents, self.strides, _contiguous_strides(self.text, extents), strict=True
        )
        with _walking(self.text, [(n, (stride, by)) for n, stride, by in others], 2) as offsets:
            _emit_unrolled(self.text, first[0], partial(self.copy, start, offsets, first[1:]))

    def copy(
        self, start: str, offsets: Sequence[str], steps: Sequence[str], indices: Sequence[str]
    ) -> None:
        """Copy elements that have some indices along the first axis, and offsets otherwise."""
        text, element = self.text, memory_type(self.type, False)
        for index in indices:
            offset, place = _move_offsets(text, offsets, index, steps)
            source = text.let(f"getelementptr i8, ptr {start}, i64 {offset}")
            loaded = text.let(f"load {element}, ptr {source}, align 1")
            target = element_at(text, self.row, place, self.type)
            text.add(f"store {element} {loaded}, ptr {target}, align {self.type.itemsize}")


class ColumnReader(StagedReader):
    """Reads an operand that moves along the first axis of a row only."""

    def copy_row(self, start: str, extents: Sequence[str]) -> None:
        """Copy the row that starts at a pointer: each element as often as it repeats."""
        repeats = _contiguous_strides(self.text, extents)[0]
        _emit_unrolled(self.text, extents[0], partial(self.repeat, start, repeats))

    def repeat(self, start: str, repeats: str, indices: Sequence[str]) -> None:
        """Copy the elements that have some indices along the first axis.

        Stores are whole vectors; the next element overwrites the excess.
        """
        text, element = self.text, memory_type(self.type, False)
        vector = f"<{_VECTOR} x {element}>"
        for index in indices:
            offset = text.let(f"mul i64 {index}, {self.strides[0]}")
            source = text.let(f"getelementptr i8, ptr {start}, i64 {offset}")
            loaded = text.let(f"load {element}, ptr {source}, align 1")
            first = text.let(f"insertelement {vector} poison, {element} {loaded}, i64 0")
            same = text.let(
                f"shufflevector {vector} {first}, {vector} poison, "
                f"<{_VECTOR} x i32> zeroinitializer"
            )
            place = element_at(text, self.row, text.let(f"mul i64 {index}, {repeats}"), self.type)
            with text.counting("0", repeats, _VECTOR) as more:
                target = element_at(text, place, more, self.type)
                text.add(f"store {vector} {same}, ptr {target}, align {self.type.itemsize}")


class SegmentSum(Writer):
    """Sums over some of the axes that make a row, in every row, into memory at ``start``."""

    streams = False

    def __init__(self, text: Text, output: Output, start: str, axes: Folded) -> None:
        self.axes = axes
        super().__init__(text, output, start, streaming=False)
        self.is_summed = output.segments
        self.held = output.type if is_left_whole(output) else accumulator(output.type)

    def prepare(self) -> None:
        """Allocate a row of values, and sums."""
        self.values = self.allocate(self.sum_type, self.axes.longest)
        self.totals = [self.allocate(self.sum_type, 1) for _ in range(_UNROLLED)]

    def begin_row(self, position: TilePosition, row: str) -> None:
        """Nothing to do: the sums at the end of a row read only what this row has written."""

    def gang(self, value: Value, position: TilePosition, gang: Gang, base: str | None) -> None:
        """Store the values of a gang until the end of the row."""
        target = element_at(self.text, self.values, gang.here, self.sum_type)
        self.text.add(f"store {self.widen(value)}, ptr {target}, align {self.sum_type.itemsize}")

    def end_row(self, position: TilePosition, row: str) -> None:
        """Add up the segments of the row, and store the sums."""
        text, extents = self.text, self.axes.row_extents(self.text, position)
        axes = list(zip(extents, _contiguous_strides(text, extents), self.is_summed, strict=True))
        summed = [(extent, (apart,)) for extent, apart, is_sum in axes if is_sum]
        kept = [(extent, apart) for extent, apart, is_sum in axes if not is_sum]
        target = position.first
        for extent, _ in summed:
            target = text.let(f"udiv i64 {target}, {extent}")
        apart_then = _contiguous_strides(text, [extent for extent, _ in kept])
        steps = [
            (extent, (now, then)) for (extent, now), then in zip(kept, apart_then, strict=True)
        ]
        (count, first), *others = steps
        with _walking(text, others, 2) as offsets:
            _emit_unrolled(text, count, partial(self.segments, target, offsets, first, summed))

    def segments(
        self,
        target: str,
        offsets: Sequence[str],
        steps: Sequence[str],
        summed: Sequence[tuple[str, tuple[str, ...]]],
        indices: Sequence[str],
    ) -> None:
        """Sum and store segments that have some indices along the first axis that is kept."""
        moved = [_move_offsets(self.text, offsets, index, steps) for index in indices]
        totals = self.sums_from([source for source, _ in moved], summed)
        for total, (_, place) in zip(totals, moved, strict=True):
            self.store_total(total, self.text.let(f"add i64 {target}, {place}"))

    def sums_from(
        self, firsts: Sequence[str], loops: Sequence[tuple[str, tuple[str, ...]]]
    ) -> list[Value]:
        """Add up elements of the row one after another, in several sums side by side."""
        text, type = self.text, self.sum_type
        zero = Value("0.0" if type.is_float else "0", type, False)
        totals = self.totals[: len(firsts)]
        for total in totals:
            text.add(f"store {zero}, ptr {total}, align {LINE}")
        with _walking(text, loops, 1) as (offset,):
            for first, total in zip(firsts, totals, strict=True):
                at = element_at(text, self.values, text.let(f"add i64 {first}, {offset}"), type)
                one = text.value(f"load {zero.llvm}, ptr {at}, align {type.itemsize}", type, False)
                text.add(
                    f"store {plus(text, self.load_sum(total), one)}, ptr {total}, align {LINE}"
                )
        return [self.load_sum(total) for total in totals]

    def load_sum(self, total: str) -> Value:
        """Return the value of a sum."""
        memory = memory_type(self.sum_type, False)
        return self.text.value(f"load {memory}, ptr {total}, align {LINE}", self.sum_type, False)

    def store_total(self, total: Value, index: str) -> None:
        """Store a sum, in the type of the output if nothing is left to be added to it."""
        if self.held != total.type:
            held = Value("", self.held, False).llvm
            total = self.text.value(f"fptrunc {total} to {held}", self.held, False)
        target = element_at(self.text, self.start, index, self.held)
        self.text.add(f"store {total}, ptr {target}, align {self.held.itemsize}")


def _contiguous_strides(text: Text, extents: Sequence[str]) -> list[str]:
    """Return the distance in elements of neighbours along each axis in contiguous memory."""
    found = ["1"]
    for extent in reversed(extents[1:]):
        found.insert(0, text.let(f"mul i64 {found[0]}, {extent}"))
    return found


@contextmanager
def _walking(
    text: Text, loops: Sequence[tuple[str, tuple[str, ...]]], count: int
) -> Iterator[list[str]]:
    """Emit nested loops, outermost first; the body is what is added inside the ``with``.

    A loop is its extent, and the strides by which an iteration moves each of the offsets, which are
    yielded.
    """
    offsets = ["0"] * count
    with ExitStack() as stack:
        for extent, steps in loops:
            index = stack.enter_context(text.counting("0", extent))
            offsets = _move_offsets(text, offsets, index, steps)
        yield offsets


def _emit_unrolled(text: Text, count: str, body: Callable[[Sequence[str]], None]) -> None:
    """Emit a loop over indices from 0, unrolled by `_UNROLLED`, then one by one.

    ``body`` emits an iteration; LLVM does not unroll loops of kernels.
    """
    whole = text.let(f"and i64 {count}, {-_UNROLLED}")
    some, more = (text.let(f"icmp ne i64 {whole}, {other}") for other in ("0", count))
    with text.when(some, True), text.counting("0", whole, _UNROLLED) as index:
        body([text.let(f"add i64 {index}, {k}") for k in range(_UNROLLED)])
    with text.when(more, True), text.counting(whole, count) as index:
        body([index])


def _move_offsets(
    text: Text, offsets: Sequence[str], index: str, steps: Sequence[str]
) -> list[str]:
    """Return offsets moved by an index along an axis."""
    moved = [text.let(f"mul i64 {index}, {step}") for step in steps]
    pairs = zip(offsets, moved, strict=True)
    return [text.let(f"add i64 {offset}, {by}") for offset, by in pairs]
