"""Operations on arrays whose cotangents are written with their own values, one or several.

For an inverse, a factorisation or the parts of an array, computing the values a second time for the
derivative would cost as much as the operation itself, so the node retains them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mixad.backends.arrays import Array
from mixad.backends.autocast import in_given_types
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.cell import Cell
from mixad.tape.node import (
    Cotangents,
    Result,
    Shaped,
    common_library,
    lazy_arguments,
    library_of_value,
)
from mixad.tape.tracer import (
    Level,
    Origin,
    Tracer,
    bodies_among,
    check_mode,
    elements_of,
    journal_of,
    kept,
    levels_of,
    primal_value,
    strand_of,
    without_level,
)

__all__ = ["ValuesRule", "apply_values_rule", "followed", "instantiate_zeros"]


def instantiate_zeros(gs: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return the cotangents of values, with arrays of zeros in place of None."""
    return [
        library_of_value(value).xp.zeros_like(primal_value(value)) if g is None else g
        for g, value in zip(gs, values, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class ValuesRule:
    """An operation on arrays whose cotangents read its values.

    Each of `cotangents` is ``(gs, values, *arguments, **static)``, with one of `gs` for each value:
    of its shape, or None where it is zero, but not for all; the result is not None. A rule with any
    number of arguments has one for all of them, ``(gs, wanted, values, *arguments, **static)``,
    which returns None for those that are not `wanted`. Arguments that are not read are `Shaped`.
    """

    name: str  # for messages
    evaluate: Callable[..., tuple[Array, ...]]  # ``(xp, *arrays, **static)``, by the base library
    cotangents: tuple[Callable[..., Any], ...] | Callable[..., Cotangents]
    reads: Sequence[int] = ()  # arguments whose elements the cotangents read
    fresh: bool = False  # whether cotangents are new arrays, not those of the values or views
    has_phases: bool = False  # unique but for phases, on which cotangents may not depend
    is_total: bool = False  # raises for no elements; others do, for the user to catch
    # ``(xp, *arrays, **static)``: arrays of the shapes and dtypes of the values, for when nothing
    # else is asked for and `evaluate` takes long.
    alike: Callable[..., tuple[Array, ...]] | None = None
    # ``(tangents, values, *arguments, **static)``: from tangents of the arguments, those of the
    # values, None if zero. If there is no such function, they are cotangents transposed.
    tangents: Callable[..., Sequence[Any]] | None = None

    def pull(
        self,
        gs: Sequence[Any],
        wanted: Sequence[bool],
        values: Sequence[Any],
        arguments: Sequence[Any],
        static: Mapping[str, Any],
    ) -> Cotangents:
        """Return the cotangents of the arguments that are wanted, None for the others."""
        if callable(self.cotangents):
            return self.cotangents(gs, wanted, values, *arguments, **static)
        return [
            of(gs, values, *arguments, **static) if is_wanted else None
            for of, is_wanted in zip(self.cotangents, wanted, strict=True)
        ]

    def argument(self, index: int) -> str:
        """Return what an argument is called in messages."""
        return f"argument {index} of {self.name}"


@dataclass(frozen=True, slots=True)
class _ValuesOf:
    """What reads the values of a rule later: the rule itself, and perhaps others."""

    rule: ValuesRule

    def argument(self, index: int) -> str:
        """Return what a value is called in messages."""
        return f"a result of {self.rule.name}"


class ValuesNode:
    """A rule applied to arguments, with what came of it."""

    __slots__ = ("arguments", "cells", "levels", "parents", "results", "rule", "static",
                 "tracer_type")  # fmt: skip

    def __init__(
        self,
        rule: ValuesRule,
        arguments: tuple[Any, ...],
        static: Mapping[str, Any],
        parents: tuple[Origin | None, ...],
        cells: tuple[Cell, ...],
        levels: frozenset[Level],
        tracer_type: type[Tracer],
    ) -> None:
        self.rule = rule
        self.arguments = arguments  # tracers and guarded arrays, a `Shaped` for what is not read
        self.static = static  # the rule's keyword arguments
        self.parents = parents  # where the arguments came from
        self.cells = cells  # the values
        self.results = tuple(Result(c.shape, c.kind, c.device) for c in cells)
        self.levels = levels  # what the values depend on
        self.tracer_type = tracer_type

    @property
    def name(self) -> str:
        """The rule's."""
        return self.rule.name

    @property
    def fresh(self) -> bool:
        """Whether cotangents are new arrays; others may belong to another node."""
        return self.rule.fresh

    @property
    def has_phases(self) -> bool:
        """Whether values are unique but for phases."""
        return self.rule.has_phases and any(c.type.is_complex for c in self.cells)

    def traced(self, output: int) -> Tracer:
        """Return a value as a tracer."""
        return self.tracer_type(self.cells[output], Origin(self, output, self.levels))

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Apply the rule's formula for each parent that depends on the level."""
        found = (*cotangents, *[None] * (len(self.cells) - len(cotangents)))
        gs = tuple(
            None if g is None else broadcast_to(g, cell.shape)
            for g, cell in zip(found, self.cells, strict=True)
        )
        wanted = [parent is not None and level in parent.levels for parent in self.parents]
        return self.rule.pull(gs, wanted, *self._outside(level), self.static)

    @property
    def pushforward(
        self,
    ) -> Callable[[Iterable[Sequence[Any]], Level], Sequence[Sequence[Any]]] | None:
        """Carries tangents of the arguments along directions; None if the rule has no tangents."""
        return None if self.rule.tangents is None else self._push

    def _push(self, directions: Iterable[Sequence[Any]], level: Level) -> Sequence[Sequence[Any]]:
        values, arguments = self._outside(level)
        push, static = self.rule.tangents, self.static
        assert push is not None
        return [push(tangents, values, *arguments, **static) for tangents in directions]

    def _outside(self, level: Level) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the values and the arguments as transforms around a level see them."""
        values = tuple(
            followed(without_level(self.traced(k), level)) for k in range(len(self.cells))
        )
        return values, tuple(without_level(a, level) for a in self.arguments)


def followed(value: Any) -> Any:
    """Return a value; one that is no float has no derivative."""
    if not isinstance(value, Tracer) or value.cell.type.is_inexact:
        return value
    bodies = bodies_among(value.origin.levels)
    return (
        type(value)(value.cell, value.origin._replace(levels=bodies))
        if bodies
        else primal_value(value)
    )


def apply_values_rule(rule: ValuesRule, *arguments: Any, **static: Any) -> tuple[Any, ...]:
    """Carry out a rule, and record it if an argument is traced: then values are tracers.

    Values that are no floats have no derivative. Arguments are of one library.
    """
    strand = strand_of(arguments)
    if strand is not None:
        found = strand.call(_applied, rule, arguments, static, is_primitive=True)
        return cast("tuple[Any, ...]", found)
    library = common_library(rule.name, arguments, may_mix=True)
    if library.is_lazy:
        arguments = lazy_arguments(library, arguments)
    tracers = [a for a in arguments if isinstance(a, Tracer)]
    levels = levels_of(tracers) if tracers else frozenset[Level]()
    foresees = any(level.foresees for level in levels)
    evaluate = rule.alike if rule.alike is not None and foresees else rule.evaluate
    values = _evaluated(evaluate, library.xp, list(map(elements_of, arguments)), static)
    if not tracers:
        return values
    for level in levels:
        level.risks += not rule.is_total
    held = tuple(
        kept(a, levels, rule, i) if i in rule.reads else Shaped(tuple(a.shape), a.dtype)
        for i, a in enumerate(arguments)
    )
    parents = tuple(a.origin if isinstance(a, Tracer) else None for a in arguments)
    reader = _ValuesOf(rule)
    cells = tuple(Cell.of(value, check_mode(levels), reader=reader) for value in values)
    journal = journal_of(levels)
    if journal is not None:
        journal.evaluated(rule, static, arguments, cells)
    node = ValuesNode(rule, held, static, parents, cells, levels, type(tracers[0]))
    return tuple(followed(node.traced(k)) for k in range(len(cells)))


@in_given_types
def _evaluated(
    evaluate: Callable[..., tuple[Array, ...]],
    xp: Any,
    arrays: Sequence[Any],
    static: Mapping[str, Any],
) -> tuple[Array, ...]:
    return evaluate(xp, *arrays, **static)


def _applied(rule: ValuesRule, arguments: Sequence[Any], static: Mapping[str, Any]) -> Any:
    return apply_values_rule(rule, *arguments, **static)
