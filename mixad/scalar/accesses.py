"""The reads of arrays that a program's results depend on, as outputs of a program.

A pullback adds to arrays at its end: the partial of a read, contracted with the cotangents, at the
indices of the read.  A read under a condition has its indices inside a branch; here they become
results of that branch, with a flag that says whether it was taken.

A loop has as many reads as iterations.  Where they are only ever added up, the derivative of the
sum with respect to each summand is 1, so that the cotangent of the sum is that of each summand: the
sum is an input of what follows the loop, and a second run of the loop, at the end, takes its
cotangent back, iteration by iteration.  For that, the variables that the loop reads from around it
are outputs, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mixad.errors import KernelGradientError
from mixad.scalar.activity import Activity, activity, spread
from mixad.scalar.build import Builder
from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    If,
    Load,
    Program,
    Statement,
    Var,
    While,
    nested_blocks,
    read_atoms,
    walk_statements,
    written_vars,
)
from mixad.scalar.sums import is_sum
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["Accesses", "Exposed", "ExposedLoad", "ExposedLoop", "accesses_arrays",
           "count_inputs", "expose", "free_vars", "plan_accesses"]  # fmt: skip


def accesses_arrays(program: Program, wrt: Collection[int]) -> bool:
    """Whether a program adds to arrays, or is differentiated with respect to one that it reads."""
    return bool(program.accumulators) or any(program.params[i].kind == "array" for i in wrt)


def count_inputs(program: Program, wrt: Collection[int]) -> int:
    """Return the number of inputs that are differentiated; each read of an array is one."""
    arrays = {program.params[i].var for i in wrt if program.params[i].kind == "array"}
    loads = (s for s in walk_statements(program.body) if isinstance(s, Load))
    return len(wrt) - len(arrays) + sum(s.array in arrays for s in loads)


# -- which accesses --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accesses:
    """What outputs of a program depend on: reads outside of loops, and sums in loops.

    ``loads`` are variables that reads assign, ``loops`` the carries that are sums, by the first
    result of a loop.
    """

    loads: frozenset[Var]
    loops: dict[Var, tuple[int, ...]]


def plan_accesses(program: Program, arrays: Collection[Var], outputs: Collection[int]) -> Accesses:
    """Return what outputs depend on of some arrays.

    KernelGradientError if a loop reads one, and does anything but add up what depends on it.
    """
    loads = [s for s in walk_statements(program.body) if isinstance(s, Load) and s.array in arrays]
    loops = [s for s in _outside_of_loops(program.body) if isinstance(s, While)]
    own = [*(s.out for s in loads), *(out for s in loops for out in s.outs if out.type.is_float)]
    labels = {var: label for label, var in enumerate(own)}
    active = activity(program, {}, {var: frozenset({label}) for var, label in labels.items()})
    results = [a for m in outputs if isinstance(a := program.outputs[m], Var)]
    reached = frozenset().union(*(active.get(a, frozenset()) for a in results))
    found: dict[Var, tuple[int, ...]] = {}
    inside: set[Var] = set()
    for loop in loops:
        reads = {s.out: s for s in _loads_in(loop) if s.out in labels}
        inside |= reads.keys()
        numbers = {labels[var] for var in reads}
        moved = {i for i, c in enumerate(loop.carries) if active.get(c, frozenset()) & numbers}
        sums = tuple(i for i in sorted(moved) if labels[loop.outs[i]] in reached)
        for i in sums:
            if loop.implicit or not _adds_up(loop, i, moved):
                slots = active[loop.outs[i]]
                raise _no_sum(program, next(s for v, s in reads.items() if labels[v] in slots))
        if sums:
            found[loop.outs[0]] = sums
    return Accesses(
        frozenset(s.out for s in loads if labels[s.out] in reached and s.out not in inside), found
    )


def _outside_of_loops(block: Block) -> Iterator[Statement]:
    """Yield the statements of a block and of the branches in it, not those inside of loops."""
    for s in block.statements:
        yield s
        if isinstance(s, If):
            yield from _outside_of_loops(s.then)
            yield from _outside_of_loops(s.orelse)


def _loads_in(loop: While) -> Iterator[Load]:
    for block in nested_blocks(loop):
        yield from (s for s in walk_statements(block) if isinstance(s, Load))


def _adds_up(loop: While, index: int, moved: Collection[int]) -> bool:
    """Whether a carry is a sum, of no other carry's values that depend on reads."""
    if not is_sum(loop, index):
        return False
    carries = {loop.carries[i]: frozenset({i}) for i in moved}
    reached: Activity = spread(loop.body, carries)
    result = loop.body.results[index]
    found = reached.get(result, frozenset()) if isinstance(result, Var) else frozenset()
    return found & frozenset(moved) <= {index}


def _no_sum(program: Program, s: Load) -> KernelGradientError:
    name = next(p.name for p in program.params if p.var == s.array)
    return KernelGradientError(
        f"{program.name}: the gradient of the array {name!r} is not available where a loop reads "
        "it and does more with what was read than adding it up",
        location=s.line.place if s.line else None,
        hint="a sum, s += ..., that the loop only adds to, a loop over a tuple, for k in (0, 1), "
        f"which is written out, or mixad.stop_gradient of {name} before the call if no derivative "
        "is meant",
    )


