"""Formulas over scalar ops: as Python operators on terms, and as the strings of the op table.

A `Term` is an atom with the builder it lives in, so that ``x * x + 1`` adds two equations.
`expression` parses the strings that the op table states derivatives in; the result can be emitted
into any builder, or walked by whoever reads the same grammar into something else (the array-API
column)::

    expression ::= number | constant | name | name "(" expression, ... ")"
                 | unary expression | expression operator expression | expression compare expression
    constant   ::= LN2 | LOG2E | LOG10E | TWO_OVER_SQRT_PI | HALF_SQRT_PI | PI

Strings are parsed by `ast` and never evaluated.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TypeAlias

from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom
from mixad.scalar.types import ScalarType

__all__ = ["CONSTANTS", "Call", "Expression", "Name", "Number", "Operand", "Term", "call", "emit",
           "expression"]  # fmt: skip

CONSTANTS: Mapping[str, float] = MappingProxyType({
    "LN2": math.log(2.0),
    "LOG2E": 1.4426950408889634,
    "LOG10E": 0.4342944819032518,
    "TWO_OVER_SQRT_PI": 1.1283791670955126,
    "HALF_SQRT_PI": 0.886226925452758,
    "PI": math.pi,
})  # fmt: skip


# -- terms ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value of a program that takes Python's operators; each adds an equation to the builder.

    Python numbers beside a term become constants of its type. Comparisons, ``==`` too, return
    boolean terms, which Python's ``if`` cannot test.

    >>> from mixad.scalar.types import F64
    >>> b = Builder("f")
    >>> x = Term(b, b.param("x", F64))
    >>> print(b.finish([(2 * x - x * x).atom]))
    program f(%0 x: f64 lane)
      %1:f64 = mul 2:f64, %0
      %2:f64 = mul %0, %0
      %3:f64 = sub %1, %2
      return %3
    """

    builder: Builder
    atom: Atom

    __hash__ = None  # type: ignore[assignment]

    @property
    def type(self) -> ScalarType:
        """The value's type."""
        return self.atom.type

    def const(self, value: bool | int | float) -> Term:
        """Return a constant of this term's type."""
        return Term(self.builder, self.builder.const(value, self.type))

    def convert(self, type: ScalarType) -> Term:
        """Return the value converted to another type."""
        return Term(self.builder, self.builder.convert(self.atom, type))

    def bitcast(self, type: ScalarType) -> Term:
        """Return the value's bits as another type of the same width."""
        return Term(self.builder, self.builder.op("bitcast", self.atom, type=type))

    def __bool__(self) -> bool:
        raise TypeError("a term has no truth value while its program is built; use where(c, x, y)")

    def __add__(self, other: Operand) -> Term:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Term:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Term:
        return call("sub", self, other)

    def __rsub__(self, other: Operand) -> Term:
        return call("sub", other, self)

    def __mul__(self, other: Operand) -> Term:
        return call("mul", self, other)

    def __rmul__(self, other: Operand) -> Term:
        return call("mul", other, self)

    def __truediv__(self, other: Operand) -> Term:
        return call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Term:
        return call("div", other, self)

    def __neg__(self) -> Term:
        return call("neg", self)

    def __abs__(self) -> Term:
        return call("abs", self)

    def __eq__(self, other: Operand) -> Term:  # type: ignore[override]
        return call("eq", self, other)

    def __ne__(self, other: Operand) -> Term:  # type: ignore[override]
        return call("ne", self, other)

    def __lt__(self, other: Operand) -> Term:
        return call("lt", self, other)

    def __le__(self, other: Operand) -> Term:
        return call("le", self, other)

    def __gt__(self, other: Operand) -> Term:
        return call("gt", self, other)

    def __ge__(self, other: Operand) -> Term:
        return call("ge", self, other)

    def __and__(self, other: Operand) -> Term:
        return call("and", self, other)

    def __or__(self, other: Operand) -> Term:
        return call("or", self, other)

    def __xor__(self, other: Operand) -> Term:
        return call("xor", self, other)

    def __invert__(self) -> Term:
        return call("not", self)

    def __lshift__(self, other: Operand) -> Term:
        return call("shl", self, other)

    def __rshift__(self, other: Operand) -> Term:
        return call("shr", self, other)


Operand: TypeAlias = Term | bool | int | float


