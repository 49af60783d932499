"""A call of a user's function recorded as one node, which a rule of its own differentiates.

The function runs on plain values; the node keeps the arguments.  Checkpoints and custom rules are
such calls: they differ in what they run and in how cotangents go back through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from mixad import pytree
from mixad.backends.arrays import as_array, is_array, is_number
from mixad.errors import KernelTypeError, TracerError
from mixad.lifting import entered
from mixad.namespace.array import ArrayTracer
from mixad.returning import owned, returned, without_derivative
from mixad.scalar.dtypes import element_type_of
from mixad.tape.aliases import share_alike
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.cell import Cell
from mixad.tape.constant import constant, is_constant, is_traced, unwrapped
from mixad.tape.node import Cotangents, Result
from mixad.tape.tracer import Level, Origin, Tracer, check_mode, kept, leaked, levels_of, stripped

__all__ = ["CallNode", "CallRule", "Value", "is_inexact", "record_call"]


class Value(NamedTuple):
    """What a function returned: its leaves, and for each that is of floats its cell, else None."""

    leaves: list[Any]
    structure: pytree.Structure
    cells: list[Cell | None]

    @property
    def floats(self) -> list[Cell]:
        """The cells of the leaves that have a derivative."""
        return [cell for cell in self.cells if cell is not None]

    def tree(self, of_floats: Sequence[Any]) -> Any:
        """Return a tree with these in place of the leaves of floats, None for the others."""
        left = iter(of_floats)
        leaves = [None if cell is None else next(left) for cell in self.cells]
        return pytree.unflatten(self.structure, leaves)


class CallRule(Protocol):
    """What is run, and how cotangents go back through it."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    def argument(self, index: int) -> str:
        """Return what an array is called in messages that was changed in the meantime."""
        ...

    def run(self, arguments: Any) -> tuple[Any, Any]:
        """Return the value for plain arguments, and what is kept beside them."""
        ...

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Return cotangents of the leaves that carry the level, None where they are zero."""
        ...

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> Sequence[Sequence[Any]]:
        """Return for each direction the tangents of the floats, given those of the leaves."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class CallNode:
    """A call that was recorded.

    Attributes
    ----------
    rule : CallRule
        What was called.
    leaves : tuple
        Of the arguments: tracers, held arrays, other values.
    tree : Structure
        That of the arguments.
    parents : tuple of (Origin or None)
        Where the leaves came from.
    value : Value
        What came of it, without its leaves.
    residuals : object
        What else was kept.
    results : sequence of Result
        What the values of floats are.
    """

    rule: CallRule
    leaves: tuple[Any, ...]
    tree: pytree.Structure
    parents: tuple[Origin | None, ...]
    value: Value
    residuals: Any
    results: Sequence[Result]

    @property
    def name(self) -> str:
        """The rule's."""
        return self.rule.name

    @property
    def fresh(self) -> bool:
        """Cotangents may be what the user holds."""
        return False

    @property
    def structure(self) -> object:
        """Parents that carry the level always have a cotangent."""
        return CallNode

    def wrt(self, level: Level) -> list[int]:
        """Return the leaves that carry a level."""
        return [i for i, p in enumerate(self.parents) if p is not None and level in p.levels]

    def arguments(self, level: Level) -> list[Any]:
        """Return the leaves as the transforms around a level see them, constants as they are."""
        return [
            leaf
            if is_constant(leaf)
            else returned(leaf, level)
            if isinstance(leaf, Tracer)
            else stripped(leaf, level)
            for leaf in self.leaves
        ]

    def entered(self, level: Level, own: Level) -> tuple[list[Any], list[Any]]:
        """Return the leaves with those that carry a level entered into another, and their nodes."""
        leaves, nodes = self.arguments(level), []
        for i in self.wrt(level):
            leaf = self.leaves[i]
            leaves[i] = entered(stripped(leaf, level), own, weak=leaf.cell.kind.weak)
            nodes.append(leaves[i].origin.node)
        return leaves, nodes

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Let the rule carry them back; zeros stand for what it leaves out."""
        given = [*cotangents, *[None] * (len(self.results) - len(cotangents))]
        gs = [
            like.zeros() if g is None else _shielded(broadcast_to(g, like.shape))
            for g, like in zip(given, self.results, strict=True)
        ]
        pulled = self._run(self.rule.pulled, level, gs)
        found: list[Any] = [None] * len(self.parents)
        for i, gradient in zip(self.wrt(level), pulled, strict=True):
            found[i] = owned(self.leaves[i].cell, None) if gradient is None else gradient
        return found

    def pushforward(
        self, directions: Iterable[Sequence[Any]], level: Level
    ) -> Sequence[Sequence[Any]]:
        """Let the rule carry tangents forward."""
        found: Sequence[Sequence[Any]] = self._run(self.rule.pushed, level, list(directions))
        return found

    def _run(self, step: Callable[..., Any], level: Level, given: Sequence[Any]) -> Any:
        """Let the rule run the user's function: NumPy hides refusals in it behind its own error."""
        try:
            return step(self, level, given)
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

    Returned is the value, with tracers in place of the leaves of floats.
    """
    leaves, tree = pytree.flatten(arguments)
    levels = levels_of([leaf for leaf in leaves if isinstance(leaf, Tracer)])
    given = list(map(without_derivative, leaves))
    result, residuals = _run(rule, tree, leaves, given)
    value = _taken_apart(rule.name, result, levels)
    parents = tuple([leaf.origin if is_traced(leaf) else None for leaf in leaves])
    held = tuple([_held(leaf, levels, rule, i) for i, leaf in enumerate(leaves)])
    results = tuple([Result(cell.shape, cell.kind, cell.device) for cell in value.floats])
    kept_value = value._replace(leaves=[])
    node = CallNode(rule, held, tree, parents, kept_value, residuals, results)
    outputs = [ArrayTracer(cell, Origin(node, k, levels)) for k, cell in enumerate(value.floats)]
    of_floats = [a for a, cell in zip(value.leaves, value.cells, strict=True) if cell is not None]
    share_alike(zip(leaves, given, strict=True), zip(outputs, of_floats, strict=True))
    left = iter(outputs)
    return pytree.unflatten(
        value.structure,
        [
            leaf if cell is None else next(left)
            for leaf, cell in zip(value.leaves, value.cells, strict=True)
        ],
    )


def _run(
    rule: CallRule, tree: pytree.Structure, leaves: Sequence[Any], given: Sequence[Any]
) -> tuple[Any, Any]:
    """Run a rule on arrays that it cannot write to where a leaf is traced: others read them, too.

    What is handed on as it is comes back as the array that was given.
    """
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
    """Take apart what a function returned for plain arguments."""
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
    """Return the cell of a leaf; None of whole numbers and booleans, which have no derivative."""
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
    """Return an array that the user's function cannot change for others who read it."""
    if type(array) is not np.ndarray:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _held(leaf: Any, levels: frozenset[Level], rule: CallRule, index: int) -> Any:
    if is_constant(leaf):
        return constant(unwrapped(leaf))
    is_read = isinstance(leaf, Tracer) or is_array(leaf)
    return kept(leaf, levels, rule, index) if is_read else leaf