# -- made known ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExposedLoad:
    """A read of an array, which has the original program's name.

    The new program assigns a variable by it. A flag, whether the read was reached, and the indices
    are outputs of the new program, given by position.
    """

    array: Var
    out: Var
    flag: int
    indices: range


@dataclass(frozen=True)
class ExposedLoop:
    """A loop of the original program: its sums, by their variables in the new one.

    A flag and the variables that it reads from around it are outputs of the new program, given by
    position.
    """

    statement: While
    sums: dict[int, Var]
    flag: int
    free: dict[Var, int]


@dataclass(frozen=True)
class Exposed:
    """A program that returns its accesses after its outputs."""

    program: Program
    loads: tuple[ExposedLoad, ...]
    loops: tuple[ExposedLoop, ...]


_Wanted: TypeAlias = Load | While


def expose(program: Program, accesses: Accesses) -> Exposed:
    """Return a program that returns its accesses, too."""
    walk = _Exposing(program, accesses)
    found = walk.block(program.body)
    results = [walk.value(a) for a in program.outputs]
    loads, loops = [], []
    for each in found:
        flag, *atoms = each.atoms
        if isinstance(flag, Const) and not flag.value:
            continue  # on a side that never runs
        first = len(results) + 1
        results += each.atoms
        s, places = each.statement, range(first, first + len(atoms))
        if isinstance(s, Load):
            loads.append(ExposedLoad(s.array, walk.var(s.out), first - 1, places))
        else:
            sums = {i: walk.var(s.outs[i]) for i in accesses.loops[s.outs[0]]}
            free = dict(zip(free_vars(s), places, strict=True))
            loops.append(ExposedLoop(s, sums, first - 1, free))
    return Exposed(walk.builder.finish(results), tuple(loads), tuple(loops))


def free_vars(loop: While) -> tuple[Var, ...]:
    """Return the variables, no arrays, that a loop reads and does not write."""
    reads: dict[Atom, None] = dict.fromkeys(loop.inits)
    written: set[Var] = set(loop.carries)
    blocks = list(nested_blocks(loop))
    for s in (s for block in nested_blocks(loop) for s in walk_statements(block)):
        reads |= dict.fromkeys(read_atoms(s))
        written.update(written_vars(s))
        written.update(s.carries if isinstance(s, While) else ())
        blocks += nested_blocks(s)
    reads |= {atom: None for block in blocks for atom in block.results}
    return tuple(a for a in reads if isinstance(a, Var) and a not in written)


@dataclass(frozen=True)
class _Found:
    """An access in the new program: a flag, and indices or the variables that a loop reads."""

    statement: _Wanted
    atoms: tuple[Atom, ...]


class _Exposing:
    """Copies a program; ``names`` maps its variables to those of the new one."""

    def __init__(self, program: Program, accesses: Accesses) -> None:
        self.builder = Builder(program.name)
        self.accesses = accesses
        self.names = self.builder.declare(program)

    def value(self, atom: Atom) -> Atom:
        return self.names[atom] if isinstance(atom, Var) else atom

    def var(self, old: Var) -> Var:
        new = self.names[old]
        assert isinstance(new, Var), old
        return new

    def block(self, block: Block) -> list[_Found]:
        """Copy a block's statements; return their accesses."""
        found: list[_Found] = []
        for s in block.statements:
            self.builder.line = s.line or self.builder.line
            if isinstance(s, If) and self.collect_accesses(s.then, s.orelse):
                found += self.branch(s)
                continue
            self.builder.copy(Block((s,), ()), self.names)
            if isinstance(s, Load | While) and self.is_wanted(s):
                atoms = s.indices if isinstance(s, Load) else free_vars(s)
                flag = self.builder.const(True, BOOL)
                found.append(_Found(s, (flag, *map(self.value, atoms))))
        return found

    def is_wanted(self, s: _Wanted) -> bool:
        if isinstance(s, Load):
            return s.out in self.accesses.loads
        return bool(s.outs) and s.outs[0] in self.accesses.loops

    def collect_accesses(self, *blocks: Block) -> list[_Wanted]:
        """Return the accesses in blocks, in the order in which `block` finds them."""
        statements = (s for block in blocks for s in _outside_of_loops(block))
        return [s for s in statements if isinstance(s, Load | While) and self.is_wanted(s)]

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
        for each in self.collect_accesses(s.then, s.orelse):
            count = len(_types(each))
            found.append(_Found(each, rest[:count]))
            rest = rest[count:]
        return found

    def zeros(self, block: Block) -> list[Atom]:
        """Return placeholders for the accesses of a block that does not run."""
        kinds = [type for each in self.collect_accesses(block) for type in _types(each)]
        return [self.builder.const(0, type) for type in kinds]


def _types(s: _Wanted) -> Sequence[ScalarType]:
    atoms: Sequence[Atom] = s.indices if isinstance(s, Load) else free_vars(s)
    return [BOOL, *(a.type for a in atoms)]
