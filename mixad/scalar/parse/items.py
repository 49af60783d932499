"""Items of tuples, lists and arrays: read, and of lists and small arrays written."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from mixad.errors import KernelError
from mixad.scalar.ir import Atom, Const, Var
from mixad.scalar.parse.complex_arithmetic import as_complex, binary, compare
from mixad.scalar.parse.complex_functions import selected
from mixad.scalar.parse.frame import PARTS, Frame
from mixad.scalar.parse.names import dotted
from mixad.scalar.parse.operators import apply
from mixad.scalar.parse.refusals import refusal
from mixad.scalar.parse.sharing import holds_own, holds_shared, share, shared
from mixad.scalar.parse.values import (
    Array,
    Captured,
    Complex,
    Indexed,
    List,
    Named,
    Number,
    Object,
    Record,
    Scalar,
    Tuple,
    Value,
    a_kind_of,
    is_called,
    way_out,
)
from mixad.scalar.types import I64

__all__ = ["add_to_item", "assign_item", "items_of", "kept", "peek", "subscript"]


def peek(frame: Frame, node: ast.expr) -> Value:
    """Return what an expression stands for, for a look at it that keeps none of its lists."""
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_path(frame, node)):
        return frame.lookup(node)
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super":
            raise frame.unsupported(node)
        base = peek(frame, node.value)
        if isinstance(base, Array | Named | Record) or (
            isinstance(base, Number) and node.attr in PARTS
        ):
            return frame.fields(base, (ast.unparse(node.value), node.attr), node)
        raise frame.unsupported(node)
    return _item_of(frame, node) if isinstance(node, ast.Subscript) else frame.value(node)


def _is_path(frame: Frame, node: ast.Attribute) -> bool:
    return dotted(node, frame.info.inside) is not None


def items_of(frame: Frame, node: ast.expr) -> Value:
    """Return a value whose items are looked at, and kept if they are lists themselves."""
    value = peek(frame, node)
    if isinstance(value, Tuple) and any(map(_holds_lists, value.items)):
        share(frame, node)
        return replace(value, items=tuple(map(shared, value.items)))
    return value


def kept(frame: Frame, node: ast.expr) -> Value:
    """Return what a name, an attribute or an item stands for: a list in it has two names now."""
    value = peek(frame, node)
    if _holds_lists(value):  # a row chosen at run time is a copy, marked as shared already
        share(frame, node)
    return shared(value)


def _holds_lists(value: Value) -> bool:
    return holds_own(value) or holds_shared(value)


def subscript(frame: Frame, node: ast.Subscript) -> Value:
    """Return an item, or several: a slice of a list is a list of its own."""
    if isinstance(node.slice, ast.Slice):
        value = items_of(frame, node.value)
        if isinstance(value, Tuple):
            return _sliced(frame, node, value, _slice(frame, node.slice))
    return kept(frame, node)


# -- reading ---------------------------------------------------------------------------------------


def _item_of(frame: Frame, node: ast.Subscript) -> Value:
    value = peek(frame, node.value)
    if isinstance(value, Captured | Indexed):
        return _element(frame, node, value)
    for index in _indices(node, value):
        if not isinstance(value, Tuple):
            raise _not_indexed(frame, node, value)
        value = _part(frame, node, value, index)
    return value


def _indices(node: ast.Subscript, value: Value) -> list[ast.expr]:
    """Return the indices one after the other: an array of several axes takes them at once."""
    is_several = isinstance(value, Array) and isinstance(node.slice, ast.Tuple)
    return node.slice.elts if is_several else [node.slice]  # type: ignore[attr-defined]


def _part(frame: Frame, node: ast.Subscript, value: Tuple, index: ast.expr) -> Value:
    if isinstance(index, ast.Slice):
        if isinstance(node.slice, ast.Tuple):
            raise frame.error(index, *refusal(index))
        return _sliced(frame, node, value, _slice(frame, index))
    number = _number_of(frame, index, value)
    if not _are_alike(value.items):
        number = frame.known(number)
    if isinstance(number.atom, Const):
        return value.items[_place(frame, node, value, int(number.atom.value))]
    return _chosen(frame, node, value, number)


def _sliced(frame: Frame, node: ast.Subscript, value: Tuple, part: slice) -> Value:
    """Return several items: of an array a view, which shares its elements."""
    items = value.items[part]
    if isinstance(value, Array):
        share(frame, node)
        return Array(tuple(map(shared, items)))
    return List(items) if isinstance(value, List) else Tuple(items)


def _number_of(frame: Frame, node: ast.expr, indexed: Value) -> Scalar:
    """Return an index, an integer; a bool is one to Python's sequences, and a mask to arrays."""
    index, is_array = frame.scalar(node), isinstance(indexed, Array)
    if index.atom.type.is_float or (is_array and index.atom.type.is_bool):
        raise frame.type_error(node, f"an index is an integer, not {index.typed}", "use int(...)")
    return index


