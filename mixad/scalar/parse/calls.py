"""Calls: functions of the user are inlined, known functions become ops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mixad.errors import KernelError, KernelSyntaxError
from mixad.scalar.parse.complex_arithmetic import conjugate
from mixad.scalar.parse.complex_functions import complex_function
from mixad.scalar.parse.fields import construct, keeps_arguments, replace_fields
from mixad.scalar.parse.frame import Frame, State
from mixad.scalar.parse.handlers import (
    Arguments,
    as_numpy_takes,
    as_scipy_takes,
    check_count,
    count_text,
)
from mixad.scalar.parse.info import FunctionInfo, unwrap_callable
from mixad.scalar.parse.inlining import inline
from mixad.scalar.parse.integers import fits, literal, overflow
from mixad.scalar.parse.intrinsics import intrinsic
from mixad.scalar.parse.list_aliases import share
from mixad.scalar.parse.names import dotted_path
from mixad.scalar.parse.other_libraries import StandIn, stand_in
from mixad.scalar.parse.outside import value_from_outside
from mixad.scalar.parse.scalar_rule_calls import with_rule
from mixad.scalar.parse.snapshot import read_function
from mixad.scalar.parse.subscript import items_of, peek, spread
from mixad.scalar.parse.unsupported_calls import (
    instead,
    is_of_arrays,
    is_transform,
    refused_of_arrays,
    refused_transform,
    unsupported_call,
)
from mixad.scalar.parse.values.callable import Closure, Helper
from mixad.scalar.parse.values.object import Object
from mixad.scalar.parse.values.record import Named, Record
from mixad.scalar.parse.values.sequence import Tuple
from mixad.scalar.parse.values.value import BoundName, Number, Scalar, Value, describe_kind
from mixad.scalar.types import U64

__all__ = ["call"]


def call(frame: Frame, node: ast.Call) -> Value:
    """Return the value of a call."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("conjugate", "_replace"):
        made = _by_method(frame, node, node.func)
        if made is not None:
            return made
    function = frame.value(node.func)
    if isinstance(function, Object):
        return _of_library(frame, node, function.value)
    # What a function is given has a name in the caller.
    arguments = _arguments(frame, node, lambda frame, node: peek(frame, node).mark_shared())
    match function:
        case Closure():
            outer = function.frame
            info = outer.outermost.info.inner(function.node)
            result = _inline_body(
                frame, node, info, arguments, function.defaults, outer.index, outer
            )
        case Helper():
            result = _helper(frame, node, function.index, arguments)
        case _:
            spelled = ast.unparse(node.func)
            raise frame.type_error(
                node.func,
                f"`{spelled}` is {describe_kind(function)}, not a function",
                f"{spelled} * (...)",
            )
    if result.holds_shared():  # it may be a list that the function was given
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            share(frame, argument)
    return result


def _by_method(frame: Frame, node: ast.Call, method: ast.Attribute) -> Value | None:
    """Return what a number's ``conjugate`` gives, or the ``_replace`` of a named tuple.

    None for what belongs to an object from outside.
    """
    path = dotted_path(method.value, frame.info.inside)
    if path is not None and not frame.is_own(path[0]):
        return None
    value = frame.value(method.value)
    is_replace = method.attr == "_replace"
    if isinstance(value, Number) and not is_replace:
        check_count(frame, node, _arguments(frame, node, Frame.value), (0,))
        return conjugate(frame, node, value)
    if is_replace and isinstance(value, Named | Record) and value.is_named_tuple:
        return replace_fields(frame, node, value, _arguments(frame, node, Frame.value))
    return None


def _helper(frame: Frame, node: ast.Call, index: int, arguments: Arguments) -> Value:
    source = frame.context.snapshot.sources[index]
    if is_of_arrays(source.function):
        raise frame.error(node, *refused_of_arrays(ast.unparse(node.func), source.function))
    if is_transform(source.function):
        name, call = ast.unparse(node.func), ast.unparse(node)
        raise frame.error(node, *refused_transform(name, source.function, call))
    places = {name: source.default_index(name) for name in source.parameters}
    defaults = {
        name: value_from_outside(frame, (index, place), name, node)
        for name, place in places.items()
        if place is not None
    }
    if source.standing is not None:
        arguments = _as_theirs(frame, node, source.standing, arguments)
    try:
        return _inline_body(frame, node, source.info, arguments, defaults, index, None)
    except KernelError as error:
        if source.standing is None:
            raise
        # The reader knows the library's function, not the one that stands for it here.
        name = ast.unparse(node.func)
        message = error.message
        for own in (repr(source.name), "`as_floats`"):
            message = message.replace(own, f"`{name}`")
        if message == error.message:
            message = f"in `{name}`: {message}"
        hint = (error.hint or "").replace(source.name, name)
        raise frame.error(node, message, hint, type(error)) from None


