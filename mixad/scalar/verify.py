"""The checker of programs: types, scope, single assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mixad.scalar.evaluate import constant
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
    Var,
    While,  # fmt: skip
    read_atoms,
    written_vars,
)
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import BOOL, ScalarType

__all__ = ["VerificationError", "result_type", "verify"]

_IN_DOMAIN: Mapping[str, Callable[[ScalarType], bool]] = {
    "float": lambda t: t.is_float,
    "integer": lambda t: t.is_integer,
    "number": lambda t: t.is_float or t.is_integer,
    "bool": lambda t: t.is_bool,
    "bits": lambda t: t.is_integer or t.is_bool,
    "any": lambda t: True,
}


class VerificationError(AssertionError):
    """A program that no correct pass produces."""


def result_type(
    name: str, types: tuple[ScalarType, ...], stated: ScalarType | None = None
) -> ScalarType:
    """Return the type of an op's result; VerificationError if it does not take such types.

    Conversions state theirs.
    """
    op = BY_NAME.get(name)
    if op is None:
        raise VerificationError(f"there is no op {name!r}")
    if len(types) != op.arity:
        raise VerificationError(f"{name} takes {op.arity} arguments, not {len(types)}")
    if name == "where":
        if types[0] != BOOL:
            raise VerificationError(f"the condition of where is {types[0]}, not bool")
        types = types[1:]
    if op.rule is not None:  # the value, and numbers of any type
        return types[0]
    if types.count(types[0]) != len(types):
        raise VerificationError(
            f"{name} takes arguments of one type, not {', '.join(map(str, types))}"
        )
    if not _IN_DOMAIN[op.domain](types[0]):
        raise VerificationError(f"{name} takes {op.domain} arguments, not {types[0]}")
    if op.result == "stated":
        return _stated_type(name, types[0], stated)
    return BOOL if op.result == "bool" else types[0]


def _stated_type(name: str, type: ScalarType, stated: ScalarType | None) -> ScalarType:
    """Return the type of a conversion of ``type``."""
    if stated is None:
        raise VerificationError(f"{name} needs the type of its result")
    if name == "bitcast" and stated.bits != type.bits:
        raise VerificationError(f"bitcast from {type} to {stated} changes the width")
    if name == "bitcast" and stated.is_bool:
        raise VerificationError("bitcast gives numbers, not bool")
    return stated


def verify(program: Program) -> Program:
    """Return a well-formed program unchanged; else raise VerificationError at the first statement.

    Such a statement reads a variable out of scope, assigns one again, has a constant that its type
    does not represent, or types that do not fit.
    """
    names = [p.var for p in (*program.params, *program.accumulators)]
    if len({v.id for v in names}) != len(names):
        raise VerificationError("two params share a variable")
    for param in (*program.params, *program.accumulators):
        if (param.kind in ("lane", "uniform")) != (param.array is None):
            raise VerificationError(
                f"param {param.name} of kind {param.kind} has array type {param.array}"
            )
    added = {a.var: a.array.rank for a in program.accumulators if a.array is not None}
    arrays = {p.var: p.array.rank for p in program.params if p.array is not None}
    arrays |= {a.var: added[a.var] for a in program.accumulators if a.kind == "write"}
    scalars = {p.var for p in program.params if p.array is None}
    _Checker(arrays, added, {v.id for v in names}).program(program.body, scalars)
    return program


class _Checker:
    """Walks a program once; ``assigned`` are the ids of all variables met so far.

    ``arrays`` and ``accumulators`` have the axes of each.
    """

    def __init__(
        self, arrays: dict[Var, int], accumulators: dict[Var, int], assigned: set[int]
    ) -> None:
        self.arrays = arrays
        self.accumulators = accumulators
        self.assigned = assigned

    def program(self, body: Block, visible: set[Var]) -> None:
        """Check a program's body, whose results may be accumulators."""
        kept = tuple(a for a in body.results if a not in self.accumulators)
        self.block(Block(body.statements, kept), visible)

    def block(self, block: Block, visible: set[Var]) -> tuple[ScalarType, ...]:
        visible = set(visible)
        for statement in block.statements:
            self.read(read_atoms(statement), visible)
            self.statement(statement, visible)
            self.assign(written_vars(statement), visible)
        self.read(block.results, visible)
        return tuple(a.type for a in block.results)

    def read(self, atoms: tuple[Atom, ...], visible: set[Var]) -> None:
        for atom in atoms:
            if isinstance(atom, Var) and atom not in visible:
                raise VerificationError(f"{atom}:{atom.type} is read where it is not visible")
            if isinstance(atom, Const) and atom != constant(atom.value, atom.type):
                raise VerificationError(f"{atom.value}:{atom.type} is no value of {atom.type}")

    def assign(self, variables: tuple[Var, ...], visible: set[Var]) -> None:
        for var in variables:
            if var.id in self.assigned:
                raise VerificationError(f"{var} is assigned twice")
            self.assigned.add(var.id)
            visible.add(var)

    def statement(self, s: Statement, visible: set[Var]) -> None:
        match s:
            case Equation():
                expected = result_type(s.op, tuple(a.type for a in s.args), s.out.type)
                _same((s.out.type,), (expected,), f"result of {s.op}")
            case If():
                _same((s.cond.type,), (BOOL,), "condition")
                outs = tuple(v.type for v in s.outs)
                _same(self.block(s.then, visible), outs, "then-results")
                _same(self.block(s.orelse, visible), outs, "else-results")
            case While():
                carries = tuple(v.type for v in s.carries)
                _same(tuple(a.type for a in s.inits), carries, "initial carries")
                _same(tuple(v.type for v in s.outs), carries, "loop outputs")
                inner = set(visible)
                self.assign(s.carries, inner)
                _same(self.block(s.cond, inner), (BOOL,), "loop test")
                _same(self.block(s.body, inner), carries, "next carries")
            case Load() | Update() | Touch():
                self.access(s)

    def access(self, s: Load | Update | Touch) -> None:
        is_load = not isinstance(s, Update)
        rank = (self.arrays if is_load else self.accumulators).get(s.array)
        if rank is None:
            what = "indexed but is no array param" if is_load else "changed but is no accumulator"
            raise VerificationError(f"{s.array} is {what}")
        if len(s.indices) != rank or not all(i.type.is_integer for i in s.indices):
            raise VerificationError(f"{s.array} takes {rank} integer indices")
        if not isinstance(s, Touch):
            element = s.out.type if isinstance(s, Load) else s.value.type
            _same((element,), (s.array.type,), "element")


def _same(got: tuple[ScalarType, ...], expected: tuple[ScalarType, ...], what: str) -> None:
    if got != expected:
        raise VerificationError(
            f"{what}: got ({', '.join(map(str, got))}), expected ({', '.join(map(str, expected))})"
        )
