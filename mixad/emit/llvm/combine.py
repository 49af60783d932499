"""Stores and reductions: a kernel's results are stored, or summed in a tile in a fixed order.

A sum is taken in `mixad.kernel.tiling.accumulator`'s type. Lanes add up their own elements; at the
end of a row or a tile the lanes are added up by halves: the order depends on the loop nest alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mixad.emit.llvm.text import GANG, Text, Value, llvm_type, memory_type
from mixad.kernel.spec import KernelSpec, Output
from mixad.kernel.tiling import Combine, accumulator, combine_of
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["LINE", "Gang", "TilePosition", "Writer", "copy_memory", "element_at", "lane_of",
           "lane_sum", "plus", "writer_for"]  # fmt: skip

LINE = 64
"""Bytes of a cache line: alignment of staging areas and of streamed results."""

_STREAMED = LINE // 2
"""Bytes of a gang that is stored past the cache: half a line, as of a 16-bit type, would wait in
the processor for the other half."""


@dataclass(frozen=True)
class TilePosition:
    """Where a tile is: names of i64 values."""

    extent: str  # of the innermost axis
    blocks: str  # in a row
    tile: str  # its number
    run: str  # of rows, its number
    block: str  # in the row, its number
    low: str  # its first element
    high: str  # where it ends
    first: str  # of the row, in elements of contiguous memory


@dataclass(frozen=True)
class Gang:
    """Where a gang is: its first element in the row, and where the row's elements end."""

    text: Text
    here: str
    high: str

    def is_full(self) -> str:
        """Return an i1: whether every lane has an element."""
        return self.text.let(f"icmp sge i64 {self._remaining()}, {GANG}")

    def count(self) -> str:
        """Return how many lanes have an element."""
        full, left = self.is_full(), self._remaining()
        return self.text.let(f"select i1 {full}, i64 {GANG}, i64 {left}")

    def mask(self) -> Value:
        """Return which lanes have an element."""
        text = self.text
        lanes = ", ".join(f"i64 {k}" for k in range(GANG))
        numbers = f"<{GANG} x i64> <{lanes}>"
        first = text.let(f"insertelement <{GANG} x i64> poison, i64 {self.count()}, i64 0")
        count = text.let(
            f"shufflevector <{GANG} x i64> {first}, <{GANG} x i64> poison, "
            f"<{GANG} x i32> zeroinitializer"
        )
        return text.value(f"icmp slt {numbers}, {count}", BOOL, True)

    def _remaining(self) -> str:
        return self.text.let(f"sub i64 {self.high}, {self.here}")


