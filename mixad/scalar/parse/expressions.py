"""Expressions: what each kind of syntax node stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any

from mixad.errors import KernelError
from mixad.scalar.ir import Atom, Const
from mixad.scalar.parse.branch import Path, is_guarded, one_kind, select
from mixad.scalar.parse.calls import call
from mixad.scalar.parse.frame import Frame, is_false, is_true
from mixad.scalar.parse.integers import literal
from mixad.scalar.parse.operators import apply, binary, compare, unary, whole
from mixad.scalar.parse.refusals import refusal
from mixad.scalar.parse.statements import closure
from mixad.scalar.parse.unify import Mismatch, joined, rebuilt, shape_of
from mixad.scalar.parse.values import (
    Captured,
    Object,
    Scalar,
    Tuple,
    Value,
    is_called,
    kind_of,
    way_out,
)
from mixad.scalar.types import BOOL, I64

__all__ = ["EXPRESSIONS"]


def _constant(frame: Frame, node: ast.Constant) -> Value:
    value = node.value
    if isinstance(value, bool | float):
        return frame.constant(value)
    if isinstance(value, int):
        return whole(frame, node, value)
    if isinstance(value, complex):
        raise frame.type_error(
            node, "complex numbers are not supported in a kernel", "use two real numbers"
        )
    return Object(value)


def _name(frame: Frame, node: ast.Name) -> Value:
    return frame.lookup(node)


def _attribute(frame: Frame, node: ast.Attribute) -> Value:
    return frame.lookup(node)


def _binary(frame: Frame, node: ast.BinOp) -> Value:
    known = literal(node)  # as a whole: 2**64 - 1 is an unsigned integer, 2**64 is none
    if known is not None:
        return whole(frame, node, known)
    return binary(frame, node, node.op, frame.value(node.left), frame.value(node.right))


def _compare(frame: Frame, node: ast.Compare) -> Value:
    """One comparison, or several in a chain."""
    return _chain(frame, node, frame.value(node.left), 0)


def _chain(frame: Frame, node: ast.Compare, left: Value, first: int) -> Scalar:
    """Compare a value with the operand at ``first``, and that with what follows.

    ``a < b < c`` is ``a < b and b < c`` with ``b`` computed once.
    """
    right = frame.value(node.comparators[first])
    one = _one_comparison(frame, node, node.ops[first], left, right)
    if first + 1 == len(node.ops):
        return one
    return _and_or(frame, node, "and", one, lambda: _chain(frame, node, right, first + 1))


def _one_comparison(
    frame: Frame, node: ast.Compare, op: ast.cmpop, left: Value, right: Value
) -> Scalar:
    if isinstance(op, ast.In | ast.NotIn):
        return _membership(frame, node, op, left, right)
    known = _of_objects(op, left, right)
    if known is not None:
        return frame.constant(known)
    if isinstance(op, ast.Is | ast.IsNot):
        raise frame.error(node, "`is` has no meaning for numbers", "use ==")
    return compare(frame, node, op, frame.as_scalar(left, node), frame.as_scalar(right, node))


def _of_objects(op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """Return what is known of objects when a function is compiled.

    That is whether something is None, whether two objects are one, and whether strings, members
    of enumerations and None are equal.
    """
    objects = [v.value for v in (left, right) if isinstance(v, Object)]
    both = len(objects) == 2
    if isinstance(op, ast.Is | ast.IsNot) and (both or any(v is None for v in objects)):
        return (both and objects[0] is objects[1]) == isinstance(op, ast.Is)
    compared = both and all(isinstance(v, str | Enum | None) for v in objects)
    if isinstance(op, ast.Eq | ast.NotEq) and compared:
        return bool(objects[0] == objects[1]) == isinstance(op, ast.Eq)
    return None


def _membership(
    frame: Frame, node: ast.Compare, op: ast.cmpop, left: Value, right: Value
) -> Scalar:
    if not isinstance(right, Tuple):
        raise frame.type_error(
            node,
            f"`in` works on constant tuples, not on a {kind_of(right)}",
            "make it a tuple, or compare with == and `or`",
        )
    found: Atom = frame.builder.const(False, BOOL)
    for item in right.items:
        equal = _one_comparison(frame, node, ast.Eq(), left, item)
        found = frame.builder.op("or", found, equal.atom)
    return Scalar(frame.builder.op("not", found) if isinstance(op, ast.NotIn) else found, True)


def _logic(frame: Frame, node: ast.BoolOp) -> Value:
    """`and` and `or`: of booleans logic, of numbers the operand that Python returns."""
    name = "and" if isinstance(node.op, ast.And) else "or"
    result = frame.scalar(node.values[0])
    for right in node.values[1:]:
        result = _and_or(frame, node, name, result, partial(frame.scalar, right))
    return result


def _and_or(
    frame: Frame, node: ast.expr, name: str, left: Scalar, right: Callable[[], Scalar]
) -> Scalar:
    """Return ``left and right``, or ``left or right``, whose right side is computed if needed."""
    is_and = name == "and"
    cond = frame.truth_of(left)
    if isinstance(cond, Const):
        return right() if bool(cond.value) == is_and else left
    results: list[Scalar] = []
    path = Path(frame, node, lambda: results.append(right()))
    other = results[0]
    if left.atom.type.is_bool and other.atom.type.is_bool and not is_guarded(path.draft):
        frame.builder.adopt(path.draft)
        return Scalar(frame.builder.op(name, left.atom, other.atom), left.weak and other.weak)
    stay = Path(frame, node, lambda: None)
    sides = (path, other), (stay, left)
    result = _value_of_paths(frame, node, cond, *(sides if is_and else reversed(sides)))
    return frame.as_scalar(result, node)


def _conditional(frame: Frame, node: ast.IfExp) -> Value:
    cond = frame.truth(node.test)
    if is_true(cond) or is_false(cond):
        return frame.value(node.body if is_true(cond) else node.orelse)
    values: list[Value] = []

    def work(side: ast.expr) -> None:
        values.append(frame.value(side))

    paths = [Path(frame, node, partial(work, side)) for side in (node.body, node.orelse)]
    return _value_of_paths(frame, node, cond, (paths[0], values[0]), (paths[1], values[1]))


def _value_of_paths(
    frame: Frame, node: ast.expr, cond: Atom, yes: tuple[Path, Value], no: tuple[Path, Value]
) -> Value:
    """Return the value of the path taken."""
    try:
        shape = joined(frame.walk.rules, shape_of(yes[1]), shape_of(no[1]))
    except Mismatch:
        raise frame.type_error(
            node,
            _either(kind_of(yes[1]), kind_of(no[1])),
            one_kind(yes[1], no[1], "give both values one type"),
        ) from None
    for path, value in (yes, no):
        path.give(value, shape, node)
    return rebuilt(shape, iter(select(frame, cond, yes[0], no[0], frame.builder.line)))


def _either(one: str, other: str) -> str:
    if one == other:
        return f"which {one} this is depends on a condition"
    return f"this is a {one} or a {other}, depending on a condition"


def _tuple(frame: Frame, node: ast.Tuple) -> Value:
    items: list[Value] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            inner = frame.value(element.value)
            if not isinstance(inner, Tuple):
                raise frame.type_error(
                    element, f"a {kind_of(inner)} cannot be unpacked", "leave the `*` out"
                )
            items += inner.items
        else:
            items.append(frame.value(element))
    return Tuple(tuple(items))


def _subscript(frame: Frame, node: ast.Subscript) -> Value:
    value = frame.value(node.value)
    if isinstance(value, Captured):
        return _element(frame, node, value)
    if not isinstance(value, Tuple):
        raise _not_indexed(frame, node, value)
    if isinstance(node.slice, ast.Slice):
        return Tuple(value.items[_slice(frame, node.slice)])
    index = frame.scalar(node.slice)
    if index.atom.type.is_float:
        raise frame.type_error(
            node.slice, f"an index is an integer, not {index.typed}", "use int(...)"
        )
    if isinstance(index.atom, Const):
        return _item(frame, node, value, int(index.atom.value))
    return _chosen(frame, node, value, index)


def _not_indexed(frame: Frame, node: ast.Subscript, value: Value) -> KernelError:
    spelled = ast.unparse(node.value)
    what = f"`{spelled}` is a {kind_of(value)}: it cannot be indexed"
    if isinstance(value, Scalar):
        hint = "a kernel sees one element of each argument; it indexes arrays from outside"
    elif isinstance(value, Object):
        hint = way_out(value, spelled)
    else:
        hint = "index what it returns"
    return frame.type_error(node, what, hint)


def _item(frame: Frame, node: ast.Subscript, value: Tuple, index: int) -> Value:
    if not -len(value.items) <= index < len(value.items):
        size = len(value.items)
        raise frame.type_error(
            node,
            f"index {index} is outside a tuple of {size}",
            f"an index from {-size} to {size - 1}" if size else "a tuple that has items",
        )
    return value.items[index]


def _chosen(frame: Frame, node: ast.Subscript, value: Tuple, index: Scalar) -> Value:
    """Select the item at an index that is known when the kernel runs."""
    if not value.items:
        raise frame.type_error(node, "a tuple without items is indexed", "a tuple that has items")
    position = _position(frame, node, len(value.items), index.atom)
    result = value.items[0]
    for i, item in enumerate(value.items[1:], 1):
        here = compare(frame, node, ast.Eq(), position, frame.constant(i))
        result = _selected(frame, node, here, item, result)
    return result


def _position(frame: Frame, node: ast.Subscript, size: int, index: Atom) -> Scalar:
    """Return an index counted from the start.

    Where it may be outside it is read from an array of positions: that raises as arrays do.
    """
    index = frame.builder.convert(index, I64) if index.type.is_bool else index
    low, high = frame.builder.bounds(index)
    if not (low >= 0 and high < size):
        with frame.at(node):
            index = frame.builder.load(frame.walk.positions(ast.unparse(node.value), size), index)
    return Scalar(frame.builder.convert(index, I64), True)


def _selected(frame: Frame, node: ast.expr, cond: Scalar, yes: Value, no: Value) -> Value:
    """Return one of two numbers, or of two tuples of one length, item by item."""
    if isinstance(yes, Tuple) and isinstance(no, Tuple) and len(yes.items) == len(no.items):
        pairs = zip(yes.items, no.items, strict=True)
        return Tuple(tuple(_selected(frame, node, cond, a, b) for a, b in pairs))
    if is_called(yes) or is_called(no):
        raise frame.type_error(
            node,
            "which function this is depends on an index that is known at run time only",
            "call each of them, and index the tuple of their results",
        )
    choices = (frame.as_scalar(v, node) for v in (yes, no))
    return apply(frame, node, "where", (cond, *choices))


def _slice(frame: Frame, node: ast.Slice) -> slice:
    bounds = []
    for part in (node.lower, node.upper, node.step):
        atom = None if part is None else frame.scalar(part).atom
        if atom is not None and not (isinstance(atom, Const) and atom.type.is_integer):
            assert part is not None
            raise frame.error(part, *refusal(node))
        bounds.append(None if atom is None else int(atom.value))
    return slice(*bounds)


def _element(frame: Frame, node: ast.Subscript, array: Captured) -> Value:
    """Read an element of an array from outside."""
    nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part in nodes:
        if isinstance(part, ast.Slice):
            raise frame.error(
                part,
                f"a kernel reads single elements: a slice of {array.name!r} is an array",
                "read one element after another in a loop over range(...)",
            )
    if len(nodes) != array.argument.rank or not nodes:
        raise frame.type_error(
            node, f"{array.name!r} has {array.argument.rank} axes, it is indexed by {len(nodes)}",
            "give one integer for each axis",
        )  # fmt: skip
    indices = [_index(frame, n) for n in nodes]
    with frame.at(node):
        loaded = frame.builder.load(frame.walk.capture_array(array), *indices)
    return Scalar(loaded, array.argument.weak)


def _index(frame: Frame, node: ast.expr) -> Atom:
    index = frame.scalar(node)
    if not index.atom.type.is_integer:
        raise frame.type_error(node, f"an index is an integer, not {index.typed}", "use int(...)")
    if isinstance(index.atom, Const) and index.atom.value < 0:
        raise frame.error(
            node, "an index from the end needs the array's size", "count from the start"
        )
    return index.atom


def _lambda(frame: Frame, node: ast.Lambda) -> Value:
    return closure(frame, node)


EXPRESSIONS: Mapping[type, Callable[[Frame, Any], Value]] = MappingProxyType({
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.BinOp: _binary,
    ast.UnaryOp: unary,
    ast.Compare: _compare,
    ast.BoolOp: _logic,
    ast.IfExp: _conditional,
    ast.Tuple: _tuple,
    ast.Subscript: _subscript,
    ast.Call: call,
    ast.Lambda: _lambda,
})  # fmt: skip