def call(op: str, *args: Operand, type: ScalarType | None = None) -> Term:
    """Add the equation ``op(*args)`` to the builder of its terms, of which there is at least one.

    Numbers take the type of the last term (of ``x`` in ``where(c, x, 1)``), or ``type`` if the
    condition of ``where`` is the only term. Conversions state their type.
    """
    terms = [a for a in args if isinstance(a, Term)]
    values = [a for a in args[1:] if isinstance(a, Term)] if op == "where" else terms
    literal = values[-1].type if values else type
    builder = terms[0].builder
    atoms = [
        a.atom if isinstance(a, Term) else builder.const(a, _require_type(op, literal))
        for a in args
    ]
    stated = type if op in ("convert", "bitcast") else None
    return Term(builder, builder.op(op, *atoms, type=stated))


def _require_type(op: str, type: ScalarType | None) -> ScalarType:
    if type is None:
        raise TypeError(f"{op} of numbers alone needs type=")
    return type


# -- strings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A literal or a named constant."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Name:
    """A variable of the expression."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of expressions; operators are calls of the table's ops."""

    function: str
    args: tuple[Node, ...]


Node: TypeAlias = Number | Name | Call

_OPERATORS: Mapping[type[ast.AST], str] = MappingProxyType({
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "shr",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.USub: "neg", ast.Invert: "not",
})  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """A parsed formula: its text and its tree."""

    text: str
    root: Node

    @property
    def number(self) -> int | float | None:
        """The value of an expression that is a literal (a static partial), else None."""
        return self.root.value if isinstance(self.root, Number) else None

    @property
    def names(self) -> frozenset[str]:
        """The variables that the expression reads."""
        return frozenset(n.name for n in _walk(self.root) if isinstance(n, Name))

    def emit(self, builder: Builder, names: Mapping[str, Atom], type: ScalarType) -> Atom:
        """Add the formula's equations and return its value.

        Numbers beside no variable, and the result of ``convert``, are of ``type``.
        """
        return _emit(self.root, builder, names, type)


@cache
def expression(text: str) -> Expression:
    """Parse a formula; a text outside of the grammar on top of this file is a ValueError.

    >>> sorted(expression("-(out / y)").names)
    ['out', 'y']
    >>> expression("-1").number
    -1
    """
    return Expression(text, _read(ast.parse(text, mode="eval").body, text))


def emit(builder: Builder, text: str, names: Mapping[str, Atom], type: ScalarType) -> Atom:
    """Add the equations of a formula given as text; see `Expression.emit`."""
    return expression(text).emit(builder, names, type)


def _read(node: ast.expr, text: str) -> Node:
    match node:
        case ast.Constant(value=int() | float() as value):
            return Number(value)
        case ast.Name(id=name):
            return Number(CONSTANTS[name]) if name in CONSTANTS else Name(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return Number(-value)
        case ast.UnaryOp(op=op, operand=operand):
            return _operator(op, (operand,), text)
        case ast.BinOp(left=left, op=op, right=right):
            return _operator(op, (left, right), text)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _operator(op, (left, right), text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return Call(name, tuple(_read(a, text) for a in args))
    raise ValueError(f"{ast.unparse(node)!r} in {text!r} is outside the grammar of expressions")


def _operator(op: ast.AST, operands: tuple[ast.expr, ...], text: str) -> Node:
    name = _OPERATORS.get(type(op))
    if name is None:
        raise ValueError(f"{type(op).__name__} in {text!r} is no operator of expressions")
    return Call(name, tuple(_read(o, text) for o in operands))


def _walk(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Call):
        for arg in node.args:
            yield from _walk(arg)


def _emit(node: Node, b: Builder, names: Mapping[str, Atom], type: ScalarType) -> Atom:
    match node:
        case Number():
            return b.const(node.value, type)
        case Name():
            return names[node.name]
        case Call(function="convert", args=(operand,)):
            return b.convert(_emit(operand, b, names, type), type)
    typed = {
        i: _emit(a, b, names, type) for i, a in enumerate(node.args) if not isinstance(a, Number)
    }
    values = [atom for i, atom in typed.items() if i or node.function != "where"]
    literal = values[0].type if values else type
    atoms = (
        typed[i] if i in typed else _emit(a, b, names, literal) for i, a in enumerate(node.args)
    )
    return b.op(node.function, *atoms)
