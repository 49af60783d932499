"""Nodes: what was done to which values, as data, and how cotangents go back through it.

Kernels have a node of their own (`mixad.tape.kernel_node`).  Everything else that is recorded
is a `Rule` applied to arrays: one line that says how the value is made and one for each argument
that says what its cotangent is, written with functions that are recorded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from mixad.backends.arrays import Array, Library, library_of
from mixad.errors import TracerError
from mixad.tape.cell import Cell, Kind
from mixad.tape.tracer import Level, Origin, Tracer, check_mode, kept, levels_of, plain, stripped

__all__ = ["ConstantNode", "Cotangents", "InputNode", "Node", "PulledNode", "Result", "Rule",
           "RuleNode",
           "Shaped", "apply_rule", "common_library", "library_beside"]  # fmt: skip

Cotangents = Sequence[Any]
"""One for each output or parent of a node: None where it is zero, an array or a tracer that
broadcasts to the value's shape elsewhere."""


class Node(Protocol):
    """What is recorded of one operation."""

    @property
    def parents(self) -> tuple[Origin | None, ...]:
        """Where the arguments came from; None for those that nobody differentiates."""
        ...


class Result(NamedTuple):
    """What is known of a value without it; the device is as its library names it."""

    shape: tuple[int, ...]
    kind: Kind
    device: Any

    def zeros(self, shape: tuple[int, ...] | None = None) -> Array:
        """Return zeros of its kind, in its shape or another."""
        library, shape = self.kind.library, self.shape if shape is None else shape
        dtype = library.dtype_of(self.kind.type)
        return library.xp.zeros(shape, dtype=dtype, device=self.device)


class PulledNode(Node, Protocol):
    """A node that is pulled back by itself; kernel nodes are in groups."""

    @property
    def results(self) -> Sequence[Result]:
        """What its values are."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether the cotangents that `pullback` returns are arrays that nothing else holds."""
        ...

    @property
    def structure(self) -> object:
        """What tells which of the cotangents are None, with which parents carry the level."""
        ...

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return the parents' cotangents for a level, given those of the outputs."""
        ...


class InputNode:
    """An input of a transform, and its link to the transforms around it.

    Parameters
    ----------
    level : Level
        The transform's.
    parent : Origin or None
        Where its value came from, if that is traced too.
    """

    __slots__ = ("level", "parents")
    results: Sequence[Result] = ()  # not asked for: its cotangent is handed on as it is
    fresh = False
    structure = None

    def __init__(self, level: Level, parent: Origin | None) -> None:
        self.level = level
        self.parents = (parent,)

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return the cotangents as they are."""
        return cotangents


class ConstantNode:
    """Nothing was done: a value that a transform around may ask for, with derivative zero."""

    __slots__ = ()
    parents: tuple[Origin | None, ...] = ()
    results: Sequence[Result] = ()
    fresh = False
    structure = None

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return the cotangents of no parents."""
        return ()


@dataclass(frozen=True, eq=False)
class Rule:
    """An operation on arrays that is no kernel.

    Attributes
    ----------
    name : str
        For messages.
    evaluate : callable
        ``(xp, *arrays, **static)``: the value, by the base library.
    cotangents : tuple of callable
        One for each argument: ``(g, *arguments, **static)``, with ``g`` of the output's shape.
    reads : tuple of (tuple of int)
        For each of ``cotangents``, the arguments whose elements it reads; it gets a `Shaped` for
        the others.  Empty if none reads any.
    fresh : bool
        Whether ``cotangents`` return new arrays, as opposed to views.
    linear : "each", "all" or None
        Whether the value is linear in each argument, the others fixed, or in all of them at once.
        Tangents then are values of the rule; otherwise they are cotangents transposed.
    """

    name: str
    evaluate: Callable[..., Array]
    cotangents: tuple[Callable[..., Any], ...]
    reads: tuple[tuple[int, ...], ...] = ()
    fresh: bool = False
    linear: Literal["each", "all"] | None = None

    def argument(self, index: int) -> str:
        """Return what an argument is called in messages."""
        return f"argument {index} of {self.name}"


@dataclass(frozen=True)
class Shaped:
    """What is kept of an argument whose elements are not needed any more."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


class RuleNode:
    """A rule applied to arguments.

    Parameters
    ----------
    rule : Rule
        What was done.
    arguments : tuple
        Tracers and held arrays, or a `Shaped` for each.
    static : mapping
        The rule's keyword arguments.
    parents : tuple of (Origin or None)
        Where the arguments came from.
    result : Result
        What came of it.
    """

    __slots__ = ("arguments", "fresh", "parents", "results", "rule", "static", "structure")

    def __init__(
        self,
        rule: Rule,
        arguments: tuple[Any, ...],
        static: Mapping[str, Any],
        parents: tuple[Origin | None, ...],
        result: Result,
    ) -> None:
        self.rule = self.structure = rule
        self.arguments = arguments
        self.static = static
        self.parents = parents
        self.results = (result,)
        self.fresh = rule.fresh

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Apply the rule's formula for each parent that depends on the level."""
        arguments = tuple(stripped(a, level) for a in self.arguments)
        return [
            cotangent(cotangents[0], *arguments, **self.static) if _carries(parent, level) else None
            for cotangent, parent in zip(self.rule.cotangents, self.parents, strict=True)
        ]


def apply_rule(rule: Rule, *arguments: Any, **static: Any) -> Any:
    """Carry out a rule, and record it if an argument is traced.

    Parameters
    ----------
    rule : Rule
        What to do.
    *arguments : array or Tracer
        All of one library.
    **static
        What else the rule takes: shapes, axes, keys.

    Returns
    -------
    array or Tracer
        A tracer if an argument is one.
    """
    library = common_library(rule.name, arguments)
    tracers = [a for a in arguments if isinstance(a, Tracer)]
    value = rule.evaluate(library.xp, *map(plain, arguments), **static)
    if not tracers:
        return value
    parents = tuple(a.origin if isinstance(a, Tracer) else None for a in arguments)
    read = {i for p, reads in zip(parents, rule.reads, strict=False) if p for i in reads}
    levels = levels_of(tracers)
    held = tuple(
        kept(a, levels, rule, i) if i in read else _shaped(a) for i, a in enumerate(arguments)
    )
    cell = Cell.of(value, check_mode(levels))
    node = RuleNode(rule, held, static, parents, Result(cell.shape, cell.kind, cell.device))
    return type(tracers[0])(cell, Origin(node, 0, levels))


def library_beside(value: Any) -> Library:
    """Return the library of an array or a tracer."""
    return value.cell.library if isinstance(value, Tracer) else library_of(value)


def common_library(what: str, arguments: Sequence[Any]) -> Library:
    """Return the one library that all arrays among the arguments belong to."""
    libraries = [library_beside(a) for a in arguments]
    for library in libraries:
        if library is not libraries[0]:
            raise TracerError(
                f"{what} mixes arrays of {libraries[0].name} and of {library.name}: convert one of "
                "them before the function that is differentiated"
            )
    return libraries[0]


def _shaped(argument: Any) -> Shaped:
    return Shaped(tuple(argument.shape), argument.dtype)


def _carries(parent: Origin | None, level: Level) -> bool:
    return parent is not None and level in parent.levels
