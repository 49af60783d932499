"""Programs as array-API calls under masks: slow, obviously right, for any array library.

A program becomes a procedure (`procedure_of`), printed by `show`, run by `mixad.emit.array_run`::

    procedure ::= name*  step*  name*           -- params, steps, results
    step      ::= Assign   name*  <- expression*                  -- all at once
                | Repeat   step* (test)  mask  name (condition)  step* (body)
                | Scatter  name[expression, ...] changed by expression  where mask

Both branches of an ``If`` run and their results are merged with ``where``, so that no value of the
branch that is not taken gets out.  A ``While`` runs until its mask of active lanes is empty; lanes
that are done keep their carries.  A mask says which lanes are active; it exists where something
depends on it: loops, gathers, scatters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from mixad.scalar.expression import Call, Expression, Name, Number, expression
from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    Equation,
    If,
    Load,
    Program,
    Statement,
    Touch,
    Update,
    While,
    walk_statements,
)
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["ArrayStep", "Assign", "Literal", "Node", "Procedure", "Repeat", "Scatter", "TypeName",
           "procedure_of", "show"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a stated type."""

    value: bool | int | float
    type: ScalarType


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type, as an argument of a conversion."""

    type: ScalarType


Node: TypeAlias = Number | Name | Call | Literal | TypeName
"""An expression; numbers take the dtype of what they stand beside."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Names get values, all at once."""

    targets: tuple[str, ...]
    values: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run ``test``, narrow ``mask`` by ``condition``, end if it is empty, run ``body``; repeat."""

    test: tuple[ArrayStep, ...]
    mask: str
    condition: Node
    body: tuple[ArrayStep, ...]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Change elements of an array, lane after lane, where the mask holds."""

    array: str
    mask: str
    indices: tuple[Node, ...]
    value: Node


ArrayStep: TypeAlias = Assign | Repeat | Scatter


@dataclass(frozen=True)
class Procedure:
    """A program over whole arrays."""

    params: tuple[str, ...]  # names of arguments, then of accumulators
    steps: tuple[ArrayStep, ...]  # in the order in which they run
    results: tuple[Node, ...]  # expressions of the outputs


# What the standard leaves open, or libraries do in their own ways, is settled before they see it.
# Integers: division by -1 is negation (the quotient of the most negative number traps on some
# processors).  Floats: torch's remainder loses the sign of a zero; NumPy takes a square root for
# powers of 0.5, and that of -inf is nan.
_DIVISOR = "where((y == 0) | (y == -1), 1, y)"
_SETTLED: Mapping[tuple[str, str], str] = MappingProxyType({
    ("floordiv", "int"): f"where(y == 0, 0, where(y == -1, -x, floor_divide(x, {_DIVISOR})))",
    ("floordiv", "uint"): "where(y == 0, 0, floor_divide(x, where(y == 0, 1, y)))",
    ("mod", "int"): f"where((y == 0) | (y == -1), 0, remainder(x, {_DIVISOR}))",
    ("mod", "uint"): "where(y == 0, 0, remainder(x, where(y == 0, 1, y)))",
    ("shl", "int"): "where((y >= 0) & (y < WIDTH), x << where((y >= 0) & (y < WIDTH), y, 0), 0)",
    ("shl", "uint"): "where(y < WIDTH, x << where(y < WIDTH, y, 0), 0)",
    ("shr", "int"): "x >> where((y >= 0) & (y < WIDTH), y, WIDTH - 1)",
    ("shr", "uint"): "where(y < WIDTH, x >> where(y < WIDTH, y, 0), 0)",
    ("powi", "int"): "where(y < 0, where(x == 1, 1, where(x == -1, where((y & 1) == 1, x, 1), 0)),"
                     " pow(x, where(y < 0, 0, y)))",
    ("mod", "float"): "where(remainder(x, y) == 0, copysign(0, y), remainder(x, y))",
    ("pow", "float"): "pow(where((y == 0.5) & ((x == 0) | isinf(x)), abs(x), x), y)",
})  # fmt: skip


