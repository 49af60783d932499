"""Expressions: what each kind of syntax node stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, TypeGuard

from mixad.scalar.ir import Atom, Const
from mixad.scalar.parse.branch import Path, is_guarded, one_kind, select
from mixad.scalar.parse.calls import call
from mixad.scalar.parse.complex_arithmetic import binary, compare, unary
from mixad.scalar.parse.frame import Frame, is_false, is_true
from mixad.scalar.parse.integers import literal
from mixad.scalar.parse.items import items_of, kept, subscript
from mixad.scalar.parse.operators import whole
from mixad.scalar.parse.sharing import share_as_in
from mixad.scalar.parse.statements import closure
from mixad.scalar.parse.unify import Mismatch, joined, rebuilt, shape_of
from mixad.scalar.parse.values import List, Number, Object, Scalar, Tuple, Value, a_kind_of, kind_of
from mixad.scalar.types import BOOL

__all__ = ["EXPRESSIONS"]


def _constant(frame: Frame, node: ast.Constant) -> Value:
    value = node.value
    if isinstance(value, bool | float):
        return frame.constant(value)
    if isinstance(value, int):
        return whole(frame, node, value)
    if isinstance(value, complex):
        return frame.complex_constant(value)
    return Object(value)


def _read(frame: Frame, node: ast.Name | ast.Attribute) -> Value:
    return kept(frame, node)


def _binary(frame: Frame, node: ast.BinOp) -> Value:
    known = literal(node)  # as a whole: 2**64 - 1 is an unsigned integer, 2**64 is none
    if known is not None:
        return whole(frame, node, known)
    return binary(frame, node, node.op, items_of(frame, node.left), items_of(frame, node.right))


def _compare(frame: Frame, node: ast.Compare) -> Value:
    """One comparison, or several in a chain."""
    return _chain(frame, node, frame.value(node.left), 0)


def _chain(frame: Frame, node: ast.Compare, left: Value, first: int) -> Number:
    """Compare a value with the operand at ``first``, and that with what follows.

    ``a < b < c`` is ``a < b and b < c`` with ``b`` computed once.
    """
    right = items_of(frame, node.comparators[first])
    operands = (node.left, *node.comparators)[first : first + 2]
    one = _one_comparison(frame, node, operands, node.ops[first], left, right)
    if first + 1 == len(node.ops):
        return one
    return _and_or(frame, node, "and", one, lambda: _chain(frame, node, right, first + 1))


def _one_comparison(
    frame: Frame,
    node: ast.Compare,
    operands: Sequence[ast.expr],
    op: ast.cmpop,
    left: Value,
    right: Value,
) -> Scalar:
    """Return the truth of one comparison; ``operands`` are where the values come from."""
    if isinstance(op, ast.In | ast.NotIn):
        return _membership(frame, node, operands, op, left, right)
    known = _of_objects(op, left, right)
    if known is not None:
        return frame.constant(known)
    if isinstance(op, ast.Is | ast.IsNot):
        raise frame.error(node, "`is` has no meaning for numbers", "use ==")
    x, y = map(frame.as_number, (left, right), operands)
    return compare(frame, node, op, x, y)


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
    frame: Frame,
    node: ast.Compare,
    operands: Sequence[ast.expr],
    op: ast.cmpop,
    left: Value,
    right: Value,
) -> Scalar:
    if not isinstance(right, Tuple):
        raise frame.type_error(
            node,
            f"`in` works on constant tuples, not on {a_kind_of(right)}",
            "make it a tuple, or compare with == and `or`",
        )
    found: Atom = frame.builder.const(False, BOOL)
    for item in right.items:
        equal = _one_comparison(frame, node, operands, ast.Eq(), left, item)
        found = frame.builder.op("or", found, equal.atom)
    return Scalar(frame.builder.op("not", found) if isinstance(op, ast.NotIn) else found, True)


def _logic(frame: Frame, node: ast.BoolOp) -> Value:
    """`and` and `or`: of booleans logic, of numbers the operand that Python returns."""
    name = "and" if isinstance(node.op, ast.And) else "or"
    result = frame.number(node.values[0])
    for right in node.values[1:]:
        result = _and_or(frame, node, name, result, partial(frame.number, right))
    return result


def _and_or(
    frame: Frame, node: ast.expr, name: str, left: Number, right: Callable[[], Number]
) -> Number:
    """Return ``left and right``, or ``left or right``, whose right side is computed if needed."""
    is_and = name == "and"
    cond = frame.truth_of(left)
    if isinstance(cond, Const):
        return right() if bool(cond.value) == is_and else left
    results: list[Number] = []
    path = Path(frame, node, lambda: results.append(right()))
    other = results[0]
    if _is_truth(left) and _is_truth(other) and not is_guarded(path.draft):
        frame.builder.adopt(path.draft)
        return Scalar(frame.builder.op(name, left.atom, other.atom), left.weak and other.weak)
    stay = Path(frame, node, lambda: None)
    sides = (path, other), (stay, left)
    result = _value_of_paths(frame, node, cond, *(sides if is_and else reversed(sides)))
    return frame.as_number(result, node)


def _is_truth(number: Number) -> TypeGuard[Scalar]:
    return isinstance(number, Scalar) and number.atom.type.is_bool


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
        share_as_in(frame, path.state)
    return rebuilt(shape, iter(select(frame, cond, yes[0], no[0], frame.builder.line)))


def _either(one: str, other: str) -> str:
    if one == other:
        return f"which {one} this is depends on a condition"
    return f"this is a {one} or a {other}, depending on a condition"


def _tuple(frame: Frame, node: ast.Tuple) -> Value:
    return Tuple(_elements(frame, node))


def _list(frame: Frame, node: ast.List) -> Value:
    return List(_elements(frame, node))


def _elements(frame: Frame, node: ast.Tuple | ast.List) -> tuple[Value, ...]:
    items: list[Value] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            inner = items_of(frame, element.value)
            if not isinstance(inner, Tuple):
                raise frame.type_error(
                    element, f"{a_kind_of(inner)} cannot be unpacked", "leave the `*` out"
                )
            items += inner.items
        else:
            items.append(frame.value(element))
    return tuple(items)


EXPRESSIONS: Mapping[type, Callable[[Frame, Any], Value]] = MappingProxyType({
    ast.Constant: _constant,
    ast.Name: _read,
    ast.Attribute: _read,
    ast.BinOp: _binary,
    ast.UnaryOp: unary,
    ast.Compare: _compare,
    ast.BoolOp: _logic,
    ast.IfExp: _conditional,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Subscript: subscript,
    ast.Call: call,
    ast.Lambda: closure,
})  # fmt: skip
