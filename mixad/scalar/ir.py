"""The scalar program: typed, structured, in single-assignment form.

::

    program   ::= name  param*  accumulator*  block  -- the block's results are the outputs
    param     ::= name  var  kind                -- kind ::= "lane" | "uniform" | "array"
    block     ::= statement*  atom*              -- statements, then results
    statement ::= Equation    var   <- op(atom, ...)
                | If          var*  <- atom ? block : block
                | While       var*  <- carries var* from atom*; while block(carries) do block
                | Load        var   <- param[atom, ...]  or written accumulator[atom, ...]
                | Update      accumulator[atom, ...] added to, compared with or replaced by atom
                | Touch       param[atom, ...]  or written accumulator[atom, ...]
    atom      ::= Var  |  Const
    accumulator ::= name  var                    -- an array that statements change
    type      ::= ScalarType  |  ArrayType       -- ArrayType for "array" params and accumulators

A *lane* param varies from element to element, a *uniform* one is a scalar of the call, an *array*
one is indexed by the program itself.  An *accumulator* is an array that all elements of the
broadcast change, and an output where its variable is a result of the program.  One that is added to
begins as zeros, one of minima as the largest number, one of maxima as the least; what is written
must be every element, each by one element of the broadcast only, which may read what it wrote.  A
variable is assigned once in the whole program and may be read in its block, after its statement,
and in blocks nested there.
``If`` has no variables of its own blocks visible outside: both blocks end in results, which become
its ``outs``.  ``While`` tests ``cond`` (a block over the carries with one boolean result) before
every iteration, and its ``outs`` are the carries when the test fails.

Everything here is frozen data.  `mixad.scalar.verify` checks it, `mixad.scalar.build` makes it,
`mixad.scalar.interpret` runs it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from mixad.errors import SourceLocation
from mixad.scalar.types import ScalarType

__all__ = ["ArrayType", "Atom", "Block", "Const", "Equation", "If", "Kind", "Line", "Load", "Param",
           "Program", "Statement", "Touch", "Update", "UpdateKind", "Var", "While",
           "nested_blocks", "read_atoms", "source_lines", "walk_statements",
           "without_lines", "written_vars"]  # fmt: skip

Kind = Literal["lane", "uniform", "array"]

UpdateKind = Literal["add", "min", "max", "write"]
"""How a program changes an element of an accumulator: it adds, takes the smaller or larger of both,
or writes."""


@dataclass(frozen=True)
class ArrayType:
    """Type of an array param: elements of one scalar type over ``rank`` axes."""

    element: ScalarType
    rank: int

    def __str__(self) -> str:
        return f"{self.element}[{','.join(':' * self.rank)}]"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's source: where an equation comes from.

    ``text[column:end_column]`` is the element or call in it, if known. A line of a function of
    mixad's own, such as those of `mixad.special`, has the user's ``call`` of it.
    """

    filename: str
    number: int
    text: str
    column: int = field(default=0, compare=False)
    end_column: int = field(default=0, compare=False)
    call: Line | None = field(default=None, compare=False)

    @property
    def users(self) -> Line:
        """The user's line: this one, or the one with the call of the function it is in."""
        return self.call or self

    @property
    def place(self) -> SourceLocation:
        """The part of the user's line that messages point at, or all of it."""
        if self.call is not None:
            return self.call.place
        text = self.text.rstrip()
        column, end = self.column, self.end_column
        if not end:
            column, end = len(text) - len(text.lstrip()), len(text)
        return SourceLocation(self.filename, self.number, column, end, self.text)

    @property
    def shown(self) -> str:
        """The number and the text, on one line of a comment whatever the text holds."""
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in self.text.strip())
        return f"{self.number}: {text}"


@dataclass(frozen=True, slots=True)
class Var:
    """A value that the program computes or receives."""

    id: int
    type: ScalarType

    def __hash__(self) -> int:
        return self.id

    def __str__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A literal; constants are equal if type and bits are (so ``-0.0`` is not ``0.0``)."""

    value: bool | int | float
    type: ScalarType

    @property
    def bits(self) -> object:
        """A key of the value that compares its bits."""
        return struct.pack("<d", self.value) if self.type.is_float else int(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.type == other.type and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __str__(self) -> str:
        if self.type.is_float:
            shown = float(np.asarray(self.value, self.type.arithmetic.dtype))
            return f"{shown:.17g}:{self.type}"
        return f"{self.value}:{self.type}"


Atom: TypeAlias = Var | Const


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a program; ``name`` is for messages and never reaches generated code."""

    name: str
    var: Var
    kind: Kind | UpdateKind = "lane"
    array: ArrayType | None = None


