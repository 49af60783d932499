"""Tangents of a fixed point: (I − ∂S/∂x) dx = ∂S/∂θ dθ, solved for carries of a loop.

The loop ended because the user's test was content.  Whether that was at a fixed point is checked
where it ended, element by element, and nan is the derivative if not: a step of Newton's method from
there, δ = (I − ∂S/∂x)⁻¹ (S(x) − x), must be small beside the point, in all carries together and in
the one whose tangent it is; and the matrix must be regular, which it is not where what the loop
comes to depends on where it began.  The tangent of a carry that is made of others follows from
theirs, unless it reads a counter as well: then one more iteration must leave it near where it is.

A solution at 0 has no size that δ could be small beside: there it must be next to nothing beside
the whole point and where the loop began.  Merely small would not do: what decays from 5000 to 1 has
not arrived.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from mixad.scalar.build import Builder
from mixad.scalar.elimination import solve_system
from mixad.scalar.expression import Term, call
from mixad.scalar.implicit import MAX_UNKNOWNS, Values, dependent_groups, refuse_crowd, refuse_total
from mixad.scalar.ir import Atom, Const
from mixad.scalar.types import F32, ScalarType

__all__ = ["NEAR", "NOTHING", "FixedPoint", "LinearStep"]

NEAR = 2.0**-10
"""A point is a fixed point if Newton's step from it is no longer than this share of it,"""

NOTHING = 2.0**-32
"""or than this share of all carries that depend on each other, with where they began."""

Tangents = dict[int, dict[Hashable, Atom]]


@dataclass(frozen=True)
class LinearStep:
    """What an iteration makes of one carry, at the point that a loop has reached."""

    value: Atom  # what the carry becomes
    # Index of a carry → partial derivative with respect to it, unless statically zero.
    by_carry: Mapping[int, Atom]
    by_slot: Mapping[int, Atom]  # slot → derivative for a fixed point, unless statically zero


@dataclass(frozen=True)
class FixedPoint:
    """The point that a loop has reached, and its step there.

    `converged` is false if a counter alone ended the loop, as far as its test tells: a counter that
    decides a ``break`` is part of the same flag as the other exits of the iteration. `counting` are
    carries whose step reads something that iterations change and no tangent tells of.
    """

    builder: Builder  # of the program that the tangents are added to
    values: Values  # of the loop
    steps: Mapping[int, LinearStep]  # by carry that is wanted or that these depend on
    point: Sequence[Atom]  # by carry, its last value
    inits: Sequence[Atom]  # by carry, its first value
    converged: Atom
    counting: Collection[int]

    def tangents(self, slots: Sequence[int]) -> Tangents:
        """Add the solution for the carries' tangents; return them, for each carry by slot.

        KernelGradientError if too many carries depend on each other, or one is a sum.
        """
        graph = {i: list(step.by_carry) for i, step in self.steps.items()}
        found: Tangents = {}
        for group in dependent_groups(graph):
            system = _System(self, group)
            sides = [[system.side(i, slot, found) for slot in slots] for i in group]
            if len(group) > 1 or group[0] in graph[group[0]]:
                sides = system.tangents(sides)
            elif group[0] in self.counting:
                sides = system.steady(sides)
            for i, row in zip(group, sides, strict=True):
                typed = [self.builder.convert(x.atom, self.point[i].type) for x in row]
                found[i] = dict(zip(slots, typed, strict=True))
        return found


