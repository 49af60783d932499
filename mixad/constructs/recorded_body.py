"""The body of a loop, recorded: the user's function becomes a function of arrays.

It is called on values whose elements are unknown. Each step repeats what it does with them; its
captures are arguments of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.arrays import describe_array
from mixad.call.closures import captured_values, substitute
from mixad.constructs.leaves import leaf_of, result_of
from mixad.errors import TracerError
from mixad.namespace.array import ArrayTracer
from mixad.namespace.unknown_array import IndexedArrayError, UnknownArray
from mixad.tape.body import Body, are_made_alike, came_into
from mixad.tape.guard import GuardedArray
from mixad.tape.node import Result
from mixad.tape.registers import array_like, have_same_bits
from mixad.tape.states import State, initial_state
from mixad.tape.strand import Strand
from mixad.tape.tracer import Level, NotRecordedError, Tracer, read_only

__all__ = ["LoggedBody", "RecordedBody", "record_body", "record_twice"]


class LoggedBody(NamedTuple):
    """A body that also returns what was there where it writes, so that its writes can be undone.

    ``writes`` have the number of a result, which is the argument of that number with others of its
    elements, and the results that tell of each write in order: what was there, and its positions.
    """

    body: Body
    writes: tuple[tuple[int, tuple[int, ...]], ...]


class RecordedBody(NamedTuple):
    """A body with its captures, which are its arguments after the inputs."""

    body: Body
    captured: list[Any]
    structure: pytree.Structure  # of what the function returns
    is_constant: bool  # whether that depends on no input
    logged: LoggedBody | None
    marks: list[Any]  # tell whether a captured array has changed; None for traced values

    def is_alike(self, other: RecordedBody) -> bool:
        """Whether another recording does the same with the same values."""
        values = zip(self.captured, other.captured, self.marks, other.marks, strict=False)
        return self.body is other.body and all(_are_same(*each) for each in values)


def record_body(
    name: str, call: Callable[..., Any], inputs: Sequence[Result]
) -> RecordedBody | None:
    """Call a function on values that stand for inputs; return what it does.

    None if it may do something else for other values.
    """
    if not inputs:  # a strand has at least one
        return _record(name, call, inputs, [np.zeros(())])
    try:
        return _record(name, call, inputs, [])
    except IndexedArrayError:  # an array that the function captures is indexed by what is unknown
        arrays = captured_values(call)[1]
        if not arrays:
            raise
        return _record(name, call, inputs, arrays)


def record_twice(
    name: str, call: Callable[..., Any], inputs: Sequence[Result]
) -> RecordedBody | None:
    """Return a function's body; refuse one that does something else when called again."""
    found = record_body(name, call, inputs)
    again = None if found is None else record_body(name, call, inputs)
    if found is None or again is None:
        return None
    if not found.is_alike(again):  # what is new may be recorded otherwise
        found, again = again, record_body(name, call, inputs)
    if again is None or not found.is_alike(again):
        raise TracerError(
            f"mixad.{name}: the function does something else when it is called again: give it what "
            "changes (random numbers, a counter) as xs or in the carry, since what it does is "
            "recorded and run in all steps"
        )
    return found


def _record(
    name: str, call: Callable[..., Any], inputs: Sequence[Result], wholes: Sequence[Any]
) -> RecordedBody | None:
    """Record a body, with values in place of some arrays that the function captures."""
    every, outer = [*inputs, *map(result_of, wholes)], captured_values(call)[0]
    arrays = [array_like(each.shape, each.kind, each.device) for each in every]
    with Level(name, is_reverse=False, differentiates=False) as level:
        level.check, level.unknown = "off", UnknownArray.of
        states = tuple([State(each.kind, each.shape) for each in every])
        key = "body", tuple(map(describe_array, arrays)), name
        state = initial_state(key, states)
        strand = Strand(level, state, arrays, _no_node, ArrayTracer, _no_run)
        given = list(map(_given, strand.tracers_of_inputs()))
        standing = given[len(inputs) :]
        if wholes:
            pairs = zip(wholes, standing, strict=True)
            call = substitute(call, {id(whole): value for whole, value in pairs})
        try:
            with read_only(outer):
                leaves, structure = pytree.flatten(call(*given[: len(inputs)]))
        except Exception:  # of values that stand for others, or the user's: running it tells
            leaves, structure = [], pytree.LEAF
            strand.is_left = True
        if strand.refusal is not None and not isinstance(strand.refusal, NotRecordedError):
            strand.stop()
            raise strand.refusal  # whatever the function has made of it
        is_written = any(value.slot != at for at, value in enumerate(standing, len(inputs)))
        if strand.is_left or is_written or strand.refusal is not None:
            strand.stop()
            return None
        leaves = [_returned(leaf, name) for leaf in leaves]
        try:
            slots = list(map(strand.slot_of, leaves))
        except NotRecordedError:
            return None
        finally:
            strand.stop()
        body, logged = Body.of_recording(strand, slots, ArrayTracer), _logged(strand, slots)
        came, _ = came_into(strand)
        is_constant = all(slot >= len(inputs) and strand.made(slot) is None for slot in slots)
        others = list(map(_captured, list(came.values())[len(every) :]))
        strand.end()
    every = [*wholes, *others]
    marks = [None if isinstance(v, Tracer) else GuardedArray(v, "sample").mark for v in every]
    return RecordedBody(body, every, structure, is_constant, logged, marks)


def _logged(strand: Strand, outputs: Sequence[int]) -> LoggedBody | None:
    """Return the body that logs its writes; None if there are none that can be undone."""
    slots, writes = list(outputs), list[tuple[int, tuple[int, ...]]]()
    for number, slot in enumerate(outputs[: len(strand.inputs)]):
        logs = list[int]()
        while slot in strand.writes:
            slot, *log = strand.writes[slot]
            logs[:0] = log
        if logs and slot == number:
            writes.append((number, tuple(range(len(slots), len(slots) + len(logs)))))
            slots += logs
    body = Body.of_recording(strand, slots, ArrayTracer)
    return LoggedBody(body, tuple(writes)) if writes else None


def _given(tracer: Tracer) -> Any:
    """Return an argument of a body; one that is no float has no derivative."""
    return tracer if tracer.kind.type.is_inexact else UnknownArray.of(tracer)


def _returned(leaf: Any, name: str) -> Any:
    leaf = leaf_of(leaf, f"mixad.{name}: what the function returns")
    return leaf.without_derivative() if type(leaf) is UnknownArray else leaf


def _captured(value: Any) -> Any:
    return value.array if type(value) is GuardedArray else value


def _are_same(one: Any, other: Any, mark: Any, other_mark: Any) -> bool:
    """Whether two captured values are one object, or made alike, or arrays of equal elements.

    The marks are of their contents when they were recorded.
    """
    if isinstance(one, Tracer) and isinstance(other, Tracer):
        return are_made_alike(one, other)
    if isinstance(one, Tracer) or isinstance(other, Tracer):
        return False
    return bool(mark == other_mark and (one is other or have_same_bits(one, other)))


def _no_node(index: int) -> Tracer:
    raise AssertionError("a body has no nodes")


def _no_run(strand: Strand) -> Any:
    raise AssertionError("a body has no values")
