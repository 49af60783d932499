"""The backward pass: pop a node's cotangents, call its pullback, add into its parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mixad.tape.broadcast_node import broadcast_to
from mixad.tape.node import InputNode, Node, RuleNode
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["Cotangent", "backward"]


class Cotangent(NamedTuple):
    """A cotangent on its way; ``fresh`` says that nothing else holds its array."""

    value: Any
    fresh: bool


def backward(
    level: Level, outputs: list[tuple[Origin, Any]], inputs: Sequence[InputNode]
) -> list[Cotangent | None]:
    """Carry cotangents from the outputs of a transform to its inputs.

    Nodes are visited after all that consume them, without recursion; each is let go as soon as it
    has been visited, with what only it holds.

    Parameters
    ----------
    level : Level
        The transform's; only edges that carry it are followed.
    outputs : list of (Origin, array)
        Where to begin and with which cotangents; emptied, so that nodes can be freed on the way.
    inputs : sequence of InputNode
        Where to end.

    Returns
    -------
    list of (Cotangent or None)
        One for each input, broadcasting to its shape; None where it is zero.
    """
    waiting = _count_consumers(level, [origin.node for origin, _ in outputs])
    found: dict[int, dict[int, Cotangent]] = {}
    ready: list[Node] = []

    def release(origin: Origin, value: Any, fresh: bool) -> None:
        key = id(origin.node)
        _add(found.setdefault(key, {}), origin.output, value, fresh)
        waiting[key] -= 1
        if not waiting[key]:
            ready.append(origin.node)

    while outputs:
        release(*outputs.pop(), fresh=False)
    while ready:
        node = ready.pop()
        if isinstance(node, InputNode) and node.level is level:
            continue
        gradients = _pulled(node, found.pop(id(node)), level)
        for parent, gradient in zip(node.parents, gradients, strict=True):
            if parent is not None and level in parent.levels:
                release(parent, gradient, node.fresh)
    return [found.get(id(node), {}).get(0) for node in inputs]


def _pulled(node: Node, found: dict[int, Cotangent], level: Level) -> Sequence[Any]:
    """Return the cotangents of a node's parents; all None if it has none itself."""
    if not found:
        return [None] * len(node.parents)
    cotangents = [found[i].value if i in found else None for i in range(max(found) + 1)]
    if isinstance(node, RuleNode):
        cotangents = [broadcast_to(cotangents[0], node.shape)]
    return node.pullback(cotangents, level)


def _add(found: dict[int, Cotangent], index: int, value: Any, fresh: bool) -> None:
    """Add a cotangent to what an output has; None is zero, a smaller one broadcasts."""
    if value is None:
        return
    known = found.get(index)
    if known is not None:
        # A tracer comes first: not every library leaves `array + tracer` to the tracer.
        first, second = known.value, value
        value, fresh = second + first if isinstance(second, Tracer) else first + second, True
    found[index] = Cotangent(value, fresh)


def _count_consumers(level: Level, roots: list[Node]) -> dict[int, int]:
    """Return how often each node (by id) will be given a cotangent."""
    counts: dict[int, int] = {}
    stack: list[Node] = []

    def count(node: Node) -> None:
        key = id(node)
        known = counts.get(key, 0)
        counts[key] = known + 1
        if not known:
            stack.append(node)

    for root in roots:
        count(root)
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and level in parent.levels:
                count(parent.node)
    return counts
