"""What a program reads of arrays and adds to them, made known at its end.

A pullback adds to arrays what the program's end says: the partial of a read, contracted with the
cotangents, at the indices of the read.  A read under a condition has its indices inside a branch;
here they become results of that branch, with a flag that says whether it was taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mixad.errors import KernelGradientError
from mixad.scalar.activity import activity
from mixad.scalar.build import Builder
from mixad.scalar.ir import (
    Accumulate,
    Atom,
    Block,
    Const,
    If,
    Line,
    Load,
    Program,
    Statement,
    Var,
    While,
    nested_blocks,
    walk_statements,
)
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["Access", "Exposed", "accesses_arrays", "active_loads", "expose_accesses"]

_Wanted: TypeAlias = Load | Accumulate


@dataclass(frozen=True)
class Access:
    """An element that was read or added to.

    Attributes
    ----------
    array : Var
        The array, as the original program names it.
    out : Var or None
        What a read gives, as the new program names it.
    flag : int
        Position among the new program's outputs of whether the element was reached.
    indices : range
        Positions of the indices.
    value : int
        Position of what was added; of a read, of nothing.
    line : Line or None
        The user's line.
    """

    array: Var
    out: Var | None
    flag: int
    indices: range
    value: int
    line: Line | None


@dataclass(frozen=True)
class Exposed:
    """A program that returns what it accessed after its outputs, and adds to no array.

    An accumulator among the outputs is replaced by a zero.
    """

    program: Program
    loads: tuple[Access, ...]
    sums: tuple[Access, ...]


def accesses_arrays(program: Program, wrt: Collection[int]) -> bool:
    """Whether a program adds to arrays, or is differentiated with respect to one that it reads."""
    return bool(program.accumulators) or any(program.params[i].kind == "array" for i in wrt)


def active_loads(
    program: Program, arrays: Collection[int], outputs: Collection[int]
) -> dict[Var, Load]:
    """Return the reads of some array params, by what they give, that outputs depend on.

    KernelGradientError if one of them is inside a loop.
    """
    names = {program.params[index].var for index in arrays}
    loads = [s for s in walk_statements(program.body) if isinstance(s, Load) and s.array in names]
    slots = {s.out: slot for slot, s in enumerate(loads)}
    active = activity(program, {}, {var: frozenset({slot}) for var, slot in slots.items()})
    results = [a for m in outputs if isinstance(a := program.outputs[m], Var)]
    reached = frozenset().union(*(active.get(a, frozenset()) for a in results))
    found = {s.out: s for s in loads if slots[s.out] in reached}
    for s in _inside_loops(program.body):
        if isinstance(s, Load) and s.out in found:
            raise _in_loop(program, s)
    return found


def _inside_loops(block: Block) -> list[Statement]:
    loops = (s for s in walk_statements(block) if isinstance(s, While))
    return [s for loop in loops for inner in nested_blocks(loop) for s in walk_statements(inner)]


def _in_loop(program: Program, s: Load) -> KernelGradientError:
    name = next(p.name for p in program.params if p.var == s.array)
    return KernelGradientError(
        f"{program.name}: the gradient of the array {name!r} is not available where a loop reads "
        "it and results depend on what was read",
        location=s.line.place if s.line else None,
        hint="a loop over a tuple, for k in (0, 1, 2), which is written out; "
        f"mixad.stop_gradient of {name} before the call says that no derivative is meant",
    )


def expose_accesses(program: Program, loads: Collection[Var]) -> Exposed:
    """Return a program that returns the accesses of some reads, and of all that it adds.

    What is added inside a loop is a KernelGradientError.
    """
    for s in _inside_loops(program.body):
        if isinstance(s, Accumulate):
            raise KernelGradientError(
                f"{program.name}: what a loop adds to an array cannot be differentiated in reverse",
                location=s.line.place if s.line else None,
                hint="take the outer derivative forward, by mixad.jvp",
            )
    walk = _Exposing(program, frozenset(loads))
    found = walk.block(program.body)
    accumulators = {a.var for a in program.accumulators}
    results = [
        walk.builder.const(0.0, a.type) if a in accumulators else walk.value(a)
        for a in program.outputs
    ]
    accesses: list[Access] = []
    for each in found:
        if isinstance(each.atoms[0], Const) and not each.atoms[0].value:
            continue  # on a side that never runs
        first = len(results)
        results += each.atoms
        last = first + 1 + len(each.statement.indices)
        out = walk.names[each.statement.out] if isinstance(each.statement, Load) else None
        assert out is None or isinstance(out, Var)
        s = each.statement
        accesses.append(Access(s.array, out, first, range(first + 1, last), last, s.line))
    return Exposed(
        walk.builder.finish(results),
        tuple(a for a in accesses if a.out is not None),
        tuple(a for a in accesses if a.out is None),
    )


@dataclass(frozen=True)
class _Found:
    """An access in terms of the new program: flag, indices and the value that is added."""

    statement: _Wanted
    atoms: tuple[Atom, ...]


class _Exposing:
    """Copies a program; ``names`` has what its variables are in the new one."""

    def __init__(self, program: Program, loads: frozenset[Var]) -> None:
        self.builder = Builder(program.name)
        self.loads = loads
        self.names: dict[Var, Atom] = dict(self.builder.copy_params(program.params))

    def value(self, atom: Atom) -> Atom:
        return self.names[atom] if isinstance(atom, Var) else atom

    def block(self, block: Block) -> list[_Found]:
        """Copy a block's statements; return what they access."""
        found: list[_Found] = []
        for s in block.statements:
            self.builder.line = s.line or self.builder.line
            if isinstance(s, If) and self.wanted(s.then, s.orelse):
                found += self.branch(s)
                continue
            if not isinstance(s, Accumulate):
                self.builder.copy(Block((s,), ()), self.names)
            if self.is_wanted(s):
                found.append(self.access(s))
        return found

    def is_wanted(self, s: Statement) -> bool:
        return isinstance(s, Accumulate) or (isinstance(s, Load) and s.out in self.loads)

    def wanted(self, *blocks: Block) -> list[_Wanted]:
        """Return the accesses in blocks, in the order in which `block` finds them."""
        found: list[_Wanted] = []
        for s in (s for block in blocks for s in block.statements):
            if isinstance(s, Load | Accumulate) and self.is_wanted(s):
                found.append(s)
            elif isinstance(s, If):
                found += self.wanted(s.then, s.orelse)
        return found

    def access(self, s: Statement) -> _Found:
        assert isinstance(s, Load | Accumulate)
        atoms = [self.builder.const(True, BOOL), *map(self.value, s.indices)]
        if isinstance(s, Accumulate):
            atoms.append(self.value(s.value))
        return _Found(s, tuple(atoms))

    def branch(self, s: If) -> list[_Found]:
        """Copy a condition; its accesses become results, with zeros on the other side."""
        mine, other = self.zeros(s.then), self.zeros(s.orelse)

        def side(block: Block, before: list[Atom], after: list[Atom]) -> list[Atom]:
            own = [atom for found in self.block(block) for atom in found.atoms]
            return [*map(self.value, block.results), *before, *own, *after]

        outs = self.builder.if_(
            self.value(s.cond),
            lambda: side(s.then, [], other),
            lambda: side(s.orelse, mine, []),
        )
        self.names.update(zip(s.outs, outs, strict=False))
        rest, found = outs[len(s.outs) :], []
        for each in self.wanted(s.then, s.orelse):
            count = len(_types(each))
            found.append(_Found(each, rest[:count]))
            rest = rest[count:]
        return found

    def zeros(self, block: Block) -> list[Atom]:
        """Return what stands for the accesses of a block that does not run."""
        kinds = [type for each in self.wanted(block) for type in _types(each)]
        return [self.builder.const(0, type) for type in kinds]


def _types(s: _Wanted) -> Sequence[ScalarType]:
    own = [BOOL, *(i.type for i in s.indices)]
    return [*own, s.value.type] if isinstance(s, Accumulate) else own
