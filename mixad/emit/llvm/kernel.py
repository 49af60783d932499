"""A kernel spec as one LLVM function over tiles: the loop nest around the programs' bodies.

``void kernel(ptr arguments, i64 begin, i64 end)`` runs the tiles from ``begin`` to ``end``.  A tile
is a run of rows times a block of the innermost axis (`mixad.kernel.tiling`); the passes of a kernel
run over a row of a tile one after another, so that inputs come from the cache.  Where short rows
are folded (`mixad.kernel.folding`), what does not lie in memory as a row does is copied before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mixad.emit.llvm.body import Body
from mixad.emit.llvm.combine import Gang, TilePosition, Writer, writer_for
from mixad.emit.llvm.folds import ColumnReader, Folded, SegmentSum, StagedReader
from mixad.emit.llvm.gangs import gang_loop
from mixad.emit.llvm.gather import Array
from mixad.emit.llvm.instructions import emit_op
from mixad.emit.llvm.interleave import InterleavedWriter
from mixad.emit.llvm.load_sites import find_load_sites
from mixad.emit.llvm.operands import Reader, scalar_at
from mixad.emit.llvm.text import ENTRY, Dialect, Text, Value, memory_type
from mixad.kernel.arguments import ArgumentLayout
from mixad.kernel.block_summary import summarize_blocks
from mixad.kernel.folding import FOLDED
from mixad.kernel.spec import Indexed, KernelSpec, Operand, Output
from mixad.kernel.tiling import BLOCK, accumulator, combine_of
from mixad.kernel.varying import varying_vars
from mixad.scalar.ir import Const, Program

__all__ = ["emit_kernel"]


def emit_kernel(spec: KernelSpec, dialect: Dialect) -> str:
    """Return the LLVM IR of a lowered spec: the same text for equal specs and dialects."""
    text = Text()
    _Kernel(spec, dialect, text).emit()
    width = dialect.vector_bits
    # no-builtins: pow(x, 2) stays a call of pow, sin(1.0) is not folded by the compiler's libm
    header = f"define void @{ENTRY}(ptr noalias readonly %arguments, i64 %begin, i64 %end) #0 {{"
    attributes = (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" '
        f'"min-legal-vector-width"="{width}" "no-builtins" }}'
    )
    body = [header, "entry:", *text.lines, "}"]
    metadata = ["!0 = !{i32 1}", "!1 = !{}", '!2 = !{!"boundary"}', ""]
    return "\n".join([*text.declarations.values(), *body, attributes, *metadata])


class _Kernel:
    """One kernel while it is emitted."""

    def __init__(self, spec: KernelSpec, dialect: Dialect, text: Text) -> None:
        self.spec = spec
        self.dialect = dialect
        self.text = text
        self.block = ArgumentLayout(spec)
        sums_columns = any(combine_of(o.reduced) == "columns" for o in spec.outputs)
        self.walks_columns = sums_columns and not spec.is_split  # these rows follow one another

    def emit(self) -> None:
        """Emit the whole function."""
        self.load_arguments()
        text = self.text
        if self.spec.accumulates:
            with text.counting("%begin", "%end", stop=self.stop) as slab:
                self.begin_slab(slab)
                with text.counting(*self.slab_range(slab), stop=self.stop) as tile:
                    self.tile(self.position(tile))
        else:
            with text.counting("%begin", "%end", stop=self.stop) as tile:
                self.tile(self.position(tile))
        if self.spec.streaming:  # stores past the cache are seen by other threads after a fence
            text.add("fence seq_cst")
        text.add("ret void")

    # -- arguments -------------------------------------------------------------------------------

    def argument(self, position: int, llvm: str = "i64") -> str:
        """Load a word of the argument block; the block never changes while a kernel runs."""
        at = self.text.let(f"getelementptr i64, ptr %arguments, i64 {position}")
        return self.text.let(f"load {llvm}, ptr {at}, align 8, !invariant.load !1")

    def load_arguments(self) -> None:
        """Load the arguments that the whole call shares."""
        block, params = self.block, self.block.params
        self.stop = self.argument(block.STOP, "ptr")
        self.extent = self.argument(block.EXTENT)
        self.blocks = self.argument(block.BLOCKS)
        self.rows = self.argument(block.ROWS)
        self.runs = self.argument(block.RUNS)
        self.outer = [self.argument(block.OUTER_EXTENTS + a) for a in range(self.spec.rank - 1)]
        self.folded = self.folded_axes() if self.spec.folded else None
        self.readers: dict[int, Reader] = {}
        self.starts: dict[int, str] = {}
        self.arrays: dict[int, Array] = {}
        self.uniforms: dict[int, Value] = {}
        for k, operand in enumerate(self.spec.operands):
            match operand:
                case Operand():
                    self.readers[k] = self.reader(k, operand)
                    self.starts[k] = self.argument(params[k], "ptr")
                case Indexed():
                    self.arrays[k] = self.indexed_array(k, operand)
                case None:
                    at = self.text.let(f"getelementptr i64, ptr %arguments, i64 {params[k]}")
                    type = self.spec.passes[0].params[k].var.type
                    self.uniforms[k] = scalar_at(self.text, at, type)
        outputs = zip(block.outputs, self.spec.outputs, strict=True)
        self.writers = {
            k: self.writer(output, self.argument(at, "ptr"))
            for k, (at, output) in enumerate(outputs)
            if output.accumulated is None
        }
        self.parts = {
            k: writer.start for k, writer in self.writers.items() if self.spec.outputs[k].is_part
        }
        self.sums = {
            k: self.accumulator(k, output)
            for k, output in enumerate(self.spec.outputs)
            if output.accumulated is not None
        }
        self.copies = {k: array for k, (array, _) in self.sums.items() if array.update == "write"}

    def folded_axes(self) -> Folded:
        """Load the axes that make a row."""
        at = self.block.folded_extents
        extents = [self.argument(at + axis) for axis in range(self.spec.folded)]
        inner = extents[1]
        for extent in extents[2:]:
            inner = self.text.let(f"mul i64 {inner}, {extent}")
        longest = FOLDED if self.spec.is_split else BLOCK
        return Folded(self.argument(self.block.length), extents, inner, longest)

    def reader(self, param: int, operand: Operand) -> Reader:
        """Return the reader of an operand."""
        at = self.block.inner_stride(param)
        if operand.step not in ("row", "column", "tile"):
            stride = self.argument(at) if operand.step == "any" else None
            return Reader(self.text, operand, stride)
        assert self.folded is not None
        strides = [self.argument(at + axis) for axis in range(self.spec.folded)]
        staged = ColumnReader if operand.step == "column" else StagedReader
        return staged(self.text, operand, strides, self.folded)

    def writer(self, output: Output, start: str) -> Writer:
        """Return the writer of an output."""
        if output.beside:
            return InterleavedWriter(self.text, output, start, self.spec.streaming)
        if self.folded is None or not output.segments:
            return writer_for(self.text, output, start, self.spec)
        return SegmentSum(self.text, output, start, self.folded)

    def indexed_array(self, param: int, operand: Indexed) -> Array:
        """Load the arguments for indexing an array."""
        axes = range(operand.rank)
        return Array(
            number=param,
            start=self.argument(self.block.params[param], "ptr"),
            extents=[self.argument(self.block.indexed_extent(param, a)) for a in axes],
            strides=[self.argument(self.block.indexed_stride(param, a)) for a in axes],
            outside=self.argument(self.block.OUTSIDE, "ptr"),
            stop=self.stop,
            type=operand.type,
        )

    def accumulator(self, output: int, spec: Output) -> tuple[Array, str]:
        """Load an accumulator's arguments; return it and the bytes of a slab's copy."""
        block, text = self.block, self.text
        type = spec.type if spec.update == "write" else accumulator(spec.type)
        axes = range(spec.accumulated or 0)
        extents = [self.argument(block.accumulator_extent(output, a)) for a in axes]
        size, strides = str(type.itemsize), [""] * len(axes)
        for axis in reversed(axes):
            strides[axis] = size
            size = text.let(f"mul i64 {size}, {extents[axis]}")
        array = Array(
            number=len(self.spec.operands) + output,
            start=self.argument(block.outputs[output], "ptr"),
            extents=extents,
            strides=strides,
            outside=self.argument(block.OUTSIDE, "ptr"),
            stop=self.stop,
            type=type,
            update=spec.update,
            spare=text.let(f"alloca {memory_type(type, False)}, align 8"),
        )
        return array, size

    # -- slabs -------------------------------------------------------------------------------------

    def begin_slab(self, slab: str) -> None:
        """Use the slab's own copies from here on; a written array has none."""
        for k, (array, size) in self.sums.items():
            if array.update == "write":
                continue
            offset = self.text.let(f"mul i64 {slab}, {size}")
            start = self.text.let(f"getelementptr i8, ptr {array.start}, i64 {offset}")
            self.copies[k] = replace(array, start=start)

    def slab_range(self, slab: str) -> tuple[str, str]:
        """Return a slab's first tile, and where its tiles end."""
        count = self.argument(self.block.slab)
        first = self.text.let(f"mul i64 {slab}, {count}")
        end = self.text.let(f"add i64 {first}, {count}")
        return first, self.least(end, self.argument(self.block.tiles))

    # -- the loop nest ---------------------------------------------------------------------------

    def position(self, tile: str) -> TilePosition:
        """Split a tile's number into its run of rows and its block."""
        text = self.text
        run = text.let(f"udiv i64 {tile}, {self.blocks}")
        block = text.let(f"urem i64 {tile}, {self.blocks}")
        low = text.let(f"mul i64 {block}, {BLOCK}")
        high = self.least(text.let(f"add i64 {low}, {BLOCK}"), self.extent)
        return TilePosition(self.extent, self.blocks, tile, run, block, low, high, first="")

    def least(self, a: str, b: str) -> str:
        """Return the smaller of two i64 values."""
        smaller = self.text.let(f"icmp slt i64 {a}, {b}")
        return self.text.let(f"select i1 {smaller}, i64 {a}, i64 {b}")

    def tile(self, position: TilePosition) -> None:
        """Emit the rows of a tile."""
        for writer in self.writers.values():
            writer.begin_tile(position)
        first, end = ("0", "1") if self.spec.rank == 1 else self.row_range(position)
        if self.folded is not None:
            self.copy_rows(True, self.outer_indices(first), position)
        if self.spec.rank == 1:
            self.row(position, first)
        else:
            with self.text.counting(first, end) as row:
                self.row(position, row)
        for writer in self.writers.values():
            writer.end_tile(position)

    def row_range(self, position: TilePosition) -> tuple[str, str]:
        """Return the first row of a tile, and where they end; numbers of rows go on over tiles."""
        text, extent = self.text, self.outer[-1]
        outer = text.let(f"udiv i64 {position.run}, {self.runs}")
        run = text.let(f"urem i64 {position.run}, {self.runs}")
        first = text.let(f"mul i64 {run}, {self.rows}")
        last = self.least(text.let(f"add i64 {first}, {self.rows}"), extent)
        base = text.let(f"mul i64 {outer}, {extent}")
        return text.let(f"add i64 {base}, {first}"), text.let(f"add i64 {base}, {last}")

    def row(self, position: TilePosition, row: str) -> None:
        """Emit the passes over one row of a tile."""
        indices, block = self.outer_indices(row), self.block
        position = self.row_position(position, row, indices)
        self.copy_rows(False, indices, position)
        for k, reader in self.readers.items():
            if not isinstance(reader, StagedReader):
                reader.begin_row(self.row_start(k, indices))
        for k, writer in self.writers.items():
            if k in self.parts:
                writer.row = self.row_pointer(self.parts[k], indices, partial(block.part_stride, k))
            else:
                writer.begin_row(position, row)
        for index, program in enumerate(self.spec.passes):
            self.gangs(index, program, position)
        for writer in self.writers.values():
            writer.end_row(position, row)

    def row_position(self, position: TilePosition, row: str, indices: list[str]) -> TilePosition:
        """Return a row's position: its first element in contiguous memory, and where it ends."""
        text = self.text
        first = text.let(f"mul i64 {row}, {self.extent}")
        if not self.spec.is_split:
            return replace(position, first=first)
        assert self.folded is not None
        gone = text.let(f"mul i64 {indices[-1]}, {self.extent}")
        high = self.least(self.extent, text.let(f"sub i64 {self.folded.length}, {gone}"))
        if self.spec.rank > 2:
            outer = text.let(f"udiv i64 {row}, {self.outer[-1]}")
            first = text.let(f"mul i64 {outer}, {self.folded.length}")
            first = text.let(f"add i64 {first}, {gone}")
        return replace(position, first=first, high=high)

    def copy_rows(self, for_tile: bool, indices: list[str], position: TilePosition) -> None:
        """Emit the copies of operands that serve a tile or a row, for the row that begins."""
        for k, reader in self.readers.items():
            if isinstance(reader, StagedReader) and for_tile == (reader.step == "tile"):
                assert self.folded is not None
                extents = self.folded.row_extents(self.text, position)
                reader.copy_row(self.row_start(k, indices), extents)

    def row_start(self, param: int, indices: list[str]) -> str:
        """Return where a row of an operand starts."""
        return self.row_pointer(
            self.starts[param], indices, partial(self.block.outer_stride, param)
        )

    def outer_indices(self, row: str) -> list[str]:
        """Split a row's number into one index for each outer axis."""
        indices: list[str] = []
        for extent in reversed(self.outer[1:]):
            indices.insert(0, self.text.let(f"urem i64 {row}, {extent}"))
            row = self.text.let(f"udiv i64 {row}, {extent}")
        return [row, *indices] if self.outer else []

    def row_pointer(self, pointer: str, indices: list[str], stride_at: Callable[[int], int]) -> str:
        """Return where a row of a pointer's array starts; its strides are arguments."""
        for axis, index in enumerate(indices):
            stride = self.argument(stride_at(axis))
            offset = self.text.let(f"mul i64 {index}, {stride}")
            pointer = self.text.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return pointer

    # -- the gangs of a row ------------------------------------------------------------------------

    def gangs(self, index: int, program: Program, position: TilePosition) -> None:
        """Emit one pass over a row of a tile: read, compute, combine, gang by gang."""
        sources = {
            k: {at: result for at, (number, result) in enumerate(o.sources) if number == index}
            for k, o in enumerate(self.spec.outputs)
        }
        writers = {k: w for k, w in self.writers.items() if sources[k]}
        readers = [r for r in self.readers.values() if r.streams]
        stored = [w for w in writers.values() if w.streams]
        with gang_loop(self.text, position, readers, stored) as (gang, bases):
            for k, reader in self.readers.items():
                reader.begin_gang(gang, bases.get(reader))
                in_memory = reader.streams and not isinstance(reader, StagedReader)
                if index == 0 and in_memory and self.walks_columns:
                    self.fetch_below(k, reader)
            body = self.body(program)
            self.connect_accumulators(body, index, program, gang)
            values = body.block(program.body)
            for k, writer in writers.items():
                own = {at: self.round_to_memory(values[r], writer) for at, r in sources[k].items()}
                writer.take(own, position, gang, bases.get(writer))

    def connect_accumulators(self, body: Body, index: int, program: Program, gang: Gang) -> None:
        """Let a pass change the accumulators among its outputs, which have no values."""
        for k, copy in self.copies.items():
            number, result = self.spec.outputs[k].source
            if number == index:
                added = program.accumulator(result)
                assert added is not None
                body.values[added.var] = self.text.const(Const(0, added.var.type))
                body.arrays[added.var] = copy
                body.elements = gang.mask()

    def fetch_below(self, param: int, reader: Reader) -> None:
        """Prefetch the elements below a gang: memory is read ahead along rows only."""
        stride = self.argument(self.block.outer_stride(param, self.spec.rank - 2))
        below = self.text.let(f"getelementptr i8, ptr {reader.pointer}, i64 {stride}")
        prefetch = self.text.declare("llvm.prefetch.p0", "void {}(ptr, i32, i32, i32)")
        self.text.add(f"call void {prefetch}(ptr {below}, i32 0, i32 3, i32 1)")

    def arithmetic(self, value: Value) -> Value:
        """Return a loaded value in the type in which it is computed."""
        if not value.type.is_narrow:
            return value
        return emit_op(self.text, self.dialect, "convert", (value,), value.type.arithmetic)

    def round_to_memory(self, value: Value, writer: Writer) -> Value:
        """Return a result in the type of memory."""
        if not writer.type.is_narrow or not writer.streams:
            return value
        return emit_op(self.text, self.dialect, "convert", (value,), writer.type)

    def body(self, program: Program) -> Body:
        """Return the emitter of a program's statements, its params connected."""
        params = [p.var for p in program.params]
        readers = {params[k]: reader for k, reader in self.readers.items()}
        summaries = summarize_blocks(program)
        body = Body(
            self.text,
            self.dialect,
            varying_vars(program, self.spec.varying_params),
            lambda var: self.arithmetic(readers[var].load()),
            find_load_sites(program, summaries),
            summaries,
            self.stop,
        )
        body.values.update({params[k]: value for k, value in self.uniforms.items()})
        body.arrays.update({params[k]: array for k, array in self.arrays.items()})
        return body
