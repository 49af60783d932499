"""A kernel spec as CUDA C++: one function for each pass, tiles shared out among blocks.

A tile is a run of rows times `BLOCK` elements of the innermost axis, as on the CPU
(`mixad.kernel.tiling`).  The threads of a block stand in a grid of ``blockDim.x`` along the row and
``blockDim.y`` rows; each has `Dialect.vector` neighbours of a row at a time, which it loads and
stores together.  A function's one argument is the block of words that kernels on the CPU read
(`mixad.kernel.arguments`) and, after it, the number of tiles.  Every pass is a function of its own:
in one function the compiler keeps what all of them need in registers.

Where a kernel adds to an array at indices, or takes minima or maxima there, a block runs slabs of
tiles, in order, and changes a copy of its own, or leaves pairs of elements and values
(`mixad.emit.cuda.updates`).  Then four more words are addresses: of how many pairs elements of the
broadcast have; of where these begin, 0 while they are counted; of the pairs' elements and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import cast

from mixad.emit.cuda.body import Array, Body
from mixad.emit.cuda.instructions import PRELUDE, native
from mixad.emit.cuda.interleave import STORE_APART, is_stored_at_once, spans_of, store_together
from mixad.emit.cuda.narrow import from_memory, to_memory
from mixad.emit.cuda.sums import THREADS, accumulator, block_sums
from mixad.emit.cuda.text import Text, c_type
from mixad.emit.cuda.updates import (
    MAX_ELEMENTS,
    PAIRS,
    begin_copy,
    change_function,
    leave_copy,
)
from mixad.kernel.arguments import ArgumentLayout
from mixad.kernel.lower import lower_spec
from mixad.kernel.spec import Indexed, KernelSpec, Operand, Output
from mixad.kernel.tiling import BLOCK, combine_of
from mixad.kernel.tiling import accumulator as sum_in_arrays
from mixad.scalar.ir import Program, Var
from mixad.scalar.types import ScalarType

__all__ = ["Dialect", "emit_kernel", "entries", "for_threads", "packed_types"]


@dataclass(frozen=True)
class Dialect:
    """What of a launch the text depends on, besides the spec."""

    vector: int = 1  # neighbours of a row that a thread has: a power of two that divides the row
    threads: int = THREADS  # of a block
    # Whether neighbours are loaded and stored together: every operand of step "unit" and every
    # stored result that has no other beside it is aligned to so many elements, row by row. Sums
    # have the same bits if not.
    aligned: bool = True
    # Whether numbers of elements of a row, of rows or of tiles take 64 bits; dividing them takes
    # ten times as long.
    wide: bool = False
    # Elements of arrays changed at indices that a block has copies of, at least as many as they
    # have; 0 if pairs are left.
    elements: int = MAX_ELEMENTS


def entries(spec: KernelSpec) -> tuple[str, ...]:
    """Return the symbols of a spec's functions, one for each pass."""
    return tuple(f"mixad_pass_{k}" for k in range(len(spec.passes)))


def for_threads(spec: KernelSpec) -> KernelSpec:
    """Return a spec as `emit_kernel` takes it: compilers for CUDA order statements themselves."""
    return lower_spec(spec, ordered=False, native=native)


def emit_kernel(spec: KernelSpec, dialect: Dialect) -> str:
    """Return the CUDA C++ of a kernel from `for_threads`, for NVRTC or nvcc: it includes nothing.

    It is the same text for equal specs and dialects, up to comments.  Rows must not be folded.
    """
    if spec.folded:
        raise ValueError(
            f"emit_kernel: rows of {spec.folded} axes are folded, which kernels for CUDA cannot "
            "do: plan the launch with folds=False"
        )
    text = Text()
    text.paste(PRELUDE)
    summed = {accumulator(o.type): None for o in spec.outputs if any(o.reduced)}
    for type in summed:
        text.paste(block_sums(type, dialect.threads))
    changes = {(o.update, sum_in_arrays(o.type)): None for o in spec.outputs if o.is_changed}
    if changes and not dialect.elements:
        text.paste(PAIRS)
    else:
        for change in changes:
            text.paste(change_function(*change, dialect.threads))
    if any(o.beside for o in spec.outputs):
        fits = not spec.accumulates  # in shared memory, beside copies of arrays
        text.paste(store_together(spec, dialect.vector, dialect.threads) if fits else STORE_APART)
    words = ArgumentLayout(spec).words + (1 if dialect.elements else 5)
    text.add(f"struct Arguments {{ long long word[{words}]; }};")
    text.add(f"typedef unsigned{' long long' if dialect.wide else ''} index_t;")
    for type in packed_types(spec):
        t, bytes_ = c_type(type), type.itemsize * dialect.vector
        text.add(f"struct __align__({bytes_}) pack_{type} {{ {t} item[{dialect.vector}]; }};")
    for k, entry in enumerate(entries(spec)):
        _Pass(spec, k, dialect, text).emit(entry)
    return "\n".join([*text.lines, ""])


