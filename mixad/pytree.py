"""Pytrees: dictionaries, lists, tuples, dataclasses and the like, with arrays at their leaves.

A function that is differentiated may take and return them; gradients come back in the same
structure.  ``None`` is a tree without leaves.  A field of a dataclass with ``metadata={"static":
True}`` belongs to the structure.  Other classes take part after `register`.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

__all__ = ["Structure", "flatten", "flatten_as", "leaves", "leaves_or_none", "register", "tree_map",
           "unflatten"]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True)
class Structure:
    """A tree without its leaves; two are equal when trees of them have the same form.

    Attributes
    ----------
    kind : type or None
        The node's class; None for a leaf.
    static : object
        What belongs to the form: keys, names of fields, values of static fields.
    children : tuple of Structure
        In the order of `leaves`.
    """

    kind: type | None
    static: Any = ()
    children: tuple[Structure, ...] = ()

    def __str__(self) -> str:
        if self.kind in (None, type(None)):
            return "*" if self.kind is None else "None"
        names = map(str, self.static) if self.kind in (dict, OrderedDict) else ()
        children = map(str, self.children)
        inside = ", ".join(f"{n}: {c}" for n, c in zip(names, children, strict=False)) or ", ".join(
            children
        )
        return f"{self.kind.__name__}({inside})"


LEAF = Structure(None)


@dataclass(frozen=True)
class _Kind:
    """How values of a class are flattened and built again."""

    children: Callable[[Any], tuple[Sequence[Any], Any]]
    rebuilt: Callable[[type, Any, Sequence[Any]], Any]


def register(
    cls: type[T],
    flatten: Callable[[T], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], T],
) -> None:
    """Let values of a class be nodes of pytrees.

    Parameters
    ----------
    cls : type
        The class itself; subclasses are registered on their own.
    flatten : callable
        Takes a value; returns its children and what else is needed to build it again.
    unflatten : callable
        Takes that rest and new children; returns a value.

    Raises
    ------
    ValueError
        If the class is a node already.

    Examples
    --------
    >>> class Interval:
    ...     def __init__(self, low, high):
    ...         self.low, self.high = low, high
    >>> register(Interval, lambda i: ((i.low, i.high), None), lambda _, ends: Interval(*ends))
    >>> leaves({"a": Interval(1, 2), "b": 3})
    [1, 2, 3]
    """
    if cls in _KINDS:
        raise ValueError(f"{cls.__name__} is registered already")

    def children(value: Any) -> tuple[Sequence[Any], Any]:
        found, static = flatten(value)
        return tuple(found), static

    _FOUND.clear()
    _KINDS[cls] = _Kind(children, lambda _, static, new: unflatten(static, new))


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree, and its structure.

    Parameters
    ----------
    tree : object
        Any value; what is no node is a leaf.

    Returns
    -------
    leaves : list
        From left to right.
    structure : Structure
        What `unflatten` needs.

    Raises
    ------
    ValueError
        If a container contains itself.

    Examples
    --------
    >>> found, structure = flatten({"w": (1.0, 2.0), "b": None})
    >>> found
    [1.0, 2.0]
    >>> unflatten(structure, [10.0, 20.0])
    {'w': (10.0, 20.0), 'b': None}
    """
    if _FOUND.get(type(tree), False) is None:
        return [tree], LEAF
    found: list[Any] = []
    try:
        return found, _flatten(tree, found)
    except RecursionError:
        raise ValueError(
            f"a {type(tree).__name__} contains itself, or holds containers nested too deep: a "
            "pytree ends at its leaves"
        ) from None


