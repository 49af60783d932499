"""Partials by reverse accumulation: from each output one walk back, whatever the number of inputs.

A walk starts at an output with ∂output/∂output = 1 and goes through the statements from the last
to the first, multiplying by the local partials of the op table and adding where paths meet.  All
of it stays in variables of the program.  An ``If`` is an op with several results: the partials of
these with respect to what its blocks read are computed inside the blocks, by the same walks.  Loops
have no reverse here: they keep dual numbers.

What is infinite or chosen away is treated as dual numbers treat it, so that a gradient is nowhere
nan where theirs is not, but for intermediate results that overflow:

- A variable's adjoint is *infinite* where it may have come through an op that is singular.  Then a
  local partial that is zero gives zero.  Where an input reaches the variable along several paths,
  these may cancel, and ∞ − ∞ is nan: so the adjoint goes no further, but is multiplied by the
  variable's own partials, which a walk of their own has added up while everything was finite.
- It is *selected* where another branch may have been chosen.  Then it is zero, and stays so
  whatever the local partials of what was not chosen are.

Griewank, Walther: "Evaluating Derivatives" (2008), chapters 3 and 9 (preaccumulation).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import NamedTuple, TypeAlias

from mixad.errors import KernelGradientError
from mixad.scalar.activity import SINGULAR, Activity, active_arguments, activity
from mixad.scalar.build import Builder, Draft
from mixad.scalar.expression import emit
from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    Equation,
    If,
    Line,
    Load,
    Program,
    Statement,
    Update,
    Var,
    While,
    walk_statements,
)
from mixad.scalar.ops import BY_NAME, Op
from mixad.scalar.pushforward import is_whole_term, no_derivative
from mixad.scalar.rules import own_partials
from mixad.scalar.types import F32, ScalarType

__all__ = ["active_loop", "adjoint_block", "adjoint_block_from", "is_zero"]


class _Reach(NamedTuple):
    """The inputs of a program that reach a variable along one path, and along several."""

    once: frozenset[Var] = frozenset()
    often: frozenset[Var] = frozenset()


_NOTHING = _Reach()


@dataclass(frozen=True, slots=True)
class _Partial:
    """A partial derivative: of a target with respect to a variable, or of one op."""

    atom: Atom
    infinite: bool = False  # whether it may be, at a point of the domain
    selected: bool = False  # whether it may be zero because another was chosen


_Row: TypeAlias = Mapping[Var, _Partial]
"""Variable → partial with respect to it; a missing one is statically zero."""


@dataclass(frozen=True, slots=True)
class _Factor:
    """How an adjoint goes from a result to a ``source``: times a partial."""

    source: Var
    partial: _Partial

    def pull(self, builder: Builder, adjoint: _Partial) -> _Partial:
        return _product(builder, adjoint, self.partial, self.source.type)


@dataclass(frozen=True, slots=True)
class _Choice:
    """How an adjoint goes from a result to a ``source``, through an op that selects.

    What is linear in one number is its own transpose: the adjoint takes the place of the tangents
    ``along``, those of the source, in the expression of the op's tangent; others are zero.
    """

    source: Var
    tangent: str
    names: Mapping[str, Atom]
    along: frozenset[str]

    def pull(self, builder: Builder, adjoint: _Partial) -> _Partial:
        type = _wider(adjoint.atom.type, self.source.type)
        moving, zero = builder.convert(adjoint.atom, type), builder.const(0.0, type)
        names = {
            n: builder.convert(a, type) if a.type.is_float else a for n, a in self.names.items()
        }
        names |= {f"d{n}": moving if n in self.along else zero for n in "xyz"}
        return _Partial(emit(builder, self.tangent, names, type), adjoint.infinite, selected=True)


_Edge: TypeAlias = _Factor | _Choice


def active_loop(program: Program, wrt: Sequence[int]) -> While | None:
    """Return the first loop whose results, or additions to arrays, have partials; None if none."""
    active = _activity(program, wrt)
    loops = (s for s in walk_statements(program.body) if isinstance(s, While))
    adding = (s for s in loops if any(isinstance(t, Update) for t in walk_statements(s.body)))
    return _loop(program, active) or next(adding, None)


def _activity(program: Program, wrt: Sequence[int]) -> Activity:
    return activity(program, {index: (slot,) for slot, index in enumerate(wrt)})


def _loop(program: Program, active: Activity) -> While | None:
    loops = (s for s in walk_statements(program.body) if isinstance(s, While))
    return next((s for s in loops if any(out in active for out in s.outs)), None)


def adjoint_block(
    builder: Builder, program: Program, wrt: Sequence[int], outputs: Iterable[int]
) -> tuple[tuple[Atom, ...], dict[int, dict[int, Atom]]]:
    """Declare a program's params in a builder, add its statements and those of partials.

    Return outputs, and by output its partials by position in ``wrt``, of the wider type, if not
    zero. KernelGradientError, with the line, for a loop with partials and a derivative without a
    rule.
    """
    inputs = [program.params[index].var for index in wrt]
    _check_inputs(program, wrt)
    return adjoint_block_from(builder, program, builder.declare(program), inputs, outputs)


def adjoint_block_from(
    builder: Builder,
    program: Program,
    names: dict[Var, Atom],
    inputs: Sequence[Var],
    outputs: Iterable[int],
) -> tuple[tuple[Atom, ...], dict[int, dict[int, Atom]]]:
    """Add a program's statements and those of partials; params have ``names``, which grow.

    ``inputs`` are params, and variables that reads of arrays assign, in any block.
    """
    slots = {var: frozenset({slot}) for slot, var in enumerate(inputs)}
    active = activity(program, {}, slots)
    loop = _loop(program, active)
    if loop is not None:
        raise _has_loop(program, loop.line)
    walks = _Walks(builder, names, active)
    walks.reach.update({var: _Reach(frozenset({var})) for var in inputs})
    primals = walks.block(program.body)
    places = {var: slot for slot, var in enumerate(inputs)}
    rows = {m: walks.row(program.outputs[m]) for m in outputs}
    return primals, {m: {places[v]: p.atom for v, p in row.items()} for m, row in rows.items()}


def _check_inputs(program: Program, wrt: Sequence[int]) -> None:
    """Raise if a param is no float, or an array, which has no partial."""
    _activity(program, wrt)
    arrays = [program.params[index].name for index in wrt if program.params[index].array]
    if arrays:
        raise ValueError(f"an array has no partial: {arrays[0]!r}")


@dataclass(frozen=True, slots=True)
class _Side:
    """One branch: its statements and results, and by pairs of variables the partials in it.

    They are of results and of ``joints``, with respect to variables outside.
    """

    draft: Draft
    results: Sequence[Atom]
    partials: Mapping[tuple[Var, Var], _Partial]
    joints: tuple[Var, ...]


class _Walks:
    """One block: its copied statements, and the ways back through them.

    Variables are the old program's; ``names`` has those of the new, for all blocks. ``active`` is
    the activity of the whole program, ``around`` the surrounding block. A *joint* is a variable
    that an input of the program reaches along several paths.
    """

    def __init__(
        self,
        builder: Builder,
        names: dict[Var, Atom],
        active: Activity,
        around: _Walks | None = None,
    ) -> None:
        self.builder = builder
        self.names = names
        self.active = active
        self.around = around
        self.reach: dict[Var, _Reach] = dict(around.reach) if around else {}
        """By variable that has partials, the inputs of the program that it depends on."""
        self.edges: dict[Var, Sequence[_Edge]] = {}
        """By result, in the order of the block."""
        self.rows: dict[Var, _Row] = {}
        """By joint that no infinite adjoint goes through, its partials."""

    def block(self, block: Block) -> tuple[Atom, ...]:
        for statement in block.statements:
            self.builder.line = statement.line or self.builder.line
            self.statement(statement)
        return tuple(map(self.value, block.results))

    def value(self, atom: Atom) -> Atom:
        return self.names[atom] if isinstance(atom, Var) else atom

    def is_active(self, atom: Atom) -> bool:
        return isinstance(atom, Var) and atom in self.reach

    def is_joint(self, var: Var) -> bool:
        return bool(self.reach.get(var, _NOTHING).often)

    def statement(self, s: Statement) -> None:
        match s:
            case Equation():
                args = tuple(map(self.value, s.args))
                self.names[s.out] = self.builder.op(s.op, *args, type=s.out.type)
                if s.out.type.is_float:
                    self.connect(s.out, self.equation(s))
            case If():
                self.branch(s)
            case While() | Load() | Update():
                self.builder.copy(Block((s,), ()), self.names)

    def connect(self, out: Var, edges: Sequence[_Edge]) -> None:
        """Record the ways back from a result."""
        if not edges:
            return
        self.edges[out] = edges
        self.reach[out] = _join_reach([self.reach.get(e.source, _NOTHING) for e in edges])
        if self.around is None:
            for edge in edges:
                source = edge.source
                if _may_be_infinite(edge) and self.is_joint(source) and source not in self.rows:
                    self.rows[source] = self.row(source)

    # -- edges -----------------------------------------------------------------------------------

    def equation(self, s: Equation) -> list[_Edge]:
        """Return the ways back through an equation, one for each variable that it reads."""
        op = BY_NAME[s.op]
        places: dict[Var, list[int]] = {}
        for i in active_arguments[s.op]:
            arg = s.args[i]
            if isinstance(arg, Var) and self.is_active(arg):
                places.setdefault(arg, []).append(i)
        names = dict(zip("xyz", map(self.value, s.args), strict=False))
        names["out"] = self.names[s.out]
        if places:
            values = tuple(map(self.value, s.args))
            names |= own_partials(op, self.builder, values, names["out"])
        return [self.way(s, op, source, at, names) for source, at in places.items()]

    def way(
        self, s: Equation, op: Op, source: Var, places: Sequence[int], names: Mapping[str, Atom]
    ) -> _Edge:
        """Return the way back to a variable that is an op's argument at some places."""
        if op.tangent is not None:
            return _Choice(source, op.tangent, names, frozenset("xyz"[i] for i in places))
        locals = (self.local(s, op, i, names) for i in places)
        total = reduce(lambda a, b: self.builder.op("add", a, b), locals)
        is_strong = any(is_whole_term(op, i) for i in places)
        is_infinite = (op.singular or is_strong) and not isinstance(total, Const)
        return _Factor(source, _Partial(total, is_infinite, selected=is_strong))

    def local(self, s: Equation, op: Op, i: int, names: Mapping[str, Atom]) -> Atom:
        """Return ∂out/∂argᵢ."""
        partial = op.partials[i]
        if partial is None:
            raise no_derivative(s, op, i)
        if partial == "convert(1)":
            return self.builder.const(1.0, s.out.type)
        ones = dict.fromkeys(("dx", "dy", "dz"), self.builder.const(1.0, s.out.type))
        return emit(self.builder, partial, {**names, **ones}, s.out.type)

    # -- conditions ------------------------------------------------------------------------------

    def branch(self, s: If) -> None:
        cond = self.value(s.cond)
        if isinstance(cond, Const):
            self.inline(s.outs, s.then if cond.value else s.orelse)
            return
        line, sides = self.builder.line, (self.side(s.then, s.outs), self.side(s.orelse, s.outs))
        pairs = list(dict.fromkeys(chain(*(side.partials for side in sides))))
        partials = {
            pair: _merge_sides([side.partials.get(pair) for side in sides]) for pair in pairs
        }
        stored = [pair for pair in pairs if not isinstance(partials[pair].atom, Const)]
        types = [partials[pair].atom.type for pair in stored]
        then, orelse = (self.finish_block(side, stored, types) for side in sides)
        outs = self.builder.add_if(cond, then, orelse, line)
        self.names.update(zip(s.outs, outs, strict=False))
        for pair, atom in zip(stored, outs[len(s.outs) :], strict=True):
            partials[pair] = replace(partials[pair], atom=atom)
        for out in (*chain(*(side.joints for side in sides)), *s.outs):
            self.connect(out, [_Factor(v, p) for (of, v), p in partials.items() if of == out])

    def side(self, block: Block, outs: Sequence[Var]) -> _Side:
        """Write a block, with the partials of its results with respect to outer variables."""
        draft, walks = Draft(), _Walks(self.builder, self.names, self.active, self)
        with self.builder.writing(draft):
            results = walks.block(block)
            rows = {out: walks.row(atom) for out, atom in zip(outs, block.results, strict=True)}
            joints = walks.joints(rows.values())
        rows = joints | {out: walks.reaching(row, joints) for out, row in rows.items()}
        partials = {(of, v): p for of, row in rows.items() for v, p in row.items()}
        return _Side(draft, results, partials, tuple(joints))

    def finish_block(
        self, side: _Side, pairs: Iterable[tuple[Var, Var]], types: Iterable[ScalarType]
    ) -> Block:
        """Return a block whose results end in partials of some types, missing ones as zeros."""
        results = list(side.results)
        with self.builder.writing(side.draft):
            for pair, type in zip(pairs, types, strict=True):
                found = side.partials.get(pair)
                atom = self.builder.const(0.0, type) if found is None else found.atom
                results.append(self.builder.convert(atom, type))
        return side.draft.block(results)

    def joints(self, rows: Iterable[_Row]) -> dict[Var, _Row]:
        """Return the partials of the joints at which walks have stopped, in the block's order.

        A joint without active variables around the block is left out: its adjoint goes nowhere.
        """
        found: dict[Var, _Row] = {}
        needed = set(chain(*rows))
        for var in reversed(self.edges):
            if var in needed:
                found[var] = self.row(var)
                needed.update(found[var])
        joints: dict[Var, _Row] = {}
        for var, row in reversed(found.items()):
            if kept := self.reaching(row, joints):
                joints[var] = kept
        return joints

    def reaching(self, row: _Row, joints: Mapping[Var, _Row]) -> _Row:
        """Return partials without those of this block's variables that go nowhere."""
        return {v: p for v, p in row.items() if v not in self.edges or v in joints}

    def inline(self, outs: Sequence[Var], block: Block) -> None:
        """Add the statements of the block that runs."""
        values = self.block(block)
        for out, result, value in zip(outs, block.results, values, strict=True):
            self.names[out] = value
            if isinstance(result, Var) and self.is_active(result):
                one = _Partial(self.builder.const(1.0, out.type))
                self.connect(out, [_Factor(result, one)])

    # -- walks -----------------------------------------------------------------------------------

    def row(self, target: Atom) -> _Row:
        """Return the partials of a value of this block with respect to variables around it.

        Those of a nested block may be with respect to joints, too.
        """
        if not (isinstance(target, Var) and self.is_active(target)):
            return {}
        if target in self.rows:
            return self.rows[target]
        adjoints = {target: _Partial(self.builder.const(1.0, target.type))}
        for var in reversed(self.edges):
            if var in adjoints and (var == target or not self.stops(var, adjoints[var])):
                for source, partial in self.pull(var, adjoints.pop(var)):
                    self.add(adjoints, source, partial)
        return adjoints

    def stops(self, var: Var, adjoint: _Partial) -> bool:
        """Whether a walk ends at a joint, to go on in the surrounding block."""
        return self.around is not None and adjoint.infinite and self.is_joint(var)

    def pull(self, var: Var, adjoint: _Partial) -> Iterable[tuple[Var, _Partial]]:
        """Return what the adjoint of a variable adds to others."""
        if SINGULAR in self.active[var]:  # dual numbers have a strong zero from here on
            adjoint = replace(adjoint, selected=True)
        row = self.rows.get(var) if adjoint.infinite else None
        if row is not None:
            for source, partial in row.items():
                yield source, _product(self.builder, adjoint, partial, source.type)
            return
        for edge in self.edges[var]:
            yield edge.source, edge.pull(self.builder, adjoint)

    def add(self, adjoints: dict[Var, _Partial], var: Var, partial: _Partial) -> None:
        """Add to the adjoint of a variable."""
        if is_zero(partial.atom):
            return
        before = adjoints.get(var)
        if before is not None:
            type = _wider(before.atom.type, partial.atom.type)
            terms = (self.builder.convert(p.atom, type) for p in (before, partial))
            partial = _Partial(
                self.builder.op("add", *terms),
                before.infinite or partial.infinite,
                before.selected or partial.selected,
            )
        adjoints[var] = partial