@dataclass(frozen=True, slots=True)
class Equation:
    """``out <- op(*args)`` for an op of `mixad.scalar.ops.TABLE`."""

    out: Var
    op: str
    args: tuple[Atom, ...]
    line: Line | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """Statements, then the atoms that are the block's results."""

    statements: tuple[Statement, ...]
    results: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class If:
    """``outs`` are the results of ``then`` where ``cond`` holds, else those of ``orelse``."""

    outs: tuple[Var, ...]
    cond: Atom
    then: Block
    orelse: Block
    line: Line | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class While:
    """``carries`` start as ``inits``; while ``cond`` holds, they become the results of ``body``.

    ``names`` are the user's names of the carries, for messages, or empty.
    """

    outs: tuple[Var, ...]
    carries: tuple[Var, ...]
    inits: tuple[Atom, ...]
    cond: Block
    body: Block
    line: Line | None = field(default=None, compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)
    implicit: bool = False  # see mixad.scalar.implicit
    is_short: bool = False  # ends soon, so nobody interrupts it


@dataclass(frozen=True, slots=True)
class Load:
    """``out <- array[indices]``; ``array`` is the variable of an array param.

    Or of a written accumulator, where it reads what was written before. ``is_inside`` says that the
    indices are known to be from 0 on and below the extents.
    """

    out: Var
    array: Var
    indices: tuple[Atom, ...]
    line: Line | None = field(default=None, compare=False)
    is_inside: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """``array[indices] += value``, or another update, by the kind of the accumulator ``array``."""

    array: Var
    indices: tuple[Atom, ...]
    value: Atom
    line: Line | None = field(default=None, compare=False)
    is_inside: bool = False


@dataclass(frozen=True, slots=True)
class Touch:
    """``array[indices]`` will be read or written: it may be brought into the cache.

    It is for elements that are not read in the order of memory. The indices are inside.
    """

    array: Var
    indices: tuple[Atom, ...]
    line: Line | None = field(default=None, compare=False)


Statement: TypeAlias = Equation | If | While | Load | Update | Touch


