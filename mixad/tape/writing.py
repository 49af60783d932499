"""Writing into traced arrays: a node for each write, arrays that are changed in place.

The value that was written gets the new array's cotangent there; the old array gets the rest. Both
passes change one array from write to write, so a loop that writes all elements of an array costs as
much as writing them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixad.tape.broadcasting import broadcast_to
from mixad.tape.buffer import Buffer, buffer_of, copied, written_array
from mixad.tape.memory import check_writable, retire_others, unshared
from mixad.tape.node import ConstantNode, Cotangents, Result
from mixad.tape.tracer import (
    Level,
    Origin,
    Tracer,
    check_alive,
    check_mode,
    levels_of,
    primal_value,
)

__all__ = ["Write", "WriteNode", "pushed_write", "rebind", "writable", "write"]


@dataclass(frozen=True, eq=False)
class Write:
    """A way of writing into arrays.

    `erase` makes the cotangent of the new array that of the old one, in place.
    """

    name: str  # for messages
    write: Callable[..., None]  # ``(array, value, **static)``, in place
    part: Callable[..., Any]  # ``(g, **static)``: a copy, the cotangent of the value
    erase: Callable[..., None]  # ``(g, **static)``


class WriteNode:
    """One write: its parents are the old array and the value; `static` says where it wrote."""

    __slots__ = ("parents", "results", "rule", "static")
    fresh = True

    def __init__(
        self,
        rule: Write,
        static: Mapping[str, Any],
        parents: tuple[Origin | None, Origin | None],
        result: Result,
    ) -> None:
        self.rule = rule
        self.static = static
        self.parents = parents
        self.results = (result,)

    @property
    def name(self) -> str:
        """The rule's."""
        return self.rule.name

    def pullback(self, cotangents: Cotangents, level: Level) -> Cotangents:
        """Return the cotangents of the old array and the value; the given one is not changed."""
        return self.pull_owned(writable(cotangents[0], self.results[0]), level)

    def pull_owned(self, g: Any, level: Level) -> Cotangents:
        """Return the cotangents of the old array and the value; `g` is changed into the first."""
        array, value = self.parents
        part = self.rule.part(g, **self.static) if value and level in value.levels else None
        if array is None or level not in array.levels:
            return None, part
        self.rule.erase(g, **self.static)
        return g, part


def writable(g: Any, result: Result) -> Any:
    """Return a value's cotangent as an array or a tracer of its shape that nothing else has."""
    whole = broadcast_to(g, result.shape)
    return unshared(whole) if isinstance(whole, Tracer) else copied(whole)


def write(rule: Write, x: Tracer, value: Any, **static: Any) -> None:
    """Write a value into a traced array: the tracer stands for the new array from now on.

    A traced value has the dtype of `x`, and the shape of `rule.part`; `static` says where.
    """
    check_alive(x)
    check_writable(x)
    given = primal_value(value)
    levels = levels_of([x, value] if isinstance(value, Tracer) else [x])
    old = x.origin
    before = None if buffer_of(x.cell) is not None else x.cell
    try:
        rule.write(written_array(x, check_mode(levels) if levels else "off"), given, **static)
    except BaseException:
        if before is not None:  # nothing is written; a buffer has what it had
            x.cell = before
        raise
    if levels:
        origin = value.origin if isinstance(value, Tracer) and value.origin.levels else None
        parents = (old if old.levels else None, origin)
        result = Result(x.cell.shape, x.cell.kind, x.cell.device)
        x.origin = Origin(WriteNode(rule, static, parents, result), 0, levels)
    retire_others(x)


def rebind(x: Tracer, result: Tracer) -> None:
    """Let a tracer stand for another value of its shape and dtype, all of which is new."""
    strand = result.strand
    if strand is not None and strand.may_write(x, result):
        strand.rebind(x, result)
        return
    check_alive(x)
    check_writable(x)
    x.cell, x.origin = result.cell, result.origin
    retire_others(x)


def pushed_write(node: WriteNode, tangents: Sequence[Any], *, is_last: bool) -> Any:
    """Return the tangent of what was written, from those of the old array and of the value.

    None is zero. If `is_last`, nothing else reads that of the old array, which is changed then.
    """
    old, new = tangents
    if old is None and new is None:
        return None
    tangent = _writable_zeros(node.results[0], type(new)) if old is None else old
    if not is_last:
        tangent = unshared(tangent)
    if new is None:
        node.rule.erase(tangent, **node.static)
    else:
        write(node.rule, tangent, new, **node.static)
    return tangent


def _writable_zeros(result: Result, tracer_type: type[Tracer]) -> Tracer:
    """Return zeros as a tracer of no level, which may be written to."""
    cell = Buffer(result.zeros(), "off").wait(result.kind, result.device)
    return tracer_type(cell, Origin(ConstantNode(), 0, frozenset()))
