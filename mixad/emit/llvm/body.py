"""A program's blocks as SPMD text: uniform conditions branch, varying ones mask.

Every lane of a gang goes through the same instructions.  Under a condition that differs between
lanes, both sides are computed and selected from; a side that costs more than a branch is skipped
when no lane needs it.  A loop whose test differs between lanes runs until no lane is left in it;
lanes that have left keep their carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mixad.emit.llvm.gather import (
    Array,
    Element,
    checked_element,
    emit_gather,
    known_element,
    touch,
    update_array,
)
from mixad.emit.llvm.instructions import emit_op
from mixad.emit.llvm.scheduling_regions import scheduling_boundaries
from mixad.emit.llvm.text import Dialect, Text, Value
from mixad.kernel.block_summary import BlockSummary
from mixad.kernel.cost import BRANCH_COST
from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    Equation,
    If,
    Line,
    Load,
    Statement,
    Touch,
    Update,
    Var,
    While,
)
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import BOOL, I64

__all__ = ["Body"]


class Body:
    """Emits the statements of one program into a function's text.

    `varying` variables differ between lanes (`mixad.kernel.varying`). `load` emits a lane param's
    load and returns its value, once, at the start of the innermost block around all uses; `sites`
    has these params by ``id`` of block (`mixad.emit.llvm.load_sites`). `summaries` is of
    blocks, by ``id`` (`mixad.kernel.block_summary`). `stop` is the pointer to the stop flag.
    """

    def __init__(
        self,
        text: Text,
        dialect: Dialect,
        varying: frozenset[Var],
        load: Callable[[Var], Value],
        sites: Mapping[int, Sequence[Var]],
        summaries: Mapping[int, BlockSummary],
        stop: str,
    ) -> None:
        self.text = text
        self.dialect = dialect
        self.varying = varying
        self.load = load
        self.sites = sites
        self.summaries = summaries
        self.stop = stop
        self.values: dict[Var, Value] = {}
        self.arrays: dict[Var, Array] = {}
        self.elements = Value("true", BOOL, False)
        """The lanes that have an element, where the program changes arrays."""
        self.moved: dict[Atom, tuple[Value, Value]] = {}
        """Indices that are sums of a varying and a uniform one."""
        self.mask: Value | None = None
        self.line: Line | None = None

    def value(self, atom: Atom) -> Value:
        """Return the value of an atom in the text."""
        return self.text.const(atom) if isinstance(atom, Const) else self.values[atom]

    def block(self, block: Block) -> list[Value]:
        """Emit a block and return its results."""
        for var in self.sites.get(id(block), ()):
            self.values[var] = self.load(var)
        boundaries = scheduling_boundaries(block, self.dialect.vector_bits, self.summaries)
        for index, statement in enumerate(block.statements):
            if index in boundaries:
                self.text.scheduling_boundary()
            self.statement(statement)
        return [self.value(a) for a in block.results]

    def statement(self, s: Statement) -> None:
        """Emit one statement, after the user's line that it comes from."""
        if s.line is not None and s.line != self.line:
            self.line = s.line
            self.text.comment(f"{s.line.number}: {s.line.text.strip()}")
        match s:
            case Equation():
                self.values[s.out] = self.equation(s)
                self.note_sum(s)
            case If():
                cond = self.value(s.cond)
                outs = self.masked_if(s, cond) if cond.lanes else self.branching_if(s, cond)
                self.values.update(zip(s.outs, outs, strict=True))
            case While():
                outs = self.masked_loop(s) if self.leaves_apart(s) else self.uniform_loop(s)
                self.values.update(zip(s.outs, outs, strict=True))
            case Load():
                at = self.element(s)
                value = emit_gather(self.text, self.arrays[s.array], at)
                if value.type.is_narrow:
                    value = emit_op(self.text, self.dialect, "convert", (value,), s.out.type)
                self.values[s.out] = value
            case Update():
                self.update(s)
            case Touch():
                touch(self.text, self.element(s))

    def update(self, s: Update) -> None:
        """Emit a change of an array, in the type of its elements or of their sums."""
        array, value = self.arrays[s.array], self.value(s.value)
        if value.type != array.type:
            value = emit_op(self.text, self.dialect, "convert", (value,), array.type)
        update_array(self.text, array, self.element(s), value, self.elements)

    def element(self, s: Load | Update | Touch) -> Element:
        """Emit where the element of an access is."""
        array = self.arrays[s.array]
        if isinstance(s, Touch) or s.is_inside:
            split = [self.moved.get(i) or (self.value(i), None) for i in s.indices]
            return known_element(self.text, array, split, self.mask)
        return checked_element(self.text, array, list(map(self.value, s.indices)), self.mask)

    def note_sum(self, s: Equation) -> None:
        """Record an index that is a sum, to compute its varying part once for all lanes."""
        if s.op == "add" and s.out.type == I64:
            wide, same = sorted(map(self.value, s.args), key=lambda v: not v.lanes)
            if wide.lanes and not same.lanes:
                self.moved[s.out] = wide, same

    def leaves_apart(self, s: While) -> bool:
        """Whether lanes can leave a loop at different iterations."""
        test = s.cond.results[0]
        return isinstance(test, Var) and test in self.varying

    def equation(self, s: Equation) -> Value:
        """Emit an op; lanes that are switched off give a library function harmless arguments."""
        args = tuple(map(self.value, s.args))
        op = BY_NAME[s.op]
        if self.mask is not None and op.lowering == "libm" and any(a.lanes for a in args):
            args = tuple(
                self.text.select(self.mask, a, self.text.const(Const(safe, a.type)))
                for a, safe in zip(args, op.safe, strict=True)
            )
        return emit_op(self.text, self.dialect, s.op, args, s.out.type)

    # -- conditions ------------------------------------------------------------------------------

    def branching_if(self, s: If, cond: Value) -> list[Value]:
        """Emit an If on which the whole gang agrees: a branch."""
        text = self.text
        then, orelse, join = (text.name() for _ in range(3))
        text.add(f"br {cond}, label %{then}, label %{orelse}")
        ends = []
        lanes = [v in self.varying for v in s.outs]
        for label, block in ((then, s.then), (orelse, s.orelse)):
            text.begin(label)
            values = self.block(block)
            values = [text.splat(v) if wide else v for v, wide in zip(values, lanes, strict=True)]
            ends.append((values, text.label))
            text.add(f"br label %{join}")
        text.begin(join)
        return [self.phi(a, b) for a, b in self.pair_ends(ends)]

    def pair_ends(
        self, ends: Sequence[tuple[list[Value], str]]
    ) -> list[tuple[tuple[Value, str], tuple[Value, str]]]:
        """Return, for each result, its value and label at both ends."""
        (ones, first), (others, second) = ends
        return [((a, first), (b, second)) for a, b in zip(ones, others, strict=True)]

    def phi(self, a: tuple[Value, str], b: tuple[Value, str]) -> Value:
        """Return the value of whichever block control came from."""
        (x, from_x), (y, from_y) = a, b
        if x == y:
            return x
        return self.text.value(
            f"phi {x.llvm} [ {x.text}, %{from_x} ], [ {y.text}, %{from_y} ]", x.type, x.lanes
        )

    def masked_if(self, s: If, cond: Value) -> list[Value]:
        """Emit an If on which lanes differ: both sides, each under its mask, then a selection."""
        outer = self.mask
        yes = self.emit_under_mask(self.text.both(outer, cond), s.then)
        no = self.emit_under_mask(self.text.both(outer, self.text.opposite(cond)), s.orelse)
        self.mask = outer
        return [self.text.select(cond, a, b) for a, b in zip(yes, no, strict=True)]

    def emit_under_mask(self, mask: Value, block: Block) -> list[Value]:
        """Emit a block for the lanes of a mask; a costly block is skipped where they are none.

        A loop is always skipped so: nothing says that it ends where no lane needs it.
        """
        self.mask = mask
        summary = self.summaries[id(block)]
        if summary.cost < BRANCH_COST and not summary.has_loop:
            return self.block(block)
        text = self.text
        some, join = text.name(), text.name()
        text.add(f"br i1 {text.any(mask)}, label %{some}, label %{join}")
        before = text.label
        text.begin(some)
        values = list(map(text.splat, self.block(block)))
        after = text.label
        text.add(f"br label %{join}")
        text.begin(join)
        return [
            self.phi((v, after), (Value("zeroinitializer", v.type, True), before)) for v in values
        ]

    # -- loops -----------------------------------------------------------------------------------

    def uniform_loop(self, s: While) -> list[Value]:
        """Emit a loop that the whole gang leaves together."""
        text = self.text
        head, body, done = (text.name() for _ in range(3))
        phis = self.enter_loop(s, head, lanes=[v in self.varying for v in s.carries])
        (test,) = self.block(s.cond)
        text.add(f"br {test}, label %{body}, label %{done}")
        text.begin(body)
        self.next_iteration(phis, self.block(s.body), head, "" if s.is_short else done)
        text.begin(done)
        return [self.values[v] for v in s.carries]

    def masked_loop(self, s: While) -> list[Value]:
        """Emit a loop that lanes leave one by one; it ends when none is left."""
        text, outer = self.text, self.mask
        head, body, done = (text.name() for _ in range(3))
        start = text.splat(outer or Value("true", BOOL, False))
        phis = self.enter_loop(s, head, [True] * len(s.carries))
        inside = Value(f"%{text.name()}", BOOL, True)
        active_phi = (inside, text.reserve(), start, phis[0][3] if phis else self.entered_from)
        self.mask = inside
        (test,) = self.block(s.cond)
        self.mask = text.both(inside, test)
        text.add(f"br i1 {text.any(self.mask)}, label %{body}, label %{done}")
        text.begin(body)
        going = self.mask
        following = [
            text.select(going, new, self.values[v])
            for v, new in zip(s.carries, self.block(s.body), strict=True)
        ]
        self.next_iteration([*phis, active_phi], [*following, going], head, done)
        text.begin(done)
        self.mask = outer
        return [self.values[v] for v in s.carries]

    def enter_loop(
        self, s: While, head: str, lanes: Sequence[bool]
    ) -> list[tuple[Value, int, Value, str]]:
        """Begin a loop's head; return each carry's phi: value, line, first value, where from."""
        text = self.text
        inits = [
            text.splat(self.value(a)) if wide else self.value(a)
            for a, wide in zip(s.inits, lanes, strict=True)
        ]
        text.add(f"br label %{head}")
        self.entered_from = text.label
        text.begin(head)
        phis = []
        for var, init in zip(s.carries, inits, strict=True):
            self.values[var] = Value(f"%{text.name()}", init.type, init.lanes)
            phis.append((self.values[var], text.reserve(), init, self.entered_from))
        return phis

    def next_iteration(
        self,
        phis: Sequence[tuple[Value, int, Value, str]],
        values: Sequence[Value],
        head: str,
        done: str,
    ) -> None:
        """End a loop's body: leave if asked to stop, else iterate with the next carries.

        ``done`` is empty where nobody asks.
        """
        text = self.text
        values = [
            text.splat(v) if phi.lanes else v for (phi, *_), v in zip(phis, values, strict=True)
        ]
        if done:
            text.add(f"br i1 {text.is_zero(self.stop)}, label %{head}, label %{done}")
        else:
            text.add(f"br label %{head}")
        for (phi, line, init, before), value in zip(phis, values, strict=True):
            first, following = f"{init.text}, %{before}", f"{value.text}, %{text.label}"
            text.fill(line, f"{phi.text} = phi {phi.llvm} [ {first} ], [ {following} ]")
