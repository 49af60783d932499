"""A kernel spec as one LLVM function over tiles: the loop nest around the programs' bodies.

``void kernel(ptr arguments, i64 begin, i64 end)`` runs the tiles from ``begin`` to ``end``.  A tile
is up to `BLOCK` elements of one row of the innermost axis; the passes run over it one after another.
A gang that is not full, or that reads by a stride, is first copied to a small staging area on the
stack and padded with its own first element, so that every gang runs the same unmasked code.
"""

from __future__ import annotations

from dataclasses import dataclass

from mixad.emit.llvm.arguments import BLOCK, ArgumentBlock
from mixad.emit.llvm.body import Body
from mixad.emit.llvm.gather import Array
from mixad.emit.llvm.homes import param_homes
from mixad.emit.llvm.text import GANG, Dialect, Text, Value, llvm_type, memory_type
from mixad.kernel.spec import Indexed, KernelSpec, Operand
from mixad.kernel.varying import varying_vars
from mixad.scalar.ir import Program, Var
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["ENTRY", "emit_kernel"]

ENTRY = "mixad_kernel"
"""Symbol of every kernel."""

_LINE = 64
"""Bytes of a cache line: alignment of staging areas and of streamed results."""


def emit_kernel(spec: KernelSpec, dialect: Dialect, entry: str = ENTRY) -> str:
    """Return the LLVM IR of a kernel.

    Parameters
    ----------
    spec : KernelSpec
        Programs that hold no op whose lowering is ``"program"`` (`mixad.scalar.math.expand`).
    dialect : Dialect
        The machine.
    entry : str
        Symbol of the function.

    Returns
    -------
    str
        A module: the same text for equal specs and dialects.
    """
    text = Text()
    _Kernel(spec, dialect, text).emit()
    header = f"define void @{entry}(ptr noalias nocapture readonly %arguments, i64 %begin, i64 %end) #0 {{\nentry:"
    width = dialect.vector_bits
    attributes = (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}\n'
        f"!0 = !{{i32 1}}\n!1 = !{{}}"
    )
    body = "\n".join(text.lines)
    return "\n".join([*text.declarations.values(), header, body, "}", attributes, ""])


@dataclass(frozen=True)
class _Row:
    """Pointers that hold for one row: the start of every operand's and output's row."""

    operands: dict[int, str]
    outputs: list[str]


