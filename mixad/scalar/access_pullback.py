"""The pullback of programs that read or add to arrays which are differentiated: one pass for all.

Each read of an array is an input for itself, and so is a sum of reads that a loop adds up
(`mixad.scalar.accesses`). Chunks of dual numbers follow one another in the pass, so that their
gradients for one array are added to one. The cotangent ā of an array that the program adds to is an
array: with a[i] += v, v gets ā[i], and so it does as the gradient of φ = Σ v·ā[i], a number that
the pass computes, too, and whose cotangent is 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mixad.scalar.accesses import Exposed, ExposedLoop, expose, plan_accesses
from mixad.scalar.adjoint import adjoint_block_from
from mixad.scalar.build import Builder, as_array
from mixad.scalar.contraction import contraction
from mixad.scalar.dual import even_chunks
from mixad.scalar.ir import (
    Atom,
    Block,
    If,
    Param,
    Program,
    Statement,
    Update,
    Var,
    While,
    walk_statements,
)
from mixad.scalar.pushforward import push_block_from
from mixad.scalar.types import ScalarType

__all__ = ["access_pullback"]


def access_pullback(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    *,
    chunk: int | None,
    with_primals: bool,
    units: Collection[int],
) -> tuple[Program, tuple[int | None, ...], int]:
    """Return the pass, each gradient's position among its outputs, and the number of own outputs.

    See `mixad.scalar.pullback.pullback`. Without a ``chunk`` partials are computed in reverse.
    """
    added = {m: a for m in cotangents if (a := program.accumulator(m)) is not None}
    inner = _with_functional(program, [a.var for a in added.values()], keeps_sums=with_primals)
    builder = Builder(program.name)
    copies = builder.copy_params(program.params).values()
    names: dict[Var, Atom] = dict(zip((p.var for p in inner.params), copies, strict=False))
    seeds: list[tuple[int, Atom]] = []
    for at, m in enumerate(cotangents):
        type = program.outputs[m].type
        if m in added:
            place = len(program.params) + list(added).index(m)
            array = builder.array_param(f"cotangent {m}", as_array(added[m]))
            names[inner.params[place].var] = array
            output = len(program.outputs) + list(added).index(m)
            seeds.append((output, builder.const(1.0, type)))
        else:
            given = builder.param(f"cotangent {m}", type)
            seeds.append((m, builder.const(1, type) if at in units else given))
    arrays = {inner.params[i].var: inner.params[i] for i in wrt if inner.params[i].array}
    sums = _Sums(builder, arrays, chunk)
    inputs = [index for index in wrt if inner.params[index].array is None]
    primals, gradients = sums.pull(inner, names, inputs, seeds)
    results = primals[: len(program.outputs)] if with_primals else []
    found = dict(zip(inputs, gradients, strict=True)) | {
        index: sums.found.get(inner.params[index].var) for index in wrt if index not in inputs
    }
    positions: dict[int, int] = {}
    for index in wrt:
        gradient = found[index]
        if gradient is not None:
            positions[index] = len(results)
            results.append(gradient)
    own = len(program.outputs) if with_primals else 0
    return builder.finish(results), tuple(positions.get(index) for index in wrt), own


@dataclass
class _Sums:
    """Pullbacks of programs, one inside a loop of another; ``found`` has what is added up.

    ``arrays`` are those that are differentiated; all variables have the names of the outermost
    program. ``chunk`` is the most slots of dual numbers, None for partials in reverse.
    """

    builder: Builder
    arrays: Mapping[Var, Param]
    chunk: int | None

    def __post_init__(self) -> None:
        self.found: dict[Var, Var] = {}

    def pull(
        self,
        program: Program,
        names: Mapping[Var, Atom],
        inputs: Sequence[int],
        seeds: Sequence[tuple[int, Atom]],
    ) -> tuple[list[Atom], list[Atom | None]]:
        """Add a program's dual statements and additions to arrays; return outputs and gradients.

        ``names`` are its params in the builder, ``inputs`` those that have a gradient and are no
        arrays, ``seeds`` outputs with their cotangents.
        """
        accesses = plan_accesses(program, self.arrays, [m for m, _ in seeds])
        exposed = expose(program, accesses)
        sums = [(loop, i) for loop in exposed.loops for i in loop.sums]
        slots = [*exposed.loads, *sums]
        duals = _Partials(self.builder, program, exposed, names, inputs)
        if self.chunk is None:
            duals.walk_back([m for m, _ in seeds])
        else:
            for part in even_chunks(len(inputs) + len(slots), self.chunk) or (range(0),):
                duals.push(part)
        gradients = [
            duals.gradient(slot, program.params[index].var.type, seeds)
            for slot, index in enumerate(inputs)
        ]
        first = len(inputs)
        for slot, load in enumerate(exposed.loads, first):
            value = duals.gradient(slot, load.out.type, seeds)
            if value is not None:
                self.add(
                    load.array, duals.primals[load.flag], duals.primals_at(load.indices), value
                )
        first += len(exposed.loads)
        cotangents: dict[int, dict[int, Atom]] = {}
        for slot, (loop, i) in enumerate(sums, first):
            value = duals.gradient(slot, loop.sums[i].type, seeds)
            if value is not None:
                cotangents.setdefault(id(loop), {})[i] = value
        for loop in exposed.loops:
            if id(loop) in cotangents:
                self.run_again(program, loop, duals.primals, names, cotangents[id(loop)])
        return duals.primals[: len(program.outputs)], gradients

    def add(self, array: Var, flag: Atom, indices: Sequence[Atom], value: Atom) -> None:
        """Add to an array's gradient, if a flag is set."""
        if array not in self.found:
            param = self.arrays[array]
            self.found[array] = self.builder.accumulator(param.name, as_array(param))
        target = self.found[array]

        def run() -> list[Atom]:
            self.builder.update(target, *indices, value=value)
            return []

        self.builder.if_(flag, run, list)

    def run_again(
        self,
        program: Program,
        loop: ExposedLoop,
        primals: Sequence[Atom],
        outer: Mapping[Var, Atom],
        cotangents: Mapping[int, Atom],
    ) -> None:
        """Run a loop once more, and take the cotangents of its sums back in each iteration.

        Iterations pass on only what the loop itself carries.
        """
        s = loop.statement
        names: dict[Var, Atom] = {p.var: outer[p.var] for p in program.params if p.array}
        names |= {var: primals[at] for var, at in loop.free.items()}
        iteration = _iteration_of(program, s, tuple(loop.free))

        def cond(*carries: Atom) -> Atom:
            return self.builder.copy(s.cond, names | dict(zip(s.carries, carries, strict=True)))[0]

        def body(*carries: Atom) -> list[Atom]:
            own = names | dict(zip(s.carries, carries, strict=True))
            return self.pull(iteration, own, (), list(cotangents.items()))[0]

        def run() -> list[Atom]:
            inits = [names[a] if isinstance(a, Var) else a for a in s.inits]
            self.builder.line = s.line or self.builder.line
            self.builder.while_(inits, cond, body)
            return []

        self.builder.if_(primals[loop.flag], run, list)


