"""The pushforward: a program becomes a program on dual chunks, source to source.

Every value that depends on a seed is accompanied by its partials; primal equations are copied as
they are, so primal and dual programs take the same branches.  The result is an ordinary program:
applying the transform to it gives second derivatives, with no tag that could be confused.

Revels, Besard, Churavy, De Sutter, Vielma: "Dynamic Automatic Differentiation of GPU Broadcast
Kernels" (2018); Revels, Lubin, Papamarkou: "Forward-Mode Automatic Differentiation in Julia"
(2016).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from types import MappingProxyType
from typing import cast

from mixad.errors import KernelGradientError
from mixad.scalar.activity import SINGULAR, Activity, active_arguments, activity, spread
from mixad.scalar.build import Builder, as_array
from mixad.scalar.dual import MAX_PARTIALS, DualChunk, even_chunks
from mixad.scalar.expression import emit, expression
from mixad.scalar.fixed_point import FixedPoint, LinearStep
from mixad.scalar.implicit import Values, closure, convergence_tests, read_by, reads_counters
from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    Equation,
    If,
    Load,
    Program,
    Statement,
    Update,
    Var,
    While,
    written_vars,
)
from mixad.scalar.ops import BY_NAME, Op
from mixad.scalar.rules import own_partials
from mixad.scalar.types import BOOL

__all__ = ["DualProgram", "DualTransform", "is_whole_term", "no_derivative", "push_block",
           "push_block_from", "pushforward", "pushforward_along"]  # fmt: skip

Dual = DualChunk[Atom]
_NOTHING: Mapping[Var, bool] = MappingProxyType({})
_NO_LOADS: Mapping[Var, int] = MappingProxyType({})


@dataclass(frozen=True)
class DualProgram:
    """A program on dual chunks."""

    program: Program  # takes the params of the original
    # One per output of the original; primal and partials are *positions* among the outputs of
    # ``program``.  Slots are positions in ``wrt``; a slot without an entry is statically zero.
    outputs: tuple[DualChunk[int], ...]


def pushforward(program: Program, wrt: Sequence[int]) -> DualProgram:
    """Transform a program without effects into one that also computes partials.

    They are those of the branches and loop iterations that the primal takes.  ``wrt`` are params of
    floats, at most `MAX_PARTIALS`, or it is a ValueError; a derivative that the op table does not
    have is a KernelGradientError that names the line.
    """
    _check_count(len(wrt))
    builder = Builder(program.name)
    return _finish_program(builder, push_block(builder, program, wrt))


def pushforward_along(program: Program, directions: Sequence[Sequence[int]]) -> DualProgram:
    """Transform a program into one that also computes derivatives along some directions.

    A direction is the indices of the params that change along it; slots are directions. The program
    takes the params, then their tangents, direction by direction; an array's is an array.
    """
    _check_count(len(directions))
    builder = Builder(program.name)
    names = builder.declare(program)
    seeds: dict[int, dict[int, Atom]] = {}
    for slot, indices in enumerate(directions):
        for index in indices:
            param = program.params[index]
            name = f"tangent {slot} of {param.name}"
            seeds.setdefault(index, {})[slot] = (
                builder.param(name, param.var.type)
                if param.array is None
                else builder.array_param(name, param.array)
            )
    return _finish_program(builder, _push(builder, program, names, seeds))


def push_block(builder: Builder, program: Program, wrt: Sequence[int]) -> tuple[Dual, ...]:
    """Declare a program's params in a builder, add its dual statements, return its dual outputs."""
    names = builder.declare(program)
    return push_block_from(builder, program, names, dict(enumerate(wrt)), {})


def push_block_from(
    builder: Builder,
    program: Program,
    names: Mapping[Var, Atom],
    inputs: Mapping[int, int],
    loads: Mapping[Var, int],
) -> tuple[Dual, ...]:
    """Add dual statements of a program whose params have ``names`` in a builder.

    ``inputs`` are params by their slots, ``loads`` the slots of reads of arrays: each read is an
    input of its own.
    """
    for index in inputs.values():
        if program.params[index].kind == "array":
            raise ValueError(f"an array has no partial: {program.params[index].name!r}")
    types = [param.var.type for param in program.params]
    seeds = {index: {slot: builder.const(1.0, types[index])} for slot, index in inputs.items()}
    return _push(builder, program, names, seeds, loads)


