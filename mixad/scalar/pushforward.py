"""The pushforward: a program becomes a program on dual chunks, source to source.

Every value that depends on a seed is accompanied by its partials; primal equations are copied as
they are, so primal and dual programs take the same branches.  The result is an ordinary program:
applying the transform to it gives second derivatives, with no tag that could be confused.

Revels, Besard, Churavy, De Sutter, Vielma: "Dynamic Automatic Differentiation of GPU Broadcast
Kernels" (2018); Revels, Lubin, Papamarkou: "Forward-Mode Automatic Differentiation in Julia"
(2016).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

from mixad.errors import KernelGradientError
from mixad.scalar.activity import SINGULAR, Activity, active_arguments, activity
from mixad.scalar.build import Builder
from mixad.scalar.dual import MAX_PARTIALS, DualChunk
from mixad.scalar.expression import emit, expression
from mixad.scalar.ir import (
    Accumulate,
    Atom,
    Block,
    Const,
    Equation,
    If,
    Load,
    Program,
    Statement,
    Var,
    While,
)
from mixad.scalar.ops import BY_NAME, Op

__all__ = ["DualProgram", "no_derivative", "push_block", "pushforward", "pushforward_along"]

Dual = DualChunk[Atom]


@dataclass(frozen=True)
class DualProgram:
    """A program on dual chunks.

    Attributes
    ----------
    program : Program
        Takes the params of the original.
    outputs : tuple of DualChunk
        One per output of the original; primal and partials are *positions* among the outputs of
        ``program``.  Slots are positions in ``wrt``; a slot without an entry is statically zero.
    """

    program: Program
    outputs: tuple[DualChunk[int], ...]


def pushforward(program: Program, wrt: Sequence[int]) -> DualProgram:
    """Transform a program into one that also computes partials.

    Parameters
    ----------
    program : Program
        Any program without effects.
    wrt : sequence of int
        Indices of the params to differentiate with respect to, at most `MAX_PARTIALS`; floats.

    Returns
    -------
    DualProgram
        Its partials are those of the branches and loop turns that the primal takes.

    Raises
    ------
    ValueError
        If there are too many params in ``wrt`` or one of them is no float.
    KernelGradientError
        If a derivative is needed that the op table does not have; the message names the line.
    """
    _check_count(len(wrt))
    builder = Builder(program.name)
    return _finished(builder, push_block(builder, program, wrt))


def pushforward_along(program: Program, directions: Sequence[Sequence[int]]) -> DualProgram:
    """Transform a program into one that also computes derivatives along some directions.

    Parameters
    ----------
    program : Program
        Any program without effects.
    directions : sequence of sequence of int
        For each direction, at most `MAX_PARTIALS`, the indices of the params that change along it;
        floats.

    Returns
    -------
    DualProgram
        Takes the params of the original and then, direction by direction, the tangents of those
        params; slots are directions.

    Raises
    ------
    ValueError
        If there are too many directions or one of the params is no float.
    KernelGradientError
        If a derivative is needed that the op table does not have; the message names the line.
    """
    _check_count(len(directions))
    builder = Builder(program.name)
    params = builder.copy_params(program.params)
    seeds: dict[int, dict[int, Atom]] = {}
    for slot, indices in enumerate(directions):
        for index in indices:
            name, type = program.params[index].name, program.params[index].var.type
            seeds.setdefault(index, {})[slot] = builder.param(f"tangent {slot} of {name}", type)
    return _finished(builder, _pushed(builder, program, params, seeds))


def push_block(builder: Builder, program: Program, wrt: Sequence[int]) -> tuple[Dual, ...]:
    """Declare a program's params in a builder, add its dual statements, return its dual outputs."""
    params = builder.copy_params(program.params)
    types = [param.var.type for param in program.params]
    seeds = {index: {slot: builder.const(1.0, types[index])} for slot, index in enumerate(wrt)}
    return _pushed(builder, program, params, seeds)


