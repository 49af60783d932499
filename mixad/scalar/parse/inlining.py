"""Compiling the body of a function where it is called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from mixad.scalar.parse.frame import Frame, State
from mixad.scalar.parse.info import FunctionInfo
from mixad.scalar.parse.snapshot import Snapshot, read_function
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values.value import BoundName, Number, Value

__all__ = ["call_own_function", "inline", "last_of"]


def inline(frame: Frame) -> Value:
    """Compile the body of a frame's function and return its result."""
    frame.context.active.append((frame.info, frame.index))
    try:
        _ = frame.info.liveness  # checks the whole function first
        if isinstance(frame.info.node, ast.Lambda):
            frame.builder.line = frame.with_call(frame.info.text.line(frame.info.node.body))
            return frame.value(frame.info.node.body)
        frame.context.run(frame, frame.info.node.body)
    finally:
        frame.context.active.pop()
    assert frame.state.result is not None
    return frame.state.result.value


def call_own_function(
    frame: Frame, node: Located, function: Callable[..., Any], values: Sequence[Value]
) -> Number:
    """Return the number that a function of mixad's own, written in Python, gives for some values.

    It reads modules, functions and mathematical constants from outside, nothing that changes.
    """
    snapshot = _snapshot(function)
    source = snapshot.sources[0]
    context = replace(frame.context, snapshot=snapshot, family=None)
    names = zip(source.parameters, values, strict=True)
    state = State({name: BoundName(value, node.lineno) for name, value in names})
    line = frame.builder.line
    call = frame.call_at(node, source.info.text.filename)
    result = inline(Frame(context, source.info, 0, None, state, caller=frame, call=call))
    frame.builder.line = line
    assert isinstance(result, Number)
    return result


@cache
def _snapshot(function: Callable[..., Any]) -> Snapshot:
    return read_function(function).snapshot()


def last_of(info: FunctionInfo) -> Any:
    """Return where a function's result is, for messages."""
    node = info.node
    return node.body if isinstance(node, ast.Lambda) else node.body[-1]
