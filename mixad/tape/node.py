"""Nodes: what was done to which values, as data, and how cotangents go back through it.

Kernels have a node of their own (`mixad.tape.kernel_node`). Everything else that is recorded
is a `Rule` applied to arrays: one line that says how the value is made and one for each argument
that says what its cotangent is, written with functions that are recorded again.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from mixad.backends.arrays import NUMPY, Array, Library, library_of
from mixad.backends.autocast import in_given_types
from mixad.backends.hookspecs import LaunchBlock
from mixad.errors import TracerError
from mixad.kernel.spec import SubBox
from mixad.tape.buffer import Buffer, buffer_of, copied
from mixad.tape.cell import Cell, Kind
from mixad.tape.tracer import (
    Level,
    Origin,
    Tracer,
    check_alive,
    check_mode,
    elements_of,
    journal_of,
    kept,
    levels_of,
    strand_of,
    without_level,
)

__all__ = ["ConstantNode", "Cotangents", "InputNode", "Node", "PulledNode", "Result", "Rule",
           "RuleNode", "Shaped", "Waiting", "added", "apply_rule", "apply_without_derivative",
           "common_library", "lazily", "lazy_arguments", "library_of_value", "mixture",
           "shape_of_view", "waiting_view"]  # fmt: skip

Cotangents = Sequence[Any]
"""One for each output or parent of a node: None if it is zero, else an array or a tracer that
broadcasts to the value's shape."""


def added(first: Any, second: Any) -> Any:
    """Return the sum of two cotangents, arrays or tracers.

    A tracer comes first: not every library leaves ``array + tracer`` to the tracer.
    """
    return second + first if isinstance(second, Tracer) else first + second


class Node(Protocol):
    """What is recorded of one operation."""

    @property
    def name(self) -> str:
        """What was done, for people."""
        ...

    @property
    def parents(self) -> tuple[Origin | None, ...]:
        """Where the arguments came from; None for those that nobody differentiates."""
        ...


class Result(NamedTuple):
    """What is known of a value without it; the device is as its library names it."""

    shape: tuple[int, ...]
    kind: Kind
    device: Any

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.kind.type.itemsize

    def zeros(self, shape: tuple[int, ...] | None = None) -> Array:
        """Return zeros of its kind, in its shape or another."""
        library, shape = self.kind.library, self.shape if shape is None else shape
        dtype = library.dtype_of(self.kind.type)
        return library.xp.zeros(shape, dtype=dtype, device=self.device)

    def ones_like(self) -> Array:
        """Return an array of its kind and shape: ones, or zeros of whole numbers."""
        return self.zeros() + 1 if self.kind.type.is_inexact else self.zeros()


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

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return the parents' cotangents for a level, given those of the outputs."""
        ...


class InputNode:
    """An input of a transform, and its link to the transforms around it."""

    __slots__ = ("level", "parents")
    name = "input"
    results: Sequence[Result] = ()  # not asked for: its cotangent is handed on as it is
    fresh = False

    def __init__(self, level: Level, parent: Origin | None) -> None:
        self.level = level
        self.parents = (parent,)  # None if the input's value is not traced itself

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return the cotangents as they are."""
        return cotangents


class ConstantNode:
    """A value with derivative zero that a transform around may ask for."""

    __slots__ = ("results",)
    name = "constant"
    parents: tuple[Origin | None, ...] = ()
    fresh = False

    def __init__(self, *results: Result) -> None:
        self.results = results

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return nothing: there are no parents."""
        return ()


