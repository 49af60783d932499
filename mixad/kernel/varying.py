"""Which variables can differ between the elements of a gang, given which params do."""

from __future__ import annotations

from collections.abc import Iterable

from mixad.scalar.ir import Atom, Block, Equation, If, Load, Program, Statement, Var, While

__all__ = ["varying_vars"]


def varying_vars(program: Program, params: Iterable[int]) -> frozenset[Var]:
    """Return the variables whose value can differ from lane to lane, as some ``params`` do.

    A value is uniform if all that it is computed from is, conditions included. All carries of a
    loop vary if its test does, since lanes leave it one by one.
    """
    found = {program.params[i].var for i in params}
    _block(program.body, found)
    return frozenset(found)


def _varies(atom: Atom, found: set[Var]) -> bool:
    return isinstance(atom, Var) and atom in found


def _block(block: Block, found: set[Var]) -> None:
    for statement in block.statements:
        _statement(statement, found)


def _statement(s: Statement, found: set[Var]) -> None:
    match s:
        case Equation():
            if any(_varies(a, found) for a in s.args):
                found.add(s.out)
        case Load():
            if any(_varies(a, found) for a in s.indices):
                found.add(s.out)
        case If():
            _block(s.then, found)
            _block(s.orelse, found)
            for out, a, b in zip(s.outs, s.then.results, s.orelse.results, strict=True):
                if _varies(s.cond, found) or _varies(a, found) or _varies(b, found):
                    found.add(out)
        case While():
            _loop(s, found)


def _loop(s: While, found: set[Var]) -> None:
    """Grow the varying carries until an iteration of the body adds none."""
    varying = [_varies(a, found) for a in s.inits]
    while True:
        found.update(v for v, does in zip(s.carries, varying, strict=True) if does)
        _block(s.cond, found)
        _block(s.body, found)
        leaves_apart = _varies(s.cond.results[0], found)
        grown = [
            does or leaves_apart or _varies(a, found)
            for does, a in zip(varying, s.body.results, strict=True)
        ]
        if grown == varying:
            break
        varying = grown
    found.update(v for v, does in zip(s.outs, varying, strict=True) if does)
