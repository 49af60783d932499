"""The two ends of a transform: arguments become tracers, results become values again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from mixad import pytree
from mixad.backends.arrays import (
    NUMPY,
    as_array,
    describe_array,
    is_array,
    is_number,
    library_met,
    library_of,
)
from mixad.backends.unsupported_arrays import arrays_of
from mixad.backends.warned import warn_user
from mixad.call.signature import Function
from mixad.errors import KernelTypeError, TracerError
from mixad.namespace.array import ArrayTracer
from mixad.namespace.scipy_calls import function_called
from mixad.scalar.dtypes import element_type_of, is_complex_dtype
from mixad.tape.backward import Cotangent
from mixad.tape.body import enter
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.cell import Cell
from mixad.tape.constant import is_constant, unwrapped
from mixad.tape.guard import is_compared_whole
from mixad.tape.memory import join, noted_array
from mixad.tape.node import InputNode, library_of_value
from mixad.tape.tracer import (
    Level,
    Origin,
    Tracer,
    check_alive,
    leaked,
)
from mixad.transforms.returning import gradient, unwrap_shared

__all__ = ["Inputs", "Outputs", "call_lifted", "called", "check_scalar", "in_structures",
           "matching", "warn_if_constant", "wrap_inputs"]  # fmt: skip


class Inputs(NamedTuple):
    """The arguments of a call with tracers among them, and the form of their gradients.

    ``around`` lists tracers of outer transforms: each with its tracer inside, and the origin of
    that while nothing is written to it.
    """

    arguments: list[Any]
    nodes: list[InputNode]
    cells: list[Cell]
    kinds: list[type]
    structures: list[pytree.Structure]
    around: list[tuple[Tracer, Tracer, Origin]]

    def gradients(
        self, cotangents: Sequence[Cotangent | None], around: frozenset[Level]
    ) -> list[Any]:
        """Return the gradient of each differentiated argument, in its structure.

        ``around`` are the outer transforms that the function's value depends on.
        """
        finished = [
            gradient(cell, cotangent, kind, around)
            for cell, cotangent, kind in zip(self.cells, cotangents, self.kinds, strict=True)
        ]
        return in_structures(finished, self.structures)


def in_structures(leaves: list[Any], structures: Sequence[pytree.Structure]) -> list[Any]:
    """Return leaves as trees of some structures."""
    if len(leaves) == len(structures) == structures.count(pytree.LEAF):
        return leaves
    left = iter(leaves)
    return [pytree.unflatten(structure, left) for structure in structures]


class Outputs(NamedTuple):
    """The value of a function: its leaves are tracers of the level or do not depend on it."""

    leaves: list[Any]
    structure: pytree.Structure

    def depend(self, level: Level) -> bool:
        """Whether a leaf depends on the level."""
        return any(isinstance(leaf, Tracer) and level in leaf.levels for leaf in self.leaves)

    def values(self, level: Level) -> Any:
        """Return the value as the caller of the transform sees it."""
        return pytree.unflatten(
            self.structure, (unwrap_shared(leaf, level) for leaf in self.leaves)
        )

    def without_values(self) -> Outputs:
        """Return what later passes need of the traced leaves: not their arrays."""
        return self._replace(leaves=list(map(_without_value, self.leaves)))

    def around(self, level: Level) -> frozenset[Level]:
        """Return the outer transforms of ``level`` that the value depends on."""
        traced = [leaf.levels for leaf in self.leaves if isinstance(leaf, Tracer)]
        return frozenset([o for levels in traced for o in levels if o.alive and o is not level])

    def seeds(self, cotangent: Any, level: Level) -> list[tuple[Tracer, Any]]:
        """Return the values where the backward pass begins, with their cotangents."""
        found, structure = pytree.flatten_as(self.structure, cotangent)
        if structure is not self.structure and structure != self.structure:
            raise TracerError(
                f"mixad.{level.name}: the cotangent has the structure {structure}, the value of "
                f"the function has {self.structure}: pass one array for each of its arrays, in the "
                "same structure"
            )
        what = f"mixad.{level.name}: the cotangent"
        return [
            (leaf, given if _is_like(leaf, given) else matching(_described(leaf), given, what))
            for leaf, given in zip(self.leaves, found, strict=True)
            if isinstance(leaf, Tracer) and level in leaf.levels
        ]


def _is_like(leaf: Tracer, given: Any) -> bool:
    """Whether a plain array has the library, the shape and the dtype of a traced value."""
    kind = leaf.kind
    return (
        describe_array(given) is not None
        and library_met(given) is kind.library
        and tuple(given.shape) == leaf.shape
        and bool(given.dtype == kind.library.dtype_of(kind.type))
    )


def _described(leaf: Tracer) -> Cell:
    """Return a traced value as a cell, which need not have its array."""
    return leaf.cell if leaf.state is None else Cell(leaf.shape, leaf.kind, leaf.device)


def _without_value(leaf: Any) -> Any:
    if not isinstance(leaf, Tracer):
        return leaf
    cell = leaf.cell
    return type(leaf)(Cell(cell.shape, cell.kind, cell.device), leaf.origin)


def wrap_inputs(level: Level, arguments: list[Any], positions: Sequence[int]) -> Inputs:
    """Put tracers of a level in place of the leaves of some arguments."""
    nodes: list[InputNode] = []
    cells: list[Cell] = []
    kinds: list[type] = []
    structures = []
    around: list[tuple[Tracer, Tracer, Origin]] = []
    alone = frozenset((level,))
    for position in positions:
        found, structure = pytree.flatten(arguments[position])
        traced = [_traced(alone, level, leaf, position) for leaf in found]
        is_leaf = structure is pytree.LEAF
        arguments[position] = traced[0] if is_leaf else pytree.unflatten(structure, traced)
        nodes += [cast("InputNode", t.origin.node) for t in traced]
        cells += [t.cell for t in traced]
        kinds += map(type, found)
        pairs = zip(found, traced, strict=True)
        around += [(leaf, t, t.origin) for leaf, t in pairs if isinstance(leaf, Tracer)]
        structures.append(structure)
    return Inputs(arguments, nodes, cells, kinds, structures, around)


def _traced(alone: frozenset[Level], level: Level, leaf: Any, position: int) -> Tracer:
    """Return the tracer of one input; ``alone`` is the set of the level."""
    if isinstance(leaf, Tracer):
        if leaf.levels:
            check_alive(leaf)
            return enter(leaf, level, ArrayTracer)
        leaf = unwrapped(leaf)
    cell = _input_cell(level, leaf, position)
    traced = ArrayTracer(cell, Origin(InputNode(level, None), 0, alone))
    return noted_array(traced) if isinstance(leaf, np.ndarray) else traced


def _input_cell(level: Level, leaf: Any, position: int) -> Cell:
    if type(leaf) is not np.ndarray:
        if is_number(leaf) and isinstance(leaf, (float, complex)):
            return Cell.of(np.asarray(leaf), level.check, weak=True)
        _check_input(level, leaf, position)
    elif level.check != "off" and not is_compared_whole(leaf):
        level.locks.add(leaf)
    try:
        given = leaf if type(leaf) is np.ndarray else library_of(leaf).with_plain_blocks(leaf)
        cell = Cell.of(given, level.check)
    except (KernelTypeError, TracerError) as error:
        raise error.about(_where(level, position)) from None
    if not cell.kind.type.is_inexact:
        raise TracerError(
            f"{_where(level, position)} contains an array of dtype {leaf.dtype}: "
            f"{_instead_of_integers(function_called(sys._getframe()))}"
        )
    return cell


def _instead_of_integers(called: str | None) -> str:
    """Return what to write: some solvers of SciPy pass on the user's integers, others do not."""
    if called is None:
        return "convert it to a float dtype, or leave it out of argnums"
    return f"{called} passes on what it is given, so give it floats, np.asarray(x0, float)"


