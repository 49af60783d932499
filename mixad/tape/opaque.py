"""Values that have no derivative, in the body of a loop: traced, since another step has others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mixad.backends.arrays import as_array, is_array, library_of
from mixad.errors import TracerError
from mixad.tape.cell import Cell
from mixad.tape.node import ConstantNode, Result
from mixad.tape.operations import container_of, results_of
from mixad.tape.registers import may_share_memory, own_array
from mixad.tape.tracer import (
    NotRecordedError,
    Origin,
    Tracer,
    bodies_among,
    elements_of,
    journal_of,
    levels_of,
)
from mixad.tape.values_rule import ValuesRule

__all__ = ["apply_opaque"]


def apply_opaque(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return a library function's result without a derivative; record it in bodies of loops.

    The function returns arrays or numbers whose shapes depend on shapes alone. Traced values may
    also stand in tuples and lists.
    """
    operands: list[Any] = []
    template = _split((tuple(args), dict(kwargs)), operands)

    def call(arrays: Iterable[Any]) -> Any:
        args, kwargs = _filled(template, iter(arrays))
        return function(*args, **kwargs)

    def evaluate(xp: Any, *arrays: Any) -> tuple[Any, ...]:
        return tuple(map(as_array, results_of(call(arrays))))

    tracers = [each for each in operands if isinstance(each, Tracer)]
    given = call(map(elements_of, operands))
    values, container = tuple(map(as_array, results_of(given))), container_of(given)
    levels = bodies_among(levels_of(tracers)) if tracers else frozenset()
    if not levels:
        return given
    shapes = [tuple(value.shape) for value in values]
    name = getattr(function, "__name__", "a function")

    def evaluate_alike(xp: Any, *arrays: Any) -> tuple[Any, ...]:
        found = evaluate(xp, *arrays)
        if [tuple(value.shape) for value in found] != shapes:
            raise TracerError(
                f"{name} gives arrays of other shapes in another step of a loop: each step must "
                "have the shapes of the first; write np.where, or a kernel, for what is selected"
            )
        # A view of what is given would be one of what another step overwrites.
        return tuple([_own(value, arrays) for value in found])

    if any(level.foresees for level in levels):
        _check_shapes(call, list(map(elements_of, operands)), shapes)
    cells = tuple([Cell.of(value, "off") for value in values])
    journal = journal_of(levels)
    if journal is not None:
        rule = ValuesRule(name, evaluate_alike, (), is_total=True)
        journal.evaluated(rule, {}, operands, cells)
    node = ConstantNode(*[Result(cell.shape, cell.kind, cell.device) for cell in cells])
    results = [type(tracers[0])(c, Origin(node, k, levels)) for k, c in enumerate(cells)]
    return results[0] if container is None else container(results)


def _check_shapes(
    call: Callable[[Iterable[Any]], Any], arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> None:
    """Leave the body of a loop if the shapes that a function returns depend on elements.

    It is called with other flags, and with numbers of which no two are equal.
    """
    for others in (list(map(_all_true, arrays)), list(map(_distinct, arrays))):
        try:
            found = [tuple(as_array(value).shape) for value in results_of(call(others))]
        except Exception:  # such as an index that is outside: each step is told
            continue
        if found != shapes:
            raise NotRecordedError("shapes that depend on elements")


def _all_true(array: Any) -> Any:
    """Return true flags in place of an array of flags; other values as they are."""
    is_flags = str(getattr(array, "dtype", "")).endswith("bool")
    return library_of(array).xp.ones_like(array) if is_flags else array


def _distinct(array: Any) -> Any:
    """Return numbers that all differ in place of an array of numbers; flags as they are."""
    dtype = getattr(array, "dtype", None)
    if dtype is None or not array.shape or str(dtype).endswith("bool"):
        return array
    xp = library_of(array).xp
    numbers = xp.arange(math.prod(array.shape), device=getattr(array, "device", None))
    return xp.reshape(xp.astype(numbers, dtype), tuple(array.shape))


_OPERAND = object()
"""Stands for an operand among arguments."""


def _split(value: Any, operands: list[Any]) -> Any:
    """Return arguments without operands, which are added to a list."""
    if isinstance(value, Tracer) or is_array(value):
        operands.append(value)
        return _OPERAND
    if type(value) in (tuple, list):
        return type(value)([_split(each, operands) for each in value])
    if type(value) is dict:
        return {name: _split(each, operands) for name, each in value.items()}
    if type(value) is slice:
        return slice(*[_split(each, operands) for each in (value.start, value.stop, value.step)])
    return value


def _filled(value: Any, operands: Iterable[Any]) -> Any:
    """Return arguments with operands in their places."""
    left = iter(operands)
    if value is _OPERAND:
        return next(left)
    if type(value) in (tuple, list):
        return type(value)([_filled(each, left) for each in value])
    if type(value) is dict:
        return {name: _filled(each, left) for name, each in value.items()}
    if type(value) is slice:
        return slice(*[_filled(each, left) for each in (value.start, value.stop, value.step)])
    return value


def _own(value: Any, arrays: Sequence[Any]) -> Any:
    """Return a value that shares no memory with these arrays."""
    is_view = any(may_share_memory(value, array) for array in arrays)
    return own_array(value, tuple(value.shape)) if is_view else value