class _Kernel:
    def __init__(self, spec: KernelSpec, dialect: Dialect, text: Text) -> None:
        self.spec = spec
        self.dialect = dialect
        self.text = text
        self.block = ArgumentBlock(spec)

    # -- arguments -------------------------------------------------------------------------------

    def argument(self, position: int, llvm: str = "i64") -> str:
        """Load a word of the argument block; the block never changes while a kernel runs."""
        at = self.text.let(f"getelementptr i64, ptr %arguments, i64 {position}")
        return self.text.let(f"load {llvm}, ptr {at}, align 8, !invariant.load !1")

    def uniform(self, position: int, type: ScalarType) -> Value:
        """Load a uniform param's value from its word."""
        at = self.text.let(f"getelementptr i64, ptr %arguments, i64 {position}")
        return self.scalar_at(at, type)

    def indexed_array(self, param: int, operand: Indexed) -> Array:
        """Load what indexing an array takes."""
        axes = range(operand.rank)
        return Array(
            number=param,
            start=self.argument(self.block.params[param], "ptr"),
            extents=[self.argument(self.block.indexed_extent(param, a)) for a in axes],
            strides=[self.argument(self.block.indexed_stride(param, a)) for a in axes],
            outside=self.argument(self.block.OUTSIDE, "ptr"),
        )

    def scalar_at(self, pointer: str, type: ScalarType) -> Value:
        """Load one value that never changes while a kernel runs."""
        loaded = self.text.let(
            f"load {memory_type(type, False)}, ptr {pointer}, align 1, !invariant.load !1"
        )
        return self.from_memory(loaded, type, lanes=False)

    def from_memory(self, loaded: str, type: ScalarType, *, lanes: bool) -> Value:
        """Turn what was loaded into a value: bytes into truth values."""
        if not type.is_bool:
            return Value(loaded, type, lanes)
        zero = "zeroinitializer" if lanes else "0"
        return self.text.value(f"icmp ne {memory_type(type, lanes)} {loaded}, {zero}", BOOL, lanes)

    # -- the loop nest ---------------------------------------------------------------------------

    def emit(self) -> None:
        text, block = self.text, self.block
        self.stop = self.argument(block.STOP, "ptr")
        self.extent = self.argument(block.EXTENT)
        per_row = self.argument(block.TILES_PER_ROW)
        self.stages = self.make_stages()
        self.starts = {k: self.argument(block.params[k], "ptr") for k, _ in self.operands()}
        self.results = [self.argument(position, "ptr") for position in block.outputs]
        self.strides = {
            k: self.argument(block.inner_stride(k))
            for k, operand in self.operands()
            if operand.step == "any"
        }
        self.uniforms = {
            p.var: self.uniform(block.params[k], p.var.type)
            for k, p in enumerate(self.spec.passes[0].params)
            if self.spec.operands[k] is None
        }
        self.arrays = {
            k: self.indexed_array(k, o)
            for k, o in enumerate(self.spec.operands)
            if isinstance(o, Indexed)
        }
        text.add("br label %tile")
        text.begin("tile")
        text.add("%t = phi i64 [ %begin, %entry ], [ %t.next, %tile.done ]")
        row = text.let(f"udiv i64 %t, {per_row}")
        column = text.let(f"urem i64 %t, {per_row}")
        low = text.let(f"mul i64 {column}, {BLOCK}")
        far = text.let(f"add i64 {low}, {BLOCK}")
        short = text.let(f"icmp slt i64 {far}, {self.extent}")
        high = text.let(f"select i1 {short}, i64 {far}, i64 {self.extent}")
        here = self.row_pointers(row)
        for index, program in enumerate(self.spec.passes):
            self.gangs(index, program, here, low, high)
        text.add("br label %tile.done")
        text.begin("tile.done")
        text.add("%t.next = add i64 %t, 1")
        more = text.let("icmp slt i64 %t.next, %end")
        asked = text.let(f"load atomic i32, ptr {self.stop} monotonic, align 4")
        going = text.let(f"icmp eq i32 {asked}, 0")
        again = text.let(f"and i1 {more}, {going}")
        text.add(f"br i1 {again}, label %tile, label %exit")
        text.begin("exit")
        if self.spec.streaming:  # stores past the cache are seen by other threads only after a fence
            text.add("fence seq_cst")
        text.add("ret void")

    def operands(self) -> list[tuple[int, Operand]]:
        """Return the lane params with their positions."""
        return [(k, o) for k, o in enumerate(self.spec.operands) if isinstance(o, Operand)]

    def make_stages(self) -> dict[tuple[str, int], str]:
        """Allocate one gang of stack for each operand that moves and for each output."""
        wanted = [(("in", k), o.type) for k, o in self.operands() if o.step != "zero"]
        wanted += [(("out", k), o.type) for k, o in enumerate(self.spec.outputs)]
        return {
            key: self.text.let(f"alloca {memory_type(type, True)}, align {_LINE}")
            for key, type in wanted
        }

    def row_pointers(self, row: str) -> _Row:
        """Return where a row starts in every array."""
        outer = self.outer_indices(row)
        operands = {k: self.walked(self.starts[k], k, outer) for k, _ in self.operands()}
        first = self.text.let(f"mul i64 {row}, {self.extent}")
        outputs = [
            self.text.let(f"getelementptr {memory_type(o.type, False)}, ptr {start}, i64 {first}")
            for o, start in zip(self.spec.outputs, self.results, strict=True)
        ]
        return _Row(operands, outputs)

    def outer_indices(self, row: str) -> list[str]:
        """Split a row's number into one index for each outer axis."""
        indices: list[str] = []
        for axis in reversed(range(1, self.spec.rank - 1)):
            extent = self.argument(self.block.OUTER_EXTENTS + axis)
            indices.insert(0, self.text.let(f"urem i64 {row}, {extent}"))
            row = self.text.let(f"udiv i64 {row}, {extent}")
        return [row, *indices] if self.spec.rank > 1 else []

    def walked(self, pointer: str, param: int, outer: list[str]) -> str:
        """Move an operand's pointer to a row."""
        for axis, index in enumerate(outer):
            stride = self.argument(self.block.outer_stride(param, axis))
            offset = self.text.let(f"mul i64 {index}, {stride}")
            pointer = self.text.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return pointer

    # -- one pass over a tile ----------------------------------------------------------------------

    def gangs(self, index: int, program: Program, row: _Row, low: str, high: str) -> None:
        """Emit the loop over the gangs of a tile for one pass."""
        text = self.text
        head, done = text.name(), text.name()
        before = text.label
        text.add(f"br label %{head}")
        text.begin(head)
        here, next_ = f"%{text.name()}", f"%{text.name()}"
        phi = text.placeholder()
        left = text.let(f"sub i64 {high}, {here}")
        is_full = text.let(f"icmp sge i64 {left}, {GANG}")
        count = text.let(f"select i1 {is_full}, i64 {GANG}, i64 {left}")
        pointers = self.staged_inputs(program, row, here, count, is_full)
        values = self.run(program, pointers)
        self.store(index, program, values, row, here, count, is_full)
        text.add(f"{next_} = add i64 {here}, {GANG}")
        again = text.let(f"icmp slt i64 {next_}, {high}")
        text.fill(phi, f"{here} = phi i64 [ {low}, %{before} ], [ {next_}, %{text.label} ]")
        text.add(f"br i1 {again}, label %{head}, label %{done}")
        text.begin(done)

    def run(self, program: Program, pointers: dict[Var, tuple[Operand, str]]) -> list[Value]:
        """Emit a program's body and return its results."""

        def load(var: Var) -> Value:
            operand, pointer = pointers[var]
            if operand.step == "zero":
                return self.scalar_at(pointer, var.type)
            loaded = self.text.let(
                f"load {memory_type(var.type, True)}, ptr {pointer}, align {var.type.itemsize}"
            )
            return self.from_memory(loaded, var.type, lanes=True)

        body = Body(
            self.text,
            self.dialect,
            varying_vars(program, self.spec.moving),
            load,
            param_homes(program),
            self.stop,
        )
        for k, array in self.arrays.items():
            body.arrays[program.params[k].var] = array
        first = self.spec.passes[0]
        for param, original in zip(program.params, first.params, strict=True):
            if original.var in self.uniforms:
                body.values[param.var] = self.uniforms[original.var]
        return body.block(program.body)

    def staged_inputs(
        self, program: Program, row: _Row, here: str, count: str, is_full: str
    ) -> dict[Var, tuple[Operand, str]]:
        """Return, for each lane param, where its gang is read from."""
        pointers = {}
        fills = []
        for k, operand in self.operands():
            start = row.operands[k]
            if operand.step == "zero":
                pointers[program.params[k].var] = (operand, start)
            elif operand.step == "unit":
                element = memory_type(operand.type, False)
                direct = self.text.let(f"getelementptr {element}, ptr {start}, i64 {here}")
                stage = self.stages["in", k]
                fills.append((operand.type, direct, stage))
                chosen = self.text.let(f"select i1 {is_full}, ptr {direct}, ptr {stage}")
                pointers[program.params[k].var] = (operand, chosen)
            else:
                self.copy_strided(k, operand, start, here, count)
                pointers[program.params[k].var] = (operand, self.stages["in", k])
        self.fill_stages(fills, count, is_full)
        return pointers

    def fill_stages(
        self, fills: list[tuple[ScalarType, str, str]], count: str, is_full: str
    ) -> None:
        """Copy the elements of a gang that is not full to the stages, padded with its first element."""
        if not fills:
            return
        text = self.text
        partial, ready = text.name(), text.name()
        text.add(f"br i1 {is_full}, label %{ready}, label %{partial}")
        text.begin(partial)
        for type, direct, stage in fills:
            self.pad(type, direct, stage)
            self.copy_memory(stage, direct, count, type)
        text.add(f"br label %{ready}")
        text.begin(ready)

    def pad(self, type: ScalarType, source: str, stage: str) -> None:
        """Fill a stage with one element."""
        byte = ScalarType("uint", 8) if type.is_bool else type
        element = llvm_type(byte, False)
        first = Value(
            self.text.let(f"load {element}, ptr {source}, align {type.itemsize}"), byte, False
        )
        self.text.add(f"store {self.text.splat(first)}, ptr {stage}, align {_LINE}")

    def copy_memory(self, target: str, source: str, count: str, type: ScalarType) -> None:
        """Copy ``count`` elements."""
        copy = self.text.declare("llvm.memcpy.p0.p0.i64", "void {}(ptr, ptr, i64, i1)")
        size = self.text.let(f"mul i64 {count}, {type.itemsize}")
        self.text.add(f"call void {copy}(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def copy_strided(self, k: int, operand: Operand, start: str, here: str, count: str) -> None:
        """Gather a gang into its stage; lanes beyond the end repeat the last element."""
        text, stride = self.text, self.strides[k]
        element = memory_type(operand.type, False)
        last = text.let(f"add i64 {count}, -1")
        offset = text.let(f"mul i64 {here}, {stride}")
        first = text.let(f"getelementptr i8, ptr {start}, i64 {offset}")
        for lane in range(GANG):
            inside = text.let(f"icmp slt i64 {lane}, {last}")
            index = text.let(f"select i1 {inside}, i64 {lane}, i64 {last}")
            step = text.let(f"mul i64 {index}, {stride}")
            source = text.let(f"getelementptr i8, ptr {first}, i64 {step}")
            loaded = text.let(f"load {element}, ptr {source}, align 1")
            target = text.let(f"getelementptr {element}, ptr {self.stages['in', k]}, i64 {lane}")
            text.add(f"store {element} {loaded}, ptr {target}, align {operand.type.itemsize}")

    def store(
        self,
        index: int,
        program: Program,
        values: list[Value],
        row: _Row,
        here: str,
        count: str,
        is_full: str,
    ) -> None:
        """Store a pass's results; a gang that is not full goes through its stage."""
        text = self.text
        parts = []
        for k, output in enumerate(self.spec.outputs):
            if output.source[0] != index:
                continue
            element = memory_type(output.type, False)
            direct = text.let(f"getelementptr {element}, ptr {row.outputs[k]}, i64 {here}")
            target = text.let(f"select i1 {is_full}, ptr {direct}, ptr {self.stages['out', k]}")
            self.store_gang(text.splat(values[output.source[1]]), target)
            parts.append((output.type, direct, self.stages["out", k]))
        if parts:
            partial, ready = text.name(), text.name()
            text.add(f"br i1 {is_full}, label %{ready}, label %{partial}")
            text.begin(partial)
            for type, direct, stage in parts:
                self.copy_memory(direct, stage, count, type)
            text.add(f"br label %{ready}")
            text.begin(ready)

    def store_gang(self, value: Value, target: str) -> None:
        """Store one full gang, past the cache where the spec says so."""
        memory = memory_type(value.type, True)
        stored = str(value)
        if value.type.is_bool:
            stored = f"{memory} " + self.text.let(f"zext {value} to {memory}")
        gang_bytes = GANG * value.type.itemsize
        if self.spec.streaming and gang_bytes % _LINE == 0:
            self.text.add(f"store {stored}, ptr {target}, align {_LINE}, !nontemporal !0")
        else:
            self.text.add(f"store {stored}, ptr {target}, align {value.type.itemsize}")