def _check_input(level: Level, leaf: Any, position: int) -> None:
    if isinstance(leaf, (bool, int)):
        raise TracerError(
            f"{_where(level, position)} is the whole number {leaf!r}: write {float(leaf)!r}"
        )
    if not is_array(leaf):
        instead = arrays_of(leaf) or "close over other values, or see mixad.pytree.register"
        raise TracerError(
            f"{_where(level, position)} contains a {type(leaf).__name__}: gradients are with "
            f"respect to arrays and floats; {instead}"
        )


def _where(level: Level, position: int) -> str:
    return f"mixad.{level.name}: argument {position}"


def _written(error: ValueError, level: Level) -> TracerError | None:
    """Return the refusal for NumPy's error about a write to a locked array."""
    if not level.locks or "read-only" not in str(error):
        return None
    return TracerError(
        f"{error}: an array is changed in place that mixad.{level.name} has yet to read, since "
        "what is computed with it is recorded and carried out later: change a copy of it, or make "
        "a new array each time"
    )


def called(
    f: Function, arguments: list[Any], kwargs: dict[str, Any], has_aux: bool, level: Level
) -> tuple[Outputs, Any]:
    """Call the function; return its outputs and its aux."""
    try:
        result, aux = f(*arguments, **kwargs), None
    except ValueError as error:
        refusal = leaked(error) or _written(error, level)
        if refusal is None:
            raise
        raise refusal from error
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise TracerError(
                f"mixad.{level.name} with has_aux=True: {_name(f)} must return a pair "
                f"(value, aux), it returned {_a(result)}: return both, or leave has_aux out"
            )
        result, aux = result
        for leaf in pytree.leaves(aux):
            if isinstance(leaf, Tracer):
                check_alive(leaf)
    leaves, structure = pytree.flatten(result)
    for at, leaf in enumerate(leaves):
        if not isinstance(leaf, Tracer):
            _check_output(f, leaf, level)
        elif is_constant(leaf):
            leaves[at] = unwrapped(leaf)
        else:
            check_alive(leaf)
    return Outputs(leaves, structure), aux