def _as_theirs(frame: Frame, node: ast.Call, standing: StandIn, arguments: Arguments) -> Arguments:
    """Return the arguments of a library's function as the library takes them."""
    if standing.library == "math":
        return arguments
    taken = as_numpy_takes(frame, node, arguments)
    if standing.library == "numpy":
        return taken
    return as_scipy_takes(frame, node, standing.theirs, taken)


def _arguments(
    frame: Frame, node: ast.Call, value_of: Callable[[Frame, ast.expr], Value]
) -> Arguments:
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise frame.error(
                keyword.value, "`**` is not supported in a kernel", "write the arguments out"
            )
        keywords[keyword.arg] = value_of(frame, keyword.value)
    return Arguments(spread(frame, node.args, value_of), keywords)


def _inline_body(
    frame: Frame,
    node: ast.Call,
    info: FunctionInfo,
    arguments: Arguments,
    defaults: dict[str, Value],
    index: int,
    parent: Frame | None,
) -> Value:
    """Compile the body of a called function in place of the call."""
    if frame.runs_in(info, index):
        raise frame.error(
            node, f"{info.name!r} calls itself: recursion cannot be compiled", "use a loop"
        )
    values = bind(frame, node, info, arguments, defaults)

    def compile_body(values: Mapping[str, Value]) -> Value:
        names = {name: BoundName(value, node.lineno) for name, value in values.items()}
        call = frame.call_at(node, info.text.filename)
        inner = Frame(frame.context, info, index, parent, State(names), caller=frame, call=call)
        line = frame.builder.line
        result = inline(inner)
        frame.builder.line = line
        return result

    if parent is None and index in frame.context.snapshot.rules:
        return with_rule(frame, node, index, values, compile_body)
    return compile_body(values)


def bind(
    frame: Frame,
    node: ast.Call,
    info: FunctionInfo,
    arguments: Arguments,
    defaults: dict[str, Value],
) -> dict[str, Value]:
    """Return the values of a function's parameters, as Python's call rules have it."""
    a = info.node.args
    if a.kwarg is not None:
        raise frame.error(
            node,
            f"{info.name!r} takes `**{a.kwarg.arg}`, which is not supported",
            "name its parameters",
        )
    positional = [p.arg for p in (*a.posonlyargs, *a.args) if p.arg != info.bound]
    given = arguments.positional
    values = dict(zip(positional, given, strict=False))
    if a.vararg is not None:
        values[a.vararg.arg] = Tuple(tuple(given[len(positional) :]))
    elif len(given) > len(positional):
        raise frame.type_error(
            node,
            f"{info.name!r} takes {count_text(len(positional))} by position, got {len(given)}",
            _call_text(info),
        )
    only_positional = {p.arg for p in a.posonlyargs}
    named = [*positional, *(p.arg for p in a.kwonlyargs)]
    for name, value in arguments.keywords.items():
        if name in values:
            message = f"{info.name!r} gets its argument twice: {name!r}"
            raise frame.type_error(node, message, _call_text(info))
        if name not in named or name in only_positional:
            message = f"{info.name!r} has no parameter {name!r}"
            raise frame.type_error(node, message, _call_text(info))
        values[name] = value
    for name in named:
        if name not in values:
            if name not in defaults:
                message = f"{info.name!r} needs an argument for {name!r}"
                raise frame.type_error(node, message, _call_text(info))
            values[name] = defaults[name]
    return values


def _call_text(info: FunctionInfo) -> str:
    """Return how a function is called."""
    a = info.node.args
    named = [f"{p.arg}=..." for p in a.kwonlyargs]
    given = [p.arg for p in (*a.posonlyargs, *a.args) if p.arg != info.bound]
    return f"{info.name}({', '.join([*given, *named])})"


def _of_library(frame: Frame, node: ast.Call, function: Any) -> Value:
    """Return the value of a call of a function that mixad knows."""
    known = literal(node.args[0]) if function is np.uint64 and len(node.args) == 1 else None
    if known is not None:  # as a number of its own it may not fit into 64 bits
        if not fits(known, U64):
            raise overflow(frame.info.text.locate(node.args[0]), known, U64)
        return Scalar(frame.builder.const(known, U64), False)
    arguments = _arguments(frame, node, Frame.value if keeps_arguments(function) else items_of)
    called = function
    standing = stand_in(called)  # an op: others are read with the function that calls them
    if standing is not None:
        called = standing.function
        arguments = _as_theirs(frame, node, standing, arguments)
    handler = complex_function(called, arguments) or intrinsic(called)
    if handler is not None:
        with frame.at_node(node):
            return handler(frame, node, arguments)
    made = construct(frame, node, function, arguments)
    if made is not None:
        return made
    name = ast.unparse(node.func)
    refusal = unsupported_call(name, function, ast.unparse(node))
    if refusal is not None:
        raise frame.error(node, *refusal)
    if unwrap_callable(function) is not None:  # its source was not found, or not believed
        try:
            read_function(function)
        except KernelSyntaxError as error:
            raise frame.error(node, error.message, error.hint) from None
    raise frame.error(node.func, f"`{name}` is not supported in a kernel", instead(function))