@dataclass(frozen=True, eq=False)
class Program:
    """A scalar function: parameters, and a block whose results are its outputs.

    Programs are equal when they compute the same from the same params: names and source lines do
    not enter.
    """

    name: str  # the user's function, for messages; never part of generated code
    params: tuple[Param, ...]  # in the order of the call
    body: Block  # statements and outputs
    # Arrays that it changes, each in one way, which is its kind; those among the outputs are
    # results.
    accumulators: tuple[Param, ...] = ()

    @property
    def outputs(self) -> tuple[Atom, ...]:
        """The atoms that the program returns."""
        return self.body.results

    def accumulator(self, output: int) -> Param | None:
        """Return the accumulator that an output is; None if it has a value for each element."""
        found = self.outputs[output]
        return next((a for a in self.accumulators if a.var == found), None)

    @cached_property
    def has_named_loops(self) -> bool:
        """Whether some loop's carries have names: those of the user."""
        return any(isinstance(s, While) and s.names for s in walk_statements(self.body))

    @cached_property
    def read_vars(self) -> frozenset[Var]:
        """The variables that are read somewhere: by statements, or as results of blocks."""
        statements = list(walk_statements(self.body))
        blocks = [self.body, *(b for s in statements for b in nested_blocks(s))]
        atoms = (*(b.results for b in blocks), *map(read_atoms, statements))
        return frozenset(a for found in atoms for a in found if isinstance(a, Var))

    @cached_property
    def origin(self) -> str:
        """A digest of all names and source lines, which messages about a program tell.

        Equal programs of different origins are one where values are computed, several where
        something may raise or warn.
        """
        names = repr((self.name, [p.name for p in self.params]))
        places = (_place(s.line) for s in walk_statements(self.body))
        return hashlib.sha256("\n".join([names, *places]).encode()).hexdigest()

    @cached_property
    def token(self) -> str:
        """A digest of what the program computes, without names and source lines."""
        return hashlib.sha256(_canonical_text(self).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.token == other.token

    def __hash__(self) -> int:
        return hash(self.token)

    def __str__(self) -> str:
        params = ", ".join(
            f"{p.var} {p.name}: {p.array or p.var.type} {p.kind}" for p in self.params
        )
        added = [f"  {a.var} {a.name}: {a.array} {a.kind}" for a in self.accumulators]
        return "\n".join(
            [f"program {self.name}({params})", *added, *_block_lines(self.body, "return")]
        )


def _place(line: Line | None) -> str:
    if line is None:
        return ""
    here = f"{line.number}:{line.column}-{line.end_column} {line.filename} {line.text}"
    return here if line.call is None else f"{here} called at {_place(line.call)}"


def nested_blocks(statement: Statement) -> tuple[Block, ...]:
    """Return the blocks inside a statement, in order."""
    match statement:
        case If():
            return (statement.then, statement.orelse)
        case While():
            return (statement.cond, statement.body)
    return ()


def written_vars(statement: Statement) -> tuple[Var, ...]:
    """Return the variables that a statement makes visible to the statements after it."""
    match statement:
        case Equation() | Load():
            return (statement.out,)
        case If() | While():
            return statement.outs
    return ()


def read_atoms(statement: Statement) -> tuple[Atom, ...]:
    """Return the atoms a statement itself reads (not what its nested blocks read)."""
    match statement:
        case Equation():
            return statement.args
        case If():
            return (statement.cond,)
        case While():
            return statement.inits
        case Load() | Touch():
            return statement.indices
        case Update():
            return (*statement.indices, statement.value)


def walk_statements(block: Block) -> Iterator[Statement]:
    """Yield every statement of a block and of the blocks nested in it, outer ones first."""
    waiting = list(reversed(block.statements))  # no recursion: it costs each level a call
    while waiting:
        statement = waiting.pop()
        yield statement
        for nested in reversed(nested_blocks(statement)):
            waiting.extend(reversed(nested.statements))


def source_lines(program: Program) -> list[Line]:
    """Return the user's lines that a program comes from, in the order they first appear."""
    lines = (statement.line for statement in walk_statements(program.body))
    return list(dict.fromkeys(line for line in lines if line is not None))


def without_lines(program: Program) -> Program:
    """Return a program that does not hold the lines of the user's that it comes from."""
    return replace(program, body=_without_lines(program.body))


def _without_lines(block: Block) -> Block:
    statements: list[Statement] = []
    for statement in block.statements:
        match statement:
            case If():
                then, orelse = map(_without_lines, (statement.then, statement.orelse))
                statements.append(replace(statement, then=then, orelse=orelse, line=None))
            case While():
                cond, body = map(_without_lines, (statement.cond, statement.body))
                statements.append(replace(statement, cond=cond, body=body, line=None))
            case _:
                statements.append(replace(statement, line=None))
    return replace(block, statements=tuple(statements))


def _canonical_text(program: Program) -> str:
    """Spell a program with variables numbered by first appearance: equal text, equal program."""
    names: dict[int, str] = {}

    def name(atom: Atom) -> str:
        if isinstance(atom, Const):
            return f"{atom.type}#{atom.bits!r}"
        return names.setdefault(atom.id, f"{len(names)}:{atom.type}")

    def names_of(atoms: tuple[Atom, ...]) -> str:
        return ",".join(map(name, atoms))

    def block(b: Block) -> str:
        return "{" + ";".join([*map(statement, b.statements), names_of(b.results)]) + "}"

    def statement(s: Statement) -> str:
        head = f"{type(s).__name__}({names_of(read_atoms(s))})"
        match s:
            case Equation():
                head += s.op
            case While():
                head += f"[{names_of(s.carries)}]" + "i" * s.implicit + "s" * s.is_short
            case Load() | Update():
                head += f"@{name(s.array)}" + "!" * s.is_inside
            case Touch():
                head += f"@{name(s.array)}"
        blocks = "".join(map(block, nested_blocks(s)))
        return f"{head}{blocks}->{names_of(written_vars(s))}"

    params = ",".join(f"{name(p.var)}/{p.kind}/{p.array}" for p in program.params)
    added = "".join(f"+{name(a.var)}/{a.kind}/{a.array}" for a in program.accumulators)
    return params + added + block(program.body)


def _block_lines(block: Block, ending: str) -> list[str]:
    """Spell a block for a reader, indented; the user's lines where equations change line."""
    rows: list[str] = []
    line: Line | None = None
    for statement in block.statements:
        if statement.line is not None and statement.line != line:
            line = statement.line
            rows.append(f"  # {line.shown}")
        rows += [f"  {row}" for row in _shown_statement(statement)]
    return [*rows, f"  {ending} {_join_atoms(block.results)}"]


def _shown_statement(s: Statement) -> list[str]:
    match s:
        case Equation():
            return [f"{s.out}:{s.out.type} = {s.op} {_join_atoms(s.args)}"]
        case If():
            return [
                f"{_join_atoms(s.outs)} = if {s.cond}",
                *_block_lines(s.then, "then"),
                "else",
                *_block_lines(s.orelse, "then"),
            ]
        case While():
            kind = "implicit while" if s.implicit else "while"
            outs, carries, inits = map(_join_atoms, (s.outs, s.carries, s.inits))
            begin = f"{outs} = {kind} {carries} from {inits}"
            return [begin, *_block_lines(s.cond, "test"), "do", *_block_lines(s.body, "next")]
        case Load():
            return [f"{s.out}:{s.out.type} = load {s.array}[{_join_atoms(s.indices)}]"]
        case Update():
            return [f"update {s.array}[{_join_atoms(s.indices)}] by {s.value}"]
        case Touch():
            return [f"touch {s.array}[{_join_atoms(s.indices)}]"]


def _join_atoms(atoms: tuple[Atom, ...]) -> str:
    return ", ".join(map(str, atoms))
