"""A call of a user's function recorded as one node, which a rule of its own differentiates.

The function runs on plain values; the node keeps the arguments.  Checkpoints and custom rules are
such calls: they differ in what they run and in how cotangents go back through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from mixad import pytree
from mixad.backends.arrays import as_array, is_array, is_number
from mixad.errors import KernelTypeError, TracerError
from mixad.namespace.array import ArrayTracer
from mixad.scalar.dtypes import element_type_of
from mixad.tape.aliases import propagate_aliases
from mixad.tape.body import enter
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.cell import Cell
from mixad.tape.constant import constant, is_constant, is_traced, unwrapped
from mixad.tape.memory import array_as
from mixad.tape.node import Cotangents, InputNode, Result
from mixad.tape.operations import Called, Operation, results_of
from mixad.tape.registers import as_register, of_register, own_array
from mixad.tape.strand import Strand
from mixad.tape.tracer import (
    Level,
    NotRecordedError,
    Origin,
    Tracer,
    check_mode,
    is_in_body,
    journal_of,
    kept,
    leaked,
    levels_of,
    strand_of,
    without_level,
)
from mixad.transforms.returning import copy_array, own_cotangent, unwrap_output, without_derivative

__all__ = ["CallNode", "CallRule", "Value", "is_inexact", "record_call"]


class Value(NamedTuple):
    """The value of a function: its leaves, and the cell of each float leaf, None for others."""

    leaves: list[Any]
    structure: pytree.Structure
    cells: list[Cell | None]

    @property
    def floats(self) -> list[Cell]:
        """The cells of the leaves that have a derivative."""
        return [cell for cell in self.cells if cell is not None]

    def tree(self, of_floats: Sequence[Any]) -> Any:
        """Return a tree with the given values for float leaves, None for the others."""
        left = iter(of_floats)
        leaves = [None if cell is None else next(left) for cell in self.cells]
        return pytree.unflatten(self.structure, leaves)


class CallRule(Protocol):
    """A function to call, and its pullback and pushforward."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    @property
    def borrowed_from(self) -> str:
        """The library whose function is called; empty for a function of the user's.

        A library's function changes no array that it is given; for the user's, tensors are copied.
        """
        ...

    def argument(self, index: int) -> str:
        """Return the name, for messages, of an array that was changed in the meantime."""
        ...

    def run(self, arguments: Any) -> tuple[Any, Any]:
        """Return the value for plain arguments, and residuals."""
        ...

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Return cotangents of the leaves that carry the level, None for zero."""
        ...

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> Sequence[Sequence[Any]]:
        """Return, for each direction, the tangents of float results from those of the leaves."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class CallNode(Called):
    """A recorded call of a rule."""

    rule: CallRule
    leaves: tuple[Any, ...]  # of the arguments: tracers, held arrays, others
    tree: pytree.Structure  # structure of the arguments
    parents: tuple[Origin | None, ...]  # where the leaves came from
    value: Value  # what came of it, without its leaves
    residuals: Any  # what else was retained
    results: Sequence[Result]  # the float leaves of the value

    @property
    def name(self) -> str:
        """The rule's."""
        return self.rule.name

    @property
    def fresh(self) -> bool:
        """False: cotangents may be arrays that the user holds."""
        return False

    def wrt(self, level: Level) -> list[int]:
        """Return the leaves that carry a level."""
        return [i for i, p in enumerate(self.parents) if p is not None and level in p.levels]

    def arguments(self, level: Level) -> list[Any]:
        """Return the leaves as the outer transforms see them, constants unchanged."""
        return [
            leaf
            if is_constant(leaf)
            else unwrap_output(leaf, level)
            if isinstance(leaf, Tracer)
            else without_level(leaf, level)
            for leaf in self.leaves
        ]

    def entered(self, level: Level, own: Level) -> tuple[list[Any], list[Any]]:
        """Return the leaves, those of a level wrapped in tracers of another, and their nodes."""
        leaves, nodes = self.arguments(level), []
        for i in self.wrt(level):
            leaf = self.leaves[i]
            leaves[i] = enter(
                without_level(leaf, level), own, ArrayTracer, weak=leaf.cell.kind.weak
            )
            nodes.append(leaves[i].origin.node)
        return leaves, nodes

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Let the rule pull the cotangents back; those that it leaves out are zeros."""
        given = [*cotangents, *[None] * (len(self.results) - len(cotangents))]
        gs = [
            like.zeros() if g is None else self._shown(broadcast_to(g, like.shape))
            for g, like in zip(given, self.results, strict=True)
        ]
        pulled = self._run(self.rule.pulled, level, gs)
        found: list[Any] = [None] * len(self.parents)
        for i, gradient in zip(self.wrt(level), pulled, strict=True):
            found[i] = own_cotangent(self.leaves[i].cell, None) if gradient is None else gradient
        return found

    def _shown(self, g: Any) -> Any:
        """Return a cotangent in the form that the rule gets."""
        return g if self.rule.borrowed_from else _shielded(g)

    def pull(self, gs: Sequence[Any]) -> Sequence[Any]:
        """Return the cotangents of its traced arguments, arrays of their shapes."""
        (level,) = next(parent.levels for parent in self.parents if parent is not None)
        pairs = zip(self.pullback(gs, level), self.leaves, strict=True)
        return [_whole(g, leaf.cell) for g, leaf in pairs if g is not None]

    def pushforward(
        self, directions: Iterable[Sequence[Any]], level: Level
    ) -> Sequence[Sequence[Any]]:
        """Let the rule push tangents forward."""
        return self._run(self.rule.pushed, level, list(directions))

    def _run(self, step: Callable[..., Any], level: Level, given: Sequence[Any]) -> Sequence[Any]:
        """Let the rule run the user's function; restore refusals that NumPy's own errors hide."""
        try:
            found: Sequence[Any] = step(self, level, given)
            return found
        except TracerError as error:
            if str(error) != level.over:
                raise
            raise TracerError(
                f"the rule of {self.name} reads a value that is being differentiated and is not "
                "among its arguments: pass it as an argument"
            ) from None
        except ValueError as error:
            refusal = leaked(error)
            if refusal is None:
                raise
            raise refusal from error


def record_call(rule: CallRule, arguments: Any) -> Any:
    """Run a rule on plain values; record it if a leaf of the arguments is traced.

    Return the value, with tracers in place of float leaves.
    """
    leaves, tree = pytree.flatten(arguments)
    tracers = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
    if is_in_body(tracers):  # the user's rule is to be called in each step
        raise NotRecordedError(f"{rule.name} in the body of a loop")
    strand = strand_of(tracers)
    if strand is not None and not _is_of_one(strand, tracers):
        strand = None
    levels = levels_of(tracers) if strand is None else strand.levels
    given = list(map(without_derivative, leaves))
    result, residuals = _run(rule, tree, leaves, given)
    value = _taken_apart(rule.name, result, levels)
    results = tuple([Result(cell.shape, cell.kind, cell.device) for cell in value.floats])
    shown = (
        leaves if strand is None else list(map(partial(_input, strand.level, rule), leaves, given))
    )
    parents = tuple([leaf.origin if is_traced(leaf) else None for leaf in shown])
    held = tuple([_held(leaf, levels, rule, i) for i, leaf in enumerate(shown)])
    kept_value = value._replace(leaves=[])
    node = CallNode(rule, held, tree, parents, kept_value, residuals, results)
    if strand is None:
        outputs = _outputs(node, value.floats, levels)
    else:
        outputs = _recorded(strand, node, [leaf for leaf in leaves if is_traced(leaf)])
    of_floats = [a for a, cell in zip(value.leaves, value.cells, strict=True) if cell is not None]
    propagate_aliases(zip(leaves, given, strict=True), zip(outputs, of_floats, strict=True))
    left = iter(outputs)
    return pytree.unflatten(
        value.structure,
        [
            leaf if cell is None else next(left)
            for leaf, cell in zip(value.leaves, value.cells, strict=True)
        ],
    )


def _is_of_one(strand: Strand, tracers: Sequence[Tracer]) -> bool:
    """Whether traced values belong to one strand that is inside of no other transform."""
    return strand.outer is None and all(t.strand is strand for t in tracers if is_traced(t))


def _outputs(node: CallNode, cells: Iterable[Cell], levels: frozenset[Level]) -> list[ArrayTracer]:
    return [ArrayTracer(cell, Origin(node, k, levels)) for k, cell in enumerate(cells)]


def _input(level: Level, rule: CallRule, leaf: Any, given: Any) -> Any:
    """Return an input of the transform in place of a value that a strand traces.

    A library whose derivatives are borrowed watches itself what it reads later.
    """
    if not is_traced(leaf):
        return leaf
    array, check = as_array(np.asarray(given) if leaf.weak else given), level.check
    cell = Cell.of(array, "off" if rule.borrowed_from else check, weak=leaf.weak)
    tracer = ArrayTracer(cell, Origin(InputNode(level, None), 0, frozenset((level,))))
    return array_as(tracer, leaf)


def _recorded(strand: Strand, node: CallNode, traced: Sequence[Tracer]) -> list[Any]:
    """Return the float results of a call as values of a strand."""
    cells = node.value.floats
    arrays = [_lockable(cell.array) for cell in cells]
    operation = _operation(len(traced), tuple([cell.weak for cell in cells]))
    return results_of(strand.applied(operation, [*traced, node, *arrays])) if cells else []


@cache
def _operation(count: int, weak: tuple[bool, ...]) -> Operation:
    """Return the operation of the computed values of a call of ``count`` traced values."""
    return Operation(partial(_given, count, weak), is_kernel=False, is_primitive=True)


def _given(count: int, weak: Sequence[bool], *operands: Any) -> Any:
    """Return the values of a call on nodes."""
    tracers, call, arrays = operands[:count], operands[count], operands[count + 1 :]
    levels, left = levels_of(list(tracers)), iter(tracers)
    cells = [Cell.of(a, check_mode(levels), weak=w) for a, w in zip(arrays, weak, strict=True)]
    journal = journal_of(levels)
    if journal is not None:
        for cell, array in zip(cells, arrays, strict=True):
            journal.take(cell, array)
    leaves, parents = list(call.leaves), list(call.parents)
    for at, parent in enumerate(parents):
        if parent is not None:
            tracer = next(left)
            leaves[at], parents[at] = kept(tracer, levels, call.rule, at), tracer.origin
    if journal is not None:
        journal.called(call, tracers, cells)
    node = replace(call, leaves=tuple(leaves), parents=tuple(parents))
    outputs = _outputs(node, cells, levels)
    return tuple(outputs) if len(outputs) > 1 else outputs[0]


def _lockable(array: Any) -> Any:
    """Return an array that can be locked while the user writes to the array it is a view of."""
    return array.view() if type(array) is np.ndarray else array


def _whole(g: Any, cell: Cell) -> Any:
    """Return a cotangent as an array of the shape and type of a value."""
    array = as_register(g)
    if isinstance(array, (np.ndarray, np.generic)):
        array = np.asarray(array, cell.type.dtype, order="C")
    whole = array if tuple(array.shape) == cell.shape else own_array(array, cell.shape)
    return of_register(cell.library, whole)


def _run(
    rule: CallRule, tree: pytree.Structure, leaves: Sequence[Any], given: Sequence[Any]
) -> tuple[Any, Any]:
    """Run a rule on arrays that are read-only where a leaf is traced: others read them, too.

    An argument that the rule returns unchanged comes back as the array that was given.
    """
    if rule.borrowed_from:
        return rule.run(pytree.unflatten(tree, given))
    pairs = zip(leaves, given, strict=True)
    shown = [_shielded(array) if is_traced(leaf) else array for leaf, array in pairs]
    arrays = {id(view): array for view, array in zip(shown, given, strict=True)}
    try:
        result, residuals = rule.run(pytree.unflatten(tree, shown))
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise TracerError(
            f"{error}: {rule.name} changes one of its arguments in place, or an array that a "
            "transform has yet to read: change a copy of it (x = x * 1)"
        ) from error
    return pytree.tree_map(lambda leaf: arrays.get(id(leaf), leaf), result), residuals


def _taken_apart(name: str, result: Any, levels: frozenset[Level]) -> Value:
    """Split the value that a function returned for plain arguments."""
    leaves, structure = pytree.flatten(result)
    leaves = list(map(unwrapped, leaves))
    for leaf in leaves:
        if isinstance(leaf, Tracer):
            raise TracerError(
                f"{name} reads a value that is being differentiated and is not among its "
                "arguments: pass it as an argument"
            )
    return Value(leaves, structure, [_cell(name, leaf, levels) for leaf in leaves])


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf has a derivative: a float or complex number, or an array of such."""
    if is_number(leaf) or not is_array(leaf):
        return isinstance(leaf, (float, complex))
    return element_type_of(leaf.dtype).is_inexact


def _cell(name: str, leaf: Any, levels: frozenset[Level]) -> Cell | None:
    """Return the cell of a leaf; None for integers and booleans, which have no derivative."""
    if not is_number(leaf) and not is_array(leaf):
        raise TracerError(
            f"{name} returned a {type(leaf).__name__}, which is no array: return arrays and numbers"
        )
    try:
        if not is_inexact(leaf):
            return None
        weak = is_number(leaf)
        array = np.asarray(leaf) if weak else as_array(leaf)
        return Cell.of(array, check_mode(levels), weak=weak)
    except (KernelTypeError, TracerError) as error:
        raise error.about(f"the value of {name}") from None


def _shielded(array: Any) -> Any:
    """Return an array that the user's function cannot change for other readers."""
    if type(array) is not np.ndarray:
        return copy_array(array)
    view = array.view()
    view.flags.writeable = False
    return view


def _held(leaf: Any, levels: frozenset[Level], rule: CallRule, index: int) -> Any:
    if is_constant(leaf):
        return constant(unwrapped(leaf))
    is_read = isinstance(leaf, Tracer) or is_array(leaf)
    return kept(leaf, levels, rule, index) if is_read else leaf
