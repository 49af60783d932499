"""How near each element comes to a kink: a program becomes one that computes the margins.

A *kink* is where a function is not smooth: the boundary of a branch, a tie of `abs` or `min`, a
jump of `floor`, a change of how many iterations a loop has.  Each is a place in the program where a
number that depends on the inputs is compared with another one; its margin is their distance, the
least one of all iterations of the loops around, and infinite where the place is not passed.
Distances from 0 are absolute if it is a constant or does not move, others are relative to the
larger number.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Literal

from mixad.scalar.activity import SINGULAR, Activity, active_arguments, activity, spread
from mixad.scalar.build import Builder
from mixad.scalar.expression import Term, call
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
    Var,
    While,
    nested_blocks,
    walk_statements,
    written_vars,
)
from mixad.scalar.simplify import without_dead_code
from mixad.scalar.types import ScalarType

__all__ = ["KinkKind", "Place", "margins"]

KinkKind = Literal["branch", "trip count", "tie", "jump"]


@dataclass(frozen=True)
class Place:
    """A line with kinks of one kind."""

    line: Line  # of the user's function
    kind: KinkKind  # ``"branch"``, ``"trip count"``, ``"tie"`` or ``"jump"``
    type: ScalarType  # of the numbers that are compared


def margins(
    program: Program,
    wrt: Sequence[int],
    first: Line,
    smooth: Container[str],
) -> tuple[Program, tuple[Place, ...]]:
    """Return a program that computes margins, and their places, both in the order of lines.

    A place compares values that depend on ``wrt``. ``first`` is the function's first line; in the
    files of ``smooth`` functions comparisons choose between methods and are no kinks.
    """
    builder = Builder(program.name)
    walk = _Walk(builder, _sites(program, wrt, first, smooth))
    names = dict(builder.copy_params(program.params).items())
    found = {site.place for site in walk.sites.values()}
    places = sorted(found, key=lambda p: (p.line.number, p.kind, p.type.name))
    walk.names.update(names)
    walk.least = {place: builder.const(float("inf"), place.type) for place in places}
    walk.block(program.body)
    made = builder.finish([walk.least[place] for place in places])
    return without_dead_code(made), tuple(places)


# -- which places ----------------------------------------------------------------------------------

_Distance = Callable[[Sequence[Term]], Term]


@dataclass(frozen=True)
class _Site:
    """An equation that is a kink: where, and how far its arguments are from it."""

    place: Place
    distance: _Distance


def _sites(
    program: Program,
    wrt: Sequence[int],
    first: Line,
    smooth: Container[str],
) -> dict[Var, _Site]:
    """Return the kinks of a program, by the variable of their equation."""
    moving = _moving(program, wrt)
    flowing = _flowing(program)
    iterations = _deciding_iterations(program.body)
    sites: dict[Var, _Site] = {}
    here = first
    for s in walk_statements(program.body):
        here = s.line or here
        if not isinstance(s, Equation) or here.filename in smooth:
            continue
        movable = [i for i, a in enumerate(s.args) if isinstance(a, Var) and _moves(a, moving)]
        kind = _kind(s, movable, flowing, iterations)
        if kind is not None and movable:
            line = here.users
            whole = Line(line.filename, line.number, line.text)
            sites[s.out] = _Site(Place(whole, kind, s.args[-1].type), _distance(s, movable))
    return sites


def _moves(var: Var, moving: Activity) -> bool:
    return bool(moving.get(var, frozenset()) - {SINGULAR})


def _moving(program: Program, wrt: Sequence[int]) -> Activity:
    """Return the slots that variables, those of loops' tests included, depend on."""
    moving = activity(program, {i: (i,) for i in wrt})
    for s in walk_statements(program.body):
        if isinstance(s, While):
            moving = spread(s.cond, moving)
    return moving


def _kind(
    s: Equation, movable: Sequence[int], flowing: set[Var], iterations: set[Var]
) -> KinkKind | None:
    if s.op in _COMPARISONS or _is_truth(s):
        return None if len(set(s.args)) < len(s.args) else _decision_kind(s.out in iterations)
    if s.op in _EXTREMES or s.op in _TIES or (s.op == "copysign" and 1 not in movable):
        return "tie" if s.out in flowing else None
    jumps = s.op in _JUMPS or s.op == "copysign" or _is_truncation(s)
    return "jump" if jumps else None