@dataclass(frozen=True, eq=False)
class Rule:
    """An operation on arrays that is no kernel."""

    name: str  # for messages
    evaluate: Callable[..., Array]  # ``(xp, *arrays, **static)``: the value, by the base library
    # One for each argument: ``(g, *arguments, **static)``, with ``g`` of the output's shape. Of any
    # number of arguments one for all: ``(g, wanted, *arguments, **static)``, which returns one for
    # each that is ``wanted`` and None for the others.
    cotangents: tuple[Callable[..., Any], ...] | Callable[..., Cotangents]
    reads: tuple[tuple[int, ...], ...] = ()  # by cotangent: arguments whose elements it reads
    fresh: bool = False  # whether cotangents are new arrays, not views
    # Whether the value is linear in each argument, the others fixed, or in all at once: if so,
    # tangents are values of the rule, else cotangents transposed.
    linear: Literal["each", "all"] | None = None
    positions: tuple[int, ...] = ()  # arguments that are indices into others, always retained
    # For one argument: ``(whole, g, **static)`` adds its cotangent to an array, in place, and tells
    # whether it could. Many small parts of one array then cost what the parts do.
    add_into: Callable[..., bool] | None = None
    # ``(whole, g, *arguments, **static)``: the sum of a cotangent of the first argument and its
    # own. In the body of a loop that costs what the elements cost which it reads.
    adds: Callable[..., Any] | None = None
    # For one argument of shape `own`: ``(xp, own, **static)`` is the shape of the value, which has
    # the argument's type and waits until someone asks for it.
    shape: Callable[..., tuple[int, ...]] | None = None
    is_view: bool = False  # it need not wait for its own sake, only for a pending argument
    is_part: bool = False  # a small part is copied out of an array that is still written to
    # For one argument of shape `own`, of whose elements the value is made: ``(own, **static)`` is
    # the box that it is; None if it is no box.
    part: Callable[..., SubBox | None] | None = None
    # For one argument of shape `own`, whose elements the value moves around: ``(own, **static)`` is
    # how far along each axis; None if not along axes.
    steps: Callable[..., tuple[int, ...] | None] | None = None
    # Whether each element of the value is one of an argument or zero, and which one depends on
    # shapes, ``positions`` and options alone.
    moves: bool = False
    # ``(backend, *arrays, **static)``, of NumPy's arrays: what a `Stepping` backend runs for arrays
    # like these, or None.
    block: Callable[..., LaunchBlock | None] | None = None

    def waits_for(self, arguments: Sequence[Any]) -> bool:
        """Whether the value for some arguments is made when someone asks for it."""
        if self.shape is None or not isinstance(arguments[0], Tracer):
            return False
        pending = arguments[0].cell.pending
        if self.is_part and isinstance(pending, Buffer):
            return False
        return not self.is_view or pending is not None

    @in_given_types
    def value(self, library: Library, arguments: Sequence[Any], static: Mapping[str, Any]) -> Array:
        """Return the value for some arguments."""
        if self.is_part and isinstance(arguments[0], Tracer):
            check_alive(arguments[0])
            array = buffer_of(arguments[0].cell)
            if array is not None:
                part = self.evaluate(library.xp, array, **static)
                return copied(part)
        return self.evaluate(library.xp, *map(elements_of, arguments), **static)

    def argument(self, index: int) -> str:
        """Return what an argument is called in messages."""
        return f"argument {index} of {self.name}"


