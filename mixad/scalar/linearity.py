"""Which results of a program are linear in some of its params, as its ops say: all else is unknown.

Every variable is one of four: zero, fixed (it depends on none of the params), linear in them, or
unknown.  Nothing is computed, so rounding, overflow and infinite constants change no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mixad.scalar.ir import (
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
    written_vars,
)

__all__ = ["linear_results"]

_ZERO, _FIXED, _LINEAR, _UNKNOWN = range(4)


@lru_cache(maxsize=1024)
def linear_results(program: Program, moving: frozenset[int], zeros: frozenset[int]) -> list[bool]:
    """Return whether each result is linear in the ``moving`` params; False if that is not known.

    ``zeros`` are params that are zero in the call.
    """
    found = {
        param.var: _LINEAR if i in moving else _ZERO if i in zeros else _FIXED
        for i, param in enumerate(program.params)
    }
    _visit(program.body, found)
    return [_linearity_of(result, found) in (_ZERO, _LINEAR) for result in program.body.results]


def _linearity_of(atom: Atom, found: Mapping[Var, int]) -> int:
    if isinstance(atom, Const):
        return _FIXED if atom.value else _ZERO
    return found[atom]


def _visit(block: Block, found: dict[Var, int]) -> None:
    for statement in block.statements:
        found.update(zip(written_vars(statement), _outs(statement, found), strict=False))


def _outs(s: Statement, found: dict[Var, int]) -> list[int]:
    match s:
        case Equation():
            of = _equation(s, [_linearity_of(a, found) for a in s.args])
            return [of if s.out.type.is_float or of <= _FIXED else _UNKNOWN]
        case If():
            _visit(s.then, found)
            _visit(s.orelse, found)
            pairs = zip(s.then.results, s.orelse.results, strict=True)
            return [
                _select(
                    _linearity_of(s.cond, found), _linearity_of(a, found), _linearity_of(b, found)
                )
                for a, b in pairs
            ]
        case While():
            return _grow_carries(s, found)
        case Load():
            return [_element(found[s.array], [_linearity_of(i, found) for i in s.indices])]
    return [_UNKNOWN for _ in written_vars(s)]


def _equation(s: Equation, args: list[int]) -> int:
    if max(args) <= _FIXED:
        return _FIXED
    match s.op, args:
        case (("add" | "sub"), (a, b)):
            return _sum(a, b)
        case (("neg" | "convert"), (a,)):
            return a
        case (("mul" | "mul_zero" | "mul_zeros"), (a, b)):
            return _product(a, b)
        case (("div" | "ldexp"), (a, b)) if b <= _FIXED:
            return a
        case "fma", (a, b, c):
            return _sum(_product(a, b), c)
        case "where", (condition, a, b):
            return _select(condition, a, b)
    return _UNKNOWN


def _sum(a: int, b: int) -> int:
    """Return the kind of a sum, or of a choice of two: fixed terms do not go with linear ones."""
    return max(a, b) if {a, b} != {_FIXED, _LINEAR} else _UNKNOWN


def _product(*factors: int) -> int:
    moving = [factor for factor in factors if factor > _FIXED]
    return _UNKNOWN if len(moving) > 1 else moving[0] if moving else _FIXED


def _element(array: int, indices: list[int]) -> int:
    return max(array, _FIXED) if max(indices, default=_FIXED) <= _FIXED else _UNKNOWN


def _select(condition: int, a: int, b: int) -> int:
    return _sum(a, b) if condition <= _FIXED else _UNKNOWN


def _grow_carries(s: While, found: dict[Var, int]) -> list[int]:
    """Grow the carries until an iteration of the body changes none."""
    carried = [_linearity_of(a, found) for a in s.inits]
    while True:
        found.update(zip(s.carries, carried, strict=True))
        _visit(s.cond, found)
        _visit(s.body, found)
        iteration = zip(carried, s.body.results, strict=True)
        grown = [_sum(c, _linearity_of(a, found)) for c, a in iteration]
        if grown == carried:
            is_fixed = _linearity_of(s.cond.results[0], found) <= _FIXED
            return carried if is_fixed else [_UNKNOWN] * len(carried)
        carried = grown