def _check_count(directions: int) -> None:
    if directions > MAX_PARTIALS:
        raise ValueError(f"at most {MAX_PARTIALS} partials in one chunk, not {directions}")


def _pushed(
    builder: Builder,
    program: Program,
    params: Mapping[Var, Var],
    seeds: Mapping[int, Mapping[int, Atom]],
) -> tuple[Dual, ...]:
    """Add the dual statements of a program; ``seeds``: by the index of a param, its partials."""
    # A tangent that is given may be infinite, as may what comes through an op that is singular.
    wild = {
        i: (*s, SINGULAR) if any(isinstance(t, Var) for t in s.values()) else s
        for i, s in seeds.items()
    }
    transform = _Transform(builder, activity(program, wild))
    for index, (old, new) in enumerate(params.items()):
        transform.duals[old] = DualChunk(new, dict(seeds.get(index, {}).items()))
    return transform.block(program.body)


def _finished(builder: Builder, duals: Sequence[Dual]) -> DualProgram:
    """Return the program whose outputs are the primals and, after those, all partials."""
    results: list[Atom] = []

    def position(atom: Atom) -> int:
        results.append(atom)
        return len(results) - 1

    primals = [position(d.primal) for d in duals]
    outputs = tuple(
        DualChunk(p, {slot: position(partial) for slot, partial in d.partials.items()})
        for p, d in zip(primals, duals, strict=True)
    )
    return DualProgram(builder.finish(results), outputs)