def packed_types(spec: KernelSpec) -> list[ScalarType]:
    """Return the types that are loaded or stored in packs."""
    loaded = [o.type for o in spec.operands if isinstance(o, Operand) and o.step == "unit"]
    stored = [o.type for o in spec.outputs if o.is_stored and not o.beside]
    return list(dict.fromkeys([*loaded, *stored]))


class _Pass:
    """One function while it is emitted."""

    def __init__(self, spec: KernelSpec, number: int, dialect: Dialect, text: Text) -> None:
        self.spec = spec
        self.pass_index = number
        self.program: Program = spec.passes[number]
        self.vector, self.threads = dialect.vector, dialect.threads
        self.aligned = dialect.aligned
        self.text = text
        self.block = ArgumentLayout(spec)
        self.outputs = {
            k: o for k, o in enumerate(spec.outputs) if any(at == number for at, _ in o.sources)
        }
        self.accumulators = {k: o for k, o in self.outputs.items() if o.accumulated is not None}
        for k in self.accumulators:
            del self.outputs[k]
        self.changed = [k for k, o in self.accumulators.items() if o.is_changed]
        self.elements = dialect.elements
        self.has_copies = bool(self.changed) and dialect.elements > 0
        self.groups = BLOCK // (self.threads * self.vector)  # of columns that one thread has
        self.combines = {k: combine_of(o.reduced) for k, o in self.outputs.items()}
        self.is_interleaved = any(o.beside for o in self.outputs.values())

    def emit(self, entry: str) -> None:
        """Emit the whole function."""
        bounds = f"__launch_bounds__({self.threads})"
        head = f'extern "C" __global__ void {bounds} {entry}(const Arguments a)'
        has_slabs = self.spec.accumulates and self.elements > 0
        which = "slab" if has_slabs else "tile"
        count = f"(index_t){self.word(self.block.words)}"
        loop = f"for (index_t {which} = blockIdx.x; {which} < {count}; {which} += gridDim.x)"
        with self.text.braces(head), self.text.braces(loop):
            if has_slabs:
                self.slab()
            else:
                self.tile()

    def slab(self) -> None:
        """Emit one slab: its tiles, in order, between the beginning and the end of its copies."""
        text = self.text
        first = text.let("index_t", f"slab * {self.number(self.block.slab)}")
        left = text.let("index_t", f"{self.number(self.block.tiles)} - {first}")
        size = self.number(self.block.slab)
        count = text.let("index_t", f"{left} < {size} ? {left} : {size}")
        self.begin_copies()
        with text.braces(f"for (index_t tile = {first}; tile < {first} + {count}; tile++)"):
            self.tile()
        for k, (copy, extent) in self.copies.items():
            place = f"{self.word(self.block.outputs[k])} + (long long)slab * {extent} * "
            type = sum_in_arrays(self.accumulators[k].type)
            text.add(leave_copy(type, copy, extent, f"{place}{type.itemsize}", self.threads))

    def begin_copies(self) -> None:
        """Emit the block's own copies of accumulators: what they are called, and their elements."""
        text, self.copies = self.text, dict[int, tuple[str, str]]()
        if self.changed:
            text.add(f"__shared__ __align__(8) long long of_block[{self.elements}];")
        start = "of_block"
        for k in self.changed:
            output = self.accumulators[k]
            type = sum_in_arrays(output.type)
            extent = text.let("int", self.size(k))
            copy = text.name()
            text.add(f"{c_type(type)} *const {copy} = ({c_type(type)} *)({start});")
            text.add(begin_copy(output.update, type, copy, extent, self.threads))
            self.copies[k] = copy, extent
            start = f"{start} + {extent}"

    # -- arguments -------------------------------------------------------------------------------

    def word(self, position: int) -> str:
        """Return a word of the argument block."""
        return f"a.word[{position}]"

    def number(self, position: int) -> str:
        """Return a word that counts rows or elements."""
        return f"(index_t){self.word(position)}"

    def uniform(self, position: int, type: ScalarType) -> str:
        """Return a scalar from the low bits of its word."""
        if type.is_bool:
            return f"({self.word(position)} & 1) != 0"
        if not type.is_float:
            return f"({c_type(type)}){self.word(position)}"
        bits = "(unsigned)" if type.bits == 32 else ""
        return f"from_bits<{c_type(type)}>({bits}{self.word(position)})"

    # -- the loop nest ---------------------------------------------------------------------------

    def tile(self) -> None:
        """Emit one tile: its rows, `blockDim.y` at a time, then what is summed over all of them."""
        block, text = self.block, self.text
        self.blocks = text.let("index_t", self.number(block.BLOCKS))
        self.run = text.let("index_t", f"tile / {self.blocks}")
        self.part = text.let("index_t", f"tile % {self.blocks}")
        self.low = text.let("index_t", f"{self.part} * {BLOCK}")
        self.extent = text.let("index_t", self.number(block.EXTENT))
        whole = text.let("index_t", f"{self.low} + {BLOCK}")
        self.end = text.let("index_t", f"{whole} < {self.extent} ? {whole} : {self.extent}")
        self.uniforms = {
            self.program.params[k].var: text.let(type, self.uniform(block.params[k], type))
            for k, operand in enumerate(self.spec.operands)
            if operand is None
            for type in (self.program.params[k].var.type,)
        }
        self.sums = {k: self.zeros(k) for k in self.outputs if self.combines[k] != "store"}
        self.rows()
        for k, combine in self.combines.items():
            if combine in ("columns", "tile"):
                self.end_of_tile(k)

    def zeros(self, output: int) -> str:
        """Declare what an output is summed in: one sum, or one for each column of the thread."""
        name = self.text.name("s")
        size = f"[{self.groups}][{self.vector}]" if self.combines[output] == "columns" else ""
        self.text.add(f"{c_type(self.sum_type(output))} {name}{size} = {{}};")
        return name

    def rows(self) -> None:
        """Emit the loop over the rows of a tile; all threads take as many iterations."""
        text, block = self.text, self.block
        if self.spec.rank == 1:
            self.here, self.row_number = "threadIdx.y == 0", "0"
            self.row("0")
            return
        rows, runs, extent = (
            self.number(p)
            for p in (block.ROWS, block.RUNS, block.OUTER_EXTENTS + self.spec.rank - 2)
        )
        outer = text.let("index_t", f"{self.run} / {runs}")
        first = text.let("index_t", f"{self.run} % {runs} * {rows}")
        count = text.let("index_t", f"{extent} - {first} < {rows} ? {extent} - {first} : {rows}")
        base = text.let("index_t", f"{outer} * {extent} + {first}")
        with text.braces(f"for (index_t r = 0; r < {count}; r += blockDim.y)"):
            self.here = text.let("bool", f"r + threadIdx.y < {count}")
            self.row(text.let("index_t", f"{base} + ({self.here} ? r + threadIdx.y : 0)"))

    def row(self, row: str) -> None:
        """Emit one row: the thread's columns, then what is summed over them."""
        self.row_number = row
        for k, combine in self.combines.items():
            if combine == "row":
                self.text.add(f"{self.sums[k]} = 0;")
        self.indices = self.outer_indices(row)
        starts = self.starts(self.indices)
        # Sums that stay in registers from row to row are not to be indexed by a variable.
        is_unrolled = "columns" in self.combines.values()
        self.text.add("#pragma unroll" if is_unrolled else "#pragma unroll 1")
        with self.text.braces(self.each_group):
            column = self.text.let("index_t", self.first_column)
            has_columns = f"{self.here} && {column} < {self.end}"
            if self.is_interleaved:
                mask = f"__ballot_sync(0xffffffffu, {has_columns})"
                self.mask = self.text.let("unsigned", mask)
            if self.has_copies:  # all threads go on together: see `mixad.emit.cuda.body`
                self.takes_part = self.text.let("bool", has_columns)
                self.columns(self.text.let("index_t", f"{self.takes_part} ? {column} : 0"), starts)
            else:
                with self.text.braces(f"if ({has_columns})"):
                    self.columns(column, starts)
        for k, combine in self.combines.items():
            if combine == "row":
                self.end_of_row(k)

    def outer_indices(self, row: str) -> list[str]:
        """Split a row's number into one index for each outer axis."""
        indices: list[str] = []
        for axis in range(self.spec.rank - 2, 0, -1):
            extent = self.number(self.block.OUTER_EXTENTS + axis)
            indices.insert(0, self.text.let("index_t", f"{row} % {extent}"))
            row = self.text.let("index_t", f"{row} / {extent}")
        return [row, *indices] if self.spec.rank > 1 else []

    def starts(self, indices: list[str]) -> dict[int, str]:
        """Return, for each lane param, the address of the row's first element."""
        starts = {}
        for k, operand in enumerate(self.spec.operands):
            if not isinstance(operand, Operand):
                continue
            terms = [self.word(self.block.params[k])]
            terms += self.row_offset(indices, partial(self.block.outer_stride, k))
            starts[k] = self.text.let("long long", " + ".join(terms))
        return starts

    def row_offset(self, indices: list[str], stride: Callable[[int], int]) -> list[str]:
        """Return the bytes to a row, axis by axis."""
        return [
            f"(long long){index} * {self.word(stride(axis))}" for axis, index in enumerate(indices)
        ]

    # -- the elements of a thread ----------------------------------------------------------------

    @property
    def each_group(self) -> str:
        """The head of the loop over the thread's groups of neighbours."""
        condition = f"group < {self.groups}"
        if self.has_copies:  # groups that no thread has cost barriers
            condition += f" && {self.low} + group * blockDim.x * {self.vector} < {self.end}"
        return f"for (int group = 0; {condition}; group++)"

    @property
    def first_column(self) -> str:
        """The column of the first of the thread's neighbours in a group."""
        return f"{self.low} + (group * blockDim.x + threadIdx.x) * {self.vector}"

    def columns(self, column: str, starts: dict[int, str]) -> None:
        """Emit load, program and combination for the thread's neighbours in one group."""
        loaded = {
            k: self.load_operand(k, operand, starts[k], column)
            for k, operand in enumerate(self.spec.operands)
            if isinstance(operand, Operand)
        }
        packs = {
            k: self.pack(output)
            for k, output in self.outputs.items()
            if self.combines[k] == "store"
            and is_stored_at_once(output, self.pass_index, self.vector)
        }
        with self.each_lane():
            self.lane(loaded, packs, column)
        with self.for_elements():
            for k, pack in packs.items():
                self.store_pack(k, pack, column)

    def for_elements(self) -> AbstractContextManager[None]:
        """Return what puts text under the condition that the thread has an element."""
        if not self.has_copies:
            return nullcontext()
        return self.text.braces(f"if ({self.takes_part})")

    def pack(self, output: Output) -> str:
        """Declare what the thread's neighbours have of a result; return its name."""
        pack, count = self.text.name("p"), self.vector * len(output.sources)
        interleaved = f"{c_type(output.type)} {pack}[{count}];"
        self.text.add(interleaved if output.beside else f"pack_{output.type} {pack};")
        return pack

    @contextmanager
    def each_lane(self) -> Iterator[None]:
        """Add a loop over a thread's neighbours."""
        self.text.add("#pragma unroll")
        with self.text.braces(f"for (int lane = 0; lane < {self.vector}; lane++)"):
            yield

    def store_pack(self, k: int, pack: str, column: str) -> None:
        """Emit the store of what neighbours have of a result, as a whole where it is aligned."""
        output, type, place = self.outputs[k], self.outputs[k].type, self.place(k, column)
        if output.beside:
            self.text.add(f"store_together({pack}, {place}, {self.mask});")
            return
        if self.aligned:
            self.text.add(f"*(pack_{type} *)in_memory({place}) = {pack};")
            return
        with self.each_lane():
            self.text.add(f"(({c_type(type)} *)in_memory({place}))[lane] = {pack}.item[lane];")

    def stored_by_spans(self, k: int, results: Sequence[str], column: str) -> None:
        """Emit the stores of the results of one element that are side by side."""
        output, size = self.outputs[k], self.outputs[k].type.itemsize
        element = self.place(k, f"{column} + lane")
        for span in spans_of(output, self.pass_index):
            own = self.text.name("p")
            values = ", ".join(to_memory(results[at], output.type) for at in span.results)
            self.text.add(f"const {c_type(output.type)} {own}[] = {{{values}}};")
            self.text.add(f"store_together({own}, {element} + {span.first * size}, {self.mask});")

    def load_pack(self, type: ScalarType, place: str) -> str:
        """Load a pack, as a whole where it is aligned; return its name."""
        if self.aligned:
            return self.text.let(f"pack_{type}", f"*(const pack_{type} *)in_memory({place})")
        pack = self.text.name("p")
        self.text.add(f"pack_{type} {pack};")
        with self.each_lane():
            lanes = f"((const {c_type(type)} *)in_memory({place}))"
            self.text.add(f"{pack}.item[lane] = {lanes}[lane];")
        return pack

    def place(self, k: int, column: str) -> str:
        """Return the address at which a result's neighbours are stored."""
        output = self.outputs[k]
        size = output.type.itemsize * len(output.sources)
        terms = [self.word(self.block.outputs[k])]
        along = f"(long long)({column})"
        if output.is_part:
            terms += self.row_offset(self.indices, partial(self.block.part_stride, k))
        elif self.indices:
            along = f"(long long){self.row_number} * {self.extent} + {column}"
        return self.text.let("long long", " + ".join([*terms, f"({along}) * {size}"]))

    def load_operand(self, param: int, operand: Operand, start: str, column: str) -> str:
        """Load an operand; return the expression of a lane's element."""
        text, type = self.text, operand.type
        match operand.step:
            case "zero":
                return text.let(type, f"*(const {c_type(type)} *)in_memory({start})")
            case "unit":
                at = f"{start} + (long long){column} * {type.itemsize}"
                return f"{self.load_pack(type, text.let('long long', at))}.item[lane]"
        step = self.word(self.block.inner_stride(param))
        at = f"{start} + (long long)({column} + lane) * {step}"
        return f"*(const {c_type(type)} *)in_memory({at})"

    def lane(self, loaded: dict[int, str], packs: dict[int, str], column: str) -> None:
        """Emit the program for one element, and what becomes of its results."""
        params = self.program.params
        values = {
            params[k].var: self.text.let(params[k].var.type, self.operand_element(k, element))
            for k, element in loaded.items()
        }
        arrays = self.arrays()
        names = {**dict.fromkeys(arrays, "0"), **values, **self.uniforms}
        pairs = self.begin_pairs(column) if self.changed and not self.has_copies else ""
        body = Body(self.text, names, arrays, pairs)
        if self.has_copies:
            results = body.emit_together(self.program.body, self.takes_part)
        else:
            results = body.block(self.program.body)
        self.text.own_lines()
        if pairs:
            self.end_pairs(pairs)
        with self.for_elements():
            self.combine_results(results, packs, column)

    def begin_pairs(self, column: str) -> str:
        """Emit where an element puts its pairs; return what it puts them in."""
        text, pairs = self.text, self.text.name("p")
        at = f"(long long){self.row_number} * {self.extent} + {column} + lane"
        self.element = text.let("long long", at)
        _, starts, elements, values = self.pair_words
        text.add(f"Pairs {pairs} = {{0, 0, 0}};")
        with text.braces(f"if ({starts})"):
            text.add(f"{pairs}.at = ((const long long *)in_memory({starts}))[{self.element}];")
            text.add(f"{pairs}.elements = (long long *)in_memory({elements});")
            text.add(f"{pairs}.values = (long long *)in_memory({values});")
        return pairs

    def end_pairs(self, pairs: str) -> None:
        """Emit the store of how many pairs an element has."""
        counts, starts, *_ = self.pair_words
        own = f"((long long *)in_memory({counts}))[{self.element}]"
        self.text.add(f"if (!{starts}) {own} = {pairs}.at;")

    @property
    def pair_words(self) -> list[str]:
        """The addresses of what pairs take."""
        return [self.word(self.block.words + k) for k in range(1, 5)]

    def combine_results(self, results: Sequence[str], packs: dict[int, str], column: str) -> None:
        """Emit what becomes of an element's results."""
        for k, output in self.outputs.items():
            if k in packs:
                for place, (_, at) in enumerate(output.sources):
                    own = f"[lane * {len(output.sources)} + {place}]"
                    item = packs[k] + (own if output.beside else ".item[lane]")
                    self.text.add(f"{item} = {to_memory(results[at], output.type)};")
            elif self.combines[k] == "store":
                self.stored_by_spans(k, results, column)
            else:
                index = "[group][lane]" if self.combines[k] == "columns" else ""
                self.text.add(f"{self.sums[k]}{index} += {results[output.source[1]]};")

    def operand_element(self, param: int, element: str) -> str:
        """Return an element of an operand as what is computed with."""
        operand = self.spec.operands[param]
        assert operand is not None
        return from_memory(element, operand.type)

    def arrays(self) -> dict[Var, Array]:
        """Return the arrays that the program indexes."""
        params, outputs = self.program.params, self.program.outputs
        read = {
            params[k].var: self.array(k, operand)
            for k, operand in enumerate(self.spec.operands)
            if isinstance(operand, Indexed)
        }
        changed = {outputs[o.source[1]]: self.accumulator(k) for k, o in self.accumulators.items()}
        return read | cast("dict[Var, Array]", changed)

    def axes(self, output: int) -> range:
        """Return the axes of an accumulator."""
        return range(self.accumulators[output].accumulated or 0)

    def size(self, output: int) -> str:
        """Return how many elements an accumulator has."""
        extents = [self.word(self.block.accumulator_extent(output, a)) for a in self.axes(output)]
        return " * ".join(["1", *extents])

    def accumulator(self, output: int) -> Array:
        """Return an accumulator, contiguous: a result that is written, or the block's own copy."""
        spec, block = self.accumulators[output], self.block
        extents = [self.word(block.accumulator_extent(output, axis)) for axis in self.axes(output)]
        size = "1ll" if spec.is_changed else f"{spec.type.itemsize}ll"
        if not spec.is_changed:
            start = self.word(block.outputs[output])
        elif self.has_copies:
            start = self.copies[output][0]
        else:
            before = self.changed[: self.changed.index(output)]
            start = " + ".join(["0ll", *map(self.size, before)])
        return Array(
            number=len(self.spec.operands) + output,
            type=sum_in_arrays(spec.type) if spec.is_changed else spec.type,
            start=start,
            outside=f"(int *)in_memory({self.word(block.OUTSIDE)})",
            extents=extents,
            strides=[" * ".join([size, *extents[axis + 1 :]]) for axis in self.axes(output)],
            update=spec.update,
        )

    def array(self, param: int, operand: Indexed) -> Array:
        axes, block = range(operand.rank), self.block
        return Array(
            number=param,
            type=operand.type,
            start=self.word(block.params[param]),
            outside=f"(int *)in_memory({self.word(block.OUTSIDE)})",
            extents=[self.word(block.indexed_extent(param, axis)) for axis in axes],
            strides=[self.word(block.indexed_stride(param, axis)) for axis in axes],
        )

    # -- sums ------------------------------------------------------------------------------------

    def end_of_row(self, k: int) -> None:
        """Emit the sum over a row's part in this tile."""
        total = self.text.let(self.sum_type(k), f"sum_along_row({self.sums[k]})")
        at = f"(long long){self.row_number} * {self.blocks} + {self.part}"
        self.store_partial_sum(k, f"{self.here} && threadIdx.x == 0", at, total)

    def end_of_tile(self, k: int) -> None:
        """Emit the sums over the rows of a tile, of each column or of all."""
        text, type, own = self.text, self.sum_type(k), self.sums[k]
        if self.combines[k] == "tile":
            total = text.let(type, f"sum_along_rows(sum_along_row({own}))")
            self.store_partial_sum(k, "threadIdx.x == 0 && threadIdx.y == 0", "tile", total)
            return
        text.add("#pragma unroll")
        with text.braces(self.each_group), self.each_lane():
            total = text.let(type, f"sum_along_rows({own}[group][lane])")
            column = text.let("index_t", f"{self.first_column} + lane")
            at = f"(long long){self.run} * {self.extent} + {column}"
            self.store_partial_sum(k, f"{column} < {self.end} && threadIdx.y == 0", at, total)

    def sum_type(self, k: int) -> ScalarType:
        return accumulator(self.outputs[k].type)

    def store_partial_sum(self, k: int, condition: str, at: str, value: str) -> None:
        """Emit the store of what a tile leaves of a sum."""
        t = c_type(self.sum_type(k))
        address = self.word(self.block.outputs[k])
        self.text.add(f"if ({condition}) (({t} *)in_memory({address}))[{at}] = {value};")
