"""Subscripts, and what else is looked at: which names share a list, and writing to items."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.list_aliases import share
from mixad.scalar.parse.names import dotted_path
from mixad.scalar.parse.outside import look_up
from mixad.scalar.parse.values.sequence import binary
from mixad.scalar.parse.values.value import Value, describe_kind

__all__ = ["add_to_item", "assign_item", "items_of", "peek", "read", "spread", "subscript",
           "unpack"]  # fmt: skip


def peek(frame: Frame, node: ast.expr) -> Value:
    """Return what an expression stands for, for a look at it that keeps none of its lists."""
    match node:
        case ast.Name():
            return look_up(frame, node)
        case ast.Attribute() if dotted_path(node, frame.info.inside) is not None:
            return look_up(frame, node)
        case ast.Attribute():
            return _attribute(frame, node)
        case ast.Subscript():
            value = peek(frame, node.value)
            is_several = value.has_axes and isinstance(node.slice, ast.Tuple)
            return value.item(frame, node, _indices(node) if is_several else [node.slice])
        case _:
            return frame.value(node)


def _attribute(frame: Frame, node: ast.Attribute) -> Value:
    """Return an attribute of what is computed."""
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super":
        raise frame.unsupported_error(node)
    base = peek(frame, node.value)
    found = base.attribute(frame, node.attr)
    if found is not None:
        return found
    if base.has_attributes:
        raise frame.type_error(node, *base.refused_attribute(ast.unparse(node.value), node.attr))
    raise frame.unsupported_error(node)


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def items_of(frame: Frame, node: ast.expr) -> Value:
    """Return a value whose items are looked at, and kept if they are lists themselves."""
    value = peek(frame, node)
    items = value.elements() or ()
    if any(item.owns_list() or item.holds_shared() for item in items):
        share(frame, node)
        return value.of_parts([item.mark_shared() for item in items])
    return value


def read(frame: Frame, node: ast.expr) -> Value:
    """Return what a name, an attribute or an item stands for: a list in it has two names now."""
    value = peek(frame, node)
    if value.owns_list() or value.holds_shared():  # a row chosen at run time is a copy, but marked
        share(frame, node)
    return value.mark_shared()


def subscript(frame: Frame, node: ast.Subscript) -> Value:
    """Return an item, or several: a slice of a list is a list of its own."""
    if not isinstance(node.slice, ast.Slice):
        return read(frame, node)
    found = items_of(frame, node.value).item(frame, node, [node.slice])
    if found.holds_shared():  # a slice of an array is a view
        share(frame, node)
    return found


def unpack(frame: Frame, node: ast.expr, value: Value, hint: str) -> tuple[Value, ...]:
    """Return the items of a value that is unpacked."""
    items = value.elements()
    if items is None:
        raise frame.type_error(node, f"{describe_kind(value)} cannot be unpacked", hint)
    return items


def spread(
    frame: Frame, nodes: Sequence[ast.expr], value_of: Callable[[Frame, ast.expr], Value]
) -> list[Value]:
    """Return the values of several expressions; one with a `*` is unpacked."""
    values: list[Value] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            whole = items_of(frame, node.value)
            values += unpack(frame, node, whole, "leave the `*` out")
        else:
            values.append(value_of(frame, node))
    return values


def assign_item(frame: Frame, target: ast.Subscript, value: Value) -> None:
    """Assign to an item of a list or a small array that one name alone has."""
    name, whole = _root(frame, target, "a kernel cannot assign elements")
    node: ast.expr = target
    indices: list[tuple[ast.Subscript, ast.expr]] = []
    while isinstance(node, ast.Subscript):
        indices[:0] = [(node, index) for index in _indices(node)]
        node = node.value
    frame.assign(name, whole.with_item(frame, target, indices, value), target)


def _root(frame: Frame, target: ast.Subscript, message: str) -> tuple[str, Value]:
    """Return the name at the root of what is assigned to, and the list or array that it holds."""
    root: ast.expr = target
    while isinstance(root, ast.Subscript):
        root = root.value
    bound = frame.state.names.get(root.id) if isinstance(root, ast.Name) else None
    if not isinstance(root, ast.Name) or bound is None or bound.value.elements() is None:
        raise frame.error(target, message, "return the value")
    return root.id, bound.value


def add_to_item(frame: Frame, s: ast.AugAssign, target: ast.Subscript) -> None:
    """Carry out ``out[i] += x`` and its kin."""
    _root(frame, target, "a kernel cannot assign elements or attributes")
    old = peek(frame, target).number(frame, target)
    assign_item(frame, target, binary(frame, s, old, frame.value(s.value)))
