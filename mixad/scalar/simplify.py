"""Dead code: statements of a program that nobody reads are removed.

A derivative copies every primal equation, because its branches and partials may need it; which ones
they did need is known only at the end, and decides which params a kernel has to read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    If,
    Load,
    Program,
    Statement,
    Touch,
    Update,
    Var,
    While,
    nested_blocks,
    read_atoms,
    walk_statements,
    written_vars,
)

__all__ = ["read_params", "without_dead_code", "without_sums"]


def without_dead_code(program: Program) -> Program:
    """Return the program without statements, branch results and loop carries that nobody reads.

    A loop that nobody reads is removed, ending or not; so are additions to accumulators that are no
    outputs.
    """
    kept = tuple(a for a in program.accumulators if a.var in program.outputs)
    return replace(program, body=_trim(program.body, set()), accumulators=kept)


def without_sums(program: Program, kept: Collection[int] = ()) -> Program:
    """Return the program that adds to no array except some of its outputs; others are zeros."""
    if not program.accumulators:
        return program
    results = tuple(
        Const(0, output.type) if program.accumulator(m) and m not in kept else output
        for m, output in enumerate(program.outputs)
    )
    return without_dead_code(replace(program, body=replace(program.body, results=results)))


def read_params(program: Program) -> tuple[int, ...]:
    """Return the positions of the params that a program without dead code reads."""
    read: set[Var] = set()
    _trim(program.body, read)
    return tuple(i for i, param in enumerate(program.params) if param.var in read)


def _trim(block: Block, live: set[Var]) -> Block:
    """Keep what the results need; ``live`` gains the variables that the block reads."""
    kept: list[Statement] = []
    _read(block.results, live)
    for statement in reversed(block.statements):
        is_read = not live.isdisjoint(written_vars(statement))
        if is_read or _adds_to(statement, live):
            kept.append(_trimmed_statement(statement, live))
    return Block(tuple(reversed(kept)), block.results)


def _adds_to(statement: Statement, live: set[Var]) -> bool:
    """Whether a statement changes an accumulator among outputs, or touches a live array."""
    if isinstance(statement, Update | Touch):
        return statement.array in live
    blocks = nested_blocks(statement)
    return any(_adds_to(s, live) for block in blocks for s in block.statements)


def _trimmed_statement(s: Statement, live: set[Var]) -> Statement:
    match s:
        case If():
            s = _trimmed_if(s, live)
        case While():
            s = _trimmed_while(s, live)
        case Load():
            live.add(s.array)
    _read(read_atoms(s), live)
    return s


def _trimmed_if(s: If, live: set[Var]) -> If:
    read = [i for i, out in enumerate(s.outs) if out in live]
    then, orelse = (
        _trim(Block(b.statements, tuple(b.results[i] for i in read)), live)
        for b in (s.then, s.orelse)
    )
    return replace(s, outs=tuple(s.outs[i] for i in read), then=then, orelse=orelse)


def _trimmed_while(s: While, live: set[Var]) -> While:
    """Keep the carries that the outputs, the test or other kept carries read."""
    kept = {i for i, out in enumerate(s.outs) if out in live}
    inside = walk_statements(s.body)
    accumulators = {s.array for s in inside if isinstance(s, Update | Touch)} & live
    while True:
        inner = set(accumulators)
        results = tuple(s.body.results[i] for i in sorted(kept))
        cond, body = _trim(s.cond, inner), _trim(Block(s.body.statements, results), inner)
        found = {i for i, carry in enumerate(s.carries) if carry in inner} | kept
        if found == kept:
            break
        kept = found
    live |= inner
    at = sorted(kept)
    outs, carries = (tuple(v[i] for i in at) for v in (s.outs, s.carries))
    names = tuple(s.names[i] for i in at) if s.names else ()
    inits = tuple(s.inits[i] for i in at)
    return replace(s, outs=outs, carries=carries, inits=inits, cond=cond, body=body, names=names)


def _read(atoms: Iterable[Atom], live: set[Var]) -> None:
    live.update(atom for atom in atoms if isinstance(atom, Var))