class Writer:
    """Takes one output's values gang by gang; this one stores them at the pointer ``start``.

    With ``streaming`` stores may bypass the cache.
    """

    def __init__(self, text: Text, output: Output, start: str, streaming: bool) -> None:
        self.text = text
        self.type = output.type
        self.start = start
        self.streaming = streaming and GANG * output.type.itemsize % _STREAMED == 0
        self.prepare()

    def prepare(self) -> None:
        """Allocate a tile's stack, once for the whole call."""
        self.stage = self.allocate(self.type, GANG)

    def begin_tile(self, position: TilePosition) -> None:
        """Start a tile."""

    streams = True
    """Whether full gangs are written to the array itself."""

    def begin_row(self, position: TilePosition, row: str) -> None:
        """Start a row of a tile."""
        self.row = self.element_pointer(self.start, position.first)

    def element_pointer(self, pointer: str, index: str) -> str:
        """Return the pointer to an element of the array."""
        return element_at(self.text, pointer, index, self.type)

    def take(
        self, values: Mapping[int, Value], position: TilePosition, gang: Gang, base: str | None
    ) -> None:
        """Take the values of one gang, by their place among the output's sources."""
        self.gang(values[0], position, gang, base)

    def gang(self, value: Value, position: TilePosition, gang: Gang, base: str | None) -> None:
        """Take the values of one gang; ``base`` is where element 0 of the row seems to be."""
        assert base is not None
        target = self.element_pointer(base, gang.here)
        self.store(self.text.splat(value), target)

    def empty_stage(self, here: str, count: str) -> None:
        """Copy the last elements of a row, fewer than a gang, from the stage to the array."""
        direct = self.element_pointer(self.row, here)
        copy_memory(self.text, direct, self.stage, count, self.type)

    def end_row(self, position: TilePosition, row: str) -> None:
        """End a row of a tile."""

    def end_tile(self, position: TilePosition) -> None:
        """End a tile."""

    def store(self, value: Value, target: str) -> None:
        """Store one full gang, past the cache if ``streaming``."""
        memory = memory_type(self.type, True)
        stored = str(value)
        if self.type.is_bool:
            stored = f"{memory} " + self.text.let(f"zext {value} to {memory}")
        if self.streaming:
            align = min(LINE, GANG * self.type.itemsize)
            self.text.add(f"store {stored}, ptr {target}, align {align}, !nontemporal !0")
        else:
            self.text.add(f"store {stored}, ptr {target}, align {self.type.itemsize}")

    # -- sums --------------------------------------------------------------------------------------

    def allocate(self, type: ScalarType, count: int) -> str:
        """Allocate stack for ``count`` elements."""
        return self.text.let(f"alloca [{count} x {memory_type(type, False)}], align {LINE}")

    @property
    def sum_type(self) -> ScalarType:
        """The type of the sums."""
        return accumulator(self.type)

    def widen(self, value: Value) -> Value:
        """Return a gang's values in the type of the sums."""
        value = self.text.splat(value)
        if value.type == self.sum_type:
            return value
        wide = llvm_type(self.sum_type, True)
        return self.text.value(f"fpext {value} to {wide}", self.sum_type, True)

    def add_to(self, pointer: str, value: Value) -> None:
        """Add a gang to the one at a pointer."""
        align = self.sum_type.itemsize
        old = self.text.value(f"load {value.llvm}, ptr {pointer}, align {align}", value.type, True)
        total = plus(self.text, old, value)
        self.text.add(f"store {total}, ptr {pointer}, align {align}")

    def add_masked(self, pointer: str, value: Value, gang: Gang) -> None:
        """Add the lanes of a gang that have an element to the gang at a pointer."""
        is_full = gang.is_full()
        with self.text.when(is_full, True):
            self.add_to(pointer, value)
        with self.text.when(is_full, False):
            self.add_to(pointer, self.mask_lanes(value, gang))

    def clear(self, pointer: str) -> None:
        """Set one gang of sums to zero."""
        vector = llvm_type(self.sum_type, True)
        align = self.sum_type.itemsize
        self.text.add(f"store {vector} zeroinitializer, ptr {pointer}, align {align}")

    def lane_sum(self, pointer: str) -> Value:
        """Add up the lanes of one gang of sums."""
        vector = llvm_type(self.sum_type, True)
        gang = f"load {vector}, ptr {pointer}, align {LINE}"
        return lane_sum(self.text, self.text.value(gang, self.sum_type, True))

    def store_sum(self, value: Value, index: str) -> None:
        """Store one partial sum."""
        element = llvm_type(self.sum_type, False)
        target = self.text.let(f"getelementptr {element}, ptr {self.start}, i64 {index}")
        self.text.add(f"store {value}, ptr {target}, align {self.sum_type.itemsize}")

    def mask_lanes(self, value: Value, gang: Gang) -> Value:
        """Return a gang's values with zeros in the lanes beyond its end."""
        return self.text.select(gang.mask(), value, Value("zeroinitializer", value.type, True))


class WideStore(Writer):
    """Stores values that are summed over outer axes afterwards, in the type of the sums."""

    def prepare(self) -> None:
        self.type = self.sum_type
        super().prepare()

    def gang(self, value: Value, position: TilePosition, gang: Gang, base: str | None) -> None:
        super().gang(self.widen(value), position, gang, base)


class RowSum(Writer):
    """Sums over the elements of a row: one partial sum for each row and block."""

    streams = False

    def prepare(self) -> None:
        self.lanes = self.allocate(self.sum_type, GANG)

    def begin_row(self, position: TilePosition, row: str) -> None:
        self.clear(self.lanes)

    def gang(self, value: Value, position: TilePosition, gang: Gang, base: str | None) -> None:
        self.add_masked(self.lanes, self.widen(value), gang)

    def end_row(self, position: TilePosition, row: str) -> None:
        first = self.text.let(f"mul i64 {row}, {position.blocks}")
        self.store_sum(
            self.lane_sum(self.lanes), self.text.let(f"add i64 {first}, {position.block}")
        )