@functools.cache
def _formula(name: str, type: ScalarType, is_plain: bool) -> Expression | None:
    """Return an op's array-API expression for arguments of a type; None if there is none.

    ``is_plain`` says that the last argument is a constant which all libraries treat alike.
    """
    text = BY_NAME[name].array
    if not is_plain:
        text = _SETTLED.get((name, type.kind), text)
    if text is None:
        return None
    last = str(type.bits - 1)
    return expression(text.replace("WIDTH - 1", last).replace("WIDTH", str(type.bits)))


def _is_plain(atom: Atom) -> bool:
    """Whether an argument is a small positive integer: as a divisor, a count, or an exponent."""
    return isinstance(atom, Const) and atom.type.is_integer and 0 < atom.value < _NARROWEST


_NARROWEST = 8
"""Bits of the narrowest integer: shifts by less are within every width."""


# -- lowering --------------------------------------------------------------------------------------


def procedure_of(program: Program) -> Procedure:
    """Return the procedure that runs a program on arrays.

    Its names are made of numbers, never of the user's identifiers.
    """
    return _Lowering().procedure(program)


class _Lowering:
    """Turns statements into steps; ``masks`` counts the masks so far."""

    def __init__(self) -> None:
        self.masks = 0

    def procedure(self, program: Program) -> Procedure:
        everything = self.fresh_mask()
        steps = self.block(program.body, everything)
        if _needs_mask(program.body):
            steps = [Assign((everything,), (Literal(True, BOOL),)), *steps]
        params = tuple(f"v{p.var.id}" for p in (*program.params, *program.accumulators))
        return Procedure(params, tuple(steps), _nodes(program.outputs))

    def fresh_mask(self) -> str:
        self.masks += 1
        return f"m{self.masks - 1}"

    def block(self, block: Block, mask: str) -> list[ArrayStep]:
        return [step for statement in block.statements for step in self.statement(statement, mask)]

    def statement(self, s: Statement, mask: str) -> list[ArrayStep]:
        match s:
            case Equation():
                return [Assign((f"v{s.out.id}",), (_value(s),))]
            case If():
                return self.branches(s, mask)
            case While():
                return self.loop(s, mask)
            case Load():
                array = Name(f"v{s.array.id}")
                gathered = Call("gather", (array, Name(mask), *_nodes(s.indices)))  # type: ignore[arg-type]
                return [Assign((f"v{s.out.id}",), (gathered,))]
            case Update():
                return [Scatter(f"v{s.array.id}", mask, _nodes(s.indices), _node(s.value))]
            case Touch():
                return []

    def branches(self, s: If, mask: str) -> list[ArrayStep]:
        cond = _node(s.cond)
        steps = self.branch(s.then, mask, cond)
        steps += self.branch(s.orelse, mask, _call("not", cond))
        pairs = zip(s.then.results, s.orelse.results, strict=True)
        merged = tuple(_call("where", cond, _node(a), _node(b)) for a, b in pairs)
        return [*steps, Assign(_names(s.outs), merged)] if s.outs else steps

    def branch(self, block: Block, mask: str, cond: Node) -> list[ArrayStep]:
        if not _needs_mask(block):
            return self.block(block, mask)
        inner = self.fresh_mask()
        narrowed = Assign((inner,), (_call("and", Name(mask), cond),))
        return [narrowed, *self.block(block, inner)]

    def loop(self, s: While, mask: str) -> list[ArrayStep]:
        active = self.fresh_mask()
        carries = _names(s.carries)
        test = self.block(s.cond, active)
        following = zip(carries, s.body.results, strict=True)
        kept = (_call("where", Name(active), _node(new), Name(old)) for old, new in following)
        body = [*self.block(s.body, active), Assign(carries, tuple(kept))]
        return [
            Assign((active, *carries), (Name(mask), *_nodes(s.inits))),
            Repeat(tuple(test), active, _node(s.cond.results[0]), tuple(body)),
            Assign(_names(s.outs), tuple(map(Name, carries))),
        ]


def _needs_mask(block: Block) -> bool:
    return any(isinstance(s, While | Load | Update) for s in walk_statements(block))