def _not_indexed(frame: Frame, node: ast.Subscript, value: Value) -> KernelError:
    spelled = ast.unparse(node.value)
    what = f"`{spelled}` is {a_kind_of(value)}: it cannot be indexed"
    if isinstance(value, Scalar):
        hint = _read_before(frame, node, spelled)
    elif isinstance(value, Object):
        hint = way_out(value, spelled)
    else:
        hint = "index what it returns"
    return frame.type_error(node, what, hint)


def _read_before(frame: Frame, node: ast.Subscript, spelled: str) -> str:
    """Return how a kernel gets what it would read by indexing a number."""
    arguments = frame.info.node.args
    parameters = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if frame.caller is not None or spelled not in parameters:
        return "numbers have no items: leave the index out; a kernel sees one element of each array"
    signature = (
        f"annotate {spelled} as mixad.Array to pass it whole, or give a signature, by which its "
        "last axes belong to each element"
    )
    names = {each.id for each in ast.walk(node.slice) if isinstance(each, ast.Name)}
    if not names.issubset(parameters) or any(
        isinstance(e, ast.Slice) for e in ast.walk(node.slice)
    ):
        return signature
    index = ast.unparse(node.slice).strip("()")
    if not names:  # the same for all elements
        index = f"..., {index}"
    return f"index before the call, and pass {spelled}[{index}] as an argument; {signature}"


def _place(frame: Frame, node: ast.Subscript, value: Tuple, index: int) -> int:
    """Return a constant index counted from the start."""
    if not -len(value.items) <= index < len(value.items):
        size = len(value.items)
        raise frame.type_error(
            node,
            f"index {index} is outside {a_kind_of(value)}",
            f"an index from {-size} to {size - 1}" if size else "a tuple that has items",
        )
    return index % len(value.items)


def _chosen(frame: Frame, node: ast.Subscript, value: Tuple, index: Scalar) -> Value:
    """Select the item at an index that is known when the kernel runs."""
    if not value.items:
        raise frame.type_error(node, "a tuple without items is indexed", "a tuple that has items")
    position = _position(frame, node, len(value.items), index.atom)
    found = _looked_up(frame, value.items, position)
    if found is not None:
        return shared(found)
    result = value.items[0]
    for i, item in enumerate(value.items[1:], 1):
        here = compare(frame, node, ast.Eq(), position, frame.constant(i))
        # Lists are copies of one that stays where it is.
        result = shared(_written(frame, node, here, item, result))
    return result


def _looked_up(frame: Frame, items: Sequence[Value], position: Scalar) -> Value | None:
    """Return the item at a position, if items are at even distances in an array from outside."""
    first = items[0]
    if isinstance(first, Tuple | Record | Complex):
        if not all(_same_kind(first, item) for item in items):
            return None
        found = [_looked_up(frame, c, position) for c in zip(*map(_parts, items), strict=True)]
        columns = [column for column in found if column is not None]
        return _of_parts(first, columns) if len(columns) == len(found) else None
    elements = frame.walk.elements
    atoms = [item.atom for item in items if isinstance(item, Scalar)]
    places = [elements[a] for a in atoms if isinstance(a, Var) and a in elements]
    if not isinstance(first, Scalar) or len(places) < len(items):
        return None
    array, start = places[0]
    stride = places[-1][1] - start if len(places) < 3 else places[1][1] - start
    if places != [(array, start + i * stride) for i in range(len(places))]:
        return None
    builder = frame.builder
    scaled = builder.op("mul", position.atom, builder.const(stride, I64))
    at = builder.op("add", scaled, builder.const(start, I64))
    return Scalar(builder.load(array, at), first.weak)


def _parts(value: Value) -> Sequence[Value]:
    """Return the items of a tuple, or the parts of a complex number."""
    if isinstance(value, Complex):
        return value.re, value.im
    return value.items if isinstance(value, Tuple | Record) else ()


