"""Expressions: what each kind of syntax node stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from mixad.scalar.ir import Atom, Const
from mixad.scalar.parse.branch import Path, is_guarded, one_kind, select
from mixad.scalar.parse.calls import call
from mixad.scalar.parse.complex_arithmetic import compare, unary
from mixad.scalar.parse.frame import Frame, is_false, is_true
from mixad.scalar.parse.integers import literal
from mixad.scalar.parse.list_aliases import share_as_in
from mixad.scalar.parse.operators import whole
from mixad.scalar.parse.statements import closure
from mixad.scalar.parse.subscript import items_of, read, spread, subscript
from mixad.scalar.parse.values.object import Object, compare_objects
from mixad.scalar.parse.values.sequence import List, Tuple, binary
from mixad.scalar.parse.values.value import Mismatch, Number, Scalar, Value, describe_kind
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


def _operator(frame: Frame, node: ast.BinOp | ast.UnaryOp) -> Value:
    known = literal(node)  # as a whole: 2**64 - 1 is an unsigned integer, 2**64 is none
    if known is not None:
        return whole(frame, node, known)
    if isinstance(node, ast.UnaryOp):
        return unary(frame, node, frame.number(node.operand))
    return binary(frame, node, items_of(frame, node.left), items_of(frame, node.right))


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
    known = compare_objects(op, left, right)
    if known is not None:
        return frame.constant(known)
    if isinstance(op, ast.Is | ast.IsNot):
        raise frame.error(node, "`is` has no meaning for numbers", "use ==")
    x, y = (v.number(frame, n) for v, n in zip((left, right), operands, strict=True))
    return compare(frame, node, op, x, y)


def _membership(
    frame: Frame,
    node: ast.Compare,
    operands: Sequence[ast.expr],
    op: ast.cmpop,
    left: Value,
    right: Value,
) -> Scalar:
    items = right.elements()
    if items is None:
        raise frame.type_error(
            node,
            f"`in` works on constant tuples, not on {describe_kind(right)}",
            "make it a tuple, or compare with == and `or`",
        )
    found: Atom = frame.builder.const(False, BOOL)
    for item in items:
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
    cond = left.truth(frame)
    if isinstance(cond, Const):
        return right() if bool(cond.value) == is_and else left
    results: list[Number] = []
    path = Path(frame, node, lambda: results.append(right()))
    other = results[0]
    x, y = left.typed, other.typed
    if x.type.is_bool and y.type.is_bool and not is_guarded(path.draft):
        frame.builder.adopt(path.draft)
        return Scalar(frame.builder.op(name, cond, other.re.atom), x.weak and y.weak)
    stay = Path(frame, node, lambda: None)
    sides = (path, other), (stay, left)
    result = _value_of_paths(frame, node, cond, *(sides if is_and else reversed(sides)))
    return result.number(frame, node)


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
        like = yes[1].prototype().join(frame.context.rules, no[1].prototype())
    except Mismatch:
        one, other = yes[1].describe(), no[1].describe()
        raise frame.type_error(
            node,
            f"which {one} this is depends on a condition"
            if one == other
            else f"this is a {one} or a {other}, depending on a condition",
            one_kind(yes[1], no[1], "give both values one type"),
        ) from None
    for path, value in (yes, no):
        path.give(value, like, node)
        share_as_in(frame, path.state)
    return like.rebuilt(iter(select(frame, cond, yes[0], no[0], frame.builder.line)))


EXPRESSIONS: Mapping[type, Callable[[Frame, Any], Value]] = MappingProxyType({
    ast.Constant: _constant,
    ast.Name: read,
    ast.Attribute: read,
    ast.BinOp: _operator,
    ast.UnaryOp: _operator,
    ast.Compare: lambda frame, node: _chain(frame, node, frame.value(node.left), 0),
    ast.BoolOp: _logic,
    ast.IfExp: _conditional,
    ast.Tuple: lambda frame, node: Tuple(tuple(spread(frame, node.elts, Frame.value))),
    ast.List: lambda frame, node: List(tuple(spread(frame, node.elts, Frame.value))),
    ast.Subscript: subscript,
    ast.Call: call,
    ast.Lambda: closure,
})  # fmt: skip