class _Transform:
    """One walk over a program; ``duals`` maps its variables to dual chunks of new atoms."""

    def __init__(self, builder: Builder, active: Activity) -> None:
        self.builder = builder
        self.active = active
        self.duals: dict[Var, Dual] = {}

    def dual(self, atom: Atom) -> Dual:
        return self.duals[atom] if isinstance(atom, Var) else DualChunk(atom)

    def block(self, block: Block) -> tuple[Dual, ...]:
        for statement in block.statements:
            self.builder.line = statement.line or self.builder.line
            self.statement(statement)
        return tuple(map(self.dual, block.results))

    def statement(self, s: Statement) -> None:
        match s:
            case Equation():
                self.duals[s.out] = self.equation(s)
            case If():
                self.branch(s)
            case While():
                self.loop(s)
            case Load():
                array = self.duals[s.array].primal
                assert isinstance(array, Var)
                indices = (self.dual(i).primal for i in s.indices)
                self.duals[s.out] = DualChunk(self.builder.load(array, *indices))
            case Accumulate():
                raise KernelGradientError(
                    "a program with accumulation cannot be differentiated again"
                )

    def equation(self, s: Equation) -> Dual:
        args = tuple(map(self.dual, s.args))
        primal = self.builder.op(s.op, *(a.primal for a in args), type=s.out.type)
        slots = self.slots(s.out)
        if not slots:
            return DualChunk(primal)
        tangents = ((slot, self.tangent(s, primal, args, slot)) for slot in slots)
        return DualChunk(primal, {slot: t for slot, t in tangents if t is not None})

    def tangent(self, s: Equation, primal: Atom, args: tuple[Dual, ...], slot: int) -> Atom | None:
        """Return the derivative of an equation's result along one slot; None if statically zero."""
        moving = {
            i: args[i].partials[slot] for i in active_arguments[s.op] if slot in args[i].partials
        }
        if not moving:
            return None
        op = BY_NAME[s.op]
        if op.tangent is not None:
            return self.selected_tangent(op, primal, args, moving)
        terms = (self.term(s, op, i, primal, args, dx) for i, dx in moving.items())
        return reduce(lambda total, term: self.builder.op("add", total, term), terms)

    def term(
        self, s: Equation, op: Op, i: int, primal: Atom, args: tuple[Dual, ...], dx: Atom
    ) -> Atom:
        """Return ∂out/∂argᵢ · dx."""
        partial = op.partials[i]
        match partial:
            case None:
                raise no_derivative(s, op, i)
            case "1":
                return dx
            case "-1":
                return self.builder.op("neg", dx)
            case "convert(1)":
                return self.builder.convert(dx, primal.type)
        wild = SINGULAR in self.active.get(cast("Var", s.args[i]), ())
        local = emit(self.builder, partial, self.names(primal, args, {i: dx}), primal.type)
        if f"d{'xyz'[i]}" in expression(partial).names:
            return local
        return self.product(dx, local, strong_tangent=op.singular, strong_partial=wild)

    def product(self, dx: Atom, local: Atom, *, strong_tangent: bool, strong_partial: bool) -> Atom:
        """Return ∂out/∂arg · dx, zero where a factor is zero beside one that can be infinite."""
        if not strong_partial or isinstance(local, Const):
            return self.builder.op("mul_zero" if strong_tangent else "mul", dx, local)
        if not strong_tangent:
            return self.builder.op("mul_zero", local, dx)
        return self.builder.op("mul_zeros", dx, local)

    def slots(self, var: Var) -> list[int]:
        """Return the slots that a variable depends on, in order."""
        return sorted(slot for slot in self.active.get(var, ()) if slot != SINGULAR)

    def selected_tangent(
        self, op: Op, primal: Atom, args: tuple[Dual, ...], moving: Mapping[int, Atom]
    ) -> Atom:
        assert op.tangent is not None
        return emit(self.builder, op.tangent, self.names(primal, args, moving), primal.type)

    def names(
        self, primal: Atom, args: tuple[Dual, ...], moving: Mapping[int, Atom]
    ) -> dict[str, Atom]:
        """Return what the names of a derivative expression stand for."""
        names: dict[str, Atom] = {"out": primal}
        for i, (letter, arg) in enumerate(zip("xyz", args, strict=False)):
            names[letter] = arg.primal
            names[f"d{letter}"] = moving.get(i) or self.builder.const(0.0, primal.type)
        return names

    def flattened(self, duals: Sequence[Dual], outs: Sequence[Var]) -> list[Atom]:
        """Return primals, then partials in the order of `rebuilt`, zeros filled in."""
        flat = [d.primal for d in duals]
        for dual, out in zip(duals, outs, strict=True):
            for slot in self.slots(out):
                flat.append(dual.partials.get(slot) or self.builder.const(0.0, out.type))
        return flat

    def rebuilt(self, flat: Sequence[Atom], outs: Sequence[Var]) -> list[Dual]:
        """Return dual chunks from atoms in the order of `flattened`."""
        primals, rest = flat[: len(outs)], iter(flat[len(outs) :])
        return [
            DualChunk(primal, {slot: next(rest) for slot in self.slots(out)})
            for primal, out in zip(primals, outs, strict=True)
        ]

    def branch(self, s: If) -> None:
        flat = self.builder.if_(
            self.dual(s.cond).primal,
            lambda: self.flattened(self.block(s.then), s.outs),
            lambda: self.flattened(self.block(s.orelse), s.outs),
        )
        self.duals.update(zip(s.outs, self.rebuilt(flat, s.outs), strict=True))

    def loop(self, s: While) -> None:
        def enter(carries: tuple[Atom, ...]) -> None:
            self.duals.update(zip(s.carries, self.rebuilt(carries, s.carries), strict=True))

        def cond(*carries: Atom) -> Atom:
            enter(carries)
            return self.block(s.cond)[0].primal

        def body(*carries: Atom) -> list[Atom]:
            enter(carries)
            return self.flattened(self.block(s.body), s.carries)

        inits = self.flattened([self.dual(a) for a in s.inits], s.carries)
        flat = self.builder.while_(inits, cond, body)
        self.duals.update(zip(s.outs, self.rebuilt(flat, s.carries), strict=True))


def no_derivative(s: Equation, op: Op, i: int) -> KernelGradientError:
    """Return the refusal."""
    return KernelGradientError(
        f"the derivative of {op.name} with respect to its argument {i + 1} is not available",
        location=s.line.place if s.line else None,
        hint="a number for it, or mixad.stop_gradient of it if no derivative is meant",
    )