def _decision_kind(iterations: bool) -> KinkKind:
    return "trip count" if iterations else "branch"


def _is_truth(s: Equation) -> bool:
    return s.op == "convert" and s.out.type.is_bool


def _is_truncation(s: Equation) -> bool:
    return s.op == "convert" and s.args[0].type.is_float and s.out.type.is_integer


def _flowing(program: Program) -> set[Var]:
    """Return the variables that reach an output by arithmetic, not by comparisons alone."""
    found = {a for a in program.outputs if isinstance(a, Var)}
    before = -1
    while len(found) != before:  # once more for what a loop carries round
        before = len(found)
        _flow(program.body, found)
    return found


def _flow(block: Block, found: set[Var]) -> None:
    for s in reversed(block.statements):
        sources = [a for out, a in _flows(s) if out in found]
        found.update(a for a in sources if isinstance(a, Var))
        for nested in nested_blocks(s):
            _flow(nested, found)


def _flows(s: Statement) -> Iterator[tuple[Var, Atom]]:
    """Yield the variables that a statement assigns, with those it computes them from."""
    match s:
        case Equation():
            yield from ((s.out, s.args[i]) for i in active_arguments[s.op])
        case If():
            for branch in (s.then, s.orelse):
                yield from zip(s.outs, branch.results, strict=True)
        case While():
            for made in (s.outs, s.carries):
                yield from zip(made, s.body.results, strict=True)
                yield from zip(made, s.inits, strict=True)
        case Load():
            yield from ((s.out, index) for index in s.indices)


def _deciding_iterations(body: Block) -> set[Var]:
    """Return the conditions that decide how many iterations a loop has."""
    found: set[Var] = set()
    for s in walk_statements(body):
        if isinstance(s, While):
            made = {
                v: t
                for block in (s.cond, s.body)
                for t in walk_statements(block)
                for v in written_vars(t)
            }
            flags = [r for c, r in zip(s.carries, s.body.results, strict=True) if c.type.is_bool]
            _decide([*s.cond.results, *flags], made, found)
    return found


def _decide(atoms: Sequence[Atom], made: Mapping[Var, Statement], found: set[Var]) -> None:
    """Add the conditions that some conditions are made of."""
    for atom in atoms:
        source = made.get(atom) if isinstance(atom, Var) and atom not in found else None
        if source is None or not isinstance(atom, Var) or not atom.type.is_bool:
            continue
        found.add(atom)
        match source:
            case Equation():
                _decide(source.args, made, found)
            case If():
                at = source.outs.index(atom)
                branches = (source.then.results[at], source.orelse.results[at])
                _decide([source.cond, *branches], made, found)


# -- how far ---------------------------------------------------------------------------------------


def _relative_distance(args: Sequence[Term], still: Sequence[Term]) -> Term:
    """Return the distance of two numbers: relative, unless one of them stays at 0."""
    x, y = args
    if any(isinstance(t.atom, Const) and t.atom.value == 0 for t in args):
        return abs(x - y)
    larger = call("where", abs(x) > abs(y), abs(x), abs(y))
    apart = call("where", x == y, 0.0, abs(x - y) / larger)
    for fixed in still:
        apart = call("where", fixed == 0.0, abs(x - y), apart)
    return apart


def _from_zero(args: Sequence[Term]) -> Term:
    return abs(args[-1])


def _from_origin(args: Sequence[Term]) -> Term:
    return call("hypot", *args)


def _from_whole(x: Term) -> Term:
    return abs(x - call("rint", x))


def _distance_to_whole(args: Sequence[Term]) -> Term:
    """Return the distance from the next whole number that is not 0."""
    (x,) = args
    return call("where", abs(x) < 0.5, 1.0 - abs(x), _from_whole(x))


def _from_cut(args: Sequence[Term]) -> Term:
    """Return the distance of (x, y) from the half line where its angle jumps, x <= 0 and y = 0."""
    y, x = args
    return call("where", x > 0.0, call("hypot", x, y), abs(y))


_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_EXTREMES = frozenset({"minimum", "maximum"})
_TIES: Mapping[str, _Distance] = MappingProxyType(
    {
        "abs": _from_zero,
        "relu": _from_zero,
        "hypot": _from_origin,
    }
)
_JUMPS: Mapping[str, _Distance] = MappingProxyType(
    {
        "sign": _from_zero,
        "signbit": _from_zero,
        "floor": lambda args: _from_whole(args[0]),
        "ceil": lambda args: _from_whole(args[0]),
        "trunc": _distance_to_whole,
        "rint": lambda args: abs(args[0] - call("floor", args[0]) - 0.5),
        "floordiv": lambda args: _from_whole(args[0] / args[1]),
        "mod": lambda args: _from_whole(args[0] / args[1]),
        "atan2": _from_cut,
        "fmod": lambda args: _distance_to_whole([args[0] / args[1]]),
    }
)


