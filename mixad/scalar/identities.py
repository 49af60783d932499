"""Simplifications that are exact for every input, up to the sign of one kind of zero.

Operations on constants are carried out, and identities are applied that hold bit for bit for all
IEEE values (``x * 1``, ``x - 0.0``, ``--x``; never ``x + 0.0``, which changes ``-0.0``, nor
``x * 0``).  The exception is ``mul_zero(0, y)`` with a negative constant y: as a product it is -0,
and +0 by definition; the same holds for ``mul_zeros``.
"""

from __future__ import annotations

import math
from typing import Protocol

from mixad.scalar.evaluate import constant, evaluate
from mixad.scalar.ir import Atom, Const, Equation
from mixad.scalar.narrow import round_to_type
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["Equations", "find_simpler"]


class Equations(Protocol):
    """The equations of a program that is being built."""

    def op(self, name: str, *args: Atom) -> Atom:
        """Add an equation, simplified in turn, and return its value."""

    def definition(self, atom: Atom) -> Equation | None:
        """Return the equation that computes an atom; None if no equation of this program does."""


def find_simpler(
    equations: Equations, name: str, args: tuple[Atom, ...], type: ScalarType
) -> Atom | None:
    """Return a value that equals the op's for every input, if there is a simpler one.

    The value of ``mul_zero`` and ``mul_zeros`` may be the zero of the other sign.
    """
    return (
        _fold_constants(name, args, type)
        or _simplified_arithmetic(equations, name, args, type)
        or _simplified_choice(equations, name, args, type)
    )


def _fold_constants(name: str, args: tuple[Atom, ...], type: ScalarType) -> Atom | None:
    """Evaluate an op on constants, if its result is the same on every machine."""
    for a in args:
        if not isinstance(a, Const):
            return None
    op = BY_NAME[name]
    if op.lowering != "instruction":
        return None
    if op.rule is not None:
        return args[0]
    if any(a.type.is_narrow for a in args) or type.is_narrow:
        return _folded_narrow(name, args, type)
    values = (a.type.dtype.type(a.value) for a in args if isinstance(a, Const))
    return constant(evaluate(name, tuple(values), type).item(), type)


def _folded_narrow(name: str, args: tuple[Atom, ...], type: ScalarType) -> Const | None:
    """Evaluate an op on constants of 16-bit types, which hold float32."""
    consts = [a for a in args if isinstance(a, Const)]
    if name == "bitcast":
        return None
    if name == "convert" and type.is_narrow:
        value = consts[0].value
        return constant(
            round_to_type(value, type).item() if consts[0].type == type else value, type
        )
    values = (a.type.arithmetic.dtype.type(a.value) for a in consts)
    return constant(evaluate(name, tuple(values), type).item(), type)


def _simplified_arithmetic(
    equations: Equations, name: str, args: tuple[Atom, ...], type: ScalarType
) -> Atom | None:
    match name:
        case "mul":
            return _other(args, 1)
        case "mul_zero":
            return _simplified_mul_zero(equations, *args)
        case "mul_zeros":
            return _simplified_mul_zeros(equations, *args)
        case "div":
            return args[0] if _is(args[1], 1) else None
        case "sub":
            return args[0] if _is(args[1], 0) else _without_negative(equations, "add", *args)
        case "add":
            zero = _other(args, 0) if type.is_integer else None
            return (
                zero
                or _without_negative(equations, "sub", *args)
                or _without_negative(equations, "sub", *args[::-1])
            )
    return None


def _simplified_choice(
    equations: Equations, name: str, args: tuple[Atom, ...], type: ScalarType
) -> Atom | None:
    inner = equations.definition(args[0])
    match name:
        case "and" if type == BOOL:
            return _other(args, True) or _absorbing(args, False)
        case "or" if type == BOOL:
            return _other(args, False) or _absorbing(args, True)
        case "neg" | "not" if inner is not None and inner.op == name:
            return inner.args[0]
        case "abs" if inner is not None and inner.op == "neg" and type.is_float:
            return equations.op("abs", *inner.args)
        case "convert" if type.is_narrow and args[0].type == type:  # rounds to what memory holds
            return args[0] if inner is not None and _is_held(inner) else None
        case "convert" | "bitcast" if args[0].type == type:
            return args[0]
        case "where":
            return _simplified_where(equations, *args)
    return None


def _is_held(equation: Equation) -> bool:
    """Whether an equation rounds to what memory holds."""
    return equation.op == "convert" and equation.args[0].type == equation.out.type


def _without_negative(equations: Equations, opposite: str, x: Atom, y: Atom) -> Atom | None:
    """Return x + (-y) as x - y and x - (-y) as x + y."""
    found = equations.definition(y)
    if found is None or found.op != "neg":
        return None
    return equations.op(opposite, x, found.args[0])


def _simplified_mul_zero(equations: Equations, x: Atom, y: Atom) -> Atom | None:
    """Return a product without the strong zero, if the value of a factor makes it needless."""
    if isinstance(x, Const) and x.value == 0:
        return x
    if isinstance(x, Const) or (isinstance(y, Const) and math.isfinite(y.value)):
        return equations.op("mul", x, y)
    return None


def _simplified_mul_zeros(equations: Equations, x: Atom, y: Atom) -> Atom | None:
    """Return a product with fewer strong zeros, if the value of a factor makes them needless."""
    for known, other in ((x, y), (y, x)):
        if isinstance(known, Const):
            if known.value == 0:
                return known
            is_finite = math.isfinite(known.value)
            return (
                equations.op("mul", x, y) if is_finite else equations.op("mul_zero", other, known)
            )
    return None


def _simplified_where(equations: Equations, cond: Atom, yes: Atom, no: Atom) -> Atom | None:
    if isinstance(cond, Const):
        return yes if cond.value else no
    if yes == no:
        return yes
    if yes.type == BOOL and isinstance(yes, Const) and isinstance(no, Const):
        return cond if yes.value else equations.op("not", cond)
    return _simplified_chain(equations, cond, yes, no)


def _simplified_chain(equations: Equations, cond: Atom, yes: Atom, no: Atom) -> Atom | None:
    """Choose x in where(p, x, where(q, y, x)) and where(p, x, where(q, x, y)) once."""
    inner = equations.definition(no)
    if inner is None or inner.op != "where":
        return None
    also, first, second = inner.args
    op = equations.op
    if second == yes:
        return op("where", op("or", cond, op("not", also)), yes, first)
    if first == yes:
        return op("where", op("or", cond, also), yes, second)
    return None


def _is(atom: Atom, value: float) -> bool:
    """Whether an atom is the constant ``value``; the sign of zero counts."""
    return isinstance(atom, Const) and atom == constant(value, atom.type)


def _other(args: tuple[Atom, ...], neutral: float) -> Atom | None:
    """Return the argument beside a neutral element."""
    if _is(args[1], neutral):
        return args[0]
    return args[1] if _is(args[0], neutral) else None


def _absorbing(args: tuple[Atom, ...], value: bool) -> Atom | None:
    return next((a for a in args if _is(a, value)), None)
