"""A program's blocks as the C++ of one thread: what is a branch there is a branch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mixad.emit.cuda.instructions import spelled
from mixad.emit.cuda.narrow import from_memory, to_memory
from mixad.emit.cuda.text import Text, c_type, literal
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
from mixad.scalar.types import I64, ScalarType

__all__ = ["Array", "Body"]


@dataclass(frozen=True)
class Array:
    """An array that the program indexes.

    Attributes
    ----------
    number : int
        Index of the param.
    type : ScalarType
        Of its elements in memory.
    start, outside : str
        Address of the first element, and pointer to the word that an index outside is noted in.
    extents, strides : sequence of str
        Along each axis, elements and bytes.
    """

    number: int
    type: ScalarType
    start: str
    outside: str
    extents: Sequence[str]
    strides: Sequence[str]


class Body:
    """Emits the statements of one program for one element.

    Parameters
    ----------
    text : Text
        The module that grows.
    values : Mapping
        What the lane and uniform params are called.
    arrays : Mapping
        The array params.
    """

    def __init__(self, text: Text, values: Mapping[Var, str], arrays: Mapping[Var, Array]) -> None:
        self.text = text
        self.names = dict(values)
        self.arrays = arrays
        self.line: Line | None = None
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

    def statement(self, s: Statement) -> None:
        """Emit one statement, after the user's line that it comes from."""
        if s.line is not None and s.line != self.line:
            self.line = s.line
            self.text.user_line(s.line)
        match s:
            case Equation():
                args = [self.value(a) for a in s.args]
                expression = spelled(s.op, args, [a.type for a in s.args], s.out.type)
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

    def declared(self, variables: Sequence[Var], inits: Sequence[Atom] = ()) -> list[str]:
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
        outs = self.declared(s.outs)
        for head, block in ((f"if ({self.value(s.cond)})", s.then), ("else", s.orelse)):
            with self.text.braces(head):
                self.assign(outs, self.block(block))
        self.names.update(zip(s.outs, outs, strict=True))

    def loop(self, s: While) -> None:
        """Emit a loop; its carries change together, at the end of a turn."""
        carries = self.declared(s.carries, s.inits)
        self.names.update(zip(s.carries, carries, strict=True))
        with self.text.braces(f"while ({self.goes_on})"):
            (test,) = self.block(s.cond)
            self.text.add(f"if (!{test}) break;")
            following = self.block(s.body)
            moved = [
                self.text.let(var.type, new) if new in carries else new
                for var, new in zip(s.carries, following, strict=True)
            ]
            self.assign(carries, moved)
        self.names.update(zip(s.outs, carries, strict=True))

    def assign(self, targets: Sequence[str], values: Sequence[str]) -> None:
        """Give variables their values."""
        for target, value in zip(targets, values, strict=True):
            if target != value:
                self.text.add(f"{target} = {value};")

    def update(self, s: Update) -> None:
        """Emit a store to an element that no other thread has; its indices are inside."""
        array = self.arrays[s.array]
        at = self.text.let(I64, self.offset(s, array))
        value = to_memory(self.value(s.value), array.type)
        self.text.add(f"*({c_type(array.type)} *)in_memory({array.start} + {at}) = {value};")

    def offset(self, s: Load | Update, array: Array) -> str:
        """Return how many bytes an element is from the first, of indices that are inside."""
        pairs = zip(s.indices, array.strides, strict=True)
        terms = (f"(long long){self.value(atom)} * {stride}" for atom, stride in pairs)
        return " + ".join(["0ll", *terms])

    def element(self, s: Load) -> str:
        """Emit a read at indices that the program computes; negative ones count from the end.

        One outside is noted in a word of the call, reads nothing, which counts as 0, and ends the
        loops of its thread.
        """
        text, array = self.text, self.arrays[s.array]
        if s.is_inside:
            at, t = text.let(I64, self.offset(s, array)), c_type(array.type)
            element = f"*(const {t} *)in_memory({array.start} + {at})"
            return text.let(s.out.type, from_memory(element, array.type))
        offset, inside = "0ll", "true"
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
        at, t = text.let(I64, offset), c_type(array.type)
        element = f"({fits} ? *(const {t} *)in_memory({array.start} + {at}) : ({t})0)"
        return text.let(s.out.type, from_memory(element, array.type))
