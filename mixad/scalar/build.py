"""The builder of programs.

It simplifies while it builds: equal pure equations become one, and the identities of
`mixad.scalar.identities` are applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mixad.scalar.evaluate import constant
from mixad.scalar.identities import find_simpler
from mixad.scalar.ir import (
    ArrayType,
    Atom,
    Block,
    Const,
    Equation,
    If,
    Kind,
    Line,
    Load,
    Param,
    Program,  # fmt: skip
    Statement,
    Touch,
    Update,
    UpdateKind,
    Var,
    While,
)
from mixad.scalar.types import ScalarType, integer_bounds
from mixad.scalar.verify import VerificationError, result_type

__all__ = ["Builder", "Draft", "as_array"]

_COMMUTATIVE = frozenset({"add", "mul", "and", "or", "xor", "eq", "ne"})


@dataclass(slots=True, eq=False)
class Draft:
    """A nested block that is still being written, and the values known inside it."""

    statements: list[Statement] = field(default_factory=list)
    known: dict[int, Atom] = field(default_factory=dict)

    def block(self, results: Sequence[Atom]) -> Block:
        """Return the finished block."""
        return Block(tuple(self.statements), tuple(results))


class Builder:
    """Builds one program, statement by statement.

    >>> from mixad.scalar.types import F64
    >>> b = Builder("square_plus_one")
    >>> x = b.param("x", F64)
    >>> print(b.finish([b.op("add", b.op("mul", x, x), b.const(1.0, F64))]))
    program square_plus_one(%0 x: f64 lane)
      %1:f64 = mul %0, %0
      %2:f64 = add %1, 1:f64
      return %2
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.line: Line | None = None
        self._params: list[Param] = []
        self._accumulators: list[Param] = []
        self._next_id = 0
        self._blocks: list[list[Statement]] = [[]]
        self._known: list[dict[int, Atom]] = [{}]
        self._numbers: dict[object, int] = {}
        self._definitions: dict[int, Equation] = {}

    # -- atoms -----------------------------------------------------------------------------------

    def fresh(self, type: ScalarType) -> Var:
        """Return a variable that nothing else in the program uses."""
        self._next_id += 1
        return Var(self._next_id - 1, type)

    def param(self, name: str, type: ScalarType, kind: Kind = "lane") -> Var:
        """Add a scalar parameter and return its variable."""
        self._params.append(Param(name, self.fresh(type), kind))
        return self._params[-1].var

    def array_param(self, name: str, array: ArrayType) -> Var:
        """Add an array parameter, which programs index with `load`, and return its variable."""
        self._params.append(Param(name, self.fresh(array.element), "array", array))
        return self._params[-1].var

    def copy_params(self, params: Sequence[Param]) -> dict[Var, Var]:
        """Add parameters like those of another program; return the new variable of each old one."""
        copies = [Param(p.name, self.fresh(p.var.type), p.kind, p.array) for p in params]
        self._params += copies
        return {p.var: copy.var for p, copy in zip(params, copies, strict=True)}

    def accumulator(self, name: str, array: ArrayType, update: UpdateKind = "add") -> Var:
        """Add an array that `update` changes, and return its variable."""
        self._accumulators.append(Param(name, self.fresh(array.element), update, array))
        return self._accumulators[-1].var

    def copy_accumulators(self, accumulators: Sequence[Param]) -> dict[Var, Var]:
        """Add accumulators like those of another program; return the new variable of each."""
        copies = [Param(a.name, self.fresh(a.var.type), a.kind, a.array) for a in accumulators]
        self._accumulators += copies
        return {a.var: copy.var for a, copy in zip(accumulators, copies, strict=True)}

    def declare(self, program: Program) -> dict[Var, Atom]:
        """Add params and accumulators like a program's; return the new ones by its variables."""
        return {**self.copy_params(program.params), **self.copy_accumulators(program.accumulators)}

    def const(self, value: bool | int | float, type: ScalarType) -> Const:
        """Return a constant, rounded (or wrapped) to its type."""
        return constant(value, type)

    # -- statements ------------------------------------------------------------------------------

    def op(self, name: str, *args: Atom, type: ScalarType | None = None) -> Atom:
        """Add an equation and return its value, or an equal value that the program has already.

        Conversions state their type.
        """
        out_type = result_type(name, tuple([a.type for a in args]), type)
        simpler = find_simpler(self, name, args, out_type)
        if simpler is not None:
            return simpler
        ordered = sorted(args, key=_order) if name in _COMMUTATIVE else args
        number = self.number((name, out_type.name, *ordered))
        found = self.known_value(number)
        if found is not None:
            return found
        equation = Equation(self.fresh(out_type), name, args, self.line)
        self._append(equation)
        self._definitions[equation.out.id] = equation
        self._known[-1][number] = equation.out
        return equation.out

    def number(self, spelling: object) -> int:
        """Return a number for a computed value, equal for equal spellings; each is hashed once."""
        return self._numbers.setdefault(spelling, len(self._numbers))

    def known_value(self, number: int) -> Atom | None:
        """Return the value that has a number, in this block or one around it."""
        for known in reversed(self._known):
            found = known.get(number)
            if found is not None:
                return found
        return None

    def convert(self, atom: Atom, type: ScalarType) -> Atom:
        """Return ``atom`` as a value of another type."""
        return atom if atom.type == type else self.op("convert", atom, type=type)

    def cast(self, atom: Atom, type: ScalarType) -> Atom:
        """Return ``atom`` in the type of an array's elements, rounded if that is narrow."""
        return atom if atom.type == type else self.round_to_storage(self.convert(atom, type))

    def round_to_storage(self, atom: Atom) -> Atom:
        """Round a value of a narrow type to what memory holds; others are unchanged."""
        return self.op("convert", atom, type=atom.type) if atom.type.is_narrow else atom

    def literal(self, const: Const) -> Const:
        """Return the constant of another program in this one."""
        return const

    def definition(self, atom: Atom) -> Equation | None:
        """Return the equation that computes an atom; None if no equation of this program does."""
        return self._definitions.get(atom.id) if isinstance(atom, Var) else None

    def bounds(self, atom: Atom) -> tuple[int, int]:
        """Return the least and the largest value that an integer can have, as far as known."""
        if isinstance(atom, Const):
            return int(atom.value), int(atom.value)
        own, found = integer_bounds(atom.type), self.definition(atom)
        match found:
            case Equation(op="convert", args=(source,)) if not source.type.is_float:
                before = self.bounds(source)
                return before if own[0] <= before[0] and before[1] <= own[1] else own
            case Equation(op="mod", args=(_, Const(value=divisor))) if divisor > 0:
                return 0, int(divisor) - 1
            case Equation(op="and", args=(_, Const(value=mask))) if mask >= 0:
                return 0, int(mask)
        return own

    def if_(
        self,
        cond: Atom,
        then: Callable[[], Sequence[Atom]],
        orelse: Callable[[], Sequence[Atom]],
    ) -> tuple[Atom, ...]:
        """Add an ``If`` whose blocks are built by two callables, and return its results.

        A constant condition builds only the block that runs.
        """
        if isinstance(cond, Const):
            return tuple(then() if cond.value else orelse())
        line = self.line
        return self.add_if(cond, self.block(then), self.block(orelse), line)

    def add_if(self, cond: Atom, then: Block, orelse: Block, line: Line | None) -> tuple[Atom, ...]:
        """Add an ``If`` of two finished blocks, return its results; selects if both are empty."""
        if not then.statements and not orelse.statements:
            return tuple(
                self.op("where", cond, a, b)
                for a, b in zip(then.results, orelse.results, strict=True)
            )
        outs = tuple(self.fresh(a.type) for a in then.results)
        self._append(If(outs, cond, then, orelse, line))
        return outs

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
        """Add a ``While``; ``cond`` and ``body`` are called with the carries' variables."""
        line = self.line
        carries = tuple(self.fresh(a.type) for a in inits)
        test = self.block(lambda: (cond(*carries),))
        iteration = self.block(lambda: body(*carries))
        return self.add_while(
            carries, inits, test, iteration, line, names, implicit=implicit, is_short=is_short
        )

    def add_while(
        self,
        carries: Sequence[Var],
        inits: Sequence[Atom],
        cond: Block,
        body: Block,
        line: Line | None,
        names: tuple[str, ...],
        *,
        implicit: bool,
        is_short: bool = False,
    ) -> tuple[Var, ...]:
        """Add a ``While`` of two finished blocks over ``carries``, and return its results."""
        outs = tuple(self.fresh(a.type) for a in inits)
        self._append(
            While(outs, tuple(carries), tuple(inits), cond, body, line, names, implicit, is_short)
        )
        return outs

    def load(self, array: Var, *indices: Atom, is_inside: bool = False) -> Atom:
        """Read an element of an array, or return what an earlier read of a param's element gave."""
        number = self.number(("load", array, *indices))
        found = (
            None if any(a.var == array for a in self._accumulators) else self.known_value(number)
        )
        if found is None:
            found = self._known[-1][number] = self.fresh(array.type)
            self._append(Load(found, array, indices, self.line, is_inside))
        return found

    def update(self, array: Var, *indices: Atom, value: Atom, is_inside: bool = False) -> None:
        """Change an element of an accumulator by ``value``: see `UpdateKind`."""
        self._append(Update(array, indices, value, self.line, is_inside))

    def touch(self, array: Var, *indices: Atom) -> None:
        """Declare that an element of an array will be read or written soon."""
        self._append(Touch(array, indices, self.line))

    def block(self, build: Callable[[], Sequence[Atom]]) -> Block:
        """Build a nested block; its values are known only inside it."""
        self._blocks.append([])
        self._known.append({})
        try:
            results = tuple(build())
            return Block(tuple(self._blocks[-1]), results)
        finally:
            self._blocks.pop()
            self._known.pop()

    @contextmanager
    def writing(self, draft: Draft) -> Iterator[None]:
        """Add statements to a draft; it can be left and entered again until its block is taken."""
        self._blocks.append(draft.statements)
        self._known.append(draft.known)
        try:
            yield
        finally:
            self._blocks.pop()
            self._known.pop()

    def adopt(self, draft: Draft) -> None:
        """Add the statements of a draft to the present block."""
        self._blocks[-1] += draft.statements
        self._known[-1].update(draft.known)

    def inline(self, program: Program, args: Sequence[Atom]) -> tuple[Atom, ...]:
        """Add the statements of another program with ``args`` for params; return its outputs."""
        names: dict[Var, Atom] = {p.var: a for p, a in zip(program.params, args, strict=True)}
        return self.copy(program.body, names)

    def copy(
        self,
        block: Block,
        names: dict[Var, Atom],
        equation: Callable[[Equation, tuple[Atom, ...]], Atom] | None = None,
    ) -> tuple[Atom, ...]:
        """Add a block's statements with variables replaced by ``names``; return its results.

        ``names`` gains the variables of the block.  ``equation``, if given, builds each equation
        (from the old one and its new arguments) in place of copying it.
        """
        return _Copier(self, names, equation).block(block)

    def finish(self, results: Sequence[Atom]) -> Program:
        """Return the program with these outputs."""
        if len(self._blocks) != 1:
            raise VerificationError("a program is finished while a nested block is open")
        body = Block(tuple(self._blocks[0]), tuple(results))
        return Program(self.name, tuple(self._params), body, tuple(self._accumulators))

    # -- internals -------------------------------------------------------------------------------

    def _append(self, statement: Statement) -> None:
        self._blocks[-1].append(statement)