def flatten_as(structure: Structure, tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree that stands beside one of a structure, and its own structure.

    Parameters
    ----------
    structure : Structure
        Of the other tree: dictionaries with its keys are taken apart in its order.
    tree : object
        Nested containers.

    Returns
    -------
    leaves : list
        In the order of the structure, if the tree has the same one but for the order of keys.
    structure : Structure
        That of the tree; equal to the other then.

    Examples
    --------
    >>> _, structure = flatten({"w": 1.0, "b": 2.0})
    >>> found, own = flatten_as(structure, {"b": 20.0, "w": 10.0})
    >>> found, own == structure
    ([10.0, 20.0], True)
    """
    found, own = flatten(tree)
    if own is structure or own == structure:
        return found, own
    return flatten(_reorder(structure, tree))


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Return the tree of a structure with these leaves: see `flatten`.

    Parameters
    ----------
    structure : Structure
        From `flatten`.
    leaves : iterable
        As many as the structure has places.

    Returns
    -------
    object
        A tree.
    """
    return _unflatten(structure, iter(leaves))


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree, from left to right.

    Parameters
    ----------
    tree : object
        Nested containers.

    Returns
    -------
    list
        What is in them and is no container.
    """
    return flatten(tree)[0]


def tree_map(
    function: Callable[..., Any],
    tree: Any,
    *trees: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Return a tree with ``function`` applied to each leaf; arguments are those of JAX.

    Parameters
    ----------
    function : callable
        Takes a leaf, and what is in its place in each further tree; returns what takes its place.
    tree : object
        Nested containers.
    *trees : object
        Further trees of the same structure; where ``tree`` has a leaf they may have a container.
    is_leaf : callable, optional
        Whether a container in ``tree``, or ``None``, is a leaf.

    Returns
    -------
    object
        A tree of the same structure.

    Raises
    ------
    ValueError
        If a further tree has another structure.

    Examples
    --------
    >>> tree_map(lambda leaf: 2 * leaf, [1, (2, 3)])
    [2, (4, 6)]
    >>> tree_map(len, {"a": (1, 2), "b": (3,)}, is_leaf=lambda node: type(node) is tuple)
    {'a': 2, 'b': 1}
    >>> tree_map(lambda p, g: p - g, {"w": 5, "b": (1, 2)}, {"w": 1, "b": (1, 1)})
    {'w': 4, 'b': (0, 1)}
    """
    if is_leaf is None:
        found, structure = flatten(tree)
    else:
        found = []
        structure = _flatten(tree, found, is_leaf)
    others = [_parts(structure, other, at) for at, other in enumerate(trees, 1)]
    return unflatten(structure, map(function, found, *others))


def leaves_or_none(structure: Structure, tree: Any) -> list[Any]:
    """Return the leaves of a tree of a structure; None stands for each leaf of a missing subtree.

    Parameters
    ----------
    structure : Structure
        What it must have.
    tree : object
        A tree; parts of it may be None.

    Returns
    -------
    list
        As many as the structure has places.

    Raises
    ------
    ValueError
        If the tree has another structure.

    Examples
    --------
    >>> leaves_or_none(flatten({"a": (1, 2), "b": 3})[1], {"a": None, "b": 4})
    [None, None, 4]
    """
    tree = _with_keys_of(structure, tree)
    kind = _kind_of(type(tree))
    children: Sequence[Any]
    if tree is None:
        children, fits = [None] * len(structure.children), True
    elif kind is None or structure.kind is None:
        children, fits = [], kind is None and structure.kind is None
    else:
        children, static = kind.children(tree)
        fits = (type(tree), static) == (structure.kind, structure.static)
        fits = fits and len(children) == len(structure.children)
    if not fits:
        raise ValueError(f"has the structure {flatten(tree)[1]}, not {structure}")
    if structure.kind is None:
        return [tree]
    parts = zip(structure.children, children, strict=True)
    return [leaf for part, child in parts for leaf in leaves_or_none(part, child)]


def _parts(structure: Structure, tree: Any, at: int) -> list[Any]:
    """Return the parts of a further tree of `tree_map` in the places of leaves."""
    found: list[Any] = []
    if not _collect(structure, tree, found):
        raise ValueError(
            f"tree_map: tree {at} has the structure {flatten(tree)[1]}, tree 0 has {structure}: "
            "they must be the same, with the same keys"
        )
    return found


def _collect(structure: Structure, tree: Any, found: list[Any]) -> bool:
    """Add a tree's parts in the places of leaves; return whether it has these places."""
    if structure.kind is None:
        found.append(tree)
        return True
    kind = _kind_of(type(tree))
    if kind is None:
        return False
    children, static = kind.children(_with_keys_of(structure, tree))
    fits = (type(tree), static) == (structure.kind, structure.static)
    return (
        fits
        and len(children) == len(structure.children)
        and all(map(_collect, structure.children, children, repeat(found)))
    )


def _reorder(structure: Structure, tree: Any) -> Any:
    """Return a tree whose dictionaries have the order of those in a structure."""
    kind = _kind_of(type(tree))
    if kind is None or type(tree) is not structure.kind:
        return tree
    children, static = kind.children(_with_keys_of(structure, tree))
    pairs = zip(structure.children, children, strict=False)
    ordered = [_reorder(child, part) for child, part in pairs]
    return kind.rebuilt(type(tree), static, [*ordered, *children[len(ordered) :]])


def _with_keys_of(structure: Structure, tree: Any) -> Any:
    """Return a dictionary in the order of a structure's keys, if it has the same ones."""
    if type(tree) is not dict or structure.kind is not dict or tree.keys() != {*structure.static}:
        return tree
    return {key: tree[key] for key in structure.static}


def _flatten(
    tree: Any, found: list[Any], is_leaf: Callable[[Any], bool] | None = None
) -> Structure:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(type(tree))
    if kind is None:
        found.append(tree)
        return LEAF
    children, static = kind.children(tree)
    inner = tuple([_flatten(child, found, is_leaf) for child in children])
    return Structure(type(tree), static, inner)


def _unflatten(structure: Structure, found: Any) -> Any:
    if structure is LEAF or structure.kind is None:
        return next(found)
    children = [_unflatten(child, found) for child in structure.children]
    kind = _kind_of(structure.kind)
    assert kind is not None
    return kind.rebuilt(structure.kind, structure.static, children)


def _kind_of(cls: type) -> _Kind | None:
    try:
        return _FOUND[cls]
    except KeyError:
        if len(_FOUND) >= _MAX_FOUND:  # classes made in a loop
            _FOUND.clear()
        found = _FOUND[cls] = _find_kind(cls)
        return found


def _find_kind(cls: type) -> _Kind | None:
    if cls in _KINDS:
        return _KINDS[cls]
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _NAMED_TUPLE
    return _DATACLASS if dataclasses.is_dataclass(cls) else None


_FOUND: dict[type, _Kind | None] = {}  # what `_find_kind` returned
_MAX_FOUND = 256


def _fields(value: Any) -> tuple[Sequence[Any], Any]:
    """Split a dataclass into the values of its fields, and its static fields."""
    fields = dataclasses.fields(value)
    names = tuple(f.name for f in fields if not f.metadata.get("static"))
    static = tuple((f.name, getattr(value, f.name)) for f in fields if f.metadata.get("static"))
    return [getattr(value, name) for name in names], (names, static)


def _from_fields(cls: type, static: Any, children: Sequence[Any]) -> Any:
    """Build a dataclass without `__init__`, which may check or convert what it gets."""
    names, fixed = static
    value: Any = object.__new__(cls)
    for name, child in (*zip(names, children, strict=True), *fixed):
        object.__setattr__(value, name, child)
    return value


_DICT = _Kind(
    lambda d: (list(d.values()), tuple(d)),
    lambda cls, keys, new: cls(zip(keys, new, strict=True)),
)
_NAMED_TUPLE = _Kind(lambda t: (t, ()), lambda cls, _, new: cls(*new))
_DATACLASS = _Kind(_fields, _from_fields)
_KINDS: dict[type, _Kind] = {
    type(None): _Kind(lambda _: ((), ()), lambda cls, _, new: None),
    list: _Kind(lambda x: (x, ()), lambda cls, _, new: list(new)),
    tuple: _Kind(lambda x: (x, ()), lambda cls, _, new: tuple(new)),
    dict: _DICT,
    OrderedDict: _DICT,
    defaultdict: _Kind(
        lambda d: (list(d.values()), (d.default_factory, tuple(d))),
        lambda cls, s, new: defaultdict(s[0], zip(s[1], new, strict=True)),
    ),
}