@dataclass(frozen=True)
class _System:
    """The equations of carries that depend on each other."""

    at: FixedPoint
    group: Sequence[int]

    @property
    def type(self) -> ScalarType:
        """The widest of their types, in which all is computed."""
        types = {self.at.point[i].type for i in self.group}
        widest = max(types, key=lambda t: t.bits)
        return F32 if len(types) > 1 and widest.is_narrow else widest

    def term(self, atom: Atom) -> Term:
        return Term(self.at.builder, self.at.builder.convert(atom, self.type))

    def const(self, value: float) -> Term:
        return self.term(self.at.builder.const(value, self.type))

    def side(self, i: int, slot: int, known: Tangents) -> Term:
        """Return a carry's tangent by itself and by carries that do not depend on it."""
        terms = (
            [self.term(self.at.steps[i].by_slot[slot])] if slot in self.at.steps[i].by_slot else []
        )
        for j, partial in self.at.steps[i].by_carry.items():
            if j not in self.group:
                terms.append(call("mul_zeros", self.term(partial), self.term(known[j][slot])))
        return _sum(terms) if terms else self.const(0.0)

    def tangents(self, sides: Sequence[Sequence[Term]]) -> list[list[Term]]:
        """Solve for the tangents, nan where the loop is at no fixed point."""
        self.check()
        aside = {i: self.is_aside(i) for i in self.group if self.may_stay(i)}
        rows = [self.row(i, side, aside.get(i)) for i, side in zip(self.group, sides, strict=True)]
        found = solve_system(*([row[part] for row in rows] for part in range(3)))
        steps = {i: column[0] for i, column in zip(self.group, found.columns, strict=True)}
        all_are = found.is_regular & self.is_near(steps, steps, aside) & self.has_converged
        return [
            self.where(all_are & self.is_near([i], steps, aside), column[1:])
            for i, column in zip(self.group, found.columns, strict=True)
        ]

    def steady(self, sides: Sequence[Sequence[Term]]) -> list[list[Term]]:
        """Return the tangents of a carry made of others, nan if an iteration changes it."""
        (i,), (side,) = self.group, sides
        return [self.where(self.is_near([i], {i: self.residual(i)}, {}) & self.has_converged, side)]

    @property
    def has_converged(self) -> Term:
        return Term(self.at.builder, self.at.converged)

    def where(self, right: Term, tangents: Sequence[Term]) -> list[Term]:
        """Return tangents where they are right, else nan, by products, so that theirs are, too."""
        factor = call("where", right, 1.0, float("nan"), type=self.type)
        return [x * factor for x in tangents]

    def is_near(
        self, those: Iterable[int], steps: Mapping[int, Term], aside: Mapping[int, Term]
    ) -> Term:
        """Return whether some carries' steps are short beside them, or negligible beside all.

        All are the point and where the loop began, without carries in ``aside``. No step is short
        beside an infinity.
        """

        def length(terms: Mapping[int, Term]) -> Term:
            return _sum(
                [
                    call("where", aside[i], 0.0, abs(x), type=self.type) if i in aside else abs(x)
                    for i, x in terms.items()
                ]
            )

        step = length({i: steps[i] for i in those})
        size = length({i: self.term(self.at.point[i]) for i in those})
        point, start = (
            length({i: self.term(atoms[i]) for i in steps})
            for atoms in (self.at.point, self.at.inits)
        )
        scale, infinity = point + start, float("inf")
        is_short = (size < infinity) & (step <= size * NEAR)
        return is_short | ((scale < infinity) & (step <= scale * NOTHING))

    def may_stay(self, i: int) -> bool:
        """Whether a carry may be one end of a bracket."""
        return len(self.group) > 1 and self.at.values.may_stay(i)

    def is_aside(self, i: int) -> Term:
        """Return whether an iteration leaves an end of a bracket, or takes it far away."""
        stays = reduce(lambda a, b: a & b, (self.entry(i, j) == 0.0 for j in self.group))
        return stays | ~self.is_near([i], {i: self.residual(i)}, {})

    def check(self) -> None:
        """Refuse carries that solve no system of equations, or too large a one."""
        if len(self.group) > MAX_UNKNOWNS:
            raise refuse_crowd(self.at.values, self.group)
        for i in self.group:
            match self.at.steps[i].by_carry.get(i):
                case Const(value=1.0) if len(self.group) == 1:
                    raise refuse_total(self.at.values, i)

    def row(
        self, i: int, side: Sequence[Term], aside: Term | None
    ) -> tuple[list[Term], list[Term], list[Term]]:
        """Return an equation: its entries, their sizes, its residual and right-hand sides."""
        entries = [self.entry(i, j) for j in self.group]
        sizes = [self.size(i, j) for j in self.group]
        if aside is None:
            return entries, sizes, [self.residual(i), *side]
        # One end of a bracket stays where an earlier iteration has put it, and 0 = 0 is left of its
        # equation; or the extra iteration moves it to the solution, from far away.  Its tangent is
        # not known, and is of no account where nothing is made of it.
        unit = [1.0 if j == i else 0.0 for j in self.group]
        return (
            [call("where", aside, one, e) for one, e in zip(unit, entries, strict=True)],
            [call("where", aside, one, s) for one, s in zip(unit, sizes, strict=True)],
            [self.residual(i), *(call("where", aside, float("nan"), s) for s in side)],
        )

    def residual(self, i: int) -> Term:
        """Return S(x) − x of a carry."""
        return self.term(self.at.steps[i].value) - self.term(self.at.point[i])

    def entry(self, i: int, j: int) -> Term:
        """Return an element of I − ∂S/∂x."""
        partial = self.at.steps[i].by_carry.get(j)
        unit = self.const(1.0 if i == j else 0.0)
        if partial is None:
            return unit
        return unit - self.term(partial) if i == j else -self.term(partial)

    def size(self, i: int, j: int) -> Term:
        """Return a bound of the terms of that difference."""
        partial = self.at.steps[i].by_carry.get(j)
        unit = self.const(1.0 if i == j else 0.0)
        if partial is None:
            return unit
        return unit + abs(self.term(partial)) if i == j else abs(self.term(partial))


def _sum(terms: Sequence[Term]) -> Term:
    return reduce(lambda a, b: a + b, terms)