class _Partials:
    """The partials of a program, by output and slot: by chunks of dual numbers, or in reverse."""

    def __init__(
        self,
        builder: Builder,
        program: Program,
        exposed: Exposed,
        names: Mapping[Var, Atom],
        inputs: Sequence[int],
    ) -> None:
        self.builder = builder
        self.exposed = exposed
        self.inputs = inputs
        new = exposed.program.params
        self.names = {p.var: names[o.var] for o, p in zip(program.params, new, strict=True)}
        self.primals: list[Atom] = []
        self.partials: list[dict[Any, Atom]] = [{} for _ in exposed.program.outputs]

    @property
    def reads(self) -> list[Var]:
        """The variables with slots after the inputs: reads, and sums of loops."""
        outs = [load.out for load in self.exposed.loads]
        return [*outs, *(out for loop in self.exposed.loops for out in loop.sums.values())]

    def walk_back(self, outputs: Sequence[int]) -> None:
        """Add the statements of all partials of some outputs, in reverse."""
        program = self.exposed.program
        names = {**self.names, **self.builder.copy_accumulators(program.accumulators)}
        inputs = [program.params[index].var for index in self.inputs]
        inputs += self.reads
        primals, rows = adjoint_block_from(self.builder, program, names, inputs, outputs)
        self.primals = list(primals)
        for m, row in rows.items():
            self.partials[m].update(row)

    def push(self, slots: range) -> None:
        """Add the dual statements of a chunk of slots."""
        first, exposed = len(self.inputs), self.exposed
        reads = {out: slot for slot, out in enumerate(self.reads, first) if slot in slots}
        inputs = {slot: index for slot, index in enumerate(self.inputs) if slot in slots}
        # Chunks after the first add to accumulators of their own, which nobody reads.
        added = self.builder.copy_accumulators(exposed.program.accumulators)
        names = {**self.names, **added}
        duals = push_block_from(self.builder, exposed.program, names, inputs, reads)
        self.primals = self.primals or [d.primal for d in duals]
        for known, dual in zip(self.partials, duals, strict=True):
            known.update(dual.partials)

    def primals_at(self, places: Sequence[int]) -> list[Atom]:
        return [self.primals[place] for place in places]

    def gradient(
        self, slot: int, type: ScalarType, seeds: Sequence[tuple[int, Atom]]
    ) -> Atom | None:
        """Return the gradient along a slot."""
        rows = [self.partials[m] for m, _ in seeds]
        return contraction(self.builder, slot, type, [seed for _, seed in seeds], rows)


def _iteration_of(program: Program, loop: While, free: Sequence[Var]) -> Program:
    """Return an iteration of a loop as a program of carries, outer variables and arrays."""
    params = [Param(str(var), var) for var in (*loop.carries, *free)]
    params += [p for p in program.params if p.array is not None]
    return Program(program.name, tuple(params), _without_additions(loop.body))