def _check_count(directions: int) -> None:
    if directions > MAX_PARTIALS:
        raise ValueError(f"at most {MAX_PARTIALS} partials in one chunk, not {directions}")


def _push(
    builder: Builder,
    program: Program,
    names: Mapping[Var, Atom],
    seeds: Mapping[int, Mapping[int, Atom]],
    loads: Mapping[Var, int] = _NO_LOADS,
) -> tuple[Dual, ...]:
    """Add the dual statements of a program whose params have ``names``.

    ``seeds`` has the partials of params by index, ``loads`` the slot whose partial is 1 for each
    variable that is read from an array.
    """
    # A tangent that is given may be infinite, as may what comes through an op that is singular.
    wild = {
        i: (*s, SINGULAR) if any(isinstance(t, Var) for t in s.values()) else s
        for i, s in seeds.items()
    }
    own = {var: frozenset({slot}) for var, slot in loads.items()}
    transform = DualTransform(builder, activity(program, wild, own), program, loads=loads)
    for index, param in enumerate(program.params):
        transform.duals[param.var] = DualChunk(names[param.var], dict(seeds.get(index, {}).items()))
    for added in program.accumulators:
        tangents: dict[Hashable, Atom] = {
            slot: builder.accumulator(f"tangent {slot} of {added.name}", as_array(added))
            for slot in transform.slots(added.var)
        }
        transform.duals[added.var] = DualChunk(names[added.var], tangents)
    return transform.block(program.body)


def _finish_program(builder: Builder, duals: Sequence[Dual]) -> DualProgram:
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


