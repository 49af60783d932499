"""Floats of 16 bits are computed in float32: a program with 16-bit types becomes one without.

In programs as they are written, differentiated and fused, a value of a 16-bit type is a float32
that memory would hold rounded.  ``convert`` to its own type rounds it, to what memory holds; any
other conversion changes the type alone.  Widening makes that explicit: all values become float32,
and what is rounded passes through the 16-bit type, in which nothing else is done.  What params and
outputs are in memory is said by the kernel's spec.
"""

from __future__ import annotations

from dataclasses import replace

from mixad.scalar.build import Builder
from mixad.scalar.expression import Term, call
from mixad.scalar.ir import (
    Atom,
    Const,
    Equation,
    Param,
    Program,
    Var,
    walk_statements,
    written_vars,
)
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import F32, F64, U16, U32, ScalarType

__all__ = ["widen_program", "without_rules"]


def widen_program(program: Program) -> Program:
    """Return the program that computes in float32 what is stored in 16 bits.

    Values with rules for their derivatives become plain values: nobody asks for these any more.

    >>> from mixad.scalar.types import F16
    >>> b = Builder("double")
    >>> x = b.param("x", F16)
    >>> print(widen_program(b.finish([b.op("add", x, x)])))
    program double(%0 x: f32 lane)
      %1:f32 = add %0, %0
      return %1
    """
    if not _has_narrow(program) and not _has_rules(program):
        return program
    builder = _WideningBuilder(program.name)
    params = builder.copy_params([_widened_param(p) for p in program.params])
    added = builder.copy_accumulators([_widened_param(a) for a in program.accumulators])
    old = [p.var for p in (*program.params, *program.accumulators)]
    names: dict[Var, Atom] = dict(zip(old, [*params.values(), *added.values()], strict=True))
    return builder.finish(builder.copy(program.body, names, builder.widen_equation))


def without_rules(program: Program) -> Program:
    """Return a program in which values with rules for their derivatives are plain values.

    Names of rules belong to a process: no other one knows them.
    """
    if not _has_rules(program):
        return program
    builder = Builder(program.name)
    names = builder.declare(program)

    def value(equation: Equation, args: tuple[Atom, ...]) -> Atom:
        is_ruled = BY_NAME[equation.op].rule is not None
        return args[0] if is_ruled else builder.op(equation.op, *args, type=equation.out.type)

    return builder.finish(builder.copy(program.body, names, value))


def _has_narrow(program: Program) -> bool:
    written = (v for s in walk_statements(program.body) for v in written_vars(s))
    atoms = (*(p.var for p in program.params), *program.outputs, *written)
    return any(a.type.is_narrow for a in atoms)


def _has_rules(program: Program) -> bool:
    return any(
        isinstance(s, Equation) and BY_NAME[s.op].rule is not None
        for s in walk_statements(program.body)
    )


def _widened_param(param: Param) -> Param:
    return replace(param, var=Var(param.var.id, param.var.type.arithmetic))


class _WideningBuilder(Builder):
    """A builder that copies values of 16-bit types as float32."""

    def literal(self, const: Const) -> Const:
        return self.const(const.value, const.type.arithmetic) if const.type.is_narrow else const

    def widen_equation(self, equation: Equation, args: tuple[Atom, ...]) -> Atom:
        """Add an equation whose arguments are float32 where they had 16 bits."""
        if BY_NAME[equation.op].rule is not None:
            return args[0]
        if equation.op == "convert":
            return self.conversion(args[0], equation.args[0].type, equation.out.type)
        if equation.op == "nextafter" and equation.out.type.is_narrow:
            x, y = (Term(self, a) for a in args)
            return _neighbour(x, y, equation.out.type).atom
        if equation.op == "bitcast":
            return self.bits(args[0], equation.args[0].type, equation.out.type)
        return self.op(equation.op, *args)

    def conversion(self, atom: Atom, old: ScalarType, new: ScalarType) -> Atom:
        if old == new:
            return self.convert(self.convert(atom, new), F32)
        if new.is_narrow and old == F64:
            return _to_odd(Term(self, atom)).atom
        return self.convert(atom, new.arithmetic)

    def bits(self, atom: Atom, old: ScalarType, new: ScalarType) -> Atom:
        """Reinterpret the bits in memory."""
        taken = self.op("bitcast", self.convert(atom, old), type=new)
        return self.convert(taken, new.arithmetic)


def _neighbour(x: Term, y: Term, type: ScalarType) -> Term:
    """Return the number of a 16-bit type next to x, towards y: compare `simple.nextafter`."""
    held, y = x.convert(type), y.convert(type).convert(F32)
    bits, x = held.bitcast(U16), held.convert(F32)
    outwards = (x < y) ^ (x < 0)
    step = call("where", outwards, bits + 1, bits - 1).bitcast(type).convert(F32)
    smallest = call("copysign", 2.0 ** (-133 if type.brain else -24), y)
    moved = call("where", x == 0, smallest, step)
    is_nan = (x != x) | (y != y)
    return call("where", x == y, y, call("where", is_nan, x + y, moved))


def _to_odd(x: Term) -> Term:
    """Round float64 to float32 such that a second rounding, to 16 bits, is right.

    An inexact value becomes the neighbour with an odd last bit (Boldo, Melquiond: "Emulation of a
    FMA and Correctly Rounded Sums", IEEE Trans. Computers 57, 2008).
    """
    near = x.convert(F32)
    bits, missing = near.bitcast(U32), abs(x) - abs(near.convert(F64))
    down = call("where", missing < 0, bits - 1, bits)
    odd = call("where", missing > 0, bits + 1, down)
    return call("where", (bits & 1) == 0, odd, bits).bitcast(F32)
