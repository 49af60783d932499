"""Python integers: arithmetic that never wraps, and the types that they must fit."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mixad.errors import KernelOverflowError, SourceLocation
from mixad.scalar.ir import Atom, Const, Var
from mixad.scalar.types import I16, I32, I64, U64, ScalarType, integer_bounds

__all__ = ["OPS", "Formula", "IndexStep", "Limit", "compute", "fits", "index_steps", "integer_text",
           "literal", "overflow"]  # fmt: skip

# Beyond this nothing fits anyway, so it is not written out: 2 ** 10 ** 9 would fill the memory.
_MAX_BITS = 4096


@dataclass(frozen=True)
class Formula:
    """How a program computes a Python integer from others; ``text`` is how the user spells it."""

    name: str
    operands: tuple[Atom, ...]
    text: str


@dataclass(frozen=True)
class IndexStep:
    """A formula over a list of numbers, to whose end its value goes.

    An operand is its place in the list and None, or None and its value.
    """

    name: str  # an op of `OPS`
    operands: tuple[tuple[int | None, int | None], ...]
    text: str  # as the user spells it

    def value(self, numbers: Sequence[Any]) -> int | None:
        """Return the formula's value, or None if it has none."""
        return compute(self.name, [n if at is None else numbers[at] for at, n in self.operands])


def index_steps(formulas: Mapping[Var, Formula], at: dict[Var, int], first: int) -> list[IndexStep]:
    """Return the formulas that can be computed from numbers whose places are ``at``.

    The places of their values, from ``first`` on, are added to ``at``.
    """
    steps: list[IndexStep] = []
    for var, formula in formulas.items():
        known = all(isinstance(a, Const) or a in at for a in formula.operands)
        if known and var not in at:
            places = [
                (None, int(a.value)) if isinstance(a, Const) else (at[a], None)
                for a in formula.operands
            ]
            at[var] = first + len(steps)
            steps.append(IndexStep(formula.name, tuple(places), formula.text))
    return steps


def compute(name: str, numbers: Sequence[float | None]) -> int | None:
    """Return the value of an op of `OPS` for numbers made integers, or None where there is none."""
    given = [n for n in numbers if n is not None]
    if len(given) < len(numbers):
        return None
    try:
        return OPS[name](*map(int, given))
    except (ValueError, ZeroDivisionError, OverflowError):  # int(nan): no matter of its range
        return None


def integer_text(value: int, text: str) -> str:
    """Return an integer for a message: as the user writes it if it is very long."""
    return str(value) if abs(value) < 10**40 else f"`{text}`"


@dataclass(frozen=True)
class Limit:
    """A Python integer that must fit a type, where it meets others or by itself.

    Its place is that of a parameter of the program or, counted on, of a step of its integers.
    """

    place: int
    type: ScalarType
    location: SourceLocation


def fits(value: int, type_: ScalarType) -> bool:
    """Whether an integer type holds a value."""
    low, high = integer_bounds(type_)
    return low <= value <= high


def overflow(
    location: SourceLocation, value: int, type_: ScalarType, name: str | None = None
) -> KernelOverflowError:
    """Return the error for a Python integer that its neighbour's type does not hold."""
    given = "" if name is None else f", the value of {name!r},"
    message = (
        f"Python integer {integer_text(value, name or '')}{given} out of bounds for {type_.dtype}"
    )
    wider = next((t for t in (I16, I32, I64) if fits(value, t)), None)
    if wider is None or type_ == U64:
        is_finite = abs(value) < 1 << 1023
        instead = f"a float, {float(value)!r}, for a result of floats" if is_finite else "a float"
        return KernelOverflowError.at(location, message, instead)
    hint = f"np.{wider.dtype}({value}), for a result that is wide enough"
    return KernelOverflowError.at(location, message, hint)


def _shift_left(x: int, count: int) -> int:
    return x << min(count, _MAX_BITS)


def _power(x: int, n: int) -> int:
    if n < 0:
        raise ValueError("no integer")
    return 1 << _MAX_BITS if abs(x) > 1 and n * x.bit_length() > _MAX_BITS else x**n


OPS: Mapping[str, Callable[..., int]] = MappingProxyType({
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "floordiv": operator.floordiv, "mod": operator.mod, "abs": abs, "powi": _power,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": operator.invert,
    "shl": _shift_left, "shr": operator.rshift, "minimum": min, "maximum": max, "convert": int,
})  # fmt: skip
"""What is computed exactly of integers, by the names of the ops."""


def literal(node: ast.AST) -> int | None:
    """Return the value of an expression of integer literals, ``-(2**63)``, or None for others."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(operand=operand):
            name, numbers = _OF_SYNTAX.get(type(node.op)), [literal(operand)]
        case ast.BinOp(left=left, right=right):
            name, numbers = _OF_SYNTAX.get(type(node.op)), [literal(left), literal(right)]
        case _:
            return None
    return None if name is None else compute(name, numbers)


_OF_SYNTAX: Mapping[type[ast.AST], str] = MappingProxyType({
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "powi", ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "and", ast.BitOr: "or",
    ast.BitXor: "xor", ast.USub: "neg", ast.Invert: "not",
})  # fmt: skip