def _join_reach(sources: Sequence[_Reach]) -> _Reach:
    """Return the reach of a variable that is made of others."""
    paths = Counter(v for source in sources for v in source.once)
    often = {v for v, count in paths.items() if count > 1}.union(*(s.often for s in sources))
    return _Reach(frozenset(paths) - often, frozenset(often))


def _product(builder: Builder, adjoint: _Partial, local: _Partial, source: ScalarType) -> _Partial:
    """Return an adjoint times a partial, in the widest of the types that meet here."""
    type = reduce(_wider, (adjoint.atom.type, local.atom.type, source))
    x, y = builder.convert(adjoint.atom, type), builder.convert(local.atom, type)
    infinite, selected = adjoint.infinite or local.infinite, adjoint.selected or local.selected
    if y == builder.const(-1.0, type):
        return _Partial(builder.op("neg", x), infinite, selected)
    zero_stays, is_strong = adjoint.selected or local.infinite, adjoint.infinite
    if zero_stays and is_strong:
        return _Partial(builder.op("mul_zeros", x, y), infinite, selected)
    if zero_stays:
        return _Partial(builder.op("mul_zero", x, y), infinite, selected)
    return _Partial(builder.op("mul_zero" if is_strong else "mul", y, x), infinite, selected)


def _merge_sides(sides: Sequence[_Partial | None]) -> _Partial:
    """Return a partial after two branches; its atom stands for a type, if it is no number.

    It is a number where both branches have the same.
    """
    given = [p for p in sides if p is not None]
    infinite, selected = any(p.infinite for p in given), any(p.selected for p in given)
    atoms = {p.atom for p in given}
    if len(given) < len(sides):
        selected = True
    elif len(atoms) == 1 and isinstance(given[0].atom, Const):
        return _Partial(given[0].atom, infinite, selected)
    type = reduce(_wider, (atom.type for atom in atoms))
    return _Partial(Var(-1, type), infinite, selected)


def _may_be_infinite(edge: _Edge) -> bool:
    return isinstance(edge, _Factor) and edge.partial.infinite


def _wider(one: ScalarType, other: ScalarType) -> ScalarType:
    """Return the type that holds the values of both."""
    if one == other:
        return one
    if one.bits == other.bits:  # float16 and bfloat16
        return F32
    return one if one.bits > other.bits else other


def is_zero(atom: Atom) -> bool:
    """Whether a value is the constant 0."""
    return isinstance(atom, Const) and atom.value == 0


def _has_loop(program: Program, line: Line | None) -> KernelGradientError:
    """Return the refusal."""
    return KernelGradientError(
        f"the derivative of {program.name} cannot be computed in reverse: this loop has partials",
        location=line.place if line else None,
        hint='strategy="forward", or "auto", which takes dual numbers through loops',
    )
