"""Lists and arrays that go by more than one name, which are not assigned to.

In Python a list is a place that several names may share, and assigning to an item changes it under
all of them.  Here a list is a value of its own: as long as one name alone has it, there is no
difference.  So every reading of a name that may keep the list marks it as shared, under both names;
looking at an item, its length or a sum does not.  What is shared is only read.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from mixad.scalar.parse.frame import Frame, State
from mixad.scalar.parse.values import Array, List, Record, Tuple, Value

__all__ = ["holds_own", "holds_shared", "share", "share_as_in", "shared"]


def holds_own(value: Value) -> bool:
    """Whether a value is, or holds, a list or array that may be assigned to."""
    if isinstance(value, Array | List) and not value.is_shared:
        return True
    return isinstance(value, Tuple | Record) and any(map(holds_own, value.items))


def holds_shared(value: Value) -> bool:
    """Whether a value is, or holds, a list or array that goes by another name."""
    if isinstance(value, Array | List) and value.is_shared:
        return True
    return isinstance(value, Tuple | Record) and any(map(holds_shared, value.items))


def shared(value: Value) -> Value:
    """Return a value whose lists and arrays go by another name, too."""
    if not isinstance(value, Tuple | Record) or not holds_own(value):
        return value
    items = tuple(map(shared, value.items))
    if isinstance(value, Array | List):
        return replace(value, items=items, is_shared=True)
    return replace(value, items=items)


def share(frame: Frame, node: ast.AST) -> None:
    """Mark what the name at the root of an expression holds."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        node = node.value
    if not isinstance(node, ast.Name):
        return
    owner: Frame | None = frame
    while owner is not None:
        bound = owner.state.names.get(node.id)
        if bound is not None:
            owner.state.names[node.id] = bound._replace(value=shared(bound.value))
            return
        owner = owner.parent


def share_as_in(frame: Frame, state: State) -> None:
    """Mark what was marked on a path, or in a turn, whose names are not kept."""
    names = frame.state.names
    for name, bound in state.names.items():
        here = names.get(name)
        if here is not None and holds_own(here.value) and not holds_own(bound.value):
            names[name] = here._replace(value=shared(here.value))