def _of_parts(like: Tuple | Record | Complex, parts: Sequence[Value]) -> Value:
    if not isinstance(like, Complex):
        return replace(like, items=tuple(parts))
    re, im = parts
    assert isinstance(re, Scalar)
    assert isinstance(im, Scalar)
    return Complex(re, im)


def _are_alike(items: Sequence[Value]) -> bool:
    """Whether items are numbers of one type, or tuples of such: one can be chosen when it runs."""
    return all(_same_kind(items[0], item) for item in items)


def _same_kind(a: Value, b: Value) -> bool:
    if isinstance(a, Number) and isinstance(b, Number):
        return type(a) is type(b) and a.typed == b.typed
    if isinstance(a, Tuple | Record) and isinstance(b, Tuple | Record):
        return _alike(a, b) and all(map(_same_kind, a.items, b.items))
    return isinstance(a, Object) and a == b


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


def _written(frame: Frame, node: ast.expr, cond: Scalar, yes: Value, no: Value) -> Value:
    """Return what is in a place, written to or not: lists have the names that they had."""
    if isinstance(yes, Tuple | Record) and isinstance(no, Tuple | Record) and _alike(yes, no):
        pairs = zip(yes.items, no.items, strict=True)
        made = replace(yes, items=tuple(_written(frame, node, cond, a, b) for a, b in pairs))
        if isinstance(made, Array | List) and isinstance(no, Array | List):
            return replace(made, is_shared=made.is_shared or no.is_shared)
        return made
    if isinstance(yes, Object) and yes == no:
        return yes
    if is_called(yes) or is_called(no):
        raise frame.type_error(
            node,
            "which function this is depends on an index that is known at run time only",
            "call each of them, and index the tuple of their results",
        )
    a, b = (frame.as_number(v, node) for v in (yes, no))
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return apply(frame, node, "where", (cond, a, b))
    return selected(frame, node, cond.atom, a, b)


def _alike(a: Tuple | Record, b: Tuple | Record) -> bool:
    return len(a.items) == len(b.items) and shared(replace(a, items=())) == shared(
        replace(b, items=())
    )


def _slice(frame: Frame, node: ast.Slice) -> slice:
    bounds = []
    for part in (node.lower, node.upper, node.step):
        atom = None if part is None else frame.known(frame.scalar(part)).atom
        if atom is not None and not (isinstance(atom, Const) and atom.type.is_integer):
            assert part is not None
            raise frame.error(part, *refusal(node))
        bounds.append(None if atom is None else int(atom.value))
    return slice(*bounds)


def _element(frame: Frame, node: ast.Subscript, array: Captured | Indexed) -> Value:
    """Read an element of an array from outside, or of one that is passed whole."""
    nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part in nodes:
        if isinstance(part, ast.Slice):
            raise frame.error(
                part,
                f"a kernel reads single elements: a slice of {array.name!r} is an array",
                "read one element after another in a loop over range(...)",
            )
    rank = array.argument.indices
    if len(nodes) != rank or not nodes:
        raise frame.type_error(
            node, f"{array.name!r} has {rank} axes, it is indexed by {len(nodes)}",
            "give one integer for each axis",
        )  # fmt: skip
    indices = [_index(frame, n) for n in nodes]
    arrays = frame.walk.capture_arrays(array) if isinstance(array, Captured) else array.arrays
    lead = () if isinstance(array, Captured) else array.lead
    with frame.at(node):
        loaded = [frame.builder.load(a, *lead, *indices) for a in arrays]
    parts = [Scalar(atom, array.argument.weak) for atom in loaded]
    return Complex(*parts) if len(parts) == 2 else parts[0]


def _index(frame: Frame, node: ast.expr) -> Atom:
    index = frame.scalar(node)
    if not index.atom.type.is_integer:
        raise frame.type_error(node, f"an index is an integer, not {index.typed}", "use int(...)")
    return index.atom


# -- writing ---------------------------------------------------------------------------------------


def assign_item(frame: Frame, target: ast.Subscript, value: Value) -> None:
    """Assign to an item of a list or a small array that one name alone has."""
    indices, root = _path(target)
    name = root.id if isinstance(root, ast.Name) else None
    bound = None if name is None else frame.state.names.get(name)
    if name is None or bound is None or not isinstance(bound.value, Tuple):
        raise frame.error(target, "a kernel cannot assign elements", "return the value")
    frame.assign(name, _replaced(frame, target, bound.value, indices, value), target)