class TileSum(RowSum):
    """Sums over rows and elements: one partial sum for each tile, of the sums of its rows."""

    def prepare(self) -> None:
        super().prepare()
        self.total = self.allocate(self.sum_type, GANG)

    def begin_tile(self, position: TilePosition) -> None:
        self.clear(self.total)

    def end_row(self, position: TilePosition, row: str) -> None:
        vector = llvm_type(self.sum_type, True)
        lanes = self.text.value(
            f"load {vector}, ptr {self.lanes}, align {LINE}", self.sum_type, True
        )
        self.add_to(self.total, lanes)

    def end_tile(self, position: TilePosition) -> None:
        self.store_sum(self.lane_sum(self.total), position.tile)


class ColumnSum(Writer):
    """Sums over the rows of a run, element by element: one row of partial sums for each run.

    The sums stay in memory, whose rows hold whole gangs (`padded_columns`): threads may have too
    small a stack for them.
    """

    streams = False

    def prepare(self) -> None:
        """Nothing to allocate."""

    def begin_row(self, position: TilePosition, row: str) -> None:
        """Continue: the sums are those of the whole run."""

    def begin_tile(self, position: TilePosition) -> None:
        text = self.text
        more = text.let(f"add i64 {position.extent}, {GANG - 1}")
        padded = text.let(f"and i64 {more}, {-GANG}")
        first = text.let(f"mul i64 {position.run}, {padded}")
        self.columns = element_at(text, self.start, first, self.sum_type)
        with text.counting(position.low, position.high, GANG) as here:
            self.clear(self.column(here))

    def gang(self, value: Value, position: TilePosition, gang: Gang, base: str | None) -> None:
        self.add_to(self.column(gang.here), self.widen(value))

    def column(self, here: str) -> str:
        """Return the pointer to the sums of a gang."""
        return element_at(self.text, self.columns, here, self.sum_type)


class SplitColumnSum(ColumnSum):
    """The same, where the last row may be shorter."""

    def gang(self, value: Value, position: TilePosition, gang: Gang, base: str | None) -> None:
        self.add_masked(self.column(gang.here), self.widen(value), gang)


_SUMS: Mapping[Combine, Callable[..., Writer]] = MappingProxyType(
    {"store": WideStore, "row": RowSum, "tile": TileSum, "columns": ColumnSum}
)
"""Writers of outputs that are summed over some axes, by combine."""


def writer_for(text: Text, output: Output, start: str, spec: KernelSpec) -> Writer:
    """Return the writer of an output that sums all or none of the axes of a folded row."""
    if output.is_stored:
        return Writer(text, output, start, spec.streaming)
    combine = combine_of(output.reduced)
    sums = SplitColumnSum if spec.is_split and combine == "columns" else _SUMS[combine]
    return sums(text, output, start, streaming=False)


def plus(text: Text, a: Value, b: Value) -> Value:
    """Return a sum."""
    instruction = "fadd" if a.type.is_float else "add"
    return text.value(f"{instruction} {a}, {b.text}", a.type, a.lanes)


def lane_of(text: Text, gang: Value, lane: int) -> Value:
    """Return the value of a lane."""
    return text.value(f"extractelement {gang}, i64 {lane}", gang.type, False)


def lane_sum(text: Text, gang: Value) -> Value:
    """Add up the lanes of a gang: the halves, then the halves of that."""
    vector, width = llvm_type(gang.type, True), GANG // 2
    while width:
        moved = ", ".join(f"i32 {(k + width) % GANG}" for k in range(GANG))
        other = text.let(f"shufflevector {gang}, {vector} poison, <{GANG} x i32> <{moved}>")
        gang = plus(text, gang, Value(other, gang.type, True))
        width //= 2
    return lane_of(text, gang, 0)


def element_at(text: Text, pointer: str, index: str, type: ScalarType) -> str:
    """Return the pointer to an element of an array."""
    return text.let(f"getelementptr {memory_type(type, False)}, ptr {pointer}, i64 {index}")


def copy_memory(text: Text, target: str, source: str, count: str, type: ScalarType) -> None:
    """Emit a copy of ``count`` elements."""
    copy = text.declare("llvm.memcpy.p0.p0.i64", "void {}(ptr, ptr, i64, i1)")
    size = text.let(f"mul i64 {count}, {type.itemsize}")
    text.add(f"call void {copy}(ptr {target}, ptr {source}, i64 {size}, i1 false)")