def _distance(s: Equation, movable: Sequence[int]) -> _Distance:
    """Return the function for the distance of an equation's arguments from its kink."""
    if s.op in _COMPARISONS or s.op in _EXTREMES:
        still = [i for i, a in enumerate(s.args) if isinstance(a, Var) and i not in movable]
        return lambda args: _relative_distance(args, [args[i] for i in still])
    if s.op == "convert":
        return _from_zero if s.out.type.is_bool else _distance_to_whole
    if s.op == "copysign":
        return lambda args: reduce(_smaller, [abs(args[i]) for i in movable])
    return _TIES.get(s.op) or _JUMPS[s.op]


def _smaller(x: Term, y: Term) -> Term:
    return call("where", x < y, x, y)


class _Walk:
    """Copies a program with the least margins beside: ``least`` has them, by place."""

    def __init__(self, builder: Builder, sites: Mapping[Var, _Site]) -> None:
        self.builder = builder
        self.sites = sites
        self.names: dict[Var, Atom] = {}
        self.least: dict[Place, Atom] = {}

    def value(self, atom: Atom) -> Atom:
        return self.names[atom] if isinstance(atom, Var) else atom

    def values(self, atoms: Sequence[Atom]) -> list[Atom]:
        return [self.value(a) for a in atoms]

    def block(self, block: Block) -> list[Atom]:
        for s in block.statements:
            self.builder.line = s.line or self.builder.line
            self.statement(s)
        return self.values(block.results)

    def statement(self, s: Statement) -> None:
        match s:
            case Equation():
                self.equation(s)
            case If():
                self.branch(s)
            case While():
                self.loop(s)
            case Load():
                self.builder.copy(Block((s,), (s.out,)), self.names)

    def equation(self, s: Equation) -> None:
        args = self.values(s.args)
        self.names[s.out] = self.builder.op(s.op, *args, type=s.out.type)
        site = self.sites.get(s.out)
        if site is not None:
            margin = site.distance([Term(self.builder, a) for a in args])
            least = Term(self.builder, self.least[site.place])
            self.least[site.place] = _smaller(margin, least).atom

    def inside(self, s: If | While) -> list[Place]:
        """Return the places in the blocks of a statement."""
        within = (t for block in nested_blocks(s) for t in walk_statements(block))
        found = (self.sites.get(v) for t in within for v in written_vars(t))
        return list(dict.fromkeys(site.place for site in found if site is not None))

    def branch(self, s: If) -> None:
        places, before = self.inside(s), dict(self.least)

        def branch_results(block: Block) -> list[Atom]:
            self.least = dict(before)
            return [*self.block(block), *(self.least[p] for p in places)]

        found = self.builder.if_(
            self.value(s.cond), lambda: branch_results(s.then), lambda: branch_results(s.orelse)
        )
        self.least = before
        self.name_results(s.outs, places, found)

    def loop(self, s: While) -> None:
        """Copy a loop; the margins of its test belong to the iteration that it decides."""
        places, before = self.inside(s), dict(self.least)
        inits = [*self.values(s.inits), *(self.least[p] for p in places)]

        def enter(carries: Sequence[Atom]) -> None:
            self.least = dict(before)
            self.name_results(s.carries, places, carries)

        def cond(*carries: Atom) -> Atom:
            enter(carries)
            return self.block(s.cond)[0]

        def body(*carries: Atom) -> list[Atom]:
            enter(carries)
            self.block(s.cond)
            return [*self.block(s.body), *(self.least[p] for p in places)]

        found = self.builder.while_(inits, cond, body)
        enter([*found])
        self.block(s.cond)  # the test that ended it
        self.names.update(zip(s.outs, found, strict=False))

    def name_results(
        self, outs: Sequence[Var], places: Sequence[Place], found: Sequence[Atom]
    ) -> None:
        """Name the variables of a statement: its results, then the margins."""
        self.names.update(zip(outs, found, strict=False))
        self.least.update(zip(places, found[len(outs) :], strict=True))
