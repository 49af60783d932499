"""A program run at one element: what each equation computes, with its partials.

The pushforward (`mixad.scalar.pushforward`) writes the program on dual chunks; here a builder
computes each equation as it is written, so that values and partials are those of the same
derivative, and Python takes the branches and the iterations of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mixad.scalar.activity import activity
from mixad.scalar.build import Builder
from mixad.scalar.dual import DualChunk
from mixad.scalar.interpret import OutsideError, Scalar, as_argument, interpreter
from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    Equation,
    If,
    Line,
    Load,
    Param,
    Program,
    Statement,
    Var,
    While,
)
from mixad.scalar.narrow import round_to_type
from mixad.scalar.pushforward import DualTransform
from mixad.scalar.types import ScalarType

__all__ = ["Step", "run_duals"]


@dataclass(frozen=True)
class Step:
    """What a kernel computes at one element, at one place of its way.

    Attributes
    ----------
    line : Line
        The line of the function, or of one that it calls: ``number``, ``text``, ``filename``; what
        a function of mixad's computes has the user's line as ``line.users``.
    iterations : tuple of int
        The iteration of each loop around, outer ones first, counted from 1.
    text : str
        The equation, with variables as ``source`` numbers them.
    dual : DualChunk
        The value, ``primal``, and its ``partials`` by the names of inputs: NumPy scalars.  What is
        no float, or depends on no input, has none.
    """

    line: Line
    iterations: tuple[int, ...]
    text: str
    dual: DualChunk[Any]


def run_duals(
    program: Program, arguments: Sequence[Any], wrt: Sequence[int], first: Line
) -> tuple[list[Step], list[DualChunk[Any]]]:
    """Run a program for one element; return its steps, and the dual chunk of each output.

    ``arguments`` are those of `mixad.scalar.interpret`, ``wrt`` the params whose names are slots,
    ``first`` the line of equations without one.
    """
    builder = _ComputingBuilder(program.name)
    names = builder.declare(program)
    for param, argument in zip(program.params, arguments, strict=True):
        builder.values[names[param.var]] = as_argument(param, argument)
    active = activity(program, {index: (slot,) for slot, index in enumerate(wrt)})
    slots: dict[Hashable, str] = {k: program.params[i].name for k, i in enumerate(wrt)}
    transform = _Tracing(builder, active, program, slots, first)
    seeds = {program.params[index].var: slot for slot, index in enumerate(wrt)}
    for var, name in names.items():
        one: dict[Hashable, Atom] = (
            {seeds[var]: builder.const(1.0, var.type)} if var in seeds else {}
        )
        transform.duals[var] = DualChunk(name, one)
    try:
        with np.errstate(all="ignore"):
            returned = [transform.compute_dual(dual) for dual in transform.block(program.body)]
    except OutsideError as error:
        array = next(old for old, new in names.items() if new == error.load.array)
        load = replace(error.load, array=array)
        raise OutsideError(load, error.index, error.shape) from None
    types = [atom.type for atom in program.outputs]
    return transform.steps, list(map(_round_to_storage, returned, types))


def _round_to_storage(dual: DualChunk[Any], type: ScalarType) -> DualChunk[Any]:
    """Return an output as memory holds it: rounded if it has 16 bits."""
    if not type.is_narrow:
        return dual
    partials = {slot: round_to_type(partial, type)[()] for slot, partial in dual.partials.items()}
    return DualChunk(round_to_type(dual.primal, type)[()], partials)


class _ComputingBuilder(Builder):
    """Computes what it builds: of a branch the side that is taken, of a loop each iteration."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.values: dict[Atom, Any] = {}

    def value(self, atom: Atom) -> Scalar:
        """Return a number of the program as NumPy's."""
        if isinstance(atom, Const):
            return atom.type.arithmetic.dtype.type(atom.value)
        return self.values[atom]

    def op(self, name: str, *args: Atom, type: ScalarType | None = None) -> Atom:
        atom = super().op(name, *args, type=type)
        equation = self.definition(atom)
        if equation is not None and atom not in self.values:
            compute = _computing(equation.op, tuple([a.type for a in equation.args]), atom.type)
            self.values[atom] = compute(list(map(self.value, equation.args)))[0]
        return atom

    def if_(
        self,
        cond: Atom,
        then: Callable[[], Sequence[Atom]],
        orelse: Callable[[], Sequence[Atom]],
    ) -> tuple[Atom, ...]:
        results = then() if self.value(cond) else orelse()
        return tuple(results) if isinstance(cond, Const) else self.rename_results(results)

    def while_(
        self,
        inits: Sequence[Atom],
        cond: Callable[..., Atom],
        body: Callable[..., Sequence[Atom]],
        names: tuple[str, ...] = (),
        *,
        implicit: bool = False,
        is_short: bool = False,
    ) -> tuple[Atom, ...]:
        carries = self.rename_results(inits)
        while self.value(cond(*carries)):
            carries = self.rename_results(body(*carries))
        return carries

    def rename_results(self, atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        """Return new variables for a block's results, of which nothing is known, as usual."""
        found = tuple([self.fresh(atom.type) for atom in atoms])
        self.values.update(zip(found, list(map(self.value, atoms)), strict=True))
        return found

    def load(self, array: Var, *indices: Atom, is_inside: bool = False) -> Atom:
        found = super().load(array, *indices, is_inside=is_inside)
        elements, at = self.values[array], tuple(int(self.value(i)) for i in indices)
        if not all(-n <= i < n for i, n in zip(at, elements.shape, strict=True)):
            raise OutsideError(Load(array, array, indices, self.line), at, elements.shape)
        self.values[found] = elements[at]
        return found


@lru_cache(maxsize=1024)
def _computing(
    op: str, types: tuple[ScalarType, ...], type: ScalarType
) -> Callable[[Sequence[Any]], tuple[Scalar, ...]]:
    """Return the interpreter of one equation.

    Its output is float32 for types of 16 bits, since values are rounded to these only when stored.
    """
    args, out = tuple([Var(i, t) for i, t in enumerate(types)]), Var(len(types), type)
    statements, result = [Equation(out, op, args)], out
    if type.is_narrow:
        result = Var(out.id + 1, type.arithmetic)
        statements.append(Equation(result, "convert", (out,)))
    params = tuple([Param("", a) for a in args])
    return interpreter(Program(op, params, Block(tuple(statements), (result,))))


@dataclass
class _Loop:
    """A running loop, and its iterations so far."""

    statement: While
    iterations: int = 0

    @property
    def is_users(self) -> bool:
        line = self.statement.line
        return line is None or line.call is None


class _Tracing(DualTransform):
    """The pushforward, with a record of each statement's values."""

    def __init__(
        self,
        builder: _ComputingBuilder,
        active: Any,
        program: Program,
        slots: Mapping[Hashable, str],
        first: Line,
    ) -> None:
        super().__init__(builder, active, program)
        self.numbers = builder
        self.slot_names = slots
        self.spellings: dict[Var, str] = {p.var: p.name for p in program.params}
        self.line = first
        self.loops: list[_Loop] = []
        self.steps: list[Step] = []

    def compute_dual(self, dual: DualChunk[Atom]) -> DualChunk[Any]:
        """Return a dual chunk of atoms as one of numbers, its slots by name."""
        partials: dict[Hashable, Any] = {
            self.slot_names[slot]: self.numbers.value(a) for slot, a in dual.partials.items()
        }
        return DualChunk(self.numbers.value(dual.primal), partials)

    def block(self, block: Block) -> tuple[DualChunk[Atom], ...]:
        if self.loops and block is self.loops[-1].statement.cond:
            self.loops[-1].iterations += 1
            self.line = self.loops[-1].statement.line or self.line
            for carry in self.loops[-1].statement.carries:
                self.note(carry, self.atom_text(carry))
        return super().block(block)

    def statement(self, s: Statement) -> None:
        if isinstance(s, While):
            self.name_carries(s)
            self.loops.append(_Loop(s))
        super().statement(s)
        self.line = s.line or self.line
        match s:
            case Equation():
                args = ", ".join(map(self.atom_text, s.args))
                self.note(s.out, f"{s.out} = {s.op} {args}")
            case Load():
                at = ", ".join(map(self.atom_text, s.indices))
                self.note(s.out, f"{s.out} = {self.atom_text(s.array)}[{at}]")
            case If():
                taken = s.then if self.numbers.value(self.dual(s.cond).primal) else s.orelse
                for out, result in zip(s.outs, taken.results, strict=True):
                    self.note(out, f"{out} = {self.atom_text(result)}")
            case While():
                self.loops.pop()
                for out in s.outs:
                    self.note(out, f"{self.atom_text(out)} after the loop")

    def name_carries(self, s: While) -> None:
        for name, carry, out in zip(s.names, s.carries, s.outs, strict=False):
            if name:
                self.spellings[carry] = self.spellings[out] = name

    def atom_text(self, atom: Atom) -> str:
        return str(atom.value) if isinstance(atom, Const) else self.spellings.get(atom, str(atom))

    def note(self, var: Var, text: str) -> None:
        iterations = tuple([loop.iterations for loop in self.loops if loop.is_users])
        self.steps.append(Step(self.line, iterations, text, self.compute_dual(self.duals[var])))