def call_lifted(
    level: Level,
    f: Function,
    args: Sequence[Any],
    positions: Sequence[int],
    kwargs: dict[str, Any],
    has_aux: bool,
) -> tuple[Inputs, Outputs, Any]:
    """Call the function on tracers of a level; return inputs, outputs and aux."""
    inputs = wrap_inputs(level, list(args), positions)
    outputs, aux = called(f, inputs.arguments, kwargs, has_aux, level)
    for outer, inner, origin in inputs.around:
        if inner.origin is origin:  # otherwise it was written to, and is another array by now
            join(inner, outer)
    inputs.around.clear()
    return inputs, outputs, aux


def _a(value: Any) -> str:
    return "an array" if isinstance(value, Tracer) else f"a {type(value).__name__}"


def _check_output(f: Function, leaf: Any, level: Level) -> None:
    if not is_array(leaf) and not is_number(leaf):
        instead = "return arrays and numbers, and what else there is as aux, with has_aux=True"
        if type(leaf).__module__.startswith("xarray.") and hasattr(leaf, "data"):
            instead = "return x.data"
        raise TracerError(
            f"mixad.{level.name}: {_name(f)} returned a {type(leaf).__name__}, which is no array: "
            f"{instead}"
        )


def warn_if_constant(f: Function, outputs: Outputs, level: Level) -> None:
    """Warn if no output depends on the level: the user differentiates a constant."""
    if not outputs.depend(level):
        warn_user(
            f"mixad.{level.name}: the result of {_name(f)} does not depend on the arguments that "
            "it is differentiated with respect to; the derivative is zero",
            UserWarning,
        )


def check_scalar(name: str, outputs: Outputs) -> None:
    """Raise if a function did not return one float."""
    if outputs.structure is not pytree.LEAF:
        instead = "use has_aux=True for further results, or mixad.vjp"
        if outputs.structure.kind is type(None):
            instead = "is a return statement missing?"
        raise TracerError(
            f"mixad.{name}: the function returned {outputs.structure}, a gradient needs one "
            f"number: {instead}"
        )
    leaf = outputs.leaves[0]
    shape = tuple(getattr(leaf, "shape", ()))
    if shape:
        raise TracerError(
            f"mixad.{name}: the function returned an array of shape {shape}, a gradient needs one "
            "number: return its .sum(), or use mixad.vjp"
        )
    if isinstance(leaf, complex) if is_number(leaf) else is_complex_dtype(leaf.dtype):
        raise TracerError(
            f"mixad.{name}: the function returned a complex number, a gradient needs a real one: "
            "return its real part (.real), its imaginary part or abs(), or use mixad.vjp with a "
            "complex cotangent"
        )
    if not isinstance(leaf, Tracer) and is_array(leaf) and not _is_float(leaf):
        raise TracerError(
            f"mixad.{name}: the function returned a value of dtype {leaf.dtype}, which has no "
            "gradient: return a float computed from the arguments"
        )


def _is_float(array: Any) -> bool:
    try:
        return element_type_of(array.dtype).is_float
    except KernelTypeError:  # nothing computes in it: text
        return False


def matching(cell: Cell, given: Any, what: str, of: str = "the value") -> Any:
    """Return a tangent or cotangent of a value as an array of the value's shape and dtype.

    Whole numbers are converted, also arrays of them: SciPy tries operators with these. ``what``
    names it in messages, ``of`` what it belongs to.
    """
    if isinstance(given, (bool, int, float)) or (cell.type.is_complex and is_number(given)):
        one = cell.library.asarray(given, cell.kind.type, cell.device)
        return broadcast_to(one, cell.shape) if cell.shape else one
    given = unwrapped(given)
    if not isinstance(given, Tracer) and not is_array(given):
        raise TracerError(
            f"{what} is a {type(given).__name__}: pass an array of the shape of {of}, or a number"
        )
    try:
        library, is_whole = library_of_value(given), not element_type_of(given.dtype).is_inexact
    except (KernelTypeError, TracerError) as error:
        raise error.about(what) from None
    if library is NUMPY and cell.library.is_lazy and not isinstance(given, Tracer):
        library, given = cell.library, cell.library.readable(given)
    if library is not cell.library:
        raise TracerError(
            f"{what} is an array of {library.name}, {of} is one of {cell.library.name}: convert it"
        )
    dtype = cell.library.dtype_of(cell.kind.type)
    if is_whole and not isinstance(given, Tracer):
        given = library.xp.astype(as_array(given), dtype)
    if tuple(given.shape) != cell.shape or given.dtype != dtype:
        raise TracerError(
            f"{what} has shape {tuple(given.shape)} and dtype {given.dtype}, {of} has "
            f"shape {cell.shape} and dtype {dtype}: reshape or convert it"
        )
    return library.with_plain_blocks(as_array(given))


def _name(f: Function) -> str:
    return getattr(f, "__name__", type(f).__name__)
