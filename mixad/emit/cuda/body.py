"""A program's blocks as the C++ of one thread: what is a branch there is a branch here.

Several threads may change the same element of an array that is added to, or compared with.  Each
notes the element and the value, and all threads of the block go on together to where each of them
changes the elements that are its own (`mixad.emit.cuda.updates`).  So loops with such changes take
as many iterations as any thread needs, and a thread that takes no part skips what stands between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby

from mixad.emit.cuda.instructions import op_expression
from mixad.emit.cuda.narrow import from_memory, to_memory
from mixad.emit.cuda.text import Text, c_type, literal
from mixad.emit.cuda.updates import to_bits
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
    UpdateKind,
    Var,
    While,
    walk_statements,
    written_vars,
)
from mixad.scalar.types import I64, ScalarType

__all__ = ["Array", "Body"]


@dataclass(frozen=True)
class Array:
    """An array that the program indexes."""

    number: int  # of the param
    type: ScalarType  # of its elements in memory
    # Address of the first element. Of an accumulator that is not written: a pointer, or the number
    # of its first element among those of all arrays.
    start: str
    outside: str  # pointer to the word that an index outside is noted in
    extents: Sequence[str]
    strides: Sequence[str]  # bytes; of an accumulator that is not written, elements
    update: UpdateKind = "write"  # how an accumulator is changed


class Body:
    """Emits the statements of one program for one element.

    ``pairs`` is what pairs of elements and values are put in, "" if threads change elements
    together.
    """

    def __init__(
        self,
        text: Text,
        values: Mapping[Var, str],
        arrays: Mapping[Var, Array],
        pairs: str = "",
    ) -> None:
        self.text = text
        self.names = dict(values)
        self.arrays = arrays
        self.pairs = pairs
        self.line: Line | None = None
        self.noted = deque[tuple[str, str]]()  # elements and values of changes that follow
        self.goes_on = self.flag() if arrays else "true"

    def flag(self) -> str:
        """Declare whether loops go on: after an index outside, what they wait for may not come."""
        name = self.text.name("b")
        self.text.add(f"bool {name} = true;")
        return name

    def value(self, atom: Atom) -> str:
        """Return what an atom is called."""
        return literal(atom) if isinstance(atom, Const) else self.names[atom]

    def block(self, block: Block) -> list[str]:
        """Emit a block's statements and return the names of its results."""
        for statement in block.statements:
            self.statement(statement)
        return [self.value(a) for a in block.results]

    # -- threads that go on together ---------------------------------------------------------------

    def emit_together(self, block: Block, taken: str) -> list[str]:
        """Emit a block that all threads go through; ``taken``: whether one takes part."""
        for meets, run in groupby(block.statements, self.meets):
            if not meets:
                self.emit_apart(list(run), taken)
                continue
            for s in run:
                if isinstance(s, While):
                    self.loop_together(s, taken)
                elif isinstance(s, If):
                    self.branches(s, taken)
        return [self.value(a) for a in block.results]

    def meets(self, s: Statement) -> bool:
        """Whether threads go through a statement together: a loop in it changes what they share."""
        inside = walk_statements(Block((s,), ()))
        return any(isinstance(loop, While) and self.changes_in([loop]) for loop in inside)

    def changes_in(self, run: Sequence[Statement]) -> list[Update]:
        """Return the statements that change an element which several threads may have."""
        return [
            s
            for s in walk_statements(Block(tuple(run), ()))
            if isinstance(s, Update) and self.arrays[s.array].update != "write"
        ]

    def emit_apart(self, run: Sequence[Statement], taken: str) -> None:
        """Emit statements for the threads that take part, then what these change, together."""
        changes = [(self.arrays[s.array], *self.nothing(s)) for s in self.changes_in(run)]
        self.noted.extend((at, value) for _, at, value in changes)
        written = [var for s in run for var in written_vars(s)]
        outs = self.declare(written, [Const(0, var.type) for var in written])
        with self.text.braces(f"if ({taken})"):
            for s in run:
                self.statement(s)
            self.assign(outs, [self.names[var] for var in written])
        self.names.update(zip(written, outs, strict=True))
        for array, at, value in changes:
            self.text.add(f"change_{array.update}({array.start}, {at}, {value});")

    def nothing(self, s: Update) -> tuple[str, str]:
        """Declare what a thread notes of a change: no element, and a value; return their names."""
        at, value, type = self.text.name("i"), self.text.name("v"), self.arrays[s.array].type
        self.text.add(f"int {at} = -1;")
        self.text.add(f"{c_type(type)} {value} = 0;")
        return at, value

    def branches(self, s: If, taken: str) -> None:
        """Emit both branches, one after the other, for all threads."""
        outs = self.declare(s.outs, [Const(0, var.type) for var in s.outs])
        for cond, block in ((self.value(s.cond), s.then), (f"!{self.value(s.cond)}", s.orelse)):
            here = self.text.let("bool", f"{taken} && {cond}")
            results = self.emit_together(block, here)
            with self.text.braces(f"if ({here})"):
                self.assign(outs, results)
        self.names.update(zip(s.outs, outs, strict=True))

    def loop_together(self, s: While, taken: str) -> None:
        """Emit a loop that ends when no thread takes another iteration."""
        carries, goes_on = self.declare(s.carries, s.inits), self.text.name("b")
        self.names.update(zip(s.carries, carries, strict=True))
        self.text.add(f"bool {goes_on} = {taken};")
        with self.text.braces("while (true)"):
            (test,) = self.emit_together(s.cond, goes_on)
            self.text.add(f"{goes_on} = {goes_on} && {self.goes_on} && {test};")
            self.text.add(f"if (!__syncthreads_or({goes_on})) break;")
            following = self.emit_together(s.body, goes_on)
            with self.text.braces(f"if ({goes_on})"):
                self.carry(s, carries, following)
        self.names.update(zip(s.outs, carries, strict=True))

    # -- statements --------------------------------------------------------------------------------

    def statement(self, s: Statement) -> None:
        """Emit one statement, after the user's line that it comes from."""
        if s.line is not None and s.line != self.line:
            self.line = s.line
            self.text.user_line(s.line)
        match s:
            case Equation():
                args = [self.value(a) for a in s.args]
                expression = op_expression(s.op, args, [a.type for a in s.args], s.out.type)
                self.names[s.out] = self.text.let(s.out.type, expression)
            case If():
                self.branch(s)
            case While():
                self.loop(s)
            case Load():
                self.names[s.out] = self.element(s)
            case Update():
                self.update(s)
            case Touch():
                pass  # lanes that are neighbours read in the order of memory

    def declare(self, variables: Sequence[Var], inits: Sequence[Atom] = ()) -> list[str]:
        """Declare variables that are assigned later, and return their names."""
        names = []
        for k, var in enumerate(variables):
            name = self.text.name("v")
            start = f" = {self.value(inits[k])}" if inits else ""
            self.text.add(f"{c_type(var.type)} {name}{start};")
            names.append(name)
        return names

    def branch(self, s: If) -> None:
        """Emit a condition."""
        outs = self.declare(s.outs)
        for head, block in ((f"if ({self.value(s.cond)})", s.then), ("else", s.orelse)):
            with self.text.braces(head):
                self.assign(outs, self.block(block))
        self.names.update(zip(s.outs, outs, strict=True))

    def loop(self, s: While) -> None:
        """Emit a loop; its carries change together, at the end of an iteration."""
        carries = self.declare(s.carries, s.inits)
        self.names.update(zip(s.carries, carries, strict=True))
        with self.text.braces(f"while ({self.goes_on})"):
            (test,) = self.block(s.cond)
            self.text.add(f"if (!{test}) break;")
            self.carry(s, carries, self.block(s.body))
        self.names.update(zip(s.outs, carries, strict=True))

    def carry(self, s: While, carries: Sequence[str], following: Sequence[str]) -> None:
        """Give the carries of a loop what an iteration leaves, all at a time."""
        moved = [
            self.text.let(var.type, new) if new in carries else new
            for var, new in zip(s.carries, following, strict=True)
        ]
        self.assign(carries, moved)

    def assign(self, targets: Sequence[str], values: Sequence[str]) -> None:
        """Give variables their values."""
        for target, value in zip(targets, values, strict=True):
            if target != value:
                self.text.add(f"{target} = {value};")

    def update(self, s: Update) -> None:
        """Emit a store to an element that no other thread has, or note what is to be changed."""
        array = self.arrays[s.array]
        if array.update == "write":  # at indices that are inside
            at = self.text.let(I64, self.offset(s, array))
            value = to_memory(self.value(s.value), array.type)
            self.text.add(f"*({c_type(array.type)} *)in_memory({array.start} + {at}) = {value};")
            return
        if s.is_inside:
            element, fits = self.text.let(I64, self.offset(s, array)), ""
        else:
            element, fits = self.locate(s, array)
        if self.pairs:
            bits = to_bits(array.type, f"({c_type(array.type)}){self.value(s.value)}")
            with self.text.braces(f"if ({fits})") if fits else nullcontext():
                self.text.add(f"{self.pairs}.put({array.start} + {element}, {bits});")
            return
        at, value = self.noted.popleft()
        with self.text.braces(f"if ({fits})") if fits else nullcontext():
            self.text.add(f"{at} = (int){element};")
            self.text.add(f"{value} = ({c_type(array.type)}){self.value(s.value)};")

    def offset(self, s: Load | Update, array: Array) -> str:
        """Return how far an element is from the first, of indices that are inside."""
        pairs = zip(s.indices, array.strides, strict=True)
        terms = (f"(long long){self.value(atom)} * {stride}" for atom, stride in pairs)
        return " + ".join(["0ll", *terms])

    def element(self, s: Load) -> str:
        """Emit a read at indices that the program computes; one outside reads nothing, or 0."""
        text, array = self.text, self.arrays[s.array]
        t = c_type(array.type)
        if s.is_inside:
            at = text.let(I64, self.offset(s, array))
            element = f"*(const {t} *)in_memory({array.start} + {at})"
            return text.let(s.out.type, from_memory(element, array.type))
        at, fits = self.locate(s, array)
        element = f"({fits} ? *(const {t} *)in_memory({array.start} + {at}) : ({t})0)"
        return text.let(s.out.type, from_memory(element, array.type))

    def locate(self, s: Load | Update, array: Array) -> tuple[str, str]:
        """Emit how far an element is from the first, and whether it is inside; return both.

        Negative indices count from the end.  One outside is noted in a word of the call, and ends
        the loops of its thread.
        """
        text, offset, inside = self.text, "0ll", "true"
        for atom, extent, stride in zip(s.indices, array.extents, array.strides, strict=True):
            index = text.let(I64, f"(long long){self.value(atom)}")
            if atom.type.kind != "uint":
                index = text.let(I64, f"{index} < 0 ? {index} + {extent} : {index}")
            unsigned = "unsigned long long"
            inside = f"{inside} && ({unsigned}){index} < ({unsigned}){extent}"
            offset = f"{offset} + {index} * {stride}"
        fits = text.let("bool", inside)
        with text.braces(f"if (!{fits})"):
            text.add(f"*{array.outside} = {array.number + 1};")
            text.add(f"{self.goes_on} = false;")
        return text.let(I64, offset), fits