class Shaped(NamedTuple):
    """What is retained of an argument whose elements are not needed any more."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


class RuleNode:
    """A rule applied to arguments."""

    __slots__ = ("arguments", "fresh", "parents", "results", "rule", "static")

    def __init__(
        self,
        rule: Rule,
        arguments: tuple[Any, ...],
        static: Mapping[str, Any],
        parents: tuple[Origin | None, ...],
        result: Result,
    ) -> None:
        self.rule = rule
        self.arguments = arguments  # tracers and guarded arrays, a `Shaped` for what is not read
        self.static = static  # the rule's keyword arguments
        self.parents = parents  # where the arguments came from
        self.results = (result,)
        self.fresh = rule.fresh

    @property
    def name(self) -> str:
        """The rule's."""
        return self.rule.name

    def part(self) -> SubBox | None:
        """Return the box of the argument that the value is; None if it is no box."""
        if self.rule.part is None:
            return None
        return self.rule.part(tuple(self.arguments[0].shape), **self.static)

    def pull_into(self, whole: Array, g: Array) -> bool:
        """Add the cotangent of the one argument to an array, if the rule can; tell whether."""
        add = self.rule.add_into
        return add is not None and add(whole, g, **self.static)

    def added_to(self, whole: Any, g: Any, level: Level) -> Any:
        """Return a cotangent of the first argument with that of this value added."""
        assert self.rule.adds is not None
        arguments = [without_level(a, level) for a in self.arguments]
        return self.rule.adds(whole, g, *arguments, **self.static)

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Apply the rule's formula for each parent that depends on the level."""
        g, rules = cotangents[0], self.rule.cotangents
        wanted = [_carries(parent, level) for parent in self.parents]
        arguments = tuple(without_level(a, level) for a in self.arguments)
        if callable(rules):
            return rules(g, wanted, *arguments, **self.static)
        return [
            rule(g, *arguments, **self.static) if is_wanted else None
            for rule, is_wanted in zip(rules, wanted, strict=True)
        ]


class Waiting:
    """What makes the value of a rule with one argument; it goes when that has been made."""

    __slots__ = ("__weakref__", "cell", "levels", "result", "rule", "source", "static")

    def __init__(
        self,
        rule: Rule,
        static: Mapping[str, Any],
        source: Cell,
        result: Result,
        levels: frozenset[Level],
    ) -> None:
        self.rule = rule
        self.static = static
        self.source = source  # the argument
        self.result = result
        self.levels = levels  # what the value depends on

    def wait(self) -> Cell:
        """Return the cell of the value."""
        cell = Cell(*self.result, pending=self)
        self.cell = weakref.ref(cell)
        return cell

    def fill(self, array: Array) -> None:
        """Let the cell have the value, if someone holds it."""
        cell = self.cell()
        if cell is not None and cell.pending is self:
            cell.fill(array, check_mode(self.levels))


def apply_rule(rule: Rule, *arguments: Any, **static: Any) -> Any:
    """Carry out a rule, and record it if an argument is traced: then the value is a tracer.

    Arguments are of one library; `static` is what else the rule takes: shapes, axes, keys.
    """
    strand = strand_of(arguments)
    if strand is not None:
        return strand.call(_applied, rule, arguments, static, is_primitive=True)
    library = common_library(rule.name, arguments, may_mix=True)
    if library.is_lazy:
        arguments = lazy_arguments(library, arguments)
    if rule.waits_for(arguments):
        return _waiting(rule, arguments[0], static)
    tracers = [a for a in arguments if isinstance(a, Tracer)]
    value = rule.value(library, arguments, static)
    if not tracers:
        return value
    parents = tuple([a.origin if isinstance(a, Tracer) else None for a in arguments])
    read = [i for p, reads in zip(parents, rule.reads, strict=False) if p for i in reads]
    read += rule.positions
    levels = levels_of(tracers)
    held = tuple(
        [kept(a, levels, rule, i) if i in read else _shaped(a) for i, a in enumerate(arguments)]
    )
    cell = Cell.of(value, check_mode(levels))
    journal = journal_of(levels)
    if journal is not None:
        journal.evaluated(rule, static, arguments, (cell,))
    node = RuleNode(rule, held, static, parents, Result(cell.shape, cell.kind, cell.device))
    return type(tracers[0])(cell, Origin(node, 0, levels))


def _applied(rule: Rule, arguments: Sequence[Any], static: Mapping[str, Any]) -> Any:
    return apply_rule(rule, *arguments, **static)


