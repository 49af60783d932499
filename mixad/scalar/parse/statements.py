"""Simple statements: assignments, return, break, continue, nested functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from mixad.scalar.ir import Const
from mixad.scalar.parse.frame import Exit, Frame
from mixad.scalar.parse.outside import local_value
from mixad.scalar.parse.subscript import add_to_item, assign_item, items_of, peek, unpack
from mixad.scalar.parse.values.callable import Closure
from mixad.scalar.parse.values.sequence import List, Tuple, binary
from mixad.scalar.parse.values.value import BoundName, Value
from mixad.scalar.types import BOOL

__all__ = ["SIMPLE_STATEMENTS", "assign_target", "closure"]


def assign_target(frame: Frame, target: ast.expr, value: Value) -> None:
    """Assign a value to a name, or its items to several."""
    match target:
        case ast.Name():
            frame.assign(target.id, value, target)
        case ast.Tuple() | ast.List():
            _unpack(frame, target, value)
        case ast.Subscript():
            assign_item(frame, target, value)
        case ast.Attribute():
            raise frame.error(target, "a kernel cannot assign attributes", "return the value")
        case _:
            raise frame.unsupported_error(target)


def _unpack(frame: Frame, target: ast.Tuple | ast.List, value: Value) -> None:
    items, targets = unpack(frame, target, value, "assign it to one name"), target.elts
    starred = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
    if len(items) < len(targets) - 1 if starred else len(items) != len(targets):
        raise frame.type_error(
            target,
            f"a tuple of {len(items)} is unpacked into {len(targets)} names",
            "one name for each item, or a name with `*` for the rest",
        )
    if starred:
        first, count = starred[0], len(items) - len(targets) + 1
        rest = Tuple(items[first : first + count])
        items = (*items[:first], rest, *items[first + count :])
    for t, item in zip(targets, items, strict=True):
        assign_target(frame, t.value if isinstance(t, ast.Starred) else t, item)


def _assign(frame: Frame, s: ast.Assign) -> None:
    unpacks = all(isinstance(t, ast.Tuple | ast.List) for t in s.targets)
    # Lists that stand in `a, b = [0.0] * 3, [x, y]` have no name but a and b.
    is_display = isinstance(s.value, ast.Tuple | ast.List)
    value = items_of(frame, s.value) if unpacks and not is_display else frame.value(s.value)
    value = value if len(s.targets) == 1 else value.mark_shared()
    for target in s.targets:
        assign_target(frame, target, value)


def _assign_annotated(frame: Frame, s: ast.AnnAssign) -> None:
    if s.value is not None:
        assign_target(frame, s.target, frame.value(s.value))


def _assign_augmented(frame: Frame, s: ast.AugAssign) -> None:
    if isinstance(s.target, ast.Subscript):
        add_to_item(frame, s, s.target)
        return
    if not isinstance(s.target, ast.Name):
        raise frame.error(
            s.target, "a kernel cannot assign elements or attributes", "return the value"
        )
    old = local_value(frame, s.target.id, s.target, frame)
    if isinstance(old, List) and old.is_shared:
        raise frame.error(
            s, f"`{s.target.id}` goes by another name too: it cannot be added to", "a new list"
        )
    frame.assign(s.target.id, binary(frame, s, old, items_of(frame, s.value)), s.target)


def _return(frame: Frame, s: ast.Return) -> None:
    if s.value is None:
        raise frame.error(s, "`return` without a value", "return a number, or a tuple of numbers")
    value = _release_lists(frame, s.value)
    if isinstance(value, Closure) and value.frame is frame:
        raise frame.error(s, "a function defined in a kernel cannot be returned", "call it here")
    frame.state.result = BoundName(value, s.lineno)
    _leave(frame, "return", frame.loop_after if frame.implicit else frozenset())


def _release_lists(frame: Frame, node: ast.expr) -> Value:
    """Return a value whose lists lose their names here: the function ends."""
    if isinstance(node, ast.Name) and node.id in frame.info.local:
        return peek(frame, node)
    if not isinstance(node, ast.Tuple) or any(isinstance(e, ast.Starred) for e in node.elts):
        return frame.value(node)
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    if len(set(names)) < len(names):  # one list may be there twice
        return frame.value(node)
    return Tuple(tuple([_release_lists(frame, e) for e in node.elts]))


def _break(frame: Frame, s: ast.Break) -> None:
    _leave(frame, "break", frame.loop_after)


def _continue(frame: Frame, s: ast.Continue) -> None:
    _leave(frame, "continue", frame.loop_head)


def _leave(frame: Frame, kind: Exit, live: frozenset[str]) -> None:
    names = frame.state.names
    frame.state.names = {n: b for n, b in names.items() if n in live}
    frame.state.exits[kind] = Const(True, BOOL)
    frame.state.ended = True


def _pass(frame: Frame, s: ast.Pass) -> None:
    pass


def _expression(frame: Frame, s: ast.Expr) -> None:
    """Skip a docstring; compile anything else, so that it is refused where it must be."""
    if isinstance(s.value, ast.Constant):
        return
    frame.value(s.value)


def closure(frame: Frame, node: ast.FunctionDef | ast.Lambda) -> Closure:
    """Return a nested function, its defaults evaluated here: all of its calls share them."""
    a = node.args
    positional = [p.arg for p in (*a.posonlyargs, *a.args)]
    defaults = dict(
        zip(
            positional[len(positional) - len(a.defaults) :],
            [frame.value(default).mark_shared() for default in a.defaults],
            strict=True,
        )
    )
    for parameter, default in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        if default is not None:
            defaults[parameter.arg] = frame.value(default).mark_shared()
    return Closure(node, frame, defaults)


def _define(frame: Frame, s: ast.FunctionDef) -> None:
    if s.decorator_list:
        raise frame.error(
            s.decorator_list[0], "decorators of nested functions are not supported", "leave it out"
        )
    frame.assign(s.name, closure(frame, s), s)


SIMPLE_STATEMENTS: Mapping[type, Callable[[Frame, Any], None]] = MappingProxyType({
    ast.Assign: _assign,
    ast.AnnAssign: _assign_annotated,
    ast.AugAssign: _assign_augmented,
    ast.Return: _return,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Pass: _pass,
    ast.Expr: _expression,
    ast.FunctionDef: _define,
})  # fmt: skip
