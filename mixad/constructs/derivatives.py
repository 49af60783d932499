"""Derivatives of the bodies of loops: bodies again, so that every order is the same mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.tape.backward import backward
from mixad.tape.body import Body, enter
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.node import InputNode, Result
from mixad.tape.tangents import carry_forward
from mixad.tape.tracer import Level, Origin, Tracer, without_level

__all__ = ["or_zeros", "pull_back", "push_forward"]


def or_zeros(derivative: Any, result: Result) -> Any:
    """Return a derivative as an array; None is zero."""
    return result.zeros() if derivative is None else derivative


def pull_back(
    body: Body,
    operands: Sequence[Any],
    active: Sequence[int],
    gs: Sequence[Any],
    sums: Sequence[tuple[int, Any]] = (),
) -> list[Any]:
    """Return the cotangents of active operands of a body from those of its results.

    None is a zero cotangent. They are added to ``sums``, which name operands.
    """
    with Level(body.name) as level:
        given, nodes = _enter(body, operands, active, level)
        outputs = body.compute(*given)
    pairs = zip(outputs, gs, strict=True)
    seeds = [(out.origin, g) for out, g in pairs if g is not None and _depends(out, level)]
    seeds += [(Origin(nodes[active.index(at)], 0, given[at].levels), g) for at, g in sums]
    found = backward(level, seeds, nodes)
    shapes = [tuple(operands[at].shape) for at in active]
    return [
        None if each is None else broadcast_to(each.value, shape)
        for each, shape in zip(found, shapes, strict=True)
    ]


def push_forward(
    body: Body, operands: Sequence[Any], active: Sequence[int], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Return the results of a body, and their tangents from those of active operands.

    None is a zero tangent.
    """
    with Level(body.name, is_reverse=False) as level:
        given, nodes = _enter(body, operands, active, level)
        outputs = body.compute(*given)
    moving = [at for at, out in enumerate(outputs) if _depends(out, level)]
    with Level(body.name, is_reverse=False) as own:
        seeds = [(enter(tangent, own, body.kind),) for tangent in tangents]
        origins = [outputs[at].origin for at in moving]
        duals = dict(zip(moving, carry_forward(level, own, origins, nodes, seeds), strict=True))
    values, found = list[Any](), list[Any]()
    for at, out in enumerate(outputs):
        dual = duals.get(at)
        is_new = dual is not None and dual.value is not None
        values.append(
            without_level(dual.value, own) if dual and is_new else without_level(out, level)
        )
        found.append(None if dual is None else _without(dual.tangents[0], own))
    return values, found


def _without(tangent: Any, level: Level) -> Any:
    return None if tangent is None else without_level(tangent, level)


def _enter(
    body: Body, operands: Sequence[Any], active: Sequence[int], level: Level
) -> tuple[list[Any], list[InputNode]]:
    """Return operands with tracers of a level in some places, and their nodes."""
    given = list(operands)
    for at in active:
        given[at] = enter(given[at], level, body.kind)
    return given, [given[at].origin.node for at in active]


def _depends(value: Any, level: Level) -> bool:
    return isinstance(value, Tracer) and level in value.origin.levels