class DualTransform:
    """One walk over a program; ``duals`` maps its variables to dual chunks of new atoms.

    ``known`` are conditions with given values, ``loads`` the slots of reads of arrays.
    """

    def __init__(
        self,
        builder: Builder,
        active: Activity,
        program: Program,
        known: Mapping[Var, bool] = _NOTHING,
        loads: Mapping[Var, int] = _NO_LOADS,
    ) -> None:
        self.loads = loads
        self.builder = builder
        self.active = active
        self.program = program
        self.known = known
        self.duals: dict[Var, Dual] = {}
        self.own: Mapping[str, Atom] = {}
        """Names of the partials of the present equation, if it has its own rule."""

    def dual(self, atom: Atom) -> Dual:
        """Return an atom of the program as a dual chunk."""
        return self.duals[atom] if isinstance(atom, Var) else DualChunk(atom)

    def block(self, block: Block) -> tuple[Dual, ...]:
        """Add the dual statements of a block; return its results."""
        for statement in block.statements:
            self.builder.line = statement.line or self.builder.line
            self.statement(statement)
            for var in self.known.keys() & written_vars(statement):
                self.duals[var] = DualChunk(Const(self.known[var], var.type))
        return tuple(map(self.dual, block.results))

    def statement(self, s: Statement) -> None:
        """Add a statement with its partials; record the duals of the variables it assigns."""
        match s:
            case Equation():
                self.duals[s.out] = self.equation(s)
            case If():
                self.branch(s)
            case While():
                if s.implicit and any(map(self.slots, s.outs)):
                    self.fixed_point(s)
                else:
                    self.loop(s)
            case Load():
                self.duals[s.out] = self.load(s)
            case Update():
                self.update(s)

    def load(self, s: Load) -> Dual:
        """Read an element, and those of the array's tangents; or give it a slot."""
        array, indices = self.duals[s.array], [self.dual(i).primal for i in s.indices]
        primal = self.builder.load(cast("Var", array.primal), *indices)
        partials = {
            slot: self.builder.load(cast("Var", tangent), *indices)
            for slot, tangent in array.partials.items()
        }
        return self.with_own_slot(s.out, DualChunk(primal, partials))

    def with_own_slot(self, out: Var, dual: Dual) -> Dual:
        """Return a dual with the partial 1 in its own slot, if it has one."""
        if out not in self.loads:
            return dual
        one = self.builder.const(1.0, out.type)
        return DualChunk(dual.primal, {**dual.partials, self.loads[out]: one})

    def update(self, s: Update) -> None:
        """Add to an array, and the value's tangents to the array's tangents."""
        array, value = self.duals[s.array], self.dual(s.value)
        indices = [self.dual(i).primal for i in s.indices]
        self.builder.update(cast("Var", array.primal), *indices, value=value.primal)
        for slot, tangent in value.partials.items():
            self.builder.update(cast("Var", array.partials[slot]), *indices, value=tangent)

    def equation(self, s: Equation) -> Dual:
        """Compute a value, and its derivative along each slot that it depends on."""
        args = tuple(map(self.dual, s.args))
        primal = self.builder.op(s.op, *(a.primal for a in args), type=s.out.type)
        slots = self.slots(s.out)
        if not slots:
            return DualChunk(primal)
        self.own = own_partials(BY_NAME[s.op], self.builder, [a.primal for a in args], primal)
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
        if is_whole_term(op, i):
            return local
        dx = self.builder.convert(dx, primal.type)
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
        """Return the derivative of an op whose table entry chooses among tangents."""
        assert op.tangent is not None
        return emit(self.builder, op.tangent, self.names(primal, args, moving), primal.type)

    def names(
        self, primal: Atom, args: tuple[Dual, ...], moving: Mapping[int, Atom]
    ) -> dict[str, Atom]:
        """Return the values of the names in a derivative expression."""
        names: dict[str, Atom] = {"out": primal, **self.own}
        for i, (letter, arg) in enumerate(zip("xyz", args, strict=False)):
            names[letter] = arg.primal
            names[f"d{letter}"] = moving.get(i) or self.builder.const(0.0, primal.type)
        return names

    def flatten(self, duals: Sequence[Dual], outs: Sequence[Var]) -> list[Atom]:
        """Return primals, then partials in the order of `rebuilt`, missing ones as zeros."""
        flat = [d.primal for d in duals]
        for dual, out in zip(duals, outs, strict=True):
            for slot in self.slots(out):
                flat.append(dual.partials.get(slot) or self.builder.const(0.0, out.type))
        return flat

    def rebuilt(self, flat: Sequence[Atom], outs: Sequence[Var]) -> list[Dual]:
        """Return dual chunks from atoms in the order of `flatten`."""
        primals, rest = flat[: len(outs)], iter(flat[len(outs) :])
        return [
            DualChunk(primal, {slot: next(rest) for slot in self.slots(out)})
            for primal, out in zip(primals, outs, strict=True)
        ]

    def branch(self, s: If) -> None:
        """Add an ``If`` whose results are values and partials."""
        flat = self.builder.if_(
            self.dual(s.cond).primal,
            lambda: self.flatten(self.block(s.then), s.outs),
            lambda: self.flatten(self.block(s.orelse), s.outs),
        )
        self.duals.update(zip(s.outs, self.rebuilt(flat, s.outs), strict=True))

    def loop(self, s: While) -> None:
        """Add a ``While`` whose carries are values and partials."""

        def enter(carries: tuple[Atom, ...]) -> None:
            self.duals.update(zip(s.carries, self.rebuilt(carries, s.carries), strict=True))

        def cond(*carries: Atom) -> Atom:
            enter(carries)
            return self.block(s.cond)[0].primal

        def body(*carries: Atom) -> list[Atom]:
            enter(carries)
            return self.flatten(self.block(s.body), s.carries)

        inits = self.flatten([self.dual(a) for a in s.inits], s.carries)
        flat = self.builder.while_(inits, cond, body)
        for out, dual in zip(s.outs, self.rebuilt(flat, s.carries), strict=True):
            self.duals[out] = self.with_own_slot(out, dual)

    def fixed_point(self, s: While) -> None:
        """Differentiate a loop at its end, by the implicit function theorem."""
        primals = {var: dual.primal for var, dual in self.duals.items()}
        ends = self.builder.copy(Block((replace(s, names=()),), s.outs), primals)
        values, read = Values(s, self.program.name), self.program.read_vars
        meant = {
            i: values.stands_for(i)
            for i, out in enumerate(s.outs)
            if self.slots(out) and out in read
        }
        rows, columns = self.step_graph(s, meant.values())
        held = {i: values.holder(i) for i in {*rows, *read_by(s, rows)}}
        point = [ends[held.get(i, i)] for i in range(len(ends))]
        slots = sorted({slot for i in meant.values() for slot in self.slots(s.outs[i])})
        solver = FixedPoint(
            self.builder,
            values,
            self.linear_steps(s, point, rows, columns, slots, values.known),
            point,
            [self.dual(a).primal for a in s.inits],
            self.has_converged(s, ends),
            [i for i in rows if reads_counters(s, i, rows)],
        )
        tangents = solver.tangents(slots)
        for i, (out, primal) in enumerate(zip(s.outs, ends, strict=True)):
            self.duals[out] = DualChunk(primal, tangents[meant[i]] if i in meant else {})

    def step_graph(self, s: While, wanted: Collection[int]) -> tuple[list[int], list[int]]:
        """Return the wanted carries and those that they depend on, and those that are read."""
        active = sorted({*wanted, *(i for i, c in enumerate(s.carries) if self.slots(c))})
        reached = spread(s.body, {s.carries[i]: frozenset({i}) for i in active})
        graph = {
            i: [j for j in reached.get(cast("Var", s.body.results[i]), ()) if j != SINGULAR]
            for i in active
        }
        rows = sorted(closure(wanted, graph))
        return rows, sorted({j for i in rows for j in graph[i]})

    def has_converged(self, s: While, ends: Sequence[Atom]) -> Atom:
        """Return whether more than a counter has ended a loop."""
        tests = convergence_tests(s)
        if not tests:
            return self.builder.const(True, BOOL)
        names = {var: dual.primal for var, dual in self.duals.items()}
        names |= dict(zip(s.carries, ends, strict=True))
        results = self.builder.copy(replace(s.cond, results=tuple(tests)), names)
        return self.builder.op("not", reduce(lambda a, b: self.builder.op("and", a, b), results))

    def linear_steps(
        self,
        s: While,
        point: Sequence[Atom],
        rows: Sequence[int],
        columns: Sequence[int],
        slots: Sequence[int],
        known: Mapping[Var, bool],
    ) -> dict[int, LinearStep]:
        """Return a loop's step at a point, for some carries, with respect to others and slots."""
        first = self.first_free
        labels = [*slots, *(first + j for j in columns)]
        steps = {i: LinearStep(point[i], {}, {}) for i in rows}
        for chunk in even_chunks(len(labels)):
            duals = self.iteration(s, point, frozenset(labels[k] for k in chunk), known)
            for i in rows:
                steps[i] = _join_passes(steps[i], duals[i], first)
        return steps

    @cached_property
    def first_free(self) -> int:
        """A number above all slots, from which carries of a loop count theirs."""
        return 1 + max(slot for slots in self.active.values() for slot in slots)

    def iteration(
        self, s: While, point: Sequence[Atom], labels: frozenset[int], known: Mapping[Var, bool]
    ) -> tuple[Dual, ...]:
        """Evaluate an iteration of a loop at a point; ``labels``: slots, `first_free` + carry."""
        kept, first = labels | {SINGULAR}, self.first_free
        outside = {var: self.active.get(var, frozenset()) & kept for var in self.duals}
        own = {c: frozenset({first + i}) & kept for i, c in enumerate(s.carries)}
        inner = DualTransform(self.builder, spread(s.body, outside | own), self.program, known)
        for var, dual in self.duals.items():
            partials = {slot: p for slot, p in dual.partials.items() if cast("int", slot) in labels}
            inner.duals[var] = DualChunk(dual.primal, partials)
        for i, (carry, atom) in enumerate(zip(s.carries, point, strict=True)):
            one: dict[Hashable, Atom] = (
                {first + i: self.builder.const(1.0, atom.type)} if own[carry] else {}
            )
            inner.duals[carry] = DualChunk(atom, one)
        return inner.block(s.body)


def _join_passes(step: LinearStep, dual: Dual, first: int) -> LinearStep:
    """Return a step with the partials of one more pass."""
    partials = cast("Mapping[int, Atom]", dual.partials)
    return LinearStep(
        dual.primal,
        {**step.by_carry, **{k - first: p for k, p in partials.items() if k >= first}},
        {**step.by_slot, **{k: p for k, p in partials.items() if k < first}},
    )


def is_whole_term(op: Op, i: int) -> bool:
    """Whether the table states ∂out/∂argᵢ · dargᵢ; rules never do."""
    partial = op.partials[i]
    return partial is not None and f"d{'xyz'[i : i + 1]}" in expression(partial).names


def no_derivative(s: Equation, op: Op, i: int) -> KernelGradientError:
    """Return the refusal."""
    if op.rule is not None:
        message, hint = op.rule.refusal(i)
        return KernelGradientError(message, location=s.line.place if s.line else None, hint=hint)
    return KernelGradientError(
        f"the derivative of {op.name} with respect to its argument {i + 1} is not available",
        location=s.line.place if s.line else None,
        hint="a number for it, or mixad.stop_gradient of it if no derivative is meant",
    )