def _path(target: ast.Subscript) -> tuple[list[tuple[ast.Subscript, ast.expr]], ast.expr]:
    """Return the indices from the outermost on, each with its subscript, and what is indexed."""
    found: list[tuple[ast.Subscript, ast.expr]] = []
    node: ast.expr = target
    while isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found = [*((node, part) for part in parts), *found]
        node = node.value
    return found, node


def _replaced(
    frame: Frame,
    target: ast.Subscript,
    whole: Value,
    indices: Sequence[tuple[ast.Subscript, ast.expr]],
    value: Value,
) -> Value:
    """Return a list or array with one item replaced."""
    if not indices:
        return _stored(frame, target, whole, value)
    node, index = indices[0]
    if not isinstance(whole, List | Array):
        spelled = f"`{ast.unparse(node.value)}` is {a_kind_of(whole)}"
        raise frame.type_error(target, f"{spelled}: it has no items to assign to", _OWN)
    if isinstance(whole, List) and isinstance(node.slice, ast.Tuple):
        raise frame.type_error(target, "a list has one axis", "m[i][j] = ...")
    _check_own(frame, target, node, whole)
    if isinstance(index, ast.Slice):
        raise frame.error(target, "a slice cannot be assigned to", "assign one item after another")
    number = _number_of(frame, index, whole)
    if not _are_alike(whole.items):
        number = frame.known(number)
    items = list(whole.items)
    if isinstance(number.atom, Const):
        places = [_place(frame, node, whole, int(number.atom.value))]
        conds: list[Scalar | None] = [None]
    else:
        position = _position(frame, node, len(items), number.atom)
        places = list(range(len(items)))
        conds = [compare(frame, node, ast.Eq(), position, frame.constant(i)) for i in places]
    for i, cond in zip(places, conds, strict=True):
        new = _replaced(frame, target, items[i], indices[1:], value)
        items[i] = new if cond is None else _written(frame, target, cond, new, items[i])
    return replace(whole, items=tuple(items))


_OWN = "a list, [0.0] * 3, or an array, np.zeros(3), that the kernel makes"


def _check_own(
    frame: Frame, target: ast.Subscript, node: ast.Subscript, whole: List | Array
) -> None:
    if whole.is_shared:
        raise frame.error(
            target,
            f"`{ast.unparse(node.value)}` is an argument, or goes by another name too: it cannot "
            "be assigned to",
            "make a list of your own, [0.0] * 3, and give it one name only",
        )


def _stored(frame: Frame, target: ast.Subscript, old: Value, value: Value) -> Value:
    """Return what an item becomes: an element of an array keeps its type, as NumPy has it."""
    if isinstance(old, Scalar) and not old.weak and _is_of_array(frame, target):
        number = frame.as_scalar(value, target)
        return frame.convert(number, old.typed)
    if isinstance(old, Tuple | Record) or isinstance(value, Tuple | Record):
        return _row(frame, target, old, value)
    stored = frame.as_number(value, target)
    if isinstance(old, Complex) and not old.typed.weak and _is_of_array(frame, target):
        z = as_complex(frame, target, stored)
        return Complex(*(frame.convert(part, old.typed) for part in (z.re, z.im)))
    return stored


def _is_of_array(frame: Frame, target: ast.Subscript) -> bool:
    root = _path(target)[1]
    assert isinstance(root, ast.Name)
    return isinstance(frame.state.names[root.id].value, Array)


def _row(frame: Frame, target: ast.Subscript, old: Value, value: Value) -> Value:
    if isinstance(old, List) and isinstance(value, List):
        return value
    raise frame.type_error(
        target,
        f"`{ast.unparse(target)}` is {a_kind_of(old)}, and {a_kind_of(value)} is assigned to it",
        "assign number by number",
    )


def add_to_item(frame: Frame, s: ast.AugAssign) -> None:
    """Carry out ``out[i] += x`` and its kin."""
    assert isinstance(s.target, ast.Subscript)
    root = _path(s.target)[1]
    held = frame.state.names.get(root.id) if isinstance(root, ast.Name) else None
    if held is None or not isinstance(held.value, Tuple):
        raise frame.error(
            s.target, "a kernel cannot assign elements or attributes", "return the value"
        )
    old = frame.as_number(_item_of(frame, s.target), s.target)
    assign_item(frame, s.target, binary(frame, s, s.op, old, frame.value(s.value)))