def _waiting(rule: Rule, tracer: Tracer, static: Mapping[str, Any]) -> Tracer:
    """Record a rule whose value is made when someone asks for it."""
    check_alive(tracer)
    cell, origin = tracer.cell, tracer.origin
    assert rule.shape is not None
    shape = rule.shape(cell.library.xp, cell.shape, **static)
    result = Result(tuple(shape), cell.kind, cell.device)
    held = (kept(tracer, origin.levels, rule, 0) if any(rule.reads) else _shaped(tracer),)
    node = RuleNode(rule, held, static, (origin,), result)
    waiting = Waiting(rule, static, cell, result, origin.levels).wait()
    journal = journal_of(origin.levels)
    if journal is not None:
        journal.evaluated(rule, static, (tracer,), (waiting,), waits=True)
    return type(tracer)(waiting, Origin(node, 0, origin.levels))


def apply_without_derivative(rule: Rule, x: Any, **static: Any) -> Array:
    """Return the result, a plain array, of a rule without cotangents on the elements of a value."""
    array = rule.evaluate(library_of_value(x).xp, elements_of(x), **static)
    if isinstance(x, Tracer) and (x.strand is None or not x.strand.takes(x)):
        journal = journal_of(x.origin.levels)
        if journal is not None:
            journal.derived(rule, static, x, array)
    return array


def waiting_view(cell: Cell, base: Callable[[Cell], Array]) -> Array:
    """Return what a value that waits as a view of others is, with `base` in place of these."""
    waiting = cell.pending
    if isinstance(waiting, Waiting) and waiting.rule.is_view:
        return waiting.rule.evaluate(
            cell.library.xp, waiting_view(waiting.source, base), **waiting.static
        )
    return base(cell)


def shape_of_view(evaluate: Callable[..., Array]) -> Callable[..., tuple[int, ...]]:
    """Return `Rule.shape` of a rule whose values are views, here of a broadcast number."""

    def found(xp: Any, own: tuple[int, ...], /, **static: Any) -> tuple[int, ...]:
        return tuple(evaluate(xp, xp.broadcast_to(xp.zeros(()), own), **static).shape)

    return found


def library_of_value(value: Any) -> Library:
    """Return the library of an array or a tracer."""
    return value.library if isinstance(value, Tracer) else library_of(value)


def common_library(what: str, arguments: Sequence[Any], *, may_mix: bool = False) -> Library:
    """Return the one library that all arrays among the arguments belong to.

    If they ``may_mix``, that of lazy ones beside which NumPy's are.
    """
    first = library_of_value(arguments[0])
    for argument in arguments[1:]:
        library = library_of_value(argument)
        if library is not first:
            both = first.mix_with(library) if may_mix else None
            if both is None:
                raise mixture(what, first, library)
            first = both
    return first


def mixture(what: str, first: Library, second: Library) -> TracerError:
    """Return the error for arrays of two libraries in one operation."""
    return TracerError(
        f"{what} mixes arrays of {first.name} and of {second.name}: convert one of "
        "them before the function that is differentiated, such as by "
        f"{(second if first is NUMPY else first).module}.asarray",
        what,
    )


def lazy_arguments(library: Library, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of an operation on lazy arrays; what is recorded looks at blocks."""
    found = tuple([lazily(a, library) for a in arguments])
    is_traced = any(isinstance(a, Tracer) for a in found)
    return tuple(map(library.with_plain_blocks, found)) if is_traced else found


def lazily(argument: Any, library: Library) -> Any:
    """Return an argument of an operation on lazy arrays: one of NumPy's goes into their graph."""
    if not isinstance(argument, Tracer):
        return library.readable(argument)
    return argument if argument.library is library else apply_rule(_LAZY, argument, library=library)


_IN_ONE_CHUNK = Rule("rechunk", lambda xp, g: g.rechunk(-1), (lambda g, x: g,), linear="each")

_LAZY = Rule(
    "an array of NumPy beside lazy ones",
    lambda xp, x, library: library.readable(x),
    (lambda g, x, library: apply_rule(_IN_ONE_CHUNK, g),),  # as the array is
    linear="each",
)


def _shaped(argument: Any) -> Shaped:
    return Shaped(tuple(argument.shape), argument.dtype)


def _carries(parent: Origin | None, level: Level) -> bool:
    return parent is not None and level in parent.levels
