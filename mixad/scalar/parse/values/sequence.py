"""Tuples and lists: they exist while the function is compiled, not when it runs.

In Python a list is a place that several names may share, and assigning to an item changes it under
all of them.  Here a list is a value of its own: as long as one name alone has it, there is no
difference.  What goes by more than one name is marked as shared, and only read.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from mixad.scalar.ir import Atom, Const, Var
from mixad.scalar.parse.complex_arithmetic import arithmetic, compare, where
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.refusals import refusal
from mixad.scalar.parse.values.value import (
    Mismatch,
    NotKnownError,
    Scalar,
    Value,
    describe_kind,
)
from mixad.scalar.promotion_rules import Rules
from mixad.scalar.types import I64

__all__ = ["Items", "List", "OwnItems", "Tuple", "binary"]


@dataclass(frozen=True, slots=True)
class Items(Value):
    """A value that is made of items."""

    items: tuple[Value, ...]

    def parts(self) -> tuple[Value, ...]:
        return self.items

    def of_parts(self, parts: Sequence[Value]) -> Self:
        return replace(self, items=tuple(parts))

    def same_form(self, other: Value) -> bool:
        if not isinstance(other, Items) or len(self.items) != len(other.items):
            return False
        return self.of_parts(()).mark_shared() == other.of_parts(()).mark_shared()

    def join(self, rules: Rules, other: Value) -> Value:
        """Return the prototype that two prototypes fit into: shared if one of them is."""
        if not self.same_form(other):
            raise Mismatch
        pairs = zip(self.items, other.parts(), strict=True)
        return self.of_parts([a.join(rules, b) for a, b in pairs]).mark_like(other)


@dataclass(frozen=True, slots=True)
class Tuple(Items):
    """A tuple."""

    def elements(self) -> tuple[Value, ...] | None:
        return self.items

    def structure(self) -> tuple[Any, tuple[Any, ...]]:
        return tuple, ()

    def describe(self) -> str:
        return f"tuple of {len(self.items)}"

    def suggestion(self, spelled: str) -> str:
        return "unpack it, or index it with a constant"

    def known_object(self) -> Any:
        return tuple([item.known_object() for item in self.items])

    @property
    def concatenates(self) -> bool:
        """Whether `+` and `*` do to it what they do to tuples."""
        return True

    def selection(self, items: tuple[Value, ...]) -> Tuple:
        """Return several of its items."""
        return Tuple(items)

    # -- reading ---------------------------------------------------------------------------------

    def item(self, frame: Frame, node: ast.Subscript, indices: Sequence[ast.expr]) -> Value:
        index, *rest = indices
        if isinstance(index, ast.Slice):
            if isinstance(node.slice, ast.Tuple):
                raise frame.error(index, *refusal(index))
            return self.selection(self.items[_slice(frame, index)])
        found = self._item_at(frame, node, index)
        return found.item(frame, node, rest) if rest else found

    def _item_at(self, frame: Frame, node: ast.Subscript, index: ast.expr) -> Value:
        number = self._index(frame, index)
        if isinstance(number.atom, Const):
            return self.items[self._place(frame, node, int(number.atom.value))]
        if not self.items:
            message = "a tuple without items is indexed"
            raise frame.type_error(node, message, "a tuple that has items")
        position = self._position(frame, node, number.atom)
        found = _look_up_in_array(frame, self.items, position)
        if found is not None:
            return found.mark_shared()
        result = self.items[0]
        for i, item in enumerate(self.items[1:], 1):
            here = compare(frame, node, ast.Eq(), position, frame.constant(i))
            # Lists are copies of one that stays where it is.
            result = choose(frame, node, here, item, result).mark_shared()
        return result

    def _index(self, frame: Frame, node: ast.expr) -> Scalar:
        """Return an index: a constant, if it can be known, where items are of several types."""
        number = frame.scalar(node)
        if number.atom.type.is_float or not self.takes_index(number):
            raise frame.type_error(
                node, f"an index is an integer, not {number.typed}", "use int(...)"
            )
        alike = all(self.items[0].same_kind(item) for item in self.items)
        return number if alike else frame.constant_integer(number)

    def takes_index(self, number: Scalar) -> bool:
        """Whether a number that is no float is an index; bools are, as Python has it."""
        return True

    def _place(self, frame: Frame, node: ast.Subscript, index: int) -> int:
        size = len(self.items)
        if not -size <= index < size:
            raise frame.type_error(
                node,
                f"index {index} is outside {describe_kind(self)}",
                f"an index from {-size} to {size - 1}" if size else "a tuple that has items",
            )
        return index % size

    def _position(self, frame: Frame, node: ast.Subscript, index: Atom) -> Scalar:
        size = len(self.items)
        index = frame.builder.convert(index, I64) if index.type.is_bool else index
        low, high = frame.builder.bounds(index)
        if not (low >= 0 and high < size):
            with frame.at_node(node):
                positions = frame.context.positions(ast.unparse(node.value), size)
                index = frame.builder.load(positions, index)
        return Scalar(frame.builder.convert(index, I64), True)


def _slice(frame: Frame, node: ast.Slice) -> slice:
    bounds = []
    for part in (node.lower, node.upper, node.step):
        bound = None if part is None else frame.scalar(part).known_integer(frame)
        if part is not None and type(bound) is not int:
            raise frame.error(part, *refusal(node))
        bounds.append(bound)
    return slice(*bounds)


def _look_up_in_array(frame: Frame, items: Sequence[Value], position: Scalar) -> Value | None:
    """Return the item at a position, if items are at even distances in an array from outside."""
    first = items[0]
    if not all(first.same_kind(item) for item in items):
        return None
    if first.parts():
        columns = zip(*[item.parts() for item in items], strict=True)
        found = [_look_up_in_array(frame, column, position) for column in columns]
        parts = [part for part in found if part is not None]
        return first.of_parts(parts) if len(parts) == len(found) else None
    elements = frame.context.elements
    atoms = [atom for item in items for atom in item.zeros()]
    places = [elements[a] for a in atoms if isinstance(a, Var) and a in elements]
    if len(places) < len(items):
        return None
    array, start = places[0]
    stride = places[-1][1] - start if len(places) < 3 else places[1][1] - start
    if places != [(array, start + i * stride) for i in range(len(places))]:
        return None
    builder = frame.builder
    scaled = builder.op("mul", position.atom, builder.const(stride, I64))
    at = builder.op("add", scaled, builder.const(start, I64))
    return first.rebuilt(iter([builder.load(array, at)]))


def choose(frame: Frame, node: ast.expr, cond: Scalar, yes: Value, no: Value) -> Value:
    """Return one of two values; its lists go by the names that those of ``no`` have."""
    if yes.same_form(no):
        pairs = zip(yes.parts(), no.parts(), strict=True)
        return yes.of_parts([choose(frame, node, cond, a, b) for a, b in pairs]).mark_like(no)
    if yes.is_called or no.is_called:
        raise frame.type_error(
            node,
            "which function this is depends on an index that is known at run time only",
            "call each of them, and index the tuple of their results",
        )
    return where(frame, node, cond, yes.number(frame, node), no.number(frame, node))


@dataclass(frozen=True, slots=True)
class OwnItems(Tuple):
    """A list or small array; ``is_shared``: whether it may go by another name, too."""

    is_shared: bool = False

    def owns_list(self) -> bool:
        return not self.is_shared or Items.owns_list(self)

    def holds_shared(self) -> bool:
        return self.is_shared or Items.holds_shared(self)

    def mark_shared(self) -> Self:
        return replace(Items.mark_shared(self), is_shared=True) if self.owns_list() else self

    def mark_like(self, other: Value) -> Self:
        assert isinstance(other, OwnItems)
        return replace(self, is_shared=self.is_shared or other.is_shared)

    def known_object(self) -> Any:
        """Refuse: a static field is no list, which could change."""
        raise NotKnownError

    # -- writing ---------------------------------------------------------------------------------

    def with_item(
        self,
        frame: Frame,
        target: ast.Subscript,
        indices: Sequence[tuple[ast.Subscript, ast.expr]],
        value: Value,
    ) -> Self:
        (node, index), *rest = indices
        if isinstance(node.slice, ast.Tuple) and not self.has_axes:
            raise frame.type_error(target, "a list has one axis", "m[i][j] = ...")
        if self.is_shared:
            raise frame.error(
                target,
                f"`{ast.unparse(node.value)}` is an argument, or goes by another name too: it "
                "cannot be assigned to",
                "make a list of your own, [0.0] * 3, and give it one name only",
            )
        if isinstance(index, ast.Slice):
            message = "a slice cannot be assigned to"
            raise frame.error(target, message, "assign one item after another")
        number, items = self._index(frame, index), list(self.items)
        conditions: dict[int, Scalar | None] = {}
        if isinstance(number.atom, Const):
            conditions[self._place(frame, node, int(number.atom.value))] = None
        else:
            position = self._position(frame, node, number.atom)
            for i in range(len(items)):
                conditions[i] = compare(frame, node, ast.Eq(), position, frame.constant(i))
        for i, cond in conditions.items():
            old = items[i]
            new = (
                old.with_item(frame, target, rest, value)
                if rest
                else self.store_value(frame, target, old, value)
            )
            items[i] = new if cond is None else choose(frame, target, cond, new, old)
        return replace(self, items=tuple(items))

    def store_value(self, frame: Frame, target: ast.Subscript, old: Value, value: Value) -> Value:
        """Return what an item becomes where a value is assigned to it."""
        if isinstance(old, List) and isinstance(value, List):
            return value
        if isinstance(old, Items) or isinstance(value, Items):
            raise frame.type_error(
                target,
                f"`{ast.unparse(target)}` is {describe_kind(old)}, and {describe_kind(value)} is "
                "assigned to it",
                "assign number by number",
            )
        return value.number(frame, target)


@dataclass(frozen=True, slots=True)
class List(OwnItems):
    """A list."""

    def structure(self) -> tuple[Any, tuple[Any, ...]]:
        return list, ()

    def describe(self) -> str:
        return f"list of {len(self.items)}"

    def selection(self, items: tuple[Value, ...]) -> Tuple:
        """Return several of its items: a list of their own."""
        return List(items)

    def _instead_of_attribute(self) -> str:
        return "a list of its final length, such as [0.0] * 3, and out[i] = ..."


def binary(frame: Frame, node: ast.BinOp | ast.AugAssign, a: Value, b: Value) -> Value:
    """Return the value of ``a op b``: tuples and lists concatenate, and nothing else."""
    sequences = [v for v in (a, b) if isinstance(v, Tuple)]
    if not sequences:
        left = node.left if isinstance(node, ast.BinOp) else node.target
        right = node.right if isinstance(node, ast.BinOp) else node.value
        return arithmetic(frame, node, node.op, a.number(frame, left), b.number(frame, right))
    kinds = {type(v.selection(())) for v in sequences}
    if len(kinds) == 1 and all(v.concatenates for v in sequences):
        first, *others = sequences
        if isinstance(node.op, ast.Add) and others:
            return first.selection(first.items + others[0].items)
        times = b if first is a else a
        count = times.known_integer(frame) if isinstance(node.op, ast.Mult) else None
        if count is not None:
            return first.selection(tuple([item.mark_shared() for item in first.items]) * count)
    raise frame.type_error(
        node,
        f"{describe_kind(a)} and {describe_kind(b)} have no such operator",
        "a loop over the elements" if any(v.has_axes for v in sequences) else "unpack the tuple",
    )