def _order(atom: Atom) -> tuple[object, ...]:
    return (0, atom.id, "") if isinstance(atom, Var) else (1, 0, str(atom))


@dataclass(frozen=True, slots=True)
class _Copier:
    """Adds the statements of blocks to a program, with the variables that have ``names`` replaced.

    Every copied statement adds the names of its own variables.
    """

    to: Builder
    names: dict[Var, Atom]
    equation: Callable[[Equation, tuple[Atom, ...]], Atom] | None

    def block(self, block: Block) -> tuple[Atom, ...]:
        for s in block.statements:
            self.to.line = s.line or self.to.line
            self._statement(s)
        return self._values(block.results)

    def _statement(self, s: Statement) -> None:
        match s:
            case Equation():
                self.names[s.out] = self._equation(s, self._values(s.args))
            case If():
                self._name(s.outs, self._if(s))
            case While():
                self._name(s.outs, self._while(s))
            case Load():
                array = _as_var(self._value(s.array))
                indices = self._values(s.indices)
                self.names[s.out] = self.to.load(array, *indices, is_inside=s.is_inside)
            case Update():
                array, value = _as_var(self._value(s.array)), self._value(s.value)
                indices = self._values(s.indices)
                self.to.update(array, *indices, value=value, is_inside=s.is_inside)
            case Touch():
                self.to.touch(_as_var(self._value(s.array)), *self._values(s.indices))

    def _equation(self, s: Equation, args: tuple[Atom, ...]) -> Atom:
        return self.equation(s, args) if self.equation else self.to.op(s.op, *args, type=s.out.type)

    def _if(self, s: If) -> tuple[Atom, ...]:
        return self.to.if_(
            self._value(s.cond), lambda: self.block(s.then), lambda: self.block(s.orelse)
        )

    def _while(self, s: While) -> tuple[Atom, ...]:
        def cond(*carries: Var) -> Atom:
            self._name(s.carries, carries)
            return self.block(s.cond)[0]

        return self.to.while_(
            self._values(s.inits),
            cond,
            lambda *_: self.block(s.body),
            s.names,
            implicit=s.implicit,
            is_short=s.is_short,
        )

    def _name(self, old: Sequence[Var], new: Sequence[Atom]) -> None:
        self.names.update(zip(old, new, strict=True))

    def _value(self, atom: Atom) -> Atom:
        return self.names[atom] if isinstance(atom, Var) else self.to.literal(atom)

    def _values(self, atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        return tuple(map(self._value, atoms))


def as_array(param: Param) -> ArrayType:
    """Return the type of an array param or an accumulator."""
    assert param.array is not None, param
    return param.array


def _as_var(atom: Atom) -> Var:
    if not isinstance(atom, Var):
        raise VerificationError(f"{atom} is indexed but is no array param")
    return atom