def _names(atoms: Iterable[Atom]) -> tuple[str, ...]:
    return tuple(f"v{a.id}" for a in atoms if not isinstance(a, Const))


def _node(atom: Atom) -> Node:
    return Literal(atom.value, atom.type) if isinstance(atom, Const) else Name(f"v{atom.id}")


def _nodes(atoms: Iterable[Atom]) -> tuple[Node, ...]:
    return tuple(map(_node, atoms))


def _call(function: str, *args: Node) -> Call:
    return Call(function, args)  # type: ignore[arg-type]


def _value(s: Equation) -> Node:
    """Return an equation's value as an expression over the program's names."""
    args = _nodes(s.args)
    if s.op in ("convert", "bitcast"):
        return _call(s.op, *args, TypeName(s.out.type))
    formula = _formula(s.op, s.args[-1].type, any(map(_is_plain, s.args[1:])))
    if formula is None:
        return _call("by_definition", Name(s.op), *args, TypeName(s.out.type))
    return _substitute(formula.root, dict(zip("xyz", args, strict=False)))


def _substitute(node: Node, names: Mapping[str, Node]) -> Node:
    match node:
        case Name():
            return names[node.name]
        case Call():
            return _call(node.function, *(_substitute(a, names) for a in node.args))
    return node


# -- text ------------------------------------------------------------------------------------------

_OPERATORS = MappingProxyType({
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
})  # fmt: skip
_PREFIXES = MappingProxyType({"neg": "-", "not": "~"})


def show(procedure: Procedure) -> str:
    """Return a procedure as readable text in Python's syntax.

    >>> from mixad.scalar.build import Builder
    >>> from mixad.scalar.types import F32
    >>> b = Builder("f")
    >>> x = b.param("x", F32)
    >>> print(show(procedure_of(b.finish([b.op("exp", b.op("mul", x, b.const(2.0, F32)))]))))
    def procedure(v0):
        v1 = v0 * float32(2.0)
        v2 = exp(v1)
        return (v2,)
    """
    lines = [*_shown_steps(procedure.steps), f"return ({_join_nodes(procedure.results)},)"]
    return "\n".join([f"def procedure({', '.join(procedure.params)}):", *_indent(lines)])


def _shown_steps(steps: Sequence[ArrayStep]) -> list[str]:
    return [line for step in steps for line in _shown_step(step)]


def _shown_step(step: ArrayStep) -> list[str]:
    match step:
        case Assign():
            return [f"{', '.join(step.targets)} = {_join_nodes(step.values)}"]
        case Scatter():
            element = f"{step.array}[{_join_nodes(step.indices)}]"
            return [f"update {element} by {_node_text(step.value)} if {step.mask}"]
        case Repeat():
            narrow = f"{step.mask} = {step.mask} & {_node_text(step.condition)}"
            end = [f"if not any({step.mask}):", "    break"]
            inner = [*_shown_steps(step.test), narrow, *end, *_shown_steps(step.body)]
            return ["while True:", *_indent(inner)]


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _join_nodes(nodes: Iterable[Node]) -> str:
    return ", ".join(map(_node_text, nodes))


def _node_text(node: Node) -> str:
    match node:
        case Number():
            return repr(node.value)
        case Name():
            return node.name
        case Literal():
            return f"{node.type.dtype_name}({node.value!r})"
        case TypeName():
            return node.type.dtype_name
        case Call(function=function, args=(operand,)) if function in _PREFIXES:
            return f"{_PREFIXES[function]}{_operand(operand)}"
        case Call(function=function, args=(left, right)) if function in _OPERATORS:
            return f"{_operand(left)} {_OPERATORS[function]} {_operand(right)}"
        case Call():
            return f"{node.function}({_join_nodes(node.args)})"


def _operand(node: Node) -> str:
    """Spell an operand; one that is an operation itself in parentheses."""
    is_operation = isinstance(node, Call) and node.function in {**_OPERATORS, **_PREFIXES}
    return f"({_node_text(node)})" if is_operation else _node_text(node)