def _without_additions(block: Block) -> Block:
    """Return a block that adds to no array."""

    def strip(s: Statement) -> Statement:
        match s:
            case If():
                then, orelse = map(_without_additions, (s.then, s.orelse))
                return replace(s, then=then, orelse=orelse)
            case While():
                return replace(s, body=_without_additions(s.body))
        return s

    statements = (s for s in block.statements if not isinstance(s, Update))
    return Block(tuple(map(strip, statements)), block.results)


# -- what is added to arrays -----------------------------------------------------------------------


def _with_functional(program: Program, arrays: Sequence[Var], *, keeps_sums: bool) -> Program:
    """Return a program that takes cotangents of some accumulators after its params.

    It returns Σ v·ā[i] over its additions to each of them, after its outputs. It adds to arrays
    itself only if it ``keeps_sums``; then accumulators stay among its outputs.
    """
    if not program.accumulators:
        return program
    walk = _Functional(program, arrays, keeps_sums)
    return walk.program()


class _Functional:
    """Copies a program; ``names`` maps its variables, ``totals`` has the sums so far."""

    def __init__(self, program: Program, arrays: Sequence[Var], keeps_sums: bool) -> None:
        self.original = program
        self.keeps_sums = keeps_sums
        self.builder = Builder(program.name)
        copies = self.builder.copy_params(program.params)
        self.names: dict[Var, Atom] = {**copies}
        added = {a.var: a for a in program.accumulators}
        self.cotangents = {
            var: self.builder.array_param(f"cotangent of {added[var].name}", as_array(added[var]))
            for var in arrays
        }
        self.sums = self.builder.copy_accumulators(program.accumulators) if keeps_sums else {}
        self.totals: dict[Var, Atom] = {
            var: self.builder.const(0.0, var.type) for var in self.cotangents
        }

    def program(self) -> Program:
        """Return the copy."""
        self.statements(self.original.body)
        results: list[Atom] = []
        accumulators = {a.var for a in self.original.accumulators}
        for output in self.original.outputs:
            if isinstance(output, Var) and output in accumulators:
                nothing = self.builder.const(0.0, output.type)
                results.append(self.sums.get(output, nothing))
            else:
                results.append(self.value(output))
        return self.builder.finish([*results, *self.totals.values()])

    def value(self, atom: Atom) -> Atom:
        return self.names[atom] if isinstance(atom, Var) else atom

    def block(self, block: Block) -> list[Atom]:
        self.statements(block)
        return list(map(self.value, block.results))

    def statements(self, block: Block) -> None:
        for s in block.statements:
            self.builder.line = s.line or self.builder.line
            self.statement(s)

    def statement(self, s: Statement) -> None:
        match s:
            case Update():
                self.update(s)
            case If() if list(_accumulators_added_to(s.then, s.orelse)):
                self.branch(s)
            case While() if list(_accumulators_added_to(s.body)):
                self.loop(s)
            case _:
                self.builder.copy(Block((s,), ()), self.names)

    def update(self, s: Update) -> None:
        indices, value = list(map(self.value, s.indices)), self.value(s.value)
        if s.array in self.sums:
            self.builder.update(self.sums[s.array], *indices, value=value)
        if s.array in self.totals:
            weight = self.builder.load(self.cotangents[s.array], *indices)
            term = self.builder.op("mul_zeros", weight, value)
            self.totals[s.array] = self.builder.op("add", self.totals[s.array], term)

    def accumulated_arrays(self, *blocks: Block) -> list[Var]:
        """Return the arrays with a cotangent to which blocks add."""
        return [var for var in dict.fromkeys(_accumulators_added_to(*blocks)) if var in self.totals]

    def branch(self, s: If) -> None:
        changed, before = self.accumulated_arrays(s.then, s.orelse), dict(self.totals)

        def side(block: Block) -> list[Atom]:
            self.totals.update(before)
            return [*self.block(block), *(self.totals[var] for var in changed)]

        outs = self.builder.if_(self.value(s.cond), lambda: side(s.then), lambda: side(s.orelse))
        self.names.update(zip(s.outs, outs, strict=False))
        self.totals.update(zip(changed, outs[len(s.outs) :], strict=True))

    def loop(self, s: While) -> None:
        changed, count = self.accumulated_arrays(s.body), len(s.carries)

        def enter(carries: Sequence[Atom]) -> None:
            self.names.update(zip(s.carries, carries, strict=False))
            self.totals.update(zip(changed, carries[count:], strict=True))

        def cond(*carries: Atom) -> Atom:
            enter(carries)
            return self.block(s.cond)[0]

        def body(*carries: Atom) -> list[Atom]:
            enter(carries)
            return [*self.block(s.body), *(self.totals[var] for var in changed)]

        inits = [*map(self.value, s.inits), *(self.totals[var] for var in changed)]
        outs = self.builder.while_(inits, cond, body)
        self.names.update(zip(s.outs, outs, strict=False))
        self.totals.update(zip(changed, outs[count:], strict=True))


def _accumulators_added_to(*blocks: Block) -> Iterator[Var]:
    """Yield the accumulators to which blocks add."""
    for block in blocks:
        yield from (s.array for s in walk_statements(block) if isinstance(s, Update))
