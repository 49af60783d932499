"""A program as runnable Python source, on NumPy scalars: what a failing test prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    Equation,
    If,
    Load,
    Program,
    Statement,
    Touch,
    Update,
    While,
)
from mixad.scalar.types import ScalarType
from mixad.scalar.updates import OPS

__all__ = ["as_python_source"]

_PRELUDE = """\
import numpy as np
from mixad.scalar.interpret import apply
from mixad.scalar.types import type_named


def op(name, type, *args):
    return apply(name, args, type_named(type))


@np.errstate(all="ignore")"""

_SPELLINGS: Mapping[str, str] = MappingProxyType({
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
    "lt": "{} < {}", "le": "{} <= {}", "gt": "{} > {}", "ge": "{} >= {}",
    "eq": "{} == {}", "ne": "{} != {}",
    "and": "{} & {}", "or": "{} | {}", "xor": "{} ^ {}", "not": "~{}",
    "where": "{1} if {0} else {2}",
})  # fmt: skip
"""Ops that Python's operators spell on NumPy scalars; the others go through `apply`."""


def as_python_source(program: Program, arguments: Sequence[Any] | None = None) -> str:
    """Return a program as Python source that can be pasted and run.

    Parameters
    ----------
    program : Program
        Any program.
    arguments : sequence, optional
        Scalars, one per param: then the source ends by printing the result for them.

    Returns
    -------
    str
        A function of the program's name, with what it imports.

    Examples
    --------
    >>> from mixad.scalar.build import Builder
    >>> from mixad.scalar.types import F32
    >>> b = Builder("double")
    >>> x = b.param("x", F32)
    >>> print(as_python_source(b.finish([b.op("add", x, x)])).partition("errstate")[2])
    (all="ignore")
    def program(v0):
        v1 = v0 + v0
        return (v1,)
    """
    params = ", ".join(f"v{p.var.id}" for p in (*program.params, *program.accumulators))
    lines = [f"{_PRELUDE}\ndef program({params}):"]
    lines += _indent(f"update{a.var.id} = {_update(a.kind)}" for a in program.accumulators)
    lines += _indent(_block(program.body))
    lines += _indent([f"return ({_join_atoms(program.outputs)},)"])
    if arguments is not None:
        given = zip((*program.params, *program.accumulators), arguments, strict=True)
        shown = ", ".join(_argument(p.var.type, p.array is not None, a) for p, a in given)
        lines += ["", "", f"print(program({shown}))"]
    return "\n".join(lines)


def _update(kind: str) -> str:
    return f"np.{OPS[kind]}" if kind in OPS else "lambda old, new: new"


def _argument(type: ScalarType, is_array: bool, argument: Any) -> str:
    if is_array:
        return f"np.array({argument.tolist()!r}, 'np.{type.dtype}')".replace("'np.", "'")
    return _literal(type.dtype.type(argument).item(), type)


def _literal(value: bool | int | float, type: ScalarType) -> str:
    name = "bool" if type.is_bool else str(type.dtype)
    shown = repr(value) if math.isfinite(value) else repr(str(value))
    return f"np.{name}({shown})"


def _atom_text(atom: Atom) -> str:
    return _literal(atom.value, atom.type) if isinstance(atom, Const) else f"v{atom.id}"


def _join_atoms(atoms: Iterable[Atom]) -> str:
    return ", ".join(map(_atom_text, atoms))


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _block(block: Block) -> list[str]:
    return [line for statement in block.statements for line in _statement(statement)]


def _ending(block: Block, targets: Sequence[Atom]) -> list[str]:
    """Spell a block that ends by assigning its results."""
    return _indent([*_block(block), *_assignment(targets, block.results)]) or ["    pass"]


def _assignment(targets: Sequence[Atom], values: Sequence[Atom]) -> list[str]:
    return [f"{_join_atoms(targets)} = {_join_atoms(values)}"] if targets else []


def _statement(s: Statement) -> list[str]:
    match s:
        case Equation():
            return [f"v{s.out.id} = {_equation(s)}"]
        case If():
            then, orelse = _ending(s.then, s.outs), _ending(s.orelse, s.outs)
            return [f"if {_atom_text(s.cond)}:", *then, "else:", *orelse]
        case While():
            return _loop(s)
        case Load():
            return [f"v{s.out.id} = v{s.array.id}[{_join_atoms(s.indices)}]"]
        case Update():
            element = f"v{s.array.id}[{_join_atoms(s.indices)}]"
            return [f"{element} = update{s.array.id}({element}, {_atom_text(s.value)})"]
        case Touch():
            return []


def _loop(s: While) -> list[str]:
    test = [*_block(s.cond), f"if not {_atom_text(s.cond.results[0])}:", "    break"]
    iteration = [*test, *_block(s.body), *_assignment(s.carries, s.body.results)]
    begin = _assignment(s.carries, s.inits)
    return [*begin, "while True:", *_indent(iteration), *_assignment(s.outs, s.carries)]


def _equation(s: Equation) -> str:
    args = [_atom_text(a) for a in s.args]
    spelling = _SPELLINGS.get(s.op)
    if spelling is not None:
        return spelling.format(*args)
    return f"op({', '.join([repr(s.op), repr(s.out.type.name), *args])})"
