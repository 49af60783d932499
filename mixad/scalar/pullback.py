"""The pullback: x̄ₙ = Σₘ ȳₘ ∂yₘ/∂xₙ as programs, the partials by dual chunks or in reverse.

By dual chunks there is one program for each chunk of inputs, in reverse one for all.  What is read
of an array that is differentiated is an input for itself: its gradient is added to the array's at
the indices of the read.  The cotangent of an array that a program adds to is an array, read where
it added.  The contraction with the cotangents is a strong zero: where a
cotangent is zero the gradient is zero, whatever the partial is (``sqrt`` at 0, for example), and
where a partial is zero it is so whatever the cotangent is, which may come from such a ``sqrt``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mixad.errors import KernelGradientError, SourceLocation
from mixad.scalar.accesses import Access, Exposed, accesses_arrays, active_loads, expose_accesses
from mixad.scalar.adjoint import adjoint_block, is_zero
from mixad.scalar.build import Builder, as_array
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Accumulate, Atom, Load, Program, Var, walk_statements
from mixad.scalar.pushforward import push_block, push_block_from
from mixad.scalar.types import ScalarType

__all__ = ["ChunkPass", "contraction", "pullback", "reverse_pullback"]


@dataclass(frozen=True)
class ChunkPass:
    """One pass of a pullback.

    Attributes
    ----------
    program : Program
        Takes the original's params, then one cotangent for each of the chosen outputs.
    gradients : tuple of (int or None)
        For each input of this chunk, in order, the position of its gradient among the outputs of
        ``program``; None where the gradient is statically zero.
    primals : tuple of int
        Positions of the original's outputs; empty if they were not asked for in this pass.
    """

    program: Program
    gradients: tuple[int | None, ...]
    primals: tuple[int, ...] = ()


def pullback(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    *,
    chunk: int = MAX_PARTIALS,
    with_primals: bool = False,
    units: Collection[int] = (),
) -> tuple[ChunkPass, ...]:
    """Return the passes that compute the gradients of a program's inputs.

    Parameters
    ----------
    program : Program
        Any program.
    wrt : sequence of int
        Indices of the params whose gradients are wanted; floats.  The gradient of an array param is
        an accumulator.
    cotangents : sequence of int
        Indices of the outputs that have a cotangent; the others' is zero.  That of an accumulator
        is an array param.
    chunk : int
        Most inputs in one pass, from 1 to `MAX_PARTIALS`.
    with_primals : bool
        Whether the first pass also returns the program's own outputs.
    units : collection of int
        Positions in ``cotangents`` of those that are known to be 1: they are taken but not read.

    Returns
    -------
    tuple of ChunkPass
        Their chunks together cover ``wrt`` in order.

    Raises
    ------
    ValueError
        If ``chunk`` is out of range or a param in ``wrt`` is no float.
    KernelGradientError
        If a derivative is needed that the op table does not have, or one of what a loop reads.
    """
    if not 1 <= chunk <= MAX_PARTIALS:
        raise ValueError(f"chunk must be from 1 to {MAX_PARTIALS}, not {chunk}")
    if accesses_arrays(program, wrt):
        return (_access_pass(program, wrt, cotangents, chunk, with_primals, units),)
    chunks = even_chunks(len(wrt), chunk)
    return tuple(
        _chunk_pass(
            program,
            [wrt[slot] for slot in slots],
            cotangents,
            with_primals and slots.start == 0,
            units,
        )
        for slots in chunks
    )


def reverse_pullback(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    *,
    with_primals: bool = False,
    units: Collection[int] = (),
) -> ChunkPass:
    """Return the one pass that computes the gradients of a program's inputs in reverse.

    It is asked as `pullback` is; a loop whose results have partials is a KernelGradientError, as is
    an array that is differentiated or added to.
    """
    if accesses_arrays(program, wrt):
        arrays = [program.params[index].name for index in wrt if program.params[index].array]
        names = ", ".join(map(repr, arrays or [a.name for a in program.accumulators]))
        raise KernelGradientError(
            f"{program.name}: the gradient of an array that is read by index, {names}, is not "
            "computed in reverse",
            location=_first_access(program, wrt),
            hint='strategy="forward", or "auto"',
        )
    builder = Builder(program.name)
    primals, rows = adjoint_block(builder, program, wrt, cotangents)
    partials = [rows[m] for m in cotangents]
    own = primals if with_primals else ()
    return _contracted(builder, program, wrt, cotangents, partials, own, units)


def _first_access(program: Program, wrt: Sequence[int]) -> SourceLocation | None:
    """Return where a program first reads one of some arrays, or adds to one."""
    arrays = {program.params[index].var for index in wrt}
    statements = walk_statements(program.body)
    lines = (
        s.line
        for s in statements
        if isinstance(s, Accumulate) or (isinstance(s, Load) and s.array in arrays)
    )
    return next((line.place for line in lines if line is not None), None)


def _chunk_pass(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    with_primals: bool,
    units: Collection[int],
) -> ChunkPass:
    builder = Builder(program.name)
    duals = push_block(builder, program, wrt)
    partials = [duals[m].partials for m in cotangents]
    primals = [d.primal for d in duals] if with_primals else []
    return _contracted(builder, program, wrt, cotangents, partials, primals, units)


def _contracted(
    builder: Builder,
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    partials: Sequence[Mapping[Any, Atom]],
    primals: Sequence[Atom],
    units: Collection[int],
) -> ChunkPass:
    """Finish a program of partials by their contraction with cotangents."""
    seeds: list[Atom] = []
    for at, m in enumerate(cotangents):
        type = program.outputs[m].type
        given = builder.param(f"cotangent {m}", type)
        seeds.append(builder.const(1, type) if at in units else given)
    gradients = [
        contraction(builder, slot, program.params[index].var.type, seeds, partials)
        for slot, index in enumerate(wrt)
    ]
    results = list(primals)
    positions = []
    for gradient in gradients:
        positions.append(None if gradient is None else len(results))
        results += [] if gradient is None else [gradient]
    return ChunkPass(builder.finish(results), tuple(positions), tuple(range(len(primals))))


def _access_pass(
    program: Program,
    wrt: Sequence[int],
    cotangents: Sequence[int],
    chunk: int,
    with_primals: bool,
    units: Collection[int],
) -> ChunkPass:
    """Return the pass of a program that accesses arrays: all chunks one after another in one.

    So that what several chunks add to an array is added to one.
    """
    arrays = [index for index in wrt if program.params[index].kind == "array"]
    exposed = expose_accesses(program, active_loads(program, arrays, cotangents))
    walk = _AccessPass(program, exposed)
    inputs = [index for index in wrt if index not in arrays]
    count = len(inputs) + len(exposed.loads)
    for slots in even_chunks(count, chunk) or (range(0),):
        walk.push(inputs, slots)
    seeds = walk.cotangents(cotangents, units)
    results = list(walk.outputs()) if with_primals else []
    primals = len(results)
    positions: dict[int, int] = {}
    for index in wrt:
        found = (
            walk.gathered(index, len(inputs), seeds)
            if index in arrays
            else walk.gradient(inputs.index(index), program.params[index].var.type, seeds)
        )
        if found is not None:
            positions[index] = len(results)
            results.append(found)
    gradients = tuple(positions.get(index) for index in wrt)
    return ChunkPass(walk.builder.finish(results), gradients, tuple(range(primals)))


_Seeds: TypeAlias = Sequence[tuple[int, Atom]]
"""Cotangents, each with the position of its value among the outputs of the exposed program."""


class _AccessPass:
    """The pass of a program that accesses arrays, while it is built."""

    def __init__(self, program: Program, exposed: Exposed) -> None:
        self.original = program
        self.exposed = exposed
        self.builder = Builder(program.name)
        self.names = dict(self.builder.copy_params(program.params))
        self.primals: list[Atom] = []
        self.partials: list[dict[Any, Atom]] = [{} for _ in exposed.program.outputs]
        new = exposed.program.params
        self.inner = {p.var: self.names[o.var] for o, p in zip(program.params, new, strict=True)}

    def push(self, inputs: Sequence[int], slots: range) -> None:
        """Add the dual statements of one chunk of slots: inputs, and reads after those."""
        reads = dict(enumerate(self.exposed.loads, len(inputs)))
        duals = push_block_from(
            self.builder,
            self.exposed.program,
            self.inner,
            {slot: inputs[slot] for slot in slots if slot < len(inputs)},
            {read.out: slot for slot, read in reads.items() if slot in slots and read.out},
        )
        self.primals = self.primals or [d.primal for d in duals]
        for known, dual in zip(self.partials, duals, strict=True):
            known.update(dual.partials)

    def cotangents(self, cotangents: Sequence[int], units: Collection[int]) -> _Seeds:
        """Declare cotangents; return what is multiplied by partials, in the order of `partials`."""
        seeds: list[tuple[int, Atom]] = []
        for at, m in enumerate(cotangents):
            added, type = self.original.accumulator(m), self.original.outputs[m].type
            if added is None:
                given = self.builder.param(f"cotangent {m}", type)
                seeds.append((m, self.builder.const(1, type) if at in units else given))
                continue
            array = self.builder.array_param(f"cotangent {m}", as_array(added))
            sums = (a for a in self.exposed.sums if a.array == added.var)
            seeds += [(a.value, self.read(array, a)) for a in sums]
        return seeds

    def read(self, array: Var, access: Access) -> Atom:
        """Read an array where a program added to another one; zero where it did not."""
        builder = self.builder
        builder.line = access.line
        zero = builder.const(0.0, array.type)
        (read,) = builder.if_(
            self.primals[access.flag],
            lambda: [builder.load(array, *self.indices(access))],
            lambda: [zero],
        )
        return read

    def indices(self, access: Access) -> list[Atom]:
        return [self.primals[i] for i in access.indices]

    def gradient(self, slot: int, type: ScalarType, seeds: _Seeds) -> Atom | None:
        """Return the gradient along a slot."""
        rows = [self.partials[at] for at, _ in seeds]
        return contraction(self.builder, slot, type, [seed for _, seed in seeds], rows)

    def gathered(self, index: int, first: int, seeds: _Seeds) -> Atom | None:
        """Add the gradients of what was read of an array param to an accumulator; return it."""
        param, found = self.original.params[index], None
        for slot, access in enumerate(self.exposed.loads, first):
            if access.array == param.var:
                value = self.gradient(slot, param.var.type, seeds)
                if value is not None:
                    found = found or self.builder.accumulator(param.name, as_array(param))
                    self.add(found, access, value)
        return found

    def add(self, array: Var, access: Access, value: Atom) -> None:
        """Add to an array where a program accessed another one."""
        builder = self.builder
        builder.line = access.line

        def run() -> list[Atom]:
            builder.accumulate(array, *self.indices(access), value=value)
            return []

        builder.if_(self.primals[access.flag], run, list)

    def outputs(self) -> Iterator[Atom]:
        """Yield the outputs of the original program."""
        added = {}
        for accumulator in self.original.accumulators:
            new = self.builder.accumulator(accumulator.name, as_array(accumulator))
            added[accumulator.var] = new
            for access in self.exposed.sums:
                if access.array == accumulator.var:
                    self.add(new, access, self.primals[access.value])
        for m, output in enumerate(self.original.outputs):
            yield added[output] if isinstance(output, Var) and output in added else self.primals[m]


def contraction(
    builder: Builder,
    slot: int,
    type: ScalarType,
    cotangents: Sequence[Atom],
    partials: Sequence[Mapping[Any, Atom]],
) -> Atom | None:
    """Add Σₘ ȳₘ · ∂yₘ/∂(slot), in the input's type; None if every term is statically zero."""
    total: Atom | None = None
    for cotangent, row in zip(cotangents, partials, strict=True):
        partial = row.get(slot)
        if partial is not None and not is_zero(partial):
            seed = builder.convert(cotangent, partial.type)
            term = builder.convert(builder.op("mul_zeros", seed, partial), type)
            total = term if total is None else builder.op("add", total, term)
    return total
